/* reply.c: every answer goes through here: counted, then handed to the server (see state.h). */
#include <stdio.h>

#include "gateway/problem.h"
#include "gateway/state.h"

const int gateway_statuses[GATEWAY_STATUSES] = {200, 201, 202, 207, 400, 401, 403, 404, 405,
                                                413, 415, 422, 429, 500, 501, 503, 504, 0};

uint64_t counters_sum(const struct gateway *gateway, size_t offset)
{
    uint64_t total = 0;
    for (unsigned i = 0; i < gateway->n_loops; i++) {
        const char *counters = (const char *)&gateway->loops[i].counters;
        total += count_get((const _Atomic uint64_t *)(const void *)(counters + offset));
    }
    return total;
}

static unsigned place_of(int status)
{
    unsigned i = 0;
    if (status == 202) /* by far the most frequent */
        return 2;
    while (gateway_statuses[i] != status && gateway_statuses[i] != 0)
        i++;
    return i;
}

void reply(struct gateway_loop *loop, struct http_request *request, int status,
           const char *content_type, struct slice extra, struct slice body)
{
    count_add(&loop->counters.answers[place_of(status)], 1);
    http_answer(request, status, content_type, extra, body);
    if (loop->answer.capacity > 1 << 20)
        buf_fini(&loop->answer); /* one large answer must not hold its memory for ever */
}

void reply_problem(struct gateway_loop *loop, struct http_request *request,
                   const struct problem *problem)
{
    struct buf *out = &loop->answer;
    char extra[120] = "";
    buf_clear(out);
    problem_open_json(problem, out);
    problem_close_json(out);
    if (problem->retry_after_s)
        snprintf(extra, sizeof(extra), "Retry-After: %u\r\n", problem->retry_after_s);
    else if (problem->status == 401)
        snprintf(extra, sizeof(extra), "WWW-Authenticate: Bearer realm=\"weir\"\r\n");
    else if (problem->status == 415)
        snprintf(extra, sizeof(extra), "Accept-Encoding: gzip\r\n");
    reply(loop, request, problem->status, PROBLEM_CONTENT_TYPE, slice_of(extra), buf_slice(out));
}

void reply_busy(struct gateway_loop *loop, struct http_request *request, enum pressure_cause cause)
{
    struct problem problem;
    loop->random = loop->random * 1664525 + 1013904223; /* only for jitter */
    problem_set(&problem, 503, pressure_name(cause), "%s", pressure_text(cause));
    problem.retry_after_s = pressure_refuse(&loop->gateway->pressure, cause, loop->random >> 8);
    reply_problem(loop, request, &problem);
}
