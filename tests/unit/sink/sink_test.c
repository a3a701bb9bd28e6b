/* The list of kinds. */
#include "sqlite_kit.h"

static void every_kind_that_is_named_is_found(void **state)
{
    (void)state;
    size_t n = 0;
    for (const char *const *kind = sink_kinds(); *kind; kind++, n++) {
        const struct sink_ops *ops = sink_find(*kind);
        assert_non_null(ops);
        assert_string_equal(ops->kind, *kind);
        assert_true(ops->writers >= 1);
        assert_true(ops->check && ops->open && ops->close && ops->session_open &&
                    ops->session_close && ops->write && ops->read && ops->scan && ops->count &&
                    ops->remove && ops->options);
    }
    assert_true(n >= 2);
    assert_null(sink_find("sqlit"));
    assert_null(sink_find(""));
}

static void a_long_reason_ends_at_a_whole_character(void **state)
{
    (void)state;
    for (size_t before = 100; before < 125; before++) {
        char text[256];
        memset(text, 'x', before);
        snprintf(text + before, sizeof text - before,
                 "\xF0\x9F\x98\xAD\xC3\xA9 and more, much more");
        struct sink_result result;
        sink_result_set(&result, OUTCOME_REFUSED, text);
        size_t n = strlen(result.reason);
        assert_true(n < sizeof result.reason && n + 4 >= sizeof result.reason - 1);
        assert_memory_equal(result.reason, text, n);
        assert_true(((unsigned char)text[n] & 0xC0) != 0x80);
    }
}

static void paths_start_at_the_data_directory(void **state)
{
    (void)state;
    const struct {
        const char *data, *path, *expected;
    } cases[] = {
        {"/d", "a.db", "/d/a.db"},
        {"/d/", "a.db", "/d/a.db"},
        {"/d", "/x/a.db", "/x/a.db"},
        {"data", "a.db", "./data/a.db"},
        {"./data", "a.db", "./data/a.db"},
        {"file:x", "a.db", "./file:x/a.db"},
        {"", "a.db", "./a.db"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sink_config config = {.data = cases[i].data};
        char *path = sink_path(&config, cases[i].path);
        assert_string_equal(path, cases[i].expected);
        mem_free(path);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_that_is_named_is_found),
        cmocka_unit_test(a_long_reason_ends_at_a_whole_character),
        cmocka_unit_test(paths_start_at_the_data_directory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
