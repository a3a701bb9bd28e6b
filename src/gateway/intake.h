/* intake.h: one POST on its way from its records to its answer.
 *
 * Made on a loop thread, in one allocation with its records, ids, keys and what the answer needs;
 * the docs stay in the request's body, which the log has encoded by the time log_append returns.
 *
 *     write_handle --log_append--> (log) --intake_durable--> answer due --loop--> answered, freed
 *                                            |                 ^
 *                                            +--ack table------+  (stored, everywhere)
 *     a level of `received` is answered at once; the log thread frees the intake
 *     ack_timeout: answered before; freed when it comes back from the log
 *
 * Who owns it: the loop until log_append; then the log thread until intake_durable; then the ack
 * table's lock; then the loop. `request`, the links of the waiting list and `deadline_ns` are the
 * loop's all the time. */
#ifndef WEIR_GATEWAY_INTAKE_H
#define WEIR_GATEWAY_INTAKE_H

#include "gateway/state.h"

enum intake_note { /* why the answer is less than what was asked for */
                   NOTE_NONE,
                   NOTE_TIMEOUT,
                   NOTE_BREAKER,
                   NOTE_STOPPING,
};

struct intake {
    struct loop_message message; /* to the loop: the answer is due */
    struct ack_waiter waiter;

    /* Constant once made. */
    struct gateway_loop *loop;
    struct loop *target;
    const struct gateway_stream *stream;
    enum ack_level want;
    bool many; /* the body was an array or lines: the answer has a list */
    uint64_t charged_bytes;

    /* The loop's. */
    struct http_request *request; /* NULL: it was answered */
    struct intake *older, *newer;
    uint64_t deadline_ns;
    bool waits; /* is in the waiting list */

    enum intake_note note; /* whoever owns it */
    _Atomic bool coming;   /* its message is posted, or about to be: it cannot expire any more */
    struct body body;
    struct record records[];
};

/* n records, whose ids and keys take text_bytes; the text's place is *text. Waiter, body and
 * records are ready but for what ingest_take fills. NULL: no memory. */
struct intake *intake_create(struct gateway_loop *loop, const struct gateway_stream *stream,
                             enum ack_level want, uint32_t n, size_t text_bytes, char **text);
void intake_free(struct intake *intake); /* releases what it was charged for */

/* Enters it into the list of those that wait for their answer. Loop thread, in the same turn as
 * log_append: its answer cannot be due before the turn ends. */
void intake_wait(struct intake *intake);
void intake_wait_end(struct intake *intake);

/* ---- answer.c; on the loop thread; `intake->request` is answered and NULL afterwards ---- */

/* The text for `received`, in loop->answer: written before log_append, sent after it, because by
 * then the intake may be gone. */
void answer_received_text(struct intake *intake);
/* Durable, and whatever the sinks have said by now. */
void answer_settled(struct intake *intake);
/* The log said no (body.status), or has not said anything in time (WEIR_TIMEOUT). */
void answer_not_durable(struct intake *intake, int err);

#endif
