/* reconcile.c: `weir reconcile`: compares every sink with an id list or with its stream's primary,
 * and repairs. Opens the stores for reading only, beside a gateway or without one. A repair goes
 * through the gateway's socket while one runs (gateway/admin.h), else the data directory is locked
 * and the sinks written here. */
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "cli/reconcile.h"
#include "delivery/repair.h"
#include "gateway/admin.h"
#include "gateway/meta.h"
#include "http/client.h"

#define DATA_DEFAULT "./weir-data"
#define SETTLE_MS    1500 /* a gateway saves moved cursors several times a second */
#define PING_MS      5000
#define REPAIR_MS    60000 /* for one batch */

static const char usage[] =
    "usage: weir reconcile [-c FILE] [--data DIR] [--ids FILE] [--sink NAME] [--json] [--repair]\n"
    "\n"
    "Compares every sink by id, version and content with an id list, or else with the primary\n"
    "sink of the stream; beside a running gateway or without one. What still waits in the log for\n"
    "its delivery is lag, and no difference.\n"
    "\n"
    "  -c, --config FILE   the gateway's configuration\n"
    "      --data DIR      its data directory (./weir-data)\n"
    "      --ids FILE      the id list (weir load --ids): a line for each record,\n"
    "                      {\"stream\":\"events\",\"id\":\"...\",\"version\":N,\"hash\":\"...\"}; "
    "version and\n"
    "                      hash may be left out; the highest version of an id counts\n"
    "      --sink NAME     only this sink\n"
    "      --repair        writes what is missing or different, from the log or the primary, and\n"
    "                      removes nothing; while a gateway runs, through it\n"
    "      --json          one JSON document on standard output, with every difference\n"
    "\n"
    "Exit codes: 0 no difference is left; 1 there is one; 2 usage, configuration or id list;\n"
    "3 it could not be done (a store is down).\n";

static const struct option long_options[] = {
    {"config", required_argument, NULL, 'c'}, {"data", required_argument, NULL, 'd'},
    {"ids", required_argument, NULL, 'i'},    {"sink", required_argument, NULL, 's'},
    {"json", no_argument, NULL, 'j'},         {"repair", no_argument, NULL, 'r'},
    {"help", no_argument, NULL, 'h'},         {0},
};

struct command {
    struct config *config;
    const char *only; /* this sink; NULL: all */
    const char *ids_path;
    bool repair;
    bool gateway; /* one runs */
    char *socket;
    struct id_list *ids;
    struct meta meta;
    struct fs_file *lock;
    struct log *log;
    struct sink *sinks[CONFIG_SINKS_MAX];
    struct buf skipped;
    struct reconcile_print print;
    unsigned n_compared; /* sinks' streams */
    /* the comparison under way */
    const char *sink, *stream;
};

static int say(const char *text, int code)
{
    fprintf(stderr, "weir reconcile: %s\n", text);
    return code;
}

/* ---- what is opened ---- */

static bool gateway_runs(struct command *command)
{
    struct http_client_request ping = {.unix_path = command->socket,
                                       .target = "/v1/admin/ping",
                                       .method = "POST",
                                       .timeout_ms = PING_MS};
    struct buf body = {0};
    int status = 0, rc = http_client_call(&ping, &status, &body, NULL);
    buf_fini(&body);
    return rc != WEIR_UNAVAILABLE; /* what listens and is slow is a gateway too */
}

static int open_data(struct command *command, struct diag *diag)
{
    const struct config *config = command->config;
    const struct fs *fs = fs_current();
    int rc = meta_read(fs, config->data, &command->meta, diag);
    if (rc == WEIR_NOT_FOUND)
        return diag_set(diag, rc, "%s: no gateway has run here (there is no META)", config->data);
    if (rc)
        return rc;
    command->socket = mem_printf("%s/%s", config->data, ADMIN_SOCKET);
    command->gateway = gateway_runs(command);
    if (command->repair && !command->gateway) {
        rc = data_lock(fs, config->data, &command->lock, diag);
        if (rc)
            return rc;
    }
    struct log_config open = {
        .fs = fs,
        .data = config->data,
        .partitions = command->meta.partitions,
        .segment_bytes = config->log.segment_bytes,
        .max_bytes = config->log.max_bytes,
        .read_only = true,
    };
    rc = log_open(config->log.kind, &open, &command->log, diag);
    return rc == WEIR_NOT_FOUND ? 0 : rc; /* nothing was ever written */
}

/* A sink is opened when it is first needed. */
static int open_sink(struct command *command, size_t index, struct diag *diag)
{
    const struct config *config = command->config;
    if (command->sinks[index])
        return 0;
    struct sink_stream *streams = mem_zalloc((config->n_streams + 1) * sizeof(*streams));
    struct sink_config open = {.name = config->sinks[index].name,
                               .options = config->sinks[index].options,
                               .streams = streams,
                               .fs = fs_current(),
                               .data = config->data,
                               .read_only = !command->lock};
    for (size_t i = 0; i < config->n_streams; i++) {
        uint32_t number;
        if (config->streams[i].sinks >> index & 1 &&
            meta_stream_find(&command->meta, config->streams[i].name, &number) == 0)
            streams[open.n_streams++] = (struct sink_stream){number, config->streams[i].name};
    }
    int rc = config->sinks[index].ops->open(&open, &command->sinks[index], diag);
    mem_free(streams);
    return rc;
}

