/* call.c: one call to a sink: what it carries, and its work on the lane.
 *
 * A call stands for n records. Those with one id and stream form a group, of which only the highest
 * version is sent; the sink's answer for it is the answer for the whole group when it is "stored".
 *
 * Threads: call_run and call_finish run on the lane (call_finish also on the thread that closes
 * it); all else on the consumer's. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "delivery/engine.h"

#define CHAIN_MAX 16 /* calls of a part in a row; then others of the lane have their turn */

struct call *call_create(void)
{
    return mem_zalloc(sizeof(struct call));
}

void call_destroy(struct call *call)
{
    if (!call)
        return;
    mem_free(call->batch.records);
    mem_free(call->batch.chunks);
    mem_free(call->results);
    mem_free(call->slots);
    mem_free(call->group);
    mem_free(call->winner);
    mem_free(call->sent);
    mem_free(call->table);
    mem_free(call);
}

void call_clear(struct call *call)
{
    call->n = call->bytes = 0;
    call->batch.n = call->batch.bytes = 0;
    call->rc = call->dead_rc = 0;
    call->cancelled = call->chained = false;
    call->write_ns = 0;
    call->diag = (struct diag){0};
}

static void reserve(struct call *call, size_t n)
{
    if (n <= call->capacity)
        return;
    size_t capacity = call->capacity ? call->capacity : 16;
    while (capacity < n)
        capacity *= 2;
    call->slots = mem_realloc(call->slots, capacity * sizeof(*call->slots));
    call->group = mem_realloc(call->group, capacity * sizeof(*call->group));
    call->winner = mem_realloc(call->winner, capacity * sizeof(*call->winner));
    call->sent = mem_realloc(call->sent, capacity * sizeof(*call->sent));
    call->results = mem_realloc(call->results, capacity * sizeof(*call->results));
    struct batch *b = &call->batch;
    b->records = mem_realloc(b->records, capacity * sizeof(*b->records));
    b->chunks = mem_realloc(b->chunks, capacity * sizeof(*b->chunks));
    b->capacity = call->capacity = capacity;
}

size_t call_take(struct call *call, const struct window *w, struct fifo *from, size_t max,
                 size_t max_bytes)
{
    size_t taken = 0;
    while (taken < max && from->n) {
        const struct record *r = &w->slots[from->ring[from->first & from->mask]].record;
        size_t bytes = r->id.n + r->key.n + r->doc.n;
        if (call->n && call->bytes + bytes > max_bytes)
            break;
        reserve(call, call->n + 1);
        call->slots[call->n++] = fifo_pop(from);
        call->bytes += bytes;
        taken++;
    }
    return taken;
}

/* Only as much of the table as this call needs: a small call stays cheap after a large one. */
static void clear_table(struct call *call)
{
    size_t capacity = 64;
    while (capacity < 2 * call->n)
        capacity *= 2;
    if (capacity > call->table_capacity) {
        call->table = mem_realloc(call->table, capacity * sizeof(*call->table));
        call->table_capacity = capacity;
    }
    call->table_mask = capacity - 1;
    memset(call->table, 0, capacity * sizeof(*call->table));
}

/* Forms the groups; the winner is the highest version, of equal ones the last. */
static void form_groups(struct call *call, const struct window *w)
{
    size_t groups = 0;
    const uint64_t seed = hash_process_seed();
    clear_table(call);
    for (size_t i = 0; i < call->n; i++) {
        const struct record *r = &w->slots[call->slots[i]].record;
        size_t at = hash64_seeded(r->id.p, r->id.n, seed + r->stream);
        for (;; at++) {
            uint32_t *entry = &call->table[at & call->table_mask];
            if (!*entry) {
                call->winner[groups] = (uint32_t)i;
                call->group[i] = (uint32_t)groups;
                *entry = (uint32_t)++groups;
                break;
            }
            uint32_t group = *entry - 1;
            const struct record *other = &w->slots[call->slots[call->winner[group]]].record;
            if (other->stream == r->stream && slice_equal(other->id, r->id)) {
                if (r->version >= other->version)
                    call->winner[group] = (uint32_t)i;
                call->group[i] = group;
                break;
            }
        }
    }
}

