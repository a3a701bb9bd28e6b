/* histogram.h: a log-linear histogram of 64-bit values (HDR style: relative error below 1/128
 * over the whole range, fixed memory). One writer; readers on other threads see counts that are
 * each exact but not from one moment (cells are relaxed atomics). Unit is the user's, in the
 * field's name. */
#ifndef WEIR_BASE_HISTOGRAM_H
#define WEIR_BASE_HISTOGRAM_H

#include <stdatomic.h>
#include <stdint.h>

#include "base/buf.h"

struct histogram; /* about 60 KiB or less */

struct histogram *histogram_create(void);
void histogram_destroy(struct histogram *h);
void histogram_record(struct histogram *h, uint64_t value); /* one writer */
void histogram_record_n(struct histogram *h, uint64_t value, uint64_t n);
void histogram_add(struct histogram *into, const struct histogram *from); /* merge */
void histogram_reset(struct histogram *h);
uint64_t histogram_count(const struct histogram *h);
uint64_t histogram_sum(const struct histogram *h); /* exact sum of recorded values */
uint64_t histogram_max(const struct histogram *h); /* exact; 0 when empty */
uint64_t histogram_min(const struct histogram *h);
double histogram_mean(const struct histogram *h);
/* q in 0..1: the highest value equivalent to the one at that rank, never above max. 0 when empty.
 */
uint64_t histogram_quantile(const struct histogram *h, double q);
/* How many values are <= bound (to the histogram's precision): for Prometheus buckets. */
uint64_t histogram_count_below(const struct histogram *h, uint64_t bound);
/* Text form for `weir load merge`: one line of JSON-safe characters. */
void histogram_encode(const struct histogram *h, struct buf *out);
int histogram_decode(struct histogram *h, struct slice text); /* adds to h; WEIR_SYNTAX */

#endif
