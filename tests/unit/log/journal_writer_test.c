/* The log thread: how groups form, and what bodies are told when the disk refuses, fails, or cannot
 * say. */
#include "journal_kit.h"

struct fixture {
    struct kit kit;
    struct hook_fs hook;
    char image[80];
    /* for the hooks */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool hold;        /* syncs of groups wait */
    unsigned held;    /* how many do */
    atomic_int error; /* with which group writes fail; 0: they do not */
    atomic_int sync_error;
    atomic_size_t prefix;
    atomic_uint writes, syncs; /* of group data */
    /* new segments: 1: cannot be written through, 2: cannot be begun; no space */
    atomic_int keep_out;
    struct hook_fs quick; /* for copies */
    /* guarded by lock: the keeper's syncs of the first segment wait, then fail */
    bool hold_fill;
    unsigned filling;
};

/* The log thread writes groups behind the header page, in pieces that are no whole step. */
static bool is_group(enum hook_op op, const char *path, uint64_t offset, size_t n)
{
    return op == HOOK_WRITE && strstr(path, ".seg") && offset >= SEGMENT_DATA && n % 65536 != 0;
}

static int disk(void *context, enum hook_op op, const char *path, uint64_t offset, size_t n,
                size_t *prefix)
{
    struct fixture *f = context;
    static _Thread_local bool wrote_group;
    if (is_group(op, path, offset, n)) {
        atomic_fetch_add(&f->writes, 1);
        wrote_group = true;
        *prefix = atomic_load(&f->prefix);
        if (*prefix > n - 1)
            *prefix = n - 1;
        return atomic_load(&f->error);
    }
    if (op == HOOK_WRITE && strstr(path, ".seg") && offset == 0 &&
        atomic_load(&f->keep_out) == (n >= 65536 ? 1 : 2))
        return ENOSPC;
    if (op != HOOK_SYNC || !wrote_group)
        return 0;
    wrote_group = false;
    atomic_fetch_add(&f->syncs, 1);
    pthread_mutex_lock(&f->lock);
    f->held++;
    pthread_cond_broadcast(&f->changed);
    while (f->hold)
        pthread_cond_wait(&f->changed, &f->lock);
    f->held--;
    pthread_mutex_unlock(&f->lock);
    return atomic_load(&f->sync_error);
}

static int setup(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    kit_init(&f->kit);
    hook_fs_init(&f->hook);
    hook_fs_init(&f->quick);
    f->quick.no_sync = true;
    f->hook.before = disk;
    f->hook.context = f;
    f->kit.config.fs = &f->hook.fs;
    snprintf(f->image, sizeof f->image, "%s.image", f->kit.dir);
    pthread_mutex_init(&f->lock, NULL);
    pthread_cond_init(&f->changed, NULL);
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    struct fixture *f = *state;
    kit_fini(&f->kit);
    kit_remove_in(f->image);
    rmdir(f->image);
    free(f);
    return 0;
}

static void hold(struct fixture *f, bool on)
{
    pthread_mutex_lock(&f->lock);
    f->hold = on;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
}

static void wait_held(struct fixture *f)
{
    pthread_mutex_lock(&f->lock);
    while (f->held == 0)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
}

/* Exactly what was acknowledged with 0 is in the log as a kill would leave it now. */
static void expect_acknowledged_only(struct fixture *f)
{
    struct kit_read read = {0};
    struct kit *kit = &f->kit;
    pthread_mutex_lock(&kit->lock);
    struct kit copy = *kit;
    pthread_mutex_unlock(&kit->lock);
    kit_remove_in(f->image);
    kit_copy(kit->dir, f->image);
    strcpy(copy.dir, f->image);
    copy.config.data = copy.dir;
    copy.config.fs = &f->quick.fs;
    copy.config.events.context = &copy;
    copy.n_acks = 0; /* the copy's own, for what it says */
    copy.acks = NULL;
    copy.capacity = 0;
    pthread_mutex_init(&copy.lock, NULL);
    kit_open(&copy);
    kit_close(&copy);
    assert_int_equal(kit_scan(&copy, 0, &read), 0);
    size_t n = 0;
    for (size_t i = 0; i < kit->n_acks; i++) {
        if (kit->acks[i].status)
            continue;
        assert_true(n < read.n);
        assert_int_equal(read.offsets[n], kit->acks[i].offset);
        assert_int_equal(read.ids[n], strtoull(kit->acks[i].id, NULL, 10));
        n++;
    }
    assert_int_equal(read.n, n);
    kit_read_fini(&read);
}

/* --- groups --------------------------------------------------------------------------------------
 */

