/* ingest.c: see ingest.h.
 *
 * Ids and keys are gathered in one growing text; while it grows, a record's id.p and key.p hold
 * offsets into it, which ingest_take turns into pointers. */
#include "gateway/ingest.h"

#include <stdio.h>
#include <strings.h>

#include "base/hash.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/uuid.h"
#include "gateway/utf8.h"

#define USE_DATA_BINARY                                                                            \
    "to send several records, put one object on each line with content-type "                      \
    "application/x-ndjson (curl: --data-binary, because --data takes the newlines out), or send "  \
    "an array"

struct ingest {
    struct json_parser *parser;
    struct uuid_generator uuids;
    struct record *records;
    size_t n, capacity;
    size_t doc_bytes;
    bool array;
    size_t from_header; /* records that took their id from Idempotency-Key */
    struct buf text;
};

struct ingest *ingest_create(void)
{
    struct ingest *ingest = mem_zalloc(sizeof(*ingest));
    ingest->parser = json_parser_create();
    uuid_generator_init(&ingest->uuids);
    return ingest;
}

void ingest_destroy(struct ingest *ingest)
{
    if (!ingest)
        return;
    json_parser_destroy(ingest->parser);
    mem_free(ingest->records);
    buf_fini(&ingest->text);
    mem_free(ingest);
}

/* ---- content type ---- */

static bool slice_is_nocase(struct slice s, const char *lower)
{
    return s.n == strlen(lower) && strncasecmp(s.p, lower, s.n) == 0;
}

static struct slice trim(struct slice s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t' || s.p[0] == '\n' || s.p[0] == '\r'))
        s.p++, s.n--;
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t' || s.p[s.n - 1] == '\n' ||
                   s.p[s.n - 1] == '\r'))
        s.n--;
    return s;
}

/* Splits s at the first `at`: what is before it is returned, s becomes what is behind it. */
static struct slice cut(struct slice *s, char at)
{
    const char *found = s->n ? memchr(s->p, at, s->n) : NULL;
    struct slice head = *s;
    if (!found) {
        *s = (struct slice){NULL, 0};
        return head;
    }
    head.n = (size_t)(found - s->p);
    *s = (struct slice){found + 1, s->n - head.n - 1};
    return head;
}

int ingest_content_type(struct slice content_type, enum ingest_format *out, struct problem *problem)
{
    if (slice_is(content_type, "application/json")) {
        *out = INGEST_JSON;
        return 0;
    }
    struct slice rest = content_type;
    struct slice type = trim(cut(&rest, ';'));
    bool plus_json = type.n > 17 && strncasecmp(type.p, "application/", 12) == 0 &&
                     strncasecmp(type.p + type.n - 5, "+json", 5) == 0;
    if (plus_json || slice_is_nocase(type, "application/json")) {
        *out = INGEST_JSON;
    } else if (slice_is_nocase(type, "application/x-ndjson") ||
               slice_is_nocase(type, "application/ndjson")) {
        *out = INGEST_NDJSON;
    } else if (type.n == 0 || slice_is_nocase(type, "application/x-www-form-urlencoded")) {
        return problem_set(problem, 415, "content_type",
                           "%s; send JSON as such (curl: -H 'content-type: application/json')",
                           type.n
                               ? "application/x-www-form-urlencoded is not accepted, and is what "
                                 "curl sends when it is told nothing else"
                               : "there is no content-type");
    } else {
        return problem_set(problem, 415, "content_type",
                           "content-type %.*s is not accepted; send application/json (an object or "
                           "an array) or application/x-ndjson (an object on each line)",
                           (int)(type.n < 100 ? type.n : 100), type.p);
    }
    while (rest.p) {
        struct slice value = cut(&rest, ';');
        struct slice name = trim(cut(&value, '='));
        value = trim(value);
        if (value.n >= 2 && value.p[0] == '"' && value.p[value.n - 1] == '"')
            value = (struct slice){value.p + 1, value.n - 2};
        if (slice_is_nocase(name, "charset") && !slice_is_nocase(value, "utf-8") &&
            !slice_is_nocase(value, "utf8"))
            return problem_set(problem, 415, "charset",
                               "charset %.*s is not accepted; application/json is UTF-8",
                               (int)(value.n < 60 ? value.n : 60), value.n ? value.p : "");
    }
    return 0;
}

