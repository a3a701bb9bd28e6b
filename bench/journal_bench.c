/* journal_bench.c: the journal against the disk beneath it, in one run.
 *
 *     journal_bench [--dir DIR] [--seconds S] [--record BYTES]
 *
 * For each number of producers and window (bodies that a producer has under way at a time): appends
 * a second, groups a second, records in a group, latency from append to durable; and the floor: a
 * raw pwrite + fdatasync of the same size, in a file written through, as often as the disk does it.
 * Prints a JSON line each, then a table of ratios. The lone producer's latency is compared with the
 * floor plus a thread's wake, measured too. */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <inttypes.h>
#include <linux/futex.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/histogram.h"
#include "base/mem.h"
#include "log/log.h"
#include "os/thread.h"

struct producer {
    pthread_t thread;
    sem_t window;
    struct histogram *latency_ns; /* written by the log's thread */
    struct bench *bench;
};

struct item { /* one body and what it needs, in one allocation */
    struct body body;
    struct record record;
    struct producer *producer;
    uint64_t sent_ns;
    char id[24];
    char doc[];
};

struct bench {
    struct log *log;
    size_t record_bytes;
    atomic_bool stop;
    _Atomic uint64_t next_id, settled, failed;
};

static void durable(void *context, struct body *bodies)
{
    struct bench *bench = context;
    uint64_t now = clock_mono_ns(), n = 0;
    while (bodies) {
        struct item *item = bodies->owner;
        bodies = bodies->next;
        if (item->body.status)
            atomic_fetch_add(&bench->failed, 1);
        histogram_record(item->producer->latency_ns, now - item->sent_ns);
        sem_post(&item->producer->window);
        mem_free(item);
        n++;
    }
    atomic_fetch_add(&bench->settled, n);
}

static void report(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "journal: %s\n", text);
}

static void *produce(void *argument)
{
    struct producer *producer = argument;
    struct bench *bench = producer->bench;
    while (!atomic_load(&bench->stop)) {
        while (sem_wait(&producer->window) != 0)
            ;
        struct item *item = mem_zalloc(sizeof *item + bench->record_bytes);
        int n = snprintf(item->id, sizeof item->id, "%020" PRIu64,
                         atomic_fetch_add(&bench->next_id, 1));
        memset(item->doc, 'x', bench->record_bytes);
        item->record.id = item->record.key = (struct slice){item->id, (size_t)n};
        item->record.doc = (struct slice){item->doc, bench->record_bytes};
        item->record.version = 1;
        item->body.records = &item->record;
        item->body.n = 1;
        item->body.urgent = true;
        item->body.owner = item;
        item->producer = producer;
        item->sent_ns = clock_mono_ns();
        if (log_append(bench->log, &item->body) != 0) {
            mem_free(item);
            sem_post(&producer->window);
            atomic_fetch_add(&bench->failed, 1);
        }
    }
    return NULL;
}

/* Raw write + fdatasync of so many bytes, one after the other, for about `seconds`. */
static double floor_us(const char *dir, size_t bytes, double seconds, double *p99)
{
    size_t size = 64u << 20;
    char *path = mem_printf("%s/floor", dir), *data = mem_zalloc(1 << 20);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    for (size_t at = 0; at < size; at += 1 << 20)
        if (pwrite(fd, data, 1 << 20, (off_t)at) < 0)
            exit(3);
    fsync(fd);
    memset(data, 'x', 1 << 20);
    struct histogram *h = histogram_create();
    uint64_t until = clock_mono_ns() + (uint64_t)(seconds * 1e9);
    for (size_t at = 0; clock_mono_ns() < until; at = at + 2 * bytes < size ? at + bytes : 0) {
        uint64_t start = clock_mono_ns();
        if (pwrite(fd, data, bytes, (off_t)at) < 0 || fdatasync(fd) != 0)
            exit(3);
        histogram_record(h, clock_mono_ns() - start);
    }
    double p50 = (double)histogram_quantile(h, 0.5) / 1e3;
    *p99 = (double)histogram_quantile(h, 0.99) / 1e3;
    histogram_destroy(h);
    close(fd);
    unlink(path);
    mem_free(path);
    mem_free(data);
    return p50;
}

