/* trace.c: see trace.h. */
#include "gateway/trace.h"

#include "record/attributes.h"

#define PARENT_BYTES 55 /* 00-<32>-<16>-<2> */
#define STATE_MAX    512

static bool hex(const char *p, size_t n, bool *all_zero)
{
    *all_zero = true;
    for (size_t i = 0; i < n; i++) {
        if (!((p[i] >= '0' && p[i] <= '9') || (p[i] >= 'a' && p[i] <= 'f')))
            return false;
        if (p[i] != '0')
            *all_zero = false;
    }
    return true;
}

bool trace_parent_valid(struct slice s)
{
    bool zero;
    if (s.n < PARENT_BYTES || s.n > 256 || s.p[2] != '-' || s.p[35] != '-' || s.p[52] != '-')
        return false;
    if (!hex(s.p, 2, &zero) || (s.p[0] == 'f' && s.p[1] == 'f'))
        return false;
    /* Version 00 has nothing behind its flags; a later one may, after a dash. */
    if (s.n > PARENT_BYTES && (zero || s.p[PARENT_BYTES] != '-'))
        return false;
    if (!hex(s.p + 3, 32, &zero) || zero)
        return false;
    if (!hex(s.p + 36, 16, &zero) || zero)
        return false;
    return hex(s.p + 53, 2, &zero);
}

static bool printable(struct slice s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < 0x20 || s.p[i] > 0x7e)
            return false;
    return true;
}

void trace_attributes(struct slice traceparent, struct slice tracestate, struct buf *encoded)
{
    if (!trace_parent_valid(traceparent) || !printable(traceparent))
        return;
    attributes_put(encoded, SLICE_LIT("traceparent"), traceparent);
    if (tracestate.n > 0 && tracestate.n <= STATE_MAX && printable(tracestate))
        attributes_put(encoded, SLICE_LIT("tracestate"), tracestate);
}
