/* ingest.h: from the bytes of a request to records: parse, check, id, key, partition.
 *
 * Pure: no I/O, no locks, no log, no HTTP. Validation is all or nothing; the problem names the line
 * (NDJSON) or the index (array) and the byte offset. An ingest belongs to one thread.
 *
 * Invariants: 1. records come out in the order of the body; 2. a doc is the record's bytes as they
 * came, without white space around them; 3. every id and key is 1 to 512 bytes of UTF-8 without
 * U+0000. */
#ifndef WEIR_GATEWAY_INGEST_H
#define WEIR_GATEWAY_INGEST_H

#include "gateway/problem.h"
#include "record/record.h"

enum ingest_format { INGEST_JSON, INGEST_NDJSON };

/* What a Content-Type means; {NULL, 0}: no such header. 0, or the problem's status (415). */
int ingest_content_type(struct slice content_type, enum ingest_format *out,
                        struct problem *problem);

struct ingest_stream { /* what must be known of a stream; constant */
    const char *name;
    uint32_t number;
    struct slice id;  /* JSON Pointer; p NULL: none */
    struct slice key; /* JSON Pointer; p NULL: the id */
    bool id_optional;
    unsigned partitions;
};

struct ingest_source {
    const struct ingest_stream *stream;
    enum ingest_format format;
    struct slice body;            /* followed by JSON_PADDING readable bytes */
    struct slice idempotency_key; /* p NULL: no such header */
    uint64_t records_max;
    uint64_t wall_ms;
};

struct ingest;
struct ingest *ingest_create(void);
void ingest_destroy(struct ingest *ingest);

/* 0, or the problem's status. The result lives in the ingest until the next parse, and points into
 * the body. */
int ingest_parse(struct ingest *ingest, const struct ingest_source *source,
                 struct problem *problem);

uint32_t ingest_count(const struct ingest *ingest);
bool ingest_is_array(const struct ingest *ingest);     /* the body was an array, not one object */
size_t ingest_text_bytes(const struct ingest *ingest); /* ids and keys */
size_t ingest_log_bytes(const struct ingest *ingest);  /* ids, keys and docs: log_body_limit */
/* Copies the records to `records` (ingest_count of them), their ids and keys to `text`; docs still
 * point into the body; version and offset are 0, attributes empty. */
void ingest_take(struct ingest *ingest, struct record *records, char *text);

#endif
