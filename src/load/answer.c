/* answer.c: see answer.h. One record is answered by an object with its id, several by an object
 * whose "records" holds one such object for each, in order. An
 * unknown outcome is not an acknowledgement. */
#include "load/answer.h"

#include "base/mem.h"
#include "load/ids.h"
#include "weir/err.h"

struct answers {
    struct json_parser *answer, *record; /* both trees are needed at the same time */
    struct buf canonical;
};

struct answers *answers_create(void)
{
    struct answers *answers = mem_zalloc(sizeof *answers);
    answers->answer = json_parser_create();
    answers->record = json_parser_create();
    return answers;
}

void answers_destroy(struct answers *answers)
{
    if (!answers)
        return;
    json_parser_destroy(answers->answer);
    json_parser_destroy(answers->record);
    buf_fini(&answers->canonical);
    mem_free(answers);
}

/* In a 207 only a record that is said to be stored was acknowledged at the level asked for. */
static bool is_taken(struct json_value told, int status)
{
    struct json_value outcome;
    if (!json_member(told, "outcome", &outcome))
        return status != 207;
    if (json_type(outcome) != JSON_STRING)
        return false;
    struct slice word = json_string(outcome);
    return slice_is(word, "stored") || slice_is(word, "everywhere") ||
           (status != 207 && (slice_is(word, "durable") || slice_is(word, "received")));
}

/* What the answer tells of one record, and that record's text. */
static int keep_one(struct answers *answers, struct json_value told, int status, struct slice doc,
                    struct slice stream, struct buf *lines, uint64_t *taken)
{
    struct json_value id, version, root;
    struct json_error error;
    if (json_type(told) != JSON_OBJECT)
        return WEIR_SYNTAX;
    if (!is_taken(told, status))
        return 0;
    if (!json_member(told, "id", &id) || json_type(id) != JSON_STRING ||
        !json_member(told, "version", &version) || json_type(version) != JSON_INT ||
        json_int(version) <= 0)
        return WEIR_SYNTAX;
    if (json_parse(answers->record, doc.p, doc.n, &root, &error) != 0)
        return WEIR_SYNTAX;
    buf_clear(&answers->canonical);
    ids_line(lines, stream, json_string(id), (uint64_t)json_int(version),
             json_content_hash(root, &answers->canonical));
    ++*taken;
    return 0;
}

/* The next line of *rest, which begins after it then. */
static struct slice next_line(struct slice *rest)
{
    const char *newline = rest->n ? memchr(rest->p, '\n', rest->n) : NULL;
    struct slice line = {rest->p, newline ? (size_t)(newline - rest->p) : rest->n};
    size_t used = newline ? line.n + 1 : line.n;
    rest->p += used;
    rest->n -= used;
    return line;
}

int answers_keep(struct answers *answers, int status, struct buf *body, struct buf *docs,
                 uint64_t n, struct slice stream, struct buf *lines, uint64_t *taken)
{
    struct json_value root, records;
    struct json_error error;
    *taken = 0;
    buf_reserve(body, JSON_PADDING);
    buf_reserve(docs, JSON_PADDING);
    struct slice rest = buf_slice(docs);
    if (json_parse(answers->answer, body->p, body->n, &root, &error) != 0 ||
        json_type(root) != JSON_OBJECT)
        return WEIR_SYNTAX;
    if (!json_member(root, "records", &records))
        return n == 1 ? keep_one(answers, root, status, next_line(&rest), stream, lines, taken)
                      : WEIR_SYNTAX;
    if (json_type(records) != JSON_ARRAY || json_count(records) != n)
        return WEIR_SYNTAX;
    struct json_iter iter = json_iter(records);
    struct json_value told;
    int err = 0;
    while (!err && json_next(&iter, NULL, &told))
        err = keep_one(answers, told, status, next_line(&rest), stream, lines, taken);
    return err;
}
