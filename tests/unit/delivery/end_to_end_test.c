/* end_to_end_test.c: the real journal, the real engine, the real SQLite sink, with failures put in
 * between and the process killed: each record ends as one row with its highest version, and no
 * cursor ever stands beyond a record that is nowhere. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../scratch.h"
#include "../seeded.h"
#include "base/clock.h"
#include "base/mem.h"
#include "delivery/delivery.h"
#include "delivery/replay.h"

#define PARTITIONS 3
#define KEYS       17

static uint64_t seed;
static char *data;

/* ---- a SQLite sink that fails at random ---- */

struct shaky {
    struct sink sink; /* first */
    struct sink_ops ops;
    struct sink *inner;
    pthread_mutex_t mutex;
    struct seeded random;
    _Atomic unsigned failing; /* of 16 calls so many fail */
};

struct shaky_session {
    struct sink_session session; /* first */
    struct shaky *shaky;
    struct sink_session *inner;
};

static uint64_t shaky_below(struct shaky *s, uint64_t n)
{
    pthread_mutex_lock(&s->mutex);
    uint64_t value = seeded_below(&s->random, n);
    pthread_mutex_unlock(&s->mutex);
    return value;
}

static int shaky_open(struct sink *sink, bool read_only, struct sink_session **out,
                      struct diag *diag)
{
    struct shaky *s = (struct shaky *)sink;
    struct sink_session *inner;
    int rc = s->inner->ops->session_open(s->inner, read_only, &inner, diag);
    if (rc)
        return rc;
    struct shaky_session *session = mem_zalloc(sizeof(*session));
    *session = (struct shaky_session){{&s->ops}, s, inner};
    *out = &session->session;
    return 0;
}

static void shaky_close(struct sink_session *base)
{
    struct shaky_session *session = (struct shaky_session *)base;
    session->inner->ops->session_close(session->inner);
    mem_free(session);
}

static bool is_poison(const struct record *r)
{
    return memmem(r->doc.p, r->doc.n, "poison", 6) != NULL;
}

static int shaky_write(struct sink_session *base, const struct batch *batch,
                       struct sink_result *results, struct diag *diag)
{
    struct shaky_session *session = (struct shaky_session *)base;
    struct shaky *s = session->shaky;
    bool fail = shaky_below(s, 16) < s->failing;
    if (fail && shaky_below(s, 2))
        return diag_set(diag, WEIR_UNAVAILABLE, "shaky: not now");
    for (size_t i = 0; i < batch->n; i++)
        if (is_poison(&batch->records[i]))
            return diag_set(diag, WEIR_REFUSED, "shaky: poison in it");
    int rc = session->inner->ops->write(session->inner, batch, results, diag);
    if (rc == 0 && fail)
        return diag_set(diag, WEIR_UNKNOWN, "shaky: done, and not told");
    for (size_t i = 0; rc == 0 && s->failing && i < batch->n; i++)
        if (shaky_below(s, 40) == 0)
            results[i].outcome = OUTCOME_RETRY;
    return rc;
}

/* ---- everything, wired ---- */

struct whole {
    struct log *log;
    struct lane *lane;
    struct shaky shaky;
    struct delivery *delivery;
    _Atomic uint64_t durable; /* bodies */
    int acks;                 /* where versions of durable records are written, or -1 */
};

struct post { /* one body with its memory */
    struct body body;
    struct record records[8];
    char text[8][200];
};

static void on_durable(void *context, struct body *bodies)
{
    struct whole *w = context;
    while (bodies) {
        struct post *post = (struct post *)bodies;
        bodies = bodies->next;
        if (post->body.status == 0 && w->acks >= 0) {
            uint64_t versions[8];
            for (unsigned i = 0; i < post->body.n; i++)
                versions[i] = post->records[i].version;
            if (write(w->acks, versions, post->body.n * sizeof(versions[0])) < 0)
                _exit(98);
        }
        w->durable++;
        mem_free(post);
    }
}

