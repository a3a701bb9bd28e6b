/* Opening after a crash and after damage: what was acknowledged is there, at the same offsets; what
 * was not is left out or kept whole; what cannot be mended is named and nothing is changed. */
#include "base/hash.h"
#include "journal_kit.h"

#define GROUPS 6

struct image { /* a directory as a kill left it, and what had been acknowledged */
    struct kit kit;
    struct hook_fs hook;
    char dir[80];
    char segment[128]; /* of kit, the first */
};

/* The offsets in the file at which the groups begin, by reading headers. */
static size_t find_groups(const char *path, uint64_t at[], struct group_header headers[],
                          size_t max)
{
    size_t n, groups = 0;
    char *p = kit_slurp(path, &n);
    struct segment_header segment;
    memcpy(&segment, p, sizeof segment);
    for (uint64_t i = SEGMENT_DATA; i + sizeof *headers <= n && groups < max;) {
        if (!group_header_read(p + i, segment.nonce, &headers[groups]))
            break;
        at[groups] = i;
        i += group_bytes(&headers[groups++]);
    }
    mem_free(p);
    return groups;
}

static int setup(void **state)
{
    struct image *image = calloc(1, sizeof *image);
    kit_init(&image->kit);
    hook_fs_init(&image->hook);
    image->hook.no_sync = true;
    image->kit.config.fs = &image->hook.fs;
    image->kit.config.segment_bytes = SEGMENT_BYTES_MIN;
    image->kit.config.ring = 64;
    snprintf(image->dir, sizeof image->dir, "%s.image", image->kit.dir);
    kit_segment_path(&image->kit, 1, image->segment);
    *state = image;
    return 0;
}

/* GROUPS groups of one record, then a kill. */
static void make_image(struct image *image, size_t doc_bytes)
{
    kit_open(&image->kit);
    kit_fill(&image->kit, 0, GROUPS, doc_bytes);
    kit_copy(image->kit.dir, image->dir);
    kit_close(&image->kit);
    kit_restore(&image->kit, image->dir);
}

static int teardown(void **state)
{
    struct image *image = *state;
    kit_fini(&image->kit);
    kit_remove_in(image->dir);
    rmdir(image->dir);
    free(image);
    return 0;
}

/* The first n acknowledged records, and no others, are there at their offsets. */
static void expect_records(struct image *image, size_t n)
{
    struct kit_read read = {0};
    if (kit_scan(&image->kit, 0, &read) != 0)
        fail_msg("scan: %s", image->kit.diag.text);
    assert_int_equal(read.n, n);
    for (size_t i = 0; i < n; i++) {
        char id[24];
        snprintf(id, sizeof id, "%" PRIu64, read.ids[i]);
        assert_string_equal(id, image->kit.acks[i].id);
        assert_int_equal(read.offsets[i], image->kit.acks[i].offset);
    }
    kit_read_fini(&read);
}

static void after_a_kill_all_is_there_at_the_same_offsets(void **state)
{
    struct image *image = *state;
    make_image(image, 50);
    kit_open(&image->kit);
    expect_records(image, GROUPS);
    /* The last group was vouched for by nobody: it lies in a second segment now. */
    assert_true(kit_count_segments(&image->kit) >= 2);
    kit_fill(&image->kit, 100, 3, 50);
    expect_records(image, GROUPS + 3);
    kit_close(&image->kit);
    kit_open(&image->kit);
    expect_records(image, GROUPS + 3);
}

/* A crash loop without traffic does not eat the disk. */
static void opening_again_and_again_writes_again_only_once(void **state)
{
    struct image *image = *state;
    make_image(image, 50);
    for (unsigned i = 0; i < 20; i++) {
        kit_open(&image->kit);
        expect_records(image, GROUPS);
        kit_remove_in(image->dir);
        kit_copy(image->kit.dir, image->dir);
        kit_close(&image->kit);
        kit_restore(&image->kit, image->dir);
    }
    assert_true(kit_count_segments(&image->kit) <= 3);
}

static void readers_get_the_tail_after_it_was_written_again(void **state)
{
    struct image *image = *state;
    struct log_reader *reader;
    struct kit_read read = {0};
    make_image(image, 50);
    kit_open(&image->kit);
    assert_int_equal(log_reader_open(image->kit.log, "c", &reader, &image->kit.diag), 0);
    assert_int_equal(log_lag(reader), GROUPS);
    kit_poll(reader, GROUPS, &read);
    for (size_t i = 0; i < GROUPS; i++)
        assert_int_equal(read.offsets[i], image->kit.acks[i].offset);
    log_reader_close(reader);
    kit_read_fini(&read);
}

