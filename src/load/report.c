/* report.c: see report.h. The saved file is one JSON document of this program's own: "weir_load" is
 * its format, 1. */
#include "load/report.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "os/fs.h"

#define FORMAT   1
#define FILE_MAX (64u << 20)

static const struct {
    const char *name;
    double q;
} quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}, {"p9999", 0.9999}};

#define N_QUANTILES (sizeof quantiles / sizeof *quantiles)

/* The counters that are plain sums: for saving, reading and merging alike. */
static const struct {
    const char *name;
    size_t offset;
} counters[] = {
#define COUNTER(field)                                                                             \
    {                                                                                              \
#field, offsetof(struct load_result, field)                                                \
    }
    COUNTER(sent),         COUNTER(ok),         COUNTER(ok_in_window),
    COUNTER(records_sent), COUNTER(records_ok), COUNTER(unsent),
    COUNTER(late_server),  COUNTER(late_self),  COUNTER(reconnects),
#undef COUNTER
};
#define N_COUNTERS (sizeof counters / sizeof *counters)

static uint64_t *counter(struct load_result *result, size_t i)
{
    return (uint64_t *)((char *)result + counters[i].offset);
}

static void put_latency(const struct histogram *h, struct buf *out)
{
    buf_put_char(out, '{');
    for (size_t i = 0; i < N_QUANTILES; i++)
        buf_printf(out, "\"%s\":%.3f,", quantiles[i].name,
                   (double)histogram_quantile(h, quantiles[i].q) / 1e3);
    buf_printf(out, "\"max\":%.3f,\"mean\":%.3f}", (double)histogram_max(h) / 1e3,
               histogram_mean(h) / 1e3);
}

static void put_statuses(const struct load_result *result, struct buf *out)
{
    const char *comma = "";
    buf_put_char(out, '{');
    for (unsigned status = 0; status < LOAD_STATUS_MAX; status++) {
        if (result->statuses[status] == 0)
            continue;
        buf_printf(out, "%s\"%u\":%llu", comma, status,
                   (unsigned long long)result->statuses[status]);
        comma = ",";
    }
    buf_put_char(out, '}');
}

/* Every kind of broken exchange, and every status that is not 2xx as "status_NNN". */
static void put_errors(const struct load_result *result, struct buf *out)
{
    buf_put_char(out, '{');
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        buf_printf(out, "%s\"%s\":%llu", i ? "," : "", load_error_names[i],
                   (unsigned long long)result->errors[i]);
    for (unsigned status = 0; status < LOAD_STATUS_MAX; status++)
        if (status / 100 != 2 && result->statuses[status] > 0)
            buf_printf(out, ",\"status_%u\":%llu", status,
                       (unsigned long long)result->statuses[status]);
    buf_put_char(out, '}');
}

void report_json(const struct load_result *result, struct buf *out)
{
    buf_printf(out, "{\"mode\":\"%s\",\"duration_s\":%.6f,\"connections\":%u,\"threads\":%u,",
               result->open ? "open" : "closed", result->duration_s, result->connections,
               result->threads);
    if (result->open)
        buf_printf(out, "\"rate_asked_per_s\":%.3f,", result->rate_asked_per_s);
    buf_printf(out, "\"rate_per_s\":%.3f,", load_rate_per_s(result));
    for (size_t i = 0; i < N_COUNTERS; i++)
        buf_printf(out, "\"%s\":%llu,", counters[i].name,
                   (unsigned long long)*counter((struct load_result *)(uintptr_t)result, i));
    buf_put_str(out, "\"errors\":");
    put_errors(result, out);
    buf_put_str(out, ",\"statuses\":");
    put_statuses(result, out);
    buf_put_str(out, ",\"latency_us\":");
    put_latency(result->latency_ns, out);
    buf_put_str(out, ",\"service_us\":");
    put_latency(result->service_ns, out);
    buf_printf(out,
               ",\"cpu_share\":%.4f,\"wait_share\":%.4f,\"limited_by_generator\":%s,"
               "\"limit_reason\":",
               result->cpu_share, result->wait_share,
               result->limited_by_generator ? "true" : "false");
    buf_put_json_string(out, slice_of(result->limit_reason));
    buf_put_str(out, "}\n");
}

