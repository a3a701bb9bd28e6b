/* The journal as its users see it: what is appended is acknowledged, read back in order, kept over
 * restarts, and let go of when it is settled. */
#include "journal_kit.h"

static int setup(void **state)
{
    struct kit *kit = malloc(sizeof *kit);
    kit_init(kit);
    *state = kit;
    return 0;
}

static int teardown(void **state)
{
    kit_fini(*state);
    free(*state);
    return 0;
}

static void appended_is_read_back_in_order(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_fill(kit, 0, 20, 100);
    assert_int_equal(kit_append(kit, 20, 30, 1000), 0);
    kit_wait_acks(kit, 50);
    struct log_reader *reader;
    struct kit_read read = {0};
    assert_int_equal(log_reader_open(kit->log, "c", &reader, &kit->diag), 0);
    kit_poll(reader, 50, &read);
    assert_int_equal(log_lag(reader), 50);
    for (size_t i = 0; i < 50; i++) {
        assert_int_equal(read.ids[i], i);
        assert_int_equal(read.offsets[i], kit->acks[i].offset);
        assert_true(i == 0 || read.offsets[i] > read.offsets[i - 1]);
    }
    assert_true(read.offsets[0] > 0);
    log_reader_close(reader);
    kit_read_fini(&read);
}

static void reopened_it_goes_on_where_it_was(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    for (unsigned round = 0; round < 5; round++) {
        kit_open(kit);
        kit_fill(kit, round * 10, 10, 500);
        kit_close(kit);
    }
    assert_int_equal(kit_scan(kit, 0, &read), 0);
    assert_int_equal(read.n, 50);
    for (size_t i = 0; i < 50; i++) {
        assert_int_equal(read.ids[i], i);
        assert_int_equal(read.offsets[i], kit->acks[i].offset);
    }
    kit_read_fini(&read);
    /* A clean stop leaves nothing to write again: one segment in use, one ready. */
    assert_true(kit_count_segments(kit) <= 2);
}

/* In the last segment only a later group can tell damage from what is being written. */
static void a_scan_tells_damage_from_the_end(void **state)
{
    struct kit *kit = *state;
    struct kit_read read = {0};
    char path[128];
    size_t n;
    kit_open(kit);
    kit_fill(kit, 0, 10, 100);
    kit_close(kit);
    kit_segment_path(kit, 1, path);
    char *file = kit_slurp(path, &n);
    uint64_t last = kit->acks[9].offset - JOURNAL_FIRST_LSN + SEGMENT_DATA;
    uint64_t middle = kit->acks[5].offset - JOURNAL_FIRST_LSN + SEGMENT_DATA;
    /* As if weir had ended while the last was being written: nothing is behind it. */
    char zeros[512] = {0};
    kit_overwrite(path, zeros, sizeof zeros, last + 40);
    assert_int_equal(kit_scan(kit, 0, &read), 0);
    assert_int_equal(read.n, 9);
    kit_read_fini(&read);
    kit_flip(path, middle + 40, 1);
    assert_int_equal(kit_scan(kit, 0, &read), WEIR_CORRUPT);
    assert_int_equal(read.n, 5);
    assert_non_null(strstr(kit->diag.text, "0000000001.seg"));
    kit_read_fini(&read);
    /* A process that has it open knows how far it is durable: there every bad frame is damage. */
    kit_overwrite(path, file, n, 0);
    kit_open(kit);
    kit_flip(path, last + 40, 1);
    assert_int_equal(log_scan(kit->log, 0, kit_visit, &read, &kit->diag), WEIR_CORRUPT);
    assert_int_equal(read.n, 9);
    kit_read_fini(&read);
    mem_free(file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(appended_is_read_back_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(a_scan_tells_damage_from_the_end, setup, teardown),
        cmocka_unit_test_setup_teardown(reopened_it_goes_on_where_it_was, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
