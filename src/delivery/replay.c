/* replay.c: see replay.h. */
#include "delivery/replay.h"

struct replay {
    struct sink_session *session;
    struct diag *diag;
};

static int write_letter(void *context, const struct dead_letter *letter)
{
    struct replay *replay = context;
    struct batch batch;
    struct sink_result result = {.outcome = OUTCOME_RETRY};
    struct diag why = {0};
    batch_init(&batch);
    batch_add(&batch, &letter->record, NULL); /* its bytes live until this visit returns */
    int rc = replay->session->ops->write(replay->session, &batch, &result, &why);
    batch_fini(&batch);
    const char *text = why.text[0] ? why.text : result.reason;
    if (rc == 0 && result.outcome == OUTCOME_RETRY)
        rc = WEIR_UNAVAILABLE;
    if (rc == 0 && result.outcome == OUTCOME_REFUSED)
        rc = WEIR_REFUSED;
    if (rc)
        diag_set(replay->diag, rc, "sink %s: dead letter %llu: %s%s", letter->sink,
                 (unsigned long long)letter->number, rc == WEIR_REFUSED ? "refused again: " : "",
                 text[0] ? text : weir_err_text(rc));
    return rc;
}

int dead_replay(struct dead *dead, uint64_t number, struct sink_session *session, struct diag *diag)
{
    struct replay replay = {session, diag};
    int rc = dead_get(dead, number, write_letter, &replay, diag);
    if (rc)
        return rc;
    rc = dead_drop(dead, number, diag);
    return rc == WEIR_NOT_FOUND ? 0 : rc; /* somebody else dropped it meanwhile */
}
