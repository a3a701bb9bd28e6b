/* url.h: the one kind of URL that the generator speaks: http://HOST[:PORT][/PATH[?QUERY]], HOST a
 * name, an IPv4 address or an IPv6 address in brackets. Any thread. */
#ifndef WEIR_LOAD_URL_H
#define WEIR_LOAD_URL_H

#include <netdb.h>

#include "base/diag.h"
#include "base/slice.h"

#define URL_DEFAULT_TARGET "/v1/streams/events"

struct load_url {
    char host[256];      /* without brackets, for the resolver */
    char port[6];        /* "80" when left out */
    char authority[272]; /* as the Host header carries it */
    char target[2048];   /* path and query; URL_DEFAULT_TARGET when the path is left out */
};

/* WEIR_INVALID and *diag: not such a URL, a name or target that would break the request's head. */
int load_url_parse(const char *text, struct load_url *out, struct diag *diag);

/* The name of the stream in a target /v1/streams/NAME[?...], else "". Points into the url. */
struct slice load_url_stream(const struct load_url *url);

/* Adds name=value to the query. WEIR_INVALID when the target becomes too long. */
int load_url_add_query(struct load_url *url, const char *name, const char *value,
                       struct diag *diag);

/* Stream addresses in the resolver's order, to be freed with freeaddrinfo. Blocking. */
int load_url_resolve(const struct load_url *url, struct addrinfo **out, struct diag *diag);

#endif
