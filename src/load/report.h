/* report.h: a result as JSON, as text, and as a file that `weir load merge` reads. Any thread. */
#ifndef WEIR_LOAD_REPORT_H
#define WEIR_LOAD_REPORT_H

#include "base/buf.h"
#include "load/load.h"

/* One JSON document and a line end. Latencies are in microseconds, with three decimals. */
void report_json(const struct load_result *result, struct buf *out);
void report_text(const struct load_result *result, struct buf *out);

/* The file of --hist: the counters and the whole histograms. */
int report_save(const struct load_result *result, const char *path, struct diag *diag);
/* Adds a saved result to *into (after load_result_init): counters and histograms are summed, the
 * window spans all of them, so the rate is that of generators that ran side by side. */
int report_merge(const char *path, struct load_result *into, struct diag *diag);

#endif
