/* clock.c: the two clocks (see clock.h). */
#include "base/clock.h"

#include <stdio.h>
#include <time.h>

uint64_t clock_mono_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint64_t clock_wall_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000u + (uint64_t)now.tv_nsec / 1000000u;
}

void clock_format_wall(uint64_t wall_ms, char out[25])
{
    /* The last moment with a four-digit year: 9999-12-31T23:59:59.999Z. */
    const uint64_t last_ms = 253402300799999u;
    if (wall_ms > last_ms)
        wall_ms = last_ms;
    time_t seconds = (time_t)(wall_ms / 1000);
    struct tm tm;
    gmtime_r(&seconds, &tm);
    /* Reduced to their digits so that the compiler can see that they fit. */
    snprintf(out, 25, "%04u-%02u-%02uT%02u:%02u:%02u.%03uZ", (unsigned)(tm.tm_year + 1900) % 10000,
             (unsigned)(tm.tm_mon + 1) % 100, (unsigned)tm.tm_mday % 100,
             (unsigned)tm.tm_hour % 100, (unsigned)tm.tm_min % 100, (unsigned)tm.tm_sec % 100,
             (unsigned)(wall_ms % 1000));
}
