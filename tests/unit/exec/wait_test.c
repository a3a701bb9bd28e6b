/* wait_test.c: readiness, hang-up, timeout, bad descriptors; signals do not cut a wait short. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/time.h>
#include <unistd.h>

#include "base/clock.h"
#include "exec/wait.h"
#include "weir/err.h"

static void tells_ready_from_timeout(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(exec_wait_fd(ends[0], POLLIN, 0), WEIR_TIMEOUT);
    uint64_t before_ns = clock_mono_ns();
    assert_int_equal(exec_wait_fd(ends[0], POLLIN, 20), WEIR_TIMEOUT);
    assert_true(clock_mono_ns() - before_ns >= 20000000);
    assert_int_equal(exec_wait_fd(ends[1], POLLOUT, -1), 0);
    assert_int_equal(write(ends[1], "x", 1), 1);
    assert_int_equal(exec_wait_fd(ends[0], POLLIN, -1), 0);
    assert_int_equal(exec_wait_fd(ends[0], POLLIN, 0), 0);
    char c;
    assert_int_equal(read(ends[0], &c, 1), 1);
    close(ends[1]); /* hang-up: the read that follows will see the end */
    assert_int_equal(exec_wait_fd(ends[0], POLLIN, -1), 0);
    close(ends[0]);
    assert_int_equal(exec_wait_fd(ends[0], POLLIN, 10), WEIR_IO);
}

static volatile sig_atomic_t alarms;

static void on_alarm(int signal_number)
{
    (void)signal_number;
    alarms++;
}

static void signals_do_not_shorten(void **state)
{
    (void)state;
    struct sigaction action = {.sa_handler = on_alarm}, before;
    sigaction(SIGALRM, &action, &before);
    struct itimerval every = {{0, 3000}, {0, 3000}}, none = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    uint64_t t0 = clock_mono_ns();
    assert_int_equal(exec_wait_fd(ends[0], POLLIN, 30), WEIR_TIMEOUT);
    uint64_t t1 = clock_mono_ns();
    exec_sleep(30);
    uint64_t t2 = clock_mono_ns();
    setitimer(ITIMER_REAL, &none, NULL);
    sigaction(SIGALRM, &before, NULL);
    assert_true(alarms > 0);
    assert_true(t1 - t0 >= 30000000);
    assert_true(t2 - t1 >= 30000000);
    close(ends[0]);
    close(ends[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tells_ready_from_timeout),
        cmocka_unit_test(signals_do_not_shorten),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
