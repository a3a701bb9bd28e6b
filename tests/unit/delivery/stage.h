/* stage.h: a log and sinks that do as the test says, around the real delivery engine.
 *
 * The log keeps records in memory and checks, each time a consumer settles, that every record
 * passed is stored or durably dead. The sink asks the test's plan what to answer, keeps what it
 * stored, and checks that records of one key come in order: when a record arrives, every earlier
 * one of its key is stored, dead, or in the same call. Both checks are for records of one sink. */
#ifndef WEIR_TESTS_STAGE_H
#define WEIR_TESTS_STAGE_H

#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "delivery/delivery.h"
#include "trial_fs.h"

#define STAGE_SINKS      4
#define STAGE_PARTITIONS 8

#define WAIT_UNTIL(condition)                                                                      \
    do {                                                                                           \
        uint64_t give_up = clock_mono_ns() + UINT64_C(60000000000);                                \
        while (!(condition)) {                                                                     \
            if (clock_mono_ns() > give_up)                                                         \
                fail_msg("never came true: %s", #condition);                                       \
            stage_nap();                                                                           \
        }                                                                                          \
    } while (0)

static inline void stage_nap(void)
{
    nanosleep(&(struct timespec){0, 200000}, NULL);
}

struct entry { /* one record of the log; guarded by the stage's mutex */
    struct record record;
    struct chunk *chunk;
    unsigned key_before; /* index + 1 of the record before it with its key; 0: none */
    bool stored[STAGE_SINKS], dead[STAGE_SINKS], told[STAGE_SINKS];
    unsigned sent[STAGE_SINKS];
};

struct stage_sink;
/* What a call is answered: as sink_ops.write. Called with no lock held. */
typedef int stage_plan(struct stage_sink *s, const struct batch *batch, struct sink_result *results,
                       struct diag *diag);

struct stage_sink {
    struct sink sink; /* first */
    struct sink_ops ops;
    struct stage *stage;
    unsigned index;
    stage_plan *_Atomic plan; /* NULL: everything is stored */
    _Atomic unsigned calls, in_calls, most_in_calls, sessions_opened, sessions_open;
    _Atomic bool refuse_sessions, hang;
};

struct stage_reader {
    struct log_reader reader; /* first */
    struct stage *stage;
    unsigned sink; /* the one whose records are checked: consumer i feeds sink i first */
    bool open, woken;
    size_t next;
    uint64_t settled[STAGE_PARTITIONS];
    bool released[STAGE_PARTITIONS], gone[STAGE_PARTITIONS];
    int revoke; /* partition to take away, or -1 */
    _Atomic int error;
};

struct stage {
    struct log log; /* first */
    pthread_mutex_t mutex;
    pthread_cond_t grown;
    struct entry *entries;
    size_t n, capacity;
    struct stage_reader readers[STAGE_SINKS];
    unsigned n_readers;
    bool check;
    _Atomic unsigned told_twice;
    _Atomic bool log_closed;
    char reports[8000];

    struct stage_sink sinks[STAGE_SINKS];
    struct lane *lanes[STAGE_SINKS];
    struct delivery_sink delivery_sinks[STAGE_SINKS];
    struct delivery_consumer consumers[STAGE_SINKS];
    struct delivery_stream streams[2];
    unsigned sink_indexes[STAGE_SINKS];
    struct delivery_config config;
    struct delivery *delivery;
    char *data;
};

static struct stage *stage; /* the one of the running test */

/* ---- the log ---- */

static inline struct entry *stage_entry(const struct record *r)
{
    return &stage->entries[r->offset - 1]; /* offsets count over all partitions here */
}

/* A record of this stream, partition and key; its version is its place, unless the test changes it
 * before the start. */
static inline void stage_append(uint32_t stream, uint32_t partition, const char *id,
                                const char *key, size_t doc_bytes)
{
    pthread_mutex_lock(&stage->mutex);
    if (stage->n == stage->capacity) {
        stage->capacity = stage->capacity ? 2 * stage->capacity : 1024;
        stage->entries = realloc(stage->entries, stage->capacity * sizeof(*stage->entries));
    }
    struct entry *e = &stage->entries[stage->n];
    memset(e, 0, sizeof(*e));
    size_t id_n = strlen(id), key_n = strlen(key);
    e->chunk = chunk_create(id_n + key_n + doc_bytes);
    memcpy(e->chunk->data, id, id_n);
    memcpy(e->chunk->data + id_n, key, key_n);
    memset(e->chunk->data + id_n + key_n, 'd', doc_bytes);
    e->record = (struct record){.id = {e->chunk->data, id_n},
                                .key = {e->chunk->data + id_n, key_n},
                                .doc = {e->chunk->data + id_n + key_n, doc_bytes},
                                .version = stage->n + 1,
                                .offset = stage->n + 1,
                                .stream = stream,
                                .partition = partition};
    for (size_t i = stage->n; stage->check && i-- > 0;)
        if (slice_equal(stage->entries[i].record.key, e->record.key)) {
            e->key_before = (unsigned)i + 1;
            break;
        }
    stage->n++;
    pthread_cond_broadcast(&stage->grown);
    pthread_mutex_unlock(&stage->mutex);
}

static inline int stage_reader_open(struct log *log, const char *consumer, struct log_reader **out,
                                    struct diag *diag)
{
    (void)consumer;
    (void)diag;
    struct stage_reader *r = &stage->readers[stage->n_readers];
    r->reader.ops = log->ops;
    r->stage = stage;
    r->sink = stage->n_readers++;
    r->open = true;
    r->revoke = -1;
    r->next = 0;
    *out = &r->reader;
    return 0;
}

static inline int stage_poll(struct log_reader *reader, struct batch *into, size_t max_records,
                             size_t max_bytes, int timeout_ms, struct log_poll_result *result)
{
    struct stage_reader *r = (struct stage_reader *)reader;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += timeout_ms < 0 ? 3600 : timeout_ms / 1000;
    until.tv_nsec += timeout_ms < 0 ? 0 : timeout_ms % 1000 * 1000000;
    if (until.tv_nsec >= 1000000000) {
        until.tv_sec++;
        until.tv_nsec -= 1000000000;
    }
    assert_true(max_records > 0 && max_bytes > 0);
    int rc = 0;
    pthread_mutex_lock(&stage->mutex);
    for (;;) {
        if (r->revoke >= 0) {
            *result = (struct log_poll_result){LOG_REVOKED, (uint32_t)r->revoke};
            r->gone[r->revoke] = true;
            r->revoke = -1;
            break;
        }
        if (r->error) {
            rc = r->error;
            break;
        }
        size_t bytes = 0;
        while (r->next < stage->n && max_records > 0 && bytes < max_bytes) {
            struct entry *e = &stage->entries[r->next++];
            if (r->gone[e->record.partition])
                continue;
            batch_add(into, &e->record, e->chunk);
            bytes += e->record.doc.n;
            max_records--;
        }
        if (into->n) {
            result->what = LOG_RECORDS;
            break;
        }
        result->what = LOG_IDLE;
        if (r->woken || timeout_ms == 0 ||
            pthread_cond_timedwait(&stage->grown, &stage->mutex, &until) != 0)
            break;
    }
    r->woken = false;
    pthread_mutex_unlock(&stage->mutex);
    return rc;
}

static inline void stage_wake(struct log_reader *reader)
{
    struct stage_reader *r = (struct stage_reader *)reader;
    pthread_mutex_lock(&stage->mutex);
    assert_true(r->open);
    r->woken = true;
    pthread_cond_broadcast(&stage->grown);
    pthread_mutex_unlock(&stage->mutex);
}

static inline bool stage_newer_stored(const struct entry *e, unsigned sink)
{
    for (size_t i = 0; i < stage->n; i++)
        if (stage->entries[i].stored[sink] &&
            stage->entries[i].record.version >= e->record.version &&
            slice_equal(stage->entries[i].record.id, e->record.id))
            return true;
    return false;
}

static inline void stage_settle(struct log_reader *reader, uint32_t partition, uint64_t offset)
{
    struct stage_reader *r = (struct stage_reader *)reader;
    pthread_mutex_lock(&stage->mutex);
    assert_true(offset > r->settled[partition] && offset <= stage->n);
    assert_false(r->released[partition]);
    for (uint64_t i = r->settled[partition] + 1; i <= offset; i++) {
        struct entry *e = &stage->entries[i - 1];
        if (e->record.partition != partition || e->record.stream != 0)
            continue;
        if (!e->stored[r->sink] && !e->dead[r->sink] && !stage_newer_stored(e, r->sink))
            fail_msg("the cursor passed record %llu, which is nowhere", (unsigned long long)i);
        if (!e->told[r->sink])
            fail_msg("the cursor passed record %llu, and nobody was told", (unsigned long long)i);
    }
    r->settled[partition] = offset;
    pthread_mutex_unlock(&stage->mutex);
}

static inline void stage_release(struct log_reader *reader, uint32_t partition)
{
    struct stage_reader *r = (struct stage_reader *)reader;
    pthread_mutex_lock(&stage->mutex);
    assert_true(r->gone[partition] && !r->released[partition]);
    r->released[partition] = true;
    pthread_mutex_unlock(&stage->mutex);
}

static inline uint64_t stage_lag(struct log_reader *reader)
{
    struct stage_reader *r = (struct stage_reader *)reader;
    uint64_t lag = 0;
    pthread_mutex_lock(&stage->mutex);
    for (size_t i = 0; i < stage->n; i++)
        lag += stage->entries[i].record.offset > r->settled[stage->entries[i].record.partition];
    pthread_mutex_unlock(&stage->mutex);
    return lag;
}

static inline void stage_reader_close(struct log_reader *reader)
{
    ((struct stage_reader *)reader)->open = false;
}

static inline void stage_position(struct log *log, uint32_t partition, uint64_t offset,
                                  char out[64])
{
    (void)log;
    assert_false(stage->log_closed);
    snprintf(out, 64, "%u-%llu", partition, (unsigned long long)offset);
}

static inline const char *stage_why(struct log_reader *reader)
{
    (void)reader;
    return "stage: damaged at byte 4711";
}

static const struct log_ops stage_log_ops = {
    .kind = "stage",
    .position_text = stage_position,
    .reader_open = stage_reader_open,
    .poll = stage_poll,
    .why = stage_why,
    .wake = stage_wake,
    .settle = stage_settle,
    .release = stage_release,
    .lag = stage_lag,
    .reader_close = stage_reader_close,
};

/* ---- the sink ---- */

static inline int stage_session_open(struct sink *sink, bool read_only, struct sink_session **out,
                                     struct diag *diag)
{
    struct stage_sink *s = (struct stage_sink *)sink;
    assert_false(read_only);
    if (s->refuse_sessions)
        return diag_set(diag, WEIR_UNAVAILABLE, "nobody answers");
    struct sink_session *session = malloc(sizeof(*session) + sizeof(s));
    session->ops = &s->ops;
    memcpy(session + 1, &s, sizeof(s));
    s->sessions_opened++;
    s->sessions_open++;
    *out = session;
    return 0;
}

static inline struct stage_sink *stage_sink_of(struct sink_session *session)
{
    struct stage_sink *s;
    memcpy(&s, session + 1, sizeof(s));
    return s;
}

static inline void stage_session_close(struct sink_session *session)
{
    stage_sink_of(session)->sessions_open--;
    free(session);
}

static inline bool stage_in(const struct batch *batch, const struct entry *e)
{
    for (size_t i = 0; i < batch->n; i++) /* itself, or a later version that stands for it */
        if (batch->records[i].version >= e->record.version &&
            slice_equal(batch->records[i].id, e->record.id))
            return true;
    return false;
}

static inline void stage_check_call(struct stage_sink *s, const struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++) {
        struct entry *e = stage_entry(&batch->records[i]);
        for (size_t j = 0; j < i; j++)
            if (slice_equal(batch->records[j].id, e->record.id))
                fail_msg("an id comes twice in one call");
        for (unsigned before = e->key_before; before;) {
            struct entry *b = &stage->entries[before - 1];
            if (b->stored[s->index] || b->dead[s->index])
                break; /* and what is before that was checked when it came */
            if (!stage_in(batch, b) && !stage_newer_stored(b, s->index))
                fail_msg("record %llu overtakes %u of its key",
                         (unsigned long long)e->record.offset, before);
            before = b->key_before;
        }
    }
}

