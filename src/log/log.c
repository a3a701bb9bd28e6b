/* log.c: the list of log kinds, and the way from log.h to the kind's functions. */
#include <string.h>

#include "base/buf.h"
#include "log/kinds.h"

static const struct log_ops *const kinds[] = {
    &log_journal,
};

#define KINDS (sizeof kinds / sizeof *kinds)

int log_open(const char *kind, const struct log_config *config, struct log **out, struct diag *diag)
{
    for (size_t i = 0; i < KINDS; i++)
        if (strcmp(kinds[i]->kind, kind) == 0)
            return kinds[i]->open(config, out, diag);
    struct buf names = {0};
    for (size_t i = 0; i < KINDS; i++)
        buf_printf(&names, "%s%s", i ? ", " : "", kinds[i]->kind);
    int rc = diag_set(diag, WEIR_INVALID, "log: there is no kind \"%.60s\"; there is %s", kind,
                      buf_str(&names));
    buf_fini(&names);
    return rc;
}

void log_close(struct log *log)
{
    if (log)
        log->ops->close(log);
}

int log_append(struct log *log, struct body *body)
{
    return log->ops->append(log, body);
}

void log_kick(struct log *log)
{
    log->ops->kick(log);
}

size_t log_body_limit(const struct log *log)
{
    return log->ops->body_limit(log);
}

void log_flush(struct log *log)
{
    log->ops->flush(log);
}

void log_stats(struct log *log, struct log_stats *out)
{
    log->ops->stats(log, out);
}

void log_position_text(struct log *log, uint32_t partition, uint64_t offset, char out[64])
{
    log->ops->position_text(log, partition, offset, out);
}

int log_reader_open(struct log *log, const char *consumer, struct log_reader **out,
                    struct diag *diag)
{
    return log->ops->reader_open(log, consumer, out, diag);
}

int log_poll(struct log_reader *reader, struct batch *into, size_t max_records, size_t max_bytes,
             int timeout_ms, struct log_poll_result *result)
{
    return reader->ops->poll(reader, into, max_records, max_bytes, timeout_ms, result);
}

const char *log_reader_why(struct log_reader *reader)
{
    return reader->ops->why(reader);
}

void log_wake(struct log_reader *reader)
{
    reader->ops->wake(reader);
}

void log_settle(struct log_reader *reader, uint32_t partition, uint64_t offset)
{
    reader->ops->settle(reader, partition, offset);
}

void log_release(struct log_reader *reader, uint32_t partition)
{
    reader->ops->release(reader, partition);
}

uint64_t log_lag(struct log_reader *reader)
{
    return reader->ops->lag(reader);
}

void log_reader_close(struct log_reader *reader)
{
    if (reader)
        reader->ops->reader_close(reader);
}

int log_scan(struct log *log, uint64_t from_offset,
             int (*visit)(void *context, const struct record *record), void *context,
             struct diag *diag)
{
    return log->ops->scan(log, from_offset, visit, context, diag);
}

uint64_t log_cursor(struct log *log, const char *consumer, uint32_t partition)
{
    return log->ops->cursor(log, consumer, partition);
}
