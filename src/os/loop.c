/* loop.c: an epoll loop (see loop.h).
 *
 * A turn: wait for events; take the time; run what is ready, then the messages that had come, then
 * the timers that are due, then the hooks. What is posted meanwhile waits for the next turn, which
 * then does not sleep.
 *
 * Messages come through an intrusive queue of many producers and one consumer (D. Vyukov,
 * "Intrusive MPSC node-based queue"), from which the consumer takes all at once:
 *   tail     the last message posted, or &stub when nothing waits; producers exchange it
 *   stub     its next is the first message that waits
 * A producer that stops between its exchange and its link hides the messages behind it until it
 * goes on; nothing is lost, because it looks for a sleeper only after it linked.
 *
 * Invariants: 1. a message is run only once nobody will write its `next` again: when its successor
 * is linked, or when it was the tail at the exchange that took the chain; 2. the loop sleeps only
 * after it said so (`asleep`) and then found nothing to run, a producer links and then looks at
 * `asleep`: one of the two sees the other; 3. heap[i]->heap_index == i, from 1.
 * Threads: `tail`, `asleep`, `stopping` any; the rest the loop's. */
#include "os/loop.h"

#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "weir/err.h"

#define EVENTS 256 /* taken per wait */

struct loop {
    /* constant */
    int epoll_fd;
    struct loop_fd wake;

    /* the loop's thread */
    uint64_t now_ns;
    struct loop_timer **heap; /* a binary heap by deadline; [0] is not used */
    uint32_t n_timers, heap_capacity;
    struct loop_hook *hooks, **last_hook;
    struct epoll_event events[EVENTS];
    int n_events, event_at;
    struct loop_message *chain, *chain_last; /* taken, not yet run; NULL: none */

    /* atomic */
    _Alignas(128) _Atomic(struct loop_message *) tail;
    struct loop_message stub;
    _Alignas(128) _Atomic bool asleep;
    _Atomic bool stopping, running;
};

static _Thread_local const struct loop *current;

bool loop_is_current(const struct loop *loop)
{
    return current == loop;
}

/* Before loop_run and after it the loop is whoever's holds it. */
static void assert_owner(const struct loop *loop)
{
    assert(current == loop || !atomic_load_explicit(&loop->running, memory_order_relaxed));
    (void)loop;
}

/* ---- messages ---- */

static struct loop_message *next_of(struct loop_message *message)
{
    return __atomic_load_n(&message->next, __ATOMIC_SEQ_CST);
}

static void wake_if_asleep(struct loop *loop)
{
    /* seq_cst, with the link before and the loop's store and look: invariant 2 needs one order. */
    if (!atomic_load_explicit(&loop->asleep, memory_order_seq_cst))
        return;
    if (!atomic_exchange_explicit(&loop->asleep, false, memory_order_seq_cst))
        return;
    uint64_t one = 1;
    ssize_t n = write(loop->wake.fd, &one, sizeof one);
    assert(n == sizeof one || errno == EAGAIN);
    (void)n;
}

void loop_post_list(struct loop *loop, struct loop_message *first, struct loop_message *last)
{
    __atomic_store_n(&last->next, NULL, __ATOMIC_RELAXED);
    /* acq_rel: our messages' content is released; the stub's reset by the loop is acquired. */
    struct loop_message *before = atomic_exchange_explicit(&loop->tail, last, memory_order_acq_rel);
    __atomic_store_n(&before->next, first, __ATOMIC_SEQ_CST);
    wake_if_asleep(loop);
}

void loop_post(struct loop *loop, struct loop_message *message)
{
    loop_post_list(loop, message, message);
}

/* Whether a message could be run right now. */
static bool runnable(struct loop *loop)
{
    if (loop->chain)
        return loop->chain == loop->chain_last || next_of(loop->chain);
    return next_of(&loop->stub) != NULL;
}

static void run_messages(struct loop *loop)
{
    if (!loop->chain) {
        struct loop_message *first = next_of(&loop->stub);
        if (!first)
            return;
        /* The producer that linked `first` is done with the stub, and no other has it until the
         * exchange puts it back as the tail. */
        __atomic_store_n(&loop->stub.next, NULL, __ATOMIC_RELAXED);
        loop->chain = first;
        loop->chain_last = atomic_exchange_explicit(&loop->tail, &loop->stub, memory_order_acq_rel);
    }
    for (;;) {
        struct loop_message *message = loop->chain;
        if (message == loop->chain_last) {
            loop->chain = loop->chain_last = NULL;
            message->run(message);
            return;
        }
        struct loop_message *next = next_of(message);
        if (!next)
            return; /* its producer has not linked it yet: the next turn goes on here */
        loop->chain = next;
        message->run(message);
    }
}

