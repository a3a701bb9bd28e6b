/* suspects.h: the ids that a comparison found missing, extra or different at first sight, until it
 * is known which of them are.
 *
 *   suspected -> cleared   suspects_explain: a second look found it as it should be
 *             -> lag       suspects_explain: the log still holds it beyond the cursor
 *             -> certain   suspects_explain
 *   certain   -> repaired, not repairable        suspects_repair (suspects_repair.c)
 *
 * The order of the looks is what makes it right beside a running gateway: first the cursor, then
 * the log behind it, then the store. What was delivered meanwhile is found by the last look.
 *
 * One thread. Bounded: full at SUSPECTS_MAX entries or SUSPECTS_BYTES of ids. */
#ifndef WEIR_DELIVERY_SUSPECTS_H
#define WEIR_DELIVERY_SUSPECTS_H

#include "base/json.h"
#include "delivery/id_list.h"

#define SUSPECTS_MAX   250000
#define SUSPECTS_BYTES ((size_t)64 << 20)

enum suspect_state {
    SUSPECT_OPEN,
    SUSPECT_CLEARED,
    SUSPECT_LAG,
    SUSPECT_CERTAIN,
    SUSPECT_REPAIRED,
    SUSPECT_NOT_REPAIRABLE,
};

struct suspect {
    uint64_t id_at;
    uint16_t id_n;
    uint8_t kind; /* enum difference: MISSING, EXTRA or CONTENT */
    uint8_t state;
    bool in_store, unreadable; /* the store's row: it is there, and it holds no JSON */
    struct expected expected;
    uint64_t store_version;
    uint64_t letter; /* its number as a dead letter; 0: it is none */
    /* the newest record of it in the log: beyond the cursor (explain), or anywhere (repair) */
    bool in_log;
    uint32_t log_partition;
    uint64_t log_offset, log_version;
};

struct suspects {
    /* constant */
    const struct reconcile_config *config;
    struct sink_session *session, *primary; /* for second looks; primary may be NULL */
    struct json_parser *parser;

    struct suspect *list;
    size_t n, capacity;
    struct buf ids;
    uint32_t *table; /* of indexes + 1 by the hash of the id */
    size_t table_size;
    struct buf text, canonical;
};

void suspects_init(struct suspects *suspects, const struct reconcile_config *config,
                   struct sink_session *session, struct sink_session *primary,
                   struct json_parser *parser);
void suspects_fini(struct suspects *suspects);
bool suspects_full(const struct suspects *suspects);
void suspects_add(struct suspects *suspects, struct slice id, enum difference kind,
                  const struct expected *expected, const struct sink_row *in_store);
void suspects_clear(struct suspects *suspects);
struct slice suspect_id(const struct suspects *suspects, const struct suspect *suspect);
/* NULL: that id is none. */
struct suspect *suspects_find(struct suspects *suspects, struct slice id);
/* Whether a record of the log is of a suspect, and new enough to be what it should be. */
struct suspect *suspects_of_record(struct suspects *suspects, const struct record *record);

/* Does a row hold what is expected, or something newer? *unreadable: it holds no JSON. */
bool suspects_row_is_good(struct suspects *suspects, const struct expected *expected,
                          const struct sink_row *row, bool *unreadable);
/* The content hash of a record's text; false: it is no JSON. */
bool suspects_hash(struct suspects *suspects, struct slice doc, struct hash128 *out);

/* Leaves every suspect cleared, lag or certain. */
int suspects_explain(struct suspects *suspects, struct diag *diag);
/* Writes what is certainly missing or different, from the log or the primary. */
int suspects_repair(struct suspects *suspects, struct diag *diag);

#endif
