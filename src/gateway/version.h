/* version.h: the one counter of the process that stamps each record with its version.
 *
 * A version is milliseconds since 1970 x 2^20 plus a sequence, below 2^63.
 * Invariants: 1. versions rise strictly, over all threads and over restarts; 2. none is given out
 * above the ceiling that META holds durably, so a process that died may have used none at or above
 * what its successor starts from; 3. the ceiling only rises while the process runs.
 *
 * Threads: version_take on any thread, lock-free; the rest on the housekeeping thread, or before
 * and after it runs. */
#ifndef WEIR_GATEWAY_VERSION_H
#define WEIR_GATEWAY_VERSION_H

#include <stdatomic.h>
#include <stdint.h>

#define VERSION_SHIFT         20
#define VERSION_LIMIT         (UINT64_C(1) << 63)
#define VERSION_AHEAD_MS      60000 /* how far ahead of use a new ceiling lies */
#define VERSION_RAISE_WHEN_MS 30000 /* raised when less than this is left */

struct version_counter {
    _Alignas(64) _Atomic uint64_t last; /* the highest given out */
    _Atomic uint64_t ceiling;           /* the highest that may be given out */
};

/* Begins above `meta_ceiling` (what META held: an earlier process may have used all up to it).
 * Nothing is given out until version_raise. */
void version_init(struct version_counter *counter, uint64_t meta_ceiling);

/* The ceiling to write to META now, or 0 while enough is left. */
uint64_t version_ceiling_wanted(const struct version_counter *counter, uint64_t now_ms);
/* META holds it durably from now on. */
void version_raise(struct version_counter *counter, uint64_t ceiling);

/* Takes n versions in a row, the first of them in *first. WEIR_UNAVAILABLE at the ceiling: the
 * housekeeping thread could not raise it. */
int version_take(struct version_counter *counter, uint64_t now_ms, uint32_t n, uint64_t *first);

/* Ends giving out; returns the highest that was used: the ceiling that a clean stop leaves. */
uint64_t version_close(struct version_counter *counter);

#endif
