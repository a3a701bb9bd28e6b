/* slice.h: bytes that somebody else owns. Not terminated; may hold any byte. */
#ifndef WEIR_BASE_SLICE_H
#define WEIR_BASE_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

struct slice {
    const char *p;
    size_t n;
};

#define SLICE_LIT(literal) ((struct slice){(literal), sizeof(literal) - 1})

static inline struct slice slice_of(const char *s)
{
    return (struct slice){s, strlen(s)};
}

static inline bool slice_equal(struct slice a, struct slice b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}

static inline bool slice_is(struct slice a, const char *s)
{
    return slice_equal(a, slice_of(s));
}

/* Byte order as memcmp gives it, the shorter first: the order of ids everywhere. */
static inline int slice_compare(struct slice a, struct slice b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int c = n ? memcmp(a.p, b.p, n) : 0;
    return c ? c : (a.n > b.n) - (a.n < b.n);
}

#endif