static inline void stage_store(struct stage_sink *s, const struct record *r)
{
    pthread_mutex_lock(&stage->mutex);
    stage_entry(r)->stored[s->index] = true;
    pthread_mutex_unlock(&stage->mutex);
}

static inline int stage_write(struct sink_session *session, const struct batch *batch,
                              struct sink_result *results, struct diag *diag)
{
    struct stage_sink *s = stage_sink_of(session);
    unsigned now = ++s->in_calls, most = s->most_in_calls;
    while (now > most && !atomic_compare_exchange_weak(&s->most_in_calls, &most, now))
        ;
    s->calls++;
    pthread_mutex_lock(&stage->mutex);
    if (stage->check)
        stage_check_call(s, batch);
    for (size_t i = 0; i < batch->n; i++)
        stage_entry(&batch->records[i])->sent[s->index]++;
    pthread_mutex_unlock(&stage->mutex);
    while (s->hang)
        stage_nap();
    int rc = 0;
    stage_plan *plan = s->plan;
    if (plan)
        rc = plan(s, batch, results, diag);
    else
        for (size_t i = 0; i < batch->n; i++)
            results[i].outcome = OUTCOME_STORED;
    for (size_t i = 0; rc == 0 && i < batch->n; i++)
        if (results[i].outcome == OUTCOME_STORED)
            stage_store(s, &batch->records[i]);
    s->in_calls--;
    return rc;
}

