/* sqlite_vfs_test.c: SQLite over the fault file system. What it was told to make durable is there
 * after a power cut at any operation; where it was told not to sync, the cut must show that it is
 * not; and failing operations lose nothing that was reported as committed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <string.h>

#include "../child.h"
#include "../scratch.h"
#include "../seeded.h"
#include "os/fs_fault.h"
#include "sink/sqlite_vfs.h"

#define ROWS 60

static uint64_t first_seed;

struct run {
    char path[4096];
    char plan[128];
    const char *pragmas;
    int report; /* pipe: the number of each row after its commit */
    bool go_on; /* after an error: tries the row again */
};

static sqlite3 *opened(const char *path, const char *vfs)
{
    sqlite3 *db = NULL;
    if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs) != SQLITE_OK) {
        sqlite3_close(db);
        return NULL;
    }
    return db;
}

/* Each transaction writes one row and changes an earlier one, so that pages are written again. */
static int write_row(sqlite3 *db, int row)
{
    char sql[256];
    snprintf(sql, sizeof sql,
             "BEGIN IMMEDIATE; INSERT OR REPLACE INTO t VALUES (%d, printf('%%.*c', %d, 'x'), 0);"
             "UPDATE t SET changed = %d WHERE id = %d; COMMIT",
             row, 300 + row * 37 % 5000, row, row / 2);
    int rc = sqlite3_exec(db, sql, NULL, NULL, NULL);
    if (rc != SQLITE_OK && !sqlite3_get_autocommit(db))
        sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
    return rc;
}

static void write_rows(void *context)
{
    struct run *run = context;
    struct diag diag;
    child_check(fs_fault_install(fs_posix(), run->plan, &diag));
    child_check(sqlite_vfs_register() == 0);
    child_check(sqlite_vfs_register() == 0);
    sqlite3 *db = NULL;
    for (int tries = 0; tries < 10 && !db; tries++)
        db = opened(run->path, "weir");
    if (!db)
        _exit(20);
    bool ready = false;
    for (int tries = 0; tries < 10 && !ready; tries++)
        ready = sqlite3_exec(db, run->pragmas, NULL, NULL, NULL) == SQLITE_OK &&
                sqlite3_exec(db,
                             "CREATE TABLE IF NOT EXISTS t (id INTEGER PRIMARY KEY, body TEXT,"
                             "changed INTEGER)",
                             NULL, NULL, NULL) == SQLITE_OK;
    if (!ready)
        _exit(20);
    for (int row = 1; row <= ROWS; row++) {
        int rc = SQLITE_ERROR;
        for (int tries = run->go_on ? 60 : 1; tries > 0 && rc != SQLITE_OK; tries--)
            rc = write_row(db, row);
        child_check(rc == SQLITE_OK || rc == SQLITE_FULL || rc == SQLITE_CANTOPEN ||
                    (rc & 0xff) == SQLITE_IOERR || rc == SQLITE_READONLY || rc == SQLITE_CORRUPT);
        if (rc == SQLITE_OK)
            child_check(write(run->report, &row, sizeof row) == sizeof row);
        else
            break;
    }
    sqlite3_close(db);
    exit(0); /* through atexit, as a program ends */
}

