/* client.h: one blocking HTTP/1.1 exchange, for commands (`weir status`, `weir dead replay`). */
#ifndef WEIR_HTTP_CLIENT_H
#define WEIR_HTTP_CLIENT_H

#include <stdint.h>

#include "base/buf.h"
#include "base/diag.h"

struct http_client_request {
    const char *url; /* "http://127.0.0.1:8080/v1/status", or "unix:PATH" for the socket with... */
    const char *unix_path; /* ...the target in `target`; one of url and unix_path */
    const char *target;    /* with unix_path */
    const char *method;    /* "GET" */
    const char *token;     /* bearer token or NULL */
    const char *content_type;
    struct slice body;
    uint32_t timeout_ms; /* for the whole exchange */
};

/* *status and `body` (cleared first) on success; WEIR_UNAVAILABLE when nothing answers,
 * WEIR_TIMEOUT, WEIR_NET. */
int http_client_call(const struct http_client_request *request, int *status, struct buf *body,
                     struct diag *diag);

#endif
