/* part.c: a part and its feed: what waits, when the next call goes out, what its outcome means (the
 * picture and the states are in engine.h). The consumer's thread only.
 *
 * A part has two queues. `again` holds what was sent before and must be sent first, in order;
 * `waiting` what was not sent yet. While `again` has anything the waiting ones of an ordered part
 * stay where they are: no record is written before an earlier one of its key that is in retry.
 * Within one call a sink may have stored a later record of a key and not an earlier one. The
 * earlier one is then sent again on its own; where both have one id its lower version cannot
 * overtake what is there, and where the ids differ both rows are as they should be.
 *
 * While the breaker is not closed no part rests: the breaker holds them all, and each probe is made
 * by the next part in line. */
#include <assert.h>
#include <stdio.h>

#include "base/hash.h"
#include "base/mem.h"
#include "delivery/engine.h"

#define LANE_FULL_NS  (UINT64_C(5) * 1000000)    /* a shared lane may be full of others' tasks */
#define CAP_CHECK_NS  (UINT64_C(200) * 1000000)  /* has a dead letter been dropped? */
#define CAP_PROBE_NS  (UINT64_C(5000) * 1000000) /* try even if none seems to have been */
#define REPORT_GAP_NS (UINT64_C(1000) * 1000000) /* refused records are reported this often */
#define TEXT_ID_BYTES 64