static void the_next_group_gathers_while_a_sync_is_in_flight(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit_open(kit);
    hold(f, true);
    assert_int_equal(kit_append(kit, 0, 1, 100), 0);
    wait_held(f);
    for (unsigned i = 1; i <= 20; i++)
        assert_int_equal(kit_append(kit, i, 1, 100), 0);
    hold(f, false);
    kit_wait_acks(kit, 21);
    assert_int_equal(kit->acks[0].group, 1);
    for (unsigned i = 1; i <= 20; i++)
        assert_int_equal(kit->acks[i].group, 2);
    assert_int_equal(atomic_load(&f->syncs), 2);
}

static int append_lazy(struct kit *kit, uint64_t first, unsigned n, size_t doc_bytes)
{
    struct body *body = kit_body(first, n, doc_bytes, false);
    int rc = log_append(kit->log, body);
    if (rc)
        mem_free(body);
    return rc;
}

static void what_nobody_waits_for_waits_for_what_somebody_does(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit->config.received_flush_ms = 3600 * 1000;
    kit_open(kit);
    for (unsigned i = 0; i < 50; i++)
        assert_int_equal(append_lazy(kit, i, 1, 100), 0);
    assert_int_equal(kit->n_acks, 0);
    assert_int_equal(kit_append(kit, 50, 1, 100), 0);
    kit_wait_acks(kit, 51);
    for (unsigned i = 0; i <= 50; i++) {
        assert_int_equal(strtoull(kit->acks[i].id, NULL, 10), i);
        assert_int_equal(kit->acks[i].group, 1);
    }
}

static void what_nobody_waits_for_goes_out_by_itself(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit_open(kit); /* 5 ms */
    for (unsigned i = 0; i < 10; i++) {
        assert_int_equal(append_lazy(kit, i, 1, 100), 0);
        kit_wait_acks(kit, i + 1);
    }
    expect_acknowledged_only(f);
}

static void much_that_nobody_waits_for_goes_out_at_once(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit->config.received_flush_ms = 3600 * 1000;
    kit->config.segment_bytes = 8 << 20;
    kit_open(kit);
    for (unsigned i = 0; i < 12; i++)
        assert_int_equal(append_lazy(kit, i, 1, 100000), 0);
    kit_wait_acks(kit, 10);
    log_flush(kit->log);
    assert_int_equal(kit->n_acks, 12);
}

static void a_small_ring_does_not_fill_with_what_nobody_waits_for(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit->config.received_flush_ms = 3600 * 1000;
    kit->config.ring = 16;
    kit_open(kit);
    for (unsigned i = 0; i < 500; i++)
        kit_until(append_lazy(kit, i, 1, 10) == 0);
    log_flush(kit->log);
    assert_int_equal(kit->n_acks, 500);
}

struct told { /* what a reader could see while bodies were told that they are durable */
    struct kit *kit;
    struct log_reader *reader;
    size_t seen;
};

static void look_while_told(void *context, struct body *bodies)
{
    struct told *told = context;
    struct batch batch;
    struct log_poll_result result;
    batch_init(&batch);
    assert_int_equal(log_poll(told->reader, &batch, 100, 1 << 20, 0, &result), 0);
    told->seen += batch.n;
    batch_fini(&batch);
    kit_durable(told->kit, bodies);
}

/* Who waits for a store is entered by then, and no settlement can come before. */
static void readers_see_a_group_only_when_its_bodies_were_told(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    struct told told = {.kit = kit};
    struct kit_read read = {0};
    kit->config.events.context = &told;
    kit->config.events.durable = look_while_told;
    kit->config.events.report = NULL;
    kit_open(kit);
    assert_int_equal(log_reader_open(kit->log, "c", &told.reader, &kit->diag), 0);
    for (unsigned i = 0; i < 20; i++) {
        assert_int_equal(kit_append(kit, i, 1, 40), 0);
        kit_wait_acks(kit, i + 1);
        assert_int_equal(told.seen, 0);
        kit_poll(told.reader, 1, &read);
    }
    kit_read_fini(&read);
    log_reader_close(told.reader);
}

static void flush_waits_for_all_that_was_appended(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit_open(kit);
    for (unsigned i = 0; i < 200; i++) {
        assert_int_equal(append_lazy(kit, i, 1, 10), 0);
        if (i % 20 == 0) {
            log_flush(kit->log);
            assert_int_equal(kit->n_acks, i + 1);
        }
    }
    log_flush(kit->log);
    assert_int_equal(kit->n_acks, 200);
}

