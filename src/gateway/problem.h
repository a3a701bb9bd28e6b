/* problem.h: why a request gets an error: application/problem+json (RFC 9457).
 *
 * Filled by whoever finds the mistake, written by the answer. Owned by one thread. */
#ifndef WEIR_GATEWAY_PROBLEM_H
#define WEIR_GATEWAY_PROBLEM_H

#include <stdint.h>

#include "base/buf.h"

#define PROBLEM_CONTENT_TYPE "application/problem+json"

struct problem {
    int status;
    const char *code;       /* stable machine name ("not_json"); constant text */
    int64_t line;           /* NDJSON: from 1; -1: none */
    int64_t index;          /* array: the element, from 0; -1: none */
    int64_t offset;         /* byte offset in the body (inflated), from 0; -1: none */
    unsigned retry_after_s; /* 0: no such header */
    char detail[600];       /* always valid UTF-8, terminated */
};

/* Clears the places, sets the rest; bytes that are not UTF-8 become '?'. Returns `status`. */
int problem_set(struct problem *problem, int status, const char *code, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Puts words in front of the detail: "line 3: ". */
void problem_prefix(struct problem *problem, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* {"type":"about:blank","title":...,"status":...,"code":...,"detail":...,...} without the closing
 * brace, so that a caller may add members; then problem_close. */
void problem_open_json(const struct problem *problem, struct buf *out);
void problem_close_json(struct buf *out);

#endif
