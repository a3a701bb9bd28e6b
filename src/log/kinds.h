/* kinds.h: the kinds of log there are. To add one: its const struct here, its line in log.c. */
#ifndef WEIR_LOG_KINDS_H
#define WEIR_LOG_KINDS_H

#include "log/log.h"

extern const struct log_ops log_journal; /* journal/journal.c */

#endif
