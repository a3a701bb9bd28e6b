/* answer: lines of the id file from answers of every shape, and answers that are none. */
#include "cmocka_all.h"

#include <stdio.h>
#include <string.h>

#include "load/answer.h"
#include "weir/err.h"

static struct buf text(const char *s)
{
    struct buf buf = {0};
    buf_put_str(&buf, s);
    return buf;
}

static int run(int status, const char *answer, const char *docs_text, uint64_t n, struct buf *lines,
               uint64_t *taken)
{
    struct answers *answers = answers_create();
    struct buf body = text(answer), docs = text(docs_text);
    buf_clear(lines);
    int err = answers_keep(answers, status, &body, &docs, n, SLICE_LIT("events"), lines, taken);
    buf_fini(&body);
    buf_fini(&docs);
    answers_destroy(answers);
    return err;
}

static void content_hash(const char *doc, char hex[33])
{
    struct json_parser *parser = json_parser_create();
    struct buf padded = text(doc), scratch = {0};
    struct json_value root;
    struct json_error error;
    buf_reserve(&padded, JSON_PADDING);
    assert_int_equal(json_parse(parser, padded.p, padded.n, &root, &error), 0);
    hash128_format(json_content_hash(root, &scratch), hex);
    buf_fini(&padded);
    buf_fini(&scratch);
    json_parser_destroy(parser);
}

static void test_one_record(void **state)
{
    (void)state;
    struct buf lines = {0};
    uint64_t taken;
    char hex[33], want[200];
    /* The id and version are the answer's: the record here has neither. */
    assert_int_equal(run(202,
                         "{\"id\":\"given \\\"\\u00e9\",\"version\":1849999999999999999,"
                         "\"ack\":\"durable\",\"position\":\"0:17\"}\n",
                         "{\"b\":2,\"a\":1}", 1, &lines, &taken),
                     0);
    assert_int_equal(taken, 1);
    content_hash("{\"a\":1,\"b\":2}", hex); /* members in any order */
    snprintf(want, sizeof want,
             "{\"stream\":\"events\",\"id\":\"given \\\"\xc3\xa9\",\"version\":1849999999999999999,"
             "\"hash\":\"%s\"}\n",
             hex);
    assert_string_equal(buf_str(&lines), want);
    buf_fini(&lines);
}

static void test_several_records(void **state)
{
    (void)state;
    struct buf lines = {0};
    uint64_t taken;
    char hex[33];
    static const char docs[] = "{\"n\":0}\n{\"n\":1}\n{\"n\":2}\n";
    assert_int_equal(run(202,
                         "{\"ack\":\"durable\",\"records\":[\n{\"id\":\"a\",\"version\":1},\n"
                         "{\"id\":\"b\",\"version\":2},\n{\"id\":\"c\",\"version\":3}\n]}",
                         docs, 3, &lines, &taken),
                     0);
    assert_int_equal(taken, 3);
    content_hash("{\"n\":2}", hex);
    assert_non_null(strstr(buf_str(&lines), "\"id\":\"c\",\"version\":3"));
    assert_non_null(strstr(buf_str(&lines), hex));

    /* 207: the refused one has no line, and the one after it has its own hash. */
    assert_int_equal(
        run(207,
            "{\"ack\":\"stored\",\"records\":[{\"id\":\"a\",\"version\":1,\"outcome\":\"stored\"},"
            "{\"id\":\"b\",\"version\":2,\"outcome\":\"refused\",\"reason\":\"x\"},"
            "{\"id\":\"c\",\"version\":3,\"outcome\":\"stored\"}]}",
            docs, 3, &lines, &taken),
        0);
    assert_int_equal(taken, 2);
    assert_null(strstr(buf_str(&lines), "\"b\""));
    assert_non_null(strstr(buf_str(&lines), hex));

    /* Not known to be stored is not stored. */
    assert_int_equal(run(207,
                         "{\"records\":[{\"id\":\"a\",\"version\":1},"
                         "{\"id\":\"b\",\"version\":2,\"outcome\":\"durable\"},"
                         "{\"id\":\"c\",\"version\":3,\"outcome\":\"sideways\"}]}",
                         docs, 3, &lines, &taken),
                     0);
    assert_int_equal(taken, 0);
    assert_int_equal(lines.n, 0);
    buf_fini(&lines);
}

static void test_no_such_answer(void **state)
{
    (void)state;
    struct buf lines = {0};
    uint64_t taken;
    static const char *const bad[] = {
        "",
        "ok",
        "[]",
        "1",
        "{}",
        "{\"id\":\"a\"}",
        "{\"version\":1}",
        "{\"id\":1,\"version\":1}",
        "{\"id\":\"a\",\"version\":\"1\"}",
        "{\"id\":\"a\",\"version\":0}",
        "{\"id\":\"a\",\"version\":-1}",
        "{\"id\":\"a\",\"version\":1.5}",
        "{\"records\":{}}",
        "{\"records\":[]}",
        "{\"records\":[1]}",
        "{\"records\":[{\"id\":\"a\",\"version\":1},{\"id\":\"b\",\"version\":2}]}",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (run(202, bad[i], "{\"n\":0}", 1, &lines, &taken) != WEIR_SYNTAX)
            fail_msg("taken: %s", bad[i]);
    assert_int_equal(run(202, "{\"id\":\"a\",\"version\":1}", "{}\n{}\n", 2, &lines, &taken),
                     WEIR_SYNTAX); /* two were sent */
    assert_int_equal(run(202, "{\"id\":\"a\",\"version\":1}", "{", 1, &lines, &taken),
                     WEIR_SYNTAX); /* the record itself is no JSON */
    buf_fini(&lines);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_record),
        cmocka_unit_test(test_several_records),
        cmocka_unit_test(test_no_such_answer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
