/* A batch in SQLite: versions, refused records of each kind, triggers, what a commit says. */
#include "record/attributes.h"
#include "sqlite_kit.h"

#define TABLE                                                                                      \
    "CREATE TABLE events(id TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, version INTEGER NOT "    \
    "NULL, doc TEXT NOT NULL, attributes TEXT"

static void an_older_version_never_replaces_a_newer(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 10, "{\"n\":10}");
    kit_put(kit, "a", 9, "{\"n\":9}"); /* superseded: counts as stored */
    kit_expect(kit, "a", 10, "{\"n\":10}");
    kit_put(kit, "a", 11, "{\"n\":11}");
    kit_expect(kit, "a", 11, "{\"n\":11}");
    kit_put(kit, "a", 11, "{\"n\":\"again\"}"); /* equal replaces */
    kit_expect(kit, "a", 11, "{\"n\":\"again\"}");
    kit_put(kit, "a", INT64_MAX, "{}");
    kit_expect(kit, "a", INT64_MAX, "{}");
    assert_int_equal(kit_count(kit), 1);
}

static void a_replacement_replaces_key_and_attributes_too(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    struct buf attributes = {0};
    attributes_put(&attributes, SLICE_LIT("traceparent"), SLICE_LIT("00-\"x\""));
    kit_add_slices(kit, 0, SLICE_LIT("a"), SLICE_LIT("k1"), 1, SLICE_LIT("{}"),
                   buf_slice(&attributes));
    assert_int_equal(kit_write(kit), 0);
    assert_string_equal(kit_ask(kit, "SELECT attributes FROM events"),
                        "{\"traceparent\":\"00-\\\"x\\\"\"}");
    kit_add_slices(kit, 0, SLICE_LIT("a"), SLICE_LIT("k2"), 2, SLICE_LIT("{}"), (struct slice){0});
    assert_int_equal(kit_write(kit), 0);
    assert_string_equal(kit_ask(kit, "SELECT typeof(attributes) || key FROM events"), "nullk2");
    buf_fini(&attributes);
}

static void a_batch_is_one_transaction(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    char id[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(id, sizeof id, "r%05d", i);
        kit_add(kit, id, 5, "{\"x\":1}");
    }
    int before = ((struct sqlite_session *)kit->writer)->wal_frames;
    assert_int_equal(kit_write(kit), 0);
    assert_true(((struct sqlite_session *)kit->writer)->wal_frames - before < 200);
    for (int i = 0; i < 2000; i++)
        assert_int_equal(kit->results[i].outcome, OUTCOME_STORED);
    assert_int_equal(kit_count(kit), 2000);
}

static void an_empty_batch_is_nothing(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    assert_int_equal(kit_write(kit), 0);
    assert_int_equal(kit_count(kit), 0);
}

/* Writes n records, those with number % 10 == 3 poisoned in their doc; checks that only they are
 * refused, each with `reason`. */
static void expect_only_poison_refused(struct kit *kit, size_t n, const char *reason)
{
    char id[16], doc[64];
    for (size_t i = 0; i < n; i++) {
        snprintf(id, sizeof id, "r%04zu", i);
        snprintf(doc, sizeof doc, "{\"n\":%zu,\"x\":\"%s\"}", i, i % 10 == 3 ? "poison" : "fine");
        kit_add(kit, id, 100, doc);
    }
    if (kit_write(kit) != 0)
        fail_msg("%s", kit->diag.text);
    for (size_t i = 0; i < n; i++) {
        snprintf(id, sizeof id, "r%04zu", i);
        if (i % 10 == 3) {
            assert_int_equal(kit->results[i].outcome, OUTCOME_REFUSED);
            if (!strstr(kit->results[i].reason, reason))
                fail_msg("the reason is: %s", kit->results[i].reason);
            kit_expect_none(kit, id);
        } else {
            assert_int_equal(kit->results[i].outcome, OUTCOME_STORED);
            assert_string_equal(kit->results[i].reason, "");
        }
    }
    assert_int_equal(kit_count(kit), n - (n + 6) / 10);
}

struct refusal {
    const char *sql, *reason;
};

#define TRIGGER(when, what)                                                                        \
    TABLE ");CREATE TABLE trace(id); CREATE TRIGGER refuse " when                                  \
          " INSERT ON events WHEN NEW.doc LIKE '%poison%' BEGIN INSERT INTO trace "                \
          "VALUES(NEW.id); " what "; END"

