/* json_scan.c: where a JSON text is wrong, and why (see json_scan.h).
 *
 * A state machine over the text, one token a step; what is open is kept as one byte a level, so
 * depth costs no stack.
 *
 *   VALUE          a value must come                     -> read_value
 *   VALUE_OR_CLOSE after '['                             -> read_value, close_container
 *   NAME           after ',' in an object                -> read_name
 *   NAME_OR_CLOSE  after '{'                             -> read_name, close_container
 *   COLON          after a name                          -> VALUE
 *   AFTER          after a value: ',' or a closing one   -> VALUE, NAME, close_container; END at
 *                                                           depth 0
 */
#include "base/json_scan.h"

#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/mem.h"
#include "weir/err.h"

enum state { VALUE, VALUE_OR_CLOSE, NAME, NAME_OR_CLOSE, COLON, AFTER };

struct scan {
    const unsigned char *text;
    size_t n, at;
    enum state state;
    unsigned depth;
    char open[JSON_DEPTH_MAX]; /* '[' or '{' of each level */
    struct json_error *error;
};

static int fail(struct scan *scan, size_t offset, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static int fail(struct scan *scan, size_t offset, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    scan->error->offset = offset;
    vsnprintf(scan->error->reason, sizeof scan->error->reason, format, args);
    va_end(args);
    return WEIR_SYNTAX;
}

/* At scan->at stands something that cannot stand there. */
static int unexpected(struct scan *scan, const char *wanted)
{
    if (scan->at >= scan->n)
        return fail(scan, scan->n, "the text ends where %s must come", wanted);
    unsigned char c = scan->text[scan->at];
    if (c > ' ' && c < 0x7F)
        return fail(scan, scan->at, "unexpected '%c' where %s must come", c, wanted);
    return fail(scan, scan->at, "unexpected byte 0x%02x where %s must come", c, wanted);
}

size_t json_utf8_length(const unsigned char *p, size_t left)
{
    unsigned char c = p[0];
    size_t need = c < 0x80 ? 1 : c >= 0xF0 ? 4 : c >= 0xE0 ? 3 : 2;
    if (need == 1)
        return 1;
    if (c < 0xC2 || c > 0xF4 || left < need)
        return 0;
    for (size_t i = 1; i < need; i++) {
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    }
    if ((c == 0xE0 && p[1] < 0xA0) || (c == 0xED && p[1] > 0x9F) || (c == 0xF0 && p[1] < 0x90) ||
        (c == 0xF4 && p[1] > 0x8F))
        return 0;
    return need;
}

/* Four hex digits at offset `at`, or -1. */
static int hex4(const struct scan *scan, size_t at)
{
    int v = 0;
    if (scan->n < 4 || at > scan->n - 4)
        return -1;
    for (size_t i = at; i < at + 4; i++) {
        unsigned char c = scan->text[i];
        int digit = c >= '0' && c <= '9'   ? c - '0'
                    : c >= 'a' && c <= 'f' ? c - 'a' + 10
                    : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                           : -1;
        if (digit < 0)
            return -1;
        v = v << 4 | digit;
    }
    return v;
}

/* At a backslash inside a string. */
static int read_escape(struct scan *scan, bool name)
{
    size_t start = scan->at;
    unsigned char c = start + 1 < scan->n ? scan->text[start + 1] : 0;
    if (c && strchr("\"\\/bfnrt", c)) {
        scan->at += 2;
        return 0;
    }
    if (c != 'u')
        return fail(scan, start, "there is no such escape in a string");
    int unit = hex4(scan, start + 2);
    if (unit < 0)
        return fail(scan, start, "\\u must be followed by four hex digits");
    if (unit == 0 && name)
        return fail(scan, start, "U+0000 in a member name");
    scan->at += 6;
    if (unit < 0xD800 || unit > 0xDFFF)
        return 0;
    if (unit <= 0xDBFF && start + 7 < scan->n && scan->text[start + 6] == '\\' &&
        scan->text[start + 7] == 'u') {
        int low = hex4(scan, start + 8);
        if (low >= 0xDC00 && low <= 0xDFFF) {
            scan->at += 6;
            return 0;
        }
    }
    return fail(scan, start, "a surrogate without its other half");
}

/* At an opening quote. */
static int read_string(struct scan *scan, bool name)
{
    size_t start = scan->at++;
    while (scan->at < scan->n) {
        unsigned char c = scan->text[scan->at];
        if (c == '"') {
            scan->at++;
            return 0;
        }
        if (c == '\\') {
            int err = read_escape(scan, name);
            if (err)
                return err;
        } else if (c < 0x20) {
            return fail(scan, scan->at, "control character 0x%02x in a string; escape it", c);
        } else {
            size_t length = json_utf8_length(scan->text + scan->at, scan->n - scan->at);
            if (length == 0)
                return fail(scan, scan->at, "invalid UTF-8 in a string");
            scan->at += length;
        }
    }
    return fail(scan, scan->n, "the string that begins at byte %zu does not end", start);
}

static bool digit_at(const struct scan *scan, size_t at)
{
    return at < scan->n && scan->text[at] >= '0' && scan->text[at] <= '9';
}

/* Whether the number's digits (all from start to end, no sign) are within int64. */
static bool integer_fits(const unsigned char *p, size_t n, bool negative)
{
    uint64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, p[i] - '0', &v))
            return false;
    }
    return v <= (uint64_t)INT64_MAX + (negative ? 1 : 0);
}

