/* retry.c: see retry.h. */
#include "delivery/retry.h"

/* xorshift64* (G. Marsaglia; S. Vigna): jitter needs no more. */
static uint64_t next_random(uint64_t *state)
{
    uint64_t x = *state;
    x ^= x >> 12;
    x ^= x << 25;
    x ^= x >> 27;
    *state = x;
    return x * UINT64_C(2685821657736338717);
}

void backoff_init(struct backoff *b, unsigned min_ms, unsigned max_ms, uint64_t seed)
{
    *b = (struct backoff){.min_ms = min_ms ? min_ms : 1};
    b->max_ms = max_ms > b->min_ms ? max_ms : b->min_ms;
    b->random = seed ? seed : 1;
}

uint64_t backoff_next_ns(struct backoff *b)
{
    uint64_t ceiling_ms = b->min_ms;
    for (unsigned i = 0; i < b->failures && ceiling_ms < b->max_ms; i++)
        ceiling_ms *= 2;
    if (ceiling_ms > b->max_ms)
        ceiling_ms = b->max_ms;
    if (b->failures < 64)
        b->failures++;
    const uint64_t least_ns = 1000000, span_ns = ceiling_ms * 1000000 - least_ns;
    return least_ns + (span_ns ? next_random(&b->random) % (span_ns + 1) : 0);
}

void backoff_reset(struct backoff *b)
{
    b->failures = 0;
}

void breaker_init(struct breaker *b, unsigned threshold, unsigned min_ms, unsigned max_ms,
                  uint64_t seed)
{
    *b = (struct breaker){.threshold = threshold ? threshold : 1};
    backoff_init(&b->backoff, min_ms, max_ms, seed);
}

bool breaker_may_call(struct breaker *b, uint64_t now_ns)
{
    if (b->state == BREAKER_CLOSED)
        return true;
    if (b->state == BREAKER_HALF_OPEN || now_ns < b->next_try_ns)
        return false;
    b->state = BREAKER_HALF_OPEN;
    return true;
}

void breaker_gave_up(struct breaker *b)
{
    if (b->state == BREAKER_HALF_OPEN)
        b->state = BREAKER_OPEN;
}

bool breaker_failed(struct breaker *b, uint64_t now_ns)
{
    enum breaker_state before = b->state;
    if (b->failures < UINT32_MAX)
        b->failures++;
    if (before == BREAKER_CLOSED && b->failures < b->threshold)
        return false;
    /* Calls that were under way when it opened fail too: they are news of the same moment. */
    if (before == BREAKER_OPEN)
        return false;
    b->state = BREAKER_OPEN;
    b->next_try_ns = now_ns + backoff_next_ns(&b->backoff);
    return before == BREAKER_CLOSED;
}

bool breaker_succeeded(struct breaker *b)
{
    bool closed = b->state != BREAKER_CLOSED;
    b->state = BREAKER_CLOSED;
    b->failures = 0;
    backoff_reset(&b->backoff);
    return closed;
}