static void any_damage_to_the_last_group_is_a_torn_tail(void **state)
{
    struct image *image = *state;
    uint64_t at[GROUPS + 1];
    struct group_header headers[GROUPS + 1];
    make_image(image, 20);
    assert_int_equal(find_groups(image->segment, at, headers, GROUPS + 1), GROUPS);
    uint64_t end = at[GROUPS - 1] + group_bytes(&headers[GROUPS - 1]);
    for (uint64_t i = at[GROUPS - 1]; i < end; i++) {
        kit_restore(&image->kit, image->dir);
        kit_flip(image->segment, i, 0x40);
        kit_open(&image->kit);
        expect_records(image, GROUPS - 1);
        kit_close(&image->kit);
    }
}

static void damage_that_a_later_group_vouches_for_is_named(void **state)
{
    struct image *image = *state;
    uint64_t at[GROUPS + 1];
    struct group_header headers[GROUPS + 1];
    make_image(image, 20);
    find_groups(image->segment, at, headers, GROUPS + 1);
    for (uint64_t i = at[2]; i < at[3]; i++) {
        char place[64];
        kit_restore(&image->kit, image->dir);
        kit_flip(image->segment, i, 0x04);
        size_t n, m;
        char *before = kit_slurp(image->segment, &n);
        assert_int_equal(kit_try_open(&image->kit), WEIR_CORRUPT);
        assert_non_null(strstr(image->kit.diag.text, "0000000001.seg"));
        snprintf(place, sizeof place, "byte %" PRIu64, at[2]);
        assert_non_null(strstr(image->kit.diag.text, place));
        char *after = kit_slurp(image->segment, &m);
        assert_true(n == m && memcmp(before, after, n) == 0);
        mem_free(before);
        mem_free(after);
    }
    /* A whole page gone, too. */
    kit_restore(&image->kit, image->dir);
    char zeros[64] = {0};
    kit_overwrite(image->segment, zeros, sizeof zeros, at[1]);
    assert_int_equal(kit_try_open(&image->kit), WEIR_CORRUPT);
}

static void a_file_cut_anywhere_keeps_the_groups_before(void **state)
{
    struct image *image = *state;
    uint64_t at[GROUPS + 1];
    struct group_header headers[GROUPS + 1];
    make_image(image, 20);
    find_groups(image->segment, at, headers, GROUPS + 1);
    uint64_t end = at[GROUPS - 1] + group_bytes(&headers[GROUPS - 1]);
    for (uint64_t size = SEGMENT_DATA; size <= end; size += 8) {
        size_t whole = 0;
        while (whole < GROUPS && at[whole] + group_bytes(&headers[whole]) <= size)
            whole++;
        kit_restore(&image->kit, image->dir);
        assert_int_equal(truncate(image->segment, (off_t)size), 0);
        kit_open(&image->kit);
        expect_records(image, whole);
        kit_fill(&image->kit, 500, 1, 20); /* and it can be written */
        kit_close(&image->kit);
        image->kit.n_acks = GROUPS;
    }
}

static void a_header_that_is_gone_is_no_empty_log(void **state)
{
    struct image *image = *state;
    char zeros[SEGMENT_DATA] = {0};
    make_image(image, 20);
    kit_overwrite(image->segment, zeros, sizeof zeros, 0);
    assert_int_equal(kit_try_open(&image->kit), WEIR_CORRUPT);
    assert_non_null(strstr(image->kit.diag.text, "0000000001.seg"));
    for (size_t i = 0; i < sizeof(struct segment_header); i++) {
        kit_restore(&image->kit, image->dir);
        kit_flip(image->segment, i, 0x01);
        int rc = kit_try_open(&image->kit);
        assert_true(rc == WEIR_CORRUPT);
    }
}

/* The header of the next segment was being written: any part of it may be there. */
static void a_torn_begin_has_not_begun(void **state)
{
    struct image *image = *state;
    char next[128];
    make_image(image, 20);
    kit_segment_path(&image->kit, 2, next);
    struct segment_header header = {
        .number = 2, .nonce = 5, .base = 999992, .bytes = SEGMENT_BYTES_MIN, .previous_number = 1};
    segment_header_seal(&header);
    for (size_t n = 1; n < sizeof header; n++) {
        kit_restore(&image->kit, image->dir);
        if (access(next, F_OK) != 0) {
            FILE *file = fopen(next, "w");
            assert_int_equal(ftruncate(fileno(file), SEGMENT_BYTES_MIN), 0);
            fclose(file);
        }
        kit_overwrite(next, &header, n, 0);
        kit_open(&image->kit);
        expect_records(image, GROUPS);
        kit_close(&image->kit);
    }
}

