/* answer.c: writing answers, in the order of the requests (see server_conn.h). */
#include <assert.h>
#include <time.h>

#include "base/clock.h"
#include "http/server_conn.h"

/* ---- heads ---- */

/* RFC 9110 5.6.7, formatted by hand: strftime would follow the locale. */
static void format_date(uint64_t wall_ms, char out[SERVER_DATE_BYTES + 1])
{
    static const char days[] = "SunMonTueWedThuFriSat";
    static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm t;
    gmtime_r(&seconds, &t);
    unsigned year = (unsigned)(t.tm_year + 1900) % 10000;
    memcpy(out, "Date: Sun, 00 Jan 0000 00:00:00 GMT\r\n", SERVER_DATE_BYTES + 1);
    memcpy(out + 6, days + 3 * t.tm_wday, 3);
    memcpy(out + 14, months + 3 * t.tm_mon, 3);
    const struct {
        unsigned at, value;
    } pairs[] = {{11, (unsigned)t.tm_mday}, {18, year / 100},         {20, year % 100},
                 {23, (unsigned)t.tm_hour}, {26, (unsigned)t.tm_min}, {29, (unsigned)t.tm_sec}};
    for (unsigned i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        out[pairs[i].at] = (char)('0' + pairs[i].value / 10 % 10);
        out[pairs[i].at + 1] = (char)('0' + pairs[i].value % 10);
    }
}

static const char *date_line(struct server_loop *loop)
{
    uint64_t now = loop_now_ns(loop->loop);
    if (now >= loop->date_until_ns) {
        uint64_t wall_ms = clock_wall_ms();
        format_date(wall_ms, loop->date);
        loop->date_until_ns = now + (1000 - wall_ms % 1000) * 1000000;
    }
    return loop->date;
}

static char *put(char *at, const void *p, size_t n)
{
    memcpy(at, p, n);
    return at + n;
}

#define PUT_LITERAL(at, literal) put(at, literal, sizeof(literal) - 1)

static char *put_decimal(char *at, uint64_t value)
{
    char digits[20];
    size_t n = sizeof digits;
    do {
        digits[--n] = (char)('0' + value % 10);
        value /= 10;
    } while (value);
    return put(at, digits + n, sizeof digits - n);
}

/* Whether the connection ends with this answer. While the server stops, it ends with the last one
 * that was asked for: what was handed over behind it still gets its answer. */
static bool is_last(struct server_request *request)
{
    struct server_conn *conn = request->conn;
    if (request->keep_alive &&
        atomic_load_explicit(&conn->loop->server->stopping, memory_order_relaxed) &&
        !request->next && !conn->current) {
        request->keep_alive = false;
        server_read_no_more(conn);
    }
    return !request->keep_alive;
}

void server_put_head(struct server_request *request, struct buf *out, int status,
                     const char *content_type, struct slice extra, int64_t body_bytes)
{
    const char *text = http_status_text(status);
    size_t text_bytes = strlen(text), type_bytes = content_type ? strlen(content_type) : 0;
    assert(status >= 200 && status <= 599);
    buf_reserve(out, text_bytes + type_bytes + extra.n + 256);
    char *at = out->p + out->n;
    at = PUT_LITERAL(at, "HTTP/1.1 ");
    at = put_decimal(at, (uint64_t)status);
    *at++ = ' ';
    at = put(at, text, text_bytes);
    at = PUT_LITERAL(at, "\r\n");
    at = put(at, date_line(request->conn->loop), SERVER_DATE_BYTES);
    if (content_type) {
        at = PUT_LITERAL(at, "Content-Type: ");
        at = put(at, content_type, type_bytes);
        at = PUT_LITERAL(at, "\r\n");
    }
    if (status == 204 || status == 304) {
        /* Neither has a body, and a length would be a claim about another answer. */
    } else if (body_bytes >= 0) {
        at = PUT_LITERAL(at, "Content-Length: ");
        at = put_decimal(at, (uint64_t)body_bytes);
        at = PUT_LITERAL(at, "\r\n");
    } else if (!request->http_1_0) {
        at = PUT_LITERAL(at, "Transfer-Encoding: chunked\r\n");
    } else {
        request->keep_alive = false; /* the end of the connection ends the answer */
        server_read_no_more(request->conn);
    }
    if (is_last(request))
        at = PUT_LITERAL(at, "Connection: close\r\n");
    else if (request->http_1_0)
        at = PUT_LITERAL(at, "Connection: keep-alive\r\n");
    if (extra.n)
        at = put(at, extra.p, extra.n);
    at = PUT_LITERAL(at, "\r\n");
    out->n = (size_t)(at - out->p);
}

