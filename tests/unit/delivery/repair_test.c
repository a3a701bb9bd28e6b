/* Repairs on their way through a gateway: each line comes out as it went in, bad ones are named,
 * outcomes come back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdio.h>

#include "base/mem.h"
#include "delivery/repair.h"
#include "record/attributes.h"

static void a_record_comes_through_byte_for_byte(void **state)
{
    (void)state;
    struct buf attributes = {0}, body = {0};
    attributes_put(&attributes, SLICE_LIT("traceparent"), SLICE_LIT("00-\"\n"));
    attributes_put(&attributes, SLICE_LIT("x"), SLICE_LIT(""));
    const struct record records[] = {
        {.id = SLICE_LIT("a\"b\\\xF0\x9F\x98\xAD"),
         .key = SLICE_LIT("k\x01"),
         .doc = SLICE_LIT("{ \"a\" :\n\t\"\\u0000 \\ud83d\\ude2d \xC3\xA9\", \"n\":1e400000 }"),
         .version = 0},
        {.id = SLICE_LIT("b"),
         .key = SLICE_LIT("b"),
         .doc = SLICE_LIT("{\"n\":-9223372036854775808,\"d\":5e-324}"),
         .attributes = buf_slice(&attributes),
         .version = INT64_MAX},
    };
    size_t n = sizeof records / sizeof records[0];
    struct batch batch;
    struct diag diag;
    batch_init(&batch);
    /* the first one's number is beyond double: no gateway took it, and none takes it now */
    repair_line(&body, &records[0]);
    assert_int_equal(repair_parse(buf_slice(&body), 5, &batch, &diag), WEIR_SYNTAX);
    buf_clear(&body);
    struct record fine = records[0];
    fine.doc = SLICE_LIT("{ \"a\" :\n\t\"\\u0000 \\ud83d\\ude2d \xC3\xA9\", \"n\":1e40 }");
    repair_line(&body, &fine);
    repair_line(&body, &records[1]);
    if (repair_parse(buf_slice(&body), 5, &batch, &diag) != 0)
        fail_msg("%s", diag.text);
    assert_int_equal(batch.n, n);
    for (size_t i = 0; i < n; i++) {
        const struct record *in = i ? &records[i] : &fine, *out = &batch.records[i];
        assert_true(slice_equal(out->id, in->id) && slice_equal(out->key, in->key));
        assert_true(slice_equal(out->doc, in->doc));
        assert_true(slice_equal(out->attributes, in->attributes));
        assert_int_equal(out->version, in->version);
        assert_int_equal(out->stream, 5);
    }
    batch_fini(&batch);
    buf_fini(&attributes);
    buf_fini(&body);
}

static void a_bad_line_is_named_and_nothing_is_kept(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "nonsense",
        "[]",
        "{\"key\":\"k\",\"version\":1,\"doc\":\"{}\"}",
        "{\"id\":\"\",\"key\":\"k\",\"version\":1,\"doc\":\"{}\"}",
        "{\"id\":\"a\\u0000\",\"key\":\"k\",\"version\":1,\"doc\":\"{}\"}",
        "{\"id\":\"x\",\"key\":1,\"version\":1,\"doc\":\"{}\"}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":-1,\"doc\":\"{}\"}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":1}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":1,\"doc\":\"\"}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":1,\"doc\":{}}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":1,\"doc\":\"[]\"}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":1,\"doc\":\"{\\\"a\\\":1,\\\"a\\\":2}\"}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":1,\"doc\":\"{}\",\"attributes\":[]}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":1,\"doc\":\"{}\",\"attributes\":{\"A\":\"x\"}}",
        "{\"id\":\"x\",\"key\":\"k\",\"version\":1,\"doc\":\"{}\",\"attributes\":{\"a\":1}}",
        "{\"id\":\"fine\",\"key\":\"k\",\"version\":2,\"doc\":\"{}\"}", /* again */
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *text = mem_printf(
            "{\"id\":\"fine\",\"key\":\"k\",\"version\":1,\"doc\":\"{}\"}\n\n%s\n", bad[i]);
        struct batch batch;
        struct diag diag = {0};
        batch_init(&batch);
        assert_int_equal(repair_parse(slice_of(text), 0, &batch, &diag), WEIR_SYNTAX);
        if (!strstr(diag.text, "line 3"))
            fail_msg("%s: %s", bad[i], diag.text);
        assert_int_equal(batch.n, 0);
        batch_fini(&batch);
        mem_free(text);
    }
}

