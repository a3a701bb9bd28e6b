/* suspects_repair.c: writes what is certainly missing or different (see suspects.h).
 *
 * The source is the newest record in the log, if that is new enough, else the primary's row. The
 * log is read twice: first to learn which record of each id is the newest, then to write just
 * those, so that no more than one batch is in memory. */
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "delivery/repair.h"
#include "delivery/suspects.h"
#include "exec/wait.h"

#define BATCH_RECORDS 500
#define BATCH_BYTES   ((size_t)4 << 20)
#define PATIENCE_MS   15000 /* a store that is locked is tried again for so long */
#define RETRY_MS      100

struct repairing {
    struct suspects *suspects;
    struct sink_session *writer; /* NULL: config->write */
    struct batch batch;
    struct suspect *of[BATCH_RECORDS]; /* whom each record of the batch mends */
    int failure;
    struct diag *diag;
};

static int call(struct repairing *r, struct sink_result *results)
{
    const struct reconcile_config *config = r->suspects->config;
    if (config->write)
        return config->write(config->context, &r->batch, results, r->diag);
    repair_write(r->writer, &r->batch, results);
    return 0;
}

/* Until each record of the batch is stored or refused. */
static int write_batch(struct repairing *r, struct sink_result *results)
{
    uint64_t until_ns = clock_mono_ns() + PATIENCE_MS * UINT64_C(1000000);
    for (;;) {
        int rc = call(r, results);
        const char *why = NULL;
        for (size_t i = 0; i < r->batch.n && rc == 0 && !why; i++)
            why = results[i].outcome == OUTCOME_RETRY ? results[i].reason : NULL;
        if (rc != WEIR_UNAVAILABLE && !why)
            return rc;
        if (clock_mono_ns() >= until_ns)
            return rc ? rc : diag_set(r->diag, WEIR_UNAVAILABLE, "repair: %s", why);
        exec_sleep(RETRY_MS);
    }
}

static int flush(struct repairing *r)
{
    struct sink_result results[BATCH_RECORDS];
    size_t n = r->batch.n;
    if (n == 0)
        return 0;
    int rc = write_batch(r, results);
    for (size_t i = 0; i < n && rc == 0; i++)
        r->of[i]->state =
            results[i].outcome == OUTCOME_STORED ? SUSPECT_REPAIRED : SUSPECT_NOT_REPAIRABLE;
    batch_clear(&r->batch);
    return rc;
}

static struct slice copy(char **at, struct slice s)
{
    struct slice copied = {*at, s.n};
    if (s.n)
        memcpy(*at, s.p, s.n);
    *at += s.n;
    return copied;
}

static int add(struct repairing *r, struct suspect *suspect, const struct record *record)
{
    struct record own = *record;
    struct chunk *chunk =
        chunk_create(record->id.n + record->key.n + record->doc.n + record->attributes.n + 1);
    char *at = chunk->data;
    own.id = copy(&at, record->id);
    own.key = copy(&at, record->key);
    own.doc = copy(&at, record->doc);
    own.attributes = copy(&at, record->attributes);
    r->of[r->batch.n] = suspect;
    batch_add(&r->batch, &own, chunk);
    chunk_unref(chunk);
    return r->batch.n == BATCH_RECORDS || r->batch.bytes >= BATCH_BYTES ? flush(r) : 0;
}

static bool to_repair(const struct suspect *suspect)
{
    return suspect->state == SUSPECT_CERTAIN && suspect->kind != DIFFERENCE_EXTRA;
}

static int choose(void *context, const struct record *record)
{
    struct suspect *suspect = suspects_of_record(((struct repairing *)context)->suspects, record);
    if (suspect && to_repair(suspect) &&
        (!suspect->in_log || record->version >= suspect->log_version)) {
        suspect->in_log = true;
        suspect->log_offset = record->offset;
        suspect->log_partition = record->partition;
        suspect->log_version = record->version;
    }
    return 0;
}

static int write_chosen(void *context, const struct record *record)
{
    struct repairing *r = context;
    struct suspect *suspect = suspects_of_record(r->suspects, record);
    if (!suspect || !to_repair(suspect) || !suspect->in_log ||
        record->offset != suspect->log_offset || record->partition != suspect->log_partition ||
        record->version != suspect->log_version)
        return 0;
    suspect->in_log = false; /* once */
    r->failure = add(r, suspect, record);
    return r->failure ? 1 : 0;
}

static int repair_from_log(struct repairing *r)
{
    struct suspects *suspects = r->suspects;
    const struct reconcile_config *config = suspects->config;
    if (!config->log)
        return 0;
    for (size_t i = 0; i < suspects->n; i++)
        suspects->list[i].in_log = false;
    int rc = log_scan(config->log, 0, choose, r, r->diag);
    if (rc)
        return rc;
    uint64_t first = UINT64_MAX;
    for (size_t i = 0; i < suspects->n; i++) {
        const struct suspect *suspect = &suspects->list[i];
        if (suspect->in_log && suspect->log_offset < first)
            first = suspect->log_offset;
    }
    if (first == UINT64_MAX)
        return 0;
    rc = log_scan(config->log, first, write_chosen, r, r->diag);
    if (rc == 1)
        rc = r->failure;
    return rc ? rc : flush(r);
}

static int repair_from_primary(struct repairing *r)
{
    struct suspects *suspects = r->suspects;
    const struct reconcile_config *config = suspects->config;
    if (!suspects->primary || config->primary == config->sink)
        return 0;
    for (size_t i = 0; i < suspects->n; i++) {
        struct suspect *suspect = &suspects->list[i];
        struct sink_row row;
        if (!to_repair(suspect))
            continue;
        struct slice id = suspect_id(suspects, suspect);
        int rc = suspects->primary->ops->read(suspects->primary, config->stream->number, id, &row,
                                              r->diag);
        if (rc == WEIR_NOT_FOUND ||
            (rc == 0 && suspect->expected.has_version && row.version < suspect->expected.version))
            continue;
        struct record record = {.id = id,
                                .key = row.key,
                                .doc = row.doc,
                                .version = row.version,
                                .stream = config->stream->number};
        if (rc == 0)
            rc = add(r, suspect, &record);
        if (rc)
            return rc;
    }
    return flush(r);
}

int suspects_repair(struct suspects *suspects, struct diag *diag)
{
    const struct reconcile_config *config = suspects->config;
    struct repairing r = {.suspects = suspects, .diag = diag};
    int rc = 0;
    bool needed = false;
    for (size_t i = 0; i < suspects->n; i++)
        needed = needed || to_repair(&suspects->list[i]);
    if (!needed)
        return 0;
    if (!config->write)
        rc = config->sink->ops->session_open(config->sink, false, &r.writer, diag);
    batch_init(&r.batch);
    if (rc == 0)
        rc = repair_from_log(&r);
    if (rc == 0)
        rc = repair_from_primary(&r);
    for (size_t i = 0; i < suspects->n && rc == 0; i++) {
        if (to_repair(&suspects->list[i]))
            suspects->list[i].state = SUSPECT_NOT_REPAIRABLE;
    }
    batch_fini(&r.batch);
    if (r.writer)
        r.writer->ops->session_close(r.writer);
    return rc;
}
