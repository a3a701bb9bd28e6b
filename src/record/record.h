/* record.h: the record, the batch that a sink is given, the body that a client sent.
 *
 * A record is slices into memory that a chunk (on the way out of the log) or a body (on the way in)
 * owns. */
#ifndef WEIR_RECORD_RECORD_H
#define WEIR_RECORD_RECORD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/slice.h"

#define RECORD_ID_MAX  512
#define RECORD_KEY_MAX 512

struct record {
    struct slice id;  /* 1 to RECORD_ID_MAX bytes of UTF-8 without U+0000 */
    struct slice key; /* the same; order is kept per key */
    struct slice doc; /* the JSON object as it came, white space around it removed */
    struct slice
        attributes;   /* named attributes (traceparent, ...), encoded: attributes.h; may be empty */
    uint64_t version; /* milliseconds x 2^20 + sequence, below 2^63 */
    uint64_t offset;  /* its place in its partition: rises with acceptance; set by the log */
    uint32_t stream;  /* the stream's number in META */
    uint32_t partition;
};

/* Memory that records point into. */
struct chunk {
    atomic_uint refs;
    size_t bytes;
    char data[];
};
struct chunk *chunk_create(size_t bytes); /* one reference */
void chunk_ref(struct chunk *chunk);
void chunk_unref(struct chunk *chunk); /* NULL is fine */

/* Records read from the log, or handed to a sink: a growing array and the chunks they live in. One
 * thread at a time. */
struct batch {
    struct record *records;
    struct chunk *
        *chunks; /* chunks[i] is the one of records[i]; the batch holds one reference for each */
    size_t n, capacity;
    size_t bytes; /* sum of doc, id and key */
};
void batch_init(struct batch *batch);
void batch_fini(struct batch *batch);
void batch_add(struct batch *batch, const struct record *record,
               struct chunk *chunk); /* takes a new reference */
void batch_clear(struct batch *batch);

enum ack_level { ACK_RECEIVED, ACK_DURABLE, ACK_STORED, ACK_EVERYWHERE };
const char *ack_level_name(enum ack_level level);
int ack_level_parse(struct slice text, enum ack_level *out); /* WEIR_SYNTAX */

/* What one request brought. Made on a loop thread; then the log's until it calls `durable` (log.h).
 */
struct body {
    struct body *next;      /* for chains; whoever owns the body */
    struct record *records; /* n of them */
    uint32_t n;
    bool urgent;   /* someone waits for durability: flush now */
    bool more;     /* others follow at once: the log need not wake before log_kick */
    size_t bytes;  /* what it is charged for in the budget */
    int status;    /* set by the log before `durable` is called: 0 or why not */
    void *encoded; /* the log's own */
    size_t encoded_bytes;
    void *owner; /* the gateway's request */
};

#endif
