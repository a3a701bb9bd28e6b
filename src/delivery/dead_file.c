/* dead_file.c: frames and the walk over them (see dead_file.h). */
#include "delivery/dead_file.h"

#include <assert.h>
#include <errno.h>
#include <string.h>

#include "base/clock.h"
#include "base/hash.h"

#define FORMAT      1u
#define FRAME_MAGIC 0x4c445744u /* "DWDL" */
#define FRAME_HEAD  32
#define WINDOW      ((size_t)256 * 1024)

static const char MAGIC[8] = {'w', 'e', 'i', 'r', 'd', 'e', 'a', 'd'};

/* Little endian whatever the machine. */
static void put_u32(char *p, uint32_t v)
{
    for (int i = 0; i < 4; i++)
        p[i] = (char)(v >> (8 * i));
}

static void put_u64(char *p, uint64_t v)
{
    for (int i = 0; i < 8; i++)
        p[i] = (char)(v >> (8 * i));
}

static uint32_t get_u32(const char *p)
{
    uint32_t v = 0;
    for (int i = 0; i < 4; i++)
        v |= (uint32_t)(unsigned char)p[i] << (8 * i);
    return v;
}

static uint64_t get_u64(const char *p)
{
    return get_u32(p) | (uint64_t)get_u32(p + 4) << 32;
}

static size_t frame_size(size_t payload)
{
    return (FRAME_HEAD + payload + 7) & ~(size_t)7;
}

/* ---- the header ---- */

int dead_file_begin(const struct fs *fs, const char *temporary, uint64_t first_number,
                    struct dead_file *out, struct diag *diag)
{
    uint64_t now = clock_mono_ns();
    struct dead_file f = {.fs = fs,
                          .nonce = hash64_seeded(&now, sizeof(now), hash_process_seed()),
                          .first_number = first_number,
                          .end = DEAD_FILE_HEADER};
    int rc = fs_open(fs, temporary, FS_WRITE | FS_CREATE | FS_TRUNCATE, &f.file);
    if (rc)
        return diag_set(diag, rc, "%s: cannot be created: %s", temporary, strerror(errno));
    char header[DEAD_FILE_HEADER] = {0};
    memcpy(header, MAGIC, 8);
    put_u32(header + 8, FORMAT);
    put_u64(header + 16, first_number);
    put_u64(header + 24, f.nonce);
    put_u64(header + 32, hash64(header, 32));
    rc = fs->pwrite(f.file, header, sizeof(header), 0);
    if (rc) {
        rc = diag_set(diag, rc, "%s: cannot be written: %s", temporary, strerror(errno));
        fs_close(f.file);
        return rc;
    }
    *out = f;
    return 0;
}

int dead_file_publish(struct dead_file *file, const char *path, const char *temporary,
                      const char *directory, bool read_write, bool *replaced, struct diag *diag)
{
    const struct fs *fs = file->fs;
    *replaced = false;
    int rc = fs->datasync(file->file);
    if (rc)
        return diag_set(diag, rc, "%s: cannot be synced: %s", temporary, strerror(errno));
    rc = fs->rename(fs, temporary, path);
    if (rc)
        return diag_set(diag, rc, "%s: cannot be renamed to %s: %s", temporary, path,
                        strerror(errno));
    *replaced = true;
    rc = fs->sync_dir(fs, directory);
    if (rc)
        return diag_set(diag, rc, "%s: the directory cannot be synced: %s", directory,
                        strerror(errno));
    /* Opened again under its name: what is below may keep its books by path. */
    fs_close(file->file);
    file->file = NULL;
    rc = fs_open(fs, path, read_write ? FS_WRITE : FS_READ, &file->file);
    if (rc)
        return diag_set(diag, rc, "%s: cannot be opened: %s", path, strerror(errno));
    return 0;
}

