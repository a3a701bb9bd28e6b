/* fifo.h: a queue of slot indexes with two ends. Grows, never shrinks; `{0}` is empty. One thread.
 */
#ifndef WEIR_DELIVERY_FIFO_H
#define WEIR_DELIVERY_FIFO_H

#include <stddef.h>
#include <stdint.h>

struct fifo {
    uint32_t *ring;
    size_t mask, first, n; /* n in it, the first at ring[first & mask] */
};

void fifo_push(struct fifo *q, uint32_t slot);       /* at the back */
void fifo_push_front(struct fifo *q, uint32_t slot); /* before the first */
uint32_t fifo_pop(struct fifo *q);                   /* the first; it must not be empty */
void fifo_fini(struct fifo *q);

#endif
