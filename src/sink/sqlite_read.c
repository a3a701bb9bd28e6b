/* sqlite_read.c: one record, a scan in pieces, count, remove (see sqlite.h).
 *
 * What is read is copied and the statement reset before anyone sees it: an open read transaction
 * would keep the write-ahead log from being used again. */
#include <limits.h>

#include "base/mem.h"
#include "sink/sqlite.h"

static int failed(struct sqlite_session *session, int sqlite_rc, const char *doing,
                  struct diag *diag)
{
    return sqlite_error(session->sink, session->db, sqlite_rc, doing, diag);
}

/* Enters the session and finds a statement of the stream's table; at 0 sqlite_leave is due. */
static int enter(struct sqlite_session *session, uint32_t stream, enum sqlite_statement which,
                 sqlite3_stmt **out, struct diag *diag)
{
    size_t table;
    if (!sqlite_table_of(session->sink, stream, &table))
        return diag_set(diag, WEIR_INVALID, "%s: the stream does not go to this sink",
                        session->sink->path);
    int rc = sqlite_enter(session, diag);
    if (rc == 0)
        *out = session->tables[table].statements[which];
    return rc;
}

/* Bytes of a column as they lie there. */
static struct slice column(sqlite3_stmt *statement, int i)
{
    const char *p = sqlite3_column_blob(statement, i); /* before bytes: it may convert */
    int n = sqlite3_column_bytes(statement, i);
    return (struct slice){p, p ? (size_t)n : 0};
}

int sqlite_read(struct sink_session *base, uint32_t stream, struct slice id, struct sink_row *row,
                struct diag *diag)
{
    struct sqlite_session *session = (struct sqlite_session *)base;
    sqlite3_stmt *statement;
    int rc = enter(session, stream, STATEMENT_READ, &statement, diag);
    if (rc)
        return rc;
    sqlite3_bind_text64(statement, 1, id.p, id.n, SQLITE_STATIC, SQLITE_UTF8);
    int sqlite_rc = sqlite3_step(statement);
    if (sqlite_rc == SQLITE_ROW) {
        struct slice at[3] = {column(statement, 0), column(statement, 1), column(statement, 3)};
        buf_clear(&session->row);
        buf_reserve(&session->row, at[0].n + at[1].n + at[2].n + 1);
        for (int i = 0; i < 3; i++)
            buf_put_slice(&session->row, at[i]);
        const char *p = session->row.p;
        row->id = (struct slice){p, at[0].n};
        row->key = (struct slice){p + at[0].n, at[1].n};
        row->doc = (struct slice){p + at[0].n + at[1].n, at[2].n};
        row->version = (uint64_t)sqlite3_column_int64(statement, 2);
    } else if (sqlite_rc == SQLITE_DONE) {
        rc = diag_set(diag, WEIR_NOT_FOUND, "%s: there is no such id", session->sink->path);
    } else {
        rc = failed(session, sqlite_rc, "read a record", diag);
    }
    sqlite3_reset(statement);
    sqlite_leave(session, sqlite_rc);
    return rc;
}

