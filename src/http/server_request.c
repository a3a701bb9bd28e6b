/* server_request.c: the life of a request (see server_conn.h): taken from the loop's free list,
 * queued, handed to the handler or refused, and given back.
 *
 * Nothing here allocates once a loop has seen as many requests at a time as it sees: structs,
 * header arrays, small bodies and buffers for answers are kept. */
#include <stdio.h>

#include "base/mem.h"
#include "http/server_conn.h"

#define FREE_REQUESTS   256        /* kept by a loop */
#define HELD_KEPT_BYTES (8 * 1024) /* a larger buffer is not kept with a request */

struct server_request *server_request_create(struct server_conn *conn)
{
    struct server_loop *loop = conn->loop;
    struct server_request *request = loop->free_requests;
    if (request) {
        loop->free_requests = request->next;
        loop->n_free_requests--;
    } else {
        request = mem_zalloc(sizeof *request);
    }
    request->conn = conn;
    request->next = NULL;
    request->pub.loop = loop->loop;
    request->pub.loop_index = loop->index;
    request->pub.local = conn->local;
    conn_ref(&conn->conn);
    return request;
}

void server_request_free(struct server_request *request)
{
    mem_free(request->headers);
    mem_free(request->own);
    buf_fini(&request->held);
    mem_free(request);
}

void server_request_release(struct server_request *request)
{
    struct server_conn *conn = request->conn;
    struct server_loop *loop = conn->loop;
    if (request->head_block)
        conn_block_unref(&loop->pool, request->head_block);
    if (request->body_block)
        conn_block_unref(&loop->pool, request->body_block);
    bool keep = loop->n_free_requests < FREE_REQUESTS;
    server_body_forget(request, !keep);
    if (request->held.capacity > HELD_KEPT_BYTES)
        buf_fini(&request->held);
    conn_unref(&conn->conn);
    if (!keep) {
        server_request_free(request);
        return;
    }
    *request = (struct server_request){
        .next = loop->free_requests,
        .headers = request->headers,
        .headers_capacity = request->headers_capacity,
        .own = request->own,
        .own_capacity = request->own_capacity,
        .held = {request->held.p, 0, request->held.capacity},
    };
    loop->free_requests = request;
    loop->n_free_requests++;
}

static void enqueue(struct server_conn *conn, struct server_request *request)
{
    *conn->end = request;
    conn->end = &request->next;
    conn->queued++;
    unsigned waiting = atomic_load_explicit(&conn->loop->unanswered, memory_order_relaxed);
    atomic_store_explicit(&conn->loop->unanswered, waiting + 1, memory_order_relaxed);
}

void server_forget_current(struct server_conn *conn)
{
    struct server_request *request = conn->current;
    conn->current = NULL;
    if (request)
        server_request_release(request);
}

void server_refuse(struct server_conn *conn, int status, const char *detail)
{
    const struct parse_head *head = &conn->head;
    struct slice method = {NULL, 0};
    if (conn->current)
        method = conn->current->pub.method;
    else if (conn->phase == READ_HEAD && head->target_at)
        method = (struct slice){conn_input(&conn->conn) + head->skipped, head->method_bytes};
    bool head_only = slice_is(method, "HEAD");
    server_forget_current(conn);
    server_read_no_more(conn);
    if (status != 408 && status != 503)
        server_count(&conn->loop->counters.bad_requests_total, 1);
    struct server_request *request = server_request_create(conn);
    request->head_only = head_only;
    request->keep_alive = false;
    enqueue(conn, request);
    struct slice extra = status == 503 ? SLICE_LIT("Retry-After: 1\r\n") : SLICE_LIT("");
    http_answer_problem(&request->pub, status, extra, detail);
}

void server_refuse_body(struct server_conn *conn)
{
    char detail[80];
    snprintf(detail, sizeof(detail), "the body is larger than %llu bytes (limits: body)",
             (unsigned long long)conn->loop->server->limits.body_bytes);
    server_refuse(conn, 413, detail);
}

void server_complete_request(struct server_conn *conn)
{
    struct server_request *request = conn->current;
    conn->current = NULL;
    conn->head = (struct parse_head){0};
    conn->phase = READ_HEAD;
    conn->continue_due = false;
    conn->read_deadline_ns = 0;
    if (!request->keep_alive)
        server_read_no_more(conn);
    enqueue(conn, request);
    server_count(&conn->loop->counters.requests_total, 1);
    struct http_server *server = conn->loop->server;
    server->handle(server->context, &request->pub); /* which may have answered: it is gone */
}

void server_request_headers(struct server_request *request, const struct http_header *headers,
                            unsigned n)
{
    if (n > request->headers_capacity) {
        request->headers_capacity = n < 16 ? 16 : n;
        mem_free(request->headers);
        request->headers = mem_alloc(request->headers_capacity * sizeof *headers);
    }
    if (n)
        memcpy(request->headers, headers, n * sizeof *headers);
    request->pub.headers = request->headers;
    request->pub.n_headers = n;
}
