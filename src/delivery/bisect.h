/* bisect.h: finds the bad records in a batch that its sink refused as a whole.
 *
 * The batch's records stand in a row. A bisection says how many from the front the next call
 * carries and is told what came of it; records leave the front in order, so the order of keys is
 * kept. A refused span is halved, left half first. When a left half turns out clean the fault must
 * be in the right one, which is then halved without asking.
 *
 * Invariants: 1. a record is only refused by a call that carried nothing else; 2. with the budget
 * of calls spent, the rest goes one record a call: no good record is ever given up, and a batch of
 * n costs at most budget + n calls. Failures that are not about the data are not told here: the
 * same span is simply sent again.
 *
 *   idle -> halving   bisect_begin
 *   halving -> single the budget is spent (bisect_refused, bisect_answered)
 *   any -> idle       bisect_answered, nothing left; bisect_reset
 * One thread. */
#ifndef WEIR_DELIVERY_BISECT_H
#define WEIR_DELIVERY_BISECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define BISECT_DEPTH 66 /* halving a 64-bit count leaves at most one right half a bit */

struct bisect {      /* `{0}` is idle */
    unsigned depth;  /* spans; 0: idle */
    unsigned budget; /* calls left for halving */
    bool single;     /* one record a call from now on */
    struct bisect_span {
        size_t n;
        bool bad;           /* known to hold a bad record */
        bool bad_if_others; /* bad when what stood before it in its parent is clean */
    } spans[BISECT_DEPTH];  /* the last one is at the front */
};

static inline bool bisect_active(const struct bisect *b)
{
    return b->depth > 0;
}
/* The first n records were refused as a whole (n > 1); `budget` calls may be spent on halving. */
void bisect_begin(struct bisect *b, size_t n, unsigned budget);
/* How many records from the front the next call carries. */
size_t bisect_take(struct bisect *b);
/* A call with `taken` records was refused as a whole (taken > 1). */
void bisect_refused(struct bisect *b, size_t taken);
/* A call with `taken` records was answered record by record. `left` of them stay at the front, to
 * be sent again; `clean`: none was refused. */
void bisect_answered(struct bisect *b, size_t taken, size_t left, bool clean);
void bisect_reset(struct bisect *b);

#endif
