/* sqlite_vfs.c: the wrapping VFS (see sqlite_vfs.h).
 *
 * Invariants: 1. between fs_fault_before and fs_fault_after stands exactly one operation of the
 * unix VFS, with its notes; 2. what the unix VFS syncs unseen is noted too: the folder, with the
 * first sync of a journal or WAL that may have been created, and with a delete that asks for it. */
#include <errno.h>
#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fs_fault.h"
#include "sink/sqlite_vfs.h"

struct vfs_file {
    sqlite3_file base;
    const char *path;    /* SQLite keeps it until xClose */
    bool syncs_folder;   /* the next sync will also sync the folder */
    sqlite3_file *inner; /* the unix VFS's file, behind this struct */
};

#define INNER_OFFSET ((sizeof(struct vfs_file) + 15) / 16 * 16)

static sqlite3_vfs *inner_of(sqlite3_vfs *vfs)
{
    return vfs->pAppData;
}

static struct vfs_file *own(sqlite3_file *file)
{
    return (struct vfs_file *)file;
}

static int code_of(int error, int io_code)
{
    return error == ENOSPC ? SQLITE_FULL : io_code;
}

static void note_folder_synced(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = !slash          ? mem_strdup(".")
                   : slash == path ? mem_strdup("/")
                                   : mem_printf("%.*s", (int)(slash - path), path);
    fs_fault_note_dir_synced(folder);
    mem_free(folder);
}

/* Files. */

static int file_close(sqlite3_file *file)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xClose(inner);
}

static int file_read(sqlite3_file *file, void *p, int n, sqlite3_int64 offset)
{
    struct vfs_file *self = own(file);
    int rc = SQLITE_IOERR_READ;
    if (fs_fault_before(FS_OP_READ, self->path, (size_t)n, NULL) == 0)
        rc = self->inner->pMethods->xRead(self->inner, p, n, offset);
    fs_fault_after();
    return rc;
}

static int file_write(sqlite3_file *file, const void *p, int n, sqlite3_int64 offset)
{
    struct vfs_file *self = own(file);
    size_t todo = (size_t)n;
    int error = fs_fault_before(FS_OP_WRITE, self->path, (size_t)n, &todo), rc = SQLITE_OK;
    fs_fault_note_write(self->path, (uint64_t)offset, todo);
    if (todo > 0)
        rc = self->inner->pMethods->xWrite(self->inner, p, (int)todo, offset);
    fs_fault_after();
    return rc == SQLITE_OK && error ? code_of(error, SQLITE_IOERR_WRITE) : rc;
}

static int file_truncate(sqlite3_file *file, sqlite3_int64 size)
{
    struct vfs_file *self = own(file);
    int error = fs_fault_before(FS_OP_TRUNCATE, self->path, 0, NULL);
    int rc = code_of(error, SQLITE_IOERR_TRUNCATE);
    if (error == 0) {
        fs_fault_note_truncate(self->path, (uint64_t)size);
        rc = self->inner->pMethods->xTruncate(self->inner, size);
    }
    fs_fault_after();
    return rc;
}

static int file_sync(sqlite3_file *file, int flags)
{
    struct vfs_file *self = own(file);
    int error = fs_fault_before(FS_OP_SYNC, self->path, 0, NULL);
    int rc = code_of(error, SQLITE_IOERR_FSYNC);
    if (error == 0) {
        rc = self->inner->pMethods->xSync(self->inner, flags);
        if (rc == SQLITE_OK) {
            fs_fault_note_synced(self->path);
            if (self->syncs_folder)
                note_folder_synced(self->path);
            self->syncs_folder = false;
        }
    }
    fs_fault_after();
    return rc;
}

static int file_size(sqlite3_file *file, sqlite3_int64 *out)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xFileSize(inner, out);
}

static int file_lock(sqlite3_file *file, int level)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xLock(inner, level);
}

static int file_unlock(sqlite3_file *file, int level)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xUnlock(inner, level);
}

static int file_check_reserved_lock(sqlite3_file *file, int *out)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xCheckReservedLock(inner, out);
}

