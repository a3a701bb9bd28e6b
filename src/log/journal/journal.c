/* journal.c: the log kind "journal": opening, closing, figures, and the table of its functions.
 *
 * The insides are described in journal.h, the bytes on disk in format.h. */
#include <assert.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "log/journal/journal.h"
#include "log/kinds.h"
#include "os/thread.h"

void journal_report(struct journal *journal, const char *format, ...)
{
    if (!journal->config.events.report)
        return;
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    journal->config.events.report(journal->config.events.context, text);
}

void journal_refuse(struct journal *journal, enum refuse why, int code)
{
    if (why & (REFUSE_WRITE | REFUSE_PREPARE))
        atomic_store_explicit(&journal->refuse_code, code, memory_order_relaxed);
    /* release: with the code */
    atomic_fetch_or_explicit(&journal->refuse, why, memory_order_release);
}

void journal_allow(struct journal *journal, enum refuse why)
{
    atomic_fetch_and_explicit(&journal->refuse, ~(unsigned)why, memory_order_release);
}

void journal_update_full(struct journal *journal)
{
    /* Two threads may decide at once, by values of two moments; the keeper, whose tick goes on
     * while the log is full, has the last word. */
    uint64_t end = atomic_load_explicit(&journal->durable_lsn, memory_order_acquire);
    uint64_t low = atomic_load_explicit(&journal->low_lsn, memory_order_acquire);
    bool full = end > low && end - low > journal->config.max_bytes;
    unsigned was = atomic_load_explicit(&journal->refuse, memory_order_relaxed) & REFUSE_FULL;
    if (full && !was) {
        journal_refuse(journal, REFUSE_FULL, WEIR_FULL);
        keeper_ask_tick(journal);
    } else if (!full && was) {
        journal_allow(journal, REFUSE_FULL);
    }
}

/* --- cursors -----------------------------------------------------------------------------------
 */

/* Sets a cursor to where the log is. */
static void place_cursor(struct journal *journal, struct cursor *cursor, int loaded)
{
    pthread_mutex_lock(&journal->lock);
    struct segment first = journal->segments.items[0];
    pthread_mutex_unlock(&journal->lock);
    uint64_t end = atomic_load_explicit(&journal->durable_lsn, memory_order_acquire);
    uint64_t records = atomic_load_explicit(&journal->durable_records, memory_order_relaxed);
    if (loaded == WEIR_CORRUPT)
        journal_report(
            journal, "%s: the cursor is damaged; consumer %s begins again at the first record kept",
            cursor->path, cursor->name);
    if (loaded != 0) {
        cursor_begin(cursor, first.header.base, first.header.records_before);
        return;
    }
    uint64_t resume = cursor_resume(cursor);
    if (resume > end) {
        journal_report(journal,
                       "%s: the cursor (offset %" PRIu64 ") is behind the log's end (%" PRIu64
                       "); consumer %s goes on at the end",
                       cursor->path, resume, end, cursor->name);
    } else if (resume < first.header.base && !first.damaged) {
        journal_report(journal,
                       "%s: what the cursor points at (offset %" PRIu64
                       ") is no longer kept; consumer %s goes on at the first record kept (%" PRIu64
                       ")",
                       cursor->path, resume, cursor->name, first.header.base);
        cursor_advance(cursor, first.header.base, first.header.records_before);
    }
    cursor_cut(cursor, end, records);
}

static struct cursor *find_cursor(struct journal *journal, const char *consumer)
{
    struct cursor *found = NULL;
    pthread_mutex_lock(&journal->lock);
    for (size_t i = 0; i < journal->n_cursors && !found; i++)
        if (strcmp(journal->cursors[i]->name, consumer) == 0)
            found = journal->cursors[i];
    pthread_mutex_unlock(&journal->lock);
    return found;
}

static int sync_cursors(struct journal *journal, struct diag *diag)
{
    const struct fs *fs = journal->config.fs;
    int rc = fs->sync_dir(fs, journal->cursor_folder);
    if (rc)
        diag_set(diag, rc, "%s: cannot be synced: %s", journal->cursor_folder, strerror(errno));
    return rc;
}

int journal_cursor_get(struct journal *journal, const char *consumer, struct cursor **out,
                       struct diag *diag)
{
    struct cursor *cursor = find_cursor(journal, consumer);
    if (cursor) {
        *out = cursor;
        return 0;
    }
    int rc =
        cursor_create(journal->cursor_folder, consumer, journal->config.partitions, &cursor, diag);
    if (rc)
        return rc;
    int loaded = cursor_load(cursor, journal->config.fs, diag);
    /* What is seen now was perhaps replaced by a process that ended before it was durable; segments
     * are let go of by it. */
    if (loaded == 0)
        loaded = sync_cursors(journal, diag);
    if (loaded != 0 && loaded != WEIR_NOT_FOUND && loaded != WEIR_CORRUPT) {
        cursor_destroy(cursor);
        return loaded;
    }
    place_cursor(journal, cursor, loaded);
    pthread_mutex_lock(&journal->lock);
    bool room = journal->n_cursors < CURSORS_MAX;
    if (room) {
        journal->cursors =
            mem_realloc(journal->cursors, (journal->n_cursors + 1) * sizeof *journal->cursors);
        journal->cursors[journal->n_cursors++] = cursor;
    }
    pthread_mutex_unlock(&journal->lock);
    if (!room) {
        cursor_destroy(cursor);
        return diag_set(diag, WEIR_FULL, "consumer %s: the journal keeps %d cursors at most",
                        consumer, CURSORS_MAX);
    }
    *out = cursor;
    return 0;
}