int dead_file_create(const struct fs *fs, const char *path, const char *temporary,
                     const char *directory, uint64_t first_number, struct dead_file *out,
                     struct diag *diag)
{
    struct dead_file f;
    int rc = dead_file_begin(fs, temporary, first_number, &f, diag);
    if (rc)
        return rc;
    bool replaced;
    rc = dead_file_publish(&f, path, temporary, directory, true, &replaced, diag);
    if (rc) {
        /* Nothing was in it: taking it away and trying again later loses nothing. */
        dead_file_close(&f);
        fs->unlink(fs, replaced ? path : temporary);
        return rc;
    }
    *out = f;
    return 0;
}

int dead_file_open(const struct fs *fs, const char *path, bool read_only, struct dead_file *out,
                   struct diag *diag)
{
    struct dead_file f = {.fs = fs};
    int rc = fs_open(fs, path, read_only ? FS_READ : FS_WRITE, &f.file);
    if (rc)
        return diag_set(diag, rc, "%s: cannot be opened: %s", path, strerror(errno));
    char header[DEAD_FILE_HEADER];
    rc = fs_pread_all(f.file, header, sizeof(header), 0);
    if (rc && rc != WEIR_END)
        diag_set(diag, rc, "%s: cannot be read: %s", path, strerror(errno));
    else if (rc || memcmp(header, MAGIC, 8) != 0 || get_u64(header + 32) != hash64(header, 32))
        rc = diag_set(diag, WEIR_CORRUPT,
                      "%s: its header is damaged, no dead letter in it can be trusted: move the "
                      "file away and start again",
                      path);
    else if (get_u32(header + 8) != FORMAT)
        rc = diag_set(diag, WEIR_NEWER, "%s: format %u was written by a newer weir", path,
                      get_u32(header + 8));
    if (rc) {
        fs_close(f.file);
        return rc;
    }
    f.first_number = get_u64(header + 16);
    f.nonce = get_u64(header + 24);
    f.end = DEAD_FILE_HEADER;
    *out = f;
    return 0;
}

void dead_file_close(struct dead_file *file)
{
    fs_close(file->file);
    file->file = NULL;
}

/* ---- frames ---- */

/* Fills in the head of a frame whose payload lies behind it already. */
static void seal(char *frame, size_t payload, uint64_t nonce, enum dead_frame_kind kind,
                 uint64_t number)
{
    put_u32(frame + 8, FRAME_MAGIC);
    put_u32(frame + 12, (uint32_t)payload);
    put_u64(frame + 16, number);
    put_u32(frame + 24, kind);
    put_u32(frame + 28, (uint32_t)hash64_seeded(frame + 8, 20, nonce));
    put_u64(frame, hash64_seeded(frame + 8, FRAME_HEAD - 8 + payload, nonce));
    size_t used = FRAME_HEAD + payload;
    memset(frame + used, 0, frame_size(payload) - used);
}

void dead_frame_put(struct buf *out, uint64_t nonce, enum dead_frame_kind kind, uint64_t number,
                    struct slice payload)
{
    assert(payload.n < UINT32_MAX - FRAME_HEAD);
    char *frame = buf_extend(out, frame_size(payload.n));
    if (payload.n)
        memcpy(frame + FRAME_HEAD, payload.p, payload.n);
    seal(frame, payload.n, nonce, kind, number);
}

/* A letter's payload: the fixed part, then the texts (terminated) and the record's slices. */
#define LETTER_FIXED 64

