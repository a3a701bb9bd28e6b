/* read.c: GET /v1/streams/{stream}/{id}: the record from the stream's primary sink.
 *
 * On the read lane, over read-only sessions that a sink keeps for the next one; a session that
 * failed is closed, because nobody knows what state it is in. */
#include "base/mem.h"
#include "gateway/job.h"

static struct sink_session *session_take(struct gateway_sink *sink, struct diag *diag)
{
    struct sink_session *session = NULL;
    pthread_mutex_lock(&sink->sessions_lock);
    if (sink->n_sessions)
        session = sink->sessions[--sink->n_sessions];
    pthread_mutex_unlock(&sink->sessions_lock);
    if (!session && sink->config->ops->session_open(sink->sink, true, &session, diag))
        return NULL;
    return session;
}

static void session_give(struct gateway_sink *sink, struct sink_session *session)
{
    size_t most = sizeof(sink->sessions) / sizeof(sink->sessions[0]);
    pthread_mutex_lock(&sink->sessions_lock);
    if (sink->n_sessions < most) {
        sink->sessions[sink->n_sessions++] = session;
        session = NULL;
    }
    pthread_mutex_unlock(&sink->sessions_lock);
    if (session)
        sink->config->ops->session_close(session);
}

void read_sessions_close(struct gateway_sink *sink)
{
    for (unsigned i = 0; i < sink->n_sessions; i++)
        sink->config->ops->session_close(sink->sessions[i]);
    sink->n_sessions = 0;
}

static void read_failed(struct job *job, const struct gateway_stream *stream, int err,
                        const struct diag *diag)
{
    struct gateway_sink *sink = &job->loop->gateway->sinks[stream->config->primary];
    switch (err) {
    case WEIR_NOT_FOUND:
        problem_set(&job->problem, 404, "no_record",
                    "stream %s has no record %.*s in sink %s (yet: a record that is durable is "
                    "delivered soon after)",
                    stream->config->name, (int)job->input.n, job->input.p, sink->config->name);
        break;
    case WEIR_UNSUPPORTED:
        problem_set(&job->problem, 501, "not_readable",
                    "sink %s (kind %s), the primary of stream %s, cannot be read",
                    sink->config->name, sink->config->ops->kind, stream->config->name);
        break;
    default:
        problem_set(&job->problem, 503, "sink_unavailable", "sink %s: %s", sink->config->name,
                    diag->text[0] ? diag->text : weir_err_text(err));
        job->problem.retry_after_s = 1;
    }
}

/* Records that were read for clients who do not take them. */
static bool answers_full(const struct gateway *gateway)
{
    /* Acquire: the first requests may come before the server's address is known here. */
    return atomic_load_explicit(&gateway->running, memory_order_acquire) &&
           http_server_answers_full(gateway->server);
}

static void read_work(struct job *job)
{
    struct gateway *gateway = job->loop->gateway;
    if (answers_full(gateway)) {
        problem_set(&job->problem, 503, pressure_name(PRESSURE_MEMORY),
                    "answers that are not read yet hold as much memory as they may");
        job->problem.retry_after_s = pressure_refuse(&gateway->pressure, PRESSURE_MEMORY, 0);
        return;
    }
    const struct gateway_stream *stream = &gateway->streams[job->index];
    struct gateway_sink *sink = &gateway->sinks[stream->config->primary];
    struct sink_row row;
    struct diag diag = {0};

    struct sink_session *session = session_take(sink, &diag);
    if (!session) {
        read_failed(job, stream, diag.code == WEIR_UNSUPPORTED ? diag.code : WEIR_UNAVAILABLE,
                    &diag);
        return;
    }
    int err = sink->config->ops->read(session, stream->ingest.number, buf_slice(&job->input), &row,
                                      &diag);
    if (err) {
        read_failed(job, stream, err, &diag);
    } else {
        buf_put_slice(&job->body, row.doc);
        buf_printf(&job->extra, "ETag: \"%llu\"\r\nWeir-Version: %llu\r\n",
                   (unsigned long long)row.version, (unsigned long long)row.version);
    }
    if (err == 0 || err == WEIR_NOT_FOUND)
        session_give(sink, session);
    else
        sink->config->ops->session_close(session);
}

void read_handle(struct gateway_loop *loop, unsigned stream, struct slice encoded_id,
                 struct http_request *request)
{
    struct problem problem;
    struct job *job = job_create(loop, request, read_work);
    size_t n = 0;
    job->index = stream;
    buf_reserve(&job->input, encoded_id.n + 1);
    if (http_percent_decode(encoded_id, job->input.p, &n)) {
        problem_set(&problem, 400, "bad_id", "the id in the path has a bad percent escape");
    } else if (n < 1 || n > RECORD_ID_MAX) {
        problem_set(&problem, 400, "bad_id",
                    "the id in the path is %zu bytes long; an id has 1 to %d", n, RECORD_ID_MAX);
    } else {
        job->input.n = n;
        job_submit(loop->gateway->read_lane, job);
        return;
    }
    buf_fini(&job->input);
    mem_free(job);
    reply_problem(loop, request, &problem);
}
