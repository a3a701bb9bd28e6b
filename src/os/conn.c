/* conn.c: a stream connection on a loop (see conn.h).
 *
 * At the end of a turn the pool's hook goes through the dirty connections: write, then flushed(),
 * which may make a connection dirty again (it had input left to work on); then it destroys the
 * dead. Level-triggered epoll with one read a turn: measured as fast as edge-triggered, which needs
 * a second read to see that nothing is left. */
#include "os/conn.h"

#include <assert.h>
#include <errno.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/mem.h"
#include "weir/err.h"

#define FREE_BLOCKS     256        /* kept by a pool */
#define OUT_KEPT_BYTES  (8 * 1024) /* an output buffer larger than this is freed when empty */
#define READ_ROOM_BYTES 1024       /* a block with less room is not read into any more */

/* ---- blocks ---- */

static struct conn_block *block_take(struct conn_pool *pool)
{
    struct conn_block *block = pool->blocks;
    if (block) {
        pool->blocks = block->next;
        pool->n_blocks--;
    } else {
        block = mem_alloc(sizeof *block + pool->block_bytes);
    }
    block->refs = 1;
    block->next = NULL;
    return block;
}

void conn_block_unref(struct conn_pool *pool, struct conn_block *block)
{
    assert(block->refs > 0);
    if (--block->refs)
        return;
    if (pool->n_blocks >= FREE_BLOCKS) {
        mem_free(block);
        return;
    }
    block->next = pool->blocks;
    pool->blocks = block;
    pool->n_blocks++;
}

static size_t block_limit(const struct conn_pool *pool)
{
    return pool->block_bytes - pool->padding_bytes;
}

static void drop_block(struct conn *conn)
{
    if (conn->block)
        conn_block_unref(conn->pool, conn->block);
    conn->block = NULL;
    conn->start = conn->end = 0;
}

/* Makes room behind the unread input. */
static void make_room(struct conn *conn)
{
    struct conn_pool *pool = conn->pool;
    if (!conn->block) {
        conn->block = block_take(pool);
        conn->start = conn->end = 0;
        return;
    }
    bool alone = conn->block->refs == 1;
    if (alone && conn->start == conn->end)
        conn->start = conn->end = 0;
    if (block_limit(pool) - conn->end >= READ_ROOM_BYTES)
        return;
    size_t n = conn_input_bytes(conn);
    if (conn->start == 0 && n) {
        /* The owner lets no more than a block's worth lie unread: it is full, not stuck. */
        return;
    }
    if (alone) {
        memmove(conn->block->bytes, conn->block->bytes + conn->start, n);
    } else {
        struct conn_block *fresh = block_take(pool);
        if (n)
            memcpy(fresh->bytes, conn->block->bytes + conn->start, n);
        conn_block_unref(pool, conn->block);
        conn->block = fresh;
    }
    conn->start = 0;
    conn->end = n;
}

/* ---- events ---- */

static void update_events(struct conn *conn)
{
    if (!conn->open)
        return;
    uint32_t events = conn->want;
    if (conn->reading && !conn->eof)
        events |= EPOLLIN;
    else if (!conn->peer_ended)
        events |= EPOLLRDHUP; /* who waits without reading still wants to know */
    if (conn_unsent(conn) && !conn->handshaking)
        events |= EPOLLOUT;
    loop_modify(conn->pool->loop, &conn->io, events);
}

static void handshake(struct conn *conn)
{
    int rc = conn->transport->handshake(conn);
    if (rc == 0) {
        conn->handshaking = false;
        conn_touch(conn);
    } else if (rc != WEIR_AGAIN) {
        conn->kind->broken(conn);
        return;
    }
    update_events(conn);
}

/* Input that the transport took from the socket, so that epoll does not tell of it. */
static bool has_buffered(const struct conn *conn)
{
    return conn->open && conn->reading && !conn->eof && conn->transport->buffered &&
           conn->transport->buffered(conn);
}

