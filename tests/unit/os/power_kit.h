/* power_kit.h: what the tests of power cuts share: a child that changes files and loses its power,
 * a parent that looks at what is left, over many seeds. */
#ifndef WEIR_TESTS_POWER_KIT_H
#define WEIR_TESTS_POWER_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <string.h>

#include "../child.h"
#include "../scratch.h"
#include "../seeded.h"
#include "base/mem.h"
#include "os/fs_fault.h"
#include "weir/err.h"

#define PAGE 4096

/* Hundreds of forks of one thread: ThreadSanitizer has nothing to find, and is slow at it. */
#ifdef __SANITIZE_THREAD__
#define ONE_THREAD_ONLY() skip()
#else
#define ONE_THREAD_ONLY() (void)0
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

static void four_durable_pages(uint64_t seed)
{
    (void)seed;
    put_pages(fs_posix(), in("f"), "AAAA", true);
}

#endif
