/* server_conn.c: a connection of the server: bytes become requests, and what becomes of the
 * connection (see server_conn.h).
 *
 * All decisions that are not forced by a byte are taken in one place, flushed(), at the end of each
 * turn in which anything happened: go on reading, pause, wait with which deadline, end. */
#include "http/server_conn.h"

#include "base/mem.h"

#define DRAIN_BYTES     (32 * 1024 * 1024) /* read and thrown away at most while lingering */
#define BODY_RATE_BYTES (64 * 1024)        /* each of them gives a body one second more */

static struct server_conn *conn_of(struct conn *conn)
{
    return (struct server_conn *)conn;
}

static uint64_t after_ms(const struct server_conn *conn, uint32_t ms)
{
    return loop_now_ns(conn->loop->loop) + (uint64_t)ms * 1000000;
}

/* ---- from bytes to requests ---- */

void server_read_no_more(struct server_conn *conn)
{
    conn->phase = READ_NOTHING;
    conn->last_taken = true;
    conn->continue_due = false;
    conn->read_deadline_ns = 0;
    conn_want_read(&conn->conn, false);
}

void server_body_begins(struct server_conn *conn)
{
    conn->continue_due = false;
    conn->read_deadline_ns = after_ms(conn, conn->loop->server->limits.body_ms);
}

/* The head is complete: what follows it? */
static bool begin_body(struct server_conn *conn, const struct parse_fields *fields)
{
    const struct http_server *server = conn->loop->server;
    /* It would be answered in more memory, which those take who do not read. */
    if ((fields->chunked || fields->content_length) && http_server_answers_full(server)) {
        server_refuse(conn, 503, "the server holds as many answers as it may hold; try again");
        return false;
    }
    if (fields->content_length > server->limits.body_bytes) {
        server_refuse_body(conn);
        return false;
    }
    if (fields->chunked) {
        conn->phase = READ_CHUNKS;
        parse_chunks_init(&conn->chunks, &server->parse_limits, server->limits.body_bytes);
    } else if (fields->content_length) {
        conn->phase = fields->content_length <= SERVER_BODY_IN_BLOCK ? READ_BLOCK : READ_OWN;
        conn->body_left = fields->content_length;
    } else {
        server_complete_request(conn);
        return true;
    }
    if (fields->expect_continue && conn_input_bytes(&conn->conn) == 0) {
        conn->continue_due = true;
        server_continue(conn); /* the body's time begins when it is asked for */
    } else {
        server_body_begins(conn);
    }
    return true;
}

static bool take_head(struct server_conn *conn)
{
    const struct http_server *server = conn->loop->server;
    struct parse_fields fields;
    struct parse_error error;
    const char *p = conn_input(&conn->conn);
    size_t n = conn_input_bytes(&conn->conn);
    if (!n)
        return false;
    enum parse_result result = parse_head(&conn->head, &server->parse_limits, p, n, &error);
    if (result == PARSE_DONE)
        result = parse_fields(&conn->head, &server->parse_limits, p, conn->loop->headers, &fields,
                              &error);
    if (result == PARSE_REFUSED)
        server_refuse(conn, error.status, error.detail);
    if (result != PARSE_DONE)
        return false;

    struct server_request *request = server_request_create(conn);
    conn->current = request;
    server_request_headers(request, conn->loop->headers, fields.n_headers);
    request->pub.method = (struct slice){p + conn->head.skipped, conn->head.method_bytes};
    request->pub.target = fields.target;
    request->pub.path = fields.path;
    request->pub.query = fields.query;
    request->pub.received_ns = loop_now_ns(conn->loop->loop);
    request->keep_alive = fields.keep_alive;
    request->http_1_0 = conn->head.minor == 0;
    request->head_only = slice_is(request->pub.method, "HEAD");
    request->head_block = conn_block_ref(conn->conn.block);
    conn_consume(&conn->conn, conn->head.head_bytes);
    return begin_body(conn, &fields);
}

static bool is_reading(const struct server_conn *conn)
{
    return conn->phase <= READ_CHUNKS;
}

/* Whether another request may be taken now. */
static bool has_room(const struct server_conn *conn)
{
    return conn->queued < conn->loop->server->limits.pipelined &&
           conn_unsent(&conn->conn) + conn->held_bytes < SERVER_OUT_HIGH;
}

