/* reconcile.c: compares a sink with its reference (see reconcile.h).
 *
 * Both sides in the order of ids, merged: the primary's scan or the sorted id list against the
 * sink's scan. A list that is short beside the store is looked up id by id instead. What looks
 * wrong goes to the suspects (suspects.h) and is settled when they are full, and at the end. */
#include <inttypes.h>
#include <stdio.h>

#include "delivery/rows.h"
#include "delivery/suspects.h"

#define PROGRESS_EVERY 10000
#define LOOK_UP_BELOW  8 /* ids are looked up one by one when the store has so many times more */

struct run {
    const struct reconcile_config *config;
    struct reconcile_result result;
    struct suspects suspects;
    struct sink_session *session, *primary;
    struct diag *diag;
};

static void describe(const struct suspect *s, char *text, size_t n)
{
    if (s->kind == DIFFERENCE_EXTRA && s->state == SUSPECT_LAG)
        snprintf(text, n, "version %" PRIu64 "; the primary has yet to get it", s->store_version);
    else if (s->kind == DIFFERENCE_EXTRA)
        snprintf(text, n, "version %" PRIu64 " is not in the primary", s->store_version);
    else if (s->state == SUSPECT_LAG)
        snprintf(text, n, "waits in the log for its delivery");
    else if (s->letter)
        snprintf(text, n, "refused: it is dead letter %" PRIu64, s->letter);
    else if (s->kind == DIFFERENCE_MISSING && s->expected.has_version)
        snprintf(text, n, "version %" PRIu64 " is not there", s->expected.version);
    else if (s->kind == DIFFERENCE_MISSING)
        snprintf(text, n, "it is not there");
    else if (s->unreadable)
        snprintf(text, n, "version %" PRIu64 " is not JSON", s->store_version);
    else if (s->expected.has_version && s->store_version < s->expected.version)
        snprintf(text, n, "version %" PRIu64 " is older than %" PRIu64, s->store_version,
                 s->expected.version);
    else
        snprintf(text, n, "version %" PRIu64 " has other content", s->store_version);
}

static void report(struct run *run, struct suspect *s)
{
    char text[128];
    enum difference what = s->state == SUSPECT_LAG ? DIFFERENCE_LAG : (enum difference)s->kind;
    if (s->state == SUSPECT_CLEARED)
        return;
    describe(s, text, sizeof text);
    if (what == DIFFERENCE_LAG)
        run->result.lag++;
    else if (what == DIFFERENCE_MISSING)
        run->result.missing++;
    else if (what == DIFFERENCE_EXTRA)
        run->result.extra++;
    else
        run->result.different++;
    /* What only the sink has was never counted as compared. */
    if (s->kind != DIFFERENCE_EXTRA)
        run->result.equal--;
    if (run->config->found)
        run->config->found(run->config->context, what, suspect_id(&run->suspects, s), text);
}

/* Settles the suspects gathered so far. */
static int settle(struct run *run)
{
    struct suspects *suspects = &run->suspects;
    int rc = suspects->n ? suspects_explain(suspects, run->diag) : 0;
    for (size_t i = 0; i < suspects->n && rc == 0; i++)
        report(run, &suspects->list[i]);
    if (rc == 0 && run->config->repair)
        rc = suspects_repair(suspects, run->diag);
    for (size_t i = 0; i < suspects->n && rc == 0; i++) {
        run->result.repaired += suspects->list[i].state == SUSPECT_REPAIRED;
        run->result.not_repairable += suspects->list[i].state == SUSPECT_NOT_REPAIRABLE;
    }
    suspects_clear(suspects);
    return rc;
}

static int suspect(struct run *run, struct slice id, enum difference kind,
                   const struct expected *expected, const struct sink_row *row)
{
    suspects_add(&run->suspects, id, kind, expected, row);
    return suspects_full(&run->suspects) ? settle(run) : 0;
}

static void count_compared(struct run *run)
{
    run->result.compared++;
    run->result.equal++; /* until it is found to be otherwise */
    if (run->result.compared % PROGRESS_EVERY == 0 && run->config->progress)
        run->config->progress(run->config->context, run->result.compared);
}

/* --- against an id list -------------------------------------------------------------------------
 */

static int judge_listed(struct run *run, struct slice id, const struct expected *expected,
                        const struct sink_row *row)
{
    bool unreadable;
    count_compared(run);
    if (!row)
        return suspect(run, id, DIFFERENCE_MISSING, expected, NULL);
    if (suspects_row_is_good(&run->suspects, expected, row, &unreadable))
        return 0;
    return suspect(run, id, DIFFERENCE_CONTENT, expected, row);
}

