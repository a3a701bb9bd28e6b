/* fs_fault_power_test.c: the pages and sizes that a power cut leaves are always a state that a disk
 * may be in, and over many seeds each kind of state really comes: kept, lost, torn. */
#include "os/thread.h"
#include "power_kit.h"

#ifdef __SANITIZE_THREAD__
#define THREAD_RUNS 4 /* each of their processes sleeps a second at its end */
#else
#define THREAD_RUNS 20
#endif

/* Pages written since the sync: kept, lost, or torn; the others as they were. */
static void overwrite_three(uint64_t seed)
{
    (void)seed;
    put_pages(fs, in("f"), "BBB", false);
}

static void check_overwritten(uint64_t seed)
{
    (void)seed;
    uint64_t size = 0;
    const char *pages = pages_of(in("f"), &size);
    assert_int_equal(size, 4 * PAGE);
    assert_int_equal(pages[3], 'A');
    see(strncmp(pages, "BBB", 3) == 0 ? 0 : strncmp(pages, "AAA", 3) == 0 ? 1 : 2);
    for (int i = 0; i < 3; i++) {
        assert_non_null(strchr("AB*", pages[i]));
        see(pages[i] == 'A' ? 3 : pages[i] == 'B' ? 4 : 5);
    }
}

static void unsynced_pages_may_be_lost(void **state)
{
    (void)state;
    cut_often(150, four_durable_pages, overwrite_three, check_overwritten);
    expect_seen(6);
}

static void overwrite_and_sync(uint64_t seed)
{
    (void)seed;
    put_pages(fs, in("f"), "CCCC", false);
    put_pages(fs, in("f"), "BBBBBB", true);
    put_pages(fs, in("f"), " C C", false);
}

static void check_synced(uint64_t seed)
{
    (void)seed;
    uint64_t size = 0;
    const char *pages = pages_of(in("f"), &size);
    assert_int_equal(size, 6 * PAGE);
    assert_true(pages[0] == 'B' && pages[2] == 'B' && pages[4] == 'B' && pages[5] == 'B');
    assert_non_null(strchr("BC*", pages[1])); /* never what was before the sync */
    see(pages[1] == 'B');
}

static void synced_pages_stay(void **state)
{
    (void)state;
    cut_often(60, four_durable_pages, overwrite_and_sync, check_synced);
    expect_seen(2);
}

/* An extension: any page end between, what is covered is zeros or what was written. */
static void short_durable_file(uint64_t seed)
{
    (void)seed;
    child_check(fs_replace_file(fs_posix(), in("f"), "durable", 7) == 0);
}

static void append(uint64_t seed)
{
    (void)seed;
    struct fs_file *file;
    char bytes[5 * PAGE];
    memset(bytes, 'E', sizeof bytes);
    child_check(fs_open(fs, in("f"), FS_WRITE, &file) == 0);
    child_check(fs->pwrite(file, bytes, sizeof bytes, 7) == 0);
}

static void check_appended(uint64_t seed)
{
    (void)seed;
    char *text;
    size_t n;
    assert_int_equal(fs_read_file(fs_posix(), in("f"), 1 << 20, &text, &n), 0);
    assert_true(n == 7 || n == 7 + 5 * PAGE || (n % PAGE == 0 && n >= PAGE && n <= 5 * PAGE));
    assert_memory_equal(text, "durable", 7);
    bool zeros = false;
    for (size_t i = 7; i < n; i++) {
        assert_true(text[i] == 'E' || text[i] == 0);
        zeros |= text[i] == 0;
    }
    see(n == 7 ? 0 : n == 7 + 5 * PAGE ? (zeros ? 1 : 2) : 3);
    mem_free(text);
}

static void unsynced_extension(void **state)
{
    (void)state;
    cut_often(120, short_durable_file, append, check_appended);
    expect_seen(4);
}

/* Cut to two pages, then written again: before or after, never new bytes in the old length or old
 * bytes behind a cut that stayed. */
static void six_durable_pages(uint64_t seed)
{
    (void)seed;
    put_pages(fs_posix(), in("f"), "AAAAAA", true);
}

static void cut_and_write(uint64_t seed)
{
    (void)seed;
    struct fs_file *file;
    child_check(fs_open(fs, in("f"), FS_WRITE, &file) == 0);
    child_check(fs->truncate(file, 2 * PAGE) == 0);
    fs_close(file);
    put_pages(fs, in("f"), "  BB", false);
}

static void check_cut(uint64_t seed)
{
    (void)seed;
    uint64_t size = 0;
    const char *pages = pages_of(in("f"), &size);
    if (size == 6 * PAGE) {
        assert_string_equal(pages, "AAAAAA");
        see(0);
        return;
    }
    assert_true(size >= 2 * PAGE && size <= 4 * PAGE && size % PAGE == 0);
    assert_int_equal(strncmp(pages, "AA", 2), 0);
    for (const char *p = pages + 2; *p; p++) {
        assert_non_null(strchr("B0*", *p));
        see(*p == 'B' ? 1 : 2);
    }
    if (size == 2 * PAGE)
        see(3);
}