/* ---- for people */

static void put_time(struct buf *out, double ns)
{
    if (ns < 1e6)
        buf_printf(out, "%.1f us", ns / 1e3);
    else if (ns < 1e9)
        buf_printf(out, "%.2f ms", ns / 1e6);
    else
        buf_printf(out, "%.2f s", ns / 1e9);
}

static void put_times(const char *what, const struct histogram *h, struct buf *out)
{
    static const char *const labels[N_QUANTILES] = {"p50", "p90", "p99", "p99.9", "p99.99"};
    buf_printf(out, "%-9s ", what);
    for (size_t i = 0; i < N_QUANTILES; i++) {
        buf_printf(out, "%s ", labels[i]);
        put_time(out, (double)histogram_quantile(h, quantiles[i].q));
        buf_put_str(out, "  ");
    }
    buf_put_str(out, "max ");
    put_time(out, (double)histogram_max(h));
    buf_put_char(out, '\n');
}

void report_text(const struct load_result *result, struct buf *out)
{
    if (result->open)
        buf_printf(out, "open loop, %.0f requests a second asked, ", result->rate_asked_per_s);
    else
        buf_put_str(out, "closed loop, ");
    buf_printf(out, "%u connection%s, %u thread%s, %.2f s\n", result->connections,
               result->connections == 1 ? "" : "s", result->threads,
               result->threads == 1 ? "" : "s", result->duration_s);
    buf_printf(out, "rate      %.0f answers 2xx a second\n", load_rate_per_s(result));
    buf_printf(out, "sent      %llu requests, %llu records\n", (unsigned long long)result->sent,
               (unsigned long long)result->records_sent);
    buf_printf(out, "ok        %llu requests, %llu records\n", (unsigned long long)result->ok,
               (unsigned long long)result->records_ok);
    if (load_error_count(result) > 0) {
        buf_put_str(out, "errors   ");
        for (unsigned i = 0; i < LOAD_ERRORS; i++)
            if (result->errors[i] > 0)
                buf_printf(out, " %s %llu", load_error_names[i],
                           (unsigned long long)result->errors[i]);
        for (unsigned status = 0; status < LOAD_STATUS_MAX; status++)
            if (status / 100 != 2 && result->statuses[status] > 0)
                buf_printf(out, " status %u: %llu", status,
                           (unsigned long long)result->statuses[status]);
        buf_put_char(out, '\n');
    }
    if (result->why_refused[0]) { /* a stranger's text: quoted, it cannot play with the terminal */
        buf_put_str(out, "refused   ");
        buf_put_json_string(out, slice_of(result->why_refused));
        buf_put_char(out, '\n');
    }
    put_times("latency", result->latency_ns, out);
    if (result->open) {
        put_times("service", result->service_ns, out);
        if (result->late_server + result->late_self + result->unsent > 0)
            buf_printf(out,
                       "late      %llu had no free connection, %llu were the generator's fault, "
                       "%llu were never sent\n",
                       (unsigned long long)result->late_server,
                       (unsigned long long)result->late_self, (unsigned long long)result->unsent);
    }
    if (result->limit_reason[0])
        buf_printf(out, "limit     %s%s\n", result->limited_by_generator ? "the generator: " : "",
                   result->limit_reason);
}

/* ---- files */

