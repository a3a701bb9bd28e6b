/* config_streams.c: the streams of the configuration file (see config_reader.h). The sinks are read
 * already. */
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"
#include "gateway/config_reader.h"

#define OF(member) offsetof(struct config_stream, member)

enum { STREAMS_MAX = 1000 };

static const struct config_name stream_names[] = {
    {"id", KIND_TEXT, OF(id), 0, 0},
    {"key", KIND_TEXT, OF(key), 0, 0},
    {"ack", KIND_OWN, 0, 0, 0},
    {"ack_timeout", KIND_MS, OF(ack_timeout_ms), 1, (uint64_t)3600 * 1000},
    {"primary", KIND_OWN, 0, 0, 0},
    {"sinks", KIND_OWN, 0, 0, 0},
    {0},
};

const struct config_section config_section_stream = {"stream", stream_names};

static void check_pointer(struct config_reader *reader, const char *name,
                          const struct yaml_node *map, const char *pointer)
{
    const struct yaml_node *node = yaml_get(map, name);
    if (!node || !pointer)
        return;
    if (json_pointer_check(slice_of(pointer)))
        config_problem(reader, node->line,
                       "%s: \"%.64s\" is not a JSON Pointer; it begins with \"/\", such as "
                       "/order/no, and \"~\" is followed by 0 or 1",
                       name, pointer);
}

static void read_ack(struct config_reader *reader, const struct yaml_node *node,
                     struct config_stream *stream)
{
    static const char *const levels[] = {"received", "durable", "stored", "everywhere", NULL};
    char *text = config_text(reader, "ack", node);
    if (text && ack_level_parse(slice_of(text), &stream->ack))
        config_unknown(reader, node->line, "ack: the level", slice_of(text), levels);
    mem_free(text);
}

/* The place of the named sink, or -1 (reported). */
static int find_sink(struct config_reader *reader, const char *name, const struct yaml_node *node)
{
    const struct config *config = reader->config;
    const char *known[CONFIG_SINKS_MAX + 1];
    char *text = config_text(reader, name, node);
    int found = -1;
    if (!text)
        return -1;
    for (size_t i = 0; i < config->n_sinks; i++) {
        known[i] = config->sinks[i].name;
        if (strcmp(text, known[i]) == 0)
            found = (int)i;
    }
    known[config->n_sinks] = NULL;
    if (found < 0 && config->n_sinks) {
        char what[32];
        snprintf(what, sizeof what, "%s: the sink", name);
        config_unknown(reader, node->line, what, slice_of(text), known);
    } else if (found < 0) {
        config_problem(reader, node->line, "%s: there is no sink \"%.64s\"", name, text);
    }
    mem_free(text);
    return found;
}

/* Left out: all sinks. The first one listed is the primary unless another is named. */
static void read_sinks(struct config_reader *reader, const struct yaml_node *map,
                       struct config_stream *stream)
{
    const struct yaml_node *list = yaml_get(map, "sinks"), *primary = yaml_get(map, "primary");
    size_t n_sinks = reader->config->n_sinks;
    bool whole = true;
    stream->primary = 0;
    if (!list) {
        stream->sinks = n_sinks >= 64 ? UINT64_MAX : ((uint64_t)1 << n_sinks) - 1;
    } else if (list->kind != YAML_LIST || list->n == 0) {
        config_problem(reader, list->line, "sinks: must be a list of sinks, such as [main]");
        whole = false;
    } else {
        for (unsigned i = 0; i < list->n; i++) {
            int sink = find_sink(reader, "sinks", list->items[i]);
            whole = whole && sink >= 0;
            if (sink < 0)
                continue;
            if (stream->sinks == 0)
                stream->primary = (unsigned)sink;
            if (stream->sinks >> sink & 1)
                config_problem(reader, list->items[i]->line, "sinks: %s is there twice",
                               reader->config->sinks[sink].name);
            stream->sinks |= (uint64_t)1 << sink;
        }
    }
    if (!primary)
        return;
    int sink = find_sink(reader, "primary", primary);
    if (sink < 0)
        return;
    stream->primary = (unsigned)sink;
    if (whole && !(stream->sinks >> sink & 1))
        config_problem(reader, primary->line, "primary: %s is not among the sinks of the stream",
                       reader->config->sinks[sink].name);
}

static void read_stream(struct config_reader *reader, const char *name, const struct yaml_node *map)
{
    struct config_stream *stream = config_add_stream(reader->config, name, map->line);
    const struct yaml_node *node;
    if (!config_read_map(reader, &config_section_stream, map, stream, NULL))
        return;
    check_pointer(reader, "id", map, stream->id);
    check_pointer(reader, "key", map, stream->key);
    if ((node = yaml_get(map, "ack")))
        read_ack(reader, node, stream);
    read_sinks(reader, map, stream);
}

void config_read_streams(struct config_reader *reader, const struct yaml_node *node)
{
    if (node->kind != YAML_MAP || node->n == 0) {
        config_problem(reader, node->line,
                       "streams: must be a map with at least one stream, such "
                       "as {events: {id: /id}}");
        return;
    }
    for (unsigned i = 0; i < node->n; i++) {
        const struct yaml_node *key = node->keys[i];
        if (!config_name_good(key->scalar))
            config_problem(reader, key->line,
                           "the stream's name \"%.64s\" is not 1 to 64 of a-z A-Z 0-9 _ . - (the "
                           "first not a point)",
                           key->scalar.p);
        if (i == STREAMS_MAX) {
            config_problem(reader, key->line, "more than %d streams", STREAMS_MAX);
            return;
        }
        read_stream(reader, key->scalar.p, node->items[i]);
    }
}
