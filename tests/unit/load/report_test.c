/* report: JSON that a parser reads, files that merge to the sum, damaged files; and the judgement
 * of who was the limit. */
#include "cmocka_all.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "load/limit.h"
#include "load/report.h"
#include "os/fs.h"

static char folder[] = "/tmp/weir-report-XXXXXX";
static char path_a[64], path_b[64];

static struct load_result example(uint64_t base)
{
    struct load_result r;
    load_result_init(&r);
    r.started_ms = 1000000 + base;
    r.ended_ms = 1002000 + base;
    r.duration_s = 2;
    r.sent = 100 + base;
    r.ok = 90 + base;
    r.ok_in_window = 80;
    r.records_sent = 1000;
    r.records_ok = 900;
    r.unsent = 1;
    r.late_server = 2;
    r.late_self = 3;
    r.reconnects = 4;
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        r.errors[i] = i + 1;
    r.statuses[202] = 90;
    r.statuses[503] = 7;
    r.statuses[404] = 3;
    for (uint64_t i = 1; i <= 1000; i++) {
        histogram_record(r.latency_ns, i * 1000 + base);
        histogram_record(r.service_ns, i * 500);
    }
    r.connections = 10;
    r.threads = 2;
    r.open = true;
    r.rate_asked_per_s = 50.5;
    r.cpu_share = 0.25;
    return r;
}

static double number(struct json_value root, const char *pointer)
{
    struct json_value v;
    if (!json_pointer(root, slice_of(pointer), &v))
        fail_msg("%s is missing", pointer);
    return json_double(v);
}

static void test_json(void **state)
{
    (void)state;
    struct load_result r = example(0);
    struct buf out = {0};
    strcpy(r.limit_reason, "say \"why\"");
    report_json(&r, &out);
    assert_true(out.p[out.n - 1] == '\n');
    buf_reserve(&out, JSON_PADDING);
    struct json_parser *parser = json_parser_create();
    struct json_value root, v;
    struct json_error error;
    assert_int_equal(json_parse(parser, out.p, out.n, &root, &error), 0);
    assert_true(number(root, "/sent") == 100 && number(root, "/ok") == 90);
    assert_true(number(root, "/rate_per_s") == 40); /* 80 in the window of 2 s */
    assert_true(number(root, "/errors/connect") == 1 && number(root, "/errors/malformed") == 5);
    assert_true(number(root, "/errors/status_503") == 7 && number(root, "/errors/status_404") == 3);
    assert_true(number(root, "/statuses/202") == 90);
    assert_true(fabs(number(root, "/latency_us/p50") - 500) < 5);
    assert_true(fabs(number(root, "/latency_us/p90") - 900) < 9);
    assert_true(fabs(number(root, "/latency_us/p9999") - 1000) < 10);
    assert_true(number(root, "/latency_us/max") == 1000);
    assert_true(fabs(number(root, "/latency_us/mean") - 500.5) < 0.01);
    assert_true(json_member(root, "limited_by_generator", &v) && json_type(v) == JSON_BOOL);
    assert_true(json_member(root, "limit_reason", &v) && slice_is(json_string(v), "say \"why\""));
    assert_true(json_member(root, "mode", &v) && slice_is(json_string(v), "open"));
    assert_int_equal(load_error_count(&r), 15 + 10);
    buf_clear(&out);
    report_text(&r, &out);
    assert_non_null(strstr(buf_str(&out), "status 503: 7"));
    assert_non_null(strstr(buf_str(&out), "p99.99"));
    json_parser_destroy(parser);
    buf_fini(&out);
    load_result_fini(&r);
}