int report_save(const struct load_result *result, const char *path, struct diag *diag)
{
    struct buf out = {0};
    buf_printf(&out,
               "{\"weir_load\":%d,\"started_ms\":%llu,\"ended_ms\":%llu,\"open\":%s,"
               "\"connections\":%u,\"threads\":%u,",
               FORMAT, (unsigned long long)result->started_ms, (unsigned long long)result->ended_ms,
               result->open ? "true" : "false", result->connections, result->threads);
    buf_put_str(&out, "\"rate_asked_per_s\":");
    buf_put_double(&out, result->rate_asked_per_s);
    buf_put_str(&out, ",\"cpu_share\":");
    buf_put_double(&out, result->cpu_share);
    buf_put_str(&out, ",\"wait_share\":");
    buf_put_double(&out, result->wait_share);
    for (size_t i = 0; i < N_COUNTERS; i++)
        buf_printf(&out, ",\"%s\":%llu", counters[i].name,
                   (unsigned long long)*counter((struct load_result *)(uintptr_t)result, i));
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        buf_printf(&out, ",\"error_%s\":%llu", load_error_names[i],
                   (unsigned long long)result->errors[i]);
    buf_put_str(&out, ",\"statuses\":");
    put_statuses(result, &out);
    buf_printf(&out, ",\"limited_by_generator\":%s,\"limit_reason\":",
               result->limited_by_generator ? "true" : "false");
    buf_put_json_string(&out, slice_of(result->limit_reason));
    buf_put_str(&out, ",\"latency_ns\":\"");
    histogram_encode(result->latency_ns, &out);
    buf_put_str(&out, "\",\"service_ns\":\"");
    histogram_encode(result->service_ns, &out);
    buf_put_str(&out, "\"}\n");

    int err = fs_replace_file(fs_posix(), path, out.p, out.n);
    if (err)
        diag_set(diag, err, "%s: cannot be written: %s", path, strerror(errno));
    buf_fini(&out);
    return err;
}

static bool get_u64(struct json_value root, const char *name, uint64_t *out)
{
    struct json_value v;
    if (!json_member(root, name, &v) || json_type(v) != JSON_INT || json_int(v) < 0)
        return false;
    *out = (uint64_t)json_int(v);
    return true;
}

static bool get_double(struct json_value root, const char *name, double *out)
{
    struct json_value v;
    if (!json_member(root, name, &v) || (json_type(v) != JSON_INT && json_type(v) != JSON_DOUBLE))
        return false;
    *out = json_double(v);
    return true;
}

static bool get_bool(struct json_value root, const char *name, bool *out)
{
    struct json_value v;
    if (!json_member(root, name, &v) || json_type(v) != JSON_BOOL)
        return false;
    *out = json_bool(v);
    return true;
}

static bool get_statuses(struct json_value root, struct load_result *out)
{
    struct json_value object, v;
    struct slice name;
    if (!json_member(root, "statuses", &object) || json_type(object) != JSON_OBJECT)
        return false;
    struct json_iter iter = json_iter(object);
    while (json_next(&iter, &name, &v)) {
        unsigned status = 0;
        for (size_t i = 0; i < name.n; i++) {
            if (name.n > 3 || name.p[i] < '0' || name.p[i] > '9')
                return false;
            status = status * 10 + (unsigned)(name.p[i] - '0');
        }
        if (status >= LOAD_STATUS_MAX || json_type(v) != JSON_INT || json_int(v) < 0)
            return false;
        out->statuses[status] = (uint64_t)json_int(v);
    }
    return true;
}

static bool get_histogram(struct json_value root, const char *name, struct histogram *out)
{
    struct json_value v;
    return json_member(root, name, &v) && json_type(v) == JSON_STRING &&
           histogram_decode(out, json_string(v)) == 0;
}