static const struct sink_stream stream = {0, "events"};

static void open_sink(struct whole *w)
{
    static const struct sink_option none = {0};
    struct sink_config config = {.name = "main",
                                 .options = &none,
                                 .streams = &stream,
                                 .n_streams = 1,
                                 .fs = fs_posix(),
                                 .data = data};
    struct diag diag = {0};
    if (sink_find("sqlite")->open(&config, &w->shaky.inner, &diag))
        fail_msg("%s", diag.text);
    w->shaky.ops = *w->shaky.inner->ops;
    w->shaky.ops.session_open = shaky_open;
    w->shaky.ops.session_close = shaky_close;
    w->shaky.ops.write = shaky_write;
    w->shaky.sink.ops = &w->shaky.ops;
    pthread_mutex_init(&w->shaky.mutex, NULL);
}

static void whole_start(struct whole *w, unsigned failing)
{
    static const char *const consumers[] = {"main", "keeps everything", NULL};
    static const unsigned sinks[] = {0};
    struct diag diag = {0};
    *w = (struct whole){.acks = -1};
    w->shaky.random.state = seed++;
    w->shaky.failing = failing;
    struct log_config log = {.fs = fs_posix(),
                             .data = data,
                             .partitions = PARTITIONS,
                             .segment_bytes = 1 << 20,
                             .max_bytes = 1 << 30,
                             .received_flush_ms = 5,
                             .ring = 1024,
                             .events = {w, on_durable, NULL},
                             .consumers = consumers};
    if (log_open("journal", &log, &w->log, &diag))
        fail_msg("%s", diag.text);
    open_sink(w);
    struct lane_config lane = {"main", 1, 100, 0};
    assert_int_equal(lane_create(&lane, &w->lane, NULL), 0);
    struct delivery_sink sink = {.name = "main",
                                 .sink = &w->shaky.sink,
                                 .lane = w->lane,
                                 .split = 1,
                                 .ordered = true,
                                 .batch_records = 40,
                                 .batch_bytes = 1 << 20,
                                 .retry_min_ms = 1,
                                 .retry_max_ms = 3,
                                 .breaker_failures = 4,
                                 .bisect_calls = 8};
    struct delivery_consumer consumer = {"main", sinks, 1};
    struct delivery_stream events = {0, "events", 1};
    struct delivery_config config = {.log = w->log,
                                     .fs = fs_posix(),
                                     .data = data,
                                     .partitions = PARTITIONS,
                                     .sinks = &sink,
                                     .n_sinks = 1,
                                     .consumers = &consumer,
                                     .n_consumers = 1,
                                     .streams = &events,
                                     .n_streams = 1,
                                     .dead_max_bytes = 1 << 24,
                                     .inflight_bytes = 1 << 20};
    if (delivery_start(&config, &w->delivery, &diag))
        fail_msg("%s", diag.text);
}

static void whole_stop(struct whole *w)
{
    delivery_stop(w->delivery, 10000);
    lane_close(w->lane, 1000);
    w->shaky.inner->ops->close(w->shaky.inner);
    pthread_mutex_destroy(&w->shaky.mutex);
    log_close(w->log);
}

/* Versions are places in time, ids come again every 60 or so, one in 50 is poison. */
static void post_some(struct whole *w, uint64_t *version, struct seeded *random)
{
    struct post *post = mem_zalloc(sizeof(*post));
    post->body.n = 1 + (uint32_t)seeded_below(random, 8);
    post->body.records = post->records;
    post->body.urgent = true;
    for (unsigned i = 0; i < post->body.n; i++) {
        uint64_t v = ++*version, id = v - seeded_below(random, v < 60 ? v : 60);
        char *text = post->text[i];
        int id_n = snprintf(text, 40, "id%llu", (unsigned long long)id);
        int key_n = snprintf(text + 40, 40, "key%llu", (unsigned long long)(id % KEYS));
        int doc_n = snprintf(text + 80, 100, "{\"v\":%llu,\"what\":\"%s\"}", (unsigned long long)v,
                             seeded_below(random, 50) ? "fine" : "poison");
        post->records[i] = (struct record){.id = {text, (size_t)id_n},
                                           .key = {text + 40, (size_t)key_n},
                                           .doc = {text + 80, (size_t)doc_n},
                                           .version = v,
                                           .partition = (uint32_t)(id % KEYS % PARTITIONS)};
    }
    struct timespec nap = {0, 200000};
    while (log_append(w->log, &post->body))
        nanosleep(&nap, NULL);
}

