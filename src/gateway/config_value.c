/* config_value.c: single values and maps of the configuration file, and the list of mistakes (see
 * config_reader.h). */
#include <assert.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "base/mem.h"
#include "base/units.h"
#include "gateway/config_reader.h"

enum { SHOWN = 64, KNOWN_MAX = 64, HEAD = 4, PROBLEMS_MAX = 200 };

/* Puts the names of variables back where their values are. A value that was cut is found by its
 * beginning. */
static void hide_value(const struct config_variable *variable, struct buf *text)
{
    size_t n = strlen(variable->value), head = n < HEAD ? n : HEAD;
    if (n == 0)
        return;
    struct buf hidden = {0};
    const char *at = buf_str(text);
    while (*at) {
        if (strncmp(at, variable->value, head) != 0) {
            buf_put_char(&hidden, *at++);
            continue;
        }
        for (size_t i = 0; i < n && *at == variable->value[i]; i++)
            at++;
        buf_printf(&hidden, "${%s}", variable->name);
    }
    buf_fini(text);
    *text = hidden;
}

void config_problem(struct config_reader *reader, unsigned line, const char *format, ...)
{
    struct config_problems *problems = reader->problems;
    struct diag diag;
    char text[1024];
    if (problems->n == PROBLEMS_MAX)
        return;
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    struct buf safe = {0};
    buf_put_str(&safe, problems->n == PROBLEMS_MAX - 1 ? "and more; mend these first" : text);
    for (size_t i = 0; i < reader->n_variables; i++)
        hide_value(&reader->variables[i], &safe);
    /* Made one line. */
    diag_set(&diag, WEIR_INVALID, "%s", buf_str(&safe));
    buf_fini(&safe);
    problems->list = mem_realloc(problems->list, (problems->n + 1) * sizeof *problems->list);
    struct config_problem *problem = &problems->list[problems->n++];
    problem->line = line;
    snprintf(problem->text, sizeof problem->text, "%.*s", (int)sizeof problem->text - 1, diag.text);
}

static int shown(struct slice s)
{
    return s.n > SHOWN ? SHOWN : (int)s.n;
}

void config_unknown(struct config_reader *reader, unsigned line, const char *what,
                    struct slice name, const char *const *known)
{
    const char *nearest = yaml_nearest(name, known);
    if (nearest) {
        config_problem(reader, line, "%s \"%.*s\" is not known; did you mean \"%s\"?", what,
                       shown(name), name.p, nearest);
        return;
    }
    struct buf list = {0};
    for (; *known; known++)
        buf_printf(&list, "%s%s", list.n ? ", " : "", *known);
    config_problem(reader, line, "%s \"%.*s\" is not known; there are: %s", what, shown(name),
                   name.p, buf_str(&list));
    buf_fini(&list);
}

bool config_name_good(struct slice name)
{
    if (name.n == 0 || name.n > 64 || name.p[0] == '.')
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
              c == '_' || c == '.' || c == '-'))
            return false;
    }
    return true;
}

static bool variable_char(char c, bool first)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
           (!first && c >= '0' && c <= '9');
}

/* At "${": appends the variable's value. Returns what follows the '}', or NULL. */
static const char *put_variable(struct config_reader *reader, const struct yaml_node *node,
                                const char *at, struct buf *out)
{
    const char *start = at + 2, *end = start;
    while (variable_char(*end, end == start))
        end++;
    if (end == start || *end != '}') {
        config_problem(reader, node->line, "\"${\" must be followed by a name and \"}\"");
        return NULL;
    }
    char *name = mem_printf("%.*s", (int)(end - start), start);
    const char *value = getenv(name);
    if (!value) {
        config_problem(reader, node->line, "the environment variable %s is not set", name);
        mem_free(name);
        return NULL;
    }
    buf_put_str(out, value);
    reader->variables =
        mem_realloc(reader->variables, (reader->n_variables + 1) * sizeof *reader->variables);
    reader->variables[reader->n_variables++] =
        (struct config_variable){.name = name, .value = mem_strdup(value)};
    return end + 1;
}

char *config_text(struct config_reader *reader, const char *name, const struct yaml_node *node)
{
    if (node->kind != YAML_SCALAR) {
        config_problem(reader, node->line, "%s: must be one plain value", name);
        return NULL;
    }
    struct buf out = {0};
    buf_reserve(&out, node->scalar.n + 1);
    for (const char *at = node->scalar.p; *at;) {
        if (at[0] != '$' || at[1] != '{') {
            buf_put_char(&out, *at++);
            continue;
        }
        at = put_variable(reader, node, at, &out);
        if (!at) {
            buf_fini(&out);
            return NULL;
        }
    }
    buf_str(&out);
    return out.p;
}

static void bad_value(struct config_reader *reader, const struct config_name *name,
                      const struct yaml_node *node, const char *wanted)
{
    /* The file's words, not the variable's value. */
    config_problem(reader, node->line, "%s: \"%.*s\" is not %s", name->name, shown(node->scalar),
                   node->scalar.p, wanted);
}

static int parse_number(struct slice text, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9' || __builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(text.p[i] - '0'), &v))
            return WEIR_SYNTAX;
    }
    if (text.n == 0)
        return WEIR_SYNTAX;
    *out = v;
    return 0;
}