static void an_id_twice_is_found_among_many(void **state)
{
    (void)state;
    struct buf body = {0};
    struct batch batch;
    struct diag diag = {0};
    batch_init(&batch);
    for (int i = 0; i < 5000; i++)
        buf_printf(&body, "{\"id\":\"%d\",\"key\":\"k\",\"version\":1,\"doc\":\"{}\"}\n", i);
    assert_int_equal(repair_parse(buf_slice(&body), 0, &batch, &diag), 0);
    assert_int_equal(batch.n, 5000);
    batch_clear(&batch);
    buf_put_str(&body, "{\"id\":\"17\",\"key\":\"k\",\"version\":1,\"doc\":\"{}\"}");
    assert_int_equal(repair_parse(buf_slice(&body), 0, &batch, &diag), WEIR_SYNTAX);
    assert_non_null(strstr(diag.text, "line 5001"));
    batch_fini(&batch);
    buf_fini(&body);
}

/* A session that refuses batches that hold an id with an x, as a whole, and is away at "away". */
static int picky_write(struct sink_session *session, const struct batch *batch,
                       struct sink_result *results, struct diag *diag)
{
    (void)session;
    assert_true(batch->n <= 500);
    for (size_t i = 0; i < batch->n; i++) {
        if (slice_is(batch->records[i].id, "away"))
            return diag_set(diag, WEIR_UNAVAILABLE, "not now");
    }
    for (size_t i = 0; i < batch->n; i++) {
        if (memchr(batch->records[i].id.p, 'x', batch->records[i].id.n))
            return diag_set(diag, WEIR_REFUSED, "no x");
        sink_result_set(&results[i], OUTCOME_STORED, "");
    }
    return 0;
}

static void what_is_refused_as_a_whole_is_halved(void **state)
{
    (void)state;
    static const struct sink_ops ops = {.write = picky_write};
    struct sink_session session = {&ops};
    enum { N = 1203 };
    char ids[N][8];
    struct sink_result results[N], read[N];
    struct batch batch;
    struct buf answer = {0};
    batch_init(&batch);
    for (int i = 0; i < N; i++) {
        snprintf(ids[i], sizeof ids[i], i == N - 1 ? "away" : i % 100 == 7 ? "x%d" : "%d", i);
        struct record record = {
            .id = slice_of(ids[i]), .key = slice_of("k"), .doc = SLICE_LIT("{}")};
        batch_add(&batch, &record, NULL);
    }
    repair_write(&session, &batch, results);
    repair_answer(results, N, &answer);
    assert_int_equal(repair_answer_read(buf_slice(&answer), read, N), 0);
    assert_int_equal(repair_answer_read(buf_slice(&answer), read, N - 1), WEIR_SYNTAX);
    assert_int_equal(repair_answer_read(SLICE_LIT("{}"), read, N), WEIR_SYNTAX);
    assert_int_equal(repair_answer_read(SLICE_LIT(""), read, 0), WEIR_SYNTAX);
    assert_int_equal(repair_answer_read(SLICE_LIT("{\"results\":[{\"stored\":\"\"}]}"), read, 1),
                     WEIR_SYNTAX);
    assert_int_equal(repair_answer_read(buf_slice(&answer), read, N), 0);
    for (int i = 0; i < N; i++) {
        enum outcome expected = i >= 1000      ? OUTCOME_RETRY
                                : i % 100 == 7 ? OUTCOME_REFUSED
                                               : OUTCOME_STORED;
        assert_int_equal(read[i].outcome, expected);
        assert_string_equal(read[i].reason, i >= 1000 ? "not now" : i % 100 == 7 ? "no x" : "");
    }
    batch_fini(&batch);
    buf_fini(&answer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_comes_through_byte_for_byte),
        cmocka_unit_test(a_bad_line_is_named_and_nothing_is_kept),
        cmocka_unit_test(an_id_twice_is_found_among_many),
        cmocka_unit_test(what_is_refused_as_a_whole_is_halved),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
