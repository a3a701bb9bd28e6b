/* delivery.c: start, stop and figures of the delivery engine (see delivery.h and engine.h). */
#include "delivery/delivery.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "delivery/engine.h"

#define REPORT_BYTES   600
#define INFLIGHT_BYTES ((size_t)32 << 20)

void delivery_report(struct delivery *d, const char *format, ...)
{
    if (!d->config.events.report)
        return;
    char text[REPORT_BYTES];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    d->config.events.report(d->config.events.context, text);
}

/* ---- start ---- */

static int check(const struct delivery_config *config, struct diag *diag)
{
    uint64_t fed = 0;
    if (!config->partitions || config->n_sinks > 64)
        return diag_set(diag, WEIR_INVALID,
                        "delivery: needs at least one partition and at most 64 sinks");
    for (size_t i = 0; i < config->n_sinks; i++)
        if (!config->sinks[i].sink || !config->sinks[i].lane || config->sinks[i].split < 1 ||
            config->sinks[i].split > 64)
            return diag_set(diag, WEIR_INVALID, "sink %s: needs a lane and a split from 1 to 64",
                            config->sinks[i].name);
    for (size_t i = 0; i < config->n_consumers; i++) {
        const struct delivery_consumer *c = &config->consumers[i];
        for (size_t j = 0; j < c->n_sinks; j++) {
            if (c->sinks[j] >= config->n_sinks)
                return diag_set(diag, WEIR_INVALID, "consumer %s: there is no sink %u", c->name,
                                c->sinks[j]);
            if (fed >> c->sinks[j] & 1)
                return diag_set(diag, WEIR_INVALID, "sink %s: is fed by more than one consumer",
                                config->sinks[c->sinks[j]].name);
            fed |= UINT64_C(1) << c->sinks[j];
        }
    }
    return 0;
}

/* What a call that outlives delivery_stop may still look at must be ours. */
static void copy_config(struct delivery *d, const struct delivery_config *config)
{
    d->config = *config;
    if (!d->config.inflight_bytes)
        d->config.inflight_bytes = INFLIGHT_BYTES;
    struct delivery_sink *sinks = mem_zalloc((config->n_sinks + 1) * sizeof(*sinks));
    struct delivery_stream *streams = mem_zalloc((config->n_streams + 1) * sizeof(*streams));
    for (size_t i = 0; i < config->n_sinks; i++) {
        sinks[i] = config->sinks[i];
        sinks[i].name = mem_strdup(config->sinks[i].name);
    }
    for (size_t i = 0; i < config->n_streams; i++) {
        streams[i] = config->streams[i];
        streams[i].name = mem_strdup(config->streams[i].name);
        if (streams[i].number >= d->n_stream_names)
            d->n_stream_names = streams[i].number + 1;
    }
    d->config.sinks = sinks;
    d->config.streams = streams;
    d->stream_names = mem_zalloc((d->n_stream_names + 1) * sizeof(*d->stream_names));
    for (size_t i = 0; i < config->n_streams; i++)
        d->stream_names[streams[i].number] = streams[i].name;
}

void delivery_unref(struct delivery *d)
{
    /* Release and acquire: everybody's use of it comes before it is freed. */
    if (atomic_fetch_sub_explicit(&d->refs, 1, memory_order_acq_rel) != 1)
        return;
    for (size_t i = 0; i < d->config.n_sinks; i++) {
        dead_close(d->dead[i]);
        mem_free((char *)d->config.sinks[i].name);
    }
    for (size_t i = 0; i < d->config.n_streams; i++)
        mem_free((char *)d->config.streams[i].name);
    mem_free((struct delivery_sink *)d->config.sinks);
    mem_free((struct delivery_stream *)d->config.streams);
    mem_free(d->stream_names);
    mem_free(d->dead);
    mem_free(d->feeds);
    mem_free(d->consumers);
    mem_free(d);
}

static int open_dead_letters(struct delivery *d, struct diag *diag)
{
    for (size_t i = 0; i < d->config.n_sinks; i++) {
        char damage[400];
        int rc = dead_open(d->config.fs, d->config.data, d->config.sinks[i].name,
                           d->config.dead_max_bytes, false, &d->dead[i], diag);
        if (rc)
            return rc;
        if (dead_damaged(d->dead[i], damage, sizeof(damage)))
            delivery_report(d, "sink %s: dead letters: %s", d->config.sinks[i].name, damage);
    }
    return 0;
}

/* ---- dead letters of sinks that are no more ---- */

static void gather(void *context, const char *name)
{
    if (!strchr(name, '~')) /* a compaction's draft */
        buf_put(context, name, strlen(name) + 1);
}

static bool has_sink(const struct delivery *d, const char *name)
{
    for (size_t i = 0; i < d->config.n_sinks; i++)
        if (strcmp(d->config.sinks[i].name, name) == 0)
            return true;
    return false;
}

static void report_left(struct delivery *d, const char *name)
{
    struct dead *dead;
    uint64_t letters, bytes;
    if (dead_open(d->config.fs, d->config.data, name, d->config.dead_max_bytes, true, &dead, NULL))
        return;
    dead_stats(dead, &letters, &bytes);
    dead_close(dead);
    if (letters)
        delivery_report(d,
                        "sink %s: is not in the configuration any more and has %llu dead letter%s: "
                        "weir dead list --data %s --sink %s",
                        name, (unsigned long long)letters, letters == 1 ? "" : "s", d->config.data,
                        name);
}

