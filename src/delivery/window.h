/* window.h: the records a consumer has read and not yet settled, and the memory they hold.
 *
 * A record has a slot, named by its index, until every sink that it goes to is done with it.
 * Records of one chunk that come one after another share one reference to it; the whole chunk
 * counts as in flight until the last of them is gone, for that is what memory it costs.
 *
 * Invariant: bytes is the sum of the sizes of the chunks referenced. One thread. */
#ifndef WEIR_DELIVERY_WINDOW_H
#define WEIR_DELIVERY_WINDOW_H

#include "record/record.h"

struct slot {
    struct record record;
    uint64_t place; /* in its partition's watermark */
    uint32_t hold;  /* index of its chunk's hold */
    uint16_t sinks; /* that are not done with it; 0: the slot is free */
    bool dropped;   /* given up by one of them: the mark must not pass it */
    uint32_t next;  /* free list */
};

struct window { /* `{0}` is a valid empty one; see window_fini */
    struct slot *slots;
    struct hold {
        struct chunk *chunk;
        uint32_t records;
        uint32_t next; /* free list */
    } * holds;
    uint32_t slot_capacity, hold_capacity;
    uint32_t free_slot, free_hold; /* UINT32_MAX: none */
    uint32_t last_hold;            /* of the record added last, if it still lives */
    size_t records, bytes;
};

void window_init(struct window *w);
void window_fini(struct window *w); /* lets go of whatever is still in it */
/* Takes a reference to the chunk (or shares one). The slot's index; it moves no other slot's. */
uint32_t window_add(struct window *w, const struct record *record, struct chunk *chunk,
                    unsigned sinks);
/* One sink is done with the record; true: that was the last, the slot is free. */
bool window_done(struct window *w, uint32_t slot);

#endif
