/* limit.c: see limit.h. The order of the questions matters: a generator without CPU time also sends
 * late and also sees all its connections busy. */
#include "load/limit.h"

#include <stdio.h>

static bool over_one_percent(uint64_t part, const struct load_result *result)
{
    return part * 100 > result->sent + result->unsent;
}

void limit_judge(struct load_result *result)
{
    char *text = result->limit_reason;
    size_t room = sizeof result->limit_reason;
    double cpu = result->cpu_share, wait = result->wait_share;
    uint64_t blocked = result->late_server + result->unsent;
    double fastest_s = (double)histogram_min(result->service_ns) / 1e9;
    double carried = fastest_s > 0 ? result->connections / fastest_s : 0;

    result->limited_by_generator = true;
    if (cpu > LIMIT_BUSY) {
        snprintf(text, room,
                 "a thread of the generator ran for %.0f%% of the time: give it more threads "
                 "(--threads), or start a second generator (--start-at, weir load merge)",
                 cpu * 100);
    } else if (cpu + wait > LIMIT_BUSY) {
        snprintf(text, room,
                 "a thread of the generator ran for %.0f%% of the time and waited for a CPU for "
                 "%.0f%%: generator and server share too few CPUs",
                 cpu * 100, wait * 100);
    } else if (result->open && over_one_percent(result->late_self, result)) {
        snprintf(text, room,
                 "%.1f%% of the requests were sent over 1 ms late although a connection was free: "
                 "the generator did not wake in time",
                 100.0 * (double)result->late_self / (double)(result->sent + result->unsent));
    } else if (result->open && over_one_percent(blocked, result) && carried > 0 &&
               carried < result->rate_asked_per_s) {
        snprintf(text, room,
                 "%u connections carry at most %.0f requests a second even at the server's fastest "
                 "answer (%.3f ms): give it more (--connections)",
                 result->connections, carried, fastest_s * 1e3);
    } else {
        result->limited_by_generator = false;
        text[0] = 0;
        if (result->open && over_one_percent(blocked, result))
            snprintf(text, room,
                     "the server: all %u connections were busy when %.1f%% of the requests were "
                     "due, and the generator had time to spare",
                     result->connections,
                     100.0 * (double)blocked / (double)(result->sent + result->unsent));
    }
}
