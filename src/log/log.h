/* log.h: the interface of the log, where records are durable. Kinds: journal (log/journal/), later
 * kafka.
 *
 * The way of a body: log_append on a loop thread (never blocks) -> the log's own thread makes it
 * durable in a group -> events.durable for the whole group at once, before any reader can see it ->
 * readers.
 *
 * A place in a partition is a 64-bit offset that rises with acceptance; outside log/ only its order
 * means anything. Its text form for clients is an opaque string (log_position_text).
 *
 * The log may take partitions away from a reader (a rebalance in Kafka; the journal never does):
 * the reader then gets LOG_REVOKED, finishes or gives up what it has of that partition, and calls
 * log_release. */
#ifndef WEIR_LOG_LOG_H
#define WEIR_LOG_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/histogram.h"
#include "os/fs.h"
#include "record/record.h"

struct log_events {
    void *context;
    /* A group is settled: bodies linked by next, each with status and, at 0, its records' offsets.
     * Called on the log's thread, once per group, before readers see it; must not block; the bodies
     * are the callee's again. */
    void (*durable)(void *context, struct body *bodies);
    /* Something a person should know (recovered a torn tail, disk full, poisoned). Any thread. */
    void (*report)(void *context, const char *text);
};

struct log_config {
    const struct fs *fs;
    const char *data; /* the data directory; the log keeps its files below it */
    unsigned partitions;
    uint64_t segment_bytes;     /* 64 MiB */
    uint64_t max_bytes;         /* the log is full beyond this: 10 GiB */
    unsigned received_flush_ms; /* 5: how long a body that nobody waits for may stay in memory */
    unsigned ring;              /* slots, a power of two: 131072 */
    struct log_events events;
    const char *const *consumers; /* names whose cursors hold the log back; ends with NULL */
    bool read_only; /* for commands beside a gateway: nothing is created, locked or repaired */
};

struct log_stats { /* one moment, not exactly consistent */
    uint64_t appended_records, appended_bytes, groups, flushes, flush_errors;
    uint64_t first_offset, end_offset; /* kept, durable */
    uint64_t bytes_on_disk, max_bytes;
    uint64_t ring_count, ring_capacity;
    bool full, poisoned;
    const struct histogram *group_records, *flush_ns; /* live; read with histogram.h */
};

enum log_poll { LOG_RECORDS, LOG_IDLE, LOG_ASSIGNED, LOG_REVOKED };

struct log_poll_result {
    enum log_poll what;
    uint32_t partition; /* LOG_ASSIGNED, LOG_REVOKED */
};

struct log;        /* begins with `const struct log_ops *ops` */
struct log_reader; /* likewise */

struct log_ops {
    const char *kind;
    int (*open)(const struct log_config *config, struct log **out, struct diag *diag);
    int (*append)(struct log *log, struct body *body);
    void (*kick)(struct log *log);
    size_t (*body_limit)(const struct log *log);
    void (*flush)(struct log *log);
    void (*stats)(struct log *log, struct log_stats *out);
    void (*position_text)(struct log *log, uint32_t partition, uint64_t offset, char out[64]);
    int (*reader_open)(struct log *log, const char *consumer, struct log_reader **out,
                       struct diag *diag);
    int (*poll)(struct log_reader *reader, struct batch *into, size_t max_records, size_t max_bytes,
                int timeout_ms, struct log_poll_result *result);
    const char *(*why)(struct log_reader *reader);
    void (*wake)(struct log_reader *reader);
    void (*settle)(struct log_reader *reader, uint32_t partition, uint64_t offset);
    void (*release)(struct log_reader *reader, uint32_t partition);
    uint64_t (*lag)(struct log_reader *reader);
    void (*reader_close)(struct log_reader *reader);
    int (*scan)(struct log *log, uint64_t from_offset,
                int (*visit)(void *context, const struct record *record), void *context,
                struct diag *diag);
    uint64_t (*cursor)(struct log *log, const char *consumer, uint32_t partition);
    void (*close)(struct log *log);
};

struct log {
    const struct log_ops *ops;
};
struct log_reader {
    const struct log_ops *ops;
};

int log_open(const char *kind, const struct log_config *config, struct log **out,
             struct diag *diag);
void log_close(struct log *log); /* flushes, saves cursors, frees; readers must be closed */

/* Takes the body over (encodes and checksums it on the caller's thread, then the ring). 0:
 * `durable` will be called for it exactly once. Else the body stays the caller's: WEIR_FULL (ring
 * or log), WEIR_TOO_LARGE, WEIR_CLOSED, WEIR_POISONED, WEIR_NO_SPACE. Any thread; never blocks. */
int log_append(struct log *log, struct body *body);
/* Ends a series of bodies with `more`: what was appended goes out. A loop calls it once a turn, so
 * that the log's thread meets the turn's bodies together and not one by one. Any thread; never
 * blocks. */
void log_kick(struct log *log);
size_t
log_body_limit(const struct log *log); /* the largest sum of ids, keys and docs a body may have */
void log_flush(struct log *log); /* waits until all appended so far is settled; not on a loop */
void log_stats(struct log *log, struct log_stats *out);
void log_position_text(struct log *log, uint32_t partition, uint64_t offset, char out[64]);

/* One reader per consumer name; it begins after the consumer's cursor (at the first kept record for
 * a new consumer). Used by one thread. */
int log_reader_open(struct log *log, const char *consumer, struct log_reader **out,
                    struct diag *diag);
/* Adds up to max_records to `into`, in the order of the log. LOG_IDLE: nothing came within
 * timeout_ms (or log_wake was called). Errors: WEIR_CORRUPT (log_reader_why names the file and the
 * offset; the reader stays there), WEIR_IO. */
int log_poll(struct log_reader *reader, struct batch *into, size_t max_records, size_t max_bytes,
             int timeout_ms, struct log_poll_result *result);
/* The words of the last error of log_poll: the file, the place, what is wrong. The reader's thread;
 * lives until the next poll. */
const char *log_reader_why(struct log_reader *reader);
void log_wake(struct log_reader *reader); /* any thread: ends a waiting poll */
/* All records of the partition up to and including this offset are settled. Cheap; the cursor is
 * made durable soon after, and before any segment goes. */
void log_settle(struct log_reader *reader, uint32_t partition, uint64_t offset);
void log_release(struct log_reader *reader, uint32_t partition); /* after LOG_REVOKED */
uint64_t log_lag(struct log_reader *reader); /* durable records not yet settled by it; any thread */
void log_reader_close(struct log_reader *reader); /* saves its cursor */

/* Visits durable records from an offset on, in order; visit != 0 ends it and is returned. Works
 * beside a gateway with a read-only log. Blocking. */
int log_scan(struct log *log, uint64_t from_offset,
             int (*visit)(void *context, const struct record *record), void *context,
             struct diag *diag);
/* The first offset of the partition that the consumer has not settled (0: none is). */
uint64_t log_cursor(struct log *log, const char *consumer, uint32_t partition);

#endif
