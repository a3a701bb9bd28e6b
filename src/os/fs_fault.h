/* fs_fault.h: a file system that fails on purpose, for tests (linked into the test programs and
 * into build/weir-fault, never switched on in build/weir).
 *
 * A plan is text, items separated by ';':
 *   seed=N                 seeds every choice (printed on standard error when the plan starts)
 *   fail=EIO|ENOSPC|SHORT@N      the Nth operation (from 1, over all files) fails; SHORT writes a
 *                                prefix and then fails with EIO
 *   fail=...@N+            every operation from the Nth on
 *   fail=...@N-M           operations N to M (space comes back after M)
 *   ops=write,sync,open... counts (and fails) only these kinds; left out: all
 *   path=SUBSTRING         counts only operations on paths that contain it
 *   powercut=N             at the Nth operation the power goes: of every page (4096 bytes) written
 *                          since its file's last successful sync a random subset is put back to
 *                          what it was at that sync, unsynced sizes, creates, renames and unlinks
 * are undone (each directory change at random, in order) and the process ends at once with status
 * 137 powercut-ms=N          the same after N ms count                  fails nothing; on exit
 * prints "fs_fault: N operations" on standard error
 *
 * SQLite takes part through its wrapped VFS (sink/sqlite_vfs.h) with fs_fault_before() and the
 * fs_fault_note_*() hooks. All functions: any thread (one internal mutex). */
#ifndef WEIR_OS_FS_FAULT_H
#define WEIR_OS_FS_FAULT_H

#include "base/diag.h"
#include "os/fs.h"

/* Wraps `below`. One plan per process. NULL and *diag when the plan is malformed. */
const struct fs *fs_fault_install(const struct fs *below, const char *plan, struct diag *diag);

enum fs_op {
    FS_OP_OPEN,
    FS_OP_READ,
    FS_OP_WRITE,
    FS_OP_SYNC,
    FS_OP_TRUNCATE,
    FS_OP_UNLINK,
    FS_OP_RENAME,
    FS_OP_MKDIR,
    FS_OP_SYNC_DIR,
    FS_OP_LIST
};

/* For code that does its own file access beside the table (the SQLite VFS). Before an operation:
 * counts it; 0, or the errno with which it must fail (*short_n then says how many bytes of a write
 * to do first). No plan installed: 0, at once. */
int fs_fault_before(enum fs_op op, const char *path, size_t n, size_t *short_n);
/* Before bytes change, with a descriptor open for reading: keeps what was there, for a power cut.
 */
void fs_fault_note_write(const char *path, int fd, uint64_t offset, size_t n);
void fs_fault_note_truncate(const char *path, int fd, uint64_t size);
void fs_fault_note_synced(const char *path);
void fs_fault_note_created(const char *path); /* a file that did not exist was created */
void fs_fault_note_unlinked(
    const char *path); /* call before unlink; the content is kept by a link */

#endif
