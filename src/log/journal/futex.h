/* futex.h: sleeping on a 32-bit word. The caller's atomics carry the order; these only sleep. */
#ifndef WEIR_LOG_JOURNAL_FUTEX_H
#define WEIR_LOG_JOURNAL_FUTEX_H

#include <linux/futex.h>
#include <stdatomic.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define FUTEX_FOR_EVER UINT64_MAX

/* Sleeps while *word is `expected`, at most so long. May return early for no reason. */
static inline void futex_wait(atomic_uint *word, unsigned expected, uint64_t timeout_ns)
{
    struct timespec timeout = {.tv_sec = (time_t)(timeout_ns / 1000000000),
                               .tv_nsec = (long)(timeout_ns % 1000000000)};
    syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected,
            timeout_ns == FUTEX_FOR_EVER ? NULL : &timeout, NULL, 0);
}

static inline void futex_wake(atomic_uint *word, int sleepers)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, sleepers, NULL, NULL, 0);
}

#endif
