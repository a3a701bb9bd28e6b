/* The SQLite sink's configuration and tables: names, columns, versions; what is wrong is named. */
#include "sqlite_kit.h"

static void expect_bad(struct kit *kit, const char *name, const char *value, const char *says)
{
    memset(kit->options, 0, sizeof kit->options);
    kit->options[0] = (struct sink_option){name, value, 31};
    kit->diag = (struct diag){0};
    assert_int_equal(sink_sqlite.check(&kit->config, &kit->diag), WEIR_INVALID);
    if (!strstr(kit->diag.text, says) || !strstr(kit->diag.text, name) ||
        !strstr(kit->diag.text, "line 31"))
        fail_msg("%s: %s: it says: %s", name, value, kit->diag.text);
}

static void bad_options_are_named(void **state)
{
    struct kit *kit = *state;
    char longer[700];
    memset(longer, 'x', sizeof longer);
    longer[sizeof longer - 1] = '\0';
    expect_bad(kit, "path", "", "path of a file");
    expect_bad(kit, "path", ":memory:", ":memory:");
    expect_bad(kit, "path", "file:x?mode=memory", "file:");
    expect_bad(kit, "path", "folder/", "directory");
    expect_bad(kit, "path", longer, "500");
    expect_bad(kit, "table", "", "empty");
    expect_bad(kit, "table", "sqlite_x", "SQLite's own");
    expect_bad(kit, "table", "{Stream}", "{stream}");
    expect_bad(kit, "table", "a{", "{stream}");
    expect_bad(kit, "record", "", "column");
    expect_bad(kit, "record", "ID", "another column");
    expect_bad(kit, "record", "attributes", "another column");
    expect_bad(kit, "busy_timeout", "250", "duration");
    expect_bad(kit, "busy_timeout", "2m", "minute");
    kit->streams[1] = (struct sink_stream){1, "orders"};
    kit->config.n_streams = 2;
    expect_bad(kit, "table", "one", "{stream}");
    kit->streams[1].name = "EVENTS"; /* SQLite's names have no case */
    expect_bad(kit, "table", "{stream}", "EVENTS");
    kit->streams[1].name = "other";
    memset(kit->options, 0, sizeof kit->options);
    assert_int_equal(sink_sqlite.check(&kit->config, &kit->diag), 0);
}

