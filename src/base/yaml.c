/* yaml.c: a YAML file as a tree that remembers lines (see yaml.h).
 *
 * The builder recurses over the text, so it has a limit, DEPTH_MAX: no configuration nests deeper,
 * and a hostile file ends there. */
#include "base/yaml.h"

#include <yaml.h>

#include "base/mem.h"

enum { DEPTH_MAX = 32, NAME_LONGEST = 64 };

struct builder {
    yaml_parser_t parser;
    const char *name;
    struct diag *diag;
};

static struct yaml_node *build(struct builder *builder, const yaml_event_t *event, unsigned depth);

/* Always NULL, so that a failure is one line. */
static void *refuse(struct builder *builder, yaml_mark_t mark, const char *text)
{
    diag_set(builder->diag, WEIR_SYNTAX, "%s:%zu: %s", builder->name, mark.line + 1, text);
    return NULL;
}

/* libyaml names the place well and the cause badly: what it mostly is. */
static const char *hint(const char *problem)
{
    if (strstr(problem, "cannot start any token") || strstr(problem, "tab character"))
        return " (a tab? YAML is indented with spaces)";
    if (strstr(problem, "',' or '}'") || strstr(problem, "',' or ']'"))
        return " (a value with { } [ ] or a comma, such as ${NAME}, needs quotes there)";
    return "";
}

static bool next_event(struct builder *builder, yaml_event_t *event)
{
    yaml_parser_t *parser = &builder->parser;
    if (yaml_parser_parse(parser, event))
        return true;
    if (parser->error == YAML_MEMORY_ERROR)
        diag_set(builder->diag, WEIR_NO_MEMORY, "%s: %s", builder->name,
                 weir_err_text(WEIR_NO_MEMORY));
    else if (parser->error == YAML_READER_ERROR)
        diag_set(builder->diag, WEIR_SYNTAX, "%s: %s (at byte %zu)", builder->name,
                 parser->problem ? parser->problem : "not YAML", parser->problem_offset);
    else
        diag_set(builder->diag, WEIR_SYNTAX, "%s:%zu: %s%s%s%s", builder->name,
                 parser->problem_mark.line + 1, parser->problem ? parser->problem : "not YAML",
                 parser->context ? " " : "", parser->context ? parser->context : "",
                 parser->problem ? hint(parser->problem) : "");
    return false;
}

static struct yaml_node *new_node(enum yaml_kind kind, yaml_mark_t mark)
{
    struct yaml_node *node = mem_zalloc(sizeof *node);
    node->kind = kind;
    node->line = (unsigned)mark.line + 1;
    node->column = (unsigned)mark.column + 1;
    node->scalar = SLICE_LIT("");
    return node;
}

static struct yaml_node *build_scalar(struct builder *builder, const yaml_event_t *event)
{
    const char *value = (const char *)event->data.scalar.value;
    size_t n = event->data.scalar.length;
    if (memchr(value, '\0', n))
        return refuse(builder, event->start_mark, "a value may not hold U+0000");
    struct yaml_node *node = new_node(YAML_SCALAR, event->start_mark);
    node->scalar = (struct slice){mem_dup(value, n + 1), n};
    node->quoted = event->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    return node;
}

static void append(struct yaml_node *node, struct yaml_node *key, struct yaml_node *item)
{
    /* Room is doubled at every power of two. */
    if ((node->n & (node->n - 1)) == 0) {
        size_t room = node->n ? 2 * (size_t)node->n : 1;
        node->items = mem_realloc(node->items, room * sizeof(struct yaml_node *));
        if (node->kind == YAML_MAP)
            node->keys = mem_realloc(node->keys, room * sizeof(struct yaml_node *));
    }
    node->items[node->n] = item;
    if (node->kind == YAML_MAP)
        node->keys[node->n] = key;
    node->n++;
}

static struct yaml_node *key_of(struct builder *builder, const struct yaml_node *map,
                                const yaml_event_t *event)
{
    if (event->type != YAML_SCALAR_EVENT)
        return refuse(builder, event->start_mark, "a name must be plain text");
    struct yaml_node *key = build(builder, event, DEPTH_MAX);
    if (!key)
        return NULL;
    const struct yaml_node *before = yaml_get(map, key->scalar.p);
    if (!before)
        return key;
    diag_set(builder->diag, WEIR_SYNTAX, "%s:%u: \"%s\" is there twice (first on line %u)",
             builder->name, key->line, key->scalar.p, before->line);
    yaml_destroy(key);
    return NULL;
}

static struct yaml_node *build_container(struct builder *builder, const yaml_event_t *event,
                                         unsigned depth)
{
    bool map = event->type == YAML_MAPPING_START_EVENT;
    yaml_event_type_t end = map ? YAML_MAPPING_END_EVENT : YAML_SEQUENCE_END_EVENT;
    if (depth == DEPTH_MAX)
        return refuse(builder, event->start_mark, "nested too deeply");
    struct yaml_node *node = new_node(map ? YAML_MAP : YAML_LIST, event->start_mark);
    yaml_event_t next;
    while (next_event(builder, &next)) {
        struct yaml_node *key = NULL, *item;
        if (next.type == end) {
            yaml_event_delete(&next);
            return node;
        }
        if (map) {
            key = key_of(builder, node, &next);
            yaml_event_delete(&next);
            if (!key)
                break;
            if (!next_event(builder, &next)) {
                yaml_destroy(key);
                break;
            }
        }
        item = build(builder, &next, depth + 1);
        yaml_event_delete(&next);
        if (!item) {
            yaml_destroy(key);
            break;
        }
        append(node, key, item);
    }
    yaml_destroy(node);
    return NULL;
}

