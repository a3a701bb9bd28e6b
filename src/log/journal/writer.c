/* writer.c: the log thread. It takes bodies from the ring, puts them into groups, and makes each
 * group durable with one write and one sync; then it tells the gateway, then the readers.
 *
 * Invariants
 *   1. One group is on its way at a time, and its place is behind a log that is durable up to
 * there.
 *   2. Whatever waits goes into the next group, in the ring's order, up to GROUP_MAX. Nothing that
 *      someone waits for is ever held back; what nobody waits for is held at most
 *      received_flush_ms or LAZY_MAX.
 *   3. A body is settled exactly once: with 0 only after write and sync both succeeded.
 *   4. After a failed write the log stands where it stood: the next group goes to the same place.
 *      What was partly written there is no group (format.h, 4.), so it was not applied, and that is
 *      what its bodies are told. After a failed sync nobody knows: they are told that, and nothing
 *      is written or synced any more (a second sync may succeed without having written anything).
 *   5. A segment is begun only when the group does not fit in the one before; its header is synced
 *      before the group is written.
 *   6. events.durable returns before a reader can see the group.
 *
 *                      .--- nothing in the ring ---> [idle] ---.
 *                      |                                        \ woken by append
 *     [gathering] -----+--- only bodies that can wait -> [lazy] -+--> [gathering]
 *          ^           |                                 or by time
 *          |           `--- write_group --> [settle] --.
 *          |                 | no space, EIO: settle with the error; refuse; probe every RETRY_NS
 *          |                 | sync failed:   settle with UNKNOWN --> [poisoned], until restart
 *          `---------------------------------------------'
 *
 * Everything here runs on the log thread, but for init, fini. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <sched.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "log/journal/futex.h"
#include "log/journal/journal.h"

void writer_init(struct writer *writer)
{
    writer->capacity = GROUP_MAX;
    writer->staging = mem_alloc(writer->capacity);
    writer->last = &writer->first;
    writer->n = sizeof(struct group_header);
}

void writer_fini(struct writer *writer)
{
    mem_free(writer->staging);
}

/* --- gathering ---------------------------------------------------------------------------------
 */

static void start_group(struct writer *writer)
{
    if (writer->capacity > GROUP_MAX) { /* one large body had it grow */
        mem_free(writer->staging);
        writer->capacity = GROUP_MAX;
        writer->staging = mem_alloc(writer->capacity);
    }
    writer->n = sizeof(struct group_header);
    writer->fold = 0;
    writer->units = writer->records = 0;
    writer->first = NULL;
    writer->last = &writer->first;
    writer->markers = NULL;
    writer->lazy_bytes = 0;
    writer->urgent = false;
}

static void take(struct journal *journal, struct body *body)
{
    struct writer *writer = &journal->writer;
    struct encoded *encoded = body->encoded;
    if (writer->n + body->encoded_bytes + GROUP_TRAILER > writer->capacity) {
        writer->capacity = writer->n + body->encoded_bytes + GROUP_TRAILER;
        writer->staging = mem_realloc(writer->staging, writer->capacity);
    }
    char *unit = writer->staging + writer->n;
    memcpy(unit, encoded->unit, body->encoded_bytes);
    uint64_t lsn = writer->lsn + writer->n, checksum;
    unit_place(unit, lsn);
    memcpy(&checksum, unit, sizeof checksum);
    writer->fold = group_fold(writer->fold, checksum);
    /* A unit has more bytes than records, so these never meet the next unit's. */
    for (uint32_t i = 0; i < body->n; i++)
        body->records[i].offset = lsn + i;
    writer->n += body->encoded_bytes;
    writer->units++;
    writer->records += body->n;
    if (body->urgent) {
        writer->urgent = true;
    } else {
        uint64_t deadline =
            encoded->appended_ns + (uint64_t)journal->config.received_flush_ms * 1000000;
        if (writer->deadline_ns == 0 || deadline < writer->deadline_ns)
            writer->deadline_ns = deadline;
        writer->lazy_bytes += body->encoded_bytes;
    }
    mem_free(encoded);
    body->encoded = NULL;
    body->next = NULL;
    *writer->last = body;
    writer->last = &body->next;
}

