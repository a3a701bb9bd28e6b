/* fs_fault_names_test.c: the names that a power cut leaves: changes that no sync of their directory
 * followed are undone from the newest back, and what was taken away is there again. */
#include <signal.h>

#include "power_kit.h"

static void durable_names(uint64_t seed)
{
    (void)seed;
    put_pages(fs_posix(), in("old"), "O", true);
    put_pages(fs_posix(), in("target"), "T", true);
}

static void change_names(uint64_t seed)
{
    (void)seed;
    put_pages(fs, in("new"), "N", true);         /* 1: its data is synced, not its name */
    child_check(fs->unlink(fs, in("old")) == 0); /* 2 */
    child_check(fs->rename(fs, in("new"), in("target")) == 0); /* 3 */
    put_pages(fs, in("old"), "M", true);                       /* 4 */
}

/* Which of the states between the changes this is: 0 (none) to 4 (all); 99: no such. */
static unsigned names_state(void)
{
    static const char *const states[5][3] = {/* old, new, target */
                                             {"O", "gone", "T"},
                                             {"O", "N", "T"},
                                             {"gone", "N", "T"},
                                             {"gone", "gone", "N"},
                                             {"M", "gone", "N"}};
    for (unsigned i = 0; i < 5; i++)
        if (strcmp(pages_of(in("old"), NULL), states[i][0]) == 0 &&
            strcmp(pages_of(in("new"), NULL), states[i][1]) == 0 &&
            strcmp(pages_of(in("target"), NULL), states[i][2]) == 0)
            return i;
    return 99;
}

static void check_names(uint64_t seed)
{
    (void)seed;
    unsigned at = names_state();
    assert_in_range(at, 0, 4);
    see(at);
}

static void unsynced_names_go_from_the_newest(void **state)
{
    (void)state;
    cut_often(100, durable_names, change_names, check_names);
    expect_seen(5);
}

static void count_all(void *context, const char *name)
{
    (void)name;
    ++*(unsigned *)context;
}

static unsigned entries(const char *path)
{
    DIR *dir = opendir(path);
    unsigned n = 0;
    while (readdir(dir))
        n++;
    closedir(dir);
    return n - 2;
}

static void change_names_and_sync(uint64_t seed)
{
    change_names(seed);
    child_check(entries(folder) == 4); /* old, target, and a link for each that was taken away */
    child_check(fs->sync_dir(fs, in("..")) == 0); /* another folder's sync does nothing */
    child_check(entries(folder) == 4);
    child_check(fs->sync_dir(fs, folder) == 0);
    child_check(entries(folder) == 2);
}

static void check_all_names(uint64_t seed)
{
    (void)seed;
    assert_int_equal(names_state(), 4);
}

static void synced_names_stay(void **state)
{
    (void)state;
    cut_often(20, durable_names, change_names_and_sync, check_all_names);
}

/* The links are not shown, and go at a normal exit. */
static void list_child(void *context)
{
    (void)context;
    struct diag diag;
    fs = fs_fault_install(fs_posix(), "powercut=100000", &diag);
    child_check(fs);
    change_names(0);
    unsigned n = 0;
    child_check(fs->list(fs, folder, count_all, &n) == 0);
    child_check(n == 2);
    child_check(entries(folder) == 4);
    exit(10);
}

static void kill_child(void *context)
{
    (void)context;
    struct diag diag;
    fs = fs_fault_install(fs_posix(), "powercut=100000", &diag);
    change_names(0);
    kill(getpid(), SIGKILL);
}

static void list_only_child(void *context)
{
    (void)context;
    struct diag diag;
    fs = fs_fault_install(fs_posix(), "count", &diag);
    unsigned n = 0;
    child_check(fs->list(fs, folder, count_all, &n) == 0);
    child_check(n == 2);
    exit(10);
}

static void links_are_hidden_and_cleaned(void **state)
{
    (void)state;
    folder = scratch_create_fast();
    durable_names(0);
    assert_int_equal(child_run(list_child, NULL), 10);
    assert_int_equal(entries(folder), 2);
    scratch_remove(folder);
    free(folder);
    /* those of a process that was killed go when the next one lists the folder */
    folder = scratch_create_fast();
    durable_names(0);
    assert_int_equal(child_run(kill_child, NULL), 1000 + SIGKILL);
    assert_int_equal(entries(folder), 4);
    assert_int_equal(child_run(list_only_child, NULL), 10);
    assert_int_equal(entries(folder), 2);
    scratch_remove(folder);
    free(folder);
}

