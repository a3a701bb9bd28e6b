/* ack.h: who waits for which record to reach its sinks.
 *
 * A waiter is one body whose answer needs `stored` or `everywhere`. It is entered when the log has
 * made it durable and before any reader can see its records, so no settlement can come too early.
 * The table maps (partition, offset) to the waiter.
 *
 * Invariants: 1. a waiter that was entered comes back exactly once: from ack_settled when it is
 * complete, from ack_forget, or from ack_drain; 2. one lock per list, never per record; nothing
 * under it blocks.
 *
 * Threads: any. A waiter's `pending`, `left` and `refusals` are guarded by the table's lock while
 * it is in the table; before and after they are its owner's.
 *
 *     NEW --ack_enter--> ENTERED --ack_settled, ack_drain--> COMPLETE
 *      |                   +--------ack_forget--> ABANDONED
 *      +--ack_forget--> ABANDONED --ack_enter--> (given back)
 *      +--ack_enter, closed--> COMPLETE (given back) */
#ifndef WEIR_GATEWAY_ACK_H
#define WEIR_GATEWAY_ACK_H

#include "delivery/delivery.h"
#include "record/record.h"

struct ack_refusal { /* a sink said never */
    struct ack_refusal *next;
    uint32_t index; /* of the record in its body */
    unsigned sink;
    char reason[];
};

enum ack_state { ACK_NEW, ACK_ENTERED, ACK_COMPLETE, ACK_ABANDONED };

struct ack_waiter {
    struct ack_waiter *next; /* chains */
    const struct record *records;
    uint32_t n;
    uint32_t left;     /* records that are not decided yet */
    uint64_t *pending; /* per record: bit i: sink i has not said yet */
    struct ack_refusal *refusals;
    enum ack_state state; /* guarded by the lock */
};

struct ack_table;
struct ack_table *ack_create(void);
void ack_destroy(struct ack_table *table); /* must be empty */

/* Enters a chain; every record waits for the sinks in `pending`. Waiters that were abandoned, and
 * all of them once the table is closed, come back in *refused instead. */
void ack_enter(struct ack_table *table, struct ack_waiter *chain, struct ack_waiter **refused);

/* What one sink call settled. Returns the chain of those that became complete. */
struct ack_waiter *ack_settled(struct ack_table *table, unsigned sink,
                               const struct settlement *list, size_t n);

/* The owner gives up (time is over). Returns the state until now. NEW: it will never enter, but
 * whoever brings it to ack_enter still has it. ENTERED: it is out of the table and the owner's
 * alone. COMPLETE: nothing changes, whoever completed it is bringing it. */
enum ack_state ack_forget(struct ack_table *table, struct ack_waiter *waiter);

/* Closes the table and returns all that still wait. */
struct ack_waiter *ack_drain(struct ack_table *table);

uint64_t ack_waiting(struct ack_table *table); /* records in the table; any thread */

#endif
