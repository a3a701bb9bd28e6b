/* meta.h: `data/META`, what the data directory is: format version, partitions, the numbers of the
 * streams, and the ceiling under which versions may be given out. And `data/LOCK`: one process at a
 * time.
 *
 * META is small text ("format 1\npartitions 4\nversion_ceiling N\nstream 0 events\n") with an XXH3
 * line at its end, replaced whole. A newer format is refused (WEIR_NEWER), a damaged one too
 * (WEIR_CORRUPT). */
#ifndef WEIR_GATEWAY_META_H
#define WEIR_GATEWAY_META_H

#include "base/diag.h"
#include "os/fs.h"

struct meta {
    unsigned partitions;
    uint64_t version_ceiling;
    char **streams; /* by number; a stream taken out of the configuration keeps its number */
    uint32_t n_streams;
};

int meta_read(const struct fs *fs, const char *data, struct meta *out,
              struct diag *diag); /* WEIR_NOT_FOUND: a new directory */
int meta_write(const struct fs *fs, const char *data, const struct meta *meta, struct diag *diag);
void meta_fini(struct meta *meta);
uint32_t meta_stream_add(struct meta *meta, const char *name); /* its number, old or new */
int meta_stream_find(const struct meta *meta, const char *name, uint32_t *out); /* WEIR_NOT_FOUND */

/* Takes data/LOCK (creates data when missing). WEIR_LOCKED names the process that holds it. */
int data_lock(const struct fs *fs, const char *data, struct fs_file **out, struct diag *diag);

#endif
