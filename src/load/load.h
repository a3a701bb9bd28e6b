/* load.h: the load generator: sends records to one URL from several threads and says what became of
 * them, and whether it was itself the limit.
 *
 * Closed loop: every connection sends its next request when the last is answered. Open loop: the
 * requests have fixed times (pacer.h) and latency counts from those, so that a server that stalls
 * cannot slow the question down.
 *
 * What the latencies hold: every request that was answered, with whatever status; and, with the
 * time it had waited until then (so a lower bound), every request that timed out, and every one
 * that was due but never sent because all connections were busy until the end. Connections that
 * break are counted as errors only. */
#ifndef WEIR_LOAD_LOAD_H
#define WEIR_LOAD_LOAD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/diag.h"
#include "base/histogram.h"

#define LOAD_THREADS_MAX     64
#define LOAD_CONNECTIONS_MAX 1000000
#define LOAD_STATUS_MAX      600

struct load_config { /* strings live until load_run returns; 0 or NULL: the default in brackets */
    const char *url;
    const char *ack;      /* the ack level to ask for [the stream's] */
    const char *token;    /* bearer token [none] */
    const char *template; /* text of template.h [template_order] */
    const char *ids_path; /* [no id file] */
    double rate_per_s;    /* open loop [0: closed loop] */
    uint64_t requests;    /* [no limit] */
    uint64_t duration_ms; /* [10 s, when requests is not given either] */
    unsigned connections; /* [64] */
    unsigned threads;     /* [half the CPUs, at least 1] */
    uint64_t batch;       /* records a body, as NDJSON [1: a JSON object] */
    uint64_t keys;        /* [1,000,000] */
    double zipf;          /* [0: uniform] */
    uint64_t seed;        /* same seed, same records but for ids and times [random] */
    uint64_t timeout_ms;  /* of one request, and of connecting [10 s] */
    double start_at;      /* seconds since 1970 [as soon as all are connected] */
    bool random_ids;
    bool reconnect; /* keep trying when the server refuses connections [a refused try ends it] */
    bool progress;  /* a line on standard error every second */
    const atomic_bool *stop; /* set by a signal: send no more, wait for answers, report [NULL] */
};

enum load_error {
    LOAD_CONNECT,
    LOAD_TIMEOUT,
    LOAD_RESET,
    LOAD_CLOSED,
    LOAD_MALFORMED,
    LOAD_ERRORS
};
extern const char *const load_error_names[LOAD_ERRORS];

struct load_result {
    uint64_t started_ms, ended_ms; /* wall clock: the window in which requests were sent */
    double duration_s;             /* its length */
    uint64_t sent, ok;             /* requests; ok: answered 2xx */
    uint64_t ok_in_window;         /* what the rate counts */
    uint64_t records_sent, records_ok;
    uint64_t unsent;                 /* due in an open loop, never sent */
    uint64_t late_server, late_self; /* sent over 1 ms late: no free connection; our own fault */
    uint64_t reconnects;
    uint64_t errors[LOAD_ERRORS];
    uint64_t statuses[LOAD_STATUS_MAX];
    char why_refused[300];        /* the detail of one answer that refused; "" */
    struct histogram *latency_ns; /* from the intended start */
    struct histogram *service_ns; /* from sending; the same as latency in a closed loop */
    unsigned connections, threads;
    bool open;
    double rate_asked_per_s;
    double cpu_share, wait_share; /* of the busiest thread: running; ready but without a CPU */
    bool limited_by_generator;
    char limit_reason[300]; /* "" when neither side was seen to be the limit */
};

/* Runs to the end. 0: *out is filled, errors of single requests included. WEIR_INVALID: a setting;
 * WEIR_UNAVAILABLE: nothing could be sent; WEIR_IO and others: the id file. Blocking. */
int load_run(const struct load_config *config, struct load_result *out, struct diag *diag);
void load_result_init(struct load_result *result);
void load_result_fini(struct load_result *result);
double load_rate_per_s(const struct load_result *result);    /* 2xx answers a second */
uint64_t load_error_count(const struct load_result *result); /* kinds, and answers not 2xx */

#endif
