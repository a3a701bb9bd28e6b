/* pacer.h: when each request is due. Pure arithmetic over times that the caller gives, so that
 * tests can drive it with a clock of their own.
 *
 * Open loop: request number i is due at start + i / rate, whatever became of the ones before.
 * The numbers are dealt out over `threads` pacers: pacer t has t, t + threads, t + 2 threads ...
 * A request that could not be sent when it was due stays due, in order; its latency counts from the
 * intended time. Nothing is skipped and nothing is moved, so a server that stalls shows in every
 * request that was meant for the time of the stall.
 *
 * Closed loop: rate 0; every request is due at once and its intended time is when it is sent. */
#ifndef WEIR_LOAD_PACER_H
#define WEIR_LOAD_PACER_H

#include <stdbool.h>
#include <stdint.h>

#define PACER_NEVER UINT64_MAX

struct pacer {
    uint64_t start_ns;
    double interval_ns; /* between two requests of the whole run; 0: closed loop */
    uint64_t stride;    /* threads */
    uint64_t next;      /* number of the next request */
    uint64_t end;       /* numbers from here on are not sent; PACER_NEVER: no such limit */
    bool timed;         /* `end` came from the time, not from a number of requests */
};

/* `requests` over all threads (PACER_NEVER: no limit). */
void pacer_init(struct pacer *pacer, double rate_per_s, uint64_t requests, unsigned thread,
                unsigned threads);
/* The schedule begins. An open schedule that ends at until_ns holds exactly the requests due before
 * it. */
void pacer_start(struct pacer *pacer, uint64_t start_ns, uint64_t until_ns);

bool pacer_done(const struct pacer *pacer); /* all of this pacer's requests are taken */
/* When the next request is due: PACER_NEVER when done, start_ns in a closed loop. */
uint64_t pacer_due_ns(const struct pacer *pacer);
/* How many are due at now_ns and not taken. A closed loop says UINT64_MAX (or what is left). */
uint64_t pacer_waiting(const struct pacer *pacer, uint64_t now_ns);
/* Takes the next one: its number, and its intended time (now_ns in a closed loop). Not when done.
 */
uint64_t pacer_take(struct pacer *pacer, uint64_t now_ns, uint64_t *intended_ns);

#endif