static struct yaml_node *build(struct builder *builder, const yaml_event_t *event, unsigned depth)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;
    switch (event->type) {
    case YAML_SCALAR_EVENT:
        anchor = event->data.scalar.anchor;
        tag = event->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
        anchor = event->data.sequence_start.anchor;
        tag = event->data.sequence_start.tag;
        break;
    case YAML_MAPPING_START_EVENT:
        anchor = event->data.mapping_start.anchor;
        tag = event->data.mapping_start.tag;
        break;
    default:
        return refuse(builder, event->start_mark, "aliases are not supported; write the value out");
    }
    if (anchor)
        return refuse(builder, event->start_mark, "anchors are not supported");
    if (tag)
        return refuse(builder, event->start_mark, "tags are not supported");
    return event->type == YAML_SCALAR_EVENT ? build_scalar(builder, event)
                                            : build_container(builder, event, depth);
}

/* Up to the root's first event; an empty text is an empty map. */
static struct yaml_node *build_document(struct builder *builder)
{
    struct yaml_node *root = NULL;
    for (;;) {
        yaml_event_t event;
        if (!next_event(builder, &event))
            break;
        yaml_event_type_t type = event.type;
        if (type == YAML_DOCUMENT_START_EVENT && root) {
            refuse(builder, event.start_mark, "more than one document; there can be one");
            yaml_event_delete(&event);
            break;
        }
        if (type == YAML_STREAM_END_EVENT) {
            if (!root)
                root = new_node(YAML_MAP, event.start_mark);
            yaml_event_delete(&event);
            return root;
        }
        if (type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT &&
            type != YAML_DOCUMENT_END_EVENT)
            root = build(builder, &event, 0);
        yaml_event_delete(&event);
        if (!root && type != YAML_STREAM_START_EVENT && type != YAML_DOCUMENT_START_EVENT)
            break;
    }
    yaml_destroy(root);
    return NULL;
}

struct yaml_node *yaml_parse(const char *name, struct slice text, struct diag *diag)
{
    struct builder builder = {.name = name, .diag = diag};
    if (!yaml_parser_initialize(&builder.parser)) {
        diag_set(diag, WEIR_NO_MEMORY, "%s: %s", name, weir_err_text(WEIR_NO_MEMORY));
        return NULL;
    }
    yaml_parser_set_input_string(&builder.parser, (const unsigned char *)text.p, text.n);
    struct yaml_node *root = build_document(&builder);
    yaml_parser_delete(&builder.parser);
    return root;
}

void yaml_destroy(struct yaml_node *root)
{
    if (!root)
        return;
    for (unsigned i = 0; i < root->n; i++) {
        yaml_destroy(root->items[i]);
        if (root->kind == YAML_MAP)
            yaml_destroy(root->keys[i]);
    }
    if (root->kind == YAML_SCALAR)
        mem_free((char *)root->scalar.p);
    mem_free(root->items);
    mem_free(root->keys);
    mem_free(root);
}

struct yaml_node *yaml_get(const struct yaml_node *map, const char *key)
{
    if (!map || map->kind != YAML_MAP)
        return NULL;
    for (unsigned i = 0; i < map->n; i++) {
        if (slice_is(map->keys[i]->scalar, key))
            return map->items[i];
    }
    return NULL;
}

static unsigned least(unsigned a, unsigned b)
{
    return a < b ? a : b;
}

/* Insertions, deletions, replacements and swaps of neighbours (optimal string alignment). Both are
 * at most NAME_LONGEST. */
static unsigned edit_distance(struct slice a, struct slice b)
{
    unsigned rows[3][NAME_LONGEST + 1];
    unsigned *before = rows[0], *last = rows[1], *now = rows[2];
    for (unsigned j = 0; j <= b.n; j++)
        last[j] = j;
    for (unsigned i = 1; i <= a.n; i++) {
        now[0] = i;
        for (unsigned j = 1; j <= b.n; j++) {
            unsigned cost = a.p[i - 1] != b.p[j - 1];
            now[j] = least(least(last[j] + 1, now[j - 1] + 1), last[j - 1] + cost);
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
                now[j] = least(now[j], before[j - 2] + 1);
        }
        unsigned *free_row = before;
        before = last;
        last = now;
        now = free_row;
    }
    return last[b.n];
}

const char *yaml_nearest(struct slice name, const char *const *known)
{
    const char *nearest = NULL;
    unsigned best = 4;
    if (name.n == 0 || name.n > NAME_LONGEST)
        return NULL;
    for (; *known; known++) {
        struct slice candidate = slice_of(*known);
        if (candidate.n > NAME_LONGEST)
            continue;
        unsigned distance = edit_distance(name, candidate);
        if (distance < best && 2 * distance < name.n) {
            best = distance;
            nearest = *known;
        }
    }
    return nearest;
}
