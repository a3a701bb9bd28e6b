/* journal_fuzz.c: a journal whose segments are arbitrary bytes, opened for reading, verified,
 * opened for writing, read, appended to and read again.
 *
 * Beyond "no crash" it holds: opening for writing neither loses nor invents a record, keeps
 * offsets, and what is appended after it is there afterwards.
 *
 * An input is one byte of flags and then the bytes of segment 1 (and 2, see below). As no mutation
 * guesses a checksum, flags have them put right: what lies behind sound checksums is fuzzed too. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/mem.h"
#include "log/journal/format.h"
#include "log/journal/verify.h"
#include "log/log.h"

enum {
    FLAG_HEADER = 1, /* the segment headers are put right */
    FLAG_GROUPS = 2, /* so are groups: place, number, fold, checksums */
    FLAG_UNITS = 4,  /* and units */
    FLAG_WRITE = 8,  /* open for writing too */
    FLAG_TWO = 16,   /* the second half is segment 2 */
};

#define NONCE 0x1122334455667788u

/* --- files in memory
 * ------------------------------------------------------------------------------- */

#define FILES 32

struct memory_file {
    char path[64];
    char *p;
    size_t n, capacity;
    unsigned handles;
    int linked;
};

static struct memory_file files[FILES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static struct memory_file *find(const char *path)
{
    for (size_t i = 0; i < FILES; i++)
        if (files[i].linked && strcmp(files[i].path, path) == 0)
            return &files[i];
    return NULL;
}

static void drop(struct memory_file *file)
{
    if (!file->linked && file->handles == 0) {
        free(file->p);
        *file = (struct memory_file){0};
    }
}

static int fail(int error, int code)
{
    pthread_mutex_unlock(&lock);
    errno = error;
    return code;
}

static int memory_open(const struct fs *fs, const char *path, int flags, struct fs_file **out)
{
    pthread_mutex_lock(&lock);
    struct memory_file *file = find(path);
    if (!file && !(flags & FS_CREATE))
        return fail(ENOENT, WEIR_NOT_FOUND);
    for (size_t i = 0; i < FILES && !file; i++)
        if (!files[i].linked && files[i].handles == 0) {
            file = &files[i];
            file->linked = 1;
            snprintf(file->path, sizeof file->path, "%s", path);
        }
    assert(file);
    if (flags & FS_TRUNCATE)
        file->n = 0;
    file->handles++;
    struct fs_file *handle = mem_zalloc(sizeof *handle);
    handle->fs = fs;
    handle->state = file;
    *out = handle;
    pthread_mutex_unlock(&lock);
    return 0;
}

static void memory_close(struct fs_file *handle)
{
    struct memory_file *file = handle->state;
    pthread_mutex_lock(&lock);
    file->handles--;
    drop(file);
    pthread_mutex_unlock(&lock);
    mem_free(handle);
}

static int memory_pread(struct fs_file *handle, void *p, size_t n, uint64_t offset, size_t *out_n)
{
    struct memory_file *file = handle->state;
    pthread_mutex_lock(&lock);
    size_t there = offset < file->n ? file->n - (size_t)offset : 0;
    *out_n = n < there ? n : there;
    if (*out_n)
        memcpy(p, file->p + offset, *out_n);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int memory_pwrite(struct fs_file *handle, const void *p, size_t n, uint64_t offset)
{
    struct memory_file *file = handle->state;
    pthread_mutex_lock(&lock);
    size_t end = (size_t)offset + n;
    if (end > file->capacity) {
        file->capacity = end;
        file->p = mem_realloc(file->p, end);
    }
    if (offset > file->n)
        memset(file->p + file->n, 0, (size_t)offset - file->n);
    memcpy(file->p + offset, p, n);
    file->n = end > file->n ? end : file->n;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int memory_datasync(struct fs_file *handle)
{
    (void)handle;
    return 0;
}

static int memory_truncate(struct fs_file *handle, uint64_t size)
{
    struct memory_file *file = handle->state;
    pthread_mutex_lock(&lock);
    if (size < file->n)
        file->n = (size_t)size;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int memory_size(struct fs_file *handle, uint64_t *out)
{
    struct memory_file *file = handle->state;
    pthread_mutex_lock(&lock);
    *out = file->n;
    pthread_mutex_unlock(&lock);
    return 0;
}

static int memory_unlink(const struct fs *fs, const char *path)
{
    (void)fs;
    pthread_mutex_lock(&lock);
    struct memory_file *file = find(path);
    if (!file)
        return fail(ENOENT, WEIR_NOT_FOUND);
    file->linked = 0;
    drop(file);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int memory_rename(const struct fs *fs, const char *from, const char *to)
{
    (void)fs;
    pthread_mutex_lock(&lock);
    struct memory_file *file = find(from), *there = find(to);
    if (!file)
        return fail(ENOENT, WEIR_NOT_FOUND);
    if (there) {
        there->linked = 0;
        drop(there);
    }
    snprintf(file->path, sizeof file->path, "%s", to);
    pthread_mutex_unlock(&lock);
    return 0;
}

static int memory_path(const struct fs *fs, const char *path)
{
    (void)fs;
    (void)path;
    return 0;
}

static int memory_list(const struct fs *fs, const char *path,
                       void (*name)(void *context, const char *name), void *context)
{
    (void)fs;
    size_t n = strlen(path);
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < FILES; i++)
        if (files[i].linked && strncmp(files[i].path, path, n) == 0 && files[i].path[n] == '/')
            name(context, files[i].path + n + 1);
    pthread_mutex_unlock(&lock);
    return 0;
}

static const struct fs memory = {
    .name = "memory",
    .open = memory_open,
    .close = memory_close,
    .pread = memory_pread,
    .pwrite = memory_pwrite,
    .datasync = memory_datasync,
    .truncate = memory_truncate,
    .size = memory_size,
    .unlink = memory_unlink,
    .rename = memory_rename,
    .mkdir = memory_path,
    .sync_dir = memory_path,
    .list = memory_list,
};

static void put_file(const char *path, const void *p, size_t n)
{
    struct fs_file *file;
    memory_open(&memory, path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file);
    if (n)
        memory_pwrite(file, p, n, 0);
    memory_close(file);
}

static void forget_files(void)
{
    for (size_t i = 0; i < FILES; i++) {
        files[i].linked = 0;
        drop(&files[i]);
        assert(files[i].handles == 0);
    }
}

/* --- putting checksums right
 * ------------------------------------------------------------------------ */

static uint64_t mend_units(char *p, size_t payload, uint64_t lsn, struct group_header *group)
{
    uint64_t fold = 0;
    group->units = group->records = 0;
    for (size_t at = 0; at + sizeof(struct unit_header) <= payload;) {
        struct unit_header unit;
        memcpy(&unit, p + at, sizeof unit);
        unit.bytes &= ~7u;
        if (unit.bytes < sizeof unit || unit.bytes > payload - at)
            unit.bytes = (uint32_t)(payload - at);
        unit.lsn = lsn + at;
        memcpy(p + at, &unit, sizeof unit);
        unit.checksum = hash64(p + at + 16, unit.bytes - 16);
        memcpy(p + at, &unit.checksum, sizeof unit.checksum);
        fold = group_fold(fold, unit.checksum);
        group->units++;
        group->records += unit.records;
        at += unit.bytes;
    }
    return fold;
}

/* The groups that the lengths in the image describe, one after the other. Returns where they end.
 */
static uint64_t mend_groups(char *image, size_t n, uint64_t base, uint64_t nonce, int flags,
                            uint64_t *number, uint64_t *records)
{
    size_t at = SEGMENT_DATA;
    while (at + GROUP_OVERHEAD <= n) {
        struct group_header group;
        memcpy(&group, image + at, sizeof group);
        size_t most = n - at - GROUP_OVERHEAD;
        size_t payload = (group.payload & 0xffff & ~7u);
        if (payload > most)
            payload = most & ~(size_t)7;
        group.nonce = nonce;
        group.number = (*number)++;
        group.lsn = base + at - SEGMENT_DATA;
        group.records_before = *records;
        if (group.durable > group.lsn || group.durable == 0)
            group.durable = group.lsn;
        group.payload = (uint32_t)payload;
        if (flags & FLAG_UNITS)
            group.units_fold =
                mend_units(image + at + sizeof group, payload, group.lsn + sizeof group, &group);
        group_header_seal(&group);
        memcpy(image + at, &group, sizeof group);
        memcpy(image + at + sizeof group + payload, &group.checksum, sizeof group.checksum);
        *records += group.records;
        at += group_bytes(&group);
        if (payload == 0) /* one that only vouches is the last */
            break;
    }
    return base + at - SEGMENT_DATA;
}

static void put_segments(const uint8_t *data, size_t n, int flags)
{
    uint64_t number = 3, records = 0, base = JOURNAL_FIRST_LSN, nonce = 0;
    size_t each = flags & FLAG_TWO ? n / 2 : n;
    for (unsigned i = 1; i <= (flags & FLAG_TWO ? 2u : 1u); i++) {
        char path[64], *image = mem_zalloc(each + SEGMENT_DATA);
        size_t size = each;
        memcpy(image, data + (i - 1) * each, each);
        if (flags & FLAG_HEADER && size < SEGMENT_DATA) {
            /* a short input is all groups */
            memset(image, 0, SEGMENT_DATA);
            memcpy(image + SEGMENT_DATA, data + (i - 1) * each, each);
            size = each + SEGMENT_DATA;
        }
        struct segment_header header = {.number = i,
                                        .nonce = NONCE + i,
                                        .base = base,
                                        .bytes = SEGMENT_BYTES_MIN,
                                        .previous_number = i - 1,
                                        .previous_nonce = nonce,
                                        .first_group = number,
                                        .records_before = records};
        nonce = header.nonce;
        if (flags & FLAG_HEADER) {
            segment_header_seal(&header);
            memcpy(image, &header, sizeof header);
        }
        if (flags & FLAG_GROUPS)
            base = mend_groups(image, size, base, nonce, flags, &number, &records);
        snprintf(path, sizeof path, "d/journal/%010u.seg", i);
        put_file(path, image, size);
        mem_free(image);
    }
}

/* --- what is done with it
 * ---------------------------------------------------------------------------- */

struct seen { /* what a scan gave, folded together */
    uint64_t records, fold, last;
};

static int see(void *context, const struct record *record)
{
    struct seen *seen = context;
    assert(record->offset > seen->last);
    seen->last = record->offset;
    uint64_t parts[] = {record->offset, hash64(record->id.p, record->id.n),
                        hash64(record->doc.p, record->doc.n), record->version, record->partition};
    seen->fold = hash64(parts, sizeof parts) ^ (seen->fold * 3);
    seen->records++;
    return 0;
}

static int scan(struct seen *seen)
{
    struct log_config config = {
        .fs = &memory, .data = "d", .partitions = JOURNAL_PARTITIONS, .read_only = true};
    struct log *log;
    struct diag diag;
    *seen = (struct seen){0};
    if (log_open("journal", &config, &log, &diag) != 0)
        abort();
    int rc = log_scan(log, 0, see, seen, &diag);
    log_close(log);
    return rc;
}

static void durable(void *context, struct body *bodies)
{
    int *status = context;
    *status = bodies->status;
}

static void write_to_it(int scanned, const struct seen *before)
{
    int status = -1;
    struct log_config config = {.fs = &memory,
                                .data = "d",
                                .partitions = JOURNAL_PARTITIONS,
                                .segment_bytes = SEGMENT_BYTES_MIN,
                                .max_bytes = UINT64_MAX,
                                .ring = 2,
                                .events = {.context = &status, .durable = durable}};
    struct log *log;
    struct log_reader *reader;
    struct diag diag;
    struct batch batch;
    struct log_poll_result result = {.what = LOG_RECORDS};
    if (log_open("journal", &config, &log, &diag) != 0)
        return;
    struct seen read = {0}, after;
    struct record record = {
        .id = SLICE_LIT("new"), .key = SLICE_LIT("new"), .doc = SLICE_LIT("{}")};
    struct body body = {.records = &record, .n = 1, .urgent = true};
    assert(scan(&after) == scanned);
    if (scanned == 0)
        assert(after.records == before->records && after.fold == before->fold);
    batch_init(&batch);
    if (log_reader_open(log, "c", &reader, &diag) != 0)
        abort();
    int rc = 0;
    while (result.what == LOG_RECORDS &&
           (rc = log_poll(reader, &batch, 10, 4096, 0, &result)) == 0) {
        for (size_t i = 0; i < batch.n; i++)
            see(&read, &batch.records[i]);
        batch_clear(&batch);
    }
    if (rc == 0 && scanned == 0)
        assert(read.records == before->records && read.fold == before->fold);
    log_reader_close(reader);
    batch_fini(&batch);
    if (log_append(log, &body) == 0) {
        log_flush(log);
        assert(status == 0);
    }
    log_close(log);
    if (scanned == 0 && status == 0)
        assert(scan(&after) == 0 && after.records == before->records + 1);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1 || n > 3 * SEGMENT_BYTES_MIN)
        return 0;
    int flags = data[0];
    struct seen before;
    struct journal_verify verify = {.fs = &memory, .data = "d"};
    struct diag diag;
    put_segments(data + 1, n - 1, flags);
    int scanned = scan(&before);
    int verified = journal_verify(&verify, &diag);
    if (scanned == 0 && verified == 0 && verify.damages == 0)
        assert(verify.records == before.records);
    if (flags & FLAG_WRITE)
        write_to_it(scanned, &before);
    forget_files();
    return 0;
}
