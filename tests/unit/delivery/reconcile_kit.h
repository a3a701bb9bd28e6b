/* reconcile_kit.h: two SQLite sinks, `main` (the primary) and `copy`, and a real journal, in a
 * folder of their own. */
#ifndef WEIR_TESTS_RECONCILE_KIT_H
#define WEIR_TESTS_RECONCILE_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <dirent.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/json.h"
#include "base/mem.h"
#include "delivery/reconcile.h"

struct found {
    enum difference what;
    char id[RECORD_ID_MAX + 1];
    char detail[128];
};

struct kit {
    char folder[64];
    struct sink *sinks[2];
    struct sink_session *writers[2];
    struct log *log;
    struct log_config log_config;
    uint64_t offset; /* of the last record that the log took */
    struct json_parser *parser;
    struct buf ids; /* lines of an id list */
    struct reconcile_config config;
    struct reconcile_result result;
    struct found found[256];
    size_t n_found;
    struct diag diag;
};

enum { MAIN, COPY };

static const struct sink_stream kit_stream = {0, "events"};
static const char *const kit_names[] = {"main", "copy", NULL};

static inline void kit_durable(void *context, struct body *bodies)
{
    struct kit *kit = context;
    for (struct body *next; bodies; bodies = next) {
        next = bodies->next;
        assert_int_equal(bodies->status, 0);
        kit->offset = bodies->records[0].offset;
        mem_free(bodies);
    }
}

static inline void kit_reported(void *context, const char *text)
{
    (void)context;
    fprintf(stderr, "journal: %s\n", text);
}

static inline void kit_found(void *context, enum difference what, struct slice id,
                             const char *detail)
{
    struct kit *kit = context;
    assert_true(kit->n_found < 256);
    struct found *found = &kit->found[kit->n_found++];
    found->what = what;
    snprintf(found->id, sizeof found->id, "%.*s", (int)id.n, id.p);
    snprintf(found->detail, sizeof found->detail, "%s", detail);
}

static inline void kit_remove_tree(const char *path)
{
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && (e = readdir(dir));) {
        char *below = mem_printf("%s/%s", path, e->d_name);
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0 && unlink(below) != 0)
            kit_remove_tree(below);
        mem_free(below);
    }
    if (dir)
        closedir(dir);
    rmdir(path);
}

static inline int kit_setup(void **state)
{
    struct kit *kit = mem_zalloc(sizeof *kit);
    const struct sink_option none = {0};
    snprintf(kit->folder, sizeof kit->folder, "/tmp/weir-reconcile-XXXXXX");
    assert_non_null(mkdtemp(kit->folder));
    for (int i = 0; i < 2; i++) {
        struct sink_config config = {.name = kit_names[i],
                                     .options = &none,
                                     .streams = &kit_stream,
                                     .n_streams = 1,
                                     .fs = fs_posix(),
                                     .data = kit->folder};
        const struct sink_ops *ops = sink_find("sqlite");
        assert_int_equal(ops->open(&config, &kit->sinks[i], &kit->diag), 0);
        assert_int_equal(ops->session_open(kit->sinks[i], false, &kit->writers[i], &kit->diag), 0);
    }
    kit->log_config = (struct log_config){
        .fs = fs_posix(),
        .data = kit->folder,
        .partitions = 2,
        .segment_bytes = 1 << 20,
        .max_bytes = 1 << 30,
        .received_flush_ms = 5,
        .ring = 1024,
        .events = {.context = kit, .durable = kit_durable, .report = kit_reported},
        .consumers = kit_names,
    };
    if (log_open("journal", &kit->log_config, &kit->log, &kit->diag) != 0)
        fail_msg("%s", kit->diag.text);
    kit->parser = json_parser_create();
    kit->config = (struct reconcile_config){
        .log = kit->log,
        .partitions = 2,
        .sink_name = "copy",
        .sink = kit->sinks[COPY],
        .consumer = "copy",
        .primary = kit->sinks[MAIN],
        .primary_consumer = "main",
        .stream = &kit_stream,
        .context = kit,
        .found = kit_found,
    };
    *state = kit;
    return 0;
}

static inline int kit_teardown(void **state)
{
    struct kit *kit = *state;
    for (int i = 0; i < 2; i++) {
        kit->writers[i]->ops->session_close(kit->writers[i]);
        kit->sinks[i]->ops->close(kit->sinks[i]);
    }
    log_close(kit->log);
    json_parser_destroy(kit->parser);
    buf_fini(&kit->ids);
    kit_remove_tree(kit->folder);
    mem_free(kit);
    return 0;
}

