/* sqlite_connection.c: a session's connection: opened, healed, closed; checkpoints (see sqlite.h).
 *
 *   closed -> open     connect, by sqlite_enter
 *   open   -> closed   drop: sqlite_leave after an error of the connection; close_stale when the
 *                      file at the path is another one now; sqlite_session_close
 *
 * SQLite goes on writing into a file that was deleted or renamed. So each call looks first whether
 * the path still names the file it has open, and a commit looks again before it says stored.
 *
 * The write-ahead log and the shared memory are found by name: those of a file that was replaced
 * would be taken for those of its successor. So before the new file is opened, all connections of
 * this process to the old one are closed, its log emptied into it first. */
#include <errno.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "sink/sqlite.h"

static struct sqlite_file file_at(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return (struct sqlite_file){0};
    return (struct sqlite_file){st.st_dev, st.st_ino};
}

static bool same_file(struct sqlite_file a, struct sqlite_file b)
{
    return a.inode == b.inode && a.device == b.device;
}

static bool log_moved(struct sqlite_session *session)
{
    if (session->wal.inode == 0) {
        session->wal = file_at(session->sink->wal_path);
        return false;
    }
    return !same_file(session->wal, file_at(session->sink->wal_path));
}

bool sqlite_moved(struct sqlite_session *session)
{
    /* A reader's log may come and go with the last writer. */
    return !same_file(session->opened, file_at(session->sink->path)) ||
           (!session->read_only && log_moved(session));
}

/* Closes the connection; busy and opening are held. */
static void drop(struct sqlite_session *session)
{
    sqlite_finalize_all(session);
    sqlite3_close(session->db);
    session->db = NULL;
    session->opened = session->wal = session->file = (struct sqlite_file){0};
    session->wal_frames = 0;
    session->checkpoint_error = SQLITE_OK;
}

static int busy_elsewhere(const struct sqlite_sink *sink, struct diag *diag)
{
    return diag_set(diag, WEIR_UNAVAILABLE,
                    "%s: was deleted or replaced while in use; it is opened again as soon as what "
                    "reads the old file has ended",
                    sink->path);
}

/* Closes the connections of all sessions that have another file open than `now` (`all`: whatever
 * they have open). busy of `self` and opening are held. */
static int close_stale(struct sqlite_session *self, struct sqlite_file now, bool all,
                       struct diag *diag)
{
    struct sqlite_sink *sink = self->sink;
    struct sqlite_session *writer = NULL;
    int rc = 0;
    for (struct sqlite_session *s = sink->sessions; s && rc == 0; s = s->next) {
        if (s->file.inode == 0 || (!all && same_file(s->file, now)))
            continue;
        if (s != self && pthread_mutex_trylock(&s->busy) != 0) {
            rc = busy_elsewhere(sink, diag);
            break;
        }
        s->held = true;
        if (!s->read_only)
            writer = s;
    }
    if (rc == 0 && writer) {
        int sqlite_rc =
            sqlite3_wal_checkpoint_v2(writer->db, "main", SQLITE_CHECKPOINT_TRUNCATE, NULL, NULL);
        struct stat st;
        /* A log that could not be emptied matters only while it lies where the next one will. */
        if (sqlite_rc != SQLITE_OK && stat(sink->wal_path, &st) == 0 && st.st_size > 0 &&
            same_file(writer->wal, (struct sqlite_file){st.st_dev, st.st_ino}))
            rc = busy_elsewhere(sink, diag);
    }
    for (struct sqlite_session *s = sink->sessions; s; s = s->next) {
        if (!s->held)
            continue;
        s->held = false;
        if (rc == 0)
            drop(s);
        if (s != self)
            pthread_mutex_unlock(&s->busy);
    }
    return rc;
}

static int set_pragma(struct sqlite_session *session, const char *pragma, const char *expected,
                      int *sqlite_rc, struct diag *diag)
{
    const struct sqlite_sink *sink = session->sink;
    sqlite3_stmt *statement;
    char got[32] = "";
    int rc = sqlite3_prepare_v2(session->db, pragma, -1, &statement, NULL);
    if (rc == SQLITE_OK) {
        if (sqlite3_step(statement) == SQLITE_ROW)
            snprintf(got, sizeof got, "%s", (const char *)sqlite3_column_text(statement, 0));
        rc = sqlite3_finalize(statement);
    }
    *sqlite_rc = rc;
    if (rc)
        return sqlite_error(sink, session->db, rc, "be set up", diag);
    if (expected && strcmp(got, expected) != 0)
        return diag_set(diag, WEIR_UNSUPPORTED,
                        "%s: \"%s\" has no effect (it stays \"%s\"): is the file on a network file "
                        "system? Move it to a local disk",
                        sink->path, pragma, got);
    return 0;
}

