/* part.c: a part and its feed: what waits, and when the next call goes out (the picture and the
 * states are in engine.h). The consumer's thread only.
 *
 * A part has two queues. `again` holds what was sent before and must be sent first, in order;
 * `waiting` what was not sent yet. While `again` has anything the waiting ones of an ordered part
 * stay where they are: no record is written before an earlier one of its key that is in retry.
 * Within one call a sink may have stored a later record of a key and not an earlier one. The
 * earlier one is then sent again on its own; where both have one id its lower version cannot
 * overtake what is there, and where the ids differ both rows are as they should be.
 *
 * While the breaker is not closed no part rests: the breaker holds them all, and each probe is made
 * by the next part in line.
 *
 * While a part's call is in flight its next one is built and staged, and grows as records arrive.
 * If all of the first is stored the lane takes the staged one and goes on at once, without a turn
 * over the consumer's thread. If not, the staged records go back to where they were: they may have
 * to wait for what must be sent again. */
#include <assert.h>

#include "base/hash.h"
#include "base/mem.h"
#include "delivery/engine.h"

#define LANE_FULL_NS (UINT64_C(5) * 1000000)    /* a shared lane may be full of others' tasks */
#define CAP_CHECK_NS (UINT64_C(200) * 1000000)  /* has a dead letter been dropped? */
#define CAP_PROBE_NS (UINT64_C(5000) * 1000000) /* try even if none seems to have been */

/* ---- lists ---- */

static void list_add(struct part_list *list, struct part *part)
{
    part->prev = list->last;
    part->next = NULL;
    if (list->last)
        list->last->next = part;
    else
        list->first = part;
    list->last = part;
}

static void list_add_front(struct part_list *list, struct part *part)
{
    part->prev = NULL;
    part->next = list->first;
    if (list->first)
        list->first->prev = part;
    else
        list->last = part;
    list->first = part;
}

static void list_remove(struct part_list *list, struct part *part)
{
    if (part->prev)
        part->prev->next = part->next;
    else
        list->first = part->next;
    if (part->next)
        part->next->prev = part->prev;
    else
        list->last = part->prev;
}

static void make_ready(struct part *part)
{
    struct feed *f = part->feed;
    if (part->state == PART_RESTING)
        list_remove(&f->resting, part);
    part->state = PART_READY;
    list_add(&f->ready, part);
}

/* ---- life ---- */

void feed_init(struct feed *f, struct consumer *c, unsigned sink)
{
    struct delivery *d = c->delivery;
    struct lane_counts counts;
    f->consumer = c;
    f->index = sink;
    f->sink = &d->config.sinks[sink];
    f->dead = d->dead[sink];
    f->one_part = f->sink->sink->ops->writers == 1;
    f->n_parts = f->one_part ? 1 : (size_t)d->config.partitions * f->sink->split;
    f->parts = mem_zalloc(f->n_parts * sizeof(*f->parts));
    lane_counts(f->sink->lane, &counts);
    f->calls_max = f->one_part ? 1 : 2 * (counts.threads ? counts.threads : 1);
    f->sessions = mem_zalloc(f->calls_max * sizeof(struct sink_session *));
    breaker_init(&f->breaker, f->sink->breaker_failures, f->sink->retry_min_ms,
                 f->sink->retry_max_ms, hash_process_seed() + sink);
    f->batch_records = histogram_create();
    f->write_ns = histogram_create();
    pthread_mutex_init(&f->mutex, NULL);
}

static struct part *part_create(struct feed *f, size_t index)
{
    struct part *part = mem_zalloc(sizeof(*part));
    part->task.run = call_run;
    part->task.finish = call_finish;
    part->feed = f;
    part->strand = strand_create(f->sink->lane);
    backoff_init(&part->backoff, f->sink->retry_min_ms, f->sink->retry_max_ms,
                 hash64_seeded(&index, sizeof(index), hash_process_seed()));
    return part;
}

void feed_fini(struct feed *f)
{
    feed_close_sessions(f);
    for (size_t i = 0; i < f->n_parts; i++) {
        struct part *part = f->parts[i];
        if (!part)
            continue;
        strand_destroy(part->strand);
        call_destroy(atomic_load_explicit(&part->staged, memory_order_relaxed));
        fifo_fini(&part->again);
        fifo_fini(&part->waiting);
        mem_free(part);
    }
    while (f->idle) {
        struct call *call = f->idle;
        f->idle = call->next;
        call_destroy(call);
    }
    mem_free(f->parts);
    mem_free(f->sessions);
    histogram_destroy(f->batch_records);
    histogram_destroy(f->write_ns);
    pthread_mutex_destroy(&f->mutex);
}

