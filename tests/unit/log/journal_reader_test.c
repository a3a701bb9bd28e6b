/* Readers and cursors: everything once and in order, from where it was left, with what is settled
 * let go of and nothing else. */
#include <signal.h>

#include "base/hash.h"
#include "journal_kit.h"

static const char *const one_consumer[] = {"c", NULL};
static const char *const two_consumers[] = {"c", "slow", NULL};

static int setup(void **state)
{
    struct kit *kit = malloc(sizeof *kit);
    kit_init(kit);
    kit->config.segment_bytes = SEGMENT_BYTES_MIN;
    kit->config.consumers = one_consumer;
    *state = kit;
    return 0;
}

static int teardown(void **state)
{
    kit_fini(*state);
    free(*state);
    return 0;
}

static struct log_reader *open_reader(struct kit *kit, const char *consumer)
{
    struct log_reader *reader;
    if (log_reader_open(kit->log, consumer, &reader, &kit->diag) != 0)
        fail_msg("log_reader_open: %s", kit->diag.text);
    return reader;
}

/* Settles all of the first n that were read. */
static void settle_first(struct log_reader *reader, const struct kit_read *read, size_t n)
{
    for (size_t i = 0; i < n; i++)
        log_settle(reader, (uint32_t)(read->ids[i] % 4), read->offsets[i]);
}

static void expect_idle(struct log_reader *reader)
{
    struct batch batch;
    struct log_poll_result result;
    batch_init(&batch);
    assert_int_equal(log_poll(reader, &batch, 100, 1 << 20, 0, &result), 0);
    assert_int_equal(result.what, LOG_IDLE);
    batch_fini(&batch);
}

static uint64_t end_of(struct kit *kit)
{
    struct log_stats stats;
    log_stats(kit->log, &stats);
    return stats.end_offset;
}

static void a_batch_has_the_size_that_was_asked_for(void **state)
{
    struct kit *kit = *state;
    struct batch batch;
    struct log_poll_result result;
    kit_open(kit);
    assert_int_equal(kit_append(kit, 0, 10, 1000), 0);
    assert_int_equal(kit_append(kit, 10, 10, 1000), 0);
    kit_wait_acks(kit, 20);
    kit_until(end_of(kit) > kit->acks[19].offset);
    struct log_reader *reader = open_reader(kit, "c");
    batch_init(&batch);
    assert_int_equal(log_poll(reader, &batch, 1, 1 << 20, -1, &result), 0);
    assert_int_equal(batch.n, 1);
    assert_int_equal(log_poll(reader, &batch, 3, 1 << 20, -1, &result), 0);
    assert_int_equal(batch.n, 4); /* added to what is there */
    assert_int_equal(log_poll(reader, &batch, 100, 2500, -1, &result), 0);
    assert_int_equal(batch.n, 7); /* one over the bytes ends it */
    assert_int_equal(log_poll(reader, &batch, 100, 1 << 20, -1, &result), 0);
    assert_int_equal(batch.n, 20);
    for (size_t i = 0; i < 20; i++)
        kit_check_record(&batch.records[i]);
    log_reader_close(reader);
    batch_fini(&batch);
}

static void units_of_all_sizes_are_read_across_pieces(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    kit->config.segment_bytes = 4 << 20;
    kit_open(kit);
    static const size_t docs[] = {10, 300000, 5, 70000, 262144, 100, 1000000, 1, 40};
    uint64_t id = 0;
    for (unsigned round = 0; round < 3; round++)
        for (size_t i = 0; i < sizeof docs / sizeof *docs; i++, id++)
            assert_int_equal(kit_append(kit, id, 1, docs[i]), 0);
    assert_int_equal(kit_append(kit, id, 50, 16000), 0);
    id += 50;
    struct log_reader *reader = open_reader(kit, "c");
    kit_poll(reader, id, &read);
    for (size_t i = 0; i < id; i++)
        assert_int_equal(read.ids[i], i);
    expect_idle(reader);
    log_reader_close(reader);
    kit_read_fini(&read);
}

static void a_waiting_poll_ends_when_records_come_or_it_is_woken(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    struct batch batch;
    struct log_poll_result result;
    kit_open(kit);
    struct log_reader *reader = open_reader(kit, "c");
    expect_idle(reader);
    assert_int_equal(kit_append(kit, 1, 1, 10), 0);
    kit_poll(reader, 1, &read); /* waits without a limit */
    log_wake(reader);
    batch_init(&batch);
    assert_int_equal(log_poll(reader, &batch, 1, 1, -1, &result), 0);
    assert_int_equal(result.what, LOG_IDLE);
    log_reader_close(reader);
    batch_fini(&batch);
    kit_read_fini(&read);
}

