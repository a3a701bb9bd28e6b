/* retry.h: when to try again: a backoff for each part, a breaker for each sink.
 *
 * backoff: exponential with full jitter (M. Brooker, "Exponential Backoff And Jitter", AWS
 * Architecture Blog 2015): the n-th wait in a row is uniform in 1 ms .. min(max, min * 2^(n-1)).
 *
 * breaker (M. Nygard, "Release It!"):
 *   closed    -> open       breaker_failed, `threshold` times in a row without a success
 *   open      -> half open  breaker_may_call, once the wait is over: the caller makes one probe
 *   half open -> open       breaker_failed: the next wait
 *   any       -> closed     breaker_succeeded
 *   half open -> open       breaker_gave_up: the probe was not made after all; no new wait
 * Both: one thread; time comes from outside. */
#ifndef WEIR_DELIVERY_RETRY_H
#define WEIR_DELIVERY_RETRY_H

#include <stdbool.h>
#include <stdint.h>

struct backoff {
    unsigned min_ms, max_ms;
    unsigned failures; /* in a row */
    uint64_t random;   /* state of a xorshift generator */
};

void backoff_init(struct backoff *b, unsigned min_ms, unsigned max_ms, uint64_t seed);
uint64_t backoff_next_ns(struct backoff *b); /* after a failure: how long to wait */
void backoff_reset(struct backoff *b);       /* after a success */

enum breaker_state { BREAKER_CLOSED, BREAKER_OPEN, BREAKER_HALF_OPEN };

struct breaker {
    enum breaker_state state;
    unsigned threshold; /* 0 counts as 1 */
    unsigned failures;  /* in a row */
    uint64_t next_try_ns;
    struct backoff backoff;
};

void breaker_init(struct breaker *b, unsigned threshold, unsigned min_ms, unsigned max_ms,
                  uint64_t seed);
/* Whether a call may be made now; in the open state a true makes it half open. */
bool breaker_may_call(struct breaker *b, uint64_t now_ns);
void breaker_gave_up(struct breaker *b);
bool breaker_failed(struct breaker *b, uint64_t now_ns); /* true: it opened by this (from closed) */
bool breaker_succeeded(struct breaker *b);               /* true: it closed by this */

#endif