/* ---- ids and keys ---- */

static struct record *record_add(struct ingest *ingest, struct slice doc)
{
    if (ingest->n == ingest->capacity) {
        ingest->capacity = ingest->capacity ? ingest->capacity * 2 : 16;
        ingest->records = mem_realloc(ingest->records, ingest->capacity * sizeof(struct record));
    }
    struct record *record = &ingest->records[ingest->n++];
    *record = (struct record){.doc = doc};
    ingest->doc_bytes += doc.n;
    return record;
}

/* Puts bytes into the text; the slice holds an offset in place of a pointer. */
static struct slice text_put(struct ingest *ingest, const char *p, size_t n)
{
    struct slice at = {(const char *)(uintptr_t)ingest->text.n, n};
    buf_put(&ingest->text, p, n);
    return at;
}

/* The id or key that a member holds. `what` is "id" or "key". */
static int name_of_value(struct ingest *ingest, struct json_value value, const char *what,
                         struct slice pointer, struct slice *out, struct problem *problem)
{
    char digits[24];
    struct slice s;
    switch (json_type(value)) {
    case JSON_STRING:
        s = json_string(value);
        break;
    case JSON_INT:
        s.n = (size_t)snprintf(digits, sizeof(digits), "%lld", (long long)json_int(value));
        s.p = digits;
        break;
    default:
        return problem_set(problem, 400, what[0] == 'i' ? "bad_id" : "bad_key",
                           "the %s at %.*s is neither a string nor an integer", what,
                           (int)pointer.n, pointer.p);
    }
    if (s.n < 1 || s.n > RECORD_ID_MAX)
        return problem_set(problem, 400, what[0] == 'i' ? "bad_id" : "bad_key",
                           "the %s at %.*s is %zu bytes long; it must have 1 to %d", what,
                           (int)pointer.n, pointer.p, s.n, RECORD_ID_MAX);
    if (memchr(s.p, 0, s.n))
        return problem_set(problem, 400, what[0] == 'i' ? "bad_id" : "bad_key",
                           "the %s at %.*s holds U+0000", what, (int)pointer.n, pointer.p);
    *out = text_put(ingest, s.p, s.n);
    return 0;
}

static int check_idempotency_key(struct slice key, struct problem *problem)
{
    if (key.n < 1 || key.n > RECORD_ID_MAX)
        return problem_set(problem, 400, "bad_idempotency_key",
                           "Idempotency-Key is %zu bytes long; it must have 1 to %d", key.n,
                           RECORD_ID_MAX);
    for (size_t i = 0; i < key.n; i++)
        if ((unsigned char)key.p[i] < 0x20 || key.p[i] == 0x7f)
            return problem_set(problem, 400, "bad_idempotency_key",
                               "Idempotency-Key holds a control character");
    if (!utf8_valid(key))
        return problem_set(problem, 400, "bad_idempotency_key", "Idempotency-Key is not UTF-8");
    return 0;
}

/* Fills id, key, partition and stream of a record from its parsed form. */
static int identify(struct ingest *ingest, const struct ingest_source *source,
                    struct json_value root, struct record *record, struct problem *problem)
{
    const struct ingest_stream *stream = source->stream;
    struct json_value value;
    int status;

