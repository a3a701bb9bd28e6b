/* consumer.c: a consumer's thread (the picture is in engine.h).
 *
 * One turn: finished calls from the inbox -> settle, and tell the log -> start calls -> read more,
 * within the bounds of memory. It waits in one place at a time, in the log's poll or (with enough
 * in flight, or a log that ended) on its own condition; `waiting` says which, and whoever puts
 * something into the inbox ends that wait.
 *
 * While no answer waits for a sink, reads that do not fill up keep PACE_NS apart: the first record
 * after a silence goes at once, and under load a read brings many groups instead of one.
 *
 * Stopping: no new calls; calls in flight may finish until the deadline. If one does not (a store
 * that hangs), the thread ends anyway: the consumer is `abandoned`, and the last call to finish
 * frees it. */
#include <assert.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "delivery/engine.h"
#include "os/thread.h"

#define POLL_RECORDS 2048
#define POLL_MS      1000
#define PACE_NS      UINT64_C(5000000)
#define LOG_RETRY_NS UINT64_C(1000000000)
#define SECOND_NS    UINT64_C(1000000000)

/* ---- what the parts tell it ---- */

static void slot_gone(struct consumer *c, uint32_t partition)
{
    assert(c->partitions[partition].live > 0);
    c->partitions[partition].live--;
}

void consumer_settled(struct consumer *c, uint32_t i)
{
    const struct slot *slot = &c->window.slots[i];
    uint32_t partition = slot->record.partition;
    bool dropped = slot->dropped;
    if (!dropped)
        watermark_settle(&c->partitions[partition].mark, slot->place);
    if (window_done(&c->window, i)) {
        slot_gone(c, partition);
        c->settled_now += !dropped;
    }
}

void consumer_dropped(struct consumer *c, uint32_t i)
{
    uint32_t partition = c->window.slots[i].record.partition;
    c->window.slots[i].dropped = true;
    if (window_done(&c->window, i))
        slot_gone(c, partition);
}

struct settlement *consumer_list(struct consumer *c, size_t n)
{
    if (n > c->list_capacity) {
        c->list_capacity = n > 2 * c->list_capacity ? n : 2 * c->list_capacity;
        c->list = mem_realloc(c->list, c->list_capacity * sizeof(*c->list));
    }
    return c->list;
}

void consumer_stopped(struct consumer *c, const char *why)
{
    if (!why) {
        if (c->log_ended)
            return;
        for (size_t i = 0; i < c->n_feeds; i++)
            if (c->feeds[i].dead_trouble)
                return;
    }
    pthread_mutex_lock(&c->mutex);
    c->stopped = why != NULL;
    snprintf(c->why_stopped, sizeof(c->why_stopped), "%.*s", (int)sizeof(c->why_stopped) - 1,
             why ? why : "");
    pthread_mutex_unlock(&c->mutex);
}

/* ---- figures ---- */

static void count_settled(struct consumer *c, uint64_t now_ns)
{
    uint64_t n = c->settled_now, second = now_ns / SECOND_NS;
    _Atomic uint64_t *at = &c->rate_second[second % RATE_SECONDS];
    _Atomic uint64_t *count = &c->rate_count[second % RATE_SECONDS];
    c->settled_now = 0;
    /* Relaxed: one writer, and a reader that comes in between is off by one turn at most. */
    atomic_store_explicit(&c->inflight_records, c->window.records, memory_order_relaxed);
    atomic_store_explicit(&c->inflight_bytes, c->window.bytes, memory_order_relaxed);
    if (!n)
        return;
    if (atomic_load_explicit(at, memory_order_relaxed) != second) {
        atomic_store_explicit(count, 0, memory_order_relaxed);
        atomic_store_explicit(at, second, memory_order_relaxed);
    }
    atomic_fetch_add_explicit(count, n, memory_order_relaxed);
    atomic_fetch_add_explicit(&c->settled, n, memory_order_relaxed);
}

double consumer_rate(const struct consumer *c)
{
    const uint64_t now = clock_mono_ns() / SECOND_NS, window = 5;
    uint64_t seconds = now - c->started_s < window ? now - c->started_s : window, sum = 0;
    for (unsigned i = 0; i < RATE_SECONDS; i++) {
        uint64_t second = atomic_load_explicit(&c->rate_second[i], memory_order_relaxed);
        if (second < now && second + window >= now)
            sum += atomic_load_explicit(&c->rate_count[i], memory_order_relaxed);
    }
    return seconds ? (double)sum / (double)seconds : 0;
}

