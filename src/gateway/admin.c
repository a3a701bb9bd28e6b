/* admin.c: see admin.h. */
#include "gateway/admin.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "delivery/repair.h"
#include "delivery/replay.h"
#include "gateway/job.h"

#define FAILURES_LISTED 100

/* ---- dead letters ---- */

struct dead_job {
    struct job *job;
    struct gateway_sink *sink;
    struct dead *dead;
    struct sink_session *session; /* opened by the first replay */
    bool replay;
    uint64_t *numbers;
    size_t n, capacity;
    uint64_t done, failed;
    struct buf failures;
};

static int gather(void *context, const struct dead_letter *letter)
{
    struct dead_job *dead = context;
    if (dead->n == dead->capacity) {
        dead->capacity = dead->capacity ? dead->capacity * 2 : 64;
        dead->numbers = mem_realloc(dead->numbers, dead->capacity * sizeof(uint64_t));
    }
    dead->numbers[dead->n++] = letter->number;
    return 0;
}

static int replay(struct dead_job *dead, uint64_t number, struct diag *diag)
{
    const struct sink_ops *ops = dead->sink->config->ops;
    if (!dead->session) {
        int err = ops->session_open(dead->sink->sink, false, &dead->session, diag);
        if (err)
            return err;
    }
    int err = dead_replay(dead->dead, number, dead->session, diag);
    if (err && err != WEIR_REFUSED && err != WEIR_NOT_FOUND) {
        ops->session_close(dead->session); /* in a state that nobody knows */
        dead->session = NULL;
    }
    return err;
}

static void one(struct dead_job *dead, uint64_t number)
{
    struct diag diag = {0};
    int err = dead->replay ? replay(dead, number, &diag) : dead_drop(dead->dead, number, &diag);
    if (err == 0) {
        dead->done++;
        return;
    }
    if (dead->failed++ >= FAILURES_LISTED)
        return;
    buf_printf(&dead->failures,
               "%s\n{\"number\":%llu,\"code\":\"%s\",\"reason\":", dead->failures.n ? "," : "",
               (unsigned long long)number, weir_err_name(err));
    buf_put_json_string(&dead->failures, slice_of(diag.text[0] ? diag.text : weir_err_text(err)));
    buf_put_char(&dead->failures, '}');
}

/* What takes long ends early then. */
static bool stopping(const struct gateway *gateway)
{
    return atomic_load_explicit(&gateway->stopping, memory_order_relaxed);
}

static void dead_work(struct job *job)
{
    struct gateway *gateway = job->loop->gateway;
    struct dead_job dead = {
        .job = job,
        .sink = &gateway->sinks[job->index],
        .dead = delivery_dead(gateway->delivery, job->index),
        .replay = job->flag,
    };
    struct diag diag = {0};
    uint64_t left = 0, bytes;

    if (job->number) {
        one(&dead, job->number);
    } else {
        int err = dead_scan(dead.dead, gather, &dead, &diag);
        if (err) {
            problem_set(&job->problem, 503, weir_err_name(err), "%s", diag.text);
            goto out;
        }
        size_t i = 0;
        for (; i < dead.n && !stopping(gateway); i++)
            one(&dead, dead.numbers[i]);
        if (i < dead.n) {
            problem_set(&job->problem, 503, pressure_name(PRESSURE_STOPPING),
                        "weir is stopping: %zu of %zu dead letters were looked at, the others are "
                        "as they were",
                        i, dead.n);
            goto out;
        }
    }
    dead_stats(dead.dead, &left, &bytes);
    buf_printf(&job->body, "{\"done\":%llu,\"failed\":%llu,\"left\":%llu,\"failures\":[",
               (unsigned long long)dead.done, (unsigned long long)dead.failed,
               (unsigned long long)left);
    buf_put_slice(&job->body, buf_slice(&dead.failures));
    buf_put_str(&job->body, "]}\n");
out:
    if (dead.session)
        dead.sink->config->ops->session_close(dead.session);
    buf_fini(&dead.failures);
    mem_free(dead.numbers);
}

/* The sink's place, or n_sinks and the problem. */
static size_t find_sink(struct gateway *gateway, struct slice name, struct problem *problem)
{
    size_t i = 0;
    while (i < gateway->n_sinks && !slice_is(name, gateway->sinks[i].config->name))
        i++;
    if (i == gateway->n_sinks)
        problem_set(problem, 404, "no_such_sink", "there is no sink %.*s",
                    (int)(name.n < 100 ? name.n : 100), name.p);
    return i;
}

