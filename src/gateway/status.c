/* status.c: GET /v1/status: everything weir knows about itself, as JSON; and readiness.
 *
 * On the status lane: a sink's dead letters are counted under a lock that is held across I/O. */
#include <unistd.h>

#include "base/clock.h"
#include "gateway/job.h"
#include "http/server.h"
#include "os/cpu.h"

const char *ready_or_why_not(struct gateway *gateway)
{
    uint32_t blocked = atomic_load_explicit(&gateway->pressure.blocked, memory_order_relaxed);
    if (atomic_load_explicit(&gateway->stopping, memory_order_relaxed))
        return pressure_text(PRESSURE_STOPPING);
    if (blocked)
        return pressure_text((enum pressure_cause)__builtin_ctz(blocked));
    if (clock_mono_ns() < count_get(&gateway->disk_full_until_ns))
        return pressure_text(PRESSURE_DISK);
    if (count_get(&gateway->versions.ceiling) <= clock_wall_ms() << VERSION_SHIFT)
        return pressure_text(PRESSURE_VERSION);
    return NULL;
}

/* ---- members: each begins with a comma, so an object opens with a first member ---- */

static void put_name(struct buf *out, const char *name)
{
    buf_put(out, ",\"", 2);
    buf_put_str(out, name);
    buf_put(out, "\":", 2);
}

static void put_u64(struct buf *out, const char *name, uint64_t value)
{
    put_name(out, name);
    buf_put_u64(out, value);
}

static void put_text(struct buf *out, const char *name, const char *value)
{
    put_name(out, name);
    buf_put_json_string(out, slice_of(value));
}

static void put_bool(struct buf *out, const char *name, bool value)
{
    put_name(out, name);
    buf_put_str(out, value ? "true" : "false");
}

static void put_double(struct buf *out, const char *name, double value)
{
    put_name(out, name);
    buf_printf(out, "%.1f", value);
}

/* {"count":..,"mean":..,"p50":..} in units of `unit` */
static void put_distribution(struct buf *out, const char *name, const struct histogram *h,
                             double unit)
{
    static const struct {
        const char *name;
        double q;
    } quantiles[] = {{"p50", 0.5}, {"p90", 0.9}, {"p99", 0.99}, {"p999", 0.999}};
    put_name(out, name);
    buf_put_str(out, "{\"count\":");
    buf_put_u64(out, h ? histogram_count(h) : 0);
    if (h) {
        put_double(out, "mean", histogram_mean(h) / unit);
        for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
            put_double(out, quantiles[i].name,
                       (double)histogram_quantile(h, quantiles[i].q) / unit);
        put_double(out, "max", (double)histogram_max(h) / unit);
    }
    buf_put_char(out, '}');
}

static void put_http(struct gateway *gateway, struct buf *out)
{
    const struct http_counters *http = http_server_counters(gateway->server);
    put_name(out, "http");
    buf_put_str(out, "{\"connections_open\":");
    buf_put_u64(out, count_get(&http->connections_open));
    put_u64(out, "connections_total", count_get(&http->connections_total));
    put_u64(out, "requests_total", count_get(&http->requests_total));
    put_u64(out, "bad_requests_total", count_get(&http->bad_requests_total));
    put_u64(out, "timeouts_total", count_get(&http->timeouts_total));
    put_u64(out, "refused_connections_total", count_get(&http->refused_connections_total));
    put_u64(out, "bytes_in_total", count_get(&http->bytes_in_total));
    put_u64(out, "bytes_out_total", count_get(&http->bytes_out_total));
    buf_put_char(out, '}');
}

static void put_answers(struct gateway *gateway, struct buf *out)
{
    bool first = true;
    put_name(out, "answers");
    buf_put_char(out, '{');
    for (unsigned i = 0; i < GATEWAY_STATUSES; i++) {
        uint64_t n =
            counters_sum(gateway, offsetof(struct loop_counters, answers) + i * sizeof(uint64_t));
        if (n == 0)
            continue;
        buf_printf(out, "%s\"%d\":%llu", first ? "" : ",", gateway_statuses[i],
                   (unsigned long long)n);
        first = false;
    }
    buf_put_char(out, '}');
    put_u64(out, "accepted_bodies", COUNTERS_SUM(gateway, accepted_bodies));
    put_u64(out, "accepted_records", COUNTERS_SUM(gateway, accepted_records));
    put_u64(out, "accepted_bytes", COUNTERS_SUM(gateway, accepted_bytes));
    put_u64(out, "downgraded", COUNTERS_SUM(gateway, downgraded));
    put_u64(out, "timed_out", COUNTERS_SUM(gateway, timed_out));
    put_u64(out, "lost_records", count_get(&gateway->lost_records));
    put_u64(out, "waiting_for_sinks", ack_waiting(gateway->acks));
}

