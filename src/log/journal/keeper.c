/* keeper.c: the thread `journal-prep`. It keeps a segment written through ahead of the log thread,
 * saves cursors that have moved, and lets go of segments that all consumers have settled.
 *
 * Invariants
 *   1. A segment goes only when it ends at or before every cursor as it lies on disk; the oldest
 *      goes first; the last never.
 *   2. A file becomes ready for the log thread only when its name is durable: a segment that is
 *      begun cannot lose it.
 *   3. A file that is let go of is taken again under a new number, while there is use for one; the
 *      new header makes its old groups strangers (their nonce is another).
 *   4. A failed sync of a file that nothing lies in yet costs that file. Of the file that the log
 *      thread writes, it poisons the journal: the sync covered the log's bytes too. The log thread
 *      acknowledges nothing while such a sync is on its way.
 *
 * While the disk refuses, it tries again every RETRY_NS, and says so once.
 * Threads: all here is the keeper's; opening and closing may call keeper_tick. */
#include <assert.h>
#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "log/journal/journal.h"

/* --- segments ahead ----------------------------------------------------------------------------
 */

static void close_left(struct journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    struct segment_use *left = journal->left;
    journal->left = NULL;
    pthread_mutex_unlock(&journal->lock);
    while (left) {
        struct segment_use *next = left->next;
        segment_use_close(left);
        left = next;
    }
}

static bool unfilled(const struct segment_use *use)
{
    return atomic_load_explicit(&use->filled, memory_order_relaxed) < use->bytes;
}

/* What is to be written through next: the file in use before those behind it. */
static struct segment_use *next_to_fill(struct journal *journal, bool *create)
{
    struct segment_use *found = NULL;
    pthread_mutex_lock(&journal->lock);
    if (unfilled(journal->current))
        found = journal->current;
    for (size_t i = 0; i < journal->n_ready && !found; i++)
        if (unfilled(journal->ready[i]))
            found = journal->ready[i];
    *create = !found && journal->n_ready == 0;
    pthread_mutex_unlock(&journal->lock);
    return found;
}

/* Adds a file whose name is durable. False: there is no use for it. */
static bool make_ready(struct journal *journal, struct segment_use *use)
{
    pthread_mutex_lock(&journal->lock);
    bool taken = journal->n_ready < READY_MAX;
    if (taken)
        journal->ready[journal->n_ready++] = use;
    pthread_cond_signal(&journal->filled);
    pthread_mutex_unlock(&journal->lock);
    return taken;
}

static void unlink_segment(struct journal *journal, uint64_t number)
{
    char *path = segment_path(journal->folder, number);
    int kept = errno;
    journal->config.fs->unlink(journal->config.fs, path);
    errno = kept;
    mem_free(path);
}

static int create_segment(struct journal *journal)
{
    const struct fs *fs = journal->config.fs;
    uint64_t number = journal->next_number++;
    char *path = segment_path(journal->folder, number);
    struct segment_use *use = NULL;
    int rc = segment_use_open(journal, path, number, journal->config.segment_bytes, true, &use);
    if (rc == 0)
        rc = segment_use_fill(use, FILL_STEP);
    if (rc == 0)
        rc = fs->sync_dir(fs, journal->folder);
    if (rc == 0) {
        make_ready(journal, use);
    } else {
        segment_use_close(use);
        unlink_segment(journal, number);
        rc = rc == WEIR_POISONED ? WEIR_IO : rc;
    }
    mem_free(path);
    return rc;
}

/* A sync of this file failed. Returns the error to go on with. */
static int sync_failed(struct journal *journal, struct segment_use *use)
{
    bool in_use = true;
    pthread_mutex_lock(&journal->lock);
    for (size_t i = 0; i < journal->n_ready; i++) {
        if (journal->ready[i] != use)
            continue;
        /* Those behind it go with it, so that numbers keep rising. */
        in_use = false;
        for (size_t k = i; k < journal->n_ready; k++) {
            journal->ready[k]->next = journal->left;
            journal->left = journal->ready[k];
        }
        journal->n_ready = i;
        break;
    }
    pthread_mutex_unlock(&journal->lock);
    if (in_use) {
        journal_refuse(journal, REFUSE_POISONED, WEIR_POISONED);
        journal_report(journal,
                       "the journal's sync failed (writing a segment through: %s): nothing more is "
                       "acknowledged until restart; look at the disk, then restart weir",
                       strerror(errno));
        return WEIR_POISONED;
    }
    return WEIR_IO;
}

