/* differential.h: what our parser accepts, libhttp-parser accepts, with the same framing.
 *
 * differential_check() gives the same bytes to both and ends the process with a message where they
 * differ. Ours is fed in two pieces, cut at `cut`, each from memory of exactly its size. Of a
 * sequence of requests it compares all that ours accepts until it refuses, closes or wants more:
 * method, target, version, headers, body. It also walks the bytes of each accepted head and of
 * chunked framing again and checks that nothing is in them but what was reported (Debian's
 * libhttp-parser is built without its strict checks).
 *
 * Differences that are meant: ours takes any token as a method, libhttp-parser only those it knows;
 * it keeps white space behind a value. */
#ifndef WEIR_TESTS_DIFFERENTIAL_H
#define WEIR_TESTS_DIFFERENTIAL_H

#include <assert.h>
#include <http_parser.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "http/parse.h"

#define DIFFERENTIAL_HEADERS 100
#define DIFFERENTIAL_BODY    ((uint64_t)1 << 20)

enum { DIFFERENTIAL_MESSAGES = 64 };

struct differential_side { /* messages as text, one behind the other */
    struct buf text;
    size_t end[DIFFERENTIAL_MESSAGES]; /* of each message in text */
    unsigned n;
};

struct differential_ours {
    struct differential_side side;
    enum parse_result result; /* PARSE_DONE: it closes after its last message */
    struct parse_error error;
    /* between pieces */
    size_t at;      /* the first byte not used up */
    size_t body_at; /* of the message that is read */
    struct parse_head head;
    struct parse_chunks chunks;
    struct buf message, body;
    uint64_t left;
    bool in_body, chunked, keep_alive;
};

static void differential_fail(const char *what, const char *p, size_t n, size_t cut)
{
    fprintf(stderr, "differential: %s; cut at %zu of %zu bytes:\n", what, cut, n);
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if (c == '\n')
            fprintf(stderr, "\\n\n");
        else if (c == '\r')
            fprintf(stderr, "\\r");
        else if (c < 0x20 || c >= 0x7f || c == '\\')
            fprintf(stderr, "\\x%02x", c);
        else
            fputc(c, stderr);
    }
    fprintf(stderr, "\n");
    abort();
}

static void differential_put_message(struct differential_side *side, struct slice head,
                                     struct slice body)
{
    assert(side->n < DIFFERENTIAL_MESSAGES);
    buf_put_slice(&side->text, head);
    buf_printf(&side->text, "\nbody %zu\n", body.n);
    buf_put_slice(&side->text, body);
    buf_put_char(&side->text, '\n');
    side->end[side->n++] = side->text.n;
}

/* ---- ours ---- */

static bool differential_take(const char **at, const char *end, struct slice wanted)
{
    if ((size_t)(end - *at) < wanted.n || memcmp(*at, wanted.p, wanted.n) != 0)
        return false;
    *at += wanted.n;
    return true;
}

/* The head is what was reported, and nothing else. */
static bool differential_head_is(const struct parse_head *head, const char *p,
                                 const struct http_header *headers,
                                 const struct parse_fields *fields)
{
    static const struct slice crlf = {"\r\n", 2};
    const char *at = p + head->skipped, *end = p + head->head_bytes;
    struct slice method = {at, head->method_bytes};
    struct slice version = head->minor ? SLICE_LIT("HTTP/1.1") : SLICE_LIT("HTTP/1.0");
    if ((head->skipped && memcmp(p, "\r\n", 2) != 0) || !parse_is_token(method))
        return false;
    at += method.n;
    if (!differential_take(&at, end, SLICE_LIT(" ")) ||
        !differential_take(&at, end, fields->target) ||
        !differential_take(&at, end, SLICE_LIT(" ")) || !differential_take(&at, end, version) ||
        !differential_take(&at, end, crlf))
        return false;
    for (unsigned i = 0; i < fields->n_headers; i++) {
        if (!parse_is_token(headers[i].name) || !differential_take(&at, end, headers[i].name) ||
            !differential_take(&at, end, SLICE_LIT(":")))
            return false;
        while (at < headers[i].value.p && (*at == ' ' || *at == '\t'))
            at++;
        for (size_t k = 0; k < headers[i].value.n; k++) {
            unsigned char c = (unsigned char)headers[i].value.p[k];
            if ((c < 0x20 && c != '\t') || c == 0x7f)
                return false;
        }
        if (!differential_take(&at, end, headers[i].value))
            return false;
        while (at < end && (*at == ' ' || *at == '\t'))
            at++;
        if (!differential_take(&at, end, crlf))
            return false;
    }
    return differential_take(&at, end, crlf) && at == end;
}