static inline void stage_refuse(struct sink_result *result, const char *reason)
{
    result->outcome = OUTCOME_REFUSED;
    snprintf(result->reason, sizeof(result->reason), "%s", reason);
}

/* ---- what delivery tells ---- */

static inline void stage_settled(void *context, unsigned sink, const struct settlement *list,
                                 size_t n)
{
    (void)context;
    pthread_mutex_lock(&stage->mutex);
    for (size_t i = 0; i < n; i++) {
        struct entry *e = &stage->entries[list[i].offset - 1];
        assert_int_equal(e->record.partition, list[i].partition);
        assert_int_equal(e->record.stream, list[i].stream);
        if (list[i].outcome == OUTCOME_REFUSED)
            assert_true(e->dead[sink] && list[i].reason);
        else
            assert_int_equal(list[i].outcome, OUTCOME_STORED);
        if (e->told[sink])
            stage->told_twice++;
        e->told[sink] = true;
    }
    pthread_mutex_unlock(&stage->mutex);
}

static inline void stage_report(void *context, const char *text)
{
    (void)context;
    pthread_mutex_lock(&stage->mutex);
    size_t at = strlen(stage->reports);
    snprintf(stage->reports + at, sizeof(stage->reports) - at, "%s\n", text);
    pthread_mutex_unlock(&stage->mutex);
}

