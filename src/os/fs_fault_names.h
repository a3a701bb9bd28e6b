/* fs_fault_names.h: the names half of a power cut: directory changes that no sync followed yet, in
 * their order, with links that keep what they took away. Part of fs_fault_power; not locked. */
#ifndef WEIR_OS_FS_FAULT_NAMES_H
#define WEIR_OS_FS_FAULT_NAMES_H

#include <stdbool.h>
#include <stdint.h>

struct names;

struct names *names_create(void);
void names_created(struct names *names, const char *path);
void names_made_dir(struct names *names, const char *path);
void names_will_unlink(struct names *names, const char *path);
void names_will_rename(struct names *names, const char *from, const char *to);
void names_undo_note(struct names *names);
void names_dir_synced(struct names *names, const char *path);
bool names_hides(const char *folder, const char *name);
/* Undoes, in each directory, the newest changes back to a point that below(context, n) chooses: a
 * number smaller than n, so many stay. Removes the links. */
void names_cut(struct names *names, uint64_t (*below)(void *context, uint64_t n), void *context);
void names_forget(struct names *names);

#endif
