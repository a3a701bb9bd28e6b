/* hash.c: XXH3 (see hash.h). */
#include "base/hash.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <sys/random.h>
#include <xxhash.h>

#include "weir/err.h"

uint64_t hash64(const void *p, size_t n)
{
    return XXH3_64bits(p, n);
}

uint64_t hash64_seeded(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(p, n, seed);
}

struct hash128 hash128(const void *p, size_t n)
{
    XXH128_hash_t h = XXH3_128bits(p, n);
    return (struct hash128){h.high64, h.low64};
}

static void format64(uint64_t v, char *out)
{
    for (int i = 15; i >= 0; i--, v >>= 4)
        out[i] = "0123456789abcdef"[v & 15];
}

void hash128_format(struct hash128 h, char out[33])
{
    format64(h.high, out);
    format64(h.low, out + 16);
    out[32] = '\0';
}

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int hash128_parse(const char *hex, size_t n, struct hash128 *out)
{
    uint64_t half[2] = {0, 0};
    if (n != 32)
        return WEIR_SYNTAX;
    for (size_t i = 0; i < 32; i++) {
        int digit = hex_digit(hex[i]);
        if (digit < 0)
            return WEIR_SYNTAX;
        half[i / 16] = half[i / 16] << 4 | (uint64_t)digit;
    }
    *out = (struct hash128){half[0], half[1]};
    return 0;
}

uint64_t hash_process_seed(void)
{
    static _Atomic uint64_t seed;
    /* Relaxed: the seed is the whole message, nothing else is published with it. */
    uint64_t now = atomic_load_explicit(&seed, memory_order_relaxed);
    if (now)
        return now;
    uint64_t fresh = 0;
    while (fresh == 0) {
        ssize_t n = getrandom(&fresh, sizeof fresh, 0);
        assert(n == (ssize_t)sizeof fresh || (n < 0 && errno == EINTR));
        if (n < 0)
            fresh = 0;
    }
    /* Of several first callers one wins, and all return its seed. */
    if (atomic_compare_exchange_strong_explicit(&seed, &now, fresh, memory_order_relaxed,
                                                memory_order_relaxed))
        return fresh;
    return now;
}
