/* reader.c: a consumer's reader: from segment files into batches, behind the durable LSN, in memory
 * that does not grow with the backlog (one piece of file, and what the batches hold).
 *
 * Invariants: 1. nothing at or behind the durable LSN is looked at, so nothing that could be taken
 * back; 2. every unit is checked before a record of it is given out; 3. at damage the reader stays
 * where it is: every poll says WEIR_CORRUPT, and what is before it has been given out; 4. records
 * that were settled before a restart are passed over.
 *
 *     [between groups] --enter_group--> [in a group] --enter_unit--> [in a unit] --.
 *            ^   ^                        |       ^                               | give
 *            |   `------ end of group ----'       `-------- end of unit ----------'
 *            `-- enter_segment, when this one ends here
 *
 * Threads: a reader is its consumer's; journal_wake and journal_lag are any thread's. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "log/journal/futex.h"
#include "log/journal/journal.h"

/* Read at once. A record that is kept long (its key in retry) keeps its whole piece in memory. */
#define PIECE ((size_t)256 << 10)

struct reader {
    struct log_reader reader; /* first */
    /* constant */
    struct journal *journal;
    struct cursor *cursor;
    /* the consumer's thread */
    struct segment segment;
    struct fs_file *file; /* NULL: no segment yet */
    uint64_t lsn;         /* the next frame */
    uint64_t number;      /* the next group's; 0: not known yet */
    uint64_t units_end;   /* of the group that lsn is in; 0: between groups */
    bool in_unit;
    struct unit_walk walk;
    uint64_t unit_end;
    struct chunk *chunk; /* the bytes from chunk_lsn on */
    uint64_t chunk_lsn, chunk_n;
    uint64_t skip_all;  /* all before it is settled */
    uint64_t *skip;     /* by partition: settled up to and including */
    uint64_t skip_most; /* the highest of them */
    uint64_t told_lsn;  /* where damage was last reported */
    struct diag why;
    /* atomic */
    atomic_bool woken;
};

static struct reader *reader_of(struct log_reader *reader)
{
    return (struct reader *)reader;
}

/* --- opening and closing -----------------------------------------------------------------------
 */

int journal_reader_open(struct log *log, const char *consumer, struct log_reader **out,
                        struct diag *diag)
{
    struct journal *journal = journal_of(log);
    struct cursor *cursor;
    if (journal->config.read_only)
        return diag_set(diag, WEIR_UNSUPPORTED, "the journal is open for reading only; scan it");
    int rc = journal_cursor_get(journal, consumer, &cursor, diag);
    if (rc)
        return rc;
    if (atomic_exchange(&cursor->has_reader, true))
        return diag_set(diag, WEIR_LOCKED, "consumer %s: it has a reader already", consumer);
    struct reader *reader = mem_zalloc(sizeof *reader);
    reader->reader.ops = log->ops;
    reader->journal = journal;
    reader->cursor = cursor;
    reader->skip = mem_zalloc(cursor->partitions * sizeof *reader->skip);
    reader->skip_all = cursor_resume(cursor);
    pthread_mutex_lock(&cursor->lock);
    for (unsigned i = 0; i < cursor->partitions; i++) {
        reader->skip[i] = cursor->at[i].settled;
        if (reader->skip[i] > reader->skip_most)
            reader->skip_most = reader->skip[i];
    }
    pthread_mutex_unlock(&cursor->lock);
    *out = &reader->reader;
    return 0;
}

void journal_reader_close(struct log_reader *log_reader)
{
    struct reader *reader = reader_of(log_reader);
    cursor_forget(reader->cursor);
    if (cursor_save(reader->cursor, reader->journal->config.fs) != 0)
        keeper_ask_tick(reader->journal); /* which reports it, and tries again */
    atomic_store(&reader->cursor->has_reader, false);
    chunk_unref(reader->chunk);
    fs_close(reader->file);
    mem_free(reader->skip);
    mem_free(reader);
}

/* --- damage ------------------------------------------------------------------------------------
 */

const char *journal_reader_why(struct log_reader *log_reader)
{
    return reader_of(log_reader)->why.text;
}