/* The bytes of a chunked body, read again in the plainest way: nothing but sizes, extensions
 * without control bytes, data and trailers, each line ended by CRLF. */
static bool differential_chunks_are(const char *at, const char *end, struct slice body)
{
    static const struct slice crlf = {"\r\n", 2};
    size_t size;
    do {
        int digits = 0;
        for (size = 0; at < end && strchr("0123456789abcdefABCDEF", *at) && *at; at++, digits++)
            size = size * 16 + (size_t)(*at <= '9' ? *at - '0' : (*at | 0x20) - 'a' + 10);
        if (digits < 1 || digits > 16 || at == end || (*at != '\r' && *at != ';'))
            return false;
        while (at < end && ((unsigned char)*at >= 0x20 || *at == '\t') && *at != 0x7f)
            at++;
        if (!differential_take(&at, end, crlf))
            return false;
        struct slice data = {body.p, size};
        if (size > body.n || (size && !differential_take(&at, end, data)) ||
            (size && !differential_take(&at, end, crlf)))
            return false;
        body = (struct slice){size ? body.p + size : body.p, body.n - size};
    } while (size);
    while (!differential_take(&at, end, crlf)) {
        const char *colon = memchr(at, ':', (size_t)(end - at));
        if (!colon || !parse_is_token((struct slice){at, (size_t)(colon - at)}))
            return false;
        for (at = colon; at < end && ((unsigned char)*at >= 0x20 || *at == '\t') && *at != 0x7f;)
            at++;
        if (!differential_take(&at, end, crlf))
            return false;
    }
    return at == end && body.n == 0;
}

static void differential_complete(struct differential_ours *ours)
{
    differential_put_message(&ours->side, buf_slice(&ours->message), buf_slice(&ours->body));
    buf_clear(&ours->message);
    buf_clear(&ours->body);
    ours->head = (struct parse_head){0};
    ours->in_body = false;
    ours->result = ours->keep_alive ? PARSE_MORE : PARSE_DONE;
}

static bool differential_head(struct differential_ours *ours, const struct parse_limits *limits,
                              const char *p, size_t n)
{
    struct http_header headers[DIFFERENTIAL_HEADERS];
    struct parse_fields fields;
    p += ours->at;
    n -= ours->at;
    ours->result = parse_head(&ours->head, limits, p, n, &ours->error);
    if (ours->result == PARSE_DONE)
        ours->result = parse_fields(&ours->head, limits, p, headers, &fields, &ours->error);
    if (ours->result != PARSE_DONE)
        return false;
    if (!differential_head_is(&ours->head, p, headers, &fields))
        differential_fail("the head holds more than was reported", p, n, 0);
    buf_printf(&ours->message, "%.*s %.*s 1.%u\n", (int)ours->head.method_bytes,
               p + ours->head.skipped, (int)fields.target.n, fields.target.p, ours->head.minor);
    for (unsigned i = 0; i < fields.n_headers; i++) {
        buf_put_slice(&ours->message, headers[i].name);
        buf_put_char(&ours->message, ':');
        buf_put_slice(&ours->message, headers[i].value);
        buf_put_char(&ours->message, '\n');
    }
    ours->at += ours->head.head_bytes;
    ours->keep_alive = fields.keep_alive;
    ours->in_body = true;
    ours->body_at = ours->at;
    ours->chunked = fields.chunked;
    ours->left = fields.content_length;
    parse_chunks_init(&ours->chunks, limits, DIFFERENTIAL_BODY);
    return true;
}

