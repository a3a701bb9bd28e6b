/* A SQLite database that is locked, read-only, full, deleted, replaced, damaged: the sink says so,
 * loses nothing that it called stored, and goes on by itself. */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "sqlite_kit.h"

#define NOBODY 65534

static struct sqlite_session *writer_of(struct kit *kit)
{
    return (struct sqlite_session *)kit->writer;
}

static int try(struct kit *kit, const char *id)
{
    kit_add(kit, id, 7, "{}");
    return kit_write(kit);
}

static void expect_sound(struct kit *kit)
{
    assert_string_equal(kit_ask(kit, "PRAGMA integrity_check"), "ok");
}

static void a_locked_database_is_tried_again(void **state)
{
    struct kit *kit = *state;
    kit_option(kit, "busy_timeout", "20ms");
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    sqlite3 *stranger = kit_stranger(kit, "main.db");
    const char *const kinds[] = {"BEGIN IMMEDIATE", "BEGIN EXCLUSIVE"};
    for (int i = 0; i < 2; i++) {
        kit_sql(stranger, kinds[i]);
        uint64_t before = clock_mono_ns();
        assert_int_equal(try(kit, "b"), WEIR_UNAVAILABLE);
        assert_true(clock_mono_ns() - before < 2000000000);
        assert_non_null(strstr(kit->diag.text, "database is locked"));
        assert_non_null(strstr(kit->diag.text, "main.db"));
        kit_expect(kit, "a", 1, "{}"); /* readers go on */
        kit_sql(stranger, "ROLLBACK");
        kit_put(kit, "b", 2, "{}");
    }
    sqlite3_close(stranger);
}

static void a_database_that_is_locked_at_the_start_is_no_mistake(void **state)
{
    struct kit *kit = *state;
    kit_option(kit, "busy_timeout", "20ms");
    sqlite3 *stranger = kit_stranger(kit, "main.db");
    kit_sql(stranger, "CREATE TABLE x(y); BEGIN EXCLUSIVE; INSERT INTO x VALUES(1)");
    assert_int_equal(kit_sink(kit), 0);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, false, &kit->writer, &kit->diag),
                     WEIR_UNAVAILABLE);
    assert_non_null(strstr(kit->diag.text, "locked"));
    kit_sql(stranger, "COMMIT");
    sqlite3_close(stranger);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, false, &kit->writer, &kit->diag), 0);
    kit_put(kit, "a", 1, "{}");
}

static void a_full_disk_is_tried_again(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "small", 1, "{}");
    kit_sql(writer_of(kit)->db, "PRAGMA max_page_count = 12");
    char *doc = mem_zalloc(100001);
    memset(doc, ' ', 100000);
    doc[0] = '{';
    doc[99999] = '}';
    for (int i = 0; i < 3; i++) {
        kit_add(kit, "before", 2, "{}");
        kit_add(kit, "large", 2, doc);
        assert_int_equal(kit_write(kit), WEIR_NO_SPACE);
        assert_non_null(strstr(kit->diag.text, "full"));
        kit_expect_none(kit, "before");
    }
    kit_put(kit, "small", 3, "{}");
    kit_sql(writer_of(kit)->db, "PRAGMA max_page_count = 100000");
    kit_put(kit, "large", 2, doc);
    kit_expect(kit, "large", 2, doc);
    expect_sound(kit);
    mem_free(doc);
}

/* Root may write anything: the test becomes somebody else. */
static bool become(uid_t user)
{
    return geteuid() == user || seteuid(user) == 0;
}

