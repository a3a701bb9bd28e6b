/* diag, err: an error with words, whatever the words are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

#include "base/diag.h"

static void test_set(void **state)
{
    (void)state;
    struct diag diag = {0};
    assert_int_equal(diag_set(&diag, WEIR_IO, "%s: cannot be opened", "x.yaml"), WEIR_IO);
    assert_int_equal(diag.code, WEIR_IO);
    assert_string_equal(diag.text, "x.yaml: cannot be opened");
    assert_int_equal(diag_set(NULL, WEIR_FULL, "nobody listens"), WEIR_FULL);
}

static void test_prefix(void **state)
{
    (void)state;
    struct diag diag = {0};
    diag_set(&diag, WEIR_NET, "refused");
    assert_int_equal(diag_prefix(&diag, "sink %s: ", "main"), WEIR_NET);
    assert_string_equal(diag.text, "sink main: refused");
    diag_prefix(&diag, "%600s", "");
    assert_int_equal(strlen(diag.text), sizeof diag.text - 1);
    assert_int_equal(diag_prefix(NULL, "x"), WEIR_OK);
}

static void test_it_may_quote_itself(void **state)
{
    (void)state;
    struct diag diag = {0};
    diag_set(&diag, WEIR_IO, "inner");
    diag_set(&diag, WEIR_UNAVAILABLE, "outer: %s", diag.text);
    assert_string_equal(diag.text, "outer: inner");
}

static void test_one_line(void **state)
{
    (void)state;
    struct diag diag = {0};
    diag_set(&diag, WEIR_SYNTAX, "a\nb\r\nc\x1b[31m\td");
    assert_string_equal(diag.text, "a b  c [31m d");
}

static void test_a_long_text_is_cut_between_characters(void **state)
{
    (void)state;
    static const char *const characters[] = {"x", "\xC3\xA9", "\xE2\x82\xAC", "\xF0\x9F\x98\x80"};
    for (unsigned width = 0; width < 4; width++) {
        for (unsigned shift = 0; shift < 4; shift++) {
            char text[2001] = "";
            memset(text, '.', shift);
            for (size_t at = shift; at + 4 < sizeof text - 1; at += width + 1)
                strcpy(text + at, characters[width]);
            struct diag diag = {0};
            diag_set(&diag, WEIR_IO, "%s", text);
            size_t n = strlen(diag.text);
            assert_in_range(n, sizeof diag.text - 1 - width, sizeof diag.text - 1);
            assert_int_equal((n - shift) % (width + 1), 0);
            assert_memory_equal(diag.text, text, n);
        }
    }
}

static void test_codes_have_names(void **state)
{
    (void)state;
    assert_string_equal(weir_err_name(WEIR_FULL), "full");
    assert_string_equal(weir_err_name(WEIR_OK), "ok");
    assert_non_null(weir_err_text(WEIR_POISONED));
    assert_string_equal(weir_err_name(-9999), "unknown_code");
    assert_non_null(weir_err_text(42));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_set),
        cmocka_unit_test(test_prefix),
        cmocka_unit_test(test_it_may_quote_itself),
        cmocka_unit_test(test_one_line),
        cmocka_unit_test(test_a_long_text_is_cut_between_characters),
        cmocka_unit_test(test_codes_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
