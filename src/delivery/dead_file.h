/* dead_file.h: the file under dead.h: a header, then frames, each with a checksum of its own.
 *
 *   header  32 bytes: "weirdead", u32 format, u32 zero, u64 first number free at creation,
 *           u64 nonce; then u64 checksum (40 bytes in all)
 *   frame   u64 checksum of all that follows, u32 magic, u32 payload bytes, u64 number, u32 kind,
 *           u32 check of these fields; payload; zeros up to a multiple of 8
 *
 * Invariants: 1. every checksum is seeded with the file's nonce, so bytes inside a record can
 * never pass for a frame; 2. a file has its final name only once its header is synced; 3. entries'
 * numbers rise within the file. Not thread-safe: dead.c holds its mutex. */
#ifndef WEIR_DELIVERY_DEAD_FILE_H
#define WEIR_DELIVERY_DEAD_FILE_H

#include "base/buf.h"
#include "delivery/dead.h"

#define DEAD_FILE_HEADER 40 /* where the first frame begins */

enum dead_frame_kind {
    DEAD_ENTRY = 1,   /* payload: the letter */
    DEAD_DROPPED = 2, /* payload: u64 size of the frame that is dropped */
};

struct dead_file {
    const struct fs *fs;
    struct fs_file *file;
    uint64_t nonce;
    uint64_t first_number; /* the header's: numbers given out from now on are at least this */
    uint64_t end;          /* of the last good frame; appends go here */
};

struct dead_frame {
    enum dead_frame_kind kind;
    uint64_t number, offset;
    size_t size;          /* header, payload and padding */
    struct slice payload; /* in the caller's or the walk's memory */
};

struct dead_damage {
    uint64_t places;     /* spans that hold no good frame but have one behind them */
    uint64_t bytes;      /* in these */
    uint64_t first_at;   /* offset of the first */
    uint64_t tail_bytes; /* behind the last good frame: a torn write */
};

/* Creates `path` by way of `temporary`: header synced, renamed, `directory` synced. */
int dead_file_create(const struct fs *fs, const char *path, const char *temporary,
                     const char *directory, uint64_t first_number, struct dead_file *out,
                     struct diag *diag);
/* The two halves of dead_file_create, for compaction, which writes frames in between. After a
 * failed publish with *replaced set it is not known which of the two files a crash would leave. */
int dead_file_begin(const struct fs *fs, const char *temporary, uint64_t first_number,
                    struct dead_file *out, struct diag *diag);
int dead_file_publish(struct dead_file *file, const char *path, const char *temporary,
                      const char *directory, bool read_write, bool *replaced, struct diag *diag);
/* WEIR_NOT_FOUND, WEIR_CORRUPT (header), WEIR_NEWER. `end` is not known before the walk. */
int dead_file_open(const struct fs *fs, const char *path, bool read_only, struct dead_file *out,
                   struct diag *diag);
void dead_file_close(struct dead_file *file);

/* Every good frame in order; sets end and *damage. visit != 0 ends it and is returned. */
int dead_file_walk(struct dead_file *file, int (*visit)(void *context, const struct dead_frame *f),
                   void *context, struct dead_damage *damage, struct diag *diag);
/* One frame at a known place, into `into`. WEIR_CORRUPT when it is not good (any more). */
int dead_file_read(const struct dead_file *file, uint64_t offset, struct buf *into,
                   struct dead_frame *out, struct diag *diag);

/* Appends one frame to `out`, as the file will hold it. */
void dead_frame_put(struct buf *out, uint64_t nonce, enum dead_frame_kind kind, uint64_t number,
                    struct slice payload);
size_t dead_frame_put_letter(struct buf *out, uint64_t nonce, uint64_t number,
                             const struct dead_letter *letter); /* the frame's size */
/* The letter of an entry; its slices point into the frame. WEIR_CORRUPT. */
int dead_frame_letter(const struct dead_frame *frame, const char *sink, struct dead_letter *out);

#endif
