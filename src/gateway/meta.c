/* meta.c: data/META and data/LOCK (see meta.h).
 *
 *   format 1
 *   partitions 4
 *   version_ceiling 1865391996600320
 *   stream 0 events
 *   xxh3 1f0e2d3c4b5a6978          of all bytes before this line
 *
 * META is small and only ever replaced whole; anything that is not exactly this form is damage. The
 * format is looked at first: a newer weir may have changed everything after it. */
#include "gateway/meta.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/mem.h"

enum { FORMAT = 1, PARTITIONS_MAX = 1024, FILE_MAX_BYTES = 1 << 20, STREAM_NAME_MAX = 64 };

static int corrupt(struct diag *diag, const char *data, const char *what)
{
    return diag_set(diag, WEIR_CORRUPT, "%s/META: %s; the file is damaged, put it back from a copy",
                    data, what);
}

/* "NAME NUMBER\n" at *at. */
static bool take_number(struct slice *text, const char *name, uint64_t *out)
{
    size_t n = strlen(name), i = n + 1;
    uint64_t v = 0;
    if (text->n <= n || memcmp(text->p, name, n) != 0 || text->p[n] != ' ')
        return false;
    for (; i < text->n && text->p[i] >= '0' && text->p[i] <= '9'; i++) {
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(text->p[i] - '0'), &v))
            return false;
    }
    if (i == n + 1)
        return false;
    text->p += i;
    text->n -= i;
    *out = v;
    return true;
}

static bool take_char(struct slice *text, char c)
{
    if (text->n == 0 || text->p[0] != c)
        return false;
    text->p++;
    text->n--;
    return true;
}

/* Takes the last line off and holds it against the rest. */
static bool checksum_good(struct slice *text)
{
    char line[32];
    const size_t n = strlen("xxh3 ") + 16 + 1;
    if (text->n < n)
        return false;
    text->n -= n;
    snprintf(line, sizeof line, "xxh3 %016" PRIx64 "\n", hash64(text->p, text->n));
    return memcmp(text->p + text->n, line, n) == 0;
}

static bool take_stream(struct slice *text, struct meta *meta)
{
    uint64_t number;
    if (!take_number(text, "stream", &number) || number != meta->n_streams || !take_char(text, ' '))
        return false;
    const char *end = memchr(text->p, '\n', text->n);
    size_t n = end ? (size_t)(end - text->p) : 0;
    if (n == 0 || n > STREAM_NAME_MAX)
        return false;
    char name[STREAM_NAME_MAX + 1];
    memcpy(name, text->p, n);
    name[n] = '\0';
    if (strlen(name) != n || meta_stream_find(meta, name, &(uint32_t){0}) == 0)
        return false;
    meta_stream_add(meta, name);
    text->p += n + 1;
    text->n -= n + 1;
    return true;
}

static int parse(struct slice text, const char *data, struct meta *out, struct diag *diag)
{
    uint64_t format, partitions;
    struct slice first = text;
    if (take_number(&first, "format", &format) && format > FORMAT)
        return diag_set(diag, WEIR_NEWER,
                        "%s/META was written by a newer weir (format %" PRIu64
                        ", this one knows %d); start that one",
                        data, format, FORMAT);
    if (!checksum_good(&text))
        return corrupt(diag, data, "its checksum does not fit");
    if (!take_number(&text, "format", &format) || format != FORMAT || !take_char(&text, '\n'))
        return corrupt(diag, data, "its format is not named");
    if (!take_number(&text, "partitions", &partitions) || partitions == 0 ||
        partitions > PARTITIONS_MAX || !take_char(&text, '\n'))
        return corrupt(diag, data, "its number of partitions is wrong");
    if (!take_number(&text, "version_ceiling", &out->version_ceiling) ||
        out->version_ceiling > INT64_MAX || !take_char(&text, '\n'))
        return corrupt(diag, data, "its version ceiling is wrong");
    out->partitions = (unsigned)partitions;
    while (text.n) {
        if (!take_stream(&text, out))
            return corrupt(diag, data, "its streams are wrong");
    }
    return 0;
}