static void tell_prepare(struct journal *journal, int rc)
{
    int before;
    pthread_mutex_lock(&journal->lock);
    before = journal->prepare_error;
    journal->prepare_error = rc;
    if (rc == 0)
        journal_allow(journal, REFUSE_PREPARE);
    pthread_cond_signal(&journal->filled);
    pthread_mutex_unlock(&journal->lock);
    if (rc && !before && rc != WEIR_POISONED)
        journal_report(journal, "the journal's next segment cannot be prepared in %s: %s%s",
                       journal->folder,
                       rc == WEIR_NO_SPACE ? "no space is left on the device" : strerror(errno),
                       rc == WEIR_NO_SPACE ? "; make room there, weir goes on by itself" : "");
    else if (!rc && before)
        journal_report(journal, "the journal's next segment can be prepared again");
}

/* One step of what is to be done. */
static int prepare(struct journal *journal)
{
    bool create;
    struct segment_use *use = next_to_fill(journal, &create);
    if (!use && !create)
        return 0;
    if (use) /* seq_cst: see sync_use */
        atomic_store_explicit(&use->syncing, true, memory_order_seq_cst);
    int rc = use ? segment_use_fill(use, FILL_STEP) : create_segment(journal);
    if (rc == WEIR_POISONED)
        rc = sync_failed(journal, use);
    if (use) {
        pthread_mutex_lock(&journal->lock);
        atomic_store_explicit(&use->syncing, false, memory_order_release);
        pthread_cond_signal(&journal->filled);
        pthread_mutex_unlock(&journal->lock);
    }
    tell_prepare(journal, rc);
    return rc;
}

/* --- letting go --------------------------------------------------------------------------------
 */

/* Behind a segment's end may lie groups that were given up: an attempt that failed, or a tail that
 * opening has written again elsewhere. Their LSNs are those of the log's own groups, and in a file
 * that has not begun they would look like a segment that lost its header. They go first; where that
 * would be much, the file goes instead. */
static int wipe_behind_end(struct segment_use *use, const struct segment *segment, uint64_t size)
{
    uint64_t from = segment_offset(&segment->header, segment->end);
    if (segment->damaged || from > size || size - from > GROUP_MAX)
        return WEIR_TOO_LARGE;
    return segment_use_wipe(use, from, size);
}

static bool recycle(struct journal *journal, const struct segment *segment)
{
    const struct fs *fs = journal->config.fs;
    pthread_mutex_lock(&journal->lock);
    bool wanted = journal->n_ready < READY_MAX;
    pthread_mutex_unlock(&journal->lock);
    if (!wanted)
        return false;
    char *from = segment_path(journal->folder, segment->header.number);
    uint64_t fresh = journal->next_number++, size = 0;
    char *to = segment_path(journal->folder, fresh);
    struct segment_use *use = NULL;
    bool renamed = false, done = false;
    int rc = segment_use_open(journal, from, fresh, journal->config.segment_bytes, false, &use);
    if (rc == 0)
        rc = use->file->fs->size(use->file, &size);
    if (rc == 0 && size == journal->config.segment_bytes &&
        wipe_behind_end(use, segment, size) == 0) {
        renamed = fs->rename(fs, from, to) == 0;
        done = renamed && fs->sync_dir(fs, journal->folder) == 0;
    }
    if (done) { /* relaxed: made ready under the lock */
        atomic_store_explicit(&use->filled, size, memory_order_relaxed);
        done = make_ready(journal, use);
    }
    if (!done) {
        segment_use_close(use);
        if (renamed)
            unlink_segment(journal, fresh);
    }
    mem_free(from);
    mem_free(to);
    return done || renamed;
}

/* Takes the segments that end at or before `low` out of the list, then off the disk. */
static void let_go(struct journal *journal, uint64_t low)
{
    pthread_mutex_lock(&journal->lock);
    size_t n = 0;
    while (n + 1 < journal->segments.n && journal->segments.items[n].end <= low)
        n++;
    struct segment *gone = mem_dup(journal->segments.items, (n + 1) * sizeof *gone);
    segment_list_remove_first(&journal->segments, n);
    pthread_mutex_unlock(&journal->lock);
    bool unlinked = false;
    for (size_t i = 0; i < n; i++) {
        if (recycle(journal, &gone[i]))
            continue;
        unlink_segment(journal, gone[i].header.number);
        unlinked = true;
    }
    /* Should this fail, files may come back after a power cut: all consumers are past them. */
    if (unlinked)
        journal->config.fs->sync_dir(journal->config.fs, journal->folder);
    mem_free(gone);
}