static void a_group_is_told_before_it_can_be_read(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    kit_open(kit);
    struct log_reader *reader = open_reader(kit, "c");
    kit_hold(kit, true);
    assert_int_equal(kit_append(kit, 1, 1, 10), 0);
    kit_wait_acks(kit, 1); /* synced, told, and `durable` has not returned */
    expect_idle(reader);
    assert_int_equal(log_lag(reader), 0);
    kit_hold(kit, false);
    kit_poll(reader, 1, &read);
    log_reader_close(reader);
    kit_read_fini(&read);
}

static void a_consumer_has_one_reader(void **state)
{
    struct kit *kit = *state;
    struct log_reader *second;
    kit_open(kit);
    struct log_reader *reader = open_reader(kit, "c");
    assert_int_equal(log_reader_open(kit->log, "c", &second, &kit->diag), WEIR_LOCKED);
    log_reader_close(reader);
    log_reader_close(open_reader(kit, "c"));
}

/* Partitions settle at different speeds; after a restart exactly what is not settled comes again.
 */
static void after_a_restart_what_is_not_settled_comes_again(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0}, again = {0};
    kit_open(kit);
    kit_fill(kit, 0, 100, 100);
    struct log_reader *reader = open_reader(kit, "c");
    kit_poll(reader, 80, &read);
    size_t settled = 0;
    uint64_t upto[4] = {20, 33, 6, 75}; /* ids, by partition id % 4 */
    for (size_t i = 0; i < 80; i++)
        if (read.ids[i] <= upto[read.ids[i] % 4]) {
            log_settle(reader, (uint32_t)(read.ids[i] % 4), read.offsets[i]);
            settled++;
        }
    kit_until(log_lag(reader) == 100 - settled); /* the last is told before it can be read */
    log_reader_close(reader);
    kit_close(kit);
    kit_open(kit);
    reader = open_reader(kit, "c");
    assert_int_equal(log_lag(reader), 100 - settled);
    kit_poll(reader, 100 - settled, &again);
    uint64_t id = 0;
    for (size_t i = 0; i < again.n; i++, id++) {
        while (id <= upto[id % 4])
            id++;
        assert_int_equal(again.ids[i], id);
    }
    expect_idle(reader);
    settle_first(reader, &again, again.n);
    assert_int_equal(log_lag(reader), 0);
    log_reader_close(reader);
    kit_read_fini(&read);
    kit_read_fini(&again);
}

static void the_cursor_tells_what_is_open(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    kit_open(kit);
    assert_int_equal(log_cursor(kit->log, "c", 0), 0);
    kit_fill(kit, 0, 8, 10);
    struct log_reader *reader = open_reader(kit, "c");
    kit_poll(reader, 8, &read);
    log_settle(reader, 0, read.offsets[0]);
    log_settle(reader, 1, read.offsets[1]);
    /* of partition 1 the next is read[5]; all before read[2] is settled */
    assert_in_range(log_cursor(kit->log, "c", 1), read.offsets[1] + 1, read.offsets[5]);
    assert_in_range(log_cursor(kit->log, "c", 2), read.offsets[1] + 1, read.offsets[2]);
    uint64_t live = log_cursor(kit->log, "c", 1);
    log_reader_close(reader);
    kit_close(kit);
    struct log_config config = kit->config;
    struct log *log;
    config.read_only = true; /* as a command beside a gateway sees it */
    assert_int_equal(log_open("journal", &config, &log, &kit->diag), 0);
    assert_int_equal(log_cursor(log, "c", 1), live);
    assert_int_equal(log_cursor(log, "nobody", 1), 0);
    log_close(log);
    kit_read_fini(&read);
}

/* --- letting go ----------------------------------------------------------------------------------
 */

/* Appends, reads and settles as it goes. */
static void pass_through(struct kit *kit, struct log_reader *reader, uint64_t first, unsigned n,
                         size_t doc_bytes)
{
    struct kit_read read = {0};
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(kit_append(kit, first + i, 1, doc_bytes), 0);
        kit_poll(reader, 1, &read);
        assert_int_equal(read.ids[i], first + i);
        log_settle(reader, (uint32_t)(read.ids[i] % 4), read.offsets[i]);
    }
    kit_read_fini(&read);
}