static uint64_t journal_cursor(struct log *log, const char *consumer, uint32_t partition)
{
    struct journal *journal = journal_of(log);
    struct cursor *cursor = find_cursor(journal, consumer);
    if (cursor)
        return cursor_first_open(cursor, partition);
    uint64_t first = 0;
    if (cursor_create(journal->cursor_folder, consumer, journal->config.partitions, &cursor,
                      NULL) != 0)
        return 0;
    if (cursor_load(cursor, journal->config.fs, NULL) == 0)
        first = cursor_first_open(cursor, partition);
    cursor_destroy(cursor);
    return first;
}

/* --- opening and closing -----------------------------------------------------------------------
 */

static int check_config(const struct log_config *config, struct diag *diag)
{
    if (config->partitions == 0 || config->partitions > JOURNAL_PARTITIONS)
        return diag_set(diag, WEIR_INVALID, "log: partitions must be 1 to %d, not %u",
                        JOURNAL_PARTITIONS, config->partitions);
    if (config->read_only)
        return 0;
    if (config->segment_bytes < SEGMENT_BYTES_MIN || config->segment_bytes > SEGMENT_BYTES_MAX ||
        config->segment_bytes % SEGMENT_DATA)
        return diag_set(diag, WEIR_INVALID,
                        "log: segment must be 64KiB to 1GiB and a multiple of 4KiB, not %" PRIu64
                        " bytes",
                        config->segment_bytes);
    if (config->ring < 2 || (config->ring & (config->ring - 1)))
        return diag_set(diag, WEIR_INVALID, "log: ring must be a power of two, not %u",
                        config->ring);
    return 0;
}

static void destroy(struct journal *journal)
{
    for (size_t i = 0; i < journal->n_cursors; i++)
        cursor_destroy(journal->cursors[i]);
    mem_free(journal->cursors);
    for (size_t i = 0; i < journal->n_ready; i++)
        segment_use_close(journal->ready[i]);
    while (journal->left) {
        struct segment_use *use = journal->left;
        journal->left = use->next;
        segment_use_close(use);
    }
    segment_use_close(journal->current);
    segment_list_fini(&journal->segments);
    writer_fini(&journal->writer);
    ring_destroy(journal->ring);
    histogram_destroy(journal->group_records);
    histogram_destroy(journal->flush_ns);
    pthread_cond_destroy(&journal->work);
    pthread_cond_destroy(&journal->filled);
    pthread_mutex_destroy(&journal->lock);
    mem_free((char *)journal->config.data);
    mem_free(journal->folder);
    mem_free(journal->cursor_folder);
    mem_free(journal);
}

static struct journal *create(const struct log_config *config)
{
    struct journal *journal = mem_zalloc(sizeof *journal);
    journal->config = *config;
    journal->config.data = mem_strdup(config->data);
    journal->config.consumers = NULL; /* looked at while opening only */
    journal->folder = mem_printf("%s/journal", config->data);
    journal->cursor_folder = mem_printf("%s/cursors", config->data);
    pthread_mutex_init(&journal->lock, NULL);
    pthread_cond_init(&journal->filled, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&journal->work, &attributes);
    pthread_condattr_destroy(&attributes);
    return journal;
}

/* Everything that threads and rings need. */
static int open_for_writing(struct journal *journal, const char *const *consumers,
                            struct diag *diag)
{
    struct writer *writer = &journal->writer;
    journal->unit_max = journal->config.segment_bytes - SEGMENT_DATA - GROUP_OVERHEAD;
    journal->group_max = journal->config.segment_bytes - SEGMENT_DATA;
    if (journal->group_max > GROUP_MAX)
        journal->group_max = GROUP_MAX;
    writer_init(writer);
    int rc = journal_recover(journal, diag);
    if (rc)
        return rc;
    journal->ring = ring_create(journal->config.ring);
    journal->group_records = histogram_create();
    journal->flush_ns = histogram_create();
    writer_publish(journal, writer->lsn, writer->records_before);
    atomic_store(&journal->low_lsn, journal->segments.items[0].header.base);
    rc = fs_mkdirs(journal->config.fs, journal->cursor_folder);
    if (rc)
        return diag_set(diag, rc, "%s: cannot be made: %s", journal->cursor_folder,
                        strerror(errno));
    for (size_t i = 0; consumers && consumers[i]; i++) {
        struct cursor *cursor;
        rc = journal_cursor_get(journal, consumers[i], &cursor, diag);
        if (rc)
            return rc;
    }
    journal_report_left(journal);
    keeper_tick(journal); /* also decides whether the log is full */
    rc = thread_start(&journal->writer_thread, "journal", 0, writer_run, journal);
    if (rc)
        return diag_set(diag, rc, "the journal's thread cannot be started");
    rc = thread_start(&journal->keeper_thread, "journal-prep", 0, keeper_run, journal);
    if (rc) {
        atomic_store(&journal->stop_writer, true);
        writer_wake(journal);
        thread_join(journal->writer_thread);
        return diag_set(diag, rc, "the journal's second thread cannot be started");
    }
    return 0;
}

