/* reconcile.h: proves by id, version and content hash that a sink holds what it should.
 *
 * The reference is an id list (of acknowledged records; the highest version of an id wins) or the
 * primary sink. What the log still holds beyond the consumer's cursor is lag, not loss, and told
 * apart. Blocking; any thread. */
#ifndef WEIR_DELIVERY_RECONCILE_H
#define WEIR_DELIVERY_RECONCILE_H

#include "base/hash.h"
#include "log/log.h"
#include "sink/sink.h"

enum difference { DIFFERENCE_MISSING, DIFFERENCE_EXTRA, DIFFERENCE_CONTENT, DIFFERENCE_LAG };

/* The id list: lines of {"stream":"events","id":"...","version":N,"hash":"32 hex digits"} (what
 * `weir load --ids` writes). version and hash may be missing: then only presence is compared. */
struct id_list;
int id_list_read(const char *path, struct id_list **out,
                 struct diag *diag); /* names the bad line */
void id_list_destroy(struct id_list *list);
size_t id_list_count(const struct id_list *list); /* distinct (stream, id) */

struct reconcile_config {
    struct log *log; /* for what is lag and for repair; may be read-only; NULL: no log */
    unsigned partitions;
    const char *sink_name; /* the one compared */
    struct sink *sink;
    const char *consumer;             /* the cursor that feeds it */
    struct sink *primary;             /* reference and source of repair; NULL: ids only */
    const struct sink_stream *stream; /* one stream at a time */
    const struct id_list *ids;        /* reference; NULL: the primary */
    bool repair;
    void *context;
    /* Called for each difference; ids of any length. `detail` is a short text. */
    void (*found)(void *context, enum difference what, struct slice id, const char *detail);
    void (*progress)(void *context, uint64_t compared);
};

struct reconcile_result {
    uint64_t compared, equal, missing, extra, different, lag, repaired, not_repairable;
};

int reconcile_run(const struct reconcile_config *config, struct reconcile_result *out,
                  struct diag *diag);

#endif
