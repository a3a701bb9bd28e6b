/* null.c: the sink that stores nothing and says stored: for benchmarks, tests, and as the
 * smallest example of a sink.
 *
 * Options: `delay` (how long each batch takes), `pause_file` (while a file of that name exists
 * nothing is taken: a write waits a little and then says "not now").
 *
 * Threads: sessions share only the counts. */
#include <stdatomic.h>
#include <unistd.h>

#include "base/mem.h"
#include "base/units.h"
#include "exec/wait.h"
#include "sink/kinds.h"

#define PAUSE_WAIT_MS                                                                              \
    200 /* a paused write waits this long for the file to go, so that a resume is                  \
           quick and a shutdown is not held up */
#define PAUSE_STEP_MS 10

struct null_sink {
    struct sink base;
    /* constant after open */
    uint32_t delay_ms;
    char *pause_path;  /* or NULL */
    uint32_t *streams; /* their numbers */
    size_t n_streams;
    /* atomic, one for each of streams */
    atomic_ullong *counts;
};

struct null_session {
    struct sink_session base;
    struct null_sink *sink;
};

static int null_check(const struct sink_config *config, struct diag *diag)
{
    const struct sink_option *delay = sink_option(config, "delay");
    uint64_t ms;
    if (delay && units_parse_duration(slice_of(delay->value), &ms))
        return sink_option_bad(delay, diag, "\"%s\" is not a duration such as 5ms or 1s",
                               delay->value);
    if (delay && ms > 3600 * 1000)
        return sink_option_bad(delay, diag, "\"%s\" is more than an hour", delay->value);
    const struct sink_option *pause = sink_option(config, "pause_file");
    if (pause && !pause->value[0])
        return sink_option_bad(pause, diag, "needs the path of a file");
    return 0;
}

static int null_open(const struct sink_config *config, struct sink **out, struct diag *diag)
{
    int rc = null_check(config, diag);
    if (rc)
        return rc;
    struct null_sink *sink = mem_zalloc(sizeof *sink);
    sink->base.ops = &sink_null;
    const struct sink_option *delay = sink_option(config, "delay");
    uint64_t ms = 0;
    if (delay)
        units_parse_duration(slice_of(delay->value), &ms);
    sink->delay_ms = (uint32_t)ms;
    const struct sink_option *pause = sink_option(config, "pause_file");
    if (pause)
        sink->pause_path = sink_path(config, pause->value);
    sink->n_streams = config->n_streams;
    sink->streams = mem_alloc(config->n_streams * sizeof *sink->streams + 1);
    for (size_t i = 0; i < config->n_streams; i++)
        sink->streams[i] = config->streams[i].number;
    sink->counts = mem_zalloc(config->n_streams * sizeof *sink->counts + 1);
    *out = &sink->base;
    return 0;
}

static void null_close(struct sink *base)
{
    struct null_sink *sink = (struct null_sink *)base;
    mem_free(sink->pause_path);
    mem_free(sink->streams);
    mem_free(sink->counts);
    mem_free(sink);
}

static int null_session_open(struct sink *base, bool read_only, struct sink_session **out,
                             struct diag *diag)
{
    (void)read_only;
    (void)diag;
    struct null_session *session = mem_zalloc(sizeof *session);
    session->base.ops = &sink_null;
    session->sink = (struct null_sink *)base;
    *out = &session->base;
    return 0;
}

static void null_session_close(struct sink_session *session)
{
    mem_free(session);
}

static atomic_ullong *count_of(struct null_sink *sink, uint32_t stream)
{
    for (size_t i = 0; i < sink->n_streams; i++) {
        if (sink->streams[i] == stream)
            return &sink->counts[i];
    }
    return NULL;
}

static int null_write(struct sink_session *base, const struct batch *batch,
                      struct sink_result *results, struct diag *diag)
{
    struct null_sink *sink = ((struct null_session *)base)->sink;
    for (unsigned waited = 0; sink->pause_path && access(sink->pause_path, F_OK) == 0;
         waited += PAUSE_STEP_MS) {
        if (waited >= PAUSE_WAIT_MS)
            return diag_set(diag, WEIR_UNAVAILABLE, "paused: remove %s to go on", sink->pause_path);
        exec_sleep(PAUSE_STEP_MS);
    }
    if (sink->delay_ms)
        exec_sleep(sink->delay_ms);
    for (size_t i = 0; i < batch->n; i++) {
        sink_result_set(&results[i], OUTCOME_STORED, "");
        atomic_ullong *count = count_of(sink, batch->records[i].stream);
        /* relaxed: a number for people, it orders nothing */
        if (count)
            atomic_fetch_add_explicit(count, 1, memory_order_relaxed);
    }
    return 0;
}

static int nothing_kept(struct diag *diag)
{
    return diag_set(diag, WEIR_UNSUPPORTED, "a null sink keeps nothing");
}

static int null_read(struct sink_session *session, uint32_t stream, struct slice id,
                     struct sink_row *row, struct diag *diag)
{
    (void)session, (void)stream, (void)id, (void)row;
    return nothing_kept(diag);
}

static int null_scan(struct sink_session *session, uint32_t stream, struct slice after,
                     int (*visit)(void *context, const struct sink_row *row), void *context,
                     struct diag *diag)
{
    (void)session, (void)stream, (void)after, (void)visit, (void)context;
    return nothing_kept(diag);
}

/* How many records it was given: not distinct ids, it does not know them. */
static int null_count(struct sink_session *base, uint32_t stream, uint64_t *out, struct diag *diag)
{
    atomic_ullong *count = count_of(((struct null_session *)base)->sink, stream);
    if (!count)
        return diag_set(diag, WEIR_NOT_FOUND, "the sink does not serve that stream");
    *out = atomic_load_explicit(count, memory_order_relaxed); /* as in null_write */
    return 0;
}

static int null_remove(struct sink_session *session, uint32_t stream, struct slice id,
                       struct diag *diag)
{
    (void)session, (void)stream, (void)id;
    return nothing_kept(diag);
}

static const char *const null_options[] = {"delay", "pause_file", NULL};

const struct sink_ops sink_null = {
    .kind = "null",
    .options = null_options,
    .writers = 64,
    .check = null_check,
    .open = null_open,
    .close = null_close,
    .session_open = null_session_open,
    .session_close = null_session_close,
    .write = null_write,
    .read = null_read,
    .scan = null_scan,
    .count = null_count,
    .remove = null_remove,
};
