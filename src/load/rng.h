/* rng.h: random numbers for what is sent: splitmix64 (Steele, Lea, Flood 2014), small and fast, one
 * state a thread. Same seed, same numbers. */
#ifndef WEIR_LOAD_RNG_H
#define WEIR_LOAD_RNG_H

#include <stdint.h>

struct rng {
    uint64_t state;
};

static inline uint64_t rng_next(struct rng *rng)
{
    uint64_t z = (rng->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* 0 to n - 1 by the high half of a product (bias below n / 2^64). n > 0. */
static inline uint64_t rng_below(struct rng *rng, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)rng_next(rng) * n) >> 64);
}

static inline double rng_unit(struct rng *rng) /* [0, 1) */
{
    return (double)(rng_next(rng) >> 11) * 0x1p-53;
}

#endif
