/* repair.c: see repair.h. */
#include "delivery/repair.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "record/attributes.h"

#define WRITE_RECORDS 500 /* in one call to a sink */

static const char *const outcome_names[] = {
    [OUTCOME_STORED] = "stored",
    [OUTCOME_RETRY] = "retry",
    [OUTCOME_REFUSED] = "refused",
};

void repair_line(struct buf *body, const struct record *record)
{
    buf_put_str(body, "{\"id\":");
    buf_put_json_string(body, record->id);
    buf_put_str(body, ",\"key\":");
    buf_put_json_string(body, record->key);
    buf_put_str(body, ",\"version\":");
    buf_put_u64(body, record->version);
    buf_put_str(body, ",\"doc\":");
    buf_put_json_string(body, record->doc);
    if (record->attributes.n) {
        buf_put_str(body, ",\"attributes\":");
        attributes_to_json(record->attributes, body);
    }
    buf_put_str(body, "}\n");
}

/* --- the body, read -----------------------------------------------------------------------------
 */

struct parsing {
    struct json_parser *line_parser, *doc_parser;
    struct buf text, attributes; /* with JSON_PADDING behind the text */
    uint32_t stream;
    uint64_t number;
    struct batch *out;
    uint32_t *seen; /* indexes + 1 of records by the hash of the id */
    size_t seen_size;
    struct diag *diag;
};

static int bad(struct parsing *p, const char *what)
{
    return diag_set(p->diag, WEIR_SYNTAX, "line %llu: %s", (unsigned long long)p->number, what);
}

static struct slice text_of(struct json_value object, const char *name)
{
    struct json_value v;
    if (!json_member(object, name, &v) || json_type(v) != JSON_STRING)
        return (struct slice){0};
    return json_string(v);
}

static bool is_name(struct slice s)
{
    return s.n > 0 && s.n <= RECORD_ID_MAX && !memchr(s.p, 0, s.n);
}

static int read_attributes(struct parsing *p, struct json_value root)
{
    struct json_value v, value;
    struct slice name;
    buf_clear(&p->attributes);
    if (!json_member(root, "attributes", &v))
        return 0;
    if (json_type(v) != JSON_OBJECT)
        return bad(p, "\"attributes\" must be an object");
    struct json_iter iter = json_iter(v);
    while (json_next(&iter, &name, &value)) {
        if (json_type(value) != JSON_STRING ||
            attributes_put(&p->attributes, name, json_string(value)))
            return bad(p, "\"attributes\" has one that cannot be");
    }
    return 0;
}

static bool is_object(struct parsing *p, struct slice doc)
{
    struct json_value root;
    struct json_error error;
    struct buf text = {0};
    buf_reserve(&text, doc.n + JSON_PADDING);
    buf_put_slice(&text, doc);
    bool good = doc.n && json_parse(p->doc_parser, text.p, doc.n, &root, &error) == 0 &&
                json_type(root) == JSON_OBJECT;
    buf_fini(&text);
    return good;
}

/* False: the id is there already. */
static bool see(struct parsing *p, struct slice id)
{
    struct batch *out = p->out;
    if (out->n * 2 >= p->seen_size) {
        p->seen_size = p->seen_size ? p->seen_size * 2 : 1024;
        p->seen = mem_realloc(p->seen, p->seen_size * sizeof *p->seen);
        memset(p->seen, 0, p->seen_size * sizeof *p->seen);
        size_t n = out->n;
        for (out->n = 0; out->n < n; out->n++)
            see(p, out->records[out->n].id);
    }
    size_t mask = p->seen_size - 1, i = hash64_seeded(id.p, id.n, hash_process_seed()) & mask;
    for (; p->seen[i]; i = (i + 1) & mask) {
        if (slice_equal(out->records[p->seen[i] - 1].id, id))
            return false;
    }
    p->seen[i] = (uint32_t)out->n + 1;
    return true;
}

static int read_line(struct parsing *p, struct slice line)
{
    struct json_value root, version;
    struct json_error error;
    buf_clear(&p->text);
    buf_reserve(&p->text, line.n + JSON_PADDING);
    buf_put_slice(&p->text, line);
    if (json_parse(p->line_parser, p->text.p, line.n, &root, &error))
        return bad(p, error.reason);
    if (json_type(root) != JSON_OBJECT)
        return bad(p, "it is not an object");
    struct slice id = text_of(root, "id"), key = text_of(root, "key"), doc = text_of(root, "doc");
    if (!is_name(id))
        return bad(p, "\"id\" must be a string of 1 to 512 bytes");
    if (!is_name(key))
        return bad(p, "\"key\" must be a string of 1 to 512 bytes");
    if (!json_member(root, "version", &version) || json_type(version) != JSON_INT ||
        json_int(version) < 0)
        return bad(p, "\"version\" must be an integer from 0");
    if (!is_object(p, doc))
        return bad(p, "\"doc\" must be the text of a JSON object");
    int rc = read_attributes(p, root);
    if (rc)
        return rc;
    if (!see(p, id))
        return bad(p, "that id stands in an earlier line");

    struct slice attributes = buf_slice(&p->attributes);
    struct chunk *chunk = chunk_create(id.n + key.n + doc.n + attributes.n);
    struct record record = {.version = (uint64_t)json_int(version), .stream = p->stream};
    char *at = chunk->data;
    record.id = (struct slice){memcpy(at, id.p, id.n), id.n};
    record.key = (struct slice){memcpy(at += id.n, key.p, key.n), key.n};
    record.doc = (struct slice){memcpy(at += key.n, doc.p, doc.n), doc.n};
    if (attributes.n)
        record.attributes =
            (struct slice){memcpy(at + doc.n, attributes.p, attributes.n), attributes.n};
    batch_add(p->out, &record, chunk);
    chunk_unref(chunk);
    return 0;
}

