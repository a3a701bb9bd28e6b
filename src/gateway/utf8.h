/* utf8.h: is it UTF-8 (RFC 3629: no surrogates, nothing beyond U+10FFFF, no long forms). Any
 * thread. */
#ifndef WEIR_GATEWAY_UTF8_H
#define WEIR_GATEWAY_UTF8_H

#include "base/slice.h"

/* How many bytes from the start are whole, valid characters; s.n when all of it is. */
size_t utf8_valid_prefix(struct slice s);

static inline bool utf8_valid(struct slice s)
{
    return utf8_valid_prefix(s) == s.n;
}

#endif