static int file_control(sqlite3_file *file, int what, void *argument)
{
    sqlite3_file *inner = own(file)->inner;
    switch (what) {
    case SQLITE_FCNTL_SIZE_HINT: /* hints that would change the file's size unseen */
    case SQLITE_FCNTL_CHUNK_SIZE:
        return SQLITE_OK;
    case SQLITE_FCNTL_MMAP_SIZE:
        *(sqlite3_int64 *)argument = 0;
        return SQLITE_OK;
    default:
        return inner->pMethods->xFileControl(inner, what, argument);
    }
}

static int file_sector_size(sqlite3_file *file)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xSectorSize(inner);
}

static int file_device(sqlite3_file *file)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xDeviceCharacteristics(inner);
}

static int file_shm_map(sqlite3_file *file, int page, int size, int extend, void volatile **out)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xShmMap(inner, page, size, extend, out);
}

static int file_shm_lock(sqlite3_file *file, int offset, int n, int flags)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xShmLock(inner, offset, n, flags);
}

static void file_shm_barrier(sqlite3_file *file)
{
    sqlite3_file *inner = own(file)->inner;
    inner->pMethods->xShmBarrier(inner);
}

static int file_shm_unmap(sqlite3_file *file, int delete_it)
{
    sqlite3_file *inner = own(file)->inner;
    return inner->pMethods->xShmUnmap(inner, delete_it);
}

static int file_fetch(sqlite3_file *file, sqlite3_int64 offset, int n, void **out)
{
    (void)file;
    (void)offset;
    (void)n;
    *out = NULL; /* SQLite then reads */
    return SQLITE_OK;
}

static int file_unfetch(sqlite3_file *file, sqlite3_int64 offset, void *p)
{
    (void)file;
    (void)offset;
    (void)p;
    return SQLITE_OK;
}

static const sqlite3_io_methods methods = {
    .iVersion = 3,
    .xClose = file_close,
    .xRead = file_read,
    .xWrite = file_write,
    .xTruncate = file_truncate,
    .xSync = file_sync,
    .xFileSize = file_size,
    .xLock = file_lock,
    .xUnlock = file_unlock,
    .xCheckReservedLock = file_check_reserved_lock,
    .xFileControl = file_control,
    .xSectorSize = file_sector_size,
    .xDeviceCharacteristics = file_device,
    .xShmMap = file_shm_map,
    .xShmLock = file_shm_lock,
    .xShmBarrier = file_shm_barrier,
    .xShmUnmap = file_shm_unmap,
    .xFetch = file_fetch,
    .xUnfetch = file_unfetch,
};

/* The VFS. */

static int vfs_open(sqlite3_vfs *vfs, const char *path, sqlite3_file *file, int flags,
                    int *out_flags)
{
    sqlite3_vfs *inner = inner_of(vfs);
    if (!path || !fs_fault_installed())
        return inner->xOpen(inner, path, file, flags, out_flags);

    struct vfs_file *self = own(file);
    memset(self, 0, sizeof *self);
    self->path = path;
    self->inner = (sqlite3_file *)((char *)file + INNER_OFFSET);
    memset(self->inner, 0, (size_t)inner->szOsFile);
    const int journals = SQLITE_OPEN_MAIN_JOURNAL | SQLITE_OPEN_SUPER_JOURNAL | SQLITE_OPEN_WAL;
    self->syncs_folder = (flags & SQLITE_OPEN_CREATE) && (flags & journals);

    int error = fs_fault_before(FS_OP_OPEN, path, 0, NULL);
    int rc = code_of(error, SQLITE_CANTOPEN);
    if (error == 0) {
        bool there = access(path, F_OK) == 0;
        rc = inner->xOpen(inner, path, self->inner, flags, out_flags);
        if (rc == SQLITE_OK && !there)
            fs_fault_note_created(path);
    }
    fs_fault_after();
    /* With methods, SQLite closes the file also after a failed open. */
    if (self->inner->pMethods)
        self->base.pMethods = &methods;
    return rc;
}