static void ready(struct loop_fd *self, uint32_t events)
{
    struct conn *conn = (struct conn *)((char *)self - offsetof(struct conn, io));
    if (conn->handshaking) {
        handshake(conn);
        return;
    }
    if (events & EPOLLOUT || (conn->want && events & conn->want))
        conn_touch(conn);
    if (events & EPOLLERR) {
        conn->kind->broken(conn);
    } else if (conn->reading && !conn->eof) {
        /* A hang-up may stand behind bytes that were sent before it. */
        if (events & (EPOLLIN | EPOLLHUP) || conn->want)
            conn->kind->readable(conn);
        if (has_buffered(conn))
            conn_touch(conn);
    } else if (events & EPOLLHUP) {
        conn->kind->broken(conn);
    } else if (events & EPOLLRDHUP) {
        conn->peer_ended = true;
        update_events(conn);
        conn_touch(conn);
    }
}

static void fire(struct loop_timer *timer)
{
    struct conn *conn = (struct conn *)((char *)timer - offsetof(struct conn, timer));
    if (!conn->deadline_ns)
        return;
    if (conn->deadline_ns > loop_now_ns(conn->pool->loop)) {
        loop_timer_set(conn->pool->loop, timer, conn->deadline_ns);
        return;
    }
    conn->deadline_ns = 0;
    conn->kind->expired(conn);
}

void conn_deadline(struct conn *conn, uint64_t deadline_ns)
{
    conn->deadline_ns = deadline_ns;
    if (!deadline_ns || !conn->open)
        return; /* a timer that is armed still fires once, for nothing */
    if (!conn->timer.heap_index || conn->timer.deadline_ns > deadline_ns)
        loop_timer_set(conn->pool->loop, &conn->timer, deadline_ns);
}

/* ---- open and close ---- */

int conn_open(struct conn *conn, struct conn_pool *pool, int fd, const struct conn_kind *kind,
              const struct conn_transport *transport, void *transport_state)
{
    conn->kind = kind;
    conn->transport = transport;
    conn->transport_state = transport_state;
    conn->pool = pool;
    conn->io = (struct loop_fd){fd, EPOLLIN, ready};
    conn->timer.fire = fire;
    int rc = loop_add(pool->loop, &conn->io);
    if (rc) {
        if (transport->fini)
            transport->fini(conn);
        close(fd);
        return rc;
    }
    conn->refs = 1;
    conn->reading = conn->open = true;
    conn->handshaking = transport->handshake != NULL;
    return 0;
}

void conn_close(struct conn *conn)
{
    if (!conn->open)
        return;
    conn->open = false;
    conn->reading = false;
    conn->deadline_ns = 0;
    loop_timer_clear(conn->pool->loop, &conn->timer);
    loop_remove(conn->pool->loop, &conn->io);
    if (conn->transport->fini)
        conn->transport->fini(conn);
    close(conn->io.fd);
    drop_block(conn);
    buf_fini(&conn->out);
    conn->out_sent = 0;
    conn_unref(conn);
}

void conn_unref(struct conn *conn)
{
    assert(conn->refs > 0 && !conn->dead);
    if (--conn->refs)
        return;
    conn->dead = true;
    conn->next_dead = conn->pool->dead;
    conn->pool->dead = conn;
}

/* ---- input ---- */

ssize_t conn_read_into(struct conn *conn, void *p, size_t n)
{
    ssize_t got = conn->transport->read(conn, p, n);
    if (got > 0) {
        conn->pool->bytes_in += (uint64_t)got;
    } else if (got == 0) {
        conn->eof = conn->peer_ended = true;
        update_events(conn);
    } else if (conn->want) {
        update_events(conn);
    }
    return got;
}

ssize_t conn_read(struct conn *conn)
{
    make_room(conn);
    size_t room = block_limit(conn->pool) - conn->end;
    assert(room > 0); /* a read of nothing would look like the end */
    ssize_t got = conn_read_into(conn, conn->block->bytes + conn->end, room);
    if (got > 0)
        conn->end += (size_t)got;
    else if (conn->start == conn->end && conn->block->refs == 1)
        drop_block(conn);
    return got;
}

void conn_want_read(struct conn *conn, bool on)
{
    if (conn->reading == on || !conn->open)
        return;
    conn->reading = on;
    update_events(conn);
}

