/* job.h: a request that is worked out on a lane, because its work may block, and answered on its
 * loop.
 *
 *     loop: job_submit --> lane: work() fills the answer --> loop: answered, freed */
#ifndef WEIR_GATEWAY_JOB_H
#define WEIR_GATEWAY_JOB_H

#include "gateway/problem.h"
#include "gateway/state.h"

struct job {
    struct lane_task task;
    struct loop_message message;
    struct gateway_loop *loop;
    struct loop *target;
    struct http_request *request; /* only the loop touches it */
    void (*work)(struct job *job);

    /* What the work may need. */
    unsigned index; /* of a stream or sink */
    uint64_t number;
    bool flag;
    struct buf input;

    /* What the work gives: a body, or a problem (status != 0). */
    int status;
    const char *content_type;
    struct buf extra, body;
    struct problem problem;
};

struct job *job_create(struct gateway_loop *loop, struct http_request *request,
                       void (*work)(struct job *job));
/* Takes the job over. A full lane is answered 503 at once. */
void job_submit(struct lane *lane, struct job *job);

#endif