static void report_all_left(struct delivery *d)
{
    struct buf names = {0};
    char *directory = mem_printf("%s/dead", d->config.data);
    if (d->config.fs->list(d->config.fs, directory, gather, &names) == 0)
        for (size_t at = 0; at < names.n; at += strlen(names.p + at) + 1)
            if (!has_sink(d, names.p + at))
                report_left(d, names.p + at);
    mem_free(directory);
    buf_fini(&names);
}

int delivery_start(const struct delivery_config *config, struct delivery **out, struct diag *diag)
{
    int rc = check(config, diag);
    if (rc)
        return rc;
    struct delivery *d = mem_zalloc(sizeof(*d));
    atomic_init(&d->refs, 1);
    copy_config(d, config);
    d->dead = mem_zalloc((config->n_sinks + 1) * sizeof(*d->dead));
    d->feeds = mem_zalloc((config->n_sinks + 1) * sizeof(*d->feeds));
    d->consumers = mem_zalloc((config->n_consumers + 1) * sizeof(*d->consumers));
    d->config.consumers = NULL; /* the caller's array is not needed after this */
    d->config.n_consumers = 0;
    rc = open_dead_letters(d, diag);
    if (rc == 0)
        report_all_left(d);
    for (size_t i = 0; rc == 0 && i < config->n_consumers; i++) {
        struct consumer *c = consumer_create(d, &config->consumers[i]);
        d->consumers[d->config.n_consumers++] = c;
        for (size_t j = 0; j < c->n_feeds; j++)
            d->feeds[c->feeds[j].index] = &c->feeds[j];
        rc = log_reader_open(config->log, c->name, &c->reader, diag);
    }
    for (size_t i = 0; rc == 0 && i < d->config.n_consumers; i++)
        rc = consumer_start(d->consumers[i], diag);
    if (rc) {
        delivery_stop(d, 0);
        return rc;
    }
    *out = d;
    return 0;
}

void delivery_stop(struct delivery *d, uint32_t deadline_ms)
{
    uint64_t deadline_ns = clock_mono_ns() + (uint64_t)deadline_ms * 1000000;
    for (size_t i = 0; i < d->config.n_consumers; i++)
        consumer_ask_stop(d->consumers[i], deadline_ns);
    for (size_t i = 0; i < d->config.n_consumers; i++)
        if (consumer_join(d->consumers[i]))
            consumer_destroy(d->consumers[i]);
    delivery_unref(d);
}

/* ---- figures ---- */

static uint64_t get(const _Atomic uint64_t *figure)
{
    return atomic_load_explicit(figure, memory_order_relaxed);
}

void delivery_hurry(struct delivery *d)
{
    for (size_t i = 0; i < d->config.n_consumers; i++)
        consumer_hurry(d->consumers[i]);
}

bool delivery_breaker_open(const struct delivery *d, unsigned sink)
{
    return d->feeds[sink] &&
           atomic_load_explicit(&d->feeds[sink]->breaker_open, memory_order_relaxed);
}

void delivery_sink_stats(struct delivery *d, unsigned sink, struct delivery_sink_stats *out)
{
    *out = (struct delivery_sink_stats){0};
    dead_stats(d->dead[sink], &out->dead_letters, &out->dead_bytes);
    struct feed *f = d->feeds[sink];
    if (!f)
        return;
    out->stored = get(&f->stored);
    out->refused = get(&f->refused);
    out->retries = get(&f->retries);
    out->failures = get(&f->failures);
    out->batches = get(&f->batches);
    out->bisections = get(&f->bisections);
    out->breaker_open = delivery_breaker_open(d, sink);
    uint64_t now_ns = clock_mono_ns(), next_ns = get(&f->next_try_ns);
    if (out->breaker_open && next_ns > now_ns)
        out->next_try_ms = (next_ns - now_ns + 999999) / 1000000;
    pthread_mutex_lock(&f->mutex);
    memcpy(out->last_error, f->last_error, sizeof(out->last_error));
    pthread_mutex_unlock(&f->mutex);
    out->batch_records = f->batch_records;
    out->write_ns = f->write_ns;
}

void delivery_consumer_stats(struct delivery *d, unsigned consumer,
                             struct delivery_consumer_stats *out)
{
    struct consumer *c = d->consumers[consumer];
    *out = (struct delivery_consumer_stats){
        .lag = log_lag(c->reader),
        .inflight_records = get(&c->inflight_records),
        .inflight_bytes = get(&c->inflight_bytes),
        .settled = get(&c->settled),
        .drain_per_s = consumer_rate(c),
    };
    pthread_mutex_lock(&c->mutex);
    out->stopped = c->stopped;
    memcpy(out->why_stopped, c->why_stopped, sizeof(out->why_stopped));
    pthread_mutex_unlock(&c->mutex);
}

struct dead *delivery_dead(struct delivery *d, unsigned sink)
{
    return d->dead[sink];
}