    if (stream->id.p && json_pointer(root, stream->id, &value)) {
        status = name_of_value(ingest, value, "id", stream->id, &record->id, problem);
        if (status)
            return status;
    } else if (stream->id.p && !stream->id_optional) {
        return problem_set(problem, 400, "no_id",
                           "there is nothing at %.*s, where the id of stream %s is",
                           (int)stream->id.n, stream->id.p, stream->name);
    } else if (source->idempotency_key.p) {
        status = check_idempotency_key(source->idempotency_key, problem);
        if (status)
            return status;
        record->id = text_put(ingest, source->idempotency_key.p, source->idempotency_key.n);
        ingest->from_header++;
    } else {
        char uuid[UUID_TEXT];
        uuid_v7(&ingest->uuids, source->wall_ms, uuid);
        record->id = text_put(ingest, uuid, UUID_TEXT);
    }

    if (!stream->key.p) {
        record->key = record->id;
    } else if (json_pointer(root, stream->key, &value)) {
        status = name_of_value(ingest, value, "key", stream->key, &record->key, problem);
        if (status)
            return status;
    } else {
        return problem_set(problem, 400, "no_key",
                           "there is nothing at %.*s, where the key of stream %s is",
                           (int)stream->key.n, stream->key.p, stream->name);
    }
    record->stream = stream->number;
    record->partition =
        (uint32_t)(hash64(ingest->text.p + (uintptr_t)record->key.p, record->key.n) %
                   stream->partitions);
    return 0;
}

/* ---- bodies ---- */

static int64_t offset_in(struct slice body, const char *p)
{
    return (int64_t)(p - body.p);
}

/* An object begins where another one ended: what `curl --data @file` makes of NDJSON. */
static bool looks_concatenated(struct slice text, uint64_t offset)
{
    if (offset >= text.n || text.p[offset] != '{')
        return false;
    while (offset > 0 && memchr(" \t\r\n", text.p[offset - 1], 4))
        offset--;
    return offset > 0 && text.p[offset - 1] == '}';
}

static int bad_json(struct slice body, struct slice text, const struct json_error *error,
                    enum ingest_format format, struct problem *problem)
{
    bool concatenated = looks_concatenated(text, error->offset);
    int64_t at = offset_in(body, text.p) + (int64_t)error->offset;
    problem_set(problem, 400, "not_json", "%s at byte %lld%s%s",
                concatenated ? "another object begins" : error->reason, (long long)at,
                concatenated ? (format == INGEST_NDJSON ? " on the same line; " : "; ") : "",
                concatenated ? USE_DATA_BINARY : "");
    problem->offset = at;
    return 400;
}

static int not_an_object(int64_t offset, const char *what, struct problem *problem)
{
    problem_set(problem, 400, "not_an_object", "%s is not a JSON object; a record is one", what);
    problem->offset = offset;
    return 400;
}

static int too_many(const struct ingest_source *source, struct problem *problem)
{
    return problem_set(problem, 413, "too_many_records",
                       "the body has more than %llu records (limits: records); send it in parts",
                       (unsigned long long)source->records_max);
}

static void add_element(void *context, struct slice raw)
{
    record_add(context, raw);
}

static int parse_array(struct ingest *ingest, const struct ingest_source *source, struct slice text,
                       struct json_value root, struct problem *problem)
{
    if (json_count(root) == 0)
        return problem_set(problem, 400, "no_records", "the array is empty: it has no record");
    if (json_count(root) > source->records_max)
        return too_many(source, problem);
    json_split_array(text, add_element, ingest);

    struct json_iter iter = json_iter(root);
    struct json_value value;
    for (size_t i = 0; json_next(&iter, NULL, &value); i++) {
        struct record *record = &ingest->records[i];
        int64_t offset = offset_in(source->body, record->doc.p);
        int status;
        if (json_type(value) != JSON_OBJECT)
            status = not_an_object(offset, "it", problem);
        else
            status = identify(ingest, source, value, record, problem);
        if (status) {
            problem->index = (int64_t)i;
            problem->offset = offset;
            problem_prefix(problem, "element %zu: ", i);
            return status;
        }
    }
    return 0;
}

