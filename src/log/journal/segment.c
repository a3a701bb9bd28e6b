/* segment.c: segment files and their chain (see segment.h). */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/mem.h"
#include "log/journal/segment.h"

void segment_list_fini(struct segment_list *list)
{
    mem_free(list->items);
    *list = (struct segment_list){0};
}

struct segment *segment_list_add(struct segment_list *list, const struct segment *segment)
{
    if (list->n == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 16;
        list->items = mem_realloc(list->items, list->capacity * sizeof *list->items);
    }
    list->items[list->n] = *segment;
    return &list->items[list->n++];
}

void segment_list_remove_first(struct segment_list *list, size_t n)
{
    assert(n <= list->n);
    list->n -= n;
    memmove(list->items, list->items + n, list->n * sizeof *list->items);
}

const struct segment *segment_list_find(const struct segment_list *list, uint64_t lsn)
{
    size_t low = 0, high = list->n; /* the first whose base is beyond lsn */
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (list->items[middle].header.base <= lsn)
            low = middle + 1;
        else
            high = middle;
    }
    /* Empty segments share their base with the next: the last of them is the one to go on with. */
    if (low == 0)
        return NULL;
    const struct segment *segment = &list->items[low - 1];
    return segment->damaged || lsn >= segment->end ? NULL : segment;
}

void segment_folder_fini(struct segment_folder *folder)
{
    segment_list_fini(&folder->begun);
    mem_free(folder->others);
    *folder = (struct segment_folder){0};
}

void segment_name(uint64_t number, char out[32])
{
    snprintf(out, 32, "%010" PRIu64 ".seg", number);
}

char *segment_path(const char *folder, uint64_t number)
{
    return mem_printf("%s/%010" PRIu64 ".seg", folder, number);
}

uint64_t segment_nonce(void)
{
    uint64_t nonce = 0;
    while (nonce == 0) {
        ssize_t got = getrandom(&nonce, sizeof nonce, 0);
        assert(got == sizeof nonce || errno == EINTR);
        if (got != sizeof nonce)
            nonce = 0;
    }
    return nonce;
}

int segment_header_load(struct fs_file *file, uint64_t number, struct segment_header *out,
                        enum segment_state *state)
{
    char page[SEGMENT_DATA];
    size_t n;
    int rc = file->fs->pread(file, page, sizeof page, 0, &n);
    if (rc)
        return rc;
    *state = segment_header_check(page, n, number, out);
    return 0;
}

/* A group of any segment, whole in its header. */
static bool any_group(const char *p, struct group_header *out)
{
    uint64_t nonce;
    memcpy(&nonce, p + offsetof(struct group_header, nonce), sizeof nonce);
    return group_header_read(p, nonce, out);
}

int segment_holds_groups(const struct fs *fs, const char *folder, const struct segment_file *file,
                         uint64_t base, bool *holds)
{
    enum { PIECE = 1 << 20, STEP = PIECE - 128 }; /* pieces overlap by more than a header */
    char *path = segment_path(folder, file->number), *piece = mem_alloc(PIECE);
    struct fs_file *handle = NULL;
    uint64_t until = file->state == SEGMENT_DAMAGED ? file->bytes : SEGMENT_DATA + 65536;
    size_t n = PIECE;
    bool found = false;
    int rc = fs_open(fs, path, FS_READ, &handle);
    for (uint64_t at = SEGMENT_DATA; rc == 0 && at < until && n == PIECE && !found; at += STEP) {
        rc = handle->fs->pread(handle, piece, PIECE, at, &n);
        struct group_header group;
        for (size_t i = 0; rc == 0 && i + sizeof group <= n && at + i < until && !found; i += 8)
            found = any_group(piece + i, &group) && group.lsn >= base;
    }
    if (rc == 0)
        *holds = found;
    fs_close(handle);
    mem_free(piece);
    mem_free(path);
    return rc;
}

struct found {
    uint64_t *numbers;
    size_t n, capacity;
    bool rewrite_left;
};