/* ---- order ---- */

struct buf *server_answer_target(struct server_request *request)
{
    struct server_conn *conn = request->conn;
    return request == conn->first ? conn_out(&conn->conn) : &request->held;
}

void server_continue(struct server_conn *conn)
{
    if (!conn->continue_due || conn->first)
        return;
    server_body_begins(conn);
    buf_put_str(conn_out(&conn->conn), "HTTP/1.1 100 Continue\r\n\r\n");
}

void server_count_answers(struct server_conn *conn)
{
    struct server_loop *loop = conn->loop;
    size_t bytes = conn->conn.open ? conn_unsent(&conn->conn) + conn->held_bytes : 0;
    size_t counted = bytes > SERVER_ANSWER_SMALL ? bytes : 0;
    if (!bytes != !conn->answer_bytes) {
        unsigned unsent = atomic_load_explicit(&loop->unsent, memory_order_relaxed);
        /* Release, with the load in http_server_unsent. */
        atomic_store_explicit(&loop->unsent, bytes ? unsent + 1 : unsent - 1, memory_order_release);
    }
    conn->answer_bytes = bytes;
    if (counted == conn->answer_counted)
        return; /* as with nearly every answer: nothing that loops share is touched */
    atomic_fetch_add_explicit(&loop->server->answer_memory,
                              (uint64_t)counted - conn->answer_counted, memory_order_relaxed);
    conn->answer_counted = counted;
}

static void count_answered(struct server_loop *loop)
{
    unsigned waiting = atomic_load_explicit(&loop->unanswered, memory_order_relaxed);
    /* Release: who sees it answered sees it unsent, until it is sent. */
    atomic_store_explicit(&loop->unanswered, waiting - 1, memory_order_release);
}

static void unlink_request(struct server_conn *conn, struct server_request *request)
{
    struct server_request **at = &conn->first;
    while (*at != request)
        at = &(*at)->next;
    *at = request->next;
    if (!*at)
        conn->end = at;
    conn->queued--;
    server_request_release(request);
}

void server_answered(struct server_request *request)
{
    struct server_conn *conn = request->conn;
    assert(!request->complete);
    struct server_loop *loop = conn->loop;
    request->complete = true;
    if (!conn->conn.open) {
        unlink_request(conn, request); /* perhaps the last that held the connection's memory */
        count_answered(loop);
        return;
    }
    if (request != conn->first)
        conn->held_bytes += request->held.n;
    while ((request = conn->first) && request->complete) {
        unlink_request(conn, request);
        request = conn->first;
        if (request && request->held.n) {
            if (request->complete)
                conn->held_bytes -= request->held.n;
            buf_put_slice(conn_out(&conn->conn), buf_slice(&request->held));
            buf_clear(&request->held);
        }
    }
    server_count_answers(conn);
    count_answered(loop);
    server_continue(conn);
    conn_touch(&conn->conn);
}

/* ---- whole answers ---- */

void http_answer(struct http_request *pub, int status, const char *content_type, struct slice extra,
                 struct slice body)
{
    struct server_request *request = (struct server_request *)pub;
    assert(loop_is_current(pub->loop) && !request->complete && !request->streaming);
    if (request->conn->conn.open) {
        struct buf *out = server_answer_target(request);
        buf_reserve(out, body.n + extra.n + 320);
        server_put_head(request, out, status, content_type, extra, (int64_t)body.n);
        if (!request->head_only && status != 204 && status != 304)
            buf_put_slice(out, body);
    }
    server_answered(request);
}

void http_answer_problem(struct http_request *pub, int status, struct slice extra,
                         const char *detail)
{
    struct buf body = {0};
    buf_put_str(&body, "{\"type\":\"about:blank\",\"title\":");
    buf_put_json_string(&body, slice_of(http_status_text(status)));
    buf_printf(&body, ",\"status\":%d,\"detail\":", status);
    buf_put_json_string(&body, slice_of(detail));
    buf_put_str(&body, "}\n");
    http_answer(pub, status, "application/problem+json", extra, buf_slice(&body));
    buf_fini(&body);
}
