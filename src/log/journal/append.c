/* append.c: the caller's side of the journal: a body is encoded and checksummed where it was made,
 * handed to the log thread through the ring, and the log thread is woken if it sleeps.
 *
 * The wake: `writer_state` is changed only by exchanges (read-modify-writes), by both sides. The
 * log thread says that it will sleep, then looks into the ring once more; a producer pushes, then
 * looks at the state. Read-modify-writes of one word are in one order, each seeing the one before:
 * either the producer's look comes later and finds the sleeper, or the log thread's comes later
 * and, through it, sees the push. So no wake is lost, and while the log thread is awake no system
 * call is made.
 *
 * A body that nobody waits for does not wake a log thread that already gathers such ones and will
 * wake by itself (WRITER_LAZY), unless much has come together. */
#include <assert.h>
#include <time.h>

#include "base/clock.h"
#include "base/mem.h"
#include "log/journal/futex.h"
#include "log/journal/journal.h"

static void wake(struct journal *journal, bool now)
{
    /* acq_rel: see above; adding nothing is the cheapest read that is a read-modify-write */
    unsigned state = atomic_fetch_add_explicit(&journal->writer_state, 0, memory_order_acq_rel);
    if (state == WRITER_AWAKE || (state == WRITER_LAZY && !now))
        return;
    if (atomic_exchange_explicit(&journal->writer_state, WRITER_AWAKE, memory_order_acq_rel) !=
        WRITER_AWAKE)
        futex_wake(&journal->writer_state, 1);
}

void writer_wake(struct journal *journal)
{
    wake(journal, true);
}

static int refused(const struct journal *journal, unsigned refuse)
{
    if (refuse & REFUSE_CLOSED)
        return WEIR_CLOSED;
    if (refuse & REFUSE_POISONED)
        return WEIR_POISONED;
    if (refuse & (REFUSE_WRITE | REFUSE_PREPARE))
        return atomic_load_explicit(&journal->refuse_code, memory_order_relaxed);
    return WEIR_FULL;
}

int journal_append(struct log *log, struct body *body)
{
    struct journal *journal = journal_of(log);
    /* acquire: with refuse_code, which was written before */
    unsigned refuse = atomic_load_explicit(&journal->refuse, memory_order_acquire);
    if (refuse)
        return refused(journal, refuse);
    assert(body->n > 0);
    size_t bytes = unit_bytes(body->records, body->n);
    if (bytes > journal->unit_max)
        return WEIR_TOO_LARGE;
    struct encoded *encoded = mem_try_alloc(sizeof *encoded + bytes);
    if (!encoded)
        return WEIR_FULL;
    unit_encode(body->records, body->n, encoded->unit, bytes);
    bool urgent = body->urgent, more = body->more; /* pushed, it may be gone */
    if (!urgent)
        encoded->appended_ns = clock_mono_ns();
    body->encoded = encoded;
    body->encoded_bytes = bytes;
    size_t lazy = 0;
    if (!urgent) /* relaxed: only a sum to decide by */
        lazy = bytes + atomic_fetch_add_explicit(&journal->lazy_bytes, bytes, memory_order_relaxed);
    if (!ring_push(journal->ring, body)) { /* from here on, at success, the body is the log's */
        if (!urgent)
            atomic_fetch_sub_explicit(&journal->lazy_bytes, bytes, memory_order_relaxed);
        mem_free(encoded);
        body->encoded = NULL;
        wake(journal, true);
        return WEIR_FULL;
    }
    bool much = lazy >= LAZY_MAX ||
                (!urgent && ring_count(journal->ring) > ring_capacity(journal->ring) / 2);
    if (!urgent || !more)
        wake(journal, urgent || much);
    return 0;
}

void journal_kick(struct log *log)
{
    wake(journal_of(log), true);
}

void journal_flush(struct log *log)
{
    struct journal *journal = journal_of(log);
    struct flush_marker marker = {.body = {.urgent = true}};
    atomic_init(&marker.done, 0);
    while (!ring_push(journal->ring, &marker.body)) {
        wake(journal, true);
        nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
    }
    wake(journal, true);
    while (atomic_load_explicit(&marker.done, memory_order_acquire) == 0)
        futex_wait(&marker.done, 0, FUTEX_FOR_EVER);
}
