/* fifo.c: see fifo.h. */
#include "delivery/fifo.h"

#include <assert.h>

#include "base/mem.h"

static void make_room(struct fifo *q)
{
    if (q->ring && q->n <= q->mask)
        return;
    size_t capacity = q->ring ? 2 * (q->mask + 1) : 16;
    uint32_t *ring = mem_alloc(capacity * sizeof(*ring));
    for (size_t i = 0; i < q->n; i++)
        ring[i] = q->ring[(q->first + i) & q->mask];
    mem_free(q->ring);
    q->ring = ring;
    q->mask = capacity - 1;
    q->first = 0;
}

void fifo_push(struct fifo *q, uint32_t slot)
{
    make_room(q);
    q->ring[(q->first + q->n++) & q->mask] = slot;
}

void fifo_push_front(struct fifo *q, uint32_t slot)
{
    make_room(q);
    q->first--;
    q->ring[q->first & q->mask] = slot;
    q->n++;
}

uint32_t fifo_pop(struct fifo *q)
{
    assert(q->n > 0);
    uint32_t slot = q->ring[q->first & q->mask];
    q->first++;
    q->n--;
    return slot;
}

void fifo_fini(struct fifo *q)
{
    mem_free(q->ring);
    *q = (struct fifo){0};
}
