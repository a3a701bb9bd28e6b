/* id_list.h: what reconcile needs of an id list beyond reconcile.h. Immutable once read; any
 * thread. */
#ifndef WEIR_DELIVERY_ID_LIST_H
#define WEIR_DELIVERY_ID_LIST_H

#include "delivery/reconcile.h"

struct expected { /* what a store should hold of an id, at least */
    bool has_version, has_hash;
    uint64_t version;
    struct hash128 hash;
};

/* The entries of a stream: [*first, *last), in the byte order of their ids. */
void id_list_range(const struct id_list *list, const char *stream, size_t *first, size_t *last);
struct slice id_list_at(const struct id_list *list, size_t i, struct expected *expected);

#endif
