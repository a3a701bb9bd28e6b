/* fs_fault_power_test.c: what a power cut leaves is always a state that a disk may be in, and over
 * many seeds each kind of state really comes: kept, lost, torn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <signal.h>
#include <string.h>

#include "../child.h"
#include "../scratch.h"
#include "../seeded.h"
#include "base/mem.h"
#include "os/fs_fault.h"
#include "os/thread.h"
#include "weir/err.h"

#define PAGE 4096

/* Hundreds of forks of one thread: ThreadSanitizer has nothing to find, and is slow at it. */
#ifdef __SANITIZE_THREAD__
#define ONE_THREAD_ONLY() skip()
#define THREAD_RUNS 4 /* each process of it sleeps a second at its end */
#else
#define ONE_THREAD_ONLY() (void)0
#define THREAD_RUNS 20
#endif

static uint64_t first_seed;
static char *folder;
static const struct fs *fs; /* in the child: the fault table */

static const char *in(const char *name)
{
    static char paths[8][4096];
    static unsigned next;
    char *path = paths[next++ % 8];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    return path;
}

struct child {
    uint64_t seed;
    void (*body)(uint64_t seed);
};

static void ignore_name(void *context, const char *name)
{
    (void)context;
    (void)name;
}

static void cut_child(void *context)
{
    struct child *child = context;
    char plan[64];
    /* list is the only operation that counts: the test's bodies say when the power goes */
    snprintf(plan, sizeof plan, "seed=%llu;ops=list;powercut=1", (unsigned long long)child->seed);
    struct diag diag;
    fs = fs_fault_install(fs_posix(), plan, &diag);
    child_check(fs);
    child->body(child->seed);
    fs->list(fs, folder, ignore_name, NULL);
    child_check(!"the power is on");
}

/* Runs before() durably, body() under a plan, cuts the power, checks, for each of n seeds. */
static void cut_often(unsigned n, void (*before)(uint64_t seed), void (*body)(uint64_t seed),
                      void (*check)(uint64_t seed))
{
    ONE_THREAD_ONLY();
    for (unsigned i = 0; i < n; i++) {
        struct child child = {first_seed + i, body};
        folder = scratch_create_fast();
        if (before)
            before(child.seed);
        int status = child_run(cut_child, &child);
        if (status != 137)
            fail_msg("seed %llu: status %d", (unsigned long long)child.seed, status);
        check(child.seed);
        DIR *dir = opendir(folder);
        for (struct dirent *entry; (entry = readdir(dir));)
            if (strncmp(entry->d_name, ".weir", 5) == 0)
                fail_msg("seed %llu: %s is left", (unsigned long long)child.seed, entry->d_name);
        closedir(dir);
        scratch_remove(folder);
        free(folder);
    }
}

static void put_pages(const struct fs *on, const char *path, const char *pages, bool sync)
{
    struct fs_file *file;
    char page[PAGE];
    child_check(fs_open(on, path, FS_WRITE | FS_CREATE, &file) == 0);
    for (size_t i = 0; pages[i]; i++) {
        memset(page, pages[i], PAGE);
        if (pages[i] != ' ')
            child_check(on->pwrite(file, page, PAGE, i * PAGE) == 0);
    }
    if (sync)
        child_check(on->datasync(file) == 0);
    fs_close(file);
}

/* The file as one character a page: its byte, '0' for zeros, '*' where the page is mixed. */
static const char *pages_of(const char *path, uint64_t *size)
{
    static char out[256];
    char *text;
    size_t n = 0;
    if (fs_read_file(fs_posix(), path, 1 << 20, &text, &n) != 0)
        return "gone";
    size_t pages = (n + PAGE - 1) / PAGE;
    for (size_t i = 0; i < pages; i++) {
        size_t here = n - i * PAGE < PAGE ? n - i * PAGE : PAGE;
        const char *p = text + i * PAGE;
        out[i] = *p ? *p : '0';
        for (size_t j = 0; j < here; j++)
            if (p[j] != *p)
                out[i] = '*';
    }
    out[pages] = 0;
    mem_free(text);
    if (size)
        *size = n;
    return out;
}

