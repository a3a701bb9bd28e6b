/* sqlite.c: the SQLite sink: options, open and close, the const struct (see sqlite.h).
 *
 * Options:
 *   path          the database; default: the sink's name and ".db". Relative paths start at data.
 *   table         a table for each stream; "{stream}" stands for its name; default "{stream}"
 *   record        the column that holds the record as it came; default "doc"
 *   busy_timeout  how long SQLite itself waits for a lock; default 250ms: waiting is the delivery
 *                 engine's business, it can be seen there
 *
 * The write-ahead log and synchronous=FULL are no options: what was answered as stored survives a
 * power cut. */
#include <stdio.h>
#include <strings.h>

#include "base/mem.h"
#include "base/units.h"
#include "sink/kinds.h"
#include "sink/sqlite.h"
#include "sink/sqlite_vfs.h"

#define BUSY_TIMEOUT_MS     250
#define BUSY_TIMEOUT_MAX_MS 60000
#define PATH_LIMIT          500 /* SQLite's own is 512, with room for "-journal" */

/* The table's name for a stream, to be freed. */
static char *table_name(const char *template, const char *stream)
{
    struct buf out = {0};
    for (const char *p = template; *p;) {
        if (strncmp(p, "{stream}", 8) == 0) {
            buf_put_str(&out, stream);
            p += 8;
        } else {
            buf_put_char(&out, *p++);
        }
    }
    char *name = mem_strdup(buf_str(&out));
    buf_fini(&out);
    return name;
}

static const char *value_of(const struct sink_config *config, const char *option,
                            const char *otherwise)
{
    const struct sink_option *o = sink_option(config, option);
    return o ? o->value : otherwise;
}

static int check_path(const struct sink_config *config, struct diag *diag)
{
    const struct sink_option *o = sink_option(config, "path");
    if (!o)
        return 0;
    if (!o->value[0])
        return sink_option_bad(o, diag, "needs the path of a file");
    if (strcmp(o->value, ":memory:") == 0 || strncmp(o->value, "file:", 5) == 0)
        return sink_option_bad(o, diag, "\"%s\" is not the path of a file", o->value);
    if (o->value[strlen(o->value) - 1] == '/')
        return sink_option_bad(o, diag, "\"%s\" is a directory; name a file in it", o->value);
    char *path = sink_path(config, o->value);
    size_t n = strlen(path);
    mem_free(path);
    if (n > PATH_LIMIT)
        return sink_option_bad(o, diag, "a path of more than %d bytes", PATH_LIMIT);
    return 0;
}

static int check_tables(const struct sink_config *config, struct diag *diag)
{
    const struct sink_option none = {"table", "{stream}", 0};
    const struct sink_option *o = sink_option(config, "table");
    const char *template = o ? o->value : none.value;
    if (!o)
        o = &none;
    for (const char *p = strchr(template, '{'); p; p = strchr(p + 1, '{')) {
        if (strncmp(p, "{stream}", 8) != 0)
            return sink_option_bad(o, diag, "\"%s\": the only name in braces is {stream}",
                                   template);
    }
    for (size_t i = 0; i < config->n_streams; i++) {
        char *name = table_name(template, config->streams[i].name);
        bool empty = !name[0], reserved = strncasecmp(name, "sqlite_", 7) == 0;
        size_t same = i;
        for (size_t k = 0; k < i && same == i; k++) {
            char *before = table_name(template, config->streams[k].name);
            if (strcasecmp(before, name) == 0) /* as SQLite compares them */
                same = k;
            mem_free(before);
        }
        int rc = 0;
        if (empty)
            rc = sink_option_bad(o, diag, "the name of a table may not be empty");
        else if (reserved)
            rc = sink_option_bad(o, diag, "\"%s\": names that begin with sqlite_ are SQLite's own",
                                 name);
        else if (same != i)
            rc = sink_option_bad(o, diag,
                                 "streams %s and %s would share the table \"%s\"; use {stream}",
                                 config->streams[same].name, config->streams[i].name, name);
        mem_free(name);
        if (rc)
            return rc;
    }
    return 0;
}