/* A folder whose own entry is not durable goes with all that is in it. */
static void fill_new_folder(uint64_t seed)
{
    child_check(fs->mkdir(fs, in("d")) == 0);
    child_check(fs->mkdir(fs, in("d")) == 0); /* that it is there already is no change */
    if (seed % 3 == 0)
        child_check(fs->sync_dir(fs, folder) == 0);
    put_pages(fs, in("d/a"), "A", true);
    if (seed % 3)
        child_check(fs->sync_dir(fs, in("d")) == 0);
}

static void check_folder(uint64_t seed)
{
    struct stat st;
    bool there = stat(in("d"), &st) == 0;
    const char *a = pages_of(in("d/a"), NULL);
    if (seed % 3 == 0) {
        assert_true(there);
        see(strcmp(a, "A") == 0 ? 0 : 1);
    } else {
        see(there ? 2 : 3);
        assert_string_equal(a, there ? "A" : "gone");
    }
}

static void new_folders(void **state)
{
    (void)state;
    cut_often(60, NULL, fill_new_folder, check_folder);
    expect_seen(4);
}

/* Unlinked without a sync of the folder: gone, or back with what its pages may be. */
static void write_and_unlink(uint64_t seed)
{
    (void)seed;
    put_pages(fs, in("f"), "BB", false);
    child_check(fs->unlink(fs, in("f")) == 0);
}

static void check_unlinked(uint64_t seed)
{
    (void)seed;
    const char *pages = pages_of(in("f"), NULL);
    if (strcmp(pages, "gone") == 0) {
        see(0);
        return;
    }
    assert_int_equal(strlen(pages), 4);
    assert_int_equal(strncmp(pages + 2, "AA", 2), 0);
    see(pages[0] == 'A' ? 1 : 2);
}

static void unlinked_files_come_back_as_they_may_be(void **state)
{
    (void)state;
    cut_often(80, four_durable_pages, write_and_unlink, check_unlinked);
    expect_seen(3);
}

/* Replacing is atomic at every point, and durable when it returns. */
static unsigned cut_at;

static void replace_child(void *context)
{
    uint64_t seed = *(uint64_t *)context;
    char plan[96];
    snprintf(plan, sizeof plan, "seed=%llu;powercut=%u", (unsigned long long)seed, cut_at);
    struct diag diag;
    fs = fs_fault_install(fs_posix(), plan, &diag);
    child_check(fs);
    char text[3 * PAGE];
    memset(text, 'N', sizeof text);
    child_check(fs_replace_file(fs, in("f"), text, sizeof text) == 0);
    fs->list(fs, folder, ignore_name, NULL);
    _exit(10);
}

static void replacing_is_atomic_and_durable(void **state)
{
    (void)state;
    ONE_THREAD_ONLY();
    for (cut_at = 1; cut_at <= 6;
         cut_at++) /* open, write, sync, rename, sync_dir; list: after all */
        for (unsigned i = 0; i < 15; i++) {
            uint64_t seed = first_seed + i;
            folder = scratch_create_fast();
            four_durable_pages(0);
            assert_int_equal(child_run(replace_child, &seed), 137);
            const char *pages = pages_of(in("f"), NULL);
            if (strcmp(pages, "NNN") == 0)
                see(cut_at <= 5 ? 0 : 1);
            else
                see(2);
            if (strcmp(pages, "NNN") != 0)
                assert_string_equal(pages, "AAAA");
            assert_true(cut_at < 6 || strcmp(pages, "NNN") == 0);
            scratch_remove(folder);
            free(folder);
        }
    expect_seen(3);
}

int main(void)
{
    first_seed = seeded_choose() & 0xffffffffffff;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unsynced_names_go_from_the_newest),
        cmocka_unit_test(synced_names_stay),
        cmocka_unit_test(links_are_hidden_and_cleaned),
        cmocka_unit_test(new_folders),
        cmocka_unit_test(unlinked_files_come_back_as_they_may_be),
        cmocka_unit_test(replacing_is_atomic_and_durable),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
