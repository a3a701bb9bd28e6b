/* route.c: a small table of routes (see route.h). A handful of routes: it is searched in order. */
#include "http/route.h"

#include <assert.h>
#include <stdio.h>

/* Takes the segment that *at begins with ("/segment"), and moves behind it. */
static struct slice next_segment(struct slice *at)
{
    const char *slash = at->n > 1 ? memchr(at->p + 1, '/', at->n - 1) : NULL;
    size_t n = slash ? (size_t)(slash - at->p) : at->n;
    struct slice segment = {at->p + 1, n - 1};
    *at = (struct slice){at->p + n, at->n - n};
    return segment;
}

static bool fits(const char *pattern, struct slice path, struct route_match *match)
{
    struct slice left = slice_of(pattern);
    match->n_params = 0;
    while (left.n && path.n) {
        if (path.p[0] != '/')
            return false;
        struct slice wanted = next_segment(&left), got = next_segment(&path);
        if (wanted.n && wanted.p[0] == '{') {
            if (got.n == 0)
                return false;
            assert(match->n_params < ROUTE_PARAMS);
            match->params[match->n_params++] = got;
        } else if (!slice_equal(wanted, got)) {
            return false;
        }
    }
    return left.n == 0 && path.n == 0;
}

static void allow(struct route_match *match, const char *method)
{
    size_t n = strlen(match->allow);
    if (strstr(match->allow, method))
        return;
    snprintf(match->allow + n, sizeof match->allow - n, "%s%s%s", n ? ", " : "", method,
             strcmp(method, "GET") == 0 ? ", HEAD" : "");
}

enum route_result route_find(const struct http_route *routes, unsigned n_routes,
                             struct slice method, struct slice path, struct route_match *match)
{
    if (slice_is(method, "HEAD"))
        method = SLICE_LIT("GET");
    match->allow[0] = 0;
    for (unsigned i = 0; i < n_routes; i++) {
        if (!fits(routes[i].pattern, path, match))
            continue;
        if (slice_is(method, routes[i].method)) {
            match->route = &routes[i];
            return ROUTE_FOUND;
        }
        allow(match, routes[i].method);
    }
    return match->allow[0] ? ROUTE_METHOD : ROUTE_NOT_FOUND;
}

void route_serve(const struct http_route *routes, unsigned n_routes, void *context,
                 struct http_request *request)
{
    struct route_match match;
    char extra[96];
    switch (route_find(routes, n_routes, request->method, request->path, &match)) {
    case ROUTE_FOUND:
        match.route->handle(context, request, match.params);
        break;
    case ROUTE_METHOD: {
        int n = snprintf(extra, sizeof extra, "Allow: %s\r\n", match.allow);
        struct slice allowed = {extra, (size_t)n};
        if (slice_is(request->method, "OPTIONS"))
            http_answer(request, 204, NULL, allowed, SLICE_LIT(""));
        else
            http_answer_problem(request, 405, allowed, "this path does not take that method");
        break;
    }
    case ROUTE_NOT_FOUND:
        http_answer_problem(request, 404, SLICE_LIT(""), "there is nothing at this path");
        break;
    }
}