/* ---- records come in, or are given up ---- */

void feed_push(struct feed *f, uint32_t slot, const struct record *record)
{
    size_t index = 0;
    if (!f->one_part) {
        unsigned split = f->sink->split;
        index = (size_t)record->partition * split;
        if (split > 1)
            index += hash64(record->key.p, record->key.n) % split;
    }
    struct part *part = f->parts[index];
    if (!part)
        part = f->parts[index] = part_create(f, index);
    fifo_push(&part->waiting, slot);
    if (part->state == PART_EMPTY || (part->state == PART_RESTING && !part->hold))
        make_ready(part);
}

/* The staged call, for the consumer's thread to change; NULL: none, or the lane has taken it. */
static struct call *take_staged(struct part *part)
{
    if (!atomic_load_explicit(&part->staged, memory_order_relaxed))
        return NULL;
    /* Acquire and release: one side at a time has it, and sees what the other wrote. */
    return atomic_exchange_explicit(&part->staged, NULL, memory_order_acq_rel);
}

void part_unstage(struct part *part)
{
    struct call *call = take_staged(part);
    if (!call)
        return;
    for (size_t i = call->n; i-- > 0;)
        fifo_push_front(&part->waiting, call->slots[i]);
    call->next = part->feed->idle;
    part->feed->idle = call;
}

static void drop_from(struct consumer *c, struct fifo *q, uint32_t partition)
{
    for (size_t n = q->n; n > 0; n--) {
        uint32_t slot = fifo_pop(q);
        if (c->window.slots[slot].record.partition == partition)
            consumer_dropped(c, slot);
        else
            fifo_push(q, slot);
    }
}

void feed_drop_partition(struct feed *f, uint32_t partition)
{
    for (size_t i = 0; i < f->n_parts; i++) {
        struct part *part = f->parts[i];
        if (!part || (!f->one_part && i / f->sink->split != partition))
            continue;
        part_unstage(part);
        drop_from(f->consumer, &part->again, partition);
        drop_from(f->consumer, &part->waiting, partition);
        bisect_reset(&part->bisect); /* its spans counted what is gone; it starts anew if need be */
        if (part->again.n || part->waiting.n || part->state == PART_CALLING ||
            part->state == PART_EMPTY)
            continue;
        list_remove(part->state == PART_READY ? &f->ready : &f->resting, part);
        part->state = PART_EMPTY;
    }
}

/* ---- calls go out ---- */

/* Takes the part's next records into the call; how many of them came from `again`. */
static size_t take_records(struct part *part, struct call *call, uint64_t now_ns)
{
    struct feed *f = part->feed;
    const struct window *w = &f->consumer->window;
    const size_t max = f->sink->batch_records ? f->sink->batch_records : 1;
    if (bisect_active(&part->bisect))
        return call_take(call, w, &part->again, bisect_take(&part->bisect), f->sink->batch_bytes);
    size_t again = 0;
    bool due = f->sink->ordered || now_ns >= part->due_ns || !part->waiting.n ||
               f->breaker.state != BREAKER_CLOSED;
    if (part->again.n && due)
        again = call_take(call, w, &part->again, max, f->sink->batch_bytes);
    if (!f->sink->ordered || !again)
        call_take(call, w, &part->waiting, max - call->n, f->sink->batch_bytes);
    return again;
}

static struct call *new_call(struct part *part)
{
    struct feed *f = part->feed;
    struct call *call = f->idle;
    if (call)
        f->idle = call->next;
    else
        call = call_create();
    call_clear(call);
    call->part = part;
    return call;
}

static int part_start(struct part *part, uint64_t now_ns)
{
    struct feed *f = part->feed;
    struct consumer *c = f->consumer;
    struct call *call = new_call(part);
    size_t again = take_records(part, call, now_ns);
    assert(call->n > 0);
    call_build(call, &c->window);

    pthread_mutex_lock(&c->mutex);
    c->calls++;
    pthread_mutex_unlock(&c->mutex);
    part->current = call;
    int rc = lane_submit(f->sink->lane, part->strand, &part->task);
    if (rc == 0) {
        part->state = PART_CALLING;
        list_add(&f->calling, part);
        f->calls++;
        return 0;
    }
    pthread_mutex_lock(&c->mutex);
    c->calls--;
    pthread_mutex_unlock(&c->mutex);
    for (size_t i = call->n; i-- > 0;)
        fifo_push_front(i < again ? &part->again : &part->waiting, call->slots[i]);
    call->next = f->idle;
    f->idle = call;
    return rc;
}

