/* answer.c: the answers to a POST, from what is known about its records.
 *
 * A body that was one object gets one object; a body that was an array or lines gets
 * {"ack":...,"records":[...]} with each record on a line of its own. */
#include "gateway/intake.h"

#include <stdio.h>

#include "base/mem.h"
#include "http/server.h"

#define JSON "application/json"

/* {"id":"...","version":N   and no brace at the end */
static void put_identity(struct buf *out, const struct record *record)
{
    buf_put(out, "{\"id\":", 6);
    buf_put_json_string(out, record->id);
    buf_put(out, ",\"version\":", 11);
    buf_put_u64(out, record->version);
}

static void put_position(struct intake *intake, struct buf *out, const struct record *record)
{
    char position[64];
    log_position_text(intake->loop->gateway->log, record->partition, record->offset, position);
    buf_put(out, ",\"position\":\"", 13);
    buf_put_str(out, position);
    buf_put_char(out, '"');
}

static void put_ack(struct buf *out, enum ack_level level)
{
    buf_put(out, "\"ack\":\"", 7);
    buf_put_str(out, ack_level_name(level));
    buf_put_char(out, '"');
}

static const char *note_text(enum intake_note note)
{
    switch (note) {
    case NOTE_TIMEOUT:
        return "durable; not every sink that was asked for had it within ack_timeout";
    case NOTE_BREAKER:
        return "durable; a sink that was asked for cannot be written right now";
    case NOTE_STOPPING:
        return "durable; weir is stopping and delivers it after the next start";
    default:
        return NULL;
    }
}

static void put_note(struct buf *out, enum intake_note note)
{
    const char *text = note_text(note);
    if (!text)
        return;
    buf_put_str(out, ",\"note\":\"");
    buf_put_str(out, text);
    buf_put_char(out, '"');
}

static struct buf *begin(struct intake *intake)
{
    struct buf *out = &intake->loop->answer;
    buf_clear(out);
    return out;
}

static void send_answer(struct intake *intake, int status, const char *content_type,
                        struct slice extra, enum ack_level level)
{
    struct gateway_loop *loop = intake->loop;
    struct http_request *request = intake->request;
    uint64_t now = loop_now_ns(intake->target);
    intake->request = NULL;
    if (status < 300)
        histogram_record(loop->latency_ns[level],
                         now > request->received_ns ? now - request->received_ns : 0);
    reply(loop, request, status, content_type, extra, buf_slice(&loop->answer));
}

void answer_received_text(struct intake *intake)
{
    struct buf *out = begin(intake);
    if (!intake->many) {
        put_identity(out, &intake->records[0]);
        buf_put_char(out, ',');
        put_ack(out, ACK_RECEIVED);
        buf_put(out, "}\n", 2);
        return;
    }
    buf_put_char(out, '{');
    put_ack(out, ACK_RECEIVED);
    buf_put_str(out, ",\"records\":[");
    for (uint32_t i = 0; i < intake->body.n; i++) {
        buf_put(out, i ? ",\n" : "\n", i ? 2 : 1);
        put_identity(out, &intake->records[i]);
        buf_put_char(out, '}');
    }
    buf_put_str(out, "\n]}\n");
}

/* ---- what the sinks said ---- */

/* The refusal of each record that has one, by index; to be freed. */
static const struct ack_refusal **refusals_by_index(const struct intake *intake)
{
    const struct ack_refusal **by_index = mem_zalloc(intake->body.n * sizeof(*by_index));
    for (const struct ack_refusal *r = intake->waiter.refusals; r; r = r->next)
        by_index[r->index] = r;
    return by_index;
}

static const char *sink_name(const struct intake *intake, const struct ack_refusal *refusal)
{
    return intake->loop->gateway->sinks[refusal->sink].config->name;
}

static void put_outcome(struct intake *intake, struct buf *out, uint32_t i,
                        const struct ack_refusal *refusal)
{
    if (refusal) {
        buf_put_str(out, ",\"outcome\":\"refused\",\"sink\":");
        buf_put_json_string(out, slice_of(sink_name(intake, refusal)));
        buf_put_str(out, ",\"reason\":");
        buf_put_json_string(out, slice_of(refusal->reason));
    } else if (intake->waiter.pending[i]) {
        buf_put_str(out, ",\"outcome\":\"durable\"");
    } else {
        buf_put_str(out, ",\"outcome\":\"stored\"");
    }
}