static int stop_here(struct reader *reader, int code, const char *text)
{
    char name[32] = "no segment";
    if (reader->segment.header.number)
        segment_name(reader->segment.header.number, name);
    uint64_t at = reader->file ? segment_offset(&reader->segment.header, reader->lsn) : 0;
    diag_set(&reader->why, code,
             "%s/%s: %s at byte %" PRIu64 " (offset %" PRIu64 " of the log): %s",
             reader->journal->folder, name, code == WEIR_CORRUPT ? "damaged" : "cannot be read", at,
             reader->lsn, text);
    if (reader->told_lsn != reader->lsn) {
        reader->told_lsn = reader->lsn;
        journal_report(
            reader->journal,
            "consumer %s stops: %s; the others go on. `weir journal verify` shows what is "
            "readable",
            reader->cursor->name, reader->why.text);
    }
    /* What is in memory is not trusted either: the next poll reads it again. But of a unit whose
     * checksum holds a part has been given out. */
    if (!reader->in_unit) {
        chunk_unref(reader->chunk);
        reader->chunk = NULL;
    }
    return code;
}

static int corrupt(struct reader *reader, const char *text)
{
    return stop_here(reader, WEIR_CORRUPT, text);
}

/* --- reading -----------------------------------------------------------------------------------
 */

/* Goes to the segment that holds reader->lsn. */
static int enter_segment(struct reader *reader)
{
    struct journal *journal = reader->journal;
    struct segment segment = {0};
    pthread_mutex_lock(&journal->lock);
    const struct segment_list *list = &journal->segments;
    const struct segment *found = segment_list_find(list, reader->lsn);
    for (size_t i = 0; i < list->n && !found; i++)
        if (list->items[i].end > reader->lsn)
            segment.header.number = list->items[i].header.number; /* for the message */
    if (found)
        segment = *found;
    pthread_mutex_unlock(&journal->lock);
    fs_close(reader->file);
    reader->file = NULL;
    reader->segment = segment;
    if (!found)
        return corrupt(reader, "the header of the segment that holds this offset is damaged");
    char *path = segment_path(journal->folder, segment.header.number);
    int rc = fs_open(journal->config.fs, path, FS_READ, &reader->file);
    mem_free(path);
    if (rc)
        return stop_here(reader, rc, strerror(errno));
    if (reader->lsn != segment.header.base || reader->number == 0) {
        reader->lsn = segment.header.base; /* a start in its middle: its groups lead there */
        reader->number = segment.header.first_group;
    }
    chunk_unref(reader->chunk);
    reader->chunk = NULL;
    return 0;
}

/* Makes the n bytes at reader->lsn lie in the chunk. */
static int load(struct reader *reader, uint64_t limit, size_t n, const char **out)
{
    if (!reader->chunk || reader->lsn < reader->chunk_lsn ||
        reader->lsn + n > reader->chunk_lsn + reader->chunk_n) {
        uint64_t left = limit - reader->lsn;
        if (n > left)
            return corrupt(reader, "it would end behind the log's end");
        size_t wanted = n > PIECE ? n : left < PIECE ? (size_t)left : PIECE, got;
        chunk_unref(reader->chunk);
        reader->chunk = chunk_create(wanted);
        int rc =
            reader->file->fs->pread(reader->file, reader->chunk->data, wanted,
                                    segment_offset(&reader->segment.header, reader->lsn), &got);
        if (rc)
            return stop_here(reader, rc, strerror(errno));
        if (got < n)
            return corrupt(reader, "the file ends too early");
        reader->chunk_lsn = reader->lsn;
        reader->chunk_n = got;
    }
    *out = reader->chunk->data + (reader->lsn - reader->chunk_lsn);
    return 0;
}

/* Where the segment ends, if it has ended; it may have since we entered it, and may have been let
 * go of: only when all of it was settled, so that we stand at its end. Between groups. */