static atomic_uint ball;

static void *pong(void *argument)
{
    (void)argument;
    for (;;) {
        unsigned now;
        while ((now = atomic_load(&ball)) % 2 == 0)
            syscall(SYS_futex, &ball, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
        if (now > 4000)
            return NULL;
        atomic_fetch_add(&ball, 1);
        syscall(SYS_futex, &ball, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
}

/* Half of a futex round trip between two threads. */
static double wake_us(void)
{
    pthread_t thread;
    struct histogram *h = histogram_create();
    thread_start(&thread, "pong", 0, pong, NULL);
    for (;;) {
        uint64_t start = clock_mono_ns();
        unsigned now = atomic_fetch_add(&ball, 1) + 1;
        syscall(SYS_futex, &ball, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
        if (now > 4000)
            break;
        while (atomic_load(&ball) == now)
            syscall(SYS_futex, &ball, FUTEX_WAIT_PRIVATE, now, NULL, NULL, 0);
        histogram_record(h, (clock_mono_ns() - start) / 2);
    }
    thread_join(thread);
    double p50 = (double)histogram_quantile(h, 0.5) / 1e3;
    histogram_destroy(h);
    return p50;
}

struct outcome {
    unsigned producers, window;
    double per_s, groups_per_s, records_per_group, p50_us, p99_us, floor_us, floor_p99_us, flush_us;
};

static struct outcome run(const char *dir, unsigned producers, unsigned window, double seconds,
                          size_t record_bytes)
{
    struct bench bench = {.record_bytes = record_bytes};
    struct log_config config = {
        .fs = fs_posix(),
        .data = dir,
        .partitions = 4,
        .segment_bytes = 64u << 20,
        .max_bytes = UINT64_MAX,
        .received_flush_ms = 5,
        .ring = 1u << 17,
        .events = {.context = &bench, .durable = durable, .report = report},
    };
    struct diag diag;
    if (log_open("journal", &config, &bench.log, &diag) != 0) {
        fprintf(stderr, "journal_bench: %s\n", diag.text);
        exit(3);
    }
    struct producer *all = mem_zalloc(producers * sizeof *all);
    for (unsigned i = 0; i < producers; i++) {
        all[i].bench = &bench;
        all[i].latency_ns = histogram_create();
        sem_init(&all[i].window, 0, window);
        thread_start(&all[i].thread, "producer", 0, produce, &all[i]);
    }
    struct log_stats before, after;
    usleep(300000); /* the first segment is being written through: not what is measured */
    log_stats(bench.log, &before);
    for (unsigned i = 0; i < producers; i++)
        histogram_reset(all[i].latency_ns);
    uint64_t start = clock_mono_ns();
    usleep((useconds_t)(seconds * 1e6));
    log_stats(bench.log, &after);
    double took = (double)(clock_mono_ns() - start) / 1e9;
    atomic_store(&bench.stop, true);
    struct histogram *latency = histogram_create();
    for (unsigned i = 0; i < producers; i++) {
        thread_join(all[i].thread);
    }
    log_flush(bench.log);
    for (unsigned i = 0; i < producers; i++)
        histogram_add(latency, all[i].latency_ns);
    struct outcome out = {.producers = producers, .window = window};
    uint64_t records = after.appended_records - before.appended_records;
    uint64_t groups = after.groups - before.groups;
    uint64_t bytes = after.appended_bytes - before.appended_bytes;
    out.per_s = (double)records / took;
    out.groups_per_s = (double)groups / took;
    out.records_per_group = groups ? (double)records / (double)groups : 0;
    out.p50_us = (double)histogram_quantile(latency, 0.5) / 1e3;
    out.p99_us = (double)histogram_quantile(latency, 0.99) / 1e3;
    out.flush_us = (double)histogram_quantile(after.flush_ns, 0.5) / 1e3;
    if (atomic_load(&bench.failed))
        fprintf(stderr, "journal_bench: %" PRIu64 " appends failed\n", atomic_load(&bench.failed));
    log_close(bench.log);
    out.floor_us = floor_us(dir, groups ? bytes / groups : 512, seconds / 2, &out.floor_p99_us);
    for (unsigned i = 0; i < producers; i++) {
        histogram_destroy(all[i].latency_ns);
        sem_destroy(&all[i].window);
    }
    histogram_destroy(latency);
    mem_free(all);
    return out;
}

int main(int argc, char **argv)
{
    const char *base = "/tmp";
    double seconds = 2;
    size_t record_bytes = 170;
    static const struct option options[] = {{"dir", required_argument, NULL, 'd'},
                                            {"seconds", required_argument, NULL, 's'},
                                            {"record", required_argument, NULL, 'r'},
                                            {0}};
    for (int c; (c = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (c == 'd')
            base = optarg;
        else if (c == 's')
            seconds = atof(optarg);
        else if (c == 'r')
            record_bytes = (size_t)atol(optarg);
        else
            return 2;
    }
    static const unsigned rounds[][2] = {{1, 1},   {1, 64},   {1, 1000}, {2, 32},
                                         {2, 125}, {2, 1000}, {2, 10000}};
    struct outcome all[sizeof rounds / sizeof *rounds];
    double wake = wake_us();
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        char *dir = mem_printf("%s/weir-bench-XXXXXX", base);
        if (!mkdtemp(dir)) {
            fprintf(stderr, "journal_bench: %s: %s\n", base, strerror(errno));
            return 3;
        }
        struct outcome *o = &all[i];
        *o = run(dir, rounds[i][0], rounds[i][1], seconds, record_bytes);
        printf("{\"bench\":\"journal\",\"producers\":%u,\"window\":%u,\"record_bytes\":%zu,"
               "\"appends_per_s\":%.0f,\"groups_per_s\":%.0f,\"records_per_group\":%.1f,"
               "\"p50_us\":%.1f,\"p99_us\":%.1f,\"flush_p50_us\":%.1f,\"floor_p50_us\":%.1f,"
               "\"floor_p99_us\":%.1f,\"wake_us\":%.1f}\n",
               o->producers, o->window, record_bytes, o->per_s, o->groups_per_s,
               o->records_per_group, o->p50_us, o->p99_us, o->flush_us, o->floor_us,
               o->floor_p99_us, wake);
        fflush(stdout);
        char *command = mem_printf("rm -rf '%s'", dir);
        if (system(command) != 0)
            fprintf(stderr, "journal_bench: %s is left\n", dir);
        mem_free(command);
        mem_free(dir);
    }
    printf("\n%9s %7s %10s %9s %9s %9s %9s | %s\n", "producers", "window", "appends/s", "groups/s",
           "a group", "p50 us", "p99 us",
           "groups/s of the raw disk's; lone p50 of write+sync+wake");
    for (size_t i = 0; i < sizeof rounds / sizeof *rounds; i++) {
        struct outcome *o = &all[i];
        printf("%9u %7u %10.0f %9.0f %9.1f %9.1f %9.1f | %.2f", o->producers, o->window, o->per_s,
               o->groups_per_s, o->records_per_group, o->p50_us, o->p99_us,
               o->groups_per_s * o->floor_us / 1e6);
        if (o->producers * o->window == 1)
            printf("   %.2f (%.1f of %.1f + %.1f)", o->p50_us / (o->floor_us + wake), o->p50_us,
                   o->floor_us, wake);
        printf("\n");
    }
    return 0;
}
