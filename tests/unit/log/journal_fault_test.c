/* The Nth operation on files fails, once or from then on, N swept over a whole run: nothing is
 * acknowledged that is not there after the restart, nothing is there that was told to have failed,
 * and the journal opens again. */
#include "journal_kit.h"

#define RECORDS 24

struct fault {
    struct kit kit;
    struct hook_fs hook, sound;
    struct seeded random;
    pthread_mutex_t lock;
    unsigned at, operations; /* guarded by lock */
    bool onward, cut;
    int error;
};

static int fail_nth(void *context, enum hook_op op, const char *path, uint64_t offset, size_t n,
                    size_t *prefix)
{
    struct fault *fault = context;
    (void)path;
    (void)offset;
    pthread_mutex_lock(&fault->lock);
    unsigned now = ++fault->operations;
    bool fails = fault->at && (fault->onward ? now >= fault->at : now == fault->at);
    if (fails && op == HOOK_WRITE && fault->cut)
        *prefix = seeded_below(&fault->random, n);
    pthread_mutex_unlock(&fault->lock);
    return fails ? fault->error : 0;
}

static int setup(void **state)
{
    struct fault *fault = calloc(1, sizeof *fault);
    static const char *const consumers[] = {"c", NULL};
    kit_init(&fault->kit);
    hook_fs_init(&fault->hook);
    pthread_mutex_init(&fault->lock, NULL);
    fault->hook.before = fail_nth;
    fault->hook.context = fault;
    hook_fs_init(&fault->sound);
    fault->hook.no_sync = fault->sound.no_sync = true;
    fault->random.state = seeded_choose();
    fault->kit.config.segment_bytes = SEGMENT_BYTES_MIN;
    fault->kit.config.consumers = consumers;
    fault->kit.config.ring = 64;
    *state = fault;
    return 0;
}

static int teardown(void **state)
{
    struct fault *fault = *state;
    kit_fini(&fault->kit);
    free(fault);
    return 0;
}

/* Open, append over several segments, deliver and settle half of it, close, as far as it gets. */
static void workload(struct fault *fault, uint64_t first)
{
    struct kit *kit = &fault->kit;
    struct log_reader *reader = NULL;
    struct batch batch;
    struct log_poll_result result;
    kit->config.fs = &fault->hook.fs;
    batch_init(&batch);
    if (kit_try_open(kit) == 0 && log_reader_open(kit->log, "c", &reader, &kit->diag) == 0) {
        for (unsigned i = 0; i < RECORDS; i++) {
            size_t n = kit->n_acks;
            if (kit_append(kit, first + i, 1, 9000) == 0)
                kit_wait_acks(kit, n + 1);
        }
        if (log_poll(reader, &batch, RECORDS, 1 << 20, 0, &result) == 0)
            for (size_t i = 0; i < batch.n / 2; i++)
                log_settle(reader, batch.records[i].partition, batch.records[i].offset);
        log_reader_close(reader);
    } else {
        assert_true(kit->diag.text[0] != 0); /* not without a word */
    }
    batch_fini(&batch);
    kit_close(kit);
}

static struct kit_ack *find_ack(struct kit *kit, uint64_t offset, uint64_t id)
{
    for (size_t i = 0; i < kit->n_acks; i++)
        if (strtoull(kit->acks[i].id, NULL, 10) == id) {
            if (kit->acks[i].status == 0)
                assert_int_equal(kit->acks[i].offset, offset);
            return &kit->acks[i];
        }
    return NULL;
}

/* With a sound disk again: what is there against what was said. `settled`: what may have gone. */
static void check(struct fault *fault, unsigned at)
{
    struct kit *kit = &fault->kit;
    struct kit_read read = {0};
    kit->config.fs = &fault->sound.fs;
    if (kit_try_open(kit) != 0)
        fail_msg("operation %u: does not open again: %s", at, kit->diag.text);
    struct log_stats stats;
    log_stats(kit->log, &stats);
    if (log_scan(kit->log, 0, kit_visit, &read, &kit->diag) != 0)
        fail_msg("operation %u: %s", at, kit->diag.text);
    for (size_t i = 0; i < read.n; i++) {
        const struct kit_ack *ack = find_ack(kit, read.offsets[i], read.ids[i]);
        if (!ack || (ack->status != 0 && ack->status != WEIR_UNKNOWN))
            fail_msg("operation %u: %" PRIu64 " is there, and was told to have failed (%s)", at,
                     read.ids[i], ack ? weir_err_name(ack->status) : "never taken");
        assert_true(i == 0 || read.offsets[i] > read.offsets[i - 1]);
    }
    size_t next = 0;
    for (size_t i = 0; i < kit->n_acks; i++) {
        if (kit->acks[i].status != 0 || kit->acks[i].offset < stats.first_offset)
            continue; /* settled, and let go of */
        while (next < read.n && read.offsets[next] != kit->acks[i].offset)
            next++;
        if (next == read.n)
            fail_msg("operation %u: %s was acknowledged and is not there", at, kit->acks[i].id);
    }
    kit_close(kit);
    kit_read_fini(&read);
}

static unsigned sweep(struct fault *fault, int error, bool cut, bool onward, unsigned step)
{
    struct kit *kit = &fault->kit;
    unsigned total = 0, failures = 0;
#ifdef __SANITIZE_THREAD__
    step *= 5; /* everything takes longer there */
#endif
    for (unsigned at = 0; at == 0 || at <= total; at += at == 0 ? 1 : step) {
        kit_remove_in(kit->dir);
        kit_forget(kit);
        fault->at = at;
        fault->error = error;
        fault->cut = cut;
        fault->onward = onward;
        fault->operations = 0;
        workload(fault, 0);
        if (at == 0) { /* a run without failures, to know how long one is */
            total = fault->operations;
            assert_int_equal(kit->n_acks, RECORDS);
        }
        for (size_t i = 0; i < kit->n_acks; i++)
            failures += kit->acks[i].status != 0;
        check(fault, at);
        /* And the log that comes out of it is written and read again. */
        if (at % 7 == 0) {
            fault->at = 0;
            workload(fault, 1000);
            check(fault, at);
        }
    }
    return failures;
}

static void one_operation_fails(void **state)
{
    assert_true(sweep(*state, EIO, false, false, 1) > 0);
}

static void one_write_is_cut(void **state)
{
    assert_true(sweep(*state, EIO, true, false, 1) > 0);
}

static void there_is_no_space_once(void **state)
{
    assert_true(sweep(*state, ENOSPC, true, false, 2) > 0);
}

static void all_operations_fail_from_one_on(void **state)
{
    assert_true(sweep(*state, EIO, true, true, 3) > 0);
}

static void there_is_no_space_from_one_on(void **state)
{
    assert_true(sweep(*state, ENOSPC, true, true, 3) > 0);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(one_operation_fails),           TEST(one_write_is_cut),
        TEST(there_is_no_space_once),        TEST(all_operations_fail_from_one_on),
        TEST(there_is_no_space_from_one_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