/* Takes what waits. */
static void gather(struct journal *journal)
{
    struct writer *writer = &journal->writer;
    for (;;) {
        struct body *body = writer->carry ? writer->carry : ring_pop(journal->ring);
        writer->carry = NULL;
        if (!body)
            return;
        if (!body->encoded) {
            body->next = writer->markers ? &writer->markers->body : NULL;
            writer->markers = (struct flush_marker *)body;
            writer->urgent = true;
            continue;
        }
        if (writer->units && writer->n + body->encoded_bytes + GROUP_TRAILER > journal->group_max) {
            writer->carry = body; /* the group is full */
            writer->urgent = true;
            return;
        }
        take(journal, body);
    }
}

/* --- segments ----------------------------------------------------------------------------------
 */

static void poison(struct journal *journal, const char *what, int error)
{
    journal_refuse(journal, REFUSE_POISONED, WEIR_POISONED);
    journal_report(
        journal,
        "the journal's sync failed (%s: %s): nothing more is acknowledged until restart; "
        "look at the disk, then restart weir",
        what, strerror(error));
}

/* Waits until the segment file is written through up to `until`, or the keeper cannot. */
static int wait_filled(struct journal *journal, struct segment_use *use, uint64_t until)
{
    int rc = 0;
    /* acquire: the keeper's zeros are there before our bytes */
    if (atomic_load_explicit(&use->filled, memory_order_acquire) >= until)
        return 0;
    pthread_mutex_lock(&journal->lock);
    while (atomic_load_explicit(&use->filled, memory_order_acquire) < until &&
           (rc = journal->prepare_error) == 0)
        pthread_cond_wait(&journal->filled, &journal->lock);
    pthread_mutex_unlock(&journal->lock);
    return rc;
}

/* Makes what was written to the file durable. The keeper may be syncing it too, and a sync that
 * fails there may have taken our bytes with it: its outcome is waited for. */
static int sync_use(struct journal *journal, struct segment_use *use, const char *what)
{
    if (use->file->fs->datasync(use->file) != 0) {
        poison(journal, what, errno);
        return WEIR_UNKNOWN;
    }
    /* seq_cst, like the keeper's store: a sync of the keeper's that began before ours ended is seen
     */
    if (atomic_load_explicit(&use->syncing, memory_order_seq_cst)) {
        pthread_mutex_lock(&journal->lock);
        while (atomic_load_explicit(&use->syncing, memory_order_relaxed))
            pthread_cond_wait(&journal->filled, &journal->lock);
        pthread_mutex_unlock(&journal->lock);
    }
    /* acquire: the keeper poisons before it says that its sync is over */
    unsigned refuse = atomic_load_explicit(&journal->refuse, memory_order_acquire);
    return refuse & REFUSE_POISONED ? WEIR_UNKNOWN : 0;
}

/* Takes a segment written through up to `until` out of the ready ones. */
static int take_ready(struct journal *journal, uint64_t until, struct segment_use **out)
{
    int rc = 0;
    pthread_mutex_lock(&journal->lock);
    while (!(journal->n_ready > 0 &&
             atomic_load_explicit(&journal->ready[0]->filled, memory_order_acquire) >= until) &&
           (rc = journal->prepare_error) == 0)
        pthread_cond_wait(&journal->filled, &journal->lock);
    if (rc == 0) {
        *out = journal->ready[0];
        journal->n_ready--;
        memmove(journal->ready, journal->ready + 1, journal->n_ready * sizeof *journal->ready);
    }
    pthread_mutex_unlock(&journal->lock);
    return rc;
}

/* Gives back what could not be begun. Meanwhile the keeper may have filled its place: there is one
 * more than it uses. */
