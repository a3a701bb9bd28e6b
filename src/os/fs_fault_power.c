/* fs_fault_power.c: pages and sizes until they are durable, and the power cut (see
 * fs_fault_power.h; names are in fs_fault_names.c).
 *
 * A file that changes gets a descriptor of its own, which keeps it reachable under any name and its
 * inode number from being used again; it is closed when the last link is gone.
 * Invariants: 1. a page without an entry holds what the last sync made durable (zeros beyond
 * synced_size); 2. an entry's `old` is the page as of that sync, NULL for zeros; 3. a page that a
 * truncation cut is marked: where the truncation survives, the old bytes behind it do not come
 * back, and where it does not, what was written after it is not there either.
 *
 * Where a file was cut several times between two syncs, only the states before the first and after
 * the last are chosen from. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "os/fs_fault_names.h"
#include "os/fs_fault_power.h"

#define PAGE   4096u
#define SECTOR 512u

struct page {
    struct page *next; /* in its bucket */
    uint64_t index;
    unsigned char *old;
    bool lost; /* a sync that should have written it failed */
    bool cut;  /* a truncation took its bytes from cut_from on */
    unsigned cut_from;
};

struct file {
    struct file *next;
    dev_t device;
    ino_t inode;
    int fd;
    uint64_t synced_size;
    bool shrunk;                   /* since the last sync, */
    uint64_t first_high, last_low; /* from this size (the first time), to this (the last time) */
    struct page **buckets;
    size_t n_buckets, n_pages; /* n_buckets is 0 or a power of two */
};

struct power {
    struct file *files;
    struct names *names;
    uint64_t random;
};

/* splitmix64 (Steele, Lea, Flood, 2014) */
static uint64_t random_below(void *context, uint64_t n)
{
    struct power *power = context;
    uint64_t z = (power->random += 0x9e3779b97f4a7c15u);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return (z ^ (z >> 31)) % n;
}

struct power *power_create(uint64_t seed)
{
    struct power *power = mem_zalloc(sizeof *power);
    power->names = names_create();
    power->random = seed;
    return power;
}

static void give_up(const char *path, const char *what)
{
    fprintf(stderr, "fs_fault: %s: %s: %s\n", path, what, strerror(errno));
    abort();
}

static uint64_t size_of(const struct file *file)
{
    struct stat st;
    if (fstat(file->fd, &st) != 0)
        give_up("a file", "its size is not known");
    return (uint64_t)st.st_size;
}

/* The file, known from now on; NULL: there is none. */
static struct file *find(struct power *power, const char *path, int fd)
{
    struct stat st;
    if ((fd >= 0 ? fstat(fd, &st) : stat(path, &st)) != 0 || !S_ISREG(st.st_mode))
        return NULL;
    struct file *file = power->files;
    while (file && (file->device != st.st_dev || file->inode != st.st_ino))
        file = file->next;
    if (file || st.st_nlink == 0) /* without a name nobody will find it after the cut */
        return file;
    char own[64];
    snprintf(own, sizeof own, "/proc/self/fd/%d", fd);
    file = mem_zalloc(sizeof *file);
    file->fd = open(fd >= 0 ? own : path, O_RDWR | O_CLOEXEC);
    if (file->fd < 0)
        give_up(path, "cannot be watched");
    file->device = st.st_dev;
    file->inode = st.st_ino;
    file->synced_size = (uint64_t)st.st_size;
    file->next = power->files;
    power->files = file;
    return file;
}

static void free_page(struct page *page)
{
    mem_free(page->old);
    mem_free(page);
}

/* Closes the files that have lost their last name. */
static void sweep(struct power *power)
{
    for (struct file **at = &power->files; *at;) {
        struct file *file = *at;
        struct stat st;
        if (fstat(file->fd, &st) == 0 && st.st_nlink > 0) {
            at = &file->next;
            continue;
        }
        *at = file->next;
        for (size_t i = 0; i < file->n_buckets; i++)
            while (file->buckets[i]) {
                struct page *page = file->buckets[i];
                file->buckets[i] = page->next;
                free_page(page);
            }
        mem_free(file->buckets);
        close(file->fd);
        mem_free(file);
    }
}

