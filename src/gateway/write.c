/* write.c: POST /v1/streams/{stream}: from the request to the log. Loop thread; no lock, no I/O.
 *
 * Nothing is half accepted: whatever refuses a body does so before log_append, or is log_append. */
#include <strings.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "gateway/intake.h"
#include "gateway/trace.h"
#include "record/attributes.h"

_Static_assert(HTTP_BODY_PADDING >= JSON_PADDING, "a body can be parsed where it lies");

#define LARGE_BODY 65536

/* The headers that matter here, found in one pass. */
struct write_headers {
    struct slice content_type, content_encoding, idempotency_key, traceparent, tracestate;
    bool twice; /* one of the first three came more than once */
};

static bool named(const struct http_header *header, const char *lower)
{
    return strncasecmp(header->name.p, lower, header->name.n) == 0;
}

static void take_once(struct write_headers *out, struct slice *place, struct slice value)
{
    if (place->p)
        out->twice = true;
    *place = value.p ? value : SLICE_LIT("");
}

static void find_headers(const struct http_request *request, struct write_headers *out)
{
    *out = (struct write_headers){0};
    for (unsigned i = 0; i < request->n_headers; i++) {
        const struct http_header *header = &request->headers[i];
        switch (header->name.n) {
        case 10:
            if (named(header, "tracestate") && !out->tracestate.p)
                out->tracestate = header->value;
            break;
        case 11:
            if (named(header, "traceparent"))
                out->traceparent = out->traceparent.p ? SLICE_LIT("") : header->value;
            break;
        case 12:
            if (named(header, "content-type"))
                take_once(out, &out->content_type, header->value);
            break;
        case 15:
            if (named(header, "idempotency-key"))
                take_once(out, &out->idempotency_key, header->value);
            break;
        case 16:
            if (named(header, "content-encoding"))
                take_once(out, &out->content_encoding, header->value);
            break;
        default:
            break;
        }
    }
}

/* ?ack=, else the stream's. */
static int wanted_level(const struct http_request *request, const struct gateway_stream *stream,
                        enum ack_level *out, struct problem *problem)
{
    *out = stream->config->ack;
    if (request->query.n == 0)
        return 0;
    struct slice asked = http_query(request, "ack");
    if (!asked.p || ack_level_parse(asked, out) == 0)
        return 0;
    return problem_set(problem, 400, "bad_ack",
                       "ack=%.*s is not a level; the levels are received, durable, stored and "
                       "everywhere",
                       (int)(asked.n < 60 ? asked.n : 60), asked.p);
}

/* Parses the body into loop->ingest. *inflated is what has to be freed afterwards, or NULL. */
static int parse(struct gateway_loop *loop, const struct gateway_stream *stream,
                 struct http_request *request, const struct write_headers *headers, uint64_t now_ms,
                 bool *many, char **inflated, struct problem *problem)
{
    const struct config *config = loop->gateway->config;
    struct ingest_source source = {
        .stream = &stream->ingest,
        .body = {request->body, request->body_bytes},
        .idempotency_key = headers->idempotency_key,
        .records_max = config->limits.records,
        .wall_ms = now_ms,
    };
    if (headers->twice)
        return problem_set(problem, 400, "header_twice",
                           "Content-Type, Content-Encoding or Idempotency-Key is there twice");
    if (request->body_bytes == 0)
        return problem_set(problem, 400, "no_records", "the body is empty: it has no record");
    int status = ingest_content_type(headers->content_type, &source.format, problem);
    if (status)
        return status;

    switch (encoding_of(headers->content_encoding)) {
    case ENCODING_NONE:
        break;
    case ENCODING_GZIP:
        if (!loop->inflater)
            loop->inflater = inflater_create();
        if (!loop->inflater)
            return problem_set(problem, 503, "memory", "no memory to inflate the body");
        status = inflater_run(loop->inflater, source.body, config->limits.body_bytes, JSON_PADDING,
                              inflated, &source.body.n, problem);
        if (status)
            return status;
        source.body.p = *inflated;
        break;
    default:
        return problem_set(
            problem, 415, "content_encoding",
            "content-encoding %.*s is not accepted; send gzip or none",
            (int)(headers->content_encoding.n < 60 ? headers->content_encoding.n : 60),
            headers->content_encoding.p);
    }
    status = ingest_parse(loop->ingest, &source, problem);
    if (status)
        return status;
    *many = source.format == INGEST_NDJSON || ingest_is_array(loop->ingest);
    if (ingest_log_bytes(loop->ingest) > loop->gateway->body_limit)
        return problem_set(
            problem, 413, "body_too_large",
            "the records take %zu bytes, more than the %zu that fit into one segment "
            "of the log (log: segment)",
            ingest_log_bytes(loop->ingest), loop->gateway->body_limit);
    return 0;
}

/* Makes the intake out of what was parsed. */
static struct intake *intake_of(struct gateway_loop *loop, const struct gateway_stream *stream,
                                enum ack_level want, const struct write_headers *headers)
{
    struct ingest *ingest = loop->ingest;
    uint32_t n = ingest_count(ingest);
    size_t text_bytes = ingest_text_bytes(ingest);
    struct slice attributes = {0};
    char *text;