static void return_ready(struct journal *journal, struct segment_use *use)
{
    pthread_mutex_lock(&journal->lock);
    memmove(journal->ready + 1, journal->ready, journal->n_ready * sizeof *journal->ready);
    journal->ready[0] = use;
    journal->n_ready++;
    pthread_mutex_unlock(&journal->lock);
}

/* Begins the next segment, where this one ends. */
static int begin_segment(struct journal *journal, uint64_t group)
{
    struct writer *writer = &journal->writer;
    struct segment_use *use;
    int rc = take_ready(journal, SEGMENT_DATA + group, &use);
    if (rc)
        return rc;
    struct segment_header header = {
        .number = use->number,
        .nonce = segment_nonce(),
        .base = writer->lsn,
        .bytes = use->bytes,
        .previous_number = writer->segment.number,
        .previous_nonce = writer->segment.nonce,
        .first_group = writer->number,
        .records_before = writer->records_before,
    };
    segment_header_seal(&header);
    /* After a failed write it is ready still; what was partly written there is no header. */
    rc = use->file->fs->pwrite(use->file, &header, sizeof header, 0);
    if (rc == 0 && sync_use(journal, use, "a segment's header") != 0)
        rc = WEIR_POISONED;
    if (rc) {
        return_ready(journal, use);
        return rc;
    }
    pthread_mutex_lock(&journal->lock);
    struct segment *last = &journal->segments.items[journal->segments.n - 1];
    last->end = writer->lsn;
    struct segment segment = {.header = header, .end = UINT64_MAX, .file_bytes = use->bytes};
    segment_list_add(&journal->segments, &segment);
    writer->use->next = journal->left;
    journal->left = writer->use;
    journal->current = use;
    pthread_cond_signal(&journal->work);
    pthread_mutex_unlock(&journal->lock);
    writer->use = use;
    writer->segment = header;
    return 0;
}

/* Makes sure that so many bytes can be written at writer->lsn. */
static int make_room(struct journal *journal, uint64_t group)
{
    struct writer *writer = &journal->writer;
    uint64_t until = segment_offset(&writer->segment, writer->lsn) + group;
    if (until <= writer->segment.bytes) {
        int rc = wait_filled(journal, writer->use, until);
        if (rc == 0)
            return 0;
        /* This file cannot grow; one that was let go of may be there to go on in. */
    }
    return begin_segment(journal, group);
}

/* --- writing -----------------------------------------------------------------------------------
 */

/* One write and one sync at writer->lsn. Nothing moves. */
static int write_bytes(struct journal *journal, size_t n)
{
    struct writer *writer = &journal->writer;
    struct fs_file *file = writer->use->file;
    int rc =
        file->fs->pwrite(file, writer->staging, n, segment_offset(&writer->segment, writer->lsn));
    if (rc)
        return rc;
    return sync_use(journal, writer->use, "a group");
}

/* Puts header and trailer around what was gathered (or nothing: a group that only vouches). */
static size_t seal(struct writer *writer)
{
    struct group_header header = {
        .nonce = writer->segment.nonce,
        .number = writer->number,
        .lsn = writer->lsn,
        .durable = writer->lsn,
        .records_before = writer->records_before,
        .units_fold = writer->fold,
        .payload = (uint32_t)(writer->n - sizeof header),
        .units = writer->units,
        .records = writer->records,
    };
    group_header_seal(&header);
    memcpy(writer->staging, &header, sizeof header);
    memcpy(writer->staging + writer->n, &header.checksum, sizeof header.checksum);
    return writer->n + GROUP_TRAILER;
}