static inline bool stage_reported(const char *text)
{
    pthread_mutex_lock(&stage->mutex);
    bool found = strstr(stage->reports, text) != NULL;
    pthread_mutex_unlock(&stage->mutex);
    return found;
}

/* A sync of a dead letter file makes what is in it durable, and only that. */
static inline int stage_mark_dead(void *context, const struct dead_letter *letter)
{
    unsigned sink = *(unsigned *)context;
    pthread_mutex_lock(&stage->mutex);
    stage->entries[letter->record.offset - 1].dead[sink] = true;
    pthread_mutex_unlock(&stage->mutex);
    return 0;
}

static inline void stage_on_sync(const char *path)
{
    const char *name = strstr(path, "/dead/sink");
    if (!name || strchr(name, '~'))
        return;
    unsigned sink = (unsigned)atoi(name + strlen("/dead/sink"));
    char text[16];
    struct dead *dead;
    snprintf(text, sizeof(text), "sink%u", sink);
    assert_int_equal(dead_open(fs_posix(), stage->data, text, UINT64_MAX, true, &dead, NULL), 0);
    assert_int_equal(dead_scan(dead, stage_mark_dead, &sink, NULL), 0);
    dead_close(dead);
}

/* ---- life ---- */

/* One consumer a sink, 4 partitions, stream 0 goes everywhere, stream 1 nowhere. Change what is to
 * differ, then stage_start. */