static int commit_hook(void *context, sqlite3 *db, const char *name, int frames)
{
    (void)db, (void)name;
    ((struct sqlite_session *)context)->wal_frames = frames;
    return SQLITE_OK;
}

static int set_up(struct sqlite_session *session, int *sqlite_rc, struct diag *diag)
{
    struct sqlite_sink *sink = session->sink;
    sqlite3 *db = session->db;
    sqlite3_busy_timeout(db, sink->busy_timeout_ms);
    /* Before anything is read: SQLite would make -wal and -shm as read-only as the file is, and
     * they would stay so when the file can be written again. */
    if (!session->read_only && sqlite3_db_readonly(db, "main") == 1) {
        *sqlite_rc = SQLITE_READONLY;
        return sqlite_error(sink, NULL, SQLITE_READONLY, "be opened for writing", diag);
    }
    int rc = set_pragma(session, "PRAGMA main.encoding", "UTF-8", sqlite_rc, diag);
    if (rc)
        return rc;
    if (!session->read_only) {
        static const char *const settings[][2] = {
            {"PRAGMA main.journal_mode = WAL", "wal"},
            {"PRAGMA main.synchronous = FULL", NULL},
            {"PRAGMA main.synchronous", "2"},
            {"PRAGMA foreign_keys = ON", NULL},
            {"PRAGMA main.cache_size = -16000", NULL},
            {"PRAGMA main.journal_size_limit = 67108864", NULL}, /* after a reader held it long */
            {"PRAGMA main.wal_autocheckpoint = 0", NULL},        /* sqlite_checkpoint instead */
        };
        for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
            rc = set_pragma(session, settings[i][0], settings[i][1], sqlite_rc, diag);
            if (rc)
                return rc;
        }
        sqlite3_wal_hook(db, commit_hook, session);
    }
    rc = sqlite_schema_ready(sink, db, !session->read_only, sqlite_rc, diag);
    return rc ? rc : sqlite_prepare_all(session, sqlite_rc, diag);
}

static int make_directory(const struct sqlite_sink *sink, struct diag *diag)
{
    int rc = fs_mkdirs(sink->fs, sink->directory);
    if (rc == 0)
        return 0;
    return diag_set(diag, rc == WEIR_NO_SPACE ? WEIR_NO_SPACE : WEIR_UNAVAILABLE,
                    "%s: the directory cannot be created: %s", sink->directory, strerror(errno));
}

/* Creates the file, so that only its owner can read it, as with all that weir keeps; SQLite would
 * ask the umask. The write-ahead log and the shared memory take the mode of the database. */
static int make_file(const struct sqlite_sink *sink, struct diag *diag)
{
    struct fs_file *file;
    int rc = fs_open(sink->fs, sink->path, FS_WRITE | FS_CREATE | FS_EXCLUSIVE, &file);
    if (rc == 0)
        fs_close(file); /* nobody has a lock on it yet that a close would take away */
    if (rc == 0 || rc == WEIR_EXISTS)
        return 0;
    return diag_set(diag, rc == WEIR_NO_SPACE ? WEIR_NO_SPACE : WEIR_UNAVAILABLE,
                    "%s: cannot be created: %s", sink->path, strerror(errno));
}

/* Opens the file at the path; busy and opening are held. */
static int connect_locked(struct sqlite_session *session, struct diag *diag)
{
    struct sqlite_sink *sink = session->sink;
    bool writable = !session->read_only;
    struct sqlite_file before = file_at(sink->path);
    int rc = close_stale(session, before, false, diag);
    if (rc)
        return rc;
    bool missing = before.inode == 0;
    if (missing && !writable)
        return diag_set(diag, WEIR_UNAVAILABLE, "%s: does not exist", sink->path);
    if (missing && !session->may_create) {
        /* Not at once: it may be on its way back. */
        session->may_create = true;
        return diag_set(diag, WEIR_UNAVAILABLE,
                        "%s: was deleted; it is created again, empty, at the next try (weir "
                        "reconcile --repair or weir rebuild refills it)",
                        sink->path);
    }
    session->may_create = false;
    if (missing && ((rc = make_directory(sink, diag)) != 0 || (rc = make_file(sink, diag)) != 0))
        return rc;
    int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE |
                (writable ? SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE : SQLITE_OPEN_READONLY);
    int sqlite_rc = sqlite3_open_v2(sink->path, &session->db, flags, "weir");
    if (sqlite_rc)
        rc = sqlite_error(sink, session->db, sqlite_rc, "be opened", diag);
    else
        rc = set_up(session, &sqlite_rc, diag);
    struct sqlite_file after = file_at(sink->path);
    if (rc == 0 && (missing ? after.inode == 0 : !same_file(before, after)))
        rc = diag_set(diag, WEIR_UNAVAILABLE, "%s: was replaced while it was being opened",
                      sink->path);
    if (rc) {
        drop(session);
        return rc;
    }
    session->opened = session->file = after;
    return 0;
}