void call_build(struct call *call, const struct window *w)
{
    if (call->n == 1)
        call->group[0] = call->winner[0] = 0;
    else
        form_groups(call, w);
    struct batch *b = &call->batch;
    b->n = b->bytes = 0;
    for (size_t i = 0; i < call->n; i++) {
        uint32_t group = call->group[i];
        if (call->winner[group] != i)
            continue;
        const struct slot *slot = &w->slots[call->slots[i]];
        call->sent[group] = (uint32_t)b->n;
        b->records[b->n] = slot->record;
        b->chunks[b->n] = w->holds[slot->hold].chunk;
        b->bytes += slot->record.id.n + slot->record.key.n + slot->record.doc.n;
        b->n++;
    }
}

/* ---- on the lane ---- */

static int take_session(struct feed *f, struct sink_session **out, struct diag *diag)
{
    pthread_mutex_lock(&f->mutex);
    struct sink_session *session = f->n_sessions ? f->sessions[--f->n_sessions] : NULL;
    pthread_mutex_unlock(&f->mutex);
    if (session) {
        *out = session;
        return 0;
    }
    return f->sink->sink->ops->session_open(f->sink->sink, false, out, diag);
}

static void return_session(struct feed *f, struct sink_session *session)
{
    pthread_mutex_lock(&f->mutex);
    bool keep = !f->closed && f->n_sessions < f->calls_max;
    if (keep)
        f->sessions[f->n_sessions++] = session;
    pthread_mutex_unlock(&f->mutex);
    if (!keep)
        session->ops->session_close(session);
}

void feed_close_sessions(struct feed *f)
{
    for (;;) {
        pthread_mutex_lock(&f->mutex);
        f->closed = true;
        struct sink_session *session = f->n_sessions ? f->sessions[--f->n_sessions] : NULL;
        pthread_mutex_unlock(&f->mutex);
        if (!session)
            return;
        session->ops->session_close(session);
    }
}

static void letter_of(struct feed *f, const struct record *record, const char *reason,
                      struct dead_letter *out)
{
    struct delivery *d = f->consumer->delivery;
    *out = (struct dead_letter){
        .time_ms = clock_wall_ms(),
        .sink = f->sink->name,
        .stream_name = record->stream < d->n_stream_names ? d->stream_names[record->stream] : NULL,
        .reason = reason,
        .record = *record};
    log_position_text(d->config.log, record->partition, record->offset, out->position);
}

/* Makes the refused records dead letters, durably; those that cannot become one now are to be
 * sent again. At the cap as many as still fit. */
static void bury(struct call *call, size_t refused)
{
    struct feed *f = call->part->feed;
    struct consumer *c = f->consumer;
    struct dead_letter *letters = mem_alloc(refused * sizeof(*letters));
    size_t n = 0, kept = 0;
    /* An abandoned consumer's log may be closed; its records come again after a restart. Under the
     * mutex, which only delays the abandoning: a position's text is mere formatting. */
    pthread_mutex_lock(&c->mutex);
    bool abandoned = c->abandoned;
    for (size_t i = 0; !abandoned && i < call->batch.n; i++)
        if (call->results[i].outcome == OUTCOME_REFUSED)
            letter_of(f, &call->batch.records[i], call->results[i].reason, &letters[n++]);
    pthread_mutex_unlock(&c->mutex);

    call->dead_rc = abandoned ? WEIR_CANCELLED : dead_add(f->dead, letters, n, &call->diag);
    if (call->dead_rc == 0)
        kept = n;
    else if (call->dead_rc == WEIR_FULL)
        while (kept < n && dead_add(f->dead, &letters[kept], 1, NULL) == 0)
            kept++;
    if (call->dead_rc == WEIR_FULL && kept == n)
        call->dead_rc = 0;
    for (size_t i = 0, nth = 0; i < call->batch.n; i++)
        if (call->results[i].outcome == OUTCOME_REFUSED && nth++ >= kept)
            call->results[i].outcome = OUTCOME_RETRY;
    mem_free(letters);
}

