/* keys.h: which key the next record has: uniform, or Zipf: key k (from 0, the hottest first) with a
 * probability proportional to 1 / (k + 1)^s. No table: any number of keys costs the same memory.
 * The chooser is constant after keys_init; the random state is the caller's. */
#ifndef WEIR_LOAD_KEYS_H
#define WEIR_LOAD_KEYS_H

#include "load/rng.h"

struct keys {
    uint64_t n;
    double s; /* 0: uniform */
    double h_first, h_last, shortcut;
};

void keys_init(struct keys *keys, uint64_t n, double s);      /* n >= 1, s >= 0 */
uint64_t keys_next(const struct keys *keys, struct rng *rng); /* 0 to n - 1 */

#endif
