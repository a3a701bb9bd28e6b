/* fs_fault.c: the file table that fails on purpose (see fs_fault.h). What to fail is in
 * fs_fault_plan.c, what a power cut leaves in fs_fault_power.c.
 *
 * Invariants: 1. the mutex is held from an operation's count to its last note, so that a power cut
 * finds no operation half done; 2. after a power cut it is never released: no other thread touches
 * a file again; 3. what is written is noted before it is done, what is synced after. */
#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "os/fs_fault.h"
#include "os/fs_fault_plan.h"
#include "os/fs_fault_power.h"
#include "os/thread.h"

struct fault {
    /* constant after fs_fault_install */
    struct fs table;
    const struct fs *below;
    struct fault_plan plan;

    pthread_mutex_t mutex;
    /* guarded by mutex */
    uint64_t operations, random;
    struct power *power; /* NULL: no power cut is planned, nothing is noted */
    bool inside;         /* an operation is under way */
    struct broken *broken;
};

/* A failed sync is told once to each open file of the inode, as Linux does (errseq_t): another
 * descriptor's next sync fails too, whatever it writes. */
struct broken {
    struct broken *next;
    dev_t device;
    ino_t inode;
    unsigned failures;
};

struct fault_file { /* fs_file.state */
    struct fs_file *inner;
    char *path;
    dev_t device;
    ino_t inode;
    unsigned told; /* of broken.failures */
};

static _Atomic(struct fault *) installed;

static struct fault *current(void)
{
    /* acquire: with the release in fs_fault_install, the plan is seen whole */
    return atomic_load_explicit(&installed, memory_order_acquire);
}

static void enter(struct fault *fault)
{
    pthread_mutex_lock(&fault->mutex);
    assert(!fault->inside);
    fault->inside = true;
}

static void leave(struct fault *fault)
{
    fault->inside = false;
    pthread_mutex_unlock(&fault->mutex);
}

static uint64_t random_below(struct fault *fault, uint64_t n)
{
    fault->random = fault->random * 6364136223846793005u + 1442695040888963407u;
    return (fault->random >> 33) % n;
}

/* Within the mutex, which stays held. */
static void cut_power(struct fault *fault) __attribute__((noreturn));
static void cut_power(struct fault *fault)
{
    fprintf(stderr, "fs_fault: power cut after %llu operations (seed=%llu)\n",
            (unsigned long long)fault->operations, (unsigned long long)fault->plan.seed);
    power_cut(fault->power);
    _exit(137);
}

/* Counts an operation: 0, or the errno it must fail with; a failing write first does *prefix. */
static int decide(struct fault *fault, enum fs_op op, const char *path, size_t n, size_t *prefix)
{
    *prefix = n;
    if (!fault_plan_counts(&fault->plan, op, path))
        return 0;
    if (fault->operations + 1 == fault->plan.powercut)
        cut_power(fault);
    fault->operations++;
    const struct fault_failure *failure = fault_plan_failure(&fault->plan, fault->operations);
    if (!failure)
        return 0;
    *prefix = 0;
    if (op == FS_OP_WRITE && n > 0 && failure->short_write)
        *prefix = n > 1 ? 1 + (size_t)random_below(fault, n - 1) : 0;
    else if (op == FS_OP_WRITE && n > 0 && failure->error == ENOSPC)
        *prefix = (size_t)random_below(fault, n);
    return failure->error;
}

static int fail(int error)
{
    errno = error;
    return fs_error(error);
}

/* The inode's failures; NULL: none yet, unless asked to begin. */
static struct broken *broken_of(struct fault *fault, const struct fault_file *file, bool begin)
{
    struct broken *broken = fault->broken;
    while (broken && (broken->device != file->device || broken->inode != file->inode))
        broken = broken->next;
    if (!broken && begin) {
        broken = mem_alloc(sizeof *broken);
        *broken = (struct broken){fault->broken, file->device, file->inode, 0};
        fault->broken = broken;
    }
    return broken;
}

/* The table. Every operation: enter, decide, note, do, note, leave. */

static int fault_open(const struct fs *fs, const char *path, int flags, struct fs_file **out)
{
    struct fault *fault = fs->state;
    enter(fault);
    size_t prefix;
    struct fs_file *inner;
    int error = decide(fault, FS_OP_OPEN, path, 0, &prefix), rc;
    if (error) {
        rc = fail(error);
    } else {
        struct stat st;
        bool there = stat(path, &st) == 0;
        bool exclusive = (flags & FS_EXCLUSIVE) != 0;
        if (fault->power && there && (flags & FS_TRUNCATE) && !exclusive)
            power_will_truncate(fault->power, path, -1, 0);
        rc = fault->below->open(fault->below, path, flags, &inner);
        if (fault->power && rc == 0 && !there)
            power_created(fault->power, path);
    }
    if (rc == 0) {
        struct fault_file *state = mem_alloc(sizeof *state);
        struct stat st = {0};
        fstat(inner->fd, &st);
        *state = (struct fault_file){inner, mem_strdup(path), st.st_dev, st.st_ino, 0};
        struct broken *broken = broken_of(fault, state, false);
        state->told = broken ? broken->failures : 0;
        struct fs_file *file = mem_alloc(sizeof *file);
        *file = (struct fs_file){fs, inner->fd, state};
        *out = file;
    }
    leave(fault);
    return rc;
}

