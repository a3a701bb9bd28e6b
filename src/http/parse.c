/* parse.c: heads (see parse.h).
 *
 * parse_head goes from control byte to control byte (16 bytes a step where the machine can), so
 * that a head which comes a byte at a time costs no second look at what was seen. Once the end is
 * found, every CR left in the head is part of a CRLF and no other control byte but HTAB is there;
 * parse_fields relies on it. */
#include "http/parse.h"

#include <assert.h>
#include <strings.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

enum { TOKEN = 1, HOST = 2, HEX = 4 };

/* RFC 9110 5.6.2 (token); RFC 3986 3.2.2 (reg-name, but for the comma, which joins lists). */
static const unsigned char class_of[256] = {
    ['0' ... '9'] = TOKEN | HOST | HEX,
    ['a' ... 'f'] = TOKEN | HOST | HEX,
    ['g' ... 'z'] = TOKEN | HOST,
    ['A' ... 'F'] = TOKEN | HOST | HEX,
    ['G' ... 'Z'] = TOKEN | HOST,
    ['!'] = TOKEN | HOST,
    ['$'] = TOKEN | HOST,
    ['&'] = TOKEN | HOST,
    ['\''] = TOKEN | HOST,
    ['*'] = TOKEN | HOST,
    ['+'] = TOKEN | HOST,
    ['-'] = TOKEN | HOST,
    ['.'] = TOKEN | HOST,
    ['_'] = TOKEN | HOST,
    ['~'] = TOKEN | HOST,
    ['#'] = TOKEN,
    ['%'] = TOKEN,
    ['^'] = TOKEN,
    ['`'] = TOKEN,
    ['|'] = TOKEN,
    ['('] = HOST,
    [')'] = HOST,
    [';'] = HOST,
    ['='] = HOST,
};

static bool is(char c, unsigned kind)
{
    return class_of[(unsigned char)c] & kind;
}

static enum parse_result refuse(struct parse_error *error, int status, const char *detail)
{
    *error = (struct parse_error){status, detail};
    return PARSE_REFUSED;
}

/* ---- pieces ---- */

bool parse_is_token(struct slice s)
{
    for (size_t i = 0; i < s.n; i++) {
        if (!is(s.p[i], TOKEN))
            return false;
    }
    return s.n > 0;
}

bool parse_same(struct slice s, const char *lower)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        if (c >= 'A' && c <= 'Z')
            c = (char)(c | 0x20);
        if (c != lower[i] || !c)
            return false;
    }
    return lower[s.n] == 0;
}

bool parse_decimal(struct slice s, uint64_t *out)
{
    uint64_t value = 0;
    if (s.n == 0)
        return false;
    for (size_t i = 0; i < s.n; i++) {
        unsigned digit = (unsigned char)s.p[i] - (unsigned)'0';
        if (digit > 9 || __builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, digit, &value))
            return false;
    }
    *out = value;
    return true;
}

/* Where the name ends, or 0 when it is malformed. An address in brackets: RFC 3986 IP-literal. */
static size_t host_name_bytes(struct slice s)
{
    size_t i = 0;
    if (s.p[0] == '[') {
        for (i = 1; i < s.n && s.p[i] != ']'; i++) {
            if (!is(s.p[i], HEX) && s.p[i] != ':' && s.p[i] != '.')
                return 0;
        }
        return i > 2 && i < s.n ? i + 1 : 0;
    }
    while (i < s.n && s.p[i] != ':') {
        if (s.p[i] == '%') {
            if (s.n - i < 3 || !is(s.p[i + 1], HEX) || !is(s.p[i + 2], HEX))
                return 0;
            i += 3;
        } else if (is(s.p[i], HOST)) {
            i++;
        } else {
            return 0;
        }
    }
    return i;
}

bool parse_is_host(struct slice s)
{
    if (s.n == 0)
        return true;
    size_t i = host_name_bytes(s);
    if (i == 0)
        return false;
    if (i == s.n)
        return true;
    uint64_t port = 0;
    if (s.p[i] != ':')
        return false;
    struct slice digits = {s.p + i + 1, s.n - i - 1};
    return digits.n == 0 || (parse_decimal(digits, &port) && port <= 65535);
}

/* ---- the first line ---- */

