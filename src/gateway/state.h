/* state.h: the gateway's insides, for the files of this folder.
 *
 * Fields are grouped by who owns them: constant from start to stop, one loop's, or atomic. */
#ifndef WEIR_GATEWAY_STATE_H
#define WEIR_GATEWAY_STATE_H

#include <pthread.h>

#include "delivery/delivery.h"
#include "exec/lane.h"
#include "gateway/ack.h"
#include "gateway/auth.h"
#include "gateway/encoding.h"
#include "gateway/gateway.h"
#include "gateway/ingest.h"
#include "gateway/meta.h"
#include "gateway/pressure.h"
#include "gateway/version.h"
#include "log/log.h"

#define GATEWAY_LOOPS_MAX 64

#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

/* Answers counted by status; the last place is for all others. */
#define GATEWAY_STATUSES 18
extern const int gateway_statuses[GATEWAY_STATUSES];

struct gateway_stream { /* constant */
    const struct config_stream *config;
    struct ingest_stream ingest;
    uint64_t ack_timeout_ns;
};

struct gateway_sink {
    const struct config_sink *config; /* constant */
    struct sink *sink;
    struct lane *lane;
    pthread_mutex_t sessions_lock;
    struct sink_session *sessions[8]; /* sessions_lock: read-only ones that nobody uses */
    unsigned n_sessions;              /* sessions_lock */
};

/* Requests of one stream on one loop that wait, oldest first: all have the same timeout. */
struct waiting {
    struct loop_timer timer; /* armed while the list is not empty */
    struct gateway_loop *loop;
    struct intake *oldest, *newest;
};

/* One writer (its loop), read by anybody: relaxed atomics. */
struct loop_counters {
    _Atomic uint64_t answers[GATEWAY_STATUSES];
    _Atomic uint64_t accepted_bodies, accepted_records, accepted_bytes;
    _Atomic uint64_t downgraded; /* answered durable where stored or everywhere was asked */
    _Atomic uint64_t timed_out;  /* answered 504 */
};

struct gateway_loop { /* its loop thread's own, but for `counters` and `latency_ns` */
    struct gateway *gateway;
    unsigned index;
    uint32_t random;
    struct loop *loop;     /* set by the first request */
    struct loop_hook kick; /* at the end of a turn: the log goes on with what was appended */
    bool appended;         /* in this turn, by somebody who waits */
    struct ingest *ingest;
    struct inflater *inflater; /* made by the first compressed body */
    struct buf answer, attributes;
    struct waiting *waiting; /* one per stream */
    struct loop_counters counters;
    struct histogram *latency_ns[4]; /* head complete to answer given, by the ack level answered */
};

struct housekeeper {
    pthread_t thread;
    bool started;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool stop; /* lock */
};

struct gateway {
    /* Constant from start to stop. */
    const struct config *config;
    const struct fs *fs;
    struct fs_file *lock_file;
    struct log *log;
    struct delivery *delivery;
    struct gateway_sink *sinks;
    size_t n_sinks;
    struct gateway_stream *streams;
    size_t n_streams;
    struct lane *read_lane, *status_lane, *admin_lane;
    struct http_server *server;
    struct gateway_loop *loops;
    unsigned n_loops;
    size_t body_limit; /* what fits into the log */
    char *url;
    uint64_t started_ns;

    /* The housekeeper's, and before it starts and after it ended the starting thread's. */
    struct meta meta;
    bool meta_is_ours; /* it was written by this process: to be written at the end */
    struct housekeeper housekeeper;

    /* Their own rules. */
    struct version_counter versions;
    struct pressure pressure;
    struct ack_table *acks;

    pthread_mutex_t tokens_lock; /* writers of `auth`; loops only load it */
    struct auth *_Atomic auth;
    struct auth **old_auths; /* tokens_lock: replaced, freed at the end: a loop may still look */
    size_t n_old_auths;

    _Atomic bool running;                /* `server` and `url` are there */
    _Atomic bool stopping;               /* SIGTERM came: not ready */
    _Atomic bool delivers;               /* delivery runs: its breakers may be asked */
    _Atomic uint64_t lost_records;       /* answered `received` and then not durable */
    _Atomic uint64_t disk_full_until_ns; /* the log met ENOSPC lately */
    _Atomic uint64_t durable_per_s;      /* over the last seconds; the housekeeper's finding */
    _Atomic uint64_t lag;                /* of the slowest consumer; likewise */
};

static inline void count_add(_Atomic uint64_t *counter, uint64_t n)
{
    /* One writer: a load and a store, no locked instruction. Relaxed: only the number matters. */
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

static inline uint64_t count_get(const _Atomic uint64_t *counter)
{
    return atomic_load_explicit(counter, memory_order_relaxed);
}

/* A counter, by its place in struct loop_counters, over all loops. */
uint64_t counters_sum(const struct gateway *gateway, size_t offset);
#define COUNTERS_SUM(gateway, field) counters_sum(gateway, offsetof(struct loop_counters, field))

/* ---- reply.c: every answer goes through here; on the request's loop thread ---- */

void reply(struct gateway_loop *loop, struct http_request *request, int status,
           const char *content_type, struct slice extra, struct slice body);
void reply_problem(struct gateway_loop *loop, struct http_request *request,
                   const struct problem *problem);
/* 503 with Retry-After, counted under its cause. */
void reply_busy(struct gateway_loop *loop, struct http_request *request, enum pressure_cause cause);

/* ---- routes.c ---- */

void routes_handle(void *gateway, struct http_request *request); /* http_server_config.handle */

/* ---- write.c, intake.c: POST /v1/streams/{stream} ---- */

void write_handle(struct gateway_loop *loop, unsigned stream, struct http_request *request);
void intake_durable(void *gateway, struct body *bodies); /* log_events.durable */
void intake_settled(void *gateway, unsigned sink, const struct settlement *list, size_t n);
bool intake_waited_for(void *gateway);               /* delivery_events.waited_for */
void intake_waiting_init(struct gateway_loop *loop); /* its lists of who waits */
/* At the end: whoever waits for a sink is answered with what is true. Any thread but a loop's. */
void intake_give_up(struct gateway *gateway);

/* ---- read.c: GET /v1/streams/{stream}/{id} ---- */

void read_handle(struct gateway_loop *loop, unsigned stream, struct slice encoded_id,
                 struct http_request *request);
void read_sessions_close(struct gateway_sink *sink);

/* ---- status.c, metrics.c: both may wait for a lock that is held across I/O: on the lane ---- */

void status_handle(struct gateway_loop *loop, struct http_request *request);
void status_json(struct gateway *gateway, struct buf *out);
void metrics_handle(struct gateway_loop *loop, struct http_request *request);
void metrics_text(struct gateway *gateway, struct buf *out);
/* NULL: ready; else why not, in words. Any thread. */
const char *ready_or_why_not(struct gateway *gateway);

/* ---- admin.c: the command socket ---- */

void admin_dead(struct gateway_loop *loop, struct http_request *request, struct slice sink,
                struct slice verb);
void admin_repair(struct gateway_loop *loop, struct http_request *request, struct slice sink,
                  struct slice stream);
void admin_ping(struct gateway_loop *loop, struct http_request *request);

/* ---- housekeep.c ---- */

int housekeep_start(struct gateway *gateway, struct diag *diag);
void housekeep_stop(struct gateway *gateway);
/* The log met ENOSPC: not ready for the next seconds. Any thread. */
void housekeep_disk_full(struct gateway *gateway);
/* Writes META with a ceiling raised when it is due. The housekeeper, or the starting thread. */
int housekeep_versions(struct gateway *gateway, struct diag *diag);

#endif