static void the_file_and_table_that_it_makes(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    assert_string_equal(kit_ask(kit, "PRAGMA user_version"), "1");
    assert_string_equal(kit_ask(kit, "PRAGMA application_id"), "2003134834");
    assert_string_equal(kit_ask(kit, "PRAGMA journal_mode"), "wal");
    assert_string_equal(kit_ask(kit, "SELECT group_concat(name || ' ' || type, ',') FROM "
                                     "pragma_table_info('events')"),
                        "id TEXT,key TEXT,version INTEGER,doc TEXT,attributes TEXT");
    sqlite3 *db = ((struct sqlite_session *)kit->writer)->db;
    sqlite3_stmt *statement;
    assert_int_equal(sqlite3_prepare_v2(db, "PRAGMA synchronous", -1, &statement, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_step(statement), SQLITE_ROW);
    assert_int_equal(sqlite3_column_int(statement, 0), 2); /* FULL */
    sqlite3_finalize(statement);
    kit_put(kit, "a", 1, "{}");
    kit_close(kit);
    kit_open(kit); /* again, as it is */
    kit_expect(kit, "a", 1, "{}");
}

static void a_newer_schema_is_refused(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_close(kit);
    kit_beside(kit, "PRAGMA user_version = 2");
    assert_int_equal(kit_open_fails(kit), WEIR_NEWER);
    assert_non_null(strstr(kit->diag.text, "version 2"));
    kit->config.read_only = true;
    assert_int_equal(kit_open_fails(kit), WEIR_NEWER);
    kit->config.read_only = false;
    kit_beside(kit, "PRAGMA user_version = 0");
    assert_int_equal(kit_open_fails(kit), WEIR_INVALID);
    kit_beside(kit, "PRAGMA user_version = 1");
    kit_open(kit);
    kit_expect(kit, "a", 1, "{}");
    kit_close(kit);
    unlink(kit_path(kit, "main.db"));
    kit_beside(kit, "PRAGMA user_version = 9"); /* no table at all, but a version */
    assert_int_equal(kit_open_fails(kit), WEIR_NEWER);
}

static void an_owner_keeps_his_versions_and_tables(void **state)
{
    struct kit *kit = *state;
    kit_beside(kit, "CREATE TABLE shop(x); PRAGMA user_version = 42; PRAGMA application_id = 5;"
                    "CREATE TABLE events(n INTEGER PRIMARY KEY, ID text unique, Version int, Key "
                    "varchar(20), DOC blob, more text default 'x')");
    kit_open(kit);
    kit_put(kit, "007", 1, "{\"a\":1}");
    kit_expect(kit, "007", 1, "{\"a\":1}");
    assert_string_equal(kit_ask(kit, "PRAGMA user_version"), "42");
    assert_string_equal(kit_ask(kit, "PRAGMA application_id"), "5");
    assert_string_equal(kit_ask(kit, "SELECT typeof(id) || typeof(doc) || more FROM events"),
                        "texttextx");
}

static void tables_that_will_not_do(void **state)
{
    struct kit *kit = *state;
    const struct {
        const char *sql, *says;
    } bad[] = {
        {"TABLE events(key TEXT, version INTEGER, doc TEXT)", "no column \"id\""},
        {"TABLE events(id TEXT PRIMARY KEY, version INTEGER, doc TEXT)", "no column \"key\""},
        {"TABLE events(id TEXT PRIMARY KEY, key TEXT, doc TEXT)", "no column \"version\""},
        {"TABLE events(id TEXT PRIMARY KEY, key TEXT, version INTEGER)", "no column \"doc\""},
        {"TABLE events(id TEXT, key TEXT, version INTEGER, doc TEXT)", "unique"},
        {"TABLE events(id TEXT, key TEXT, version INTEGER, doc TEXT, PRIMARY KEY(id, key))",
         "unique"},
        {"TABLE events(id INTEGER PRIMARY KEY, key TEXT, version INTEGER, doc TEXT)", "\"id\" is"},
        {"TABLE events(id TEXT PRIMARY KEY COLLATE NOCASE, key TEXT, version INTEGER, doc TEXT)",
         "NOCASE"},
        {"TABLE events(id TEXT PRIMARY KEY, key NUMERIC, version INTEGER, doc TEXT)",
         "\"key\" is NUMERIC"},
        {"TABLE events(id TEXT PRIMARY KEY, key TEXT, version TEXT, doc TEXT)", "integers"},
        {"TABLE events(id TEXT PRIMARY KEY, key TEXT, version REAL, doc TEXT)", "integers"},
        {"TABLE events(id TEXT PRIMARY KEY, key TEXT, version INTEGER, doc BLOB) STRICT",
         "\"doc\" is BLOB"},
        {"TABLE events(id TEXT PRIMARY KEY, key TEXT, version INTEGER, doc TEXT AS (id))",
         "generated"},
        {"TABLE events(id TEXT PRIMARY KEY, key TEXT, version INTEGER, doc TEXT, at TEXT NOT NULL)",
         "\"at\" is NOT NULL"},
        {"VIEW events AS SELECT 1 AS id, 2 AS key, 3 AS version, 4 AS doc", "view"},
        {"VIRTUAL TABLE events USING fts5(id, key, version, doc)", "virtual"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        char *sql = mem_printf("CREATE %s", bad[i].sql);
        kit_beside(kit, sql);
        mem_free(sql);
        assert_int_equal(kit_open_fails(kit), WEIR_INVALID);
        if (!strstr(kit->diag.text, bad[i].says) || !strstr(kit->diag.text, "main.db"))
            fail_msg("%s: it says: %s", bad[i].sql, kit->diag.text);
        kit_remove_tree(kit->folder);
        mkdir(kit->folder, 0700);
    }
    kit_beside(kit, "PRAGMA encoding = 'UTF-16le'; CREATE TABLE x(y)"); /* another order of ids */
    assert_int_equal(kit_open_fails(kit), WEIR_UNSUPPORTED);
}

static void strict_and_keyed_tables_will_do(void **state)
{
    struct kit *kit = *state;
    const char *const good[] = {
        "TABLE events(id TEXT PRIMARY KEY, key ANY, version INTEGER, doc TEXT) STRICT",
        "TABLE events(id TEXT PRIMARY KEY, key, version, doc) WITHOUT ROWID",
        "TABLE events(x INTEGER PRIMARY KEY, id CLOB UNIQUE, key TEXT, version BIGINT, doc CHAR)",
    };
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        char *sql = mem_printf("CREATE %s", good[i]);
        kit_beside(kit, sql);
        mem_free(sql);
        kit_open(kit);
        kit_put(kit, "1.0", 1, "{}");
        kit_put(kit, "01", 1, "{}");
        kit_put(kit, "1.0", 2, "{\"a\":2}");
        kit_expect(kit, "1.0", 2, "{\"a\":2}");
        assert_int_equal(kit_count(kit), 2);
        kit_close(kit);
        kit_remove_tree(kit->folder);
        mkdir(kit->folder, 0700);
    }
}

static void names_with_odd_characters_are_quoted(void **state)
{
    struct kit *kit = *state;
    const char *const names[] = {"a b",    "a\"b\"\"", "a'b", "\xC3\xA9\xF0\x9F\x98\xAD",
                                 "select", "a;--",     "[x]", "`tick`",
                                 "%s",     ""};
    for (size_t i = 0; names[i][0]; i++) {
        kit->streams[0].name = names[i];
        kit_option(kit, "record", names[i]);
        kit_open(kit);
        kit_put(kit, "a", 1, "{\"x\":1}");
        kit_put(kit, "a", 2, "{\"x\":2}");
        kit_expect(kit, "a", 2, "{\"x\":2}");
        assert_int_equal(kit_count(kit), 1);
        kit_close(kit);
    }
}

static void a_template_names_the_tables(void **state)
{
    struct kit *kit = *state;
    kit->streams[1] = (struct sink_stream){5, "orders"};
    kit->config.n_streams = 2;
    kit_option(kit, "table", "weir_{stream}_{stream}");
    kit_open(kit);
    assert_string_equal(
        kit_ask(kit, "SELECT group_concat(name, ',') FROM (SELECT name FROM sqlite_schema WHERE "
                     "type = 'table' ORDER BY name)"),
        "weir_events_events,weir_orders_orders");
}

static void a_stream_that_is_added_gets_its_table(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_close(kit);
    kit->streams[1] = (struct sink_stream){1, "orders"};
    kit->config.n_streams = 2;
    kit->config.read_only = true; /* who may not create says that it is not there */
    assert_int_equal(kit_sink(kit), 0);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, true, &kit->reader, &kit->diag),
                     WEIR_UNAVAILABLE);
    assert_non_null(strstr(kit->diag.text, "orders"));
    assert_int_equal(kit->sink->ops->session_open(kit->sink, false, &kit->writer, &kit->diag),
                     WEIR_DENIED);
    kit_close(kit);
    kit->config.read_only = false;
    kit_open(kit);
    kit_expect(kit, "a", 1, "{}");
}