static unsigned seen[16];

static void see(unsigned what)
{
    seen[what]++;
}

static void expect_seen(unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        if (!seen[i])
            fail_msg("outcome %u never came", i);
    memset(seen, 0, sizeof seen);
}

/* Pages written since the sync: kept, lost, or torn; the others as they were. */
static void four_durable_pages(uint64_t seed)
{
    (void)seed;
    put_pages(fs_posix(), in("f"), "AAAA", true);
}

static void overwrite_three(uint64_t seed)
{
    (void)seed;
    put_pages(fs, in("f"), "BBB", false);
}

static void check_overwritten(uint64_t seed)
{
    (void)seed;
    uint64_t size = 0;
    const char *pages = pages_of(in("f"), &size);
    assert_int_equal(size, 4 * PAGE);
    assert_int_equal(pages[3], 'A');
    see(strncmp(pages, "BBB", 3) == 0 ? 0 : strncmp(pages, "AAA", 3) == 0 ? 1 : 2);
    for (int i = 0; i < 3; i++) {
        assert_non_null(strchr("AB*", pages[i]));
        see(pages[i] == 'A' ? 3 : pages[i] == 'B' ? 4 : 5);
    }
}

static void unsynced_pages_may_be_lost(void **state)
{
    (void)state;
    cut_often(150, four_durable_pages, overwrite_three, check_overwritten);
    expect_seen(6);
}

static void overwrite_and_sync(uint64_t seed)
{
    (void)seed;
    put_pages(fs, in("f"), "CCCC", false);
    put_pages(fs, in("f"), "BBBBBB", true);
    put_pages(fs, in("f"), " C C", false);
}

static void check_synced(uint64_t seed)
{
    (void)seed;
    uint64_t size = 0;
    const char *pages = pages_of(in("f"), &size);
    assert_int_equal(size, 6 * PAGE);
    assert_true(pages[0] == 'B' && pages[2] == 'B' && pages[4] == 'B' && pages[5] == 'B');
    assert_non_null(strchr("BC*", pages[1])); /* never what was before the sync */
    see(pages[1] == 'B');
}

static void synced_pages_stay(void **state)
{
    (void)state;
    cut_often(60, four_durable_pages, overwrite_and_sync, check_synced);
    expect_seen(2);
}

/* An extension: any page end between, what is covered is zeros or what was written. */
static void short_durable_file(uint64_t seed)
{
    (void)seed;
    child_check(fs_replace_file(fs_posix(), in("f"), "durable", 7) == 0);
}

static void append(uint64_t seed)
{
    (void)seed;
    struct fs_file *file;
    char bytes[5 * PAGE];
    memset(bytes, 'E', sizeof bytes);
    child_check(fs_open(fs, in("f"), FS_WRITE, &file) == 0);
    child_check(fs->pwrite(file, bytes, sizeof bytes, 7) == 0);
}

static void check_appended(uint64_t seed)
{
    (void)seed;
    char *text;
    size_t n;
    assert_int_equal(fs_read_file(fs_posix(), in("f"), 1 << 20, &text, &n), 0);
    assert_true(n == 7 || n == 7 + 5 * PAGE || (n % PAGE == 0 && n >= PAGE && n <= 5 * PAGE));
    assert_memory_equal(text, "durable", 7);
    bool zeros = false;
    for (size_t i = 7; i < n; i++) {
        assert_true(text[i] == 'E' || text[i] == 0);
        zeros |= text[i] == 0;
    }
    see(n == 7 ? 0 : n == 7 + 5 * PAGE ? (zeros ? 1 : 2) : 3);
    mem_free(text);
}