/* ---- the turn ---- */

static void take_inbox(struct consumer *c)
{
    pthread_mutex_lock(&c->mutex);
    struct call *call = c->inbox;
    c->inbox = c->inbox_last = NULL;
    c->waiting = WAITING_NOT;
    c->hurried = false;
    pthread_mutex_unlock(&c->mutex);
    uint64_t now_ns = call ? clock_mono_ns() : 0;
    while (call) {
        struct call *next = call->next;
        part_finished(call, now_ns);
        call = next;
    }
}

static void tell_log(struct consumer *c)
{
    size_t span = 0;
    for (unsigned p = 0; p < c->delivery->config.partitions; p++) {
        struct partition *partition = &c->partitions[p];
        uint64_t offset;
        if (watermark_take(&partition->mark, &offset))
            log_settle(c->reader, p, offset);
        if (partition->revoking && partition->live == 0) {
            watermark_reset(&partition->mark);
            partition->revoking = false;
            log_release(c->reader, p);
        }
        span += watermark_span(&partition->mark);
    }
    c->span = span;
}

static uint64_t feeds_of(const struct consumer *c, uint32_t stream)
{
    return stream < c->delivery->n_stream_names ? c->stream_feeds[stream] : 0;
}

/* A record that none of our sinks gets: most are other sinks', but some had one when they came. */
static void pass_over(struct consumer *c, uint32_t stream)
{
    struct delivery *d = c->delivery;
    c->settled_now++;
    uint32_t place = stream < d->n_stream_names ? stream : d->n_stream_names;
    if (!c->gone_untold[place])
        return;
    c->gone_untold[place] = false;
    const char *name = place < d->n_stream_names ? d->stream_names[place] : NULL;
    delivery_report(d,
                    "consumer %s: the log holds records of stream %s, which is not in the "
                    "configuration; they are passed over and reach no sink",
                    c->name, name ? name : "(unknown)");
}

static void hand_out(struct consumer *c)
{
    for (size_t i = 0; i < c->polled.n; i++) {
        const struct record *record = &c->polled.records[i];
        assert(record->partition < c->delivery->config.partitions);
        struct partition *partition = &c->partitions[record->partition];
        uint64_t feeds = feeds_of(c, record->stream);
        unsigned n = (unsigned)__builtin_popcountll(feeds);
        uint64_t place = watermark_add(&partition->mark, record->offset, n);
        if (!n) {
            pass_over(c, record->stream);
            continue;
        }
        uint32_t slot = window_add(&c->window, record, c->polled.chunks[i], n);
        c->window.slots[slot].place = place;
        partition->live++;
        for (; feeds; feeds &= feeds - 1)
            feed_push(&c->feeds[__builtin_ctzll(feeds)], slot, record);
    }
    c->span += c->polled.n;
    batch_clear(&c->polled);
}

static void revoke(struct consumer *c, uint32_t partition)
{
    assert(partition < c->delivery->config.partitions);
    c->partitions[partition].revoking = true;
    for (size_t i = 0; i < c->n_feeds; i++)
        feed_drop_partition(&c->feeds[i], partition);
}

static void log_failed(struct consumer *c, int rc, uint64_t now_ns)
{
    struct delivery *d = c->delivery;
    char why[sizeof(c->why_stopped)];
    const char *place = log_reader_why(c->reader);
    snprintf(why, sizeof(why), "the log cannot be read: %s",
             place && *place ? place : weir_err_text(rc));
    if (rc == WEIR_CORRUPT) {
        c->log_ended = true;
    } else {
        if (!c->log_retry_ns)
            delivery_report(d, "consumer %s: %s; trying again", c->name, why);
        c->log_retry_ns = now_ns + LOG_RETRY_NS;
    }
    consumer_stopped(c, why);
    if (c->log_ended)
        delivery_report(d, "consumer %s: stopped: %s", c->name, why);
}

static void log_works(struct consumer *c)
{
    if (!c->log_retry_ns)
        return;
    c->log_retry_ns = 0;
    consumer_stopped(c, NULL);
    delivery_report(c->delivery, "consumer %s: the log can be read again", c->name);
}

/* False when there is something to do already (a finished call, or a stop). */
static bool begin_wait(struct consumer *c, enum waiting where)
{
    pthread_mutex_lock(&c->mutex);
    bool idle = !c->inbox && !c->stop && !c->hurried;
    if (idle)
        c->waiting = where;
    pthread_mutex_unlock(&c->mutex);
    return idle;
}

