/* status.c: `weir status`: /v1/status for people, from the command socket or over HTTP. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/units.h"
#include "cli/cli.h"
#include "gateway/admin.h"
#include "http/client.h"

#define TIMEOUT_MS   5000
#define DATA_DEFAULT "./weir-data"
#define URL_DEFAULT  "http://127.0.0.1:8080"

static const char usage[] =
    "usage: weir status [--watch] [--json] [--url URL | --data DIR]\n"
    "\n"
    "What runs, what waits, what is wrong. Without --url the gateway is asked over the socket in\n"
    "its data directory (./weir-data), and where there is none, at http://127.0.0.1:8080.\n"
    "\n"
    "  -w, --watch      again every second\n"
    "      --json       the document as the gateway gives it\n"
    "      --url URL    where it listens\n"
    "      --data DIR   its data directory\n"
    "      --token T    bearer token with scope read, for --url; or WEIR_TOKEN in the environment\n"
    "\n"
    "Exit codes: 0 it is ready; 1 it runs and is not ready; 2 usage; 3 nothing answers.\n";

/* ---- members of the document; what is missing is empty ---- */

static struct json_value member(struct json_value object, const char *name)
{
    struct json_value value = {0};
    json_member(object, name, &value);
    return value;
}

static double number(struct json_value object, const char *name)
{
    struct json_value value;
    if (!json_member(object, name, &value))
        return 0;
    enum json_type type = json_type(value);
    return type == JSON_INT || type == JSON_DOUBLE ? json_double(value) : 0;
}

static bool truth(struct json_value object, const char *name)
{
    struct json_value value;
    return json_member(object, name, &value) && json_type(value) == JSON_BOOL && json_bool(value);
}

/* For printf's %.*s. */
#define TEXT(object, name) (int)text(object, name).n, text(object, name).p
static struct slice text(struct json_value object, const char *name)
{
    struct json_value value;
    if (!json_member(object, name, &value) || json_type(value) != JSON_STRING)
        return SLICE_LIT("");
    return json_string(value);
}

/* ---- for people ---- */

/* 1234567 as 1,234,567; four texts may be in use at a time. */
static const char *grouped(double value)
{
    static char texts[4][40];
    static unsigned turn;
    char digits[32];
    char *out = texts[turn++ % 4];
    int n = snprintf(digits, sizeof(digits), "%.0f", value);
    int o = 0;
    for (int i = 0; i < n; i++) {
        out[o++] = digits[i];
        if ((n - 1 - i) % 3 == 0 && i + 1 < n && digits[i] != '-')
            out[o++] = ',';
    }
    out[o] = 0;
    return out;
}