static void unsynced_extension(void **state)
{
    (void)state;
    cut_often(120, short_durable_file, append, check_appended);
    expect_seen(4);
}

/* Cut to two pages, then written again: before or after, never new bytes in the old length or old
 * bytes behind a cut that stayed. */
static void six_durable_pages(uint64_t seed)
{
    (void)seed;
    put_pages(fs_posix(), in("f"), "AAAAAA", true);
}

static void cut_and_write(uint64_t seed)
{
    (void)seed;
    struct fs_file *file;
    child_check(fs_open(fs, in("f"), FS_WRITE, &file) == 0);
    child_check(fs->truncate(file, 2 * PAGE) == 0);
    fs_close(file);
    put_pages(fs, in("f"), "  BB", false);
}

static void check_cut(uint64_t seed)
{
    (void)seed;
    uint64_t size = 0;
    const char *pages = pages_of(in("f"), &size);
    if (size == 6 * PAGE) {
        assert_string_equal(pages, "AAAAAA");
        see(0);
        return;
    }
    assert_true(size >= 2 * PAGE && size <= 4 * PAGE && size % PAGE == 0);
    assert_int_equal(strncmp(pages, "AA", 2), 0);
    for (const char *p = pages + 2; *p; p++) {
        assert_non_null(strchr("B0*", *p));
        see(*p == 'B' ? 1 : 2);
    }
    if (size == 2 * PAGE)
        see(3);
}

static void truncation_and_rewriting(void **state)
{
    (void)state;
    cut_often(120, six_durable_pages, cut_and_write, check_cut);
    expect_seen(4);
}

/* O_TRUNC on open counts as a truncation too. */
static void open_truncating(uint64_t seed)
{
    (void)seed;
    struct fs_file *file;
    child_check(fs_open(fs, in("f"), FS_WRITE | FS_TRUNCATE, &file) == 0);
    fs_close(file);
}

static void check_truncated(uint64_t seed)
{
    (void)seed;
    const char *pages = pages_of(in("f"), NULL);
    see(strcmp(pages, "AAAA") == 0);
    if (strcmp(pages, "AAAA") != 0)
        assert_string_equal(pages, "");
}

static void truncation_on_open(void **state)
{
    (void)state;
    cut_often(40, four_durable_pages, open_truncating, check_truncated);
    expect_seen(2);
}

/* After a failed sync the kernel may call the pages clean: the next sync, though it works, does not
 * bring them to the disk. Written again, they are safe. */
static bool write_again;

static void failed_sync_child(void *context)
{
    uint64_t seed = *(uint64_t *)context;
    char plan[96];
    snprintf(plan, sizeof plan, "seed=%llu;ops=sync;fail=EIO@1;powercut=%d",
             (unsigned long long)seed, 3);
    struct diag diag;
    fs = fs_fault_install(fs_posix(), plan, &diag);
    child_check(fs);
    struct fs_file *file;
    put_pages(fs, in("f"), "BB", false);
    child_check(fs_open(fs, in("f"), FS_WRITE, &file) == 0);
    child_check(fs->datasync(file) == WEIR_IO);
    if (write_again)
        put_pages(fs, in("f"), "BB", false);
    child_check(fs->datasync(file) == 0);
    fs->datasync(file);
    child_check(!"the power is on");
}

static void failed_sync_forgets(void **state)
{
    (void)state;
    ONE_THREAD_ONLY();
    for (unsigned i = 0; i < 60; i++) {
        uint64_t seed = first_seed + i;
        write_again = i % 2;
        folder = scratch_create_fast();
        four_durable_pages(0);
        assert_int_equal(child_run(failed_sync_child, &seed), 137);
        const char *pages = pages_of(in("f"), NULL);
        if (write_again)
            assert_string_equal(pages, "BBAA");
        else
            see(strcmp(pages, "BBAA") == 0);
        scratch_remove(folder);
        free(folder);
    }
    expect_seen(2);
}

