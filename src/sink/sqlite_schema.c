/* sqlite_schema.c: tables: names, checks, creation, statements (see sqlite.h).
 *
 * A database that weir made says so in its application_id, and its user_version is the version of
 * weir's schema. In a database that somebody else made both belong to its owner and are left alone;
 * there a table is accepted for the columns that it has.
 *
 * A rowid table with the id as its key through an index, not WITHOUT ROWID: measured (see
 * bench/sqlite_bench.c), that costs a tenth with ids that rise and gives twice the speed with
 * random ones, and large records do not fill the index. */
#include <assert.h>
#include <stdio.h>
#include <strings.h>

#include "base/mem.h"
#include "sink/sqlite.h"

enum table_state { TABLE_THERE, TABLE_MISSING };

char *sqlite_quote(const char *name)
{
    struct buf out = {0};
    buf_put_char(&out, '"');
    for (const char *p = name; *p; p++) {
        if (*p == '"')
            buf_put_char(&out, '"');
        buf_put_char(&out, *p);
    }
    buf_put_char(&out, '"');
    char *quoted = mem_strdup(buf_str(&out));
    buf_fini(&out);
    return quoted;
}

static int query_int(sqlite3 *db, const char *sql, sqlite3_int64 *out)
{
    sqlite3_stmt *statement;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    if (rc)
        return rc;
    rc = sqlite3_step(statement);
    if (rc == SQLITE_ROW)
        *out = sqlite3_column_int64(statement, 0);
    int end = sqlite3_finalize(statement);
    return rc == SQLITE_ROW ? SQLITE_OK : end ? end : SQLITE_CORRUPT;
}

/* Whose database it is, and whether this program knows its schema. */
static int check_marks(const struct sqlite_sink *sink, sqlite3 *db, bool *empty, int *sqlite_rc,
                       struct diag *diag)
{
    sqlite3_int64 objects = 0, application = 0, version = 0;
    int rc = query_int(db, "SELECT count(*) FROM main.sqlite_schema", &objects);
    if (!rc)
        rc = query_int(db, "PRAGMA main.application_id", &application);
    if (!rc)
        rc = query_int(db, "PRAGMA main.user_version", &version);
    *sqlite_rc = rc;
    if (rc)
        return sqlite_error(sink, db, rc, "read the schema", diag);
    bool ours = application == SQLITE_APPLICATION_ID;
    if ((ours || objects == 0) && version > SQLITE_SCHEMA_VERSION)
        return diag_set(diag, WEIR_NEWER,
                        "%s: its schema has version %lld and this weir knows %d: use a newer weir, "
                        "or another path",
                        sink->path, (long long)version, SQLITE_SCHEMA_VERSION);
    if (ours && objects > 0 && version != SQLITE_SCHEMA_VERSION)
        return diag_set(diag, WEIR_INVALID,
                        "%s: its schema has version %lld, which weir never made: restore "
                        "\"PRAGMA user_version\" to %d, or use another path",
                        sink->path, (long long)version, SQLITE_SCHEMA_VERSION);
    *empty = objects == 0;
    return 0;
}

static bool contains(const char *text, const char *word)
{
    size_t n = strlen(word);
    for (; *text; text++) {
        if (strncasecmp(text, word, n) == 0)
            return true;
    }
    return false;
}

/* The affinity of a declared type, by the rules of https://www.sqlite.org/datatype3.html, 3.1. */
static char affinity_of(const char *type)
{
    if (contains(type, "INT"))
        return 'i';
    if (contains(type, "CHAR") || contains(type, "CLOB") || contains(type, "TEXT"))
        return 't';
    if (contains(type, "BLOB") || !type[0])
        return 'b';
    if (contains(type, "REAL") || contains(type, "FLOA") || contains(type, "DOUB"))
        return 'r';
    return 'n';
}

