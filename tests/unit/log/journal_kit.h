/* journal_kit.h: what the journal's tests share: a directory of their own, bodies, what was
 * acknowledged, reading everything back, and a file system with a hook before every operation. */
#ifndef WEIR_TESTS_JOURNAL_KIT_H
#define WEIR_TESTS_JOURNAL_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "../seeded.h"
#include "base/mem.h"
#include "log/journal/format.h"
#include "log/log.h"
#include "os/fs.h"
#include "weir/err.h"

#define UNUSED_OK __attribute__((unused))

/* --- the hook file system ----------------------------------------------------------------------
 */

enum hook_op {
    HOOK_OPEN,
    HOOK_READ,
    HOOK_WRITE,
    HOOK_SYNC,
    HOOK_TRUNCATE,
    HOOK_UNLINK,
    HOOK_RENAME,
    HOOK_SYNC_DIR
};

struct hook_fs {
    struct fs fs; /* first */
    /* 0: go on. An errno: fail with it; of a write, *prefix bytes are written first. Any thread. */
    int (*before)(void *context, enum hook_op op, const char *path, uint64_t offset, size_t n,
                  size_t *prefix);
    void *context;
    bool no_sync; /* syncs do nothing: for tests that only kill, and open very often */
};

static int hook_ask(const struct fs *fs, enum hook_op op, const char *path, uint64_t offset,
                    size_t n, size_t *prefix)
{
    const struct hook_fs *hook = (const struct hook_fs *)fs;
    size_t none = 0;
    int error = hook->before
                    ? hook->before(hook->context, op, path, offset, n, prefix ? prefix : &none)
                    : 0;
    if (error)
        errno = error;
    return error;
}

static int hook_open(const struct fs *fs, const char *path, int flags, struct fs_file **out)
{
    if (hook_ask(fs, HOOK_OPEN, path, 0, 0, NULL))
        return fs_error(errno);
    int rc = fs_posix()->open(fs_posix(), path, flags, out);
    if (rc)
        return rc;
    (*out)->fs = fs;
    (*out)->state = mem_strdup(path);
    return 0;
}

static void hook_close(struct fs_file *file)
{
    mem_free(file->state);
    fs_posix()->close(file);
}

static int hook_pread(struct fs_file *file, void *p, size_t n, uint64_t offset, size_t *out_n)
{
    if (hook_ask(file->fs, HOOK_READ, file->state, offset, n, NULL))
        return fs_error(errno);
    return fs_posix()->pread(file, p, n, offset, out_n);
}

/* How much to write so that the write is not whole: what is missing may lie there already. */
static size_t hook_cut(struct fs_file *file, const char *p, size_t n, uint64_t offset,
                       size_t prefix)
{
    char *there = mem_zalloc(n);
    size_t got;
    if (fs_posix()->pread(file, there, n, offset, &got) == 0)
        while (prefix && memcmp(there + prefix, p + prefix, n - prefix) == 0)
            prefix--;
    mem_free(there);
    return prefix;
}

static int hook_pwrite(struct fs_file *file, const void *p, size_t n, uint64_t offset)
{
    size_t prefix = 0;
    int error = hook_ask(file->fs, HOOK_WRITE, file->state, offset, n, &prefix);
    if (!error)
        return fs_posix()->pwrite(file, p, n, offset);
    if (prefix) {
        prefix = hook_cut(file, p, n, offset, prefix < n ? prefix : n - 1);
        fs_posix()->pwrite(file, p, prefix, offset);
    }
    errno = error;
    return fs_error(error);
}

static int hook_datasync(struct fs_file *file)
{
    if (hook_ask(file->fs, HOOK_SYNC, file->state, 0, 0, NULL))
        return fs_error(errno);
    return ((const struct hook_fs *)file->fs)->no_sync ? 0 : fs_posix()->datasync(file);
}