static uint64_t segment_end(struct reader *reader)
{
    struct journal *journal = reader->journal;
    if (reader->segment.end == UINT64_MAX) {
        bool kept = false;
        pthread_mutex_lock(&journal->lock);
        for (size_t i = journal->segments.n; i-- > 0 && !kept;) {
            kept = journal->segments.items[i].header.number == reader->segment.header.number;
            if (kept)
                reader->segment.end = journal->segments.items[i].end;
        }
        pthread_mutex_unlock(&journal->lock);
        if (!kept)
            reader->segment.end = reader->lsn;
    }
    return reader->segment.end;
}

/* From between groups into the next one. WEIR_END: it is not there yet. */
static int enter_group(struct reader *reader, uint64_t durable)
{
    if (reader->lsn >= durable)
        return WEIR_END;
    if (!reader->file || reader->lsn >= segment_end(reader)) {
        int rc = enter_segment(reader);
        if (rc)
            return rc;
        segment_end(reader);
    }
    uint64_t limit = reader->segment.end < durable ? reader->segment.end : durable;
    const char *p;
    struct group_header group;
    int rc = load(reader, limit, sizeof group, &p);
    if (rc)
        return rc;
    if (!group_header_read(p, reader->segment.header.nonce, &group))
        return corrupt(reader, reader->segment.lost_after
                                   ? "it ends here, and the segment behind it is damaged or missing"
                                   : "no group's header is here");
    if (group.lsn != reader->lsn || group.number != reader->number)
        return corrupt(reader, "the group's header does not follow the one before it");
    if (group_bytes(&group) > limit - reader->lsn)
        return corrupt(reader, "the group would end behind the log's end");
    reader->number++;
    if (reader->lsn + group_bytes(&group) <= reader->skip_all) {
        reader->lsn += group_bytes(&group);
        return 0;
    }
    reader->lsn += sizeof group;
    reader->units_end = reader->lsn + group.payload;
    return 0;
}

static int enter_unit(struct reader *reader)
{
    const char *p, *why;
    struct unit_header unit;
    int rc = load(reader, reader->units_end, sizeof unit, &p);
    if (rc)
        return rc;
    memcpy(&unit, p, sizeof unit);
    if (unit.bytes < sizeof unit || unit.bytes > reader->units_end - reader->lsn)
        return corrupt(reader, "a unit's size is impossible");
    rc = load(reader, reader->units_end, unit.bytes, &p);
    if (rc)
        return rc;
    if (unit_check(p, unit.bytes, reader->lsn, &unit, &why) != 0)
        return corrupt(reader, why);
    unit_walk_begin(&reader->walk, p, &unit);
    reader->unit_end = reader->lsn + unit.bytes;
    reader->in_unit = true;
    return 0;
}

static bool settled_before(const struct reader *reader, const struct record *record)
{
    return record->offset < reader->skip_all || (record->offset <= reader->skip_most &&
                                                 record->offset <= reader->skip[record->partition]);
}

/* The unit's next record into the batch. */
static int give(struct reader *reader, struct batch *into)
{
    struct record record;
    struct unit_walk before = reader->walk;
    int rc = unit_walk_next(&reader->walk, &record);
    if (rc == WEIR_END) {
        reader->in_unit = false;
        reader->lsn = reader->unit_end;
        return 0;
    }
    if (rc || record.partition >= reader->cursor->partitions) {
        reader->walk = before;
        return corrupt(reader, rc ? "a unit's records are malformed"
                                  : "a record is of a partition that does not exist");
    }
    if (!settled_before(reader, &record))
        batch_add(into, &record, reader->chunk);
    return 0;
}

/* Reads on until the batch is full or the durable end is reached. */
static int read_on(struct reader *reader, uint64_t durable, struct batch *into, size_t max_records,
                   size_t max_bytes)
{
    size_t n = into->n, bytes = into->bytes;
    while (into->n - n < max_records && into->bytes - bytes < max_bytes) {
        int rc;
        if (reader->in_unit) {
            rc = give(reader, into);
        } else if (reader->units_end == 0) {
            rc = enter_group(reader, durable);
        } else if (reader->lsn < reader->units_end) {
            rc = enter_unit(reader);
        } else {
            reader->lsn += GROUP_TRAILER;
            reader->units_end = 0;
            rc = 0;
        }
        if (rc)
            return rc == WEIR_END ? 0 : rc;
    }
    return 0;
}

