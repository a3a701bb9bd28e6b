/* yaml.h: a YAML file as a tree that remembers lines (libyaml). Aliases, tags and more than one
 * document are refused; duplicate keys too. The tree is immutable; free it as a whole. */
#ifndef WEIR_BASE_YAML_H
#define WEIR_BASE_YAML_H

#include "base/diag.h"
#include "base/slice.h"

enum yaml_kind { YAML_SCALAR, YAML_LIST, YAML_MAP };

struct yaml_node {
    enum yaml_kind kind;
    unsigned line; /* from 1 */
    unsigned column;
    struct slice scalar; /* terminated too; "" for an empty value */
    int quoted;          /* the scalar was quoted: it is a string whatever it looks like */
    unsigned n;          /* items of a list, pairs of a map */
    struct yaml_node **items;
    struct yaml_node **keys; /* map only, scalars, beside items */
};

/* `name` is for messages ("weir.yaml:12: ..."). NULL and *diag on failure. */
struct yaml_node *yaml_parse(const char *name, struct slice text, struct diag *diag);
void yaml_destroy(struct yaml_node *root);
struct yaml_node *yaml_get(const struct yaml_node *map, const char *key); /* NULL: not there */

/* The nearest of the known names to a misspelled one (edit distance, at most 3 and less than half
 * its length), or NULL. `known` ends with NULL. */
const char *yaml_nearest(struct slice name, const char *const *known);

#endif