/* A column that would change what weir puts into it is refused: "007" in a number column is 7. */
static int check_column(const struct sqlite_sink *sink, const struct sqlite_table *table,
                        sqlite3 *db, const char *name, const char *type, bool strict,
                        struct diag *diag)
{
    char affinity = affinity_of(type);
    if (strcasecmp(name, "version") == 0) {
        if (affinity == 'i' || affinity == 'n' || (affinity == 'b' && !strict))
            return 0;
        return diag_set(diag, WEIR_INVALID,
                        "%s: table %s: column \"version\" is %s; it must hold integers (INTEGER)",
                        sink->path, table->quoted, type);
    }
    bool any = strict && strcasecmp(type, "ANY") == 0;
    if (affinity != 't' && !any && (affinity != 'b' || strict))
        return diag_set(diag, WEIR_INVALID,
                        "%s: table %s: column \"%s\" is %s, which does not keep text as it is; it "
                        "must be TEXT",
                        sink->path, table->quoted, name, type);
    const char *collation = NULL;
    sqlite3_table_column_metadata(db, "main", table->name, name, NULL, &collation, NULL, NULL,
                                  NULL);
    if (strcasecmp(name, "id") == 0 && collation && strcasecmp(collation, "BINARY") != 0)
        return diag_set(diag, WEIR_INVALID,
                        "%s: table %s: column \"id\" is compared with %s; ids are compared byte "
                        "for byte (COLLATE BINARY)",
                        sink->path, table->quoted, collation);
    return 0;
}

struct columns {
    bool id, key, version, record, attributes;
};

static int check_columns(const struct sqlite_sink *sink, const struct sqlite_table *table,
                         sqlite3 *db, bool strict, struct columns *has, int *sqlite_rc,
                         struct diag *diag)
{
    int code = 0;
    sqlite3_stmt *statement;
    int rc = sqlite3_prepare_v2(db,
                                "SELECT name, type, \"notnull\", dflt_value IS NULL, pk, hidden "
                                "FROM pragma_table_xinfo(?1, 'main')",
                                -1, &statement, NULL);
    if (rc) {
        *sqlite_rc = rc;
        return sqlite_error(sink, db, rc, "read the schema", diag);
    }
    sqlite3_bind_text(statement, 1, table->name, -1, SQLITE_STATIC);
    while (code == 0 && (rc = sqlite3_step(statement)) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(statement, 0);
        const char *type = (const char *)sqlite3_column_text(statement, 1);
        bool needs_value =
            sqlite3_column_int(statement, 2) && sqlite3_column_int(statement, 3) &&
            !(sqlite3_column_int(statement, 4) && type && strcasecmp(type, "INTEGER") == 0);
        bool generated = sqlite3_column_int(statement, 5) != 0;
        bool *which = strcasecmp(name, "id") == 0           ? &has->id
                      : strcasecmp(name, "key") == 0        ? &has->key
                      : strcasecmp(name, "version") == 0    ? &has->version
                      : strcasecmp(name, sink->record) == 0 ? &has->record
                      : strcasecmp(name, "attributes") == 0 ? &has->attributes
                                                            : NULL;
        if (which && generated) {
            code = diag_set(diag, WEIR_INVALID,
                            "%s: table %s: column \"%s\" is generated; weir must be able to write "
                            "it",
                            sink->path, table->quoted, name);
        } else if (which) {
            *which = true;
            code = check_column(sink, table, db, name, type ? type : "", strict, diag);
        } else if (needs_value && !generated) {
            code = diag_set(diag, WEIR_INVALID,
                            "%s: table %s: column \"%s\" is NOT NULL without a default, and weir "
                            "gives it no value",
                            sink->path, table->quoted, name);
        }
    }
    int end = sqlite3_finalize(statement);
    if (code == 0 && end) {
        *sqlite_rc = end;
        return sqlite_error(sink, db, end, "read the schema", diag);
    }
    return code;
}

static int check_table(const struct sqlite_sink *sink, const struct sqlite_table *table,
                       sqlite3 *db, enum table_state *state, bool *attributes, int *sqlite_rc,
                       struct diag *diag)
{
    sqlite3_stmt *statement;
    int rc = sqlite3_prepare_v2(
        db,
        "SELECT type, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?1 "
        "COLLATE NOCASE",
        -1, &statement, NULL);
    char type[16] = "";
    bool strict = false;
    if (rc == SQLITE_OK) {
        sqlite3_bind_text(statement, 1, table->name, -1, SQLITE_STATIC);
        if (sqlite3_step(statement) == SQLITE_ROW) {
            snprintf(type, sizeof type, "%s", (const char *)sqlite3_column_text(statement, 0));
            strict = sqlite3_column_int(statement, 1);
        }
        rc = sqlite3_finalize(statement);
    }
    *sqlite_rc = rc;
    if (rc)
        return sqlite_error(sink, db, rc, "read the schema", diag);
    *state = type[0] ? TABLE_THERE : TABLE_MISSING;
    if (!type[0])
        return 0;
    if (strcmp(type, "table") != 0)
        return diag_set(diag, WEIR_INVALID, "%s: %s is a %s; weir needs a table", sink->path,
                        table->quoted, type);
    struct columns has = {0};
    int code = check_columns(sink, table, db, strict, &has, sqlite_rc, diag);
    if (code)
        return code;
    const struct {
        bool there;
        const char *name;
    } needed[] = {
        {has.id, "id"}, {has.key, "key"}, {has.version, "version"}, {has.record, sink->record}};
    for (size_t i = 0; i < sizeof needed / sizeof needed[0]; i++) {
        if (!needed[i].there)
            return diag_set(diag, WEIR_INVALID,
                            "%s: table %s has no column \"%s\"; weir needs id (primary key or "
                            "unique), key, version and %s, and fills attributes where it is there",
                            sink->path, table->quoted, needed[i].name, sink->record);
    }
    *attributes = has.attributes;
    return 0;
}

