/* stream.c: answers that stream (see server.h).
 *
 * Each write becomes a chunk (in HTTP/1.0 plain bytes, ended by the end of the connection). While
 * it is not the request's turn, or the peer does not keep up, the bytes wait in memory; the caller
 * is told so and should wait, and one that goes on regardless loses the connection. */
#include <assert.h>

#include "http/server_conn.h"

#define STREAM_HIGH (64 * 1024) /* unsent bytes over which the caller is told to wait */

static struct server_request *request_of(struct http_request *pub)
{
    struct server_request *request = (struct server_request *)pub;
    assert(loop_is_current(pub->loop) && !request->complete);
    return request;
}

void http_stream_begin(struct http_request *pub, int status, const char *content_type,
                       struct slice extra)
{
    struct server_request *request = request_of(pub);
    assert(!request->streaming && status != 204 && status != 304);
    request->streaming = true;
    if (!request->conn->conn.open)
        return;
    server_put_head(request, server_answer_target(request), status, content_type, extra, -1);
}

static size_t waiting_bytes(const struct server_request *request)
{
    const struct server_conn *conn = request->conn;
    return request == conn->first ? conn_unsent(&conn->conn) : request->held.n;
}

bool http_stream_write(struct http_request *pub, struct slice bytes)
{
    struct server_request *request = request_of(pub);
    struct server_conn *conn = request->conn;
    assert(request->streaming);
    if (!conn->conn.open || conn->overrun)
        return true; /* for nobody: the caller may as well come to its end */
    if (bytes.n && !request->head_only) {
        struct buf *out = server_answer_target(request);
        if (request->http_1_0) {
            buf_put_slice(out, bytes);
        } else {
            buf_printf(out, "%zx\r\n", bytes.n);
            buf_put_slice(out, bytes);
            buf_put(out, "\r\n", 2);
        }
    }
    size_t waiting = waiting_bytes(request);
    if (waiting > SERVER_STREAM_MAX) {
        conn->overrun = true;
        conn_touch(&conn->conn);
        return true;
    }
    request->behind = waiting > STREAM_HIGH || request != conn->first;
    return !request->behind;
}

void http_stream_end(struct http_request *pub)
{
    struct server_request *request = request_of(pub);
    assert(request->streaming);
    if (request->conn->conn.open && !request->head_only && !request->http_1_0)
        buf_put_str(server_answer_target(request), "0\r\n\r\n");
    server_answered(request);
}

void http_stream_on_writable(struct http_request *pub, void (*writable)(struct http_request *))
{
    request_of(pub)->writable = writable;
}

void http_on_gone(struct http_request *pub, void (*gone)(struct http_request *))
{
    struct server_request *request = request_of(pub);
    if (pub->client_gone)
        gone(pub);
    else
        request->gone = gone;
}