static int check_double(struct scan *scan, size_t start, size_t end)
{
    char *copy = mem_try_alloc(end - start + 1);
    if (!copy)
        return fail(scan, start, "a number of %zu digits", end - start);
    memcpy(copy, scan->text + start, end - start);
    copy[end - start] = '\0';
    double v = strtod(copy, NULL);
    mem_free(copy);
    return isinf(v) ? fail(scan, start, "a number beyond the range of a double") : 0;
}

static int read_number(struct scan *scan)
{
    size_t start = scan->at, at = start;
    bool negative = scan->text[at] == '-', integer = true;
    at += negative;
    size_t digits = at;
    if (!digit_at(scan, at))
        return fail(scan, start, "a number needs a digit after '-'");
    while (digit_at(scan, at))
        at++;
    size_t digits_end = at;
    if (scan->text[digits] == '0' && digits_end - digits > 1)
        return fail(scan, start, "a number with a leading zero");
    if (at < scan->n && scan->text[at] == '.') {
        integer = false;
        if (!digit_at(scan, ++at))
            return fail(scan, start, "a number needs a digit after '.'");
        while (digit_at(scan, at))
            at++;
    }
    if (at < scan->n && (scan->text[at] == 'e' || scan->text[at] == 'E')) {
        integer = false;
        at++;
        if (at < scan->n && (scan->text[at] == '+' || scan->text[at] == '-'))
            at++;
        if (!digit_at(scan, at))
            return fail(scan, start, "a number needs a digit in its exponent");
        while (digit_at(scan, at))
            at++;
    }
    scan->at = at;
    if (!integer)
        return check_double(scan, start, at);
    if (!integer_fits(scan->text + digits, digits_end - digits, negative))
        return fail(scan, start, "integer outside -2^63..2^63-1");
    return 0;
}

static int read_word(struct scan *scan, const char *word)
{
    size_t n = strlen(word);
    if (scan->n - scan->at < n || memcmp(scan->text + scan->at, word, n) != 0)
        return unexpected(scan, "a value");
    scan->at += n;
    return 0;
}

static int open_container(struct scan *scan)
{
    char c = (char)scan->text[scan->at];
    if (scan->depth == JSON_DEPTH_MAX)
        return fail(scan, scan->at, "nesting over %d", JSON_DEPTH_MAX);
    scan->open[scan->depth++] = c;
    scan->at++;
    scan->state = c == '[' ? VALUE_OR_CLOSE : NAME_OR_CLOSE;
    return 0;
}