static void grow(struct file *file)
{
    size_t n = file->n_buckets ? file->n_buckets * 4 : 64;
    struct page **buckets = mem_zalloc(n * sizeof(struct page *));
    for (size_t i = 0; i < file->n_buckets; i++)
        while (file->buckets[i]) {
            struct page *page = file->buckets[i];
            file->buckets[i] = page->next;
            page->next = buckets[page->index & (n - 1)];
            buckets[page->index & (n - 1)] = page;
        }
    mem_free(file->buckets);
    file->buckets = buckets;
    file->n_buckets = n;
}

static void read_page(const struct file *file, uint64_t index, unsigned char out[PAGE], size_t n)
{
    size_t done = 0;
    while (done < n) {
        ssize_t got = pread(file->fd, out + done, n - done, (off_t)(index * PAGE + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            give_up("a file", "cannot be read");
        if (got == 0)
            break;
        done += (size_t)got;
    }
    memset(out + done, 0, PAGE - done);
}

/* The page's entry, made (with the bytes of now) when there is none. */
static struct page *remember(struct file *file, uint64_t index)
{
    struct page *page = NULL;
    if (file->n_buckets)
        page = file->buckets[index & (file->n_buckets - 1)];
    while (page && page->index != index)
        page = page->next;
    if (page)
        return page;
    if (file->n_pages == file->n_buckets)
        grow(file);
    page = mem_zalloc(sizeof *page);
    page->index = index;
    if (index * PAGE < file->synced_size) {
        uint64_t n = file->synced_size - index * PAGE;
        page->old = mem_alloc(PAGE);
        read_page(file, index, page->old, n < PAGE ? (size_t)n : PAGE);
    }
    struct page **bucket = &file->buckets[index & (file->n_buckets - 1)];
    page->next = *bucket;
    *bucket = page;
    file->n_pages++;
    return page;
}

void power_will_write(struct power *power, const char *path, int fd, uint64_t offset, size_t n)
{
    struct file *file = n ? find(power, path, fd) : NULL;
    if (!file)
        return;
    for (uint64_t index = offset / PAGE; index <= (offset + n - 1) / PAGE; index++)
        remember(file, index)->lost = false; /* the next sync writes it again */
}

void power_will_truncate(struct power *power, const char *path, int fd, uint64_t size)
{
    struct file *file = find(power, path, fd);
    if (!file)
        return;
    uint64_t now = size_of(file);
    if (size >= now)
        return; /* an extension shows in the size alone */
    if (!file->shrunk)
        file->first_high = now;
    file->shrunk = true;
    file->last_low = size;
    for (uint64_t index = size / PAGE; index * PAGE < file->synced_size; index++)
        remember(file, index);
    for (size_t i = 0; i < file->n_buckets; i++)
        for (struct page *page = file->buckets[i]; page; page = page->next) {
            if (page->index < size / PAGE)
                continue;
            unsigned from = page->index == size / PAGE ? (unsigned)(size % PAGE) : 0;
            if (!page->cut || from < page->cut_from)
                page->cut_from = from;
            page->cut = true;
        }
}

static void zero_cut_part(struct page *page)
{
    if (page->cut && page->old)
        memset(page->old + page->cut_from, 0, PAGE - page->cut_from);
}

void power_synced(struct power *power, const char *path, int fd)
{
    struct file *file = find(power, path, fd);
    if (!file)
        return;
    file->synced_size = size_of(file);
    file->shrunk = false;
    for (size_t i = 0; i < file->n_buckets; i++)
        for (struct page **at = &file->buckets[i]; *at;) {
            struct page *page = *at;
            if (page->lost && page->index * PAGE < file->synced_size) {
                zero_cut_part(page);
                page->cut = false;
                at = &page->next;
                continue;
            }
            *at = page->next;
            free_page(page);
            file->n_pages--;
        }
}

void power_sync_failed(struct power *power, const char *path, int fd)
{
    struct file *file = find(power, path, fd);
    for (size_t i = 0; file && i < file->n_buckets; i++)
        for (struct page *page = file->buckets[i]; page; page = page->next)
            page->lost = true;
}

void power_created(struct power *power, const char *path)
{
    names_created(power->names, path);
}

void power_made_dir(struct power *power, const char *path)
{
    names_made_dir(power->names, path);
}

void power_will_unlink(struct power *power, const char *path)
{
    names_will_unlink(power->names, path);
}

void power_will_rename(struct power *power, const char *from, const char *to)
{
    names_will_rename(power->names, from, to);
}

void power_undo_note(struct power *power)
{
    names_undo_note(power->names);
}

void power_dir_synced(struct power *power, const char *path)
{
    names_dir_synced(power->names, path);
    sweep(power);
}

bool power_hides(const char *folder, const char *name)
{
    return names_hides(folder, name);
}

void power_forget(struct power *power)
{
    names_forget(power->names);
}

static uint64_t choose_size(struct power *power, uint64_t low, uint64_t high)
{
    switch (random_below(power, 3)) {
    case 0:
        return low;
    case 1:
        return high;
    default: {
        uint64_t size = (low + random_below(power, high - low + 1)) / PAGE * PAGE;
        return size < low ? low : size;
    }
    }
}

static void write_page(const struct file *file, uint64_t index, const unsigned char *p, size_t n)
{
    while (n > 0) {
        ssize_t put = pwrite(file->fd, p, n, (off_t)(index * PAGE));
        if (put < 0 && errno == EINTR)
            continue;
        if (put != (ssize_t)n)
            give_up("a file", "cannot be put back");
        break;
    }
}

/* What the disk holds of one page: as it is now, as it was, or a mix by sectors. */
static void cut_page(struct power *power, const struct file *file, struct page *page, uint64_t size,
                     bool before_shrinking, unsigned keep_of_100)
{
    unsigned char now[PAGE], then[PAGE], result[PAGE];
    read_page(file, page->index, now, PAGE);
    bool forced = before_shrinking && page->cut;
    if (!forced)
        zero_cut_part(page);
    if (page->old)
        memcpy(then, page->old, PAGE);
    else
        memset(then, 0, PAGE);

    bool keep = random_below(power, 100) < keep_of_100;
    bool torn = random_below(power, 10) == 0;
    for (unsigned at = 0; at < PAGE; at += SECTOR) {
        bool sector_now = torn ? random_below(power, 2) : keep;
        memcpy(result + at, !forced && sector_now ? now + at : then + at, SECTOR);
    }
    if (memcmp(result, now, PAGE) != 0) {
        uint64_t left = size - page->index * PAGE;
        write_page(file, page->index, result, left < PAGE ? (size_t)left : PAGE);
    }
}

static void cut_file(struct power *power, struct file *file)
{
    uint64_t now = size_of(file), size;
    bool before_shrinking = file->shrunk && random_below(power, 2);
    if (!file->shrunk)
        size = choose_size(power, file->synced_size, now);
    else if (before_shrinking)
        size = choose_size(power, file->synced_size, file->first_high);
    else
        size = choose_size(power, file->last_low, now);

    /* All, none and parts of the pages: with many pages an even coin would never leave them whole.
     */
    static const unsigned shares[] = {0, 10, 50, 90, 100};
    unsigned keep_of_100 = shares[random_below(power, sizeof shares / sizeof shares[0])];
    for (size_t i = 0; i < file->n_buckets; i++)
        for (struct page *page = file->buckets[i]; page; page = page->next)
            if (page->index * PAGE < size)
                cut_page(power, file, page, size, before_shrinking, keep_of_100);
    if (size_of(file) != size && ftruncate(file->fd, (off_t)size) != 0)
        give_up("a file", "cannot be cut");
}

void power_cut(struct power *power)
{
    for (struct file *file = power->files; file; file = file->next)
        if (file->n_pages > 0 || file->shrunk || size_of(file) != file->synced_size)
            cut_file(power, file);
    names_cut(power->names, random_below, power);
}
