/* recover.c: opening the journal for writing: finds where the log ends and makes it sound.
 *
 * Invariants
 *   1. Groups are written one after the other, each only after the one before it is synced. So
 *      at most one group, the last, may be on disk without being durable, and every group vouches
 *      for all before it. The header of a segment vouches for all before the segment.
 *   2. A valid group may have been acknowledged. It is never written over, and never cut off.
 *   3. A bad frame that no later group vouches for was never acknowledged: it is the torn tail. One
 *      that is vouched for was: then opening refuses, because going on would lose it for good.
 *   4. What nobody vouches for may lie in the page cache only, even after a sync that succeeds now
 *      (the one before the crash may have failed and told a process that is gone). So it is written
 *      again, into a new segment, at the same LSNs, and read by nobody before that is synced.
 *   5. The new segment is complete under a name that is no segment's, and becomes part of the log
 * by its rename. A crash before that leaves the log as it was; after it, the old tail lies beyond
 *      the end of its segment and is never looked at again.
 *   6. A group without units at the end (left by a clean stop, or by 4.) vouches for all before it
 *      and holds nothing: the next group is written over it.
 *
 *     files -> [no segment has begun] --create_first-----------------------------> [open]
 *           -> [last begun segment] --scan_last--> [bad frame, vouched for] ------> WEIR_CORRUPT
 *                                        |--> [nothing unvouched] --reuse_last----> [open]
 *                                        `--> [unvouched groups] --rewrite_tail---> [open]
 *
 * Only the last begun segment is read; whatever is wrong further back is met by its reader. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/mem.h"
#include "log/journal/journal.h"
#include "log/journal/walk.h"

struct place {
    uint64_t lsn, number, records_before;
};

struct tail {            /* what scan_last finds */
    struct place end;    /* behind the last valid group */
    struct place open;   /* the first group that nobody vouches for; end: there is none */
    bool open_has_units; /* any group from there on */
    uint64_t torn_bytes; /* of the group that was begun at `end`; 0: nothing was */
};

static int failed(struct diag *diag, int rc, const char *path, const char *what)
{
    return diag_set(diag, rc, "%s: %s: %s", path, what, strerror(errno));
}

/* --- unbegun files above the last segment ----------------------------------------------------- */

/* A file whose header page does not say that it has begun, and that yet holds groups from `base`
 * on, has begun: its header is damaged, and taking it for free would write over what it holds. */
static int check_unbegun(struct journal *journal, const struct segment_file *file, uint64_t base,
                         struct diag *diag)
{
    bool holds;
    char *path = segment_path(journal->folder, file->number);
    int rc = segment_holds_groups(journal->config.fs, journal->folder, file, base, &holds);
    if (rc)
        failed(diag, rc, path, "cannot be read");
    else if (holds)
        rc = diag_set(diag, WEIR_CORRUPT,
                      "%s: the header of this segment is damaged (byte 0), and it holds records; "
                      "restore the file from a copy, or move it away to give up what it holds",
                      path);
    mem_free(path);
    return rc;
}

/* --- the scan ----------------------------------------------------------------------------------
 */

/* Is there, behind the bad frame at `end`, a group that was written when `end` was durable? */
static int find_voucher(struct walk *walk, uint64_t end, struct group_header *voucher)
{
    for (uint64_t from = end + 8;; from = voucher->lsn + 8) {
        int rc = walk_search(walk, from, voucher);
        if (rc || voucher->durable > end)
            return rc;
    }
}

static int scan_last(struct journal *journal, const struct segment *last, struct tail *out,
                     struct diag *diag)
{
    char *path = segment_path(journal->folder, last->header.number);
    struct fs_file *file = NULL;
    struct walk walk = {0};
    struct group_header group, voucher;
    const char *units;
    int rc = fs_open(journal->config.fs, path, FS_READ, &file);
    if (rc) {
        failed(diag, rc, path, "cannot be opened");
        goto out;
    }
    walk_begin(&walk, file, &last->header, UINT64_MAX);
    struct place at = {walk.lsn, walk.number, walk.records_before};
    struct tail tail = {.open = at};
    while ((rc = walk_next(&walk, &group, &units)) == 0) {
        /* In a sound log a group says that all before it is durable; then it alone is open. */
        if (group.durable == group.lsn) {
            tail.open = at;
            tail.open_has_units = false;
        }
        tail.open_has_units |= group.units > 0;
        at = (struct place){walk.lsn, walk.number, walk.records_before};
    }
    tail.end = at;
    if (rc != WEIR_CORRUPT && rc != WEIR_END) {
        failed(diag, rc, path, "cannot be read");
        goto out;
    }
    const char *why = rc == WEIR_CORRUPT ? walk.why : NULL;
    if (rc == WEIR_CORRUPT) {
        rc = find_voucher(&walk, at.lsn, &voucher);
        if (rc == 0) {
            rc =
                diag_set(diag, WEIR_CORRUPT,
                         "%s: damaged at byte %" PRIu64 ": %s; a later group says that it had been "
                         "synced, so this is no torn tail. Nothing was changed. `weir journal "
                         "verify` shows what is readable; restore the file from a copy, or move it "
                         "away to give up what it holds",
                         path, segment_offset(&last->header, at.lsn), why);
            goto out;
        }
        if (rc != WEIR_END) {
            failed(diag, rc, path, "cannot be read");
            goto out;
        }
        /* A header at the end without its group: that group was being written. */
        char header[sizeof group];
        if (fs_pread_all(file, header, sizeof header, segment_offset(&last->header, at.lsn)) == 0 &&
            group_header_read(header, last->header.nonce, &group) && group.lsn == at.lsn)
            tail.torn_bytes = group_bytes(&group);
    }
    rc = 0;
    *out = tail;
out:
    walk_end(&walk);
    fs_close(file);
    mem_free(path);
    return rc;
}