static void read_only_creates_nothing(void **state)
{
    struct kit *kit = *state;
    kit->config.read_only = true;
    assert_int_equal(kit_sink(kit), 0);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, true, &kit->reader, &kit->diag),
                     WEIR_UNAVAILABLE);
    assert_non_null(strstr(kit->diag.text, "does not exist"));
    assert_int_equal(access(kit_path(kit, "main.db"), F_OK), -1);
}

static unsigned mode_of(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 ? st.st_mode & 0777 : 0;
}

static void only_its_owner_can_read_what_it_makes(void **state)
{
    struct kit *kit = *state;
    mode_t before = umask(0);
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    umask(before);
    assert_int_equal(mode_of(kit_path(kit, "main.db")), 0600);
    assert_int_equal(mode_of(kit_path(kit, "main.db-wal")), 0600);
    assert_int_equal(mode_of(kit_path(kit, "main.db-shm")), 0600);
}

/* Who gave a group the right to read keeps it. */
static void the_mode_of_a_file_that_is_there_stays(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_close(kit);
    assert_int_equal(chmod(kit_path(kit, "main.db"), 0660), 0);
    kit_open(kit);
    kit_put(kit, "b", 2, "{}");
    assert_int_equal(mode_of(kit_path(kit, "main.db")), 0660);
    assert_int_equal(mode_of(kit_path(kit, "main.db-wal")), 0660);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(bad_options_are_named),
        KIT_TEST(the_file_and_table_that_it_makes),
        KIT_TEST(a_newer_schema_is_refused),
        KIT_TEST(an_owner_keeps_his_versions_and_tables),
        KIT_TEST(tables_that_will_not_do),
        KIT_TEST(strict_and_keyed_tables_will_do),
        KIT_TEST(names_with_odd_characters_are_quoted),
        KIT_TEST(a_template_names_the_tables),
        KIT_TEST(a_stream_that_is_added_gets_its_table),
        KIT_TEST(read_only_creates_nothing),
        KIT_TEST(only_its_owner_can_read_what_it_makes),
        KIT_TEST(the_mode_of_a_file_that_is_there_stays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
