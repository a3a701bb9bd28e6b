/* id_list.c: reads an id list and keeps it sorted in memory, compact: it may have millions of lines
 * (see reconcile.h, id_list.h).
 *
 * An entry is bytes in one growing buffer:
 *   u16 stream, u16 length of the id, u8 flags, u64 version, hash (16 bytes, where there is one),
 * id and its offset stands in `at`, which is sorted by stream, then id. */
#include <errno.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"
#include "delivery/id_list.h"
#include "os/fs.h"
#include "record/record.h"

#define READ_BYTES  ((size_t)1 << 20)
#define LINE_MAX    ((size_t)64 << 10)
#define STREAMS_MAX 65535
#define HEAD_BYTES  13 /* of an entry, before its hash */

enum entry_flags { HAS_VERSION = 1, HAS_HASH = 2 };

struct id_list {
    char **streams; /* ends with NULL */
    size_t n_streams;
    struct buf bytes;
    uint64_t *at;
    size_t n, capacity;
};

struct entry {
    uint16_t stream, id_n;
    uint8_t flags;
    uint64_t version;
    struct hash128 hash;
    const char *id;
};

static struct entry entry_at(const struct id_list *list, size_t i)
{
    struct entry e = {0};
    const char *p = list->bytes.p + list->at[i];
    memcpy(&e.stream, p, 2);
    memcpy(&e.id_n, p + 2, 2);
    e.flags = (uint8_t)p[4];
    memcpy(&e.version, p + 5, 8);
    e.id = p + HEAD_BYTES;
    if (e.flags & HAS_HASH) {
        memcpy(&e.hash, e.id, sizeof e.hash);
        e.id += sizeof e.hash;
    }
    return e;
}

static void add(struct id_list *list, const struct entry *e)
{
    if (list->n == list->capacity) {
        list->capacity = list->capacity ? list->capacity * 2 : 1024;
        list->at = mem_realloc(list->at, list->capacity * sizeof *list->at);
    }
    list->at[list->n++] = list->bytes.n;
    buf_put(&list->bytes, &e->stream, 2);
    buf_put(&list->bytes, &e->id_n, 2);
    buf_put(&list->bytes, &e->flags, 1);
    buf_put(&list->bytes, &e->version, 8);
    if (e->flags & HAS_HASH)
        buf_put(&list->bytes, &e->hash, sizeof e->hash);
    buf_put(&list->bytes, e->id, e->id_n);
}

/* The stream's number in the list; WEIR_TOO_LARGE. */
static int stream_number(struct id_list *list, struct slice name, uint16_t *out)
{
    size_t i = 0;
    while (i < list->n_streams && !slice_is(name, list->streams[i]))
        i++;
    if (i == list->n_streams) {
        if (i == STREAMS_MAX)
            return WEIR_TOO_LARGE;
        list->streams = mem_realloc(list->streams, (i + 2) * sizeof *list->streams);
        list->streams[i] = mem_printf("%.*s", (int)name.n, name.p);
        list->streams[i + 1] = NULL;
        list->n_streams++;
    }
    *out = (uint16_t)i;
    return 0;
}

struct reading {
    const char *path;
    struct id_list *list;
    struct json_parser *parser;
    struct buf line; /* with JSON_PADDING behind it */
    uint64_t number; /* of the line */
    struct diag *diag;
};

static int bad(struct reading *r, const char *what)
{
    return diag_set(r->diag, WEIR_SYNTAX, "%s:%llu: %s", r->path, (unsigned long long)r->number,
                    what);
}

static int read_line(struct reading *r)
{
    struct json_value root, v;
    struct json_error error;
    struct entry e = {0};
    size_t n = r->line.n;
    while (n > 0 &&
           (r->line.p[n - 1] == ' ' || r->line.p[n - 1] == '\t' || r->line.p[n - 1] == '\r'))
        n--;
    if (n == 0)
        return 0;
    buf_reserve(&r->line, JSON_PADDING);
    if (json_parse(r->parser, r->line.p, n, &root, &error))
        return diag_set(r->diag, WEIR_SYNTAX, "%s:%llu: not JSON at byte %llu: %s", r->path,
                        (unsigned long long)r->number, (unsigned long long)error.offset,
                        error.reason);
    if (json_type(root) != JSON_OBJECT)
        return bad(r, "a line is an object: {\"stream\":\"events\",\"id\":\"...\"}");
    if (!json_member(root, "stream", &v) || json_type(v) != JSON_STRING || json_string(v).n == 0 ||
        memchr(json_string(v).p, 0, json_string(v).n))
        return bad(r, "\"stream\" must be the name of a stream");
    if (stream_number(r->list, json_string(v), &e.stream))
        return bad(r, "too many streams");
    if (!json_member(root, "id", &v) || json_type(v) != JSON_STRING || json_string(v).n == 0 ||
        json_string(v).n > RECORD_ID_MAX)
        return bad(r, "\"id\" must be a string of 1 to 512 bytes");
    struct slice id = json_string(v);
    e.id = id.p;
    e.id_n = (uint16_t)id.n;
    if (json_member(root, "version", &v)) {
        if (json_type(v) != JSON_INT || json_int(v) < 0)
            return bad(r, "\"version\" must be an integer from 0");
        e.version = (uint64_t)json_int(v);
        e.flags |= HAS_VERSION;
    }
    if (json_member(root, "hash", &v)) {
        if (json_type(v) != JSON_STRING ||
            hash128_parse(json_string(v).p, json_string(v).n, &e.hash))
            return bad(r, "\"hash\" must be 32 hexadecimal digits");
        e.flags |= HAS_HASH;
    }
    add(r->list, &e);
    return 0;
}