static bool drained(struct whole *w)
{
    struct delivery_consumer_stats stats;
    delivery_consumer_stats(w->delivery, 0, &stats);
    return stats.lag == 0;
}

static void wait_drained(struct whole *w)
{
    struct timespec nap = {0, 1000000};
    uint64_t give_up = clock_mono_ns() + UINT64_C(60000000000);
    while (!drained(w)) {
        if (clock_mono_ns() > give_up)
            fail_msg("never drained");
        nanosleep(&nap, NULL);
    }
}

/* ---- what is where ---- */

struct check {
    struct sink_session *session;
    uint64_t cursor[PARTITIONS];
    uint64_t checked;
    uint8_t *dead; /* by version */
    uint64_t versions;
};

static int note_dead(void *context, const struct dead_letter *letter)
{
    struct check *check = context;
    assert_true(is_poison(&letter->record));
    if (letter->record.version < check->versions)
        check->dead[letter->record.version] = 1;
    return 0;
}

static int look(void *context, const struct record *r)
{
    struct check *check = context;
    struct sink_row row;
    if (r->offset >= check->cursor[r->partition])
        return 0;
    check->checked++;
    int rc = check->session->ops->read(check->session, 0, r->id, &row, NULL);
    bool there = rc == 0 && row.version >= r->version;
    if (is_poison(r) ? !check->dead[r->version] && !there : !there)
        fail_msg("the cursor passed version %llu, which is nowhere",
                 (unsigned long long)r->version);
    return 0;
}

/* All records before the cursor are stored or dead, as the files are right now. */
static uint64_t check_cursor(struct log *log, struct sink *sink, uint64_t versions)
{
    struct check check = {.dead = mem_zalloc(versions + 1), .versions = versions + 1};
    struct dead *dead;
    struct diag diag = {0};
    for (uint32_t p = 0; p < PARTITIONS; p++) /* first, then what it must not have passed */
        check.cursor[p] = log_cursor(log, "main", p);
    assert_int_equal(dead_open(fs_posix(), data, "main", UINT64_MAX, true, &dead, NULL), 0);
    assert_int_equal(dead_scan(dead, note_dead, &check, NULL), 0);
    dead_close(dead);
    assert_int_equal(sink->ops->session_open(sink, true, &check.session, &diag), 0);
    if (log_scan(log, 0, look, &check, &diag))
        fail_msg("%s", diag.text);
    check.session->ops->session_close(check.session);
    mem_free(check.dead);
    return check.checked;
}

struct final { /* what must be there in the end, by version */
    struct sink_session *session;
    uint64_t rows;
    const uint8_t *acked;
    uint64_t versions, seen;
};

static int last_look(void *context, const struct record *r)
{
    struct final *final = context;
    struct sink_row row;
    assert_true(r->version <= final->versions);
    final->seen += final->acked[r->version];
    int rc = final->session->ops->read(final->session, 0, r->id, &row, NULL);
    if (!is_poison(r))
        assert_true(rc == 0 && row.version >= r->version);
    else if (rc == 0)
        assert_true(row.version != r->version);
    if (rc == 0 && row.version == r->version)
        assert_true(slice_equal(row.doc, r->doc) && slice_equal(row.key, r->key));
    return 0;
}