/* The next rows behind `after`, at most SQLITE_PIECE_ROWS and about SQLITE_PIECE_BYTES. */
static int read_piece(struct sqlite_session *session, uint32_t stream, struct slice after,
                      size_t *out_n, bool *last, struct diag *diag)
{
    sqlite3_stmt *statement;
    int rc = enter(session, stream, STATEMENT_SCAN, &statement, diag);
    if (rc)
        return rc;
    /* Ids are not empty: all of them are greater than "". */
    sqlite3_bind_text64(statement, 1, after.p ? after.p : "", after.n, SQLITE_STATIC, SQLITE_UTF8);
    buf_clear(&session->piece_bytes);
    size_t n = 0;
    int sqlite_rc = SQLITE_DONE;
    while (n < SQLITE_PIECE_ROWS && session->piece_bytes.n < SQLITE_PIECE_BYTES &&
           (sqlite_rc = sqlite3_step(statement)) == SQLITE_ROW) {
        struct slice id = column(statement, 0), key = column(statement, 1),
                     doc = column(statement, 3);
        session->piece[n++] = (struct sqlite_piece_row){
            id.n, key.n, doc.n, (uint64_t)sqlite3_column_int64(statement, 2)};
        buf_put_slice(&session->piece_bytes, id);
        buf_put_slice(&session->piece_bytes, key);
        buf_put_slice(&session->piece_bytes, doc);
    }
    if (sqlite_rc != SQLITE_ROW && sqlite_rc != SQLITE_DONE)
        rc = failed(session, sqlite_rc, "read records", diag);
    sqlite3_reset(statement);
    sqlite3_clear_bindings(statement);
    sqlite_leave(session, sqlite_rc);
    if (rc)
        return rc;
    *out_n = n;
    *last = sqlite_rc == SQLITE_DONE && n < SQLITE_PIECE_ROWS;
    return 0;
}

int sqlite_scan(struct sink_session *base, uint32_t stream, struct slice after,
                int (*visit)(void *context, const struct sink_row *row), void *context,
                struct diag *diag)
{
    struct sqlite_session *session = (struct sqlite_session *)base;
    if (!session->piece)
        session->piece = mem_alloc(SQLITE_PIECE_ROWS * sizeof *session->piece);
    struct buf from = {0};
    buf_put_slice(&from, after);
    int rc = 0;
    for (bool last = false; rc == 0 && !last;) {
        size_t n;
        rc = read_piece(session, stream, buf_slice(&from), &n, &last, diag);
        if (rc || n == 0)
            break;
        const char *p = session->piece_bytes.p;
        struct sink_row row = {0};
        for (size_t i = 0; rc == 0 && i < n; i++) {
            const struct sqlite_piece_row *at = &session->piece[i];
            row.id = (struct slice){p, at->id_n};
            row.key = (struct slice){p += at->id_n, at->key_n};
            row.doc = (struct slice){p += at->key_n, at->doc_n};
            p += at->doc_n;
            row.version = at->version;
            if (i + 1 == n) {
                buf_clear(&from);
                buf_put_slice(&from, row.id);
            }
            rc = visit(context, &row);
        }
    }
    buf_fini(&from);
    return rc;
}

int sqlite_count(struct sink_session *base, uint32_t stream, uint64_t *out, struct diag *diag)
{
    struct sqlite_session *session = (struct sqlite_session *)base;
    sqlite3_stmt *statement;
    int rc = enter(session, stream, STATEMENT_COUNT, &statement, diag);
    if (rc)
        return rc;
    int sqlite_rc = sqlite3_step(statement);
    if (sqlite_rc == SQLITE_ROW)
        *out = (uint64_t)sqlite3_column_int64(statement, 0);
    else
        rc = failed(session, sqlite_rc, "count records", diag);
    sqlite3_reset(statement);
    sqlite_leave(session, sqlite_rc);
    return rc;
}

int sqlite_remove(struct sink_session *base, uint32_t stream, struct slice id, struct diag *diag)
{
    struct sqlite_session *session = (struct sqlite_session *)base;
    sqlite3_stmt *statement;
    int rc = enter(session, stream, STATEMENT_REMOVE, &statement, diag);
    if (rc)
        return rc;
    sqlite3_bind_text64(statement, 1, id.p, id.n, SQLITE_STATIC, SQLITE_UTF8);
    int sqlite_rc = sqlite3_step(statement);
    if (sqlite_rc != SQLITE_DONE)
        rc = failed(session, sqlite_rc, "remove a record", diag);
    sqlite3_reset(statement);
    if (rc == 0 && sqlite_moved(session))
        rc = diag_set(diag, WEIR_UNKNOWN, "%s: was deleted or replaced during a commit",
                      session->sink->path);
    sqlite_leave(session, sqlite_rc);
    return rc;
}
