/* sqlite_vfs.h: SQLite's files beneath the fault file system (os/fs_fault.h).
 *
 * A VFS named "weir", not the default one, around SQLite's own unix VFS. Where a fault plan is
 * installed, opens, reads, writes, truncates, syncs and deletes of named files pass it; locks,
 * shared memory, temporary files without a name and everything else go to the unix VFS as they are,
 * and memory-mapped reading is off, because it would go past the plan. A fault shows as SQLite's
 * own code for it (SQLITE_FULL, SQLITE_IOERR_..., SQLITE_CANTOPEN). Where no plan is installed, a
 * file that is opened is the unix VFS's own: the wrapper is not on its way. */
#ifndef WEIR_SINK_SQLITE_VFS_H
#define WEIR_SINK_SQLITE_VFS_H

/* Registers it; again does nothing. After fs_fault_install. Any thread. 0 or WEIR_UNSUPPORTED. */
int sqlite_vfs_register(void);

#endif
