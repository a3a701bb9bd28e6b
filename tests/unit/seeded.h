/* seeded.h: random numbers for tests. The seed is printed, and WEIR_SEED sets it. */
#ifndef WEIR_TESTS_SEEDED_H
#define WEIR_TESTS_SEEDED_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct seeded {
    uint64_t state;
};

static inline uint64_t seeded_choose(void)
{
    const char *text = getenv("WEIR_SEED");
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    uint64_t seed =
        text ? strtoull(text, NULL, 0) : (uint64_t)now.tv_sec * 1000003 + (uint64_t)now.tv_nsec;
    printf("WEIR_SEED=%llu\n", (unsigned long long)seed);
    fflush(stdout);
    return seed;
}

/* splitmix64 (Steele, Lea, Flood, 2014) */
static inline uint64_t seeded_next(struct seeded *random)
{
    uint64_t z = (random->state += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static inline uint64_t seeded_below(struct seeded *random, uint64_t n)
{
    return seeded_next(random) % n;
}

#endif