static int hook_truncate(struct fs_file *file, uint64_t size)
{
    if (hook_ask(file->fs, HOOK_TRUNCATE, file->state, size, 0, NULL))
        return fs_error(errno);
    return fs_posix()->truncate(file, size);
}

static int hook_unlink(const struct fs *fs, const char *path)
{
    if (hook_ask(fs, HOOK_UNLINK, path, 0, 0, NULL))
        return fs_error(errno);
    return fs_posix()->unlink(fs_posix(), path);
}

static int hook_rename(const struct fs *fs, const char *from, const char *to)
{
    if (hook_ask(fs, HOOK_RENAME, to, 0, 0, NULL))
        return fs_error(errno);
    return fs_posix()->rename(fs_posix(), from, to);
}

static int hook_sync_dir(const struct fs *fs, const char *path)
{
    if (hook_ask(fs, HOOK_SYNC_DIR, path, 0, 0, NULL))
        return fs_error(errno);
    return ((const struct hook_fs *)fs)->no_sync ? 0 : fs_posix()->sync_dir(fs_posix(), path);
}

static UNUSED_OK void hook_fs_init(struct hook_fs *hook)
{
    hook->fs = *fs_posix();
    hook->fs.name = "hook";
    hook->fs.open = hook_open;
    hook->fs.close = hook_close;
    hook->fs.pread = hook_pread;
    hook->fs.pwrite = hook_pwrite;
    hook->fs.datasync = hook_datasync;
    hook->fs.truncate = hook_truncate;
    hook->fs.unlink = hook_unlink;
    hook->fs.rename = hook_rename;
    hook->fs.sync_dir = hook_sync_dir;
    hook->before = NULL;
    hook->context = NULL;
    hook->no_sync = false;
}

/* --- a journal and what it said ------------------------------------------------------------------
 */

struct kit_ack { /* one record that was settled, in the order of the log */
    char id[24];
    uint64_t offset;
    int status;
    unsigned group; /* which call of `durable` */
};

struct kit {
    char dir[64];
    struct log_config config;
    struct log *log;
    struct diag diag;
    int open_error;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    struct kit_ack *acks;
    size_t n_acks, capacity;
    unsigned groups;
    bool hold;    /* `durable` does not return */
    bool holding; /* and now waits */
    char reports[16384];
};

static void kit_durable(void *context, struct body *bodies)
{
    struct kit *kit = context;
    pthread_mutex_lock(&kit->lock);
    kit->groups++;
    while (bodies) {
        struct body *body = bodies;
        bodies = body->next;
        for (uint32_t i = 0; i < body->n; i++) {
            if (kit->n_acks == kit->capacity) {
                kit->capacity = kit->capacity ? kit->capacity * 2 : 256;
                kit->acks = mem_realloc(kit->acks, kit->capacity * sizeof *kit->acks);
            }
            struct kit_ack *ack = &kit->acks[kit->n_acks++];
            snprintf(ack->id, sizeof ack->id, "%.*s", (int)body->records[i].id.n,
                     body->records[i].id.p);
            ack->offset = body->records[i].offset;
            ack->status = body->status;
            ack->group = kit->groups;
        }
        assert_null(body->encoded);
        mem_free(body);
    }
    pthread_cond_broadcast(&kit->changed);
    while (kit->hold) {
        kit->holding = true;
        pthread_cond_wait(&kit->changed, &kit->lock);
    }
    kit->holding = false;
    pthread_mutex_unlock(&kit->lock);
}

static UNUSED_OK void kit_hold(struct kit *kit, bool on)
{
    pthread_mutex_lock(&kit->lock);
    kit->hold = on;
    pthread_cond_broadcast(&kit->changed);
    pthread_mutex_unlock(&kit->lock);
}

static void kit_reported(void *context, const char *text)
{
    struct kit *kit = context;
    pthread_mutex_lock(&kit->lock);
    size_t n = strlen(kit->reports);
    snprintf(kit->reports + n, sizeof kit->reports - n, "%s\n", text);
    pthread_cond_broadcast(&kit->changed);
    pthread_mutex_unlock(&kit->lock);
}

