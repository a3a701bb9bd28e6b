/* record.c: chunks, batches and the names of the ack levels (see record.h).
 *
 * Invariant of a batch: for every i < n it holds one reference to chunks[i] (which may be NULL,
 * when the records live elsewhere), and bytes is the sum over those records. */
#include "record/record.h"

#include <assert.h>

#include "base/mem.h"
#include "weir/err.h"

struct chunk *chunk_create(size_t bytes)
{
    struct chunk *chunk = mem_alloc(sizeof *chunk + bytes);
    atomic_init(&chunk->refs, 1);
    chunk->bytes = bytes;
    return chunk;
}

void chunk_ref(struct chunk *chunk)
{
    if (!chunk)
        return;
    /* Relaxed: who takes a reference has one already, or was given it by whoever has. */
    unsigned before = atomic_fetch_add_explicit(&chunk->refs, 1, memory_order_relaxed);
    assert(before > 0);
}

void chunk_unref(struct chunk *chunk)
{
    if (!chunk)
        return;
    /* Release: this thread's reads of the data come before the free; acquire: the one that frees
     * comes after everybody's. */
    unsigned before = atomic_fetch_sub_explicit(&chunk->refs, 1, memory_order_acq_rel);
    assert(before > 0);
    if (before == 1)
        mem_free(chunk);
}

void batch_init(struct batch *batch)
{
    *batch = (struct batch){0};
}

void batch_fini(struct batch *batch)
{
    batch_clear(batch);
    mem_free(batch->records);
    mem_free(batch->chunks);
    *batch = (struct batch){0};
}

void batch_add(struct batch *batch, const struct record *record, struct chunk *chunk)
{
    /* Copied first: it may lie in the array that is about to move. */
    struct record copy = *record;
    if (batch->n == batch->capacity) {
        size_t capacity = batch->capacity ? batch->capacity * 2 : 16;
        batch->records = mem_realloc(batch->records, capacity * sizeof *batch->records);
        batch->chunks = mem_realloc(batch->chunks, capacity * sizeof *batch->chunks);
        batch->capacity = capacity;
    }
    chunk_ref(chunk);
    batch->records[batch->n] = copy;
    batch->chunks[batch->n] = chunk;
    batch->n++;
    batch->bytes += copy.doc.n + copy.id.n + copy.key.n;
}

void batch_clear(struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        chunk_unref(batch->chunks[i]);
    batch->n = 0;
    batch->bytes = 0;
}

static const char *const ack_names[] = {
    [ACK_RECEIVED] = "received",
    [ACK_DURABLE] = "durable",
    [ACK_STORED] = "stored",
    [ACK_EVERYWHERE] = "everywhere",
};

const char *ack_level_name(enum ack_level level)
{
    assert((unsigned)level <= ACK_EVERYWHERE);
    return ack_names[level];
}

int ack_level_parse(struct slice text, enum ack_level *out)
{
    for (unsigned i = 0; i <= ACK_EVERYWHERE; i++) {
        if (slice_is(text, ack_names[i])) {
            *out = (enum ack_level)i;
            return 0;
        }
    }
    return WEIR_SYNTAX;
}
