/* fs_fault_plan_test.c: every item of a plan, and that a misspelt one is refused by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <string.h>

#include "os/fs_fault_plan.h"

static struct fault_plan parsed(const char *text)
{
    struct fault_plan plan;
    struct diag diag;
    if (fault_plan_parse(text, &plan, &diag) != 0)
        fail_msg("%s: %s", text, diag.text);
    return plan;
}

static void every_item(void **state)
{
    (void)state;
    struct fault_plan plan = parsed("seed=42;fail=ENOSPC@3-5;fail=EIO@9+;fail=SHORT@7;"
                                    "ops=write,sync_dir;path=/journal/;powercut=11;powercut-ms=250;"
                                    "count;");
    assert_int_equal(plan.seed, 42);
    assert_int_equal(plan.powercut, 11);
    assert_int_equal(plan.powercut_ms, 250);
    assert_true(plan.count);
    assert_int_equal(plan.n_failures, 3);
    const int expected[] = {0, 0, ENOSPC, ENOSPC, ENOSPC, 0, EIO, 0, EIO, EIO, EIO};
    for (unsigned i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct fault_failure *failure = fault_plan_failure(&plan, i + 1);
        assert_int_equal(failure ? failure->error : 0, expected[i]);
        assert_int_equal(failure && failure->short_write, i + 1 == 7);
    }
    assert_non_null(fault_plan_failure(&plan, UINT64_MAX));
    assert_true(fault_plan_counts(&plan, FS_OP_WRITE, "data/journal/0"));
    assert_true(fault_plan_counts(&plan, FS_OP_SYNC_DIR, "data/journal/0"));
    assert_false(fault_plan_counts(&plan, FS_OP_SYNC, "data/journal/0"));
    assert_false(fault_plan_counts(&plan, FS_OP_WRITE, "data/META"));
    fault_plan_fini(&plan);

    plan = parsed("");
    assert_int_equal(plan.n_failures, 0);
    for (enum fs_op op = FS_OP_OPEN; op <= FS_OP_LIST; op++)
        assert_true(fault_plan_counts(&plan, op, "any"));
    assert_null(fault_plan_failure(&plan, 1));
    fault_plan_fini(&plan);

    plan = parsed("ops=open,read,write,sync,truncate,unlink,rename,mkdir,sync_dir,list");
    assert_int_equal(plan.ops, 1023);
    fault_plan_fini(&plan);
}

static const char nine_failures[] = /* one too many */
    "fail=EIO@1;fail=EIO@1;fail=EIO@1;fail=EIO@1;fail=EIO@1;fail=EIO@1;fail=EIO@1;fail=EIO@1;"
    "fail=EIO@99";

static void misspelt_is_refused(void **state)
{
    (void)state;
    const char *texts[] = {
        "seed",
        "seed=",
        "seed=x",
        "seed=-1",
        "seed=99999999999999999999",
        "fail=EIO",
        "fail=EIO@",
        "fail=EIO@0",
        "fail=@1",
        "fail=EBADF@1",
        "fail=EIO@5-3",
        "fail=EIO@5-",
        "fail=EIO@-3",
        "fail=EIO@+",
        "fail=EIO@1+2",
        "fail=EIO@0+",
        "fail=EIO@0-4",
        "fail=EIO @1",
        "fail=eio@1",
        "ops=",
        "ops=writes",
        "ops=write,",
        "ops=write;ops=x",
        "path=",
        "path",
        "powercut=0",
        "powercut",
        "powercut-ms=0",
        "power=3",
        "count=1",
        "counts",
        "=",
        " ",
        "seed=1,2",
        "seed=1; count",
        nine_failures,
    };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct fault_plan plan;
        struct diag diag = {0};
        assert_int_equal(fault_plan_parse(texts[i], &plan, &diag), WEIR_SYNTAX);
        const char *last = strrchr(texts[i], ';');
        assert_non_null(strstr(diag.text, last ? last + 1 : texts[i]));
        assert_null(fs_fault_install(fs_posix(), texts[i], &diag));
    }
    struct diag diag = {0};
    assert_null(fs_fault_install(fs_posix(), NULL, &diag));
    assert_int_equal(diag.code, WEIR_INVALID);
    assert_false(fs_fault_installed());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_item),
        cmocka_unit_test(misspelt_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