static void a_read_only_file_heals(void **state)
{
    struct kit *kit = *state;
    uid_t me = geteuid();
    if (me == 0 && (chown(kit->folder, NOBODY, NOBODY) != 0 || !become(NOBODY)))
        skip();
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_close(kit);
    chmod(kit_path(kit, "main.db"), 0444);
    assert_int_equal(kit_sink(kit), 0);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(kit->sink->ops->session_open(kit->sink, false, &kit->writer, &kit->diag),
                         WEIR_UNAVAILABLE);
        assert_non_null(strstr(kit->diag.text, "readonly"));
        assert_non_null(strstr(kit->diag.text, "make the file"));
    }
    chmod(kit_path(kit, "main.db"), 0644);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, false, &kit->writer, &kit->diag), 0);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, true, &kit->reader, &kit->diag), 0);
    kit_put(kit, "b", 2, "{}");

    /* and under a session that is open: the file comes back as a copy that may not be written */
    rename(kit_path(kit, "main.db"), kit_path(kit, "away.db"));
    assert_int_equal(try(kit, "c"), WEIR_UNAVAILABLE);
    rename(kit_path(kit, "away.db"), kit_path(kit, "main.db"));
    chmod(kit_path(kit, "main.db"), 0444);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try(kit, "c"), WEIR_UNAVAILABLE);
        assert_non_null(strstr(kit->diag.text, "readonly"));
    }
    chmod(kit_path(kit, "main.db"), 0644);
    kit_put_retrying(kit, "c", 3, "{}");
    kit_expect(kit, "a", 1, "{}");
    kit_expect(kit, "b", 2, "{}");
    kit_close(kit);
    assert_true(become(me));
}

static void a_directory_in_its_place_heals(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_close(kit);
    rename(kit_path(kit, "main.db"), kit_path(kit, "saved"));
    mkdir(kit_path(kit, "main.db"), 0700);
    assert_int_equal(kit_sink(kit), 0);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, false, &kit->writer, &kit->diag),
                     WEIR_UNAVAILABLE);
    assert_non_null(strstr(kit->diag.text, "unable to open"));
    rmdir(kit_path(kit, "main.db"));
    rename(kit_path(kit, "saved"), kit_path(kit, "main.db"));
    assert_int_equal(kit->sink->ops->session_open(kit->sink, false, &kit->writer, &kit->diag), 0);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, true, &kit->reader, &kit->diag), 0);
    kit_put(kit, "b", 2, "{}");
    kit_expect(kit, "a", 1, "{}");
}

static void a_deleted_file_is_not_written_into(void **state)
{
    struct kit *kit = *state;
    const char *const all[] = {"main.db", "main.db-wal", "main.db-shm"};
    for (int files = 1; files <= 3; files += 2) { /* the database alone, and with all that it has */
        kit_open(kit);
        kit_put(kit, "a", 1, "{}");
        for (int i = 0; i < files; i++)
            unlink(kit_path(kit, all[i]));
        assert_int_equal(try(kit, "b"), WEIR_UNAVAILABLE);
        assert_non_null(strstr(kit->diag.text, "deleted"));
        struct sink_row row;
        assert_int_equal(kit_read(kit, "a", &row), WEIR_UNAVAILABLE); /* not "there is none" */
        assert_true(kit_put_retrying(kit, "b", 2, "{}") > 1); /* it may be on its way back */
        kit_expect(kit, "b", 2, "{}");
        kit_expect_none(kit, "a");
        kit_put(kit, "c", 3, "{}");
        assert_int_equal(kit_count(kit), 2);
        assert_string_equal(kit_ask(kit, "SELECT count(*) FROM events"), "2");
        expect_sound(kit);
        kit_close(kit);
        unlink(kit_path(kit, "main.db"));
    }
}

static void a_deleted_directory_is_made_again(void **state)
{
    struct kit *kit = *state;
    kit_option(kit, "path", "deep/er/main.db");
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_remove_tree(kit_path(kit, "deep"));
    assert_true(kit_put_retrying(kit, "b", 2, "{}") > 1);
    kit_expect(kit, "b", 2, "{}");
}

