/* fs_fault_names.c: directory changes until they are durable (see fs_fault_names.h).
 *
 * A change belongs to the directories whose entries it alters: one, or two for a rename between
 * directories. It is durable when each of them was synced after it.
 * Invariants: 1. the list is in the order of the changes; 2. what unlink or rename took away has a
 * link (`hidden`) as long as its change is on the list, so that undoing is a rename; 3. within a
 * directory the changes that are undone are its newest: undoing them newest first never meets a
 * name that an older change still needs. */
#include <errno.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fs_fault_names.h"

#define HIDDEN ".weir-fault-" /* then the process and a number */

enum change_kind { CREATED, MADE_DIR, UNLINKED, RENAMED };

struct folder {
    dev_t device;
    ino_t inode;
};

struct change {
    enum change_kind kind;
    char *path, *to; /* to: RENAMED */
    char *hidden;    /* keeps what was unlinked, or renamed over; NULL: nothing was */
    struct folder folders[2];
    bool synced[2]; /* that folder was synced since */
    unsigned n_folders;
};

struct names {
    struct change *changes;
    size_t n, capacity;
    unsigned long next_hidden;
};

struct names *names_create(void)
{
    return mem_zalloc(sizeof(struct names));
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (!slash)
        return mem_strdup(".");
    return slash == path ? mem_strdup("/") : mem_printf("%.*s", (int)(slash - path), path);
}

static struct folder folder_id(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return (struct folder){0, 0};
    return (struct folder){st.st_dev, st.st_ino};
}

static bool same_folder(struct folder a, struct folder b)
{
    return a.device == b.device && a.inode == b.inode;
}

static struct change *add(struct names *names, enum change_kind kind, const char *path,
                          const char *to)
{
    if (names->n == names->capacity) {
        names->capacity = names->capacity ? names->capacity * 2 : 16;
        names->changes = mem_realloc(names->changes, names->capacity * sizeof *names->changes);
    }
    struct change *change = &names->changes[names->n++];
    *change = (struct change){.kind = kind, .path = mem_strdup(path)};
    const char *ends[2] = {path, to};
    for (unsigned i = 0; i < 2 && ends[i]; i++) {
        char *folder = folder_of(ends[i]);
        struct folder id = folder_id(folder);
        mem_free(folder);
        if (i == 0 || !same_folder(id, change->folders[0]))
            change->folders[change->n_folders++] = id;
    }
    if (to)
        change->to = mem_strdup(to);
    return change;
}

/* Keeps a file by a link beside it. */
static char *hide(struct names *names, const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0 || S_ISDIR(st.st_mode))
        return NULL;
    char *folder = folder_of(path);
    char *hidden = mem_printf("%s/" HIDDEN "%ld-%lu", folder, (long)getpid(), names->next_hidden++);
    mem_free(folder);
    if (link(path, hidden) != 0) {
        fprintf(stderr, "fs_fault: %s cannot be kept for a power cut: %s\n", path, strerror(errno));
        abort();
    }
    return hidden;
}

static void drop(struct change *change)
{
    if (change->hidden)
        unlink(change->hidden);
    mem_free(change->path);
    mem_free(change->to);
    mem_free(change->hidden);
}

void names_created(struct names *names, const char *path)
{
    add(names, CREATED, path, NULL);
}

void names_made_dir(struct names *names, const char *path)
{
    add(names, MADE_DIR, path, NULL);
}

void names_will_unlink(struct names *names, const char *path)
{
    char *hidden = hide(names, path);
    add(names, UNLINKED, path, NULL)->hidden = hidden;
}

void names_will_rename(struct names *names, const char *from, const char *to)
{
    char *hidden = hide(names, to);
    add(names, RENAMED, from, to)->hidden = hidden;
}

void names_undo_note(struct names *names)
{
    drop(&names->changes[--names->n]);
}

void names_dir_synced(struct names *names, const char *path)
{
    struct folder id = folder_id(path);
    size_t kept = 0;
    for (size_t i = 0; i < names->n; i++) {
        struct change *change = &names->changes[i];
        bool durable = true;
        for (unsigned j = 0; j < change->n_folders; j++) {
            change->synced[j] |= same_folder(change->folders[j], id);
            durable &= change->synced[j];
        }
        if (durable)
            drop(change);
        else
            names->changes[kept++] = *change;
    }
    names->n = kept;
}

bool names_hides(const char *folder, const char *name)
{
    if (strncmp(name, HIDDEN, strlen(HIDDEN)) != 0)
        return false;
    long pid = strtol(name + strlen(HIDDEN), NULL, 10);
    if (pid > 0 && pid != (long)getpid() && kill((pid_t)pid, 0) != 0 && errno == ESRCH) {
        char *path = mem_printf("%s/%s", folder, name);
        unlink(path);
        mem_free(path);
    }
    return true;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *where)
{
    (void)st;
    (void)flag;
    (void)where;
    return remove(path);
}

/* A change may find nothing to undo: its directory went with a newer change. */
static void undo(const struct change *change)
{
    switch (change->kind) {
    case CREATED:
        unlink(change->path);
        break;
    case MADE_DIR:
        nftw(change->path, remove_one, 16, FTW_DEPTH | FTW_PHYS);
        break;
    case UNLINKED:
        if (change->hidden)
            rename(change->hidden, change->path);
        break;
    case RENAMED:
        rename(change->to, change->path);
        if (change->hidden)
            rename(change->hidden, change->to);
        break;
    }
}

void names_cut(struct names *names, uint64_t (*below)(void *context, uint64_t n), void *context)
{
    /* A rename between directories ties their orders together: then they are one. */
    bool tied = false;
    for (size_t i = 0; i < names->n; i++)
        tied |= names->changes[i].n_folders > 1;

    bool *undone = mem_zalloc(names->n + 1), *decided = mem_zalloc(names->n + 1);
    for (size_t i = 0; i < names->n; i++) {
        if (decided[i])
            continue;
        struct folder id = names->changes[i].folders[0];
        uint64_t total = 0, seen = 0;
        for (size_t j = i; j < names->n; j++)
            total += tied || same_folder(names->changes[j].folders[0], id);
        uint64_t stay = below(context, total + 1);
        for (size_t j = i; j < names->n; j++) {
            if (!tied && !same_folder(names->changes[j].folders[0], id))
                continue;
            decided[j] = true;
            undone[j] = seen++ >= stay;
        }
    }
    for (size_t i = names->n; i-- > 0;)
        if (undone[i])
            undo(&names->changes[i]);
    mem_free(undone);
    mem_free(decided);
    names_forget(names);
}

void names_forget(struct names *names)
{
    for (size_t i = 0; i < names->n; i++)
        drop(&names->changes[i]);
    names->n = 0;
}