static inline void kit_put(struct kit *kit, int sink, const char *id, uint64_t version,
                           const char *doc)
{
    struct batch batch;
    struct sink_result result;
    struct record record = {
        .id = slice_of(id), .key = SLICE_LIT("k"), .doc = slice_of(doc), .version = version};
    batch_init(&batch);
    batch_add(&batch, &record, NULL);
    struct sink_session *writer = kit->writers[sink];
    if (writer->ops->write(writer, &batch, &result, &kit->diag) != 0)
        fail_msg("%s", kit->diag.text);
    assert_int_equal(result.outcome, OUTCOME_STORED);
    batch_fini(&batch);
}

static inline void kit_put_both(struct kit *kit, const char *id, uint64_t version, const char *doc)
{
    kit_put(kit, MAIN, id, version, doc);
    kit_put(kit, COPY, id, version, doc);
}

/* n records in one transaction: ids "p0000000" ... of version 1. */
static inline void kit_put_many(struct kit *kit, int sink, size_t n, const char *prefix)
{
    struct batch batch;
    struct sink_result *results = mem_alloc(n * sizeof *results);
    char(*ids)[16] = mem_alloc(n * sizeof *ids);
    batch_init(&batch);
    for (size_t i = 0; i < n; i++) {
        snprintf(ids[i], sizeof ids[i], "%.4s%07zu", prefix, i);
        struct record record = {.id = slice_of(ids[i]),
                                .key = SLICE_LIT("k"),
                                .doc = SLICE_LIT("{\"x\":1}"),
                                .version = 1};
        batch_add(&batch, &record, NULL);
    }
    struct sink_session *writer = kit->writers[sink];
    assert_int_equal(writer->ops->write(writer, &batch, results, &kit->diag), 0);
    batch_fini(&batch);
    mem_free(ids);
    mem_free(results);
}

/* Appends to the log and gives its offset. */
static inline uint64_t kit_log(struct kit *kit, const char *id, uint64_t version, const char *doc,
                               uint32_t partition)
{
    struct body *body = mem_zalloc(sizeof *body + sizeof(struct record));
    body->records = (struct record *)(body + 1);
    body->records[0] = (struct record){.id = slice_of(id),
                                       .key = SLICE_LIT("logkey"),
                                       .doc = slice_of(doc),
                                       .version = version,
                                       .partition = partition};
    body->n = 1;
    body->urgent = true;
    assert_int_equal(log_append(kit->log, body), 0);
    log_flush(kit->log);
    return kit->offset;
}

/* n records in one body, with the ids of kit_put_many. */
static inline void kit_log_many(struct kit *kit, size_t n, const char *prefix)
{
    struct body *body = mem_zalloc(sizeof *body + n * (sizeof(struct record) + 16));
    body->records = (struct record *)(body + 1);
    body->n = (uint32_t)n;
    body->urgent = true;
    char *id = (char *)(body->records + n);
    for (size_t i = 0; i < n; i++, id += 16) {
        snprintf(id, 16, "%.4s%07zu", prefix, i);
        body->records[i] = (struct record){.id = slice_of(id),
                                           .key = SLICE_LIT("logkey"),
                                           .doc = SLICE_LIT("{\"x\":1}"),
                                           .version = 1,
                                           .partition = (uint32_t)i % 2};
    }
    assert_int_equal(log_append(kit->log, body), 0);
    log_flush(kit->log);
}

/* The consumer reads all there is and settles it up to and including `upto`. */
static inline void kit_settle(struct kit *kit, const char *consumer, uint64_t upto)
{
    struct log_reader *reader;
    struct log_poll_result result;
    struct batch batch;
    batch_init(&batch);
    assert_int_equal(log_reader_open(kit->log, consumer, &reader, &kit->diag), 0);
    do {
        batch_clear(&batch);
        assert_int_equal(log_poll(reader, &batch, 1000, 1 << 20, 0, &result), 0);
        for (size_t i = 0; i < batch.n; i++) {
            if (batch.records[i].offset <= upto)
                log_settle(reader, batch.records[i].partition, batch.records[i].offset);
        }
    } while (result.what == LOG_RECORDS);
    log_reader_close(reader);
    batch_fini(&batch);
}