static void the_largest_body_fits_and_a_larger_one_is_told(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit_open(kit);
    size_t limit = log_body_limit(kit->log);
    assert_true(limit > 200 << 10);
    assert_int_equal(kit_append(kit, 1, 1, limit - 2), 0);
    assert_int_equal(kit_append(kit, 2, 1, limit - 2), 0);
    kit_wait_acks(kit, 2);
    assert_int_equal(kit_append(kit, 3, 1, kit->config.segment_bytes), WEIR_TOO_LARGE);
    /* Less than the limit in sum, and too many headers. */
    assert_int_equal(kit_append(kit, 4, 20000, 8), WEIR_TOO_LARGE);
    expect_acknowledged_only(f);
}

static void a_full_ring_is_told(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    unsigned taken = 1;
    kit->config.ring = 8;
    kit_open(kit);
    hold(f, true);
    assert_int_equal(kit_append(kit, 0, 1, 10), 0);
    wait_held(f);
    while (kit_append(kit, taken, 1, 10) == 0)
        taken++;
    assert_int_equal(taken, 9);
    assert_int_equal(kit_append(kit, 99, 1, 10), WEIR_FULL);
    hold(f, false);
    kit_wait_acks(kit, taken);
    expect_acknowledged_only(f);
}

/* --- the disk refuses ----------------------------------------------------------------------------
 */

static void without_space_nothing_is_taken_and_it_goes_on_by_itself(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit_open(kit);
    kit_fill(kit, 0, 3, 100);
    atomic_store(&f->error, ENOSPC);
    assert_int_equal(kit_append(kit, 10, 1, 100), 0);
    kit_wait_acks(kit, 4);
    assert_int_equal(kit->acks[3].status, WEIR_NO_SPACE);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(kit_append(kit, 20 + i, 1, 100), WEIR_NO_SPACE);
    struct log_stats stats;
    log_stats(kit->log, &stats);
    assert_true(stats.full && !stats.poisoned);
    expect_acknowledged_only(f);
    atomic_store(&f->error, 0);
    kit_wait_said(kit, "can be written again");
    kit_until(kit_append(kit, 30, 1, 100) == 0);
    kit_wait_acks(kit, 5);
    assert_int_equal(kit->acks[4].status, 0);
    expect_acknowledged_only(f);
    assert_int_equal(kit_times_said(kit, "no space"), 1);
}

/* Whatever part of the failed write reached the disk, a kill right after finds nothing of it. */
static void a_failed_write_is_never_read_later(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    f->hook.no_sync = true;
    kit_open(kit);
    kit_fill(kit, 0, 2, 40);
    for (size_t prefix = 0; prefix < 260; prefix += prefix < 200 ? 24 : 1) {
        size_t n = kit->n_acks;
        atomic_store(&f->prefix, prefix);
        atomic_store(&f->error, EIO);
        assert_int_equal(kit_append(kit, 100 + prefix, 1, 40), 0);
        kit_wait_acks(kit, n + 1);
        assert_int_equal(kit->acks[n].status, WEIR_IO);
        expect_acknowledged_only(f);
        if (prefix % 5 == 0) { /* and the next goes over it */
            atomic_store(&f->error, 0);
            kit_fill(kit, 5000 + prefix, 1, prefix % 10 ? 40 : 8);
            expect_acknowledged_only(f);
        }
    }
}

