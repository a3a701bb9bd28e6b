/* clock.h: the two clocks. Any thread. */
#ifndef WEIR_BASE_CLOCK_H
#define WEIR_BASE_CLOCK_H

#include <stdint.h>

uint64_t clock_mono_ns(void); /* CLOCK_MONOTONIC: deadlines, durations */
uint64_t clock_wall_ms(void); /* CLOCK_REALTIME since 1970: versions, times shown to people */

/* RFC 3339 UTC with milliseconds, "2026-11-30T16:22:43.123Z" (24 bytes and a terminator). */
void clock_format_wall(uint64_t wall_ms, char out[25]);

#endif