static void put_latencies(struct gateway *gateway, struct buf *out)
{
    put_name(out, "latency_us");
    buf_put_char(out, '{');
    for (int level = ACK_RECEIVED; level <= ACK_EVERYWHERE; level++) {
        struct histogram *all = histogram_create();
        struct buf member = {0};
        for (unsigned i = 0; i < gateway->n_loops; i++)
            histogram_add(all, gateway->loops[i].latency_ns[level]);
        put_distribution(&member, ack_level_name((enum ack_level)level), all, 1000);
        /* the first member goes without its comma */
        buf_put(out, member.p + (level == ACK_RECEIVED), member.n - (level == ACK_RECEIVED));
        buf_fini(&member);
        histogram_destroy(all);
    }
    buf_put_char(out, '}');
}

static void put_pressure(struct gateway *gateway, struct buf *out)
{
    struct pressure *pressure = &gateway->pressure;
    put_name(out, "memory");
    buf_put_str(out, "{\"used_bytes\":");
    buf_put_u64(out, count_get(&pressure->memory_used));
    put_u64(out, "limit_bytes", pressure->memory_limit);
    buf_put_char(out, '}');
    put_name(out, "refused");
    buf_put_char(out, '{');
    for (unsigned i = 0; i < PRESSURE_CAUSES; i++)
        buf_printf(out, "%s\"%s\":%llu", i ? "," : "", pressure_name((enum pressure_cause)i),
                   (unsigned long long)count_get(&pressure->refused[i]));
    buf_put_char(out, '}');
}

static void put_log(struct gateway *gateway, struct buf *out)
{
    struct log_stats stats;
    log_stats(gateway->log, &stats);
    put_name(out, "log");
    buf_put_str(out, "{\"kind\":");
    buf_put_json_string(out, slice_of(gateway->config->log.kind));
    put_u64(out, "partitions", gateway->config->log.partitions);
    put_u64(out, "appended_records", stats.appended_records);
    put_u64(out, "appended_bytes", stats.appended_bytes);
    put_u64(out, "groups", stats.groups);
    put_u64(out, "flushes", stats.flushes);
    put_u64(out, "flush_errors", stats.flush_errors);
    put_u64(out, "first_offset", stats.first_offset);
    put_u64(out, "end_offset", stats.end_offset);
    put_u64(out, "bytes_on_disk", stats.bytes_on_disk);
    put_u64(out, "max_bytes", stats.max_bytes);
    put_u64(out, "ring_count", stats.ring_count);
    put_u64(out, "ring_capacity", stats.ring_capacity);
    put_bool(out, "full", stats.full);
    put_bool(out, "failed", stats.poisoned);
    put_u64(out, "durable_per_s", count_get(&gateway->durable_per_s));
    put_distribution(out, "group_records", stats.group_records, 1);
    put_distribution(out, "flush_us", stats.flush_ns, 1000);
    buf_put_char(out, '}');
}

static void put_streams(struct gateway *gateway, struct buf *out)
{
    put_name(out, "streams");
    buf_put_char(out, '[');
    for (size_t i = 0; i < gateway->n_streams; i++) {
        const struct config_stream *stream = gateway->streams[i].config;
        bool first = true;
        buf_printf(out, "%s{\"name\":", i ? "," : "");
        buf_put_json_string(out, slice_of(stream->name));
        put_u64(out, "number", gateway->streams[i].ingest.number);
        put_text(out, "ack", ack_level_name(stream->ack));
        put_text(out, "primary", gateway->sinks[stream->primary].config->name);
        put_name(out, "sinks");
        buf_put_char(out, '[');
        for (size_t s = 0; s < gateway->n_sinks; s++) {
            if (!(stream->sinks & UINT64_C(1) << s))
                continue;
            if (!first)
                buf_put_char(out, ',');
            first = false;
            buf_put_json_string(out, slice_of(gateway->sinks[s].config->name));
        }
        buf_put_str(out, "]}");
    }
    buf_put_char(out, ']');
}

