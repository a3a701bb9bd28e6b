/* scratch.h: a folder of a test's own, removed with all that is in it. */
#ifndef WEIR_TESTS_SCRATCH_H
#define WEIR_TESTS_SCRATCH_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int scratch_remove_one(const char *path, const struct stat *st, int flag,
                                     struct FTW *where)
{
    (void)st;
    (void)flag;
    (void)where;
    return remove(path);
}

static inline void scratch_remove(const char *path)
{
    nftw(path, scratch_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* The path of a new empty folder below `base`, in memory of its own. */
static inline char *scratch_create_in(const char *base)
{
    char *path = NULL;
    if (asprintf(&path, "%s/weir-test-XXXXXX", base) < 0 || !mkdtemp(path)) {
        perror("scratch folder");
        abort();
    }
    return path;
}

static inline char *scratch_create(void)
{
    const char *base = getenv("TMPDIR");
    return scratch_create_in(base ? base : "/tmp");
}

/* In memory, where there is such a place: for tests whose power cuts are simulated, so that syncs
 * of a real disk only cost time. */
static inline char *scratch_create_fast(void)
{
    return access("/dev/shm", W_OK) == 0 ? scratch_create_in("/dev/shm") : scratch_create();
}

#endif
