/* response.h: reads HTTP/1.1 answers as they arrive, in pieces of any size.
 *
 * Strict where framing is concerned: CRLF, one Content-Length or chunked but not both, no folded
 * headers; 1xx answers are skipped. An answer with neither length is read to the end of the
 * connection (204 and 304 have no body). Owned by one thread. */
#ifndef WEIR_LOAD_RESPONSE_H
#define WEIR_LOAD_RESPONSE_H

#include <stdbool.h>

#include "base/buf.h"

#define RESPONSE_LINE_MAX (16u << 10)
#define RESPONSE_HEAD_MAX (64u << 10)
#define RESPONSE_BODY_MAX (64u << 20) /* of a body that is kept */
#define RESPONSE_WHY_MAX  1024u       /* of a refusal's, that is kept anyway: it says why */

enum response_result {
    RESPONSE_MORE = 0, /* all bytes were used; the answer is not complete */
    RESPONSE_DONE = 1, /* the answer is complete; bytes after *used are not its own */
};

enum response_state {
    RESPONSE_STATUS_LINE,
    RESPONSE_HEADERS,
    RESPONSE_BODY,
    RESPONSE_BODY_TO_END,
    RESPONSE_CHUNK_SIZE,
    RESPONSE_CHUNK,
    RESPONSE_CHUNK_END,
    RESPONSE_TRAILERS,
    RESPONSE_COMPLETE,
};

struct response {
    enum response_state state;
    int status;
    bool close;     /* the server will not take another request on this connection */
    bool keep_body; /* set by the owner: collect the body in `body` */
    bool chunked, has_length;
    bool old;      /* HTTP/1.0 */
    uint64_t left; /* bytes of body or chunk still to come */
    size_t head_bytes;
    struct buf body;
    struct buf line; /* the part of a line that has come */
};

void response_begin(struct response *response); /* before the first and every further answer */
void response_fini(struct response *response);
bool response_begun(const struct response *response); /* some of it has come */

/* RESPONSE_MORE, RESPONSE_DONE, or what cannot be an answer: WEIR_SYNTAX, WEIR_TOO_LARGE. */
int response_feed(struct response *response, const char *p, size_t n, size_t *used);
/* The connection ended: RESPONSE_DONE when that completes the answer, else WEIR_CLOSED. */
int response_end(struct response *response);

#endif
