/* route.h: a small table of routes: a method, a pattern, and what the owner makes of them.
 *
 * A pattern is a path whose segments are literal or a parameter in braces:
 * "/v1/streams/{stream}/{id}". A parameter matches one segment that is not empty; its value is
 * not decoded, so an encoded slash (%2F) stays inside it. Literals are compared byte for byte. The
 * first route that fits wins. HEAD is served by a route for GET. Any thread. */
#ifndef WEIR_HTTP_ROUTE_H
#define WEIR_HTTP_ROUTE_H

#include "base/slice.h"
#include "http/server.h"

#define ROUTE_PARAMS 4

struct http_route {
    const char *method, *pattern;
    void (*handle)(void *context, struct http_request *request, const struct slice *params);
};

enum route_result { ROUTE_FOUND, ROUTE_NOT_FOUND, ROUTE_METHOD };

struct route_match {
    const struct http_route *route;    /* of ROUTE_FOUND */
    struct slice params[ROUTE_PARAMS]; /* in the pattern's order; point into the path */
    unsigned n_params;
    char allow[64]; /* of ROUTE_METHOD: "GET, HEAD, POST" */
};

enum route_result route_find(const struct http_route *routes, unsigned n_routes,
                             struct slice method, struct slice path, struct route_match *match);

/* Finds the route and calls it, or answers 404, 405 (with Allow), or 204 to OPTIONS (with Allow).
 * On the loop's thread. */
void route_serve(const struct http_route *routes, unsigned n_routes, void *context,
                 struct http_request *request);

#endif
