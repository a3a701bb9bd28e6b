/* loop.h: an epoll loop: descriptors, timers, messages from other threads.
 *
 * A loop belongs to the thread that calls loop_run; everything here but loop_post, loop_stop and
 * loop_post_list is for that thread (asserted). Callbacks must not block.
 *
 * Invariants: 1. a message posted is run exactly once, in the order of its poster's posts;
 * 2. any number of posts between two turns costs one wake (one eventfd write at most, none while
 * the loop is awake); 3. timers never fire early. */
#ifndef WEIR_OS_LOOP_H
#define WEIR_OS_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct loop;

struct loop_fd { /* embedded by the owner; zeroed before loop_add */
    int fd;
    uint32_t events; /* what is asked for, EPOLLIN | EPOLLOUT | ... */
    void (*ready)(struct loop_fd *self, uint32_t events);
};

struct loop_timer { /* embedded; zeroed before first use */
    uint64_t deadline_ns;
    void (*fire)(struct loop_timer *self);
    uint32_t heap_index; /* 0: not armed */
};

struct loop_message { /* embedded; owned by the loop from post until run */
    struct loop_message *next;
    void (*run)(struct loop_message *self);
};

struct loop_hook { /* run once per turn after all events, before the loop sleeps */
    struct loop_hook *next;
    void (*run)(struct loop_hook *self);
};

int loop_create(struct loop **out);
void loop_destroy(struct loop *loop);
void loop_run(struct loop *loop);  /* returns after loop_stop */
void loop_stop(struct loop *loop); /* any thread */
bool loop_is_current(const struct loop *loop);

int loop_add(struct loop *loop, struct loop_fd *fd);
void loop_modify(struct loop *loop, struct loop_fd *fd, uint32_t events);
void loop_remove(struct loop *loop, struct loop_fd *fd); /* safe inside any callback of this turn */

uint64_t loop_now_ns(const struct loop *loop); /* monotonic, taken once per turn */
void loop_timer_set(struct loop *loop, struct loop_timer *timer,
                    uint64_t deadline_ns); /* re-arms too */
void loop_timer_clear(struct loop *loop, struct loop_timer *timer);
void loop_hook_add(struct loop *loop, struct loop_hook *hook);

void loop_post(struct loop *loop, struct loop_message *message); /* any thread */
/* A chain linked by `next`, run in the chain's order: one exchange and at most one wake. */
void loop_post_list(struct loop *loop, struct loop_message *first, struct loop_message *last);

#endif
