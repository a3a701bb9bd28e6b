/* watermark.h: how far one partition is settled: the longest prefix of the records read of which
 * none waits any more.
 *
 * Records get consecutive places as they are read; they settle in any order. A ring over the places
 * that are not yet passed: adding, settling and moving on are O(1) (amortised), without an
 * allocation in the steady state.
 *
 * Invariants: 1. the mark passes a record only when all that it waits for is settled; 2. offsets
 * rise with places. One thread. */
#ifndef WEIR_DELIVERY_WATERMARK_H
#define WEIR_DELIVERY_WATERMARK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct watermark { /* `{0}` is a valid empty one */
    struct watermark_entry *ring;
    size_t mask;          /* entries in the ring, less one */
    uint64_t first, next; /* places not yet passed: first <= place < next */
    uint64_t offset;      /* of the last record passed; meaningless before one is */
    bool moved;           /* since watermark_take */
};

void watermark_fini(struct watermark *w);
void watermark_reset(struct watermark *w); /* forgets all places */
/* The next record, which waits for `pending` sinks (0: it is settled already). Its place. */
uint64_t watermark_add(struct watermark *w, uint64_t offset, unsigned pending);
/* One of those that the record waits for has it. */
void watermark_settle(struct watermark *w, uint64_t place);
/* Whether the mark moved since the last call; then *offset is the last one passed. */
bool watermark_take(struct watermark *w, uint64_t *offset);
/* Records that are not passed yet, settled or not. */
static inline size_t watermark_span(const struct watermark *w)
{
    return (size_t)(w->next - w->first);
}

#endif
