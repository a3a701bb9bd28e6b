/* response.c: see response.h. One line at a time; a line that came whole is read where it lies, one
 * that was split is put together in `line` first.
 *
 *   STATUS_LINE -> HEADERS                      read_status
 *   HEADERS     -> STATUS_LINE (1xx), BODY, BODY_TO_END, CHUNK_SIZE, COMPLETE    end_of_head
 *   BODY        -> COMPLETE                     response_feed
 *   CHUNK_SIZE  -> CHUNK, TRAILERS              read_chunk_size
 *   CHUNK       -> CHUNK_END -> CHUNK_SIZE      response_feed
 *   TRAILERS    -> COMPLETE                     response_feed */
#include "load/response.h"

#include <strings.h>

#include "weir/err.h"

void response_begin(struct response *response)
{
    response->state = RESPONSE_STATUS_LINE;
    response->status = 0;
    response->close = false;
    response->chunked = false;
    response->has_length = false;
    response->old = false;
    response->left = 0;
    response->head_bytes = 0;
    buf_clear(&response->body);
    buf_clear(&response->line);
}

void response_fini(struct response *response)
{
    buf_fini(&response->body);
    buf_fini(&response->line);
}

bool response_begun(const struct response *response)
{
    return response->head_bytes > 0 || response->line.n > 0;
}

static bool name_is(struct slice name, const char *lower)
{
    return name.n == strlen(lower) && strncasecmp(name.p, lower, name.n) == 0;
}

/* "HTTP/1.1 202 Accepted" */
static int read_status(struct response *r, struct slice line)
{
    if (line.n < 12 || memcmp(line.p, "HTTP/1.", 7) != 0 ||
        (line.p[7] != '0' && line.p[7] != '1') || line.p[8] != ' ' ||
        (line.n > 12 && line.p[12] != ' '))
        return WEIR_SYNTAX;
    int status = 0;
    for (int i = 9; i < 12; i++) {
        if (line.p[i] < '0' || line.p[i] > '9')
            return WEIR_SYNTAX;
        status = status * 10 + (line.p[i] - '0');
    }
    if (status < 100 || status > 599)
        return WEIR_SYNTAX;
    r->status = status;
    r->old = line.p[7] == '0';
    r->close = r->old;
    r->chunked = r->has_length = false;
    r->state = RESPONSE_HEADERS;
    return 0;
}

static int read_length(struct response *r, struct slice value)
{
    uint64_t n = 0;
    if (value.n == 0 || value.n > 18 || r->has_length)
        return WEIR_SYNTAX;
    for (size_t i = 0; i < value.n; i++) {
        if (value.p[i] < '0' || value.p[i] > '9')
            return WEIR_SYNTAX;
        n = n * 10 + (uint64_t)(value.p[i] - '0');
    }
    r->has_length = true;
    r->left = n;
    return 0;
}

/* The tokens of a Connection header. */
static void read_connection(struct response *r, struct slice value)
{
    const char *p = value.p, *end = value.p + value.n;
    while (p < end) {
        const char *q = memchr(p, ',', (size_t)(end - p));
        if (!q)
            q = end;
        struct slice token = {p, (size_t)(q - p)};
        while (token.n > 0 && (*token.p == ' ' || *token.p == '\t')) {
            token.p++;
            token.n--;
        }
        while (token.n > 0 && (token.p[token.n - 1] == ' ' || token.p[token.n - 1] == '\t'))
            token.n--;
        if (name_is(token, "close"))
            r->close = true;
        else if (r->old && name_is(token, "keep-alive"))
            r->close = false;
        p = q + 1;
    }
}

static int read_header(struct response *r, struct slice line)
{
    const char *colon = memchr(line.p, ':', line.n);
    if (!colon || colon == line.p)
        return WEIR_SYNTAX;
    struct slice name = {line.p, (size_t)(colon - line.p)};
    struct slice value = {colon + 1, line.n - name.n - 1};
    for (size_t i = 0; i < name.n; i++)
        if (name.p[i] <= ' ' || name.p[i] >= 0x7f)
            return WEIR_SYNTAX; /* a folded line begins with a space, and lands here too */
    if (memchr(value.p, 0, value.n) || memchr(value.p, '\r', value.n))
        return WEIR_SYNTAX;
    while (value.n > 0 && (*value.p == ' ' || *value.p == '\t')) {
        value.p++;
        value.n--;
    }
    while (value.n > 0 && (value.p[value.n - 1] == ' ' || value.p[value.n - 1] == '\t'))
        value.n--;

    switch (name.n) { /* most headers differ in length already */
    case 10:
        if (name_is(name, "connection"))
            read_connection(r, value);
        return 0;
    case 14:
        return name_is(name, "content-length") ? read_length(r, value) : 0;
    case 17:
        if (!name_is(name, "transfer-encoding"))
            return 0;
        if (r->chunked || !name_is(value, "chunked"))
            return WEIR_SYNTAX;
        r->chunked = true;
        return 0;
    default:
        return 0;
    }
}

