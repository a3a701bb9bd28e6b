/* fs_fault_power.h: what a power cut would leave: remembers, for every file and directory that
 * changed, how it was at its last sync, and can put it back (see fs_fault.h).
 *
 * Not locked: the caller runs one call at a time and does the operation itself in the same hold of
 * its lock. Files are known by device and inode, so names may change under them. `fd` is an open
 * descriptor of the file, or -1: then the path is looked up. */
#ifndef WEIR_OS_FS_FAULT_POWER_H
#define WEIR_OS_FS_FAULT_POWER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct power;

struct power *power_create(uint64_t seed);
void power_will_write(struct power *power, const char *path, int fd, uint64_t offset, size_t n);
void power_will_truncate(struct power *power, const char *path, int fd, uint64_t size);
void power_synced(struct power *power, const char *path, int fd);
void power_sync_failed(struct power *power, const char *path, int fd);
void power_created(struct power *power, const char *path);
void power_made_dir(struct power *power, const char *path);
/* Before the change. power_undo_note takes the newest note back when the change then failed. */
void power_will_unlink(struct power *power, const char *path);
void power_will_rename(struct power *power, const char *from, const char *to);
void power_undo_note(struct power *power);
void power_dir_synced(struct power *power, const char *path);

/* A name of a link that power made; one whose process is gone is also removed. */
bool power_hides(const char *folder, const char *name);

void power_cut(struct power *power);    /* puts the files into a state a power loss may leave */
void power_forget(struct power *power); /* everything counts as durable: removes the links */

#endif
