/* sqlite.h: what the files of the SQLite sink share. Only sink/sqlite*.c include it.
 *
 *   sqlite.c             options, open and close, the const struct
 *   sqlite_connection.c  a session's connection: opened, healed, closed; checkpoints
 *   sqlite_error.c       what SQLite's codes mean to weir and to a person
 *   sqlite_schema.c      tables: names, checks, creation, statements
 *   sqlite_write.c       a batch in one transaction; what becomes of each record
 *   sqlite_read.c        one record, a scan in pieces, count, remove
 *
 * Invariants: 1. a connection is used only while its session's mutex is held; 2. no connection of
 * this process is open on a file that is no longer at `path` while another is opened on the one
 * that is (they would share -wal and -shm by name); 3. no read transaction outlives a call into
 * SQLite's layer: what a visitor sees was copied. */
#ifndef WEIR_SINK_SQLITE_H
#define WEIR_SINK_SQLITE_H

#include <pthread.h>
#include <sqlite3.h>
#include <sys/types.h>

#include "sink/sink.h"

#define SQLITE_APPLICATION_ID    0x77656972 /* "weir": a database that weir made */
#define SQLITE_SCHEMA_VERSION    1          /* user_version of such a database */
#define SQLITE_CHECKPOINT_FRAMES 4000       /* 16 MiB of write-ahead log; bench/sqlite_bench.c */
#define SQLITE_PIECE_ROWS        512
#define SQLITE_PIECE_BYTES       (1u << 20)

struct sqlite_table {
    uint32_t stream;
    char *name;   /* as configured */
    char *quoted; /* as SQL */
};

struct sqlite_sink {
    struct sink base;
    /* constant after open */
    const struct fs *fs;
    char *path, *wal_path, *directory;
    char *record;        /* the column that holds the record */
    char *record_quoted; /* as SQL */
    int busy_timeout_ms;
    bool read_only; /* nothing is created */
    struct sqlite_table *tables;
    size_t n_tables;

    /* One session at a time opens or heals; held across file access on purpose: only sessions
     * that have no connection wait for it. Taken after a session's own mutex; the mutexes of other
     * sessions are only tried under it. */
    pthread_mutex_t opening;
    struct sqlite_session *sessions; /* guarded by opening */
};

struct sqlite_file { /* which file it is; inode 0: none */
    dev_t device;
    ino_t inode;
};

enum sqlite_statement {
    STATEMENT_UPSERT,
    STATEMENT_VERSION, /* of an id */
    STATEMENT_READ,
    STATEMENT_SCAN,
    STATEMENT_COUNT,
    STATEMENT_REMOVE,
    STATEMENTS_PER_TABLE,
};

enum sqlite_control {
    CONTROL_BEGIN,
    CONTROL_COMMIT,
    CONTROL_ROLLBACK,
    CONTROL_SAVEPOINT,
    CONTROL_ROLLBACK_TO,
    CONTROL_RELEASE,
    CONTROLS,
};

struct sqlite_prepared {
    sqlite3_stmt *statements[STATEMENTS_PER_TABLE];
    bool attributes; /* the table has that column */
};

struct sqlite_piece_row {
    size_t id_n, key_n, doc_n; /* their bytes follow each other in piece_bytes */
    uint64_t version;
};

struct sqlite_session {
    struct sink_session base;
    /* constant after open */
    struct sqlite_sink *sink;
    bool read_only;

    /* guarded by sink->opening */
    struct sqlite_session *next;
    struct sqlite_file file; /* that its connection has open */
    bool held;               /* its mutex was taken by the session that heals */

    pthread_mutex_t busy;
    /* guarded by busy; the session that heals closes the connections of the others under it */
    sqlite3 *db; /* NULL: to be opened by the next call */
    sqlite3_stmt *control[CONTROLS];
    struct sqlite_prepared *tables; /* one for each of sink->tables */
    struct sqlite_file opened, wal; /* as `file`, and the write-ahead log once there is one */
    bool may_create;                /* the file was missing at the last look too */
    int wal_frames;                 /* after the last commit */
    int checkpoint_error;           /* of the last checkpoint; SQLITE_OK when it was fine */

    /* owned by the thread that uses the session */
    struct buf row, attributes;
    struct buf piece_bytes;
    struct sqlite_piece_row *piece; /* SQLITE_PIECE_ROWS of them, or NULL */
};

/* sqlite_connection.c */

/* Takes the session for one call: its mutex, and a connection to the file that is at `path` now.
 * On failure nothing is held. */
int sqlite_enter(struct sqlite_session *session, struct diag *diag);
/* Ends the call; an error that leaves the connection in doubt closes it, so that the next call
 * opens it again. */
void sqlite_leave(struct sqlite_session *session, int sqlite_rc);
/* The file at `path`, or its write-ahead log, is no longer the one this connection has open. */
bool sqlite_moved(struct sqlite_session *session);
int sqlite_session_open(struct sink *sink, bool read_only, struct sink_session **out,
                        struct diag *diag);
void sqlite_session_close(struct sink_session *session);
/* Moves the write-ahead log into the database when it has grown enough. */
void sqlite_checkpoint(struct sqlite_session *session);
/* 0, or why there may be no further commit: checkpoints fail and the write-ahead log grows. */
int sqlite_checkpoint_overdue(struct sqlite_session *session, struct diag *diag);

/* sqlite_error.c */

/* The code for a failure of `doing`, with a text that names the file, what SQLite said and what to
 * do. db may be NULL. */
int sqlite_error(const struct sqlite_sink *sink, sqlite3 *db, int sqlite_rc, const char *doing,
                 struct diag *diag);
/* Whether the connection should be closed and opened again after this error. */
bool sqlite_error_is_of_connection(int sqlite_rc);

/* sqlite_schema.c */

char *sqlite_quote(const char *name); /* "a ""name""", to be freed */
/* Checks what is there and creates what is missing (writable: in one transaction). *sqlite_rc is
 * what SQLite said last. */
int sqlite_schema_ready(struct sqlite_sink *sink, sqlite3 *db, bool writable, int *sqlite_rc,
                        struct diag *diag);
int sqlite_prepare_all(struct sqlite_session *session, int *sqlite_rc, struct diag *diag);
void sqlite_finalize_all(struct sqlite_session *session);
/* The SQL of a table's statement, to be freed. */
char *sqlite_statement_sql(const struct sqlite_sink *sink, const struct sqlite_table *table,
                           enum sqlite_statement which, bool attributes);
/* The index in sink->tables; streams that the sink does not serve are a programmer's error. */
/* The place of a stream's table. False: the sink serves no such stream (it did, perhaps, when the
 * record became a dead letter). */
bool sqlite_table_of(const struct sqlite_sink *sink, uint32_t stream, size_t *out);

/* sqlite_write.c and sqlite_read.c: the functions of the ops */
int sqlite_write(struct sink_session *session, const struct batch *batch,
                 struct sink_result *results, struct diag *diag);
int sqlite_read(struct sink_session *session, uint32_t stream, struct slice id,
                struct sink_row *row, struct diag *diag);
int sqlite_scan(struct sink_session *session, uint32_t stream, struct slice after,
                int (*visit)(void *context, const struct sink_row *row), void *context,
                struct diag *diag);
int sqlite_count(struct sink_session *session, uint32_t stream, uint64_t *out, struct diag *diag);
int sqlite_remove(struct sink_session *session, uint32_t stream, struct slice id,
                  struct diag *diag);

#endif