/* ---- the tests ---- */

static int begin(void **state)
{
    (void)state;
    data = scratch_create_fast(); /* it kills processes, not disks */
    return 0;
}

static int end(void **state)
{
    (void)state;
    scratch_remove(data);
    free(data);
    return 0;
}

static void the_cursor_never_stands_beyond_what_is_stored(void **state)
{
    (void)state;
    struct whole w;
    struct seeded random = {seed};
    uint64_t version = 0, checked = 0;
    whole_start(&w, 4);
    for (int round = 0; round < 12 || (!checked && round < 1000); round++) {
        for (int i = 0; i < 30; i++)
            post_some(&w, &version, &random);
        checked += check_cursor(w.log, w.shaky.inner, version);
    }
    wait_drained(&w);
    assert_int_equal(check_cursor(w.log, w.shaky.inner, version), version);
    assert_true(checked > 0);
    struct delivery_sink_stats stats;
    delivery_sink_stats(w.delivery, 0, &stats);
    assert_true(stats.failures > 0 && stats.retries > 0 && stats.bisections > 0);
    assert_int_equal(stats.stored + stats.refused, version);
    whole_stop(&w);
}

/* The child: delivers and accepts, and is killed in the middle. */
static void live(int acks, uint64_t version)
{
    struct whole w;
    struct seeded random = {seed + version};
    whole_start(&w, 3);
    w.acks = acks;
    for (;;) {
        post_some(&w, &version, &random);
        nanosleep(&(struct timespec){0, 100000}, NULL);
    }
}

static void killed_at_any_moment_nothing_is_lost(void **state)
{
    (void)state;
    enum { CYCLES = 8, MOST = 400000 };
    struct seeded random = {seed};
    uint8_t *acked = mem_zalloc(MOST);
    uint64_t version = 0, n_acked = 0, checked = 0;
    for (int cycle = 0; cycle < CYCLES || (!checked && cycle < 50); cycle++) {
        int acks[2];
        assert_int_equal(pipe(acks), 0);
        fflush(stdout);
        pid_t pid = fork();
        if (pid == 0) {
            close(acks[0]);
            live(acks[1], version);
            _exit(97);
        }
        close(acks[1]);
        uint64_t until = UINT64_MAX, v; /* set by the first acknowledgement */
        bool killed = false;
        while (read(acks[0], &v, sizeof(v)) == sizeof(v)) {
            assert_true(v < MOST);
            n_acked += !acked[v];
            acked[v] = 1;
            version = v > version ? v : version;
            if (until == UINT64_MAX)
                until = clock_mono_ns() + (20 + seeded_below(&random, 120)) * 1000000;
            if (!killed && clock_mono_ns() > until) {
                kill(pid, SIGKILL);
                killed = true;
            }
        }
        close(acks[0]);
        int status;
        waitpid(pid, &status, 0);
        assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        version += 20000; /* what was accepted and not acknowledged has versions too */

        struct whole w = {.acks = -1};
        struct diag diag = {0};
        struct log_config config = {.fs = fs_posix(),
                                    .data = data,
                                    .partitions = PARTITIONS,
                                    .segment_bytes = 1 << 20,
                                    .read_only = true};
        if (log_open("journal", &config, &w.log, &diag))
            fail_msg("%s", diag.text);
        open_sink(&w);
        checked += check_cursor(w.log, w.shaky.inner, version);
        w.shaky.inner->ops->close(w.shaky.inner);
        pthread_mutex_destroy(&w.shaky.mutex);
        log_close(w.log);
    }
    assert_true(n_acked > 0 && checked > 0);

    struct whole w;
    whole_start(&w, 0);
    wait_drained(&w);
    struct final final = {.acked = acked, .versions = version};
    struct sink *sink = w.shaky.inner;
    uint64_t rows;
    assert_int_equal(sink->ops->session_open(sink, true, &final.session, NULL), 0);
    assert_int_equal(log_scan(w.log, 0, last_look, &final, NULL), 0);
    assert_int_equal(final.session->ops->count(final.session, 0, &rows, NULL), 0);
    assert_true(rows > 0);
    final.session->ops->session_close(final.session);
    assert_int_equal(final.seen, n_acked); /* every one of them was in the log */
    whole_stop(&w);
    mem_free(acked);
}