static void settled_segments_go_and_their_files_are_used_again(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    struct log_reader *reader = open_reader(kit, "c");
    for (unsigned i = 0; i < 4; i++) { /* five segments each */
        pass_through(kit, reader, i * 40, 40, 7000);
        kit_until(kit_count_segments(kit) <= 4);
    }
    log_reader_close(reader);
    kit_close(kit);
    kit_open(kit);
    reader = open_reader(kit, "c");
    assert_int_equal(log_lag(reader), 0);
    expect_idle(reader);
    log_reader_close(reader);
}

static void the_slowest_consumer_holds_the_log(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    kit->config.consumers = two_consumers;
    kit_open(kit);
    struct log_reader *reader = open_reader(kit, "c");
    pass_through(kit, reader, 0, 60, 7000);
    log_reader_close(reader);
    kit_close(kit); /* saves and lets go of what it can */
    assert_true(kit_count_segments(kit) >= 6);
    kit_open(kit);
    reader = open_reader(kit, "slow");
    assert_int_equal(log_lag(reader), 60);
    kit_poll(reader, 60, &read);
    for (size_t i = 0; i < 60; i++)
        assert_int_equal(read.ids[i], i);
    settle_first(reader, &read, 60);
    kit_until(kit_count_segments(kit) <= 4);
    log_reader_close(reader);
    kit_read_fini(&read);
}

/* A partition that had one record long ago does not hold the log. */
static void a_quiet_partition_holds_nothing(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    kit_open(kit);
    struct log_reader *reader = open_reader(kit, "c");
    pass_through(kit, reader, 1, 1, 10); /* partition 1 */
    for (unsigned i = 0; i < 60; i++) {  /* partition 0 only */
        assert_int_equal(kit_append(kit, 400 + i * 4, 1, 7000), 0);
        kit_poll(reader, 1, &read);
        log_settle(reader, 0, read.offsets[i]);
    }
    kit_until(kit_count_segments(kit) <= 4);
    log_reader_close(reader);
    kit_read_fini(&read);
}

static void a_full_log_refuses_until_consumers_move_on(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    kit->config.max_bytes = 300 << 10;
    kit_open(kit);
    unsigned n = 0;
    int rc;
    while ((rc = kit_append(kit, n, 1, 7000)) == 0) {
        kit_wait_acks(kit, ++n);
        assert_true(n < 1000);
    }
    assert_int_equal(rc, WEIR_FULL);
    assert_in_range(n, 40, 50);
    struct log_stats stats;
    log_stats(kit->log, &stats);
    assert_true(stats.full && stats.end_offset - stats.first_offset > 300 << 10);
    assert_true(stats.bytes_on_disk < 600 << 10);
    struct log_reader *reader = open_reader(kit, "c");
    kit_poll(reader, n, &read);
    settle_first(reader, &read, n);
    kit_until(kit_append(kit, n, 1, 7000) == 0);
    log_reader_close(reader);
    kit_read_fini(&read);
    /* Full again, over a restart too. */
    while (kit_append(kit, ++n, 1, 7000) == 0)
        log_flush(kit->log);
    kit_close(kit);
    kit_open(kit);
    assert_int_equal(kit_append(kit, 5000, 1, 10), WEIR_FULL);
}

/* max_bytes below a segment's size still lets records through. */
static void a_limit_below_a_segment_is_no_trap(void **state)
{
    struct kit *kit = *state;
    kit->config.max_bytes = 20000;
    kit->config.segment_bytes = 1 << 20;
    kit_open(kit);
    struct log_reader *reader = open_reader(kit, "c");
    for (unsigned i = 0; i < 10; i++) {
        struct kit_read read = {0};
        kit_until(kit_append(kit, i, 1, 7000) == 0);
        kit_poll(reader, 1, &read);
        settle_first(reader, &read, 1);
        kit_read_fini(&read);
    }
    log_reader_close(reader);
}

/* --- cursors that do not fit
 * ----------------------------------------------------------------------- */

static void cursor_file(struct kit *kit, char out[128])
{
    snprintf(out, 128, "%s/cursors/c", kit->dir);
}

