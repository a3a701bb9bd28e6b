/* ring.h: a bounded multi-producer single-consumer ring of pointers.
 * Source: D. Vyukov, "Bounded MPMC queue" (a sequence number per slot). Lock-free for producers;
 * the capacity is a power of two. */
#ifndef WEIR_EXEC_RING_H
#define WEIR_EXEC_RING_H

#include <stdbool.h>
#include <stddef.h>

struct ring;

struct ring *ring_create(size_t capacity);
void ring_destroy(struct ring *ring);
bool ring_push(struct ring *ring, void *p); /* any thread; false: full */
void *ring_pop(struct ring *ring);          /* the one consumer; NULL: empty */
size_t ring_count(const struct ring *ring); /* approximate; any thread */
size_t ring_capacity(const struct ring *ring);

#endif