static bool differential_body(struct differential_ours *ours, const char *p, size_t n)
{
    if (!ours->chunked) {
        size_t have = n - ours->at;
        if (have > ours->left)
            have = (size_t)ours->left;
        buf_put(&ours->body, p + ours->at, have);
        ours->at += have;
        ours->left -= have;
        if (ours->left)
            return false;
        differential_complete(ours);
        return true;
    }
    while (ours->at < n) {
        size_t used = 0;
        struct slice data;
        ours->result =
            parse_chunks(&ours->chunks, p + ours->at, n - ours->at, &used, &data, &ours->error);
        if (ours->result == PARSE_REFUSED)
            return false;
        buf_put_slice(&ours->body, data);
        ours->at += used;
        if (ours->result == PARSE_DONE) {
            if (!differential_chunks_are(p + ours->body_at, p + ours->at, buf_slice(&ours->body)))
                differential_fail("the chunks are not what was reported", p, n, 0);
            differential_complete(ours);
            return true;
        }
    }
    return false;
}

/* Goes on with p[0, n), which begins with all that was given before. */
static void differential_feed(struct differential_ours *ours, const char *bytes, size_t n)
{
    static const struct parse_limits limits = {16384, DIFFERENTIAL_HEADERS};
    if (ours->result != PARSE_MORE || !n)
        return;
    char *p = malloc(n); /* exactly: reading beyond it is seen by the sanitizer */
    assert(p);
    memcpy(p, bytes, n);
    bool more = true;
    while (more && ours->result == PARSE_MORE && ours->side.n < DIFFERENTIAL_MESSAGES &&
           (ours->at < n || ours->in_body)) {
        if (ours->in_body)
            more = differential_body(ours, p, n);
        else
            more = differential_head(ours, &limits, p, n);
        if (more && ours->in_body)
            ours->result = PARSE_MORE;
    }
    free(p);
}

static void differential_run_ours(struct differential_ours *ours, const char *p, size_t n,
                                  size_t cut)
{
    *ours = (struct differential_ours){.result = PARSE_MORE};
    differential_feed(ours, p, cut);
    differential_feed(ours, p, n);
    buf_fini(&ours->message);
    buf_fini(&ours->body);
}

/* ---- theirs ---- */

struct differential_theirs {
    struct differential_side side;
    struct buf target, message, body;
    struct buf value;
    bool in_value, head_done, unknown_method;
};

static struct differential_theirs *differential_of(http_parser *parser)
{
    return parser->data;
}

static void differential_end_value(struct differential_theirs *t)
{
    if (!t->in_value)
        return;
    while (t->value.n && (t->value.p[t->value.n - 1] == ' ' || t->value.p[t->value.n - 1] == '\t'))
        t->value.n--;
    buf_put_char(&t->message, ':');
    buf_put_slice(&t->message, buf_slice(&t->value));
    buf_put_char(&t->message, '\n');
    buf_clear(&t->value);
    t->in_value = false;
}

static int differential_on_begin(http_parser *parser)
{
    struct differential_theirs *t = differential_of(parser);
    buf_clear(&t->target);
    buf_clear(&t->message);
    buf_clear(&t->body);
    buf_clear(&t->value);
    t->in_value = t->head_done = false;
    return t->side.n == DIFFERENTIAL_MESSAGES;
}

static int differential_on_url(http_parser *parser, const char *p, size_t n)
{
    buf_put(&differential_of(parser)->target, p, n);
    return 0;
}

static int differential_on_field(http_parser *parser, const char *p, size_t n)
{
    struct differential_theirs *t = differential_of(parser);
    differential_end_value(t);
    if (!t->head_done)
        buf_put(&t->message, p, n);
    return 0;
}