/* --- the three ways to an open log -------------------------------------------------------------
 */

static void stand_at(struct writer *writer, const struct segment_header *segment,
                     const struct place *at)
{
    writer->segment = *segment;
    writer->lsn = at->lsn;
    writer->number = at->number;
    writer->records_before = at->records_before;
}

/* Goes on in the last segment. */
static int reuse_last(struct journal *journal, struct segment *last, const struct tail *tail,
                      struct diag *diag)
{
    char *path = segment_path(journal->folder, last->header.number);
    struct segment_use *use = NULL;
    int rc = segment_use_open(journal, path, last->header.number, last->header.bytes, false, &use);
    /* A group shows that the header before it was synced. Without one nobody knows: the sync may
     * have failed, and what is read here never have reached the disk. */
    if (rc == 0 && tail->end.lsn == last->header.base)
        rc = use->file->fs->pwrite(use->file, &last->header, sizeof last->header, 0);
    if (rc == 0 && tail->end.lsn == last->header.base)
        rc = use->file->fs->datasync(use->file);
    if (rc) {
        failed(diag, rc, path, "cannot be opened");
        segment_use_close(use);
    } else {
        /* Never below the file's end: what lies there may be the log. */
        uint64_t filled = last->file_bytes < use->bytes ? last->file_bytes : use->bytes;
        atomic_store_explicit(&use->filled, filled, memory_order_relaxed); /* no thread yet */
        journal->current = journal->writer.use = use;
        stand_at(&journal->writer, &last->header, &tail->open);
        journal->writer.vouched = tail->end.lsn != tail->open.lsn;
    }
    mem_free(path);
    return rc;
}

/* A new header after `last` (NULL: the first of all), for groups from `at` on. */
static struct segment_header header_after(const struct segment *last, uint64_t number,
                                          uint64_t bytes, const struct place *at)
{
    struct segment_header header = {
        .number = number,
        .nonce = segment_nonce(),
        .base = at->lsn,
        .bytes = bytes,
        .previous_number = last ? last->header.number : 0,
        .previous_nonce = last ? last->header.nonce : 0,
        .first_group = at->number,
        .records_before = at->records_before,
    };
    segment_header_seal(&header);
    return header;
}

static size_t put_group(char *to, struct group_header *header, const char *units)
{
    uint64_t trailer;
    group_header_seal(header);
    memcpy(to, header, sizeof *header);
    memcpy(to + sizeof *header, units, header->payload);
    trailer = header->checksum;
    memcpy(to + sizeof *header + header->payload, &trailer, sizeof trailer);
    return group_bytes(header);
}

/* The new segment's bytes: header page, the open groups under its nonce, a group that vouches for
 * them. Returns NULL and the walk's error when they cannot be read again. */