struct replaying {
    struct dead *dead;
    struct sink_session *session;
    int rc;
};

static int replay_it(void *context, const struct dead_letter *letter)
{
    struct replaying *r = context;
    r->rc = dead_replay(r->dead, letter->number, r->session, NULL);
    return 0;
}

/* Replay goes to the store as a record of its old version: it never replaces a newer one. */
static void a_replayed_letter_respects_newer_versions(void **state)
{
    (void)state;
    struct whole w;
    struct sink_row row;
    whole_start(&w, 0);
    struct post *post = mem_zalloc(sizeof(*post));
    post->body.n = 3;
    post->body.records = post->records;
    post->body.urgent = true;
    static const char *const docs[] = {"{\"poison\":1}", "{\"poison\":2}", "{\"fine\":3}"};
    for (unsigned i = 0; i < 3; i++)
        post->records[i] = (struct record){.id = slice_of(i == 1 ? "b" : "a"),
                                           .key = slice_of("k"),
                                           .doc = slice_of(docs[i]),
                                           .version = i + 1};
    /* Two bodies, so that the refusal of the first version is not saved by the last. */
    struct post *last = mem_zalloc(sizeof(*last));
    last->body = post->body;
    last->records[0] = post->records[2];
    last->body.records = last->records;
    last->body.n = 1;
    post->body.n = 2;
    assert_int_equal(log_append(w.log, &post->body), 0);
    wait_drained(&w);
    struct timespec nap = {0, 1000000};
    uint64_t letters = 0, bytes;
    while (dead_stats(delivery_dead(w.delivery, 0), &letters, &bytes), letters < 2)
        nanosleep(&nap, NULL);
    assert_int_equal(log_append(w.log, &last->body), 0);
    while (w.durable < 2)
        nanosleep(&nap, NULL);
    wait_drained(&w);

    struct replaying r = {.dead = delivery_dead(w.delivery, 0)};
    struct sink *shaky = &w.shaky.sink, *inner = w.shaky.inner;
    assert_int_equal(shaky->ops->session_open(shaky, false, &r.session, NULL), 0);
    assert_int_equal(dead_scan(r.dead, replay_it, &r, NULL), 0);
    assert_int_equal(r.rc, WEIR_REFUSED); /* still poison to it */
    dead_stats(r.dead, &letters, &bytes);
    assert_int_equal(letters, 2);
    r.session->ops->session_close(r.session);

    assert_int_equal(inner->ops->session_open(inner, false, &r.session, NULL), 0);
    assert_int_equal(dead_scan(r.dead, replay_it, &r, NULL), 0);
    assert_int_equal(r.rc, 0);
    dead_stats(r.dead, &letters, &bytes);
    assert_int_equal(letters, 0);
    assert_int_equal(dead_replay(r.dead, 1, r.session, NULL), WEIR_NOT_FOUND);
    assert_int_equal(r.session->ops->read(r.session, 0, SLICE_LIT("a"), &row, NULL), 0);
    assert_int_equal(row.version, 3);
    assert_int_equal(r.session->ops->read(r.session, 0, SLICE_LIT("b"), &row, NULL), 0);
    assert_int_equal(row.version, 2);
    r.session->ops->session_close(r.session);
    whole_stop(&w);
}

int main(void)
{
    seed = seeded_choose();
#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        T(killed_at_any_moment_nothing_is_lost), /* first: it forks */
        T(the_cursor_never_stands_beyond_what_is_stored),
        T(a_replayed_letter_respects_newer_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
