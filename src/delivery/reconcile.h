/* reconcile.h: proves by id, version and content hash that a sink holds what it should.
 *
 * The reference is an id list (of acknowledged records; the highest version of an id wins) or the
 * primary sink. A version newer than the reference's is as good as equal: the store is ahead. What
 * the log still holds beyond the consumer's cursor is lag, not loss, and told apart. Works beside a
 * running gateway: what looks wrong is looked at again before it is called wrong. Memory is
 * bounded, whatever the stores hold. Blocking; any thread. */
#ifndef WEIR_DELIVERY_RECONCILE_H
#define WEIR_DELIVERY_RECONCILE_H

#include "base/hash.h"
#include "delivery/dead.h"
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
/* The i-th stream that the list names, from 0; NULL behind the last. */
const char *id_list_stream(const struct id_list *list, size_t i);

struct reconcile_config {
    struct log *log; /* for what is lag and for repair; may be read-only; NULL: no log */
    unsigned partitions;
    const char *sink_name; /* the one compared */
    struct sink *sink;
    const char *consumer;             /* the cursor that feeds it */
    struct sink *primary;             /* reference and source of repair; NULL: ids only */
    const char *primary_consumer;     /* the cursor that feeds the primary */
    const struct sink_stream *stream; /* one stream at a time */
    const struct id_list *ids;        /* reference; NULL: the primary */
    /* How long a cursor that is read may lie behind the consumer's own (0: it is exact). So long
     * what seems to be lag is watched: if the cursor passes it, it must be there. */
    uint32_t settle_ms;
    size_t suspects_max; /* ids held for a second look at once; 0: 250000 */
    struct dead *dead;   /* the sink's dead letters: a missing id that is one is told so; or NULL */
    bool repair;         /* nothing is removed: what is extra stays */
    void *context;
    /* Writes a repair: the results say what became of each record (some may be OUTCOME_RETRY);
     * WEIR_UNAVAILABLE is tried again too. NULL: a session of `sink` is opened for it. */
    int (*write)(void *context, const struct batch *batch, struct sink_result *results,
                 struct diag *diag);
    /* Called for each difference; ids of any length. `detail` is a short text. */
    void (*found)(void *context, enum difference what, struct slice id, const char *detail);
    void (*progress)(void *context, uint64_t compared);
};

struct reconcile_result {
    uint64_t compared; /* ids of the reference */
    uint64_t equal, missing, extra, different, lag;
    uint64_t repaired, not_repairable; /* of those missing and different */
};

/* 0: compared (whatever it found). WEIR_UNSUPPORTED: the sink keeps nothing that can be read; else
 * it could not be done: WEIR_UNAVAILABLE, WEIR_CORRUPT (the log, there) ... */
int reconcile_run(const struct reconcile_config *config, struct reconcile_result *out,
                  struct diag *diag);

#endif
