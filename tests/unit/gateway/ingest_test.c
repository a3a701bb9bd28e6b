/* ingest: what a body may be, what each record's id and key become, what each mistake is called. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "gateway/ingest.h"

static struct ingest *ingest;

/* What was taken from the last body. */
static struct {
    int status;
    uint32_t n;
    struct record *records;
    char *text, *body;
    struct problem problem;
} got;

static void forget(void)
{
    mem_free(got.records);
    mem_free(got.text);
    mem_free(got.body);
    memset(&got, 0, sizeof(got));
}

static const struct ingest_stream by_id = {
    .name = "events", .number = 3, .id = {"/id", 3}, .id_optional = true, .partitions = 4};
static const struct ingest_stream strict = {
    .name = "orders", .number = 1, .id = {"/order_no", 9}, .key = {"/user/id", 8}, .partitions = 7};
static const struct ingest_stream loose = {.name = "loose", .partitions = 1};

static int parse_with(const struct ingest_stream *stream, enum ingest_format format,
                      struct slice body, const char *idempotency_key)
{
    forget();
    got.body = mem_zalloc(body.n + JSON_PADDING);
    memcpy(got.body, body.p, body.n);
    struct ingest_source source = {.stream = stream,
                                   .format = format,
                                   .body = {got.body, body.n},
                                   .records_max = 1000,
                                   .wall_ms = 1700000000000};
    if (idempotency_key)
        source.idempotency_key = slice_of(idempotency_key);
    got.status = ingest_parse(ingest, &source, &got.problem);
    if (got.status == 0) {
        got.n = ingest_count(ingest);
        got.records = mem_zalloc(got.n * sizeof(struct record));
        got.text = mem_alloc(ingest_text_bytes(ingest));
        ingest_take(ingest, got.records, got.text);
    } else {
        assert_int_equal(got.status, got.problem.status);
    }
    return got.status;
}

static int json(const char *body)
{
    return parse_with(&by_id, INGEST_JSON, slice_of(body), NULL);
}

static int lines(const char *body)
{
    return parse_with(&by_id, INGEST_NDJSON, slice_of(body), NULL);
}

static void assert_slice(struct slice s, const char *text)
{
    assert_int_equal(s.n, strlen(text));
    assert_memory_equal(s.p, text, s.n);
}

static void assert_detail(const char *words)
{
    if (!strstr(got.problem.detail, words))
        fail_msg("\"%s\" is not in \"%s\"", words, got.problem.detail);
}

static void test_one_object(void **state)
{
    (void)state;
    assert_int_equal(json(" \r\n\t{ \"id\" : \"a\\u00e9\", \"x\": 1.50 } \n"), 0);
    assert_int_equal(got.n, 1);
    assert_false(ingest_is_array(ingest));
    assert_slice(got.records[0].id, "a\xc3\xa9");
    assert_slice(got.records[0].key, "a\xc3\xa9");
    assert_slice(got.records[0].doc, "{ \"id\" : \"a\\u00e9\", \"x\": 1.50 }");
    assert_int_equal(got.records[0].stream, 3);
    assert_int_equal(got.records[0].partition, hash64("a\xc3\xa9", 3) % 4);
    assert_int_equal(ingest_log_bytes(ingest), 3 + 3 + got.records[0].doc.n);
}

/* Order by key holds within a partition only. */
static void test_one_key_is_one_partition(void **state)
{
    (void)state;
    unsigned others = 0;
    for (unsigned i = 0; i < 40; i++) {
        char body[80];
        int n = snprintf(body, sizeof(body), "{\"order_no\":\"o-%u\",\"user\":{\"id\":\"u7\"}}", i);
        assert_int_equal(parse_with(&strict, INGEST_JSON, (struct slice){body, (size_t)n}, NULL),
                         0);
        assert_int_equal(got.records[0].partition, hash64("u7", 2) % 7);
        others += hash64(got.records[0].id.p, got.records[0].id.n) % 7 != hash64("u7", 2) % 7;
    }
    assert_true(others > 0);
}

static void test_array(void **state)
{
    (void)state;
    assert_int_equal(json("[ {\"id\":\"a\"} ,{\"id\":2,\"v\":[1,{\"id\":9}]},\n{\"id\":\"c]\"}]"),
                     0);
    assert_true(ingest_is_array(ingest));
    assert_int_equal(got.n, 3);
    assert_slice(got.records[0].id, "a");
    assert_slice(got.records[1].id, "2");
    assert_slice(got.records[2].id, "c]");
    assert_slice(got.records[0].doc, "{\"id\":\"a\"}");
    assert_slice(got.records[1].doc, "{\"id\":2,\"v\":[1,{\"id\":9}]}");
    assert_slice(got.records[2].doc, "{\"id\":\"c]\"}");
    assert_int_equal(json("[{\"id\":\"a\"},{\"id\":\"a\"}]"), 0); /* the same id twice */
    assert_int_equal(got.n, 2);
}