static int one_int(sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    int value = -1;
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) == SQLITE_OK &&
        sqlite3_step(statement) == SQLITE_ROW)
        value = sqlite3_column_int(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

struct found {
    int reported; /* the last row that was reported */
    int missing;  /* of the reported */
    bool damaged;
    int status;
};

static struct found run_once(const char *pragmas, const char *plan, bool go_on)
{
    struct run run = {.pragmas = pragmas, .go_on = go_on};
    char *folder = scratch_create_fast();
    snprintf(run.path, sizeof run.path, "%s/t.db", folder);
    snprintf(run.plan, sizeof run.plan, "%s", plan);
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    run.report = ends[1];
    struct found found = {.status = child_run(write_rows, &run)};
    close(ends[1]);

    sqlite3 *db = opened(run.path, "unix");
    found.damaged = !db || sqlite3_exec(db, "PRAGMA journal_mode", NULL, NULL, NULL) != SQLITE_OK;
    sqlite3_stmt *check = NULL;
    if (!db || sqlite3_prepare_v2(db, "PRAGMA integrity_check", -1, &check, NULL) != SQLITE_OK ||
        sqlite3_step(check) != SQLITE_ROW ||
        strcmp((const char *)sqlite3_column_text(check, 0), "ok") != 0)
        found.damaged = true;
    sqlite3_finalize(check);
    int row;
    while (read(ends[0], &row, sizeof row) == sizeof row) {
        char sql[128];
        found.reported = row;
        snprintf(sql, sizeof sql, "SELECT count(*) FROM t WHERE id = %d AND length(body) = %d", row,
                 300 + row * 37 % 5000);
        found.missing += db && one_int(db, sql) != 1;
    }
    close(ends[0]);
    if (db)
        sqlite3_close(db);
    scratch_remove(folder);
    free(folder);
    return found;
}

#define WAL_FULL                                                                                   \
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 12;"        \
    "PRAGMA mmap_size = 1000000; PRAGMA cache_size = 20"
#define WAL_OFF                                                                                    \
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = OFF; PRAGMA wal_autocheckpoint = 12"
#define ROLLBACK_EXTRA "PRAGMA journal_mode = DELETE; PRAGMA synchronous = EXTRA"
#define ROLLBACK_FULL  "PRAGMA journal_mode = DELETE; PRAGMA synchronous = FULL"

static unsigned operations_of(const char *pragmas)
{
    /* How many operations a whole run has: by a cut that comes too late. */
    unsigned least = 1, most = 1;
    char plan[64];
    for (;; most *= 2) {
        snprintf(plan, sizeof plan, "seed=1;powercut=%u", most);
        if (run_once(pragmas, plan, false).status == 0)
            break;
        least = most;
    }
    while (most - least > 16) {
        unsigned middle = (least + most) / 2;
        snprintf(plan, sizeof plan, "seed=1;powercut=%u", middle);
        *(run_once(pragmas, plan, false).status == 0 ? &most : &least) = middle;
    }
    return most;
}

/* Cuts at random operations: returns how many runs lost or damaged something. */
static unsigned cut_often(const char *pragmas, unsigned n, bool *all_whole)
{
    unsigned operations = operations_of(pragmas), bad = 0, with_rows = 0;
    *all_whole = true;
    for (unsigned i = 0; i < n; i++) {
        struct seeded random = {first_seed + i};
        char plan[64];
        snprintf(plan, sizeof plan, "seed=%llu;powercut=%u", (unsigned long long)first_seed + i,
                 1 + (unsigned)seeded_below(&random, operations));
        struct found found = run_once(pragmas, plan, false);
        assert_true(found.status == 137 || found.status == 0);
        with_rows += found.reported > 0;
        *all_whole &= !found.damaged;
        if (found.missing || found.damaged) {
            bad++;
            print_message("%s: %d of %d rows missing%s\n", plan, found.missing, found.reported,
                          found.damaged ? ", damaged" : "");
        }
    }
    assert_true(with_rows > n / 4);
    return bad;
}

static void committed_rows_survive_power_cuts(void **state)
{
    (void)state;
    bool whole;
    assert_int_equal(cut_often(WAL_FULL, 80, &whole), 0);
}

static void a_cut_really_drops_what_was_not_synced(void **state)
{
    (void)state;
    bool whole;
    unsigned bad = cut_often(WAL_OFF, 24, &whole);
    print_message("synchronous=OFF: %u of 24 cuts lost something\n", bad);
    assert_true(bad >= 4);
}

/* With a rollback journal the commit is the unlink of the journal: only EXTRA syncs the folder
 * after it (SQLite's documentation of PRAGMA synchronous). The cut shows the difference. */
static void rollback_journals_too(void **state)
{
    (void)state;
    bool whole;
    assert_int_equal(cut_often(ROLLBACK_EXTRA, 30, &whole), 0);
    unsigned bad = cut_often(ROLLBACK_FULL, 60, &whole);
    print_message("rollback journal, FULL: %u of 60 cuts took the last commit back\n", bad);
    assert_true(bad > 0);
    assert_true(whole);
}

/* The Nth operation fails, N over a whole run in steps: nothing reported is missing. */
static void failing_operations_lose_nothing(void **state)
{
    (void)state;
    static const char *const kinds[] = {"EIO", "ENOSPC", "SHORT"};
    unsigned operations = operations_of(WAL_FULL);
    for (unsigned i = 0; i < 60; i++) {
        char plan[96];
        unsigned at = 1 + i * operations / 60;
        snprintf(plan, sizeof plan, "seed=%u;fail=%s@%u-%u", i, kinds[i % 3], at, at + i % 4);
        struct found found = run_once(WAL_FULL, plan, true);
        if (found.missing || found.damaged || (found.status != 0 && found.status != 20))
            fail_msg("%s: %d missing, status %d%s", plan, found.missing, found.status,
                     found.damaged ? ", damaged" : "");
    }
}

/* ENOSPC for a while, then space again: the same connection writes on. */
static void writes_on_when_space_returns(void **state)
{
    (void)state;
    char plan[96];
    unsigned operations = operations_of(WAL_FULL);
    snprintf(plan, sizeof plan, "seed=1;fail=ENOSPC@%u-%u", operations / 3, operations / 3 + 40);
    struct found found = run_once(WAL_FULL, plan, true);
    assert_int_equal(found.status, 0);
    assert_int_equal(found.reported, ROWS);
    assert_int_equal(found.missing, 0);
}

static void without_a_plan_files_are_the_unix_ones(void **state)
{
    (void)state;
    assert_int_equal(sqlite_vfs_register(), 0);
    assert_int_equal(sqlite_vfs_register(), 0);
    assert_string_not_equal(sqlite3_vfs_find(NULL)->zName, "weir"); /* not the default */
    char *folder = scratch_create_fast(), path[4096];
    snprintf(path, sizeof path, "%s/plain.db", folder);
    sqlite3 *through = opened(path, "weir"), *direct = opened(path, "unix");
    assert_non_null(through);
    assert_non_null(direct);
    assert_int_equal(sqlite3_exec(through, WAL_FULL, NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_exec(through, "CREATE TABLE t (id, body, changed)", NULL, NULL, NULL),
                     SQLITE_OK);
    for (int row = 1; row <= 20; row++)
        assert_int_equal(write_row(row % 2 ? through : direct, row), SQLITE_OK);
    assert_int_equal(one_int(through, "SELECT count(*) FROM t"), 20);
    sqlite3_file *a = NULL, *b = NULL;
    sqlite3_file_control(through, "main", SQLITE_FCNTL_FILE_POINTER, &a);
    sqlite3_file_control(direct, "main", SQLITE_FCNTL_FILE_POINTER, &b);
    assert_ptr_equal(a->pMethods, b->pMethods);
    sqlite3_close(through);
    sqlite3_close(direct);
    scratch_remove(folder);
    free(folder);
}

int main(void)
{
    first_seed = seeded_choose() & 0xffffffffffff;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(committed_rows_survive_power_cuts),
        cmocka_unit_test(a_cut_really_drops_what_was_not_synced),
        cmocka_unit_test(rollback_journals_too),
        cmocka_unit_test(failing_operations_lose_nothing),
        cmocka_unit_test(writes_on_when_space_returns),
        cmocka_unit_test(without_a_plan_files_are_the_unix_ones),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