static int differential_on_value(http_parser *parser, const char *p, size_t n)
{
    struct differential_theirs *t = differential_of(parser);
    if (t->head_done)
        return 0; /* a trailer */
    t->in_value = true;
    buf_put(&t->value, p, n);
    return 0;
}

static int differential_on_head(http_parser *parser)
{
    struct differential_theirs *t = differential_of(parser);
    differential_end_value(t);
    t->head_done = true;
    parser->upgrade = 0; /* nothing is upgraded: what follows is HTTP */
    return 0;
}

static int differential_on_body(http_parser *parser, const char *p, size_t n)
{
    buf_put(&differential_of(parser)->body, p, n);
    return 0;
}

static int differential_on_end(http_parser *parser)
{
    struct differential_theirs *t = differential_of(parser);
    struct buf head = {0};
    buf_printf(&head, "%s %.*s %u.%u\n", http_method_str((enum http_method)parser->method),
               (int)t->target.n, t->target.p ? t->target.p : "", parser->http_major,
               parser->http_minor);
    buf_put_slice(&head, buf_slice(&t->message));
    differential_put_message(&t->side, buf_slice(&head), buf_slice(&t->body));
    buf_fini(&head);
    return 0;
}

static void differential_run_theirs(struct differential_theirs *t, const char *p, size_t n)
{
    http_parser_settings settings;
    http_parser parser;
    http_parser_settings_init(&settings);
    settings.on_message_begin = differential_on_begin;
    settings.on_url = differential_on_url;
    settings.on_header_field = differential_on_field;
    settings.on_header_value = differential_on_value;
    settings.on_headers_complete = differential_on_head;
    settings.on_body = differential_on_body;
    settings.on_message_complete = differential_on_end;
    http_parser_init(&parser, HTTP_REQUEST);
    *t = (struct differential_theirs){0};
    parser.data = t;
    http_parser_execute(&parser, &settings, p, n);
    t->unknown_method = HTTP_PARSER_ERRNO(&parser) == HPE_INVALID_METHOD;
    buf_fini(&t->target);
    buf_fini(&t->message);
    buf_fini(&t->body);
    buf_fini(&t->value);
}

/* ---- both ---- */

static void differential_same_as_whole(const struct differential_ours *whole, const char *p,
                                       size_t n, size_t cut)
{
    struct differential_ours ours;
    differential_run_ours(&ours, p, n, cut);
    if (ours.result != whole->result || ours.side.n != whole->side.n ||
        ours.error.detail != whole->error.detail || ours.error.status != whole->error.status ||
        !slice_equal(buf_slice(&ours.side.text), buf_slice(&whole->side.text)))
        differential_fail("in two pieces the result is another", p, n, cut);
    buf_fini(&ours.side.text);
}

/* How many messages ours accepted. */
static unsigned differential_check(const char *p, size_t n, const size_t *cuts, size_t n_cuts)
{
    struct differential_ours ours;
    struct differential_theirs theirs;
    differential_run_ours(&ours, p, n, 0);
    differential_run_theirs(&theirs, p, n);
    unsigned known = ours.side.n;
    if (theirs.side.n < known && theirs.unknown_method)
        known = theirs.side.n;
    if (theirs.side.n < known)
        differential_fail("we accept a message that libhttp-parser refuses", p, n, 0);
    size_t bytes = known ? ours.side.end[known - 1] : 0;
    if (known && (theirs.side.end[known - 1] != bytes ||
                  memcmp(ours.side.text.p, theirs.side.text.p, bytes) != 0)) {
        fprintf(stderr, "ours:\n%.*s\ntheirs:\n%.*s\n", (int)bytes, ours.side.text.p,
                (int)theirs.side.text.n, theirs.side.text.p);
        differential_fail("we read a message in another way than libhttp-parser", p, n, 0);
    }
    for (size_t i = 0; i < n_cuts; i++)
        differential_same_as_whole(&ours, p, n, cuts[i]);
    unsigned accepted = ours.side.n;
    buf_fini(&ours.side.text);
    buf_fini(&theirs.side.text);
    return accepted;
}

#endif