    if (headers->traceparent.p) {
        buf_clear(&loop->attributes);
        trace_attributes(headers->traceparent, headers->tracestate, &loop->attributes);
        attributes = buf_slice(&loop->attributes);
    }
    /* The log has encoded the attributes when log_append returns: they need no copy. */
    struct intake *intake = intake_create(loop, stream, want, n, text_bytes, &text);
    if (!intake)
        return NULL;
    ingest_take(ingest, intake->records, text);
    /* What the log holds of each record beside its doc, which the body is charged for twice. */
    intake->charged_bytes += text_bytes + n * attributes.n;
    if (attributes.n)
        for (uint32_t i = 0; i < n; i++)
            intake->records[i].attributes = attributes;
    return intake;
}

/* Why log_append said no. */
static void reply_append_failed(struct gateway_loop *loop, struct http_request *request, int err)
{
    struct log_stats stats;
    switch (err) {
    case WEIR_FULL:
        log_stats(loop->gateway->log, &stats);
        reply_busy(loop, request, stats.full ? PRESSURE_LOG : PRESSURE_RING);
        break;
    case WEIR_TOO_LARGE: {
        struct problem problem;
        problem_set(&problem, 413, "body_too_large", "the body could never fit into the log");
        reply_problem(loop, request, &problem);
        break;
    }
    case WEIR_NO_SPACE:
        housekeep_disk_full(loop->gateway);
        reply_busy(loop, request, PRESSURE_DISK);
        break;
    case WEIR_CLOSED:
        reply_busy(loop, request, PRESSURE_STOPPING);
        break;
    case WEIR_POISONED:
        pressure_log_failed(&loop->gateway->pressure);
        reply_busy(loop, request, PRESSURE_FAILED);
        break;
    default:
        reply_busy(loop, request, PRESSURE_FAILED);
    }
}

/* Stamps, appends, answers what can be answered now. The request has been charged `charged`. */
static void accept(struct gateway_loop *loop, struct http_request *request, struct intake *intake,
                   uint64_t now_ms)
{
    struct gateway *gateway = loop->gateway;
    uint32_t n = intake->body.n;
    size_t bytes = ingest_log_bytes(loop->ingest);
    uint64_t version;

    if (version_take(&gateway->versions, now_ms, n, &version)) {
        intake_free(intake);
        reply_busy(loop, request, PRESSURE_VERSION);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        intake->records[i].version = version + i;
    bool received = intake->want == ACK_RECEIVED;
    if (received)
        answer_received_text(intake);
    intake->request = request;
    intake->body.bytes = intake->charged_bytes;

    intake->body.more = true;
    loop->appended |= !received; /* the log looks after `received` by itself */
    int err = log_append(gateway->log, &intake->body);
    if (err) {
        intake_free(intake);
        reply_append_failed(loop, request, err);
        return;
    }
    count_add(&loop->counters.accepted_bodies, 1);
    count_add(&loop->counters.accepted_records, n);
    count_add(&loop->counters.accepted_bytes, bytes);
    if (!received) {
        intake_wait(intake);
        if (request->body_bytes >= LARGE_BODY)
            mem_free(http_take_body(request)); /* the log has it; the answer may take long */
        return;
    }
    uint64_t now = loop_now_ns(loop->loop);
    histogram_record(loop->latency_ns[ACK_RECEIVED],
                     now > request->received_ns ? now - request->received_ns : 0);
    reply(loop, request, 202, "application/json", (struct slice){0}, buf_slice(&loop->answer));
}

void write_handle(struct gateway_loop *loop, unsigned index, struct http_request *request)
{
    struct gateway *gateway = loop->gateway;
    const struct gateway_stream *stream = &gateway->streams[index];
    struct write_headers headers;
    struct problem problem;
    enum ack_level want;
    char *inflated = NULL;
    bool many = false;

    enum pressure_cause blocked = pressure_blocked(&gateway->pressure);
    if (blocked != PRESSURE_CAUSES) {
        reply_busy(loop, request, blocked);
        return;
    }
    /* The body, and what the log makes of it. */
    uint64_t charged = 2 * request->body_bytes;
    if (charged > gateway->pressure.memory_limit) {
        problem_set(&problem, 413, "body_too_large",
                    "the body could never fit into half of limits: memory, %llu bytes",
                    (unsigned long long)gateway->pressure.memory_limit);
        reply_problem(loop, request, &problem);
        return;
    }
    if (!pressure_charge(&gateway->pressure, charged)) {
        reply_busy(loop, request, PRESSURE_MEMORY);
        return;
    }
    uint64_t now_ms = clock_wall_ms();
    find_headers(request, &headers);
    if (wanted_level(request, stream, &want, &problem) ||
        parse(loop, stream, request, &headers, now_ms, &many, &inflated, &problem)) {
        pressure_release(&gateway->pressure, charged);
        mem_free(inflated);
        reply_problem(loop, request, &problem);
        return;
    }
    struct intake *intake = intake_of(loop, stream, want, &headers);
    if (!intake) {
        pressure_release(&gateway->pressure, charged);
        mem_free(inflated);
        reply_busy(loop, request, PRESSURE_MEMORY);
        return;
    }
    intake->many = many;
    uint64_t more = intake->charged_bytes + (inflated ? ingest_log_bytes(loop->ingest) : 0);
    pressure_charge_more(&gateway->pressure, more);
    intake->charged_bytes = charged + more;
    accept(loop, request, intake, now_ms);
    mem_free(inflated);
}
