/* run.c: a whole run of the generator (load.h): settings, threads, the common start, the progress
 * line, the sums. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "load/limit.h"
#include "load/load.h"
#include "load/url.h"
#include "load/worker.h"
#include "os/cpu.h"

#define NS_PER_S 1000000000u

struct run {
    struct load_config config; /* with the defaults filled in */
    struct load_url url;
    struct worker_plan plan;
    struct buf head;
    struct template *template;
    struct worker *workers;
    unsigned n_started;
};

static int fill_defaults(struct load_config *config, struct diag *diag)
{
    if (config->requests == 0) {
        config->requests = PACER_NEVER;
        if (config->duration_ms == 0)
            config->duration_ms = 10000;
    }
    if (config->connections == 0)
        config->connections = 64;
    if (config->threads == 0) {
        struct cpu_count cpus;
        cpu_count(&cpus);
        config->threads = cpus.usable > 1 ? cpus.usable / 2 : 1;
        if (config->threads > config->connections)
            config->threads = config->connections;
        if (config->threads > LOAD_THREADS_MAX)
            config->threads = LOAD_THREADS_MAX;
    }
    if (config->batch == 0)
        config->batch = 1;
    if (config->keys == 0)
        config->keys = 1000000;
    if (config->timeout_ms == 0)
        config->timeout_ms = 10000;
    if (!config->template)
        config->template = template_order;
    if (config->connections > LOAD_CONNECTIONS_MAX)
        return diag_set(diag, WEIR_INVALID, "--connections: at most %u", LOAD_CONNECTIONS_MAX);
    if (config->threads > LOAD_THREADS_MAX)
        return diag_set(diag, WEIR_INVALID, "--threads: at most %u", LOAD_THREADS_MAX);
    if (config->threads > config->connections)
        return diag_set(diag, WEIR_INVALID,
                        "--threads %u: each thread needs a connection, and there are %u",
                        config->threads, config->connections);
    if (config->start_at > 0 && config->start_at * 1000 < (double)clock_wall_ms())
        return diag_set(diag, WEIR_INVALID, "--start-at: that moment is over");
    return 0;
}

static int make_head(struct run *run, struct diag *diag)
{
    const struct load_config *config = &run->config;
    for (const char *p = config->token; p && *p; p++)
        if (*p <= ' ' || *p > '~')
            return diag_set(diag, WEIR_INVALID,
                            "the token holds a character that a header cannot carry");
    if (config->ack) {
        int err = load_url_add_query(&run->url, "ack", config->ack, diag);
        if (err)
            return err;
    }
    buf_printf(&run->head, "POST %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: weir-load/%s\r\n",
               run->url.target, run->url.authority, WEIR_VERSION);
    if (config->token)
        buf_printf(&run->head, "Authorization: Bearer %s\r\n", config->token);
    buf_printf(&run->head, "Content-Type: application/%s\r\nContent-Length: ",
               config->batch > 1 ? "x-ndjson" : "json");
    return 0;
}

/* Descriptors for the connections and for what else is open. */
static int raise_file_limit(unsigned connections, struct diag *diag)
{
    struct rlimit limit;
    rlim_t need = (rlim_t)connections + 64;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= need)
        return 0;
    rlim_t had = limit.rlim_cur;
    limit.rlim_cur = limit.rlim_max;
    if (limit.rlim_max >= need && setrlimit(RLIMIT_NOFILE, &limit) == 0)
        return 0;
    return diag_set(diag, WEIR_INVALID,
                    "%u connections need more open files than this process may have (%llu): "
                    "raise the limit (ulimit -n) or give fewer --connections",
                    connections, (unsigned long long)had);
}

