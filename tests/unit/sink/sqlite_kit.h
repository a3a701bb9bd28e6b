/* sqlite_kit.h: a SQLite sink in a folder of its own, and a second connection beside it that does
 * what a stranger might do. */
#ifndef WEIR_TESTS_SQLITE_KIT_H
#define WEIR_TESTS_SQLITE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/mem.h"
#include "sink/kinds.h"
#include "sink/sqlite.h"

#define KIT_BATCH 4096

struct kit {
    char folder[64];
    struct sink_option options[8];
    struct sink_stream streams[4];
    struct sink_config config;
    struct sink *sink;
    struct sink_session *writer, *reader;
    struct batch batch;
    struct sink_result results[KIT_BATCH];
    struct diag diag;
};

static inline char *kit_path(struct kit *kit, const char *name)
{
    static char path[4][256];
    static unsigned next;
    char *at = path[next++ % 4];
    snprintf(at, 256, "%s/%s", kit->folder, name);
    return at;
}

static inline int kit_setup(void **state)
{
    struct kit *kit = mem_zalloc(sizeof *kit);
    snprintf(kit->folder, sizeof kit->folder, "/tmp/weir-sqlite-XXXXXX");
    assert_non_null(mkdtemp(kit->folder));
    kit->streams[0] = (struct sink_stream){0, "events"};
    kit->config = (struct sink_config){
        .name = "main",
        .options = kit->options,
        .streams = kit->streams,
        .n_streams = 1,
        .fs = fs_posix(),
        .data = kit->folder,
    };
    batch_init(&kit->batch);
    *state = kit;
    return 0;
}