/* ---- output ---- */

void conn_touch(struct conn *conn)
{
    if (conn->dirty || !conn->open)
        return;
    conn->dirty = true;
    conn->next_dirty = NULL;
    *conn->pool->last_dirty = conn;
    conn->pool->last_dirty = &conn->next_dirty;
    conn_ref(conn); /* the list's */
}

struct buf *conn_out(struct conn *conn)
{
    conn_touch(conn);
    return &conn->out;
}

void conn_shutdown(struct conn *conn)
{
    if (conn->open)
        conn->transport->shutdown(conn);
}

static void flush(struct conn *conn)
{
    size_t unsent = conn_unsent(conn);
    if (!unsent || conn->handshaking)
        return;
    ssize_t n = conn->transport->write(conn, conn->out.p + conn->out_sent, unsent);
    if (n < 0 && n != WEIR_AGAIN) {
        conn->kind->broken(conn);
        return;
    }
    if (n > 0) {
        conn->pool->bytes_out += (uint64_t)n;
        conn->written += (uint64_t)n;
        conn->out_sent += (size_t)n;
    }
    if (!conn_unsent(conn)) {
        buf_clear(&conn->out);
        conn->out_sent = 0;
        if (conn->out.capacity > OUT_KEPT_BYTES)
            buf_fini(&conn->out);
    } else if (conn->out_sent > conn->out.capacity / 2) {
        /* A peer that reads slowly does not make the buffer grow for ever. */
        memmove(conn->out.p, conn->out.p + conn->out_sent, conn_unsent(conn));
        conn->out.n -= conn->out_sent;
        conn->out_sent = 0;
    }
    update_events(conn);
}

static void end_of_turn(struct loop_hook *hook)
{
    struct conn_pool *pool = (struct conn_pool *)((char *)hook - offsetof(struct conn_pool, hook));
    struct conn *conn;
    while ((conn = pool->dirty)) {
        pool->dirty = conn->next_dirty;
        if (!pool->dirty)
            pool->last_dirty = &pool->dirty;
        conn->dirty = false;
        if (conn->open)
            flush(conn);
        if (conn->open)
            conn->kind->flushed(conn);
        if (has_buffered(conn) && !conn->handshaking)
            conn->kind->readable(conn);
        if (has_buffered(conn))
            conn_touch(conn);
        if (conn->open && conn->block && conn->start == conn->end && conn->block->refs == 1)
            drop_block(conn);
        conn_unref(conn);
    }
    while ((conn = pool->dead)) {
        pool->dead = conn->next_dead;
        conn->kind->destroy(conn);
    }
}

/* ---- the pool ---- */

void conn_pool_init(struct conn_pool *pool, struct loop *loop, size_t block_bytes,
                    size_t padding_bytes)
{
    assert(block_bytes > padding_bytes + READ_ROOM_BYTES);
    *pool = (struct conn_pool){
        .loop = loop, .block_bytes = block_bytes, .padding_bytes = padding_bytes};
    pool->last_dirty = &pool->dirty;
    pool->hook.run = end_of_turn;
    loop_hook_add(loop, &pool->hook);
}

void conn_pool_fini(struct conn_pool *pool)
{
    end_of_turn(&pool->hook);
    for (struct conn_block *block; (block = pool->blocks);) {
        pool->blocks = block->next;
        mem_free(block);
    }
    pool->n_blocks = 0;
}

/* ---- the plain transport ---- */

static ssize_t result(ssize_t n)
{
    if (n >= 0)
        return n;
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? WEIR_AGAIN : WEIR_NET;
}

static ssize_t plain_read(struct conn *conn, void *p, size_t n)
{
    return result(recv(conn->io.fd, p, n, 0));
}

static ssize_t plain_write(struct conn *conn, const void *p, size_t n)
{
    return result(send(conn->io.fd, p, n, MSG_NOSIGNAL));
}

static void plain_shutdown(struct conn *conn)
{
    shutdown(conn->io.fd, SHUT_WR);
}

const struct conn_transport conn_plain = {
    .name = "plain",
    .read = plain_read,
    .write = plain_write,
    .shutdown = plain_shutdown,
};
