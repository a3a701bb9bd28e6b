/* units.h: sizes and durations as people write them: "64MiB", "10GiB", "4096", "5s", "250ms", "1m".
 * WEIR_SYNTAX when it is neither; the whole text must be used. Any thread. */
#ifndef WEIR_BASE_UNITS_H
#define WEIR_BASE_UNITS_H

#include <stdint.h>

#include "base/slice.h"

int units_parse_bytes(struct slice text, uint64_t *out_bytes); /* B KiB MiB GiB TiB, KB MB GB */
int units_parse_duration(struct slice text,
                         uint64_t *out_ms);            /* ms s m h d; a bare number is refused */
void units_format_bytes(uint64_t bytes, char out[24]); /* "64 MiB", "1.5 GiB" */

#endif