static void put_consumers(struct gateway *gateway, struct buf *out)
{
    put_name(out, "consumers");
    buf_put_char(out, '[');
    for (size_t i = 0; i < gateway->n_sinks; i++) {
        struct delivery_consumer_stats stats;
        delivery_consumer_stats(gateway->delivery, (unsigned)i, &stats);
        buf_printf(out, "%s{\"name\":", i ? "," : "");
        buf_put_json_string(out, slice_of(gateway->sinks[i].config->name));
        put_u64(out, "lag", stats.lag);
        put_u64(out, "inflight_records", stats.inflight_records);
        put_u64(out, "inflight_bytes", stats.inflight_bytes);
        put_u64(out, "settled", stats.settled);
        put_double(out, "drain_per_s", stats.drain_per_s);
        put_bool(out, "stopped", stats.stopped);
        put_text(out, "why_stopped", stats.why_stopped);
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

static void put_sinks(struct gateway *gateway, struct buf *out)
{
    put_name(out, "sinks");
    buf_put_char(out, '[');
    for (size_t i = 0; i < gateway->n_sinks; i++) {
        struct delivery_sink_stats stats;
        delivery_sink_stats(gateway->delivery, (unsigned)i, &stats);
        buf_printf(out, "%s{\"name\":", i ? "," : "");
        buf_put_json_string(out, slice_of(gateway->sinks[i].config->name));
        put_text(out, "kind", gateway->sinks[i].config->ops->kind);
        put_u64(out, "stored", stats.stored);
        put_u64(out, "refused", stats.refused);
        put_u64(out, "retries", stats.retries);
        put_u64(out, "failures", stats.failures);
        put_u64(out, "batches", stats.batches);
        put_u64(out, "bisections", stats.bisections);
        put_bool(out, "breaker_open", stats.breaker_open);
        put_u64(out, "next_try_ms", stats.next_try_ms);
        put_text(out, "last_error", stats.last_error);
        put_u64(out, "dead_letters", stats.dead_letters);
        put_u64(out, "dead_bytes", stats.dead_bytes);
        put_distribution(out, "batch_records", stats.batch_records, 1);
        put_distribution(out, "write_us", stats.write_ns, 1000);
        buf_put_char(out, '}');
    }
    buf_put_char(out, ']');
}

static void put_lane(struct lane *lane, struct buf *out, bool first)
{
    struct lane_counts counts;
    lane_counts(lane, &counts);
    buf_printf(out, "%s{\"name\":", first ? "" : ",");
    buf_put_json_string(out, slice_of(lane_name(lane)));
    put_u64(out, "threads", counts.threads);
    put_u64(out, "busy", counts.busy);
    put_u64(out, "queued", counts.queued);
    put_u64(out, "running", counts.running);
    put_u64(out, "waiting_for_order", counts.waiting_for_order);
    put_u64(out, "submitted", counts.submitted);
    put_u64(out, "done", counts.done);
    put_u64(out, "rejected", counts.rejected);
    put_u64(out, "cancelled", counts.cancelled);
    put_double(out, "oldest_queued_ms", (double)counts.oldest_queued_ns / 1e6);
    buf_put_char(out, '}');
}

void status_json(struct gateway *gateway, struct buf *out)
{
    struct cpu_count cpus;
    const char *why = ready_or_why_not(gateway);
    cpu_count(&cpus);
    buf_put_str(out, "{\"weir\":\"" WEIR_VERSION "\"");
    put_u64(out, "pid", (uint64_t)getpid());
    put_u64(out, "uptime_s", (clock_mono_ns() - gateway->started_ns) / 1000000000);
    put_text(out, "url", gateway->url);
    put_text(out, "data", gateway->config->data);
    put_u64(out, "cpus", cpus.usable);
    put_u64(out, "loops", gateway->n_loops);
    put_bool(out, "ready", !why);
    put_text(out, "why_not_ready", why ? why : "");
    put_answers(gateway, out);
    put_latencies(gateway, out);
    put_http(gateway, out);
    put_pressure(gateway, out);
    put_log(gateway, out);
    put_streams(gateway, out);
    put_consumers(gateway, out);
    put_sinks(gateway, out);
    put_name(out, "lanes");
    buf_put_char(out, '[');
    put_lane(gateway->read_lane, out, true);
    put_lane(gateway->status_lane, out, false);
    put_lane(gateway->admin_lane, out, false);
    for (size_t i = 0; i < gateway->n_sinks; i++)
        put_lane(gateway->sinks[i].lane, out, false);
    buf_put_str(out, "]}\n");
}

static void status_work(struct job *job)
{
    status_json(job->loop->gateway, &job->body);
}

void status_handle(struct gateway_loop *loop, struct http_request *request)
{
    if (atomic_load_explicit(&loop->gateway->running, memory_order_acquire))
        job_submit(loop->gateway->status_lane, job_create(loop, request, status_work));
    else
        reply_busy(loop, request, PRESSURE_STARTING);
}
