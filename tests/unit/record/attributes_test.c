/* attributes: what goes in comes out, limits hold, and bytes from a damaged disk are survived. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

#include "record/attributes.h"
#include "weir/err.h"

static void test_in_and_out(void **state)
{
    (void)state;
    struct buf encoded = {0}, json = {0};
    struct slice name, value;
    size_t at = 0;
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("traceparent"), SLICE_LIT("00-ab\"c")), 0);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("empty"), (struct slice){NULL, 0}), 0);
    assert_int_equal(attributes_check(buf_slice(&encoded)), 0);
    assert_true(attributes_next(buf_slice(&encoded), &at, &name, &value));
    assert_true(slice_is(name, "traceparent") && slice_is(value, "00-ab\"c"));
    assert_true(attributes_next(buf_slice(&encoded), &at, &name, &value));
    assert_true(slice_is(name, "empty") && value.n == 0);
    assert_false(attributes_next(buf_slice(&encoded), &at, &name, &value));
    assert_true(attributes_get(buf_slice(&encoded), "empty", &value));
    assert_false(attributes_get(buf_slice(&encoded), "trace", &value));
    attributes_to_json(buf_slice(&encoded), &json);
    assert_string_equal(buf_str(&json), "{\"traceparent\":\"00-ab\\\"c\",\"empty\":\"\"}");
    buf_clear(&json);
    attributes_to_json((struct slice){NULL, 0}, &json);
    assert_string_equal(buf_str(&json), "{}");
    assert_int_equal(attributes_check((struct slice){NULL, 0}), 0);
    buf_fini(&encoded);
    buf_fini(&json);
}

static void test_the_form_on_disk(void **state)
{
    (void)state;
    struct buf encoded = {0};
    char value[300];
    memset(value, 'v', sizeof value);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("n"), (struct slice){value, 300}), 0);
    assert_int_equal(encoded.n, 6 + 1 + 300);
    assert_memory_equal(encoded.p, "\x01\x00\x2c\x01\x00\x00nvvv", 10);
    buf_fini(&encoded);
}

static void test_bad_names(void **state)
{
    (void)state;
    char longest[65];
    struct buf encoded = {0};
    memset(longest, 'n', sizeof longest);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT(""), SLICE_LIT("v")), WEIR_INVALID);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("Trace"), SLICE_LIT("v")), WEIR_INVALID);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("a b"), SLICE_LIT("v")), WEIR_INVALID);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("\xC3\xA9"), SLICE_LIT("v")), WEIR_INVALID);
    assert_int_equal(attributes_put(&encoded, (struct slice){longest, 65}, SLICE_LIT("v")),
                     WEIR_INVALID);
    assert_int_equal(attributes_put(&encoded, (struct slice){longest, 64}, SLICE_LIT("v")), 0);
    assert_int_equal(attributes_put(&encoded, (struct slice){longest, 64}, SLICE_LIT("w")),
                     WEIR_INVALID);
    buf_fini(&encoded);
}

static void test_the_size_has_a_limit(void **state)
{
    (void)state;
    static char value[ATTRIBUTES_MAX_BYTES + 1];
    struct buf encoded = {0};
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("a"), (struct slice){value, 4090}),
                     WEIR_TOO_LARGE);
    assert_int_equal(encoded.n, 0);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("a"), (struct slice){value, SIZE_MAX}),
                     WEIR_TOO_LARGE);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("a"), (struct slice){value, 4089}), 0);
    assert_int_equal(encoded.n, ATTRIBUTES_MAX_BYTES);
    assert_int_equal(attributes_check(buf_slice(&encoded)), 0);
    assert_int_equal(attributes_put(&encoded, SLICE_LIT("b"), (struct slice){NULL, 0}),
                     WEIR_TOO_LARGE);
    buf_put_char(&encoded, 0);
    assert_int_equal(attributes_check(buf_slice(&encoded)), WEIR_CORRUPT);
    buf_fini(&encoded);
}

static void test_damage_is_seen_and_survived(void **state)
{
    (void)state;
    struct buf encoded = {0};
    attributes_put(&encoded, SLICE_LIT("one"), SLICE_LIT("1"));
    attributes_put(&encoded, SLICE_LIT("two"), SLICE_LIT("22"));
    /* Cut anywhere but between the entries. */
    for (size_t n = 1; n < encoded.n; n++) {
        int expected = n == 10 ? 0 : WEIR_CORRUPT;
        assert_int_equal(attributes_check((struct slice){encoded.p, n}), expected);
    }
    /* Every byte changed in every bit: never read outside, and the walk ends. */
    for (size_t i = 0; i < encoded.n; i++) {
        for (unsigned bit = 0; bit < 8; bit++) {
            encoded.p[i] = (char)(encoded.p[i] ^ (1 << bit));
            char *copy = malloc(encoded.n);
            memcpy(copy, encoded.p, encoded.n);
            struct slice damaged = {copy, encoded.n}, name, value;
            size_t at = 0, steps = 0;
            while (attributes_next(damaged, &at, &name, &value))
                assert_true(++steps < 10);
            attributes_check(damaged);
            free(copy);
            encoded.p[i] = (char)(encoded.p[i] ^ (1 << bit));
        }
    }
    /* A name twice. */
    memcpy(encoded.p + 16, "one", 3);
    assert_int_equal(attributes_check(buf_slice(&encoded)), WEIR_CORRUPT);
    buf_fini(&encoded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_in_and_out),
        cmocka_unit_test(test_the_form_on_disk),
        cmocka_unit_test(test_bad_names),
        cmocka_unit_test(test_the_size_has_a_limit),
        cmocka_unit_test(test_damage_is_seen_and_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