static const struct refusal refusals[] = {
    {TABLE ", CHECK (doc NOT LIKE '%poison%'))", "CHECK"},
    {TABLE ", x GENERATED ALWAYS AS (iif(doc LIKE '%poison%', NULL, 1)) STORED NOT NULL)",
     "NOT NULL"},
    {TABLE ", CHECK (iif(doc LIKE '%poison%', json('{'), 1) IS NOT NULL))", "malformed JSON"},
    {TABLE ", CHECK (iif(doc LIKE '%poison%', abs(-9223372036854775808), 1)))", "overflow"},
    {TABLE ", CHECK (iif(doc LIKE '%poison%', length(zeroblob(2000000000)), 1)))", "too big"},
    {TRIGGER("BEFORE", "SELECT RAISE(ABORT, 'told to abort')"), "told to abort"},
    {TRIGGER("BEFORE", "SELECT RAISE(FAIL, 'told to fail')"), "told to fail"},
    {TRIGGER("BEFORE", "SELECT RAISE(ROLLBACK, 'told to roll back')"), "told to roll back"},
    {TRIGGER("BEFORE", "SELECT RAISE(IGNORE)"), "ignored"},
    {TRIGGER("AFTER", "SELECT RAISE(ABORT, 'told to abort')"), "told to abort"},
    {TRIGGER("AFTER", "SELECT RAISE(FAIL, 'told to fail')"), "told to fail"},
    {TRIGGER("AFTER", "SELECT RAISE(ROLLBACK, 'told to roll back')"), "told to roll back"},
    {"PRAGMA foreign_keys = ON; CREATE TABLE parents(name TEXT PRIMARY KEY);"
     "INSERT INTO parents VALUES('fine');" TABLE
     ", parent GENERATED ALWAYS AS (json_extract(doc, '$.x')) STORED REFERENCES parents)",
     "FOREIGN KEY"},
    {TABLE ", CHECK (doc NOT LIKE '%poison%') ON CONFLICT IGNORE)", "CHECK"},
};

static void a_record_that_sqlite_refuses_fails_alone(void **state)
{
    struct kit *kit = *state;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        kit_beside(kit, refusals[i].sql);
        kit_open(kit);
        expect_only_poison_refused(kit, 200, refusals[i].reason);
        /* nothing of a refused record stays, whatever its trigger did before */
        if (strstr(refusals[i].sql, "trace"))
            assert_string_equal(kit_ask(kit, "SELECT count(*) FROM trace"), "0");
        kit_close(kit);
        kit_remove_tree(kit->folder);
        mkdir(kit->folder, 0700);
    }
}

static void another_unique_column_refuses_the_second(void **state)
{
    struct kit *kit = *state;
    kit_beside(kit, TABLE ", u GENERATED ALWAYS AS (json_extract(doc, '$.u')) STORED UNIQUE)");
    kit_open(kit);
    kit_add(kit, "a", 1, "{\"u\":1}");
    kit_add(kit, "b", 1, "{\"u\":2}");
    kit_add(kit, "c", 1, "{\"u\":1}");
    assert_int_equal(kit_write(kit), 0);
    assert_int_equal(kit->results[0].outcome, OUTCOME_STORED);
    assert_int_equal(kit->results[1].outcome, OUTCOME_STORED);
    assert_int_equal(kit->results[2].outcome, OUTCOME_REFUSED);
    assert_non_null(strstr(kit->results[2].reason, "UNIQUE"));
    assert_int_equal(kit_count(kit), 2);
}

static void a_single_record_is_refused_by_itself(void **state)
{
    struct kit *kit = *state;
    kit_beside(kit, TRIGGER("AFTER", "SELECT RAISE(ROLLBACK, 'no')"));
    kit_open(kit);
    kit_add(kit, "a", 1, "{\"x\":\"poison\"}");
    assert_int_equal(kit_write(kit), 0);
    assert_int_equal(kit->results[0].outcome, OUTCOME_REFUSED);
    assert_string_equal(kit->results[0].reason, "no");
    kit_put(kit, "b", 1, "{}");
}

static void every_record_rolls_back(void **state)
{
    struct kit *kit = *state;
    kit_beside(kit, TRIGGER("AFTER", "SELECT RAISE(ROLLBACK, 'no')"));
    kit_open(kit);
    char id[16];
    for (int i = 0; i < 500; i++) {
        snprintf(id, sizeof id, "%d", i);
        kit_add(kit, id, 1, i % 2 ? "{\"x\":\"poison\"}" : "{}");
    }
    assert_int_equal(kit_write(kit), 0);
    for (int i = 0; i < 500; i++)
        assert_int_equal(kit->results[i].outcome, i % 2 ? OUTCOME_REFUSED : OUTCOME_STORED);
    assert_int_equal(kit_count(kit), 250);
}

static const char deferred[] =
    "CREATE TABLE parents(name TEXT PRIMARY KEY); INSERT INTO parents VALUES('fine');" TABLE
    ", parent GENERATED ALWAYS AS (json_extract(doc, '$.x')) STORED REFERENCES parents DEFERRABLE "
    "INITIALLY DEFERRED)";