/* ---- one comparison ---- */

static void on_found(void *context, enum difference what, struct slice id, const char *detail)
{
    reconcile_print_found(&((struct command *)context)->print, what, id, detail);
}

static void on_progress(void *context, uint64_t compared)
{
    reconcile_print_progress(&((struct command *)context)->print, compared);
}

/* As reconcile_config.write: the gateway writes. */
static int write_through_gateway(void *context, const struct batch *batch,
                                 struct sink_result *results, struct diag *diag)
{
    struct command *command = context;
    struct buf body = {0}, answer = {0};
    for (size_t i = 0; i < batch->n; i++)
        repair_line(&body, &batch->records[i]);
    char *target = mem_printf("/v1/admin/repair/%s/%s", command->sink, command->stream);
    struct http_client_request request = {.unix_path = command->socket,
                                          .target = target,
                                          .method = "POST",
                                          .content_type = "application/x-ndjson",
                                          .body = buf_slice(&body),
                                          .timeout_ms = REPAIR_MS};
    int status = 0, rc = http_client_call(&request, &status, &answer, diag);
    struct slice text = buf_slice(&answer);
    if (rc == 0 && status != 200)
        rc = diag_set(diag, status == 503 ? WEIR_UNAVAILABLE : WEIR_IO,
                      "repair: the gateway answered %d: %.*s", status,
                      (int)(text.n < 300 ? text.n : 300), text.p ? text.p : "");
    else if (rc == 0 && repair_answer_read(text, results, batch->n))
        rc = diag_set(diag, WEIR_IO, "repair: the gateway's answer cannot be understood");
    mem_free(target);
    buf_fini(&body);
    buf_fini(&answer);
    return rc;
}

static void skip(struct command *command, const char *why)
{
    struct buf *out = &command->skipped;
    buf_put_str(out, out->n ? ",\n{\"sink\":" : "\n{\"sink\":");
    buf_put_json_string(out, slice_of(command->sink));
    buf_put_str(out, ",\"stream\":");
    buf_put_json_string(out, slice_of(command->stream));
    buf_put_str(out, ",\"reason\":");
    buf_put_json_string(out, slice_of(why));
    buf_put_char(out, '}');
    if (!command->print.json)
        printf("sink %s, stream %s: not compared: %s\n", command->sink, command->stream, why);
}

static bool keeps_nothing(const struct command *command, size_t sink)
{
    return strcmp(command->config->sinks[sink].ops->kind, "null") == 0;
}

static int run_comparison(struct command *command, size_t sink, size_t stream, uint32_t number,
                          struct reconcile_result *result, struct diag *diag)
{
    const struct config *config = command->config;
    size_t primary = config->streams[stream].primary;
    struct sink_stream served = {number, config->streams[stream].name};
    struct reconcile_config run = {
        .log = command->log,
        .partitions = command->meta.partitions,
        .sink_name = command->sink,
        .consumer = command->sink,
        .primary_consumer = config->sinks[primary].name,
        .stream = &served,
        .ids = command->ids,
        .settle_ms = command->gateway ? SETTLE_MS : 0,
        .repair = command->repair,
        .context = command,
        .write = command->gateway ? write_through_gateway : NULL,
        .found = on_found,
        .progress = on_progress,
    };
    int rc = open_sink(command, sink, diag);
    if (rc == 0 && sink != primary && !keeps_nothing(command, primary))
        rc = open_sink(command, primary, diag);
    if (rc)
        return rc;
    run.sink = command->sinks[sink];
    run.primary =
        sink == primary || keeps_nothing(command, primary) ? NULL : command->sinks[primary];
    /* Only for words: without it the rest is as true. */
    if (dead_open(fs_current(), config->data, command->sink, UINT64_MAX, true, &run.dead, NULL))
        run.dead = NULL;
    rc = reconcile_run(&run, result, diag);
    if (run.dead)
        dead_close(run.dead);
    return rc;
}

static int compare(struct command *command, size_t sink, size_t stream)
{
    const struct config *config = command->config;
    const struct config_stream *served = &config->streams[stream];
    const char *primary = config->sinks[served->primary].name;
    struct reconcile_result result = {0};
    struct diag diag = {0};
    uint32_t number;
    command->sink = config->sinks[sink].name;
    command->stream = served->name;
    const char *why = NULL;
    if (meta_stream_find(&command->meta, served->name, &number))
        why = "no gateway has run with this stream yet";
    else if (keeps_nothing(command, sink))
        why = "a null sink keeps nothing";
    else if (!command->ids && sink == served->primary)
        why = "it is the primary, which the others are compared with (an id list compares it too: "
              "--ids)";
    else if (!command->ids && keeps_nothing(command, served->primary))
        why = "the primary is a null sink, which keeps nothing (an id list compares: --ids)";
    if (why) {
        skip(command, why);
        return CLI_DONE;
    }
    command->n_compared++;
    reconcile_print_comparison(&command->print, command->sink, command->stream,
                               command->ids ? command->ids_path : primary);
    int rc = run_comparison(command, sink, stream, number, &result, &diag);
    reconcile_print_result(&command->print, &result, rc ? diag.text : NULL);
    if (rc)
        return CLI_CANNOT;
    return result.missing + result.different + result.extra > result.repaired ? CLI_DOES_NOT_HOLD
                                                                              : CLI_DONE;
}