static inline void stage_create(unsigned n_sinks, unsigned threads, unsigned writers)
{
    static const char *const names[] = {"sink0", "sink1", "sink2", "sink3"};
    trial_reset();
    stage = calloc(1, sizeof(*stage));
    stage->log.ops = &stage_log_ops;
    stage->data = trial_directory();
    stage->check = true;
    pthread_mutex_init(&stage->mutex, NULL);
    pthread_cond_init(&stage->grown, NULL);
    trial.on_sync = stage_on_sync;
    for (unsigned i = 0; i < n_sinks; i++) {
        struct stage_sink *s = &stage->sinks[i];
        s->sink.ops = &s->ops;
        s->ops = (struct sink_ops){.kind = "stage",
                                   .writers = writers,
                                   .session_open = stage_session_open,
                                   .session_close = stage_session_close,
                                   .write = stage_write};
        s->stage = stage;
        s->index = i;
        struct lane_config lane = {names[i], threads, 100, 0};
        assert_int_equal(lane_create(&lane, &stage->lanes[i], NULL), 0);
        stage->delivery_sinks[i] = (struct delivery_sink){.name = names[i],
                                                          .sink = &s->sink,
                                                          .lane = stage->lanes[i],
                                                          .split = 1,
                                                          .ordered = true,
                                                          .batch_records = 500,
                                                          .batch_bytes = 4 << 20,
                                                          .retry_min_ms = 1,
                                                          .retry_max_ms = 4,
                                                          .breaker_failures = 5,
                                                          .bisect_calls = 64};
        stage->sink_indexes[i] = i;
        stage->consumers[i] = (struct delivery_consumer){names[i], &stage->sink_indexes[i], 1};
    }
    stage->streams[0] = (struct delivery_stream){0, "orders", (UINT64_C(1) << n_sinks) - 1};
    stage->streams[1] = (struct delivery_stream){1, "nowhere", 0};
    stage->config = (struct delivery_config){
        .log = &stage->log,
        .fs = trial_fs(),
        .data = stage->data,
        .partitions = 4,
        .sinks = stage->delivery_sinks,
        .n_sinks = n_sinks,
        .consumers = stage->consumers,
        .n_consumers = n_sinks,
        .streams = stage->streams,
        .n_streams = 2,
        .dead_max_bytes = 1 << 30,
        .inflight_bytes = 32 << 20,
        .events = {NULL, stage_settled, stage_report, NULL},
    };
}

static inline void stage_start(void)
{
    struct diag diag = {0};
    stage->log_closed = false;
    if (delivery_start(&stage->config, &stage->delivery, &diag) != 0)
        fail_msg("%s", diag.text);
}

static inline void stage_stop(uint32_t deadline_ms)
{
    if (stage->delivery)
        delivery_stop(stage->delivery, deadline_ms);
    stage->log_closed = stage->delivery != NULL; /* as a caller might, from here on */
    stage->delivery = NULL;
    for (unsigned i = 0; i < stage->n_readers; i++)
        assert_false(stage->readers[i].open);
}

static inline void stage_destroy(void)
{
    stage_stop(10000);
    for (size_t i = 0; i < stage->config.n_sinks; i++) {
        stage->sinks[i].hang = false;
        if (stage->lanes[i])
            lane_close(stage->lanes[i], 10000);
        assert_int_equal(stage->sinks[i].sessions_open, 0);
    }
    assert_int_equal(stage->told_twice, 0);
    for (size_t i = 0; i < stage->n; i++)
        chunk_unref(stage->entries[i].chunk);
    pthread_mutex_destroy(&stage->mutex);
    pthread_cond_destroy(&stage->grown);
    free(stage->entries);
    trial_remove(stage->data);
    free(stage);
    stage = NULL;
}

/* All that is in the log is settled by this consumer. */
static inline bool stage_drained(unsigned consumer)
{
    struct stage_reader *r = &stage->readers[consumer];
    bool drained = true;
    pthread_mutex_lock(&stage->mutex);
    for (size_t i = stage->n; drained && i-- > 0;)
        drained =
            stage->entries[i].record.offset <= r->settled[stage->entries[i].record.partition] ||
            r->gone[stage->entries[i].record.partition];
    pthread_mutex_unlock(&stage->mutex);
    return drained;
}

static inline struct delivery_sink_stats stage_sink_stats(unsigned sink)
{
    struct delivery_sink_stats stats;
    delivery_sink_stats(stage->delivery, sink, &stats);
    return stats;
}

static inline struct delivery_consumer_stats stage_consumer_stats(unsigned consumer)
{
    struct delivery_consumer_stats stats;
    delivery_consumer_stats(stage->delivery, consumer, &stats);
    return stats;
}

#endif
