/* server_conn.h: what the files of the server share: a loop of the server, a connection, a request.
 *
 * server.c starts and stops, listens and accepts; server_conn.c turns bytes into requests and
 * decides when a connection waits, pauses or ends; server_body.c reads bodies; server_request.c
 * keeps, queues and hands over requests; answer.c and stream.c write answers.
 *
 * A request's way:  reading (conn->current) -> waiting, in the connection's queue (handle() was
 * called) -> answered; held back while an earlier one is not -> released to the loop's free list.
 * A connection's phase says what its next bytes are:
 *   READ_HEAD   -> READ_BLOCK, READ_OWN, READ_CHUNKS   (the head is complete: take_head)
 *               -> READ_HEAD                           (no body, or complete: complete_request)
 *   any of them -> READ_NOTHING    (refused, or the last request of the connection)
 *   READ_NOTHING -> LINGER         (all is answered and sent: finish)
 *
 * Invariants: 1. every request holds a reference to its connection's memory, which outlives the
 * socket until the last answer was given; 2. what a request points at does not move: it holds the
 * blocks of its head and its body; 3. answers leave in the order of the queue.
 * Threads: all of it belongs to the loop's thread but the atomics. */
#ifndef WEIR_HTTP_SERVER_CONN_H
#define WEIR_HTTP_SERVER_CONN_H

#include <pthread.h>

#include "base/buf.h"
#include "http/parse.h"
#include "http/server.h"
#include "os/conn.h"

#define SERVER_LISTENERS     2            /* TCP and, on loop 0, the unix socket */
#define SERVER_OUT_HIGH      (256 * 1024) /* unsent bytes over which no further request is taken */
#define SERVER_STREAM_LOW    (16 * 1024)  /* a stream that was told to wait goes on below it */
#define SERVER_STREAM_MAX    (16 * 1024 * 1024) /* a stream that does not wait is cut off above it */
#define SERVER_BODY_IN_BLOCK (8 * 1024)         /* a larger body gets memory of its own */
#define SERVER_ANSWER_SMALL  (8 * 1024)         /* so much unsent is not counted over the server */
#define SERVER_LINGER_MS     5000
#define SERVER_DATE_BYTES    37

struct server_request;
struct server_loop;

enum server_phase { READ_HEAD, READ_BLOCK, READ_OWN, READ_CHUNKS, READ_NOTHING, LINGER };

struct server_conn {
    struct conn conn;
    struct server_loop *loop;
    struct server_conn *next, **link; /* the list of the loop that it is in */
    enum server_phase phase;
    bool local;
    bool surplus;      /* over the limit of connections: refused, not counted */
    bool paused;       /* not reading until answers have gone */
    bool continue_due; /* 100 Continue, once all before it is answered */
    bool overrun;      /* a stream was written without regard to the peer: to be cut off */
    bool last_taken;   /* no request after those in the queue */
    struct parse_head head;
    struct parse_chunks chunks;
    struct server_request *current;      /* its body is being read */
    uint64_t body_left;                  /* of a Content-Length */
    struct server_request *first, **end; /* the queue: complete, not yet sent */
    unsigned queued;
    size_t held_bytes;                   /* complete answers in the queue: not their turn yet */
    size_t answer_bytes;                 /* of it and unsent: what server_count_answers last saw */
    size_t answer_counted;               /* of that, in the server's answer_memory */
    uint64_t read_deadline_ns;           /* of the head or body that is being read; 0: none */
    uint64_t write_deadline_ns, written; /* written: conn.written when it was set */
    uint64_t drained;                    /* while lingering */
};

struct server_request {
    struct http_request pub; /* first: the two are cast into each other */
    struct server_conn *conn;
    struct server_request *next;
    struct conn_block *head_block, *body_block;
    struct http_header *headers;
    unsigned headers_capacity;
    char *own; /* a body in memory of its own, kept for the next request while small */
    size_t own_bytes, own_capacity;
    struct buf held; /* the answer, while it is not this request's turn */
    void (*writable)(struct http_request *);
    void (*gone)(struct http_request *);
    bool keep_alive, head_only, http_1_0;
    bool complete;  /* the answer is */
    bool streaming; /* begun */
    bool behind;    /* the last write said that the peer does not keep up */
};

