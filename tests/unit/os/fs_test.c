/* fs_test.c: the file table over the system, and its shorthands, at their edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "../scratch.h"
#include "base/mem.h"
#include "os/fs.h"
#include "weir/err.h"

static const struct fs *fs;
static char *folder;

/* In the place of the C library's: which file was last handed to the kernel to be synced. */
static ino_t synced;

static int sync_noted(long call, int fd)
{
    struct stat st;
    synced = fstat(fd, &st) == 0 ? st.st_ino : 0;
    return (int)syscall(call, fd);
}

int fdatasync(int fd)
{
    return sync_noted(SYS_fdatasync, fd);
}

int fsync(int fd)
{
    return sync_noted(SYS_fsync, fd);
}

static const char *in(const char *name)
{
    static char paths[8][4096];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static int setup(void **state)
{
    (void)state;
    fs = fs_posix();
    folder = scratch_create();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    scratch_remove(folder);
    free(folder);
    return 0;
}

static void open_says_why_not(void **state)
{
    (void)state;
    struct fs_file *file = NULL, *second = NULL;
    assert_int_equal(fs_open(fs, in("none"), FS_READ, &file), WEIR_NOT_FOUND);
    assert_int_equal(errno, ENOENT);
    assert_int_equal(fs_open(fs, in("none"), FS_WRITE, &file), WEIR_NOT_FOUND);
    assert_int_equal(fs_open(fs, in("no/folder"), FS_WRITE | FS_CREATE, &file), WEIR_NOT_FOUND);
    assert_null(file);
    assert_int_equal(fs_open(fs, in("a"), FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file), 0);
    assert_int_equal(fs_open(fs, in("a"), FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &second),
                     WEIR_EXISTS);
    assert_int_equal(fs_open(fs, in("a/b"), FS_READ, &second), WEIR_IO);
    assert_int_equal(errno, ENOTDIR);
    assert_int_equal(fs_open(fs, folder, FS_WRITE, &second), WEIR_IO);
    char *endless = mem_zalloc(6000);
    memset(endless, 'x', 5999);
    assert_int_equal(fs_open(fs, endless, FS_READ, &second), WEIR_IO);
    mem_free(endless);
    assert_null(second);
    struct stat st;
    assert_int_equal(stat(in("a"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600); /* nobody else reads records */
    assert_true(fcntl(file->fd, F_GETFD) & FD_CLOEXEC);
    fs_close(file);
    fs_close(NULL);
}

static void reads_and_writes_whole(void **state)
{
    (void)state;
    struct fs_file *file;
    assert_int_equal(fs_open(fs, in("b"), FS_WRITE | FS_CREATE, &file), 0);
    char text[16] = "", big[3] = "xyz";
    size_t n = 99;
    assert_int_equal(fs->pread(file, text, sizeof text, 0, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(fs->pwrite(file, "hello", 5, 10), 0);
    assert_int_equal(fs->pwrite(file, NULL, 0, 1000), 0); /* nothing changes nothing */
    uint64_t size;
    assert_int_equal(fs->size(file, &size), 0);
    assert_int_equal(size, 15);
    assert_int_equal(fs->pread(file, text, sizeof text, 8, &n), 0);
    assert_int_equal(n, 7);
    assert_memory_equal(text, "\0\0hello", 7);
    assert_int_equal(fs_pread_all(file, text, 5, 10), 0);
    assert_int_equal(fs_pread_all(file, text, 6, 10), WEIR_END);
    assert_int_equal(fs_pread_all(file, text, 1, 1u << 30), WEIR_END);
    assert_int_equal(fs->truncate(file, 12), 0);
    assert_int_equal(fs->size(file, &size), 0);
    assert_int_equal(size, 12);
    assert_int_equal(fs->datasync(file), 0);

    /* beyond what a file can be: an error, not a wrapped offset */
    assert_int_equal(fs->pwrite(file, big, 3, (uint64_t)INT64_MAX - 1), WEIR_IO);
    assert_int_equal(errno, EFBIG);
    assert_int_equal(fs->pread(file, text, 1, UINT64_MAX, &n), WEIR_IO);
    assert_int_equal(fs->truncate(file, UINT64_MAX), WEIR_IO);
    assert_int_equal(fs->size(file, &size), 0);
    assert_int_equal(size, 12);
    fs_close(file);

    assert_int_equal(fs_open(fs, in("b"), FS_READ, &file), 0);
    assert_int_equal(fs->pwrite(file, "x", 1, 0), WEIR_IO);
    fs_close(file);
    assert_int_equal(fs_open(fs, in("b"), FS_WRITE | FS_TRUNCATE, &file), 0);
    assert_int_equal(fs->size(file, &size), 0);
    assert_int_equal(size, 0);
    fs_close(file);
}

/* The kernel takes a part of a write that crosses RLIMIT_FSIZE and refuses the rest: the loop over
 * partial writes must go on to the error. */
static void a_partial_write_is_not_a_success(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    struct rlimit before, limit;
    getrlimit(RLIMIT_FSIZE, &before);
    limit = before;
    limit.rlim_cur = 1000;
    struct fs_file *file;
    assert_int_equal(fs_open(fs, in("c"), FS_WRITE | FS_CREATE, &file), 0);
    setrlimit(RLIMIT_FSIZE, &limit);
    char bytes[1500] = {1};
    int rc = fs->pwrite(file, bytes, sizeof bytes, 0), error = errno;
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(rc, WEIR_IO);
    assert_int_equal(error, EFBIG);
    uint64_t size;
    assert_int_equal(fs->size(file, &size), 0);
    assert_int_equal(size, 1000);
    fs_close(file);
}

static void full_device_is_no_space(void **state)
{
    (void)state;
    struct fs_file *file;
    if (fs_open(fs, "/dev/full", FS_WRITE, &file) != 0)
        skip();
    assert_int_equal(fs->pwrite(file, "x", 1, 0), WEIR_NO_SPACE);
    assert_int_equal(errno, ENOSPC);
    fs_close(file);
}

static void lock_is_for_one(void **state)
{
    (void)state;
    struct fs_file *a, *b;
    assert_int_equal(fs_open(fs, in("lock"), FS_WRITE | FS_CREATE, &a), 0);
    assert_int_equal(fs_open(fs, in("lock"), FS_WRITE | FS_CREATE, &b), 0);
    assert_int_equal(fs->lock(a), 0);
    assert_int_equal(fs->lock(a), 0);
    assert_int_equal(fs->lock(b), WEIR_LOCKED);
    fs_close(a);
    assert_int_equal(fs->lock(b), 0);
    fs_close(b);
}

static void count_name(void *context, const char *name)
{
    assert_string_not_equal(name, ".");
    assert_string_not_equal(name, "..");
    ++*(int *)context;
}

static void folders(void **state)
{
    (void)state;
    int n = 0;
    assert_int_equal(fs->list(fs, in("d"), count_name, &n), WEIR_NOT_FOUND);
    assert_int_equal(fs->mkdir(fs, in("d")), 0);
    assert_int_equal(fs->mkdir(fs, in("d")), 0);
    assert_int_equal(fs->list(fs, in("d"), count_name, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(fs_mkdirs(fs, in("d/e//f/g/")), 0);
    assert_int_equal(fs_mkdirs(fs, in("d/e/f/g")), 0);
    assert_int_equal(fs_replace_file(fs, in("d/file"), "1", 1), 0);
    assert_int_equal(fs->mkdir(fs, in("d/file")), WEIR_EXISTS);
    assert_int_equal(fs_mkdirs(fs, in("d/file/x")), WEIR_IO);
    assert_int_equal(fs->list(fs, in("d"), count_name, &n), 0);
    assert_int_equal(n, 2);
    assert_int_equal(fs->list(fs, in("d/file"), count_name, &n), WEIR_IO);
    assert_int_equal(fs->sync_dir(fs, in("d")), 0);
    assert_int_equal(fs->sync_dir(fs, in("none")), WEIR_NOT_FOUND);
    assert_int_equal(fs->sync_dir(fs, in("d/file")), WEIR_IO);
    assert_int_equal(fs_sync_parent(fs, in("d/file")), 0);
    assert_int_equal(fs_sync_parent(fs, "/tmp"), 0);
    assert_int_equal(fs_sync_parent(fs, "tmp"), 0);
    assert_int_equal(fs->rename(fs, in("d/none"), in("d/x")), WEIR_NOT_FOUND);
    assert_int_equal(fs->rename(fs, in("d/file"), in("d/moved")), 0);
    assert_int_equal(fs->unlink(fs, in("d/file")), WEIR_NOT_FOUND);
    assert_int_equal(fs->unlink(fs, in("d/moved")), 0);
    uint64_t bytes = 0;
    assert_int_equal(fs->free_bytes(fs, folder, &bytes), 0);
    assert_true(bytes > 0);
    assert_int_equal(fs->free_bytes(fs, in("none"), &bytes), WEIR_NOT_FOUND);
    /* relative to the working folder, as data: ./weir-data is */
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(fs_mkdirs(fs, "./r/s"), 0);
    assert_int_equal(fs_mkdirs(fs, "t"), 0);
    assert_int_equal(fs_replace_file(fs, "plain", "2", 1), 0);
    assert_int_equal(access(in("r/s"), F_OK) | access(in("t"), F_OK) | access(in("plain"), F_OK),
                     0);
}

static void expect_synced(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(synced, st.st_ino);
    synced = 0;
}

/* What is called durable stands on these reaching the kernel, for the right file. */
static void syncs_reach_the_system(void **state)
{
    (void)state;
    struct fs_file *file;
    assert_int_equal(fs->mkdir(fs, in("d")), 0);
    assert_int_equal(fs_open(fs, in("d/file"), FS_WRITE | FS_CREATE, &file), 0);
    assert_int_equal(fs->pwrite(file, "x", 1, 0), 0);
    assert_int_equal(fs->datasync(file), 0);
    expect_synced(in("d/file"));
    assert_int_equal(fs->sync_dir(fs, in("d")), 0);
    expect_synced(in("d"));
    assert_int_equal(fs_sync_parent(fs, in("d")), 0);
    expect_synced(folder);
    fs_close(file);
    assert_int_equal(fs_open(fs, "/dev/null", FS_WRITE, &file), 0);
    assert_int_equal(fs->datasync(file), WEIR_IO); /* it cannot be synced, and that is told */
    fs_close(file);
}

static void whole_files(void **state)
{
    (void)state;
    char *p = NULL;
    size_t n = 7;
    assert_int_equal(fs_read_file(fs, in("w"), 100, &p, &n), WEIR_NOT_FOUND);
    assert_null(p);
    assert_int_equal(n, 7);
    assert_int_equal(fs_replace_file(fs, in("w"), "", 0), 0);
    assert_int_equal(fs_read_file(fs, in("w"), 0, &p, &n), 0);
    assert_int_equal(n, 0);
    assert_int_equal(p[0], 0);
    mem_free(p);
    char *bytes = mem_alloc(100000);
    for (int i = 0; i < 100000; i++)
        bytes[i] = (char)(i * 7);
    assert_int_equal(fs_replace_file(fs, in("w"), bytes, 100000), 0);
    assert_int_equal(fs_read_file(fs, in("w"), 99999, &p, &n), WEIR_TOO_LARGE);
    assert_int_equal(fs_read_file(fs, in("w"), 100000, &p, NULL), 0);
    assert_memory_equal(p, bytes, 100000);
    assert_int_equal(p[100000], 0);
    mem_free(p);
    mem_free(bytes);
    assert_int_equal(fs_replace_file(fs, in("w"), "short", 5), 0);
    assert_int_equal(fs_read_file(fs, in("w"), 100, &p, &n), 0);
    assert_string_equal(p, "short");
    mem_free(p);
    assert_int_equal(access(in("w.tmp"), F_OK), -1);
    /* a file that tells no size */
    assert_int_equal(fs_read_file(fs, "/proc/self/maps", 1 << 20, &p, &n), 0);
    assert_true(n > 100);
    assert_int_equal(strlen(p), n);
    mem_free(p);
    assert_int_equal(fs_read_file(fs, "/proc/self/maps", 10, &p, &n), WEIR_TOO_LARGE);
    assert_int_equal(fs_read_file(fs, folder, 10, &p, &n) != 0, 1);
    /* a folder of that name cannot be replaced, and nothing is left beside it */
    assert_int_equal(fs->mkdir(fs, in("dir")), 0);
    assert_int_not_equal(fs_replace_file(fs, in("dir"), "x", 1), 0);
    assert_int_equal(access(in("dir.tmp"), F_OK), -1);
    assert_int_equal(fs_replace_file(fs, in("no/w"), "x", 1), WEIR_NOT_FOUND);
}

static void current_is_posix_unless_told(void **state)
{
    (void)state;
    assert_ptr_equal(fs_current(), fs_posix());
    struct fs other = *fs_posix();
    fs_use(&other);
    assert_ptr_equal(fs_current(), &other);
    fs_use(fs_posix());
    assert_int_equal(fs_error(EDQUOT), WEIR_NO_SPACE);
    assert_int_equal(fs_error(EROFS), WEIR_DENIED);
    assert_int_equal(fs_error(EIO), WEIR_IO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(open_says_why_not),
        cmocka_unit_test(reads_and_writes_whole),
        cmocka_unit_test(a_partial_write_is_not_a_success),
        cmocka_unit_test(full_device_is_no_space),
        cmocka_unit_test(lock_is_for_one),
        cmocka_unit_test(folders),
        cmocka_unit_test(syncs_reach_the_system),
        cmocka_unit_test(whole_files),
        cmocka_unit_test(current_is_posix_unless_told),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