static UNUSED_OK bool kit_said(struct kit *kit, const char *words)
{
    pthread_mutex_lock(&kit->lock);
    bool said = strstr(kit->reports, words) != NULL;
    pthread_mutex_unlock(&kit->lock);
    return said;
}

static UNUSED_OK unsigned kit_times_said(struct kit *kit, const char *words)
{
    unsigned n = 0;
    pthread_mutex_lock(&kit->lock);
    for (const char *p = kit->reports; (p = strstr(p, words)); p++)
        n++;
    pthread_mutex_unlock(&kit->lock);
    return n;
}

static UNUSED_OK void kit_init(struct kit *kit)
{
    *kit = (struct kit){0};
    strcpy(kit->dir, "/tmp/weir-journal-XXXXXX");
    assert_non_null(mkdtemp(kit->dir));
    kit->config = (struct log_config){
        .fs = fs_posix(),
        .data = kit->dir,
        .partitions = 4,
        .segment_bytes = 256 << 10,
        .max_bytes = 1 << 30,
        .received_flush_ms = 5,
        .ring = 1024,
        .events = {.context = kit, .durable = kit_durable, .report = kit_reported},
    };
    pthread_mutex_init(&kit->lock, NULL);
    pthread_cond_init(&kit->changed, NULL);
}

static UNUSED_OK int kit_try_open(struct kit *kit)
{
    kit->diag = (struct diag){0};
    kit->log = NULL;
    kit->open_error = log_open("journal", &kit->config, &kit->log, &kit->diag);
    return kit->open_error;
}

static UNUSED_OK void kit_open(struct kit *kit)
{
    if (kit_try_open(kit) != 0)
        fail_msg("log_open: %s", kit->diag.text);
}

static UNUSED_OK void kit_close(struct kit *kit)
{
    log_close(kit->log);
    kit->log = NULL;
}

/* Forgets what was acknowledged and said. */
static UNUSED_OK void kit_forget(struct kit *kit)
{
    kit->n_acks = 0;
    kit->groups = 0;
    kit->reports[0] = 0;
}

static UNUSED_OK void kit_remove_in(const char *dir)
{
    DIR *d = opendir(dir);
    if (!d)
        return;
    for (struct dirent *entry; (entry = readdir(d));) {
        char path[600];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        if (unlink(path) != 0) {
            kit_remove_in(path);
            rmdir(path);
        }
    }
    closedir(d);
}

static UNUSED_OK void kit_fini(struct kit *kit)
{
    log_close(kit->log);
    kit_remove_in(kit->dir);
    rmdir(kit->dir);
    mem_free(kit->acks);
    pthread_mutex_destroy(&kit->lock);
    pthread_cond_destroy(&kit->changed);
}

/* One allocation: body, records, bytes. Ids are "<first>", "<first+1>", ...; the doc is made of the
 * id, so that it can be checked. */
static UNUSED_OK struct body *kit_body(uint64_t first, unsigned n, size_t doc_bytes, bool urgent)
{
    size_t each = 24 + doc_bytes;
    struct body *body = mem_zalloc(sizeof *body + n * (sizeof(struct record) + each));
    struct record *records = (struct record *)(body + 1);
    char *bytes = (char *)(records + n);
    for (unsigned i = 0; i < n; i++, bytes += each) {
        int id = snprintf(bytes, 24, "%" PRIu64, first + i);
        memset(bytes + 24, 'a' + (char)((first + i) % 26), doc_bytes);
        records[i] = (struct record){
            .id = {bytes, (size_t)id},
            .key = {bytes, (first + i) % 3 ? (size_t)id : 1},
            .doc = {bytes + 24, doc_bytes},
            .version = (first + i) * 7 + 1,
            .stream = (uint32_t)(first + i) % 5,
            .partition = (uint32_t)(first + i) % 4,
        };
    }
    body->records = records;
    body->n = n;
    body->urgent = urgent;
    return body;
}

