/* config.c: reads the configuration file (see config.h).
 *
 * One pass over the tree reports every mistake; nothing stops at the first, but for a file that is
 * no YAML. Sinks are read before streams, which name them. Mistakes are listed in the order of the
 * file. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "gateway/config_reader.h"
#include "os/listen.h"

#define KIB        ((uint64_t)1 << 10)
#define MIB        ((uint64_t)1 << 20)
#define GIB        ((uint64_t)1 << 30)
#define HOUR_MS    ((uint64_t)3600 * 1000)
#define DAY_MS     (24 * HOUR_MS)
#define FILE_MAX   MIB
#define OF(member) offsetof(struct config, member)

static const struct config_name top_names[] = {
    {"version", KIND_OWN, 0, 0, 0},
    {"listen", KIND_TEXT, OF(listen), 0, 0},
    {"data", KIND_TEXT, OF(data), 0, 0},
    {"insecure", KIND_BOOL, OF(insecure), 0, 0},
    {"tokens", KIND_TEXT, OF(tokens_file), 0, 0},
    {"loops", KIND_NUMBER32, OF(loops), 0, 64},
    {"log", KIND_OWN, 0, 0, 0},
    {"limits", KIND_OWN, 0, 0, 0},
    {"streams", KIND_OWN, 0, 0, 0},
    {"sinks", KIND_OWN, 0, 0, 0},
    {"consumers", KIND_LATER, 0, 0, 0},
    {"hotkeys", KIND_LATER, 0, 0, 0},
    {0},
};

static const struct config_name log_names[] = {
    {"kind", KIND_TEXT, OF(log.kind), 0, 0},
    {"partitions", KIND_NUMBER32, OF(log.partitions), 1, 1024},
    {"segment", KIND_BYTES, OF(log.segment_bytes), MIB, 4 * GIB},
    {"max_bytes", KIND_BYTES, OF(log.max_bytes), 4 * MIB, UINT64_MAX / 2},
    {0},
};

static const struct config_name limits_names[] = {
    {"body", KIND_BYTES, OF(limits.body_bytes), KIB, GIB},
    {"memory", KIND_BYTES, OF(limits.memory_bytes), MIB, 1024 * GIB},
    {"records", KIND_NUMBER, OF(limits.records), 1, 10000000},
    {"lag", KIND_NUMBER, OF(limits.lag_records), 0, UINT64_MAX / 2},
    {"dead", KIND_BYTES, OF(limits.dead_bytes), 4 * KIB, UINT64_MAX / 2},
    {"drain_timeout", KIND_MS, OF(limits.drain_timeout_ms), 0, HOUR_MS},
    {"connections", KIND_NUMBER32, OF(limits.http.connections), 1, 1000000},
    {"head", KIND_BYTES32, OF(limits.http.head_bytes), KIB, MIB},
    {"headers", KIND_NUMBER32, OF(limits.http.headers), 8, 1000},
    {"pipelined", KIND_NUMBER32, OF(limits.http.pipelined), 1, 10000},
    {"head_timeout", KIND_MS32, OF(limits.http.head_ms), 10, DAY_MS},
    {"body_timeout", KIND_MS32, OF(limits.http.body_ms), 10, DAY_MS},
    {"idle_timeout", KIND_MS32, OF(limits.http.idle_ms), 10, DAY_MS},
    {"write_timeout", KIND_MS32, OF(limits.http.write_ms), 10, DAY_MS},
    {0},
};

const struct config_section config_section_top = {"", top_names};
const struct config_section config_section_log = {"log", log_names};
const struct config_section config_section_limits = {"limits", limits_names};

const struct config_section *const config_sections[] = {&config_section_top,
                                                        &config_section_log,
                                                        &config_section_limits,
                                                        &config_section_stream,
                                                        &config_section_sink,
                                                        &config_section_lane,
                                                        NULL};

/* The version comes first: the rest is only known for this one. */
static void read_version(struct config_reader *reader, const struct yaml_node *root)
{
    const struct yaml_node *node = yaml_get(root, "version");
    if (!node)
        config_problem(reader, root->n ? root->line : 0,
                       "\"version: 1\" is missing; it says which form of configuration this is");
    else if (node->kind != YAML_SCALAR || !slice_is(node->scalar, "1"))
        config_problem(reader, node->line, "version: this weir reads version 1 only");
}

