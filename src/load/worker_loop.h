/* worker_loop.h: what one worker thread does in one turn: connect, send what is due, take answers,
 * time out. Its phases are worker.c's. All of it belongs to the worker's thread. */
#ifndef WEIR_LOAD_WORKER_LOOP_H
#define WEIR_LOAD_WORKER_LOOP_H

#include "load/answer.h"
#include "load/connection.h"
#include "load/worker.h"

struct worker_loop {
    struct worker *worker;
    const struct worker_plan *plan;
    int epoll;
    struct connection *connections;
    struct connection_list lists[CONNECTION_DEAD];
    bool sending;     /* the schedule has started and not ended */
    bool may_connect; /* lost connections are opened again */
    bool stop;        /* seen at a tick: the plan's stop flag, or the id file failed */
    uint64_t now_ns;  /* taken anew for every event */
    uint64_t until_ns;
    uint64_t tick_ns;
    uint64_t wall_ahead_ns; /* wall clock minus monotonic clock */
    uint64_t starved_ns;    /* until when no connection was free, the last time */
    int connect_errno;      /* of the last failure */

    char *request; /* room for the head, then the body at body_at */
    size_t body_at, head_n, content_length;
    char *receive;
    struct answers *answers; /* with ids only */
    struct buf lines;
};

void worker_loop_init(struct worker_loop *loop, struct worker *worker);
void worker_loop_fini(struct worker_loop *loop);
void worker_loop_turn(struct worker_loop *loop); /* sleeps until something is ready or due */
void worker_loop_connect_due(struct worker_loop *loop);
void worker_loop_send_due(struct worker_loop *loop);
/* Gives the id lines to the writer when there are at least so many bytes of them. */
void worker_loop_hand_over(struct worker_loop *loop, size_t least);

#endif
