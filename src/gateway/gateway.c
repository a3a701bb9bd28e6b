/* gateway.c: see gateway.h. Start and stop; each step of the start has its own function, and what
 * undoes it stands in gateway_close. */
#include "gateway/gateway.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "gateway/admin.h"
#include "gateway/state.h"
#include "gateway/tell.h"
#include "os/cpu.h"

#define READ_THREADS     2
#define READ_QUEUE       1000
#define STATUS_QUEUE     64
#define ADMIN_QUEUE      16
#define RING_SLOTS       131072
#define RECEIVED_MS      5
#define LOOPS_DEFAULT    4 /* at most: beyond it the log's thread is the limit */
#define BREAKER_FAILURES 5
#define BISECT_CALLS     64
#define INFLIGHT_BYTES   (32u << 20)
#define LAST_ANSWERS_NS  UINT64_C(100000000)
#define HALF_SENT_NS     UINT64_C(1000000000)
#define LAST_CALLS_NS    UINT64_C(200000000)

static void on_report(void *context, const char *text)
{
    (void)context;
    tell_text(text);
}

/* ---- start ---- */

/* A log without META: its records name their streams by numbers that only META knows. META is
 * written before the log is begun, so it was there. */
static int refuse_lost_meta(struct gateway *gateway, struct diag *diag)
{
    const struct config *config = gateway->config;
    struct log_config look = {
        .fs = gateway->fs,
        .data = config->data,
        .partitions = config->log.partitions,
        .segment_bytes = config->log.segment_bytes,
        .max_bytes = config->log.max_bytes,
        .ring = RING_SLOTS,
        .read_only = true,
    };
    struct log *log;
    int err = log_open(config->log.kind, &look, &log, diag);
    if (err)
        return err == WEIR_NOT_FOUND ? 0 : err;
    log_close(log);
    return diag_set(diag, WEIR_CORRUPT,
                    "%s holds a log and no META, without which nobody knows the streams of its "
                    "records: put META back from a copy, or use another data directory",
                    config->data);
}

static int open_data(struct gateway *gateway, struct diag *diag)
{
    const struct config *config = gateway->config;
    int err = data_lock(gateway->fs, config->data, &gateway->lock_file, diag);
    if (err)
        return err;
    err = meta_read(gateway->fs, config->data, &gateway->meta, diag);
    if (err == WEIR_NOT_FOUND) {
        err = refuse_lost_meta(gateway, diag);
        if (err)
            return err;
        gateway->meta = (struct meta){.partitions = config->log.partitions};
    } else if (err) {
        return err;
    } else if (gateway->meta.partitions != config->log.partitions) {
        return diag_set(diag, WEIR_INVALID,
                        "%s was made with %u partitions and the configuration says %u; the number "
                        "cannot change: set log: {partitions: %u}, or use another data directory",
                        config->data, gateway->meta.partitions, config->log.partitions,
                        gateway->meta.partitions);
    }
    for (size_t i = 0; i < gateway->n_streams; i++)
        gateway->streams[i].ingest.number =
            meta_stream_add(&gateway->meta, config->streams[i].name);
    /* META is written here in any case: the ceiling has to be raised above what was used. */
    version_init(&gateway->versions, gateway->meta.version_ceiling);
    err = housekeep_versions(gateway, diag);
    gateway->meta_is_ours = err == 0;
    return err;
}

static void make_streams(struct gateway *gateway)
{
    const struct config *config = gateway->config;
    gateway->n_streams = config->n_streams;
    gateway->streams = mem_zalloc(config->n_streams * sizeof(struct gateway_stream));
    for (size_t i = 0; i < config->n_streams; i++) {
        const struct config_stream *stream = &config->streams[i];
        gateway->streams[i] = (struct gateway_stream){
            .config = stream,
            .ingest = {.name = stream->name,
                       .id = stream->id ? slice_of(stream->id) : (struct slice){0},
                       .key = stream->key ? slice_of(stream->key) : (struct slice){0},
                       .id_optional = stream->id_optional,
                       .partitions = config->log.partitions},
            .ack_timeout_ns = stream->ack_timeout_ms * 1000000,
        };
    }
}