static int parse_json(struct ingest *ingest, const struct ingest_source *source,
                      struct problem *problem)
{
    struct slice text = trim(source->body);
    struct json_value root;
    struct json_error error;
    if (text.n == 0)
        return problem_set(problem, 400, "no_records", "the body is empty: it has no record");
    if (json_parse(ingest->parser, text.p, text.n, &root, &error))
        return bad_json(source->body, text, &error, INGEST_JSON, problem);
    switch (json_type(root)) {
    case JSON_OBJECT:
        return identify(ingest, source, root, record_add(ingest, text), problem);
    case JSON_ARRAY:
        ingest->array = true;
        return parse_array(ingest, source, text, root, problem);
    default:
        return not_an_object(offset_in(source->body, text.p), "the body", problem);
    }
}

static int parse_lines(struct ingest *ingest, const struct ingest_source *source,
                       struct problem *problem)
{
    struct slice rest = source->body;
    for (int64_t number = 1; rest.p; number++) {
        struct slice line = trim(cut(&rest, '\n'));
        struct json_value root;
        struct json_error error;
        int status;
        if (line.n == 0)
            continue;
        if (ingest->n == source->records_max)
            return too_many(source, problem);
        if (json_parse(ingest->parser, line.p, line.n, &root, &error)) {
            status = bad_json(source->body, line, &error, INGEST_NDJSON, problem);
        } else if (json_type(root) != JSON_OBJECT) {
            status = not_an_object(offset_in(source->body, line.p), "it", problem);
        } else {
            status = identify(ingest, source, root, record_add(ingest, line), problem);
            if (status)
                problem->offset = offset_in(source->body, line.p);
        }
        if (status) {
            problem->line = number;
            problem_prefix(problem, "line %lld: ", (long long)number);
            return status;
        }
    }
    if (ingest->n == 0)
        return problem_set(problem, 400, "no_records", "the body has no line with a record");
    return 0;
}

int ingest_parse(struct ingest *ingest, const struct ingest_source *source, struct problem *problem)
{
    ingest->n = ingest->doc_bytes = ingest->from_header = 0;
    ingest->array = false;
    buf_clear(&ingest->text);
    /* One large body must not hold its memory for ever. */
    if (ingest->capacity > 4096) {
        mem_free(ingest->records);
        ingest->records = NULL;
        ingest->capacity = 0;
    }
    if (ingest->text.capacity > 1 << 20)
        buf_fini(&ingest->text);

    int status = source->format == INGEST_JSON ? parse_json(ingest, source, problem)
                                               : parse_lines(ingest, source, problem);
    if (status == 0 && ingest->n > 1 && ingest->from_header > 0)
        status = problem_set(problem, 400, "idempotency_key_for_many",
                             "Idempotency-Key names one record, the body has %zu; give each record "
                             "its own id",
                             ingest->n);
    return status;
}

uint32_t ingest_count(const struct ingest *ingest)
{
    return (uint32_t)ingest->n;
}

bool ingest_is_array(const struct ingest *ingest)
{
    return ingest->array;
}

size_t ingest_text_bytes(const struct ingest *ingest)
{
    return ingest->text.n;
}

size_t ingest_log_bytes(const struct ingest *ingest)
{
    size_t bytes = ingest->doc_bytes;
    for (size_t i = 0; i < ingest->n; i++)
        bytes += ingest->records[i].id.n + ingest->records[i].key.n;
    return bytes;
}

void ingest_take(struct ingest *ingest, struct record *records, char *text)
{
    if (ingest->text.n)
        memcpy(text, ingest->text.p, ingest->text.n);
    for (size_t i = 0; i < ingest->n; i++) {
        records[i] = ingest->records[i];
        records[i].id.p = text + (uintptr_t)records[i].id.p;
        records[i].key.p = text + (uintptr_t)records[i].key.p;
    }
}