static int read_lines(struct reading *r, struct fs_file *file)
{
    char *piece = mem_alloc(READ_BYTES);
    int rc = 0;
    r->number = 1;
    for (uint64_t offset = 0; rc == 0;) {
        size_t got;
        rc = file->fs->pread(file, piece, READ_BYTES, offset, &got);
        if (rc) {
            rc = diag_set(r->diag, rc, "%s: cannot be read: %s", r->path, strerror(errno));
            break;
        }
        offset += got;
        for (char *p = piece, *end = piece + got; p < end && rc == 0;) {
            char *newline = memchr(p, '\n', (size_t)(end - p));
            char *stop = newline ? newline : end;
            buf_put(&r->line, p, (size_t)(stop - p));
            if (r->line.n > LINE_MAX)
                rc = bad(r, "a line of more than 64 KiB");
            else if (newline)
                rc = read_line(r);
            if (newline) {
                buf_clear(&r->line);
                r->number++;
            }
            p = stop + 1;
        }
        if (got < READ_BYTES) {
            if (rc == 0)
                rc = read_line(r); /* a last line without its end */
            break;
        }
    }
    mem_free(piece);
    return rc;
}

static int compare(const struct entry *a, const struct entry *b)
{
    if (a->stream != b->stream)
        return a->stream < b->stream ? -1 : 1;
    return slice_compare((struct slice){a->id, a->id_n}, (struct slice){b->id, b->id_n});
}

/* For qsort_r. Where one id stands several times, the line that came later is the later. */
static int compare_at(const void *a, const void *b, void *context)
{
    struct id_list *list = context;
    uint64_t pair[2] = {*(const uint64_t *)a, *(const uint64_t *)b};
    struct id_list two = {.bytes = list->bytes, .at = pair, .n = 2};
    struct entry x = entry_at(&two, 0), y = entry_at(&two, 1);
    int c = compare(&x, &y);
    return c ? c : (pair[0] > pair[1]) - (pair[0] < pair[1]);
}

/* Sorts; of one id's lines the one with the highest version stays, the last of equals. */
static void settle(struct id_list *list)
{
    bool sorted = true; /* ids that rise with time often are */
    for (size_t i = 1; i < list->n && sorted; i++)
        sorted = compare_at(&list->at[i - 1], &list->at[i], list) < 0;
    if (!sorted)
        qsort_r(list->at, list->n, sizeof *list->at, compare_at, list);
    size_t kept = 0;
    for (size_t i = 0; i < list->n; i++) {
        struct entry this = entry_at(list, i);
        struct entry last = kept ? entry_at(list, kept - 1) : this;
        if (kept && compare(&last, &this) == 0) {
            if (this.version >= last.version)
                list->at[kept - 1] = list->at[i];
        } else {
            list->at[kept++] = list->at[i];
        }
    }
    list->n = kept;
}

int id_list_read(const char *path, struct id_list **out, struct diag *diag)
{
    struct fs_file *file;
    int rc = fs_open(fs_current(), path, FS_READ, &file);
    if (rc)
        return diag_set(diag, rc, "%s: cannot be opened: %s", path, strerror(errno));
    struct id_list *list = mem_zalloc(sizeof *list);
    struct reading r = {.path = path, .list = list, .parser = json_parser_create(), .diag = diag};
    rc = read_lines(&r, file);
    json_parser_destroy(r.parser);
    buf_fini(&r.line);
    fs_close(file);
    if (rc) {
        id_list_destroy(list);
        return rc;
    }
    settle(list);
    *out = list;
    return 0;
}

void id_list_destroy(struct id_list *list)
{
    if (!list)
        return;
    for (size_t i = 0; i < list->n_streams; i++)
        mem_free(list->streams[i]);
    mem_free(list->streams);
    buf_fini(&list->bytes);
    mem_free(list->at);
    mem_free(list);
}

size_t id_list_count(const struct id_list *list)
{
    return list->n;
}

const char *id_list_stream(const struct id_list *list, size_t i)
{
    return i < list->n_streams ? list->streams[i] : NULL;
}

/* The first entry of this stream's number or a higher one. */
static size_t lower_bound(const struct id_list *list, size_t stream)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (entry_at(list, middle).stream < stream)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

void id_list_range(const struct id_list *list, const char *stream, size_t *first, size_t *last)
{
    size_t i = 0;
    while (i < list->n_streams && strcmp(list->streams[i], stream) != 0)
        i++;
    *first = i < list->n_streams ? lower_bound(list, i) : 0;
    *last = i < list->n_streams ? lower_bound(list, i + 1) : 0;
}

struct slice id_list_at(const struct id_list *list, size_t i, struct expected *expected)
{
    struct entry e = entry_at(list, i);
    *expected = (struct expected){
        .has_version = e.flags & HAS_VERSION,
        .has_hash = e.flags & HAS_HASH,
        .version = e.version,
        .hash = e.hash,
    };
    return (struct slice){e.id, e.id_n};
}