static int vfs_delete(sqlite3_vfs *vfs, const char *path, int sync_folder)
{
    sqlite3_vfs *inner = inner_of(vfs);
    int rc = SQLITE_IOERR_DELETE;
    if (fs_fault_before(FS_OP_UNLINK, path, 0, NULL) == 0) {
        fs_fault_note_unlinked(path);
        rc = inner->xDelete(inner, path, sync_folder);
        if (rc == SQLITE_OK && sync_folder && fs_fault_installed())
            note_folder_synced(path);
    }
    fs_fault_after();
    return rc;
}

static int vfs_access(sqlite3_vfs *vfs, const char *path, int flags, int *out)
{
    return inner_of(vfs)->xAccess(inner_of(vfs), path, flags, out);
}

static int vfs_full_pathname(sqlite3_vfs *vfs, const char *path, int n, char *out)
{
    return inner_of(vfs)->xFullPathname(inner_of(vfs), path, n, out);
}

static void *vfs_dl_open(sqlite3_vfs *vfs, const char *path)
{
    return inner_of(vfs)->xDlOpen(inner_of(vfs), path);
}

static void vfs_dl_error(sqlite3_vfs *vfs, int n, char *out)
{
    inner_of(vfs)->xDlError(inner_of(vfs), n, out);
}

static void (*vfs_dl_sym(sqlite3_vfs *vfs, void *library, const char *name))(void)
{
    return inner_of(vfs)->xDlSym(inner_of(vfs), library, name);
}

static void vfs_dl_close(sqlite3_vfs *vfs, void *library)
{
    inner_of(vfs)->xDlClose(inner_of(vfs), library);
}

static int vfs_randomness(sqlite3_vfs *vfs, int n, char *out)
{
    return inner_of(vfs)->xRandomness(inner_of(vfs), n, out);
}

static int vfs_sleep(sqlite3_vfs *vfs, int us)
{
    return inner_of(vfs)->xSleep(inner_of(vfs), us);
}

static int vfs_current_time(sqlite3_vfs *vfs, double *out)
{
    return inner_of(vfs)->xCurrentTime(inner_of(vfs), out);
}

static int vfs_current_time_int64(sqlite3_vfs *vfs, sqlite3_int64 *out)
{
    return inner_of(vfs)->xCurrentTimeInt64(inner_of(vfs), out);
}

static int vfs_last_error(sqlite3_vfs *vfs, int n, char *out)
{
    return inner_of(vfs)->xGetLastError(inner_of(vfs), n, out);
}

int sqlite_vfs_register(void)
{
    static sqlite3_vfs wrapper = {
        .iVersion = 2,
        .zName = "weir",
        .xOpen = vfs_open,
        .xDelete = vfs_delete,
        .xAccess = vfs_access,
        .xFullPathname = vfs_full_pathname,
        .xDlOpen = vfs_dl_open,
        .xDlError = vfs_dl_error,
        .xDlSym = vfs_dl_sym,
        .xDlClose = vfs_dl_close,
        .xRandomness = vfs_randomness,
        .xSleep = vfs_sleep,
        .xCurrentTime = vfs_current_time,
        .xGetLastError = vfs_last_error,
        .xCurrentTimeInt64 = vfs_current_time_int64,
    };
    if (sqlite3_initialize() != SQLITE_OK)
        return WEIR_UNSUPPORTED;
    /* SQLite's own lock makes the look and the registration one. */
    sqlite3_mutex *mutex = sqlite3_mutex_alloc(SQLITE_MUTEX_STATIC_APP1);
    sqlite3_mutex_enter(mutex);
    int rc = 0;
    if (!sqlite3_vfs_find(wrapper.zName)) {
        sqlite3_vfs *inner = sqlite3_vfs_find("unix");
        if (inner && inner->iVersion >= 2) {
            wrapper.pAppData = inner;
            wrapper.szOsFile = (int)INNER_OFFSET + inner->szOsFile;
            wrapper.mxPathname = inner->mxPathname;
            rc = sqlite3_vfs_register(&wrapper, 0) == SQLITE_OK ? 0 : WEIR_UNSUPPORTED;
        } else {
            rc = WEIR_UNSUPPORTED;
        }
    }
    sqlite3_mutex_leave(mutex);
    return rc;
}