static int look_up_list(struct run *run, size_t first, size_t last)
{
    int rc = 0;
    for (size_t i = first; i < last && rc == 0; i++) {
        struct expected expected;
        struct sink_row row;
        struct slice id = id_list_at(run->config->ids, i, &expected);
        rc =
            run->session->ops->read(run->session, run->config->stream->number, id, &row, run->diag);
        if (rc == 0 || rc == WEIR_NOT_FOUND)
            rc = judge_listed(run, id, &expected, rc == 0 ? &row : NULL);
    }
    return rc;
}

static int merge_list(struct run *run, size_t first, size_t last)
{
    struct rows rows;
    const struct sink_row *row;
    rows_begin(&rows, run->session, run->config->stream->number);
    int rc = rows_next(&rows, &row, run->diag);
    for (size_t i = first; i < last && rc == 0; i++) {
        struct expected expected;
        struct slice id = id_list_at(run->config->ids, i, &expected);
        while (rc == 0 && row && slice_compare(row->id, id) < 0)
            rc = rows_next(&rows, &row, run->diag);
        if (rc == 0)
            rc = judge_listed(run, id, &expected, row && slice_equal(row->id, id) ? row : NULL);
    }
    rows_end(&rows);
    return rc;
}

static int compare_list(struct run *run)
{
    size_t first, last;
    uint64_t rows = 0;
    id_list_range(run->config->ids, run->config->stream->name, &first, &last);
    if (first == last)
        return 0;
    int rc = run->session->ops->count(run->session, run->config->stream->number, &rows, run->diag);
    if (rc)
        return rc;
    bool look_up = rows / LOOK_UP_BELOW > last - first;
    return look_up ? look_up_list(run, first, last) : merge_list(run, first, last);
}

/* --- against the primary ------------------------------------------------------------------------
 */

static int judge_primary(struct run *run, const struct sink_row *primary,
                         const struct sink_row *row)
{
    struct expected expected = {.has_version = true, .version = primary->version};
    bool unreadable;
    count_compared(run);
    if (row && (row->version > primary->version ||
                (row->version == primary->version && slice_equal(row->doc, primary->doc))))
        return 0;
    expected.has_hash = suspects_hash(&run->suspects, primary->doc, &expected.hash);
    if (!row)
        return suspect(run, primary->id, DIFFERENCE_MISSING, &expected, NULL);
    /* Without a hash the primary holds no JSON: other bytes are then another content. */
    if (expected.has_hash && suspects_row_is_good(&run->suspects, &expected, row, &unreadable))
        return 0;
    return suspect(run, primary->id, DIFFERENCE_CONTENT, &expected, row);
}

static int compare_primary(struct run *run)
{
    uint32_t stream = run->config->stream->number;
    const struct expected nothing = {0};
    struct rows ours, theirs;
    const struct sink_row *row, *primary;
    rows_begin(&ours, run->session, stream);
    rows_begin(&theirs, run->primary, stream);
    int rc = rows_next(&ours, &row, run->diag);
    if (rc == 0)
        rc = rows_next(&theirs, &primary, run->diag);
    while (rc == 0 && (row || primary)) {
        int order = !row ? 1 : !primary ? -1 : slice_compare(row->id, primary->id);
        if (order < 0)
            rc = suspect(run, row->id, DIFFERENCE_EXTRA, &nothing, row);
        else
            rc = judge_primary(run, primary, order == 0 ? row : NULL);
        if (rc == 0 && order <= 0)
            rc = rows_next(&ours, &row, run->diag);
        if (rc == 0 && order >= 0)
            rc = rows_next(&theirs, &primary, run->diag);
    }
    rows_end(&ours);
    rows_end(&theirs);
    return rc;
}

int reconcile_run(const struct reconcile_config *config, struct reconcile_result *out,
                  struct diag *diag)
{
    struct run run = {.config = config, .diag = diag};
    struct json_parser *parser = json_parser_create();
    int rc = config->sink->ops->session_open(config->sink, true, &run.session, diag);
    if (rc == 0 && config->primary)
        rc = config->primary->ops->session_open(config->primary, true, &run.primary, diag);
    suspects_init(&run.suspects, config, run.session, run.primary, parser);
    if (rc == 0 && !config->ids && !config->primary)
        rc = diag_set(diag, WEIR_INVALID,
                      "there is neither an id list nor a primary to compare with");
    if (rc == 0)
        rc = config->ids ? compare_list(&run) : compare_primary(&run);
    if (rc == 0)
        rc = settle(&run);
    suspects_fini(&run.suspects);
    if (run.primary)
        run.primary->ops->session_close(run.primary);
    if (run.session)
        run.session->ops->session_close(run.session);
    json_parser_destroy(parser);
    if (rc == 0)
        *out = run.result;
    return rc;
}
