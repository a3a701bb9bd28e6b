/* Reconcile's repair: from the log, from the primary, through somebody else's writer; what cannot
 * be repaired is counted. */
#include "delivery/repair.h"
#include "reconcile_kit.h"

static void repair(struct kit *kit, uint64_t repaired, uint64_t not_repairable)
{
    kit->config.repair = true;
    kit_run(kit);
    kit->config.repair = false;
    if (kit->result.repaired != repaired || kit->result.not_repairable != not_repairable)
        fail_msg("repaired %d, not repairable %d", (int)kit->result.repaired,
                 (int)kit->result.not_repairable);
}

static void the_newest_record_of_the_log_is_written(void **state)
{
    struct kit *kit = *state;
    kit_log(kit, "a", 1, "{\"n\":1}", 0);
    kit_log(kit, "b", 2, "{\"n\":2}", 1);
    kit_log(kit, "a", 3, "{\"n\":3}", 1);
    kit_log(kit, "different", 4, "{\"n\":4}", 0);
    kit_settle(kit, "copy", UINT64_MAX);
    kit_put(kit, COPY, "different", 4, "{\"n\":\"bad\"}");
    kit->config.primary = NULL;
    kit_list(kit, "a", 1, "{\"n\":1}");
    kit_list(kit, "b", 2, "{\"n\":2}");
    kit_list(kit, "different", 4, "{\"n\":4}");
    kit_list(kit, "nowhere", 9, NULL);
    repair(kit, 3, 1);
    kit_expect(kit, 4, 0, 3, 0, 1, 0);
    kit_expect_row(kit, COPY, "a", 3, "{\"n\":3}", "logkey");
    kit_expect_row(kit, COPY, "b", 2, "{\"n\":2}", "logkey");
    kit_expect_row(kit, COPY, "different", 4, "{\"n\":4}", "logkey");
    kit_run(kit);
    kit_expect(kit, 4, 3, 1, 0, 0, 0);
}

static void what_the_log_no_longer_has_comes_from_the_primary(void **state)
{
    struct kit *kit = *state;
    kit_log(kit, "a", 4, "{\"log\":4}", 0); /* older than what is missing */
    kit_settle(kit, "copy", UINT64_MAX);
    kit_put(kit, MAIN, "a", 5, "{\"primary\":5}");
    kit_put(kit, MAIN, "b", 6, " {\"primary\" : 6 }");
    kit_put(kit, MAIN, "c", 7, "{}");
    kit_put(kit, COPY, "c", 6, "{}");
    kit_put(kit, COPY, "extra", 1, "{}");
    repair(kit, 3, 0);
    kit_expect(kit, 3, 0, 2, 1, 1, 0);
    kit_expect_row(kit, COPY, "a", 5, "{\"primary\":5}", "k");
    kit_expect_row(kit, COPY, "b", 6, " {\"primary\" : 6 }", "k");
    kit_expect_row(kit, COPY, "extra", 1, "{}", "k"); /* nothing is removed */
    kit_run(kit);
    kit_expect(kit, 3, 3, 0, 1, 0, 0);
}

static void an_older_version_is_no_repair(void **state)
{
    struct kit *kit = *state;
    kit_put(kit, MAIN, "a", 8, "{}");
    kit_log(kit, "a", 7, "{}", 0);
    kit_settle(kit, "copy", UINT64_MAX);
    kit_list(kit, "a", 9, NULL);
    repair(kit, 0, 1);
    struct sink_row row;
    assert_int_equal(
        kit->writers[COPY]->ops->read(kit->writers[COPY], 0, SLICE_LIT("a"), &row, &kit->diag),
        WEIR_NOT_FOUND);
}

static void the_primary_is_repaired_from_the_log_alone(void **state)
{
    struct kit *kit = *state;
    kit_log(kit, "a", 4, "{\"log\":4}", 0);
    kit_settle(kit, "main", UINT64_MAX);
    kit->config.sink = kit->config.primary = kit->sinks[MAIN];
    kit->config.sink_name = kit->config.consumer = "main";
    kit_list(kit, "a", 4, NULL);
    kit_list(kit, "b", 4, NULL);
    repair(kit, 1, 1);
    kit_expect_row(kit, MAIN, "a", 4, "{\"log\":4}", "logkey");
}