int repair_parse(struct slice body, uint32_t stream, struct batch *out, struct diag *diag)
{
    struct parsing p = {.line_parser = json_parser_create(),
                        .doc_parser = json_parser_create(),
                        .stream = stream,
                        .out = out,
                        .diag = diag};
    int rc = 0;
    while (body.n && rc == 0) {
        const char *newline = memchr(body.p, '\n', body.n);
        struct slice line = {body.p, newline ? (size_t)(newline - body.p) : body.n};
        size_t used = line.n + (newline != NULL);
        p.number++;
        if (line.n)
            rc = read_line(&p, line);
        body = (struct slice){body.p + used, body.n - used};
    }
    json_parser_destroy(p.line_parser);
    json_parser_destroy(p.doc_parser);
    buf_fini(&p.text);
    buf_fini(&p.attributes);
    mem_free(p.seen);
    if (rc)
        batch_clear(out);
    return rc;
}

/* --- writing ------------------------------------------------------------------------------------
 */

/* Records [from, from + n) of the batch. */
static void write_part(struct sink_session *session, const struct batch *batch, size_t from,
                       size_t n, struct sink_result *results)
{
    struct batch part = *batch;
    struct diag diag = {0};
    part.records += from;
    part.chunks += from;
    part.n = n;
    int rc = session->ops->write(session, &part, results + from, &diag);
    if (rc == WEIR_REFUSED && n > 1) {
        write_part(session, batch, from, n / 2, results);
        write_part(session, batch, from + n / 2, n - n / 2, results);
        return;
    }
    for (size_t i = from; i < from + n && rc != 0; i++)
        sink_result_set(&results[i], rc == WEIR_REFUSED ? OUTCOME_REFUSED : OUTCOME_RETRY,
                        diag.text[0] ? diag.text : weir_err_text(rc));
}

void repair_write(struct sink_session *session, const struct batch *batch,
                  struct sink_result *results)
{
    for (size_t from = 0; from < batch->n; from += WRITE_RECORDS) {
        size_t left = batch->n - from;
        write_part(session, batch, from, left < WRITE_RECORDS ? left : WRITE_RECORDS, results);
    }
}

/* --- the answer ---------------------------------------------------------------------------------
 */

void repair_answer(const struct sink_result *results, size_t n, struct buf *out)
{
    size_t counts[3] = {0};
    for (size_t i = 0; i < n; i++)
        counts[results[i].outcome]++;
    buf_printf(out, "{\"stored\":%zu,\"refused\":%zu,\"retry\":%zu,\"results\":[",
               counts[OUTCOME_STORED], counts[OUTCOME_REFUSED], counts[OUTCOME_RETRY]);
    for (size_t i = 0; i < n; i++) {
        const char *name = outcome_names[results[i].outcome];
        buf_put_str(out, i ? "," : "");
        if (results[i].outcome == OUTCOME_STORED) {
            buf_printf(out, "\"%s\"", name);
            continue;
        }
        buf_printf(out, "{\"%s\":", name);
        buf_put_json_string(out, slice_of(results[i].reason));
        buf_put_char(out, '}');
    }
    buf_put_str(out, "]}\n");
}

static int read_result(struct json_value v, struct sink_result *result)
{
    struct slice name, reason;
    struct json_value text;
    if (json_type(v) == JSON_STRING) {
        name = json_string(v);
        if (!slice_is(name, outcome_names[OUTCOME_STORED]))
            return WEIR_SYNTAX;
        sink_result_set(result, OUTCOME_STORED, "");
        return 0;
    }
    if (json_type(v) != JSON_OBJECT || json_count(v) != 1)
        return WEIR_SYNTAX;
    struct json_iter iter = json_iter(v);
    json_next(&iter, &name, &text);
    bool refused = slice_is(name, outcome_names[OUTCOME_REFUSED]);
    if ((!refused && !slice_is(name, outcome_names[OUTCOME_RETRY])) ||
        json_type(text) != JSON_STRING)
        return WEIR_SYNTAX;
    reason = json_string(text);
    char copy[sizeof result->reason];
    snprintf(copy, sizeof copy, "%.*s", (int)(reason.n < sizeof copy ? reason.n : sizeof copy),
             reason.p);
    sink_result_set(result, refused ? OUTCOME_REFUSED : OUTCOME_RETRY, copy);
    return 0;
}

int repair_answer_read(struct slice answer, struct sink_result *results, size_t n)
{
    struct json_parser *parser = json_parser_create();
    struct json_value root, list, v;
    struct json_error error;
    struct buf text = {0};
    size_t i = 0;
    buf_reserve(&text, answer.n + JSON_PADDING);
    buf_put_slice(&text, answer);
    int rc = json_parse(parser, text.p, answer.n, &root, &error);
    if (rc == 0 && (json_type(root) != JSON_OBJECT || !json_member(root, "results", &list) ||
                    json_type(list) != JSON_ARRAY || json_count(list) != n))
        rc = WEIR_SYNTAX;
    if (rc == 0) {
        struct json_iter iter = json_iter(list);
        while (rc == 0 && i < n && json_next(&iter, NULL, &v))
            rc = read_result(v, &results[i++]);
    }
    buf_fini(&text);
    json_parser_destroy(parser);
    return rc;
}