/* One record, and a sink that was asked for will never take it. */
static void answer_refused(struct intake *intake)
{
    const struct ack_refusal *refusal = intake->waiter.refusals;
    struct buf *out = begin(intake);
    struct problem problem;
    problem_set(&problem, 422, "refused",
                "sink %s refused the record: %s; it is kept in the log and as a dead letter "
                "(weir dead list)",
                sink_name(intake, refusal), refusal->reason);
    problem_open_json(&problem, out);
    buf_put_str(out, ",\"record\":");
    put_identity(out, &intake->records[0]);
    put_position(intake, out, &intake->records[0]);
    put_outcome(intake, out, 0, refusal);
    buf_put_char(out, '}');
    problem_close_json(out);
    send_answer(intake, 422, PROBLEM_CONTENT_TYPE, (struct slice){0}, ACK_DURABLE);
}

static void answer_list(struct intake *intake, int status, enum ack_level level)
{
    struct buf *out = begin(intake);
    bool outcomes = intake->want != ACK_DURABLE && intake->note == NOTE_NONE;
    const struct ack_refusal **refusals = NULL;
    if (intake->waiter.refusals) {
        refusals = refusals_by_index(intake);
        outcomes = true;
    }
    buf_put_char(out, '{');
    put_ack(out, level);
    put_note(out, intake->note);
    buf_put_str(out, ",\"records\":[");
    for (uint32_t i = 0; i < intake->body.n; i++) {
        buf_put(out, i ? ",\n" : "\n", i ? 2 : 1);
        put_identity(out, &intake->records[i]);
        put_position(intake, out, &intake->records[i]);
        if (outcomes)
            put_outcome(intake, out, i, refusals ? refusals[i] : NULL);
        buf_put_char(out, '}');
    }
    buf_put_str(out, "\n]}\n");
    mem_free(refusals);
    send_answer(intake, status, JSON, (struct slice){0}, level);
}

void answer_settled(struct intake *intake)
{
    enum ack_level level = ACK_DURABLE;
    int status = 202;
    if (intake->want != ACK_DURABLE) {
        if (intake->waiter.refusals && intake->body.n == 1) {
            answer_refused(intake);
            return;
        }
        if (intake->waiter.refusals) {
            status = 207;
        } else if (intake->waiter.left == 0) {
            level = intake->want;
            status = 201;
        } else {
            count_add(&intake->loop->counters.downgraded, 1);
        }
    }
    if (intake->many) {
        answer_list(intake, status, level);
        return;
    }
    struct buf *out = begin(intake);
    put_identity(out, &intake->records[0]);
    put_position(intake, out, &intake->records[0]);
    buf_put_char(out, ',');
    put_ack(out, level);
    put_note(out, intake->note);
    buf_put(out, "}\n", 2);
    send_answer(intake, status, JSON, (struct slice){0}, level);
}

/* ---- what the log said ---- */

static enum pressure_cause cause_of(int err)
{
    switch (err) {
    case WEIR_NO_SPACE:
        return PRESSURE_DISK;
    case WEIR_FULL:
        return PRESSURE_LOG;
    case WEIR_CLOSED:
    case WEIR_CANCELLED:
        return PRESSURE_STOPPING;
    default:
        return PRESSURE_FAILED;
    }
}

/* The ids that weir gave are in it, so that a retry can use them. */
void answer_not_durable(struct intake *intake, int err)
{
    struct gateway_loop *loop = intake->loop;
    struct buf *out = begin(intake);
    struct problem problem;
    char extra[40] = "";
    if (err == WEIR_UNKNOWN || err == WEIR_POISONED)
        pressure_log_failed(&loop->gateway->pressure);
    if (err == WEIR_TIMEOUT || err == WEIR_UNKNOWN) {
        problem_set(&problem, 504, "not_known_durable",
                    err == WEIR_TIMEOUT
                        ? "not known to be durable within ack_timeout; it may still become so; a "
                          "retry with the same id is harmless"
                        : "a sync failed: it is not known whether this is durable; a retry with "
                          "the same id is harmless");
        count_add(&loop->counters.timed_out, 1);
    } else {
        enum pressure_cause cause = cause_of(err);
        if (cause == PRESSURE_DISK)
            housekeep_disk_full(loop->gateway);
        unsigned seconds =
            pressure_refuse(&loop->gateway->pressure, cause, loop->random += 0x9e3779b9);
        problem_set(&problem, 503, pressure_name(cause), "not stored: %s", pressure_text(cause));
        snprintf(extra, sizeof(extra), "Retry-After: %u\r\n", seconds);
    }
    problem_open_json(&problem, out);
    buf_put_str(out, ",\"records\":[");
    for (uint32_t i = 0; i < intake->body.n; i++) {
        buf_put(out, i ? ",\n" : "\n", i ? 2 : 1);
        put_identity(out, &intake->records[i]);
        buf_put_char(out, '}');
    }
    buf_put_str(out, "\n]");
    problem_close_json(out);
    send_answer(intake, problem.status, PROBLEM_CONTENT_TYPE, slice_of(extra), ACK_DURABLE);
}
