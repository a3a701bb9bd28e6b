/* config_check.c: what only the whole configuration can show: the address and who may come in,
 * limits that contradict each other, options of the sinks' kinds, stores that two sinks would share
 * (see config_reader.h). */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/units.h"
#include "gateway/config_reader.h"

/* The line of a value below the root, or of what is there of the way to it. */
static unsigned line_of(const struct yaml_node *root, const char *outer, const char *inner)
{
    const struct yaml_node *node = yaml_get(root, outer);
    const struct yaml_node *within = inner ? yaml_get(node, inner) : NULL;
    return within ? within->line : node ? node->line : 0;
}

struct place {
    struct config_reader *reader;
    unsigned line;
};

static void add_token_problem(void *context, const char *text)
{
    struct place *place = context;
    config_problem(place->reader, place->line, "%s", text);
}

static void check_access(struct config_reader *reader, const struct yaml_node *root)
{
    struct config *config = reader->config;
    struct place place = {reader, line_of(root, "tokens", NULL)};
    struct diag diag = {0};
    if (config->tokens_file)
        tokens_read(config->tokens_file, &config->tokens, &config->n_tokens, add_token_problem,
                    &place);
    if (config_check_listen(config, &diag))
        config_problem(reader, line_of(root, "listen", NULL), "listen: %s", diag.text);
}

static void check_limits(struct config_reader *reader, const struct yaml_node *root)
{
    const struct config *config = reader->config;
    char one[24], other[24];
    if (config->limits.body_bytes > config->limits.memory_bytes) {
        units_format_bytes(config->limits.body_bytes, one);
        units_format_bytes(config->limits.memory_bytes, other);
        config_problem(reader, line_of(root, "limits", "body"),
                       "limits: a body may be %s, but memory (for all bodies together) is only %s",
                       one, other);
    }
    if (config->log.max_bytes / 4 < config->log.segment_bytes) {
        units_format_bytes(config->log.max_bytes, one);
        units_format_bytes(config->log.segment_bytes, other);
        const struct yaml_node *log = yaml_get(root, "log");
        config_problem(reader,
                       line_of(root, "log", yaml_get(log, "max_bytes") ? "max_bytes" : "segment"),
                       "log: max_bytes (%s) must hold four segments (of %s) at least", one, other);
    }
}

/* "line N: text" as the kinds say it. */
static void add_sink_problem(struct config_reader *reader, const struct config_sink *sink,
                             const char *text)
{
    unsigned line = sink->line;
    int used = 0;
    if (sscanf(text, "line %u: %n", &line, &used) == 1 && used)
        text += used;
    config_problem(reader, line, "sink %s: %s", sink->name, text);
}

static void check_options(struct config_reader *reader, size_t index)
{
    const struct config *config = reader->config;
    const struct config_sink *sink = &config->sinks[index];
    struct sink_stream *streams = mem_alloc(config->n_streams * sizeof *streams);
    size_t n = 0;
    for (size_t i = 0; i < config->n_streams; i++) {
        if (config->streams[i].sinks >> index & 1)
            streams[n++] = (struct sink_stream){(uint32_t)i, config->streams[i].name};
    }
    struct sink_config given = {.name = sink->name,
                                .options = sink->options,
                                .streams = streams,
                                .n_streams = n,
                                .fs = fs_posix(),
                                .data = config->data};
    struct diag diag = {0};
    if (sink->ops->check && sink->ops->check(&given, &diag))
        add_sink_problem(reader, sink, diag.text);
    mem_free(streams);
}

/* A path in its shortest form, as far as its text shows: no empty parts, "." or "x/..". */
static void put_clean_path(struct buf *out, const char *path)
{
    while (*path) {
        size_t n = strcspn(path, "/");
        struct slice part = {path, n};
        path += n + (path[n] == '/');
        if (n == 0 || slice_is(part, "."))
            continue;
        size_t last = out->n;
        while (last > 0 && out->p[last - 1] != '/')
            last--;
        struct slice before = {out->p + last, out->n - last};
        if (slice_is(part, "..") && last > 0 && before.n && !slice_is(before, "..")) {
            out->n = last - 1;
            continue;
        }
        buf_put_char(out, '/');
        buf_put_slice(out, part);
    }
}

/* Where a sink that keeps a file keeps it; the empty buf for one that does not. */
static void put_store(const struct config *config, const struct config_sink *sink, struct buf *out)
{
    bool has_path = false;
    for (const char *const *option = sink->ops->options; option && *option; option++)
        has_path = has_path || strcmp(*option, "path") == 0;
    if (!has_path)
        return;
    char *name = mem_printf("%s.db", sink->name);
    const char *path = name;
    for (const struct sink_option *option = sink->options; option->name; option++) {
        if (strcmp(option->name, "path") == 0)
            path = option->value;
    }
    char *whole = path[0] == '/' ? mem_strdup(path) : mem_printf("%s/%s", config->data, path);
    /* A relative one and an absolute one differ in their first character. */
    buf_put_char(out, whole[0] == '/' ? '=' : '.');
    put_clean_path(out, whole);
    mem_free(whole);
    mem_free(name);
}

/* Two sinks that write one file would take each other's rows for theirs. */
static void check_stores(struct config_reader *reader)
{
    const struct config *config = reader->config;
    struct buf *stores = mem_zalloc((config->n_sinks + 1) * sizeof *stores);
    for (size_t i = 0; i < config->n_sinks; i++) {
        if (!config->sinks[i].ops)
            continue;
        put_store(config, &config->sinks[i], &stores[i]);
        for (size_t j = 0; j < i; j++) {
            if (stores[i].n == 0 || !slice_equal(buf_slice(&stores[i]), buf_slice(&stores[j])))
                continue;
            config_problem(reader, config->sinks[i].line,
                           "sink %s: writes the same file as sink %s", config->sinks[i].name,
                           config->sinks[j].name);
            break;
        }
    }
    for (size_t i = 0; i < config->n_sinks; i++)
        buf_fini(&stores[i]);
    mem_free(stores);
}

void config_check_whole(struct config_reader *reader, const struct yaml_node *root)
{
    check_access(reader, root);
    check_limits(reader, root);
    for (size_t i = 0; i < reader->config->n_sinks; i++) {
        if (reader->config->sinks[i].ops)
            check_options(reader, i);
    }
    check_stores(reader);
}
