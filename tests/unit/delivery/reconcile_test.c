/* Reconcile: finds each kind of difference, against the primary and against an id list, and tells
 * apart what is only late. */
#include "reconcile_kit.h"

static void equal_stores_are_equal(void **state)
{
    struct kit *kit = *state;
    kit_run(kit);
    kit_expect(kit, 0, 0, 0, 0, 0, 0);
    kit_put_many(kit, MAIN, 1500, "p");
    kit_put_many(kit, COPY, 1500, "p");
    kit_put(kit, MAIN, "text", 1, "{\"a\":1,\"b\":[1.0]}");
    kit_put(kit, COPY, "text", 1, " {\"b\" : [1e0], \"\\u0061\":1}"); /* the same, as JSON */
    kit_run(kit);
    kit_expect(kit, 1501, 1501, 0, 0, 0, 0);
}

static void each_kind_of_difference_is_found(void **state)
{
    struct kit *kit = *state;
    kit_put_many(kit, MAIN, 1200, "p");
    kit_put_many(kit, COPY, 1200, "p");
    kit_sql(kit, "copy",
            "DELETE FROM events WHERE id IN ('p0000000', 'p0000600', 'p0001199');"
            "UPDATE events SET doc = '{\"x\":2}' WHERE id = 'p0000001';"
            "UPDATE events SET doc = 'no JSON' WHERE id = 'p0000002';"
            "UPDATE events SET version = 0 WHERE id = 'p0000003';"
            "INSERT INTO events(id, key, version, doc) VALUES ('a', 'k', 5, '{}'), ('z', 'k', 5, "
            "'{}'), ('p0000600x', 'k', 5, '{}')");
    kit_run(kit);
    kit_expect(kit, 1200, 1194, 3, 3, 3, 0);
    kit_expect_found(kit, DIFFERENCE_MISSING, "p0000000", "version 1 is not there");
    kit_expect_found(kit, DIFFERENCE_MISSING, "p0000600", "not there");
    kit_expect_found(kit, DIFFERENCE_MISSING, "p0001199", "not there");
    kit_expect_found(kit, DIFFERENCE_CONTENT, "p0000001", "other content");
    kit_expect_found(kit, DIFFERENCE_CONTENT, "p0000002", "not JSON");
    kit_expect_found(kit, DIFFERENCE_CONTENT, "p0000003", "version 0 is older than 1");
    kit_expect_found(kit, DIFFERENCE_EXTRA, "a", "version 5");
    kit_expect_found(kit, DIFFERENCE_EXTRA, "z", "not in the primary");
    kit_expect_found(kit, DIFFERENCE_EXTRA, "p0000600x", "version 5");
}

static void a_store_that_is_ahead_is_fine(void **state)
{
    struct kit *kit = *state;
    kit_put(kit, MAIN, "a", 5, "{\"n\":5}");
    kit_put(kit, COPY, "a", 6, "{\"n\":6}");
    kit_run(kit);
    kit_expect(kit, 1, 1, 0, 0, 0, 0);
    kit_list(kit, "a", 4, "{\"n\":4}");
    kit_run(kit);
    kit_expect(kit, 1, 1, 0, 0, 0, 0);
}

static void ids_that_are_nearly_the_same(void **state)
{
    struct kit *kit = *state;
    static const char *const ids[] = {
        "a",
        "A",
        "aa",
        "aaa",
        "a ",
        " a",
        "a'",
        "a\"",
        "%",
        "_",
        "a%",
        "1",
        "01",
        "1.0",
        "1e0",
        "\x01",
        "\xC3\xA9",
        "e\xCC\x81",
        "\xC3\x89",
        "\xF0\x9F\x98\xAD",
        "\xEF\xBF\xBF",
        "ab\xC3\xA9",
        "ab",
    };
    size_t n = sizeof ids / sizeof ids[0];
    for (size_t i = 0; i < n; i++)
        kit_put_both(kit, ids[i], i + 1, "{}");
    kit_run(kit);
    kit_expect(kit, n, n, 0, 0, 0, 0);
    /* each of them missing once, while all that resemble it are there */
    for (size_t i = 0; i < n; i++) {
        struct sink_session *writer = kit->writers[COPY];
        assert_int_equal(writer->ops->remove(writer, 0, slice_of(ids[i]), &kit->diag), 0);
        kit_run(kit);
        kit_expect(kit, n, n - 1, 1, 0, 0, 0);
        kit_expect_found(kit, DIFFERENCE_MISSING, ids[i], "not there");
        kit_put(kit, COPY, ids[i], i + 1, "{}");
    }
    for (size_t i = 0; i < n; i++)
        kit_list(kit, ids[i], i + 1, "{}");
    kit_run(kit);
    kit_expect(kit, n, n, 0, 0, 0, 0);
}

