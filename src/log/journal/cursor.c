/* cursor.c: consumers' cursors (see cursor.h).
 *
 * The file is text, replaced whole:
 *     weir-cursor 1
 *     resume 123456
 *     records 17
 *     partition 0 123400
 *     sum 0123456789abcdef        XXH3 of all lines before */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"
#include "log/journal/cursor.h"

#define FILE_MAX       ((size_t)4 << 20)
#define NAME_MAX_BYTES 200

/* A consumer's name as a file's: everything but letters, digits, '-' and '_' as %XX, so that no
 * name is a path, hidden, or another's temporary file. */
static char *file_path(const char *folder, const char *name)
{
    struct buf path = {0};
    buf_put_str(&path, folder);
    buf_put_char(&path, '/');
    for (const unsigned char *p = (const unsigned char *)name; *p; p++) {
        bool plain = (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z') ||
                     (*p >= '0' && *p <= '9') || *p == '-' || *p == '_';
        if (plain)
            buf_put_char(&path, (char)*p);
        else
            buf_printf(&path, "%%%02X", *p);
    }
    char *copy = mem_strdup(buf_str(&path));
    buf_fini(&path);
    return copy;
}

int cursor_create(const char *folder, const char *name, unsigned partitions, struct cursor **out,
                  struct diag *diag)
{
    char *path = file_path(folder, name);
    size_t n = strlen(path) - strlen(folder) - 1;
    if (n == 0 || n > NAME_MAX_BYTES) {
        mem_free(path);
        return diag_set(diag, WEIR_INVALID,
                        "consumer \"%.60s\": the name must have 1 to %d bytes; shorten it", name,
                        NAME_MAX_BYTES);
    }
    struct cursor *cursor = mem_zalloc(sizeof *cursor);
    cursor->name = mem_strdup(name);
    cursor->path = path;
    cursor->partitions = partitions;
    cursor->at = mem_zalloc(partitions * sizeof *cursor->at);
    pthread_mutex_init(&cursor->lock, NULL);
    pthread_mutex_init(&cursor->save_lock, NULL);
    *out = cursor;
    return 0;
}

void cursor_destroy(struct cursor *cursor)
{
    if (!cursor)
        return;
    for (unsigned i = 0; i < cursor->partitions; i++)
        mem_free(cursor->at[i].given);
    pthread_mutex_destroy(&cursor->lock);
    pthread_mutex_destroy(&cursor->save_lock);
    mem_free(cursor->at);
    mem_free(cursor->name);
    mem_free(cursor->path);
    mem_free(cursor);
}

/* The number behind `word` and a space at *p; *p moves behind it. */
static bool take_number(const char **p, const char *word, uint64_t *out)
{
    size_t n = strlen(word);
    if (strncmp(*p, word, n) != 0 || (*p)[n] != ' ' || (*p)[n + 1] < '0' || (*p)[n + 1] > '9')
        return false;
    char *end;
    errno = 0;
    *out = strtoull(*p + n + 1, &end, 10);
    *p = end;
    return errno == 0;
}

static bool take_char(const char **p, char c)
{
    if (**p != c)
        return false;
    ++*p;
    return true;
}

/* The lines between first and sum into the cursor; false: malformed. */
static bool parse(struct cursor *cursor, const char *text, size_t n)
{
    const char *p = text, *sum = n > 21 ? text + n - 21 : text;
    char wanted[32];
    if (memchr(text, 0, n) || strncmp(sum, "sum ", 4) != 0)
        return false;
    snprintf(wanted, sizeof wanted, "sum %016" PRIx64 "\n", hash64(text, (size_t)(sum - text)));
    uint64_t format, resume, records, partition, settled;
    if (strcmp(sum, wanted) != 0 || !take_number(&p, "weir-cursor", &format) || format != 1 ||
        !take_char(&p, '\n') || !take_number(&p, "resume", &resume) || !take_char(&p, '\n') ||
        !take_number(&p, "records", &records) || !take_char(&p, '\n'))
        return false;
    while (p < sum) {
        /* "partition P SETTLED": the second number is read as if it had the name of the first */
        if (!take_number(&p, "partition", &partition) || *p != ' ' || p[1] < '0' || p[1] > '9' ||
            partition >= cursor->partitions)
            return false;
        char *end;
        errno = 0;
        settled = strtoull(p + 1, &end, 10);
        p = end;
        if (errno || !take_char(&p, '\n'))
            return false;
        cursor->at[partition].settled = settled;
    }
    cursor->given_lsn = resume;
    atomic_store_explicit(&cursor->records, records, memory_order_relaxed);
    atomic_store_explicit(&cursor->durable_resume, resume, memory_order_relaxed);
    return p == sum;
}

int cursor_load(struct cursor *cursor, const struct fs *fs, struct diag *diag)
{
    char *text = NULL;
    size_t n = 0;
    int rc = fs_read_file(fs, cursor->path, FILE_MAX, &text, &n);
    if (rc == WEIR_NOT_FOUND)
        return diag_set(diag, rc, "%s: there is no cursor", cursor->path);
    if (rc && rc != WEIR_TOO_LARGE)
        return diag_set(diag, rc, "%s: cannot be read: %s", cursor->path, strerror(errno));
    pthread_mutex_lock(&cursor->lock);
    if (rc || !parse(cursor, text, n)) {
        for (unsigned i = 0; i < cursor->partitions; i++)
            cursor->at[i].settled = 0;
        rc = WEIR_CORRUPT;
    }
    pthread_mutex_unlock(&cursor->lock);
    mem_free(text);
    return rc ? diag_set(diag, rc, "%s: is damaged", cursor->path) : 0;
}

static uint64_t resume_locked(const struct cursor *cursor)
{
    uint64_t resume = cursor->given_lsn;
    for (unsigned i = 0; i < cursor->partitions; i++) {
        const struct cursor_partition *at = &cursor->at[i];
        if (at->head < at->n && at->given[at->head] < resume)
            resume = at->given[at->head];
    }
    return resume;
}

static int save(struct cursor *cursor, const struct fs *fs)
{
    struct buf text = {0};
    pthread_mutex_lock(&cursor->lock);
    bool moved = cursor->moved;
    uint64_t resume = resume_locked(cursor);
    if (moved) {
        buf_printf(&text, "weir-cursor 1\nresume %" PRIu64 "\nrecords %" PRIu64 "\n", resume,
                   atomic_load_explicit(&cursor->records, memory_order_relaxed));
        for (unsigned i = 0; i < cursor->partitions; i++)
            if (cursor->at[i].settled)
                buf_printf(&text, "partition %u %" PRIu64 "\n", i, cursor->at[i].settled);
        cursor->moved = false;
    }
    cursor->asked = false;
    pthread_mutex_unlock(&cursor->lock);
    if (!moved)
        return 0;
    buf_printf(&text, "sum %016" PRIx64 "\n", hash64(text.p, text.n));
    int rc = fs_replace_file(fs, cursor->path, text.p, text.n);
    buf_fini(&text);
    if (rc == 0) {
        /* release: whoever lets go of segments by it sees the file replaced */
        atomic_store_explicit(&cursor->durable_resume, resume, memory_order_release);
        return 0;
    }
    pthread_mutex_lock(&cursor->lock);
    cursor->moved = true;
    pthread_mutex_unlock(&cursor->lock);
    return rc;
}

int cursor_save(struct cursor *cursor, const struct fs *fs)
{
    pthread_mutex_lock(&cursor->save_lock);
    int rc = save(cursor, fs);
    pthread_mutex_unlock(&cursor->save_lock);
    return rc;
}

void cursor_begin(struct cursor *cursor, uint64_t lsn, uint64_t records)
{
    pthread_mutex_lock(&cursor->lock);
    cursor->given_lsn = lsn;
    pthread_mutex_unlock(&cursor->lock);
    /* relaxed: nobody else has it yet */
    atomic_store_explicit(&cursor->records, records, memory_order_relaxed);
    atomic_store_explicit(&cursor->durable_resume, lsn, memory_order_relaxed);
}

void cursor_cut(struct cursor *cursor, uint64_t end, uint64_t records)
{
    pthread_mutex_lock(&cursor->lock);
    for (unsigned i = 0; i < cursor->partitions; i++) {
        if (cursor->at[i].settled < end)
            continue;
        cursor->at[i].settled = end - 1;
        cursor->moved = true;
    }
    if (cursor->given_lsn > end) {
        cursor->given_lsn = end;
        cursor->moved = true;
        atomic_store_explicit(&cursor->durable_resume, end, memory_order_relaxed);
    }
    if (atomic_load_explicit(&cursor->records, memory_order_relaxed) > records) {
        atomic_store_explicit(&cursor->records, records, memory_order_relaxed);
        cursor->moved = true;
    }
    pthread_mutex_unlock(&cursor->lock);
}

void cursor_advance(struct cursor *cursor, uint64_t first, uint64_t records)
{
    pthread_mutex_lock(&cursor->lock);
    cursor->given_lsn = first;
    cursor->moved = true;
    if (atomic_load_explicit(&cursor->records, memory_order_relaxed) < records)
        atomic_store_explicit(&cursor->records, records, memory_order_relaxed);
    pthread_mutex_unlock(&cursor->lock);
}

uint64_t cursor_resume(struct cursor *cursor)
{
    pthread_mutex_lock(&cursor->lock);
    uint64_t resume = resume_locked(cursor);
    pthread_mutex_unlock(&cursor->lock);
    return resume;
}

uint64_t cursor_first_open(struct cursor *cursor, uint32_t partition)
{
    if (partition >= cursor->partitions)
        return 0;
    pthread_mutex_lock(&cursor->lock);
    uint64_t settled = cursor->at[partition].settled, resume = resume_locked(cursor);
    pthread_mutex_unlock(&cursor->lock);
    /* Everything before resume is settled, also where this partition had no record lately. */
    if (settled == 0)
        return atomic_load_explicit(&cursor->records, memory_order_relaxed) ? resume : 0;
    return settled + 1 > resume ? settled + 1 : resume;
}

static void push(struct cursor_partition *at, uint64_t offset)
{
    if (at->n == at->capacity) {
        if (at->head > at->n / 2) {
            memmove(at->given, at->given + at->head, (at->n - at->head) * sizeof *at->given);
            at->n -= at->head;
            at->head = 0;
        } else {
            at->capacity = at->capacity ? at->capacity * 2 : 64;
            at->given = mem_realloc(at->given, at->capacity * sizeof *at->given);
        }
    }
    at->given[at->n++] = offset;
}

void cursor_give(struct cursor *cursor, const struct record *records, size_t n, uint64_t next_lsn)
{
    pthread_mutex_lock(&cursor->lock);
    for (size_t i = 0; i < n; i++)
        push(&cursor->at[records[i].partition], records[i].offset);
    assert(next_lsn >= cursor->given_lsn);
    /* Passing over what was settled before a restart is a move too; it is saved with the next. */
    if (n == 0 && next_lsn > cursor->given_lsn)
        cursor->moved = true;
    cursor->given_lsn = next_lsn;
    pthread_mutex_unlock(&cursor->lock);
}

bool cursor_settle(struct cursor *cursor, uint32_t partition, uint64_t offset)
{
    assert(partition < cursor->partitions);
    struct cursor_partition *at = &cursor->at[partition];
    size_t settled = 0;
    bool first = false;
    pthread_mutex_lock(&cursor->lock);
    while (at->head < at->n && at->given[at->head] <= offset) {
        at->settled = at->given[at->head++];
        settled++;
    }
    if (at->head == at->n)
        at->head = at->n = 0;
    if (settled) {
        first = !cursor->asked;
        cursor->asked = cursor->moved = true;
        /* relaxed: under the lock, so that what is saved fits together; others only look at it */
        atomic_fetch_add_explicit(&cursor->records, settled, memory_order_relaxed);
    }
    pthread_mutex_unlock(&cursor->lock);
    return first;
}

void cursor_forget(struct cursor *cursor)
{
    pthread_mutex_lock(&cursor->lock);
    cursor->given_lsn = resume_locked(cursor);
    for (unsigned i = 0; i < cursor->partitions; i++)
        cursor->at[i].head = cursor->at[i].n = 0;
    pthread_mutex_unlock(&cursor->lock);
}