static enum parse_result parse_version(const char *p, size_t n, unsigned *minor,
                                       struct parse_error *error)
{
    if (n == 8 && memcmp(p, "HTTP/1.", 7) == 0 && (p[7] == '0' || p[7] == '1')) {
        *minor = (unsigned)(p[7] - '0');
        return PARSE_DONE;
    }
    if (n == 8 && memcmp(p, "HTTP/", 5) == 0 && p[5] >= '0' && p[5] <= '9' && p[6] == '.' &&
        p[7] >= '0' && p[7] <= '9')
        return refuse(error, 505, "only HTTP/1.1 and HTTP/1.0 are spoken here");
    return refuse(error, 400, "the request line does not end in an HTTP version");
}

static enum parse_result parse_request_line(struct parse_head *head, const char *p, size_t at,
                                            size_t end, struct parse_error *error)
{
    const char *line = p + at, *space = memchr(line, ' ', end - at);
    if (!space || !parse_is_token((struct slice){line, (size_t)(space - line)}))
        return refuse(error, 400, "the request line does not begin with a method and a space");
    head->method_bytes = (size_t)(space - line);
    head->target_at = at + head->method_bytes + 1;
    size_t i = head->target_at;
    /* Visible ASCII; what is not allowed in a URI ("|", "{") does no harm, and clients send it. */
    while (i < end && p[i] > 0x20 && p[i] < 0x7f && p[i] != '#')
        i++;
    head->target_bytes = i - head->target_at;
    if (head->target_bytes == 0)
        return refuse(error, 400, "the request line has no target after one space");
    if (i == end)
        return refuse(error, 400, "the request line has no HTTP version");
    if (p[i] != ' ')
        return refuse(error, 400, "the target holds a character that must be percent-encoded");
    head->fields_at = end + 2;
    return parse_version(p + i + 1, end - i - 1, &head->minor, error);
}

static enum parse_result parse_status_line(struct parse_head *head, const char *p, size_t at,
                                           size_t end, struct parse_error *error)
{
    const char *line = p + at;
    size_t n = end - at;
    if (n < 12 || line[8] != ' ' || (n > 12 && line[12] != ' '))
        return refuse(error, 400, "the status line is malformed");
    head->status = 0;
    for (int i = 9; i < 12; i++) {
        if (line[i] < '0' || line[i] > '9')
            return refuse(error, 400, "the status is not a number");
        head->status = head->status * 10 + (line[i] - '0');
    }
    if (head->status < 100)
        return refuse(error, 400, "the status is below 100");
    head->fields_at = end + 2;
    return parse_version(line, 8, &head->minor, error);
}

/* ---- the end of a head ---- */

/* The first control byte (HTAB among them) in [i, n), or n. */
static size_t next_control(const char *p, size_t i, size_t n)
{
#ifdef __SSE2__
    const __m128i below = _mm_set1_epi8(0x1f), del = _mm_set1_epi8(0x7f);
    for (; n - i >= 16; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(p + i));
        __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(bytes, below), bytes);
        int mask = _mm_movemask_epi8(_mm_or_si128(low, _mm_cmpeq_epi8(bytes, del)));
        if (mask)
            return i + (size_t)__builtin_ctz((unsigned)mask);
    }
#endif
    while (i < n && (unsigned char)p[i] >= 0x20 && p[i] != 0x7f)
        i++;
    return i;
}

static enum parse_result refuse_control(char c, struct parse_error *error)
{
    switch (c) {
    case '\n':
        return refuse(error, 400, "a line of the head ends in LF without CR");
    case '\r':
        return refuse(error, 400, "the head holds CR without LF");
    case 0:
        return refuse(error, 400, "the head holds a NUL byte");
    default:
        return refuse(error, 400, "the head holds a control byte");
    }
}

/* A line [head->line_at, end) is complete. */
static enum parse_result end_of_line(struct parse_head *head, const char *p, size_t end,
                                     struct parse_error *error)
{
    size_t at = head->line_at;
    head->line_at = end + 2;
    if (head->first_line_done) {
        if (at != end)
            return PARSE_MORE;
        head->head_bytes = end + 2;
        return PARSE_DONE;
    }
    if (at == end) {
        if (at > 0 || head->response)
            return refuse(error, 400, "more than one empty line stands before the first line");
        head->skipped = 2;
        return PARSE_MORE;
    }
    head->first_line_done = true;
    enum parse_result result = head->response ? parse_status_line(head, p, at, end, error)
                                              : parse_request_line(head, p, at, end, error);
    return result == PARSE_DONE ? PARSE_MORE : result;
}