static void truncation_and_rewriting(void **state)
{
    (void)state;
    cut_often(120, six_durable_pages, cut_and_write, check_cut);
    expect_seen(4);
}

/* O_TRUNC on open counts as a truncation too. */
static void open_truncating(uint64_t seed)
{
    (void)seed;
    struct fs_file *file;
    child_check(fs_open(fs, in("f"), FS_WRITE | FS_TRUNCATE, &file) == 0);
    fs_close(file);
}

static void check_truncated(uint64_t seed)
{
    (void)seed;
    const char *pages = pages_of(in("f"), NULL);
    see(strcmp(pages, "AAAA") == 0);
    if (strcmp(pages, "AAAA") != 0)
        assert_string_equal(pages, "");
}

static void truncation_on_open(void **state)
{
    (void)state;
    cut_often(40, four_durable_pages, open_truncating, check_truncated);
    expect_seen(2);
}

/* After a failed sync the kernel may call the pages clean: the next sync, though it works, does not
 * bring them to the disk. Written again, they are safe. */
static bool write_again;

static void failed_sync_child(void *context)
{
    uint64_t seed = *(uint64_t *)context;
    char plan[96];
    snprintf(plan, sizeof plan, "seed=%llu;ops=sync;fail=EIO@1;powercut=%d",
             (unsigned long long)seed, 3);
    struct diag diag;
    fs = fs_fault_install(fs_posix(), plan, &diag);
    child_check(fs);
    struct fs_file *file;
    put_pages(fs, in("f"), "BB", false);
    child_check(fs_open(fs, in("f"), FS_WRITE, &file) == 0);
    child_check(fs->datasync(file) == WEIR_IO);
    if (write_again)
        put_pages(fs, in("f"), "BB", false);
    child_check(fs->datasync(file) == 0);
    fs->datasync(file);
    child_check(!"the power is on");
}

static void failed_sync_forgets(void **state)
{
    (void)state;
    ONE_THREAD_ONLY();
    for (unsigned i = 0; i < 60; i++) {
        uint64_t seed = first_seed + i;
        write_again = i % 2;
        folder = scratch_create_fast();
        four_durable_pages(0);
        assert_int_equal(child_run(failed_sync_child, &seed), 137);
        const char *pages = pages_of(in("f"), NULL);
        if (write_again)
            assert_string_equal(pages, "BBAA");
        else
            see(strcmp(pages, "BBAA") == 0);
        scratch_remove(folder);
        free(folder);
    }
    expect_seen(2);
}

/* Threads write, sync and then report through a pipe; the power goes at some moment. What was
 * reported is there. */
#define WRITERS 3
static int reports[2];

static void *write_on(void *argument)
{
    unsigned index = *(unsigned *)argument;
    char name[16];
    snprintf(name, sizeof name, "t%u", index);
    struct fs_file *file;
    child_check(fs_open(fs, in(name), FS_WRITE | FS_CREATE, &file) == 0);
    child_check(fs->sync_dir(fs, folder) == 0);
    for (unsigned n = 1;; n++) {
        child_check(fs->pwrite(file, &n, sizeof n, (uint64_t)(n % 7) * PAGE) == 0);
        if (n % 7 != 6)
            continue;
        child_check(fs->datasync(file) == 0);
        unsigned report[2] = {index, n};
        child_check(write(reports[1], report, sizeof report) == sizeof report);
    }
    return NULL;
}

static void threads_child(void *context)
{
    uint64_t seed = *(uint64_t *)context;
    char plan[96];
    if (seed % 2)
        snprintf(plan, sizeof plan, "seed=%llu;powercut-ms=%u", (unsigned long long)seed,
                 1 + (unsigned)(seed % 20));
    else
        snprintf(plan, sizeof plan, "seed=%llu;powercut=%u", (unsigned long long)seed,
                 7 + (unsigned)(seed % 300));
    struct diag diag;
    fs = fs_fault_install(fs_posix(), plan, &diag);
    child_check(fs);
    pthread_t threads[WRITERS];
    unsigned indexes[WRITERS] = {0, 1, 2};
    for (unsigned i = 0; i < WRITERS; i++)
        child_check(thread_start(&threads[i], "writer", 0, write_on, &indexes[i]) == 0);
    for (unsigned i = 0; i < WRITERS; i++)
        thread_join(threads[i]);
}

