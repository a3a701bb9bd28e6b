/* dead.h: a sink's dead letters: an append-only file `data/dead/<sink>` of checksummed frames, each
 * synced before the call returns. Dropping appends a tombstone; opening compacts when more than
 * half is dropped. A torn tail is cut; a damaged frame further back is skipped, counted and
 * reported. Any thread (one mutex; it is held across file I/O, so: never on a loop). */
#ifndef WEIR_DELIVERY_DEAD_H
#define WEIR_DELIVERY_DEAD_H

#include "base/diag.h"
#include "os/fs.h"
#include "record/record.h"

struct dead;

struct dead_letter { /* slices live until the visit returns */
    uint64_t number; /* rises; names the entry to people */
    uint64_t time_ms;
    const char *sink, *stream_name, *reason;
    char position[64];
    struct record record;
};

int dead_open(const struct fs *fs, const char *data, const char *sink, uint64_t max_bytes,
              bool read_only, struct dead **out, struct diag *diag);
void dead_close(struct dead *dead);
/* All of them durable on return, or none added; one sync. Numbers are given in their order (the
 * letters' own are ignored). WEIR_FULL at the cap, WEIR_NO_SPACE and WEIR_IO (may be tried again),
 * WEIR_POISONED after a failed sync until restart. */
int dead_add(struct dead *dead, const struct dead_letter *letters, size_t n, struct diag *diag);
int dead_scan(struct dead *dead, int (*visit)(void *context, const struct dead_letter *letter),
              void *context, struct diag *diag); /* live entries, oldest first */
int dead_get(struct dead *dead, uint64_t number,
             int (*visit)(void *context, const struct dead_letter *letter), void *context,
             struct diag *diag);                                      /* WEIR_NOT_FOUND */
int dead_drop(struct dead *dead, uint64_t number, struct diag *diag); /* durable on return */
void dead_stats(struct dead *dead, uint64_t *letters, uint64_t *bytes);

/* What opening found wrong, in words for people; false: nothing. */
bool dead_damaged(struct dead *dead, char *text, size_t text_bytes);

#endif