/* The first address that takes a connection; where none does, the first of all. */
static int choose_address(struct run *run, struct diag *diag)
{
    struct addrinfo *list;
    int err = load_url_resolve(&run->url, &list, diag);
    if (err)
        return err;
    const struct addrinfo *chosen = NULL;
    int cause = 0;
    for (const struct addrinfo *a = list; a && !chosen; a = a->ai_next) {
        int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct timeval wait = {.tv_sec = (time_t)(run->config.timeout_ms / 1000),
                               .tv_usec = (suseconds_t)(run->config.timeout_ms % 1000 * 1000)};
        if (fd < 0)
            continue;
        setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &wait, sizeof wait);
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
            chosen = a;
        else
            cause = errno;
        close(fd);
    }
    if (!chosen && run->config.reconnect)
        chosen = list;
    if (chosen) {
        memcpy(&run->plan.address, chosen->ai_addr, chosen->ai_addrlen);
        run->plan.address_n = chosen->ai_addrlen;
    }
    freeaddrinfo(list);
    if (!chosen)
        return diag_set(diag, WEIR_UNAVAILABLE, "nothing takes connections at %s: %s",
                        run->url.authority, strerror(cause == EINPROGRESS ? ETIMEDOUT : cause));
    return 0;
}

/* The ids' hashes need records that are JSON. */
static int check_template(const struct run *run, struct diag *diag)
{
    struct template_source source;
    template_source_init(&source, run->config.seed, 0, &run->plan.keys, false);
    char *text = mem_alloc(template_bound(run->template) + JSON_PADDING);
    size_t n = template_render(run->template, &source, clock_wall_ms(), text);
    struct json_parser *parser = json_parser_create();
    struct json_value root;
    struct json_error error;
    int err = json_parse(parser, text, n, &root, &error);
    if (err == WEIR_SYNTAX)
        diag_set(diag, WEIR_INVALID,
                 "template: with --ids the record must be JSON: %s at byte %llu of %.*s",
                 error.reason, (unsigned long long)error.offset, (int)(n < 200 ? n : 200), text);
    json_parser_destroy(parser);
    mem_free(text);
    return err ? WEIR_INVALID : 0;
}

static int prepare(struct run *run, struct diag *diag)
{
    int err = fill_defaults(&run->config, diag);
    if (!err)
        err = load_url_parse(run->config.url, &run->url, diag);
    if (!err)
        err = make_head(run, diag);
    if (!err)
        err = template_compile(slice_of(run->config.template), &run->template, diag);
    if (err)
        return err;

    struct load_config *config = &run->config;
    if (config->seed == 0)
        config->seed = hash_process_seed();
    keys_init(&run->plan.keys, config->keys, config->zipf);
    run->plan.head = buf_slice(&run->head);
    run->plan.stream = load_url_stream(&run->url);
    run->plan.template = run->template;
    run->plan.batch = config->batch;
    run->plan.timeout_ns = config->timeout_ms * 1000000u;
    run->plan.reconnect = config->reconnect;
    run->plan.open = config->rate_per_s > 0;
    run->plan.stop = config->stop;
    if (template_bound(run->template) > ((size_t)1 << 31) / config->batch)
        return diag_set(diag, WEIR_INVALID, "a body of %llu such records is over 2 GiB",
                        (unsigned long long)config->batch);
    if (config->ids_path)
        err = check_template(run, diag);
    if (!err)
        err = raise_file_limit(config->connections, diag);
    if (!err)
        err = choose_address(run, diag);
    if (!err && config->ids_path)
        err = ids_open(config->ids_path, &run->plan.ids, diag);
    return err;
}

static int start_workers(struct run *run, struct diag *diag)
{
    const struct load_config *config = &run->config;
    unsigned threads = config->threads;
    uint32_t generator = (uint32_t)hash_process_seed() & 0x7ffff;
    run->workers = mem_zalloc(threads * sizeof *run->workers);
    for (unsigned i = 0; i < threads; i++) {
        struct worker *worker = &run->workers[i];
        unsigned share = config->connections / threads + (i < config->connections % threads);
        worker_init(worker, &run->plan, i, share);
        pacer_init(&worker->pacer, config->rate_per_s, config->requests, i, threads);
        template_source_init(&worker->source, config->seed + i * 0x9e3779b97f4a7c15u,
                             generator << 6 | i, &run->plan.keys, config->random_ids);
        int err = worker_start(worker);
        if (err) {
            worker_fini(worker);
            return diag_set(diag, err, "thread %u of the generator cannot be started", i);
        }
        run->n_started++;
    }
    for (unsigned i = 0; i < threads; i++)
        worker_wait_ready(&run->workers[i]);
    return 0;
}

