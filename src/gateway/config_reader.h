/* config_reader.h: what the files of the configuration reader share. Private to config*.c, tokens.c
 * and the test that holds docs/configuration.md against the tables here.
 *
 * A map of the file is described by a table of its names. Plain values are read by their kind into
 * the field at their offset; what needs more is OWN and read by the file of that map. */
#ifndef WEIR_GATEWAY_CONFIG_READER_H
#define WEIR_GATEWAY_CONFIG_READER_H

#include "base/yaml.h"
#include "gateway/config.h"

enum config_kind {
    KIND_OWN,   /* read elsewhere */
    KIND_LATER, /* a name of weir's, but not in this version */
    KIND_NUMBER,
    KIND_NUMBER32,
    KIND_BYTES,
    KIND_BYTES32,
    KIND_MS,
    KIND_MS32,
    KIND_TEXT, /* an allocated string; what is there is freed */
    KIND_BOOL,
};

struct config_name {
    const char *name;
    enum config_kind kind;
    size_t offset;
    uint64_t min, max;
};

struct config_section {
    const char *where; /* for messages and the documentation: "limits", "" for the top */
    const struct config_name *names; /* ends with name == NULL */
};

/* All sections, for the documentation's test; ends with names == NULL. */
extern const struct config_section *const config_sections[];
extern const struct config_section config_section_top, config_section_log, config_section_limits,
    config_section_stream, config_section_sink, config_section_lane;

struct config_reader {
    struct config_problems *problems;
    struct config *config;
    struct config_variable { /* what ${NAME} stood for: never shown */
        char *name, *value;
    } * variables;
    size_t n_variables;
};

/* line 0: no one line. Values of variables in the text are put back to their names. */
void config_problem(struct config_reader *reader, unsigned line, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Reads the plain values of a map into *into and reports unknown names; `more` (may be NULL) are
 * further names that are read elsewhere. An empty value is an empty map. False: it is no map. */
bool config_read_map(struct config_reader *reader, const struct config_section *section,
                     const struct yaml_node *node, void *into, const char *const *more);

/* A plain value as an allocated string with its ${NAME} put in, or NULL (reported). */
char *config_text(struct config_reader *reader, const char *name, const struct yaml_node *node);

/* `name` is no known one: says so, with the nearest. */
void config_unknown(struct config_reader *reader, unsigned line, const char *what,
                    struct slice name, const char *const *known);

/* Streams and sinks are named by this: 1 to 64 of a-z A-Z 0-9 _ . -, the first not a point: names
 * become files and parts of addresses. */
bool config_name_good(struct slice name);

struct config *config_blank(const char *data);       /* all defaults, no streams, no sinks */
void config_share_limits(struct config *config);     /* the HTTP server's limits from weir's own */
void config_add_default_sink(struct config *config); /* "main", sqlite */
void config_add_default_stream(struct config *config); /* "events", over all sinks */
struct config_sink *config_add_sink(struct config *config, const char *name, unsigned line);
struct config_stream *config_add_stream(struct config *config, const char *name, unsigned line);

void config_read_sinks(struct config_reader *reader, const struct yaml_node *node);
void config_read_streams(struct config_reader *reader, const struct yaml_node *node);
/* What only the whole can show. `root` is for the lines. */
void config_check_whole(struct config_reader *reader, const struct yaml_node *root);

/* "beyond loopback" without tokens or insecure: WEIR_DENIED with both remedies. */
int config_check_listen(const struct config *config, struct diag *diag);

/* tokens.c: lines "TOKEN scope,scope". WEIR_INVALID, WEIR_IO, WEIR_DENIED (others may read it);
 * words() is called for every mistake and never names a token. */
int tokens_read(const char *path, struct config_token **out, size_t *out_n,
                void (*words)(void *context, const char *text), void *context);
void tokens_free(struct config_token *tokens, size_t n);

#endif