static int execute(sqlite3 *db, const char *sql)
{
    return sqlite3_exec(db, sql, NULL, NULL, NULL);
}

static int create_table(const struct sqlite_sink *sink, const struct sqlite_table *table,
                        sqlite3 *db)
{
    char *sql = mem_printf("CREATE TABLE main.%s(\n"
                           "  id TEXT NOT NULL PRIMARY KEY,\n"
                           "  key TEXT NOT NULL,\n"
                           "  version INTEGER NOT NULL,\n"
                           "  %s TEXT NOT NULL,\n"
                           "  attributes TEXT)",
                           table->quoted, sink->record_quoted);
    int rc = execute(db, sql);
    mem_free(sql);
    return rc;
}

static int create_missing(const struct sqlite_sink *sink, sqlite3 *db, int *sqlite_rc,
                          struct diag *diag)
{
    bool empty, attributes;
    int rc = execute(db, "BEGIN IMMEDIATE");
    *sqlite_rc = rc;
    if (rc)
        return sqlite_error(sink, db, rc, "create its tables", diag);
    int code = check_marks(sink, db, &empty, sqlite_rc, diag);
    if (code)
        goto out;
    if (empty) {
        char sql[128];
        snprintf(sql, sizeof sql, "PRAGMA main.application_id = %d; PRAGMA main.user_version = %d",
                 SQLITE_APPLICATION_ID, SQLITE_SCHEMA_VERSION);
        rc = execute(db, sql);
    }
    for (size_t i = 0; rc == SQLITE_OK && i < sink->n_tables; i++) {
        enum table_state state;
        code = check_table(sink, &sink->tables[i], db, &state, &attributes, sqlite_rc, diag);
        if (code)
            goto out;
        if (state == TABLE_MISSING)
            rc = create_table(sink, &sink->tables[i], db);
    }
    if (rc == SQLITE_OK)
        rc = execute(db, "COMMIT");
    *sqlite_rc = rc;
    if (rc)
        code = sqlite_error(sink, db, rc, "create its tables", diag);
out:
    if (!sqlite3_get_autocommit(db))
        execute(db, "ROLLBACK");
    return code;
}

int sqlite_schema_ready(struct sqlite_sink *sink, sqlite3 *db, bool writable, int *sqlite_rc,
                        struct diag *diag)
{
    bool empty, attributes, missing = false;
    int code = check_marks(sink, db, &empty, sqlite_rc, diag);
    for (size_t i = 0; code == 0 && i < sink->n_tables; i++) {
        enum table_state state;
        code = check_table(sink, &sink->tables[i], db, &state, &attributes, sqlite_rc, diag);
        if (code == 0 && state == TABLE_MISSING) {
            missing = true;
            if (!writable)
                code = diag_set(diag, WEIR_UNAVAILABLE, "%s: there is no table %s yet", sink->path,
                                sink->tables[i].quoted);
        }
    }
    if (code == 0 && missing)
        code = create_missing(sink, db, sqlite_rc, diag);
    return code;
}