static void test_lines(void **state)
{
    (void)state;
    const char *same[] = {"{\"id\":\"a\"}\n{\"id\":\"b\"}", "{\"id\":\"a\"}\n{\"id\":\"b\"}\n",
                          "{\"id\":\"a\"}\r\n{\"id\":\"b\"}\r\n",
                          "\n \n{\"id\":\"a\"}\n\r\n\n\t{\"id\":\"b\"} \n\n"};
    for (size_t i = 0; i < sizeof(same) / sizeof(same[0]); i++) {
        assert_int_equal(lines(same[i]), 0);
        assert_int_equal(got.n, 2);
        assert_slice(got.records[0].doc, "{\"id\":\"a\"}");
        assert_slice(got.records[1].doc, "{\"id\":\"b\"}");
        assert_slice(got.records[1].id, "b");
    }
    assert_int_equal(lines("{\"id\":\"a\"}"), 0);
    assert_int_equal(got.n, 1);
}

static void test_nothing_in_it(void **state)
{
    (void)state;
    const char *empty[] = {"", " ", "\n\r\n\t ", "[]", " [ ] "};
    for (size_t i = 0; i < sizeof(empty) / sizeof(empty[0]); i++) {
        assert_int_equal(json(empty[i]), 400);
        assert_string_equal(got.problem.code, "no_records");
        assert_detail("empty");
    }
    assert_int_equal(lines("\n\n \r\n"), 400);
    assert_string_equal(got.problem.code, "no_records");
}

static void test_mistakes_name_their_place(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        enum ingest_format format;
        int line, index, offset;
        const char *words;
    } cases[] = {
        {"{\"id\":\"a\"", INGEST_JSON, -1, -1, 9, "byte 9"},
        {"  {\"id\":}", INGEST_JSON, -1, -1, 8, "byte 8"},
        {"[{\"id\":\"a\"},{\"id\":}]", INGEST_JSON, -1, -1, 18, "byte 18"},
        {"[{\"id\":\"a\"},17]", INGEST_JSON, -1, 1, 12, "element 1"},
        {"[{\"id\":\"a\"},{\"id\":[]}]", INGEST_JSON, -1, 1, 12, "/id"},
        {"17", INGEST_JSON, -1, -1, 0, "object"},
        {"\"x\"", INGEST_JSON, -1, -1, 0, "object"},
        {"{\"id\":\"a\"}\n\n{\"id\":}\n", INGEST_NDJSON, 3, -1, 18, "line 3"},
        {"{\"id\":\"a\"}\n[{\"id\":\"b\"}]\n", INGEST_NDJSON, 2, -1, 11, "line 2"},
        {"{\"id\":\"a\"}\n{\"id\":null}\n", INGEST_NDJSON, 2, -1, 11, "/id"},
        {"{\"id\":\"a\"}{\"id\":\"b\"}", INGEST_JSON, -1, -1, 10, "--data-binary"},
        {"{\"id\":\"a\"} \n {\"id\":\"b\"}", INGEST_JSON, -1, -1, 13, "x-ndjson"},
        {"{\"id\":\"a\"}{\"id\":\"b\"}", INGEST_NDJSON, 1, -1, 10, "--data-binary"},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        assert_int_equal(parse_with(&by_id, cases[i].format, slice_of(cases[i].body), NULL), 400);
        assert_int_equal(got.problem.line, cases[i].line);
        assert_int_equal(got.problem.index, cases[i].index);
        assert_int_equal(got.problem.offset, cases[i].offset);
        assert_detail(cases[i].words);
    }
}

