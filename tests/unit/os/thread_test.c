/* thread_test.c: name, stack and signals of a started thread; no thread to be had is an error. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <signal.h>
#include <string.h>

#include "os/thread.h"
#include "weir/err.h"

struct seen {
    char name[32];
    size_t stack_bytes;
    int blocked;
    void *argument;
};

static void *look(void *argument)
{
    struct seen *seen = argument;
    pthread_getname_np(pthread_self(), seen->name, sizeof seen->name);
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstacksize(&attributes, &seen->stack_bytes);
    pthread_attr_destroy(&attributes);
    sigset_t set;
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    seen->blocked = sigismember(&set, SIGTERM) && sigismember(&set, SIGHUP) &&
                    sigismember(&set, SIGALRM) && sigismember(&set, SIGUSR1);
    return NULL;
}

static struct seen started_as(const char *name, size_t stack_bytes)
{
    struct seen seen = {0};
    pthread_t thread;
    assert_int_equal(thread_start(&thread, name, stack_bytes, look, &seen), 0);
    thread_join(thread);
    return seen;
}

static void name_stack_and_signals(void **state)
{
    (void)state;
    struct seen seen = started_as("lane-main", 0);
    assert_string_equal(seen.name, "lane-main");
    assert_in_range(seen.stack_bytes, 512u << 10, 1u << 20);
    assert_true(seen.blocked);
    sigset_t set; /* the starter's own mask is as it was */
    pthread_sigmask(SIG_SETMASK, NULL, &set);
    assert_false(sigismember(&set, SIGTERM));

    assert_string_equal(started_as("exactly15bytes!", 0).name, "exactly15bytes!");
    assert_string_equal(started_as("more than fifteen bytes", 0).name, "more than fifte");
    assert_string_equal(started_as("fourteen bytes\xc3\xa9", 0).name, "fourteen bytes");
    assert_string_equal(
        started_as("\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9", 0).name,
        "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9");
    assert_true(started_as("large", 2u << 20).stack_bytes >= 2u << 20);
    assert_true(started_as("tiny", 1).stack_bytes >= (size_t)PTHREAD_STACK_MIN);
    assert_true(started_as("", 100001).stack_bytes >= 100001);
}

static void no_thread_is_an_error(void **state)
{
    (void)state;
    pthread_t thread;
    assert_int_equal(thread_start(&thread, "endless", (size_t)1 << 60, look, NULL), WEIR_NO_MEMORY);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(name_stack_and_signals),
        cmocka_unit_test(no_thread_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