static int open_sinks(struct gateway *gateway, struct diag *diag)
{
    const struct config *config = gateway->config;
    struct sink_stream *served = mem_alloc((config->n_streams + 1) * sizeof(*served));
    int err = 0;
    gateway->sinks = mem_zalloc(config->n_sinks * sizeof(struct gateway_sink));
    for (size_t i = 0; i < config->n_sinks && !err; i++) {
        struct gateway_sink *sink = &gateway->sinks[i];
        struct sink_config open = {.name = config->sinks[i].name,
                                   .options = config->sinks[i].options,
                                   .streams = served,
                                   .fs = gateway->fs,
                                   .data = config->data};
        for (size_t s = 0; s < config->n_streams; s++)
            if (config->streams[s].sinks & UINT64_C(1) << i)
                served[open.n_streams++] = (struct sink_stream){
                    .number = gateway->streams[s].ingest.number, .name = config->streams[s].name};
        sink->config = &config->sinks[i];
        pthread_mutex_init(&sink->sessions_lock, NULL);
        gateway->n_sinks = i + 1;
        err = sink->config->ops->open(&open, &sink->sink, diag);
        if (err) {
            diag_prefix(diag, "sink %s: ", sink->config->name);
            break;
        }
        struct lane_config lane = {.name = sink->config->name,
                                   .threads = sink->config->lane.threads,
                                   .queue = sink->config->lane.queue};
        err = lane_create(&lane, &sink->lane, diag);
    }
    mem_free(served);
    return err;
}

static int open_log(struct gateway *gateway, struct diag *diag)
{
    const struct config *config = gateway->config;
    const char **consumers = mem_zalloc((config->n_sinks + 1) * sizeof(*consumers));
    for (size_t i = 0; i < config->n_sinks; i++)
        consumers[i] = config->sinks[i].name;
    struct log_config open = {
        .fs = gateway->fs,
        .data = config->data,
        .partitions = config->log.partitions,
        .segment_bytes = config->log.segment_bytes,
        .max_bytes = config->log.max_bytes,
        .received_flush_ms = RECEIVED_MS,
        .ring = RING_SLOTS,
        .events = {.context = gateway, .durable = intake_durable, .report = on_report},
        .consumers = consumers,
    };
    int err = log_open(config->log.kind, &open, &gateway->log, diag);
    mem_free(consumers);
    if (err == 0)
        gateway->body_limit = log_body_limit(gateway->log);
    return err;
}

static int start_delivery(struct gateway *gateway, struct diag *diag)
{
    const struct config *config = gateway->config;
    size_t n = config->n_sinks;
    struct delivery_sink *sinks = mem_zalloc(n * sizeof(*sinks));
    struct delivery_consumer *consumers = mem_zalloc(n * sizeof(*consumers));
    struct delivery_stream *streams = mem_zalloc(gateway->meta.n_streams * sizeof(*streams));
    unsigned *feeds = mem_zalloc(n * sizeof(*feeds));
    for (size_t i = 0; i < n; i++) {
        const struct config_sink *sink = &config->sinks[i];
        feeds[i] = (unsigned)i;
        sinks[i] = (struct delivery_sink){
            .name = sink->name,
            .sink = gateway->sinks[i].sink,
            .lane = gateway->sinks[i].lane,
            .split = sink->lane.split,
            .ordered = sink->ordered,
            .batch_records = sink->batch_records,
            .batch_bytes = sink->batch_bytes,
            .retry_min_ms = (unsigned)sink->retry_min_ms,
            .retry_max_ms = (unsigned)sink->retry_max_ms,
            .breaker_failures = BREAKER_FAILURES,
            .bisect_calls = BISECT_CALLS,
        };
        consumers[i] =
            (struct delivery_consumer){.name = sink->name, .sinks = &feeds[i], .n_sinks = 1};
    }
    /* All that ever were: the log may hold records of one that is not configured any more. */
    for (uint32_t i = 0; i < gateway->meta.n_streams; i++)
        streams[i] = (struct delivery_stream){.number = i, .name = gateway->meta.streams[i]};
    for (size_t i = 0; i < config->n_streams; i++)
        streams[gateway->streams[i].ingest.number].sinks = config->streams[i].sinks;
    struct delivery_config start = {
        .log = gateway->log,
        .fs = gateway->fs,
        .data = config->data,
        .partitions = config->log.partitions,
        .sinks = sinks,
        .n_sinks = n,
        .consumers = consumers,
        .n_consumers = n,
        .streams = streams,
        .n_streams = gateway->meta.n_streams,
        .dead_max_bytes = config->limits.dead_bytes,
        .inflight_bytes = INFLIGHT_BYTES,
        .events = {.context = gateway,
                   .settled = intake_settled,
                   .report = on_report,
                   .waited_for = intake_waited_for},
    };
    int err = delivery_start(&start, &gateway->delivery, diag);
    if (err == 0) /* release: who sees it may use `delivery` */
        atomic_store_explicit(&gateway->delivers, true, memory_order_release);
    mem_free(sinks);
    mem_free(consumers);
    mem_free(streams);
    mem_free(feeds);
    return err;
}