/* Builds the call after the one in flight, or lets it grow. */
static void stage(struct part *part)
{
    struct feed *f = part->feed;
    const struct window *w = &f->consumer->window;
    const size_t max = f->sink->batch_records ? f->sink->batch_records : 1;
    if (!part->waiting.n || part->again.n || bisect_active(&part->bisect))
        return;
    struct call *call = take_staged(part);
    if (!call)
        call = new_call(part);
    if (call->n < max && call_take(call, w, &part->waiting, max - call->n, f->sink->batch_bytes))
        call_build(call, w);
    /* Release: the lane that takes it sees all of it. */
    atomic_store_explicit(&part->staged, call, memory_order_release);
}

void part_move_on(struct part *part, bool wait, bool hold, uint64_t now_ns)
{
    struct feed *f = part->feed;
    list_remove(&f->calling, part);
    part->hold = hold;
    if (wait)
        part->due_ns = now_ns + backoff_next_ns(&part->backoff);
    else if (hold || !part->again.n)
        part->due_ns = 0;
    bool rest = part->again.n && part->due_ns > now_ns && f->breaker.state == BREAKER_CLOSED;
    if (!part->again.n && !part->waiting.n) {
        part->state = PART_EMPTY;
    } else if (rest && (hold || !part->waiting.n)) {
        part->state = PART_RESTING;
        list_add(&f->resting, part);
    } else {
        part->state = PART_READY;
        list_add(&f->ready, part);
    }
}

void feed_at_cap(struct feed *f, uint64_t now_ns)
{
    uint64_t letters;
    dead_stats(f->dead, &letters, &f->cap_bytes);
    f->cap_check_ns = now_ns + CAP_CHECK_NS;
    f->cap_probe_ns = now_ns + CAP_PROBE_NS;
    f->at_cap = true;
}

/* At the cap nothing is sent, for it might be refused; room shows in the dead letters' figures. */
static bool still_at_cap(struct feed *f, uint64_t now_ns)
{
    uint64_t letters, bytes;
    if (now_ns < f->cap_check_ns)
        return true;
    f->cap_check_ns = now_ns + CAP_CHECK_NS;
    dead_stats(f->dead, &letters, &bytes);
    if (bytes >= f->cap_bytes && now_ns < f->cap_probe_ns)
        return true;
    f->cap_probe_ns = now_ns + CAP_PROBE_NS;
    f->at_cap = false;
    return false;
}

void feed_start_calls(struct feed *f, uint64_t now_ns)
{
    for (struct part *part = f->resting.first, *next; part; part = next) {
        next = part->next;
        if (now_ns >= part->due_ns || f->breaker.state != BREAKER_CLOSED)
            make_ready(part);
    }
    if (f->poisoned || f->lane_closed || (f->at_cap && still_at_cap(f, now_ns)))
        return;
    while (f->ready.first && f->calls < f->calls_max && now_ns >= f->lane_full_until_ns) {
        if (!breaker_may_call(&f->breaker, now_ns))
            break;
        struct part *part = f->ready.first;
        list_remove(&f->ready, part);
        int rc = part_start(part, now_ns);
        if (rc == 0)
            continue;
        breaker_gave_up(&f->breaker);
        list_add_front(&f->ready, part);
        if (rc == WEIR_FULL) {
            f->lane_full_until_ns = now_ns + LANE_FULL_NS;
        } else {
            f->lane_closed = true;
            feed_error(f, "the sink's lane is closed");
        }
        break;
    }
    /* Only where no other part waits for its turn. */
    if (!f->ready.first && f->breaker.state == BREAKER_CLOSED)
        for (struct part *part = f->calling.first; part; part = part->next)
            stage(part);
}

uint64_t feed_next_ns(const struct feed *f)
{
    uint64_t next = NEVER;
    if (f->poisoned || f->lane_closed)
        return NEVER;
    for (const struct part *part = f->resting.first; part; part = part->next)
        if (part->due_ns < next)
            next = part->due_ns;
    if (!f->ready.first)
        return next;
    uint64_t ready = 0;
    if (f->at_cap)
        ready = f->cap_check_ns;
    else if (f->calls >= f->calls_max || f->breaker.state == BREAKER_HALF_OPEN)
        ready = NEVER; /* a finished call is what it waits for */
    else if (f->breaker.state == BREAKER_OPEN)
        ready = f->breaker.next_try_ns;
    if (ready < f->lane_full_until_ns)
        ready = f->lane_full_until_ns;
    return ready < next ? ready : next;
}