static int heal(struct sqlite_session *session, struct diag *diag)
{
    struct sqlite_sink *sink = session->sink;
    struct sqlite_file now = file_at(sink->path);
    bool replaced = !same_file(session->opened, now);
    pthread_mutex_lock(&sink->opening);
    int rc = close_stale(session, now, !replaced, diag);
    pthread_mutex_unlock(&sink->opening);
    if (rc || session->read_only)
        return rc;
    /* Once to the writer, so that a person hears of it. */
    return diag_set(diag, WEIR_UNAVAILABLE,
                    "%s: %s while in use; weir opens it again (weir reconcile shows what the store "
                    "holds now)",
                    sink->path,
                    !replaced   ? "its write-ahead log was deleted or replaced"
                    : now.inode ? "was replaced"
                                : "was deleted");
}

int sqlite_enter(struct sqlite_session *session, struct diag *diag)
{
    int rc = 0;
    pthread_mutex_lock(&session->busy);
    if (session->db && sqlite_moved(session))
        rc = heal(session, diag);
    if (rc == 0 && !session->db) {
        pthread_mutex_lock(&session->sink->opening);
        rc = connect_locked(session, diag);
        pthread_mutex_unlock(&session->sink->opening);
    }
    if (rc)
        pthread_mutex_unlock(&session->busy);
    return rc;
}

void sqlite_leave(struct sqlite_session *session, int sqlite_rc)
{
    if (session->db && sqlite_error_is_of_connection(sqlite_rc)) {
        pthread_mutex_lock(&session->sink->opening);
        drop(session);
        pthread_mutex_unlock(&session->sink->opening);
    }
    pthread_mutex_unlock(&session->busy);
}

void sqlite_checkpoint(struct sqlite_session *session)
{
    if (session->wal_frames < SQLITE_CHECKPOINT_FRAMES)
        return;
    /* Passive: it never waits for readers. What it could not move waits for the next time. */
    int rc = sqlite3_wal_checkpoint_v2(session->db, "main", SQLITE_CHECKPOINT_PASSIVE, NULL, NULL);
    session->checkpoint_error = rc == SQLITE_BUSY || rc == SQLITE_LOCKED ? SQLITE_OK : rc;
}

int sqlite_checkpoint_overdue(struct sqlite_session *session, struct diag *diag)
{
    if (session->checkpoint_error == SQLITE_OK ||
        session->wal_frames < 8 * SQLITE_CHECKPOINT_FRAMES)
        return 0;
    sqlite_checkpoint(session);
    if (session->checkpoint_error == SQLITE_OK)
        return 0;
    return sqlite_error(session->sink, session->db, session->checkpoint_error,
                        "move its write-ahead log into the database", diag);
}

int sqlite_session_open(struct sink *base, bool read_only, struct sink_session **out,
                        struct diag *diag)
{
    struct sqlite_sink *sink = (struct sqlite_sink *)base;
    if (sink->read_only && !read_only)
        return diag_set(diag, WEIR_DENIED, "%s: the sink was opened for reading only", sink->path);
    struct sqlite_session *session = mem_zalloc(sizeof *session);
    session->base.ops = base->ops;
    session->sink = sink;
    session->read_only = read_only;
    session->may_create = true;
    session->tables = mem_zalloc((sink->n_tables + 1) * sizeof *session->tables);
    pthread_mutex_init(&session->busy, NULL);
    pthread_mutex_lock(&sink->opening);
    session->next = sink->sessions;
    sink->sessions = session;
    pthread_mutex_unlock(&sink->opening);
    int rc = sqlite_enter(session, diag);
    if (rc) {
        sqlite_session_close(&session->base);
        /* The caller tells "try again" from "mend it" by the code. */
        bool again = rc == WEIR_NO_SPACE || rc == WEIR_IO;
        if (again && diag)
            diag->code = WEIR_UNAVAILABLE;
        return again ? WEIR_UNAVAILABLE : rc;
    }
    sqlite_leave(session, SQLITE_OK);
    *out = &session->base;
    return 0;
}

void sqlite_session_close(struct sink_session *base)
{
    struct sqlite_session *session = (struct sqlite_session *)base;
    struct sqlite_sink *sink = session->sink;
    pthread_mutex_lock(&session->busy);
    pthread_mutex_lock(&sink->opening);
    struct sqlite_session **at = &sink->sessions;
    while (*at != session)
        at = &(*at)->next;
    *at = session->next;
    drop(session);
    pthread_mutex_unlock(&sink->opening);
    pthread_mutex_unlock(&session->busy);
    pthread_mutex_destroy(&session->busy);
    buf_fini(&session->row);
    buf_fini(&session->attributes);
    buf_fini(&session->piece_bytes);
    mem_free(session->piece);
    mem_free(session->tables);
    mem_free(session);
}