static void fault_close(struct fs_file *file)
{
    struct fault_file *state = file->state;
    fs_close(state->inner);
    mem_free(state->path);
    mem_free(state);
    mem_free(file);
}

static int fault_pread(struct fs_file *file, void *p, size_t n, uint64_t offset, size_t *out_n)
{
    struct fault *fault = file->fs->state;
    struct fault_file *state = file->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_READ, state->path, n, &prefix);
    int rc = error ? fail(error) : fault->below->pread(state->inner, p, n, offset, out_n);
    leave(fault);
    return rc;
}

static int fault_pwrite(struct fs_file *file, const void *p, size_t n, uint64_t offset)
{
    struct fault *fault = file->fs->state;
    struct fault_file *state = file->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_WRITE, state->path, n, &prefix), rc = 0;
    if (fault->power)
        power_will_write(fault->power, state->path, file->fd, offset, prefix);
    if (prefix > 0 || !error)
        rc = fault->below->pwrite(state->inner, p, prefix, offset);
    if (rc == 0 && error)
        rc = fail(error);
    leave(fault);
    return rc;
}

static int fault_datasync(struct fs_file *file)
{
    struct fault *fault = file->fs->state;
    struct fault_file *state = file->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_SYNC, state->path, 0, &prefix);
    int rc = error ? fail(error) : fault->below->datasync(state->inner);
    int kept = errno;
    struct broken *broken = broken_of(fault, state, rc != 0);
    if (rc)
        state->told = ++broken->failures;
    if (fault->power && rc)
        power_sync_failed(fault->power, state->path, file->fd);
    else if (fault->power)
        power_synced(fault->power, state->path, file->fd);
    errno = kept;
    if (rc == 0 && broken && state->told != broken->failures) {
        state->told = broken->failures;
        rc = fail(EIO);
    }
    leave(fault);
    return rc;
}

static int fault_truncate(struct fs_file *file, uint64_t size)
{
    struct fault *fault = file->fs->state;
    struct fault_file *state = file->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_TRUNCATE, state->path, 0, &prefix), rc;
    if (error) {
        rc = fail(error);
    } else {
        if (fault->power)
            power_will_truncate(fault->power, state->path, file->fd, size);
        rc = fault->below->truncate(state->inner, size);
    }
    leave(fault);
    return rc;
}

static int fault_size(struct fs_file *file, uint64_t *out)
{
    struct fault_file *state = file->state;
    return state->inner->fs->size(state->inner, out);
}

static int fault_lock(struct fs_file *file)
{
    struct fault_file *state = file->state;
    return state->inner->fs->lock(state->inner);
}

static int fault_unlink(const struct fs *fs, const char *path)
{
    struct fault *fault = fs->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_UNLINK, path, 0, &prefix), rc;
    if (error) {
        rc = fail(error);
    } else {
        if (fault->power)
            power_will_unlink(fault->power, path);
        rc = fault->below->unlink(fault->below, path);
        if (rc && fault->power) {
            error = errno;
            power_undo_note(fault->power);
            errno = error;
        }
    }
    leave(fault);
    return rc;
}

static int fault_rename(const struct fs *fs, const char *from, const char *to)
{
    struct fault *fault = fs->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_RENAME, from, 0, &prefix), rc;
    if (error) {
        rc = fail(error);
    } else {
        if (fault->power)
            power_will_rename(fault->power, from, to);
        rc = fault->below->rename(fault->below, from, to);
        if (rc && fault->power) {
            error = errno;
            power_undo_note(fault->power);
            errno = error;
        }
    }
    leave(fault);
    return rc;
}

static int fault_mkdir(const struct fs *fs, const char *path)
{
    struct fault *fault = fs->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_MKDIR, path, 0, &prefix), rc;
    if (error) {
        rc = fail(error);
    } else {
        struct stat st;
        bool there = stat(path, &st) == 0;
        rc = fault->below->mkdir(fault->below, path);
        if (rc == 0 && !there && fault->power)
            power_made_dir(fault->power, path);
    }
    leave(fault);
    return rc;
}

static int fault_sync_dir(const struct fs *fs, const char *path)
{
    struct fault *fault = fs->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_SYNC_DIR, path, 0, &prefix);
    int rc = error ? fail(error) : fault->below->sync_dir(fault->below, path);
    if (rc == 0 && fault->power)
        power_dir_synced(fault->power, path);
    leave(fault);
    return rc;
}

struct listing {
    const char *folder;
    void (*name)(void *context, const char *name);
    void *context;
};

static void list_visible(void *context, const char *name)
{
    struct listing *listing = context;
    if (!power_hides(listing->folder, name))
        listing->name(listing->context, name);
}

