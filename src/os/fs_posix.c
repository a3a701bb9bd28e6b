/* fs_posix.c: the file table over plain system calls.
 *
 * Invariants: 1. a call that returns 0 did all of its work: reads and writes go on over partial
 * transfers and signals; 2. on failure errno is the system's, also after clean-up.
 * Threads: any; no state but the descriptors. */
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fs.h"
#include "weir/err.h"

int fs_error(int errno_value)
{
    switch (errno_value) {
    case ENOSPC:
    case EDQUOT:
        return WEIR_NO_SPACE;
    case ENOENT:
        return WEIR_NOT_FOUND;
    case EEXIST:
        return WEIR_EXISTS;
    case EACCES:
    case EPERM:
    case EROFS:
        return WEIR_DENIED;
    default:
        return WEIR_IO;
    }
}

static int failed(void)
{
    return fs_error(errno);
}

/* Offsets are signed in the kernel; a sum beyond that is a mistake or a hostile file. */
static bool in_range(uint64_t offset, size_t n)
{
    if (offset <= INT64_MAX && n <= INT64_MAX - offset)
        return true;
    errno = EFBIG;
    return false;
}

static int posix_open(const struct fs *fs, const char *path, int flags, struct fs_file **out)
{
    assert((flags & (FS_CREATE | FS_EXCLUSIVE | FS_TRUNCATE)) == 0 || (flags & FS_WRITE) != 0);
    assert((flags & FS_EXCLUSIVE) == 0 || (flags & FS_CREATE) != 0);
    int how = O_CLOEXEC | (flags & FS_WRITE ? O_RDWR : O_RDONLY);
    how |= flags & FS_CREATE ? O_CREAT : 0;
    how |= flags & FS_EXCLUSIVE ? O_EXCL : 0;
    how |= flags & FS_TRUNCATE ? O_TRUNC : 0;
    int fd;
    do
        fd = open(path, how, 0600);
    while (fd < 0 && errno == EINTR);
    if (fd < 0)
        return failed();
    struct fs_file *file = mem_zalloc(sizeof *file);
    file->fs = fs;
    file->fd = fd;
    *out = file;
    return 0;
}

static void posix_close(struct fs_file *file)
{
    int kept = errno;
    close(file->fd); /* never again after EINTR: Linux has let go of the descriptor */
    mem_free(file);
    errno = kept;
}

static int posix_pread(struct fs_file *file, void *p, size_t n, uint64_t offset, size_t *out_n)
{
    if (!in_range(offset, n))
        return WEIR_IO;
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(file->fd, (char *)p + done, n - done, (off_t)(offset + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return failed();
        if (got == 0)
            break;
        done += (size_t)got;
    }
    *out_n = done;
    return 0;
}

static int posix_pwrite(struct fs_file *file, const void *p, size_t n, uint64_t offset)
{
    if (!in_range(offset, n))
        return WEIR_IO;
    size_t done = 0;
    while (done < n) {
        ssize_t put = pwrite(file->fd, (const char *)p + done, n - done, (off_t)(offset + done));
        if (put < 0 && errno == EINTR)
            continue;
        if (put < 0)
            return failed();
        if (put == 0) { /* POSIX leaves it open; going on would never end */
            errno = ENOSPC;
            return WEIR_NO_SPACE;
        }
        done += (size_t)put;
    }
    return 0;
}

static int posix_datasync(struct fs_file *file)
{
    int rc;
    do
        rc = fdatasync(file->fd);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : failed();
}

static int posix_truncate(struct fs_file *file, uint64_t size)
{
    if (!in_range(size, 0))
        return WEIR_IO;
    int rc;
    do
        rc = ftruncate(file->fd, (off_t)size);
    while (rc != 0 && errno == EINTR);
    return rc == 0 ? 0 : failed();
}

static int posix_size(struct fs_file *file, uint64_t *out)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        return failed();
    *out = (uint64_t)st.st_size;
    return 0;
}

static int posix_lock(struct fs_file *file)
{
    int rc;
    do
        rc = flock(file->fd, LOCK_EX | LOCK_NB);
    while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return errno == EWOULDBLOCK ? WEIR_LOCKED : failed();
    return 0;
}

static int posix_unlink(const struct fs *fs, const char *path)
{
    (void)fs;
    return unlink(path) == 0 ? 0 : failed();
}

static int posix_rename(const struct fs *fs, const char *from, const char *to)
{
    (void)fs;
    return rename(from, to) == 0 ? 0 : failed();
}

static int posix_mkdir(const struct fs *fs, const char *path)
{
    (void)fs;
    if (mkdir(path, 0700) == 0)
        return 0;
    if (errno != EEXIST)
        return failed();
    struct stat st;
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
        return 0;
    errno = EEXIST; /* a file or a dangling link is in the way */
    return WEIR_EXISTS;
}

static int posix_sync_dir(const struct fs *fs, const char *path)
{
    (void)fs;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return failed();
    int rc;
    do
        rc = fsync(fd);
    while (rc != 0 && errno == EINTR);
    int error = rc != 0 ? errno : 0;
    close(fd);
    if (error == EINVAL) /* a file system without the notion: nothing more can be done there */
        error = 0;
    errno = error;
    return error ? failed() : 0;
}

static int posix_list(const struct fs *fs, const char *path,
                      void (*name)(void *context, const char *name), void *context)
{
    (void)fs;
    DIR *dir = opendir(path);
    if (!dir)
        return failed();
    int error;
    for (;;) {
        errno = 0;
        struct dirent *entry = readdir(dir);
        error = errno;
        if (!entry)
            break;
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            name(context, entry->d_name);
    }
    closedir(dir);
    errno = error;
    return error ? failed() : 0;
}

static int posix_free_bytes(const struct fs *fs, const char *path, uint64_t *out)
{
    (void)fs;
    struct statvfs st;
    int rc;
    do
        rc = statvfs(path, &st);
    while (rc != 0 && errno == EINTR);
    if (rc != 0)
        return failed();
    *out = (uint64_t)st.f_bavail * st.f_frsize;
    return 0;
}

const struct fs *fs_posix(void)
{
    static const struct fs posix = {
        .name = "posix",
        .open = posix_open,
        .close = posix_close,
        .pread = posix_pread,
        .pwrite = posix_pwrite,
        .datasync = posix_datasync,
        .truncate = posix_truncate,
        .size = posix_size,
        .lock = posix_lock,
        .unlink = posix_unlink,
        .rename = posix_rename,
        .mkdir = posix_mkdir,
        .sync_dir = posix_sync_dir,
        .list = posix_list,
        .free_bytes = posix_free_bytes,
    };
    return &posix;
}