/* Says once that the disk refuses, and once that it takes again. */
static void tell_outcome(struct journal *journal, int rc)
{
    struct writer *writer = &journal->writer;
    if (rc == 0 && writer->failing) {
        writer->failing = false;
        journal_report(journal, "the journal can be written again");
    } else if ((rc == WEIR_NO_SPACE || rc == WEIR_IO || rc == WEIR_DENIED) && !writer->failing) {
        writer->failing = true;
        journal_report(journal,
                       "the journal cannot be written (%s): %s; records are refused until it can",
                       journal->folder,
                       rc == WEIR_NO_SPACE ? "no space is left on the device, make room there"
                                           : weir_err_text(rc));
    }
}

/* Tries the disk with a group that holds nothing, in the place of the next one. */
static void probe(struct journal *journal)
{
    struct writer *writer = &journal->writer;
    start_group(writer);
    int rc = make_room(journal, GROUP_OVERHEAD);
    if (rc == 0)
        rc = write_bytes(journal, seal(writer));
    writer->vouched = rc == 0;
    if (rc == 0)
        journal_allow(journal, REFUSE_WRITE);
    tell_outcome(journal, rc);
    writer->probe_at_ns = clock_mono_ns() + RETRY_NS;
}

/* The disk gave no room: until it does, there is no use to try with every body. Other errors may
 * pass, and the next body tries. */
static void refuse_after(struct journal *journal, int rc)
{
    /* Under the lock, with which the keeper says that it goes on again: no refusal is left over. */
    pthread_mutex_lock(&journal->lock);
    if (journal->prepare_error) {
        journal_refuse(journal, REFUSE_PREPARE, rc);
    } else if (rc == WEIR_NO_SPACE) {
        journal_refuse(journal, REFUSE_WRITE, rc);
        journal->writer.probe_at_ns = clock_mono_ns() + RETRY_NS;
    }
    pthread_mutex_unlock(&journal->lock);
}

static int write_group(struct journal *journal)
{
    struct writer *writer = &journal->writer;
    if (atomic_load_explicit(&journal->refuse, memory_order_relaxed) & REFUSE_POISONED)
        return WEIR_POISONED;
    int rc = make_room(journal, writer->n + GROUP_TRAILER);
    if (rc) {
        refuse_after(journal, rc);
        return rc;
    }
    size_t n = seal(writer);
    writer->vouched = false;
    uint64_t start = clock_mono_ns();
    rc = write_bytes(journal, n);
    if (rc) {
        atomic_fetch_add_explicit(&journal->stat_flush_errors, 1, memory_order_relaxed);
        refuse_after(journal, rc);
        return rc;
    }
    histogram_record(journal->flush_ns, clock_mono_ns() - start);
    histogram_record(journal->group_records, writer->records);
    writer->lsn += n;
    writer->number++;
    writer->records_before += writer->records;
    /* relaxed: figures */
    atomic_fetch_add_explicit(&journal->stat_groups, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&journal->stat_flushes, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&journal->stat_records, writer->records, memory_order_relaxed);
    atomic_fetch_add_explicit(&journal->stat_bytes, n, memory_order_relaxed);
    return 0;
}

void writer_publish(struct journal *journal, uint64_t lsn, uint64_t records)
{
    atomic_store_explicit(&journal->durable_records, records, memory_order_relaxed);
    /* release: a reader that sees the LSN sees the segment it lies in, and what was told before */
    atomic_store_explicit(&journal->durable_lsn, lsn, memory_order_release);
    /* Read-modify-writes on both sides, as in append.c: a reader counts itself in, then looks at
     * the turn; we move the turn, then look whether anybody waits. seq_cst: two words. */
    atomic_fetch_add_explicit(&journal->reader_turn, 1, memory_order_seq_cst);
    if (atomic_load_explicit(&journal->readers_waiting, memory_order_seq_cst))
        futex_wake(&journal->reader_turn, INT32_MAX);
}