static void after_a_failed_sync_nothing_is_acknowledged_until_restart(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit_open(kit);
    kit_fill(kit, 0, 3, 100);
    atomic_store(&f->sync_error, EIO);
    hold(f, true);
    assert_int_equal(kit_append(kit, 3, 1, 100), 0);
    wait_held(f);
    for (unsigned i = 4; i < 8; i++) /* on their way when it happens */
        assert_int_equal(kit_append(kit, i, 1, 100), 0);
    hold(f, false);
    kit_wait_acks(kit, 8);
    atomic_store(&f->sync_error, 0);
    assert_int_equal(kit->acks[3].status, WEIR_UNKNOWN);
    for (unsigned i = 4; i < 8; i++)
        assert_int_equal(kit->acks[i].status, WEIR_POISONED);
    unsigned writes = atomic_load(&f->writes), syncs = atomic_load(&f->syncs);
    for (unsigned i = 0; i < 10; i++)
        assert_int_equal(kit_append(kit, 20, 1, 100), WEIR_POISONED);
    log_flush(kit->log); /* still answers */
    struct log_stats stats;
    log_stats(kit->log, &stats);
    assert_true(stats.poisoned);
    kit_wait_said(kit, "sync");
    assert_true(kit_said(kit, "restart"));
    kit_close(kit);
    assert_int_equal(atomic_load(&f->writes), writes);
    assert_int_equal(atomic_load(&f->syncs), syncs);
    kit_open(kit);
    kit_fill(kit, 50, 1, 100);
    struct kit_read read = {0};
    assert_int_equal(kit_scan(kit, 0, &read), 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(read.ids[i], i);
    assert_true(read.n == 4 || (read.n == 5 && read.ids[3] == 3)); /* 3 was unknown */
    assert_int_equal(read.ids[read.n - 1], 50);
    kit_read_fini(&read);
}

static bool second_segment_is_written(struct kit *kit)
{
    char path[128];
    struct stat st;
    kit_segment_path(kit, 2, path);
    return stat(path, &st) == 0 && (size_t)st.st_size == kit->config.segment_bytes;
}

static void refused_until_a_segment_comes(struct fixture *f, int keep_out, unsigned at_least)
{
    struct kit *kit = &f->kit;
    kit_open(kit);
    kit_until(second_segment_is_written(kit));
    atomic_store(&f->keep_out, keep_out);
    unsigned n = 0;
    int rc;
    while ((rc = kit_append(kit, n, 1, 30000)) == 0) {
        kit_wait_acks(kit, ++n);
        assert_true(n < 1000);
    }
    assert_int_equal(rc, WEIR_NO_SPACE);
    assert_true(n > at_least);
    assert_int_equal(kit->acks[n - 1].status, WEIR_NO_SPACE);
    kit_wait_said(kit, "no space");
    expect_acknowledged_only(f);
    atomic_store(&f->keep_out, 0);
    kit_until(kit_append(kit, n, 1, 30000) == 0);
    kit_wait_acks(kit, n + 1);
    assert_int_equal(kit->acks[n].status, 0);
    expect_acknowledged_only(f);
}

static int hold_fill(void *context, enum hook_op op, const char *path, uint64_t offset, size_t n,
                     size_t *prefix)
{
    struct fixture *f = context;
    static _Thread_local bool filling;
    if (op == HOOK_WRITE && strstr(path, "0000000001.seg") && n >= 65536 && offset > 0)
        filling = true;
    if (op != HOOK_SYNC || !filling)
        return disk(context, op, path, offset, n, prefix);
    filling = false;
    pthread_mutex_lock(&f->lock);
    f->filling++;
    pthread_cond_broadcast(&f->changed);
    while (f->hold_fill)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    return EIO;
}

/* The keeper writes the first segment through while groups are written to it. When its sync fails,
 * the group's bytes may be what did not reach the disk, although the group's own sync succeeds. */
static void a_failed_sync_of_the_same_file_fails_the_group_too(void **state)
{
    struct fixture *f = *state;
    struct kit *kit = &f->kit;
    kit->config.segment_bytes = 4 << 20;
    f->hook.before = hold_fill;
    f->hold_fill = true;
    kit_open(kit);
    pthread_mutex_lock(&f->lock);
    while (f->filling == 0)
        pthread_cond_wait(&f->changed, &f->lock);
    pthread_mutex_unlock(&f->lock);
    assert_int_equal(kit_append(kit, 0, 1, 100), 0);
    unsigned polls = 0; /* time in which a wrong acknowledgement would show */
    kit_until(atomic_load(&f->syncs) == 1 && ++polls == 20);
    pthread_mutex_lock(&f->lock);
    f->hold_fill = false;
    pthread_cond_broadcast(&f->changed);
    pthread_mutex_unlock(&f->lock);
    kit_wait_acks(kit, 1);
    assert_int_equal(kit->acks[0].status, WEIR_UNKNOWN);
    assert_int_equal(kit_append(kit, 1, 1, 100), WEIR_POISONED);
}

static void without_a_next_segment_nothing_is_taken_and_it_goes_on_by_itself(void **state)
{
    refused_until_a_segment_comes(*state, 1, 14); /* two segments of 256 KiB are there */
}

static void a_segment_that_cannot_be_begun_is_tried_again(void **state)
{
    refused_until_a_segment_comes(*state, 2, 7);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(the_next_group_gathers_while_a_sync_is_in_flight),
        TEST(what_nobody_waits_for_waits_for_what_somebody_does),
        TEST(what_nobody_waits_for_goes_out_by_itself),
        TEST(much_that_nobody_waits_for_goes_out_at_once),
        TEST(a_small_ring_does_not_fill_with_what_nobody_waits_for),
        TEST(readers_see_a_group_only_when_its_bodies_were_told),
        TEST(flush_waits_for_all_that_was_appended),
        TEST(the_largest_body_fits_and_a_larger_one_is_told),
        TEST(a_full_ring_is_told),
        TEST(without_space_nothing_is_taken_and_it_goes_on_by_itself),
        TEST(a_failed_write_is_never_read_later),
        TEST(after_a_failed_sync_nothing_is_acknowledged_until_restart),
        TEST(a_failed_sync_of_the_same_file_fails_the_group_too),
        TEST(without_a_next_segment_nothing_is_taken_and_it_goes_on_by_itself),
        TEST(a_segment_that_cannot_be_begun_is_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