static void ignore_name(void *context, const char *name)
{
    (void)context;
    (void)name;
}

static int open_for_reading(struct journal *journal, struct diag *diag)
{
    const struct fs *fs = journal->config.fs;
    int rc = fs->list(fs, journal->folder, ignore_name, NULL);
    if (rc == WEIR_NOT_FOUND)
        return diag_set(diag, rc, "%s: there is no journal", journal->folder);
    if (rc)
        return diag_set(diag, rc, "%s: cannot be read: %s", journal->folder, strerror(errno));
    return 0;
}

static int journal_open(const struct log_config *config, struct log **out, struct diag *diag)
{
    int rc = check_config(config, diag);
    if (rc)
        return rc;
    struct journal *journal = create(config);
    journal->log.ops = &log_journal;
    if (config->read_only) {
        journal_refuse(journal, REFUSE_CLOSED, WEIR_CLOSED);
        rc = open_for_reading(journal, diag);
    } else {
        assert(config->events.durable);
        rc = open_for_writing(journal, config->consumers, diag);
    }
    if (rc) {
        destroy(journal);
        return rc;
    }
    *out = &journal->log;
    return 0;
}

static void journal_close(struct log *log)
{
    struct journal *journal = journal_of(log);
    if (!journal->config.read_only) {
        journal_refuse(journal, REFUSE_CLOSED, WEIR_CLOSED);
        journal_flush(log);
        atomic_store_explicit(&journal->stop_writer, true, memory_order_release);
        writer_wake(journal);
        thread_join(journal->writer_thread);
        pthread_mutex_lock(&journal->lock);
        journal->stop_keeper = true;
        pthread_cond_signal(&journal->work);
        pthread_mutex_unlock(&journal->lock);
        thread_join(journal->keeper_thread);
        keeper_tick(journal);
    }
    destroy(journal);
}

/* --- figures -----------------------------------------------------------------------------------
 */

static size_t journal_body_limit(const struct log *log)
{
    /* What is left of a segment after the headers of a body of a few records. One of very many, or
     * with attributes, may be too large below it: log_append says so. */
    return ((const struct journal *)log)->unit_max - 4096;
}

static void journal_stats(struct log *log, struct log_stats *out)
{
    struct journal *journal = journal_of(log);
    *out = (struct log_stats){.max_bytes = journal->config.max_bytes};
    if (journal->config.read_only)
        return;
    unsigned refuse = atomic_load_explicit(&journal->refuse, memory_order_relaxed);
    /* relaxed: figures of about one moment */
    out->appended_records = atomic_load_explicit(&journal->stat_records, memory_order_relaxed);
    out->appended_bytes = atomic_load_explicit(&journal->stat_bytes, memory_order_relaxed);
    out->groups = atomic_load_explicit(&journal->stat_groups, memory_order_relaxed);
    out->flushes = atomic_load_explicit(&journal->stat_flushes, memory_order_relaxed);
    out->flush_errors = atomic_load_explicit(&journal->stat_flush_errors, memory_order_relaxed);
    out->end_offset = atomic_load_explicit(&journal->durable_lsn, memory_order_relaxed);
    out->bytes_on_disk = keeper_disk_bytes(journal);
    out->ring_count = ring_count(journal->ring);
    out->ring_capacity = ring_capacity(journal->ring);
    out->full = refuse & (REFUSE_FULL | REFUSE_WRITE | REFUSE_PREPARE);
    out->poisoned = refuse & REFUSE_POISONED;
    out->group_records = journal->group_records;
    out->flush_ns = journal->flush_ns;
    pthread_mutex_lock(&journal->lock);
    out->first_offset = journal->segments.items[0].header.base;
    pthread_mutex_unlock(&journal->lock);
}

static void journal_position_text(struct log *log, uint32_t partition, uint64_t offset,
                                  char out[64])
{
    (void)log;
    snprintf(out, 64, "%" PRIu32 "-%" PRIu64, partition, offset);
}

const struct log_ops log_journal = {
    .kind = "journal",
    .open = journal_open,
    .append = journal_append,
    .kick = journal_kick,
    .body_limit = journal_body_limit,
    .flush = journal_flush,
    .stats = journal_stats,
    .position_text = journal_position_text,
    .reader_open = journal_reader_open,
    .poll = journal_poll,
    .why = journal_reader_why,
    .wake = journal_wake,
    .settle = journal_settle,
    .release = journal_release,
    .lag = journal_lag,
    .reader_close = journal_reader_close,
    .scan = journal_scan,
    .cursor = journal_cursor,
    .close = journal_close,
};