static void read_log(struct config_reader *reader, const struct yaml_node *node)
{
    static const char *const later[] = {"kafka", "none", NULL};
    static const char *const kinds[] = {"journal", NULL};
    struct config *config = reader->config;
    if (!config_read_map(reader, &config_section_log, node, config, NULL))
        return;
    const struct yaml_node *kind = yaml_get(node, "kind");
    if (!kind || strcmp(config->log.kind, "journal") == 0)
        return;
    for (const char *const *name = later; *name; name++) {
        if (strcmp(config->log.kind, *name) == 0) {
            config_problem(reader, kind->line, "log: kind %s is not in this version of weir",
                           *name);
            return;
        }
    }
    config_unknown(reader, kind->line, "log: the kind", slice_of(config->log.kind), kinds);
}

static void read_root(struct config_reader *reader, const struct yaml_node *root)
{
    struct config *config = reader->config;
    const struct yaml_node *node;
    if (root->kind != YAML_MAP) {
        config_problem(reader, root->line, "the file must be a map of names and values");
        return;
    }
    read_version(reader, root);
    config_read_map(reader, &config_section_top, root, config, NULL);
    if ((node = yaml_get(root, "log")))
        read_log(reader, node);
    if ((node = yaml_get(root, "limits")))
        config_read_map(reader, &config_section_limits, node, config, NULL);
    config_share_limits(config);
    if ((node = yaml_get(root, "sinks")))
        config_read_sinks(reader, node);
    else
        config_add_default_sink(config);
    if ((node = yaml_get(root, "streams")))
        config_read_streams(reader, node);
    else
        config_add_default_stream(config);
    config_check_whole(reader, root);
}

static int compare_problems(const void *a, const void *b)
{
    const struct config_problem *x = a, *y = b;
    return (x->line > y->line) - (x->line < y->line);
}

/* A diag of yaml_parse() that was given the name "": ":LINE: text" or ": text". */
static void add_yaml_problem(struct config_reader *reader, const char *text)
{
    unsigned line = 0;
    int used = 0;
    if (sscanf(text, ":%u: %n", &line, &used) == 1 && used)
        text += used;
    else
        text += strspn(text, ": ");
    config_problem(reader, line, "%s", text);
}

static int read_text(struct config_reader *reader, struct slice text)
{
    struct diag diag = {0};
    struct yaml_node *root = yaml_parse("", text, &diag);
    if (!root) {
        add_yaml_problem(reader, diag.text);
        return WEIR_INVALID;
    }
    read_root(reader, root);
    yaml_destroy(root);
    return reader->problems->n ? WEIR_INVALID : 0;
}

int config_read(const char *path, struct config **out, struct config_problems *problems)
{
    char *text;
    size_t n;
    *problems = (struct config_problems){0};
    struct config_reader reader = {.problems = problems, .config = config_blank(NULL)};
    reader.config->path = mem_strdup(path);
    int err = fs_read_file(fs_posix(), path, FILE_MAX, &text, &n);
    if (err == WEIR_TOO_LARGE) {
        config_problem(&reader, 0, "is larger than 1 MiB; this is no configuration file");
        err = WEIR_INVALID;
    } else if (err) {
        config_problem(&reader, 0, "cannot be read: %s", strerror(errno));
        err = WEIR_IO;
    } else {
        err = read_text(&reader, (struct slice){text, n});
        mem_free(text);
    }
    for (size_t i = 0; i < reader.n_variables; i++) {
        explicit_bzero(reader.variables[i].value, strlen(reader.variables[i].value));
        mem_free(reader.variables[i].name);
        mem_free(reader.variables[i].value);
    }
    mem_free(reader.variables);
    if (err) {
        /* merge sort: mistakes of one line stay in the order in which they were found */
        qsort(problems->list, problems->n, sizeof *problems->list, compare_problems);
        config_destroy(reader.config);
        return err;
    }
    *out = reader.config;
    return 0;
}

int config_check_listen(const struct config *config, struct diag *diag)
{
    struct listen_address address;
    int err = listen_parse(config->listen, &address, diag);
    if (err)
        return err;
    if (address.loopback || config->insecure || config->n_tokens || config->tokens_file)
        return 0;
    return diag_set(diag, WEIR_DENIED,
                    "%s can be reached from other machines, and everybody could write: name a file "
                    "of tokens (tokens: FILE), or say that you mean it (insecure: true)",
                    config->listen);
}

int config_override(struct config *config, const char *listen, const char *data, struct diag *diag)
{
    if (data && !data[0])
        return diag_set(diag, WEIR_INVALID, "--data: the name of the directory is empty");
    if (listen) {
        char *before = config->listen;
        config->listen = mem_strdup(listen);
        int err = config_check_listen(config, diag);
        if (err) {
            mem_free(config->listen);
            config->listen = before;
            diag_prefix(diag, "--listen: ");
            return err;
        }
        mem_free(before);
    }
    if (data) {
        mem_free(config->data);
        config->data = mem_strdup(data);
    }
    return 0;
}
