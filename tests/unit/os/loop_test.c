/* loop_test.c: messages, timers, descriptors and hooks of the epoll loop. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <assert.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "../seeded.h"
#include "base/clock.h"
#include "os/loop.h"

static struct loop *loop; /* of the test that runs */

static int setup(void **state)
{
    (void)state;
    return loop_create(&loop);
}

static int teardown(void **state)
{
    (void)state;
    loop_destroy(loop);
    return 0;
}

/* ---- messages ---- */

#define POSTERS  4
#define MESSAGES 20000

struct numbered {
    struct loop_message message; /* first */
    unsigned poster, number;
};

static unsigned next_number[POSTERS], messages_run, turns;
static struct numbered *numbered;

static void check_order(struct loop_message *message)
{
    struct numbered *it = (struct numbered *)message;
    assert(loop_is_current(loop));
    assert_int_equal(it->number, next_number[it->poster]);
    next_number[it->poster]++;
    memset(it, 0xaa, sizeof *it); /* the loop has no use for it any more */
    if (++messages_run == POSTERS * MESSAGES)
        loop_stop(loop);
}

static void *post_all(void *argument)
{
    unsigned poster = (unsigned)(uintptr_t)argument;
    struct numbered *mine = numbered + (size_t)poster * MESSAGES;
    for (unsigned i = 0; i < MESSAGES;) {
        /* One, then a chain of some, in turn. */
        unsigned n = i % 3 == 0 ? 1 : 1 + i % 7;
        n = n > MESSAGES - i ? MESSAGES - i : n;
        for (unsigned k = 0; k < n; k++) {
            mine[i + k] = (struct numbered){{NULL, check_order}, poster, i + k};
            if (k)
                mine[i + k - 1].message.next = &mine[i + k].message;
        }
        if (n == 1)
            loop_post(loop, &mine[i].message);
        else
            loop_post_list(loop, &mine[i].message, &mine[i + n - 1].message);
        i += n;
    }
    return NULL;
}

static void test_messages_run_once_in_the_order_of_their_poster(void **state)
{
    (void)state;
    pthread_t threads[POSTERS];
    numbered = calloc(POSTERS * MESSAGES, sizeof *numbered);
    messages_run = 0;
    memset(next_number, 0, sizeof next_number);
    for (uintptr_t i = 0; i < POSTERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, post_all, (void *)i), 0);
    loop_run(loop);
    for (unsigned i = 0; i < POSTERS; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(messages_run, POSTERS * MESSAGES);
    free(numbered);
}

static void count_turn(struct loop_hook *hook)
{
    (void)hook;
    turns++;
}

static void count_message(struct loop_message *message)
{
    (void)message;
    messages_run++;
}

static void stop_message(struct loop_message *message)
{
    (void)message;
    loop_stop(loop);
}

/* What is posted before loop_stop is run, all of it in one turn. */
static void test_one_turn_takes_all(void **state)
{
    (void)state;
    static struct loop_message many[1000], stop;
    struct loop_hook hook = {.run = count_turn};
    messages_run = turns = 0;
    loop_hook_add(loop, &hook);
    for (size_t i = 0; i < 1000; i++) {
        many[i] = (struct loop_message){.run = count_message};
        loop_post(loop, &many[i]);
    }
    stop = (struct loop_message){.run = stop_message};
    loop_post(loop, &stop);
    loop_run(loop);
    assert_int_equal(messages_run, 1000);
    assert_int_equal(turns, 2); /* the turn, and the last look when the loop ends */
}

static void test_messages_before_stop_are_run(void **state)
{
    (void)state;
    static struct loop_message message;
    messages_run = 0;
    message = (struct loop_message){.run = count_message};
    loop_post(loop, &message);
    loop_stop(loop);
    loop_run(loop);
    assert_int_equal(messages_run, 1);
}

static unsigned again_left;
static void again(struct loop_message *message)
{
    if (again_left--)
        loop_post(loop, message);
    else
        loop_stop(loop);
}

/* A message posted by the loop to itself waits for the next turn, and is not slept over. */
static void test_a_message_may_post_itself(void **state)
{
    (void)state;
    struct loop_message message = {.run = again};
    struct loop_hook hook = {.run = count_turn};
    again_left = 10;
    turns = 0;
    loop_hook_add(loop, &hook);
    loop_post(loop, &message);
    loop_run(loop);
    assert_true(turns >= 11);
}

static _Atomic unsigned round_trips;
static struct loop_message ping;

static void pong(struct loop_message *message)
{
    (void)message;
    /* release: the poster may use the message again */
    atomic_fetch_add_explicit(&round_trips, 1, memory_order_release);
}

static void *ping_often(void *argument)
{
    (void)argument;
    for (unsigned i = 0; i < 2000; i++) {
        ping.run = pong;
        loop_post(loop, &ping);
        while (atomic_load_explicit(&round_trips, memory_order_acquire) == i)
            ;
    }
    loop_stop(loop);
    return NULL;
}

/* Each ping finds the loop asleep, or just about to be: none may be lost. */
static void test_no_wake_is_lost(void **state)
{
    (void)state;
    pthread_t thread;
    atomic_store(&round_trips, 0);
    pthread_create(&thread, NULL, ping_often, NULL);
    loop_run(loop);
    pthread_join(thread, NULL);
    assert_int_equal(atomic_load(&round_trips), 2000);
}

/* ---- timers ---- */

#define TIMERS 500

