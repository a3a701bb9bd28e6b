/* pacer.c: see pacer.h. Times are computed from the number, never by adding intervals, so that a
 * long run does not drift: a double holds i / rate to better than a nanosecond for ten days. */
#include "load/pacer.h"

#include <assert.h>

static uint64_t intended(const struct pacer *pacer, uint64_t number)
{
    return pacer->start_ns + (uint64_t)((double)number * pacer->interval_ns);
}

void pacer_init(struct pacer *pacer, double rate_per_s, uint64_t requests, unsigned thread,
                unsigned threads)
{
    *pacer = (struct pacer){.interval_ns = rate_per_s > 0 ? 1e9 / rate_per_s : 0,
                            .stride = threads,
                            .next = thread,
                            .end = requests};
}

void pacer_start(struct pacer *pacer, uint64_t start_ns, uint64_t until_ns)
{
    pacer->start_ns = start_ns;
    if (pacer->interval_ns <= 0 || until_ns == PACER_NEVER)
        return;
    /* The first number that is due at or after until_ns: the division is right to one, the loops
     * make it exact. */
    uint64_t n = (uint64_t)((double)(until_ns - start_ns) / pacer->interval_ns);
    while (n > 0 && intended(pacer, n - 1) >= until_ns)
        n--;
    while (intended(pacer, n) < until_ns)
        n++;
    if (n < pacer->end) {
        pacer->end = n;
        pacer->timed = true;
    }
}

bool pacer_done(const struct pacer *pacer)
{
    return pacer->next >= pacer->end;
}

uint64_t pacer_due_ns(const struct pacer *pacer)
{
    return pacer_done(pacer) ? PACER_NEVER : intended(pacer, pacer->next);
}

uint64_t pacer_waiting(const struct pacer *pacer, uint64_t now_ns)
{
    if (pacer_done(pacer) || now_ns < pacer->start_ns)
        return 0;
    uint64_t bound = pacer->end; /* first number that is not due */
    if (pacer->interval_ns > 0) {
        double n = (double)(now_ns - pacer->start_ns) / pacer->interval_ns + 1;
        if (n < (double)bound)
            bound = (uint64_t)n;
        while (bound > pacer->next && intended(pacer, bound - 1) > now_ns)
            bound--;
        while (bound < pacer->end && intended(pacer, bound) <= now_ns)
            bound++;
    }
    if (bound <= pacer->next)
        return 0;
    return (bound - pacer->next - 1) / pacer->stride + 1;
}

uint64_t pacer_take(struct pacer *pacer, uint64_t now_ns, uint64_t *intended_ns)
{
    assert(!pacer_done(pacer));
    uint64_t number = pacer->next;
    *intended_ns = pacer->interval_ns > 0 ? intended(pacer, number) : now_ns;
    pacer->next += pacer->stride;
    return number;
}