static inline void kit_remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *below = mem_printf("%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            goto next;
        if (unlink(below) != 0)
            kit_remove_tree(below);
    next:
        mem_free(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static inline void kit_close(struct kit *kit)
{
    if (kit->reader)
        kit->sink->ops->session_close(kit->reader);
    if (kit->writer)
        kit->sink->ops->session_close(kit->writer);
    if (kit->sink)
        kit->sink->ops->close(kit->sink);
    kit->reader = kit->writer = NULL;
    kit->sink = NULL;
}

static inline int kit_teardown(void **state)
{
    struct kit *kit = *state;
    kit_close(kit);
    batch_fini(&kit->batch);
    kit_remove_tree(kit->folder);
    mem_free(kit);
    return 0;
}

static inline void kit_option(struct kit *kit, const char *name, const char *value)
{
    size_t i = 0;
    while (kit->options[i].name && strcmp(kit->options[i].name, name) != 0)
        i++;
    kit->options[i] = (struct sink_option){name, value, 0};
}

/* Opens the sink alone. */
static inline int kit_sink(struct kit *kit)
{
    return sink_sqlite.open(&kit->config, &kit->sink, &kit->diag);
}

/* Opens the sink, a writer and a reader. */
static inline void kit_open(struct kit *kit)
{
    if (kit_sink(kit) != 0)
        fail_msg("open: %s", kit->diag.text);
    if (kit->sink->ops->session_open(kit->sink, false, &kit->writer, &kit->diag) != 0)
        fail_msg("writer: %s", kit->diag.text);
    if (kit->sink->ops->session_open(kit->sink, true, &kit->reader, &kit->diag) != 0)
        fail_msg("reader: %s", kit->diag.text);
}

/* The sink opens as it should not: gives the code and leaves *diag. */
static inline int kit_open_fails(struct kit *kit)
{
    struct sink *sink = NULL;
    int rc = sink_sqlite.open(&kit->config, &sink, &kit->diag);
    if (rc == 0)
        sink->ops->close(sink);
    return rc;
}

static inline void kit_add_slices(struct kit *kit, uint32_t stream, struct slice id,
                                  struct slice key, uint64_t version, struct slice doc,
                                  struct slice attributes)
{
    size_t n = id.n + key.n + doc.n + attributes.n;
    struct chunk *chunk = chunk_create(n ? n : 1);
    struct slice *from[4] = {&id, &key, &doc, &attributes};
    char *p = chunk->data;
    for (int i = 0; i < 4; i++) {
        if (from[i]->n)
            memcpy(p, from[i]->p, from[i]->n);
        from[i]->p = p;
        p += from[i]->n;
    }
    struct record record = {.id = id,
                            .key = key,
                            .doc = doc,
                            .attributes = attributes,
                            .version = version,
                            .stream = stream};
    batch_add(&kit->batch, &record, chunk);
    chunk_unref(chunk);
}

static inline void kit_add(struct kit *kit, const char *id, uint64_t version, const char *doc)
{
    kit_add_slices(kit, 0, slice_of(id), SLICE_LIT("k"), version, slice_of(doc), (struct slice){0});
}

static inline int kit_write(struct kit *kit)
{
    memset(kit->results, 0x7f, sizeof kit->results);
    kit->diag = (struct diag){0};
    assert_true(kit->batch.n <= KIT_BATCH);
    int rc = kit->sink->ops->write(kit->writer, &kit->batch, kit->results, &kit->diag);
    if (rc != 0) {
        assert_int_equal(kit->diag.code, rc);
        assert_true(kit->diag.text[0]);
    }
    batch_clear(&kit->batch);
    return rc;
}

/* One record, which must be stored. */
static inline void kit_put(struct kit *kit, const char *id, uint64_t version, const char *doc)
{
    kit_add(kit, id, version, doc);
    if (kit_write(kit) != 0)
        fail_msg("write: %s", kit->diag.text);
    if (kit->results[0].outcome != OUTCOME_STORED)
        fail_msg("write: %s", kit->results[0].reason);
}

/* Writes one record until it is stored, as the delivery engine would; gives the number of tries. */
static inline int kit_put_retrying(struct kit *kit, const char *id, uint64_t version,
                                   const char *doc)
{
    for (int tries = 1; tries < 20; tries++) {
        kit_add(kit, id, version, doc);
        if (kit_write(kit) == 0 && kit->results[0].outcome == OUTCOME_STORED)
            return tries;
    }
    fail_msg("never stored: %s", kit->diag.text);
    return 0;
}

static inline int kit_read(struct kit *kit, const char *id, struct sink_row *row)
{
    return kit->sink->ops->read(kit->reader, 0, slice_of(id), row, &kit->diag);
}

static inline void kit_expect(struct kit *kit, const char *id, uint64_t version, const char *doc)
{
    struct sink_row row;
    if (kit_read(kit, id, &row) != 0)
        fail_msg("read %s: %s", id, kit->diag.text);
    assert_true(slice_is(row.id, id));
    assert_true(slice_is(row.doc, doc));
    assert_int_equal(row.version, version);
}

static inline void kit_expect_none(struct kit *kit, const char *id)
{
    struct sink_row row;
    assert_int_equal(kit_read(kit, id, &row), WEIR_NOT_FOUND);
}

static inline uint64_t kit_count(struct kit *kit)
{
    uint64_t n = 0;
    if (kit->sink->ops->count(kit->reader, 0, &n, &kit->diag) != 0)
        fail_msg("count: %s", kit->diag.text);
    return n;
}

/* Another connection to a database of the folder. */
static inline sqlite3 *kit_stranger(struct kit *kit, const char *name)
{
    sqlite3 *db;
    assert_int_equal(sqlite3_open(kit_path(kit, name), &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    return db;
}

static inline void kit_sql(sqlite3 *db, const char *sql)
{
    char *error = NULL;
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
}

/* Runs SQL in the sink's database from outside. */
static inline void kit_beside(struct kit *kit, const char *sql)
{
    sqlite3 *db = kit_stranger(kit, "main.db");
    kit_sql(db, sql);
    sqlite3_close(db);
}

/* The first column of the first row, as text; "" for NULL or no row. */
static inline const char *kit_ask(struct kit *kit, const char *sql)
{
    static char text[512];
    sqlite3 *db = kit_stranger(kit, "main.db");
    sqlite3_stmt *statement;
    text[0] = '\0';
    if (sqlite3_prepare_v2(db, sql, -1, &statement, NULL) != SQLITE_OK)
        fail_msg("%s: %s", sql, sqlite3_errmsg(db));
    if (sqlite3_step(statement) == SQLITE_ROW && sqlite3_column_text(statement, 0))
        snprintf(text, sizeof text, "%s", (const char *)sqlite3_column_text(statement, 0));
    sqlite3_finalize(statement);
    sqlite3_close(db);
    return text;
}

#define KIT_TEST(function) cmocka_unit_test_setup_teardown(function, kit_setup, kit_teardown)

#endif
