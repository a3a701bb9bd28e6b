/* result.c: the sums of a run, and what they mean. */
#include "base/mem.h"
#include "load/load.h"

const char *const load_error_names[LOAD_ERRORS] = {"connect", "timeout", "reset", "closed",
                                                   "malformed"};

void load_result_init(struct load_result *result)
{
    *result = (struct load_result){0};
    result->latency_ns = histogram_create();
    result->service_ns = histogram_create();
}

void load_result_fini(struct load_result *result)
{
    histogram_destroy(result->latency_ns);
    histogram_destroy(result->service_ns);
    result->latency_ns = result->service_ns = NULL;
}

double load_rate_per_s(const struct load_result *result)
{
    return result->duration_s > 0 ? (double)result->ok_in_window / result->duration_s : 0;
}

uint64_t load_error_count(const struct load_result *result)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        n += result->errors[i];
    for (unsigned status = 0; status < LOAD_STATUS_MAX; status++)
        if (status / 100 != 2)
            n += result->statuses[status];
    return n;
}
