/* outcome.c: what a finished call means for its records, its part and its sink (the picture is in
 * engine.h). The consumer's thread only. */
#include <assert.h>
#include <stdio.h>

#include "delivery/engine.h"

#define REPORT_GAP_NS (UINT64_C(1000) * 1000000) /* refused records are reported this often */
#define TEXT_ID_BYTES 64

static void add(_Atomic uint64_t *figure, uint64_t n)
{
    /* Relaxed, and no read-modify-write: this thread is the only writer. */
    atomic_store_explicit(figure, atomic_load_explicit(figure, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

void feed_error(struct feed *f, const char *text)
{
    pthread_mutex_lock(&f->mutex);
    snprintf(f->last_error, sizeof(f->last_error), "%.*s", (int)sizeof(f->last_error) - 1, text);
    pthread_mutex_unlock(&f->mutex);
}

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
    const char *many = f->refused_unreported == 1 ? "" : "s";
    delivery_report(f->consumer->delivery,
                    "sink %s: %llu record%s refused and kept as dead letter%s, the last one "
                    "\"%.*s\": %s",
                    f->sink->name, (unsigned long long)f->refused_unreported, many, many,
                    (int)(id.n < TEXT_ID_BYTES ? id.n : TEXT_ID_BYTES), id.p, reason);
    f->refused_unreported = 0;
}

/* The refused records of this call could not become dead letters. */
static void dead_letters_fail(struct feed *f, const struct call *call, uint64_t now_ns)
{
    struct delivery *d = f->consumer->delivery;
    feed_error(f, call->diag.text);
    if (call->dead_rc == WEIR_FULL)
        feed_at_cap(f, now_ns);
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
        if (!part->again.n || f->sink->ordered) /* else others are still in retry */
            backoff_reset(&part->backoff);
        return false;
    }
    add(&f->retries, t->back);
    if (!call->dead_rc)
        feed_error(f, t->retry);
    return call->dead_rc != WEIR_FULL; /* the cap holds the whole feed, and looks more often */
}

void part_finished(struct call *call, uint64_t now_ns)
{
    struct part *part = call->part;
    struct feed *f = part->feed;
    struct tally t = {0};
    const bool whole = call->rc != 0;
    bool wait = false;
    if (!call->chained) {
        f->calls--;
        f->lane_full_until_ns = 0;
        part_unstage(part); /* what this call leaves behind goes first */
    }
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
    if (call->chained)
        assert(t.back == 0); /* the next one is in flight already */
    else
        part_move_on(part, wait, f->sink->ordered || whole || bisect_active(&part->bisect), now_ns);
    call->next = f->idle;
    f->idle = call;
}
