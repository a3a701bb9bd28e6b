/* trial_fs.h: the real file system, with operations that fail on demand and an account of them. */
#ifndef WEIR_TESTS_TRIAL_FS_H
#define WEIR_TESTS_TRIAL_FS_H

#include <errno.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../scratch.h"
#include "os/fs.h"
#include "weir/err.h"

/* Operations that change something are numbered from 1; those from fail_from to fail_to fail with
 * `error` (0: none do), and a write that fails leaves half of its bytes behind. */
static struct {
    _Atomic unsigned changes, fail_from, fail_to;
    _Atomic int error;
    _Atomic unsigned syncs, writes;
    _Atomic bool fail_writes, fail_syncs; /* by kind, whatever their number */
    const char *only;                     /* of files whose path contains this; NULL: all */
    /* Called after a sync of a file that succeeded. */
    void (*on_sync)(const char *path);
} trial;

struct trial_file {
    struct fs_file file;
    struct fs_file *below;
    char path[400];
};

static inline bool trial_hits(const char *path)
{
    return !trial.only || strstr(path, trial.only);
}

static inline int trial_change(const char *path, bool *fails)
{
    *fails = false;
    if (!trial_hits(path))
        return 0;
    unsigned n = atomic_fetch_add(&trial.changes, 1) + 1;
    if (!trial.fail_from || n < trial.fail_from || n > trial.fail_to)
        return 0;
    *fails = true;
    errno = trial.error == WEIR_NO_SPACE ? ENOSPC : EIO;
    return trial.error;
}

static inline int trial_open(const struct fs *fs, const char *path, int flags, struct fs_file **out)
{
    bool fails;
    int rc = flags & FS_CREATE ? trial_change(path, &fails) : 0;
    if (rc)
        return rc;
    struct fs_file *below;
    rc = fs_open(fs_posix(), path, flags, &below);
    if (rc)
        return rc;
    struct trial_file *f = calloc(1, sizeof(*f));
    f->file.fs = fs;
    f->file.fd = below->fd;
    f->below = below;
    snprintf(f->path, sizeof(f->path), "%s", path);
    *out = &f->file;
    return 0;
}

static inline void trial_close(struct fs_file *file)
{
    fs_close(((struct trial_file *)file)->below);
    free(file);
}

static inline int trial_pread(struct fs_file *file, void *p, size_t n, uint64_t offset,
                              size_t *out_n)
{
    return fs_posix()->pread(((struct trial_file *)file)->below, p, n, offset, out_n);
}

static inline int trial_pwrite(struct fs_file *file, const void *p, size_t n, uint64_t offset)
{
    struct trial_file *f = (struct trial_file *)file;
    bool fails;
    int rc = trial_change(f->path, &fails);
    if (trial.fail_writes && trial_hits(f->path)) {
        errno = ENOSPC;
        rc = WEIR_NO_SPACE;
    }
    if (rc) {
        int kept = errno;
        fs_posix()->pwrite(f->below, p, n / 2, offset);
        errno = kept;
        return rc;
    }
    atomic_fetch_add(&trial.writes, 1);
    return fs_posix()->pwrite(f->below, p, n, offset);
}

static inline int trial_datasync(struct fs_file *file)
{
    struct trial_file *f = (struct trial_file *)file;
    bool fails;
    int rc = trial_change(f->path, &fails);
    if (trial.fail_syncs && trial_hits(f->path)) {
        errno = EIO;
        rc = WEIR_IO;
    }
    if (rc)
        return rc;
    atomic_fetch_add(&trial.syncs, 1);
    if (trial.on_sync)
        trial.on_sync(f->path);
    return 0; /* the tests need the order, not the disk */
}

static inline int trial_truncate(struct fs_file *file, uint64_t size)
{
    struct trial_file *f = (struct trial_file *)file;
    bool fails;
    int rc = trial_change(f->path, &fails);
    return rc ? rc : fs_posix()->truncate(f->below, size);
}

static inline int trial_size(struct fs_file *file, uint64_t *out)
{
    return fs_posix()->size(((struct trial_file *)file)->below, out);
}

static inline int trial_lock(struct fs_file *file)
{
    return fs_posix()->lock(((struct trial_file *)file)->below);
}

static inline int trial_unlink(const struct fs *fs, const char *path)
{
    bool fails;
    int rc = trial_change(path, &fails);
    return rc ? rc : fs_posix()->unlink(fs, path);
}

static inline int trial_rename(const struct fs *fs, const char *from, const char *to)
{
    bool fails;
    int rc = trial_change(to, &fails);
    return rc ? rc : fs_posix()->rename(fs, from, to);
}

static inline int trial_mkdir(const struct fs *fs, const char *path)
{
    return fs_posix()->mkdir(fs, path);
}

static inline int trial_sync_dir(const struct fs *fs, const char *path)
{
    bool fails;
    (void)fs;
    return trial_change(path, &fails);
}

static inline int trial_list(const struct fs *fs, const char *path,
                             void (*name)(void *context, const char *name), void *context)
{
    return fs_posix()->list(fs, path, name, context);
}

static inline int trial_free_bytes(const struct fs *fs, const char *path, uint64_t *out)
{
    return fs_posix()->free_bytes(fs, path, out);
}

static inline const struct fs *trial_fs(void)
{
    static const struct fs fs = {
        .name = "trial",
        .open = trial_open,
        .close = trial_close,
        .pread = trial_pread,
        .pwrite = trial_pwrite,
        .datasync = trial_datasync,
        .truncate = trial_truncate,
        .size = trial_size,
        .lock = trial_lock,
        .unlink = trial_unlink,
        .rename = trial_rename,
        .mkdir = trial_mkdir,
        .sync_dir = trial_sync_dir,
        .list = trial_list,
        .free_bytes = trial_free_bytes,
    };
    return &fs;
}

static inline void trial_reset(void)
{
    memset(&trial, 0, sizeof(trial));
}

static inline char *trial_directory(void)
{
    return scratch_create();
}

static inline void trial_remove(char *path)
{
    scratch_remove(path);
    free(path);
}

#endif
