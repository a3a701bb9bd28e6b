/* sqlite_write.c: a batch in one transaction, and what becomes of each record (see sqlite.h).
 *
 *   fast     no savepoints: nearly every batch      -> done     all rows and the commit went well
 *                                                   -> careful  a row was refused: rolled back
 *   careful  a savepoint a record, so that nothing  -> careful  a row was refused: undone alone
 *            of a refused one stays                 -> split    a refused row ended the
 *                                                               transaction (RAISE(ROLLBACK))
 *   split    what came before that row is committed by itself, then on behind it
 *
 * A statement that fails is not always undone by itself: RAISE(FAIL) keeps what it did so far,
 * RAISE(ROLLBACK) undoes the others too. Hence the second, careful way.
 *
 * Invariants: 1. a record is called stored only after a commit into the file that is at the path;
 * 2. an error code is returned only when nothing was committed; 3. every row is tried a bounded
 * number of times. */
#include <stdio.h>

#include "record/attributes.h"
#include "sink/kinds.h"
#include "sink/sqlite.h"

struct writing {
    struct sqlite_session *session;
    const struct batch *batch;
    struct sink_result *results;
    bool careful;
    bool committed;  /* some of the batch is */
    size_t ended_by; /* the row at which the transaction ended */
    int sqlite_rc;   /* of the last failure... */
    int code;        /* ...and weir's */
    struct diag *diag;
};

enum step {
    STEP_DONE,
    STEP_REFUSED, /* the row; results say why */
    STEP_ENDED,   /* the same, and the transaction is gone */
    STEP_FAILED,  /* not the row's fault */
};