static void test_ids_and_keys(void **state)
{
    (void)state;
    char body[2000], long_id[RECORD_ID_MAX + 2];
    assert_int_equal(parse_with(&strict, INGEST_JSON,
                                slice_of("{\"order_no\":-9223372036854775808,\"user\":{\"id\":7}}"),
                                NULL),
                     0);
    assert_slice(got.records[0].id, "-9223372036854775808");
    assert_slice(got.records[0].key, "7");
    assert_int_equal(got.records[0].partition, hash64("7", 1) % 7);

    memset(long_id, 'x', RECORD_ID_MAX + 1);
    long_id[RECORD_ID_MAX] = 0;
    snprintf(body, sizeof(body), "{\"order_no\":\"%s\",\"user\":{\"id\":\"%s\"}}", long_id,
             long_id);
    assert_int_equal(parse_with(&strict, INGEST_JSON, slice_of(body), NULL), 0);
    long_id[RECORD_ID_MAX] = 'x';
    long_id[RECORD_ID_MAX + 1] = 0;
    snprintf(body, sizeof(body), "{\"order_no\":\"%s\",\"user\":{\"id\":1}}", long_id);
    assert_int_equal(parse_with(&strict, INGEST_JSON, slice_of(body), NULL), 400);
    assert_detail("513");
    snprintf(body, sizeof(body), "{\"order_no\":1,\"user\":{\"id\":\"%s\"}}", long_id);
    assert_int_equal(parse_with(&strict, INGEST_JSON, slice_of(body), NULL), 400);
    assert_detail("/user/id");

    const char *bad[] = {"{\"order_no\":\"\",\"user\":{\"id\":1}}",
                         "{\"order_no\":1.0,\"user\":{\"id\":1}}",
                         "{\"order_no\":true,\"user\":{\"id\":1}}",
                         "{\"order_no\":null,\"user\":{\"id\":1}}",
                         "{\"order_no\":{},\"user\":{\"id\":1}}",
                         "{\"order_no\":\"a\\u0000\",\"user\":{\"id\":1}}",
                         "{\"user\":{\"id\":1}}",
                         "{\"order_no\":\"a\"}",
                         "{\"order_no\":\"a\",\"user\":1}",
                         "{\"order_no\":\"a\",\"user\":{\"id\":\"\"}}",
                         "{\"order_no\":\"a\",\"user\":{\"id\":\"\\u0000\"}}"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        /* an Idempotency-Key is no way around an id that has to be in the record */
        assert_int_equal(parse_with(&strict, INGEST_JSON, slice_of(bad[i]), "key"), 400);
        assert_true(strstr(got.problem.detail, "/order_no") || strstr(got.problem.detail, "/user"));
    }
}

static void test_idempotency_key(void **state)
{
    (void)state;
    char long_key[RECORD_ID_MAX + 2];
    assert_int_equal(parse_with(&loose, INGEST_JSON, slice_of("{\"x\":1}"), "k\xc3\xa9y"), 0);
    assert_slice(got.records[0].id, "k\xc3\xa9y");
    /* the record's own id wins */
    assert_int_equal(parse_with(&by_id, INGEST_JSON, slice_of("{\"id\":\"own\"}"), "key"), 0);
    assert_slice(got.records[0].id, "own");
    assert_int_equal(parse_with(&by_id, INGEST_JSON, slice_of("{\"x\":1}"), "key"), 0);
    assert_slice(got.records[0].id, "key");
    /* one key, several records: only where none of them needs it */
    assert_int_equal(parse_with(&loose, INGEST_JSON, slice_of("[{},{}]"), "key"), 400);
    assert_int_equal(parse_with(&by_id, INGEST_JSON, slice_of("[{\"id\":1},{}]"), "key"), 400);
    assert_detail("Idempotency-Key");
    assert_int_equal(parse_with(&by_id, INGEST_JSON, slice_of("[{\"id\":1},{\"id\":2}]"), "key"),
                     0);
    assert_int_equal(parse_with(&loose, INGEST_JSON, slice_of("[{}]"), "key"), 0);

    memset(long_key, 'k', sizeof(long_key));
    long_key[RECORD_ID_MAX] = 0;
    assert_int_equal(parse_with(&loose, INGEST_JSON, slice_of("{}"), long_key), 0);
    long_key[RECORD_ID_MAX] = 'k';
    long_key[RECORD_ID_MAX + 1] = 0;
    const char *bad[] = {"", long_key, "a\tb", "a\x7f", "a\xff", "\xc3"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        assert_int_equal(parse_with(&loose, INGEST_JSON, slice_of("{}"), bad[i]), 400);
        assert_string_equal(got.problem.code, "bad_idempotency_key");
    }
}

