/* fs_fault_test.c: operations fail when the plan says so, do what a failing system would have done
 * meanwhile, and everything else passes through. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "../child.h"
#include "../scratch.h"
#include "base/mem.h"
#include "os/fs_fault.h"
#include "weir/err.h"

static char *folder;

static const char *in(const char *name)
{
    static char paths[8][4096];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

static const struct fs *with(const char *plan)
{
    struct diag diag;
    const struct fs *fs = fs_fault_install(fs_posix(), plan, &diag);
    child_check(fs);
    return fs;
}

static int in_child(void (*body)(void *context), void *context)
{
    folder = scratch_create();
    int status = child_run(body, context);
    scratch_remove(folder);
    free(folder);
    return status;
}

static void count_name(void *context, const char *name)
{
    (void)name;
    ++*(int *)context;
}

/* One of each operation, in the order of enum fs_op but for those that need another first. */
static int one_of_each(const struct fs *fs, int *rc)
{
    struct fs_file *file = NULL;
    int n = 0, names = 0;
    char c;
    size_t got;
    rc[n++] = fs_open(fs, in("f"), FS_WRITE | FS_CREATE, &file);
    if (!file)
        child_check(fs_open(fs_posix(), in("f"), FS_WRITE | FS_CREATE, &file) == 0);
    const struct fs *its = file->fs;
    rc[n++] = its->pwrite(file, "abc", 3, 0);
    rc[n++] = its->pread(file, &c, 1, 0, &got);
    rc[n++] = its->datasync(file);
    rc[n++] = its->truncate(file, 1);
    uint64_t size;
    child_check(its->size(file, &size) == 0);
    child_check(its->lock(file) == 0);
    fs_close(file);
    rc[n++] = fs->rename(fs, in("f"), in("g"));
    rc[n++] = fs->unlink(fs, in("g"));
    rc[n++] = fs->mkdir(fs, in("d"));
    rc[n++] = fs->sync_dir(fs, folder);
    rc[n++] = fs->list(fs, folder, count_name, &names);
    return n;
}

static void nth_fails(void *context)
{
    unsigned nth = *(unsigned *)context;
    char plan[64];
    snprintf(plan, sizeof plan, "seed=1;fail=EIO@%u", nth);
    const struct fs *fs = with(plan);
    int rc[16];
    int n = one_of_each(fs, rc);
    bool opened = nth != 1; /* without, the file's own operations pass the plan by */
    for (int i = 0; i < n; i++) {
        if ((unsigned)i + 1 == nth)
            child_check(rc[i] == WEIR_IO);
        else if (i == 6)
            child_check(rc[i] == (nth == 6 ? WEIR_NOT_FOUND : 0));
        else
            child_check(rc[i] == 0);
    }
    child_check(fs_fault_operations() == (opened ? 10u : 6u));
    child_check(access(in("d"), F_OK) == (nth == 8 ? -1 : 0));
    child_check(access(in("f"), F_OK) == (nth == 6 ? 0 : -1));
    _exit(n == 10 ? 10 : 98);
}

static void each_operation_fails_in_its_turn(void **state)
{
    (void)state;
    for (unsigned nth = 1; nth <= 10; nth++)
        assert_int_equal(in_child(nth_fails, &nth), 10);
}

static void writes_fail(void *context)
{
    const char *kind = context;
    char plan[64];
    snprintf(plan, sizeof plan, "seed=7;ops=write;fail=%s@1-200", kind);
    const struct fs *fs = with(plan);
    bool some_prefix = false;
    for (int i = 0; i < 200; i++) {
        char name[16], bytes[1000], found[1000];
        snprintf(name, sizeof name, "w%d", i);
        memset(bytes, 'x', sizeof bytes);
        struct fs_file *file;
        child_check(fs_open(fs, in(name), FS_WRITE | FS_CREATE, &file) == 0);
        errno = 0;
        int rc = fs->pwrite(file, bytes, sizeof bytes, 0);
        bool no_space = strcmp(kind, "ENOSPC") == 0;
        child_check(rc == (no_space ? WEIR_NO_SPACE : WEIR_IO));
        child_check(errno == (no_space ? ENOSPC : EIO));
        size_t n;
        child_check(fs->pread(file, found, sizeof found, 0, &n) == 0);
        child_check(n < sizeof bytes);
        child_check(memcmp(found, bytes, n) == 0);
        if (strcmp(kind, "EIO") == 0)
            child_check(n == 0);
        if (strcmp(kind, "SHORT") == 0)
            child_check(n > 0);
        some_prefix |= n > 0;
        fs_close(file);
    }
    child_check(some_prefix == (strcmp(kind, "EIO") != 0));
    struct fs_file *file; /* space comes back */
    child_check(fs_open(fs, in("w"), FS_WRITE | FS_CREATE, &file) == 0);
    child_check(fs->pwrite(file, "x", 1, 0) == 0);
    _exit(10);
}

