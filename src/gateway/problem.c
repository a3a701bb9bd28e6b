/* problem.c: see problem.h. */
#include "gateway/problem.h"

#include <stdarg.h>
#include <stdio.h>

#include "gateway/utf8.h"
#include "http/server.h"

/* Makes UTF-8 of the detail, whose text was cut off or not. */
static void clean(struct problem *problem, bool cut)
{
    size_t length = strlen(problem->detail);
    for (size_t at = 0; at < length;) {
        at += utf8_valid_prefix((struct slice){problem->detail + at, length - at});
        if (at < length && cut && length - at < 4)
            problem->detail[length = at] = 0; /* a character that the cut went through */
        else if (at < length)
            problem->detail[at++] = '?';
    }
}

int problem_set(struct problem *problem, int status, const char *code, const char *format, ...)
{
    problem->status = status;
    problem->code = code;
    problem->line = problem->index = problem->offset = -1;
    problem->retry_after_s = 0;

    va_list arguments;
    va_start(arguments, format);
    int n = vsnprintf(problem->detail, sizeof(problem->detail), format, arguments);
    va_end(arguments);
    clean(problem, n >= (int)sizeof(problem->detail));
    return status;
}

void problem_prefix(struct problem *problem, const char *format, ...)
{
    char prefix[80];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(prefix, sizeof(prefix), format, arguments);
    va_end(arguments);
    size_t n = strlen(prefix), kept = strlen(problem->detail);
    bool cut = n + kept >= sizeof(problem->detail);
    if (cut)
        kept = sizeof(problem->detail) - n - 1;
    memmove(problem->detail + n, problem->detail, kept);
    memcpy(problem->detail, prefix, n);
    problem->detail[n + kept] = 0;
    clean(problem, cut);
}

void problem_open_json(const struct problem *problem, struct buf *out)
{
    buf_put_str(out, "{\"type\":\"about:blank\",\"title\":\"");
    buf_put_str(out, http_status_text(problem->status));
    buf_put_str(out, "\",\"status\":");
    buf_put_i64(out, problem->status);
    buf_put_str(out, ",\"code\":\"");
    buf_put_str(out, problem->code);
    buf_put_str(out, "\",\"detail\":");
    buf_put_json_string(out, slice_of(problem->detail));
    if (problem->line >= 0) {
        buf_put_str(out, ",\"line\":");
        buf_put_i64(out, problem->line);
    }
    if (problem->index >= 0) {
        buf_put_str(out, ",\"index\":");
        buf_put_i64(out, problem->index);
    }
    if (problem->offset >= 0) {
        buf_put_str(out, ",\"offset\":");
        buf_put_i64(out, problem->offset);
    }
}

void problem_close_json(struct buf *out)
{
    buf_put_str(out, "}\n");
}
