/* walk.c: reads a segment's groups from a file (see walk.h). */
#include <assert.h>

#include "base/mem.h"
#include "log/journal/segment.h"
#include "log/journal/walk.h"
#include "weir/err.h"

#define PIECE ((size_t)1 << 20)

void walk_begin(struct walk *walk, struct fs_file *file, const struct segment_header *header,
                uint64_t limit)
{
    uint64_t full = segment_limit(header);
    *walk = (struct walk){
        .file = file,
        .header = *header,
        .limit = limit < full ? limit : full,
        .lsn = header->base,
        .number = header->first_group,
        .records_before = header->records_before,
        .buffer_lsn = header->base,
    };
}

void walk_end(struct walk *walk)
{
    mem_free(walk->buffer);
    walk->buffer = NULL;
}

/* Makes the n bytes at lsn lie in the buffer. WEIR_END: the file or the limit ends before. */
static int load(struct walk *walk, uint64_t lsn, size_t n, const char **out)
{
    if (lsn > walk->limit || n > walk->limit - lsn)
        return WEIR_END;
    if (lsn < walk->buffer_lsn || lsn + n > walk->buffer_lsn + walk->n) {
        uint64_t left = walk->limit - lsn;
        size_t wanted = n > PIECE ? n : left < PIECE ? (size_t)left : PIECE;
        if (wanted > walk->capacity) {
            mem_free(walk->buffer);
            walk->capacity = 0;
            walk->n = 0;
            walk->buffer = mem_try_alloc(wanted);
            if (!walk->buffer)
                return WEIR_NO_MEMORY;
            walk->capacity = wanted;
        }
        walk->n = 0;
        walk->buffer_lsn = lsn;
        int rc = walk->file->fs->pread(walk->file, walk->buffer, wanted,
                                       segment_offset(&walk->header, lsn), &walk->n);
        if (rc)
            return rc;
        if (walk->n < n)
            return WEIR_END;
    }
    *out = walk->buffer + (lsn - walk->buffer_lsn);
    return 0;
}

static int bad(struct walk *walk, const char *why)
{
    walk->why = why;
    return WEIR_CORRUPT;
}

int walk_next(struct walk *walk, struct group_header *header, const char **units)
{
    const char *p;
    struct group_header group;
    if (walk->lsn == walk->limit)
        return WEIR_END;
    int rc = load(walk, walk->lsn, sizeof group, &p);
    if (rc == WEIR_END)
        return bad(walk, "the file ends here");
    if (rc)
        return rc;
    if (!group_header_read(p, walk->header.nonce, &group))
        return bad(walk, "no group's header is here");
    if (group.lsn != walk->lsn)
        return bad(walk, "the group's header belongs to another place");
    if (group.number != walk->number || group.records_before != walk->records_before ||
        group.durable > group.lsn || group.payload % 8)
        return bad(walk, "the group's header does not follow the one before it");
    rc = load(walk, walk->lsn, group_bytes(&group), &p);
    if (rc == WEIR_END)
        return bad(walk, "the group does not fit in the segment");
    if (rc)
        return rc;
    rc = group_check(p, &group, &walk->why);
    if (rc)
        return rc;
    walk->lsn += group_bytes(&group);
    walk->number++;
    walk->records_before += group.records;
    *header = group;
    *units = p + sizeof group;
    return 0;
}

int walk_search(struct walk *walk, uint64_t from, struct group_header *found)
{
    assert(from % 8 == 0);
    for (uint64_t lsn = from;;) {
        const char *p;
        int rc = load(walk, lsn, sizeof *found, &p);
        if (rc)
            return rc;
        const char *last = walk->buffer + walk->n - sizeof *found;
        for (; p <= last; p += 8, lsn += 8)
            if (group_header_read(p, walk->header.nonce, found) && found->lsn == lsn)
                return 0;
    }
}

void walk_resume(struct walk *walk, const struct group_header *found)
{
    walk->lsn = found->lsn;
    walk->number = found->number;
    walk->records_before = found->records_before;
}
