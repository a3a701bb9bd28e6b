/* server.h: an HTTP/1.1 server (RFC 9110, 9112) on several epoll loops.
 *
 * Each loop thread has its own listening socket (SO_REUSEPORT) and its own connections; a request
 * is handled, and must be answered, on its loop's thread. Requests of one connection may be
 * pipelined: the handler is called for each in order as it is complete, answers go out in that
 * order whatever the order they are given in, and all answers that are ready in one turn of the
 * loop leave in one write per connection.
 *
 * What the framing leaves in doubt is answered 400 and the connection closed; the handler never
 * sees it. */
#ifndef WEIR_HTTP_SERVER_H
#define WEIR_HTTP_SERVER_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/slice.h"
#include "http/header.h"
#include "os/loop.h"

struct http_request {            /* all slices live until the answer is complete */
    struct slice method, target; /* target as sent: path?query */
    struct slice path, query;    /* not decoded */
    const struct http_header *headers;
    unsigned n_headers;
    char *body; /* followed by HTTP_BODY_PADDING readable bytes; NULL when empty */
    size_t body_bytes;
    struct loop *loop;
    unsigned loop_index;
    bool local;       /* came over the unix socket */
    bool client_gone; /* the peer closed or failed; an answer is still due (and then discarded) */
    uint64_t received_ns; /* monotonic, when the head was complete */
    void *user;           /* the handler's own */
};

#define HTTP_BODY_PADDING 64

struct http_limits {
    uint32_t head_bytes;  /* 16384 */
    uint32_t headers;     /* 100 */
    uint64_t body_bytes;  /* larger: 413, unread, closed: 16 MiB */
    uint64_t body_memory; /* of bodies over 8 KiB held by the server, read or being read; over it:
                           * 503, closed: 128 MiB; at least body_bytes. Answers over 8 KiB that
                           * are not sent may hold as much again; over it no body is taken */
    uint32_t connections; /* per server; over it: 503 and closed: 20000 */
    uint32_t pipelined;   /* unanswered requests per connection before reading pauses: 64 */
    uint32_t head_ms, idle_ms, write_ms; /* deadlines: 10000, 75000, 30000 */
    uint32_t body_ms; /* 30000, and a second more for each 64 KiB that has come */
};
void http_limits_default(struct http_limits *limits);

struct http_counters { /* relaxed atomics, summed over loops */
    _Atomic uint64_t connections_total, connections_open, requests_total;
    _Atomic uint64_t bad_requests_total, timeouts_total, refused_connections_total;
    _Atomic uint64_t bytes_in_total, bytes_out_total;
};

struct http_server_config {
    const char *address;   /* "127.0.0.1:8080", "[::1]:8080", port 0 picks one */
    const char *unix_path; /* or NULL; mode 0600; served by loop 0; requests have local = true */
    unsigned loops;
    struct http_limits limits;
    void (*handle)(void *context, struct http_request *request);
    void *context;
};

struct http_server;
int http_server_start(const struct http_server_config *config, struct http_server **out,
                      struct diag *diag);
unsigned http_server_port(const struct http_server *server);
struct loop *http_server_loop(struct http_server *server, unsigned index);
const struct http_counters *http_server_counters(const struct http_server *server);
/* Closes the listeners; idle connections are closed, answers from now on carry Connection: close.
 * Any thread. */
void http_server_stop_accepting(struct http_server *server);
unsigned http_server_unanswered(const struct http_server *server); /* any thread */
/* Connections that hold answers, whole or in part, that the system has not taken yet. Any thread;
 * asked after http_server_unanswered, both 0: everything has left. */
unsigned http_server_unsent(const struct http_server *server);
/* Answers hold as much memory as they may: who is about to make a large one says 503. Any thread.
 */
bool http_server_answers_full(const struct http_server *server);
/* Ends the loops (what is unanswered is cut off), joins the threads, frees. */
void http_server_destroy(struct http_server *server);

/* Answers; on the loop's thread; exactly once per request; the request is dead afterwards. `extra`
 * is whole header lines
 * ("Retry-After: 3\r\n") or empty. The bytes are copied. */
void http_answer(struct http_request *request, int status, const char *content_type,
                 struct slice extra, struct slice body);
/* The same with a body of application/problem+json (RFC 9457): about:blank, the status and its
 * title, and `detail` (UTF-8). */
void http_answer_problem(struct http_request *request, int status, struct slice extra,
                         const char *detail);
/* An answer that streams (chunked): begin, any number of writes, end. http_stream_write says
 * whether the peer keeps up (false: wait for `writable`, which is called on the loop's thread); who
 * does not wait loses the connection at 16 MiB. */
void http_stream_begin(struct http_request *request, int status, const char *content_type,
                       struct slice extra);
bool http_stream_write(struct http_request *request, struct slice bytes);
void http_stream_end(struct http_request *request);
void http_stream_on_writable(struct http_request *request, void (*writable)(struct http_request *));
/* Called (on the loop's thread; at once if it has happened) when the peer goes away before the
 * answer is complete. An answer is still due. A peer that only ended its side counts as gone while
 * an answer streams, not while a whole one is due. */
void http_on_gone(struct http_request *request, void (*gone)(struct http_request *));
/* Moves the body's memory to the caller (mem_free): the request keeps no body. */
char *http_take_body(struct http_request *request);

/* The first header of that name, or {NULL, 0}; `name` in lower case. */
struct slice http_header(const struct http_request *request, const char *name);
/* The raw value of a query parameter, or {NULL, 0}. */
struct slice http_query(const struct http_request *request, const char *name);
/* Percent-decodes into out (needs s.n bytes); WEIR_SYNTAX on a bad escape. */
int http_percent_decode(struct slice s, char *out, size_t *out_n);
const char *http_status_text(int status);

#endif
