/* lane.h: a bounded executor for work that may block.
 *
 * A first lane: threads, a bounded queue, strands, exactly one completion for every submission.
 *   submitted = done + rejected + cancelled + queued + running   at any moment (lane_counts).
 * Invariants: 1. task->finish is called exactly once per accepted submission, on a lane thread
 * (DONE) or on the closing thread (CANCELLED); 2. tasks of one strand run one at a time, in the
 * order of their submission (finish happens before the next start); 3. after `quantum` tasks a
 * strand goes to the back of the queue; 4. no callback runs under a lock; 5. no task waits while a
 * thread that could run it sleeps. A task counts as running until its finish has returned. Threads
 * are named after the lane. */
#ifndef WEIR_EXEC_LANE_H
#define WEIR_EXEC_LANE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/histogram.h"

struct lane;
struct strand;

enum lane_completion { LANE_DONE, LANE_CANCELLED };

struct lane_task { /* embedded by the submitter; the lane's from submit until finish is called */
    void (*run)(struct lane_task *task);                              /* may block */
    void (*finish)(struct lane_task *task, enum lane_completion how); /* must not block */
    struct lane_task *next, *older, *newer;                           /* the lane's own */
    struct strand *strand;                                            /* the lane's own */
    uint64_t submitted_ns;                                            /* the lane's own */
};

struct lane_config {
    const char *name;
    unsigned threads; /* at least 1 */
    unsigned queue;   /* tasks waiting at most; over it: WEIR_FULL */
    unsigned quantum; /* tasks of one strand in a row; 0: 16 */
};

struct lane_counts {
    uint64_t submitted, done, rejected, cancelled;
    uint64_t queued, running; /* waiting for order counts as queued */
    uint64_t waiting_for_order;
    unsigned threads, busy;
    uint64_t oldest_queued_ns; /* age of the oldest queued task */
};

/* All threads start or none: WEIR_NO_MEMORY when the system will not give them. */
int lane_create(const struct lane_config *config, struct lane **out, struct diag *diag);
/* strand NULL: no order. 0, WEIR_FULL or WEIR_CLOSED (then finish is not called; counted as
 * rejected). Any thread, never blocks. */
int lane_submit(struct lane *lane, struct strand *strand, struct lane_task *task);
struct strand *strand_create(struct lane *lane);
/* Nothing may be queued on it; its last task may be in its finish (or this may be called from
 * there). Before lane_close, which destroys those that are left. */
void strand_destroy(struct strand *strand);
/* From now on every submission gets WEIR_CLOSED; what is queued still runs. Any thread. For a
 * caller whose other threads may be submitting: refuse, see them stop, then lane_close. */
void lane_refuse(struct lane *lane);
/* No new submissions; runs what is queued until deadline_ms from now, waits for the running tasks,
 * joins the threads, cancels the rest in the order of submission, frees. Returns how many were
 * cancelled. Tasks may submit meanwhile (WEIR_CLOSED), other threads must not. Not from a task. */
unsigned lane_close(struct lane *lane, uint32_t deadline_ms);
void lane_counts(struct lane *lane,
                 struct lane_counts *out); /* one consistent moment; any thread */
const char *lane_name(const struct lane *lane);
/* From submission to start, and from start to the end of run; live, until lane_close. */
const struct histogram *lane_wait_ns(const struct lane *lane);
const struct histogram *lane_run_ns(const struct lane *lane);

#endif