static bool read_saved(struct json_value root, struct load_result *out)
{
    uint64_t format, connections, threads;
    struct json_value reason;
    bool good = json_type(root) == JSON_OBJECT && get_u64(root, "weir_load", &format) &&
                format == FORMAT && get_u64(root, "started_ms", &out->started_ms) &&
                get_u64(root, "ended_ms", &out->ended_ms) && get_bool(root, "open", &out->open) &&
                get_u64(root, "connections", &connections) && get_u64(root, "threads", &threads) &&
                get_double(root, "rate_asked_per_s", &out->rate_asked_per_s) &&
                get_double(root, "cpu_share", &out->cpu_share) &&
                get_double(root, "wait_share", &out->wait_share) && get_statuses(root, out) &&
                get_bool(root, "limited_by_generator", &out->limited_by_generator) &&
                json_member(root, "limit_reason", &reason) && json_type(reason) == JSON_STRING &&
                get_histogram(root, "latency_ns", out->latency_ns) &&
                get_histogram(root, "service_ns", out->service_ns);
    for (size_t i = 0; good && i < N_COUNTERS; i++)
        good = get_u64(root, counters[i].name, counter(out, i));
    for (unsigned i = 0; good && i < LOAD_ERRORS; i++) {
        char name[32];
        snprintf(name, sizeof name, "error_%s", load_error_names[i]);
        good = get_u64(root, name, &out->errors[i]);
    }
    if (!good || connections > LOAD_CONNECTIONS_MAX || threads > LOAD_THREADS_MAX ||
        out->ended_ms < out->started_ms)
        return false;
    out->connections = (unsigned)connections;
    out->threads = (unsigned)threads;
    struct slice text = json_string(reason);
    snprintf(out->limit_reason, sizeof out->limit_reason, "%.*s", (int)text.n, text.p);
    return true;
}

static void add(struct load_result *into, struct load_result *one)
{
    bool first = into->threads == 0;
    for (size_t i = 0; i < N_COUNTERS; i++)
        *counter(into, i) += *counter(one, i);
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        into->errors[i] += one->errors[i];
    for (unsigned i = 0; i < LOAD_STATUS_MAX; i++)
        into->statuses[i] += one->statuses[i];
    histogram_add(into->latency_ns, one->latency_ns);
    histogram_add(into->service_ns, one->service_ns);
    into->connections += one->connections;
    into->threads += one->threads;
    into->rate_asked_per_s += one->rate_asked_per_s;
    into->open |= one->open;
    if (first || one->started_ms < into->started_ms)
        into->started_ms = one->started_ms;
    if (one->ended_ms > into->ended_ms)
        into->ended_ms = one->ended_ms;
    into->duration_s = (double)(into->ended_ms - into->started_ms) / 1e3;
    if (one->cpu_share + one->wait_share > into->cpu_share + into->wait_share) {
        into->cpu_share = one->cpu_share;
        into->wait_share = one->wait_share;
    }
    /* One generator at its limit is enough; its words are kept. */
    if (one->limit_reason[0] &&
        (!into->limit_reason[0] || (one->limited_by_generator && !into->limited_by_generator)))
        memcpy(into->limit_reason, one->limit_reason, sizeof into->limit_reason);
    into->limited_by_generator |= one->limited_by_generator;
}

int report_merge(const char *path, struct load_result *into, struct diag *diag)
{
    char *text;
    size_t n;
    int err = fs_read_file(fs_posix(), path, FILE_MAX, &text, &n);
    if (err)
        return diag_set(diag, err, "%s: cannot be read: %s", path,
                        err == WEIR_TOO_LARGE ? "too large for a file of --hist" : strerror(errno));
    text = mem_realloc(text, n + JSON_PADDING);
    struct json_parser *parser = json_parser_create();
    struct json_value root;
    struct json_error error;
    struct load_result one;
    load_result_init(&one);
    if (json_parse(parser, text, n, &root, &error) != 0)
        err = diag_set(diag, WEIR_SYNTAX, "%s: not a file of weir load --hist: %s at byte %llu",
                       path, error.reason, (unsigned long long)error.offset);
    else if (!read_saved(root, &one))
        err = diag_set(diag, WEIR_SYNTAX, "%s: not a file of weir load --hist (format %d)", path,
                       FORMAT);
    else
        add(into, &one);
    load_result_fini(&one);
    json_parser_destroy(parser);
    mem_free(text);
    return err;
}