/* ---- timers ---- */

static void heap_put(struct loop *loop, uint32_t i, struct loop_timer *timer)
{
    loop->heap[i] = timer;
    timer->heap_index = i;
}

static void sift_up(struct loop *loop, uint32_t i, struct loop_timer *timer)
{
    for (; i > 1 && loop->heap[i / 2]->deadline_ns > timer->deadline_ns; i /= 2)
        heap_put(loop, i, loop->heap[i / 2]);
    heap_put(loop, i, timer);
}

static void sift_down(struct loop *loop, uint32_t i, struct loop_timer *timer)
{
    for (;;) {
        uint32_t child = 2 * i;
        if (child > loop->n_timers)
            break;
        if (child < loop->n_timers &&
            loop->heap[child + 1]->deadline_ns < loop->heap[child]->deadline_ns)
            child++;
        if (loop->heap[child]->deadline_ns >= timer->deadline_ns)
            break;
        heap_put(loop, i, loop->heap[child]);
        i = child;
    }
    heap_put(loop, i, timer);
}

void loop_timer_set(struct loop *loop, struct loop_timer *timer, uint64_t deadline_ns)
{
    assert_owner(loop);
    uint64_t before = timer->deadline_ns;
    timer->deadline_ns = deadline_ns;
    if (!timer->heap_index) {
        if (loop->n_timers + 1 >= loop->heap_capacity) {
            loop->heap_capacity = loop->heap_capacity ? loop->heap_capacity * 2 : 64;
            loop->heap = mem_realloc(loop->heap, loop->heap_capacity * sizeof(struct loop_timer *));
        }
        sift_up(loop, ++loop->n_timers, timer);
    } else if (deadline_ns < before) {
        sift_up(loop, timer->heap_index, timer);
    } else {
        sift_down(loop, timer->heap_index, timer);
    }
}

void loop_timer_clear(struct loop *loop, struct loop_timer *timer)
{
    assert_owner(loop);
    uint32_t i = timer->heap_index;
    if (!i)
        return;
    timer->heap_index = 0;
    struct loop_timer *last = loop->heap[loop->n_timers--];
    if (last == timer)
        return;
    if (i > 1 && loop->heap[i / 2]->deadline_ns > last->deadline_ns)
        sift_up(loop, i, last);
    else
        sift_down(loop, i, last);
}

static void run_timers(struct loop *loop)
{
    /* A timer that is armed for now in its own fire() waits for the next turn. */
    for (uint32_t left = loop->n_timers; left && loop->n_timers; left--) {
        struct loop_timer *timer = loop->heap[1];
        if (timer->deadline_ns > loop->now_ns)
            return;
        loop_timer_clear(loop, timer);
        timer->fire(timer);
    }
}

/* For epoll_wait: rounded up, so that no timer is early. */
static int sleep_ms(const struct loop *loop)
{
    if (!loop->n_timers)
        return -1;
    uint64_t deadline = loop->heap[1]->deadline_ns, now = clock_mono_ns();
    if (deadline <= now)
        return 0;
    uint64_t ms = (deadline - now + 999999) / 1000000;
    return ms > 3600000 ? 3600000 : (int)ms;
}

/* ---- descriptors ---- */

int loop_add(struct loop *loop, struct loop_fd *fd)
{
    assert_owner(loop);
    struct epoll_event event = {.events = fd->events, .data.ptr = fd};
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, fd->fd, &event) == 0)
        return 0;
    return errno == ENOMEM || errno == ENOSPC ? WEIR_NO_MEMORY : WEIR_IO;
}

void loop_modify(struct loop *loop, struct loop_fd *fd, uint32_t events)
{
    assert_owner(loop);
    if (fd->events == events)
        return;
    fd->events = events;
    struct epoll_event event = {.events = events, .data.ptr = fd};
    int rc = epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, fd->fd, &event);
    assert(rc == 0);
    (void)rc;
}

