/* window.c: see window.h. */
#include "delivery/window.h"

#include <assert.h>

#include "base/mem.h"

#define NONE UINT32_MAX

void window_init(struct window *w)
{
    *w = (struct window){.free_slot = NONE, .free_hold = NONE, .last_hold = NONE};
}

void window_fini(struct window *w)
{
    for (uint32_t i = 0; i < w->hold_capacity; i++)
        if (w->holds[i].records)
            chunk_unref(w->holds[i].chunk);
    mem_free(w->slots);
    mem_free(w->holds);
    window_init(w);
}

static void grow_slots(struct window *w)
{
    uint32_t old = w->slot_capacity, capacity = old ? 2 * old : 256;
    w->slots = mem_realloc(w->slots, capacity * sizeof(*w->slots));
    /* The lowest index is given out first: slots that are used together lie together. */
    for (uint32_t i = capacity; i-- > old;) {
        w->slots[i].sinks = 0;
        w->slots[i].next = w->free_slot;
        w->free_slot = i;
    }
    w->slot_capacity = capacity;
}

static void grow_holds(struct window *w)
{
    uint32_t old = w->hold_capacity, capacity = old ? 2 * old : 32;
    w->holds = mem_realloc(w->holds, capacity * sizeof(*w->holds));
    for (uint32_t i = capacity; i-- > old;) {
        w->holds[i] = (struct hold){.next = w->free_hold};
        w->free_hold = i;
    }
    w->hold_capacity = capacity;
}

static uint32_t hold_chunk(struct window *w, struct chunk *chunk)
{
    if (w->last_hold != NONE && w->holds[w->last_hold].chunk == chunk) {
        w->holds[w->last_hold].records++;
        return w->last_hold;
    }
    if (w->free_hold == NONE)
        grow_holds(w);
    uint32_t i = w->free_hold;
    w->free_hold = w->holds[i].next;
    w->holds[i] = (struct hold){.chunk = chunk, .records = 1};
    chunk_ref(chunk);
    if (chunk)
        w->bytes += chunk->bytes;
    w->last_hold = i;
    return i;
}

static void let_go(struct window *w, uint32_t i)
{
    struct hold *hold = &w->holds[i];
    assert(hold->records > 0);
    if (--hold->records)
        return;
    if (hold->chunk)
        w->bytes -= hold->chunk->bytes;
    chunk_unref(hold->chunk);
    hold->chunk = NULL;
    hold->next = w->free_hold;
    w->free_hold = i;
    if (w->last_hold == i)
        w->last_hold = NONE;
}

uint32_t window_add(struct window *w, const struct record *record, struct chunk *chunk,
                    unsigned sinks)
{
    assert(sinks > 0 && sinks <= UINT16_MAX);
    if (w->free_slot == NONE)
        grow_slots(w);
    uint32_t i = w->free_slot;
    struct slot *slot = &w->slots[i];
    w->free_slot = slot->next;
    slot->record = *record;
    slot->hold = hold_chunk(w, chunk);
    slot->sinks = (uint16_t)sinks;
    slot->dropped = false;
    w->records++;
    return i;
}

bool window_done(struct window *w, uint32_t i)
{
    struct slot *slot = &w->slots[i];
    assert(slot->sinks > 0);
    if (--slot->sinks)
        return false;
    let_go(w, slot->hold);
    slot->next = w->free_slot;
    w->free_slot = i;
    w->records--;
    return true;
}
