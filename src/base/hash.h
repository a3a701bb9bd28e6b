/* hash.h: XXH3, the one hash of weir: partitions, checksums, content hashes. Any thread. */
#ifndef WEIR_BASE_HASH_H
#define WEIR_BASE_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct hash128 {
    uint64_t high, low;
};

uint64_t hash64(const void *p, size_t n);                       /* seed 0 */
uint64_t hash64_seeded(const void *p, size_t n, uint64_t seed); /* for tables that strangers fill */
struct hash128 hash128(const void *p, size_t n);

static inline bool hash128_equal(struct hash128 a, struct hash128 b)
{
    return a.high == b.high && a.low == b.low;
}

void hash128_format(struct hash128 h, char out[33]);               /* 32 hex digits, high first */
int hash128_parse(const char *hex, size_t n, struct hash128 *out); /* WEIR_SYNTAX */

/* A random 64-bit seed from the kernel, one per process. */
uint64_t hash_process_seed(void);

#endif