static int make_lanes(struct gateway *gateway, struct diag *diag)
{
    const struct lane_config read = {.name = "read", .threads = READ_THREADS, .queue = READ_QUEUE};
    const struct lane_config status = {.name = "status", .threads = 1, .queue = STATUS_QUEUE};
    const struct lane_config admin = {.name = "admin", .threads = 1, .queue = ADMIN_QUEUE};
    int err = lane_create(&read, &gateway->read_lane, diag);
    if (err == 0)
        err = lane_create(&status, &gateway->status_lane, diag);
    if (err == 0)
        err = lane_create(&admin, &gateway->admin_lane, diag);
    return err;
}

static unsigned choose_loops(const struct config *config)
{
    struct cpu_count cpus;
    unsigned loops = config->loops;
    cpu_count(&cpus);
    /* Half of the CPUs: log, consumers and lanes want the others. Measured on two CPUs, one loop
     * takes more than two at every ack level but `stored` on few connections, with shorter tails.
     */
    if (loops == 0)
        loops = cpus.usable / 2 < LOOPS_DEFAULT ? cpus.usable / 2 : LOOPS_DEFAULT;
    if (loops == 0)
        loops = 1;
    return loops < GATEWAY_LOOPS_MAX ? loops : GATEWAY_LOOPS_MAX;
}

static void make_loops(struct gateway *gateway)
{
    gateway->n_loops = choose_loops(gateway->config);
    size_t bytes = gateway->n_loops * sizeof(struct gateway_loop);
    gateway->loops = mem_zalloc(bytes);
    for (unsigned i = 0; i < gateway->n_loops; i++) {
        struct gateway_loop *loop = &gateway->loops[i];
        loop->gateway = gateway;
        loop->index = i;
        loop->random = (uint32_t)(clock_mono_ns() >> 8) + i;
        loop->ingest = ingest_create();
        for (unsigned level = 0; level < 4; level++)
            loop->latency_ns[level] = histogram_create();
        intake_waiting_init(loop);
    }
}

static int start_server(struct gateway *gateway, struct diag *diag)
{
    const struct config *config = gateway->config;
    char *socket_path = mem_printf("%s/%s", config->data, ADMIN_SOCKET);
    struct http_server_config start = {
        .address = config->listen,
        .unix_path = socket_path,
        .loops = gateway->n_loops,
        .limits = config->limits.http,
        .handle = routes_handle,
        .context = gateway,
    };
    start.limits.body_bytes = config->limits.body_bytes;
    int err = http_server_start(&start, &gateway->server, diag);
    mem_free(socket_path);
    if (err == WEIR_EXISTS)
        return diag_set(
            diag, err,
            "%s is taken by another program (who: ss -ltnp); stop it, or choose another "
            "address: --listen 127.0.0.1:PORT",
            config->listen);
    if (err)
        return err;
    const char *colon = strrchr(config->listen, ':');
    int host = colon ? (int)(colon - config->listen) : (int)strlen(config->listen);
    gateway->url =
        mem_printf("http://%.*s:%u", host, config->listen, http_server_port(gateway->server));
    /* Release: the loops run already, and from here on they may use the server and its address. */
    atomic_store_explicit(&gateway->running, true, memory_order_release);
    return 0;
}

/* ---- the end: whatever is open is closed ---- */