static void a_newer_format_is_refused(void **state)
{
    struct image *image = *state;
    make_image(image, 20);
    size_t n;
    char *p = kit_slurp(image->segment, &n);
    struct segment_header header;
    memcpy(&header, p, sizeof header);
    mem_free(p);
    header.format++;
    header.checksum = hash64(&header, offsetof(struct segment_header, checksum));
    kit_overwrite(image->segment, &header, sizeof header, 0);
    assert_int_equal(kit_try_open(&image->kit), WEIR_NEWER);
}

/* --- crashes while opening -----------------------------------------------------------------------
 */

static atomic_uint operations, fail_from;

static int fail_late(void *context, enum hook_op op, const char *path, uint64_t offset, size_t n,
                     size_t *prefix)
{
    (void)context;
    (void)path;
    (void)offset;
    if (op == HOOK_READ || op == HOOK_OPEN)
        return 0;
    unsigned at = atomic_fetch_add(&operations, 1) + 1;
    if (at < atomic_load(&fail_from))
        return 0;
    if (at == atomic_load(&fail_from))
        *prefix = n / 2;
    return EIO;
}

/* Opening dies at any of its operations, the one it dies at half done: the log is what it was. */
static void a_crash_while_the_tail_is_written_again(void **state)
{
    struct image *image = *state;
    make_image(image, 3000);
    for (unsigned at = 1; at < 100; at++) {
        kit_restore(&image->kit, image->dir);
        atomic_store(&operations, 0);
        atomic_store(&fail_from, at);
        image->hook.before = fail_late;
        int rc = kit_try_open(&image->kit);
        atomic_store(&fail_from, UINT32_MAX);
        if (rc == 0)
            kit_close(&image->kit);
        kit_open(&image->kit);
        expect_records(image, GROUPS);
        kit_close(&image->kit);
        if (rc == 0) {
            assert_true(at > 5); /* it did fail at some of them */
            return;
        }
    }
    fail_msg("opening never got through");
}

static void a_crash_while_the_first_segment_is_made(void **state)
{
    struct image *image = *state;
    for (unsigned at = 1; at < 100; at++) {
        kit_remove_in(image->kit.dir);
        atomic_store(&operations, 0);
        atomic_store(&fail_from, at);
        image->hook.before = fail_late;
        int rc = kit_try_open(&image->kit);
        atomic_store(&fail_from, UINT32_MAX);
        if (rc == 0)
            kit_close(&image->kit);
        kit_open(&image->kit);
        kit_forget(&image->kit);
        kit_fill(&image->kit, 0, 2, 20);
        kit_close(&image->kit);
        expect_records(image, 2);
        if (rc == 0)
            return;
    }
    fail_msg("opening never got through");
}

/* --- the order of operations while opening: what a power cut at a bad moment would show
 * ----------- */

static atomic_uint draft_renames, early_writes, cursor_syncs, early_unlinks;

static int watch_order(void *context, enum hook_op op, const char *path, uint64_t offset, size_t n,
                       size_t *prefix)
{
    static _Thread_local bool unsynced;
    (void)context;
    (void)offset;
    (void)n;
    (void)prefix;
    bool draft = strstr(path, "rewrite.tmp") != NULL;
    if (op == HOOK_RENAME && draft) {
        atomic_fetch_add(&draft_renames, 1);
        unsynced = true;
    } else if (op == HOOK_SYNC_DIR && strstr(path, "/journal")) {
        unsynced = false;
    } else if (op == HOOK_WRITE && draft && unsynced) {
        atomic_fetch_add(&early_writes, 1);
    } else if (op == HOOK_SYNC_DIR && strstr(path, "/cursors")) {
        atomic_fetch_add(&cursor_syncs, 1);
    } else if (op == HOOK_UNLINK && strstr(path, ".seg") && atomic_load(&cursor_syncs) == 0) {
        atomic_fetch_add(&early_unlinks, 1);
    }
    return 0;
}