/* Names. */
static void durable_names(uint64_t seed)
{
    (void)seed;
    put_pages(fs_posix(), in("old"), "O", true);
    put_pages(fs_posix(), in("target"), "T", true);
}

static void change_names(uint64_t seed)
{
    (void)seed;
    put_pages(fs, in("new"), "N", true);         /* 1: its data is synced, not its name */
    child_check(fs->unlink(fs, in("old")) == 0); /* 2 */
    child_check(fs->rename(fs, in("new"), in("target")) == 0); /* 3 */
    put_pages(fs, in("old"), "M", true);                       /* 4 */
}

/* Which of the states between the changes this is: 0 (none) to 4 (all); 99: no such. */
static unsigned names_state(void)
{
    static const char *const states[5][3] = {/* old, new, target */
                                             {"O", "gone", "T"},
                                             {"O", "N", "T"},
                                             {"gone", "N", "T"},
                                             {"gone", "gone", "N"},
                                             {"M", "gone", "N"}};
    for (unsigned i = 0; i < 5; i++)
        if (strcmp(pages_of(in("old"), NULL), states[i][0]) == 0 &&
            strcmp(pages_of(in("new"), NULL), states[i][1]) == 0 &&
            strcmp(pages_of(in("target"), NULL), states[i][2]) == 0)
            return i;
    return 99;
}

static void check_names(uint64_t seed)
{
    (void)seed;
    unsigned at = names_state();
    assert_in_range(at, 0, 4);
    see(at);
}

static void unsynced_names_go_from_the_newest(void **state)
{
    (void)state;
    cut_often(100, durable_names, change_names, check_names);
    expect_seen(5);
}

static void count_all(void *context, const char *name)
{
    (void)name;
    ++*(unsigned *)context;
}

static unsigned entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static void change_names_and_sync(uint64_t seed)
{
    change_names(seed);
    child_check(entries(folder) == 4); /* old, target, and a link for each that was taken away */
    child_check(fs->sync_dir(fs, in("..")) == 0); /* another folder's sync does nothing */
    child_check(entries(folder) == 4);
    child_check(fs->sync_dir(fs, folder) == 0);
    child_check(entries(folder) == 2);
}

static void check_all_names(uint64_t seed)
{
    (void)seed;
    assert_int_equal(names_state(), 4);
}

static void synced_names_stay(void **state)
{
    (void)state;
    cut_often(20, durable_names, change_names_and_sync, check_all_names);
}

/* The links are not shown, and go at a normal exit. */
static void list_child(void *context)
{
    (void)context;
    struct diag diag;
    fs = fs_fault_install(fs_posix(), "powercut=100000", &diag);
    child_check(fs);
    change_names(0);
    unsigned n = 0;
    child_check(fs->list(fs, folder, count_all, &n) == 0);
    child_check(n == 2);
    child_check(entries(folder) == 4);
    exit(10);
}

static void kill_child(void *context)
{
    (void)context;
    struct diag diag;
    fs = fs_fault_install(fs_posix(), "powercut=100000", &diag);
    change_names(0);
    kill(getpid(), SIGKILL);
}

static void list_only_child(void *context)
{
    (void)context;
    struct diag diag;
    fs = fs_fault_install(fs_posix(), "count", &diag);
    unsigned n = 0;
    child_check(fs->list(fs, folder, count_all, &n) == 0);
    child_check(n == 2);
    exit(10);
}

static void links_are_hidden_and_cleaned(void **state)
{
    (void)state;
    folder = scratch_create_fast();
    durable_names(0);
    assert_int_equal(child_run(list_child, NULL), 10);
    assert_int_equal(entries(folder), 2);
    scratch_remove(folder);
    free(folder);
    /* those of a process that was killed go when the next one lists the folder */
    folder = scratch_create_fast();
    durable_names(0);
    assert_int_equal(child_run(kill_child, NULL), 1000 + SIGKILL);
    assert_int_equal(entries(folder), 4);
    assert_int_equal(child_run(list_only_child, NULL), 10);
    assert_int_equal(entries(folder), 2);
    scratch_remove(folder);
    free(folder);
}