static int fault_list(const struct fs *fs, const char *path,
                      void (*name)(void *context, const char *name), void *context)
{
    struct fault *fault = fs->state;
    enter(fault);
    size_t prefix;
    int error = decide(fault, FS_OP_LIST, path, 0, &prefix);
    struct listing listing = {path, name, context};
    int rc = error ? fail(error) : fault->below->list(fault->below, path, list_visible, &listing);
    leave(fault);
    return rc;
}

static int fault_free_bytes(const struct fs *fs, const char *path, uint64_t *out)
{
    struct fault *fault = fs->state;
    return fault->below->free_bytes(fault->below, path, out);
}

/* Installing. */

static void *cut_later(void *argument)
{
    struct fault *fault = argument;
    uint64_t at_ns = clock_mono_ns() + fault->plan.powercut_ms * 1000000;
    struct timespec at = {(time_t)(at_ns / 1000000000), (long)(at_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
    pthread_mutex_lock(&fault->mutex);
    cut_power(fault);
}

static void at_exit(void)
{
    struct fault *fault = current();
    pthread_mutex_lock(&fault->mutex);
    if (fault->power)
        power_forget(fault->power);
    if (fault->plan.count)
        fprintf(stderr, "fs_fault: %llu operations\n", (unsigned long long)fault->operations);
    pthread_mutex_unlock(&fault->mutex);
}

const struct fs *fs_fault_install(const struct fs *below, const char *plan, struct diag *diag)
{
    if (current() || !plan) {
        diag_set(diag, WEIR_INVALID, "fault plan: %s",
                 plan ? "one is installed already" : "there is none");
        return NULL;
    }
    struct fault *fault = mem_zalloc(sizeof *fault);
    if (fault_plan_parse(plan, &fault->plan, diag) != 0) {
        mem_free(fault);
        return NULL;
    }
    fault->below = below;
    fault->random = fault->plan.seed;
    fault->table = (struct fs){
        .name = "fault",
        .state = fault,
        .open = fault_open,
        .close = fault_close,
        .pread = fault_pread,
        .pwrite = fault_pwrite,
        .datasync = fault_datasync,
        .truncate = fault_truncate,
        .size = fault_size,
        .lock = fault_lock,
        .unlink = fault_unlink,
        .rename = fault_rename,
        .mkdir = fault_mkdir,
        .sync_dir = fault_sync_dir,
        .list = fault_list,
        .free_bytes = fault_free_bytes,
    };
    pthread_mutex_init(&fault->mutex, NULL);
    if (fault->plan.powercut || fault->plan.powercut_ms)
        fault->power = power_create(fault->plan.seed);
    fprintf(stderr, "fs_fault: plan \"%s\", seed=%llu\n", plan,
            (unsigned long long)fault->plan.seed);
    atomic_store_explicit(&installed, fault, memory_order_release);
    atexit(at_exit);
    if (fault->plan.powercut_ms) {
        pthread_t thread;
        int rc = thread_start(&thread, "power-cut", 0, cut_later, fault);
        assert(rc == 0);
        (void)rc;
        pthread_detach(thread);
    }
    return &fault->table;
}

bool fs_fault_installed(void)
{
    return current() != NULL;
}

uint64_t fs_fault_operations(void)
{
    struct fault *fault = current();
    if (!fault)
        return 0;
    pthread_mutex_lock(&fault->mutex);
    uint64_t operations = fault->operations;
    pthread_mutex_unlock(&fault->mutex);
    return operations;
}

/* For code beside the table. */

int fs_fault_before(enum fs_op op, const char *path, size_t n, size_t *short_n)
{
    struct fault *fault = current();
    if (!fault)
        return 0;
    enter(fault);
    size_t prefix;
    int error = decide(fault, op, path, n, &prefix);
    if (error && op == FS_OP_SYNC && fault->power)
        power_sync_failed(fault->power, path, -1);
    if (error && short_n)
        *short_n = prefix;
    return error;
}

void fs_fault_after(void)
{
    struct fault *fault = current();
    if (fault)
        leave(fault);
}

/* The state that notes go to; NULL: none is needed. */
static struct power *noting(void)
{
    struct fault *fault = current();
    if (!fault)
        return NULL;
    assert(fault->inside); /* between fs_fault_before and fs_fault_after */
    return fault->power;
}

void fs_fault_note_write(const char *path, uint64_t offset, size_t n)
{
    struct power *power = noting();
    if (power)
        power_will_write(power, path, -1, offset, n);
}

void fs_fault_note_truncate(const char *path, uint64_t size)
{
    struct power *power = noting();
    if (power)
        power_will_truncate(power, path, -1, size);
}

void fs_fault_note_synced(const char *path)
{
    struct power *power = noting();
    if (power)
        power_synced(power, path, -1);
}

void fs_fault_note_dir_synced(const char *path)
{
    struct power *power = noting();
    if (power)
        power_dir_synced(power, path);
}

void fs_fault_note_created(const char *path)
{
    struct power *power = noting();
    if (power)
        power_created(power, path);
}

void fs_fault_note_unlinked(const char *path)
{
    struct power *power = noting();
    if (power)
        power_will_unlink(power, path);
}
