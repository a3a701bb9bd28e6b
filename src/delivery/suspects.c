/* suspects.c: the set, and the second look (see suspects.h). */
#include "delivery/suspects.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/mem.h"
#include "exec/wait.h"

#define WATCH_MS 25 /* how often the cursor is read while lag is watched */

void suspects_init(struct suspects *suspects, const struct reconcile_config *config,
                   struct sink_session *session, struct sink_session *primary,
                   struct json_parser *parser)
{
    *suspects = (struct suspects){
        .config = config, .session = session, .primary = primary, .parser = parser};
}

void suspects_fini(struct suspects *suspects)
{
    mem_free(suspects->list);
    mem_free(suspects->table);
    buf_fini(&suspects->ids);
    buf_fini(&suspects->text);
    buf_fini(&suspects->canonical);
}

bool suspects_full(const struct suspects *suspects)
{
    size_t max = suspects->config->suspects_max;
    return suspects->n >= (max ? max : SUSPECTS_MAX) || suspects->ids.n >= SUSPECTS_BYTES;
}

void suspects_clear(struct suspects *suspects)
{
    suspects->n = 0;
    buf_clear(&suspects->ids);
    if (suspects->table)
        memset(suspects->table, 0, suspects->table_size * sizeof *suspects->table);
}

struct slice suspect_id(const struct suspects *suspects, const struct suspect *suspect)
{
    return (struct slice){suspects->ids.p + suspect->id_at, suspect->id_n};
}

/* The slot of an id: its own or a free one. The table is at most half full. */
static uint32_t *slot_of(struct suspects *suspects, struct slice id)
{
    size_t mask = suspects->table_size - 1;
    size_t i = hash64_seeded(id.p, id.n, hash_process_seed()) & mask;
    while (suspects->table[i] &&
           !slice_equal(suspect_id(suspects, &suspects->list[suspects->table[i] - 1]), id))
        i = (i + 1) & mask;
    return &suspects->table[i];
}

static void grow(struct suspects *suspects)
{
    suspects->capacity = suspects->capacity ? suspects->capacity * 2 : 256;
    suspects->list = mem_realloc(suspects->list, suspects->capacity * sizeof *suspects->list);
    mem_free(suspects->table);
    suspects->table_size = suspects->capacity * 2;
    suspects->table = mem_zalloc(suspects->table_size * sizeof *suspects->table);
    for (size_t i = 0; i < suspects->n; i++)
        *slot_of(suspects, suspect_id(suspects, &suspects->list[i])) = (uint32_t)i + 1;
}

void suspects_add(struct suspects *suspects, struct slice id, enum difference kind,
                  const struct expected *expected, const struct sink_row *in_store)
{
    if (suspects->n == suspects->capacity)
        grow(suspects);
    struct suspect *suspect = &suspects->list[suspects->n];
    *suspect = (struct suspect){
        .id_at = suspects->ids.n,
        .id_n = (uint16_t)id.n,
        .kind = (uint8_t)kind,
        .in_store = in_store != NULL,
        .store_version = in_store ? in_store->version : 0,
        .expected = *expected,
    };
    uint32_t *slot = slot_of(suspects, id);
    buf_put_slice(&suspects->ids, id);
    *slot = (uint32_t)++suspects->n;
}

struct suspect *suspects_find(struct suspects *suspects, struct slice id)
{
    uint32_t index = suspects->n ? *slot_of(suspects, id) : 0;
    return index ? &suspects->list[index - 1] : NULL;
}

struct suspect *suspects_of_record(struct suspects *suspects, const struct record *record)
{
    if (record->stream != suspects->config->stream->number)
        return NULL;
    struct suspect *suspect = suspects_find(suspects, record->id);
    if (!suspect)
        return NULL;
    return suspect->expected.has_version && record->version < suspect->expected.version ? NULL
                                                                                        : suspect;
}

bool suspects_hash(struct suspects *suspects, struct slice doc, struct hash128 *out)
{
    struct json_value root;
    struct json_error error;
    buf_clear(&suspects->text);
    buf_reserve(&suspects->text, doc.n + JSON_PADDING);
    buf_put_slice(&suspects->text, doc);
    if (json_parse(suspects->parser, suspects->text.p, doc.n, &root, &error))
        return false;
    *out = json_content_hash(root, &suspects->canonical);
    return true;
}

bool suspects_row_is_good(struct suspects *suspects, const struct expected *expected,
                          const struct sink_row *row, bool *unreadable)
{
    struct hash128 hash;
    *unreadable = false;
    if (expected->has_version && row->version != expected->version)
        return row->version > expected->version;
    if (!expected->has_hash)
        return true;
    *unreadable = !suspects_hash(suspects, row->doc, &hash);
    return !*unreadable && hash128_equal(hash, expected->hash);
}

/* --- the log beyond a cursor --------------------------------------------------------------------
 */

/* Which kinds of suspects a consumer's lag explains: what the sink lacks, its own; what only the
 * sink has, the primary's. */
struct horizon {
    struct suspects *suspects;
    const char *consumer;
    bool extra;
    uint64_t *from; /* by partition */
};

static bool concerns(const struct horizon *horizon, const struct suspect *suspect)
{
    return suspect->state == SUSPECT_OPEN && (suspect->kind == DIFFERENCE_EXTRA) == horizon->extra;
}