static int sqlite_check(const struct sink_config *config, struct diag *diag)
{
    int rc = check_path(config, diag);
    if (rc == 0)
        rc = check_tables(config, diag);
    if (rc)
        return rc;
    const struct sink_option *record = sink_option(config, "record");
    static const char *const taken[] = {"id", "key", "version", "attributes"};
    if (record && !record->value[0])
        return sink_option_bad(record, diag, "needs the name of a column");
    for (size_t i = 0; record && i < sizeof taken / sizeof taken[0]; i++) {
        if (strcasecmp(record->value, taken[i]) == 0)
            return sink_option_bad(record, diag, "\"%s\" is the name of another column",
                                   record->value);
    }
    const struct sink_option *timeout = sink_option(config, "busy_timeout");
    uint64_t ms;
    if (timeout && units_parse_duration(slice_of(timeout->value), &ms))
        return sink_option_bad(timeout, diag, "\"%s\" is not a duration such as 250ms",
                               timeout->value);
    if (timeout && ms > BUSY_TIMEOUT_MAX_MS)
        return sink_option_bad(timeout, diag, "\"%s\" is more than a minute", timeout->value);
    return 0;
}

static void sqlite_close(struct sink *base)
{
    struct sqlite_sink *sink = (struct sqlite_sink *)base;
    for (size_t i = 0; i < sink->n_tables; i++) {
        mem_free(sink->tables[i].name);
        mem_free(sink->tables[i].quoted);
    }
    mem_free(sink->tables);
    mem_free(sink->path);
    mem_free(sink->wal_path);
    mem_free(sink->directory);
    mem_free(sink->record);
    mem_free(sink->record_quoted);
    pthread_mutex_destroy(&sink->opening);
    mem_free(sink);
}

static struct sqlite_sink *sink_create(const struct sink_config *config)
{
    struct sqlite_sink *sink = mem_zalloc(sizeof *sink);
    sink->base.ops = &sink_sqlite;
    sink->fs = config->fs;
    sink->read_only = config->read_only;
    pthread_mutex_init(&sink->opening, NULL);

    char *name = mem_printf("%s.db", config->name);
    sink->path = sink_path(config, value_of(config, "path", name));
    mem_free(name);
    sink->wal_path = mem_printf("%s-wal", sink->path);
    sink->directory = mem_strdup(sink->path);
    char *slash = strrchr(sink->directory, '/'); /* sink_path always gives one */
    slash[slash == sink->directory] = '\0';

    uint64_t ms = BUSY_TIMEOUT_MS;
    const struct sink_option *timeout = sink_option(config, "busy_timeout");
    if (timeout)
        units_parse_duration(slice_of(timeout->value), &ms);
    sink->busy_timeout_ms = (int)ms;
    sink->record = mem_strdup(value_of(config, "record", "doc"));
    sink->record_quoted = sqlite_quote(sink->record);
    sink->tables = mem_zalloc((config->n_streams + 1) * sizeof *sink->tables);
    sink->n_tables = config->n_streams;
    for (size_t i = 0; i < config->n_streams; i++) {
        struct sqlite_table *table = &sink->tables[i];
        table->stream = config->streams[i].number;
        table->name = table_name(value_of(config, "table", "{stream}"), config->streams[i].name);
        table->quoted = sqlite_quote(table->name);
    }
    return sink;
}

/* A mistake that trying again cannot mend ends here; a store that is locked, full or not there yet
 * does not keep a gateway from starting: its sessions say so. */
static int sqlite_open(const struct sink_config *config, struct sink **out, struct diag *diag)
{
    int rc = sqlite_check(config, diag);
    if (rc)
        return rc;
    if (sqlite_vfs_register() != 0)
        return diag_set(diag, WEIR_NO_MEMORY, "SQLite's file layer cannot be registered");
    struct sqlite_sink *sink = sink_create(config);
    struct sink_session *session = NULL;
    rc = sqlite_session_open(&sink->base, sink->read_only, &session, diag);
    if (rc == 0)
        sqlite_session_close(session);
    if (rc != 0 && rc != WEIR_UNAVAILABLE) {
        sqlite_close(&sink->base);
        return rc;
    }
    *out = &sink->base;
    return 0;
}

static const char *const sqlite_options[] = {"path", "table", "record", "busy_timeout", NULL};

const struct sink_ops sink_sqlite = {
    .kind = "sqlite",
    .options = sqlite_options,
    .writers = 1,
    .check = sqlite_check,
    .open = sqlite_open,
    .close = sqlite_close,
    .session_open = sqlite_session_open,
    .session_close = sqlite_session_close,
    .write = sqlite_write,
    .read = sqlite_read,
    .scan = sqlite_scan,
    .count = sqlite_count,
    .remove = sqlite_remove,
};
