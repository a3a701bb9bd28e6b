/* journal.h: the journal's insides, shared by its files. Nothing outside log/journal includes this.
 *
 * Who does what:
 *   any thread      journal_append (append.c): encodes, pushes into the ring, wakes the log thread
 *   `journal`       the log thread (writer.c): groups, write + datasync, begins segments
 *   `journal-prep`  the keeper (keeper.c): writes segments through ahead of use, saves cursors,
 * lets go of what all have settled consumers       readers (reader.c): from files into batches,
 * behind the durable LSN opening         recover.c, before any of these threads runs commands
 * scan.c, verify.c: read whole segments through walk.c
 *
 * The locks: `lock` guards what log thread, keeper and readers share and is held for a few steps,
 * never across I/O; a cursor's own lock may be taken with `lock` held, never the other way round.
 */
#ifndef WEIR_LOG_JOURNAL_JOURNAL_H
#define WEIR_LOG_JOURNAL_JOURNAL_H

#include <pthread.h>
#include <stdatomic.h>

#include "exec/ring.h"
#include "log/journal/cursor.h"
#include "log/journal/segment.h"
#include "log/log.h"

#define FILL_STEP   ((size_t)1 << 20)     /* a segment is written through in such steps */
#define GROUP_MAX   ((size_t)4 << 20)     /* a group's bytes, unless one body is larger */
#define LAZY_MAX    ((size_t)1 << 20)     /* what may wait in memory for received_flush_ms */
#define READY_MAX   2                     /* segments written through and waiting */
#define TICK_NS     ((uint64_t)200000000) /* how often moved cursors are saved */
#define RETRY_NS    ((uint64_t)250000000) /* how often the disk is tried while it refuses */
#define CURSORS_MAX 1024

/* A segment's file between its creation and the time when the log thread has left it. */
struct segment_use {
    uint64_t number, bytes;
    struct fs_file *file; /* the log thread's */
    /* The keeper's own, because a failed writeback is told once to each open file: the log thread's
     * sync must not miss one that the keeper's sync has swallowed. */
    struct fs_file *fill_file;
    _Atomic uint64_t filled;  /* written through and synced up to here; release by the keeper */
    atomic_bool syncing;      /* the keeper syncs it, or has not yet said how that ended */
    struct segment_use *next; /* in the list of the left ones */
};

/* Why log_append refuses. */
enum refuse {
    REFUSE_CLOSED = 1,
    REFUSE_POISONED = 2, /* a sync failed */
    REFUSE_WRITE = 4,    /* the last group found no space; the log thread tries for itself */
    REFUSE_PREPARE = 8,  /* the last group found no segment; the keeper tries */
    REFUSE_FULL = 16,    /* max_bytes */
};

enum writer_state {
    WRITER_AWAKE,
    WRITER_IDLE, /* nothing waits: any append wakes it */
    WRITER_LAZY, /* only bodies that nobody waits for are gathered: it wakes by itself */
};

struct flush_marker { /* travels through the ring like a body: log_flush */
    struct body body; /* first; `encoded` is NULL */
    atomic_uint done;
};

struct writer { /* owned by the log thread; before it starts, by opening */
    /* where the next group goes */
    struct segment_use *use;
    struct segment_header segment;
    uint64_t lsn, number, records_before;
    bool vouched; /* a group without units lies at lsn: opening need not rewrite anything */
    bool failing; /* the last write failed, and that has been reported */
    uint64_t probe_at_ns;
    /* the group being gathered: header, units */
    char *staging;
    size_t capacity, n;
    uint64_t fold;
    uint32_t units, records;
    struct body *first, **last, *carry; /* carry: popped, did not fit any more */
    struct flush_marker *markers;       /* linked by body.next */
    size_t lazy_bytes;                  /* of bodies that nobody waits for */
    bool urgent;
    uint64_t deadline_ns;
};

struct journal {
    struct log log; /* first */
    /* constant after opening */
    struct log_config config; /* strings are our own */
    char *folder, *cursor_folder;
    size_t unit_max, group_max;
    struct ring *ring;
    pthread_t writer_thread, keeper_thread;
    struct histogram *group_records, *flush_ns; /* written by the log thread */

    struct writer writer;

