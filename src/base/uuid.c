/* uuid.c: UUIDv7 (see uuid.h).
 *
 * Layout (RFC 9562, section 5.7, with the fixed-length counter of section 6.2, method 1): 48 bits
 * of milliseconds, version, 12 bits and (after the variant) 14 bits of a 26-bit counter, 48 random
 * bits. The counter begins at a random number below half its range in every new millisecond; when
 * it overflows, or when the clock steps back, the generator goes on from the last millisecond it
 * gave out. The random bits are xoroshiro128+ (Blackman, Vigna 2018), seeded from the kernel: ids
 * are unique, not secret. */
#include "base/uuid.h"

#include <assert.h>
#include <errno.h>
#include <sys/random.h>

enum { COUNTER_BITS = 26 };

void uuid_generator_init(struct uuid_generator *generator)
{
    *generator = (struct uuid_generator){0};
    while (generator->state[0] == 0 && generator->state[1] == 0) {
        ssize_t n = getrandom(generator->state, sizeof generator->state, 0);
        assert(n == (ssize_t)sizeof generator->state || (n < 0 && errno == EINTR));
    }
}

static uint64_t rotate(uint64_t v, int by)
{
    return v << by | v >> (64 - by);
}

static uint64_t next_random(uint64_t state[2])
{
    uint64_t a = state[0], b = state[1], result = a + b;
    b ^= a;
    state[0] = rotate(a, 24) ^ b ^ b << 16;
    state[1] = rotate(b, 37);
    return result;
}

void uuid_v7(struct uuid_generator *generator, uint64_t wall_ms, char out[UUID_TEXT])
{
    uint64_t random = next_random(generator->state);
    if (wall_ms > generator->last_ms) {
        generator->last_ms = wall_ms;
        generator->counter = next_random(generator->state) >> (64 - (COUNTER_BITS - 1));
    } else if (++generator->counter >> COUNTER_BITS) {
        generator->last_ms++;
        generator->counter = 0;
    }
    uint64_t ms = generator->last_ms & 0xFFFFFFFFFFFF;
    uint64_t high = ms << 16 | 0x7000 | generator->counter >> 14;
    uint64_t low = (uint64_t)2 << 62 | (uint64_t)(generator->counter & 0x3FFF) << 48 | random >> 16;
    static const char digits[] = "0123456789abcdef";
    unsigned at = 0;
    for (int nibble = 0; nibble < 32; nibble++) {
        uint64_t half = nibble < 16 ? high : low;
        if (nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20)
            out[at++] = '-';
        out[at++] = digits[half >> (60 - 4 * (nibble % 16)) & 15];
    }
}
