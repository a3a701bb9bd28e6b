/* conn.h: a stream connection on a loop: input blocks, an output buffer, a deadline, and a
 * transport that can be replaced (plain sockets here; TLS fits the same table).
 *
 * A connection belongs to the loop of its pool, and so do all functions here. Its owner embeds
 * struct conn and gives a table of callbacks. Output is collected and leaves at the end of the
 * turn, in one write per connection, however many answers were added by whomever in that turn.
 *
 * Input lies in blocks with a reference count: bytes that the owner still points at (a request that
 * waits for its answer) keep their block, and reading goes on behind them or in another block. A
 * connection that waits for input holds no block.
 *
 * Invariants: 1. no callback after conn_close returned, but `destroy`, which is called once, at the
 * end of the turn in which the connection is closed and the last reference is gone: closing inside
 * any callback is safe; 2. bytes of a block never move while it has a holder beside the connection;
 * 3. a deadline is an absolute time in one field: moving it later costs no timer operation. */
#ifndef WEIR_OS_CONN_H
#define WEIR_OS_CONN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/buf.h"
#include "os/loop.h"

struct conn;

struct conn_block {
    uint32_t refs;
    struct conn_block *next; /* the pool's */
    char bytes[];
};

struct conn_pool { /* of one loop; init and fini on its thread, or while it does not run */
    struct loop *loop;
    size_t block_bytes, padding_bytes; /* a block may be filled but for its last padding_bytes */
    struct conn_block *blocks;         /* free ones */
    unsigned n_blocks;
    struct conn *dirty, **last_dirty; /* to be flushed in this turn */
    struct conn *dead;                /* to be destroyed in this turn */
    struct loop_hook hook;
    uint64_t bytes_in, bytes_out;
};

struct conn_transport {
    const char *name;
    /* Bytes moved; 0: the peer ended (read only); WEIR_AGAIN; WEIR_NET. A transport that must
     * write in order to read, or the other way round, sets conn->want accordingly. */
    ssize_t (*read)(struct conn *conn, void *p, size_t n);
    ssize_t (*write)(struct conn *conn, const void *p, size_t n);
    int (*handshake)(struct conn *conn); /* a step, when bytes come: 0 when complete, WEIR_AGAIN,
                                            WEIR_NET; NULL: there is none */
    void (*shutdown)(struct conn *conn); /* we write no more */
    bool (*buffered)(const struct conn *conn); /* holds input that epoll does not know of */
    void (*fini)(struct conn *conn);           /* frees conn->transport_state */
};

extern const struct conn_transport conn_plain;

struct conn_kind {
    /* Input can be read (or its end, or an error): call conn_read or conn_read_into. */
    void (*readable)(struct conn *conn);
    /* After each flush, at the end of a turn; conn_unsent says what is left. */
    void (*flushed)(struct conn *conn);
    void (*expired)(struct conn *conn); /* the deadline has passed; it is 0 again */
    void (*broken)(struct conn *conn);  /* failed or reset: close it */
    void (*destroy)(struct conn *conn); /* frees the memory */
};

struct conn {
    struct loop_fd io;
    struct loop_timer timer;
    const struct conn_kind *kind;
    const struct conn_transport *transport;
    void *transport_state;
    struct conn_pool *pool;
    struct conn *next_dirty, *next_dead;
    uint32_t refs; /* the open connection is one */
    uint32_t want; /* EPOLLIN, EPOLLOUT: what the transport needs beside what we ask for */
    bool reading, dirty, open, handshaking, dead;
    bool eof;        /* the peer's end was read */
    bool peer_ended; /* the peer has ended, perhaps behind bytes that were not read */
    uint64_t deadline_ns;
    struct conn_block *block; /* NULL: none held */
    size_t start, end;        /* unread input: block->bytes + [start, end) */
    struct buf out;
    size_t out_sent;
    uint64_t written; /* bytes in all: tells progress */
};

void conn_pool_init(struct conn_pool *pool, struct loop *loop, size_t block_bytes,
                    size_t padding_bytes);
/* Destroys what is dead; no connection may be open. */
void conn_pool_fini(struct conn_pool *pool);

/* Takes over fd (also on failure); conn is zeroed before. Reading is on. */
int conn_open(struct conn *conn, struct conn_pool *pool, int fd, const struct conn_kind *kind,
              const struct conn_transport *transport, void *transport_state);
void conn_close(struct conn *conn); /* at once; unsent output is dropped; twice is fine */
static inline void conn_ref(struct conn *conn)
{
    conn->refs++;
}
void conn_unref(struct conn *conn);

/* One read. Bytes read; 0: the peer has ended (conn->eof, reading is off); WEIR_AGAIN; WEIR_NET.
 * conn_read appends to the unread input, moving its tail to a new block when there is no room. */
ssize_t conn_read(struct conn *conn);
ssize_t conn_read_into(struct conn *conn, void *p, size_t n);
void conn_want_read(struct conn *conn, bool on);

static inline char *conn_input(const struct conn *conn)
{
    return conn->block ? conn->block->bytes + conn->start : NULL;
}
static inline size_t conn_input_bytes(const struct conn *conn)
{
    return conn->end - conn->start;
}
static inline void conn_consume(struct conn *conn, size_t n)
{
    conn->start += n;
}
static inline struct conn_block *conn_block_ref(struct conn_block *block)
{
    block->refs++;
    return block;
}
void conn_block_unref(struct conn_pool *pool, struct conn_block *block);

/* The output buffer, to append to; the connection is flushed at the end of the turn. */
struct buf *conn_out(struct conn *conn);
void conn_touch(struct conn *conn); /* flushed() is called at the end of the turn */
static inline size_t conn_unsent(const struct conn *conn)
{
    return conn->out.n - conn->out_sent;
}
void conn_shutdown(struct conn *conn); /* we write no more */

void conn_deadline(struct conn *conn, uint64_t deadline_ns); /* 0: none */

#endif
