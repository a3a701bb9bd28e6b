/* sqlite_error.c: what SQLite's codes mean to weir and to a person (see sqlite.h). */
#include <errno.h>
#include <stdio.h>

#include "sink/sqlite.h"

struct meaning {
    int sqlite_code; /* primary */
    const char *name;
    int code;
    bool of_connection;
    const char *advice;
};

static const struct meaning meanings[] = {
    {SQLITE_BUSY, "SQLITE_BUSY", WEIR_UNAVAILABLE, false,
     "another connection holds the lock: end its transaction"},
    {SQLITE_LOCKED, "SQLITE_LOCKED", WEIR_UNAVAILABLE, false,
     "another connection holds the lock: end its transaction"},
    {SQLITE_READONLY, "SQLITE_READONLY", WEIR_UNAVAILABLE, true,
     "make the file, its -wal and -shm, and its directory writable"},
    {SQLITE_CANTOPEN, "SQLITE_CANTOPEN", WEIR_UNAVAILABLE, true,
     "see that it is a file that this user may read and write, in a directory that this user may "
     "write"},
    {SQLITE_PERM, "SQLITE_PERM", WEIR_UNAVAILABLE, true, "give this user the right to write it"},
    {SQLITE_AUTH, "SQLITE_AUTH", WEIR_UNAVAILABLE, true, "give this user the right to write it"},
    {SQLITE_PROTOCOL, "SQLITE_PROTOCOL", WEIR_UNAVAILABLE, true,
     "another connection holds the write-ahead log"},
    {SQLITE_FULL, "SQLITE_FULL", WEIR_NO_SPACE, false, "make room for it"},
    {SQLITE_IOERR, "SQLITE_IOERR", WEIR_IO, true, "look at the disk and at the kernel's messages"},
    {SQLITE_CORRUPT, "SQLITE_CORRUPT", WEIR_CORRUPT, true,
     "restore it from a copy, or move it away and refill it (weir reconcile --repair)"},
    {SQLITE_NOTADB, "SQLITE_NOTADB", WEIR_CORRUPT, true,
     "it is not a SQLite database: name another path, or move the file away"},
    {SQLITE_NOMEM, "SQLITE_NOMEM", WEIR_UNAVAILABLE, true, "free some memory"},
    {SQLITE_ERROR, "SQLITE_ERROR", WEIR_INVALID, true,
     "see that the table has what weir needs and that its triggers work"},
};

static const struct meaning other = {0, "SQLITE", WEIR_UNAVAILABLE, true, "weir tries again"};

static const struct meaning *meaning_of(int sqlite_rc)
{
    for (size_t i = 0; i < sizeof meanings / sizeof meanings[0]; i++) {
        if (meanings[i].sqlite_code == (sqlite_rc & 0xff))
            return &meanings[i];
    }
    return &other;
}

bool sqlite_error_is_of_connection(int sqlite_rc)
{
    switch (sqlite_rc & 0xff) {
    case SQLITE_OK:
    case SQLITE_ROW:
    case SQLITE_DONE:
        return false;
    default:
        return meaning_of(sqlite_rc)->of_connection;
    }
}

int sqlite_error(const struct sqlite_sink *sink, sqlite3 *db, int sqlite_rc, const char *doing,
                 struct diag *diag)
{
    const struct meaning *meaning = meaning_of(sqlite_rc);
    const char *said = db ? sqlite3_errmsg(db) : sqlite3_errstr(sqlite_rc);
    int code = meaning->code;
    const char *advice = meaning->advice;
    char system[96] = "";
    int primary = sqlite_rc & 0xff;
    int number = db ? sqlite3_system_errno(db) : 0;
    if (number != 0 && (primary == SQLITE_IOERR || primary == SQLITE_CANTOPEN)) {
        char text[64];
        snprintf(system, sizeof system, ": %s", strerror_r(number, text, sizeof text));
        if (number == ENOSPC || number == EDQUOT) {
            code = WEIR_NO_SPACE;
            advice = "make room for it";
        }
    }
    return diag_set(diag, code, "%s: cannot %s: %s (%s, %d)%s; %s", sink->path, doing, said,
                    meaning->name, sqlite_rc, system, advice);
}
