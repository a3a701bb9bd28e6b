/* Several appenders, two readers of different speed, a scan, segments that come and go, all at
 * once: every reader gets every record once and in order. Meant for the thread sanitizer. */
#include "journal_kit.h"

#define APPENDERS 3
#define EACH      1500

struct stress {
    struct kit kit;
    uint64_t seed;
    atomic_uint appending;
    atomic_bool scanning;
};

struct job {
    struct stress *stress;
    unsigned number;
    struct kit_read read;
    pthread_t thread;
};

static void *append_all(void *argument)
{
    struct job *job = argument;
    struct stress *stress = job->stress;
    struct seeded random = {stress->seed + job->number};
    for (uint64_t id = 0; id < EACH;) {
        unsigned n = 1 + (unsigned)seeded_below(&random, 4);
        n = n > EACH - id ? (unsigned)(EACH - id) : n;
        struct body *body = kit_body(job->number * 1000000 + id, n, seeded_below(&random, 900),
                                     seeded_below(&random, 2));
        int rc;
        while ((rc = log_append(stress->kit.log, body)) == WEIR_FULL)
            nanosleep(&(struct timespec){.tv_nsec = 200000}, NULL); /* poll interval */
        assert_int_equal(rc, 0);
        if (seeded_below(&random, 50) == 0)
            log_flush(stress->kit.log);
        id += n;
    }
    atomic_fetch_sub(&stress->appending, 1);
    return NULL;
}

static void *consume_all(void *argument)
{
    struct job *job = argument;
    struct kit *kit = &job->stress->kit;
    struct seeded random = {job->stress->seed + 100 + job->number};
    struct log_reader *reader;
    struct batch batch;
    batch_init(&batch);
    assert_int_equal(log_reader_open(kit->log, job->number ? "b" : "a", &reader, &kit->diag), 0);
    while (job->read.n < APPENDERS * EACH) {
        struct log_poll_result result;
        assert_int_equal(
            log_poll(reader, &batch, 1 + seeded_below(&random, 200), 1 << 18, 50, &result), 0);
        for (size_t i = 0; i < batch.n; i++)
            kit_read_add(&job->read, &batch.records[i]);
        for (size_t i = 0; i < batch.n; i++)
            log_settle(reader, batch.records[i].partition, batch.records[i].offset);
        batch_clear(&batch);
        if (job->number && seeded_below(&random, 20) == 0) { /* leaves and comes back */
            log_reader_close(reader);
            assert_int_equal(log_reader_open(kit->log, "b", &reader, &kit->diag), 0);
        }
        assert_true(log_lag(reader) <= APPENDERS * EACH);
    }
    assert_int_equal(log_lag(reader), 0);
    log_reader_close(reader);
    batch_fini(&batch);
    return NULL;
}

static int rising(void *context, const struct record *record)
{
    uint64_t *last = context;
    assert_true(record->offset > *last);
    *last = record->offset;
    return 0;
}

static void *scan_all(void *argument)
{
    struct job *job = argument;
    struct stress *stress = job->stress;
    struct diag diag = {0};
    while (atomic_load(&stress->scanning)) {
        uint64_t last = 0;
        struct log_stats stats;
        if (log_scan(stress->kit.log, 0, rising, &last, &diag) != 0)
            fail_msg("scan: %s", diag.text);
        log_stats(stress->kit.log, &stats);
        assert_true(stats.first_offset <= stats.end_offset);
        char text[64];
        log_position_text(stress->kit.log, 1, last, text);
        log_cursor(stress->kit.log, "a", 1);
    }
    return NULL;
}

static void everybody_at_once(void **state)
{
    (void)state;
    static const char *const consumers[] = {"a", "b", NULL};
    struct stress stress = {.seed = seeded_choose(), .appending = APPENDERS, .scanning = true};
    struct kit *kit = &stress.kit;
    struct job appenders[APPENDERS] = {0}, readers[2] = {0}, scanner = {.stress = &stress};
    kit_init(kit);
    kit->config.segment_bytes = SEGMENT_BYTES_MIN;
    kit->config.max_bytes = 400 << 10;
    kit->config.consumers = consumers;
    kit->config.ring = 256;
    kit_open(kit);
    for (unsigned i = 0; i < APPENDERS; i++) {
        appenders[i] = (struct job){.stress = &stress, .number = i};
        pthread_create(&appenders[i].thread, NULL, append_all, &appenders[i]);
    }
    for (unsigned i = 0; i < 2; i++) {
        readers[i] = (struct job){.stress = &stress, .number = i};
        pthread_create(&readers[i].thread, NULL, consume_all, &readers[i]);
    }
    pthread_create(&scanner.thread, NULL, scan_all, &scanner);
    for (unsigned i = 0; i < APPENDERS; i++)
        pthread_join(appenders[i].thread, NULL);
    for (unsigned i = 0; i < 2; i++)
        pthread_join(readers[i].thread, NULL);
    atomic_store(&stress.scanning, false);
    pthread_join(scanner.thread, NULL);
    assert_int_equal(kit->n_acks, APPENDERS * EACH);
    for (unsigned r = 0; r < 2; r++) {
        assert_int_equal(readers[r].read.n, APPENDERS * EACH);
        for (size_t i = 0; i < kit->n_acks; i++) {
            assert_int_equal(kit->acks[i].status, 0);
            assert_int_equal(readers[r].read.offsets[i], kit->acks[i].offset);
            assert_int_equal(readers[r].read.ids[i], strtoull(kit->acks[i].id, NULL, 10));
        }
        kit_read_fini(&readers[r].read);
    }
    /* What one appender sent is in its order. */
    uint64_t next[APPENDERS] = {0};
    for (size_t i = 0; i < kit->n_acks; i++) {
        uint64_t id = strtoull(kit->acks[i].id, NULL, 10);
        assert_int_equal(id % 1000000, next[id / 1000000]++);
    }
    kit_fini(kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everybody_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
