/* utf8.c: see utf8.h. The ranges are those of RFC 3629, section 4. */
#include "gateway/utf8.h"

/* The length of the character at p, of which n bytes are there; 0 when it is not one. */
static size_t utf8_char(const unsigned char *p, size_t n)
{
    unsigned char low = 0x80, high = 0xbf;
    size_t length;
    if (p[0] < 0x80)
        return 1;
    if (p[0] < 0xc2 || p[0] > 0xf4)
        return 0;
    if (p[0] < 0xe0) {
        length = 2;
    } else if (p[0] < 0xf0) {
        length = 3;
        if (p[0] == 0xe0)
            low = 0xa0;
        else if (p[0] == 0xed)
            high = 0x9f;
    } else {
        length = 4;
        if (p[0] == 0xf0)
            low = 0x90;
        else if (p[0] == 0xf4)
            high = 0x8f;
    }
    if (n < length || p[1] < low || p[1] > high)
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

size_t utf8_valid_prefix(struct slice s)
{
    size_t at = 0;
    while (at < s.n) {
        size_t length = utf8_char((const unsigned char *)s.p + at, s.n - at);
        if (length == 0)
            break;
        at += length;
    }
    return at;
}
