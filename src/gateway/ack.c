/* ack.c: see ack.h. The table is a hash with linear probing; deletion moves the followers back
 * (Knuth, TAOCP 3, 6.4, algorithm R), so there are no tombstones. */
#include "gateway/ack.h"

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>

#include "base/mem.h"

#define CAPACITY_MIN 256

struct entry {
    uint64_t offset;
    uint32_t partition;
    uint32_t index;            /* of the record in the waiter */
    struct ack_waiter *waiter; /* NULL: the place is free */
};

struct ack_table {
    pthread_mutex_t lock;
    struct entry *entries;  /* lock */
    size_t capacity;        /* lock; a power of two, at least twice `count` */
    bool closed;            /* lock */
    _Atomic uint64_t count; /* written under the lock; read without it to skip an empty table */
};

struct ack_table *ack_create(void)
{
    struct ack_table *table = mem_zalloc(sizeof(*table));
    pthread_mutex_init(&table->lock, NULL);
    table->capacity = CAPACITY_MIN;
    table->entries = mem_zalloc(table->capacity * sizeof(struct entry));
    return table;
}

void ack_destroy(struct ack_table *table)
{
    if (!table)
        return;
    assert(ack_waiting(table) == 0);
    pthread_mutex_destroy(&table->lock);
    mem_free(table->entries);
    mem_free(table);
}

uint64_t ack_waiting(struct ack_table *table)
{
    return atomic_load_explicit(&table->count, memory_order_relaxed);
}

static void count_add(struct ack_table *table, uint64_t n)
{
    /* Relaxed: a reader that skips the table on zero has its order from the log, which lets nobody
     * see a record before its waiter was entered. */
    atomic_store_explicit(&table->count, ack_waiting(table) + n, memory_order_relaxed);
}

static size_t home_of(const struct ack_table *table, uint32_t partition, uint64_t offset)
{
    uint64_t h = (offset ^ (uint64_t)partition << 56) * UINT64_C(0x9e3779b97f4a7c15);
    return (size_t)(h >> 20) & (table->capacity - 1);
}

static size_t probe(const struct ack_table *table, uint32_t partition, uint64_t offset)
{
    size_t at = home_of(table, partition, offset);
    while (table->entries[at].waiter &&
           (table->entries[at].offset != offset || table->entries[at].partition != partition))
        at = (at + 1) & (table->capacity - 1);
    return at;
}

static void resize(struct ack_table *table, size_t capacity)
{
    struct entry *old = table->entries;
    size_t n = table->capacity;
    table->entries = mem_zalloc(capacity * sizeof(struct entry));
    table->capacity = capacity;
    for (size_t i = 0; i < n; i++)
        if (old[i].waiter)
            table->entries[probe(table, old[i].partition, old[i].offset)] = old[i];
    mem_free(old);
}

static void make_room(struct ack_table *table, size_t more)
{
    size_t capacity = table->capacity;
    while ((ack_waiting(table) + more) * 2 > capacity)
        capacity *= 2;
    if (ack_waiting(table) == 0 && more * 2 < CAPACITY_MIN * 16 && capacity > CAPACITY_MIN * 64)
        capacity = CAPACITY_MIN * 16; /* a burst is over */
    if (capacity != table->capacity)
        resize(table, capacity);
}

static void remove_at(struct ack_table *table, size_t hole)
{
    size_t mask = table->capacity - 1;
    size_t at = hole;
    for (;;) {
        at = (at + 1) & mask;
        struct entry *entry = &table->entries[at];
        if (!entry->waiter)
            break;
        size_t home = home_of(table, entry->partition, entry->offset);
        /* It may move back only if its home is not between the hole and its place. */
        if (((at - home) & mask) >= ((at - hole) & mask)) {
            table->entries[hole] = *entry;
            hole = at;
        }
    }
    table->entries[hole].waiter = NULL;
    count_add(table, (uint64_t)-1);
}

