/* serve.c: `weir serve`: a configuration, a gateway, and signals.
 *
 * The main thread waits for signals; all other threads have them blocked. The first SIGTERM or
 * SIGINT stops the gateway; while it stops, a second one, or the time running out on a disk that
 * does not answer, ends the process at once. */
#include <errno.h>
#include <getopt.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "gateway/gateway.h"
#include "gateway/tell.h"
#include "os/listen.h"
#include "os/thread.h"

#define ARENAS       2 /* of malloc: more of them only keep more memory */
#define OVERTIME_S   10
#define DATA_DEFAULT "./weir-data"

static const char usage[] =
    "usage: weir serve [-c FILE] [--data DIR] [--listen ADDR:PORT]\n"
    "\n"
    "Runs the gateway. Without a file: a journal and SQLite in ./weir-data, stream `events`,\n"
    "on 127.0.0.1:8080.\n"
    "\n"
    "  -c, --config FILE      the configuration\n"
    "      --data DIR         where the data lies, instead of what the configuration says\n"
    "      --listen ADDR:PORT the address, likewise; port 0 takes a free one\n"
    "\n"
    "SIGTERM or SIGINT: stop in order; a second one: at once. SIGHUP: read the tokens again.\n";

/* ---- the configuration ---- */

static void print_problems(const char *path, struct config_problems *problems)
{
    for (size_t i = 0; i < problems->n; i++) {
        const struct config_problem *problem = &problems->list[i];
        if (problem->line)
            fprintf(stderr, "%s:%u: %s\n", path, problem->line, problem->text);
        else
            fprintf(stderr, "%s: %s\n", path, problem->text);
    }
    config_problems_fini(problems);
}

static struct config *read_config(const char *path, const char *data, const char *listen)
{
    struct config *config = NULL;
    struct config_problems problems = {0};
    struct diag diag = {0};
    if (!path) {
        config = config_default(data ? data : DATA_DEFAULT);
    } else if (config_read(path, &config, &problems)) {
        print_problems(path, &problems);
        return NULL;
    }
    if (config_override(config, listen, data, &diag)) {
        fprintf(stderr, "weir: %s\n", diag.text);
        config_destroy(config);
        return NULL;
    }
    return config;
}

/* SIGHUP. Only the tokens can change while it runs. */
static void reread(const struct config *config, struct gateway *gateway)
{
    struct config *fresh;
    struct config_problems problems = {0};
    if (!config->path) {
        tell("SIGHUP: there is no configuration file to read again");
        return;
    }
    if (config_read(config->path, &fresh, &problems)) {
        for (size_t i = 0; i < problems.n; i++)
            tell("SIGHUP: %s:%u: %s", config->path, problems.list[i].line, problems.list[i].text);
        config_problems_fini(&problems);
        tell("SIGHUP: nothing was changed");
        return;
    }
    if (fresh->n_tokens == 0 && config->n_tokens > 0) {
        tell("SIGHUP: refused: no token is left, and taking the last one away needs a restart");
    } else {
        gateway_use_tokens(gateway, fresh->tokens, fresh->n_tokens);
        tell("SIGHUP: %zu tokens were read; whatever else changed in %s needs a restart",
             fresh->n_tokens, config->path);
    }
    config_destroy(fresh);
}

/* ---- what it says when it runs ---- */

/* A record that the stream takes: its id and key where their pointers say, when those are simple
 * names. */
static void put_example(struct buf *out, const struct config_stream *stream)
{
    const char *pointers[] = {stream->id, stream->key};
    buf_put_char(out, '{');
    for (size_t i = 0; i < 2; i++) {
        const char *pointer = pointers[i];
        if (!pointer || pointer[0] != '/' || strchr(pointer + 1, '/') || strchr(pointer, '~') ||
            strchr(pointer, '\''))
            continue;
        if (i == 1 && stream->id && strcmp(stream->id, pointer) == 0)
            continue;
        buf_put_json_string(out, slice_of(pointer + 1));
        buf_put_str(out, i == 0 ? ":\"first\"," : ":\"one\",");
    }
    buf_put_str(out, "\"hello\":\"weir\"}");
}