static void a_damaged_cursor_begins_again(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    char path[128];
    kit_open(kit);
    struct log_reader *reader = open_reader(kit, "c");
    pass_through(kit, reader, 0, 10, 10);
    log_reader_close(reader);
    kit_close(kit);
    cursor_file(kit, path);
    size_t n;
    char *sound = kit_slurp(path, &n);
    for (size_t i = 0; i < n; i += 5) {
        kit_flip(path, i, 0x02);
        kit_forget(kit);
        kit_open(kit);
        assert_true(kit_said(kit, "cursors/c"));
        reader = open_reader(kit, "c");
        kit_poll(reader, 10, &read);
        log_reader_close(reader);
        kit_close(kit);
        kit_read_fini(&read);
        assert_int_equal(fs_replace_file(fs_posix(), path, sound, n), 0);
    }
    mem_free(sound);
}

static void a_cursor_behind_the_end_goes_on_at_the_end(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    char path[128], text[400];
    kit_open(kit);
    kit_fill(kit, 0, 3, 10);
    kit_close(kit);
    cursor_file(kit, path);
    int n = snprintf(text, sizeof text,
                     "weir-cursor 1\nresume 99999999\nrecords 5000\npartition 0 99999990\n"
                     "partition 1 88888888\n");
    n += snprintf(text + n, sizeof text - (size_t)n, "sum %016" PRIx64 "\n",
                  hash64(text, (size_t)n));
    assert_int_equal(fs_replace_file(fs_posix(), path, text, (size_t)n), 0);
    kit_forget(kit);
    kit_open(kit);
    assert_true(kit_said(kit, "cursors/c"));
    struct log_reader *reader = open_reader(kit, "c");
    assert_int_equal(log_lag(reader), 0);
    expect_idle(reader);
    pass_through(kit, reader, 100, 8, 10); /* what comes now is not taken for settled */
    log_reader_close(reader);
    kit_read_fini(&read);
}

static void a_cursor_before_the_first_kept_goes_on_there(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    char path[128];
    kit_open(kit);
    kit_fill(kit, 0, 30, 7000);
    struct log_reader *reader = open_reader(kit, "c");
    kit_poll(reader, 2, &read);
    settle_first(reader, &read, 2);
    log_reader_close(reader);
    kit_close(kit);
    kit_read_fini(&read);
    for (unsigned i = 1; i <= 2; i++) { /* someone removed the first two segments */
        kit_segment_path(kit, i, path);
        assert_int_equal(unlink(path), 0);
    }
    kit_forget(kit);
    kit_open(kit);
    assert_true(kit_said(kit, "no longer kept"));
    reader = open_reader(kit, "c");
    size_t left = log_lag(reader);
    assert_in_range(left, 5, 25);
    kit_poll(reader, left, &read);
    for (size_t i = 0; i < left; i++)
        assert_int_equal(read.ids[i], 30 - left + i);
    log_reader_close(reader);
    kit_read_fini(&read);
}

static void names_of_consumers_are_no_paths(void **state)
{
    struct kit *kit = *state;
    static const char *const odd[] = {"../../x", "a/b", ".hidden", "c.tmp", "\xc3\xa9 \xe2\x82\xac",
                                      NULL};
    kit->config.consumers = odd;
    kit_open(kit);
    for (size_t i = 0; odd[i]; i++) {
        struct kit_read read = {0};
        kit_fill(kit, i, 1, 10);
        struct log_reader *reader = open_reader(kit, odd[i]);
        kit_poll(reader, i + 1, &read);
        settle_first(reader, &read, i + 1);
        log_reader_close(reader);
        kit_read_fini(&read);
    }
    kit_close(kit);
    char path[128];
    snprintf(path, sizeof path, "%s/cursors", kit->dir);
    DIR *d = opendir(path);
    unsigned n = 0;
    for (struct dirent *entry; (entry = readdir(d));)
        n += entry->d_name[0] != '.';
    closedir(d);
    assert_int_equal(n, 5);
}

/* --- scanning beside a writer
 * ------------------------------------------------------------------------ */

struct beside {
    struct kit *kit;
    atomic_bool stop;
    unsigned scans;
};

static int rising(void *context, const struct record *record)
{
    uint64_t *last = context;
    kit_check_record(record);
    assert_true(record->offset > *last);
    *last = record->offset;
    return 0;
}

static void *scan_beside(void *argument)
{
    struct beside *beside = argument;
    struct log_config config = beside->kit->config;
    config.read_only = true;
    while (!atomic_load(&beside->stop)) {
        struct log *log;
        struct diag diag;
        uint64_t last = 0;
        assert_int_equal(log_open("journal", &config, &log, &diag), 0);
        if (log_scan(log, 0, rising, &last, &diag) != 0)
            fail_msg("scan: %s", diag.text);
        log_close(log);
        beside->scans++;
    }
    return NULL;
}