void loop_remove(struct loop *loop, struct loop_fd *fd)
{
    assert_owner(loop);
    struct epoll_event event = {0};
    int rc = epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, fd->fd, &event);
    assert(rc == 0);
    (void)rc;
    /* What this turn still holds for it must not be delivered: the owner may free it now. */
    for (int i = loop->event_at; i < loop->n_events; i++) {
        if (loop->events[i].data.ptr == fd)
            loop->events[i].data.ptr = NULL;
    }
}

uint64_t loop_now_ns(const struct loop *loop)
{
    return loop->now_ns;
}

void loop_hook_add(struct loop *loop, struct loop_hook *hook)
{
    assert_owner(loop);
    hook->next = NULL;
    *loop->last_hook = hook;
    loop->last_hook = &hook->next;
}

/* ---- the loop ---- */

static void woken(struct loop_fd *self, uint32_t events)
{
    /* Edge-triggered: each write to the eventfd is an edge, so its count need not be read. */
    (void)self;
    (void)events;
}

int loop_create(struct loop **out)
{
    int epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (epoll_fd < 0)
        return WEIR_IO;
    int wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (wake_fd < 0) {
        close(epoll_fd);
        return WEIR_IO;
    }
    struct loop *loop = aligned_alloc(_Alignof(struct loop), sizeof *loop);
    if (!loop) {
        close(wake_fd);
        close(epoll_fd);
        return WEIR_NO_MEMORY;
    }
    *loop = (struct loop){.epoll_fd = epoll_fd};
    loop->wake = (struct loop_fd){wake_fd, EPOLLIN | EPOLLET, woken};
    loop->last_hook = &loop->hooks;
    atomic_init(&loop->tail, &loop->stub);
    loop->now_ns = clock_mono_ns();
    int rc = loop_add(loop, &loop->wake);
    if (rc) {
        loop_destroy(loop);
        return rc;
    }
    *out = loop;
    return 0;
}

void loop_destroy(struct loop *loop)
{
    if (!loop)
        return;
    assert(!atomic_load_explicit(&loop->running, memory_order_acquire));
    close(loop->wake.fd);
    close(loop->epoll_fd);
    mem_free(loop->heap);
    free(loop);
}

void loop_stop(struct loop *loop)
{
    /* Ordered before the look at `asleep`, as a message's link is. */
    atomic_store_explicit(&loop->stopping, true, memory_order_seq_cst);
    wake_if_asleep(loop);
}

static void wait_for_events(struct loop *loop)
{
    int timeout = sleep_ms(loop);
    if (timeout != 0) {
        atomic_store_explicit(&loop->asleep, true, memory_order_seq_cst);
        if (runnable(loop) || atomic_load_explicit(&loop->stopping, memory_order_seq_cst))
            timeout = 0;
    }
    int n = epoll_wait(loop->epoll_fd, loop->events, EVENTS, timeout);
    assert(n >= 0 || errno == EINTR);
    /* seq_cst as its other accesses; a wake that comes too late costs one empty turn. */
    atomic_store_explicit(&loop->asleep, false, memory_order_seq_cst);
    loop->n_events = n > 0 ? n : 0;
    loop->now_ns = clock_mono_ns();
}

static void turn(struct loop *loop)
{
    wait_for_events(loop);
    for (loop->event_at = 0; loop->event_at < loop->n_events;) {
        struct epoll_event *event = &loop->events[loop->event_at++];
        struct loop_fd *fd = event->data.ptr;
        if (fd)
            fd->ready(fd, event->events);
    }
    loop->n_events = loop->event_at = 0;
    run_messages(loop);
    run_timers(loop);
    for (struct loop_hook *hook = loop->hooks; hook; hook = hook->next)
        hook->run(hook);
}

void loop_run(struct loop *loop)
{
    assert(!current && !atomic_load_explicit(&loop->running, memory_order_acquire));
    current = loop;
    atomic_store_explicit(&loop->running, true, memory_order_release);
    while (!atomic_load_explicit(&loop->stopping, memory_order_acquire))
        turn(loop);
    /* What was posted before loop_stop is run. */
    while (runnable(loop))
        run_messages(loop);
    for (struct loop_hook *hook = loop->hooks; hook; hook = hook->next)
        hook->run(hook);
    atomic_store_explicit(&loop->stopping, false, memory_order_relaxed);
    atomic_store_explicit(&loop->running, false, memory_order_release);
    current = NULL;
}
