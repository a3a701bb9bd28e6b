/* engine.h: what the files of the delivery engine share; nobody else includes it.
 *
 *   delivery.c   start, stop, figures
 *   consumer.c   a consumer's thread: reads, hands out to parts, waits, settles
 *   part.c       a part: what waits, which records the next call carries, when it goes out
 *   outcome.c    what a finished call means
 *   call.c       one call to a sink: the work on the lane (session, write, dead letters)
 *
 * A feed is one sink as its consumer's engine sees it. A sink belongs to one consumer, so
 * everything but the work of a call happens on that consumer's thread:
 *
 *   log -> read_log -> feed_push -> part_start -> lane: call_run -> call_finish -> inbox
 *       -> part_finished: settle, or back to the front of its part
 *
 * A part:
 *   PART_EMPTY    nothing to send                      -> READY    feed_push
 *   PART_READY    on its feed's ready list             -> CALLING  part_start
 *   PART_CALLING  one call is in flight                -> EMPTY, READY, RESTING  part_finished
 *   PART_RESTING  waits for its backoff                -> READY    feed_start_calls, feed_push
 *
 * Invariants: 1. at most one call of a part is in flight (one task on the lane, which may go on
 * with the staged call when all of the one before it is stored); 2. a feed's calls never exceed
 * what its lane can usefully hold, so that batches gather here and not in the lane's queue; 3.
 * call_finish touches nothing after it has let go of the inbox. */
#ifndef WEIR_DELIVERY_ENGINE_H
#define WEIR_DELIVERY_ENGINE_H

#include <pthread.h>
#include <stdatomic.h>

#include "delivery/bisect.h"
#include "delivery/delivery.h"
#include "delivery/fifo.h"
#include "delivery/retry.h"
#include "delivery/watermark.h"
#include "delivery/window.h"

#define WINDOW_RECORDS 65536             /* in flight, per consumer */
#define WINDOW_SPAN    ((size_t)1 << 18) /* read and not passed by a mark, per consumer */
#define NEVER          UINT64_MAX

enum part_state { PART_EMPTY, PART_READY, PART_CALLING, PART_RESTING };

struct part {                      /* the consumer's thread, but for what is said */
    struct lane_task task;         /* the lane's from lane_submit to call_finish */
    struct call *current;          /* the same: the call being made, at the end the last one */
    _Atomic(struct call *) staged; /* the next one; whoever takes it out has it */
    struct feed *feed;             /* constant */
    struct strand *strand;
    enum part_state state;
    bool hold;           /* while resting: nothing goes out (else only `again` waits) */
    uint64_t due_ns;     /* of `again` */
    struct fifo again;   /* sent before, to be sent first; in order */
    struct fifo waiting; /* not sent yet */
    struct bisect bisect;
    struct backoff backoff;
    struct part *prev, *next; /* on its feed's ready, resting or calling list */
};

struct part_list {
    struct part *first, *last;
};

struct call { /* the consumer's thread; the lane's while it is its part's current one */
    struct part *part;
    struct call *next;  /* in the inbox, or idle */
    struct batch batch; /* its references are the window's, which outlives the call */
    struct sink_result *results;
    size_t n, capacity; /* records it stands for: sent, or lower versions that ride along */
    size_t bytes;
    uint32_t *slots;  /* n */
    uint32_t *group;  /* n: which records share an id */
    uint32_t *winner; /* by group: which of the n is sent */
    uint32_t *sent;   /* by group: its index in the batch */
    uint32_t *table;  /* hash table of groups + 1 */
    size_t table_capacity, table_mask;
    /* what became of it */
    int rc;
    int dead_rc; /* 0, or why refused records could not become dead letters (now in retry) */
    bool cancelled;
    bool chained; /* the lane went on with the next one */
    uint64_t write_ns;
    struct diag diag;
};

struct feed {
    /* constant after start */
    struct consumer *consumer;
    const struct delivery_sink *sink;
    unsigned index; /* in delivery_config.sinks */
    struct dead *dead;
    bool one_part;
    unsigned calls_max;

    /* the consumer's thread */
    struct part **parts; /* made when first needed */
    size_t n_parts;
    struct part_list ready, resting, calling;
    unsigned calls;
    struct call *idle;
    struct breaker breaker;
    uint64_t lane_full_until_ns; /* 0: it is not */
    bool lane_closed, at_cap, poisoned, dead_trouble;
    uint64_t cap_bytes, cap_check_ns, cap_probe_ns; /* while at_cap */
    uint64_t refused_report_ns, refused_unreported;
    struct histogram *batch_records, *write_ns;

    pthread_mutex_t mutex;          /* guards the rest; never held across a sink's call */
    struct sink_session **sessions; /* idle ones, room for calls_max */
    unsigned n_sessions;
    bool closed; /* sessions are not kept any more */
    char last_error[200];

