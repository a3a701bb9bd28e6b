/* dead_change.c: `weir dead replay` and `drop`. A running gateway does it (over data/weir.sock, see
 * gateway/admin.h); without one the lock of the data directory is taken and the work done here. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/dead.h"
#include "delivery/replay.h"
#include "gateway/admin.h"
#include "gateway/meta.h"
#include "http/client.h"

#define ONE_MS 60000   /* for one letter */
#define ALL_MS 3600000 /* for all of a sink's */

struct result {
    uint64_t done, failed;
    int code;            /* exit code */
    struct buf failures; /* JSON objects, comma separated */
};

static void failed(struct result *result, const char *sink, uint64_t number, const char *code,
                   struct slice reason)
{
    bool holds_not = strcmp(code, "refused") == 0 || strcmp(code, "not_found") == 0 ||
                     strcmp(code, "corrupt") == 0;
    int exit_code = holds_not ? CLI_DOES_NOT_HOLD : CLI_CANNOT;
    result->code = exit_code > result->code ? exit_code : result->code;
    if (result->failures.n)
        buf_put_char(&result->failures, ',');
    buf_put_str(&result->failures, "\n{\"sink\":");
    buf_put_json_string(&result->failures, slice_of(sink));
    buf_printf(&result->failures, ",\"number\":%" PRIu64 ",\"code\":\"%s\",\"reason\":", number,
               code);
    buf_put_json_string(&result->failures, reason);
    buf_put_char(&result->failures, '}');
    fprintf(stderr, "weir dead: %.*s\n", (int)reason.n, reason.p);
}

static int cannot(struct result *result, const char *text)
{
    fprintf(stderr, "weir dead: %s\n", text);
    return result->code = CLI_CANNOT;
}

/* ---- through the gateway ---- */

static struct slice text_of(struct json_value object, const char *name)
{
    struct json_value value;
    if (!json_member(object, name, &value) || json_type(value) != JSON_STRING)
        return SLICE_LIT("");
    return json_string(value);
}

static uint64_t number_of(struct json_value object, const char *name)
{
    struct json_value value;
    if (!json_member(object, name, &value) || json_type(value) != JSON_INT || json_int(value) < 0)
        return 0;
    return (uint64_t)json_int(value);
}

static void read_answer(struct result *result, const char *sink, int status, struct buf *body)
{
    struct json_parser *parser = json_parser_create();
    struct json_value root, list, one;
    struct json_error error;
    buf_reserve(body, JSON_PADDING);
    bool good = json_parse(parser, body->p ? body->p : "", body->n, &root, &error) == 0 &&
                json_type(root) == JSON_OBJECT;
    if (status != 200 || !good) {
        struct slice detail = good ? text_of(root, "detail") : buf_slice(body);
        fprintf(stderr, "weir dead: sink %s: the gateway answered %d: %.*s\n", sink, status,
                (int)(detail.n < 400 ? detail.n : 400), detail.p ? detail.p : "");
        result->code = status == 404 ? CLI_USAGE : CLI_CANNOT;
    } else {
        result->done += number_of(root, "done");
        result->failed += number_of(root, "failed");
        if (json_member(root, "failures", &list) && json_type(list) == JSON_ARRAY) {
            struct json_iter iter = json_iter(list);
            while (json_next(&iter, NULL, &one)) {
                char code[32];
                struct slice name = text_of(one, "code");
                snprintf(code, sizeof(code), "%.*s", (int)name.n, name.p);
                failed(result, sink, number_of(one, "number"), code, text_of(one, "reason"));
            }
        }
    }
    json_parser_destroy(parser);
}

/* WEIR_UNAVAILABLE: no gateway listens there. */
static int ask_gateway(const struct dead_command *command, const char *socket, const char *sink,
                       uint64_t number, struct result *result, struct diag *diag)
{
    const char *verb = command->replay ? "replay" : "drop";
    char *target = number ? mem_printf("/v1/admin/dead/%s/%s?number=%" PRIu64, sink, verb, number)
                          : mem_printf("/v1/admin/dead/%s/%s?all", sink, verb);
    struct http_client_request request = {.unix_path = socket,
                                          .target = target,
                                          .method = "POST",
                                          .timeout_ms = number ? ONE_MS : ALL_MS};
    struct buf body = {0};
    int status = 0, rc = http_client_call(&request, &status, &body, diag);
    if (rc == 0)
        read_answer(result, sink, status, &body);
    buf_fini(&body);
    mem_free(target);
    return rc;
}

/* True: a gateway was there, and *result says what it did. */
static bool through_gateway(const struct dead_command *command, struct result *result)
{
    char *socket = mem_printf("%s/%s", command->data, ADMIN_SOCKET);
    struct diag diag = {0};
    bool there = true;
    int rc = 0;
    for (char **sink = command->sinks; rc == 0 && *sink; sink++) {
        if (command->all)
            rc = ask_gateway(command, socket, *sink, 0, result, &diag);
        for (size_t i = 0; rc == 0 && i < command->n_numbers; i++)
            rc = ask_gateway(command, socket, *sink, command->numbers[i], result, &diag);
        if (rc == WEIR_UNAVAILABLE && sink == command->sinks && !result->done && !result->failed)
            there = false;
    }
    if (rc && there)
        cannot(result, diag.text);
    mem_free(socket);
    return there;
}

/* ---- without a gateway ---- */

