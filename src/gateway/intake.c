/* intake.c: see intake.h. */
#include "gateway/intake.h"

#include <assert.h>

#include "base/mem.h"
#include "gateway/tell.h"

struct intake *intake_create(struct gateway_loop *loop, const struct gateway_stream *stream,
                             enum ack_level want, uint32_t n, size_t text_bytes, char **text)
{
    bool asks = want == ACK_STORED || want == ACK_EVERYWHERE;
    size_t size = sizeof(struct intake) + n * sizeof(struct record) +
                  (asks ? n * sizeof(uint64_t) : 0) + text_bytes;
    struct intake *intake = n > 64 ? mem_try_alloc(size) : mem_alloc(size);
    if (!intake)
        return NULL;
    *intake = (struct intake){
        .loop = loop,
        .target = loop->loop,
        .stream = stream,
        .want = want,
        .charged_bytes = size,
    };
    char *behind = (char *)(intake->records + n);
    if (asks) {
        const struct config_stream *config = stream->config;
        uint64_t sinks = want == ACK_EVERYWHERE ? config->sinks : UINT64_C(1) << config->primary;
        intake->waiter.pending = (uint64_t *)(void *)behind;
        for (uint32_t i = 0; i < n; i++)
            intake->waiter.pending[i] = sinks;
        behind += n * sizeof(uint64_t);
    }
    intake->waiter.records = intake->records;
    intake->waiter.n = intake->waiter.left = n;
    intake->body.records = intake->records;
    intake->body.n = n;
    intake->body.urgent = want != ACK_RECEIVED;
    intake->body.owner = intake;
    *text = behind;
    return intake;
}

void intake_free(struct intake *intake)
{
    pressure_release(&intake->loop->gateway->pressure, intake->charged_bytes);
    while (intake->waiter.refusals) {
        struct ack_refusal *refusal = intake->waiter.refusals;
        intake->waiter.refusals = refusal->next;
        mem_free(refusal);
    }
    mem_free(intake);
}

/* ---- time ---- */

static void waiting_fire(struct loop_timer *timer);

void intake_waiting_init(struct gateway_loop *loop)
{
    size_t n = loop->gateway->n_streams;
    loop->waiting = mem_zalloc(n * sizeof(struct waiting));
    for (size_t i = 0; i < n; i++) {
        loop->waiting[i].loop = loop;
        loop->waiting[i].timer.fire = waiting_fire;
    }
}

static struct waiting *waiting_of(struct intake *intake)
{
    return &intake->loop->waiting[intake->stream - intake->loop->gateway->streams];
}

void intake_wait(struct intake *intake)
{
    struct waiting *waiting = waiting_of(intake);
    intake->deadline_ns = loop_now_ns(intake->target) + intake->stream->ack_timeout_ns;
    intake->waits = true;
    intake->older = waiting->newest;
    if (waiting->newest)
        waiting->newest->newer = intake;
    else
        waiting->oldest = intake;
    waiting->newest = intake;
    /* The timer is left alone when its intake goes; it fires, finds nothing due, and is set again:
     * once per timeout instead of once per request. */
    if (waiting->timer.heap_index == 0)
        loop_timer_set(intake->target, &waiting->timer, intake->deadline_ns);
}

void intake_wait_end(struct intake *intake)
{
    struct waiting *waiting = waiting_of(intake);
    if (!intake->waits)
        return;
    intake->waits = false;
    if (intake->older)
        intake->older->newer = intake->newer;
    else
        waiting->oldest = intake->newer;
    if (intake->newer)
        intake->newer->older = intake->older;
    else
        waiting->newest = intake->older;
}

/* Time is over for an intake that is in the list. */
static void expire(struct intake *intake)
{
    bool asks = intake->want == ACK_STORED || intake->want == ACK_EVERYWHERE;
    enum ack_state state = ACK_NEW;
    if (atomic_load_explicit(&intake->coming, memory_order_relaxed))
        state = ACK_COMPLETE; /* the loop was late, not the log */
    else if (asks)
        state = ack_forget(intake->loop->gateway->acks, &intake->waiter);
    intake_wait_end(intake);
    switch (state) {
    case ACK_ENTERED:
        intake->note = NOTE_TIMEOUT;
        answer_settled(intake);
        intake_free(intake);
        break;
    case ACK_COMPLETE: /* its answer is on the way */
        break;
    default: /* the log still has it, and frees it by way of the loop */
        answer_not_durable(intake, WEIR_TIMEOUT);
    }
}

static void waiting_fire(struct loop_timer *timer)
{
    struct waiting *waiting = CONTAINER_OF(timer, struct waiting, timer);
    struct loop *loop = waiting->loop->loop;
    uint64_t now = loop_now_ns(loop);
    while (waiting->oldest && waiting->oldest->deadline_ns <= now)
        expire(waiting->oldest);
    if (waiting->oldest)
        loop_timer_set(loop, &waiting->timer, waiting->oldest->deadline_ns);
}