static void end_workers(struct run *run, bool cancel)
{
    for (unsigned i = 0; i < run->n_started; i++) {
        if (cancel) {
            worker_wait_ready(&run->workers[i]);
            worker_cancel(&run->workers[i]);
        }
        worker_join(&run->workers[i]);
    }
}

/* ---- while it runs */

static uint64_t sum(const struct run *run, size_t offset)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < run->n_started; i++) {
        const char *counts = (const char *)&run->workers[i].counts;
        n +=
            atomic_load_explicit((const _Atomic uint64_t *)(counts + offset), memory_order_relaxed);
    }
    return n;
}
#define SUM(run, field) sum(run, offsetof(struct worker_counts, field))

static bool all_ended(const struct run *run)
{
    for (unsigned i = 0; i < run->n_started; i++)
        if (!worker_ended(&run->workers[i]))
            return false;
    return true;
}

static void progress_line(const struct run *run, double seconds, uint64_t ok_a_second)
{
    struct histogram *latency = histogram_create();
    for (unsigned i = 0; i < run->n_started; i++)
        histogram_add(latency, run->workers[i].latency_ns);
    uint64_t errors = 0;
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        errors += SUM(run, errors[i]);
    for (unsigned i = 0; i < LOAD_STATUS_MAX; i++)
        if (i / 100 != 2)
            errors += SUM(run, statuses[i]);
    fprintf(stderr,
            "\r%5.0f s  %8llu/s  sent %llu  ok %llu  errors %llu  p50 %.3f ms  p99 %.3f ms   ",
            seconds, (unsigned long long)ok_a_second, (unsigned long long)SUM(run, sent),
            (unsigned long long)SUM(run, ok), (unsigned long long)errors,
            (double)histogram_quantile(latency, 0.5) / 1e6,
            (double)histogram_quantile(latency, 0.99) / 1e6);
    fflush(stderr);
    histogram_destroy(latency);
}

static void watch(const struct run *run, uint64_t start_ns)
{
    uint64_t next_ns = start_ns + NS_PER_S, ok_before = 0;
    bool printed = false;
    while (!all_ended(run)) {
        struct timespec nap = {.tv_nsec = 10000000};
        nanosleep(&nap, NULL);
        uint64_t now = clock_mono_ns();
        if (!run->config.progress || now < next_ns)
            continue;
        uint64_t ok = SUM(run, ok);
        progress_line(run, (double)(now - start_ns) / 1e9,
                      (ok - ok_before) * NS_PER_S / (now - next_ns + NS_PER_S));
        ok_before = ok;
        next_ns = now + NS_PER_S;
        printed = true;
    }
    if (printed)
        fputc('\n', stderr);
}

/* ---- afterwards */