static int compare_all(struct command *command)
{
    const struct config *config = command->config;
    int code = CLI_DONE;
    reconcile_print_begin(&command->print);
    for (size_t i = 0; i < config->n_sinks; i++) {
        if (command->only && strcmp(command->only, config->sinks[i].name) != 0)
            continue;
        for (size_t s = 0; s < config->n_streams; s++) {
            int one = config->streams[s].sinks >> i & 1 ? compare(command, i, s) : CLI_DONE;
            code = one > code ? one : code;
        }
    }
    if (command->n_compared == 0 && code == CLI_DONE) /* which proves nothing */
        say("nothing was compared; a list of the ids that must be there: --ids FILE", code);
    return reconcile_print_end(&command->print, &command->skipped, code);
}

/* ---- arguments ---- */

static int read_config(struct command *command, const char *path, const char *data)
{
    struct config_problems problems = {0};
    struct diag diag = {0};
    int rc = 0;
    if (!path) {
        command->config = config_default(data ? data : DATA_DEFAULT);
        return CLI_DONE;
    }
    rc = config_read(path, &command->config, &problems);
    if (rc)
        cli_print_problems(path, &problems);
    config_problems_fini(&problems);
    if (rc == 0 && data && (rc = config_override(command->config, NULL, data, &diag)) != 0)
        say(diag.text, 0);
    return rc ? CLI_USAGE : CLI_DONE;
}

static int read_ids(struct command *command)
{
    const struct config *config = command->config;
    struct diag diag = {0};
    if (!command->ids_path)
        return CLI_DONE;
    if (id_list_read(command->ids_path, &command->ids, &diag))
        return say(diag.text, CLI_USAGE);
    for (size_t i = 0; id_list_stream(command->ids, i); i++) {
        const char *name = id_list_stream(command->ids, i);
        size_t s = 0;
        while (s < config->n_streams && strcmp(config->streams[s].name, name) != 0)
            s++;
        if (s == config->n_streams) {
            diag_set(&diag, WEIR_INVALID, "%s: stream \"%.100s\" is not in the configuration%s",
                     command->ids_path, name, config->path ? "" : ": -c FILE");
            return say(diag.text, CLI_USAGE);
        }
    }
    return CLI_DONE;
}

static int run(struct command *command, const char *config, const char *data)
{
    struct diag diag = {0};
    int code = read_config(command, config, data);
    if (code == CLI_DONE && command->only) {
        size_t i = 0;
        while (i < command->config->n_sinks &&
               strcmp(command->config->sinks[i].name, command->only) != 0)
            i++;
        if (i == command->config->n_sinks) {
            diag_set(&diag, WEIR_INVALID, "there is no sink %.100s in the configuration%s",
                     command->only, config ? "" : ": -c FILE");
            code = say(diag.text, CLI_USAGE);
        }
    }
    if (code == CLI_DONE)
        code = read_ids(command);
    if (code == CLI_DONE && open_data(command, &diag))
        code = say(diag.text, CLI_CANNOT);
    return code == CLI_DONE ? compare_all(command) : code;
}

static void close_all(struct command *command)
{
    for (size_t i = 0; i < CONFIG_SINKS_MAX; i++) {
        if (command->sinks[i])
            command->sinks[i]->ops->close(command->sinks[i]);
    }
    log_close(command->log);
    fs_close(command->lock);
    meta_fini(&command->meta);
    id_list_destroy(command->ids);
    mem_free(command->socket);
    buf_fini(&command->skipped);
    config_destroy(command->config);
}

int cli_reconcile(int argc, char **argv)
{
    struct command command = {0};
    const char *config = NULL, *data = NULL;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "c:h", long_options, NULL)) != -1) {
        switch (option) {
        case 'c':
            config = optarg;
            break;
        case 'd':
            data = optarg;
            break;
        case 'i':
            command.ids_path = optarg;
            break;
        case 's':
            command.only = optarg;
            break;
        case 'j':
            command.print.json = true;
            break;
        case 'r':
            command.repair = true;
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
        fprintf(stderr, "weir reconcile: %s: what is that for?\n", argv[optind]);
        fputs(usage, stderr);
        return CLI_USAGE;
    }
    command.print.repair = command.repair;
    command.print.progress = isatty(STDERR_FILENO);
    int code = run(&command, config, data);
    close_all(&command);
    return code;
}