/* Segments are let go of and written anew under the scan. */
static void a_scan_beside_a_writer_sees_only_whole_records(void **state)
{
    struct kit *kit = *state;
    struct beside beside = {.kit = kit};
    pthread_t thread;
    kit_open(kit);
    assert_int_equal(pthread_create(&thread, NULL, scan_beside, &beside), 0);
    struct log_reader *reader = open_reader(kit, "c");
    for (unsigned i = 0; i < 4; i++) {
        pass_through(kit, reader, i * 60, 60, 7000);
        kit_until(kit_count_segments(kit) <= 4);
    }
    atomic_store(&beside.stop, true);
    pthread_join(thread, NULL);
    assert_true(beside.scans > 0);
    log_reader_close(reader);
}

static int stop_at_five(void *context, const struct record *record)
{
    unsigned *n = context;
    kit_check_record(record);
    return ++*n == 5 ? 77 : 0;
}

static void a_scan_begins_where_it_is_told_and_ends_when_it_is_told(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    unsigned n = 0;
    kit_open(kit);
    for (unsigned i = 0; i < 30; i++)
        assert_int_equal(kit_append(kit, i * 10, 10, 600), 0);
    log_flush(kit->log);
    kit_until(end_of(kit) > kit->acks[299].offset);
    assert_int_equal(log_scan(kit->log, 0, stop_at_five, &n, &kit->diag), 77);
    for (size_t from = 0; from < 300; from += 37) {
        assert_int_equal(log_scan(kit->log, kit->acks[from].offset, kit_visit, &read, &kit->diag),
                         0);
        assert_int_equal(read.n, 300 - from);
        assert_int_equal(read.ids[0], from);
        kit_read_fini(&read);
        assert_int_equal(
            log_scan(kit->log, kit->acks[from].offset + 1, kit_visit, &read, &kit->diag), 0);
        assert_int_equal(read.n, 300 - from - 1);
        kit_read_fini(&read);
    }
    assert_int_equal(log_scan(kit->log, UINT64_MAX, kit_visit, &read, &kit->diag), 0);
    assert_int_equal(read.n, 0);
}

static void what_is_open_for_reading_changes_nothing(void **state)
{
    struct kit *kit = *state;
    struct log_config config = kit->config;
    struct log *log;
    struct log_reader *reader;
    config.read_only = true;
    assert_int_equal(log_open("journal", &config, &log, &kit->diag), WEIR_NOT_FOUND);
    assert_int_equal(kit_count_segments(kit), 0);
    kit_open(kit);
    kit_fill(kit, 0, 3, 10);
    kit_close(kit);
    assert_int_equal(log_open("journal", &config, &log, &kit->diag), 0);
    struct body *body = kit_body(1, 1, 1, true);
    assert_int_equal(log_append(log, body), WEIR_CLOSED);
    mem_free(body);
    assert_int_equal(log_reader_open(log, "c", &reader, &kit->diag), WEIR_UNSUPPORTED);
    log_close(log);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_batch_has_the_size_that_was_asked_for),
        TEST(units_of_all_sizes_are_read_across_pieces),
        TEST(a_waiting_poll_ends_when_records_come_or_it_is_woken),
        TEST(a_group_is_told_before_it_can_be_read),
        TEST(a_consumer_has_one_reader),
        TEST(after_a_restart_what_is_not_settled_comes_again),
        TEST(the_cursor_tells_what_is_open),
        TEST(settled_segments_go_and_their_files_are_used_again),
        TEST(the_slowest_consumer_holds_the_log),
        TEST(a_quiet_partition_holds_nothing),
        TEST(a_full_log_refuses_until_consumers_move_on),
        TEST(a_limit_below_a_segment_is_no_trap),
        TEST(a_damaged_cursor_begins_again),
        TEST(a_cursor_behind_the_end_goes_on_at_the_end),
        TEST(a_cursor_before_the_first_kept_goes_on_there),
        TEST(names_of_consumers_are_no_paths),
        TEST(a_scan_beside_a_writer_sees_only_whole_records),
        TEST(a_scan_begins_where_it_is_told_and_ends_when_it_is_told),
        TEST(what_is_open_for_reading_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
