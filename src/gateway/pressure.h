/* pressure.h: when weir says "not now", why, and for how long.
 *
 * One budget in bytes covers the bodies in memory and the ring. The housekeeping thread looks at
 * the log and the consumers a few times a second and publishes which limit is reached and how long
 * the way back is; loops only read atomics.
 *
 * Threads: pressure_charge, _release, _blocked, _refuse, _log_failed on any
 * thread; pressure_observe on the
 * housekeeping thread. */
#ifndef WEIR_GATEWAY_PRESSURE_H
#define WEIR_GATEWAY_PRESSURE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(cause, name, text) */
#define PRESSURE_MAP(X)                                                                            \
    X(MEMORY, "memory", "the memory budget for bodies is used up (limits: memory)")                \
    X(RING, "ring", "the ring to the log is full")                                                 \
    X(LOG, "log_full", "the log is full (log: max_bytes); the slowest consumer holds it")          \
    X(DISK, "disk_full", "no space is left on the disk of the data directory")                     \
    X(LAG, "lag", "a consumer is further behind than limits: lag allows")                          \
    X(FAILED, "log_failed", "the log can make nothing durable; see weir's standard error")         \
    X(VERSION, "version", "META could not be written, so no version can be given out")             \
    X(STARTING, "starting", "weir is starting")                                                    \
    X(STOPPING, "stopping", "weir is stopping")                                                    \
    X(LANE, "lane", "too many requests of this kind wait already")

enum pressure_cause {
#define X(cause, name, text) PRESSURE_##cause,
    PRESSURE_MAP(X)
#undef X
        PRESSURE_CAUSES
};
const char *pressure_name(enum pressure_cause cause);
const char *pressure_text(enum pressure_cause cause);

struct pressure {
    uint64_t memory_limit; /* constant */
    _Alignas(64) _Atomic uint64_t memory_used;
    _Atomic bool log_failed;                   /* never cleared */
    _Alignas(64) _Atomic uint32_t blocked;     /* bit per cause, from pressure_observe */
    _Atomic uint32_t wait_ms[PRESSURE_CAUSES]; /* before jitter */
    _Atomic uint64_t refused[PRESSURE_CAUSES]; /* requests answered 503 */
};

void pressure_init(struct pressure *pressure, uint64_t memory_limit);

/* Is there room for bytes more? Charges them when there is. */
bool pressure_charge(struct pressure *pressure, uint64_t bytes);
/* Charges what is needed whatever the limit: for what became known only after the body was taken.
 */
static inline void pressure_charge_more(struct pressure *pressure, uint64_t bytes)
{
    atomic_fetch_add_explicit(&pressure->memory_used, bytes, memory_order_relaxed);
}
static inline void pressure_release(struct pressure *pressure, uint64_t bytes)
{
    /* Relaxed: a count, nothing is published with it. */
    atomic_fetch_sub_explicit(&pressure->memory_used, bytes, memory_order_relaxed);
}

/* The first cause for which new records are refused right now, or PRESSURE_CAUSES. */
enum pressure_cause pressure_blocked(const struct pressure *pressure);

/* The log ended acknowledgement until the restart: blocks at once and stays. */
void pressure_log_failed(struct pressure *pressure);

/* Counts a refusal; returns the Retry-After for it: 1 to 60. `random` is any 32 bits. */
unsigned pressure_refuse(struct pressure *pressure, enum pressure_cause cause, uint32_t random);

/* Seconds until `excess` is gone at `rate` a second: jittered by a quarter either way, 1 to 60; 60
 * when nothing drains. Pure. */
unsigned pressure_seconds(double excess, double rate, uint32_t random);

struct pressure_observation {     /* one moment */
    uint64_t flushed_bytes_per_s; /* what the log makes durable */
    uint64_t ring_count, flushed_records_per_s;
    bool log_full, disk_full, log_failed;
    double log_excess_bytes, log_drain_bytes_per_s; /* until the log takes records again */
    uint64_t lag, lag_limit;                        /* of the slowest consumer; limit 0: none */
    double lag_drain_per_s;
};
void pressure_observe(struct pressure *pressure, const struct pressure_observation *now);

#endif
