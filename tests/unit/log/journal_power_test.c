/* journal_power_test.c: the journal lives many short lives in one directory, each ended by a power
 * cut at a random operation, some with failing operations before: and what it once said stays true.
 *
 *   A body that was reported durable is read back, byte for byte, at the offset it was given, until
 *   it is settled. A record that a reader has seen stays where it was. Offsets rise. Nothing is
 * read that was never appended. No cut makes the journal refuse to open.
 *
 * A life runs in a child, which reports through a pipe before it relies on anything; the parent
 * opens the directory after it and compares. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "../child.h"
#include "../scratch.h"
#include "../seeded.h"
#include "base/mem.h"
#include "log/log.h"
#include "os/fs_fault.h"
#include "os/thread.h"

#define PARTITIONS  3
#define BODIES      250 /* a life appends at most */
#define RECORDS_MAX 4
#define OUTSTANDING 12
#define LIVES       14

static uint64_t first_seed;

/* Records are known by their version: life, body and index in it; all else follows from these. */
static uint64_t version_of(unsigned life, unsigned body, unsigned index)
{
    return ((uint64_t)life << 32 | body << 8 | index) + 1;
}

static unsigned records_in(unsigned life, unsigned body)
{
    struct seeded random = {(uint64_t)life << 32 | body};
    return 1 + (unsigned)seeded_below(&random, RECORDS_MAX);
}

static uint32_t partition_of(uint64_t version)
{
    struct seeded random = {version};
    return (uint32_t)seeded_below(&random, PARTITIONS);
}

/* Fills what the version stands for; `text` holds id and doc. */
static struct record record_of(uint64_t version, char text[8192])
{
    struct seeded random = {version * 31 + 7};
    size_t id = (size_t)snprintf(text, 64, "record-%" PRIu64, version);
    size_t n = seeded_below(&random, 10) == 0 ? 3000 + seeded_below(&random, 5000)
                                              : seeded_below(&random, 900);
    char *doc = text + 64;
    for (size_t i = 0; i < n; i++)
        doc[i] = (char)seeded_next(&random);
    return (struct record){
        .id = {text, id},
        .key = {text, version % 3 ? id : id - 1},
        .doc = {doc, n},
        .version = version,
        .stream = (uint32_t)(version % 5),
        .partition = partition_of(version),
    };
}

enum told { TOLD_DURABLE, TOLD_SEEN, TOLD_SETTLING };

struct report {
    uint64_t version, offset;
    uint32_t what, records; /* TOLD_DURABLE: so many records from this one on */
};

/* --- the child ---------------------------------------------------------------------------------
 */

struct life {
    const char *data;
    const char *plan;
    unsigned number;
    int report;
    /* within the child */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    unsigned outstanding, failures;
    struct log *log;
    struct log_reader *reader;
    atomic_bool stop;
};

static void tell(const struct life *life, enum told what, uint64_t version, uint64_t offset,
                 uint32_t records)
{
    struct report report = {version, offset, what, records};
    child_check(write(life->report, &report, sizeof report) == sizeof report);
}

static void settled(void *context, struct body *bodies)
{
    struct life *life = context;
    unsigned n = 0, failed = 0;
    while (bodies) {
        struct body *body = bodies;
        bodies = body->next;
        if (body->status == 0)
            tell(life, TOLD_DURABLE, body->records[0].version, body->records[0].offset, body->n);
        failed += body->status != 0;
        for (uint32_t i = 1; body->status == 0 && i < body->n; i++)
            child_check(body->records[i].offset > body->records[i - 1].offset);
        mem_free(body->records);
        mem_free(body);
        n++;
    }
    pthread_mutex_lock(&life->lock);
    life->outstanding -= n;
    life->failures += failed;
    pthread_cond_signal(&life->changed);
    pthread_mutex_unlock(&life->lock);
}

static void ignore_report(void *context, const char *text)
{
    (void)context;
    if (getenv("WEIR_VERBOSE"))
        fprintf(stderr, "%s\n", text);
}

static struct log_config config_of(const struct fs *fs, const char *data, void *context)
{
    static const char *const consumers[] = {"c", NULL};
    return (struct log_config){
        .fs = fs,
        .data = data,
        .partitions = PARTITIONS,
        .segment_bytes = 64 << 10,
        .max_bytes = 1 << 20,
        .received_flush_ms = 1,
        .ring = 64,
        .events = {context, settled, ignore_report},
        .consumers = consumers,
    };
}

