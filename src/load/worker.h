/* worker.h: one thread of the generator: an epoll of its own, its share of the connections and of
 * the schedule.
 *
 *   CONNECT --all settled--> READY --worker_go--> RUN --end of schedule, time or stop--> DRAIN -->
 * END
 *
 * In DRAIN nothing is sent any more and the answers still due are waited for, each until its
 * timeout. */
#ifndef WEIR_LOAD_WORKER_H
#define WEIR_LOAD_WORKER_H

#include <pthread.h>
#include <sys/socket.h>

#include "load/ids.h"
#include "load/load.h"
#include "load/pacer.h"
#include "load/template.h"

#define WORKER_LATE_NS 1000000u

struct worker_plan { /* constant while workers run; shared by all */
    struct sockaddr_storage address;
    socklen_t address_n;
    struct slice head; /* all of the request's head up to the digits of Content-Length */
    struct slice stream;
    const struct template *template;
    struct keys keys;
    struct ids *ids; /* or NULL */
    uint64_t batch;
    uint64_t timeout_ns;
    bool random_ids, reconnect, open;
    const atomic_bool *stop; /* or NULL */
};

struct worker_counts { /* one writer, relaxed: each is a number of its own */
    _Atomic uint64_t sent, ok, ok_in_window, records_sent, records_ok, unsent;
    _Atomic uint64_t late_server, late_self, reconnects;
    _Atomic uint64_t errors[LOAD_ERRORS];
    _Atomic uint64_t statuses[LOAD_STATUS_MAX];
};

enum worker_phase { WORKER_CONNECT, WORKER_READY, WORKER_RUN, WORKER_DRAIN, WORKER_END };

struct worker {
    /* set before worker_start */
    const struct worker_plan *plan;
    unsigned index, n_connections;
    struct pacer pacer;
    struct template_source source;

    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    /* guarded by lock */
    enum worker_phase phase;
    uint64_t start_ns, until_ns; /* set by worker_go */
    unsigned connected;          /* at READY */
    int connect_errno;           /* the last failure */

    /* any thread reads */
    struct worker_counts counts;
    struct histogram *latency_ns, *service_ns;

    /* the thread's, read by others after worker_join */
    int epoll;
    uint64_t end_ns; /* when sending ended */
    uint64_t last_answer_ns;
    bool was_refused;
    char why_refused[300];    /* the detail of its first answer that refused; "" */
    uint64_t cpu_ns, wait_ns; /* in RUN: running; ready but without a CPU */
};

void worker_init(struct worker *worker, const struct worker_plan *plan, unsigned index,
                 unsigned n_connections);
int worker_start(struct worker *worker);
void worker_wait_ready(struct worker *worker);
/* Starts the schedule at start_ns (monotonic); until_ns PACER_NEVER: no end by time. */
void worker_go(struct worker *worker, uint64_t start_ns, uint64_t until_ns);
void worker_cancel(struct worker *worker); /* instead of worker_go: ends it */
bool worker_ended(struct worker *worker);
void worker_join(struct worker *worker);
void worker_fini(struct worker *worker);

#endif
