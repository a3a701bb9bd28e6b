/* parse.h: strict HTTP/1.1 parsing (RFC 9110, 9112): pure functions over bytes, no I/O, no memory
 * of their own. Any thread.
 *
 * A message is found in three steps, each of which can be fed piece by piece and gives the same
 * result however the bytes are cut:
 *   parse_head      looks for the end of the head, refusing what no head may hold, and reads the
 *                   first line as soon as it is complete
 *   parse_fields    reads the header lines of a complete head, and decides the framing
 *   parse_chunks    takes chunked framing away
 * What is refused: bare CR or LF, control bytes (HTAB is fine inside a value), folded lines, white
 * space before a colon, empty or malformed names, anything but one SP between the parts of the
 * first line, other versions than 1.0 and 1.1, Content-Length with Transfer-Encoding, a repeated,
 * listed, signed or overflowing Content-Length, any Transfer-Encoding but one "chunked" in 1.1, a
 * missing (1.1), repeated or malformed Host, white space in chunk lines, and framing fields in
 * trailers. Accepted though rarely seen: one empty line before a request; the absolute form of a
 * target, if its authority is the same as Host; obs-text in values; any token as a method. */
#ifndef WEIR_HTTP_PARSE_H
#define WEIR_HTTP_PARSE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/slice.h"
#include "http/header.h"

enum parse_result { PARSE_MORE, PARSE_DONE, PARSE_REFUSED };

struct parse_error {
    int status;         /* 400, 417, 431, 505, 413 */
    const char *detail; /* what is wrong; constant text */
};

/* ---- heads ---- */

struct parse_limits {
    size_t head_bytes;
    unsigned headers;
};

struct parse_head {    /* zeroed before the first call */
    size_t head_bytes; /* on PARSE_DONE: from the first byte to behind the empty line */
    /* Offsets, because the bytes may be moved between two calls. */
    size_t skipped; /* an empty line in front: 0 or 2 */
    size_t method_bytes, target_at, target_bytes, fields_at;
    unsigned minor; /* of HTTP/1.minor */
    int status;     /* of a response */
    /* the parser's own */
    bool response, first_line_done;
    size_t scanned, line_at;
};

/* p[0, n) is everything that came since the end of the message before, from the same first byte in
 * every call. */
enum parse_result parse_head(struct parse_head *head, const struct parse_limits *limits,
                             const char *p, size_t n, struct parse_error *error);

struct parse_fields {
    unsigned n_headers;
    uint64_t content_length; /* 0 when has_length is false */
    bool has_length, chunked, keep_alive, expect_continue;
    struct slice target, path, query, host;
};

/* `head` as parse_head left it on PARSE_DONE, p the same bytes; headers has room for
 * limits->headers. The slices point into p. PARSE_DONE or PARSE_REFUSED. */
enum parse_result parse_fields(const struct parse_head *head, const struct parse_limits *limits,
                               const char *p, struct http_header *headers,
                               struct parse_fields *fields, struct parse_error *error);

/* ---- chunked bodies ---- */

struct parse_chunks {                 /* see parse_chunks_init */
    uint64_t body_limit, total, left; /* total: with the chunk that is being read */
    size_t overhead_limit, overhead;  /* bytes of extensions and trailers */
    unsigned trailers_left;
    unsigned state, digits, n_name;
    char name[20]; /* of the trailer, in lower case, as far as it fits */
};

void parse_chunks_init(struct parse_chunks *chunks, const struct parse_limits *limits,
                       uint64_t body_limit);
/* Takes bytes from in until the body ends (PARSE_DONE), is refused, or in is used up; *used says
 * how far. At most one run of data is returned per call, *data: inside `in`, may be empty.
 * PARSE_MORE with *used < n means: take *data away and call again. */
enum parse_result parse_chunks(struct parse_chunks *chunks, const char *in, size_t n, size_t *used,
                               struct slice *data, struct parse_error *error);

/* ---- pieces ---- */

bool parse_is_token(struct slice s);                /* one or more token characters */
bool parse_is_host(struct slice s);                 /* uri-host [":" port]; empty is fine */
bool parse_same(struct slice s, const char *lower); /* compares without case */
/* 1 to 19 digits and no overflow. */
bool parse_decimal(struct slice s, uint64_t *out);

#endif
