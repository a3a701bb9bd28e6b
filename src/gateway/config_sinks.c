/* config_sinks.c: the sinks of the configuration file (see config_reader.h).
 *
 * A sink's map holds weir's own names and its kind's options; the kind says which options there
 * are and checks their values. */
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gateway/config_reader.h"

#define KIB        ((uint64_t)1 << 10)
#define GIB        ((uint64_t)1 << 30)
#define HOUR_MS    ((uint64_t)3600 * 1000)
#define OF(member) offsetof(struct config_sink, member)

static const struct config_name sink_names[] = {
    {"kind", KIND_OWN, 0, 0, 0},
    {"order", KIND_OWN, 0, 0, 0},
    {"lane", KIND_OWN, 0, 0, 0},
    {"batch", KIND_NUMBER32, OF(batch_records), 1, 100000},
    {"batch_bytes", KIND_BYTES, OF(batch_bytes), KIB, GIB},
    {"retry_min", KIND_MS, OF(retry_min_ms), 1, HOUR_MS},
    {"retry_max", KIND_MS, OF(retry_max_ms), 1, 24 * HOUR_MS},
    {0},
};

static const struct config_name lane_names[] = {
    {"threads", KIND_NUMBER32, OF(lane.threads), 1, 256},
    {"queue", KIND_NUMBER32, OF(lane.queue), 1, 1000000},
    {"when_full", KIND_OWN, 0, 0, 0},
    {"split", KIND_NUMBER32, OF(lane.split), 1, 64},
    {"fibers", KIND_LATER, 0, 0, 0},
    {0},
};

const struct config_section config_section_sink = {"sink", sink_names};
const struct config_section config_section_lane = {"lane", lane_names};

/* One of a few words: its place in the list, or -1 (reported). */
static int read_word(struct config_reader *reader, const char *name, const struct yaml_node *node,
                     const char *const *words)
{
    char *text = config_text(reader, name, node);
    int found = -1;
    if (!text)
        return -1;
    for (int i = 0; words[i]; i++) {
        if (strcmp(words[i], text) == 0)
            found = i;
    }
    if (found < 0) {
        char what[64];
        snprintf(what, sizeof what, "%s: the value", name);
        config_unknown(reader, node->line, what, slice_of(text), words);
    }
    mem_free(text);
    return found;
}

static const struct sink_ops *read_kind(struct config_reader *reader, const char *name,
                                        const struct yaml_node *map)
{
    static const char *const later[] = {"mysql", "redis", "elastic", "mongo", "kafka", NULL};
    const struct yaml_node *node = yaml_get(map, "kind");
    if (!node) {
        config_problem(reader, map->line, "sink %s: its kind is missing, such as kind: sqlite",
                       name);
        return NULL;
    }
    char *text = config_text(reader, "kind", node);
    if (!text)
        return NULL;
    const struct sink_ops *ops = sink_find(text);
    bool reported = ops != NULL;
    for (const char *const *kind = later; !reported && *kind; kind++) {
        if (strcmp(text, *kind) == 0) {
            config_problem(reader, node->line, "sink %s: kind %s is not in this version of weir",
                           name, *kind);
            reported = true;
        }
    }
    if (!reported)
        config_unknown(reader, node->line, "the kind", slice_of(text), sink_kinds());
    mem_free(text);
    return ops;
}

static void read_lane(struct config_reader *reader, const struct yaml_node *node,
                      struct config_sink *sink)
{
    static const char *const words[] = {"block", NULL};
    static const char *const later[] = {"caller_runs", "reject", "drop_oldest", "drop_newest",
                                        NULL};
    if (!config_read_map(reader, &config_section_lane, node, sink, NULL))
        return;
    const struct yaml_node *when_full = yaml_get(node, "when_full");
    if (!when_full)
        return;
    for (const char *const *word = later; *word; word++) {
        if (slice_is(when_full->scalar, *word)) {
            config_problem(reader, when_full->line, "when_full: %s is not in this version of weir",
                           *word);
            return;
        }
    }
    read_word(reader, "when_full", when_full, words);
}

static bool is_own_name(struct slice name)
{
    for (const struct config_name *n = sink_names; n->name; n++) {
        if (slice_is(name, n->name))
            return true;
    }
    return false;
}

/* The options of the kind, as text; unknown names are config_read_map's to report. */
static void read_options(struct config_reader *reader, const struct yaml_node *map,
                         struct config_sink *sink)
{
    size_t n = 0;
    mem_free(sink->options);
    sink->options = mem_zalloc((map->n + 1) * sizeof *sink->options);
    for (unsigned i = 0; i < map->n; i++) {
        struct slice name = map->keys[i]->scalar;
        bool known = false;
        for (const char *const *option = sink->ops->options; option && *option; option++)
            known = known || slice_is(name, *option);
        if (!known || is_own_name(name))
            continue;
        char *value = config_text(reader, name.p, map->items[i]);
        if (!value)
            continue;
        sink->options[n++] = (struct sink_option){
            .name = mem_strdup(name.p), .value = value, .line = map->items[i]->line};
    }
}

static void read_sink(struct config_reader *reader, const char *name, const struct yaml_node *map)
{
    static const char *const orders[] = {"key", "none", NULL};
    const struct yaml_node *node;
    struct config_sink *sink = config_add_sink(reader->config, name, map->line);
    if (map->kind != YAML_MAP) {
        config_problem(reader, map->line, "sink %s: must be a map, such as {kind: sqlite}", name);
        return;
    }
    size_t before = reader->problems->n;
    sink->ops = read_kind(reader, name, map);
    /* Without a kind nobody knows the options; the mistake in the kind is enough. */
    if (sink->ops || reader->problems->n == before || !yaml_get(map, "kind"))
        config_read_map(reader, &config_section_sink, map, sink,
                        sink->ops ? sink->ops->options : NULL);
    sink->lane.threads = sink->ops && sink->ops->writers != 1 ? 4 : 1;
    if ((node = yaml_get(map, "lane")))
        read_lane(reader, node, sink);
    if ((node = yaml_get(map, "order")))
        sink->ordered = read_word(reader, "order", node, orders) != 1;
    if (sink->retry_max_ms < sink->retry_min_ms) {
        node = yaml_get(map, "retry_max");
        config_problem(reader, node ? node->line : map->line,
                       "sink %s: retry_max is less than retry_min", name);
    }
    if (sink->ops)
        read_options(reader, map, sink);
}

void config_read_sinks(struct config_reader *reader, const struct yaml_node *node)
{
    if (node->kind != YAML_MAP || node->n == 0) {
        config_problem(reader, node->line,
                       "sinks: must be a map with at least one sink, such as "
                       "{main: {kind: sqlite}}");
        return;
    }
    for (unsigned i = 0; i < node->n; i++) {
        const struct yaml_node *key = node->keys[i];
        if (!config_name_good(key->scalar))
            config_problem(reader, key->line,
                           "the sink's name \"%.64s\" is not 1 to 64 of a-z A-Z 0-9 _ . - (the "
                           "first not a point)",
                           key->scalar.p);
        if (i == CONFIG_SINKS_MAX) {
            config_problem(reader, key->line, "more than %d sinks", CONFIG_SINKS_MAX);
            return;
        }
        read_sink(reader, key->scalar.p, node->items[i]);
    }
}
