/* sink.h: the interface of a sink, one store.
 *
 * A sink is one configured store; a session is one connection to it, used by one thread at a time
 * (any thread of the lane). Writes are idempotent by id and version: what is there is replaced only
 * by what is not older. Everything here but the ops' constants may block; never call it from a loop
 * thread. A sink never retries a record on its own and never decides policy: it says what happened.
 */
#ifndef WEIR_SINK_SINK_H
#define WEIR_SINK_SINK_H

#include "base/buf.h"
#include "base/diag.h"
#include "os/fs.h"
#include "record/record.h"

enum outcome {
    OUTCOME_STORED,  /* committed, or superseded by a newer version that is there */
    OUTCOME_RETRY,   /* not now (locked, unreachable, full), or not known whether */
    OUTCOME_REFUSED, /* never: the data is at fault */
};

struct sink_result {
    enum outcome outcome;
    char reason[120]; /* for people; empty when stored */
};
/* A reason that is too long ends at a whole UTF-8 character. */
void sink_result_set(struct sink_result *result, enum outcome outcome, const char *reason);

/* A name and value of the sink's configuration, as text (yaml). Lists end with name == NULL. */
struct sink_option {
    const char *name;
    const char *value;
    unsigned line;
};

struct sink_stream { /* what a sink must know of a stream it serves */
    uint32_t number; /* record.stream */
    const char *name;
};

struct sink_config {
    const char *name;
    const struct sink_option
        *options; /* all but kind and lane; the sink's `options` list names those allowed */
    const struct sink_stream *streams;
    size_t n_streams;
    const struct fs *fs;
    const char *data; /* the data directory: relative paths start here */
    bool read_only;   /* for commands beside a gateway: open creates nothing */
};

struct sink;         /* begins with struct sink_base */
struct sink_session; /* likewise */

struct sink_row { /* what scan and read give: slices live until the next call */
    struct slice id, key, doc;
    uint64_t version;
};

struct sink_ops {
    const char *kind;
    const char *const *options; /* allowed names, NULL at the end */
    unsigned
        writers; /* sessions that make sense to write at once; 1: all parts go through one strand */
    int (*check)(const struct sink_config *config,
                 struct diag *diag); /* options only; touches nothing */
    int (*open)(const struct sink_config *config, struct sink **out,
                struct diag *diag); /* may create the store */
    void (*close)(struct sink *sink);
    /* read_only sessions never write and may be used beside a writer. WEIR_UNAVAILABLE: try again.
     */
    int (*session_open)(struct sink *sink, bool read_only, struct sink_session **out,
                        struct diag *diag);
    void (*session_close)(struct sink_session *session);
    /* Each id at most once in the batch. 0: results[i] say what became of each record. Else nothing
     * was stored: WEIR_REFUSED (a data error of the batch as a whole: the caller bisects),
     * WEIR_UNAVAILABLE, WEIR_UNKNOWN, WEIR_NO_SPACE, WEIR_IO (all are retried). */
    int (*write)(struct sink_session *session, const struct batch *batch,
                 struct sink_result *results, struct diag *diag);
    /* The record by id: WEIR_NOT_FOUND, WEIR_UNSUPPORTED (the null sink). */
    int (*read)(struct sink_session *session, uint32_t stream, struct slice id,
                struct sink_row *row, struct diag *diag);
    /* Rows of a stream in the byte order of their ids, those after `after` ({NULL,0}: all); visit
     * != 0 ends it and is returned. */
    int (*scan)(struct sink_session *session, uint32_t stream, struct slice after,
                int (*visit)(void *context, const struct sink_row *row), void *context,
                struct diag *diag);
    int (*count)(struct sink_session *session, uint32_t stream, uint64_t *out, struct diag *diag);
    /* Repair only: removes an id. */
    int (*remove)(struct sink_session *session, uint32_t stream, struct slice id,
                  struct diag *diag);
};

struct sink {
    const struct sink_ops *ops;
};
struct sink_session {
    const struct sink_ops *ops;
};

/* The list of kinds; NULL when there is none of that name. */
const struct sink_ops *sink_find(const char *kind);
const char *const *sink_kinds(void);

#endif
