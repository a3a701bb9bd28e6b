/* scan.c: visits the records of the whole log from an offset on, straight from the files. Works
 * beside a live gateway, in its process (up to the durable LSN) or in another: there what is still
 * being written ends the scan, unless a later group shows that it is damage. A segment that is
 * taken for something new meanwhile had been settled by all consumers, so the scan goes on behind
 * it.
 *
 * Any thread; blocking. Memory: one group. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "log/journal/journal.h"
#include "log/journal/walk.h"

struct scan {
    struct journal *journal;
    uint64_t from;  /* offset */
    uint64_t limit; /* LSN */
    int (*visit)(void *context, const struct record *record);
    void *context;
    struct diag *diag;
    uint64_t at; /* LSN: all before it has been visited or is not wanted */
    int stopped; /* what `visit` ended it with */
};

static int visit_group(struct scan *scan, const struct group_header *group, const char *units)
{
    const char *p = units, *why;
    uint64_t lsn = group->lsn + sizeof *group;
    for (uint32_t i = 0; i < group->units; i++) {
        struct unit_header unit;
        struct unit_walk walk;
        struct record record;
        int rc = unit_check(p, (size_t)(units + group->payload - p), lsn, &unit, &why);
        if (rc)
            return rc;
        unit_walk_begin(&walk, p, &unit);
        while ((rc = unit_walk_next(&walk, &record)) == 0)
            if (record.offset >= scan->from &&
                (scan->stopped = scan->visit(scan->context, &record)) != 0)
                return WEIR_CANCELLED;
        if (rc != WEIR_END)
            return diag_set(scan->diag, rc, "offset %" PRIu64 ": the records are malformed", lsn);
        p += unit.bytes;
        lsn += unit.bytes;
    }
    return 0;
}

/* The segment's file is no longer the segment. */
static bool taken_for_another(struct fs_file *file, const struct segment *segment)
{
    struct segment_header now;
    enum segment_state state;
    return segment_header_load(file, segment->header.number, &now, &state) == 0 &&
           (state != SEGMENT_BEGUN || now.nonce != segment->header.nonce);
}

/* At a bad frame in the last segment: does a group behind it say that it had been synced? What is
 * being written right now may be whole by the time a later group is: so the frame is looked at
 * again after one was found. 0: it is whole now; WEIR_END: nobody vouches, the log ends here;
 * WEIR_CORRUPT. */
static int look_behind(struct walk *walk)
{
    struct group_header later;
    for (uint64_t from = walk->lsn + 8;; from = later.lsn + 8) {
        int rc = walk_search(walk, from, &later);
        if (rc)
            return rc;
        if (later.durable > walk->lsn)
            break;
    }
    struct walk again = *walk;
    struct group_header group;
    const char *units;
    again.n = 0; /* from the file */
    int rc = walk_next(&again, &group, &units);
    walk->buffer = again.buffer;
    walk->capacity = again.capacity;
    walk->n = 0;
    walk->why = again.why;
    return rc;
}

/* Visits one segment from scan->at on and moves it. WEIR_AGAIN: the list is out of date. WEIR_END:
 * here the log ends. */
static int scan_segment(struct scan *scan, const struct segment *segment)
{
    char *path = segment_path(scan->journal->folder, segment->header.number);
    struct fs_file *file = NULL;
    struct walk walk = {0};
    struct group_header group;
    const char *units;
    uint64_t limit = segment->end < scan->limit ? segment->end : scan->limit;
    int rc = fs_open(scan->journal->config.fs, path, FS_READ, &file);
    if (rc) {
        rc = rc == WEIR_NOT_FOUND
                 ? WEIR_AGAIN
                 : diag_set(scan->diag, rc, "%s: cannot be opened: %s", path, strerror(errno));
        goto out;
    }
    walk_begin(&walk, file, &segment->header, limit);
    while (walk.lsn < limit) {
        rc = walk_next(&walk, &group, &units);
        if (rc == WEIR_CORRUPT && limit == UINT64_MAX) {
            rc = look_behind(&walk);
            if (rc == 0)
                continue;
        }
        if (rc)
            break;
        if (walk.lsn <= scan->at)
            continue;
        rc = visit_group(scan, &group, units);
        if (rc)
            goto out;
        scan->at = walk.lsn;
    }
    if (rc == WEIR_CORRUPT && taken_for_another(file, segment)) {
        rc = WEIR_AGAIN;
    } else if (rc == WEIR_END && walk.lsn < limit) {
        if (walk.lsn > scan->at)
            scan->at = walk.lsn;
    } else if (rc == WEIR_CORRUPT) {
        diag_set(scan->diag, rc, "%s: damaged at byte %" PRIu64 " (offset %" PRIu64 "): %s", path,
                 segment_offset(&segment->header, walk.lsn), walk.lsn, walk.why);
    } else if (rc == 0 || rc == WEIR_END) {
        rc = limit == segment->end ? 0 : WEIR_END;
        if (limit > scan->at)
            scan->at = limit;
    } else {
        diag_set(scan->diag, rc, "%s: cannot be read: %s", path, strerror(errno));
    }
out:
    walk_end(&walk);
    fs_close(file);
    mem_free(path);
    return rc;
}

/* All segments of one list. *last: where the last of them begins. */
static int scan_list(struct scan *scan, const struct segment_list *list)
{
    for (size_t i = 0; i < list->n; i++) {
        const struct segment *segment = &list->items[i];
        if (segment->end <= scan->at || segment->header.base >= scan->limit)
            continue;
        if (segment->damaged)
            return diag_set(scan->diag, WEIR_CORRUPT,
                            "%s/%010" PRIu64 ".seg: the header of this segment is damaged",
                            scan->journal->folder, segment->header.number);
        int rc = scan_segment(scan, segment);
        if (rc)
            return rc;
    }
    return WEIR_END;
}

int journal_scan(struct log *log, uint64_t from_offset,
                 int (*visit)(void *context, const struct record *record), void *context,
                 struct diag *diag)
{
    struct journal *journal = journal_of(log);
    struct scan scan = {
        .journal = journal,
        .from = from_offset,
        .limit = UINT64_MAX,
        .visit = visit,
        .context = context,
        .diag = diag,
        .at = from_offset,
    };
    if (!journal->config.read_only)
        scan.limit = atomic_load_explicit(&journal->durable_lsn, memory_order_acquire);
    for (uint64_t seen = 0;;) {
        struct segment_folder folder;
        int rc = segment_folder_read(journal->config.fs, journal->folder, &folder, diag);
        if (rc == WEIR_NOT_FOUND)
            return 0; /* nothing was ever written */
        if (rc)
            return rc;
        uint64_t last = folder.begun.n ? folder.begun.items[folder.begun.n - 1].header.number : 0;
        rc = scan_list(&scan, &folder.begun);
        segment_folder_fini(&folder);
        if (scan.stopped)
            return scan.stopped;
        /* At the end there may be a segment more than there was: then look once again. */
        if (rc == WEIR_END && last == seen)
            return 0;
        if (rc != WEIR_END && rc != WEIR_AGAIN)
            return rc;
        seen = last;
    }
}
