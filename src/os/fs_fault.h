/* fs_fault.h: a file system that fails on purpose, for tests (used by the test programs and by
 * build/weir-fault, never switched on in build/weir).
 *
 * A plan is text, items separated by ';':
 *
 *   seed=N             seeds every choice (printed on standard error when the plan starts)
 *   fail=EIO@N         the Nth operation (from 1, over all files) fails; also ENOSPC, SHORT. A
 *                      failing write writes nothing (EIO), any prefix (ENOSPC), or a prefix that
 *                      is not empty where it can be (SHORT, which then gives EIO)
 *   fail=...@N+        every operation from the Nth on
 *   fail=...@N-M       operations N to M (space comes back after M); up to 8 fail items
 *   ops=write,sync     counts (and fails) only these kinds; left out: all
 *   path=SUBSTRING     counts only operations on paths that contain it
 *   powercut=N         before the Nth operation the power goes, see below
 *   powercut-ms=N      the same after N ms
 *   count              fails nothing; on exit prints "fs_fault: N operations" on standard error
 *
 * A power cut stops every other thread's file operations, puts the files into a state that a disk
 * may be in after a power loss, and ends the process at once with status 137.
 *
 * Pages: of every page (4096 bytes) changed since its file's last successful sync a random subset
 * is put back to what it was at that sync (zeros beyond the size of then); now and then only some
 * sectors (512 bytes) of a page are. After a sync that failed, the pages that it should have
 * written stay unsynced until they are written again, and other open files of the same inode are
 * told at their next sync.
 *
 * Sizes: the size at that sync, or one that the file has had since; an unsynced extension may be
 * cut at any page.
 *
 * Names: creates, renames, unlinks and mkdirs that no sync_dir of their directory followed are
 * undone, in each directory from the newest back to a random point. A datasync of a file does not
 * make its name durable. What unlink or rename took away is kept until then by a link with a
 * hidden name, which list does not show.
 *
 * Files that are there when the plan starts count as durable.
 *
 * SQLite takes part through its wrapped VFS (sink/sqlite_vfs.h) with fs_fault_before(), the notes
 * and fs_fault_after(). All functions: any thread; one internal mutex is held across each
 * operation, so that operations, and a power cut, are one after the other. */
#ifndef WEIR_OS_FS_FAULT_H
#define WEIR_OS_FS_FAULT_H

#include "base/diag.h"
#include "os/fs.h"

/* Wraps `below`. One plan per process, before it starts threads. NULL and *diag when the plan is
 * malformed. */
const struct fs *fs_fault_install(const struct fs *below, const char *plan, struct diag *diag);
bool fs_fault_installed(void);
uint64_t fs_fault_operations(void); /* counted so far */

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

/* For code that does its own file access beside the table (the SQLite VFS). An operation is
 * fs_fault_before, the operation itself with its notes, fs_fault_after (always, also when it must
 * fail). fs_fault_before counts it; 0, or the errno with which it must fail (*short_n then says how
 * many bytes of a write to do first; short_n may be NULL). No plan installed: 0, at once, and all
 * the others do nothing. */
int fs_fault_before(enum fs_op op, const char *path, size_t n, size_t *short_n);
void fs_fault_after(void);
/* Before bytes change: keeps what was there. The first note of a file opens a descriptor of its own
 * and keeps it (a close would drop the process's POSIX locks). */
void fs_fault_note_write(const char *path, uint64_t offset, size_t n);
void fs_fault_note_truncate(const char *path, uint64_t size);
void fs_fault_note_synced(const char *path);
void fs_fault_note_dir_synced(const char *path);
void fs_fault_note_created(const char *path);  /* after a file that did not exist was created */
void fs_fault_note_unlinked(const char *path); /* before it goes */

#endif