struct direct {
    const struct dead_command *command;
    const struct config *config;
    struct result *result;
    struct dead *dead;
    const char *name;
    struct sink *sink; /* replay only */
    struct sink_session *session;
};

/* The built-in configuration is only a guess when no file was named: its store must be there
 * already, or the letters would go into one that nobody looks at. */
static int check_guess(const struct direct *direct, const struct sink_ops *ops,
                       const struct sink_config *config, struct diag *diag)
{
    struct sink_config look = *config;
    struct sink *sink;
    look.read_only = true;
    if (direct->command->config)
        return 0;
    if (ops->open(&look, &sink, NULL))
        return diag_set(diag, WEIR_INVALID,
                        "sink %s: no gateway runs here, and without one its configuration is "
                        "needed: -c FILE",
                        direct->name);
    ops->close(sink);
    return 0;
}

/* The sink as the gateway would open it. */
static int open_sink(struct direct *direct, struct diag *diag)
{
    const struct config *config = direct->config;
    size_t index = 0;
    while (index < config->n_sinks && strcmp(config->sinks[index].name, direct->name) != 0)
        index++;
    if (index == config->n_sinks)
        return diag_set(diag, WEIR_INVALID, "sink %s: it is not in the configuration%s",
                        direct->name, direct->command->config ? "" : ": -c FILE");
    struct meta meta = {0};
    int rc = meta_read(fs_current(), config->data, &meta, diag);
    if (rc)
        return rc;
    struct sink_stream *streams = mem_zalloc((config->n_streams + 1) * sizeof(*streams));
    struct sink_config open = {.name = direct->name,
                               .options = config->sinks[index].options,
                               .streams = streams,
                               .fs = fs_current(),
                               .data = config->data};
    for (size_t i = 0; i < config->n_streams; i++) {
        uint32_t number;
        if (config->streams[i].sinks >> index & 1 &&
            meta_stream_find(&meta, config->streams[i].name, &number) == 0)
            streams[open.n_streams++] = (struct sink_stream){number, config->streams[i].name};
    }
    const struct sink_ops *ops = config->sinks[index].ops;
    rc = check_guess(direct, ops, &open, diag);
    if (rc == 0)
        rc = ops->open(&open, &direct->sink, diag);
    if (rc == 0)
        rc = ops->session_open(direct->sink, false, &direct->session, diag);
    mem_free(streams);
    meta_fini(&meta);
    return rc;
}

static void change_one(struct direct *direct, uint64_t number)
{
    struct diag diag = {0};
    int rc = direct->command->replay ? dead_replay(direct->dead, number, direct->session, &diag)
                                     : dead_drop(direct->dead, number, &diag);
    if (rc == 0) {
        direct->result->done++;
        return;
    }
    direct->result->failed++;
    failed(direct->result, direct->name, number, weir_err_name(rc), slice_of(diag.text));
}

static int change_letter(void *context, const struct dead_letter *letter)
{
    change_one(context, letter->number);
    return 0;
}

static void change_sink(const struct dead_command *command, const struct config *config,
                        const char *name, struct result *result)
{
    struct direct direct = {.command = command, .config = config, .result = result, .name = name};
    struct diag diag = {0};
    uint64_t letters = 0, bytes;
    int rc = dead_open(fs_current(), command->data, name, UINT64_MAX, false, &direct.dead, &diag);
    if (rc == 0)
        dead_stats(direct.dead, &letters, &bytes);
    if (rc == 0 && command->replay && letters)
        rc = open_sink(&direct, &diag);
    if (rc == 0 && command->all)
        rc = dead_scan(direct.dead, change_letter, &direct, &diag);
    for (size_t i = 0; rc == 0 && i < command->n_numbers; i++)
        change_one(&direct, command->numbers[i]);
    if (rc)
        cannot(result, diag.text);
    if (rc == WEIR_INVALID)
        result->code = CLI_USAGE;
    if (direct.session)
        direct.session->ops->session_close(direct.session);
    if (direct.sink)
        direct.sink->ops->close(direct.sink);
    dead_close(direct.dead);
}

static void directly(const struct dead_command *command, struct result *result)
{
    struct fs_file *lock;
    struct diag diag = {0};
    uint64_t bytes;
    /* Locking creates the directory, and this command should create nothing. */
    if (fs_current()->free_bytes(fs_current(), command->data, &bytes)) {
        snprintf(diag.text, sizeof(diag.text), "%s: there is no such data directory",
                 command->data);
        cannot(result, diag.text);
        return;
    }
    if (data_lock(fs_current(), command->data, &lock, &diag)) {
        cannot(result, diag.text);
        return;
    }
    struct config *built_in = command->config ? NULL : config_default(command->data);
    for (char **sink = command->sinks; *sink; sink++)
        change_sink(command, command->config ? command->config : built_in, *sink, result);
    config_destroy(built_in);
    fs_close(lock);
}

int dead_change(const struct dead_command *command)
{
    struct result result = {0};
    if (!through_gateway(command, &result))
        directly(command, &result);
    const char *word = command->replay ? "replayed" : "dropped";
    if (command->json)
        printf("{\"%s\":%" PRIu64 ",\"failed\":%" PRIu64 ",\"failures\":[%s]}\n", word, result.done,
               result.failed, result.failures.n ? buf_str(&result.failures) : "");
    else
        printf("%" PRIu64 " %s, %" PRIu64 " failed\n", result.done, word, result.failed);
    buf_fini(&result.failures);
    return result.code;
}
