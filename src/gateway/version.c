/* version.c: see version.h. */
#include "gateway/version.h"

#include "weir/err.h"

static uint64_t at_ms(uint64_t ms)
{
    uint64_t most = (VERSION_LIMIT - 1) >> VERSION_SHIFT;
    return (ms < most ? ms : most) << VERSION_SHIFT;
}

void version_init(struct version_counter *counter, uint64_t meta_ceiling)
{
    atomic_store_explicit(&counter->last, meta_ceiling, memory_order_relaxed);
    atomic_store_explicit(&counter->ceiling, meta_ceiling, memory_order_relaxed);
}

uint64_t version_ceiling_wanted(const struct version_counter *counter, uint64_t now_ms)
{
    uint64_t from = at_ms(now_ms);
    uint64_t last = atomic_load_explicit(&counter->last, memory_order_relaxed);
    uint64_t ceiling = atomic_load_explicit(&counter->ceiling, memory_order_relaxed);
    if (last > from)
        from = last;
    if (ceiling >= from + at_ms(VERSION_RAISE_WHEN_MS) || ceiling == VERSION_LIMIT - 1)
        return 0;
    uint64_t wanted = from + at_ms(VERSION_AHEAD_MS);
    return wanted < VERSION_LIMIT ? wanted : VERSION_LIMIT - 1;
}

void version_raise(struct version_counter *counter, uint64_t ceiling)
{
    /* Relaxed: the number is all there is; META was synced by this thread before. */
    atomic_store_explicit(&counter->ceiling, ceiling, memory_order_relaxed);
}

int version_take(struct version_counter *counter, uint64_t now_ms, uint32_t n, uint64_t *first)
{
    /* Relaxed is enough throughout: one location has one modification order, which is all that
     * "rises" needs. */
    uint64_t last = atomic_load_explicit(&counter->last, memory_order_relaxed);
    uint64_t ceiling = atomic_load_explicit(&counter->ceiling, memory_order_relaxed);
    uint64_t begin;
    do {
        begin = at_ms(now_ms);
        if (begin <= last)
            begin = last + 1;
        if (begin > ceiling || ceiling - begin < (uint64_t)n - 1)
            return WEIR_UNAVAILABLE;
    } while (!atomic_compare_exchange_weak_explicit(&counter->last, &last, begin + n - 1,
                                                    memory_order_relaxed, memory_order_relaxed));
    *first = begin;
    return 0;
}

uint64_t version_close(struct version_counter *counter)
{
    atomic_store_explicit(&counter->ceiling, 0, memory_order_relaxed);
    return atomic_load_explicit(&counter->last, memory_order_relaxed);
}
