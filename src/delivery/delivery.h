/* delivery.h: from the log into the sinks.
 *
 * A consumer is a cursor over the log and the sinks it feeds, with a thread of its own that reads,
 * splits into parts, submits to the sinks' lanes, settles, and owns every policy: retry with
 * backoff, breaker, bisection, dead letters. A sink's slowness delays only the consumers that feed
 * it.
 *
 * Invariants: 1. the cursor passes a record only when every sink of its stream (of this consumer)
 * has stored it or holds it as a durable dead letter; 2. records with one key reach a sink in
 * order; while one is in retry the later ones of its part wait; 3. a call to a sink carries each id
 * once, at its highest version, and the others settle with it (if it is refused, the next lower is
 * sent); 4. memory per consumer is bounded (records and bytes in flight). */
#ifndef WEIR_DELIVERY_DELIVERY_H
#define WEIR_DELIVERY_DELIVERY_H

#include "base/histogram.h"
#include "delivery/dead.h"
#include "exec/lane.h"
#include "log/log.h"
#include "sink/sink.h"

struct delivery_sink { /* one sink as delivery sees it; filled by the gateway, constant while
                          delivery runs */
    const char *name;
    struct sink *sink;
    struct lane *lane;
    unsigned split; /* parts per partition, 1 to 64 (ignored where the sink has one writer) */
    bool ordered;   /* false: order: none */
    unsigned batch_records;              /* 500 */
    size_t batch_bytes;                  /* 4 MiB */
    unsigned retry_min_ms, retry_max_ms; /* 50, 10000; full jitter */
    unsigned breaker_failures;           /* so many failures in a row open it: 5 */
    unsigned bisect_calls;               /* budget of one bisection: 64 */
};

struct delivery_consumer {
    const char *name;      /* the cursor's name */
    const unsigned *sinks; /* indexes into delivery_config.sinks */
    size_t n_sinks;
};

struct delivery_stream {
    uint32_t number;
    const char *name;
    uint64_t sinks; /* bit i: goes to delivery_config.sinks[i]; 0: is not configured any more, but
                       the log may hold records of it */
};

/* What became of one record at one sink; given in lists, one list per sink call. */
struct settlement {
    uint32_t stream, partition;
    uint64_t offset;
    enum outcome outcome; /* stored, or refused (it is a dead letter now) */
    const char *reason;   /* when refused; lives during the call */
};

struct delivery_events {
    void *context;
    void (*settled)(void *context, unsigned sink, const struct settlement *list,
                    size_t n); /* consumer thread; must not block */
    void (*report)(
        void *context,
        const char *text); /* breaker opened or closed, dead letter, cap reached; any thread */
    /* Whether anybody waits for a settlement; NULL: somebody always does. While nobody does, the
     * log is read a few milliseconds late, so that a busy gateway's consumers do not wake for every
     * group. Any thread; must not block. */
    bool (*waited_for)(void *context);
};

struct delivery_config {
    struct log *log;
    const struct fs *fs;
    const char *data;
    unsigned partitions;
    const struct delivery_sink *sinks;
    size_t n_sinks;
    const struct delivery_consumer *consumers;
    size_t n_consumers;
    const struct delivery_stream *streams;
    size_t n_streams;
    uint64_t dead_max_bytes; /* cap of each dead letter file: 1 GiB */
    size_t inflight_bytes;   /* per consumer: 32 MiB */
    struct delivery_events events;
};

struct delivery_sink_stats { /* one moment */
    uint64_t stored, refused, retries, failures, batches, bisections;
    bool breaker_open;
    uint64_t next_try_ms; /* until the next try while the breaker is open */
    char last_error[200];
    uint64_t dead_letters, dead_bytes;
    const struct histogram *batch_records, *write_ns; /* live */
};

struct delivery_consumer_stats {
    uint64_t lag; /* durable, not settled */
    uint64_t inflight_records, inflight_bytes;
    uint64_t settled;   /* since start */
    double drain_per_s; /* over about the last five seconds */
    bool stopped;       /* at the dead letters' cap, or the log is corrupt there */
    char why_stopped[512];
};

struct delivery;
int delivery_start(const struct delivery_config *config, struct delivery **out, struct diag *diag);
/* No new batches; what is in flight may finish until deadline_ms; the rest stays in the log. Frees.
 * The lanes and sinks stay the caller's. A call that has not ended by then is left to its lane: the
 * log may be closed, but the sink only after lane_close, which waits for it. */
void delivery_stop(struct delivery *delivery, uint32_t deadline_ms);
/* Somebody waits now: a read of the log that was put off happens at once. Call it after waited_for
 * would say so. Any thread; a short lock. */
void delivery_hurry(struct delivery *delivery);
bool delivery_breaker_open(const struct delivery *delivery,
                           unsigned sink); /* any thread, never blocks */
void delivery_sink_stats(struct delivery *delivery, unsigned sink, struct delivery_sink_stats *out);
void delivery_consumer_stats(struct delivery *delivery, unsigned consumer,
                             struct delivery_consumer_stats *out);
struct dead *delivery_dead(struct delivery *delivery, unsigned sink); /* that sink's dead letters */

#endif
