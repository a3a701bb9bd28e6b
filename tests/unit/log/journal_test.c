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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(appended_is_read_back_in_order, setup, teardown),
        cmocka_unit_test_setup_teardown(reopened_it_goes_on_where_it_was, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
