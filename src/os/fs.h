/* fs.h: every file access of weir goes through this table, so that faults and power cuts can be
 * injected beneath the journal, the cursors, the dead letters and SQLite alike.
 *
 * Two implementations: fs_posix() (the real one) and the fault file system (fs_fault.h), which
 * wraps it. Blocking; never call from a loop thread. Any thread, but one file's writes are the
 * caller's to order. Errors: WEIR_NO_SPACE (ENOSPC, EDQUOT), WEIR_NOT_FOUND, WEIR_EXISTS,
 * WEIR_DENIED, WEIR_LOCKED, else WEIR_IO; errno is left as the system set it, for the message. */
#ifndef WEIR_OS_FS_H
#define WEIR_OS_FS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fs_file {
    const struct fs *fs;
    int fd;
    void *state; /* the implementation's */
};

enum fs_open {
    FS_READ = 0,
    FS_WRITE = 1,     /* read and write */
    FS_CREATE = 2,    /* with FS_WRITE: create when missing */
    FS_EXCLUSIVE = 4, /* with FS_CREATE: WEIR_EXISTS when it is there */
    FS_TRUNCATE = 8,
};

struct fs {
    const char *name;
    void *state;
    int (*open)(const struct fs *fs, const char *path, int flags, struct fs_file **out);
    void (*close)(struct fs_file *file);
    /* Reads up to n bytes; *out_n < n only at the end of the file. */
    int (*pread)(struct fs_file *file, void *p, size_t n, uint64_t offset, size_t *out_n);
    /* Writes all n bytes or fails; after a failure any prefix may have been written. */
    int (*pwrite)(struct fs_file *file, const void *p, size_t n, uint64_t offset);
    int (*datasync)(struct fs_file *file); /* fdatasync; after a failure: stop, do not guess */
    int (*truncate)(struct fs_file *file, uint64_t size);
    int (*size)(struct fs_file *file, uint64_t *out);
    int (*lock)(struct fs_file *file); /* exclusive, whole file, not waiting; WEIR_LOCKED */
    int (*unlink)(const struct fs *fs, const char *path);
    int (*rename)(const struct fs *fs, const char *from, const char *to);
    int (*mkdir)(const struct fs *fs, const char *path); /* 0700; 0 when it is there already */
    int (*sync_dir)(const struct fs *fs, const char *path);
    /* Calls name() for each entry but "." and "..", in no order; the fs may not be changed
     * meanwhile. */
    int (*list)(const struct fs *fs, const char *path,
                void (*name)(void *context, const char *name), void *context);
    int (*free_bytes)(const struct fs *fs, const char *path, uint64_t *out);
};

const struct fs *fs_posix(void);

/* The process's file system: fs_posix() unless a test program chose another before it started
 * threads. The gateway and the commands use this one. Any thread. */
const struct fs *fs_current(void);
void fs_use(const struct fs *fs);

int fs_error(int errno_value); /* the code above that an errno becomes */

/* Shorthands over the table. */
int fs_open(const struct fs *fs, const char *path, int flags, struct fs_file **out);
void fs_close(struct fs_file *file); /* NULL is fine */
int fs_pread_all(struct fs_file *file, void *p, size_t n,
                 uint64_t offset); /* WEIR_END when short */
/* Makes the directory and what is missing above it; the entries are durable on return. */
int fs_mkdirs(const struct fs *fs, const char *path);
int fs_sync_parent(const struct fs *fs, const char *path); /* sync_dir of the folder it is in */
/* The whole file, terminated, to be freed with mem_free; WEIR_TOO_LARGE over max. */
int fs_read_file(const struct fs *fs, const char *path, size_t max, char **out, size_t *out_n);
/* Replaces the file so that after a crash it holds the old or the new content, whole: temporary
 * file `path.tmp` beside it, datasync, rename, sync_dir. One caller a path at a time. */
int fs_replace_file(const struct fs *fs, const char *path, const void *p, size_t n);

#endif
