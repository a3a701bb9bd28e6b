/* verify.h: reads a whole journal and says what is wrong with it, for `weir journal verify`.
 *
 * Works beside a live gateway: what is being written at the end is no damage, and segments that are
 * let go of meanwhile are left out. Blocking; any thread. */
#ifndef WEIR_LOG_JOURNAL_VERIFY_H
#define WEIR_LOG_JOURNAL_VERIFY_H

#include "base/diag.h"
#include "os/fs.h"

struct journal_verify {
    /* in */
    const struct fs *fs;
    const char *data; /* the data directory */
    void *context;
    /* For each damage (and, `damage` false, each remark), with file and byte. */
    void (*found)(void *context, bool damage, const char *text);
    /* out */
    uint64_t segments, groups, units, records, bytes; /* readable */
    uint64_t first_offset, end_offset;
    uint64_t damages;
};

/* 0: all was read, see `damages`. WEIR_NOT_FOUND: there is no journal; WEIR_NEWER, WEIR_IO. */
int journal_verify(struct journal_verify *verify, struct diag *diag);

#endif
