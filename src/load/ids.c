/* ids.c: see ids.h. The queue is a list of whole buffers, so the lock is held for a few pointer
 * moves only. */
#include "load/ids.h"

#include <errno.h>
#include <pthread.h>

#include "base/mem.h"
#include "os/fs.h"
#include "os/thread.h"

struct piece {
    struct piece *next;
    struct buf lines;
};

struct ids {
    /* constant after ids_open */
    char *path;
    struct fs_file *file;
    pthread_t thread;

    pthread_mutex_t lock;
    pthread_cond_t more, less; /* pieces came; pieces went */
    /* guarded by lock */
    struct piece *first, **last;
    size_t pending_bytes;
    bool closing;
    struct diag failure; /* code 0: none */

    /* the writer's */
    uint64_t offset;
};

static void write_piece(struct ids *ids, struct piece *piece)
{
    int err = ids->file->fs->pwrite(ids->file, piece->lines.p, piece->lines.n, ids->offset);
    ids->offset += piece->lines.n;
    if (!err)
        return;
    int cause = errno;
    pthread_mutex_lock(&ids->lock);
    if (ids->failure.code == 0)
        diag_set(&ids->failure, err, "%s: cannot be written: %s", ids->path, strerror(cause));
    pthread_mutex_unlock(&ids->lock);
}

static void *run(void *argument)
{
    struct ids *ids = argument;
    pthread_mutex_lock(&ids->lock);
    for (;;) {
        while (!ids->first && !ids->closing)
            pthread_cond_wait(&ids->more, &ids->lock);
        struct piece *piece = ids->first;
        if (!piece)
            break;
        ids->first = piece->next;
        if (!ids->first)
            ids->last = &ids->first;
        bool failed = ids->failure.code != 0;
        pthread_mutex_unlock(&ids->lock);

        if (!failed)
            write_piece(ids, piece);

        pthread_mutex_lock(&ids->lock);
        ids->pending_bytes -= piece->lines.n;
        pthread_cond_broadcast(&ids->less);
        buf_fini(&piece->lines);
        mem_free(piece);
    }
    pthread_mutex_unlock(&ids->lock);
    return NULL;
}

int ids_open(const char *path, struct ids **out, struct diag *diag)
{
    struct fs_file *file;
    int err = fs_open(fs_posix(), path, FS_WRITE | FS_CREATE | FS_TRUNCATE, &file);
    if (err)
        return diag_set(diag, err, "%s: cannot be opened for writing: %s", path, strerror(errno));

    struct ids *ids = mem_zalloc(sizeof *ids);
    ids->path = mem_strdup(path);
    ids->file = file;
    ids->last = &ids->first;
    pthread_mutex_init(&ids->lock, NULL);
    pthread_cond_init(&ids->more, NULL);
    pthread_cond_init(&ids->less, NULL);
    err = thread_start(&ids->thread, "ids", 0, run, ids);
    if (err) {
        fs_close(file);
        mem_free(ids->path);
        mem_free(ids);
        return diag_set(diag, err, "the thread that writes ids cannot be started");
    }
    *out = ids;
    return 0;
}

int ids_close(struct ids *ids, struct diag *diag)
{
    pthread_mutex_lock(&ids->lock);
    ids->closing = true;
    pthread_cond_signal(&ids->more);
    pthread_mutex_unlock(&ids->lock);
    thread_join(ids->thread);
    fs_close(ids->file);
    int err = ids->failure.code;
    if (err)
        diag_set(diag, err, "%s", ids->failure.text);
    pthread_mutex_destroy(&ids->lock);
    pthread_cond_destroy(&ids->more);
    pthread_cond_destroy(&ids->less);
    mem_free(ids->path);
    mem_free(ids);
    return err;
}

bool ids_failed(struct ids *ids)
{
    pthread_mutex_lock(&ids->lock);
    bool failed = ids->failure.code != 0;
    pthread_mutex_unlock(&ids->lock);
    return failed;
}

void ids_put(struct ids *ids, struct buf *lines)
{
    if (lines->n == 0)
        return;
    struct piece *piece = mem_zalloc(sizeof *piece);
    piece->lines = *lines;
    *lines = (struct buf){0};

    pthread_mutex_lock(&ids->lock);
    while (ids->pending_bytes > IDS_PENDING_MAX)
        pthread_cond_wait(&ids->less, &ids->lock);
    *ids->last = piece;
    ids->last = &piece->next;
    ids->pending_bytes += piece->lines.n;
    pthread_cond_signal(&ids->more);
    pthread_mutex_unlock(&ids->lock);
}

void ids_line(struct buf *lines, struct slice stream, struct slice id, uint64_t version,
              struct hash128 hash)
{
    char hex[33];
    hash128_format(hash, hex);
    buf_put_slice(lines, SLICE_LIT("{\"stream\":"));
    buf_put_json_string(lines, stream);
    buf_put_slice(lines, SLICE_LIT(",\"id\":"));
    buf_put_json_string(lines, id);
    buf_put_slice(lines, SLICE_LIT(",\"version\":"));
    buf_put_u64(lines, version);
    buf_put_slice(lines, SLICE_LIT(",\"hash\":\""));
    buf_put(lines, hex, 32);
    buf_put_slice(lines, SLICE_LIT("\"}\n"));
}