/* A file that waited as a segment is written only when its new name is durable. */
static void a_spare_file_is_renamed_for_good_before_it_is_written(void **state)
{
    struct image *image = *state;
    kit_open(&image->kit);
    kit_until(kit_count_segments(&image->kit) == 2);
    kit_fill(&image->kit, 0, GROUPS, 50);
    kit_copy(image->kit.dir, image->dir);
    kit_close(&image->kit);
    kit_restore(&image->kit, image->dir);
    atomic_store(&draft_renames, 0);
    atomic_store(&early_writes, 0);
    image->hook.before = watch_order;
    kit_open(&image->kit);
    expect_records(image, GROUPS);
    assert_int_equal(atomic_load(&draft_renames), 1);
    assert_int_equal(atomic_load(&early_writes), 0);
}

/* A cursor that is seen may not be durable; segments go only by one that is. */
static void a_cursor_is_durable_before_segments_go_by_it(void **state)
{
    struct image *image = *state;
    static const char *const consumers[] = {"c", NULL};
    struct log_reader *reader;
    struct kit_read read = {0};
    image->kit.config.consumers = consumers;
    kit_open(&image->kit);
    kit_fill(&image->kit, 0, 30, 8000);
    assert_int_equal(log_reader_open(image->kit.log, "c", &reader, &image->kit.diag), 0);
    kit_poll(reader, 30, &read);
    kit_copy(image->kit.dir, image->dir); /* all segments are there */
    for (size_t i = 0; i < 30; i++)
        log_settle(reader, (uint32_t)(read.ids[i] % 4), read.offsets[i]);
    log_reader_close(reader);
    char from[128], to[128];
    snprintf(from, sizeof from, "%s/cursors", image->kit.dir);
    snprintf(to, sizeof to, "%s/cursors", image->dir);
    kit_copy(from, to);
    kit_close(&image->kit);
    kit_restore(&image->kit, image->dir);
    atomic_store(&cursor_syncs, 0);
    atomic_store(&early_unlinks, 0);
    image->hook.before = watch_order;
    kit_open(&image->kit);
    kit_until(kit_count_segments(&image->kit) <= 4); /* they went */
    assert_int_equal(atomic_load(&early_unlinks), 0);
    kit_read_fini(&read);
}

/* --- further back -------------------------------------------------------------------------------
 */

/* 30 groups of 8 KiB over several segments of 64 KiB, two readers' cursors: "behind" at the start,
 * "ahead" at the end. */
static void fill_segments(struct image *image)
{
    static const char *const consumers[] = {"behind", "ahead", NULL};
    struct log_reader *reader;
    struct kit_read read = {0};
    image->kit.config.consumers = consumers;
    kit_open(&image->kit);
    kit_fill(&image->kit, 0, 30, 8000);
    assert_int_equal(log_reader_open(image->kit.log, "ahead", &reader, &image->kit.diag), 0);
    kit_poll(reader, 30, &read);
    for (uint32_t p = 0; p < 4; p++)
        log_settle(reader, p, read.offsets[29]);
    log_reader_close(reader);
    kit_close(&image->kit);
    kit_read_fini(&read);
    assert_true(kit_count_segments(&image->kit) > 4);
}

/* Reads until damage; returns how many records came before it. */
static size_t read_to_damage(struct image *image, const char *name)
{
    struct log_reader *reader;
    struct batch batch;
    struct log_poll_result result;
    size_t n = 0;
    int rc;
    batch_init(&batch);
    assert_int_equal(log_reader_open(image->kit.log, "behind", &reader, &image->kit.diag), 0);
    while ((rc = log_poll(reader, &batch, 1000, 1 << 20, 10000, &result)) == 0) {
        assert_int_equal(result.what, LOG_RECORDS);
        n += batch.n;
        batch_clear(&batch);
    }
    assert_int_equal(rc, WEIR_CORRUPT);
    assert_non_null(strstr(log_reader_why(reader), name));
    assert_non_null(strstr(log_reader_why(reader), "offset"));
    assert_true(kit_said(&image->kit, name));
    for (unsigned i = 0; i < 3; i++) /* it stays there, and says so once */
        assert_int_equal(log_poll(reader, &batch, 1000, 1 << 20, 0, &result), WEIR_CORRUPT);
    log_reader_close(reader);
    batch_fini(&batch);
    return n;
}