static void a_list_says_as_much_as_it_knows(void **state)
{
    struct kit *kit = *state;
    kit->config.primary = NULL;
    kit_put(kit, COPY, "presence", 1, "{\"n\":1}");
    kit_put(kit, COPY, "version", 7, "{\"n\":1}");
    kit_put(kit, COPY, "older", 7, "{\"n\":1}");
    kit_put(kit, COPY, "content", 7, "{\"n\":1}");
    kit_put(kit, COPY, "other", 7, "{\"n\":1}");
    kit_put(kit, COPY, "not listed", 7, "{\"n\":1}");
    kit_list(kit, "presence", 0, NULL);
    kit_list(kit, "version", 7, NULL);
    kit_list(kit, "older", 8, NULL);
    kit_list(kit, "content", 7, "{ \"n\" : 1 }");
    kit_list(kit, "other", 7, "{\"n\":1.0}");
    kit_list(kit, "gone", 0, NULL);
    kit_list(kit, "gone too", 3, NULL);
    kit_run(kit);
    kit_expect(kit, 7, 3, 2, 0, 2, 0);
    kit_expect_found(kit, DIFFERENCE_CONTENT, "older", "version 7 is older than 8");
    kit_expect_found(kit, DIFFERENCE_CONTENT, "other", "other content");
    kit_expect_found(kit, DIFFERENCE_MISSING, "gone", "it is not there");
    kit_expect_found(kit, DIFFERENCE_MISSING, "gone too", "version 3");
}

static void a_short_list_is_looked_up_in_a_large_store(void **state)
{
    struct kit *kit = *state;
    kit_put_many(kit, COPY, 4000, "p");
    kit_list(kit, "p0003999", 1, "{\"x\":1}");
    kit_list(kit, "p0000000", 1, "{\"x\":1}");
    kit_list(kit, "p0000500", 2, NULL);
    kit_list(kit, "p00005001", 1, NULL);
    kit_list(kit, "P0000501", 1, NULL);
    kit_run(kit);
    kit_expect(kit, 5, 2, 2, 0, 1, 0);
    kit_expect_found(kit, DIFFERENCE_CONTENT, "p0000500", "older");
    kit_expect_found(kit, DIFFERENCE_MISSING, "p00005001", "not there");
    kit_expect_found(kit, DIFFERENCE_MISSING, "P0000501", "not there");
}

static void more_suspects_than_are_held_at_once(void **state)
{
    struct kit *kit = *state;
    kit->config.suspects_max = 7;
    kit_put_many(kit, MAIN, 200, "p");
    kit_run(kit);
    kit_expect(kit, 200, 0, 200, 0, 0, 0);
    kit->config.repair = true;
    kit_run(kit);
    assert_int_equal(kit->result.repaired, 200);
    kit->config.repair = false;
    kit_run(kit);
    kit_expect(kit, 200, 200, 0, 0, 0, 0);
}

static void what_waits_in_the_log_is_lag(void **state)
{
    struct kit *kit = *state;
    uint64_t settled = kit_log(kit, "lost", 1, "{}", 0); /* behind the cursor: not an excuse */
    kit_put(kit, MAIN, "lost", 1, "{}");
    kit_settle(kit, "copy", settled);
    kit_log(kit, "late", 2, "{}", 1);
    kit_put(kit, MAIN, "late", 2, "{}");
    kit_log(kit, "stale", 3, "{\"n\":3}", 1);
    kit_put(kit, MAIN, "stale", 3, "{\"n\":3}");
    kit_put(kit, COPY, "stale", 1, "{\"n\":1}");
    kit_log(kit, "too old", 4, "{}", 0); /* what waits is not what is missing */
    kit_put(kit, MAIN, "too old", 5, "{}");
    kit_log(kit, "LATE", 6, "{}", 0); /* another id */
    kit_put(kit, MAIN, "other", 6, "{}");
    kit_run(kit);
    kit_expect(kit, 5, 0, 3, 0, 0, 2);
    kit_expect_found(kit, DIFFERENCE_LAG, "late", "waits in the log");
    kit_expect_found(kit, DIFFERENCE_LAG, "stale", "waits in the log");
    kit_expect_found(kit, DIFFERENCE_MISSING, "lost", "version 1");
    kit_expect_found(kit, DIFFERENCE_MISSING, "too old", "version 5");
    kit_expect_found(kit, DIFFERENCE_MISSING, "other", "version 6");
    /* the same with a list, and when the cursor has passed them */
    kit_list(kit, "late", 2, NULL);
    kit_list(kit, "lost", 1, NULL);
    kit_run(kit);
    kit_expect(kit, 2, 0, 1, 0, 0, 1);
    kit_settle(kit, "copy", UINT64_MAX);
    kit_run(kit);
    kit_expect(kit, 2, 0, 2, 0, 0, 0);
}