/* Works on what was read; pauses reading when there is no room for more requests. */
static void work(struct server_conn *conn)
{
    bool more = true;
    while (more && conn->conn.open && is_reading(conn)) {
        if (!has_room(conn)) {
            conn->paused = true;
            conn->read_deadline_ns = 0;
            conn_want_read(&conn->conn, false);
            return;
        }
        more = conn->phase == READ_HEAD ? take_head(conn) : server_read_body(conn);
    }
}

/* What may come after the last request is thrown away, for a while, so that closing does not reset
 * the connection before the peer has read its answer. */
static void drain(struct server_conn *conn)
{
    for (int i = 0; i < 8; i++) {
        conn_consume(&conn->conn, conn_input_bytes(&conn->conn));
        ssize_t n = conn_read(&conn->conn);
        if (n > 0)
            conn->drained += (uint64_t)n;
        if (n == WEIR_AGAIN)
            return;
        if (n <= 0 || conn->drained > DRAIN_BYTES) {
            server_conn_gone(conn);
            return;
        }
    }
}

static void readable(struct conn *base)
{
    struct server_conn *conn = conn_of(base);
    ssize_t n;
    if (conn->phase == LINGER) {
        drain(conn);
        return;
    }
    if (conn->phase == READ_OWN && conn_input_bytes(base) == 0) {
        size_t room;
        char *p = server_body_room(conn, &room);
        if (!p)
            return;
        n = conn_read_into(base, p, room);
        if (n > 0)
            server_body_filled(conn, (size_t)n);
    } else {
        n = conn_read(base);
    }
    if (n < 0 && n != WEIR_AGAIN) {
        server_conn_gone(conn);
        return;
    }
    if (n > 0) {
        if (conn->continue_due)
            server_body_begins(conn); /* it did not wait for us to ask */
        if (conn->read_deadline_ns && conn->phase != READ_HEAD)
            conn->read_deadline_ns += (uint64_t)n * 1000000000 / BODY_RATE_BYTES;
        work(conn);
    }
    conn_touch(base);
}

/* ---- what becomes of it ---- */

/* Nothing waits and nothing will come: we end, and then wait for the peer to do so. */
static void finish(struct server_conn *conn)
{
    if (conn->conn.eof) {
        server_conn_gone(conn);
        return;
    }
    conn_shutdown(&conn->conn);
    conn->phase = LINGER;
    conn->read_deadline_ns = conn->write_deadline_ns = 0;
    conn_deadline(&conn->conn, after_ms(conn, SERVER_LINGER_MS));
    conn_want_read(&conn->conn, true);
}

/* The next moment at which waiting must end. */
static uint64_t next_deadline(struct server_conn *conn)
{
    const struct http_limits *limits = &conn->loop->server->limits;
    size_t unsent = conn_unsent(&conn->conn);
    if (!unsent) {
        conn->write_deadline_ns = 0;
    } else if (!conn->write_deadline_ns || conn->written != conn->conn.written) {
        conn->write_deadline_ns = after_ms(conn, limits->write_ms);
        conn->written = conn->conn.written;
    }
    bool begun = conn_input_bytes(&conn->conn) > conn->head.skipped;
    if (conn->phase == READ_HEAD && !conn->paused) {
        if (!begun)
            conn->read_deadline_ns = 0;
        else if (!conn->read_deadline_ns)
            conn->read_deadline_ns = after_ms(conn, limits->head_ms);
        if (!begun && !unsent && !conn->queued)
            return after_ms(conn, limits->idle_ms);
    }
    if (!conn->write_deadline_ns ||
        (conn->read_deadline_ns && conn->read_deadline_ns < conn->write_deadline_ns))
        return conn->read_deadline_ns;
    return conn->write_deadline_ns;
}

static void flushed(struct conn *base)
{
    struct server_conn *conn = conn_of(base);
    struct server_request *first = conn->first;
    server_count_answers(conn);
    if (conn->phase == LINGER)
        return;
    if (conn->overrun || (base->peer_ended && first && first->streaming)) {
        server_conn_gone(conn); /* a stream could go on for ever for nobody */
        return;
    }
    if (!first && !conn_unsent(base) && (conn->last_taken || (base->eof && !conn->paused))) {
        finish(conn);
        return;
    }
    if (conn->paused && has_room(conn)) {
        conn->paused = false;
        if (conn->phase > READ_HEAD && is_reading(conn) && !conn->continue_due)
            server_body_begins(conn);
        conn_want_read(base, true);
        work(conn);
        conn_touch(base); /* decide again, with what that brought */
        return;
    }
    if (first && first->behind && conn_unsent(base) < SERVER_STREAM_LOW) {
        first->behind = false;
        if (first->writable)
            first->writable(&first->pub);
        if (!base->open)
            return;
    }
    if (server_conn_is_idle(conn) &&
        atomic_load_explicit(&conn->loop->server->stopping, memory_order_relaxed)) {
        server_conn_gone(conn);
        return;
    }
    conn_deadline(base, next_deadline(conn));
}

