/* worker.c: see worker.h: the phases of a worker; what happens in a turn is worker_loop.c's. */
#include "load/worker.h"

#include <assert.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "load/worker_loop.h"
#include "os/thread.h"

static uint64_t thread_cpu_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* How long this thread was ready to run but had no CPU; 0 where the kernel does not count it. */
static uint64_t thread_wait_ns(void)
{
    char text[128];
    int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    if (n <= 0)
        return 0;
    text[n] = 0;
    char *second = strchr(text, ' ');
    return second ? strtoull(second, NULL, 10) : 0;
}

static void set_phase(struct worker *worker, enum worker_phase phase)
{
    pthread_mutex_lock(&worker->lock);
    if (worker->phase < phase)
        worker->phase = phase;
    pthread_cond_broadcast(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

static void connect_all(struct worker_loop *loop)
{
    loop->may_connect = true;
    loop->until_ns = PACER_NEVER;
    uint64_t tries = loop->worker->n_connections;
    uint64_t end_ns = loop->now_ns + loop->plan->timeout_ns;
    worker_loop_connect_due(loop);
    for (;;) {
        /* Settled: each is connected, or has failed at least once. */
        uint64_t failed =
            atomic_load_explicit(&loop->worker->counts.errors[LOAD_CONNECT], memory_order_relaxed);
        if (loop->lists[CONNECTION_IDLE].n + failed >= tries || loop->now_ns >= end_ns ||
            loop->stop)
            break;
        worker_loop_turn(loop);
    }

    struct worker *worker = loop->worker;
    pthread_mutex_lock(&worker->lock);
    worker->connected = loop->lists[CONNECTION_IDLE].n;
    worker->connect_errno = loop->connect_errno;
    pthread_mutex_unlock(&worker->lock);
}

/* The rest of an open schedule that was due and found no connection: it waited, and that shows. */
static void count_unsent(struct worker *worker)
{
    uint64_t unsent = 0, intended_ns;
    while (worker->plan->open && pacer_due_ns(&worker->pacer) < worker->end_ns) {
        pacer_take(&worker->pacer, worker->end_ns, &intended_ns);
        histogram_record(worker->latency_ns, worker->end_ns - intended_ns);
        unsent++;
    }
    atomic_store_explicit(&worker->counts.unsent, unsent, memory_order_relaxed);
}

static bool has_connections(const struct worker_loop *loop)
{
    for (unsigned i = 0; i < CONNECTION_DEAD; i++)
        if (loop->lists[i].n > 0)
            return true;
    return false;
}

static void send_all(struct worker_loop *loop, uint64_t start_ns, uint64_t until_ns)
{
    struct worker *worker = loop->worker;
    loop->until_ns = start_ns;
    loop->now_ns = clock_mono_ns();
    while (loop->now_ns < start_ns && !loop->stop)
        worker_loop_turn(loop);

    loop->until_ns = until_ns;
    loop->starved_ns = 0;
    uint64_t cpu_ns = thread_cpu_ns(), wait_ns = thread_wait_ns();
    loop->sending = true;
    worker_loop_send_due(loop);
    while (loop->now_ns < until_ns && !pacer_done(&worker->pacer) && has_connections(loop) &&
           !loop->stop)
        worker_loop_turn(loop);
    /* All are sent; the answers still under way belong to the window. */
    while (pacer_done(&worker->pacer) && loop->now_ns < until_ns &&
           loop->lists[CONNECTION_BUSY].n > 0 && !loop->stop)
        worker_loop_turn(loop);
    loop->sending = false;
    /* A schedule that ends with the time fills it, even when the last answer came early. */
    bool filled = pacer_done(&worker->pacer) && worker->pacer.timed && !loop->stop;
    worker->end_ns = filled || loop->now_ns > until_ns ? until_ns : loop->now_ns;
    worker->cpu_ns = thread_cpu_ns() - cpu_ns;
    worker->wait_ns = thread_wait_ns() - wait_ns;
}

static void drain(struct worker_loop *loop)
{
    loop->may_connect = false;
    loop->until_ns = PACER_NEVER;
    count_unsent(loop->worker);
    while (loop->lists[CONNECTION_BUSY].n > 0)
        worker_loop_turn(loop);
    worker_loop_hand_over(loop, 1);
}

static void *run(void *argument)
{
    struct worker *worker = argument;
    struct worker_loop loop;
    prctl(PR_SET_TIMERSLACK, 1); /* the schedule is in microseconds */
    worker_loop_init(&loop, worker);
    connect_all(&loop);
    set_phase(worker, WORKER_READY);

    pthread_mutex_lock(&worker->lock);
    while (worker->phase == WORKER_READY)
        pthread_cond_wait(&worker->changed, &worker->lock);
    bool go = worker->phase == WORKER_RUN;
    uint64_t start_ns = worker->start_ns, until_ns = worker->until_ns;
    pthread_mutex_unlock(&worker->lock);
    if (go) {
        pacer_start(&worker->pacer, start_ns, until_ns);
        send_all(&loop, start_ns, until_ns);
        set_phase(worker, WORKER_DRAIN);
        drain(&loop);
    }
    worker_loop_fini(&loop);
    set_phase(worker, WORKER_END);
    return NULL;
}

/* ---- for the thread that runs the workers */

void worker_init(struct worker *worker, const struct worker_plan *plan, unsigned index,
                 unsigned n_connections)
{
    *worker =
        (struct worker){.plan = plan, .index = index, .n_connections = n_connections, .epoll = -1};
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    worker->latency_ns = histogram_create();
    worker->service_ns = histogram_create();
}

int worker_start(struct worker *worker)
{
    char name[16];
    worker->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (worker->epoll < 0)
        return WEIR_NO_MEMORY;
    snprintf(name, sizeof name, "load%u", worker->index);
    int err = thread_start(&worker->thread, name, 0, run, worker);
    if (err)
        close(worker->epoll);
    return err;
}

void worker_wait_ready(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    while (worker->phase == WORKER_CONNECT)
        pthread_cond_wait(&worker->changed, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
}

void worker_go(struct worker *worker, uint64_t start_ns, uint64_t until_ns)
{
    pthread_mutex_lock(&worker->lock);
    assert(worker->phase == WORKER_READY);
    worker->start_ns = start_ns;
    worker->until_ns = until_ns;
    worker->phase = WORKER_RUN;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

void worker_cancel(struct worker *worker)
{
    set_phase(worker, WORKER_END);
}

bool worker_ended(struct worker *worker)
{
    pthread_mutex_lock(&worker->lock);
    bool ended_now = worker->phase == WORKER_END;
    pthread_mutex_unlock(&worker->lock);
    return ended_now;
}

void worker_join(struct worker *worker)
{
    thread_join(worker->thread);
}

void worker_fini(struct worker *worker)
{
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->changed);
    histogram_destroy(worker->latency_ns);
    histogram_destroy(worker->service_ns);
}