static inline void kit_sql(struct kit *kit, const char *sink, const char *sql)
{
    char *path = mem_printf("%s/%s.db", kit->folder, sink), *error = NULL;
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    sqlite3_busy_timeout(db, 5000);
    if (sqlite3_exec(db, sql, NULL, NULL, &error) != SQLITE_OK)
        fail_msg("%s: %s", sql, error);
    sqlite3_close(db);
    mem_free(path);
}

/* Adds a line to the id list; doc NULL: without a hash, version 0: without a version. */
static inline void kit_list(struct kit *kit, const char *id, uint64_t version, const char *doc)
{
    buf_put_str(&kit->ids, "{\"stream\":\"events\",\"id\":");
    buf_put_json_string(&kit->ids, slice_of(id));
    if (version)
        buf_printf(&kit->ids, ",\"version\":%llu", (unsigned long long)version);
    if (doc) {
        char *text = mem_zalloc(strlen(doc) + JSON_PADDING), hex[33];
        struct json_value root;
        struct json_error error;
        struct buf scratch = {0};
        memcpy(text, doc, strlen(doc));
        assert_int_equal(json_parse(kit->parser, text, strlen(doc), &root, &error), 0);
        hash128_format(json_content_hash(root, &scratch), hex);
        buf_printf(&kit->ids, ",\"hash\":\"%s\"", hex);
        buf_fini(&scratch);
        mem_free(text);
    }
    buf_put_str(&kit->ids, "}\n");
}

static inline int kit_try_run(struct kit *kit)
{
    struct id_list *list = NULL;
    char *path = mem_printf("%s/ids", kit->folder);
    if (kit->ids.n) {
        FILE *file = fopen(path, "w");
        assert_int_equal(fwrite(kit->ids.p, 1, kit->ids.n, file), kit->ids.n);
        fclose(file);
        if (id_list_read(path, &list, &kit->diag) != 0)
            fail_msg("%s", kit->diag.text);
    }
    mem_free(path);
    kit->config.ids = list;
    kit->n_found = 0;
    kit->diag = (struct diag){0};
    int rc = reconcile_run(&kit->config, &kit->result, &kit->diag);
    kit->config.ids = NULL;
    id_list_destroy(list);
    return rc;
}

static inline void kit_run(struct kit *kit)
{
    if (kit_try_run(kit) != 0)
        fail_msg("reconcile: %s", kit->diag.text);
}

static inline void kit_expect(struct kit *kit, uint64_t compared, uint64_t equal, uint64_t missing,
                              uint64_t extra, uint64_t different, uint64_t lag)
{
    const struct reconcile_result *r = &kit->result;
    if (r->compared != compared || r->equal != equal || r->missing != missing ||
        r->extra != extra || r->different != different || r->lag != lag) {
        for (size_t i = 0; i < kit->n_found; i++)
            fprintf(stderr, "%d %s: %s\n", kit->found[i].what, kit->found[i].id,
                    kit->found[i].detail);
        fail_msg("compared %d equal %d missing %d extra %d different %d lag %d", (int)r->compared,
                 (int)r->equal, (int)r->missing, (int)r->extra, (int)r->different, (int)r->lag);
    }
    assert_int_equal(kit->n_found, missing + extra + different + lag);
}

/* That difference was found, once, and its detail says so. */
static inline void kit_expect_found(struct kit *kit, enum difference what, const char *id,
                                    const char *says)
{
    size_t n = 0;
    for (size_t i = 0; i < kit->n_found; i++) {
        if (strcmp(kit->found[i].id, id) != 0)
            continue;
        n++;
        assert_int_equal(kit->found[i].what, what);
        if (!strstr(kit->found[i].detail, says))
            fail_msg("%s: %s", id, kit->found[i].detail);
    }
    if (n != 1)
        fail_msg("%s was found %zu times", id, n);
}

static inline void kit_expect_row(struct kit *kit, int sink, const char *id, uint64_t version,
                                  const char *doc, const char *key)
{
    struct sink_row row;
    struct sink_session *session = kit->writers[sink];
    if (session->ops->read(session, 0, slice_of(id), &row, &kit->diag) != 0)
        fail_msg("%s: %s", id, kit->diag.text);
    assert_int_equal(row.version, version);
    assert_true(slice_is(row.doc, doc));
    assert_true(slice_is(row.key, key));
}

#define KIT_TEST(function) cmocka_unit_test_setup_teardown(function, kit_setup, kit_teardown)

#endif