static void expired(struct conn *base)
{
    struct server_conn *conn = conn_of(base);
    uint64_t now = loop_now_ns(conn->loop->loop);
    bool read_late = conn->read_deadline_ns && conn->read_deadline_ns <= now;
    bool write_late = conn->write_deadline_ns && conn->write_deadline_ns <= now;
    if (read_late || write_late)
        server_count(&conn->loop->counters.timeouts_total, 1);
    if (read_late && !write_late && is_reading(conn))
        server_refuse(conn, 408,
                      conn->current ? "the body did not arrive in time"
                                    : "the head of the request did not arrive in time");
    else
        server_conn_gone(conn); /* idle, lingering, or a peer that does not read */
}

static void broken(struct conn *base)
{
    server_conn_gone(conn_of(base));
}

static void link_into(struct server_conn *conn, struct server_conn **list)
{
    conn->next = *list;
    conn->link = list;
    if (conn->next)
        conn->next->link = &conn->next;
    *list = conn;
}

static void unlink_conn(struct server_conn *conn)
{
    *conn->link = conn->next;
    if (conn->next)
        conn->next->link = conn->link;
}

static void destroy(struct conn *base)
{
    unlink_conn(conn_of(base));
    mem_free(conn_of(base));
}

static const struct conn_kind kind = {
    .readable = readable,
    .flushed = flushed,
    .expired = expired,
    .broken = broken,
    .destroy = destroy,
};

bool server_conn_is_idle(const struct server_conn *conn)
{
    return conn->phase == READ_HEAD && !conn->queued && !conn_unsent(&conn->conn) &&
           conn_input_bytes(&conn->conn) <= conn->head.skipped;
}

/* ---- open and close ---- */

void server_conn_open(struct server_loop *loop, int fd, bool local, bool surplus)
{
    struct server_conn *conn = mem_zalloc(sizeof *conn);
    conn->loop = loop;
    conn->local = local;
    conn->surplus = surplus;
    conn->end = &conn->first;
    if (conn_open(&conn->conn, &loop->pool, fd, &kind, &conn_plain, NULL)) {
        mem_free(conn);
        if (!surplus)
            atomic_fetch_sub_explicit(&loop->server->connections, 1, memory_order_relaxed);
        return;
    }
    link_into(conn, &loop->connections);
    if (surplus) {
        loop->surplus++;
        server_count(&loop->counters.refused_connections_total, 1);
        server_refuse(conn, 503, "the server has as many connections as it may have");
    } else {
        server_count(&loop->counters.connections_total, 1);
        server_count(&loop->counters.connections_open, 1);
        conn_deadline(&conn->conn, after_ms(conn, loop->server->limits.idle_ms));
    }
}

/* Tells everyone whose answer can no longer be delivered; any of them may answer in the call. */
static void tell_gone(struct server_conn *conn)
{
    struct server_request *request;
    for (request = conn->first; request; request = request->next)
        request->pub.client_gone = true;
    do {
        for (request = conn->first; request && !request->gone; request = request->next)
            ;
        if (request) {
            void (*gone)(struct http_request *) = request->gone;
            request->gone = NULL;
            gone(&request->pub);
        }
    } while (request);
}

void server_conn_gone(struct server_conn *conn)
{
    struct server_loop *loop = conn->loop;
    if (!conn->conn.open)
        return;
    conn_ref(&conn->conn); /* until we are done with it */
    conn_close(&conn->conn);
    server_forget_current(conn);
    unlink_conn(conn);
    link_into(conn, &loop->gone);
    if (conn->surplus) {
        loop->surplus--;
    } else {
        server_count(&loop->counters.connections_open, (uint64_t)-1);
        atomic_fetch_sub_explicit(&loop->server->connections, 1, memory_order_relaxed);
    }
    /* Answers that were held back will not be sent. */
    for (struct server_request **at = &conn->first; *at;) {
        struct server_request *request = *at;
        if (request->complete) {
            *at = request->next;
            conn->queued--;
            server_request_release(request);
        } else {
            at = &request->next;
        }
    }
    conn->held_bytes = 0;
    server_count_answers(conn);
    tell_gone(conn);
    conn_unref(&conn->conn);
}
