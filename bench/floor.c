/* floor.c: what the machine itself takes for the two things that a durable answer cannot do
 * without: waking threads and making bytes durable.
 *
 *     floor [--dir DIR] [--bytes N] [--seconds S]
 *
 * two_wakes_us: a thread wakes another by futex, as a loop wakes the log's thread, and is woken by
 * that one through an eventfd in its epoll, as the log's thread wakes a loop. write_sync_us: one
 * pwrite of N bytes and fdatasync, one after the other into a file of 64 MiB that was written
 * through before, so that no sync changes metadata. Prints one JSON line; microseconds. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/mem.h"

#define FILE_BYTES (64u << 20)

struct wakes {
    _Atomic uint32_t turn; /* rises; odd: the other thread's */
    atomic_bool stop;
    int event;
};

static void fail(const char *what)
{
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    exit(3);
}

static void *answer(void *argument)
{
    struct wakes *wakes = argument;
    uint32_t seen = 0;
    for (;;) {
        uint32_t now;
        while ((now = atomic_load_explicit(&wakes->turn, memory_order_acquire)) == seen)
            syscall(SYS_futex, &wakes->turn, FUTEX_WAIT_PRIVATE, seen, NULL, NULL, 0);
        if (atomic_load_explicit(&wakes->stop, memory_order_relaxed))
            return NULL;
        seen = now;
        uint64_t one = 1;
        if (write(wakes->event, &one, sizeof one) != sizeof one)
            fail("eventfd");
    }
}

static void wake(struct wakes *wakes)
{
    atomic_fetch_add_explicit(&wakes->turn, 1, memory_order_release);
    syscall(SYS_futex, &wakes->turn, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static void measure_wakes(uint64_t until_ns, struct histogram *ns)
{
    struct wakes wakes = {.event = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)};
    int epoll = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event event = {.events = EPOLLIN};
    pthread_t thread;
    if (wakes.event < 0 || epoll < 0 || epoll_ctl(epoll, EPOLL_CTL_ADD, wakes.event, &event) != 0 ||
        pthread_create(&thread, NULL, answer, &wakes) != 0)
        fail("a thread and its eventfd");
    for (uint64_t now = clock_mono_ns(); now < until_ns;) {
        uint64_t count;
        uint64_t begin = now;
        wake(&wakes);
        while (epoll_wait(epoll, &event, 1, -1) != 1)
            ;
        if (read(wakes.event, &count, sizeof count) != sizeof count)
            fail("eventfd");
        now = clock_mono_ns();
        histogram_record(ns, now - begin);
    }
    atomic_store_explicit(&wakes.stop, true, memory_order_relaxed);
    wake(&wakes);
    pthread_join(thread, NULL);
    close(wakes.event);
    close(epoll);
}

static int written_through(const char *dir)
{
    char *path = mem_printf("%s/floor-XXXXXX", dir);
    int fd = mkstemp(path);
    if (fd < 0)
        fail(path);
    unlink(path);
    mem_free(path);
    size_t step = 1 << 20;
    char *zeros = mem_zalloc(step);
    for (off_t at = 0; at < FILE_BYTES; at += (off_t)step)
        if (pwrite(fd, zeros, step, at) != (ssize_t)step)
            fail("writing the file through");
    if (fsync(fd) != 0)
        fail("fsync");
    mem_free(zeros);
    return fd;
}

static void measure_syncs(const char *dir, size_t bytes, uint64_t seconds_ns, struct histogram *ns)
{
    int fd = written_through(dir);
    char *data = mem_alloc(bytes);
    memset(data, 'w', bytes);
    uint64_t now = clock_mono_ns(), until = now + seconds_ns;
    for (off_t at = 4096; now < until; at += (off_t)bytes) {
        if (at + (off_t)bytes > FILE_BYTES)
            at = 4096;
        uint64_t begin = clock_mono_ns();
        if (pwrite(fd, data, bytes, at) != (ssize_t)bytes || fdatasync(fd) != 0)
            fail("write and fdatasync");
        now = clock_mono_ns();
        histogram_record(ns, now - begin);
    }
    mem_free(data);
    close(fd);
}

static void print(const char *name, const struct histogram *ns)
{
    printf("\"%s\":{\"count\":%llu,\"p50\":%.2f,\"p90\":%.2f,\"p99\":%.2f,\"max\":%.2f}", name,
           (unsigned long long)histogram_count(ns), (double)histogram_quantile(ns, 0.5) / 1e3,
           (double)histogram_quantile(ns, 0.9) / 1e3, (double)histogram_quantile(ns, 0.99) / 1e3,
           (double)histogram_max(ns) / 1e3);
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"dir", required_argument, NULL, 'd'},
                                            {"bytes", required_argument, NULL, 'b'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {NULL, 0, NULL, 0}};
    const char *dir = ".";
    size_t bytes = 512;
    double seconds = 1;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) != -1) {
        if (option == 'd')
            dir = optarg;
        else if (option == 'b')
            bytes = strtoul(optarg, NULL, 10);
        else if (option == 's')
            seconds = strtod(optarg, NULL);
        else
            return 2;
    }
    if (bytes == 0 || bytes > FILE_BYTES / 2 || !(seconds > 0)) {
        fprintf(stderr, "usage: floor [--dir DIR] [--bytes N] [--seconds S]\n");
        return 2;
    }
    struct histogram *wakes = histogram_create(), *syncs = histogram_create();
    uint64_t part_ns = (uint64_t)(seconds * 1e9 / 2);
    measure_wakes(clock_mono_ns() + part_ns, wakes);
    measure_syncs(dir, bytes, part_ns, syncs);
    printf("{\"bytes\":%zu,", bytes);
    print("two_wakes_us", wakes);
    putchar(',');
    print("write_sync_us", syncs);
    puts("}");
    histogram_destroy(wakes);
    histogram_destroy(syncs);
    return 0;
}