static int end_of_head(struct response *r)
{
    if (r->chunked && r->has_length)
        return WEIR_SYNTAX;
    if (r->status < 200) {
        if (r->status == 101)
            return WEIR_SYNTAX; /* nobody asked to switch */
        r->state = RESPONSE_STATUS_LINE;
    } else if (r->status == 204 || r->status == 304) {
        r->state = RESPONSE_COMPLETE;
    } else if (r->chunked) {
        r->state = RESPONSE_CHUNK_SIZE;
    } else if (r->has_length) {
        r->state = r->left ? RESPONSE_BODY : RESPONSE_COMPLETE;
    } else {
        r->close = true;
        r->state = RESPONSE_BODY_TO_END;
    }
    return 0;
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_chunk_size(struct response *r, struct slice line)
{
    uint64_t size = 0;
    size_t i = 0;
    for (; i < line.n && hex_digit(line.p[i]) >= 0; i++) {
        if (i == 15)
            return WEIR_SYNTAX;
        size = size << 4 | (uint64_t)hex_digit(line.p[i]);
    }
    if (i == 0 || (i < line.n && line.p[i] != ';' && line.p[i] != ' ' && line.p[i] != '\t'))
        return WEIR_SYNTAX;
    r->left = size;
    r->state = size ? RESPONSE_CHUNK : RESPONSE_TRAILERS;
    return 0;
}

static int read_line(struct response *r, struct slice line)
{
    switch (r->state) {
    case RESPONSE_STATUS_LINE:
        return read_status(r, line);
    case RESPONSE_HEADERS:
        return line.n ? read_header(r, line) : end_of_head(r);
    case RESPONSE_CHUNK_SIZE:
        return read_chunk_size(r, line);
    case RESPONSE_CHUNK_END:
        r->state = RESPONSE_CHUNK_SIZE;
        return line.n ? WEIR_SYNTAX : 0;
    default: /* RESPONSE_TRAILERS */
        if (line.n == 0)
            r->state = RESPONSE_COMPLETE;
        return 0;
    }
}

/* Reads one line, or keeps the beginning of one. */
static int feed_line(struct response *r, const char *p, size_t n, size_t *used)
{
    const char *newline = memchr(p, '\n', n);
    *used = newline ? (size_t)(newline + 1 - p) : n;
    if (r->state != RESPONSE_CHUNK_SIZE && r->state != RESPONSE_CHUNK_END)
        r->head_bytes += *used;
    if (r->line.n + *used > RESPONSE_LINE_MAX || r->head_bytes > RESPONSE_HEAD_MAX)
        return WEIR_TOO_LARGE;
    struct slice line = {p, *used};
    if (!newline || r->line.n > 0) {
        buf_put(&r->line, p, *used);
        if (!newline)
            return 0;
        line = buf_slice(&r->line);
    }
    if (line.n < 2 || line.p[line.n - 2] != '\r')
        return WEIR_SYNTAX;
    line.n -= 2;
    int err = read_line(r, line);
    buf_clear(&r->line);
    return err;
}

static int feed_body(struct response *r, const char *p, size_t n, size_t *used)
{
    size_t take = n;
    if (r->state != RESPONSE_BODY_TO_END && take > r->left)
        take = (size_t)r->left;
    if (r->keep_body) {
        if (r->body.n + take > RESPONSE_BODY_MAX)
            return WEIR_TOO_LARGE;
        buf_put(&r->body, p, take);
    } else if (r->status >= 400 && r->body.n < RESPONSE_WHY_MAX) {
        size_t room = RESPONSE_WHY_MAX - r->body.n;
        buf_put(&r->body, p, take < room ? take : room);
    }
    *used = take;
    if (r->state == RESPONSE_BODY_TO_END)
        return 0;
    r->left -= take;
    if (r->left == 0)
        r->state = r->state == RESPONSE_BODY ? RESPONSE_COMPLETE : RESPONSE_CHUNK_END;
    return 0;
}

int response_feed(struct response *response, const char *p, size_t n, size_t *used)
{
    struct response *r = response;
    size_t at = 0;
    while (at < n && r->state != RESPONSE_COMPLETE) {
        size_t took = 0;
        bool body = r->state == RESPONSE_BODY || r->state == RESPONSE_BODY_TO_END ||
                    r->state == RESPONSE_CHUNK;
        int err = body ? feed_body(r, p + at, n - at, &took) : feed_line(r, p + at, n - at, &took);
        at += took;
        if (err)
            return err;
    }
    *used = at;
    return r->state == RESPONSE_COMPLETE ? RESPONSE_DONE : RESPONSE_MORE;
}

int response_end(struct response *response)
{
    if (response->state != RESPONSE_BODY_TO_END)
        return WEIR_CLOSED;
    response->state = RESPONSE_COMPLETE;
    return RESPONSE_DONE;
}