static int see_record(void *context, const struct record *record)
{
    struct horizon *horizon = context;
    const struct reconcile_config *config = horizon->suspects->config;
    if (record->partition >= config->partitions ||
        record->offset < horizon->from[record->partition])
        return 0;
    struct suspect *suspect = suspects_of_record(horizon->suspects, record);
    if (!suspect || !concerns(horizon, suspect))
        return 0;
    suspect->in_log = true;
    suspect->log_partition = record->partition;
    suspect->log_offset = record->offset;
    return 0;
}

static void read_cursors(struct horizon *horizon)
{
    const struct reconcile_config *config = horizon->suspects->config;
    for (unsigned p = 0; p < config->partitions; p++)
        horizon->from[p] = log_cursor(config->log, horizon->consumer, p);
}

static bool any(const struct horizon *horizon)
{
    const struct suspects *suspects = horizon->suspects;
    for (size_t i = 0; i < suspects->n; i++) {
        if (concerns(horizon, &suspects->list[i]))
            return true;
    }
    return false;
}

static int look_beyond(struct horizon *horizon, struct diag *diag)
{
    const struct reconcile_config *config = horizon->suspects->config;
    if (!config->log || !horizon->consumer || !any(horizon))
        return 0;
    read_cursors(horizon);
    uint64_t first = horizon->from[0];
    for (unsigned p = 1; p < config->partitions; p++)
        first = horizon->from[p] < first ? horizon->from[p] : first;
    return log_scan(config->log, first, see_record, horizon, diag);
}

/* --- the store, again ---------------------------------------------------------------------------
 */

static int read_row(struct sink_session *session, uint32_t stream, struct slice id,
                    struct sink_row *row, bool *there, struct diag *diag)
{
    int rc = session->ops->read(session, stream, id, row, diag);
    *there = rc == 0;
    return rc == WEIR_NOT_FOUND ? 0 : rc;
}

static int look_again(struct suspects *suspects, struct suspect *suspect, struct diag *diag)
{
    uint32_t stream = suspects->config->stream->number;
    struct slice id = suspect_id(suspects, suspect);
    struct sink_row row;
    bool there;
    if (suspect->kind == DIFFERENCE_EXTRA) {
        int rc = read_row(suspects->primary, stream, id, &row, &there, diag);
        if (rc == 0 && there)
            suspect->state = SUSPECT_CLEARED;
        return rc;
    }
    int rc = read_row(suspects->session, stream, id, &row, &there, diag);
    if (rc)
        return rc;
    suspect->in_store = there;
    suspect->store_version = there ? row.version : 0;
    suspect->kind = there ? DIFFERENCE_CONTENT : DIFFERENCE_MISSING;
    if (there && suspects_row_is_good(suspects, &suspect->expected, &row, &suspect->unreadable))
        suspect->state = SUSPECT_CLEARED;
    return 0;
}

/* The cursor that was read may be old. While it may be, what it calls lag is watched: when it has
 * passed a record, the store must hold it. */
static int watch(struct horizon *horizon, uint64_t until_ns, struct diag *diag)
{
    struct suspects *suspects = horizon->suspects;
    for (bool more = suspects->config->log && horizon->consumer; more;) {
        bool late = clock_mono_ns() >= until_ns;
        more = false;
        read_cursors(horizon);
        for (size_t i = 0; i < suspects->n; i++) {
            struct suspect *suspect = &suspects->list[i];
            if (!concerns(horizon, suspect))
                continue;
            if (suspect->log_offset >= horizon->from[suspect->log_partition]) {
                more = more || !late;
                suspect->state = late ? SUSPECT_LAG : SUSPECT_OPEN;
                continue;
            }
            int rc = look_again(suspects, suspect, diag);
            if (rc)
                return rc;
            if (suspect->state == SUSPECT_OPEN)
                suspect->state = SUSPECT_CERTAIN;
        }
        if (more)
            exec_sleep(WATCH_MS);
    }
    return 0;
}

static int see_letter(void *context, const struct dead_letter *letter)
{
    struct suspects *suspects = context;
    if (strcmp(letter->stream_name, suspects->config->stream->name) != 0)
        return 0;
    struct suspect *suspect = suspects_find(suspects, letter->record.id);
    if (suspect && suspect->state == SUSPECT_CERTAIN &&
        (!suspect->expected.has_version || letter->record.version >= suspect->expected.version))
        suspect->letter = letter->number;
    return 0;
}

int suspects_explain(struct suspects *suspects, struct diag *diag)
{
    const struct reconcile_config *config = suspects->config;
    uint64_t until_ns = clock_mono_ns() + (uint64_t)config->settle_ms * 1000000;
    uint64_t *from = mem_zalloc((config->partitions + 1) * sizeof *from);
    struct horizon own = {suspects, config->consumer, false, from};
    struct horizon primary = {suspects, config->primary_consumer, true, from};
    bool certain = false;
    int rc = look_beyond(&own, diag);
    if (rc == 0)
        rc = look_beyond(&primary, diag);
    for (size_t i = 0; i < suspects->n && rc == 0; i++) {
        struct suspect *suspect = &suspects->list[i];
        rc = look_again(suspects, suspect, diag);
        if (suspect->state == SUSPECT_OPEN && !suspect->in_log)
            suspect->state = SUSPECT_CERTAIN;
    }
    if (rc == 0)
        rc = watch(&own, until_ns, diag);
    if (rc == 0)
        rc = watch(&primary, until_ns, diag);
    for (size_t i = 0; i < suspects->n; i++)
        certain = certain || suspects->list[i].state == SUSPECT_CERTAIN;
    if (rc == 0 && certain && config->dead)
        rc = dead_scan(config->dead, see_letter, suspects, diag);
    mem_free(from);
    return rc;
}