/* A database with one record, as a backup would be put in the place of a lost one. */
static void make_backup(struct kit *kit)
{
    sqlite3 *db = kit_stranger(kit, "backup.db");
    kit_sql(db, "CREATE TABLE events(id TEXT NOT NULL PRIMARY KEY, key TEXT NOT NULL, version "
                "INTEGER NOT NULL, doc TEXT NOT NULL, attributes TEXT);"
                "INSERT INTO events VALUES('backup', 'k', 1, '{}', NULL)");
    sqlite3_close(db);
}

static void a_replaced_file_is_opened_and_not_mixed_with_the_old_log(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    char id[16];
    for (int i = 0; i < 2000; i++) {
        snprintf(id, sizeof id, "old%d", i);
        kit_add(kit, id, 1, "{\"pad\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\"}");
    }
    assert_int_equal(kit_write(kit), 0);
    struct stat st;
    assert_int_equal(stat(kit_path(kit, "main.db-wal"), &st), 0);
    assert_true(st.st_size > 100000); /* there is a log that could be mixed in */
    make_backup(kit);
    rename(kit_path(kit, "backup.db"), kit_path(kit, "main.db"));
    assert_int_equal(try(kit, "new"), WEIR_UNAVAILABLE);
    assert_non_null(strstr(kit->diag.text, "replaced"));
    kit_put_retrying(kit, "new", 2, "{}");
    kit_expect(kit, "backup", 1, "{}");
    kit_expect(kit, "new", 2, "{}");
    kit_expect_none(kit, "old1");
    assert_int_equal(kit_count(kit), 2);
    expect_sound(kit);
}

static void a_reader_that_comes_first_heals_too(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    make_backup(kit);
    rename(kit_path(kit, "backup.db"), kit_path(kit, "main.db"));
    kit_expect(kit, "backup", 1, "{}");
    kit_expect_none(kit, "a");
    kit_put_retrying(kit, "new", 2, "{}");
    assert_int_equal(kit_count(kit), 2);
    expect_sound(kit);
}

static void a_replaced_file_waits_for_readers_of_the_old_one(void **state)
{
    struct kit *kit = *state;
    kit_option(kit, "busy_timeout", "10ms");
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    sqlite3 *stranger = kit_stranger(kit, "main.db");
    kit_sql(stranger, "BEGIN; SELECT count(*) FROM events");
    kit_put(kit, "b", 1, "{}"); /* the log is longer than what the stranger sees */
    make_backup(kit);
    rename(kit_path(kit, "backup.db"), kit_path(kit, "main.db"));
    for (int i = 0; i < 3; i++) {
        assert_int_equal(try(kit, "new"), WEIR_UNAVAILABLE);
        assert_non_null(strstr(kit->diag.text, "old file"));
    }
    sqlite3_close(stranger);
    kit_put_retrying(kit, "new", 2, "{}");
    kit_expect(kit, "backup", 1, "{}");
    assert_int_equal(kit_count(kit), 2);
    expect_sound(kit);
}

static void a_deleted_log_loses_nothing(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_put(kit, "b", 1, "{}");
    assert_int_equal(unlink(kit_path(kit, "main.db-wal")), 0);
    assert_int_equal(try(kit, "c"), WEIR_UNAVAILABLE);
    assert_non_null(strstr(kit->diag.text, "write-ahead log"));
    kit_put_retrying(kit, "c", 2, "{}");
    assert_int_equal(kit_count(kit), 3);
    assert_string_equal(kit_ask(kit, "SELECT count(*) FROM events"), "3");
    expect_sound(kit);
}

static void unlink_it(void *context, int operation, const char *db, const char *table,
                      sqlite3_int64 row)
{
    (void)operation, (void)db, (void)table, (void)row;
    unlink(context);
}

static void a_file_that_goes_during_a_commit_is_not_called_stored(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    char *path = mem_strdup(kit_path(kit, "main.db"));
    sqlite3_update_hook(writer_of(kit)->db, unlink_it, path);
    assert_int_equal(try(kit, "b"), WEIR_UNKNOWN);
    assert_non_null(strstr(kit->diag.text, "during a commit"));
    kit_put_retrying(kit, "b", 2, "{}");
    kit_expect(kit, "b", 2, "{}");
    mem_free(path);
}