static void sleep_ms(unsigned ms)
{
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000},
              NULL);
}

/* Requests whose bodies are still coming in get a moment. */
static void wait_half_sent(struct gateway *gateway)
{
    uint64_t until = clock_mono_ns() + HALF_SENT_NS;
    while (count_get(&http_server_counters(gateway->server)->connections_open) > 0 &&
           clock_mono_ns() < until)
        sleep_ms(2);
}

/* Waits until every request is answered, and the answers have left; or the time. */
static void wait_answered(struct gateway *gateway, uint64_t until_ns)
{
    while (
        (http_server_unanswered(gateway->server) > 0 || http_server_unsent(gateway->server) > 0) &&
        clock_mono_ns() < until_ns)
        sleep_ms(2);
}

struct fence {
    struct loop_message message;
    _Atomic bool passed;
};

static void fence_run(struct loop_message *message)
{
    struct fence *fence = CONTAINER_OF(message, struct fence, message);
    /* Release: what the loop did before is seen by who sees this. */
    atomic_store_explicit(&fence->passed, true, memory_order_release);
}

/* Returns when every loop has run what was posted to it before. */
static void fence_loops(struct gateway *gateway)
{
    for (unsigned i = 0; i < gateway->n_loops; i++) {
        struct fence fence = {.message = {.run = fence_run}};
        loop_post(http_server_loop(gateway->server, i), &fence.message);
        while (!atomic_load_explicit(&fence.passed, memory_order_acquire))
            sleep_ms(1);
    }
}

/* The pointer stays as it is: a loop may read it, and then submits nothing (see job.c). */
static void end_lane(struct lane *lane)
{
    if (lane)
        lane_close(lane, 0);
}

/* A call into a store cannot be broken off: one that is not back by now may hang for ever. */
static bool hangs(const struct gateway_sink *sink)
{
    uint64_t until_ns = clock_mono_ns() + LAST_CALLS_NS;
    struct lane_counts counts = {0};
    while (sink->lane) {
        lane_counts(sink->lane, &counts);
        if (counts.running == 0 || clock_mono_ns() >= until_ns)
            break;
        sleep_ms(2);
    }
    return counts.running > 0;
}

static void close_sink(struct gateway_sink *sink)
{
    if (hangs(sink)) {
        tell("sink %s: a call does not come back and is left; its records stay in the log",
             sink->config->name);
        return; /* with its lane, whose thread is in it: both end with the process */
    }
    end_lane(sink->lane);
    if (sink->sink) {
        read_sessions_close(sink);
        sink->config->ops->close(sink->sink);
    }
    pthread_mutex_destroy(&sink->sessions_lock);
}

static void gateway_close(struct gateway *gateway, uint32_t deadline_ms)
{
    /* The loops go last of what posts to them: another thread may still be inside loop_post. */
    end_lane(gateway->status_lane); /* before the others, at which its work looks */
    end_lane(gateway->read_lane);
    end_lane(gateway->admin_lane);
    housekeep_stop(gateway);
    if (gateway->delivery) {
        atomic_store_explicit(&gateway->delivers, false, memory_order_release);
        delivery_stop(gateway->delivery, deadline_ms);
    }
    if (gateway->server) {
        fence_loops(gateway); /* the answers of what has just ended */
        wait_answered(gateway, clock_mono_ns() + LAST_ANSWERS_NS);
        http_server_destroy(gateway->server);
    }
    for (size_t i = 0; i < gateway->n_sinks; i++)
        close_sink(&gateway->sinks[i]);
    if (gateway->log)
        log_close(gateway->log);
    if (gateway->meta_is_ours) {
        struct diag diag = {0};
        gateway->meta.version_ceiling = version_close(&gateway->versions);
        if (meta_write(gateway->fs, gateway->config->data, &gateway->meta, &diag))
            tell("%s", diag.text);
    }
    meta_fini(&gateway->meta);
    fs_close(gateway->lock_file);

    for (unsigned i = 0; i < gateway->n_loops; i++) {
        struct gateway_loop *loop = &gateway->loops[i];
        ingest_destroy(loop->ingest);
        inflater_destroy(loop->inflater);
        buf_fini(&loop->answer);
        buf_fini(&loop->attributes);
        mem_free(loop->waiting);
        for (unsigned level = 0; level < 4; level++)
            histogram_destroy(loop->latency_ns[level]);
    }
    mem_free(gateway->loops);
    ack_destroy(gateway->acks);
    auth_destroy(atomic_load_explicit(&gateway->auth, memory_order_relaxed));
    for (size_t i = 0; i < gateway->n_old_auths; i++)
        auth_destroy(gateway->old_auths[i]);
    mem_free(gateway->old_auths);
    pthread_mutex_destroy(&gateway->tokens_lock);
    mem_free(gateway->sinks);
    mem_free(gateway->streams);
    mem_free(gateway->url);
    free(gateway);
}

