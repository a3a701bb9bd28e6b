/* kinds.h: the sinks there are, each one const struct at the end of its file, and the
 * helpers that they share. Only sink/ includes this. */
#ifndef WEIR_SINK_KINDS_H
#define WEIR_SINK_KINDS_H

#include "sink/sink.h"

extern const struct sink_ops sink_null;
extern const struct sink_ops sink_sqlite;

/* The option of that name, or NULL. */
const struct sink_option *sink_option(const struct sink_config *config, const char *name);
/* Fills *diag with "line N: NAME: text" and returns WEIR_INVALID. */
int sink_option_bad(const struct sink_option *option, struct diag *diag, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* `path` below the data directory unless it is absolute; to be freed. */
char *sink_path(const struct sink_config *config, const char *path);

#endif