/* Limits as people write them. */
static void put_limit(struct buf *out, enum config_kind kind, uint64_t v)
{
    char text[24];
    if (kind == KIND_BYTES || kind == KIND_BYTES32) {
        units_format_bytes(v, text);
        buf_put_str(out, text);
    } else if (kind == KIND_MS || kind == KIND_MS32) {
        bool seconds = v % 1000 == 0;
        buf_put_u64(out, seconds ? v / 1000 : v);
        buf_put_str(out, seconds ? "s" : "ms");
    } else {
        buf_put_u64(out, v);
    }
}

static void read_quantity(struct config_reader *reader, const struct config_name *name,
                          const struct yaml_node *node, const char *text, char *into)
{
    uint64_t v;
    const char *wanted = "a number";
    int err;
    switch (name->kind) {
    case KIND_BYTES:
    case KIND_BYTES32:
        wanted = "a size such as 4096, 64KiB, 16MiB or 10GiB";
        err = units_parse_bytes(slice_of(text), &v);
        break;
    case KIND_MS:
    case KIND_MS32:
        wanted = "a duration such as 250ms, 10s or 5m";
        err = units_parse_duration(slice_of(text), &v);
        break;
    default:
        err = parse_number(slice_of(text), &v);
    }
    if (err) {
        bad_value(reader, name, node, wanted);
        return;
    }
    if (v < name->min || v > name->max) {
        struct buf range = {0};
        put_limit(&range, name->kind, name->min);
        buf_put_str(&range, " to ");
        put_limit(&range, name->kind, name->max);
        config_problem(reader, node->line, "%s: \"%.*s\" is outside %s", name->name,
                       shown(node->scalar), node->scalar.p, buf_str(&range));
        buf_fini(&range);
        return;
    }
    bool narrow =
        name->kind == KIND_NUMBER32 || name->kind == KIND_BYTES32 || name->kind == KIND_MS32;
    uint32_t v32 = (uint32_t)v;
    assert(!narrow || v32 == v);
    memcpy(into + name->offset, narrow ? (void *)&v32 : (void *)&v, narrow ? sizeof v32 : sizeof v);
}

static void read_value(struct config_reader *reader, const struct config_name *name,
                       const struct yaml_node *node, char *into)
{
    char *text = config_text(reader, name->name, node);
    if (!text)
        return;
    if (name->kind == KIND_TEXT) {
        char *old;
        if (!text[0]) {
            config_problem(reader, node->line, "%s: is empty", name->name);
            mem_free(text);
            return;
        }
        memcpy(&old, into + name->offset, sizeof old);
        mem_free(old);
        memcpy(into + name->offset, &text, sizeof text);
        return;
    }
    if (name->kind == KIND_BOOL) {
        bool value = strcmp(text, "true") == 0;
        if (value || strcmp(text, "false") == 0)
            memcpy(into + name->offset, &value, sizeof value);
        else
            bad_value(reader, name, node, "true or false");
    } else {
        read_quantity(reader, name, node, text, into);
    }
    mem_free(text);
}

static const struct config_name *find_name(const struct config_section *section, struct slice name)
{
    for (const struct config_name *n = section->names; n->name; n++) {
        if (slice_is(name, n->name))
            return n;
    }
    return NULL;
}

static bool is_one_of(struct slice name, const char *const *names)
{
    for (; names && *names; names++) {
        if (slice_is(name, *names))
            return true;
    }
    return false;
}

static void unknown_name(struct config_reader *reader, const struct config_section *section,
                         const struct yaml_node *key, const char *const *more)
{
    const char *known[KNOWN_MAX];
    size_t n = 0;
    for (const struct config_name *name = section->names; name->name; name++) {
        if (name->kind != KIND_LATER && n < KNOWN_MAX - 1)
            known[n++] = name->name;
    }
    for (; more && *more && n < KNOWN_MAX - 1; more++)
        known[n++] = *more;
    known[n] = NULL;
    char what[64] = "the name";
    if (section->where[0])
        snprintf(what, sizeof what, "%s: the name", section->where);
    config_unknown(reader, key->line, what, key->scalar, known);
}

bool config_read_map(struct config_reader *reader, const struct config_section *section,
                     const struct yaml_node *node, void *into, const char *const *more)
{
    const char *where = section->where[0] ? section->where : "the file";
    if (node->kind == YAML_SCALAR && node->scalar.n == 0 && !node->quoted)
        return true;
    if (node->kind != YAML_MAP) {
        config_problem(reader, node->line, "%s: must be a map of names and values", where);
        return false;
    }
    for (unsigned i = 0; i < node->n; i++) {
        const struct yaml_node *key = node->keys[i];
        const struct config_name *name = find_name(section, key->scalar);
        if (!name) {
            if (!is_one_of(key->scalar, more))
                unknown_name(reader, section, key, more);
        } else if (name->kind == KIND_LATER) {
            config_problem(reader, key->line, "%s is not in this version of weir", name->name);
        } else if (name->kind != KIND_OWN) {
            read_value(reader, name, node->items[i], into);
        }
    }
    return true;
}

void config_problems_fini(struct config_problems *problems)
{
    mem_free(problems->list);
    *problems = (struct config_problems){0};
}