static int until_ms(uint64_t next_ns, uint64_t now_ns)
{
    if (next_ns <= now_ns)
        return 0;
    uint64_t ms = (next_ns - now_ns + 999999) / 1000000;
    return ms < POLL_MS ? (int)ms : POLL_MS;
}

static void read_log(struct consumer *c, uint64_t next_ns, uint64_t now_ns)
{
    int timeout_ms = until_ms(next_ns, now_ns);
    if (timeout_ms && !begin_wait(c, WAITING_IN_POLL))
        return;
    size_t records = WINDOW_RECORDS - c->window.records;
    size_t bytes = c->delivery->config.inflight_bytes;
    bytes = bytes > c->window.bytes ? bytes - c->window.bytes : 1;
    struct log_poll_result result;
    int rc = log_poll(c->reader, &c->polled, records < POLL_RECORDS ? records : POLL_RECORDS, bytes,
                      timeout_ms, &result);
    if (rc) {
        log_failed(c, rc, now_ns);
        return;
    }
    log_works(c);
    c->paced_ns = 0;
    if (result.what == LOG_RECORDS) {
        if (c->polled.n < POLL_RECORDS)
            c->paced_ns = clock_mono_ns() + PACE_NS;
        hand_out(c);
    } else if (result.what == LOG_REVOKED) {
        revoke(c, result.partition);
    }
}

static void wait_here(struct consumer *c, uint64_t until_ns)
{
    struct timespec until = {(time_t)(until_ns / SECOND_NS), (long)(until_ns % SECOND_NS)};
    pthread_mutex_lock(&c->mutex);
    while (!c->inbox && c->waiting == WAITING_HERE)
        if (until_ns == NEVER)
            pthread_cond_wait(&c->wake, &c->mutex);
        else if (pthread_cond_timedwait(&c->wake, &c->mutex, &until) != 0)
            break;
    c->waiting = WAITING_NOT;
    pthread_mutex_unlock(&c->mutex);
}

/* Whether the next read is put off. Looked at after `hurried` was reset: who hurries later ends the
 * wait, who hurried before is seen waiting. */
static bool paced(const struct consumer *c, uint64_t now_ns)
{
    const struct delivery_events *events = &c->delivery->config.events;
    return now_ns < c->paced_ns && events->waited_for && !events->waited_for(events->context);
}

static bool room(const struct consumer *c)
{
    return c->window.records < WINDOW_RECORDS && c->span < WINDOW_SPAN &&
           c->window.bytes < c->delivery->config.inflight_bytes;
}

/* After the stop: waits for the calls in flight until the deadline. */
static void wind_up(struct consumer *c)
{
    for (;;) {
        take_inbox(c);
        tell_log(c);
        pthread_mutex_lock(&c->mutex);
        bool idle = c->calls == 0 && !c->inbox;
        bool late = !idle && !c->inbox && clock_mono_ns() >= c->deadline_ns;
        if (!idle && !late)
            c->waiting = WAITING_HERE;
        uint64_t deadline_ns = c->deadline_ns;
        pthread_mutex_unlock(&c->mutex);
        if (idle || late)
            return;
        wait_here(c, deadline_ns);
    }
}

static void *consumer_run(void *argument)
{
    struct consumer *c = argument;
    while (!atomic_load_explicit(&c->stopping, memory_order_relaxed)) {
        take_inbox(c);
        uint64_t now_ns = clock_mono_ns(), next_ns = NEVER;
        tell_log(c);
        count_settled(c, now_ns);
        for (size_t i = 0; i < c->n_feeds; i++) {
            feed_start_calls(&c->feeds[i], now_ns);
            uint64_t next = feed_next_ns(&c->feeds[i]);
            next_ns = next < next_ns ? next : next_ns;
        }
        bool later = paced(c, now_ns);
        if (!c->log_ended && now_ns >= c->log_retry_ns && !later && room(c)) {
            read_log(c, next_ns, now_ns);
        } else {
            if (later && c->paced_ns < next_ns)
                next_ns = c->paced_ns;
            if (!c->log_ended && c->log_retry_ns > now_ns && c->log_retry_ns < next_ns)
                next_ns = c->log_retry_ns;
            if (next_ns > now_ns && begin_wait(c, WAITING_HERE))
                wait_here(c, next_ns);
        }
    }
    wind_up(c);
    count_settled(c, clock_mono_ns());
    return NULL;
}

