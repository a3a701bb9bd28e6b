/* http_fuzz.c: what our HTTP parser accepts, libhttp-parser accepts, with the same framing, and
 * ours gives the same however the bytes are cut (see tests/unit/http/differential.h). The input is
 * what a client sends. */
#include <stddef.h>
#include <stdint.h>

#include "../unit/http/differential.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n)
{
    /* Cuts that depend on the input, so that a find can be seen again from it alone. */
    uint64_t hash = 1469598103934665603u;
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 1099511628211u;
    size_t cuts[] = {hash % (n + 1), (hash >> 20) % (n + 1), (hash >> 40) % (n + 1)};
    differential_check((const char *)bytes, n, cuts, 3);
    return 0;
}