static void add_up(const struct run *run, uint64_t start_ns, uint64_t start_ms,
                   struct load_result *out)
{
    const struct load_config *config = &run->config;
    uint64_t end_ns = start_ns;
    out->sent = SUM(run, sent);
    out->ok = SUM(run, ok);
    out->ok_in_window = SUM(run, ok_in_window);
    out->records_sent = SUM(run, records_sent);
    out->records_ok = SUM(run, records_ok);
    out->unsent = SUM(run, unsent);
    out->late_server = SUM(run, late_server);
    out->late_self = SUM(run, late_self);
    out->reconnects = SUM(run, reconnects);
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        out->errors[i] = SUM(run, errors[i]);
    for (unsigned i = 0; i < LOAD_STATUS_MAX; i++)
        out->statuses[i] = SUM(run, statuses[i]);
    for (unsigned i = 0; i < run->n_started; i++) {
        const struct worker *worker = &run->workers[i];
        if (!out->why_refused[0])
            memcpy(out->why_refused, worker->why_refused, sizeof out->why_refused);
        histogram_add(out->latency_ns, worker->latency_ns);
        histogram_add(out->service_ns, run->plan.open ? worker->service_ns : worker->latency_ns);
        if (worker->end_ns > end_ns)
            end_ns = worker->end_ns;
    }
    uint64_t window_ns = end_ns - start_ns;
    for (unsigned i = 0; i < run->n_started && window_ns > 0; i++) {
        const struct worker *worker = &run->workers[i];
        double cpu = (double)worker->cpu_ns / (double)window_ns;
        double wait = (double)worker->wait_ns / (double)window_ns;
        if (cpu + wait >= out->cpu_share + out->wait_share) {
            out->cpu_share = cpu;
            out->wait_share = wait;
        }
    }
    out->duration_s = (double)window_ns / 1e9;
    out->started_ms = start_ms;
    out->ended_ms = start_ms + window_ns / 1000000u;
    out->connections = config->connections;
    out->threads = config->threads;
    out->open = run->plan.open;
    out->rate_asked_per_s = config->rate_per_s;
    limit_judge(out);
}

static int nothing_connected(const struct run *run, struct diag *diag)
{
    int cause = 0;
    for (unsigned i = 0; i < run->n_started; i++) {
        struct worker *worker = &run->workers[i];
        pthread_mutex_lock(&worker->lock);
        unsigned connected = worker->connected;
        if (worker->connect_errno)
            cause = worker->connect_errno;
        pthread_mutex_unlock(&worker->lock);
        if (connected > 0)
            return 0;
    }
    return diag_set(diag, WEIR_UNAVAILABLE, "no connection to %s could be opened: %s",
                    run->url.authority, cause ? strerror(cause) : "told to stop");
}

static void go(struct run *run, struct load_result *out)
{
    uint64_t now_ns = clock_mono_ns();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    uint64_t wall_ns = (uint64_t)wall.tv_sec * NS_PER_S + (uint64_t)wall.tv_nsec;
    uint64_t delay_ns = 1000000; /* all threads are awake by then */
    if (run->config.start_at > 0) {
        uint64_t at_ns = (uint64_t)(run->config.start_at * 1e9);
        if (at_ns > wall_ns + delay_ns)
            delay_ns = at_ns - wall_ns;
    }
    uint64_t start_ns = now_ns + delay_ns, until_ns = PACER_NEVER;
    if (run->config.duration_ms > 0)
        until_ns = start_ns + run->config.duration_ms * 1000000u;
    for (unsigned i = 0; i < run->n_started; i++)
        worker_go(&run->workers[i], start_ns, until_ns);
    watch(run, start_ns);
    end_workers(run, false);
    add_up(run, start_ns, (wall_ns + delay_ns) / 1000000u, out);
}

int load_run(const struct load_config *config, struct load_result *out, struct diag *diag)
{
    struct run run = {.config = *config};
    struct diag ids_diag = {0};
    run.plan.random_ids = config->random_ids;
    int err = prepare(&run, diag);
    if (!err)
        err = start_workers(&run, diag);
    if (!err && !config->reconnect)
        err = nothing_connected(&run, diag);
    if (err)
        end_workers(&run, true);
    else
        go(&run, out);
    if (run.plan.ids && ids_close(run.plan.ids, &ids_diag) != 0 && !err)
        err = diag_set(diag, ids_diag.code, "%s", ids_diag.text);
    for (unsigned i = 0; i < run.n_started; i++)
        worker_fini(&run.workers[i]);
    mem_free(run.workers);
    template_destroy(run.template);
    buf_fini(&run.head);
    return err;
}
