/* metrics.c: GET /metrics: the Prometheus text format 0.0.4. Base units; counters end in _total. */
#include <stdio.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/job.h"
#include "http/server.h"

static void head(struct buf *out, const char *name, const char *type, const char *help)
{
    buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* `labels` is {a="b"} or empty. */
static void put_u64(struct buf *out, const char *name, const char *labels, uint64_t value)
{
    buf_put_str(out, name);
    buf_put_str(out, labels);
    buf_put_char(out, ' ');
    buf_put_u64(out, value);
    buf_put_char(out, '\n');
}

static void put_double(struct buf *out, const char *name, const char *labels, double value)
{
    buf_put_str(out, name);
    buf_put_str(out, labels);
    buf_put_char(out, ' ');
    buf_put_double(out, value);
    buf_put_char(out, '\n');
}

static void one_u64(struct buf *out, const char *name, const char *type, const char *help,
                    uint64_t value)
{
    head(out, name, type, help);
    put_u64(out, name, "", value);
}

/* Names of sinks and streams are those that the configuration allows, but a label is quoted
 * anyway. */
static const char *label(char out[200], const char *name, const char *value)
{
    size_t n = (size_t)snprintf(out, 200, "{%s=\"", name);
    for (; *value && n < 190; value++) {
        if (*value == '"' || *value == '\\')
            out[n++] = '\\';
        out[n++] = *value;
    }
    memcpy(out + n, "\"}", 3);
    return out;
}

/* `unit` is how many of the histogram's units make one of the metric's. */
static void put_histogram(struct buf *out, const char *name, const char *label_name,
                          const char *label_value, const struct histogram *h, const double *bounds,
                          size_t n, double unit)
{
    char pair[160] = "", labels[200] = "";
    uint64_t below = 0;
    if (!h)
        return;
    if (label_name) {
        label(labels, label_name, label_value);
        snprintf(pair, sizeof(pair), "%.*s,", (int)strlen(labels) - 2, labels + 1);
    }
    /* The count is read first: a bucket may never hold more than +Inf does. */
    uint64_t count = histogram_count(h);
    double total = (double)histogram_sum(h) / unit;
    for (size_t i = 0; i < n; i++) {
        uint64_t in = histogram_count_below(h, (uint64_t)(bounds[i] * unit));
        if (in > below)
            below = in < count ? in : count;
        buf_printf(out, "%s_bucket{%sle=\"%g\"} %llu\n", name, pair, bounds[i],
                   (unsigned long long)below);
    }
    buf_printf(out, "%s_bucket{%sle=\"+Inf\"} %llu\n", name, pair, (unsigned long long)count);
    buf_printf(out, "%s_sum%s ", name, labels);
    buf_put_double(out, total);
    buf_printf(out, "\n%s_count%s %llu\n", name, labels, (unsigned long long)count);
}

static const double seconds[] = {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025,
                                 0.05,   0.1,     0.25,   0.5,   1,      2.5,   5,    10};
static const double powers[] = {1,   2,   4,    8,    16,   32,   64,    128,
                                256, 512, 1024, 2048, 4096, 8192, 16384, 65536};
#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static void put_process(struct gateway *gateway, struct buf *out)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    head(out, "weir_info", "gauge", "What runs; the value is always 1.");
    buf_put_str(out, "weir_info{version=\"" WEIR_VERSION "\"} 1\n");
    head(out, "weir_uptime_seconds", "gauge", "Time since the start.");
    put_double(out, "weir_uptime_seconds", "",
               (double)((clock_mono_ns() - gateway->started_ns) / 1000000) / 1000);
    head(out, "weir_process_cpu_seconds_total", "counter", "CPU time of the process.");
    put_double(out, "weir_process_cpu_seconds_total", "",
               (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
                   (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6);
    one_u64(out, "weir_process_resident_memory_max_bytes", "gauge",
            "The most memory that was resident.", (uint64_t)usage.ru_maxrss * 1024);
    one_u64(out, "weir_ready", "gauge", "1 when /readyz answers 200.",
            ready_or_why_not(gateway) == NULL);
}

static void put_http(struct gateway *gateway, struct buf *out)
{
    const struct http_counters *http = http_server_counters(gateway->server);
    char labels[200], status[16];
    one_u64(out, "weir_http_connections", "gauge", "Open connections.",
            count_get(&http->connections_open));
    one_u64(out, "weir_http_connections_total", "counter", "Connections accepted.",
            count_get(&http->connections_total));
    one_u64(out, "weir_http_refused_connections_total", "counter",
            "Connections refused because there were too many.",
            count_get(&http->refused_connections_total));
    one_u64(out, "weir_http_requests_total", "counter", "Requests whose head was read.",
            count_get(&http->requests_total));
    one_u64(out, "weir_http_bad_requests_total", "counter",
            "Requests whose framing was in doubt: 400 and closed.",
            count_get(&http->bad_requests_total));
    one_u64(out, "weir_http_timeouts_total", "counter",
            "Connections closed because a head, a body or reading an answer took too long.",
            count_get(&http->timeouts_total));
    one_u64(out, "weir_http_received_bytes_total", "counter", "Bytes read from connections.",
            count_get(&http->bytes_in_total));
    one_u64(out, "weir_http_sent_bytes_total", "counter", "Bytes written to connections.",
            count_get(&http->bytes_out_total));
    head(out, "weir_http_answers_total", "counter", "Answers by status; 0 is any other.");
    for (unsigned i = 0; i < GATEWAY_STATUSES; i++) {
        snprintf(status, sizeof(status), "%d", gateway_statuses[i]);
        put_u64(
            out, "weir_http_answers_total", label(labels, "status", status),
            counters_sum(gateway, offsetof(struct loop_counters, answers) + i * sizeof(uint64_t)));
    }
}

static void put_ingest(struct gateway *gateway, struct buf *out)
{
    struct pressure *pressure = &gateway->pressure;
    char labels[200];
    one_u64(out, "weir_accepted_bodies_total", "counter", "Bodies taken by the log.",
            COUNTERS_SUM(gateway, accepted_bodies));
    one_u64(out, "weir_accepted_records_total", "counter", "Records taken by the log.",
            COUNTERS_SUM(gateway, accepted_records));
    one_u64(out, "weir_accepted_bytes_total", "counter", "Ids, keys and docs taken by the log.",
            COUNTERS_SUM(gateway, accepted_bytes));
    one_u64(out, "weir_downgraded_answers_total", "counter",
            "Answers of durable where stored or everywhere was asked for.",
            COUNTERS_SUM(gateway, downgraded));
    one_u64(out, "weir_unknown_answers_total", "counter",
            "Answers of 504: not known to be durable in time.", COUNTERS_SUM(gateway, timed_out));
    one_u64(out, "weir_lost_records_total", "counter",
            "Records answered received that could not be made durable.",
            count_get(&gateway->lost_records));
    head(out, "weir_refused_total", "counter", "Requests answered 503, by cause.");
    for (unsigned i = 0; i < PRESSURE_CAUSES; i++)
        put_u64(out, "weir_refused_total",
                label(labels, "cause", pressure_name((enum pressure_cause)i)),
                count_get(&pressure->refused[i]));
    one_u64(out, "weir_memory_used_bytes", "gauge", "Bodies in memory, of the budget.",
            count_get(&pressure->memory_used));
    one_u64(out, "weir_memory_limit_bytes", "gauge", "The budget for bodies in memory.",
            pressure->memory_limit);
    one_u64(out, "weir_waiting_records", "gauge", "Records whose client waits for a sink.",
            ack_waiting(gateway->acks));
    head(out, "weir_answer_seconds", "histogram",
         "From the head of a POST to its answer, by the ack level answered.");
    for (int level = ACK_RECEIVED; level <= ACK_EVERYWHERE; level++) {
        struct histogram *all = histogram_create();
        for (unsigned i = 0; i < gateway->n_loops; i++)
            histogram_add(all, gateway->loops[i].latency_ns[level]);
        put_histogram(out, "weir_answer_seconds", "ack", ack_level_name((enum ack_level)level), all,
                      seconds, COUNT(seconds), 1e9);
        histogram_destroy(all);
    }
}

static void put_log(struct gateway *gateway, struct buf *out)
{
    struct log_stats stats;
    log_stats(gateway->log, &stats);
    one_u64(out, "weir_log_records_total", "counter", "Records appended to the log.",
            stats.appended_records);
    one_u64(out, "weir_log_bytes_total", "counter", "Bytes appended to the log.",
            stats.appended_bytes);
    one_u64(out, "weir_log_groups_total", "counter", "Groups written.", stats.groups);
    one_u64(out, "weir_log_flushes_total", "counter", "Syncs of the log.", stats.flushes);
    one_u64(out, "weir_log_flush_errors_total", "counter", "Writes and syncs that failed.",
            stats.flush_errors);
    one_u64(out, "weir_log_disk_bytes", "gauge", "What the log takes on disk.",
            stats.bytes_on_disk);
    one_u64(out, "weir_log_max_bytes", "gauge", "What it may take.", stats.max_bytes);
    one_u64(out, "weir_log_ring_bodies", "gauge", "Bodies waiting for the log's thread.",
            stats.ring_count);
    one_u64(out, "weir_log_full", "gauge", "1 while the log is full.", stats.full);
    one_u64(out, "weir_log_failed", "gauge", "1 after a failed sync, until the restart.",
            stats.poisoned);
    head(out, "weir_log_group_records", "histogram", "Records in one flush.");
    put_histogram(out, "weir_log_group_records", NULL, NULL, stats.group_records, powers,
                  COUNT(powers), 1);
    head(out, "weir_log_flush_seconds", "histogram", "Time of one write and sync.");
    put_histogram(out, "weir_log_flush_seconds", NULL, NULL, stats.flush_ns, seconds,
                  COUNT(seconds), 1e9);
}

static void put_consumers(struct gateway *gateway, struct buf *out)
{
    size_t n = gateway->n_sinks;
    char labels[200];
    struct delivery_consumer_stats *all = mem_alloc(n * sizeof(*all));
    for (size_t i = 0; i < n; i++)
        delivery_consumer_stats(gateway->delivery, (unsigned)i, &all[i]);
#define EACH(metric, type, help, put, field)                                                       \
    head(out, metric, type, help);                                                                 \
    for (size_t i = 0; i < n; i++)                                                                 \
    put(out, metric, label(labels, "consumer", gateway->sinks[i].config->name), all[i].field)
    EACH("weir_lag_records", "gauge", "Records durable and not yet settled by the consumer.",
         put_u64, lag);
    EACH("weir_inflight_records", "gauge", "Records read and not yet settled.", put_u64,
         inflight_records);
    EACH("weir_inflight_bytes", "gauge", "Bytes read and not yet settled.", put_u64,
         inflight_bytes);
    EACH("weir_settled_records_total", "counter", "Records settled since the start.", put_u64,
         settled);
    EACH("weir_drain_records_per_second", "gauge", "Records settled a second, lately.", put_double,
         drain_per_s);
    EACH("weir_consumer_stopped", "gauge", "1 while the consumer is stopped.", put_u64, stopped);
#undef EACH
    mem_free(all);
}

static void put_sinks(struct gateway *gateway, struct buf *out)
{
    size_t n = gateway->n_sinks;
    char labels[200];
    struct delivery_sink_stats *all = mem_alloc(n * sizeof(*all));
    for (size_t i = 0; i < n; i++)
        delivery_sink_stats(gateway->delivery, (unsigned)i, &all[i]);
#define EACH(metric, type, help, field)                                                            \
    head(out, metric, type, help);                                                                 \
    for (size_t i = 0; i < n; i++)                                                                 \
    put_u64(out, metric, label(labels, "sink", gateway->sinks[i].config->name), all[i].field)
    EACH("weir_stored_records_total", "counter", "Records committed by the sink.", stored);
    EACH("weir_sink_refused_records_total", "counter", "Records that became dead letters.",
         refused);
    EACH("weir_sink_retries_total", "counter", "Calls to the sink that were tried again.", retries);
    EACH("weir_sink_failures_total", "counter", "Calls to the sink that failed.", failures);
    EACH("weir_sink_batches_total", "counter", "Calls to the sink.", batches);
    EACH("weir_sink_bisections_total", "counter", "Batches that were bisected.", bisections);
    EACH("weir_sink_breaker_open", "gauge", "1 while the breaker is open.", breaker_open);
    EACH("weir_dead_letters", "gauge", "Dead letters kept.", dead_letters);
    EACH("weir_dead_letters_bytes", "gauge", "Size of the dead letter file.", dead_bytes);
#undef EACH
    head(out, "weir_sink_batch_records", "histogram", "Records in one call to the sink.");
    for (size_t i = 0; i < n; i++)
        put_histogram(out, "weir_sink_batch_records", "sink", gateway->sinks[i].config->name,
                      all[i].batch_records, powers, COUNT(powers), 1);
    head(out, "weir_sink_write_seconds", "histogram", "Time of one call to the sink.");
    for (size_t i = 0; i < n; i++)
        put_histogram(out, "weir_sink_write_seconds", "sink", gateway->sinks[i].config->name,
                      all[i].write_ns, seconds, COUNT(seconds), 1e9);
    mem_free(all);
}

static void put_lanes(struct gateway *gateway, struct buf *out)
{
    size_t n = gateway->n_sinks + 3;
    char labels[200];
    struct lane **lanes = mem_alloc(n * sizeof(*lanes));
    struct lane_counts *all = mem_alloc(n * sizeof(*all));
    for (size_t i = 0; i < gateway->n_sinks; i++)
        lanes[i] = gateway->sinks[i].lane;
    lanes[n - 3] = gateway->read_lane;
    lanes[n - 2] = gateway->status_lane;
    lanes[n - 1] = gateway->admin_lane;
    for (size_t i = 0; i < n; i++)
        lane_counts(lanes[i], &all[i]);
#define EACH(metric, type, help, field)                                                            \
    head(out, metric, type, help);                                                                 \
    for (size_t i = 0; i < n; i++)                                                                 \
    put_u64(out, metric, label(labels, "lane", lane_name(lanes[i])), all[i].field)
    EACH("weir_lane_threads", "gauge", "Threads of the lane.", threads);
    EACH("weir_lane_busy_threads", "gauge", "Threads that run a task.", busy);
    EACH("weir_lane_queued_tasks", "gauge", "Tasks that wait.", queued);
    EACH("weir_lane_submitted_tasks_total", "counter", "Tasks submitted.", submitted);
    EACH("weir_lane_done_tasks_total", "counter", "Tasks done.", done);
    EACH("weir_lane_rejected_tasks_total", "counter", "Tasks that found the lane full.", rejected);
    EACH("weir_lane_cancelled_tasks_total", "counter", "Tasks cancelled by the stop.", cancelled);
#undef EACH
    mem_free(all);
    mem_free(lanes);
}

void metrics_text(struct gateway *gateway, struct buf *out)
{
    put_process(gateway, out);
    put_http(gateway, out);
    put_ingest(gateway, out);
    put_log(gateway, out);
    put_consumers(gateway, out);
    put_sinks(gateway, out);
    put_lanes(gateway, out);
}

static void metrics_work(struct job *job)
{
    job->content_type = "text/plain; version=0.0.4; charset=utf-8";
    metrics_text(job->loop->gateway, &job->body);
}

void metrics_handle(struct gateway_loop *loop, struct http_request *request)
{
    if (atomic_load_explicit(&loop->gateway->running, memory_order_acquire))
        job_submit(loop->gateway->status_lane, job_create(loop, request, metrics_work));
    else
        reply_busy(loop, request, PRESSURE_STARTING);
}
