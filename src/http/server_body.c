/* server_body.c: request bodies.
 *
 * A small body with a Content-Length stays in the block it was read into, and costs nothing. Others
 * get memory of their own, which grows with what has come (a client that promises much and sends
 * little holds little) and can be handed to whoever takes the body. All such memory is counted over
 * the server, and bounded. */
#include <assert.h>
#include <stdlib.h>

#include "base/mem.h"
#include "http/server_conn.h"

#define OWN_FIRST_BYTES   (4 * 1024)
#define OWN_KEPT_BYTES    (16 * 1024)  /* kept with the request for the next one */
#define READ_BYTES        (256 * 1024) /* of a large body in one turn */
#define TAKEN_WASTE_BYTES (4 * 1024)   /* a taken body may hold so much more than it needs */

static size_t size_with_padding(size_t n)
{
    return n + HTTP_BODY_PADDING;
}

/* Makes room for `more` bytes, growing no further than `most` in all. */
static bool reserve(struct server_conn *conn, size_t more, uint64_t most)
{
    struct server_request *request = conn->current;
    struct http_server *server = conn->loop->server;
    size_t need = size_with_padding(request->own_bytes + more), capacity = request->own_capacity;
    if (need <= capacity)
        return true;
    capacity = capacity * 2 > OWN_FIRST_BYTES ? capacity * 2 : OWN_FIRST_BYTES;
    if (capacity > size_with_padding((size_t)most))
        capacity = size_with_padding((size_t)most);
    if (capacity < need)
        capacity = need;
    size_t added = capacity - request->own_capacity;
    uint64_t before = atomic_fetch_add_explicit(&server->body_memory, added, memory_order_relaxed);
    char *p = before + added <= server->limits.body_memory ? mem_try_alloc(capacity) : NULL;
    if (!p) {
        atomic_fetch_sub_explicit(&server->body_memory, added, memory_order_relaxed);
        server_refuse(conn, 503, "the server holds as many bodies as it may hold; try again");
        return false;
    }
    if (request->own_bytes)
        memcpy(p, request->own, request->own_bytes);
    mem_free(request->own);
    request->own = p;
    request->own_capacity = capacity;
    return true;
}

static void forget_memory(struct server_request *request)
{
    struct http_server *server = request->conn->loop->server;
    if (request->own)
        atomic_fetch_sub_explicit(&server->body_memory, request->own_capacity,
                                  memory_order_relaxed);
    request->own = NULL;
    request->own_capacity = request->own_bytes = 0;
}

void server_body_forget(struct server_request *request, bool all)
{
    request->own_bytes = 0;
    if (all || request->own_capacity > OWN_KEPT_BYTES) {
        mem_free(request->own);
        forget_memory(request);
    }
}

static void complete_own(struct server_conn *conn)
{
    struct server_request *request = conn->current;
    if (request->own_bytes) {
        memset(request->own + request->own_bytes, 0, HTTP_BODY_PADDING);
        request->pub.body = request->own;
        request->pub.body_bytes = request->own_bytes;
    }
    server_complete_request(conn);
}

char *server_body_room(struct server_conn *conn, size_t *out_n)
{
    struct server_request *request = conn->current;
    if (!reserve(conn, 1, request->own_bytes + conn->body_left))
        return NULL;
    size_t room = request->own_capacity - HTTP_BODY_PADDING - request->own_bytes;
    if (room > conn->body_left)
        room = (size_t)conn->body_left;
    *out_n = room < READ_BYTES ? room : READ_BYTES;
    return request->own + request->own_bytes;
}

void server_body_filled(struct server_conn *conn, size_t n)
{
    conn->current->own_bytes += n;
    conn->body_left -= n;
}

static bool append(struct server_conn *conn, struct slice data, uint64_t most)
{
    struct server_request *request = conn->current;
    if (!data.n)
        return true;
    if (!reserve(conn, data.n, most))
        return false;
    memcpy(request->own + request->own_bytes, data.p, data.n);
    request->own_bytes += data.n;
    return true;
}

static bool read_block(struct server_conn *conn)
{
    struct server_request *request = conn->current;
    size_t n = (size_t)conn->body_left;
    if (conn_input_bytes(&conn->conn) < n)
        return false;
    request->pub.body = conn_input(&conn->conn);
    request->pub.body_bytes = n;
    request->body_block = conn_block_ref(conn->conn.block);
    conn_consume(&conn->conn, n);
    server_complete_request(conn);
    return true;
}

static bool read_own(struct server_conn *conn)
{
    size_t n = conn_input_bytes(&conn->conn);
    if (n > conn->body_left)
        n = (size_t)conn->body_left;
    struct slice data = {conn_input(&conn->conn), n};
    if (!append(conn, data, conn->current->own_bytes + conn->body_left))
        return false;
    conn_consume(&conn->conn, n);
    conn->body_left -= n;
    if (conn->body_left)
        return false;
    complete_own(conn);
    return true;
}

static bool read_chunks(struct server_conn *conn)
{
    struct parse_error error;
    size_t n, used;
    while ((n = conn_input_bytes(&conn->conn)) > 0) {
        struct slice data;
        enum parse_result result =
            parse_chunks(&conn->chunks, conn_input(&conn->conn), n, &used, &data, &error);
        if (result == PARSE_REFUSED) {
            if (error.status == 413)
                server_refuse_body(conn);
            else
                server_refuse(conn, error.status, error.detail);
            return false;
        }
        if (!append(conn, data, conn->loop->server->limits.body_bytes))
            return false;
        conn_consume(&conn->conn, used);
        if (result == PARSE_DONE) {
            complete_own(conn);
            return true;
        }
    }
    return false;
}

bool server_read_body(struct server_conn *conn)
{
    switch (conn->phase) {
    case READ_BLOCK:
        return read_block(conn);
    case READ_OWN:
        return read_own(conn);
    default:
        assert(conn->phase == READ_CHUNKS);
        return read_chunks(conn);
    }
}

char *http_take_body(struct http_request *pub)
{
    struct server_request *request = (struct server_request *)pub;
    size_t n = pub->body_bytes;
    char *body = pub->body;
    assert(loop_is_current(pub->loop));
    if (!body)
        return NULL;
    bool moves =
        body == request->own && request->own_capacity - size_with_padding(n) <= TAKEN_WASTE_BYTES;
    if (moves) {
        forget_memory(request);
    } else {
        char *copy = mem_alloc(size_with_padding(n));
        memcpy(copy, body, n);
        memset(copy + n, 0, HTTP_BODY_PADDING);
        body = copy;
        server_body_forget(request, false);
    }
    pub->body = NULL;
    pub->body_bytes = 0;
    return body;
}