/* A folder whose own entry is not durable goes with all that is in it. */
static void fill_new_folder(uint64_t seed)
{
    child_check(fs->mkdir(fs, in("d")) == 0);
    child_check(fs->mkdir(fs, in("d")) == 0); /* that it is there already is no change */
    if (seed % 3 == 0)
        child_check(fs->sync_dir(fs, folder) == 0);
    put_pages(fs, in("d/a"), "A", true);
    if (seed % 3)
        child_check(fs->sync_dir(fs, in("d")) == 0);
}

static void check_folder(uint64_t seed)
{
    struct stat st;
    bool there = stat(in("d"), &st) == 0;
    const char *a = pages_of(in("d/a"), NULL);
    if (seed % 3 == 0) {
        assert_true(there);
        see(strcmp(a, "A") == 0 ? 0 : 1);
    } else {
        see(there ? 2 : 3);
        assert_string_equal(a, there ? "A" : "gone");
    }
}

static void new_folders(void **state)
{
    (void)state;
    cut_often(60, NULL, fill_new_folder, check_folder);
    expect_seen(4);
}

/* Unlinked without a sync of the folder: gone, or back with what its pages may be. */
static void write_and_unlink(uint64_t seed)
{
    (void)seed;
    put_pages(fs, in("f"), "BB", false);
    child_check(fs->unlink(fs, in("f")) == 0);
}

static void check_unlinked(uint64_t seed)
{
    (void)seed;
    const char *pages = pages_of(in("f"), NULL);
    if (strcmp(pages, "gone") == 0) {
        see(0);
        return;
    }
    assert_int_equal(strlen(pages), 4);
    assert_int_equal(strncmp(pages + 2, "AA", 2), 0);
    see(pages[0] == 'A' ? 1 : 2);
}

static void unlinked_files_come_back_as_they_may_be(void **state)
{
    (void)state;
    cut_often(80, four_durable_pages, write_and_unlink, check_unlinked);
    expect_seen(3);
}

/* Replacing is atomic at every point, and durable when it returns. */
static unsigned cut_at;

static void replace_child(void *context)
{
    uint64_t seed = *(uint64_t *)context;
    char plan[96];
    snprintf(plan, sizeof plan, "seed=%llu;powercut=%u", (unsigned long long)seed, cut_at);
    struct diag diag;
    fs = fs_fault_install(fs_posix(), plan, &diag);
    child_check(fs);
    char text[3 * PAGE];
    memset(text, 'N', sizeof text);
    child_check(fs_replace_file(fs, in("f"), text, sizeof text) == 0);
    fs->list(fs, folder, ignore_name, NULL);
    _exit(10);
}

static void replacing_is_atomic_and_durable(void **state)
{
    (void)state;
    ONE_THREAD_ONLY();
    for (cut_at = 1; cut_at <= 6;
         cut_at++) /* open, write, sync, rename, sync_dir; list: after all */
        for (unsigned i = 0; i < 15; i++) {
            uint64_t seed = first_seed + i;
            folder = scratch_create_fast();
            four_durable_pages(0);
            assert_int_equal(child_run(replace_child, &seed), 137);
            const char *pages = pages_of(in("f"), NULL);
            if (strcmp(pages, "NNN") == 0)
                see(cut_at <= 5 ? 0 : 1);
            else
                see(2);
            if (strcmp(pages, "NNN") != 0)
                assert_string_equal(pages, "AAAA");
            assert_true(cut_at < 6 || strcmp(pages, "NNN") == 0);
            scratch_remove(folder);
            free(folder);
        }
    expect_seen(3);
}

/* Threads write, sync and then report through a pipe; the power goes at some moment. What was
 * reported is there. */
