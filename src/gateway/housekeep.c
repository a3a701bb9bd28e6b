/* housekeep.c: what has to be done a few times a second beside everything else: raise the ceiling
 * of versions in META, look at the log and the consumers for pressure.c, measure rates. */
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/state.h"
#include "gateway/tell.h"
#include "os/thread.h"

#define TICK_MS      200
#define DISK_FULL_NS UINT64_C(2000000000) /* how long one ENOSPC makes it not ready */
#define SAMPLES      16                   /* rates are over the last 3 s */

struct sample {
    uint64_t at_ns, records, bytes;
};

struct watch {
    struct gateway *gateway;
    struct sample samples[SAMPLES];
    unsigned n; /* taken so far */
    bool meta_failed;
    bool disk_full;           /* what makes the log full is the disk */
    enum pressure_cause told; /* the last that a person was told of */
};

/* ---- versions ---- */

int housekeep_versions(struct gateway *gateway, struct diag *diag)
{
    uint64_t wanted = version_ceiling_wanted(&gateway->versions, clock_wall_ms());
    if (wanted == 0)
        return 0;
    uint64_t old = gateway->meta.version_ceiling;
    gateway->meta.version_ceiling = wanted;
    int err = meta_write(gateway->fs, gateway->config->data, &gateway->meta, diag);
    if (err) {
        gateway->meta.version_ceiling = old;
        return err;
    }
    version_raise(&gateway->versions, wanted);
    return 0;
}

static void tick_versions(struct watch *watch)
{
    struct diag diag = {0};
    int err = housekeep_versions(watch->gateway, &diag);
    if (err)
        tell("%s; new records are refused when the versions at hand are used up", diag.text);
    else if (watch->meta_failed)
        tell("META can be written again");
    watch->meta_failed = err != 0;
}

/* ---- pressure ---- */

/* Records and bytes a second since the oldest sample that is kept. */
static void rates(struct watch *watch, const struct log_stats *stats, double *records_per_s,
                  double *bytes_per_s)
{
    struct sample now = {clock_mono_ns(), stats->appended_records, stats->appended_bytes};
    unsigned oldest = watch->n < SAMPLES ? 0 : watch->n % SAMPLES;
    *records_per_s = *bytes_per_s = 0;
    if (watch->n > 0) {
        const struct sample *then = &watch->samples[oldest];
        double seconds = (double)(now.at_ns - then->at_ns) / 1e9;
        *records_per_s = (double)(now.records - then->records) / seconds;
        *bytes_per_s = (double)(now.bytes - then->bytes) / seconds;
    }
    watch->samples[watch->n++ % SAMPLES] = now;
    if (watch->n == 2 * SAMPLES)
        watch->n = SAMPLES;
}

static void tell_change(struct watch *watch)
{
    enum pressure_cause cause = pressure_blocked(&watch->gateway->pressure);
    if (cause == watch->told || cause == PRESSURE_STOPPING)
        return;
    if (cause != PRESSURE_CAUSES)
        tell("new records are refused: %s", pressure_text(cause));
    else
        tell("new records are taken again");
    watch->told = cause;
}

static void tick_pressure(struct watch *watch)
{
    struct gateway *gateway = watch->gateway;
    struct log_stats stats;
    double records_per_s, bytes_per_s;
    log_stats(gateway->log, &stats);
    rates(watch, &stats, &records_per_s, &bytes_per_s);
    atomic_store_explicit(&gateway->durable_per_s, (uint64_t)records_per_s, memory_order_relaxed);

    double record_bytes =
        stats.appended_records ? (double)stats.appended_bytes / (double)stats.appended_records : 0;
    /* The log says "full" for both; who met ENOSPC a moment ago says which it is. */
    watch->disk_full = stats.full && (watch->disk_full ||
                                      clock_mono_ns() < count_get(&gateway->disk_full_until_ns));
    struct pressure_observation now = {
        .flushed_bytes_per_s = (uint64_t)bytes_per_s,
        .flushed_records_per_s = (uint64_t)records_per_s,
        .ring_count = stats.ring_count,
        .log_full = stats.full && !watch->disk_full,
        .disk_full = watch->disk_full,
        .log_failed = stats.poisoned,
        .lag_limit = gateway->config->limits.lag_records,
    };
    for (size_t i = 0; i < gateway->n_sinks; i++) {
        struct delivery_consumer_stats consumer;
        delivery_consumer_stats(gateway->delivery, (unsigned)i, &consumer);
        if (consumer.lag >= now.lag) { /* the slowest holds the log */
            now.lag = consumer.lag;
            now.lag_drain_per_s = consumer.drain_per_s;
        }
    }
    /* Room comes back a segment at a time. */
    now.log_excess_bytes = (double)gateway->config->log.segment_bytes;
    now.log_drain_bytes_per_s = now.lag_drain_per_s * record_bytes;
    pressure_observe(&gateway->pressure, &now);
    atomic_store_explicit(&gateway->lag, now.lag, memory_order_relaxed);
    tell_change(watch);
}

void housekeep_disk_full(struct gateway *gateway)
{
    atomic_store_explicit(&gateway->disk_full_until_ns, clock_mono_ns() + DISK_FULL_NS,
                          memory_order_relaxed);
}

/* ---- the thread ---- */

static void *housekeeper_run(void *argument)
{
    struct watch watch = {.gateway = argument, .told = PRESSURE_CAUSES};
    struct housekeeper *housekeeper = &watch.gateway->housekeeper;
    pthread_mutex_lock(&housekeeper->lock);
    while (!housekeeper->stop) {
        pthread_mutex_unlock(&housekeeper->lock);
        tick_versions(&watch);
        tick_pressure(&watch);
        tell_flush();
        uint64_t until = clock_mono_ns() + UINT64_C(1000000) * TICK_MS;
        struct timespec at = {(time_t)(until / 1000000000), (long)(until % 1000000000)};
        pthread_mutex_lock(&housekeeper->lock);
        if (!housekeeper->stop)
            pthread_cond_clockwait(&housekeeper->changed, &housekeeper->lock, CLOCK_MONOTONIC, &at);
    }
    pthread_mutex_unlock(&housekeeper->lock);
    return NULL;
}

int housekeep_start(struct gateway *gateway, struct diag *diag)
{
    struct housekeeper *housekeeper = &gateway->housekeeper;
    pthread_mutex_init(&housekeeper->lock, NULL);
    pthread_cond_init(&housekeeper->changed, NULL);
    int err = thread_start(&housekeeper->thread, "housekeeper", 0, housekeeper_run, gateway);
    if (err)
        return diag_set(diag, err, "the housekeeping thread cannot be started");
    housekeeper->started = true;
    return 0;
}

void housekeep_stop(struct gateway *gateway)
{
    struct housekeeper *housekeeper = &gateway->housekeeper;
    if (!housekeeper->started)
        return;
    pthread_mutex_lock(&housekeeper->lock);
    housekeeper->stop = true;
    pthread_cond_signal(&housekeeper->changed);
    pthread_mutex_unlock(&housekeeper->lock);
    thread_join(housekeeper->thread);
    pthread_cond_destroy(&housekeeper->changed);
    pthread_mutex_destroy(&housekeeper->lock);
    housekeeper->started = false;
}