static void close_container(struct scan *scan)
{
    scan->depth--;
    scan->at++;
    scan->state = AFTER;
}

static int read_value(struct scan *scan)
{
    unsigned char c = scan->at < scan->n ? scan->text[scan->at] : 0;
    if (c == '{' || c == '[')
        return open_container(scan);
    scan->state = AFTER;
    switch (c) {
    case '"':
        return read_string(scan, false);
    case 't':
        return read_word(scan, "true");
    case 'f':
        return read_word(scan, "false");
    case 'n':
        return read_word(scan, "null");
    default:
        if (c == '-' || (c >= '0' && c <= '9'))
            return read_number(scan);
        return unexpected(scan, "a value");
    }
}

static int read_name(struct scan *scan)
{
    if (scan->at >= scan->n || scan->text[scan->at] != '"')
        return unexpected(scan, "a member name in quotes");
    scan->state = COLON;
    return read_string(scan, true);
}

/* After a value inside a container. */
static int read_after(struct scan *scan)
{
    bool object = scan->open[scan->depth - 1] == '{';
    unsigned char c = scan->at < scan->n ? scan->text[scan->at] : 0;
    if (c == ',') {
        scan->at++;
        scan->state = object ? NAME : VALUE;
        return 0;
    }
    if (c == (object ? '}' : ']')) {
        close_container(scan);
        return 0;
    }
    return unexpected(scan, object ? "',' or '}'" : "',' or ']'");
}

static void skip_space(struct scan *scan)
{
    while (scan->at < scan->n) {
        unsigned char c = scan->text[scan->at];
        if (c != ' ' && c != '\t' && c != '\n' && c != '\r')
            return;
        scan->at++;
    }
}

static int step(struct scan *scan)
{
    unsigned char c = scan->at < scan->n ? scan->text[scan->at] : 0;
    switch (scan->state) {
    case VALUE_OR_CLOSE:
        if (c == ']') {
            close_container(scan);
            return 0;
        }
        return read_value(scan);
    case VALUE:
        return read_value(scan);
    case NAME_OR_CLOSE:
        if (c == '}') {
            close_container(scan);
            return 0;
        }
        return read_name(scan);
    case NAME:
        return read_name(scan);
    case COLON:
        if (c != ':')
            return unexpected(scan, "':'");
        scan->at++;
        scan->state = VALUE;
        return 0;
    default:
        return read_after(scan);
    }
}

/* Whether the next step reads a value or a name. */
static bool at_token(const struct scan *scan)
{
    unsigned char c = scan->at < scan->n ? scan->text[scan->at] : 0;
    switch (scan->state) {
    case VALUE:
    case NAME:
        return true;
    case VALUE_OR_CLOSE:
        return c != ']';
    case NAME_OR_CLOSE:
        return c != '}';
    default:
        return false;
    }
}

int json_scan(const char *text, size_t n, uint64_t token, size_t *token_offset,
              struct json_error *error)
{
    struct scan scan;
    uint64_t tokens = 0;
    scan.text = (const unsigned char *)text;
    scan.n = n;
    scan.at = 0;
    scan.state = VALUE;
    scan.depth = 0;
    scan.error = error;
    if (n >= 3 && memcmp(text, "\xEF\xBB\xBF", 3) == 0)
        return fail(&scan, 0, "the text begins with a byte order mark; JSON has none");
    for (;;) {
        skip_space(&scan);
        if (scan.state == AFTER && scan.depth == 0)
            break;
        if (at_token(&scan) && ++tokens == token)
            *token_offset = scan.at;
        int err = step(&scan);
        if (err)
            return err;
    }
    return scan.at == n ? 0 : unexpected(&scan, "the end of the text");
}