static char *build_rewrite(struct journal *journal, const struct segment *last,
                           const struct tail *tail, const struct segment_header *header, size_t n,
                           int *error)
{
    char *path = segment_path(journal->folder, last->header.number);
    char *image = mem_try_alloc(n);
    struct fs_file *file = NULL;
    struct walk walk = {0};
    struct group_header group = {.lsn = tail->open.lsn};
    const char *units;
    int rc = image ? fs_open(journal->config.fs, path, FS_READ, &file) : WEIR_NO_MEMORY;
    if (rc)
        goto out;
    memset(image, 0, SEGMENT_DATA);
    memcpy(image, header, sizeof *header);
    walk_begin(&walk, file, &last->header, tail->end.lsn);
    group.number = tail->open.number;
    group.records_before = tail->open.records_before;
    walk_resume(&walk, &group);
    char *to = image + SEGMENT_DATA;
    while (walk.lsn < tail->end.lsn) {
        rc = walk_next(&walk, &group, &units);
        if (rc)
            goto out;
        group.nonce = header->nonce;
        group.durable = tail->open.lsn;
        to += put_group(to, &group, units);
    }
    /* True by the time anyone can read it: the file has no name in the log before its sync. */
    struct group_header vouch = {.nonce = header->nonce,
                                 .number = tail->end.number,
                                 .lsn = tail->end.lsn,
                                 .durable = tail->end.lsn,
                                 .records_before = tail->end.records_before};
    to += put_group(to, &vouch, "");
    assert(to == image + n);
out:
    walk_end(&walk);
    fs_close(file);
    mem_free(path);
    if (rc) {
        mem_free(image);
        image = NULL;
    }
    *error = rc;
    return image;
}

/* Gives the disk back what the old segment will never hold. Only a saving: failing is harmless. */
static void cut_file(struct journal *journal, const struct segment *segment)
{
    char *path = segment_path(journal->folder, segment->header.number);
    struct fs_file *file;
    if (fs_open(journal->config.fs, path, FS_WRITE, &file) == 0) {
        uint64_t keep = segment_offset(&segment->header, segment->end);
        file->fs->truncate(file, (keep + 4095) / 4096 * 4096);
        fs_close(file);
    }
    mem_free(path);
}

/* `spare`: a file written through, or NULL. */
static int rewrite_tail(struct journal *journal, const struct segment_file *spare,
                        const struct tail *tail, struct diag *diag)
{
    const struct fs *fs = journal->config.fs;
    struct segment *last = &journal->segments.items[journal->segments.n - 1];
    uint64_t number = spare ? spare->number : journal->next_number;
    size_t n = SEGMENT_DATA + (size_t)(tail->end.lsn - tail->open.lsn) + GROUP_OVERHEAD;
    uint64_t bytes = journal->config.segment_bytes;
    if (bytes < n) /* the configuration's segments are smaller than they were */
        bytes = (n + 4095) / 4096 * 4096;
    struct segment_header header = header_after(last, number, bytes, &tail->open);
    char *path = segment_path(journal->folder, number);
    char *draft = mem_printf("%s/" SEGMENT_REWRITE, journal->folder);
    struct segment_use *use = NULL;
    int rc;
    char *image = build_rewrite(journal, last, tail, &header, n, &rc);
    /* Durable before a byte of it changes: else the power might go and give it its old name back,
     * which is a segment's, with half of the new bytes. */
    if (rc == 0 && spare)
        rc = fs->rename(fs, path, draft);
    if (rc == 0 && spare)
        rc = fs->sync_dir(fs, journal->folder);
    if (rc == 0)
        rc = segment_use_open(journal, draft, number, bytes, !spare, &use);
    if (rc == 0)
        rc = use->file->fs->pwrite(use->file, image, n, 0);
    if (rc == 0)
        rc = use->file->fs->datasync(use->file);
    if (rc == 0)
        rc = fs->rename(fs, draft, path);
    if (rc == 0)
        rc = fs->sync_dir(fs, journal->folder);
    if (rc) {
        failed(diag, rc, path, "the log's last group cannot be written again");
        segment_use_close(use);
        goto out;
    }
    uint64_t there = spare && spare->bytes > n ? spare->bytes : n;
    atomic_store_explicit(&use->filled, there, memory_order_relaxed); /* no thread yet */
    if (!spare)
        journal->next_number++;
    last->end = tail->open.lsn;
    cut_file(journal, last);
    struct segment segment = {.header = header, .end = UINT64_MAX, .file_bytes = there};
    segment_list_add(&journal->segments, &segment);
    journal->current = journal->writer.use = use;
    stand_at(&journal->writer, &header, &tail->end);
    journal->writer.vouched = true;
out:
    mem_free(image);
    mem_free(draft);
    mem_free(path);
    return rc;
}

/* Only its first step is written through here, so that a first start is quick; the keeper goes on.
 */