static void found_name(void *context, const char *name)
{
    struct found *found = context;
    if (strcmp(name, SEGMENT_REWRITE) == 0)
        found->rewrite_left = true;
    char *end;
    errno = 0;
    if (*name < '0' || *name > '9')
        return;
    unsigned long long number = strtoull(name, &end, 10);
    char same[32];
    segment_name(number, same);
    if (errno || number == 0 || strcmp(name, same) != 0)
        return;
    if (found->n == found->capacity) {
        found->capacity = found->capacity ? found->capacity * 2 : 64;
        found->numbers = mem_realloc(found->numbers, found->capacity * sizeof *found->numbers);
    }
    found->numbers[found->n++] = number;
}

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* What one file is. WEIR_NOT_FOUND when it has gone since it was listed. */
static int look_at(const struct fs *fs, const char *folder, uint64_t number,
                   struct segment_file *file, struct segment *segment, struct diag *diag)
{
    char *path = segment_path(folder, number);
    struct fs_file *handle = NULL;
    *file = (struct segment_file){.number = number};
    *segment = (struct segment){.end = UINT64_MAX};
    int rc = fs_open(fs, path, FS_READ, &handle);
    if (rc == WEIR_NOT_FOUND)
        goto out;
    if (rc == 0)
        rc = fs->size(handle, &file->bytes);
    if (rc == 0)
        rc = segment_header_load(handle, number, &segment->header, &file->state);
    if (rc)
        diag_set(diag, rc, "%s: cannot be read: %s", path, strerror(errno));
    else if (file->state == SEGMENT_NEWER)
        rc = diag_set(diag, WEIR_NEWER,
                      "%s: was written by a newer weir; run that version on this directory", path);
    segment->file_bytes = file->bytes;
out:
    fs_close(handle);
    mem_free(path);
    return rc;
}

/* Sets ends, losses and the places of damaged segments, now that all are known. */
static void link_chain(struct segment_list *list)
{
    for (size_t i = list->n; i-- > 0;) {
        struct segment *segment = &list->items[i];
        struct segment *next = i + 1 < list->n ? &list->items[i + 1] : NULL;
        if (next)
            segment->end = next->header.base;
        if (segment->damaged)
            segment->header.base = segment->end;
        else if (next && next->damaged)
            segment->lost_after = next->header.number;
        else if (next && (next->header.previous_number != segment->header.number ||
                          next->header.previous_nonce != segment->header.nonce))
            segment->lost_after = next->header.previous_number;
    }
}

int segment_folder_read(const struct fs *fs, const char *folder, struct segment_folder *out,
                        struct diag *diag)
{
    struct segment_folder read = {0};
    struct found found = {0};
    int rc = fs->list(fs, folder, found_name, &found);
    if (rc) {
        diag_set(diag, rc, "%s: cannot be listed: %s", folder, strerror(errno));
        goto out;
    }
    if (found.n)
        qsort(found.numbers, found.n, sizeof *found.numbers, by_number);
    read.rewrite_left = found.rewrite_left;
    read.others = mem_alloc((found.n + 1) * sizeof *read.others);
    for (size_t i = 0; i < found.n; i++) {
        struct segment_file file;
        struct segment segment;
        rc = look_at(fs, folder, found.numbers[i], &file, &segment, diag);
        if (rc == WEIR_NOT_FOUND) {
            rc = 0;
            continue;
        }
        if (rc)
            goto out;
        read.last_number = file.number;
        if (file.state != SEGMENT_BEGUN) {
            read.others[read.n_others++] = file;
            continue;
        }
        /* What cannot be read below a begun segment was one itself, unless the chain leaps over it.
         */
        size_t kept = 0;
        for (size_t k = 0; k < read.n_others; k++) {
            struct segment_file *other = &read.others[k];
            if (other->state == SEGMENT_FOREIGN || other->number > segment.header.previous_number) {
                read.others[kept++] = *other;
                continue;
            }
            struct segment damaged = {
                .header = {.number = other->number}, .damaged = true, .file_bytes = other->bytes};
            segment_list_add(&read.begun, &damaged);
        }
        read.n_others = kept;
        segment_list_add(&read.begun, &segment);
    }
    link_chain(&read.begun);
    *out = read;
    read = (struct segment_folder){0};
out:
    segment_folder_fini(&read);
    mem_free(found.numbers);
    return rc;
}