static void test_given_ids_rise_and_differ(void **state)
{
    (void)state;
    char last[37] = "";
    for (int i = 0; i < 1000; i++) {
        assert_int_equal(parse_with(&loose, INGEST_JSON, slice_of("[{},{\"x\":2}]"), NULL), 0);
        for (int k = 0; k < 2; k++) {
            assert_int_equal(got.records[k].id.n, 36);
            assert_true(memcmp(got.records[k].id.p, last, 36) > 0);
            assert_int_equal(got.records[k].id.p[14], '7'); /* the UUID's version */
            memcpy(last, got.records[k].id.p, 36);
        }
        assert_slice(got.records[1].doc, "{\"x\":2}"); /* it is not put into the record */
    }
}

static void test_limit_of_records(void **state)
{
    (void)state;
    struct buf body = {0};
    for (int form = 0; form < 2; form++) {
        for (int over = 0; over < 2; over++) {
            buf_clear(&body);
            if (form == 0)
                buf_put_char(&body, '[');
            for (int i = 0; i < 1000 + over; i++)
                buf_put_str(&body, i == 0 ? "{}" : form == 0 ? ",{}" : "\n{}");
            if (form == 0)
                buf_put_char(&body, ']');
            int status =
                parse_with(&loose, form ? INGEST_NDJSON : INGEST_JSON, buf_slice(&body), NULL);
            assert_int_equal(status, over ? 413 : 0);
            assert_int_equal(got.n, over ? 0 : 1000);
        }
    }
    buf_fini(&body);
}

static void test_every_truncation_is_refused_at_its_end(void **state)
{
    (void)state;
    static const char text[] =
        "[{\"id\":\"a\",\"x\":[1,2.5e3,true,null,\"\\u00e9\\\\\"]},{\"id\":1}]";
    for (size_t n = 1; n < sizeof(text) - 1; n++) {
        assert_int_equal(parse_with(&by_id, INGEST_JSON, (struct slice){text, n}, NULL), 400);
        assert_true(got.problem.offset >= 0 && got.problem.offset <= (int64_t)n);
    }
    assert_int_equal(json(text), 0);
}

static void test_the_next_body_is_not_touched_by_the_last(void **state)
{
    (void)state;
    assert_int_equal(json("[{\"id\":\"a\"},{\"id\":\"b\"},7]"), 400);
    assert_int_equal(json("{\"id\":\"c\"}"), 0);
    assert_int_equal(got.n, 1);
    assert_slice(got.records[0].id, "c");
    assert_int_equal(ingest_log_bytes(ingest), 2 + 10);
    assert_false(ingest_is_array(ingest));
}

static void test_content_types(void **state)
{
    (void)state;
    static const struct {
        const char *type;
        int format; /* -1: 415 */
    } cases[] = {
        {"application/json", INGEST_JSON},
        {"Application/JSON ; Charset=\"UTF-8\"", INGEST_JSON},
        {"application/json;charset=utf-8;x=y", INGEST_JSON},
        {"application/vnd.acme.order+json", INGEST_JSON},
        {"application/x-ndjson", INGEST_NDJSON},
        {"application/x-ndjson; charset=utf8", INGEST_NDJSON},
        {"application/json; charset=latin-1", -1},
        {"application/json; charset=", -1},
        {"text/plain", -1},
        {"application/xml", -1},
        {"application/+json", -1},
        {"image/x+json", -1},
        {"application/jsonx", -1},
        {"application/x-www-form-urlencoded", -1},
        {"", -1},
        {";", -1},
    };
    enum ingest_format format;
    struct problem problem;
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        int status = ingest_content_type(slice_of(cases[i].type), &format, &problem);
        assert_int_equal(status, cases[i].format < 0 ? 415 : 0);
        if (status == 0)
            assert_int_equal(format, cases[i].format);
        else
            assert_non_null(strstr(problem.detail, "application/json"));
    }
    assert_int_equal(ingest_content_type((struct slice){0}, &format, &problem), 415);
}

static int set_up(void **state)
{
    (void)state;
    ingest = ingest_create();
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    forget();
    ingest_destroy(ingest);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_object),
        cmocka_unit_test(test_one_key_is_one_partition),
        cmocka_unit_test(test_array),
        cmocka_unit_test(test_lines),
        cmocka_unit_test(test_nothing_in_it),
        cmocka_unit_test(test_mistakes_name_their_place),
        cmocka_unit_test(test_ids_and_keys),
        cmocka_unit_test(test_idempotency_key),
        cmocka_unit_test(test_given_ids_rise_and_differ),
        cmocka_unit_test(test_limit_of_records),
        cmocka_unit_test(test_every_truncation_is_refused_at_its_end),
        cmocka_unit_test(test_the_next_body_is_not_touched_by_the_last),
        cmocka_unit_test(test_content_types),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