    /* written by the consumer's thread, read by any; relaxed: each is a figure of its own */
    _Atomic uint64_t stored, refused, retries, failures, batches, bisections, next_try_ns;
    atomic_bool breaker_open;
};

struct partition {
    struct watermark mark;
    size_t live; /* slots of it */
    bool revoking;
};

enum waiting { WAITING_NOT, WAITING_IN_POLL, WAITING_HERE };

#define RATE_SECONDS 8

struct consumer {
    /* constant after start */
    struct delivery *delivery;
    char *name;
    struct feed *feeds;
    size_t n_feeds;
    uint64_t *stream_feeds; /* by stream number: bit i: feeds[i] */
    bool *gone_untold;      /* by stream number, its thread's: goes to no sink, and nobody was told;
                               the last place is for numbers that nobody knows */
    struct log_reader *reader;
    pthread_t thread;
    bool started;

    /* its thread */
    struct window window;
    struct partition *partitions;
    size_t span; /* of all marks */
    struct batch polled;
    struct settlement *list;
    size_t list_capacity;
    uint64_t settled_now;  /* since count_settled */
    bool log_ended;        /* corrupt: no more reading */
    uint64_t log_retry_ns; /* after a failed read; 0: it works */
    uint64_t paced_ns;     /* while nobody waits, no read before this */

    pthread_mutex_t mutex; /* guards the inbox and the words for people */
    pthread_cond_t wake;
    struct call *inbox, *inbox_last;
    enum waiting waiting;
    bool stop, abandoned, hurried;
    uint64_t deadline_ns;
    unsigned calls; /* submitted and not in the inbox yet */
    bool stopped;
    char why_stopped[512];

    /* written by its thread, read by any; relaxed: each is a figure of its own */
    _Atomic uint64_t settled, inflight_records, inflight_bytes;
    _Atomic uint64_t rate_second[RATE_SECONDS], rate_count[RATE_SECONDS];
    uint64_t started_s;
    atomic_bool stopping; /* `stop`, for work on the lane: begin nothing */
};

struct delivery {
    struct delivery_config config; /* its arrays and names are copies */
    uint32_t n_stream_names;
    const char **stream_names; /* by number, NULL: unknown */
    struct dead **dead;        /* by sink */
    struct consumer **consumers;
    struct feed **feeds; /* by sink; NULL: no consumer feeds it */
    atomic_uint refs;    /* one for the caller and one for each consumer */
};

void delivery_unref(struct delivery *d);
void delivery_report(struct delivery *d, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* consumer.c */
struct consumer *consumer_create(struct delivery *d, const struct delivery_consumer *config);
void consumer_destroy(struct consumer *c); /* no thread, no calls */
int consumer_start(struct consumer *c, struct diag *diag);
void consumer_hurry(struct consumer *c); /* any thread */
void consumer_ask_stop(struct consumer *c, uint64_t deadline_ns);
/* Joins. False: calls are still in flight; the last one frees it. */
bool consumer_join(struct consumer *c);
void consumer_wake(struct consumer *c); /* any thread, with its mutex */
/* One of a feed's records is done with (its thread). */
void consumer_settled(struct consumer *c, uint32_t slot);
void consumer_dropped(struct consumer *c, uint32_t slot);
void consumer_stopped(struct consumer *c, const char *why); /* NULL: goes on */
double consumer_rate(const struct consumer *c);             /* settled a second; any thread */
struct settlement *consumer_list(struct consumer *c, size_t n);

/* part.c */
void feed_init(struct feed *f, struct consumer *c, unsigned sink);
void feed_fini(struct feed *f);
void feed_push(struct feed *f, uint32_t slot, const struct record *record);
void feed_drop_partition(struct feed *f, uint32_t partition);
void feed_start_calls(struct feed *f, uint64_t now_ns);
uint64_t feed_next_ns(const struct feed *f);       /* when it wants to be called again; NEVER */
void feed_at_cap(struct feed *f, uint64_t now_ns); /* no room for a dead letter: stand still */
void part_unstage(struct part *part);
/* After a call: to rest for its backoff (wait), to the ready list, or nowhere. hold: while it rests
 * nothing goes out. */
void part_move_on(struct part *part, bool wait, bool hold, uint64_t now_ns);

/* outcome.c */
void part_finished(struct call *call, uint64_t now_ns);
void feed_error(struct feed *f, const char *text);

/* call.c */
struct call *call_create(void);
void call_destroy(struct call *call);
/* Adds the first records of the queue, at most `max` and (after the first) max_bytes in the call as
 * a whole. Returns how many it took off the queue. */
size_t call_take(struct call *call, const struct window *w, struct fifo *from, size_t max,
                 size_t max_bytes);
/* After the last call_take: builds the batch, each id once at its highest version. */
void call_build(struct call *call, const struct window *w);
void call_clear(struct call *call);
void call_run(struct lane_task *task);
void call_finish(struct lane_task *task, enum lane_completion how);
void feed_close_sessions(struct feed *f);

#endif
