/* walk.h: reads a segment's groups from a file, each checked whole, in bounded memory (one group
 * and the piece of file it came in). For opening, scanning and verifying; consumers' readers have
 * their own way (reader.c), which hands out what it reads.
 *
 * One thread. */
#ifndef WEIR_LOG_JOURNAL_WALK_H
#define WEIR_LOG_JOURNAL_WALK_H

#include "log/journal/format.h"
#include "os/fs.h"

struct walk {
    /* set by walk_begin */
    struct fs_file *file; /* the caller's */
    struct segment_header header;
    uint64_t limit; /* LSN: nothing at or behind it is looked at */
    /* where it stands; moved by walk_next */
    uint64_t lsn;
    uint64_t number, records_before; /* what the next group must say */
    const char *why;                 /* what is wrong with the frame at lsn, after WEIR_CORRUPT */
    /* the piece of file in memory */
    char *buffer;
    size_t capacity, n;
    uint64_t buffer_lsn;
};

void walk_begin(struct walk *walk, struct fs_file *file, const struct segment_header *header,
                uint64_t limit);
void walk_end(struct walk *walk);

/* The next group: *header, and *units points at its header->payload bytes of units until the next
 * call. WEIR_END at the limit; WEIR_CORRUPT: no valid group lies here (nothing moves; *why is set),
 * which at the end of the last segment is how the log ends; WEIR_IO, WEIR_NO_MEMORY. */
int walk_next(struct walk *walk, struct group_header *header, const char **units);

/* From behind the bad frame at walk->lsn on, the first place with a group header of this segment
 * whose checksum holds. 0 and *found; WEIR_END: there is none. Does not move the walk. */
int walk_search(struct walk *walk, uint64_t from, struct group_header *found);
/* Goes on at a group found by walk_search. */
void walk_resume(struct walk *walk, const struct group_header *found);

#endif
