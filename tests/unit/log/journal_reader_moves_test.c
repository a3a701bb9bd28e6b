/* journal_reader_moves_test.c: a reader at the border between two segments, while the first is let
 * go of behind it, and while the second cannot be opened. */
#include "journal_kit.h"

static struct log_reader *reader_of_c(struct kit *kit)
{
    struct log_reader *reader;
    assert_int_equal(log_reader_open(kit->log, "c", &reader, &kit->diag), 0);
    return reader;
}

/* Appends a record and waits until a reader can see it. */
static void put(struct kit *kit, uint64_t id, size_t doc_bytes)
{
    kit_fill(kit, id, 1, doc_bytes);
    log_flush(kit->log);
}

static int poll_once(struct log_reader *reader, struct batch *batch, enum log_poll *what)
{
    struct log_poll_result result = {.what = LOG_IDLE};
    batch_clear(batch);
    int rc = log_poll(reader, batch, 1000, 16 << 20, 0, &result);
    *what = result.what;
    return rc;
}

/* All of the segment is read and settled, then the next one begins, and the keeper lets go of the
 * first before the reader looks again: it goes on in the next. */
static void a_segment_may_go_while_its_reader_stands_at_its_end(void **state)
{
    (void)state;
    struct kit kit;
    kit_init(&kit);
    const char *consumers[] = {"c", NULL};
    kit.config.consumers = consumers;
    kit_open(&kit);
    struct log_reader *reader = reader_of_c(&kit);
    struct batch batch;
    enum log_poll what;
    batch_init(&batch);
    for (uint64_t round = 0; round < 3; round++) {
        uint64_t first = round * 2 + 1;
        put(&kit, first, 150 << 10);
        assert_int_equal(poll_once(reader, &batch, &what), 0);
        assert_int_equal(batch.n, 1);
        struct record read = batch.records[0];
        put(&kit, first + 1, 150 << 10); /* does not fit behind it */
        log_settle(reader, read.partition, read.offset);
        struct log_stats stats;
        struct timespec pause = {0, 2000000};
        for (log_stats(kit.log, &stats); stats.first_offset <= read.offset;
             log_stats(kit.log, &stats))
            nanosleep(&pause, NULL);
        assert_int_equal(poll_once(reader, &batch, &what), 0);
        assert_int_equal(batch.n, 1);
        kit_check_record(&batch.records[0]);
        assert_int_equal(batch.records[0].offset, kit.acks[kit.n_acks - 1].offset);
        log_settle(reader, batch.records[0].partition, batch.records[0].offset);
    }
    batch_fini(&batch);
    log_reader_close(reader);
    kit_fini(&kit);
}

/* The next segment cannot be opened once, just after records were read: they are given out all the
 * same, and what of them is not settled comes again. */
static atomic_bool refuse_segments;

static int refuse(void *context, enum hook_op op, const char *path, uint64_t offset, size_t n,
                  size_t *prefix)
{
    (void)context;
    (void)offset;
    (void)n;
    (void)prefix;
    return op == HOOK_OPEN && strstr(path, ".seg") && atomic_load(&refuse_segments) ? EIO : 0;
}

static void records_before_an_unreadable_segment_stay_open(void **state)
{
    (void)state;
    struct kit kit;
    struct hook_fs hook;
    kit_init(&kit);
    hook_fs_init(&hook);
    hook.before = refuse;
    kit.config.fs = &hook.fs;
    const char *consumers[] = {"c", NULL};
    kit.config.consumers = consumers;
    kit_open(&kit);
    struct log_reader *reader = reader_of_c(&kit);
    struct batch batch;
    enum log_poll what;
    batch_init(&batch);
    put(&kit, 1, 10);
    assert_int_equal(poll_once(reader, &batch, &what), 0); /* now it has the first segment open */
    assert_int_equal(batch.n, 1);
    log_settle(reader, batch.records[0].partition, batch.records[0].offset);
    put(&kit, 2, 150 << 10);
    put(&kit, 3, 150 << 10); /* in the next segment */

    atomic_store(&refuse_segments, true);
    assert_int_equal(poll_once(reader, &batch, &what), 0);
    assert_int_equal(batch.n, 1);
    uint64_t second = batch.records[0].offset;
    assert_int_equal(poll_once(reader, &batch, &what), WEIR_IO);
    atomic_store(&refuse_segments, false);
    assert_int_equal(poll_once(reader, &batch, &what), 0);
    assert_int_equal(batch.n, 1);
    log_settle(reader, batch.records[0].partition, batch.records[0].offset);
    log_reader_close(reader);

    reader = reader_of_c(&kit);
    assert_int_equal(poll_once(reader, &batch, &what), 0);
    assert_int_equal(batch.n, 1);
    assert_int_equal(batch.records[0].offset, second);
    batch_fini(&batch);
    log_reader_close(reader);
    kit_fini(&kit);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_segment_may_go_while_its_reader_stands_at_its_end),
        cmocka_unit_test(records_before_an_unreadable_segment_stay_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
