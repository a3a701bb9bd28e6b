/* dead.c: a sink's dead letters: the index in memory over a dead_file, and what is done to it.
 *
 * The index is one (number, offset) pair an entry, rising; a dropped entry keeps its pair, marked,
 * until the array is swept. The cap counts live entries; what is dropped leaves the file by
 * compaction, which writes the live frames to "<sink>~" and renames it. A crash at any moment
 * leaves the old file or the new one, and both hold the same live entries.
 *
 * The file begins to exist with the first entry. After a failed write the bytes behind the end are
 * cut before anything else is appended, so a half-written entry can never come back to life. After
 * a failed sync nothing is promised any more until restart (WEIR_POISONED). */
#include "delivery/dead.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "base/mem.h"
#include "delivery/dead_file.h"

#define DROPPED       UINT64_C(1) /* mark in an offset; offsets are multiples of 8 */
#define COMPACT_BYTES (UINT64_C(4) * 1024 * 1024) /* while running: this much garbage at least */
#define COPY_BYTES    ((size_t)1024 * 1024)
#define SCRATCH_KEPT  ((size_t)1024 * 1024)

struct place {
    uint64_t number, offset;
};

struct dead {
    /* constant after open */
    const struct fs *fs;
    char *sink, *data, *directory, *path, *temporary;
    uint64_t max_bytes;
    bool read_only;

    pthread_mutex_t mutex; /* guards the rest; held across file I/O */
    struct dead_file file; /* file.file NULL: there is none yet */
    struct place *places;
    size_t n, capacity, n_dropped;
    uint64_t next_number, live_bytes;
    bool cut_first; /* bytes behind the end may be there: cut them before the next write */
    bool poisoned;
    struct dead_damage damage;
    struct buf scratch;

    /* for dead_stats, which must not wait for I/O; relaxed: each is a figure of its own */
    _Atomic uint64_t letters, bytes;
};

static void publish_stats(struct dead *d)
{
    atomic_store_explicit(&d->letters, d->n - d->n_dropped, memory_order_relaxed);
    atomic_store_explicit(&d->bytes, d->live_bytes, memory_order_relaxed);
}