static void add(_Atomic uint64_t *figure, uint64_t n)
{
    /* Relaxed, and no read-modify-write: this thread is the only writer. */
    atomic_store_explicit(figure, atomic_load_explicit(figure, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

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

void feed_error(struct feed *f, const char *text)
{
    pthread_mutex_lock(&f->mutex);
    snprintf(f->last_error, sizeof(f->last_error), "%.*s", (int)sizeof(f->last_error) - 1, text);
    pthread_mutex_unlock(&f->mutex);
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

static int part_start(struct part *part, uint64_t now_ns)
{
    struct feed *f = part->feed;
    struct call *call = f->idle;
    if (call)
        f->idle = call->next;
    else
        call = call_create();
    call_clear(call);
    call->part = part;
    size_t again = take_records(part, call, now_ns);
    assert(call->n > 0);
    call_build(call, &f->consumer->window);

    struct consumer *c = f->consumer;
    pthread_mutex_lock(&c->mutex);
    c->calls++;
    pthread_mutex_unlock(&c->mutex);
    int rc = lane_submit(f->sink->lane, part->strand, &call->task);
    if (rc == 0) {
        part->state = PART_CALLING;
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
    if (!f->ready.first || f->poisoned || f->lane_closed || (f->at_cap && still_at_cap(f, now_ns)))
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

/* ---- and come back ---- */

static void show_breaker(struct feed *f)
{
    atomic_store_explicit(&f->next_try_ns, f->breaker.next_try_ns, memory_order_relaxed);
    atomic_store_explicit(&f->breaker_open, f->breaker.state != BREAKER_CLOSED,
                          memory_order_relaxed);
}

static void feed_works(struct feed *f)
{
    bool closed = breaker_succeeded(&f->breaker);
    show_breaker(f);
    if (closed)
        delivery_report(f->consumer->delivery, "sink %s: works again, its breaker is closed",
                        f->sink->name);
}

static void feed_failed(struct feed *f, const char *why, uint64_t now_ns)
{
    add(&f->failures, 1);
    feed_error(f, why);
    bool opened = breaker_failed(&f->breaker, now_ns);
    show_breaker(f);
    if (opened)
        delivery_report(f->consumer->delivery,
                        "sink %s: breaker open after %u failed calls in a row: %s", f->sink->name,
                        f->breaker.failures, why);
}

static void report_refused(struct feed *f, size_t n, struct slice id, const char *reason,
                           uint64_t now_ns)
{
    f->refused_unreported += n;
    if (now_ns < f->refused_report_ns)
        return;
    f->refused_report_ns = now_ns + REPORT_GAP_NS;
    delivery_report(
        f->consumer->delivery,
        "sink %s: %llu records refused and kept as dead letters, the last one \"%.*s\": "
        "%s",
        f->sink->name, (unsigned long long)f->refused_unreported,
        (int)(id.n < TEXT_ID_BYTES ? id.n : TEXT_ID_BYTES), id.p, reason);
    f->refused_unreported = 0;
}

/* The refused records of this call could not become dead letters. */
static void dead_letters_fail(struct feed *f, const struct call *call, uint64_t now_ns)
{
    struct delivery *d = f->consumer->delivery;
    uint64_t letters;
    feed_error(f, call->diag.text);
    if (call->dead_rc == WEIR_FULL) {
        f->at_cap = true;
        dead_stats(f->dead, &letters, &f->cap_bytes);
        f->cap_check_ns = now_ns + CAP_CHECK_NS;
        f->cap_probe_ns = now_ns + CAP_PROBE_NS;
    }
    f->poisoned = f->poisoned || call->dead_rc == WEIR_POISONED;
    if (!f->dead_trouble)
        delivery_report(d, "sink %s: stands still, a refused record cannot be kept: %s",
                        f->sink->name, call->diag.text);
    f->dead_trouble = true;
    consumer_stopped(f->consumer, call->diag.text);
}

static void dead_letters_work(struct feed *f)
{
    if (!f->dead_trouble)
        return;
    f->dead_trouble = false;
    consumer_stopped(f->consumer, NULL);
    delivery_report(f->consumer->delivery, "sink %s: goes on, refused records can be kept again",
                    f->sink->name);
}

struct tally {
    size_t stored, refused, back; /* back: put back, to be sent again */
    const char *retry;            /* why the sink could not write some of them now, or NULL */
};

/* What a finished call means for the i-th of its records. A lower version settles with a stored
 * one of its id; when that is refused, or must wait, it is sent again itself. */
static enum outcome fate(const struct call *call, size_t i)
{
    if (call->rc || call->cancelled)
        return OUTCOME_RETRY;
    uint32_t group = call->group[i];
    enum outcome outcome = call->results[call->sent[group]].outcome;
    return outcome == OUTCOME_REFUSED && call->winner[group] != i ? OUTCOME_RETRY : outcome;
}

static void tell_settled(struct call *call, struct tally *t, uint64_t now_ns)
{
    struct feed *f = call->part->feed;
    struct consumer *c = f->consumer;
    struct delivery *d = c->delivery;
    struct settlement *list = consumer_list(c, call->n);
    size_t n = 0;
    const struct record *refused = NULL;
    const char *reason = NULL;
    for (size_t i = 0; i < call->n; i++) {
        enum outcome outcome = fate(call, i);
        if (outcome == OUTCOME_RETRY)
            continue;
        const struct record *r = &c->window.slots[call->slots[i]].record;
        if (outcome == OUTCOME_REFUSED) {
            refused = r;
            reason = call->results[call->sent[call->group[i]]].reason;
            t->refused++;
        }
        list[n++] = (struct settlement){r->stream, r->partition, r->offset, outcome,
                                        outcome == OUTCOME_REFUSED ? reason : NULL};
    }
    t->stored = n - t->refused;
    if (n && d->config.events.settled)
        d->config.events.settled(d->config.events.context, f->index, list, n);
    if (refused)
        report_refused(f, t->refused, refused->id, reason, now_ns);
}

/* Settles, and puts what must be sent again before everything else, in its order. */
static void settle(struct call *call, struct tally *t, uint64_t now_ns)
{
    struct part *part = call->part;
    struct consumer *c = part->feed->consumer;
    tell_settled(call, t, now_ns);
    for (size_t i = 0; i < call->n; i++) {
        uint32_t slot = call->slots[i];
        if (fate(call, i) != OUTCOME_RETRY)
            consumer_settled(c, slot);
        else if (c->partitions[c->window.slots[slot].record.partition].revoking)
            consumer_dropped(c, slot);
        else
            call->slots[t->back++] = slot; /* not before i: nothing unread is overwritten */
    }
    for (size_t i = t->back; i-- > 0;)
        fifo_push_front(&part->again, call->slots[i]);
    if (call->rc || call->cancelled)
        return;
    for (size_t i = 0; i < call->batch.n && !t->retry; i++)
        if (call->results[i].outcome == OUTCOME_RETRY)
            t->retry = call->results[i].reason;
}

/* A whole batch was refused: the fault is in the data, so it is halved, not waited for. */
static void halve(struct part *part, size_t taken, size_t back)
{
    struct feed *f = part->feed;
    feed_works(f);
    backoff_reset(&part->backoff);
    if (bisect_active(&part->bisect)) {
        bisect_refused(&part->bisect, taken);
    } else if (back > 1) {
        add(&f->bisections, 1);
        bisect_begin(&part->bisect, back, f->sink->bisect_calls);
    }
}

/* True: the part must wait before its next call. */
static bool answered(struct call *call, const struct tally *t, uint64_t now_ns)
{
    struct part *part = call->part;
    struct feed *f = part->feed;
    add(&f->stored, t->stored);
    add(&f->refused, t->refused);
    if (bisect_active(&part->bisect))
        bisect_answered(&part->bisect, call->n, t->back, t->refused == 0 && !call->dead_rc);
    if (t->stored + t->refused || call->dead_rc)
        feed_works(f);
    else
        feed_failed(f, t->retry && t->retry[0] ? t->retry : "no record could be written now",
                    now_ns);
    if (call->dead_rc)
        dead_letters_fail(f, call, now_ns);
    else if (t->refused)
        dead_letters_work(f);
    if (!t->retry) {
        backoff_reset(&part->backoff);
        return false;
    }
    add(&f->retries, t->back);
    if (!call->dead_rc)
        feed_error(f, t->retry);
    return call->dead_rc != WEIR_FULL; /* the cap holds the whole feed, and looks more often */
}

/* Where the part goes next. */
static void move_on(struct part *part, bool wait, bool hold, uint64_t now_ns)
{
    struct feed *f = part->feed;
    part->hold = hold;
    part->due_ns = wait ? now_ns + backoff_next_ns(&part->backoff) : 0;
    if (!part->again.n && !part->waiting.n) {
        part->state = PART_EMPTY;
    } else if (wait && f->breaker.state == BREAKER_CLOSED && (hold || !part->waiting.n)) {
        part->state = PART_RESTING;
        list_add(&f->resting, part);
    } else {
        part->state = PART_READY;
        list_add(&f->ready, part);
    }
}

void part_finished(struct call *call, uint64_t now_ns)
{
    struct part *part = call->part;
    struct feed *f = part->feed;
    struct tally t = {0};
    bool wait = false, whole = call->rc != 0;
    f->calls--;
    f->lane_full_until_ns = 0;
    settle(call, &t, now_ns);
    if (call->cancelled) {
        breaker_gave_up(&f->breaker);
    } else {
        add(&f->batches, 1);
        histogram_record(f->batch_records, call->batch.n);
        histogram_record(f->write_ns, call->write_ns);
        if (call->rc == WEIR_REFUSED) {
            halve(part, call->n, t.back);
        } else if (whole) {
            add(&f->retries, t.back);
            feed_failed(f, call->diag.text[0] ? call->diag.text : weir_err_text(call->rc), now_ns);
            wait = true;
        } else {
            wait = answered(call, &t, now_ns);
        }
    }
    move_on(part, wait, f->sink->ordered || whole || bisect_active(&part->bisect), now_ns);
    call->next = f->idle;
    f->idle = call;
}
