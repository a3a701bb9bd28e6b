/* diag.h: an error with words.
 *
 * A function that can fail in a way that a person must mend takes a
 * `struct diag *` as its last argument (NULL is allowed) and fills it on
 * failure: the thing, the place, what to do. Libraries fill it; only gateway/,
 * lab/, load/ and cli/ print it. Owned by the caller; no allocation. */
#ifndef WEIR_BASE_DIAG_H
#define WEIR_BASE_DIAG_H

#include "weir/err.h"

struct diag {
    int code;       /* 0 or a code of weir/err.h */
    char text[508]; /* one sentence or two, no newline, always terminated */
};

/* Sets code and text and returns code, so that a failure is one line:
 *     return diag_set(diag, WEIR_IO, "%s: cannot be opened: %s", path, strerror(errno)); */
int diag_set(struct diag *diag, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Puts words in front of what is there: "sink main: " + text. Returns diag->code. */
int diag_prefix(struct diag *diag, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