    /* guarded by lock */
    pthread_mutex_t lock;
    pthread_cond_t filled; /* the log thread waits for the keeper */
    pthread_cond_t work;   /* the keeper waits for work; CLOCK_MONOTONIC */
    struct segment_list segments;
    struct segment_use *current, *ready[READY_MAX + 1], *left;
    size_t n_ready;
    int prepare_error; /* the keeper's last try failed so; 0: it goes on */
    struct cursor **cursors;
    size_t n_cursors;
    bool stop_keeper;
    bool tick_asked;

    /* the keeper's; before it starts, opening's */
    uint64_t next_number; /* of a segment file */
    bool cursors_failing; /* and that has been reported */

    /* atomic: what appending threads look at */
    atomic_uint refuse;     /* bits of enum refuse */
    atomic_int refuse_code; /* what REFUSE_WRITE and REFUSE_PREPARE mean */
    char apart_1[128];
    atomic_uint writer_state;
    atomic_size_t lazy_bytes; /* of bodies that nobody waits for, in the ring and gathered */
    atomic_bool stop_writer;
    char apart_2[128];
    /* atomic: what readers look at */
    _Atomic uint64_t durable_lsn, durable_records;
    atomic_uint reader_turn; /* moves with durable_lsn and with log_wake */
    atomic_uint readers_waiting;
    _Atomic uint64_t low_lsn; /* the slowest durable cursor */
    /* atomic: figures */
    _Atomic uint64_t stat_records, stat_bytes, stat_groups, stat_flushes, stat_flush_errors;
};

static inline struct journal *journal_of(struct log *log)
{
    return (struct journal *)log;
}

/* journal.c */
void journal_report(struct journal *journal, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Sets or clears REFUSE_FULL by what is true now. Any thread. */
void journal_update_full(struct journal *journal);
void journal_refuse(struct journal *journal, enum refuse why, int code);
void journal_allow(struct journal *journal, enum refuse why);

/* append.c */
int journal_append(struct log *log, struct body *body);
void journal_kick(struct log *log);
void journal_flush(struct log *log);
void writer_wake(struct journal *journal);
struct encoded {          /* body->encoded */
    uint64_t appended_ns; /* where body->urgent is false */
    char unit[];
};

/* writer.c */
void writer_init(struct writer *writer);
void *writer_run(void *journal);
void writer_fini(struct writer *writer);
void writer_publish(struct journal *journal, uint64_t lsn, uint64_t records);

/* recover.c: finds the end of the log, repairs it, leaves writer, segments and ready set. */
int journal_recover(struct journal *journal, struct diag *diag);

/* fill.c: segment files written through. */
int segment_use_open(struct journal *journal, const char *path, uint64_t number, uint64_t bytes,
                     bool create, struct segment_use **out);
int segment_use_fill(struct segment_use *use, size_t step); /* one step; synced on return */
int segment_use_wipe(struct segment_use *use, uint64_t from, uint64_t to); /* zeros; synced */
void segment_use_close(struct segment_use *use);

/* keeper.c */
void *keeper_run(void *journal);
void keeper_ask_tick(struct journal *journal); /* a cursor has moved */
/* Saves what has moved and lets go of segments. The keeper's thread, or opening and closing. */
void keeper_tick(struct journal *journal);
uint64_t keeper_disk_bytes(struct journal *journal); /* of all segments; any thread */

/* reader.c */
int journal_reader_open(struct log *log, const char *consumer, struct log_reader **out,
                        struct diag *diag);
int journal_poll(struct log_reader *reader, struct batch *into, size_t max_records,
                 size_t max_bytes, int timeout_ms, struct log_poll_result *result);
const char *journal_reader_why(struct log_reader *reader);
void journal_wake(struct log_reader *reader);
void journal_settle(struct log_reader *reader, uint32_t partition, uint64_t offset);
void journal_release(struct log_reader *reader, uint32_t partition);
uint64_t journal_lag(struct log_reader *reader);
void journal_reader_close(struct log_reader *reader);
/* The cursor of that name, loaded and set to where the log is; made when it is new. */
int journal_cursor_get(struct journal *journal, const char *consumer, struct cursor **out,
                       struct diag *diag);
/* left.c: tells of cursors that no consumer has any more. While opening. */
void journal_report_left(struct journal *journal);

/* scan.c */
int journal_scan(struct log *log, uint64_t from_offset,
                 int (*visit)(void *context, const struct record *record), void *context,
                 struct diag *diag);

#endif
