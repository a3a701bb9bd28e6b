/* lane_threads_test.c: the Nth thread cannot be started, N swept until all can: lane_create fails
 * whole, says so, and leaves nothing behind. This program brings its own thread_start. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "exec/lane.h"
#include "os/thread.h"

static unsigned allowed, started, joined;

int thread_start(pthread_t *out, const char *name, size_t stack_bytes, void *(*run)(void *),
                 void *argument)
{
    (void)name;
    (void)stack_bytes;
    if (started == allowed)
        return WEIR_NO_MEMORY;
    if (pthread_create(out, NULL, run, argument) != 0)
        return WEIR_NO_MEMORY;
    started++;
    return 0;
}

void thread_join(pthread_t thread)
{
    pthread_join(thread, NULL);
    joined++;
}

static void create_fails_whole(void **state)
{
    (void)state;
    struct lane_config config = {"starved", 4, 10, 0};
    for (allowed = 0;; allowed++) {
        started = joined = 0;
        struct lane *lane = NULL;
        struct diag diag = {0};
        int rc = lane_create(&config, &lane, &diag);
        if (rc == 0) {
            assert_int_equal(allowed, 4);
            assert_int_equal(joined, 0);
            assert_int_equal(lane_close(lane, 0), 0);
            assert_int_equal(joined, 4);
            break;
        }
        assert_int_equal(rc, WEIR_NO_MEMORY);
        assert_null(lane);
        assert_int_equal(joined, started);
        assert_non_null(strstr(diag.text, "starved"));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(create_fails_whole)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
