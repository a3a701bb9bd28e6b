/* segment.h: segment files by name and number, and the list of those that make up the log.
 *
 * A file `journal/0000000007.seg` is segment 7. Its header page says what it is (format.h): all
 * zeros or another number's header, then it is written through and waits to be begun; its own
 * number's header, then it has begun. Begun segments form a chain: each names the number and nonce
 * of the one before it, and its base is where that one ends.
 *
 * Functions are pure or do the file access they name; no thread of their own. */
#ifndef WEIR_LOG_JOURNAL_SEGMENT_H
#define WEIR_LOG_JOURNAL_SEGMENT_H

#include "base/diag.h"
#include "log/journal/format.h"
#include "os/fs.h"

#define SEGMENT_REWRITE "rewrite.tmp" /* the tail being written again; no part of the log */

/* One begun segment of the chain. */
struct segment {
    struct segment_header header;
    uint64_t end; /* LSN: the base of the next one; UINT64_MAX: the last one, still growing */
    bool damaged; /* its header cannot be read; base and end are where the next one begins, and
                     the one before it ends at an unknown place before that */
    uint64_t lost_after; /* the number of the one behind it, which is damaged or not there */
    uint64_t file_bytes;
};

/* A growing array of begun segments in the order of the log. */
struct segment_list {
    struct segment *items;
    size_t n, capacity;
};
void segment_list_fini(struct segment_list *list);
struct segment *segment_list_add(struct segment_list *list, const struct segment *segment);
void segment_list_remove_first(struct segment_list *list, size_t n);
/* The segment that holds this LSN (or, for the LSN of the end, the last one). NULL: the log does
 * not hold it: it is before the first, or lies in a segment that is damaged or not there. */
const struct segment *segment_list_find(const struct segment_list *list, uint64_t lsn);

/* A file of the folder that is not begun. */
struct segment_file {
    uint64_t number;
    uint64_t bytes; /* of the file */
    enum segment_state state;
};

/* What lies in the folder. */
struct segment_folder {
    struct segment_list begun;
    struct segment_file *others; /* by number: not begun or damaged */
    size_t n_others;
    uint64_t last_number; /* the highest number there is; 0: no file */
    bool rewrite_left;    /* SEGMENT_REWRITE lies there */
};
void segment_folder_fini(struct segment_folder *folder);

/* Reads all headers and links the chain: a file that vanishes meanwhile is left out.
 * Damaged files below the last begun one are in `begun`, marked; others are in `others`.
 * WEIR_NOT_FOUND: no such folder. WEIR_NEWER, WEIR_IO. */
int segment_folder_read(const struct fs *fs, const char *folder, struct segment_folder *out,
                        struct diag *diag);

char *segment_path(const char *folder, uint64_t number); /* to be freed */
void segment_name(uint64_t number, char out[32]);
/* Reads a header page: 0 and *state, or an error of the file system. */
int segment_header_load(struct fs_file *file, uint64_t number, struct segment_header *out,
                        enum segment_state *state);
/* Does a file that has not begun by its header hold groups from `base` on? (A recycled file holds
 * groups of long before.) A header that is neither zeros nor another number's makes it worth to
 * read the whole file; else its beginning is looked at. */
int segment_holds_groups(const struct fs *fs, const char *folder, const struct segment_file *file,
                         uint64_t base, bool *holds);
uint64_t segment_nonce(void); /* random, never 0 */

/* LSN to place in the file and back. */
static inline uint64_t segment_offset(const struct segment_header *header, uint64_t lsn)
{
    return SEGMENT_DATA + (lsn - header->base);
}
/* The first LSN that no longer fits in the segment. */
static inline uint64_t segment_limit(const struct segment_header *header)
{
    return header->base + (header->bytes - SEGMENT_DATA);
}

#endif
