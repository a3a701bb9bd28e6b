/* fill.c: writing segment files through before use, so that a flush changes no metadata: the blocks
 * are there, the size stands, and fdatasync has nothing but the data to wait for.
 *
 * Threads: opening, then the keeper. The log thread writes below `filled`, this only at and above
 * it. */
#include <assert.h>

#include "base/mem.h"
#include "log/journal/journal.h"

static const char zeros[FILL_STEP];

int segment_use_open(struct journal *journal, const char *path, uint64_t number, uint64_t bytes,
                     bool create, struct segment_use **out)
{
    const struct fs *fs = journal->config.fs;
    struct segment_use *use = mem_zalloc(sizeof *use);
    use->number = number;
    use->bytes = bytes;
    int rc = fs_open(fs, path, create ? FS_WRITE | FS_CREATE | FS_TRUNCATE : FS_WRITE, &use->file);
    if (rc == 0)
        rc = fs_open(fs, path, FS_WRITE, &use->fill_file);
    if (rc) {
        segment_use_close(use);
        return rc;
    }
    *out = use;
    return 0;
}

int segment_use_fill(struct segment_use *use, size_t step)
{
    /* relaxed: only this thread writes it */
    uint64_t from = atomic_load_explicit(&use->filled, memory_order_relaxed);
    assert(step <= sizeof zeros && from < use->bytes);
    uint64_t to = (from + step) / step * step;
    if (to > use->bytes)
        to = use->bytes;
    int rc = use->fill_file->fs->pwrite(use->fill_file, zeros, (size_t)(to - from), from);
    if (rc)
        return rc;
    rc = use->fill_file->fs->datasync(use->fill_file);
    if (rc)
        return WEIR_POISONED; /* told apart from a write that failed */
    /* release: the log thread relies on the bytes below */
    atomic_store_explicit(&use->filled, to, memory_order_release);
    return 0;
}

int segment_use_wipe(struct segment_use *use, uint64_t from, uint64_t to)
{
    while (from < to) {
        size_t n = to - from < sizeof zeros ? (size_t)(to - from) : sizeof zeros;
        int rc = use->fill_file->fs->pwrite(use->fill_file, zeros, n, from);
        if (rc)
            return rc;
        from += n;
    }
    return use->fill_file->fs->datasync(use->fill_file);
}

void segment_use_close(struct segment_use *use)
{
    if (!use)
        return;
    fs_close(use->fill_file);
    fs_close(use->file);
    mem_free(use);
}
