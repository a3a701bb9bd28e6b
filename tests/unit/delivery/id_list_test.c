/* Id lists: what a line may be, which of several lines wins, order, bad lines by their number. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "../seeded.h"
#include "base/mem.h"
#include "delivery/id_list.h"

static char path[] = "/tmp/weir-ids-XXXXXX";

static int read_text(const char *text, size_t n, struct id_list **out, struct diag *diag)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, n, file), n);
    fclose(file);
    *diag = (struct diag){0};
    return id_list_read(path, out, diag);
}

static struct id_list *good(const char *text)
{
    struct id_list *list;
    struct diag diag;
    if (read_text(text, strlen(text), &list, &diag) != 0)
        fail_msg("%s", diag.text);
    return list;
}

static struct expected entry(const struct id_list *list, size_t i, const char *id)
{
    struct expected expected;
    struct slice found = id_list_at(list, i, &expected);
    if (!slice_is(found, id))
        fail_msg("entry %zu is %.*s", i, (int)found.n, found.p);
    return expected;
}

static void lines_with_and_without_version_and_hash(void **state)
{
    (void)state;
    struct id_list *list =
        good("{\"stream\":\"events\",\"id\":\"c\",\"version\":7,\"hash\":"
             "\"000102030405060708090a0b0c0d0e0f\"}\n"
             "\n  \t\r\n"
             "{\"id\":\"a\",\"stream\":\"events\"}\r\n"
             " {\"stream\":\"events\",\"id\":\"b\\u00e9\\\"\",\"version\":0,\"more\":[1]} \n"
             "{\"stream\":\"orders\",\"id\":\"a\",\"version\":9223372036854775807}");
    size_t first, last;
    assert_int_equal(id_list_count(list), 4);
    assert_string_equal(id_list_stream(list, 0), "events");
    assert_string_equal(id_list_stream(list, 1), "orders");
    assert_null(id_list_stream(list, 2));
    id_list_range(list, "events", &first, &last);
    assert_int_equal(last - first, 3);
    struct expected e = entry(list, first, "a");
    assert_false(e.has_version || e.has_hash);
    e = entry(list, first + 1, "b\xC3\xA9\"");
    assert_true(e.has_version && !e.has_hash && e.version == 0);
    e = entry(list, first + 2, "c");
    assert_true(e.has_version && e.has_hash && e.version == 7);
    assert_true(e.hash.high == 0x0001020304050607 && e.hash.low == 0x08090a0b0c0d0e0f);
    id_list_range(list, "orders", &first, &last);
    assert_int_equal(last - first, 1);
    assert_true(entry(list, first, "a").version == INT64_MAX);
    id_list_range(list, "none", &first, &last);
    assert_int_equal(last - first, 0);
    id_list_destroy(list);
}

static void the_highest_version_of_an_id_wins(void **state)
{
    (void)state;
    struct id_list *list = good("{\"stream\":\"s\",\"id\":\"a\",\"version\":5}\n"
                                "{\"stream\":\"s\",\"id\":\"a\",\"version\":9}\n"
                                "{\"stream\":\"s\",\"id\":\"a\",\"version\":7}\n"
                                "{\"stream\":\"s\",\"id\":\"a\"}\n"
                                "{\"stream\":\"s\",\"id\":\"A\",\"version\":1}\n"
                                "{\"stream\":\"t\",\"id\":\"a\",\"version\":2}\n");
    size_t first, last;
    assert_int_equal(id_list_count(list), 3);
    id_list_range(list, "s", &first, &last);
    assert_int_equal(last - first, 2);
    assert_true(entry(list, first, "A").version == 1);
    assert_true(entry(list, first + 1, "a").version == 9);
    id_list_destroy(list);
}

static void an_empty_list_is_a_list(void **state)
{
    (void)state;
    struct id_list *list = good("");
    size_t first, last;
    assert_int_equal(id_list_count(list), 0);
    id_list_range(list, "events", &first, &last);
    assert_int_equal(first, last);
    id_list_destroy(list);
    id_list_destroy(NULL);
}

static void a_bad_line_is_named(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "nonsense",
        "{\"stream\":\"s\",\"id\":\"a\"",
        "[]",
        "{\"id\":\"a\"}",
        "{\"stream\":7,\"id\":\"a\"}",
        "{\"stream\":\"\",\"id\":\"a\"}",
        "{\"stream\":\"a\\u0000\",\"id\":\"a\"}",
        "{\"stream\":\"s\"}",
        "{\"stream\":\"s\",\"id\":\"\"}",
        "{\"stream\":\"s\",\"id\":7}",
        "{\"stream\":\"s\",\"id\":\"a\",\"version\":-1}",
        "{\"stream\":\"s\",\"id\":\"a\",\"version\":1.5}",
        "{\"stream\":\"s\",\"id\":\"a\",\"version\":\"1\"}",
        "{\"stream\":\"s\",\"id\":\"a\",\"hash\":\"00\"}",
        "{\"stream\":\"s\",\"id\":\"a\",\"hash\":\"g00102030405060708090a0b0c0d0e0f\"}",
        "{\"stream\":\"s\",\"id\":\"a\",\"id\":\"b\"}",
    };
    struct diag diag;
    struct id_list *list;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *text = mem_printf("{\"stream\":\"s\",\"id\":\"fine\"}\n\n%s\n", bad[i]);
        assert_int_equal(read_text(text, strlen(text), &list, &diag), WEIR_SYNTAX);
        if (!strstr(diag.text, ":3:") || !strstr(diag.text, path))
            fail_msg("%s: %s", bad[i], diag.text);
        mem_free(text);
    }
    char *longer = mem_zalloc(200000);
    memset(longer, ' ', 199998);
    longer[199998] = '\n';
    assert_int_equal(read_text(longer, 199999, &list, &diag), WEIR_SYNTAX);
    assert_non_null(strstr(diag.text, ":1:"));
    mem_free(longer);
    static const char nul[] = "{\"stream\":\"s\",\"id\":\"a\"}\0\n";
    assert_int_equal(read_text(nul, sizeof nul - 1, &list, &diag), WEIR_SYNTAX);
    assert_int_equal(id_list_read("/tmp/there/is/no/such/list", &list, &diag), WEIR_NOT_FOUND);
    assert_non_null(strstr(diag.text, "/tmp/there/is/no/such/list"));
}

static int by_text(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void many_lines_over_the_edges_of_what_is_read_at_once(void **state)
{
    (void)state;
    enum { N = 30000 };
    struct seeded random = {seeded_choose()};
    char **ids = mem_alloc(N * sizeof *ids);
    struct buf text = {0};
    for (size_t i = 0; i < N; i++) {
        ids[i] = mem_printf("%0*llx", (int)seeded_below(&random, 40) + 8,
                            (unsigned long long)seeded_next(&random));
        buf_printf(&text, "{\"stream\":\"s\",\"id\":\"%s\",\"version\":%zu}\n", ids[i], i);
    }
    assert_true(text.n > 1u << 20);
    struct id_list *list = good(buf_str(&text));
    qsort(ids, N, sizeof *ids, by_text);
    assert_int_equal(id_list_count(list), N);
    for (size_t i = 0; i < N; i++)
        entry(list, i, ids[i]);
    id_list_destroy(list);
    for (size_t i = 0; i < N; i++)
        mem_free(ids[i]);
    mem_free(ids);
    buf_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_with_and_without_version_and_hash),
        cmocka_unit_test(the_highest_version_of_an_id_wins),
        cmocka_unit_test(an_empty_list_is_a_list),
        cmocka_unit_test(a_bad_line_is_named),
        cmocka_unit_test(many_lines_over_the_edges_of_what_is_read_at_once),
    };
    int fd = mkstemp(path);
    if (fd < 0)
        return 1;
    close(fd);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    unlink(path);
    return failed;
}