static void a_commit_that_is_refused_names_no_row(void **state)
{
    struct kit *kit = *state;
    kit_beside(kit, deferred);
    kit_open(kit);
    for (int i = 0; i < 3; i++) {
        char id[4] = {(char)('a' + i)};
        kit_add(kit, id, 1, i == 1 ? "{\"x\":\"nobody\"}" : "{\"x\":\"fine\"}");
    }
    assert_int_equal(kit_write(kit), WEIR_REFUSED);
    assert_non_null(strstr(kit->diag.text, "FOREIGN KEY"));
    assert_int_equal(kit_count(kit), 0);
    /* bisected down to one, the record itself is refused */
    kit_add(kit, "b", 1, "{\"x\":\"nobody\"}");
    assert_int_equal(kit_write(kit), 0);
    assert_int_equal(kit->results[0].outcome, OUTCOME_REFUSED);
    assert_non_null(strstr(kit->results[0].reason, "FOREIGN KEY"));
    kit_put(kit, "a", 1, "{\"x\":\"fine\"}");
    assert_int_equal(kit_count(kit), 1);
}

static void streams_have_tables_of_their_own(void **state)
{
    struct kit *kit = *state;
    kit->streams[1] = (struct sink_stream){7, "orders"};
    kit->config.n_streams = 2;
    kit_open(kit);
    kit_add(kit, "a", 1, "{\"s\":0}");
    kit_add_slices(kit, 7, SLICE_LIT("a"), SLICE_LIT("k"), 2, SLICE_LIT("{\"s\":7}"),
                   (struct slice){0});
    assert_int_equal(kit_write(kit), 0);
    kit_expect(kit, "a", 1, "{\"s\":0}");
    struct sink_row row;
    assert_int_equal(kit->sink->ops->read(kit->reader, 7, SLICE_LIT("a"), &row, &kit->diag), 0);
    assert_true(slice_is(row.doc, "{\"s\":7}"));
}

/* Such as a dead letter of a stream that went to it once. */
static void a_stream_that_does_not_go_to_it_is_refused(void **state)
{
    struct kit *kit = *state;
    struct sink_row row;
    uint64_t n;
    kit_open(kit);
    kit_add(kit, "a", 1, "{}");
    kit_add_slices(kit, 5, SLICE_LIT("b"), SLICE_LIT("k"), 1, SLICE_LIT("{}"), (struct slice){0});
    kit_add(kit, "c", 1, "{}");
    assert_int_equal(kit_write(kit), 0);
    assert_int_equal(kit->results[0].outcome, OUTCOME_STORED);
    assert_int_equal(kit->results[1].outcome, OUTCOME_REFUSED);
    assert_non_null(strstr(kit->results[1].reason, "stream"));
    assert_int_equal(kit->results[2].outcome, OUTCOME_STORED);
    assert_int_equal(kit->sink->ops->read(kit->reader, 5, SLICE_LIT("b"), &row, &kit->diag),
                     WEIR_INVALID);
    assert_int_equal(kit->sink->ops->count(kit->reader, 5, &n, &kit->diag), WEIR_INVALID);
    assert_int_equal(kit->sink->ops->remove(kit->writer, 5, SLICE_LIT("b"), &kit->diag),
                     WEIR_INVALID);
    assert_int_equal(kit_count(kit), 2);
}

static void rows_of_an_owner_without_versions_are_replaced(void **state)
{
    struct kit *kit = *state;
    kit_beside(kit, "CREATE TABLE events(id TEXT UNIQUE, key TEXT, version INTEGER, doc TEXT);"
                    "INSERT INTO events VALUES('a', NULL, NULL, 'old')");
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_expect(kit, "a", 1, "{}");
}

static void a_table_that_loses_a_column_refuses_no_record(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_beside(kit, "ALTER TABLE events RENAME COLUMN doc TO document");
    for (int i = 0; i < 3; i++) {
        kit_add(kit, "b", 2, "{}");
        assert_int_equal(kit_write(kit), WEIR_UNAVAILABLE);
        assert_non_null(strstr(kit->diag.text, "doc"));
    }
    kit_beside(kit, "ALTER TABLE events RENAME COLUMN document TO doc");
    kit_put_retrying(kit, "b", 2, "{}");
    assert_int_equal(kit_count(kit), 2);
}

static void a_table_that_was_dropped_comes_back(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_beside(kit, "DROP TABLE events");
    assert_true(kit_put_retrying(kit, "b", 2, "{}") > 1);
    kit_expect(kit, "b", 2, "{}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(an_older_version_never_replaces_a_newer),
        KIT_TEST(a_replacement_replaces_key_and_attributes_too),
        KIT_TEST(a_batch_is_one_transaction),
        KIT_TEST(an_empty_batch_is_nothing),
        KIT_TEST(a_record_that_sqlite_refuses_fails_alone),
        KIT_TEST(another_unique_column_refuses_the_second),
        KIT_TEST(a_single_record_is_refused_by_itself),
        KIT_TEST(every_record_rolls_back),
        KIT_TEST(a_commit_that_is_refused_names_no_row),
        KIT_TEST(streams_have_tables_of_their_own),
        KIT_TEST(a_stream_that_does_not_go_to_it_is_refused),
        KIT_TEST(rows_of_an_owner_without_versions_are_replaced),
        KIT_TEST(a_table_that_loses_a_column_refuses_no_record),
        KIT_TEST(a_table_that_was_dropped_comes_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