static void damage_further_back_stops_only_its_reader(void **state)
{
    struct image *image = *state;
    struct log_reader *ahead;
    struct kit_read read = {0};
    char second[128];
    fill_segments(image);
    kit_segment_path(&image->kit, 2, second);
    kit_flip(second, SEGMENT_DATA + 8300, 0x80);
    kit_open(&image->kit);
    kit_fill(&image->kit, 100, 1, 100);
    size_t n = read_to_damage(image, "0000000002.seg");
    assert_true(n > 5 && n < 20);
    assert_int_equal(log_reader_open(image->kit.log, "ahead", &ahead, &image->kit.diag), 0);
    kit_poll(ahead, 1, &read);
    assert_int_equal(read.ids[0], 100);
    log_reader_close(ahead);
    kit_read_fini(&read);
    kit_close(&image->kit);
    assert_int_equal(kit_scan(&image->kit, 0, &read), WEIR_CORRUPT);
    assert_int_equal(read.n, n);
    kit_read_fini(&read);
}

static void a_zeroed_header_further_back_stops_only_its_reader(void **state)
{
    struct image *image = *state;
    char second[128], zeros[SEGMENT_DATA] = {0};
    fill_segments(image);
    kit_segment_path(&image->kit, 2, second);
    kit_overwrite(second, zeros, sizeof zeros, 0);
    kit_open(&image->kit);
    kit_fill(&image->kit, 100, 1, 100);
    size_t n = read_to_damage(image, "000000000");
    assert_true(n > 5 && n < 20);
}

static void a_segment_that_is_missing_stops_only_its_reader(void **state)
{
    struct image *image = *state;
    char second[128];
    fill_segments(image);
    kit_segment_path(&image->kit, 2, second);
    assert_int_equal(unlink(second), 0);
    kit_open(&image->kit);
    kit_fill(&image->kit, 100, 1, 100);
    size_t n = read_to_damage(image, "0000000001.seg");
    assert_true(n > 5 && n < 20);
}

static void another_segment_size_over_old_segments(void **state)
{
    struct image *image = *state;
    static const uint64_t sizes[] = {256 << 10, SEGMENT_BYTES_MIN, 1 << 20, SEGMENT_BYTES_MIN};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        image->kit.config.segment_bytes = sizes[i];
        kit_open(&image->kit);
        kit_fill(&image->kit, i * 100, 30, 8000);
        kit_remove_in(image->dir);
        kit_copy(image->kit.dir, image->dir);
        kit_close(&image->kit);
        if (i % 2)
            kit_restore(&image->kit, image->dir); /* a kill, every other time */
        expect_records(image, 30 * (i + 1));
    }
    kit_open(&image->kit);
    expect_records(image, 120);
}

/* A large group that must be written again where segments are now smaller than it. */
static void a_tail_larger_than_a_segment_of_now(void **state)
{
    struct image *image = *state;
    image->kit.config.segment_bytes = 1 << 20;
    kit_open(&image->kit);
    assert_int_equal(kit_append(&image->kit, 0, 10, 50000), 0);
    kit_wait_acks(&image->kit, 10);
    kit_copy(image->kit.dir, image->dir);
    kit_close(&image->kit);
    kit_restore(&image->kit, image->dir);
    image->kit.config.segment_bytes = SEGMENT_BYTES_MIN;
    kit_open(&image->kit);
    expect_records(image, 10);
    kit_fill(&image->kit, 20, 20, 8000);
    expect_records(image, 30);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(after_a_kill_all_is_there_at_the_same_offsets),
        TEST(opening_again_and_again_writes_again_only_once),
        TEST(readers_get_the_tail_after_it_was_written_again),
        TEST(any_damage_to_the_last_group_is_a_torn_tail),
        TEST(damage_that_a_later_group_vouches_for_is_named),
        TEST(a_file_cut_anywhere_keeps_the_groups_before),
        TEST(a_header_that_is_gone_is_no_empty_log),
        TEST(a_torn_begin_has_not_begun),
        TEST(a_newer_format_is_refused),
        TEST(a_crash_while_the_tail_is_written_again),
        TEST(a_crash_while_the_first_segment_is_made),
        TEST(a_spare_file_is_renamed_for_good_before_it_is_written),
        TEST(a_cursor_is_durable_before_segments_go_by_it),
        TEST(damage_further_back_stops_only_its_reader),
        TEST(a_zeroed_header_further_back_stops_only_its_reader),
        TEST(a_segment_that_is_missing_stops_only_its_reader),
        TEST(another_segment_size_over_old_segments),
        TEST(a_tail_larger_than_a_segment_of_now),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