void ack_enter(struct ack_table *table, struct ack_waiter *chain, struct ack_waiter **refused)
{
    *refused = NULL;
    pthread_mutex_lock(&table->lock);
    while (chain) {
        struct ack_waiter *waiter = chain;
        chain = waiter->next;
        if (table->closed || waiter->state == ACK_ABANDONED) {
            if (waiter->state == ACK_NEW)
                waiter->state = ACK_COMPLETE;
            waiter->next = *refused;
            *refused = waiter;
            continue;
        }
        make_room(table, waiter->n);
        for (uint32_t i = 0; i < waiter->n; i++) {
            const struct record *record = &waiter->records[i];
            size_t at = probe(table, record->partition, record->offset);
            assert(!table->entries[at].waiter);
            table->entries[at] = (struct entry){.offset = record->offset,
                                                .partition = record->partition,
                                                .index = i,
                                                .waiter = waiter};
        }
        count_add(table, waiter->n);
        waiter->left = waiter->n;
        waiter->state = ACK_ENTERED;
    }
    pthread_mutex_unlock(&table->lock);
}

static void refuse(struct ack_waiter *waiter, uint32_t index, unsigned sink, const char *reason)
{
    size_t n = reason ? strlen(reason) : 0;
    struct ack_refusal *refusal = mem_alloc(sizeof(*refusal) + n + 1);
    refusal->next = waiter->refusals;
    refusal->index = index;
    refusal->sink = sink;
    memcpy(refusal->reason, reason ? reason : "", n + 1);
    waiter->refusals = refusal;
}

struct ack_waiter *ack_settled(struct ack_table *table, unsigned sink,
                               const struct settlement *list, size_t n)
{
    struct ack_waiter *first = NULL, **last = &first;
    if (ack_waiting(table) == 0)
        return NULL;
    pthread_mutex_lock(&table->lock);
    for (size_t i = 0; i < n; i++) {
        size_t at = probe(table, list[i].partition, list[i].offset);
        struct entry entry = table->entries[at];
        struct ack_waiter *waiter = entry.waiter;
        if (!waiter || !(waiter->pending[entry.index] & UINT64_C(1) << sink))
            continue;
        if (list[i].outcome == OUTCOME_REFUSED) {
            refuse(waiter, entry.index, sink, list[i].reason);
            waiter->pending[entry.index] = 0; /* what the others say cannot mend it */
        } else {
            waiter->pending[entry.index] &= ~(UINT64_C(1) << sink);
        }
        if (waiter->pending[entry.index])
            continue;
        remove_at(table, at);
        if (--waiter->left == 0) {
            waiter->state = ACK_COMPLETE;
            waiter->next = NULL;
            *last = waiter;
            last = &waiter->next;
        }
    }
    pthread_mutex_unlock(&table->lock);
    return first;
}

/* Takes out what is left of a waiter; under the lock. */
static void take_out(struct ack_table *table, struct ack_waiter *waiter)
{
    for (uint32_t i = 0; i < waiter->n; i++) {
        const struct record *record = &waiter->records[i];
        size_t at = probe(table, record->partition, record->offset);
        if (table->entries[at].waiter == waiter)
            remove_at(table, at);
    }
}

enum ack_state ack_forget(struct ack_table *table, struct ack_waiter *waiter)
{
    pthread_mutex_lock(&table->lock);
    enum ack_state state = waiter->state;
    if (state == ACK_ENTERED)
        take_out(table, waiter);
    if (state != ACK_COMPLETE)
        waiter->state = ACK_ABANDONED;
    pthread_mutex_unlock(&table->lock);
    return state;
}

struct ack_waiter *ack_drain(struct ack_table *table)
{
    struct ack_waiter *chain = NULL;
    pthread_mutex_lock(&table->lock);
    table->closed = true;
    for (size_t i = 0; i < table->capacity && ack_waiting(table) > 0;) {
        struct ack_waiter *waiter = table->entries[i].waiter;
        if (!waiter) {
            i++;
            continue;
        }
        take_out(table, waiter); /* others may move here: look at this place again */
        waiter->state = ACK_COMPLETE;
        waiter->next = chain;
        chain = waiter;
    }
    pthread_mutex_unlock(&table->lock);
    return chain;
}
