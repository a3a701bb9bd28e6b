/* pressure.c: see pressure.h. */
#include "gateway/pressure.h"

#define WAIT_MAX_MS 60000

const char *pressure_name(enum pressure_cause cause)
{
    switch (cause) {
#define X(cause, name, text)                                                                       \
    case PRESSURE_##cause:                                                                         \
        return name;
        PRESSURE_MAP(X)
#undef X
    default:
        return "none";
    }
}

const char *pressure_text(enum pressure_cause cause)
{
    switch (cause) {
#define X(cause, name, text)                                                                       \
    case PRESSURE_##cause:                                                                         \
        return text;
        PRESSURE_MAP(X)
#undef X
    default:
        return "nothing is refused";
    }
}

void pressure_init(struct pressure *pressure, uint64_t memory_limit)
{
    *pressure = (struct pressure){.memory_limit = memory_limit};
    for (unsigned i = 0; i < PRESSURE_CAUSES; i++)
        atomic_store_explicit(&pressure->wait_ms[i], 1000, memory_order_relaxed);
}

bool pressure_charge(struct pressure *pressure, uint64_t bytes)
{
    uint64_t used =
        atomic_fetch_add_explicit(&pressure->memory_used, bytes, memory_order_relaxed) + bytes;
    if (used <= pressure->memory_limit)
        return true;
    pressure_release(pressure, bytes);
    return false;
}

enum pressure_cause pressure_blocked(const struct pressure *pressure)
{
    uint32_t blocked = atomic_load_explicit(&pressure->blocked, memory_order_relaxed);
    return blocked ? (enum pressure_cause)__builtin_ctz(blocked) : PRESSURE_CAUSES;
}

/* Milliseconds with jitter to whole seconds, 1 to 60. */
static unsigned jittered(uint32_t wait_ms, uint32_t random)
{
    if (wait_ms >= WAIT_MAX_MS)
        return WAIT_MAX_MS / 1000;
    uint64_t share = 768 + random % 513; /* 0.75 to 1.25, in 1/1024 */
    uint64_t seconds = (wait_ms * share / 1024 + 999) / 1000;
    if (seconds < 1)
        return 1;
    return seconds < WAIT_MAX_MS / 1000 ? (unsigned)seconds : WAIT_MAX_MS / 1000;
}

static uint32_t wait_for(double excess, double rate)
{
    if (excess <= 0)
        return 1000;
    if (!(rate > 0))
        return WAIT_MAX_MS;
    double ms = excess / rate * 1000;
    return ms < 1000 ? 1000 : ms < WAIT_MAX_MS ? (uint32_t)ms : WAIT_MAX_MS;
}

unsigned pressure_seconds(double excess, double rate, uint32_t random)
{
    return jittered(wait_for(excess, rate), random);
}

unsigned pressure_refuse(struct pressure *pressure, enum pressure_cause cause, uint32_t random)
{
    atomic_fetch_add_explicit(&pressure->refused[cause], 1, memory_order_relaxed);
    return jittered(atomic_load_explicit(&pressure->wait_ms[cause], memory_order_relaxed), random);
}

static void set_wait(struct pressure *pressure, enum pressure_cause cause, uint32_t ms)
{
    atomic_store_explicit(&pressure->wait_ms[cause], ms, memory_order_relaxed);
}

void pressure_log_failed(struct pressure *pressure)
{
    /* Sequentially consistent, as in pressure_observe: if its store takes our bit away, its load
     * after that sees our flag. */
    atomic_store(&pressure->log_failed, true);
    atomic_fetch_or(&pressure->blocked, 1u << PRESSURE_FAILED);
    set_wait(pressure, PRESSURE_FAILED, WAIT_MAX_MS);
}

void pressure_observe(struct pressure *pressure, const struct pressure_observation *now)
{
    uint32_t blocked = 0;
    uint64_t used = atomic_load_explicit(&pressure->memory_used, memory_order_relaxed);

    /* Room for half of the budget, half of the ring. */
    set_wait(pressure, PRESSURE_MEMORY,
             wait_for((double)used - (double)pressure->memory_limit / 2,
                      (double)now->flushed_bytes_per_s));
    set_wait(pressure, PRESSURE_RING,
             wait_for((double)now->ring_count / 2, (double)now->flushed_records_per_s));

    uint32_t log_ms = wait_for(now->log_excess_bytes, now->log_drain_bytes_per_s);
    set_wait(pressure, PRESSURE_LOG, log_ms);
    set_wait(pressure, PRESSURE_DISK, log_ms);
    if (now->log_full)
        blocked |= 1u << PRESSURE_LOG;
    if (now->disk_full) /* the log itself tries whether space came back */
        blocked |= 1u << PRESSURE_DISK;

    if (now->lag_limit && now->lag > now->lag_limit) {
        blocked |= 1u << PRESSURE_LAG;
        set_wait(pressure, PRESSURE_LAG,
                 wait_for((double)(now->lag - now->lag_limit), now->lag_drain_per_s));
    }
    if (now->log_failed || atomic_load(&pressure->log_failed))
        blocked |= 1u << PRESSURE_FAILED;
    /* A failed write may pass; a failed sync ends it until the restart. */
    set_wait(pressure, PRESSURE_FAILED, blocked & 1u << PRESSURE_FAILED ? WAIT_MAX_MS : 5000);
    /* Hints; the log itself refuses what it cannot take. */
    atomic_store(&pressure->blocked, blocked);
    if (atomic_load(&pressure->log_failed)) /* it came in between */
        atomic_fetch_or(&pressure->blocked, 1u << PRESSURE_FAILED);
}