int meta_read(const struct fs *fs, const char *data, struct meta *out, struct diag *diag)
{
    char *path = mem_printf("%s/META", data), *text;
    struct meta meta = {0};
    size_t n;
    int err = fs_read_file(fs, path, FILE_MAX_BYTES, &text, &n);
    if (err == WEIR_NOT_FOUND) {
        diag_set(diag, err, "%s: there is no data in it yet", data);
    } else if (err == WEIR_TOO_LARGE) {
        err = corrupt(diag, data, "it is too large");
    } else if (err) {
        diag_set(diag, err, "%s: cannot be read: %s", path, strerror(errno));
    } else {
        err = parse((struct slice){text, n}, data, &meta, diag);
        mem_free(text);
    }
    mem_free(path);
    if (err) {
        meta_fini(&meta);
        return err;
    }
    *out = meta;
    return 0;
}

int meta_write(const struct fs *fs, const char *data, const struct meta *meta, struct diag *diag)
{
    struct buf text = {0};
    buf_printf(&text, "format %d\npartitions %u\nversion_ceiling %" PRIu64 "\n", FORMAT,
               meta->partitions, meta->version_ceiling);
    for (uint32_t i = 0; i < meta->n_streams; i++)
        buf_printf(&text, "stream %" PRIu32 " %s\n", i, meta->streams[i]);
    buf_printf(&text, "xxh3 %016" PRIx64 "\n", hash64(text.p, text.n));
    char *path = mem_printf("%s/META", data);
    int err = fs_replace_file(fs, path, text.p, text.n);
    if (err)
        diag_set(diag, err, "%s: cannot be written: %s", path, strerror(errno));
    mem_free(path);
    buf_fini(&text);
    return err;
}

void meta_fini(struct meta *meta)
{
    for (uint32_t i = 0; i < meta->n_streams; i++)
        mem_free(meta->streams[i]);
    mem_free(meta->streams);
    *meta = (struct meta){0};
}

uint32_t meta_stream_add(struct meta *meta, const char *name)
{
    uint32_t number;
    if (meta_stream_find(meta, name, &number) == 0)
        return number;
    meta->streams = mem_realloc(meta->streams, (meta->n_streams + 1) * sizeof *meta->streams);
    meta->streams[meta->n_streams] = mem_strdup(name);
    return meta->n_streams++;
}

int meta_stream_find(const struct meta *meta, const char *name, uint32_t *out)
{
    for (uint32_t i = 0; i < meta->n_streams; i++) {
        if (strcmp(meta->streams[i], name) == 0) {
            *out = i;
            return 0;
        }
    }
    return WEIR_NOT_FOUND;
}

/* The process number that the holder has left in LOCK; 0: it says none. */
static long holder_of(struct fs_file *file)
{
    char text[24] = "";
    size_t n;
    long pid = 0;
    if (file->fs->pread(file, text, sizeof text - 1, 0, &n))
        return 0;
    for (size_t i = 0; i < n && text[i] >= '0' && text[i] <= '9' && pid < 100000000; i++)
        pid = pid * 10 + (text[i] - '0');
    return pid;
}

int data_lock(const struct fs *fs, const char *data, struct fs_file **out, struct diag *diag)
{
    struct fs_file *file;
    int err = fs_mkdirs(fs, data);
    if (err)
        return diag_set(diag, err,
                        "%s: the data directory cannot be made: %s; name another: "
                        "--data DIR",
                        data, errno == EEXIST ? "a file is there" : strerror(errno));
    char *path = mem_printf("%s/LOCK", data);
    err = fs_open(fs, path, FS_WRITE | FS_CREATE, &file);
    if (err) {
        bool denied = errno == EACCES || errno == EPERM || errno == EROFS;
        diag_set(diag, err, "%s: cannot be opened: %s%s", path, strerror(errno),
                 denied ? "; weir must be able to write in its data directory" : "");
        mem_free(path);
        return err;
    }
    mem_free(path);
    err = fs->lock(file);
    if (err) {
        long holder = err == WEIR_LOCKED ? holder_of(file) : 0;
        if (err != WEIR_LOCKED)
            diag_set(diag, err, "%s/LOCK: cannot be locked: %s", data, strerror(errno));
        else if (holder)
            diag_set(diag, err, "%s is in use by process %ld; one weir at a time", data, holder);
        else
            diag_set(diag, err, "%s is in use by another process; one weir at a time", data);
        fs_close(file);
        return err;
    }
    /* Only a help for the message above: the lock holds without it, on a full disk too. */
    char pid[24];
    int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (fs->truncate(file, 0) == 0)
        (void)fs->pwrite(file, pid, (size_t)n, 0);
    *out = file;
    return 0;
}
