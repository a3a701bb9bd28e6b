/* template: placeholders, the default order, unique and ordered ids, bounds, mistakes. */
#include "cmocka_all.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "load/template.h"

static const uint64_t NOW = 1764520363123;

static struct keys uniform(uint64_t n)
{
    struct keys keys;
    keys_init(&keys, n, 0);
    return keys;
}

static char *render(const char *text, struct template_source *source, uint64_t ms)
{
    struct template *template = NULL;
    struct diag diag = {0};
    if (template_compile(slice_of(text), &template, &diag) != 0)
        fail_msg("%s", diag.text);
    size_t bound = template_bound(template);
    char *out = mem_alloc(bound + 1);
    size_t n = template_render(template, source, ms, out);
    assert_true(n <= bound);
    out[n] = 0;
    template_destroy(template);
    return out;
}

static void expect(const char *text, const char *want)
{
    struct keys keys = uniform(1);
    struct template_source source;
    template_source_init(&source, 1, 7, &keys, false);
    source.seq = 42;
    char *got = render(text, &source, NOW);
    assert_string_equal(got, want);
    mem_free(got);
}

static void test_placeholders(void **state)
{
    (void)state;
    expect("{\"a\":{seq}}", "{\"a\":42}");
    expect("{seq:5}|{ms}|{ms:15}", "00042|1764520363123|001764520363123");
    expect("{key}{key:8}", "000000000");
    expect("{pad:30}", "abcdefghijklmnopqrstuvwxyzabcd");
    expect("{ } {} {\"x\":{}} {{seq}", "{ } {} {\"x\":{}} {seq}");
    expect("a\r\nb\n\n", "a  b");
    expect("{{{{", "{{");
    expect("{", "{");
    expect("{seq:1}{seq:20}", "4200000000000000000042");
    expect("{id}", "01KBASR13K"
                   "00000"
                   "00007"); /* time, sequence, origin */
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const bad[] = {"",
                                      " \n",
                                      "{idd}",
                                      "{id",
                                      "{seq:}",
                                      "{seq:0}",
                                      "{seq:21}",
                                      "{rand:19}",
                                      "{pad}",
                                      "{pad:0}",
                                      "{pad:99999999999999999999}",
                                      "{seq:-1}",
                                      "{id:3}",
                                      "{a}"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct template *template = (void *)(uintptr_t)1;
        struct diag diag = {0};
        assert_int_equal(template_compile(slice_of(bad[i]), &template, &diag), WEIR_SYNTAX);
        assert_true(strncmp(diag.text, "template: ", 10) == 0);
        assert_ptr_equal(template, (void *)(uintptr_t)1);
    }
}

static void test_random_digits(void **state)
{
    (void)state;
    struct keys keys = uniform(1);
    struct template_source source;
    template_source_init(&source, 99, 0, &keys, false);
    bool first[10] = {false};
    for (int digits = 1; digits <= 18; digits++) {
        char text[32];
        snprintf(text, sizeof text, "{rand:%d}", digits);
        for (int i = 0; i < 200; i++) {
            char *got = render(text, &source, NOW);
            assert_int_equal(strlen(got), digits);
            assert_int_equal(strspn(got, "0123456789"), digits);
            assert_true(got[0] != '0');
            first[got[0] - '0'] = true;
            mem_free(got);
        }
    }
    for (int d = 1; d < 10; d++)
        assert_true(first[d]);
}

static void test_the_default_is_an_order_of_170_bytes(void **state)
{
    (void)state;
    struct keys keys = uniform(1000000);
    struct template_source source;
    template_source_init(&source, 3, 0, &keys, false);
    struct json_parser *parser = json_parser_create();
    for (int i = 0; i < 1000; i++) {
        char *text = render(template_order, &source, NOW);
        size_t n = strlen(text);
        assert_int_equal(n, 170);
        text = mem_realloc(text, n + JSON_PADDING);
        struct json_value root, id, order_no, v;
        struct json_error error;
        assert_int_equal(json_parse(parser, text, n, &root, &error), 0);
        assert_true(json_member(root, "id", &id) && json_member(root, "order_no", &order_no));
        assert_true(slice_equal(json_string(id), json_string(order_no)));
        static const char *const numbers[] = {"address_id", "merchant_id", "user_id",
                                              "order_amount"};
        for (int m = 0; m < 4; m++)
            assert_true(json_member(root, numbers[m], &v) && json_type(v) == JSON_INT);
        mem_free(text);
    }
    json_parser_destroy(parser);
}

