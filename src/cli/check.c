/* check.c: `weir check`: reads a configuration, says what is wrong with it, or what it means.
 * Connects to nothing and makes nothing. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/buf.h"
#include "base/units.h"
#include "cli/cli.h"

static const char usage[] =
    "usage: weir check -c FILE\n"
    "\n"
    "Validates a configuration and connects to nothing. Every mistake is named with its line on\n"
    "standard error; a good file is summed up on standard output.\n"
    "\n"
    "  -c, --config FILE     the configuration\n"
    "\n"
    "Exit codes: 0 the configuration is good; 2 it is not, or it cannot be read.\n";

static const struct option long_options[] = {
    {"config", required_argument, NULL, 'c'},
    {"help", no_argument, NULL, 'h'},
    {0},
};

void cli_print_problems(const char *path, const struct config_problems *problems)
{
    for (size_t i = 0; i < problems->n; i++) {
        const struct config_problem *problem = &problems->list[i];
        if (problem->line)
            fprintf(stderr, "%s:%u: %s\n", path, problem->line, problem->text);
        else
            fprintf(stderr, "%s: %s\n", path, problem->text);
    }
}

static void put_duration(struct buf *out, uint64_t ms)
{
    bool seconds = ms % 1000 == 0;
    buf_printf(out, "%" PRIu64 " %s", seconds ? ms / 1000 : ms, seconds ? "s" : "ms");
}

static void put_front(struct buf *out, const struct config *config)
{
    char segment[24], max[24];
    units_format_bytes(config->log.segment_bytes, segment);
    units_format_bytes(config->log.max_bytes, max);
    const char *who = config->n_tokens   ? "with tokens"
                      : config->insecure ? "open to everybody who can reach it"
                                         : "this machine only";
    buf_printf(out, "listen   %s, %s\n", config->listen, who);
    buf_printf(out, "data     %s\n", config->data);
    buf_printf(out, "log      %s, %u partition%s, segments of %s, at most %s\n", config->log.kind,
               config->log.partitions, config->log.partitions == 1 ? "" : "s", segment, max);
}

static void put_stream(struct buf *out, const struct config *config,
                       const struct config_stream *stream)
{
    const char *primary = config->sinks[stream->primary].name;
    buf_printf(out, "stream   %s: id %s%s, key %s, ack %s (at most ", stream->name,
               stream->id ? stream->id : "Idempotency-Key or given by weir",
               stream->id_optional ? " where it is there" : "", stream->key ? stream->key : "= id",
               ack_level_name(stream->ack));
    put_duration(out, stream->ack_timeout_ms);
    buf_printf(out, "), sinks %s (primary)", primary);
    for (size_t i = 0; i < config->n_sinks; i++) {
        if (stream->sinks >> i & 1 && i != stream->primary)
            buf_printf(out, ", %s", config->sinks[i].name);
    }
    buf_put_char(out, '\n');
}

static void put_sink(struct buf *out, const struct config *config, size_t index)
{
    const struct config_sink *sink = &config->sinks[index];
    bool used = false;
    for (size_t i = 0; i < config->n_streams; i++)
        used = used || config->streams[i].sinks >> index & 1;
    buf_printf(out, "sink     %s: %s, order by %s, batches of %u, %u thread%s, retry after ",
               sink->name, sink->ops->kind, sink->ordered ? "key" : "nothing", sink->batch_records,
               sink->lane.threads, sink->lane.threads == 1 ? "" : "s");
    put_duration(out, sink->retry_min_ms);
    buf_put_str(out, " to ");
    put_duration(out, sink->retry_max_ms);
    /* Names of options only: a value may be a secret. */
    for (const struct sink_option *option = sink->options; option->name; option++)
        buf_printf(out, "%s%s", option == sink->options ? "; sets " : ", ", option->name);
    buf_put_str(out, used ? "\n" : "; no stream uses it\n");
}

static int print_summary(const struct config *config)
{
    struct buf out = {0};
    buf_printf(&out, "%s is good\n", config->path);
    put_front(&out, config);
    for (size_t i = 0; i < config->n_streams; i++)
        put_stream(&out, config, &config->streams[i]);
    for (size_t i = 0; i < config->n_sinks; i++)
        put_sink(&out, config, i);
    size_t written = fwrite(out.p, 1, out.n, stdout);
    bool whole = written == out.n && fflush(stdout) == 0;
    buf_fini(&out);
    return whole ? CLI_DONE : CLI_CANNOT;
}

int cli_check(int argc, char **argv)
{
    const char *path = NULL;
    int option;
    optind = 1;
    while ((option = getopt_long(argc, argv, "c:h", long_options, NULL)) != -1) {
        if (option == 'h') {
            fputs(usage, stdout);
            return CLI_DONE;
        }
        if (option != 'c') {
            fputs(usage, stderr);
            return CLI_USAGE;
        }
        path = optarg;
    }
    if (!path || optind < argc) {
        fprintf(stderr, "weir check: %s\n", path ? "too many arguments" : "which file? (-c FILE)");
        fputs(usage, stderr);
        return CLI_USAGE;
    }
    struct config *config;
    struct config_problems problems;
    if (config_read(path, &config, &problems)) {
        cli_print_problems(path, &problems);
        fprintf(stderr, "%zu mistake%s\n", problems.n, problems.n == 1 ? "" : "s");
        config_problems_fini(&problems);
        return CLI_USAGE;
    }
    config_problems_fini(&problems);
    int code = print_summary(config);
    config_destroy(config);
    return code;
}