static void what_threads_reported_is_there(void **state)
{
    (void)state;
    for (unsigned i = 0; i < THREAD_RUNS; i++) {
        uint64_t seed = first_seed + i;
        folder = scratch_create_fast();
        assert_int_equal(pipe(reports), 0);
        assert_int_equal(fcntl(reports[1], F_SETPIPE_SZ, 1 << 20) > 0, 1);
        assert_int_equal(child_run(threads_child, &seed), 137);
        close(reports[1]);
        unsigned report[2], last[WRITERS] = {0};
        while (read(reports[0], report, sizeof report) == sizeof report)
            last[report[0]] = report[1];
        close(reports[0]);
        for (unsigned w = 0; w < WRITERS; w++) {
            if (!last[w])
                continue;
            see(0);
            char name[16], *text;
            size_t n;
            snprintf(name, sizeof name, "t%u", w);
            assert_int_equal(fs_read_file(fs_posix(), in(name), 1 << 20, &text, &n), 0);
            for (unsigned at = 0; at < 7; at++) {
                unsigned found, least = last[w] - 6 + at;
                assert_true(n >= at * PAGE + sizeof found);
                memcpy(&found, text + at * PAGE, sizeof found);
                if (found != least && found != least + 7)
                    fail_msg("seed %llu: %u where at least %u was reported",
                             (unsigned long long)seed, found, least);
            }
            mem_free(text);
        }
        scratch_remove(folder);
        free(folder);
    }
    expect_seen(1);
}

/* Random changes to one file against a model: for each sector the values that it may hold. */
#define SECTOR  512
#define SECTORS 96
#define VALUES  64

struct model {
    unsigned char values[SECTORS][VALUES]; /* the first is the durable one */
    unsigned n[SECTORS];
    unsigned durable_size, low, high, size; /* in sectors; sizes since the sync lie in low..high */
};

static void allow(struct model *model, unsigned sector, unsigned char value)
{
    if (model->n[sector] < VALUES)
        model->values[sector][model->n[sector]++] = value;
}

/* The same steps in the child (on the file) and in the parent (on the model). */
static void random_steps(uint64_t seed, struct fs_file *file, struct model *model)
{
    struct seeded random = {seed};
    unsigned char now[SECTORS] = {0}, bytes[SECTORS * SECTOR];
    memset(model, 0, sizeof *model);
    for (unsigned i = 0; i < SECTORS; i++)
        model->n[i] = 1;
    unsigned steps = 5 + (unsigned)seeded_below(&random, 40);
    for (unsigned step = 0; step < steps; step++) {
        unsigned what = (unsigned)seeded_below(&random, 10);
        unsigned at = (unsigned)seeded_below(&random, SECTORS);
        unsigned n = 1 + (unsigned)seeded_below(&random, 24);
        if (what < 7) {
            if (at + n > SECTORS)
                n = SECTORS - at;
            memset(bytes, (int)step + 1, n * SECTOR);
            if (file)
                child_check(fs->pwrite(file, bytes, n * SECTOR, at * SECTOR) == 0);
            for (unsigned i = at; i < at + n; i++)
                allow(model, i, now[i] = (unsigned char)(step + 1));
            if (at + n > model->size)
                model->size = at + n;
        } else if (what < 8) {
            if (file)
                child_check(fs->truncate(file, at * SECTOR) == 0);
            for (unsigned i = at; i < SECTORS; i++)
                allow(model, i, now[i] = 0);
            model->size = at;
        } else {
            if (file)
                child_check(fs->datasync(file) == 0);
            for (unsigned i = 0; i < SECTORS; i++) {
                model->values[i][0] = now[i];
                model->n[i] = 1;
            }
            model->durable_size = model->low = model->high = model->size;
        }
        if (model->size < model->low)
            model->low = model->size;
        if (model->size > model->high)
            model->high = model->size;
    }
}

static void random_body(uint64_t seed)
{
    struct fs_file *file;
    struct model model;
    child_check(fs_open(fs, in("m"), FS_WRITE | FS_CREATE, &file) == 0);
    child_check(fs->sync_dir(fs, folder) == 0);
    random_steps(seed, file, &model);
}

static void check_random(uint64_t seed)
{
    struct model model;
    random_steps(seed, NULL, &model);
    char *text;
    size_t n;
    assert_int_equal(fs_read_file(fs_posix(), in("m"), 1 << 20, &text, &n), 0);
    if (n < model.low * SECTOR || n > model.high * SECTOR)
        fail_msg("seed %llu: %zu bytes", (unsigned long long)seed, n);
    for (size_t i = 0; i < n; i++) {
        unsigned sector = (unsigned)(i / SECTOR);
        bool allowed = sector >= model.durable_size && text[i] == 0;
        for (unsigned j = 0; j < model.n[sector]; j++)
            allowed |= model.values[sector][j] == (unsigned char)text[i];
        if (!allowed)
            fail_msg("seed %llu: byte %zu is %d", (unsigned long long)seed, i, text[i]);
    }
    mem_free(text);
}

static void random_changes_against_a_model(void **state)
{
    (void)state;
    cut_often(250, NULL, random_body, check_random);
}

int main(void)
{
    first_seed = seeded_choose() & 0xffffffffffff;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(unsynced_pages_may_be_lost),
        cmocka_unit_test(synced_pages_stay),
        cmocka_unit_test(unsynced_extension),
        cmocka_unit_test(truncation_and_rewriting),
        cmocka_unit_test(truncation_on_open),
        cmocka_unit_test(failed_sync_forgets),
        cmocka_unit_test(what_threads_reported_is_there),
        cmocka_unit_test(random_changes_against_a_model),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
