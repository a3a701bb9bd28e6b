/* cursor.h: how far a consumer has settled the log, partition by partition; in memory, and durable
 * in `data/cursors/<consumer>`.
 *
 * Invariants: 1. `resume` is never beyond a record that is not settled: it is the oldest record
 * given out and not settled, or, with none, the end of what was given; so a quiet partition does
 * not hold the log back; 2. what is durable was settled in memory before, and the log lets go of
 * nothing at or behind the durable resume; 3. `records` counts settled records of the whole log, so
 * that lag is a subtraction.
 *
 * Threads: the consumer's thread gives and settles, the keeper saves (and whoever closes a reader),
 * any thread asks. `lock` is never held across I/O. */
#ifndef WEIR_LOG_JOURNAL_CURSOR_H
#define WEIR_LOG_JOURNAL_CURSOR_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/diag.h"
#include "os/fs.h"
#include "record/record.h"

struct cursor_partition {
    uint64_t settled; /* offset; 0: none */
    uint64_t *given;  /* offsets given out and not settled, rising: given[head..n) */
    size_t head, n, capacity;
};

struct cursor {
    /* constant */
    char *name, *path;
    unsigned partitions;
    pthread_mutex_t lock;
    pthread_mutex_t
        save_lock; /* one saves at a time; held across the file access, by savers only */
    /* guarded by lock */
    struct cursor_partition *at;
    uint64_t given_lsn; /* every record before it has been given out */
    bool moved;         /* since it was last saved */
    bool asked;         /* cursor_settle has said so since then */
    /* atomic */
    _Atomic uint64_t records;        /* settled, of the whole log */
    _Atomic uint64_t durable_resume; /* as it lies on disk; written by the keeper */
    atomic_bool has_reader;
};

/* WEIR_INVALID: the name cannot be a file's. */
int cursor_create(const char *folder, const char *name, unsigned partitions, struct cursor **out,
                  struct diag *diag);
void cursor_destroy(struct cursor *cursor);

/* From the file. WEIR_NOT_FOUND; WEIR_CORRUPT: what is there is no cursor; WEIR_IO. On failure it
 * is as after cursor_create. */
int cursor_load(struct cursor *cursor, const struct fs *fs, struct diag *diag);
/* Durable; does nothing when it has not moved. On failure it counts as moved still. */
int cursor_save(struct cursor *cursor, const struct fs *fs);

/* A new consumer: begins here, with so many records before. */
void cursor_begin(struct cursor *cursor, uint64_t lsn, uint64_t records);
/* A log that now ends before it: nothing at or behind `end` counts as settled. */
void cursor_cut(struct cursor *cursor, uint64_t end, uint64_t records);
/* A log that now begins behind it. */
void cursor_advance(struct cursor *cursor, uint64_t first, uint64_t records);

uint64_t cursor_resume(struct cursor *cursor);
/* The first offset of the partition that is not settled; 0: none is. */
uint64_t cursor_first_open(struct cursor *cursor, uint32_t partition);
/* These were given out; now all before next_lsn have been. */
void cursor_give(struct cursor *cursor, const struct record *records, size_t n, uint64_t next_lsn);
/* True when it is the first settled since the last save: the keeper should know. */
bool cursor_settle(struct cursor *cursor, uint32_t partition, uint64_t offset);
/* The reader has gone: what it was given and did not settle is open again. */
void cursor_forget(struct cursor *cursor);

#endif