static void put_duration(double seconds, char out[32])
{
    unsigned long s = (unsigned long)seconds;
    if (s >= 86400)
        snprintf(out, 32, "%lu d %lu h", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        snprintf(out, 32, "%lu h %lu min", s / 3600, s / 60 % 60);
    else if (s >= 60)
        snprintf(out, 32, "%lu min %lu s", s / 60, s % 60);
    else
        snprintf(out, 32, "%lu s", s);
}

static void print_head(struct json_value root)
{
    char up[32], used[24], limit[24], disk[24], most[24];
    struct json_value log = member(root, "log"), memory = member(root, "memory");
    struct json_value flush = member(log, "flush_us"), group = member(log, "group_records");
    put_duration(number(root, "uptime_s"), up);
    units_format_bytes((uint64_t)number(memory, "used_bytes"), used);
    units_format_bytes((uint64_t)number(memory, "limit_bytes"), limit);
    units_format_bytes((uint64_t)number(log, "bytes_on_disk"), disk);
    units_format_bytes((uint64_t)number(log, "max_bytes"), most);
    printf("weir %.*s at %.*s, up %s, pid %.0f: %s\n", TEXT(root, "weir"), TEXT(root, "url"), up,
           number(root, "pid"), truth(root, "ready") ? "ready" : "NOT READY");
    printf("data       %.*s: %.*s, %.0f partitions, %s of %s\n", TEXT(root, "data"),
           TEXT(log, "kind"), number(log, "partitions"), disk, most);
    double connections = number(member(root, "http"), "connections_open");
    double records = number(root, "accepted_records");
    printf("accepted   %s record%s, %s/s durable; %s connection%s; memory %s of %s\n",
           grouped(records), records == 1 ? "" : "s", grouped(number(log, "durable_per_s")),
           grouped(connections), connections == 1 ? "" : "s", used, limit);
    printf("flushes    %s; p50 %.2f ms, p99 %.2f ms; records in one: p50 %.0f, max %.0f\n",
           grouped(number(log, "flushes")), number(flush, "p50") / 1000,
           number(flush, "p99") / 1000, number(group, "p50"), number(group, "max"));
}

/* Those members of an object of numbers that are not 0: "memory 3, lag 1". */
static void print_counts(const char *title, struct json_value object)
{
    struct json_iter iter = json_iter(object);
    struct json_value value;
    struct slice name;
    bool any = false;
    while (json_next(&iter, &name, &value)) {
        if (json_type(value) != JSON_INT || json_int(value) == 0)
            continue;
        printf("%s%.*s %s", any ? ", " : title, (int)name.n, name.p,
               grouped((double)json_int(value)));
        any = true;
    }
    if (any)
        putchar('\n');
}

static void print_latencies(struct json_value latencies)
{
    struct json_iter iter = json_iter(latencies);
    struct json_value value;
    struct slice name;
    while (json_next(&iter, &name, &value)) {
        if (number(value, "count") > 0)
            printf("answered   %-10.*s %12s  p50 %.2f ms, p99 %.2f ms, max %.2f ms\n", (int)name.n,
                   name.p, grouped(number(value, "count")), number(value, "p50") / 1000,
                   number(value, "p99") / 1000, number(value, "max") / 1000);
    }
}

static void print_sinks(struct json_value root)
{
    struct json_value sink, consumer;
    struct json_iter sinks = json_iter(member(root, "sinks"));
    printf("\n%-16s %-8s %12s %12s %10s %8s %8s %8s\n", "sink", "kind", "stored", "waiting", "/s",
           "retries", "dead", "breaker");
    while (json_next(&sinks, NULL, &sink)) {
        struct json_iter consumers = json_iter(member(root, "consumers"));
        double lag = 0, rate = 0;
        while (json_next(&consumers, NULL, &consumer)) {
            if (slice_equal(text(consumer, "name"), text(sink, "name"))) {
                lag = number(consumer, "lag");
                rate = number(consumer, "drain_per_s");
            }
        }
        printf("%-16.*s %-8.*s %12s %12s %10s", TEXT(sink, "name"), TEXT(sink, "kind"),
               grouped(number(sink, "stored")), grouped(lag), grouped(rate));
        printf(" %8s %8s %8s\n", grouped(number(sink, "retries")),
               grouped(number(sink, "dead_letters")), truth(sink, "breaker_open") ? "OPEN" : "-");
    }
}

/* A line for each thing that somebody should look at. */
static void print_wrong(struct json_value root)
{
    struct json_value value;
    struct json_iter iter = json_iter(member(root, "sinks"));
    if (!truth(root, "ready"))
        printf("! not ready: %.*s\n", TEXT(root, "why_not_ready"));
    while (json_next(&iter, NULL, &value)) {
        double next_ms = number(value, "next_try_ms"), letters = number(value, "dead_letters");
        char when[32] = "trying now";
        if (next_ms >= 50)
            snprintf(when, sizeof(when), "next try in %.1f s", next_ms / 1000);
        if (truth(value, "breaker_open"))
            printf("! sink %.*s cannot be written; %s: %.*s\n", TEXT(value, "name"), when,
                   TEXT(value, "last_error"));
        if (letters > 0)
            printf("! sink %.*s has %s dead letter%s: weir dead list\n", TEXT(value, "name"),
                   grouped(letters), letters == 1 ? "" : "s");
    }
    iter = json_iter(member(root, "consumers"));
    while (json_next(&iter, NULL, &value))
        if (truth(value, "stopped"))
            printf("! consumer %.*s is stopped: %.*s\n", TEXT(value, "name"),
                   TEXT(value, "why_stopped"));
    iter = json_iter(member(root, "lanes"));
    while (json_next(&iter, NULL, &value))
        if (number(value, "queued") > number(value, "waiting_for_order") &&
            number(value, "oldest_queued_ms") > 1000)
            printf("! lane %.*s: %s tasks wait, the oldest for %.1f s, all %.0f threads are busy\n",
                   TEXT(value, "name"), grouped(number(value, "queued")),
                   number(value, "oldest_queued_ms") / 1000, number(value, "threads"));
    if (number(root, "lost_records") > 0)
        printf("! %s records that were answered `received` were lost\n",
               grouped(number(root, "lost_records")));
}

static int print_status(const struct buf *body)
{
    struct json_parser *parser = json_parser_create();
    struct buf padded = {0};
    struct json_value root;
    struct json_error error;
    int status;
    buf_reserve(&padded, body->n + JSON_PADDING);
    buf_put_slice(&padded, buf_slice(body));
    if (json_parse(parser, padded.p, padded.n, &root, &error) || json_type(root) != JSON_OBJECT) {
        fprintf(stderr, "weir status: what answers there is not weir\n");
        status = CLI_CANNOT;
    } else {
        print_head(root);
        print_counts("answers    ", member(root, "answers"));
        print_latencies(member(root, "latency_us"));
        print_counts("refused    ", member(root, "refused"));
        print_sinks(root);
        print_wrong(root);
        status = truth(root, "ready") ? CLI_DONE : CLI_DOES_NOT_HOLD;
    }
    json_parser_destroy(parser);
    buf_fini(&padded);
    return status;
}

/* ---- asking ---- */

struct ask {
    const char *url, *data, *token;
    bool json, watch;
};

/* What an answer that is no status says: a problem's detail, or its first bytes. */
static int refused(int status, const struct buf *body, struct diag *diag)
{
    struct json_parser *parser = json_parser_create();
    struct buf padded = {0};
    struct json_value root;
    struct json_error error;
    buf_reserve(&padded, body->n + JSON_PADDING);
    buf_put_slice(&padded, buf_slice(body));
    struct slice says = buf_slice(body);
    if (json_parse(parser, padded.p, padded.n, &root, &error) == 0 &&
        json_type(root) == JSON_OBJECT && text(root, "detail").n)
        says = text(root, "detail");
    int err = diag_set(diag, WEIR_DENIED, "it answered %d: %.*s%s", status,
                       (int)(says.n < 300 ? says.n : 300), says.p,
                       status == 401 ? " (--token T, or WEIR_TOKEN in the environment)" : "");
    json_parser_destroy(parser);
    buf_fini(&padded);
    return err;
}

static int call(const char *base_url, const char *socket_path, const struct ask *ask,
                struct buf *body, struct diag *diag)
{
    int status = 0;
    char *url = base_url ? mem_printf("%s/v1/status", base_url) : NULL;
    struct http_client_request request = {.url = url,
                                          .unix_path = socket_path,
                                          .target = "/v1/status",
                                          .method = "GET",
                                          .token = ask->token,
                                          .timeout_ms = TIMEOUT_MS};
    int err = http_client_call(&request, &status, body, diag);
    if (err == 0 && status != 200)
        err = refused(status, body, diag);
    mem_free(url);
    return err;
}

static int fetch(const struct ask *ask, struct buf *body, struct diag *diag)
{
    if (ask->url) {
        char *base = mem_strdup(ask->url);
        while (*base && base[strlen(base) - 1] == '/')
            base[strlen(base) - 1] = 0;
        int err = call(base, NULL, ask, body, diag);
        mem_free(base);
        return err;
    }
    char *path = mem_printf("%s/%s", ask->data ? ask->data : DATA_DEFAULT, ADMIN_SOCKET);
    int err = call(NULL, path, ask, body, diag);
    mem_free(path);
    if (err && !ask->data) {
        struct diag second = {0};
        if (call(URL_DEFAULT, NULL, ask, body, &second) == 0)
            err = 0;
    }
    return err;
}

static int once(const struct ask *ask)
{
    struct buf body = {0};
    struct diag diag = {0};
    int status;
    int err = fetch(ask, &body, &diag);
    if (ask->watch)
        fputs("\033[H\033[2J", stdout);
    if (err) {
        fprintf(stderr, "weir status: %s\n", diag.text);
        if (err == WEIR_UNAVAILABLE && !ask->url)
            fprintf(stderr,
                    "Does a gateway run there (weir serve)? Elsewhere: --data DIR or --url URL.\n");
        status = CLI_CANNOT;
    } else if (ask->json) {
        fwrite(body.p, 1, body.n, stdout);
        status = CLI_DONE;
    } else {
        status = print_status(&body);
    }
    fflush(stdout);
    buf_fini(&body);
    return status;
}

int cli_status(int argc, char **argv)
{
    static const struct option options[] = {{"watch", no_argument, NULL, 'w'},
                                            {"json", no_argument, NULL, 'j'},
                                            {"url", required_argument, NULL, 'u'},
                                            {"data", required_argument, NULL, 'd'},
                                            {"token", required_argument, NULL, 't'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    struct ask ask = {.token = getenv("WEIR_TOKEN")};
    int option;
    while ((option = getopt_long(argc, argv, "wh", options, NULL)) != -1) {
        switch (option) {
        case 'w':
            ask.watch = true;
            break;
        case 'j':
            ask.json = true;
            break;
        case 'u':
            ask.url = optarg;
            break;
        case 'd':
            ask.data = optarg;
            break;
        case 't':
            ask.token = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return CLI_DONE;
        default:
            fputs(usage, stderr);
            return CLI_USAGE;
        }
    }
    if (optind < argc || (ask.url && ask.data)) {
        fputs(usage, stderr);
        return CLI_USAGE;
    }
    int status = once(&ask);
    while (ask.watch) {
        sleep(1);
        status = once(&ask);
    }
    return status;
}
