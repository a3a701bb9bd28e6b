/* left.c: cursors of consumers that are no more: their sink was renamed, or taken out of the
 * configuration. Such a cursor does not hold the log back, so what it had not settled goes; a
 * person is told, at each opening until the file is removed. While the journal is opened; one
 * thread. */
#include <inttypes.h>
#include <string.h>

#include "base/buf.h"
#include "base/mem.h"
#include "log/journal/journal.h"

static void gather(void *context, const char *name)
{
    /* No cursor's name has a point (see cursor.c): it is somebody's temporary file. */
    if (!strchr(name, '.'))
        buf_put(context, name, strlen(name) + 1);
}

static int hex(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The consumer's name of a file's, in place; false: it is not one that cursor.c makes. */
static bool consumer_of(char *name)
{
    char *to = name;
    for (const char *p = name; *p; p++) {
        if (*p != '%') {
            *to++ = *p;
            continue;
        }
        if (hex(p[1]) < 0 || hex(p[2]) < 0)
            return false;
        *to++ = (char)(hex(p[1]) << 4 | hex(p[2]));
        p += 2;
    }
    *to = 0;
    return true;
}

static bool in_use(const struct journal *journal, const char *name)
{
    for (size_t i = 0; i < journal->n_cursors; i++)
        if (strcmp(journal->cursors[i]->name, name) == 0)
            return true;
    return false;
}

static void look_at(struct journal *journal, const char *name)
{
    struct cursor *cursor;
    if (cursor_create(journal->cursor_folder, name, journal->config.partitions, &cursor, NULL))
        return;
    if (cursor_load(cursor, journal->config.fs, NULL) == 0) {
        /* relaxed: nobody else is there yet */
        uint64_t settled = atomic_load_explicit(&cursor->records, memory_order_relaxed);
        uint64_t all = atomic_load_explicit(&journal->durable_records, memory_order_relaxed);
        if (all > settled)
            journal_report(journal,
                           "consumer %s: no sink has this name any more; it is %" PRIu64
                           " records behind, and the log does not keep them for it. If that is "
                           "meant, remove %s",
                           name, all - settled, cursor->path);
    }
    cursor_destroy(cursor);
}

void journal_report_left(struct journal *journal)
{
    const struct fs *fs = journal->config.fs;
    struct buf names = {0};
    if (fs->list(fs, journal->cursor_folder, gather, &names) == 0) {
        size_t bytes;
        for (size_t at = 0; at < names.n; at += bytes) {
            char *name = names.p + at;
            bytes = strlen(name) + 1;
            if (consumer_of(name) && !in_use(journal, name))
                look_at(journal, name);
        }
    }
    buf_fini(&names);
}