/* One call; true: all of it is stored. The session is opened when there is none, and closed when
 * nobody knows its state any more. */
static bool make_call(struct call *call, struct sink_session **session)
{
    struct feed *f = call->part->feed;
    struct sink_result *results = call->results;
    if (!*session)
        call->rc = take_session(f, session, &call->diag);
    if (call->rc) {
        if (call->rc == WEIR_REFUSED) /* about the store, not about these records */
            call->rc = WEIR_UNAVAILABLE;
        return false;
    }
    for (size_t i = 0; i < call->batch.n; i++) {
        results[i].outcome = OUTCOME_RETRY;
        results[i].reason[0] = 0;
    }
    uint64_t start_ns = clock_mono_ns();
    call->rc = (*session)->ops->write(*session, &call->batch, results, &call->diag);
    call->write_ns = clock_mono_ns() - start_ns;
    if (call->rc && call->rc != WEIR_REFUSED && call->rc != WEIR_NO_SPACE) {
        (*session)->ops->session_close(*session);
        *session = NULL;
    }
    if (call->rc == WEIR_REFUSED && call->batch.n == 1) {
        call->rc = 0;
        results[0].outcome = OUTCOME_REFUSED;
        snprintf(results[0].reason, sizeof(results[0].reason), "%.*s",
                 (int)sizeof(results[0].reason) - 1, call->diag.text);
    }
    if (call->rc)
        return false;
    size_t stored = 0, refused = 0;
    for (size_t i = 0; i < call->batch.n; i++) {
        stored += results[i].outcome == OUTCOME_STORED;
        refused += results[i].outcome == OUTCOME_REFUSED;
    }
    if (refused)
        bury(call, refused);
    return stored == call->batch.n;
}

/* Into the inbox; `ends`: nothing of its part is on the lane any more. Returns whether the consumer
 * was left to us. */
static bool post(struct call *call, bool ends)
{
    struct consumer *c = call->part->feed->consumer;
    pthread_mutex_lock(&c->mutex);
    c->calls -= ends;
    bool last = c->abandoned && c->calls == 0;
    call->next = NULL;
    if (c->inbox_last)
        c->inbox_last->next = call;
    else
        c->inbox = call;
    c->inbox_last = call;
    if (!c->abandoned)
        consumer_wake(c);
    pthread_mutex_unlock(&c->mutex);
    return last;
}

void call_run(struct lane_task *task)
{
    struct part *part = (struct part *)task;
    struct feed *f = part->feed;
    struct sink_session *session = NULL;
    for (unsigned n = 1;; n++) {
        /* Relaxed: it is only a hint that nobody waits for the outcome any more. */
        bool stopping = atomic_load_explicit(&f->consumer->stopping, memory_order_relaxed);
        if (stopping && n == 1) {
            part->current->cancelled = true;
            break;
        }
        bool go_on = make_call(part->current, &session) && !stopping && n < CHAIN_MAX;
        /* Acquire and release: one side at a time has it, and sees what the other wrote. */
        struct call *next =
            go_on ? atomic_exchange_explicit(&part->staged, NULL, memory_order_acq_rel) : NULL;
        if (!next)
            break;
        struct call *done = part->current;
        done->chained = true;
        part->current = next;
        post(done, false);
    }
    if (session)
        return_session(f, session);
}

void call_finish(struct lane_task *task, enum lane_completion how)
{
    struct call *call = ((struct part *)task)->current;
    struct consumer *c = call->part->feed->consumer;
    if (how == LANE_CANCELLED)
        call->cancelled = true;
    if (post(call, true))
        consumer_destroy(c);
}