struct test_timer {
    struct loop_timer timer; /* first */
    bool armed;
};

static struct test_timer timers[TIMERS];
static uint64_t last_deadline;
static unsigned armed;

static void fire(struct loop_timer *timer)
{
    struct test_timer *it = (struct test_timer *)timer;
    assert_true(it->armed);
    assert_true(clock_mono_ns() >= timer->deadline_ns);
    assert_true(timer->deadline_ns >= last_deadline);
    last_deadline = timer->deadline_ns;
    it->armed = false;
    if (--armed == 0)
        loop_stop(loop);
}

static void test_timers_fire_in_order_and_never_early(void **state)
{
    (void)state;
    struct seeded random = {seeded_choose()};
    uint64_t now = clock_mono_ns();
    memset(timers, 0, sizeof timers);
    armed = 0;
    last_deadline = 0;
    for (unsigned i = 0; i < 5000; i++) {
        struct test_timer *it = &timers[seeded_below(&random, TIMERS)];
        it->timer.fire = fire;
        if (it->armed && seeded_below(&random, 3) == 0) {
            loop_timer_clear(loop, &it->timer);
            loop_timer_clear(loop, &it->timer); /* twice is fine */
            it->armed = false;
            armed--;
        } else {
            loop_timer_set(loop, &it->timer, now + seeded_below(&random, 50000000));
            armed += !it->armed;
            it->armed = true;
        }
    }
    assert_true(armed > TIMERS / 2);
    loop_run(loop);
    for (unsigned i = 0; i < TIMERS; i++)
        assert_true(!timers[i].armed && !timers[i].timer.heap_index);
}

static unsigned fired;
static void fire_again(struct loop_timer *timer)
{
    if (++fired == 5)
        loop_stop(loop);
    else
        loop_timer_set(loop, timer, 0); /* due at once: the next turn, not this one */
}

static void test_a_timer_may_set_itself_again(void **state)
{
    (void)state;
    struct loop_timer timer = {.fire = fire_again};
    struct loop_hook hook = {.run = count_turn};
    fired = turns = 0;
    loop_hook_add(loop, &hook);
    loop_timer_set(loop, &timer, 1);
    loop_run(loop);
    assert_int_equal(fired, 5);
    assert_true(turns >= 5);
}

/* ---- descriptors ---- */

#define PIPES 50

struct pipe_end {
    struct loop_fd io; /* first */
    int other;
};

static struct pipe_end *ends[PIPES];
static unsigned readies;

/* The first that is ready closes and frees all others: none of them may be called. */
static void close_others(struct loop_fd *self, uint32_t events)
{
    assert_true(events & EPOLLIN);
    readies++;
    for (unsigned i = 0; i < PIPES; i++) {
        if (!ends[i] || &ends[i]->io == self)
            continue;
        loop_remove(loop, &ends[i]->io);
        close(ends[i]->io.fd);
        close(ends[i]->other);
        memset(ends[i], 0xaa, sizeof *ends[i]);
        free(ends[i]);
        ends[i] = NULL;
    }
    loop_stop(loop);
}

static void test_a_removed_descriptor_is_not_called(void **state)
{
    (void)state;
    readies = 0;
    for (unsigned i = 0; i < PIPES; i++) {
        int fds[2];
        assert_int_equal(pipe(fds), 0);
        assert_int_equal(write(fds[1], "x", 1), 1);
        ends[i] = calloc(1, sizeof *ends[i]);
        ends[i]->io = (struct loop_fd){fds[0], EPOLLIN, close_others};
        ends[i]->other = fds[1];
        assert_int_equal(loop_add(loop, &ends[i]->io), 0);
    }
    loop_run(loop);
    assert_int_equal(readies, 1);
    for (unsigned i = 0; i < PIPES; i++) {
        if (!ends[i])
            continue;
        loop_remove(loop, &ends[i]->io);
        close(ends[i]->io.fd);
        close(ends[i]->other);
        free(ends[i]);
    }
}

static void once(struct loop_fd *self, uint32_t events)
{
    assert_true(events & EPOLLIN);
    if (++readies == 2)
        loop_modify(loop, self, 0); /* there is still something to read */
}

static void stop_timer(struct loop_timer *timer)
{
    (void)timer;
    loop_stop(loop);
}

static void test_events_can_be_turned_off(void **state)
{
    (void)state;
    int fds[2];
    struct loop_timer timer = {.fire = stop_timer};
    assert_int_equal(pipe(fds), 0);
    assert_int_equal(write(fds[1], "x", 1), 1);
    struct loop_fd io = {fds[0], EPOLLIN, once};
    readies = 0;
    assert_int_equal(loop_add(loop, &io), 0);
    loop_timer_set(loop, &timer, clock_mono_ns() + 20000000);
    loop_run(loop);
    assert_int_equal(readies, 2);
    loop_remove(loop, &io);
    close(fds[0]);
    close(fds[1]);
    struct loop_fd closed = {fds[0], EPOLLIN, once};
    assert_int_not_equal(loop_add(loop, &closed), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_messages_run_once_in_the_order_of_their_poster),
        TEST(test_one_turn_takes_all),
        TEST(test_messages_before_stop_are_run),
        TEST(test_a_message_may_post_itself),
        TEST(test_no_wake_is_lost),
        TEST(test_timers_fire_in_order_and_never_early),
        TEST(test_a_timer_may_set_itself_again),
        TEST(test_a_removed_descriptor_is_not_called),
        TEST(test_events_can_be_turned_off),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