/* --- polling -----------------------------------------------------------------------------------
 */

/* Sleeps until the log has grown beyond what was seen at `turn`, or it is woken, or the deadline.
 */
static void sleep_until(struct journal *journal, unsigned turn, uint64_t deadline_ns)
{
    uint64_t now = clock_mono_ns();
    if (now >= deadline_ns)
        return;
    /* seq_cst: counted in before the kernel compares the turn; see writer_publish */
    atomic_fetch_add_explicit(&journal->readers_waiting, 1, memory_order_seq_cst);
    futex_wait(&journal->reader_turn, turn,
               deadline_ns == UINT64_MAX ? FUTEX_FOR_EVER : deadline_ns - now);
    atomic_fetch_sub_explicit(&journal->readers_waiting, 1, memory_order_relaxed);
}

int journal_poll(struct log_reader *log_reader, struct batch *into, size_t max_records,
                 size_t max_bytes, int timeout_ms, struct log_poll_result *result)
{
    struct reader *reader = reader_of(log_reader);
    struct journal *journal = reader->journal;
    uint64_t deadline =
        timeout_ms < 0 ? UINT64_MAX : clock_mono_ns() + (uint64_t)timeout_ms * 1000000;
    size_t had = into->n;
    assert(max_records > 0 && max_bytes > 0);
    if (reader->lsn == 0) /* the first poll: where the cursor is */
        reader->lsn = reader->skip_all;
    for (;;) {
        unsigned turn = atomic_load_explicit(&journal->reader_turn, memory_order_seq_cst);
        /* acquire: with writer_publish; the bytes before it are in the file */
        uint64_t durable = atomic_load_explicit(&journal->durable_lsn, memory_order_acquire);
        int rc = read_on(reader, durable, into, max_records, max_bytes);
        /* Also when the next segment could not be opened: what was read before it is given out.
         * lsn in a unit's middle: its records so far are below. */
        if (reader->file || into->n > had) {
            uint64_t next = reader->in_unit ? reader->walk.lsn + reader->walk.index : reader->lsn;
            /* On the way to where the cursor is, the place is still behind it. */
            if (next >= reader->skip_all)
                cursor_give(reader->cursor, into->n > had ? into->records + had : NULL,
                            into->n - had, next);
        }
        if (into->n > had) {
            result->what = LOG_RECORDS;
            return 0; /* an error, if any, comes again at the next poll */
        }
        if (rc)
            return rc;
        bool woken = atomic_exchange_explicit(&reader->woken, false, memory_order_acquire);
        if (woken || clock_mono_ns() >= deadline) {
            result->what = LOG_IDLE;
            return 0;
        }
        sleep_until(journal, turn, deadline);
    }
}

void journal_wake(struct log_reader *log_reader)
{
    struct reader *reader = reader_of(log_reader);
    struct journal *journal = reader->journal;
    atomic_store_explicit(&reader->woken, true, memory_order_release);
    atomic_fetch_add_explicit(&journal->reader_turn, 1, memory_order_seq_cst);
    futex_wake(&journal->reader_turn, INT32_MAX);
}

void journal_settle(struct log_reader *log_reader, uint32_t partition, uint64_t offset)
{
    struct reader *reader = reader_of(log_reader);
    if (cursor_settle(reader->cursor, partition, offset))
        keeper_ask_tick(reader->journal);
}

void journal_release(struct log_reader *log_reader, uint32_t partition)
{
    (void)log_reader; /* the journal never takes a partition away */
    (void)partition;
}

uint64_t journal_lag(struct log_reader *log_reader)
{
    struct reader *reader = reader_of(log_reader);
    /* relaxed: a figure */
    uint64_t settled = atomic_load_explicit(&reader->cursor->records, memory_order_relaxed);
    uint64_t all = atomic_load_explicit(&reader->journal->durable_records, memory_order_relaxed);
    return all > settled ? all - settled : 0;
}