static void test_merge_is_the_sum(void **state)
{
    (void)state;
    struct load_result a = example(0), b = example(1000), sum;
    struct diag diag = {0};
    strcpy(b.limit_reason, "tired");
    b.limited_by_generator = true;
    assert_int_equal(report_save(&a, path_a, &diag), 0);
    assert_int_equal(report_save(&b, path_b, &diag), 0);
    load_result_init(&sum);
    assert_int_equal(report_merge(path_a, &sum, &diag), 0);
    assert_true(sum.duration_s == 2 && load_rate_per_s(&sum) == 40);
    assert_int_equal(report_merge(path_b, &sum, &diag), 0);
    assert_int_equal(sum.sent, 1200);
    assert_int_equal(sum.ok, 1180);
    assert_int_equal(sum.ok_in_window, 160);
    assert_int_equal(sum.records_ok, 1800);
    assert_int_equal(sum.unsent + sum.late_server + sum.late_self + sum.reconnects, 20);
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        assert_int_equal(sum.errors[i], 2 * (i + 1));
    assert_int_equal(sum.statuses[202], 180);
    assert_int_equal(sum.connections, 20);
    assert_int_equal(sum.threads, 4);
    assert_true(sum.rate_asked_per_s == 101 && sum.open);
    assert_true(sum.duration_s == 3); /* from the first start to the last end */
    assert_true(sum.limited_by_generator);
    assert_string_equal(sum.limit_reason, "tired");
    struct histogram *want = histogram_create();
    histogram_add(want, a.latency_ns);
    histogram_add(want, b.latency_ns);
    assert_int_equal(histogram_count(sum.latency_ns), 2000);
    assert_int_equal(histogram_count(sum.service_ns), 2000);
    for (double q = 0; q <= 1; q += 0.01)
        assert_int_equal(histogram_quantile(sum.latency_ns, q), histogram_quantile(want, q));
    assert_int_equal(histogram_sum(sum.latency_ns), histogram_sum(want));
    histogram_destroy(want);
    load_result_fini(&a);
    load_result_fini(&b);
    load_result_fini(&sum);
}

static void expect_refused(const char *text, size_t n)
{
    struct load_result sum;
    struct diag diag = {0};
    load_result_init(&sum);
    assert_int_equal(fs_replace_file(fs_posix(), path_b, text, n), 0);
    assert_int_not_equal(report_merge(path_b, &sum, &diag), 0);
    assert_non_null(strstr(diag.text, path_b));
    assert_int_equal(sum.sent + sum.threads + histogram_count(sum.latency_ns), 0);
    load_result_fini(&sum);
}

static void test_damaged_files_add_nothing(void **state)
{
    (void)state;
    struct load_result a = example(0);
    struct diag diag = {0};
    char *text;
    size_t n;
    assert_int_equal(report_save(&a, path_a, &diag), 0);
    assert_int_equal(fs_read_file(fs_posix(), path_a, 1 << 20, &text, &n), 0);
    for (size_t cut = 0; cut < n - 1; cut += 1 + cut / 50)
        expect_refused(text, cut);
    expect_refused("{}", 2);
    expect_refused("[1]", 3);
    expect_refused("{\"weir_load\":2}", 15);
    char *field = strstr(text, "\"sent\":"); /* a counter that is not one */
    memcpy(field, "\"sEnt\":", 7);
    expect_refused(text, n);
    mem_free(text);
    struct load_result sum;
    load_result_init(&sum);
    assert_int_equal(report_merge("/nothere/x", &sum, &diag), WEIR_NOT_FOUND);
    load_result_fini(&sum);
    load_result_fini(&a);
}

static void test_judgement(void **state)
{
    (void)state;
    struct load_result r = example(0);
    r.sent = 10000;
    r.late_self = r.late_server = r.unsent = 0;
    limit_judge(&r);
    assert_false(r.limited_by_generator);
    assert_string_equal(r.limit_reason, "");

    r.cpu_share = 0.95;
    limit_judge(&r);
    assert_true(r.limited_by_generator);
    assert_non_null(strstr(r.limit_reason, "95%"));

    r.cpu_share = 0.5;
    r.wait_share = 0.45;
    limit_judge(&r);
    assert_true(r.limited_by_generator);
    assert_non_null(strstr(r.limit_reason, "45%"));

    r.wait_share = 0;
    r.late_self = 200;
    limit_judge(&r);
    assert_true(r.limited_by_generator);

    /* All connections busy. 10 connections, fastest answer 0.5 us: 20 million a second fit. */
    r.late_self = 0;
    r.late_server = 5000;
    limit_judge(&r);
    assert_false(r.limited_by_generator);
    assert_non_null(strstr(r.limit_reason, "the server"));

    /* The same, but even the fastest answer does not fit into 10 connections. */
    r.rate_asked_per_s = 30e6;
    limit_judge(&r);
    assert_true(r.limited_by_generator);
    assert_non_null(strstr(r.limit_reason, "--connections"));

    r.open = false; /* a closed loop asks for no rate */
    limit_judge(&r);
    assert_false(r.limited_by_generator);
    load_result_fini(&r);
}

static int setup(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path_a, sizeof path_a, "%s/a", folder);
    snprintf(path_b, sizeof path_b, "%s/b", folder);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    unlink(path_a);
    unlink(path_b);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_json),
        cmocka_unit_test(test_merge_is_the_sum),
        cmocka_unit_test(test_damaged_files_add_nothing),
        cmocka_unit_test(test_judgement),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