#define WRITERS 3
static int reports[2];

static void *write_on(void *argument)
{
    unsigned index = *(unsigned *)argument;
    char name[16];
    snprintf(name, sizeof name, "t%u", index);
    struct fs_file *file;
    child_check(fs_open(fs, in(name), FS_WRITE | FS_CREATE, &file) == 0);
    child_check(fs->sync_dir(fs, folder) == 0);
    for (unsigned n = 1;; n++) {
        child_check(fs->pwrite(file, &n, sizeof n, (uint64_t)(n % 7) * PAGE) == 0);
        if (n % 7 != 6)
            continue;
        child_check(fs->datasync(file) == 0);
        unsigned report[2] = {index, n};
        child_check(write(reports[1], report, sizeof report) == sizeof report);
    }
    return NULL;
}

static void threads_child(void *context)
{
    uint64_t seed = *(uint64_t *)context;
    char plan[96];
    if (seed % 2)
        snprintf(plan, sizeof plan, "seed=%llu;powercut-ms=%u", (unsigned long long)seed,
                 1 + (unsigned)(seed % 20));
    else
        snprintf(plan, sizeof plan, "seed=%llu;powercut=%u", (unsigned long long)seed,
                 7 + (unsigned)(seed % 300));
    struct diag diag;
    fs = fs_fault_install(fs_posix(), plan, &diag);
    child_check(fs);
    pthread_t threads[WRITERS];
    unsigned indexes[WRITERS] = {0, 1, 2};
    for (unsigned i = 0; i < WRITERS; i++)
        child_check(thread_start(&threads[i], "writer", 0, write_on, &indexes[i]) == 0);
    for (unsigned i = 0; i < WRITERS; i++)
        thread_join(threads[i]);
}

static void what_threads_reported_is_there(void **state)
{
    (void)state;
    for (unsigned i = 0; i < THREAD_RUNS; i++) {
        uint64_t seed = first_seed + i;
        folder = scratch_create_fast();
        assert_int_equal(pipe(reports), 0);
        assert_int_equal(fcntl(reports[1], F_SETPIPE_SZ, 1 << 20) > 0, 1);
        assert_int_equal(child_run(threads_child, &seed), 137);
        close(reports[1]);
        unsigned report[2], last[WRITERS] = {0};
        while (read(reports[0], report, sizeof report) == sizeof report)
            last[report[0]] = report[1];
        close(reports[0]);
        for (unsigned w = 0; w < WRITERS; w++) {
            if (!last[w])
                continue;
            see(0);
            char name[16], *text;
            size_t n;
            snprintf(name, sizeof name, "t%u", w);
            assert_int_equal(fs_read_file(fs_posix(), in(name), 1 << 20, &text, &n), 0);
            for (unsigned at = 0; at < 7; at++) {
                unsigned found, least = last[w] - 6 + at;
                assert_true(n >= at * PAGE + sizeof found);
                memcpy(&found, text + at * PAGE, sizeof found);
                if (found != least && found != least + 7)
                    fail_msg("seed %llu: %u where at least %u was reported",
                             (unsigned long long)seed, found, least);
            }
            mem_free(text);
        }
        scratch_remove(folder);
        free(folder);
    }
    expect_seen(1);
}

/* Random changes to one file against a model: for each sector the values that it may hold. */
#define SECTOR  512
#define SECTORS 96
#define VALUES  64

struct model {
    unsigned char values[SECTORS][VALUES]; /* the first is the durable one */
    unsigned n[SECTORS];
    unsigned durable_size, low, high, size; /* in sectors; sizes since the sync lie in low..high */
};

static void allow(struct model *model, unsigned sector, unsigned char value)
{
    if (model->n[sector] < VALUES)
        model->values[sector][model->n[sector]++] = value;
}