static void failing_writes_leave_prefixes(void **state)
{
    (void)state;
    assert_int_equal(in_child(writes_fail, (char[]){"EIO"}), 10);
    assert_int_equal(in_child(writes_fail, (char[]){"ENOSPC"}), 10);
    assert_int_equal(in_child(writes_fail, (char[]){"SHORT"}), 10);
}

static void only_counted(void *context)
{
    (void)context;
    const struct fs *fs = with("seed=1;ops=sync;path=/log;fail=EIO@2+");
    struct fs_file *log, *other;
    child_check(fs_open(fs, in("log"), FS_WRITE | FS_CREATE, &log) == 0);
    child_check(fs_open(fs, in("other"), FS_WRITE | FS_CREATE, &other) == 0);
    for (int i = 0; i < 5; i++) {
        child_check(fs->datasync(other) == 0);
        child_check(fs->pwrite(log, "x", 1, 0) == 0);
    }
    child_check(fs->datasync(log) == 0);
    child_check(fs->datasync(log) == WEIR_IO);
    child_check(fs->datasync(log) == WEIR_IO);
    child_check(fs->datasync(other) == 0);
    child_check(fs_fault_operations() == 3);
    _exit(10);
}

static void filters_choose_what_counts(void **state)
{
    (void)state;
    assert_int_equal(in_child(only_counted, NULL), 10);
}

static void beside_the_table(void *context)
{
    (void)context;
    size_t short_n = 77;
    child_check(fs_fault_before(FS_OP_WRITE, "x", 10, &short_n) == 0); /* no plan yet */
    fs_fault_note_write("x", 0, 10);
    fs_fault_after();
    child_check(short_n == 77);
    with("seed=3;fail=SHORT@2;fail=ENOSPC@3");
    child_check(fs_fault_before(FS_OP_WRITE, "x", 10, &short_n) == 0);
    fs_fault_after();
    child_check(fs_fault_before(FS_OP_WRITE, "x", 10, &short_n) == EIO);
    fs_fault_after();
    child_check(short_n >= 1 && short_n <= 9);
    child_check(fs_fault_before(FS_OP_SYNC, "x", 0, NULL) == ENOSPC);
    fs_fault_after();
    child_check(fs_fault_operations() == 3);
    struct diag diag;
    child_check(fs_fault_install(fs_posix(), "count", &diag) == NULL); /* one a process */
    _exit(10);
}

static void hooks_for_others(void **state)
{
    (void)state;
    assert_int_equal(in_child(beside_the_table, NULL), 10);
}

static void two_descriptors(void *context)
{
    (void)context;
    const struct fs *fs = with("ops=sync;fail=EIO@1");
    struct fs_file *a, *b, *c, *other;
    child_check(fs_open(fs, in("f"), FS_WRITE | FS_CREATE, &a) == 0);
    child_check(fs_open(fs, in("f"), FS_WRITE, &b) == 0);
    child_check(fs_open(fs, in("g"), FS_WRITE | FS_CREATE, &other) == 0);
    child_check(fs->datasync(a) == WEIR_IO);
    child_check(fs_open(fs, in("f"), FS_WRITE, &c) == 0);
    child_check(fs->datasync(other) == 0);
    child_check(fs->datasync(a) == 0);
    child_check(fs->datasync(c) == 0); /* opened after it was told */
    child_check(fs->datasync(b) == WEIR_IO);
    child_check(fs->datasync(b) == 0);
    _exit(10);
}

static void a_failed_sync_is_told_once_to_each(void **state)
{
    (void)state;
    assert_int_equal(in_child(two_descriptors, NULL), 10);
}

/* The shorthands over a failing table: N is swept until nothing fails any more. */
static void replace_with_failure(void *context)
{
    unsigned nth = *(unsigned *)context;
    child_check(fs_replace_file(fs_posix(), in("META"), "the old text", 12) == 0);
    char plan[64];
    snprintf(plan, sizeof plan, "fail=ENOSPC@%u", nth);
    const struct fs *fs = with(plan);
    int rc = fs_replace_file(fs, in("META"), "new", 3);
    char *text;
    child_check(fs_read_file(fs_posix(), in("META"), 100, &text, NULL) == 0);
    bool is_new = strcmp(text, "new") == 0;
    child_check(is_new || strcmp(text, "the old text") == 0);
    child_check(rc == 0 || rc == WEIR_NO_SPACE);
    child_check(rc != 0 || is_new);
    child_check(access(in("META.tmp"), F_OK) != 0);
    _exit(rc == 0 ? 10 : 11);
}

static void replace_is_whole_under_any_failure(void **state)
{
    (void)state;
    unsigned nth = 1;
    int status;
    while ((status = in_child(replace_with_failure, &nth)) == 11)
        nth++;
    assert_int_equal(status, 10);
    assert_int_equal(nth, 6); /* open, write, sync, rename, sync_dir each had their turn */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_operation_fails_in_its_turn),
        cmocka_unit_test(failing_writes_leave_prefixes),
        cmocka_unit_test(filters_choose_what_counts),
        cmocka_unit_test(hooks_for_others),
        cmocka_unit_test(a_failed_sync_is_told_once_to_each),
        cmocka_unit_test(replace_is_whole_under_any_failure),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
