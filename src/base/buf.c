/* buf.c: bytes that grow (see buf.h).
 *
 * Invariants: (1) p is NULL exactly while capacity is 0; (2) n <= capacity; (3) growth at least
 * doubles, so that n puts cost O(n). */
#include "base/buf.h"

#include <assert.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/json.h"
#include "base/mem.h"

void buf_fini(struct buf *buf)
{
    mem_free(buf->p);
    *buf = (struct buf){0};
}

void buf_reserve(struct buf *buf, size_t more)
{
    size_t need;
    if (more <= buf->capacity - buf->n)
        return;
    int overflow = __builtin_add_overflow(buf->n, more, &need);
    assert(!overflow);
    size_t capacity = buf->capacity ? buf->capacity : 64;
    while (capacity < need)
        capacity = capacity > SIZE_MAX / 2 ? need : capacity * 2;
    buf->p = mem_realloc(buf->p, capacity);
    buf->capacity = capacity;
}

char *buf_extend(struct buf *buf, size_t n)
{
    /* Room for one more, so that the result is never NULL, even for n == 0. */
    buf_reserve(buf, n + 1);
    char *at = buf->p + buf->n;
    buf->n += n;
    return at;
}

void buf_put(struct buf *buf, const void *p, size_t n)
{
    if (n == 0)
        return;
    buf_reserve(buf, n);
    memcpy(buf->p + buf->n, p, n);
    buf->n += n;
}

void buf_put_slice(struct buf *buf, struct slice s)
{
    buf_put(buf, s.p, s.n);
}

void buf_put_str(struct buf *buf, const char *s)
{
    buf_put(buf, s, strlen(s));
}

void buf_put_char(struct buf *buf, char c)
{
    buf_reserve(buf, 1);
    buf->p[buf->n++] = c;
}

void buf_put_u64(struct buf *buf, uint64_t v)
{
    char digits[20];
    size_t at = sizeof digits;
    do {
        digits[--at] = (char)('0' + v % 10);
        v /= 10;
    } while (v);
    buf_put(buf, digits + at, sizeof digits - at);
}

void buf_put_i64(struct buf *buf, int64_t v)
{
    if (v < 0)
        buf_put_char(buf, '-');
    /* Negated as unsigned: INT64_MIN has no positive counterpart. */
    buf_put_u64(buf, v < 0 ? 0 - (uint64_t)v : (uint64_t)v);
}

void buf_put_double(struct buf *buf, double v)
{
    buf_reserve(buf, JSON_DOUBLE_TEXT);
    buf->n += json_format_double(v, buf->p + buf->n);
}

/* 0: as it is; 'u': \u00XX; else the letter after the backslash. */
static char escape_of(unsigned char c)
{
    switch (c) {
    case '"':
    case '\\':
        return (char)c;
    case '\b':
        return 'b';
    case '\f':
        return 'f';
    case '\n':
        return 'n';
    case '\r':
        return 'r';
    case '\t':
        return 't';
    default:
        return c < 0x20 ? 'u' : 0;
    }
}

void buf_put_json_string(struct buf *buf, struct slice s)
{
    buf_reserve(buf, s.n + 2);
    buf_put_char(buf, '"');
    size_t from = 0;
    for (size_t i = 0; i < s.n; i++) {
        unsigned char c = (unsigned char)s.p[i];
        if (c >= 0x20 && c != '"' && c != '\\')
            continue;
        buf_put(buf, s.p + from, i - from);
        from = i + 1;
        char escape = escape_of(c);
        if (escape == 'u') {
            char text[6] = {
                '\\', 'u', '0', '0', (char)('0' + (c >> 4)), "0123456789abcdef"[c & 15]};
            buf_put(buf, text, sizeof text);
        } else {
            char text[2] = {'\\', escape};
            buf_put(buf, text, sizeof text);
        }
    }
    if (from < s.n)
        buf_put(buf, s.p + from, s.n - from);
    buf_put_char(buf, '"');
}

void buf_printf(struct buf *buf, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t room = buf->capacity - buf->n;
    int n = vsnprintf(buf->p ? buf->p + buf->n : NULL, room, format, args);
    assert(n >= 0);
    if ((size_t)n >= room) {
        buf_reserve(buf, (size_t)n + 1);
        vsnprintf(buf->p + buf->n, (size_t)n + 1, format, again);
    }
    va_end(again);
    va_end(args);
    buf->n += (size_t)n;
}

const char *buf_str(struct buf *buf)
{
    buf_reserve(buf, 1);
    buf->p[buf->n] = '\0';
    return buf->p;
}