/* The same steps in the child (on the file) and in the parent (on the model). */
static void random_steps(uint64_t seed, struct fs_file *file, struct model *model)
{
    struct seeded random = {seed};
    unsigned char now[SECTORS] = {0}, bytes[SECTORS * SECTOR];
    memset(model, 0, sizeof *model);
    for (unsigned i = 0; i < SECTORS; i++)
        model->n[i] = 1;
    unsigned steps = 5 + (unsigned)seeded_below(&random, 40);
    for (unsigned step = 0; step < steps; step++) {
        unsigned what = (unsigned)seeded_below(&random, 10);
        unsigned at = (unsigned)seeded_below(&random, SECTORS);
        unsigned n = 1 + (unsigned)seeded_below(&random, 24);
        if (what < 7) {
            if (at + n > SECTORS)
                n = SECTORS - at;
            memset(bytes, (int)step + 1, n * SECTOR);
            if (file)
                child_check(fs->pwrite(file, bytes, n * SECTOR, at * SECTOR) == 0);
            for (unsigned i = at; i < at + n; i++)
                allow(model, i, now[i] = (unsigned char)(step + 1));
            if (at + n > model->size)
                model->size = at + n;
        } else if (what < 8) {
            if (file)
                child_check(fs->truncate(file, at * SECTOR) == 0);
            for (unsigned i = at; i < SECTORS; i++)
                allow(model, i, now[i] = 0);
            model->size = at;
        } else {
            if (file)
                child_check(fs->datasync(file) == 0);
            for (unsigned i = 0; i < SECTORS; i++) {
                model->values[i][0] = now[i];
                model->n[i] = 1;
            }
            model->durable_size = model->low = model->high = model->size;
        }
        if (model->size < model->low)
            model->low = model->size;
        if (model->size > model->high)
            model->high = model->size;
    }
}

static void random_body(uint64_t seed)
{
    struct fs_file *file;
    struct model model;
    child_check(fs_open(fs, in("m"), FS_WRITE | FS_CREATE, &file) == 0);
    child_check(fs->sync_dir(fs, folder) == 0);
    random_steps(seed, file, &model);
}

static void check_random(uint64_t seed)
{
    struct model model;
    random_steps(seed, NULL, &model);
    char *text;
    size_t n;
    assert_int_equal(fs_read_file(fs_posix(), in("m"), 1 << 20, &text, &n), 0);
    if (n < model.low * SECTOR || n > model.high * SECTOR)
        fail_msg("seed %llu: %zu bytes", (unsigned long long)seed, n);
    for (size_t i = 0; i < n; i++) {
        unsigned sector = (unsigned)(i / SECTOR);
        bool allowed = sector >= model.durable_size && text[i] == 0;
        for (unsigned j = 0; j < model.n[sector]; j++)
            allowed |= model.values[sector][j] == (unsigned char)text[i];
        if (!allowed)
            fail_msg("seed %llu: byte %zu is %d", (unsigned long long)seed, i, text[i]);
    }
    mem_free(text);
}

static void random_changes_against_a_model(void **state)
{
    (void)state;
    cut_often(250, NULL, random_body, check_random);
}

int main(void)
{
    first_seed = seeded_choose() & 0xffffffffffff;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unsynced_pages_may_be_lost),
        cmocka_unit_test(synced_pages_stay),
        cmocka_unit_test(unsynced_extension),
        cmocka_unit_test(truncation_and_rewriting),
        cmocka_unit_test(truncation_on_open),
        cmocka_unit_test(failed_sync_forgets),
        cmocka_unit_test(unsynced_names_go_from_the_newest),
        cmocka_unit_test(synced_names_stay),
        cmocka_unit_test(links_are_hidden_and_cleaned),
        cmocka_unit_test(new_folders),
        cmocka_unit_test(unlinked_files_come_back_as_they_may_be),
        cmocka_unit_test(replacing_is_atomic_and_durable),
        cmocka_unit_test(what_threads_reported_is_there),
        cmocka_unit_test(random_changes_against_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