/* ---- the way back: from the log's and the consumers' threads to the loops ---- */

/* Intakes gathered for each loop, so that a group costs one post per loop. */
struct chains {
    struct chain {
        struct loop *loop;
        struct loop_message *first, *last;
    } of[GATEWAY_LOOPS_MAX];
};

static void chain_add(struct chains *chains, struct intake *intake)
{
    struct chain *chain = &chains->of[intake->loop->index];
    intake->message.next = NULL;
    /* Relaxed: it only spares a late answer; the message itself orders what it brings. */
    atomic_store_explicit(&intake->coming, true, memory_order_relaxed);
    chain->loop = intake->target;
    if (chain->first)
        chain->last->next = &intake->message;
    else
        chain->first = &intake->message;
    chain->last = &intake->message;
}

static void chains_post(struct chains *chains, unsigned n_loops)
{
    for (unsigned i = 0; i < n_loops; i++)
        if (chains->of[i].first)
            loop_post_list(chains->of[i].loop, chains->of[i].first, chains->of[i].last);
}

/* The answer is due; on the loop thread. */
static void due(struct loop_message *message)
{
    struct intake *intake = CONTAINER_OF(message, struct intake, message);
    intake_wait_end(intake);
    if (intake->request) {
        if (intake->body.status)
            answer_not_durable(intake, intake->body.status);
        else
            answer_settled(intake);
    }
    intake_free(intake);
}

/* Is a breaker open of a sink that was asked for? */
static bool breaker_open(struct gateway *gateway, const struct intake *intake)
{
    uint64_t asked = intake->waiter.pending[0];
    if (!atomic_load_explicit(&gateway->delivers, memory_order_acquire))
        return true;
    while (asked) {
        unsigned sink = (unsigned)__builtin_ctzll(asked);
        asked &= asked - 1;
        if (delivery_breaker_open(gateway->delivery, sink))
            return true;
    }
    return false;
}

/* Nobody waits for it. */
static void received_settled(struct gateway *gateway, struct intake *intake)
{
    if (intake->body.status) {
        atomic_fetch_add_explicit(&gateway->lost_records, intake->body.n, memory_order_relaxed);
        tell("%u records of stream %s that were answered \"received\" could not be made durable "
             "and are lost: %s",
             intake->body.n, intake->stream->config->name, weir_err_text(intake->body.status));
    }
    intake_free(intake);
}

void intake_durable(void *context, struct body *bodies)
{
    struct gateway *gateway = context;
    struct chains chains = {0};
    struct ack_waiter *enter = NULL, **enter_end = &enter, *refused;

    while (bodies) {
        struct intake *intake = bodies->owner;
        bodies = bodies->next;
        intake->message.run = due;
        if (intake->want == ACK_RECEIVED) {
            received_settled(gateway, intake);
        } else if (intake->want == ACK_DURABLE || intake->body.status) {
            chain_add(&chains, intake);
        } else if (breaker_open(gateway, intake)) {
            intake->note = NOTE_BREAKER;
            chain_add(&chains, intake);
        } else {
            *enter_end = &intake->waiter;
            enter_end = &intake->waiter.next;
        }
    }
    *enter_end = NULL;
    if (enter) {
        ack_enter(gateway->acks, enter, &refused);
        if (atomic_load_explicit(&gateway->delivers, memory_order_acquire))
            delivery_hurry(gateway->delivery);
        while (refused) {
            struct intake *intake = CONTAINER_OF(refused, struct intake, waiter);
            refused = refused->next;
            intake->note = NOTE_STOPPING;
            chain_add(&chains, intake);
        }
    }
    chains_post(&chains, gateway->n_loops);
}

static void post_waiters(struct gateway *gateway, struct ack_waiter *chain, enum intake_note note)
{
    struct chains chains = {0};
    while (chain) {
        struct intake *intake = CONTAINER_OF(chain, struct intake, waiter);
        chain = chain->next;
        intake->note = note;
        chain_add(&chains, intake);
    }
    chains_post(&chains, gateway->n_loops);
}

bool intake_waited_for(void *context)
{
    const struct gateway *gateway = context;
    return ack_waiting(gateway->acks) > 0;
}

void intake_settled(void *context, unsigned sink, const struct settlement *list, size_t n)
{
    struct gateway *gateway = context;
    struct ack_waiter *complete = ack_settled(gateway->acks, sink, list, n);
    if (complete)
        post_waiters(gateway, complete, NOTE_NONE);
}

void intake_give_up(struct gateway *gateway)
{
    struct ack_waiter *waiting = ack_drain(gateway->acks);
    if (waiting)
        post_waiters(gateway, waiting, NOTE_STOPPING);
}