/* Submits it, or the problem's status. */
static int dead_submit(struct gateway_loop *loop, struct http_request *request, struct slice sink,
                       struct slice verb, struct problem *problem)
{
    struct gateway *gateway = loop->gateway;
    struct slice number_text = http_query(request, "number");
    char digits[24] = "", *end = digits;
    uint64_t number = 0;

    if (!slice_is(verb, "replay") && !slice_is(verb, "drop"))
        return problem_set(problem, 404, "no_such_place",
                           "dead letters can be asked for: {sink}/replay and {sink}/drop");
    if (number_text.n > 0 && number_text.n < sizeof(digits)) {
        memcpy(digits, number_text.p, number_text.n);
        number = strtoull(digits, &end, 10);
    }
    if (!http_query(request, "all").p && (number == 0 || *end))
        return problem_set(problem, 400, "bad_number", "say which: ?number=N (from 1), or ?all");
    size_t i = find_sink(gateway, sink, problem);
    if (i == gateway->n_sinks)
        return problem->status;
    struct job *job = job_create(loop, request, dead_work);
    job->index = (unsigned)i;
    job->number = number;
    job->flag = slice_is(verb, "replay");
    job_submit(gateway->admin_lane, job);
    return 0;
}

void admin_dead(struct gateway_loop *loop, struct http_request *request, struct slice sink,
                struct slice verb)
{
    struct problem problem;
    if (dead_submit(loop, request, sink, verb, &problem))
        reply_problem(loop, request, &problem);
}

/* ---- repair ---- */

static void repair_work(struct job *job)
{
    struct gateway_sink *sink = &job->loop->gateway->sinks[job->index];
    struct sink_session *session;
    struct batch batch;
    struct diag diag = {0};
    batch_init(&batch);
    if (repair_parse(buf_slice(&job->input), (uint32_t)job->number, &batch, &diag)) {
        problem_set(&job->problem, 400, "bad_repair", "%s", diag.text);
    } else if (sink->config->ops->session_open(sink->sink, false, &session, &diag)) {
        problem_set(&job->problem, 503, "sink_unavailable", "sink %s: %s", sink->config->name,
                    diag.text);
    } else {
        struct sink_result *results = mem_zalloc((batch.n + 1) * sizeof(*results));
        repair_write(session, &batch, results);
        sink->config->ops->session_close(session);
        repair_answer(results, batch.n, &job->body);
        mem_free(results);
    }
    batch_fini(&batch);
}

void admin_repair(struct gateway_loop *loop, struct http_request *request, struct slice sink,
                  struct slice stream)
{
    struct gateway *gateway = loop->gateway;
    struct problem problem = {0};
    size_t i = find_sink(gateway, sink, &problem), s = 0;
    while (s < gateway->n_streams && !slice_is(stream, gateway->streams[s].config->name))
        s++;
    if (problem.status == 0 && s == gateway->n_streams)
        problem_set(&problem, 404, "no_such_stream", "there is no stream %.*s",
                    (int)(stream.n < 100 ? stream.n : 100), stream.p);
    else if (problem.status == 0 && !(gateway->streams[s].config->sinks >> i & 1))
        problem_set(&problem, 404, "no_such_stream", "stream %s does not go to sink %s",
                    gateway->streams[s].config->name, gateway->sinks[i].config->name);
    if (problem.status) {
        reply_problem(loop, request, &problem);
        return;
    }
    struct job *job = job_create(loop, request, repair_work);
    job->index = (unsigned)i;
    job->number = gateway->streams[s].ingest.number;
    if (request->body) {
        job->input.n = request->body_bytes;
        job->input.capacity = request->body_bytes + HTTP_BODY_PADDING;
        job->input.p = http_take_body(request);
    }
    job_submit(gateway->admin_lane, job);
}

void admin_ping(struct gateway_loop *loop, struct http_request *request)
{
    buf_clear(&loop->answer);
    buf_printf(&loop->answer, "{\"pid\":%d}\n", (int)getpid());
    reply(loop, request, 200, "application/json", (struct slice){0}, buf_slice(&loop->answer));
}