static void lag_is_left_to_its_consumer(void **state)
{
    struct kit *kit = *state;
    kit_log(kit, "late", 4, "{}", 0);
    kit_put(kit, MAIN, "late", 4, "{}");
    repair(kit, 0, 0);
    kit_expect(kit, 1, 0, 0, 0, 0, 1);
    struct sink_row row;
    assert_int_equal(
        kit->writers[COPY]->ops->read(kit->writers[COPY], 0, SLICE_LIT("late"), &row, &kit->diag),
        WEIR_NOT_FOUND);
}

static void what_the_store_refuses_is_not_repairable(void **state)
{
    struct kit *kit = *state;
    kit_sql(kit, "copy",
            "CREATE TRIGGER no BEFORE INSERT ON events WHEN NEW.id LIKE 'x%' BEGIN SELECT "
            "RAISE(ABORT, 'no x'); END");
    kit_put_many(kit, MAIN, 1089, "r");
    kit_put_many(kit, MAIN, 11, "x");
    kit->config.found = NULL;
    repair(kit, 1089, 11);
    kit->config.found = kit_found;
    kit_run(kit);
    kit_expect(kit, 1100, 1089, 11, 0, 0, 0);
}

static void many_from_the_log_in_several_batches(void **state)
{
    struct kit *kit = *state;
    char id[16];
    kit_log_many(kit, 1200, "r");
    for (int i = 0; i < 1200; i++) {
        snprintf(id, sizeof id, "r%07d", i);
        kit_list(kit, id, 1, "{\"x\":1}");
    }
    kit_settle(kit, "copy", UINT64_MAX);
    kit->config.primary = NULL;
    kit->config.found = NULL;
    repair(kit, 1200, 0);
    kit_run(kit);
    assert_int_equal(kit->result.equal, 1200);
}

/* As through a gateway: the batch goes as text, and the answer comes back as text. */
static int gateway_calls;

static int write_elsewhere(void *context, const struct batch *batch, struct sink_result *results,
                           struct diag *diag)
{
    struct kit *kit = context;
    struct buf body = {0}, answer = {0};
    struct batch parsed;
    struct sink_result *theirs = mem_alloc(batch->n * sizeof *theirs);
    if (gateway_calls++ == 0)
        return mem_free(theirs), diag_set(diag, WEIR_UNAVAILABLE, "not yet");
    for (size_t i = 0; i < batch->n; i++)
        repair_line(&body, &batch->records[i]);
    batch_init(&parsed);
    if (repair_parse(buf_slice(&body), 0, &parsed, diag) != 0)
        fail_msg("%s", diag->text);
    repair_write(kit->writers[COPY], &parsed, theirs);
    if (gateway_calls == 2) /* one of them not now */
        sink_result_set(&theirs[0], OUTCOME_RETRY, "busy");
    repair_answer(theirs, parsed.n, &answer);
    assert_int_equal(repair_answer_read(buf_slice(&answer), results, batch->n), 0);
    batch_fini(&parsed);
    buf_fini(&body);
    buf_fini(&answer);
    mem_free(theirs);
    return 0;
}

static void a_running_gateway_writes_it(void **state)
{
    struct kit *kit = *state;
    kit_put_many(kit, MAIN, 700, "p");
    kit->config.write = write_elsewhere;
    kit->config.found = NULL;
    repair(kit, 700, 0);
    assert_int_equal(gateway_calls, 4); /* away, one retry, then both batches */
    kit_run(kit);
    assert_int_equal(kit->result.equal, 700);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(the_newest_record_of_the_log_is_written),
        KIT_TEST(what_the_log_no_longer_has_comes_from_the_primary),
        KIT_TEST(an_older_version_is_no_repair),
        KIT_TEST(the_primary_is_repaired_from_the_log_alone),
        KIT_TEST(lag_is_left_to_its_consumer),
        KIT_TEST(what_the_store_refuses_is_not_repairable),
        KIT_TEST(many_from_the_log_in_several_batches),
        KIT_TEST(a_running_gateway_writes_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
