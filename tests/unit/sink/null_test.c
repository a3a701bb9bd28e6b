/* The null sink: says stored, counts, can be slow, can be paused. */
#include <fcntl.h>

#include "base/clock.h"
#include "sqlite_kit.h"

static struct sink *null_sink(struct kit *kit)
{
    struct sink *sink = NULL;
    if (sink_null.open(&kit->config, &sink, &kit->diag) != 0)
        fail_msg("%s", kit->diag.text);
    kit->sink = sink;
    assert_int_equal(sink->ops->session_open(sink, false, &kit->writer, &kit->diag), 0);
    assert_int_equal(sink->ops->session_open(sink, true, &kit->reader, &kit->diag), 0);
    return sink;
}

static int visit(void *context, const struct sink_row *row)
{
    (void)context, (void)row;
    return 0;
}

static void it_says_stored_counts_and_keeps_nothing(void **state)
{
    struct kit *kit = *state;
    struct sink *sink = null_sink(kit);
    for (int i = 0; i < 10; i++)
        kit_add(kit, "same", 1, "{}");
    assert_int_equal(kit_write(kit), 0);
    for (int i = 0; i < 10; i++)
        assert_int_equal(kit->results[i].outcome, OUTCOME_STORED);
    assert_int_equal(kit_count(kit), 10);
    struct sink_row row;
    assert_int_equal(kit_read(kit, "same", &row), WEIR_UNSUPPORTED);
    assert_int_equal(sink->ops->scan(kit->reader, 0, (struct slice){0}, visit, NULL, &kit->diag),
                     WEIR_UNSUPPORTED);
    assert_int_equal(sink->ops->remove(kit->writer, 0, SLICE_LIT("same"), &kit->diag),
                     WEIR_UNSUPPORTED);
    uint64_t n;
    assert_int_equal(sink->ops->count(kit->reader, 77, &n, &kit->diag), WEIR_NOT_FOUND);
}

static void a_file_pauses_and_resumes_it(void **state)
{
    struct kit *kit = *state;
    kit_option(kit, "pause_file", "pause");
    null_sink(kit);
    kit_add(kit, "a", 1, "{}");
    assert_int_equal(kit_write(kit), 0);
    close(open(kit_path(kit, "pause"), O_CREAT | O_WRONLY, 0600));
    kit_add(kit, "b", 2, "{}");
    assert_int_equal(kit_write(kit), WEIR_UNAVAILABLE);
    assert_non_null(strstr(kit->diag.text, "pause"));
    assert_int_equal(kit_count(kit), 1);
    unlink(kit_path(kit, "pause"));
    kit_add(kit, "b", 2, "{}");
    assert_int_equal(kit_write(kit), 0);
    assert_int_equal(kit_count(kit), 2);
}

static void a_delay_is_kept(void **state)
{
    struct kit *kit = *state;
    kit_option(kit, "delay", "30ms");
    null_sink(kit);
    kit_add(kit, "a", 1, "{}");
    uint64_t before = clock_mono_ns();
    assert_int_equal(kit_write(kit), 0);
    assert_true(clock_mono_ns() - before >= 29000000);
}

static void bad_options_are_named(void **state)
{
    struct kit *kit = *state;
    const struct {
        const char *name, *value;
    } bad[] = {
        {"delay", "5"}, {"delay", "fast"}, {"delay", ""}, {"delay", "2h"}, {"pause_file", ""}};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        kit->options[0] = (struct sink_option){bad[i].name, bad[i].value, 12};
        kit->diag = (struct diag){0};
        assert_int_equal(sink_null.check(&kit->config, &kit->diag), WEIR_INVALID);
        assert_non_null(strstr(kit->diag.text, bad[i].name));
        assert_non_null(strstr(kit->diag.text, "line 12"));
    }
    memset(kit->options, 0, sizeof kit->options);
    assert_int_equal(sink_null.check(&kit->config, &kit->diag), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(it_says_stored_counts_and_keeps_nothing),
        KIT_TEST(a_file_pauses_and_resumes_it),
        KIT_TEST(a_delay_is_kept),
        KIT_TEST(bad_options_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
