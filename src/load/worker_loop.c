/* worker_loop.c: see worker_loop.h.
 *
 * Invariants: 1. a request is answered, or an error of one kind, exactly once; 2. nothing is sent
 * on a connection that owes an answer; 3. in an open loop the intended times are the pacer's alone.
 *
 * A turn: sleep in epoll until something is ready or due, handle each ready connection, and after
 * each of them send what is due while connections are free, so that a long turn does not hold the
 * schedule up. */
#include "load/worker_loop.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "load/answer.h"

enum {
    EVENTS = 256,
    RECEIVE_BYTES = 64 << 10,
    CONNECTING_MAX = 64, /* at once: more would only overflow the server's backlog */
    IDS_BUFFER_BYTES = 256 << 10,
    LENGTH_ROOM = 24, /* the digits of Content-Length and the blank line */
};
#define RETRY_REFUSED_NS 200000000u
#define RETRY_LOST_NS    10000000u
#define TICK_NS          50000000u /* how late a stop is noticed at most */

static void bump(_Atomic uint64_t *count, uint64_t n)
{
    /* One writer: a load and a store are enough, and cheaper than an atomic addition. */
    atomic_store_explicit(count, atomic_load_explicit(count, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static void enter(struct worker_loop *loop, struct connection *c, enum connection_state state)
{
    if (c->state != CONNECTION_DEAD)
        connection_list_remove(&loop->lists[c->state], c);
    c->state = state;
    c->since_ns = loop->now_ns;
    if (state == CONNECTION_IDLE && loop->lists[CONNECTION_IDLE].n == 0)
        loop->starved_ns = loop->now_ns;
    if (state == CONNECTION_WAITING)
        connection_list_insert(&loop->lists[state], c);
    else if (state != CONNECTION_DEAD)
        connection_list_push(&loop->lists[state], c);
}

/* ---- connecting */

static void connect_failed(struct worker_loop *loop, struct connection *c, int cause)
{
    loop->connect_errno = cause;
    bump(&loop->worker->counts.errors[LOAD_CONNECT], 1);
    connection_close(c);
    c->retry_ns = loop->now_ns + RETRY_REFUSED_NS;
    enter(loop, c, loop->plan->reconnect ? CONNECTION_WAITING : CONNECTION_DEAD);
}

void worker_loop_connect_due(struct worker_loop *loop)
{
    struct connection_list *waiting = &loop->lists[CONNECTION_WAITING];
    while (loop->may_connect && waiting->n > 0 && waiting->first->retry_ns <= loop->now_ns &&
           loop->lists[CONNECTION_CONNECTING].n < CONNECTING_MAX) {
        struct connection *c = waiting->first;
        int cause = connection_open(c, loop->epoll, (const struct sockaddr *)&loop->plan->address,
                                    loop->plan->address_n);
        if (cause)
            connect_failed(loop, c, cause);
        else
            enter(loop, c, CONNECTION_CONNECTING);
    }
}

/* The connection is gone. `error` is what a request under way becomes. */
static void lost(struct worker_loop *loop, struct connection *c, enum load_error error)
{
    bool busy = c->state == CONNECTION_BUSY;
    if (busy)
        bump(&loop->worker->counts.errors[error], 1);
    bump(&loop->worker->counts.reconnects, 1);
    connection_close(c);
    /* A server that cuts off every request must not be hammered. */
    c->retry_ns = loop->now_ns + (busy ? RETRY_LOST_NS : 0);
    enter(loop, c, CONNECTION_WAITING);
}

/* ---- sending */

static void render(struct worker_loop *loop, struct connection *c, uint64_t number)
{
    const struct worker_plan *plan = loop->plan;
    struct template_source *source = &loop->worker->source;
    uint64_t wall_ms = (loop->now_ns + loop->wall_ahead_ns) / 1000000u;
    char *body = loop->request + loop->body_at, *p = body;
    source->seq = number * plan->batch;
    for (uint64_t i = 0; i < plan->batch; i++, source->seq++) {
        p += template_render(plan->template, source, wall_ms, p);
        if (plan->batch > 1)
            *p++ = '\n';
    }
    size_t n = (size_t)(p - body);
    if (n != loop->content_length) { /* else the head of the last request stands there already */
        char length[LENGTH_ROOM];
        int length_n = snprintf(length, sizeof length, "%zu\r\n\r\n", n);
        loop->head_n = plan->head.n + (size_t)length_n;
        memcpy(body - loop->head_n, plan->head.p, plan->head.n);
        memcpy(body - length_n, length, (size_t)length_n);
        loop->content_length = n;
    }
    if (plan->ids) {
        buf_clear(&c->docs);
        buf_put(&c->docs, body, n);
    }
}

static void send_next(struct worker_loop *loop, struct connection *c)
{
    struct worker *worker = loop->worker;
    uint64_t number = pacer_take(&worker->pacer, loop->now_ns, &c->intended_ns);
    if (loop->now_ns - c->intended_ns > WORKER_LATE_NS)
        bump(c->intended_ns <= loop->starved_ns ? &worker->counts.late_server
                                                : &worker->counts.late_self,
             1);
    render(loop, c, number);
    response_begin(&c->response);
    enter(loop, c, CONNECTION_BUSY);
    bump(&worker->counts.sent, 1);
    bump(&worker->counts.records_sent, loop->plan->batch);
    if (connection_send(c, loop->request + loop->body_at - loop->head_n,
                        loop->head_n + loop->content_length) != 0)
        lost(loop, c, LOAD_RESET);
}

void worker_loop_send_due(struct worker_loop *loop)
{
    struct connection_list *idle = &loop->lists[CONNECTION_IDLE];
    while (loop->sending && idle->n > 0 && pacer_due_ns(&loop->worker->pacer) <= loop->now_ns)
        send_next(loop, idle->first);
}

/* ---- answers */

void worker_loop_hand_over(struct worker_loop *loop, size_t least)
{
    if (loop->plan->ids && loop->lines.n >= least)
        ids_put(loop->plan->ids, &loop->lines);
}

/* The detail of a problem (RFC 9457): it is told once, beside the counts. */
static void keep_why(char *out, size_t size, struct buf *body)
{
    struct json_parser *parser = json_parser_create();
    struct json_value root, detail;
    struct json_error error;
    buf_reserve(body, JSON_PADDING);
    if (json_parse(parser, body->p, body->n, &root, &error) == 0 &&
        json_type(root) == JSON_OBJECT && json_member(root, "detail", &detail) &&
        json_type(detail) == JSON_STRING)
        snprintf(out, size, "%.*s", (int)json_string(detail).n, json_string(detail).p);
    json_parser_destroy(parser);
}

/* The answer is complete: the connection is IDLE afterwards, or lost. */
static void answered(struct worker_loop *loop, struct connection *c)
{
    struct worker *worker = loop->worker;
    struct worker_counts *counts = &worker->counts;
    const struct worker_plan *plan = loop->plan;
    int status = c->response.status;
    histogram_record(worker->latency_ns, loop->now_ns - c->intended_ns);
    if (plan->open)
        histogram_record(worker->service_ns, loop->now_ns - c->since_ns);
    worker->last_answer_ns = loop->now_ns;
    bump(&counts->statuses[status], 1);

    uint64_t taken = plan->batch;
    if (status / 100 != 2) {
        taken = 0;
        if (status >= 400 && !worker->was_refused) {
            worker->was_refused = true;
            keep_why(worker->why_refused, sizeof worker->why_refused, &c->response.body);
        }
    } else if (plan->ids && answers_keep(loop->answers, status, &c->response.body, &c->docs,
                                         plan->batch, plan->stream, &loop->lines, &taken) != 0) {
        bump(&counts->errors[LOAD_MALFORMED], 1);
        status = 0;
    }
    if (status / 100 == 2) {
        bump(&counts->ok, 1);
        if (loop->now_ns <= loop->until_ns && loop->sending)
            bump(&counts->ok_in_window, 1);
    }
    bump(&counts->records_ok, taken);
    worker_loop_hand_over(loop, IDS_BUFFER_BYTES);

    /* BUSY is left before the connection may be lost: the request is settled. */
    bool close = c->response.close;
    enter(loop, c, CONNECTION_IDLE);
    if (close)
        lost(loop, c, LOAD_CLOSED);
}

/* Bytes came while BUSY. false: the connection is lost. */
static bool received(struct worker_loop *loop, struct connection *c, const char *p, size_t n)
{
    size_t used = 0;
    int result = response_feed(&c->response, p, n, &used);
    if (result == RESPONSE_MORE)
        return true;
    /* An answer before its request was sent whole, or bytes after it, break the framing. */
    if (result != RESPONSE_DONE || used != n || c->rest.n > 0) {
        lost(loop, c, LOAD_MALFORMED);
        return false;
    }
    answered(loop, c);
    return c->state == CONNECTION_IDLE;
}

static void ended(struct worker_loop *loop, struct connection *c)
{
    if (c->state == CONNECTION_BUSY && response_end(&c->response) == RESPONSE_DONE)
        answered(loop, c); /* `close` is set: it is lost in there */
    else
        lost(loop, c, LOAD_CLOSED);
}

static void readable(struct worker_loop *loop, struct connection *c, bool ending)
{
    for (;;) {
        ssize_t n = recv(c->fd, loop->receive, RECEIVE_BYTES, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN)
            return;
        if (n < 0) {
            lost(loop, c, LOAD_RESET);
            return;
        }
        if (n == 0) {
            ended(loop, c);
            return;
        }
        if (c->state != CONNECTION_BUSY) { /* an answer to nothing */
            bump(&loop->worker->counts.errors[LOAD_MALFORMED], 1);
            lost(loop, c, LOAD_MALFORMED);
            return;
        }
        if (!received(loop, c, loop->receive, (size_t)n))
            return;
        /* A short read emptied the socket; only its end can still be there, and is announced. */
        if (n < RECEIVE_BYTES && !ending)
            return;
    }
}

static void ready(struct worker_loop *loop, struct connection *c, uint32_t events)
{
    if (c->fd < 0)
        return; /* lost while sending, earlier in this turn */
    if (c->state == CONNECTION_CONNECTING) {
        int cause = connection_error(c);
        if (cause) {
            connect_failed(loop, c, cause);
            return;
        }
        if (!(events & EPOLLOUT))
            return;
        response_begin(&c->response);
        c->response.keep_body = loop->plan->ids != NULL;
        enter(loop, c, CONNECTION_IDLE);
    }
    if (c->state == CONNECTION_BUSY && c->rest.n > 0 && (events & EPOLLOUT) &&
        connection_send_rest(c) != 0) {
        lost(loop, c, LOAD_RESET);
        return;
    }
    bool ending = (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0;
    if ((events & EPOLLIN) || ending)
        readable(loop, c, ending);
}

/* ---- time */

static void time_out(struct worker_loop *loop)
{
    uint64_t timeout_ns = loop->plan->timeout_ns;
    struct connection *c;
    while ((c = loop->lists[CONNECTION_CONNECTING].first) != NULL &&
           loop->now_ns - c->since_ns >= timeout_ns)
        connect_failed(loop, c, ETIMEDOUT);
    while ((c = loop->lists[CONNECTION_BUSY].first) != NULL &&
           loop->now_ns - c->since_ns >= timeout_ns) {
        histogram_record(loop->worker->latency_ns, loop->now_ns - c->intended_ns);
        lost(loop, c, LOAD_TIMEOUT);
    }
}

static uint64_t earlier(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint64_t wake_time(const struct worker_loop *loop)
{
    const struct connection_list *lists = loop->lists;
    uint64_t timeout_ns = loop->plan->timeout_ns;
    uint64_t wake = earlier(loop->now_ns + TICK_NS, loop->until_ns);
    if (loop->sending && lists[CONNECTION_IDLE].n > 0)
        wake = earlier(wake, pacer_due_ns(&loop->worker->pacer));
    if (lists[CONNECTION_CONNECTING].n > 0)
        wake = earlier(wake, lists[CONNECTION_CONNECTING].first->since_ns + timeout_ns);
    if (lists[CONNECTION_BUSY].n > 0)
        wake = earlier(wake, lists[CONNECTION_BUSY].first->since_ns + timeout_ns);
    if (loop->may_connect && lists[CONNECTION_WAITING].n > 0 &&
        lists[CONNECTION_CONNECTING].n < CONNECTING_MAX)
        wake = earlier(wake, lists[CONNECTION_WAITING].first->retry_ns);
    return wake;
}

static bool told_to_stop(const struct worker_plan *plan)
{
    /* Relaxed: nothing but the flag itself is read. */
    return (plan->stop && atomic_load_explicit(plan->stop, memory_order_relaxed)) ||
           (plan->ids && ids_failed(plan->ids));
}

void worker_loop_turn(struct worker_loop *loop)
{
    struct epoll_event events[EVENTS];
    loop->now_ns = clock_mono_ns();
    uint64_t wake = wake_time(loop);
    uint64_t wait_ns = wake > loop->now_ns ? wake - loop->now_ns : 0;
    struct timespec wait = {.tv_sec = (time_t)(wait_ns / 1000000000u),
                            .tv_nsec = (long)(wait_ns % 1000000000u)};
    int n = epoll_pwait2(loop->epoll, events, EVENTS, &wait, NULL);
    if (n < 0 && errno == ENOSYS) /* before Linux 5.11 */
        n = epoll_wait(loop->epoll, events, EVENTS, (int)(wait_ns / 1000000u));
    for (int i = 0; i < n; i++) {
        loop->now_ns = clock_mono_ns();
        ready(loop, events[i].data.ptr, events[i].events);
        worker_loop_send_due(loop);
    }
    if (n <= 0)
        loop->now_ns = clock_mono_ns();
    time_out(loop);
    worker_loop_connect_due(loop);
    worker_loop_send_due(loop);
    if (loop->now_ns >= loop->tick_ns) {
        loop->tick_ns = loop->now_ns + TICK_NS;
        worker_loop_hand_over(loop, 1);
        loop->stop = told_to_stop(loop->plan);
    }
}

/* ---- life */

void worker_loop_init(struct worker_loop *loop, struct worker *worker)
{
    const struct worker_plan *plan = worker->plan;
    *loop = (struct worker_loop){.worker = worker, .plan = plan, .epoll = worker->epoll};
    loop->now_ns = clock_mono_ns();
    struct timespec wall;
    clock_gettime(CLOCK_REALTIME, &wall);
    loop->wall_ahead_ns =
        (uint64_t)wall.tv_sec * 1000000000u + (uint64_t)wall.tv_nsec - loop->now_ns;
    loop->connections = mem_zalloc(worker->n_connections * sizeof *loop->connections);
    for (unsigned i = 0; i < worker->n_connections; i++) {
        loop->connections[i].fd = -1;
        loop->connections[i].state = CONNECTION_WAITING;
        connection_list_push(&loop->lists[CONNECTION_WAITING], &loop->connections[i]);
    }
    loop->body_at = plan->head.n + LENGTH_ROOM;
    loop->request = mem_alloc(loop->body_at + plan->batch * (template_bound(plan->template) + 1));
    loop->receive = mem_alloc(RECEIVE_BYTES);
    if (plan->ids)
        loop->answers = answers_create();
}

void worker_loop_fini(struct worker_loop *loop)
{
    for (unsigned i = 0; i < loop->worker->n_connections; i++)
        connection_fini(&loop->connections[i]);
    mem_free(loop->connections);
    mem_free(loop->request);
    mem_free(loop->receive);
    answers_destroy(loop->answers);
    buf_fini(&loop->lines);
    close(loop->epoll);
}
