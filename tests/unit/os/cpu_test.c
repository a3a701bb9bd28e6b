/* cpu_test.c: the CPU count is the least of its three, and a quota is found in every shape in which
 * kernels and containers show it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <sched.h>
#include <string.h>

#include "../scratch.h"
#include "os/cpu.h"
#include "os/fs.h"

static char *root;

static void put(const char *path, const char *text)
{
    char whole[4096];
    snprintf(whole, sizeof whole, "%s%s", root, path);
    char *slash = strrchr(whole, '/');
    *slash = 0;
    assert_int_equal(fs_mkdirs(fs_posix(), whole), 0);
    *slash = '/';
    FILE *file = fopen(whole, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static double quota(void)
{
    double found = cpu_quota(root);
    scratch_remove(root);
    assert_int_equal(mkdir(root, 0700), 0);
    return found;
}

#define V2_MOUNT "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n"

static void version_2(void **state)
{
    (void)state;
    assert_true(quota() == 0); /* nothing there at all */

    put("/proc/self/cgroup", "0::/user.slice/weir.service\n");
    put("/proc/self/mountinfo", "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n" V2_MOUNT);
    put("/sys/fs/cgroup/user.slice/weir.service/cpu.max", "150000 100000\n");
    assert_true(quota() == 1.5);

    /* the tighter one may be above, or below */
    put("/proc/self/cgroup", "0::/a/b/c\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/a/b/c/cpu.max", "max 100000\n");
    put("/sys/fs/cgroup/a/b/cpu.max", "400000 100000\n");
    put("/sys/fs/cgroup/a/cpu.max", "50000 100000\n");
    assert_true(quota() == 0.5);

    put("/proc/self/cgroup", "0::/a\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/a/cpu.max", "max 100000\n");
    assert_true(quota() == 0);

    /* a container with a namespace of its own: the group is the root of what it sees */
    put("/proc/self/cgroup", "0::/\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/cpu.max", "200000 100000\n");
    assert_true(quota() == 2);

    /* the mount shows a part of the tree; a group outside of it; and beside it */
    put("/proc/self/cgroup", "0::/docker/abc/inner\n");
    put("/proc/self/mountinfo",
        "29 23 0:26 /docker/abc /cg\\040roup ro shared:4 master:1 - cgroup2 cgroup2 rw\n");
    put("/cg roup/inner/cpu.max", "300000 100000\n");
    assert_true(quota() == 3);
    put("/proc/self/cgroup", "0::/../other\n");
    put("/proc/self/mountinfo", V2_MOUNT);
    put("/sys/fs/cgroup/cpu.max", "100000 100000\n");
    assert_true(quota() == 1);
    put("/proc/self/cgroup", "0::/dockerish\n");
    put("/proc/self/mountinfo", "29 23 0:26 /docker /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/ish/cpu.max", "900000 100000\n");
    put("/sys/fs/cgroup/cpu.max", "700000 100000\n");
    assert_true(quota() == 7);
}

#define V1_MOUNT                                                                                   \
    "30 25 0:27 / /sys/fs/cgroup/cpuset rw - cgroup cgroup rw,cpuset\n"                            \
    "31 25 0:28 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n"

static void version_1(void **state)
{
    (void)state;
    put("/proc/self/cgroup", "5:cpuset:/wrong\n4:cpu,cpuacct:/box\n0::/box\n");
    put("/proc/self/mountinfo", V1_MOUNT);
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "250000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    assert_true(quota() == 2.5);

    put("/proc/self/cgroup", "4:cpuacct,cpu:/box\n");
    put("/proc/self/mountinfo", V1_MOUNT);
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "-1\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "100000\n");
    assert_true(quota() == 0);

    /* both versions at once: the controller is in the first */
    put("/proc/self/cgroup", "4:cpu:/box\n0::/box\n");
    put("/proc/self/mountinfo",
        V1_MOUNT "32 25 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_quota_us", "50000\n");
    put("/sys/fs/cgroup/cpu,cpuacct/box/cpu.cfs_period_us", "50000\n");
    put("/sys/fs/cgroup/unified/box/cgroup.procs", "1\n");
    assert_true(quota() == 1);
}

static void nonsense_is_no_quota(void **state)
{
    (void)state;
    const char *texts[] = {"",          "\n",       "max", "0 100000\n", "100000 0\n",
                           "nan nan\n", "-5 100\n", "x y", "100000\n"};
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        put("/proc/self/cgroup", "0::/a\n");
        put("/proc/self/mountinfo", V2_MOUNT);
        put("/sys/fs/cgroup/a/cpu.max", texts[i]);
        assert_true(quota() == 0);
    }
    const char *groups[] = {"", "0", "0:", "0::", ":::::", "0::a", "\n\n", "0::/a"};
    const char *mounts[] = {"",          " - ",           "1 2 3 - cgroup2 x y\n", "a - cgroup2\n",
                            "- - - - -", " - cgroup2  \n"};
    for (size_t i = 0; i < sizeof groups / sizeof groups[0]; i++)
        for (size_t j = 0; j < sizeof mounts / sizeof mounts[0]; j++) {
            put("/proc/self/cgroup", groups[i]);
            put("/proc/self/mountinfo", mounts[j]);
            assert_true(quota() == 0);
        }
}

static void usable_is_the_least(void **state)
{
    (void)state;
    struct cpu_count count = {0};
    cpu_count(&count);
    assert_true(count.online >= 1 && count.affinity >= 1 && count.usable >= 1);
    assert_true(count.usable <= count.online && count.usable <= count.affinity);
    if (count.quota > 0)
        assert_true(count.usable < count.quota + 1);
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    int cpu = 0;
    while (!CPU_ISSET(cpu, &before))
        cpu++;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    cpu_count(&count);
    sched_setaffinity(0, sizeof before, &before);
    assert_int_equal(count.affinity, 1);
    assert_int_equal(count.usable, 1);
}

int main(void)
{
    root = scratch_create();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(version_2),
        cmocka_unit_test(version_1),
        cmocka_unit_test(nonsense_is_no_quota),
        cmocka_unit_test(usable_is_the_least),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    scratch_remove(root);
    free(root);
    return failed;
}