static void *consume(void *argument)
{
    struct life *life = argument;
    struct seeded random = {life->number};
    struct batch batch;
    batch_init(&batch);
    while (!atomic_load(&life->stop)) {
        struct log_poll_result result;
        int rc =
            log_poll(life->reader, &batch, 1 + seeded_below(&random, 20), 1 << 20, 20, &result);
        child_check(rc == 0 || rc == WEIR_IO || rc == WEIR_NO_SPACE);
        for (size_t i = 0; i < batch.n; i++)
            tell(life, TOLD_SEEN, batch.records[i].version, batch.records[i].offset, 1);
        /* Every fourth life settles all, so that segments go; the others settle one partition, or
         * a little. */
        for (size_t i = 0; i < batch.n; i++) {
            const struct record *record = &batch.records[i];
            if (life->number % 4 && record->partition != life->number % 4 - 1 &&
                seeded_below(&random, 40))
                continue;
            tell(life, TOLD_SETTLING, record->version, record->offset, 1);
            log_settle(life->reader, record->partition, record->offset);
        }
        batch_clear(&batch);
    }
    batch_fini(&batch);
    return NULL;
}

static bool append(struct life *life, unsigned number)
{
    struct body *body = mem_zalloc(sizeof *body);
    char text[RECORDS_MAX][8192];
    body->n = records_in(life->number, number);
    body->urgent = number % 4 != 0;
    body->records = mem_zalloc(body->n * sizeof *body->records);
    for (uint32_t i = 0; i < body->n; i++)
        body->records[i] = record_of(version_of(life->number, number, i), text[i]);
    pthread_mutex_lock(&life->lock);
    while (life->outstanding >= OUTSTANDING)
        pthread_cond_wait(&life->changed, &life->lock);
    life->outstanding++;
    pthread_mutex_unlock(&life->lock);
    int rc = log_append(life->log, body);
    if (rc == 0)
        return true;
    child_check(rc == WEIR_FULL || rc == WEIR_POISONED || rc == WEIR_NO_SPACE || rc == WEIR_IO);
    mem_free(body->records);
    mem_free(body);
    pthread_mutex_lock(&life->lock);
    life->outstanding--;
    pthread_mutex_unlock(&life->lock);
    return false;
}

/* From opening to closing; the power may go at any point. Returns whether another one makes sense:
 * after a failure the process "restarts", and knows only what is in the files. */
static void session(struct life *life, unsigned *next)
{
    struct diag diag = {0};
    struct log_config config = config_of(fs_current(), life->data, life);
    int rc = log_open("journal", &config, &life->log, &diag);
    if (rc && rc != WEIR_IO && rc != WEIR_NO_SPACE) {
        dprintf(1, "life %u: %s\n", life->number, diag.text);
        _exit(31);
    }
    if (rc)
        return;
    pthread_t consumer;
    life->outstanding = life->failures = 0;
    atomic_store(&life->stop, false);
    bool reading = log_reader_open(life->log, "c", &life->reader, &diag) == 0;
    if (reading)
        child_check(thread_start(&consumer, "consumer", 0, consume, life) == 0);
    unsigned refused = 0;
    bool failed = false;
    while (*next < BODIES && refused < 20 && !failed) {
        if (append(life, (*next)++)) {
            refused = 0;
        } else {
            refused++;
            log_flush(life->log);
        }
        pthread_mutex_lock(&life->lock);
        failed = life->failures > 3;
        pthread_mutex_unlock(&life->lock);
    }
    log_flush(life->log);
    if (reading) {
        atomic_store(&life->stop, true);
        log_wake(life->reader);
        thread_join(consumer);
        log_reader_close(life->reader);
    }
    log_close(life->log);
}

static void live(void *context)
{
    struct life *life = context;
    struct diag diag;
    const struct fs *fs = fs_fault_install(fs_posix(), life->plan, &diag);
    child_check(fs);
    fs_use(fs);
    pthread_mutex_init(&life->lock, NULL);
    pthread_cond_init(&life->changed, NULL);
    unsigned next = 0;
    for (unsigned sessions = 0; sessions < 4; sessions++)
        session(life, &next);
    exit(0);
}

/* --- the parent --------------------------------------------------------------------------------
 */

struct known { /* a record that the child said something of */
    uint64_t version, offset;
    bool durable, seen, found;
};