char *sqlite_statement_sql(const struct sqlite_sink *sink, const struct sqlite_table *table,
                           enum sqlite_statement which, bool attributes)
{
    const char *t = table->quoted, *record = sink->record_quoted;
    switch (which) {
    case STATEMENT_UPSERT:
        /* Replaces only what is not newer. */
        return mem_printf("INSERT INTO main.%s(\"id\", \"key\", \"version\", %s%s) "
                          "VALUES(?1, ?2, ?3, ?4%s) ON CONFLICT(\"id\") DO UPDATE SET "
                          "\"key\" = excluded.\"key\", \"version\" = excluded.\"version\", "
                          "%s = excluded.%s%s "
                          "WHERE excluded.\"version\" >= ifnull(\"version\", 0)",
                          t, record, attributes ? ", \"attributes\"" : "", attributes ? ", ?5" : "",
                          record, record,
                          attributes ? ", \"attributes\" = excluded.\"attributes\"" : "");
    case STATEMENT_VERSION:
        return mem_printf("SELECT \"version\" FROM main.%s WHERE \"id\" = ?1", t);
    case STATEMENT_READ:
        return mem_printf("SELECT \"id\", \"key\", \"version\", %s FROM main.%s WHERE \"id\" = ?1",
                          record, t);
    case STATEMENT_SCAN:
        /* Only text is an id that weir wrote. Numbers would sort before text, blobs behind it. */
        return mem_printf("SELECT \"id\", \"key\", \"version\", %s FROM main.%s WHERE \"id\" > ?1 "
                          "AND typeof(\"id\") = 'text' ORDER BY \"id\" LIMIT %d",
                          record, t, SQLITE_PIECE_ROWS);
    case STATEMENT_COUNT:
        return mem_printf("SELECT count(*) FROM main.%s", t);
    case STATEMENT_REMOVE:
        return mem_printf("DELETE FROM main.%s WHERE \"id\" = ?1", t);
    case STATEMENTS_PER_TABLE:
        break;
    }
    assert(!"a statement");
    return NULL;
}

static int prepare(sqlite3 *db, const char *sql, sqlite3_stmt **out)
{
    return sqlite3_prepare_v3(db, sql, -1, SQLITE_PREPARE_PERSISTENT, out, NULL);
}

int sqlite_prepare_all(struct sqlite_session *session, int *sqlite_rc, struct diag *diag)
{
    static const char *const control[CONTROLS] = {
        [CONTROL_BEGIN] = "BEGIN IMMEDIATE",
        [CONTROL_COMMIT] = "COMMIT",
        [CONTROL_ROLLBACK] = "ROLLBACK",
        [CONTROL_SAVEPOINT] = "SAVEPOINT record",
        [CONTROL_ROLLBACK_TO] = "ROLLBACK TO record",
        [CONTROL_RELEASE] = "RELEASE record",
    };
    struct sqlite_sink *sink = session->sink;
    int rc = SQLITE_OK;
    for (int i = 0; rc == SQLITE_OK && !session->read_only && i < CONTROLS; i++)
        rc = prepare(session->db, control[i], &session->control[i]);
    for (size_t t = 0; rc == SQLITE_OK && t < sink->n_tables; t++) {
        struct sqlite_prepared *prepared = &session->tables[t];
        enum table_state state;
        int code = check_table(sink, &sink->tables[t], session->db, &state, &prepared->attributes,
                               sqlite_rc, diag);
        if (code)
            return code;
        for (int i = 0; rc == SQLITE_OK && i < STATEMENTS_PER_TABLE; i++) {
            char *sql = sqlite_statement_sql(sink, &sink->tables[t], i, prepared->attributes);
            rc = prepare(session->db, sql, &prepared->statements[i]);
            mem_free(sql);
        }
        if (rc != SQLITE_OK && strstr(sqlite3_errmsg(session->db), "ON CONFLICT clause")) {
            *sqlite_rc = rc;
            return diag_set(diag, WEIR_INVALID,
                            "%s: table %s: column \"id\" is neither the primary key nor unique",
                            sink->path, sink->tables[t].quoted);
        }
    }
    *sqlite_rc = rc;
    return rc ? sqlite_error(sink, session->db, rc, "prepare its statements", diag) : 0;
}

void sqlite_finalize_all(struct sqlite_session *session)
{
    for (int i = 0; i < CONTROLS; i++) {
        sqlite3_finalize(session->control[i]);
        session->control[i] = NULL;
    }
    for (size_t t = 0; t < session->sink->n_tables; t++) {
        for (int i = 0; i < STATEMENTS_PER_TABLE; i++) {
            sqlite3_finalize(session->tables[t].statements[i]);
            session->tables[t].statements[i] = NULL;
        }
    }
}

bool sqlite_table_of(const struct sqlite_sink *sink, uint32_t stream, size_t *out)
{
    for (size_t i = 0; i < sink->n_tables; i++) {
        if (sink->tables[i].stream == stream) {
            *out = i;
            return true;
        }
    }
    return false;
}