/* Is this record the one of kit_body? */
static UNUSED_OK void kit_check_record(const struct record *record)
{
    char id[32];
    snprintf(id, sizeof id, "%.*s", (int)record->id.n, record->id.p);
    uint64_t number = strtoull(id, NULL, 10);
    assert_int_equal(record->version, number * 7 + 1);
    assert_int_equal(record->stream, number % 5);
    assert_int_equal(record->partition, number % 4);
    assert_int_equal(record->key.n, number % 3 ? record->id.n : 1);
    for (size_t i = 0; i < record->doc.n; i++)
        assert_int_equal(record->doc.p[i], 'a' + (char)(number % 26));
}

static UNUSED_OK int kit_append(struct kit *kit, uint64_t first, unsigned n, size_t doc_bytes)
{
    struct body *body = kit_body(first, n, doc_bytes, true);
    int rc = log_append(kit->log, body);
    if (rc)
        mem_free(body);
    return rc;
}

/* Until so many records are settled. */
static UNUSED_OK void kit_wait_acks(struct kit *kit, size_t n)
{
    pthread_mutex_lock(&kit->lock);
    while (kit->n_acks < n)
        pthread_cond_wait(&kit->changed, &kit->lock);
    pthread_mutex_unlock(&kit->lock);
}

static UNUSED_OK void kit_wait_said(struct kit *kit, const char *words)
{
    pthread_mutex_lock(&kit->lock);
    while (!strstr(kit->reports, words))
        pthread_cond_wait(&kit->changed, &kit->lock);
    pthread_mutex_unlock(&kit->lock);
}

/* Appends one record a body, one after the other, each acknowledged with 0. */
static UNUSED_OK void kit_fill(struct kit *kit, uint64_t first, unsigned n, size_t doc_bytes)
{
    for (unsigned i = 0; i < n; i++) {
        size_t before = kit->n_acks;
        assert_int_equal(kit_append(kit, first + i, 1, doc_bytes), 0);
        kit_wait_acks(kit, before + 1);
        assert_int_equal(kit->acks[before].status, 0);
    }
}

/* The ids and offsets that reading gives, in order. */
struct kit_read {
    uint64_t *ids, *offsets;
    size_t n, capacity;
};

static UNUSED_OK void kit_read_add(struct kit_read *read, const struct record *record)
{
    kit_check_record(record);
    if (read->n == read->capacity) {
        read->capacity = read->capacity ? read->capacity * 2 : 256;
        read->ids = mem_realloc(read->ids, read->capacity * sizeof *read->ids);
        read->offsets = mem_realloc(read->offsets, read->capacity * sizeof *read->offsets);
    }
    char id[32];
    snprintf(id, sizeof id, "%.*s", (int)record->id.n, record->id.p);
    read->ids[read->n] = strtoull(id, NULL, 10);
    read->offsets[read->n++] = record->offset;
}

static UNUSED_OK void kit_read_fini(struct kit_read *read)
{
    mem_free(read->ids);
    mem_free(read->offsets);
    *read = (struct kit_read){0};
}

static UNUSED_OK int kit_visit(void *context, const struct record *record)
{
    kit_read_add(context, record);
    return 0;
}

/* Scans the directory with a log open for reading only. */
static UNUSED_OK int kit_scan(struct kit *kit, uint64_t from, struct kit_read *out)
{
    struct log_config config = kit->config;
    struct log *log;
    config.read_only = true;
    assert_int_equal(log_open("journal", &config, &log, &kit->diag), 0);
    int rc = log_scan(log, from, kit_visit, out, &kit->diag);
    log_close(log);
    return rc;
}