struct ledger {
    struct known *items;
    size_t n, capacity;
    uint64_t settling[PARTITIONS]; /* up to and including: may be settled */
    uint64_t seed;
    unsigned kept; /* records that had to be there and were, over all checks */
};

static bool may_be_settled(const struct ledger *ledger, const struct known *known)
{
    return known->offset && known->offset <= ledger->settling[partition_of(known->version)];
}

static struct known *known_of(struct ledger *ledger, uint64_t version, bool add)
{
    /* open addressing by version */
    if (add && ledger->n * 2 >= ledger->capacity) {
        struct ledger old = *ledger;
        ledger->capacity = old.capacity ? old.capacity * 2 : 4096;
        ledger->items = calloc(ledger->capacity, sizeof *ledger->items);
        ledger->n = 0;
        for (size_t i = 0; i < old.capacity; i++)
            if (old.items[i].version)
                *known_of(ledger, old.items[i].version, true) = old.items[i];
        free(old.items);
    }
    if (!ledger->capacity)
        return NULL;
    struct seeded random = {version};
    size_t at = seeded_next(&random) & (ledger->capacity - 1);
    while (ledger->items[at].version && ledger->items[at].version != version)
        at = (at + 1) & (ledger->capacity - 1);
    if (!ledger->items[at].version) {
        if (!add)
            return NULL;
        ledger->items[at].version = version;
        ledger->n++;
    }
    return &ledger->items[at];
}

static void hear(struct ledger *ledger, const struct report *report)
{
    for (uint32_t i = 0; i < report->records; i++) {
        struct known *known = known_of(ledger, report->version + i, true);
        if (report->what == TOLD_SETTLING) {
            ledger->settling[partition_of(report->version)] = report->offset;
            continue;
        }
        if (known->offset && i == 0 && known->offset != report->offset)
            fail_msg("seed %" PRIu64 ": record %" PRIu64 " was at %" PRIu64 ", now at %" PRIu64,
                     ledger->seed, report->version, known->offset, report->offset);
        if (i == 0)
            known->offset = report->offset;
        known->durable |= report->what == TOLD_DURABLE;
        known->seen |= report->what == TOLD_SEEN;
    }
}

static void check_record(struct ledger *ledger, const struct record *record, uint64_t before)
{
    char text[8192];
    struct record wanted = record_of(record->version, text);
    unsigned long long seed = ledger->seed;
    if (record->offset <= before)
        fail_msg("seed %llu: offset %" PRIu64 " after %" PRIu64, seed, record->offset, before);
    if (!slice_equal(record->id, wanted.id) || !slice_equal(record->key, wanted.key) ||
        !slice_equal(record->doc, wanted.doc) || record->partition != wanted.partition ||
        record->stream != wanted.stream)
        fail_msg("seed %llu: record %" PRIu64 " is another", seed, record->version);
    struct known *known = known_of(ledger, record->version, true);
    if (known->found)
        fail_msg("seed %llu: record %" PRIu64 " is there twice", seed, record->version);
    known->found = true;
    if (known->offset && known->offset != record->offset)
        fail_msg("seed %llu: record %" PRIu64 " at %" PRIu64 ", was at %" PRIu64, seed,
                 record->version, record->offset, known->offset);
    known->offset = record->offset;
    known->seen = true; /* the parent is a reader too: from now on it must stay */
}

