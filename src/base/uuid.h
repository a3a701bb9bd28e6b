/* uuid.h: UUIDv7 (RFC 9562): 48 bits of wall milliseconds, then a counter and random bits so
 * that ids made by one generator rise. A generator belongs to one thread. */
#ifndef WEIR_BASE_UUID_H
#define WEIR_BASE_UUID_H

#include <stdint.h>

#define UUID_TEXT 36

struct uuid_generator {
    uint64_t last_ms;
    uint64_t state[2]; /* random, seeded from the kernel */
    uint32_t counter;
};

void uuid_generator_init(struct uuid_generator *generator);
void uuid_v7(struct uuid_generator *generator, uint64_t wall_ms, char out[UUID_TEXT]);

#endif
