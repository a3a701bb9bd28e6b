/* Segments begin and go: what must be on disk before, whatever a power cut keeps of the rest. */
#include "journal_kit.h"

struct fixture {
    struct kit kit;
    struct hook_fs hook;
    /* headers written; groups written while the header of their segment was not synced */
    atomic_uint headers, headless;
    /* segments renamed; those renamed or made whose name was not synced before anything else */
    atomic_uint renamed, nameless;
    atomic_bool no_cursors; /* cursors cannot be saved; no space */
    atomic_uint cursor_tries;
};

/* A thread syncs what it wrote before it writes elsewhere, so each keeps its own books. */
static int disk(void *context, enum hook_op op, const char *path, uint64_t offset, size_t n,
                size_t *prefix)
{
    static _Thread_local bool header, renamed, made;
    struct fixture *f = context;
    bool segment = strstr(path, ".seg") != NULL;
    bool begins = segment && op == HOOK_WRITE && offset == 0 && n == sizeof(struct segment_header);
    (void)prefix;
    if (renamed && op != HOOK_SYNC_DIR)
        atomic_fetch_add(&f->nameless, 1);
    renamed = segment && op == HOOK_RENAME;
    atomic_fetch_add(&f->renamed, renamed);
    if (segment && op == HOOK_OPEN && access(path, F_OK) != 0)
        made = true;
    else if (op == HOOK_SYNC_DIR)
        made = false;
    if (begins) {
        atomic_fetch_add(&f->headers, 1);
        atomic_fetch_add(&f->nameless, made);
        header = true;
    } else if (op == HOOK_SYNC) {
        header = false;
    } else if (segment && op == HOOK_WRITE && offset >= SEGMENT_DATA) {
        atomic_fetch_add(&f->headless, header);
    }
    if (op == HOOK_WRITE && strstr(path, "/cursors/") && atomic_load(&f->no_cursors)) {
        atomic_fetch_add(&f->cursor_tries, 1);
        return ENOSPC;
    }
    return 0;
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    kit_init(&f->kit);
    hook_fs_init(&f->hook);
    f->hook.before = disk;
    f->hook.context = f;
    f->hook.no_sync = true; /* the order of the calls is what counts */
    f->kit.config.fs = &f->hook.fs;
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    kit_fini(&f->kit);
    free(f);
    return 0;
}

/* Appends n records of 9000 bytes, and settles them all. */
static void pass(struct fixture *f, struct log_reader *reader, uint64_t first, unsigned n)
{
    struct kit_read read = {0};
    kit_fill(&f->kit, first, n, 9000);
    kit_poll(reader, n, &read);
    for (uint32_t partition = 0; partition < 4; partition++)
        log_settle(reader, partition, read.offsets[n - 1]);
    kit_read_fini(&read);
}

static struct log_reader *open_reader(struct kit *kit)
{
    struct log_reader *reader;
    assert_int_equal(log_reader_open(kit->log, "c", &reader, &kit->diag), 0);
    return reader;
}

/* A power cut keeps any of the pages that no sync covered: a group whose header is among the lost
 * would be damage that nobody can open. */
static void a_header_is_synced_before_the_first_group_is_written(void **state)
{
    struct fixture *f = *state;
    kit_open(&f->kit);
    kit_fill(&f->kit, 0, 100, 9000);
    assert_true(atomic_load(&f->headers) >= 3);
    assert_int_equal(atomic_load(&f->headless), 0);
}

/* Files that all have settled are renamed and begun again: a name that is lost takes the segment
 * with it. */
static void a_name_is_synced_before_the_segment_begins(void **state)
{
    struct fixture *f = *state;
    kit_open(&f->kit);
    struct log_reader *reader = open_reader(&f->kit);
    for (unsigned i = 0; atomic_load(&f->renamed) < 3; i++) {
        pass(f, reader, i * 28, 28);
        kit_until(kit_count_segments(&f->kit) <= 4);
    }
    log_reader_close(reader);
    kit_close(&f->kit);
    assert_int_equal(atomic_load(&f->nameless), 0);
}

static void no_segment_goes_before_the_cursor_is_on_disk(void **state)
{
    struct fixture *f = *state;
    char first[128];
    kit_open(&f->kit);
    kit_segment_path(&f->kit, 1, first);
    struct log_reader *reader = open_reader(&f->kit);
    atomic_store(&f->no_cursors, true);
    pass(f, reader, 0, 60);
    kit_until(atomic_load(&f->cursor_tries) >= 3); /* what a try lets go of is gone at the next */
    assert_int_equal(access(first, F_OK), 0);
    atomic_store(&f->no_cursors, false);
    kit_until(access(first, F_OK) != 0);
    log_reader_close(reader);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_header_is_synced_before_the_first_group_is_written),
        TEST(a_name_is_synced_before_the_segment_begins),
        TEST(no_segment_goes_before_the_cursor_is_on_disk),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
