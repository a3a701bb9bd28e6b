/* watermark.c: see watermark.h. */
#include "delivery/watermark.h"

#include <assert.h>

#include "base/mem.h"

#define FIRST_CAPACITY 256

struct watermark_entry {
    uint64_t offset;
    uint32_t pending;
};

void watermark_fini(struct watermark *w)
{
    mem_free(w->ring);
    *w = (struct watermark){0};
}

void watermark_reset(struct watermark *w)
{
    w->first = w->next;
    w->moved = false;
}

static void grow(struct watermark *w)
{
    size_t old = w->ring ? w->mask + 1 : 0, capacity = old ? 2 * old : FIRST_CAPACITY;
    struct watermark_entry *ring = mem_alloc(capacity * sizeof(*ring));
    for (uint64_t place = w->first; place < w->next; place++)
        ring[place & (capacity - 1)] = w->ring[place & w->mask];
    mem_free(w->ring);
    w->ring = ring;
    w->mask = capacity - 1;
}

static void move(struct watermark *w)
{
    while (w->first < w->next && w->ring[w->first & w->mask].pending == 0) {
        w->offset = w->ring[w->first & w->mask].offset;
        w->first++;
        w->moved = true;
    }
}

uint64_t watermark_add(struct watermark *w, uint64_t offset, unsigned pending)
{
    if (!w->ring || watermark_span(w) > w->mask)
        grow(w);
    uint64_t place = w->next++;
    assert(place == w->first || w->ring[(place - 1) & w->mask].offset < offset);
    w->ring[place & w->mask] = (struct watermark_entry){offset, pending};
    if (place == w->first)
        move(w);
    return place;
}

void watermark_settle(struct watermark *w, uint64_t place)
{
    assert(place >= w->first && place < w->next);
    struct watermark_entry *entry = &w->ring[place & w->mask];
    assert(entry->pending > 0);
    if (--entry->pending == 0 && place == w->first)
        move(w);
}

bool watermark_take(struct watermark *w, uint64_t *offset)
{
    if (!w->moved)
        return false;
    w->moved = false;
    *offset = w->offset;
    return true;
}