/* Writes the gathered group and lets go of its bodies. */
static void flush_group(struct journal *journal)
{
    struct writer *writer = &journal->writer;
    struct body *first = writer->first;
    if (writer->lazy_bytes) /* relaxed: only a sum to decide by */
        atomic_fetch_sub_explicit(&journal->lazy_bytes, writer->lazy_bytes, memory_order_relaxed);
    if (writer->units) {
        int rc = write_group(journal);
        tell_outcome(journal, rc);
        for (struct body *body = first; body; body = body->next)
            body->status = rc;
        journal->config.events.durable(journal->config.events.context, first);
        if (rc == 0) {
            writer_publish(journal, writer->lsn, writer->records_before);
            journal_update_full(journal);
        }
    }
    for (struct body *body = writer->markers ? &writer->markers->body : NULL; body;) {
        struct flush_marker *marker = (struct flush_marker *)body;
        body = body->next;
        /* release: the waiter sees all that happened before; after this its memory may be gone,
         * and waking its address wakes at worst a stranger who looks again */
        atomic_store_explicit(&marker->done, 1, memory_order_release);
        futex_wake(&marker->done, 1);
    }
    writer->deadline_ns = 0;
    start_group(writer);
}

/* --- the loop ----------------------------------------------------------------------------------
 */

/* Sleeps in this state until woken or until the deadline (0: none), unless something came. */
static void rest(struct journal *journal, enum writer_state state, uint64_t deadline_ns)
{
    atomic_exchange_explicit(&journal->writer_state, state, memory_order_acq_rel);
    struct body *body = ring_pop(journal->ring); /* pushed before they could see the state */
    journal->writer.carry = body;
    if (!body && !atomic_load_explicit(&journal->stop_writer, memory_order_acquire)) {
        uint64_t now = deadline_ns ? clock_mono_ns() : 0;
        if (deadline_ns == 0)
            futex_wait(&journal->writer_state, state, FUTEX_FOR_EVER);
        else if (now < deadline_ns)
            futex_wait(&journal->writer_state, state, deadline_ns - now);
    }
    atomic_exchange_explicit(&journal->writer_state, WRITER_AWAKE, memory_order_acq_rel);
}

/* Leaves a group without units at the end, so that the next opening has nothing to write again. */
static void vouch(struct journal *journal)
{
    struct writer *writer = &journal->writer;
    unsigned refuse = atomic_load_explicit(&journal->refuse, memory_order_relaxed);
    uint64_t until = segment_offset(&writer->segment, writer->lsn) + GROUP_OVERHEAD;
    if (writer->vouched || writer->lsn == writer->segment.base || (refuse & REFUSE_POISONED) ||
        until > atomic_load_explicit(&writer->use->filled, memory_order_acquire) ||
        until > writer->segment.bytes)
        return; /* not needed, not allowed, or not worth a new segment */
    write_bytes(journal, seal(writer));
}

void *writer_run(void *argument)
{
    struct journal *journal = argument;
    struct writer *writer = &journal->writer;
    for (;;) {
        gather(journal);
        bool stop = atomic_load_explicit(&journal->stop_writer, memory_order_acquire);
        if (writer->units == 0 && !writer->markers) {
            if (stop && ring_count(journal->ring) == 0)
                break;
            unsigned refuse = atomic_load_explicit(&journal->refuse, memory_order_relaxed);
            bool probing = (refuse & REFUSE_WRITE) && !(refuse & REFUSE_POISONED);
            if (probing && clock_mono_ns() >= writer->probe_at_ns)
                probe(journal);
            rest(journal, WRITER_IDLE, probing ? writer->probe_at_ns : 0);
            continue;
        }
        if (!writer->urgent && !stop &&
            atomic_load_explicit(&journal->lazy_bytes, memory_order_relaxed) < LAZY_MAX &&
            clock_mono_ns() < writer->deadline_ns) {
            rest(journal, WRITER_LAZY, writer->deadline_ns);
            continue;
        }
        /* Threads that wait for this CPU may be about to append: they go first, once. Where nobody
         * waits for it this costs nothing, and a lone body is not held back. */
        sched_yield();
        gather(journal);
        flush_group(journal);
    }
    vouch(journal);
    return NULL;
}