/* The index of the first place with that number or a higher one. */
static size_t place_from(const struct dead *d, uint64_t number)
{
    size_t low = 0, high = d->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (d->places[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct place *place_live(const struct dead *d, uint64_t number)
{
    size_t i = place_from(d, number);
    if (i == d->n || d->places[i].number != number || d->places[i].offset & DROPPED)
        return NULL;
    return &d->places[i];
}

static void place_add(struct dead *d, uint64_t number, uint64_t offset, size_t size)
{
    if (d->n == d->capacity) {
        d->capacity = d->capacity ? 2 * d->capacity : 64;
        d->places = mem_realloc(d->places, d->capacity * sizeof(*d->places));
    }
    d->places[d->n++] = (struct place){number, offset};
    d->live_bytes += size;
    d->next_number = number + 1;
}

static void place_drop(struct dead *d, struct place *place, uint64_t size)
{
    place->offset |= DROPPED;
    d->live_bytes -= size < d->live_bytes ? size : d->live_bytes;
    if (++d->n_dropped < 64 || d->n_dropped < d->n / 2)
        return;
    size_t kept = 0;
    for (size_t i = 0; i < d->n; i++)
        if (!(d->places[i].offset & DROPPED))
            d->places[kept++] = d->places[i];
    d->n = kept;
    d->n_dropped = 0;
}

/* ---- opening ---- */

static int on_frame(void *context, const struct dead_frame *frame)
{
    struct dead *d = context;
    if (frame->kind == DEAD_ENTRY) {
        /* A number that does not rise cannot have been written by us. */
        if (frame->number >= d->next_number)
            place_add(d, frame->number, frame->offset, frame->size);
        return 0;
    }
    struct place *place = place_live(d, frame->number);
    uint64_t size = 0;
    for (size_t i = 0; i < 8 && i < frame->payload.n; i++)
        size |= (uint64_t)(unsigned char)frame->payload.p[i] << (8 * i);
    if (place)
        place_drop(d, place, size);
    return 0;
}

/* Copies the live frames to a new file and puts it in the place of the old one. On a failure
 * before the rename the old file simply stays. */
static int compact(struct dead *d, struct diag *diag)
{
    struct dead_file new;
    int rc = dead_file_begin(d->fs, d->temporary, d->next_number, &new, diag);
    if (rc)
        return rc;
    struct buf from = {0}, to = {0};
    struct place *places = mem_alloc((d->n - d->n_dropped + 64) * sizeof(*places));
    size_t n = 0;
    uint64_t live = 0;
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        struct dead_frame frame;
        if (d->places[i].offset & DROPPED)
            continue;
        rc = dead_file_read(&d->file, d->places[i].offset, &from, &frame, diag);
        if (rc == 0) {
            places[n++] = (struct place){frame.number, new.end + to.n};
            live += frame.size;
            dead_frame_put(&to, new.nonce, DEAD_ENTRY, frame.number, frame.payload);
        }
        if (rc == 0 && to.n >= COPY_BYTES) {
            rc = d->fs->pwrite(new.file, to.p, to.n, new.end);
            new.end += to.n;
            buf_clear(&to);
            if (rc)
                diag_set(diag, rc, "%s: cannot be written: %s", d->temporary, strerror(errno));
        }
    }
    if (rc == 0 && to.n) {
        rc = d->fs->pwrite(new.file, to.p, to.n, new.end);
        new.end += to.n;
        if (rc)
            diag_set(diag, rc, "%s: cannot be written: %s", d->temporary, strerror(errno));
    }
    buf_fini(&from);
    buf_fini(&to);
    bool replaced = false;
    if (rc == 0)
        rc = dead_file_publish(&new, d->path, d->temporary, d->directory, true, &replaced, diag);
    if (rc) {
        /* Once renamed, a crash may leave either file: appending to one of them is no promise. */
        d->poisoned = d->poisoned || replaced;
        dead_file_close(&new);
        if (!replaced)
            d->fs->unlink(d->fs, d->temporary);
        mem_free(places);
        return rc;
    }
    dead_file_close(&d->file);
    d->file = new;
    d->cut_first = false;
    mem_free(d->places);
    d->places = places;
    d->capacity = d->n - d->n_dropped + 64;
    d->n = n;
    d->n_dropped = 0;
    d->live_bytes = live;
    return 0;
}

static uint64_t garbage(const struct dead *d)
{
    uint64_t used = DEAD_FILE_HEADER + d->live_bytes;
    return d->file.end > used ? d->file.end - used : 0;
}

int dead_open(const struct fs *fs, const char *data, const char *sink, uint64_t max_bytes,
              bool read_only, struct dead **out, struct diag *diag)
{
    if (!sink[0] || sink[0] == '.' || strchr(sink, '/') || strchr(sink, '~'))
        return diag_set(diag, WEIR_INVALID, "sink \"%s\": a file cannot have this name", sink);
    struct dead *d = mem_zalloc(sizeof(*d));
    d->fs = fs;
    d->sink = mem_strdup(sink);
    d->data = mem_strdup(data);
    d->directory = mem_printf("%s/dead", data);
    d->path = mem_printf("%s/dead/%s", data, sink);
    d->temporary = mem_printf("%s/dead/%s~", data, sink);
    d->max_bytes = max_bytes;
    d->read_only = read_only;
    d->next_number = 1;
    pthread_mutex_init(&d->mutex, NULL);

    struct diag why = {0};
    int rc = dead_file_open(fs, d->path, read_only, &d->file, &why);
    if (rc == WEIR_NOT_FOUND) {
        rc = 0;
    } else if (rc == 0) {
        d->next_number = d->file.first_number;
        /* The header promises that numbers below it are taken, the frames that a compaction kept
         * carry such numbers: they are read from 1 on. */
        uint64_t first_free = d->next_number;
        d->next_number = 1;
        rc = dead_file_walk(&d->file, on_frame, d, &d->damage, &why);
        if (d->next_number < first_free)
            d->next_number = first_free;
    }
    if (rc == 0 && d->file.file && !read_only) {
        if (d->damage.tail_bytes) {
            rc = fs->truncate(d->file.file, d->file.end);
            if (rc)
                diag_set(&why, rc, "%s: its torn tail cannot be cut: %s", d->path, strerror(errno));
        }
        /* Only a matter of space: when it cannot be done now, it is done at another opening. A
         * damaged file is left for people to look at until there is a need. */
        if (rc == 0 && d->damage.places == 0 && garbage(d) > d->live_bytes)
            compact(d, NULL);
    }
    if (rc) {
        dead_close(d);
        diag_set(diag, rc, "%s", why.text);
        return rc;
    }
    publish_stats(d);
    *out = d;
    return 0;
}

void dead_close(struct dead *d)
{
    if (!d)
        return;
    dead_file_close(&d->file);
    pthread_mutex_destroy(&d->mutex);
    buf_fini(&d->scratch);
    mem_free(d->places);
    mem_free(d->sink);
    mem_free(d->data);
    mem_free(d->directory);
    mem_free(d->path);
    mem_free(d->temporary);
    mem_free(d);
}

bool dead_damaged(struct dead *d, char *text, size_t text_bytes)
{
    pthread_mutex_lock(&d->mutex);
    struct dead_damage damage = d->damage;
    pthread_mutex_unlock(&d->mutex);
    struct buf words = {0};
    if (damage.places)
        buf_printf(&words,
                   "%s: %llu damaged places (%llu bytes, the first at offset %llu) were skipped; "
                   "the dead letters in them are lost",
                   d->path, (unsigned long long)damage.places, (unsigned long long)damage.bytes,
                   (unsigned long long)damage.first_at);
    if (damage.tail_bytes)
        buf_printf(&words, "%s%s: a torn tail of %llu bytes was %s", damage.places ? "; " : "",
                   d->path, (unsigned long long)damage.tail_bytes,
                   d->read_only ? "ignored" : "cut");
    bool any = words.n > 0;
    if (text_bytes) {
        size_t n = words.n < text_bytes ? words.n : text_bytes - 1;
        if (n)
            memcpy(text, words.p, n);
        text[n] = 0;
    }
    buf_fini(&words);
    return any;
}

/* ---- changing ---- */

static int ready_to_write(struct dead *d, struct diag *diag)
{
    if (d->read_only)
        return diag_set(diag, WEIR_DENIED, "%s: is open for reading only", d->path);
    if (d->poisoned)
        return diag_set(diag, WEIR_POISONED,
                        "%s: an earlier sync failed; nothing is added until restart", d->path);
    if (!d->file.file) {
        int rc = fs_mkdirs(d->fs, d->directory);
        if (rc == 0)
            rc = d->fs->sync_dir(d->fs, d->data);
        if (rc)
            return diag_set(diag, rc, "%s: cannot be created: %s", d->directory, strerror(errno));
        return dead_file_create(d->fs, d->path, d->temporary, d->directory, d->next_number,
                                &d->file, diag);
    }
    if (d->cut_first) {
        int rc = d->fs->truncate(d->file.file, d->file.end);
        if (rc)
            return diag_set(diag, rc, "%s: cannot be cut: %s", d->path, strerror(errno));
        d->cut_first = false;
    }
    return 0;
}

/* Appends what is in scratch and syncs it. */
static int append(struct dead *d, struct diag *diag)
{
    int rc = d->fs->pwrite(d->file.file, d->scratch.p, d->scratch.n, d->file.end);
    if (rc) {
        diag_set(diag, rc, "%s: cannot be written: %s", d->path, strerror(errno));
        d->cut_first = d->fs->truncate(d->file.file, d->file.end) != 0;
        return rc;
    }
    rc = d->fs->datasync(d->file.file);
    if (rc) {
        d->poisoned = true;
        return diag_set(diag, WEIR_IO, "%s: cannot be synced: %s", d->path, strerror(errno));
    }
    d->file.end += d->scratch.n;
    return 0;
}

static void scratch_done(struct dead *d)
{
    if (d->scratch.capacity > SCRATCH_KEPT)
        buf_fini(&d->scratch);
}

int dead_add(struct dead *d, const struct dead_letter *letters, size_t n, struct diag *diag)
{
    if (!n)
        return 0;
    pthread_mutex_lock(&d->mutex);
    int rc = ready_to_write(d, diag);
    const size_t places = d->n;
    const uint64_t next_number = d->next_number, live_bytes = d->live_bytes;
    if (rc == 0) {
        buf_clear(&d->scratch);
        for (size_t i = 0; i < n; i++) {
            uint64_t at = d->file.end + d->scratch.n;
            size_t size =
                dead_frame_put_letter(&d->scratch, d->file.nonce, d->next_number, &letters[i]);
            place_add(d, d->next_number, at, size);
        }
        rc = d->live_bytes <= d->max_bytes
                 ? append(d, diag)
                 : diag_set(diag, WEIR_FULL,
                            "%s: at its cap (%llu of %llu bytes): drop or replay dead letters "
                            "(`weir dead`)",
                            d->path, (unsigned long long)live_bytes,
                            (unsigned long long)d->max_bytes);
    }
    if (rc) {
        d->n = places;
        d->next_number = next_number;
        d->live_bytes = live_bytes;
    }
    publish_stats(d);
    scratch_done(d);
    pthread_mutex_unlock(&d->mutex);
    return rc;
}

int dead_drop(struct dead *d, uint64_t number, struct diag *diag)
{
    pthread_mutex_lock(&d->mutex);
    struct place *place = place_live(d, number);
    int rc = 0;
    if (!place)
        rc = diag_set(diag, WEIR_NOT_FOUND, "sink %s has no dead letter %llu", d->sink,
                      (unsigned long long)number);
    if (rc == 0)
        rc = ready_to_write(d, diag);
    struct dead_frame frame = {0};
    if (rc == 0) {
        /* One that cannot be read any more can still be dropped; its bytes then count as none. */
        struct buf scratch = {0};
        if (dead_file_read(&d->file, place->offset, &scratch, &frame, NULL))
            frame.size = 0;
        buf_fini(&scratch);
        char size[8];
        for (int i = 0; i < 8; i++)
            size[i] = (char)((uint64_t)frame.size >> (8 * i));
        buf_clear(&d->scratch);
        dead_frame_put(&d->scratch, d->file.nonce, DEAD_DROPPED, number, (struct slice){size, 8});
        rc = append(d, diag);
    }
    if (rc == 0) {
        place_drop(d, place, frame.size);
        if (garbage(d) > d->live_bytes && garbage(d) > COMPACT_BYTES)
            compact(d, NULL);
    }
    publish_stats(d);
    pthread_mutex_unlock(&d->mutex);
    return rc;
}

/* ---- reading ---- */

int dead_scan(struct dead *d, int (*visit)(void *context, const struct dead_letter *letter),
              void *context, struct diag *diag)
{
    struct buf bytes = {0};
    uint64_t next = 0;
    int rc = 0;
    while (rc == 0) {
        /* By number each time: the visitor may drop what it sees, and a compaction moves all. */
        struct dead_frame frame;
        struct dead_letter letter;
        pthread_mutex_lock(&d->mutex);
        size_t i = place_from(d, next);
        while (i < d->n && d->places[i].offset & DROPPED)
            i++;
        bool found = i < d->n;
        if (found) {
            next = d->places[i].number + 1;
            rc = dead_file_read(&d->file, d->places[i].offset, &bytes, &frame, diag);
        }
        pthread_mutex_unlock(&d->mutex);
        if (!found)
            break;
        if (rc == 0)
            rc = dead_frame_letter(&frame, d->sink, &letter);
        if (rc == WEIR_CORRUPT) { /* *diag names it; the others are still good */
            rc = 0;
            continue;
        }
        if (rc == 0)
            rc = visit(context, &letter);
    }
    buf_fini(&bytes);
    return rc;
}

int dead_get(struct dead *d, uint64_t number,
             int (*visit)(void *context, const struct dead_letter *letter), void *context,
             struct diag *diag)
{
    struct buf bytes = {0};
    struct dead_frame frame;
    struct dead_letter letter;
    pthread_mutex_lock(&d->mutex);
    struct place *place = place_live(d, number);
    int rc = place ? dead_file_read(&d->file, place->offset, &bytes, &frame, diag)
                   : diag_set(diag, WEIR_NOT_FOUND, "sink %s has no dead letter %llu", d->sink,
                              (unsigned long long)number);
    pthread_mutex_unlock(&d->mutex);
    if (rc == 0) {
        rc = dead_frame_letter(&frame, d->sink, &letter);
        if (rc)
            diag_set(diag, rc, "sink %s: dead letter %llu is damaged", d->sink,
                     (unsigned long long)number);
    }
    if (rc == 0)
        rc = visit(context, &letter);
    buf_fini(&bytes);
    return rc;
}

void dead_stats(struct dead *d, uint64_t *letters, uint64_t *bytes)
{
    *letters = atomic_load_explicit(&d->letters, memory_order_relaxed);
    *bytes = atomic_load_explicit(&d->bytes, memory_order_relaxed);
}
