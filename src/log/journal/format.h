/* format.h: the journal's bytes on disk: encoding, decoding, checking. Pure: no I/O, no state.
 *
 * The log is one endless run of bytes; an LSN is a place in it. It lies in segment files:
 *
 *     segment file   [ header, padded to 4096 ][ group ][ group ] ... [ not yet written ]
 *     group          [ header 80 ][ unit ][ unit ] ... [ trailer 8 ]          one flush
 *     unit           [ header 24 ][ record ][ record ] ... [ zeros to 8 ]     one body
 *     record         [ header 24 ][ id ][ key ][ attributes ][ doc ]
 *
 * Everything is little endian; groups and units begin at multiples of 8. Values of fields and flags
 * are on people's disks: they may be added to, never changed.
 *
 * What makes a group valid (group_check):
 *   1. its header's checksum holds, and magic, nonce, number and LSN are what is expected there;
 *   2. every unit's checksum holds and every unit names the LSN it lies at, so that a stale unit in
 *      a recycled file never passes for a fresh one;
 *   3. the units' checksums, folded together, are those of the header, so that a new header over an
 *      older attempt's units is no group;
 *   4. the trailer repeats the header's checksum, so that no part of a group is one: whoever was
 *      told that a write failed never finds it there later.
 * Any thread. */
#ifndef WEIR_LOG_JOURNAL_FORMAT_H
#define WEIR_LOG_JOURNAL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "record/record.h"

#define JOURNAL_FORMAT     1
#define JOURNAL_FIRST_LSN  4096 /* where the log begins: offset 0 is never a record's */
#define SEGMENT_DATA       4096 /* where a segment's groups begin */
#define SEGMENT_BYTES_MIN  (64u << 10)
#define SEGMENT_BYTES_MAX  (1u << 30)
#define GROUP_TRAILER      8
#define GROUP_OVERHEAD     (sizeof(struct group_header) + GROUP_TRAILER)
#define JOURNAL_PARTITIONS 65536 /* a record's partition takes 16 bits */

struct segment_header {
    uint64_t magic;
    uint32_t format;
    uint32_t reserved;
    uint64_t number;          /* as in the file's name; a recycled file still has its old one */
    uint64_t nonce;           /* random; every group in it repeats it */
    uint64_t base;            /* LSN of its first group: where the segment before it ends */
    uint64_t bytes;           /* size of the file when written through */
    uint64_t previous_number; /* 0: none */
    uint64_t previous_nonce;
    uint64_t first_group;    /* number of its first group */
    uint64_t records_before; /* records in the whole log before it */
    uint64_t checksum;       /* XXH3 of all before */
};

struct group_header {
    uint64_t magic;
    uint64_t nonce;   /* the segment's */
    uint64_t number;  /* groups are counted without a gap over the whole log */
    uint64_t lsn;     /* where this header lies */
    uint64_t durable; /* how far the log was known to be durable when this was written */
    uint64_t records_before;
    uint64_t units_fold; /* group_fold over the units' checksums */
    uint32_t payload;    /* bytes of units */
    uint32_t units;
    uint32_t records;
    uint32_t reserved;
    uint64_t checksum; /* XXH3 of all before */
};

struct unit_header {
    uint64_t checksum; /* XXH3 of the unit from `bytes` on */
    uint64_t lsn;      /* where this header lies: written by the log's thread, outside checksum */
    uint32_t bytes;    /* of the unit, header and padding with it */
    uint32_t records;
};

struct record_header {
    uint64_t version;
    uint32_t stream;
    uint32_t doc;
    uint16_t partition;
    uint16_t id;
    uint16_t key; /* RECORD_KEY_IS_ID: the same bytes as the id, not written twice */
    uint16_t attributes;
};
#define RECORD_KEY_IS_ID 0xffff

/* Segment headers. segment_header_seal fills magic, format and checksum. */
enum segment_state {
    SEGMENT_UNUSED,  /* zeros: written through, not begun */
    SEGMENT_FOREIGN, /* a whole header of another number: a recycled file, not begun */
    SEGMENT_BEGUN,
    SEGMENT_NEWER, /* of a format this program does not know */
    SEGMENT_DAMAGED,
};
void segment_header_seal(struct segment_header *header);
/* `page` is the first SEGMENT_DATA bytes (or what there is of them) of the file named by number. */
enum segment_state segment_header_check(const char *page, size_t n, uint64_t number,
                                        struct segment_header *out);

/* Groups. */
void group_header_seal(struct group_header *header);
uint64_t group_fold(uint64_t fold, uint64_t unit_checksum); /* begins with 0 */
/* Copies the header out of 80 bytes that are one: magic, nonce and checksum hold. */
bool group_header_read(const char *p, uint64_t nonce, struct group_header *out);
static inline size_t group_bytes(const struct group_header *header)
{
    return sizeof *header + header->payload + GROUP_TRAILER;
}
/* A whole group, its header already read with group_header_read. 0, or WEIR_CORRUPT and *why. */
int group_check(const char *group, const struct group_header *header, const char **why);

/* Units. */
size_t unit_bytes(const struct record *records, size_t n); /* SIZE_MAX: no unit can hold them */
void unit_encode(const struct record *records, size_t n, char *out, size_t bytes);
static inline void unit_place(char *unit, uint64_t lsn)
{
    memcpy(unit + offsetof(struct unit_header, lsn), &lsn, sizeof lsn);
}
/* The unit that is said to lie at p, of which `available` bytes are there. */
int unit_check(const char *p, size_t available, uint64_t lsn, struct unit_header *out,
               const char **why);

/* Walks the records of a checked unit; slices point into it. */
struct unit_walk {
    const char *at, *end;
    uint64_t lsn;
    uint32_t index, records;
};
void unit_walk_begin(struct unit_walk *walk, const char *unit, const struct unit_header *header);
/* 0, WEIR_END, or WEIR_CORRUPT when the checksum holds and the content does not. */
int unit_walk_next(struct unit_walk *walk, struct record *out);

#endif