static int run(sqlite3_stmt *statement)
{
    int rc = sqlite3_step(statement);
    sqlite3_reset(statement);
    return rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int control(struct writing *w, enum sqlite_control which)
{
    return run(w->session->control[which]);
}

static void roll_back(struct writing *w)
{
    if (!sqlite3_get_autocommit(w->session->db))
        control(w, CONTROL_ROLLBACK);
}

static int failed(struct writing *w, int sqlite_rc, const char *doing)
{
    w->sqlite_rc = sqlite_rc;
    w->code = sqlite_error(w->session->sink, w->session->db, sqlite_rc, doing, w->diag);
    return w->code;
}

/* Whether the data is at fault. SQLITE_ERROR comes from functions in triggers and checks
 * ("malformed JSON") and from a table that has lost a column: the second does not compile any more.
 */
static bool is_of_row(struct writing *w, size_t table, int sqlite_rc)
{
    switch (sqlite_rc & 0xff) {
    case SQLITE_CONSTRAINT:
    case SQLITE_TOOBIG:
    case SQLITE_MISMATCH:
        return true;
    case SQLITE_ERROR: {
        struct sqlite_session *session = w->session;
        const char *sql = sqlite3_sql(session->tables[table].statements[STATEMENT_UPSERT]);
        sqlite3_stmt *again = NULL;
        int rc = sqlite3_prepare_v2(session->db, sql, -1, &again, NULL);
        sqlite3_finalize(again);
        return rc == SQLITE_OK;
    }
    default:
        return false;
    }
}

/* The upsert changed nothing: what is there is newer, or something in the table swallowed it. */
static int look_why(struct writing *w, size_t table, const struct record *record, bool *superseded)
{
    sqlite3_stmt *statement = w->session->tables[table].statements[STATEMENT_VERSION];
    sqlite3_bind_text64(statement, 1, record->id.p, record->id.n, SQLITE_STATIC, SQLITE_UTF8);
    int rc = sqlite3_step(statement);
    *superseded =
        rc == SQLITE_ROW && (uint64_t)sqlite3_column_int64(statement, 0) > record->version;
    sqlite3_reset(statement);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int upsert(struct writing *w, size_t table, const struct record *record)
{
    struct sqlite_session *session = w->session;
    sqlite3_stmt *statement = session->tables[table].statements[STATEMENT_UPSERT];
    sqlite3_bind_text64(statement, 1, record->id.p, record->id.n, SQLITE_STATIC, SQLITE_UTF8);
    sqlite3_bind_text64(statement, 2, record->key.p, record->key.n, SQLITE_STATIC, SQLITE_UTF8);
    sqlite3_bind_int64(statement, 3, (sqlite3_int64)record->version);
    sqlite3_bind_text64(statement, 4, record->doc.p, record->doc.n, SQLITE_STATIC, SQLITE_UTF8);
    if (session->tables[table].attributes && record->attributes.n) {
        buf_clear(&session->attributes);
        attributes_to_json(record->attributes, &session->attributes);
        sqlite3_bind_text64(statement, 5, session->attributes.p, session->attributes.n,
                            SQLITE_STATIC, SQLITE_UTF8);
    } else if (session->tables[table].attributes) {
        sqlite3_bind_null(statement, 5);
    }
    return run(statement);
}

static enum step write_row(struct writing *w, size_t i)
{
    struct sqlite_session *session = w->session;
    const struct record *record = &w->batch->records[i];
    size_t table;
    if (!sqlite_table_of(session->sink, record->stream, &table)) {
        sink_result_set(&w->results[i], OUTCOME_REFUSED,
                        "the record's stream does not go to this sink");
        return STEP_REFUSED;
    }
    int rc = upsert(w, table, record);
    if (rc == SQLITE_OK) {
        if (sqlite3_changes(session->db) > 0)
            return STEP_DONE;
        bool superseded;
        rc = look_why(w, table, record, &superseded);
        if (rc != SQLITE_OK) {
            failed(w, rc, "read a version");
            return STEP_FAILED;
        }
        if (superseded)
            return STEP_DONE;
        sink_result_set(&w->results[i], OUTCOME_REFUSED,
                        "the table ignored the record (a trigger or ON CONFLICT IGNORE)");
        return STEP_REFUSED;
    }
    bool ended = sqlite3_get_autocommit(session->db);
    char reason[400]; /* the text first: other statements replace it */
    snprintf(reason, sizeof reason, "%s", sqlite3_errmsg(session->db));
    if (!is_of_row(w, table, rc)) {
        failed(w, rc, "write a record");
        return STEP_FAILED;
    }
    sink_result_set(&w->results[i], OUTCOME_REFUSED, reason);
    return ended ? STEP_ENDED : STEP_REFUSED;
}

static enum step write_row_alone(struct writing *w, size_t i)
{
    int rc = control(w, CONTROL_SAVEPOINT);
    if (rc != SQLITE_OK) {
        failed(w, rc, "set a savepoint");
        return STEP_FAILED;
    }
    enum step step = write_row(w, i);
    if (step == STEP_FAILED || step == STEP_ENDED)
        return step;
    if (step == STEP_REFUSED)
        rc = control(w, CONTROL_ROLLBACK_TO);
    if (rc == SQLITE_OK)
        rc = control(w, CONTROL_RELEASE);
    if (rc != SQLITE_OK) {
        failed(w, rc, "end a savepoint");
        return STEP_FAILED;
    }
    return step;
}

static int commit(struct writing *w, size_t from, size_t to)
{
    struct sqlite_session *session = w->session;
    size_t alive = 0, last = from;
    for (size_t i = from; i < to; i++) {
        if (w->results[i].outcome != OUTCOME_REFUSED) {
            alive++;
            last = i;
        }
    }
    int rc = control(w, CONTROL_COMMIT);
    if (rc != SQLITE_OK) {
        int code = failed(w, rc, "commit");
        if ((rc & 0xff) == SQLITE_CONSTRAINT) { /* deferred: SQLite does not say which row */
            if (alive == 1) {
                sink_result_set(&w->results[last], OUTCOME_REFUSED, sqlite3_errmsg(session->db));
                code = 0;
            } else {
                code = diag_set(w->diag, WEIR_REFUSED, "%s", sqlite3_errmsg(session->db));
            }
        } else if ((rc & 0xff) == SQLITE_IOERR) {
            /* The log may hold the whole of it, and a recovery would find it there. */
            code = WEIR_UNKNOWN;
        }
        roll_back(w);
        if (w->diag)
            w->diag->code = code;
        return code;
    }
    if (sqlite_moved(session)) /* The next call heals. */
        return diag_set(w->diag, WEIR_UNKNOWN, "%s: was deleted or replaced during a commit",
                        session->sink->path);
    for (size_t i = from; i < to; i++) {
        if (w->results[i].outcome != OUTCOME_REFUSED) {
            sink_result_set(&w->results[i], OUTCOME_STORED, "");
            w->committed = true;
        }
    }
    return 0;
}

/* Rows [from, to) in one transaction, without those that are refused already. 0 and *step: all
 * done, or the row that made it necessary to begin again. */
static int transaction(struct writing *w, size_t from, size_t to, enum step *step)
{
    int rc = control(w, CONTROL_BEGIN);
    if (rc != SQLITE_OK)
        return failed(w, rc, "begin a transaction");
    *step = STEP_DONE;
    for (size_t i = from; i < to; i++) {
        if (w->results[i].outcome == OUTCOME_REFUSED)
            continue;
        enum step row = w->careful ? write_row_alone(w, i) : write_row(w, i);
        if (row == STEP_DONE || (row == STEP_REFUSED && w->careful))
            continue;
        roll_back(w);
        w->ended_by = i;
        *step = row;
        return row == STEP_FAILED ? w->code : 0;
    }
    return commit(w, from, to);
}

/* The codes that sink_ops.write may return. */
static int retried(int code)
{
    switch (code) {
    case WEIR_REFUSED:
    case WEIR_UNAVAILABLE:
    case WEIR_UNKNOWN:
    case WEIR_NO_SPACE:
    case WEIR_IO:
        return code;
    case WEIR_CORRUPT:
        return WEIR_IO;
    default:
        return WEIR_UNAVAILABLE;
    }
}

static int write_all(struct writing *w)
{
    size_t n = w->batch->n;
    for (size_t from = 0, to = n; from < n;) {
        enum step step;
        int rc = transaction(w, from, to, &step);
        if (rc)
            return rc;
        if (step == STEP_DONE) {
            from = to;
            to = n;
        } else if (!w->careful) {
            w->careful = true;
        } else { /* STEP_ENDED: what came before it goes by itself; the row is refused by now */
            to = w->ended_by > from ? w->ended_by : n;
        }
    }
    return 0;
}

int sqlite_write(struct sink_session *base, const struct batch *batch, struct sink_result *results,
                 struct diag *diag)
{
    struct sqlite_session *session = (struct sqlite_session *)base;
    struct diag own;
    struct writing w = {
        .session = session, .batch = batch, .results = results, .diag = diag ? diag : &own};
    int rc = sqlite_enter(session, w.diag);
    if (rc == 0) {
        rc = sqlite_checkpoint_overdue(session, w.diag);
        for (size_t i = 0; i < batch->n; i++)
            sink_result_set(&results[i], OUTCOME_RETRY, "");
        if (rc == 0)
            rc = write_all(&w);
        if (w.committed)
            sqlite_checkpoint(session);
        sqlite_leave(session, w.sqlite_rc);
    }
    if (rc == 0)
        return 0;
    rc = retried(rc);
    w.diag->code = rc;
    if (!w.committed)
        return rc;
    /* Part of it is stored: the rest says for itself that it is to be tried again. */
    for (size_t i = 0; i < batch->n; i++) {
        if (results[i].outcome == OUTCOME_RETRY)
            sink_result_set(&results[i], OUTCOME_RETRY, w.diag->text);
    }
    return 0;
}