uint64_t keeper_disk_bytes(struct journal *journal)
{
    uint64_t bytes = 0;
    pthread_mutex_lock(&journal->lock);
    for (size_t i = 0; i < journal->segments.n; i++)
        bytes += journal->segments.items[i].header.bytes;
    for (size_t i = 0; i < journal->n_ready; i++)
        bytes += atomic_load_explicit(&journal->ready[i]->filled, memory_order_relaxed);
    pthread_mutex_unlock(&journal->lock);
    return bytes;
}

void keeper_tick(struct journal *journal)
{
    struct cursor *cursors[CURSORS_MAX];
    pthread_mutex_lock(&journal->lock);
    size_t n = journal->n_cursors;
    if (n) /* they live as long as the journal */
        memcpy(cursors, journal->cursors, n * sizeof *cursors);
    journal->tick_asked = false;
    pthread_mutex_unlock(&journal->lock);
    uint64_t low = UINT64_MAX;
    int rc = 0;
    for (size_t i = 0; i < n; i++) {
        int failed = cursor_save(cursors[i], journal->config.fs);
        rc = failed ? failed : rc;
        if (failed && !journal->cursors_failing)
            journal_report(journal, "%s: the cursor cannot be saved: %s", cursors[i]->path,
                           strerror(errno));
        uint64_t resume = atomic_load_explicit(&cursors[i]->durable_resume, memory_order_acquire);
        low = resume < low ? resume : low;
    }
    if (rc)
        keeper_ask_tick(journal);
    journal->cursors_failing = rc != 0;
    if (n) { /* without a consumer nothing is ever settled, and nothing goes */
        /* release: whoever finds room by it sees the cursors saved */
        atomic_store_explicit(&journal->low_lsn, low, memory_order_release);
        let_go(journal, low);
    }
    journal_update_full(journal);
}

void keeper_ask_tick(struct journal *journal)
{
    pthread_mutex_lock(&journal->lock);
    journal->tick_asked = true;
    pthread_cond_signal(&journal->work);
    pthread_mutex_unlock(&journal->lock);
}

/* --- the loop ----------------------------------------------------------------------------------
 */

/* Sleeps until there is work, or until the nearer of the times at which there may be. */
static bool wait_for_work(struct journal *journal, uint64_t tick_at, uint64_t retry_at)
{
    pthread_mutex_lock(&journal->lock);
    while (!journal->stop_keeper && !journal->left) {
        bool fill = unfilled(journal->current) || journal->n_ready == 0;
        for (size_t i = 0; i < journal->n_ready; i++)
            fill |= unfilled(journal->ready[i]);
        uint64_t until = UINT64_MAX, now = clock_mono_ns();
        if (fill)
            until = retry_at;
        if (journal->tick_asked && tick_at < until)
            until = tick_at;
        if (until <= now)
            break;
        if (until == UINT64_MAX) {
            pthread_cond_wait(&journal->work, &journal->lock);
        } else {
            struct timespec at = {.tv_sec = (time_t)(until / 1000000000),
                                  .tv_nsec = (long)(until % 1000000000)};
            pthread_cond_timedwait(&journal->work, &journal->lock, &at);
        }
    }
    bool stop = journal->stop_keeper;
    pthread_mutex_unlock(&journal->lock);
    return !stop;
}

void *keeper_run(void *argument)
{
    struct journal *journal = argument;
    uint64_t tick_at = 0, retry_at = 0;
    bool poisoned = false;
    while (wait_for_work(journal, tick_at, retry_at)) {
        close_left(journal);
        uint64_t now = clock_mono_ns();
        /* relaxed: only whether there is a use in preparing */
        if (atomic_load_explicit(&journal->refuse, memory_order_relaxed) & REFUSE_POISONED)
            poisoned = true;
        if (poisoned)
            retry_at = UINT64_MAX;
        else if (now >= retry_at)
            retry_at = prepare(journal) == 0 ? 0 : clock_mono_ns() + RETRY_NS;
        pthread_mutex_lock(&journal->lock);
        bool tick = journal->tick_asked && now >= tick_at;
        pthread_mutex_unlock(&journal->lock);
        if (tick) {
            keeper_tick(journal);
            tick_at = clock_mono_ns() + TICK_NS;
        }
    }
    return NULL;
}