/* Reads until n records have come. */
static UNUSED_OK void kit_poll(struct log_reader *reader, size_t n, struct kit_read *out)
{
    struct batch batch;
    batch_init(&batch);
    size_t wanted = out->n + n;
    while (out->n < wanted) {
        struct log_poll_result result;
        int rc = log_poll(reader, &batch, wanted - out->n, 1 << 20, -1, &result);
        if (rc)
            fail_msg("log_poll: %s: %s", weir_err_name(rc), log_reader_why(reader));
        for (size_t i = 0; i < batch.n; i++)
            kit_read_add(out, &batch.records[i]);
        batch_clear(&batch);
    }
    batch_fini(&batch);
}

static UNUSED_OK void kit_segment_path(struct kit *kit, unsigned number, char out[128])
{
    snprintf(out, 128, "%s/journal/%010u.seg", kit->dir, number);
}

static UNUSED_OK unsigned kit_count_segments(struct kit *kit)
{
    char path[128];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/journal", kit->dir);
    DIR *d = opendir(path);
    for (struct dirent *entry; d && (entry = readdir(d));)
        n += strstr(entry->d_name, ".seg") != NULL;
    if (d)
        closedir(d);
    return n;
}

/* --- files as they are
 * ---------------------------------------------------------------------------- */

/* Copies everything below a directory: what a process that dies now leaves behind. */
static UNUSED_OK void kit_copy(const char *from, const char *to)
{
    mkdir(to, 0700);
    DIR *d = opendir(from);
    assert_non_null(d);
    for (struct dirent *entry; (entry = readdir(d));) {
        char source[600], target[600];
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        snprintf(source, sizeof source, "%s/%s", from, entry->d_name);
        snprintf(target, sizeof target, "%s/%s", to, entry->d_name);
        struct stat st;
        if (stat(source, &st) != 0)
            continue; /* gone meanwhile */
        if (S_ISDIR(st.st_mode)) {
            kit_copy(source, target);
            continue;
        }
        char *p;
        size_t n;
        if (fs_read_file(fs_posix(), source, (size_t)1 << 30, &p, &n) != 0)
            continue;
        FILE *file = fopen(target, "w");
        assert_int_equal(fwrite(p, 1, n, file), n);
        fclose(file);
        mem_free(p);
    }
    closedir(d);
}

/* The directory becomes a copy of the image. */
static UNUSED_OK void kit_restore(struct kit *kit, const char *image)
{
    kit_remove_in(kit->dir);
    kit_copy(image, kit->dir);
}

static UNUSED_OK char *kit_slurp(const char *path, size_t *n)
{
    char *p;
    assert_int_equal(fs_read_file(fs_posix(), path, (size_t)1 << 30, &p, n), 0);
    return p;
}

static UNUSED_OK void kit_overwrite(const char *path, const void *p, size_t n, uint64_t at)
{
    struct fs_file *file;
    assert_int_equal(fs_open(fs_posix(), path, FS_WRITE, &file), 0);
    assert_int_equal(file->fs->pwrite(file, p, n, at), 0);
    fs_close(file);
}

static UNUSED_OK void kit_flip(const char *path, uint64_t at, unsigned char bits)
{
    struct fs_file *file;
    unsigned char c;
    assert_int_equal(fs_open(fs_posix(), path, FS_WRITE, &file), 0);
    assert_int_equal(fs_pread_all(file, &c, 1, at), 0);
    c ^= bits;
    assert_int_equal(file->fs->pwrite(file, &c, 1, at), 0);
    fs_close(file);
}

/* Waits for a condition that another thread brings about, or fails after a long time. */
#define kit_until(condition)                                                                       \
    do {                                                                                           \
        unsigned kit_tries = 0;                                                                    \
        while (!(condition)) {                                                                     \
            if (++kit_tries > 60000)                                                               \
                fail_msg("never: %s", #condition);                                                 \
            nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL); /* poll interval */           \
        }                                                                                          \
    } while (0)

#endif