struct server_listener {
    struct loop_fd io; /* io.fd is -1 when there is none */
    struct server_loop *loop;
    bool local;
};

struct server_loop {
    struct http_server *server;
    unsigned index;
    struct loop *loop;
    pthread_t thread;
    bool started;
    struct conn_pool pool;
    struct server_listener listeners[SERVER_LISTENERS];
    struct loop_timer accept_again;  /* armed while descriptors are out */
    struct loop_message end;         /* http_server_destroy */
    struct loop_message stop;        /* http_server_stop_accepting */
    struct loop_hook count;          /* brings the byte counters up to date */
    struct server_conn *connections; /* open */
    struct server_conn *gone;        /* closed, with requests that are still to be answered */
    unsigned surplus;
    struct server_request *free_requests;
    unsigned n_free_requests;
    struct http_header *headers; /* scratch, limits.headers long */
    uint64_t date_until_ns;
    char date[SERVER_DATE_BYTES + 1]; /* a whole header line */

    /* written by this loop's thread alone, read by any */
    _Atomic unsigned unanswered;
    _Atomic unsigned unsent; /* connections that hold an answer */
    struct http_counters counters;
};

struct http_server {
    /* constant after start */
    struct http_limits limits;
    struct parse_limits parse_limits;
    void (*handle)(void *context, struct http_request *request);
    void *context;
    unsigned port, n_loops;
    struct server_loop *loops;
    char *unix_path;

    /* atomic */
    _Atomic unsigned connections;
    _Atomic uint64_t body_memory;   /* bytes of bodies in memory of their own */
    _Atomic uint64_t answer_memory; /* bytes of answers that are not small and not sent */
    _Atomic bool stopping;
    struct http_counters sum; /* what http_server_counters gives out */
};

/* Adds to a counter that only this thread writes. */
static inline void server_count(_Atomic uint64_t *counter, uint64_t n)
{
    uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, value + n, memory_order_relaxed);
}

/* server_conn.c */
void server_conn_open(struct server_loop *loop, int fd, bool local, bool surplus);
void server_conn_gone(struct server_conn *conn); /* closes it, tells whose requests wait */
bool server_conn_is_idle(const struct server_conn *conn);
void server_body_begins(struct server_conn *conn); /* its deadline runs from now */
void server_read_no_more(struct server_conn *conn);

/* server_request.c */
struct server_request *server_request_create(struct server_conn *conn);
void server_request_headers(struct server_request *request, const struct http_header *headers,
                            unsigned n); /* keeps a copy */
/* Lets go of what it holds and keeps it for another; it is in no queue. */
void server_request_release(struct server_request *request);
void server_request_free(struct server_request *request); /* one that was released */
void server_forget_current(struct server_conn *conn);     /* what is being read, if anything */
/* Queues what was read, and calls the handler. */
void server_complete_request(struct server_conn *conn);
/* Answers with a problem behind all that waits, and reads no more. */
void server_refuse(struct server_conn *conn, int status, const char *detail);
void server_refuse_body(struct server_conn *conn); /* 413, with the limit */

/* server_body.c */
/* A step of the phases that read a body: false when more bytes are needed, or refused. */
bool server_read_body(struct server_conn *conn);
/* For READ_OWN: where the next bytes go; NULL after a refusal. */
char *server_body_room(struct server_conn *conn, size_t *out_n);
void server_body_filled(struct server_conn *conn, size_t n);       /* they have come */
void server_body_forget(struct server_request *request, bool all); /* all: keeps no memory */

/* answer.c */
/* Counts what the connection holds of answers, after that has changed. */
void server_count_answers(struct server_conn *conn);
/* Where the request's answer goes now: the connection, or what is held back. */
struct buf *server_answer_target(struct server_request *request);
/* body_bytes < 0: a stream. */
void server_put_head(struct server_request *request, struct buf *out, int status,
                     const char *content_type, struct slice extra, int64_t body_bytes);
/* Sends 100 Continue if it is due and nothing is in front of it. */
void server_continue(struct server_conn *conn);
/* The answer is complete: sends what it held back, releases, goes on with the next. */
void server_answered(struct server_request *request);

#endif
