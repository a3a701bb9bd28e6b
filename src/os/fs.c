/* fs.c: shorthands over the file table, and which table the process uses (see fs.h). */
#include <errno.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "os/fs.h"
#include "weir/err.h"

static _Atomic(const struct fs *) in_use;

const struct fs *fs_current(void)
{
    /* acquire: with fs_use's release, the table is seen filled */
    const struct fs *fs = atomic_load_explicit(&in_use, memory_order_acquire);
    return fs ? fs : fs_posix();
}

void fs_use(const struct fs *fs)
{
    atomic_store_explicit(&in_use, fs, memory_order_release);
}

int fs_open(const struct fs *fs, const char *path, int flags, struct fs_file **out)
{
    return fs->open(fs, path, flags, out);
}

void fs_close(struct fs_file *file)
{
    if (file)
        file->fs->close(file);
}

int fs_pread_all(struct fs_file *file, void *p, size_t n, uint64_t offset)
{
    size_t got;
    int rc = file->fs->pread(file, p, n, offset, &got);
    if (rc)
        return rc;
    return got == n ? 0 : WEIR_END;
}

/* The folder a path is in, to be freed: "." for a bare name, "/" for what lies there. */
static char *parent_of(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    while (n > 0 && path[n - 1] != '/')
        n--;
    if (n == 0)
        return mem_strdup(".");
    while (n > 1 && path[n - 1] == '/')
        n--;
    char *parent = mem_alloc(n + 1);
    memcpy(parent, path, n);
    parent[n] = 0;
    return parent;
}

int fs_sync_parent(const struct fs *fs, const char *path)
{
    char *parent = parent_of(path);
    int rc = fs->sync_dir(fs, parent);
    mem_free(parent);
    return rc;
}

int fs_mkdirs(const struct fs *fs, const char *path)
{
    int rc = fs->mkdir(fs, path);
    if (rc == WEIR_NOT_FOUND) {
        char *parent = parent_of(path);
        /* Where the parent is the path itself ("." or "/" gone) there is nothing left to make. */
        if (strcmp(parent, path) != 0 && strcmp(parent, ".") != 0)
            rc = fs_mkdirs(fs, parent);
        mem_free(parent);
        if (rc == 0)
            rc = fs->mkdir(fs, path);
    }
    if (rc)
        return rc;
    rc = fs_sync_parent(fs, path);
    /* Who may not read the parent did not make the entry, or cannot do more for it. */
    return rc == WEIR_DENIED ? 0 : rc;
}

int fs_read_file(const struct fs *fs, const char *path, size_t max, char **out, size_t *out_n)
{
    struct fs_file *file;
    int rc = fs_open(fs, path, FS_READ, &file);
    if (rc)
        return rc;
    /* The size is a hint only: what /proc shows has none, and a file may grow meanwhile. */
    uint64_t size = 0;
    char *p = NULL;
    size_t n = 0, capacity;
    rc = fs->size(file, &size);
    if (rc)
        goto out;
    if (size > max) {
        rc = WEIR_TOO_LARGE;
        goto out;
    }
    capacity = (size_t)size + 1; /* one more: a full read shows that there is more */
    for (;;) {
        p = mem_realloc(p, capacity + 1);
        size_t got;
        rc = fs->pread(file, p + n, capacity - n, n, &got);
        if (rc)
            goto out;
        n += got;
        if (n > max) {
            rc = WEIR_TOO_LARGE;
            goto out;
        }
        if (n < capacity)
            break;
        capacity = capacity < max / 4 ? capacity * 2 + 4096 : max + 1;
    }
    p[n] = 0;
    *out = p;
    p = NULL;
    if (out_n)
        *out_n = n;
out:
    mem_free(p);
    fs_close(file);
    return rc;
}

int fs_replace_file(const struct fs *fs, const char *path, const void *p, size_t n)
{
    char *temporary = mem_printf("%s.tmp", path);
    struct fs_file *file;
    int rc = fs_open(fs, temporary, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file);
    if (rc)
        goto out;
    rc = fs->pwrite(file, p, n, 0);
    if (rc == 0)
        rc = fs->datasync(file);
    fs_close(file);
    if (rc == 0)
        rc = fs->rename(fs, temporary, path);
    if (rc) {
        int kept = errno;
        fs->unlink(fs, temporary);
        errno = kept;
        goto out;
    }
    rc = fs_sync_parent(fs, path);
out:
    mem_free(temporary);
    return rc;
}