size_t dead_frame_put_letter(struct buf *out, uint64_t nonce, uint64_t number,
                             const struct dead_letter *letter)
{
    const struct record *r = &letter->record;
    const char *name = letter->stream_name ? letter->stream_name : "";
    const char *reason = letter->reason ? letter->reason : "";
    size_t texts[3] = {strlen(name) + 1, strlen(reason) + 1,
                       strnlen(letter->position, sizeof(letter->position) - 1) + 1};
    const struct slice slices[4] = {r->id, r->key, r->attributes, r->doc};
    size_t payload = LETTER_FIXED + texts[0] + texts[1] + texts[2];
    for (int i = 0; i < 4; i++)
        payload += slices[i].n;
    assert(payload < UINT32_MAX - FRAME_HEAD);

    char *frame = buf_extend(out, frame_size(payload));
    char *p = frame + FRAME_HEAD;
    put_u64(p, letter->time_ms);
    put_u64(p + 8, r->version);
    put_u64(p + 16, r->offset);
    put_u32(p + 24, r->stream);
    put_u32(p + 28, r->partition);
    for (int i = 0; i < 3; i++)
        put_u32(p + 32 + 4 * i, (uint32_t)texts[i]);
    for (int i = 0; i < 4; i++)
        put_u32(p + 44 + 4 * i, (uint32_t)slices[i].n);
    put_u32(p + 60, 0);
    p += LETTER_FIXED;
    memcpy(p, name, texts[0]);
    memcpy(p + texts[0], reason, texts[1]);
    p += texts[0] + texts[1];
    memcpy(p, letter->position, texts[2] - 1);
    p[texts[2] - 1] = 0;
    p += texts[2];
    for (int i = 0; i < 4; i++) {
        if (slices[i].n)
            memcpy(p, slices[i].p, slices[i].n);
        p += slices[i].n;
    }
    seal(frame, payload, nonce, DEAD_ENTRY, number);
    return frame_size(payload);
}

int dead_frame_letter(const struct dead_frame *frame, const char *sink, struct dead_letter *out)
{
    struct slice payload = frame->payload;
    if (frame->kind != DEAD_ENTRY || payload.n < LETTER_FIXED)
        return WEIR_CORRUPT;
    const char *p = payload.p;
    uint64_t lengths[7], sum = LETTER_FIXED;
    for (int i = 0; i < 7; i++) {
        lengths[i] = get_u32(p + 32 + 4 * i);
        sum += lengths[i];
    }
    if (sum != payload.n || !lengths[0] || !lengths[1] || !lengths[2] ||
        lengths[2] > sizeof(out->position))
        return WEIR_CORRUPT;
    const char *at[7];
    at[0] = p + LETTER_FIXED;
    for (int i = 1; i < 7; i++)
        at[i] = at[i - 1] + lengths[i - 1];
    for (int i = 0; i < 3; i++)
        if (at[i][lengths[i] - 1] != 0)
            return WEIR_CORRUPT;
    *out = (struct dead_letter){
        .number = frame->number,
        .time_ms = get_u64(p),
        .sink = sink,
        .stream_name = at[0],
        .reason = at[1],
        .record = {.id = {at[3], lengths[3]},
                   .key = {at[4], lengths[4]},
                   .attributes = {at[5], lengths[5]},
                   .doc = {at[6], lengths[6]},
                   .version = get_u64(p + 8),
                   .offset = get_u64(p + 16),
                   .stream = get_u32(p + 24),
                   .partition = get_u32(p + 28)},
    };
    memcpy(out->position, at[2], lengths[2]);
    return 0;
}

/* Whether these bytes begin like a frame of this file; *payload is then its length. */
static bool head_good(const char *p, uint64_t nonce, uint32_t *payload)
{
    if (get_u32(p + 8) != FRAME_MAGIC ||
        get_u32(p + 28) != (uint32_t)hash64_seeded(p + 8, 20, nonce))
        return false;
    *payload = get_u32(p + 12);
    return true;
}

static bool frame_good(const char *p, uint64_t nonce, uint32_t payload, uint64_t offset,
                       struct dead_frame *out)
{
    if (get_u64(p) != hash64_seeded(p + 8, FRAME_HEAD - 8 + (size_t)payload, nonce))
        return false;
    out->kind = get_u32(p + 24) == DEAD_DROPPED ? DEAD_DROPPED : DEAD_ENTRY;
    out->number = get_u64(p + 16);
    out->offset = offset;
    out->size = frame_size(payload);
    out->payload = (struct slice){p + FRAME_HEAD, payload};
    return true;
}