/* ---- life ---- */

struct consumer *consumer_create(struct delivery *d, const struct delivery_consumer *config)
{
    struct consumer *c = mem_zalloc(sizeof(*c));
    c->delivery = d;
    c->name = mem_strdup(config->name);
    atomic_fetch_add_explicit(&d->refs, 1, memory_order_relaxed);
    window_init(&c->window);
    batch_init(&c->polled);
    c->partitions = mem_zalloc(d->config.partitions * sizeof(*c->partitions));
    pthread_mutex_init(&c->mutex, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&c->wake, &monotonic);
    pthread_condattr_destroy(&monotonic);

    c->n_feeds = config->n_sinks;
    c->feeds = mem_zalloc(c->n_feeds * sizeof(*c->feeds));
    c->stream_feeds = mem_zalloc(d->n_stream_names * sizeof(*c->stream_feeds));
    c->gone_untold = mem_alloc((d->n_stream_names + 1) * sizeof(*c->gone_untold));
    memset(c->gone_untold, true, (d->n_stream_names + 1) * sizeof(*c->gone_untold));
    for (size_t s = 0; s < d->config.n_streams; s++)
        if (d->config.streams[s].sinks)
            c->gone_untold[d->config.streams[s].number] = false;
    for (size_t i = 0; i < c->n_feeds; i++) {
        feed_init(&c->feeds[i], c, config->sinks[i]);
        for (size_t s = 0; s < d->config.n_streams; s++)
            if (d->config.streams[s].sinks >> config->sinks[i] & 1)
                c->stream_feeds[d->config.streams[s].number] |= UINT64_C(1) << i;
    }
    return c;
}

void consumer_destroy(struct consumer *c)
{
    for (size_t i = 0; i < c->n_feeds; i++)
        feed_fini(&c->feeds[i]);
    /* Calls that finished after everybody left. */
    while (c->inbox) {
        struct call *call = c->inbox;
        c->inbox = call->next;
        call_destroy(call);
    }
    for (unsigned p = 0; p < c->delivery->config.partitions; p++)
        watermark_fini(&c->partitions[p].mark);
    window_fini(&c->window);
    batch_fini(&c->polled);
    pthread_cond_destroy(&c->wake);
    pthread_mutex_destroy(&c->mutex);
    mem_free(c->partitions);
    mem_free(c->feeds);
    mem_free(c->stream_feeds);
    mem_free(c->gone_untold);
    mem_free(c->list);
    mem_free(c->name);
    delivery_unref(c->delivery);
    mem_free(c);
}

int consumer_start(struct consumer *c, struct diag *diag)
{
    c->started_s = clock_mono_ns() / SECOND_NS;
    char *name = mem_printf("deliver-%s", c->name);
    int rc = thread_start(&c->thread, name, 0, consumer_run, c);
    mem_free(name);
    if (rc)
        return diag_set(diag, rc, "consumer %s: its thread could not be started", c->name);
    c->started = true;
    return 0;
}

/* With the mutex held. */
void consumer_wake(struct consumer *c)
{
    if (c->waiting == WAITING_IN_POLL)
        log_wake(c->reader);
    else if (c->waiting == WAITING_HERE)
        pthread_cond_signal(&c->wake);
    c->waiting = WAITING_NOT;
}

void consumer_hurry(struct consumer *c)
{
    pthread_mutex_lock(&c->mutex);
    c->hurried = true;
    if (c->waiting == WAITING_HERE)
        consumer_wake(c);
    pthread_mutex_unlock(&c->mutex);
}

void consumer_ask_stop(struct consumer *c, uint64_t deadline_ns)
{
    atomic_store_explicit(&c->stopping, true, memory_order_relaxed);
    pthread_mutex_lock(&c->mutex);
    c->stop = true;
    c->deadline_ns = deadline_ns;
    consumer_wake(c);
    pthread_mutex_unlock(&c->mutex);
}

bool consumer_join(struct consumer *c)
{
    if (c->started)
        thread_join(c->thread);
    if (c->reader)
        log_reader_close(c->reader);
    c->reader = NULL;
    for (size_t i = 0; i < c->n_feeds; i++)
        feed_close_sessions(&c->feeds[i]);
    pthread_mutex_lock(&c->mutex);
    bool abandoned = c->abandoned = c->calls > 0;
    pthread_mutex_unlock(&c->mutex);
    return !abandoned;
}