/* Opens the log as a restart would, reads all that is not settled, compares. */
static void compare(struct ledger *ledger, const char *data)
{
    struct log *log;
    struct log_reader *reader;
    struct diag diag = {0};
    struct log_config config = config_of(fs_posix(), data, NULL);
    if (log_open("journal", &config, &log, &diag) != 0)
        fail_msg("seed %" PRIu64 ": %s", ledger->seed, diag.text);
    assert_int_equal(log_reader_open(log, "c", &reader, &diag), 0);
    for (size_t i = 0; i < ledger->capacity; i++)
        ledger->items[i].found = false;
    struct batch batch;
    struct log_poll_result result = {.what = LOG_RECORDS};
    uint64_t before = 0;
    batch_init(&batch);
    while (result.what == LOG_RECORDS) {
        assert_int_equal(log_poll(reader, &batch, 1000, 1 << 20, 0, &result), 0);
        for (size_t i = 0; i < batch.n; i++) {
            check_record(ledger, &batch.records[i], before);
            before = batch.records[i].offset;
        }
        batch_clear(&batch);
    }
    batch_fini(&batch);
    log_reader_close(reader);
    log_close(log);
    for (size_t i = 0; i < ledger->capacity; i++) {
        struct known *known = &ledger->items[i];
        if (!known->version || may_be_settled(ledger, known))
            continue;
        if ((known->durable || known->seen) && !known->found)
            fail_msg("seed %" PRIu64 ": record %" PRIu64 " at %" PRIu64 " is lost (%s%s)",
                     ledger->seed, known->version, known->offset, known->durable ? "durable" : "",
                     known->seen ? " seen" : "");
        ledger->kept += known->found;
        /* A body is whole: with one of its records all are there, or were settled. */
        unsigned life = (unsigned)((known->version - 1) >> 32);
        unsigned body = (unsigned)((known->version - 1) >> 8 & 0xffffff);
        for (unsigned k = 0; known->found && k < records_in(life, body); k++) {
            struct known *other = known_of(ledger, version_of(life, body, k), false);
            if (!other || (!other->found && !may_be_settled(ledger, other)))
                fail_msg("seed %" PRIu64 ": body %u of life %u is not whole", ledger->seed, body,
                         life);
        }
    }
}

/* One directory, many lives. `failing`: each plan has a failing operation before its cut. */
static unsigned live_often(uint64_t seed, const char *failing)
{
    struct seeded random = {seed};
    struct ledger ledger = {.seed = seed};
    char *data = scratch_create_fast();
    unsigned cuts = 0;
    for (unsigned number = 1; number <= LIVES; number++) {
        /* Opening takes some tens of operations; cuts must fall into it too. */
        uint64_t cut = 1 + seeded_below(&random, number % 3 == 0   ? 40
                                                 : number % 3 == 1 ? 200
                                                                   : 900);
        char plan[160];
        int n = snprintf(plan, sizeof plan, "seed=%" PRIu64 ";powercut=%" PRIu64,
                         seeded_next(&random) >> 16, cut);
        if (failing) {
            uint64_t at = 1 + seeded_below(&random, cut);
            if (number % 2)
                snprintf(plan + n, sizeof plan - (size_t)n, ";fail=%s@%" PRIu64, failing, at);
            else
                snprintf(plan + n, sizeof plan - (size_t)n, ";fail=%s@%" PRIu64 "-%" PRIu64,
                         failing, at, at + seeded_below(&random, 6));
        }
        int ends[2];
        assert_int_equal(pipe(ends), 0);
        assert_true(fcntl(ends[1], F_SETPIPE_SZ, 1 << 20) > 0);
        struct life life = {.data = data, .plan = plan, .number = number, .report = ends[1]};
        int status = child_run(live, &life);
        close(ends[1]);
        if (status != 137 && status != 0)
            fail_msg("seed %" PRIu64 ", life %u (%s): status %d", seed, number, plan, status);
        cuts += status == 137;
        struct report report;
        while (read(ends[0], &report, sizeof report) == sizeof report)
            hear(&ledger, &report);
        close(ends[0]);
        if (seeded_below(&random, 2) || number == LIVES)
            compare(&ledger, data);
    }
    scratch_remove(data);
    free(data);
    free(ledger.items);
    assert_true(ledger.kept > 0);
    return cuts;
}

static unsigned runs(unsigned n)
{
#ifdef __SANITIZE_THREAD__
    return n > 4 ? n / 4 : 1;
#else
    return n;
#endif
}

static void power_cuts_alone(void **state)
{
    (void)state;
    unsigned cuts = 0;
    for (unsigned i = 0; i < runs(8); i++)
        cuts += live_often(first_seed + i, NULL);
    assert_true(cuts > runs(8) * LIVES / 2);
}

/* The failed sync, the restart that reads what is only in the page cache, then the cut: what the
 * restarted journal has shown to anyone must not go. */
static void power_cuts_after_failing_operations(void **state)
{
    (void)state;
    for (unsigned i = 0; i < runs(6); i++)
        live_often(first_seed + 1000 + i, "EIO");
    for (unsigned i = 0; i < runs(3); i++)
        live_often(first_seed + 2000 + i, "ENOSPC");
    for (unsigned i = 0; i < runs(3); i++)
        live_often(first_seed + 3000 + i, "SHORT");
}

int main(void)
{
    first_seed = seeded_choose() & 0xffffffffffff;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(power_cuts_alone),
        cmocka_unit_test(power_cuts_after_failing_operations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