int gateway_start(const struct config *config, const struct fs *fs, struct gateway **out,
                  struct diag *diag)
{
    /* Counters that threads share lie on cache lines of their own. */
    struct gateway *gateway = aligned_alloc(64, (sizeof(*gateway) + 63) & ~(size_t)63);
    if (!gateway)
        return diag_set(diag, WEIR_NO_MEMORY, "no memory for the gateway");
    memset(gateway, 0, sizeof(*gateway));
    gateway->config = config;
    gateway->fs = fs;
    gateway->started_ns = clock_mono_ns();
    gateway->acks = ack_create();
    pthread_mutex_init(&gateway->tokens_lock, NULL);
    atomic_store_explicit(&gateway->auth, auth_create(config->tokens, config->n_tokens),
                          memory_order_release);
    pressure_init(&gateway->pressure, config->limits.memory_bytes);
    make_streams(gateway);
    int err = open_data(gateway, diag);
    if (err == 0)
        err = open_sinks(gateway, diag);
    if (err == 0) {
        make_loops(gateway);
        err = open_log(gateway, diag);
    }
    if (err == 0)
        err = start_delivery(gateway, diag);
    if (err == 0)
        err = make_lanes(gateway, diag);
    if (err == 0)
        err = housekeep_start(gateway, diag);
    if (err == 0)
        err = start_server(gateway, diag);
    if (err) {
        gateway_close(gateway, 0);
        return err;
    }
    *out = gateway;
    return 0;
}

const char *gateway_url(const struct gateway *gateway)
{
    return gateway->url;
}

void gateway_use_tokens(struct gateway *gateway, const struct config_token *tokens, size_t n)
{
    struct auth *fresh = auth_create(tokens, n);
    pthread_mutex_lock(&gateway->tokens_lock);
    /* A loop may still look at the old ones: they are kept until the end. */
    gateway->old_auths =
        mem_realloc(gateway->old_auths, (gateway->n_old_auths + 1) * sizeof(*gateway->old_auths));
    gateway->old_auths[gateway->n_old_auths++] =
        atomic_exchange_explicit(&gateway->auth, fresh, memory_order_acq_rel);
    pthread_mutex_unlock(&gateway->tokens_lock);
}

/* ---- stop ---- */

static uint32_t left_ms(uint64_t until_ns)
{
    uint64_t now = clock_mono_ns();
    return now < until_ns ? (uint32_t)((until_ns - now) / 1000000) : 0;
}

void gateway_stop(struct gateway *gateway)
{
    uint64_t now = clock_mono_ns();
    uint64_t drain_ns = gateway->config->limits.drain_timeout_ms * 1000000;
    uint64_t until = now + drain_ns;

    /* Who waits for a slow store gets half of the time; then the answer is what is true. */
    atomic_store_explicit(&gateway->stopping, true, memory_order_relaxed);
    http_server_stop_accepting(gateway->server);
    wait_half_sent(gateway);
    wait_answered(gateway, now + drain_ns / 2);
    intake_give_up(gateway);
    wait_answered(gateway, now + drain_ns * 3 / 4);

    /* From here on no loop gives the log or a lane anything: the fence is behind the last that did.
     */
    housekeep_stop(gateway);
    atomic_fetch_or_explicit(&gateway->pressure.blocked, 1u << PRESSURE_STOPPING,
                             memory_order_relaxed);
    fence_loops(gateway);
    log_flush(gateway->log);

    gateway_close(gateway, left_ms(until));
}