/* A window of the file in memory, moved forward by the walk. */
struct window {
    struct dead_file *file;
    struct buf bytes;
    uint64_t start; /* offset in the file of bytes.p[0] */
    uint64_t size;  /* of the file */
};

/* The n bytes at `offset` (within the file); NULL and *rc when they cannot be read. */
static const char *window_get(struct window *w, uint64_t offset, size_t n, int *rc)
{
    if (offset < w->start || offset + n > w->start + w->bytes.n) {
        size_t want = n > WINDOW ? n : WINDOW;
        if (want > w->size - offset)
            want = (size_t)(w->size - offset);
        w->start = offset;
        buf_clear(&w->bytes);
        buf_reserve(&w->bytes, want);
        *rc = fs_pread_all(w->file->file, w->bytes.p, want, offset);
        if (*rc)
            return NULL;
        w->bytes.n = want;
    }
    return w->bytes.p + (offset - w->start);
}

/* Looks for a good frame at `at`: 1 and *out, 0, or an error. */
static int frame_at(struct window *w, uint64_t at, struct dead_frame *out)
{
    if (w->size - at < FRAME_HEAD)
        return 0;
    int rc = 0;
    const char *p = window_get(w, at, FRAME_HEAD, &rc);
    uint32_t payload;
    if (!p)
        return rc;
    if (!head_good(p, w->file->nonce, &payload) || frame_size(payload) > w->size - at)
        return 0;
    p = window_get(w, at, frame_size(payload), &rc);
    if (!p)
        return rc;
    return frame_good(p, w->file->nonce, payload, at, out);
}

int dead_file_walk(struct dead_file *file, int (*visit)(void *context, const struct dead_frame *f),
                   void *context, struct dead_damage *damage, struct diag *diag)
{
    struct window w = {.file = file};
    *damage = (struct dead_damage){0};
    int rc = file->fs->size(file->file, &w.size);
    if (rc)
        return diag_set(diag, rc, "dead letters: the size cannot be read: %s", strerror(errno));

    uint64_t at = DEAD_FILE_HEADER, good_end = DEAD_FILE_HEADER;
    while (at < w.size) {
        struct dead_frame frame;
        int found = frame_at(&w, at, &frame);
        if (found < 0) {
            /* WEIR_END: it shrank under us, which only a cut of a torn tail does. */
            rc = found == WEIR_END ? 0
                                   : diag_set(diag, found, "dead letters: reading at %llu: %s",
                                              (unsigned long long)at, strerror(errno));
            break;
        }
        if (!found) {
            at += 8;
            continue;
        }
        if (at > good_end) {
            if (damage->places++ == 0)
                damage->first_at = good_end;
            damage->bytes += at - good_end;
        }
        good_end = at += frame.size;
        rc = visit(context, &frame);
        if (rc)
            break;
    }
    damage->tail_bytes = w.size > good_end ? w.size - good_end : 0;
    file->end = good_end;
    buf_fini(&w.bytes);
    return rc;
}

int dead_file_read(const struct dead_file *file, uint64_t offset, struct buf *into,
                   struct dead_frame *out, struct diag *diag)
{
    char head[FRAME_HEAD];
    uint32_t payload = 0;
    int rc = fs_pread_all(file->file, head, sizeof(head), offset);
    if (rc == 0 && !head_good(head, file->nonce, &payload))
        rc = WEIR_CORRUPT;
    if (rc == 0) {
        buf_clear(into);
        char *p = buf_extend(into, frame_size(payload));
        rc = fs_pread_all(file->file, p, frame_size(payload), offset);
        if (rc == 0 && !frame_good(p, file->nonce, payload, offset, out))
            rc = WEIR_CORRUPT;
    }
    if (rc == WEIR_CORRUPT || rc == WEIR_END)
        return diag_set(diag, WEIR_CORRUPT, "dead letters: the entry at offset %llu is damaged",
                        (unsigned long long)offset);
    if (rc)
        return diag_set(diag, rc, "dead letters: reading at %llu: %s", (unsigned long long)offset,
                        strerror(errno));
    return 0;
}