/* The log may not grow for ever behind checkpoints that fail. */
static void checkpoints_that_fail_end_commits(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    char id[16];
    char *doc = mem_printf("{\"pad\":\"%0200d\"}", 7);
    for (int i = 0; i < 4000; i++) {
        snprintf(id, sizeof id, "r%05d", i);
        kit_add(kit, id, 1, doc);
    }
    mem_free(doc);
    assert_int_equal(kit_write(kit), 0);
    struct sqlite_session *writer = writer_of(kit);
    assert_int_equal(
        sqlite3_wal_checkpoint_v2(writer->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL),
        SQLITE_OK);
    kit_put(kit, "z", 1, "{}"); /* in the log; its page lies far back in the database */

    struct rlimit before, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){512 << 10, before.rlim_max};
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    writer->checkpoint_error = SQLITE_IOERR; /* as after failures while the log grew */
    writer->wal_frames = 8 * SQLITE_CHECKPOINT_FRAMES;
    int rc[2] = {try(kit, "y"), try(kit, "y")};
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    for (int i = 0; i < 2; i++)
        assert_true(rc[i] == WEIR_IO || rc[i] == WEIR_NO_SPACE);
    assert_non_null(strstr(kit->diag.text, "write-ahead log"));
    kit_put(kit, "y", 2, "{}");
    kit_expect(kit, "z", 1, "{}");
    expect_sound(kit);
}

static void what_is_no_database_is_refused_at_the_start(void **state)
{
    struct kit *kit = *state;
    int fd = open(kit_path(kit, "main.db"), O_CREAT | O_WRONLY, 0600);
    for (int i = 0; i < 1000; i++)
        assert_int_equal(write(fd, "this is no database", 19), 19);
    close(fd);
    assert_int_equal(kit_open_fails(kit), WEIR_CORRUPT);
    assert_non_null(strstr(kit->diag.text, "not a database"));
    assert_non_null(strstr(kit->diag.text, "main.db"));
}

static void what_a_killed_process_committed_is_read(void **state)
{
    struct kit *kit = *state;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        struct sink_session *session;
        struct sink *sink;
        kit_add(kit, "a", 1, "{}");
        int rc = sink_sqlite.open(&kit->config, &sink, NULL);
        rc = rc ? rc : sink->ops->session_open(sink, false, &session, NULL);
        rc = rc ? rc : sink->ops->write(session, &kit->batch, kit->results, NULL);
        _exit(rc == 0 && kit->results[0].outcome == OUTCOME_STORED ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    kit->config.read_only = true;
    assert_int_equal(kit_sink(kit), 0);
    assert_int_equal(kit->sink->ops->session_open(kit->sink, true, &kit->reader, &kit->diag), 0);
    kit_expect(kit, "a", 1, "{}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(a_locked_database_is_tried_again),
        KIT_TEST(a_database_that_is_locked_at_the_start_is_no_mistake),
        KIT_TEST(a_full_disk_is_tried_again),
        KIT_TEST(a_read_only_file_heals),
        KIT_TEST(a_directory_in_its_place_heals),
        KIT_TEST(a_deleted_file_is_not_written_into),
        KIT_TEST(a_deleted_directory_is_made_again),
        KIT_TEST(a_replaced_file_is_opened_and_not_mixed_with_the_old_log),
        KIT_TEST(a_reader_that_comes_first_heals_too),
        KIT_TEST(a_replaced_file_waits_for_readers_of_the_old_one),
        KIT_TEST(a_deleted_log_loses_nothing),
        KIT_TEST(a_file_that_goes_during_a_commit_is_not_called_stored),
        KIT_TEST(checkpoints_that_fail_end_commits),
        KIT_TEST(what_is_no_database_is_refused_at_the_start),
        KIT_TEST(what_a_killed_process_committed_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
