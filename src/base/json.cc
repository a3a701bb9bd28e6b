/* json.cc: doubles as text. */
#pragma GCC diagnostic push
/* C lets a function share its struct's name; C++ calls that hiding a constructor. */
#pragma GCC diagnostic ignored "-Wshadow"
#include "base/json.h"
#pragma GCC diagnostic pop

#include <charconv>
#include <cmath>
#include <cstring>

extern "C" size_t json_format_double(double v, char out[JSON_DOUBLE_TEXT])
{
    if (!std::isfinite(v)) {
        memcpy(out, "null", 4);
        return 4;
    }
    /* d[.ddd]e[+-]dd[d] with the fewest digits: taken apart and laid out again. */
    char text[JSON_DOUBLE_TEXT];
    char *end = std::to_chars(text, text + sizeof text, v, std::chars_format::scientific).ptr;
    char *p = out;
    const char *from = text;
    if (*from == '-')
        *p++ = *from++;
    char digits[20];
    int n = 0;
    for (; *from != 'e'; from++) {
        if (*from != '.')
            digits[n++] = *from;
    }
    bool negative = from[1] == '-';
    int exponent = 0;
    for (from += 2; from < end; from++)
        exponent = exponent * 10 + (*from - '0');
    if (negative)
        exponent = -exponent;

    if (exponent >= 16 || exponent < -4) {
        *p++ = digits[0];
        if (n > 1) {
            *p++ = '.';
            memcpy(p, digits + 1, (size_t)n - 1);
            p += n - 1;
        }
        *p++ = 'e';
        *p++ = negative ? '-' : '+';
        unsigned e = (unsigned)(negative ? -exponent : exponent);
        if (e >= 100)
            *p++ = (char)('0' + e / 100);
        *p++ = (char)('0' + e / 10 % 10);
        *p++ = (char)('0' + e % 10);
    } else if (exponent < 0) {
        *p++ = '0';
        *p++ = '.';
        for (int i = -1; i > exponent; i--)
            *p++ = '0';
        memcpy(p, digits, (size_t)n);
        p += n;
    } else {
        for (int i = 0; i <= exponent; i++)
            *p++ = i < n ? digits[i] : '0';
        *p++ = '.';
        if (n > exponent + 1) {
            memcpy(p, digits + exponent + 1, (size_t)(n - exponent - 1));
            p += n - exponent - 1;
        } else {
            *p++ = '0';
        }
    }
    return (size_t)(p - out);
}
