/* weir reconcile without a gateway: exit codes, what is printed, what is skipped, repairs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <fcntl.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "gateway/meta.h"

static char folder[] = "/tmp/weir-cli-XXXXXX";
static struct buf out, err; /* what the last command said */

static const char configuration[] =
    "version: 1\n"
    "data: %s/data\n"
    "streams:\n"
    "  events: {id: /id, primary: main, sinks: [main, copy, gone]}\n"
    "  new: {id: /id, primary: main, sinks: [main]}\n"
    "sinks:\n"
    "  main: {kind: sqlite}\n"
    "  copy: {kind: sqlite}\n"
    "  gone: {kind: \"null\"}\n";

static char *in_folder(const char *name)
{
    static char paths[4][256];
    static unsigned next;
    char *path = paths[next++ % 4];
    snprintf(path, 256, "%s/%s", folder, name);
    return path;
}

static void write_file(const char *name, const char *text)
{
    FILE *file = fopen(in_folder(name), "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void slurp(const char *name, struct buf *into)
{
    char *text;
    size_t n;
    assert_int_equal(fs_read_file(fs_posix(), in_folder(name), 1 << 24, &text, &n), 0);
    buf_clear(into);
    buf_put(into, text, n);
    buf_reserve(into, JSON_PADDING);
    buf_str(into);
    mem_free(text);
}

static int capture(int fd, const char *name)
{
    int kept = dup(fd), file = open(in_folder(name), O_CREAT | O_TRUNC | O_WRONLY, 0600);
    assert_true(kept >= 0 && file >= 0);
    dup2(file, fd);
    close(file);
    return kept;
}

/* Runs the command with these arguments (NULL ends them); -c FILE comes first where `config`. */
static int run(bool config, const char *first, ...)
{
    char *argv[16];
    int argc = 0;
    va_list more;
    argv[argc++] = mem_strdup("reconcile");
    if (config) {
        argv[argc++] = mem_strdup("-c");
        argv[argc++] = mem_strdup(in_folder("weir.yaml"));
    }
    va_start(more, first);
    for (const char *a = first; a; a = va_arg(more, const char *))
        argv[argc++] = mem_strdup(a);
    va_end(more);
    argv[argc] = NULL;
    fflush(NULL);
    int out_fd = capture(STDOUT_FILENO, "out"), err_fd = capture(STDERR_FILENO, "err");
    int code = cli_reconcile(argc, argv);
    fflush(NULL);
    dup2(out_fd, STDOUT_FILENO);
    dup2(err_fd, STDERR_FILENO);
    close(out_fd);
    close(err_fd);
    for (int i = 0; i < argc; i++) /* getopt may have moved them, all are there */
        mem_free(argv[i]);
    slurp("out", &out);
    slurp("err", &err);
    return code;
}

static void sql(const char *sink, const char *text)
{
    char *path = mem_printf("%s/data/%s.db", folder, sink), *error = NULL;
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    if (sqlite3_exec(db, text, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", text, error);
    sqlite3_close(db);
    mem_free(path);
}

#define TABLE                                                                                      \
    "CREATE TABLE events(id TEXT PRIMARY KEY, key TEXT, version INTEGER, doc TEXT, attributes "    \
    "TEXT);"
#define ROWS                                                                                       \
    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 100) INSERT INTO "   \
    "events SELECT 'r' || i, 'k', i, '{\"n\":' || i || '}', NULL FROM n;"

static void remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *below = mem_printf("%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(below) != 0)
            remove_tree(below);
        mem_free(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

/* A data directory as a gateway leaves it, with 100 records in both stores. */
static int setup(void **state)
{
    (void)state;
    struct meta meta = {.partitions = 2, .version_ceiling = 1000};
    char *text = mem_printf(configuration, folder);
    mkdir(folder, 0700);
    mkdir(in_folder("data"), 0700);
    write_file("weir.yaml", text);
    mem_free(text);
    meta_stream_add(&meta, "events");
    assert_int_equal(meta_write(fs_posix(), in_folder("data"), &meta, NULL), 0);
    meta_fini(&meta);
    sql("main", TABLE "CREATE TABLE new(id TEXT PRIMARY KEY, key, version, doc);" ROWS);
    sql("copy", TABLE ROWS);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    remove_tree(folder);
    return 0;
}

static bool said(const struct buf *text, const char *words)
{
    return text->n && strstr(text->p, words) != NULL;
}

static void usage_and_configuration_are_2(void **state)
{
    (void)state;
    assert_int_equal(run(false, "--help", NULL), CLI_DONE);
    assert_true(said(&out, "--repair"));
    assert_int_equal(run(true, "--nonsense", NULL), CLI_USAGE);
    assert_int_equal(run(true, "events", NULL), CLI_USAGE);
    assert_int_equal(run(true, "--sink", "cpy", NULL), CLI_USAGE);
    assert_true(said(&err, "cpy"));
    write_file("bad", "{\"stream\":\"events\",\"id\":\"a\"}\nnonsense\n");
    assert_int_equal(run(true, "--ids", in_folder("bad"), NULL), CLI_USAGE);
    assert_true(said(&err, "bad:2:"));
    write_file("bad", "{\"stream\":\"event\",\"id\":\"a\"}\n");
    assert_int_equal(run(true, "--ids", in_folder("bad"), NULL), CLI_USAGE);
    assert_true(said(&err, "\"event\""));
    assert_int_equal(run(true, "--ids", in_folder("none"), NULL), CLI_USAGE);
    write_file("weir.yaml", "version: 1\nsinks: {main: {kind: sqlit}}\n");
    assert_int_equal(run(true, NULL), CLI_USAGE);
    assert_true(said(&err, "weir.yaml:2:"));
}

static void where_nothing_ran_it_cannot(void **state)
{
    (void)state;
    assert_int_equal(run(false, "--data", in_folder("elsewhere"), NULL), CLI_CANNOT);
    assert_true(said(&err, "elsewhere"));
    assert_int_equal(access(in_folder("elsewhere"), F_OK), -1); /* and makes nothing */
}

static void what_is_equal_is_0_and_what_is_skipped_is_named(void **state)
{
    (void)state;
    assert_int_equal(run(true, NULL), CLI_DONE);
    assert_true(said(&out, "sink copy, stream events, against main: 100 compared, 100 equal"));
    assert_true(said(&out, "sink main, stream events: not compared: it is the primary"));
    assert_true(said(&out, "sink main, stream new: not compared: no gateway"));
    assert_true(said(&out, "sink gone, stream events: not compared: a null sink"));
    assert_int_equal(run(true, "--sink", "copy", NULL), CLI_DONE);
    assert_false(said(&out, "sink main"));
}

static void the_first_twenty_are_shown_and_all_are_in_the_document(void **state)
{
    (void)state;
    sql("copy", "DELETE FROM events WHERE version <= 30; UPDATE events SET doc = '{}' WHERE id = "
                "'r31'; INSERT INTO events VALUES('gh\"ost', 'k', 1, '{}', NULL)");
    assert_int_equal(run(true, NULL), CLI_DOES_NOT_HOLD);
    assert_true(said(&out, "69 equal, 30 missing, 1 extra, 1 different, 0 lag"));
    assert_true(said(&out, "missing, the first 20"));
    assert_true(said(&out, "\"r31\"  version 31 has other content"));
    assert_true(said(&out, "\"gh\\\"ost\""));
    size_t lines = 0;
    for (const char *p = out.p; (p = strstr(p, "is not there\n")); p++)
        lines++;
    assert_int_equal(lines, 20);

    assert_int_equal(run(true, "--json", NULL), CLI_DOES_NOT_HOLD);
    struct json_parser *parser = json_parser_create();
    struct json_value root, list, one, v;
    struct json_error error;
    if (json_parse(parser, out.p, out.n, &root, &error) != 0)
        fail_msg("%s at %d", error.reason, (int)error.offset);
    assert_true(json_member(root, "sinks", &list) && json_count(list) == 1);
    struct json_iter iter = json_iter(list);
    assert_true(json_next(&iter, NULL, &one));
    assert_true(json_member(one, "sink", &v) && slice_is(json_string(v), "copy"));
    assert_true(json_member(one, "missing", &v) && json_int(v) == 30);
    assert_true(json_member(one, "differences", &v) && json_count(v) == 32);
    assert_true(json_member(root, "holds", &v) && !json_bool(v));
    assert_true(json_member(root, "skipped", &v) && json_count(v) == 3);
    json_parser_destroy(parser);
}

static void a_repair_without_a_gateway(void **state)
{
    (void)state;
    sql("copy", "DELETE FROM events WHERE version <= 30; UPDATE events SET doc = '{}' WHERE id = "
                "'r31'");
    assert_int_equal(run(true, "--repair", NULL), CLI_DONE);
    assert_true(said(&out, "31 repaired, 0 not repairable"));
    assert_int_equal(run(true, NULL), CLI_DONE);
    /* the whole store */
    unlink(in_folder("data/copy.db"));
    assert_int_equal(run(true, NULL), CLI_CANNOT);
    assert_true(said(&err, "copy.db: does not exist"));
    assert_int_equal(run(true, "--repair", NULL), CLI_DONE);
    assert_true(said(&out, "100 repaired"));
    assert_int_equal(run(true, NULL), CLI_DONE);
    /* what is extra is a difference that stays */
    sql("copy", "INSERT INTO events VALUES('ghost', 'k', 1, '{}', NULL)");
    assert_int_equal(run(true, "--repair", NULL), CLI_DOES_NOT_HOLD);
}

static void an_id_list_compares_the_primary_too(void **state)
{
    (void)state;
    write_file("ids", "{\"stream\":\"events\",\"id\":\"r1\",\"version\":1}\n"
                      "{\"stream\":\"events\",\"id\":\"r2\"}\n"
                      "{\"stream\":\"events\",\"id\":\"R2\"}\n");
    assert_int_equal(run(true, "--ids", in_folder("ids"), NULL), CLI_DOES_NOT_HOLD);
    assert_true(said(&out, "sink main, stream events, against"));
    assert_true(said(&out, "3 compared, 2 equal, 1 missing"));
    assert_true(said(&out, "\"R2\"  it is not there"));
    /* nobody has it */
    assert_int_equal(run(true, "--ids", in_folder("ids"), "--repair", NULL), CLI_DOES_NOT_HOLD);
    assert_true(said(&out, "0 repaired, 1 not repairable"));
}

static void a_store_that_is_down_is_3_and_the_others_are_compared(void **state)
{
    (void)state;
    unlink(in_folder("data/copy.db"));
    mkdir(in_folder("data/copy.db"), 0700);
    write_file("ids", "{\"stream\":\"events\",\"id\":\"r1\"}\n");
    assert_int_equal(run(true, "--ids", in_folder("ids"), "--json", NULL), CLI_CANNOT);
    assert_true(said(&out, "\"compared\":1,\"equal\":1"));
    assert_true(said(&out, "\"error\":"));
    assert_true(said(&err, "sink copy, stream events"));
    struct json_parser *parser = json_parser_create();
    struct json_value root;
    struct json_error error;
    assert_int_equal(json_parse(parser, out.p, out.n, &root, &error), 0);
    json_parser_destroy(parser);
}

#define CLI_TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CLI_TEST(usage_and_configuration_are_2),
        CLI_TEST(where_nothing_ran_it_cannot),
        CLI_TEST(what_is_equal_is_0_and_what_is_skipped_is_named),
        CLI_TEST(the_first_twenty_are_shown_and_all_are_in_the_document),
        CLI_TEST(a_repair_without_a_gateway),
        CLI_TEST(an_id_list_compares_the_primary_too),
        CLI_TEST(a_store_that_is_down_is_3_and_the_others_are_compared),
    };
    if (!mkdtemp(folder))
        return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    buf_fini(&out);
    buf_fini(&err);
    remove_tree(folder);
    return failed;
}