static void what_the_primary_has_yet_to_get_is_lag(void **state)
{
    struct kit *kit = *state;
    uint64_t settled = kit_log(kit, "ghost", 1, "{}", 0);
    kit_settle(kit, "main", settled);
    kit_put(kit, COPY, "ghost", 1, "{}");
    kit_log(kit, "fast", 2, "{}", 0);
    kit_put(kit, COPY, "fast", 2, "{}");
    kit_run(kit);
    kit_expect(kit, 0, 0, 0, 1, 0, 1);
    kit_expect_found(kit, DIFFERENCE_LAG, "fast", "primary");
    kit_expect_found(kit, DIFFERENCE_EXTRA, "ghost", "not in the primary");
}

/* A sink that gets a delivery between the scan and the second look. */
static struct kit *meanwhile;
static struct sink_ops busy_ops;
static const struct sink_ops *real_ops;

static int scan_and_deliver(struct sink_session *session, uint32_t stream, struct slice after,
                            int (*visit)(void *context, const struct sink_row *row), void *context,
                            struct diag *diag)
{
    int rc = real_ops->scan(session, stream, after, visit, context, diag);
    kit_put(meanwhile, COPY, "delivered", 7, "{\"n\":7}");
    kit_put(meanwhile, COPY, "newer", 9, "{\"n\":9}");
    kit_put(meanwhile, COPY, "worse", 7, "{\"n\":\"worse\"}");
    return rc;
}

static void what_is_delivered_meanwhile_is_not_missing(void **state)
{
    struct kit *kit = *state;
    meanwhile = kit;
    real_ops = kit->sinks[COPY]->ops;
    busy_ops = *real_ops;
    busy_ops.scan = scan_and_deliver;
    for (int i = 0; i < 2; i++) {
        const char *const ids[] = {"delivered", "newer", "worse"};
        for (int k = 0; k < 3; k++) {
            if (i == 0)
                kit_put(kit, MAIN, ids[k], 7, "{\"n\":7}");
            else
                kit_list(kit, ids[k], 7, "{\"n\":7}");
        }
        kit->sinks[COPY]->ops = &busy_ops;
        kit_run(kit);
        kit->sinks[COPY]->ops = real_ops;
        kit_expect(kit, 3, 2, 0, 0, 1, 0);
        kit_expect_found(kit, DIFFERENCE_CONTENT, "worse", "other content");
        kit_sql(kit, "copy", "DELETE FROM events");
    }
}

/* From another process the cursor is seen a little late. What it calls lag then is watched. */
static void a_cursor_that_is_seen_late_hides_no_loss(void **state)
{
    struct kit *kit = *state;
    struct log_config beside = kit->log_config;
    beside.read_only = true;
    uint64_t first = kit_log(kit, "lost", 1, "{}", 0);
    kit_settle(kit, "copy", first); /* saved when the reader closes */
    kit_log(kit, "lost too", 2, "{}", 0);
    kit_log(kit, "late", 3, "{}", 1);
    kit_list(kit, "lost", 1, NULL);
    kit_list(kit, "lost too", 2, NULL);
    kit_list(kit, "late", 3, NULL);

    struct log_reader *reader;
    struct log_poll_result result;
    struct batch batch;
    batch_init(&batch);
    assert_int_equal(log_reader_open(kit->log, "copy", &reader, &kit->diag), 0);
    while (batch.n < 2)
        assert_int_equal(log_poll(reader, &batch, 1000, 1 << 20, -1, &result), 0);
    log_settle(reader, 0, batch.records[0].offset); /* in memory at once, on disk soon */
    assert_int_equal(log_open("journal", &beside, &kit->config.log, &kit->diag), 0);
    kit->config.settle_ms = 1500;
    kit_run(kit);
    kit_expect(kit, 3, 0, 2, 0, 0, 1);
    kit_expect_found(kit, DIFFERENCE_LAG, "late", "waits");
    log_close(kit->config.log);
    log_reader_close(reader);
    batch_fini(&batch);
}