static int create_first(struct journal *journal, struct diag *diag)
{
    const struct fs *fs = journal->config.fs;
    uint64_t number = journal->next_number++;
    struct place at = {.lsn = JOURNAL_FIRST_LSN};
    struct segment_header header = header_after(NULL, number, journal->config.segment_bytes, &at);
    char *path = segment_path(journal->folder, number);
    struct segment_use *use = NULL;
    int rc = segment_use_open(journal, path, number, header.bytes, true, &use);
    if (rc == 0)
        rc = segment_use_fill(use, FILL_STEP);
    if (rc == WEIR_POISONED) /* nothing is open yet that could be */
        rc = WEIR_IO;
    if (rc == 0)
        rc = fs->sync_dir(fs, journal->folder);
    if (rc == 0)
        rc = use->file->fs->pwrite(use->file, &header, sizeof header, 0);
    if (rc == 0)
        rc = use->file->fs->datasync(use->file);
    if (rc) {
        failed(diag, rc, path, "cannot be created");
        segment_use_close(use);
    } else {
        struct segment segment = {.header = header, .end = UINT64_MAX};
        segment_list_add(&journal->segments, &segment);
        journal->current = journal->writer.use = use;
        stand_at(&journal->writer, &header, &at);
    }
    mem_free(path);
    return rc;
}

/* --- what is left over --------------------------------------------------------------------------
 */

static void remove_file(struct journal *journal, uint64_t number)
{
    char *path = segment_path(journal->folder, number);
    journal->config.fs->unlink(journal->config.fs, path);
    mem_free(path);
}

/* Files written through and waiting: kept where they are of use. */
static void adopt_ready(struct journal *journal, const struct segment_folder *folder)
{
    uint64_t last = journal->writer.use->number;
    for (size_t i = 0; i < folder->n_others; i++) {
        const struct segment_file *file = &folder->others[i];
        if (file->number == last)
            continue;
        struct segment_use *use = NULL;
        char *path = segment_path(journal->folder, file->number);
        if (file->number > last && journal->n_ready < READY_MAX &&
            file->bytes <= journal->config.segment_bytes &&
            segment_use_open(journal, path, file->number, journal->config.segment_bytes, false,
                             &use) == 0) {
            /* The last step may not have reached the disk: it is written again. */
            uint64_t filled = file->bytes - file->bytes % FILL_STEP;
            filled = filled < FILL_STEP ? 0 : filled - FILL_STEP;
            atomic_store_explicit(&use->filled, filled, memory_order_relaxed); /* no thread yet */
            journal->ready[journal->n_ready++] = use;
        } else {
            remove_file(journal, file->number);
        }
        mem_free(path);
    }
}

static int recover_from(struct journal *journal, struct segment_folder *folder, struct diag *diag)
{
    if (journal->segments.n == 0)
        return create_first(journal, diag);
    struct segment *last = &journal->segments.items[journal->segments.n - 1];
    struct tail tail = {0};
    int rc = scan_last(journal, last, &tail, diag);
    if (rc)
        return rc;
    if (tail.torn_bytes)
        journal_report(journal,
                       "the journal's last group (%" PRIu64 " bytes at offset %" PRIu64
                       ") was not written whole and is left out; it was never acknowledged",
                       tail.torn_bytes, tail.end.lsn);
    if (!tail.open_has_units)
        return reuse_last(journal, last, &tail, diag);
    const struct segment_file *spare = NULL;
    for (size_t i = 0; i < folder->n_others && !spare; i++)
        if (folder->others[i].number > last->header.number &&
            folder->others[i].bytes <= journal->config.segment_bytes)
            spare = &folder->others[i];
    return rewrite_tail(journal, spare, &tail, diag);
}

int journal_recover(struct journal *journal, struct diag *diag)
{
    const struct fs *fs = journal->config.fs;
    struct segment_folder folder = {0};
    int rc = fs_mkdirs(fs, journal->folder);
    if (rc)
        return failed(diag, rc, journal->folder, "cannot be made");
    rc = segment_folder_read(fs, journal->folder, &folder, diag);
    if (rc)
        return rc;
    /* What a process before us created or renamed is seen now; from here on it is there to stay. */
    if (folder.last_number || folder.rewrite_left)
        rc = fs->sync_dir(fs, journal->folder);
    if (rc) {
        failed(diag, rc, journal->folder, "cannot be synced");
        goto out;
    }
    journal->next_number = folder.last_number + 1;
    journal->segments = folder.begun; /* now the journal's */
    folder.begun = (struct segment_list){0};
    struct segment_header last = {0};
    if (journal->segments.n)
        last = journal->segments.items[journal->segments.n - 1].header;
    for (size_t i = 0; rc == 0 && i < folder.n_others; i++)
        if (folder.others[i].number > last.number)
            rc = check_unbegun(journal, &folder.others[i], last.base, diag);
    if (rc)
        goto out;
    if (folder.rewrite_left) {
        char *draft = mem_printf("%s/" SEGMENT_REWRITE, journal->folder);
        fs->unlink(fs, draft);
        mem_free(draft);
    }
    rc = recover_from(journal, &folder, diag);
    if (rc == 0)
        adopt_ready(journal, &folder);
out:
    segment_folder_fini(&folder);
    return rc;
}