static void announce(const struct config *config, const struct gateway *gateway)
{
    struct buf example = {0};
    put_example(&example, &config->streams[0]);
    printf("weir: listening on %s\n", gateway_url(gateway));
    printf("  data:   %s (%s", config->data, config->log.kind);
    for (size_t i = 0; i < config->n_sinks; i++)
        printf(", %s: %s", config->sinks[i].name, config->sinks[i].ops->kind);
    printf(")\n");
    printf("  try:    curl -sS %s/v1/streams/%s -H 'content-type: application/json'%s -d '%s'\n",
           gateway_url(gateway), config->streams[0].name,
           config->n_tokens ? " -H 'authorization: Bearer TOKEN'" : "", buf_str(&example));
    fflush(stdout);
    buf_fini(&example);
}

/* ---- signals ---- */

static void *watchdog(void *argument)
{
    uint64_t until_ns = clock_mono_ns() + (uint64_t)(size_t)argument * 1000000000;
    sigset_t stops;
    int got;
    sigemptyset(&stops);
    sigaddset(&stops, SIGTERM);
    sigaddset(&stops, SIGINT);
    do { /* a debugger or a sanitizer may interrupt it */
        uint64_t now_ns = clock_mono_ns();
        uint64_t left_ns = now_ns < until_ns ? until_ns - now_ns : 0;
        const struct timespec left = {(time_t)(left_ns / 1000000000), (long)(left_ns % 1000000000)};
        got = sigtimedwait(&stops, NULL, &left);
    } while (got < 0 && errno == EINTR);
    tell(got > 0 ? "a second signal: ending at once"
                 : "stopping takes longer than drain_timeout allows: ending at once");
    _exit(1);
}

static void stop(const struct config *config, struct gateway *gateway)
{
    size_t patience = config->limits.drain_timeout_ms / 1000 + OVERTIME_S;
    pthread_t thread;
    /* It is left to itself: the process ends before it, or by it. */
    if (thread_start(&thread, "watchdog", 0, watchdog, (void *)patience) == 0)
        pthread_detach(thread);
    gateway_stop(gateway);
}

static int run(const struct config *config)
{
    struct gateway *gateway;
    struct diag diag = {0};
    sigset_t signals;
    int got;

    signal(SIGPIPE, SIG_IGN);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &signals, NULL);
    mallopt(M_ARENA_MAX, ARENAS);
    listen_raise_file_limit();

    int err = gateway_start(config, fs_current(), &gateway, &diag);
    if (err) {
        fprintf(stderr, "weir: %s\n", diag.text);
        return err == WEIR_INVALID ? CLI_USAGE : CLI_CANNOT;
    }
    announce(config, gateway);
    do {
        if (sigwait(&signals, &got) == 0 && got == SIGHUP)
            reread(config, gateway);
    } while (got == SIGHUP);
    stop(config, gateway);
    return CLI_DONE;
}

int cli_serve(int argc, char **argv)
{
    static const struct option options[] = {{"config", required_argument, NULL, 'c'},
                                            {"data", required_argument, NULL, 'd'},
                                            {"listen", required_argument, NULL, 'l'},
                                            {"help", no_argument, NULL, 'h'},
                                            {0}};
    const char *path = NULL, *data = NULL, *listen = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "c:h", options, NULL)) != -1) {
        switch (option) {
        case 'c':
            path = optarg;
            break;
        case 'd':
            data = optarg;
            break;
        case 'l':
            listen = optarg;
            break;
        case 'h':
            fputs(usage, stdout);
            return CLI_DONE;
        default:
            fputs(usage, stderr);
            return CLI_USAGE;
        }
    }
    if (optind < argc) {
        fprintf(stderr, "weir serve: %s is not expected\n%s", argv[optind], usage);
        return CLI_USAGE;
    }
    struct config *config = read_config(path, data, listen);
    if (!config)
        return CLI_USAGE;
    int status = run(config);
    config_destroy(config);
    return status;
}
