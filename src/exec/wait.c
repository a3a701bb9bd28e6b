/* wait.c: waiting, on a thread lane (see wait.h): the thread sleeps in the kernel. */
#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <time.h>

#include "base/clock.h"
#include "exec/wait.h"
#include "weir/err.h"

int exec_wait_fd(int fd, short events, int timeout_ms)
{
    uint64_t deadline_ns = 0;
    if (timeout_ms > 0)
        deadline_ns = clock_mono_ns() + (uint64_t)timeout_ms * 1000000;
    struct pollfd poll_fd = {.fd = fd, .events = events};
    int left_ms = timeout_ms;
    for (;;) {
        int ready = poll(&poll_fd, 1, left_ms);
        /* An error or a hang-up counts as ready: the call that follows will say what it is. */
        if (ready > 0)
            return poll_fd.revents & POLLNVAL ? WEIR_IO : 0;
        if (ready < 0 && errno != EINTR)
            return WEIR_IO;
        if (timeout_ms < 0)
            continue;
        uint64_t now_ns = timeout_ms ? clock_mono_ns() : 0;
        if (now_ns >= deadline_ns)
            return WEIR_TIMEOUT;
        left_ms = (int)((deadline_ns - now_ns + 999999) / 1000000);
    }
}

void exec_sleep(uint32_t ms)
{
    uint64_t until_ns = clock_mono_ns() + (uint64_t)ms * 1000000;
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        ;
}