static void a_dead_letter_is_named(void **state)
{
    struct kit *kit = *state;
    struct dead *dead;
    assert_int_equal(dead_open(fs_posix(), kit->folder, "copy", 1 << 20, false, &dead, &kit->diag),
                     0);
    struct dead_letter letters[2] = {
        {.sink = "copy",
         .stream_name = "events",
         .reason = "poison",
         .record = {.id = SLICE_LIT("dead"),
                    .key = SLICE_LIT("k"),
                    .doc = SLICE_LIT("{}"),
                    .version = 5}},
    };
    letters[1] = letters[0];
    letters[1].record.id = SLICE_LIT("older letter");
    assert_int_equal(dead_add(dead, letters, 2, &kit->diag), 0);
    kit->config.dead = dead;
    kit_list(kit, "dead", 5, NULL);
    kit_list(kit, "older letter", 6, NULL);
    kit_run(kit);
    kit_expect(kit, 2, 0, 2, 0, 0, 0);
    kit_expect_found(kit, DIFFERENCE_MISSING, "dead", "dead letter 1");
    kit_expect_found(kit, DIFFERENCE_MISSING, "older letter", "not there");
    dead_close(dead);
}

static void it_works_without_a_log(void **state)
{
    struct kit *kit = *state;
    kit->config.log = NULL;
    kit_put(kit, MAIN, "a", 1, "{}");
    kit_run(kit);
    kit_expect(kit, 1, 0, 1, 0, 0, 0);
    kit->config.repair = true;
    kit_run(kit);
    assert_int_equal(kit->result.repaired, 1);
    kit_expect_row(kit, COPY, "a", 1, "{}", "k");
}

static void what_cannot_be_compared_says_so(void **state)
{
    struct kit *kit = *state;
    const struct sink_option none = {0};
    struct sink_config config = {.name = "nowhere",
                                 .options = &none,
                                 .streams = &kit_stream,
                                 .n_streams = 1,
                                 .fs = fs_posix(),
                                 .data = kit->folder};
    struct sink *nowhere;
    assert_int_equal(sink_find("null")->open(&config, &nowhere, &kit->diag), 0);
    kit->config.sink = nowhere;
    assert_int_equal(kit_try_run(kit), WEIR_UNSUPPORTED);
    kit_list(kit, "a", 1, NULL);
    assert_int_equal(kit_try_run(kit), WEIR_UNSUPPORTED);
    nowhere->ops->close(nowhere);
    kit->config.sink = kit->sinks[COPY];
    kit->config.primary = NULL;
    buf_clear(&kit->ids);
    assert_int_equal(kit_try_run(kit), WEIR_INVALID);
}

static void a_damaged_log_is_not_guessed_around(void **state)
{
    struct kit *kit = *state;
    kit_log(kit, "a", 1, "{\"pad\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}",
            0);
    kit_put(kit, MAIN, "a", 1, "{}");
    char *doc = mem_printf("{\"pad\":\"%0500000d\"}", 1);
    for (int i = 0; i < 3; i++) /* into the next segments */
        kit_log(kit, "f", 1, doc, 0);
    mem_free(doc);
    char *path = mem_printf("%s/journal/%010d.seg", kit->folder, 1);
    struct fs_file *file;
    assert_int_equal(fs_open(fs_posix(), path, FS_WRITE, &file), 0);
    assert_int_equal(file->fs->pwrite(file, "damage", 6, 4096 + 150), 0);
    fs_close(file);
    mem_free(path);
    assert_int_equal(kit_try_run(kit), WEIR_CORRUPT);
    assert_non_null(strstr(kit->diag.text, "offset"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(equal_stores_are_equal),
        KIT_TEST(each_kind_of_difference_is_found),
        KIT_TEST(a_store_that_is_ahead_is_fine),
        KIT_TEST(ids_that_are_nearly_the_same),
        KIT_TEST(a_list_says_as_much_as_it_knows),
        KIT_TEST(a_short_list_is_looked_up_in_a_large_store),
        KIT_TEST(more_suspects_than_are_held_at_once),
        KIT_TEST(what_waits_in_the_log_is_lag),
        KIT_TEST(what_the_primary_has_yet_to_get_is_lag),
        KIT_TEST(what_is_delivered_meanwhile_is_not_missing),
        KIT_TEST(a_cursor_that_is_seen_late_hides_no_loss),
        KIT_TEST(a_dead_letter_is_named),
        KIT_TEST(it_works_without_a_log),
        KIT_TEST(what_cannot_be_compared_says_so),
        KIT_TEST(a_damaged_log_is_not_guessed_around),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