enum parse_result parse_head(struct parse_head *head, const struct parse_limits *limits,
                             const char *p, size_t n, struct parse_error *error)
{
    bool over = n >= limits->head_bytes;
    size_t i = head->scanned, last = over ? limits->head_bytes : n;
    while ((i = next_control(p, i, last)) < last) {
        if (p[i] == '\t' && head->first_line_done) {
            i++;
            continue;
        }
        if (p[i] != '\r')
            return refuse_control(p[i], error);
        if (i + 1 == last)
            break;
        if (p[i + 1] != '\n')
            return refuse_control('\r', error);
        enum parse_result result = end_of_line(head, p, i, error);
        if (result != PARSE_MORE)
            return result;
        i += 2;
    }
    head->scanned = i;
    if (over)
        return refuse(error, 431, "the head of the request is larger than the limit");
    return PARSE_MORE;
}

/* ---- fields ---- */

struct framing { /* what the fields seen so far say */
    bool host, length, coding, close, keep;
};

static struct slice trim(struct slice s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (struct slice){s.p + 1, s.n - 1};
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

static void read_connection(struct slice value, struct framing *framing)
{
    while (value.n) {
        const char *comma = memchr(value.p, ',', value.n);
        size_t n = comma ? (size_t)(comma - value.p) : value.n;
        struct slice option = trim((struct slice){value.p, n});
        if (parse_same(option, "close"))
            framing->close = true;
        else if (parse_same(option, "keep-alive"))
            framing->keep = true;
        n += comma != NULL;
        value = (struct slice){value.p + n, value.n - n};
    }
}

/* Allowed by the letter, but parsers disagree about it: no HTAB around what decides the framing. */
static bool has_tab_around(struct slice value)
{
    const char *before = value.p - 1, *behind = value.p + value.n;
    while (*before == ' ')
        before--;
    while (*behind == ' ')
        behind++;
    return *before == '\t' || *behind == '\t';
}

static enum parse_result read_field(const struct parse_head *head, struct slice name,
                                    struct slice value, struct framing *framing,
                                    struct parse_fields *fields, struct parse_error *error)
{
    switch (name.n) {
    case 4:
        if (!parse_same(name, "host") || head->response)
            break;
        if (framing->host)
            return refuse(error, 400, "there are two Host headers");
        if (!parse_is_host(value))
            return refuse(error, 400, "the Host header is not a host and a port");
        framing->host = true;
        fields->host = value;
        break;
    case 6:
        if (!parse_same(name, "expect") || head->response || head->minor == 0)
            break;
        if (!parse_same(value, "100-continue"))
            return refuse(error, 417, "only the expectation 100-continue can be met");
        fields->expect_continue = true;
        break;
    case 10:
        if (parse_same(name, "connection"))
            read_connection(value, framing);
        break;
    case 14:
        if (!parse_same(name, "content-length"))
            break;
        if (framing->length)
            return refuse(error, 400, "there are two Content-Length headers");
        if (has_tab_around(value) || !parse_decimal(value, &fields->content_length))
            return refuse(error, 400, "the Content-Length is not one number");
        framing->length = fields->has_length = true;
        break;
    case 17:
        if (!parse_same(name, "transfer-encoding"))
            break;
        if (framing->coding)
            return refuse(error, 400, "there are two Transfer-Encoding headers");
        if (has_tab_around(value) || !parse_same(value, "chunked"))
            return refuse(error, 400, "the only Transfer-Encoding accepted is chunked");
        if (head->minor == 0)
            return refuse(error, 400, "HTTP/1.0 has no Transfer-Encoding");
        framing->coding = fields->chunked = true;
        break;
    default:
        /* libhttp-parser, and what is built on it, takes such a name for the real one. */
        if (name.n > 17 && parse_same((struct slice){name.p, 17}, "transfer-encoding"))
            return refuse(error, 400, "a header's name begins with Transfer-Encoding");
        break;
    }
    return PARSE_DONE;
}

static enum parse_result read_line(const char *line, size_t n, struct http_header *header,
                                   struct parse_error *error)
{
    size_t i = 0;
    while (i < n && is(line[i], TOKEN))
        i++;
    if (i < n && line[i] == ':' && i > 0) {
        header->name = (struct slice){line, i};
        header->value = trim((struct slice){line + i + 1, n - i - 1});
        return PARSE_DONE;
    }
    if (line[0] == ' ' || line[0] == '\t')
        return refuse(error, 400, "a header line is folded");
    if (i == n)
        return refuse(error, 400, "a header line has no colon");
    if (line[i] == ':')
        return refuse(error, 400, "a header has no name");
    if (line[i] == ' ' || line[i] == '\t')
        return refuse(error, 400, "there is white space in or behind a header's name");
    return refuse(error, 400, "a header's name holds a character that is not allowed in one");
}

/* RFC 9112 3.2: origin form, absolute form, or the asterisk of OPTIONS. */
static enum parse_result read_target(const struct parse_head *head, const char *p,
                                     struct parse_fields *fields, bool has_host,
                                     struct parse_error *error)
{
    struct slice method = {p + head->skipped, head->method_bytes};
    struct slice target = {p + head->target_at, head->target_bytes}, rest = target;
    if (slice_is(method, "CONNECT"))
        return refuse(error, 400, "CONNECT is for proxies");
    if (slice_is(target, "*") && !slice_is(method, "OPTIONS"))
        return refuse(error, 400, "the target * is for OPTIONS only");
    if (target.p[0] != '/' && !slice_is(target, "*")) {
        size_t scheme = target.n >= 7 && parse_same((struct slice){target.p, 7}, "http://")    ? 7
                        : target.n >= 8 && parse_same((struct slice){target.p, 8}, "https://") ? 8
                                                                                               : 0;
        if (!scheme)
            return refuse(error, 400, "the target does not begin with /");
        size_t end = scheme;
        while (end < target.n && target.p[end] != '/' && target.p[end] != '?')
            end++;
        struct slice authority = {target.p + scheme, end - scheme};
        if (authority.n == 0 || !parse_is_host(authority))
            return refuse(error, 400, "the target's authority is not a host and a port");
        if (has_host && (authority.n != fields->host.n ||
                         strncasecmp(authority.p, fields->host.p, authority.n) != 0))
            return refuse(error, 400, "the target names another host than the Host header");
        rest = (struct slice){target.p + end, target.n - end};
    }
    const char *question = memchr(rest.p, '?', rest.n);
    size_t path_bytes = question ? (size_t)(question - rest.p) : rest.n;
    fields->target = target;
    fields->path = path_bytes ? (struct slice){rest.p, path_bytes} : SLICE_LIT("/");
    fields->query =
        question ? (struct slice){question + 1, rest.n - path_bytes - 1} : (struct slice){NULL, 0};
    return PARSE_DONE;
}

enum parse_result parse_fields(const struct parse_head *head, const struct parse_limits *limits,
                               const char *p, struct http_header *headers,
                               struct parse_fields *fields, struct parse_error *error)
{
    struct framing framing = {0};
    *fields = (struct parse_fields){0};
    const char *line = p + head->fields_at, *last = p + head->head_bytes - 2;
    while (line < last) {
        const char *end = memchr(line, '\r', (size_t)(last - line) + 1);
        assert(end);
        if (fields->n_headers == limits->headers)
            return refuse(error, 431, "there are more headers than the limit allows");
        struct http_header *header = &headers[fields->n_headers];
        if (read_line(line, (size_t)(end - line), header, error) != PARSE_DONE ||
            read_field(head, header->name, header->value, &framing, fields, error) != PARSE_DONE)
            return PARSE_REFUSED;
        fields->n_headers++;
        line = end + 2;
    }
    if (framing.length && framing.coding)
        return refuse(error, 400, "there are both a Content-Length and a Transfer-Encoding");
    if (!framing.host && head->minor == 1 && !head->response)
        return refuse(error, 400, "there is no Host header");
    fields->keep_alive = !framing.close && (head->minor == 1 || framing.keep);
    if (head->response)
        return PARSE_DONE;
    return read_target(head, p, fields, framing.host, error);
}
