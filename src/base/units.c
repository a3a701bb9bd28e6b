/* units.c: sizes and durations as people write them (see units.h). */
#include "base/units.h"

#include <inttypes.h>
#include <stdio.h>

#include "weir/err.h"

struct unit {
    const char *name;
    uint64_t factor;
};

static const struct unit byte_units[] = {{"", 1},           {"B", 1},          {"KiB", 1u << 10},
                                         {"MiB", 1u << 20}, {"GiB", 1u << 30}, {"TiB", 1ull << 40},
                                         {"KB", 1000},      {"MB", 1000000},   {"GB", 1000000000}};

static const struct unit duration_units[] = {
    {"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}};

/* A whole decimal number followed by one of the units; overflow is a syntax error too: nobody
 * means such a number. */
static int parse(struct slice text, const struct unit *units, size_t n_units, uint64_t *out)
{
    uint64_t number = 0;
    size_t i = 0;
    for (; i < text.n && text.p[i] >= '0' && text.p[i] <= '9'; i++) {
        if (__builtin_mul_overflow(number, 10, &number) ||
            __builtin_add_overflow(number, (uint64_t)(text.p[i] - '0'), &number))
            return WEIR_SYNTAX;
    }
    if (i == 0)
        return WEIR_SYNTAX;
    struct slice name = {text.p + i, text.n - i};
    for (size_t u = 0; u < n_units; u++) {
        uint64_t value;
        if (!slice_is(name, units[u].name))
            continue;
        if (__builtin_mul_overflow(number, units[u].factor, &value))
            return WEIR_SYNTAX;
        *out = value;
        return 0;
    }
    return WEIR_SYNTAX;
}

int units_parse_bytes(struct slice text, uint64_t *out_bytes)
{
    return parse(text, byte_units, sizeof byte_units / sizeof byte_units[0], out_bytes);
}

int units_parse_duration(struct slice text, uint64_t *out_ms)
{
    return parse(text, duration_units, sizeof duration_units / sizeof duration_units[0], out_ms);
}

void units_format_bytes(uint64_t bytes, char out[24])
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;
    while (unit < 6 && bytes >> (10 * (unit + 1)))
        unit++;
    if (unit == 0) {
        snprintf(out, 24, "%" PRIu64 " B", bytes);
        return;
    }
    uint64_t whole = bytes >> (10 * unit);
    uint64_t rest = bytes & ((1ull << (10 * unit)) - 1);
    /* Tenths, rounded to the nearest; the top ten bits of the rest are enough for that. */
    uint64_t tenths = ((rest >> (10 * (unit - 1))) * 10 + 512) >> 10;
    if (tenths == 10) {
        tenths = 0;
        whole++;
    }
    if (whole == 1024 && unit < 6) {
        whole = 1;
        unit++;
    }
    /* Reduced to their digits so that the compiler can see that they fit. */
    if (tenths)
        snprintf(out, 24, "%u.%u %s", (unsigned)(whole % 1024), (unsigned)(tenths % 10),
                 names[unit]);
    else
        snprintf(out, 24, "%u %s", (unsigned)(whole % 1024), names[unit]);
}