static int compare(const void *a, const void *b)
{
    return memcmp(a, b, TEMPLATE_ID_BYTES);
}

static void collect(char (*ids)[TEMPLATE_ID_BYTES], size_t n, struct template_source *source,
                    uint64_t (*ms)(size_t i))
{
    struct template *template;
    assert_int_equal(template_compile(SLICE_LIT("{id}"), &template, NULL), 0);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(template_render(template, source, ms(i), ids[i]), TEMPLATE_ID_BYTES);
    template_destroy(template);
}

static uint64_t rising(size_t i)
{
    return NOW + i / 100;
}

static uint64_t stepping_back(size_t i)
{
    return NOW + (i < 500 ? 1000 : i / 100); /* the clock is set back by a second */
}

static void test_ids_are_unique_and_rise(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct keys keys = uniform(1);
    static char ids[3 * N][TEMPLATE_ID_BYTES];
    struct template_source a, b;
    template_source_init(&a, 1, 1, &keys, false);
    template_source_init(&b, 1, 2, &keys, false); /* same seed, other thread */
    collect(ids, N, &a, rising);
    collect(ids + N, N, &b, rising);
    for (size_t i = 1; i < N; i++)
        assert_true(compare(ids[i - 1], ids[i]) < 0);
    template_source_init(&a, 1, 3, &keys, false);
    collect(ids + 2 * N, N, &a, stepping_back);
    for (size_t i = 2 * N + 1; i < 3 * N; i++)
        assert_true(compare(ids[i - 1], ids[i]) < 0);
    qsort(ids, 3 * N, sizeof *ids, compare);
    for (size_t i = 1; i < 3 * N; i++)
        assert_true(compare(ids[i - 1], ids[i]) != 0);
}

static void test_random_ids_are_unique_and_do_not_rise(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct keys keys = uniform(1);
    static char ids[N][TEMPLATE_ID_BYTES];
    struct template_source source;
    template_source_init(&source, 5, 1, &keys, true);
    collect(ids, N, &source, rising);
    size_t falls = 0;
    for (size_t i = 1; i < N; i++)
        falls += compare(ids[i - 1], ids[i]) > 0;
    assert_true(falls > N / 3 && falls < N * 2 / 3);
    qsort(ids, N, sizeof *ids, compare);
    for (size_t i = 1; i < N; i++)
        assert_true(compare(ids[i - 1], ids[i]) != 0);
}

static void test_the_seed_decides(void **state)
{
    (void)state;
    struct keys keys = uniform(1000);
    for (int zipf = 0; zipf < 2; zipf++) {
        keys_init(&keys, 1000, zipf);
        struct template_source a, b, c;
        template_source_init(&a, 11, 1, &keys, false);
        template_source_init(&b, 11, 2, &keys, false);
        template_source_init(&c, 12, 1, &keys, false);
        int same = 0;
        for (int i = 0; i < 100; i++) {
            char *x = render("{key} {rand}", &a, NOW), *y = render("{key} {rand}", &b, NOW);
            char *z = render("{key} {rand}", &c, NOW);
            assert_string_equal(x, y);
            same += strcmp(x, z) == 0;
            mem_free(x);
            mem_free(y);
            mem_free(z);
        }
        assert_true(same < 5);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placeholders),
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_random_digits),
        cmocka_unit_test(test_the_default_is_an_order_of_170_bytes),
        cmocka_unit_test(test_ids_are_unique_and_rise),
        cmocka_unit_test(test_random_ids_are_unique_and_do_not_rise),
        cmocka_unit_test(test_the_seed_decides),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
