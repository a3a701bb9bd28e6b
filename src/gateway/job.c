/* job.c: see job.h. */
#include "gateway/job.h"

#include "base/mem.h"

struct job *job_create(struct gateway_loop *loop, struct http_request *request,
                       void (*work)(struct job *job))
{
    struct job *job = mem_zalloc(sizeof(*job));
    job->loop = loop;
    job->target = loop->loop;
    job->request = request;
    job->work = work;
    job->status = 200;
    job->content_type = "application/json";
    return job;
}

static void job_free(struct job *job)
{
    buf_fini(&job->input);
    buf_fini(&job->extra);
    buf_fini(&job->body);
    mem_free(job);
}

static void answer(struct loop_message *message)
{
    struct job *job = CONTAINER_OF(message, struct job, message);
    if (job->problem.status)
        reply_problem(job->loop, job->request, &job->problem);
    else
        reply(job->loop, job->request, job->status, job->content_type, buf_slice(&job->extra),
              buf_slice(&job->body));
    job_free(job);
}

static void run(struct lane_task *task)
{
    struct job *job = CONTAINER_OF(task, struct job, task);
    job->work(job);
}

static void finish(struct lane_task *task, enum lane_completion how)
{
    struct job *job = CONTAINER_OF(task, struct job, task);
    if (how == LANE_CANCELLED)
        problem_set(&job->problem, 503, pressure_name(PRESSURE_STOPPING), "%s",
                    pressure_text(PRESSURE_STOPPING));
    job->message.run = answer;
    loop_post(job->target, &job->message);
}

/* The lanes end before the loops do. Relaxed: who ends them lets each loop pass a fence behind the
 * bit. */
static bool lanes_end(const struct gateway *gateway)
{
    uint32_t blocked = atomic_load_explicit(&gateway->pressure.blocked, memory_order_relaxed);
    return blocked & 1u << PRESSURE_STOPPING;
}

void job_submit(struct lane *lane, struct job *job)
{
    job->task.run = run;
    job->task.finish = finish;
    int err = lanes_end(job->loop->gateway) ? WEIR_CLOSED : lane_submit(lane, NULL, &job->task);
    if (err) {
        reply_busy(job->loop, job->request, err == WEIR_CLOSED ? PRESSURE_STOPPING : PRESSURE_LANE);
        job_free(job);
    }
}
