/* routes.c: which handler a request gets, and whether its sender may have it. Loop thread. */
#include <stdio.h>

#include "gateway/problem.h"
#include "gateway/state.h"
#include "http/route.h"

static struct gateway_loop *loop_of(void *gateway, const struct http_request *request)
{
    return &((struct gateway *)gateway)->loops[request->loop_index];
}

/* True when it may; else it is answered. */
static bool may(struct gateway_loop *loop, struct http_request *request, enum config_scope scope)
{
    struct problem problem;
    const char *name = scope == SCOPE_READ ? "read" : scope == SCOPE_WRITE ? "write" : "admin";
    if (request->local) /* the command socket: who can open it owns the data */
        return true;
    /* Acquire: what auth_create wrote is seen. */
    const struct auth *auth = atomic_load_explicit(&loop->gateway->auth, memory_order_acquire);
    struct slice given = {0};
    if (!auth_is_open(auth))
        given = http_header(request, "authorization");
    switch (auth_check(auth, given, scope)) {
    case 0:
        return true;
    case 401:
        problem_set(&problem, 401, "no_token",
                    "a known token is needed, with scope %s: Authorization: Bearer TOKEN", name);
        break;
    default:
        problem_set(&problem, 403, "scope", "scope %s is needed, and the token does not have it",
                    name);
    }
    reply_problem(loop, request, &problem);
    return false;
}

/* The stream's place; else it is answered and n_streams comes back. */
static size_t find_stream(struct gateway_loop *loop, struct http_request *request,
                          struct slice name)
{
    struct gateway *gateway = loop->gateway;
    struct problem problem;
    size_t i = 0;
    while (i < gateway->n_streams && !slice_is(name, gateway->streams[i].config->name))
        i++;
    if (i == gateway->n_streams) {
        problem_set(&problem, 404, "no_such_stream",
                    "there is no stream %.*s; the configuration names the streams",
                    (int)(name.n < 100 ? name.n : 100), name.p);
        reply_problem(loop, request, &problem);
    }
    return i;
}

static void write_route(void *context, struct http_request *request, const struct slice *params)
{
    struct gateway_loop *loop = loop_of(context, request);
    if (!may(loop, request, SCOPE_WRITE))
        return;
    size_t stream = find_stream(loop, request, params[0]);
    if (stream < loop->gateway->n_streams)
        write_handle(loop, (unsigned)stream, request);
}

static void read_route(void *context, struct http_request *request, const struct slice *params)
{
    struct gateway_loop *loop = loop_of(context, request);
    if (!may(loop, request, SCOPE_READ))
        return;
    size_t stream = find_stream(loop, request, params[0]);
    if (stream < loop->gateway->n_streams)
        read_handle(loop, (unsigned)stream, params[1], request);
}

static void status_route(void *context, struct http_request *request, const struct slice *params)
{
    struct gateway_loop *loop = loop_of(context, request);
    (void)params;
    if (may(loop, request, SCOPE_READ))
        status_handle(loop, request);
}

static void metrics_route(void *context, struct http_request *request, const struct slice *params)
{
    struct gateway_loop *loop = loop_of(context, request);
    (void)params;
    if (may(loop, request, SCOPE_READ))
        metrics_handle(loop, request);
}

static void health_route(void *context, struct http_request *request, const struct slice *params)
{
    (void)params;
    reply(loop_of(context, request), request, 200, "text/plain", (struct slice){0},
          SLICE_LIT("ok\n"));
}

static void ready_route(void *context, struct http_request *request, const struct slice *params)
{
    struct gateway_loop *loop = loop_of(context, request);
    const char *why = ready_or_why_not(loop->gateway);
    struct problem problem;
    (void)params;
    if (!why) {
        reply(loop, request, 200, "text/plain", (struct slice){0}, SLICE_LIT("ready\n"));
        return;
    }
    problem_set(&problem, 503, "not_ready", "%s", why);
    reply_problem(loop, request, &problem);
}

static void dead_route(void *context, struct http_request *request, const struct slice *params)
{
    struct gateway_loop *loop = loop_of(context, request);
    if (may(loop, request, SCOPE_ADMIN))
        admin_dead(loop, request, params[0], params[1]);
}

static void repair_route(void *context, struct http_request *request, const struct slice *params)
{
    struct gateway_loop *loop = loop_of(context, request);
    if (may(loop, request, SCOPE_ADMIN))
        admin_repair(loop, request, params[0], params[1]);
}

static void ping_route(void *context, struct http_request *request, const struct slice *params)
{
    struct gateway_loop *loop = loop_of(context, request);
    (void)params;
    if (may(loop, request, SCOPE_ADMIN))
        admin_ping(loop, request);
}

static const struct http_route table[] = {
    {"POST", "/v1/streams/{stream}", write_route},
    {"GET", "/v1/streams/{stream}/{id}", read_route},
    {"GET", "/v1/status", status_route},
    {"GET", "/metrics", metrics_route},
    {"GET", "/healthz", health_route},
    {"GET", "/readyz", ready_route},
    {"POST", "/v1/admin/dead/{sink}/{verb}", dead_route},
    {"POST", "/v1/admin/repair/{sink}/{stream}", repair_route},
    {"POST", "/v1/admin/ping", ping_route},
};

static void not_allowed(struct gateway_loop *loop, struct http_request *request, const char *allow)
{
    char extra[80];
    struct problem problem;
    struct buf *out = &loop->answer;
    problem_set(&problem, 405, "method", "%.*s is not allowed here; allowed: %s",
                (int)(request->method.n < 20 ? request->method.n : 20), request->method.p, allow);
    buf_clear(out);
    problem_open_json(&problem, out);
    problem_close_json(out);
    snprintf(extra, sizeof(extra), "Allow: %s\r\n", allow);
    reply(loop, request, 405, PROBLEM_CONTENT_TYPE, slice_of(extra), buf_slice(out));
}

static void kick_log(struct loop_hook *hook)
{
    struct gateway_loop *loop = CONTAINER_OF(hook, struct gateway_loop, kick);
    if (loop->appended) {
        loop->appended = false;
        log_kick(loop->gateway->log);
    }
}

/* The hook comes behind the server's own, which may still hand out requests. */
static void first_request(struct gateway_loop *loop, struct loop *runs_on)
{
    loop->loop = runs_on;
    loop->kick.run = kick_log;
    loop_hook_add(runs_on, &loop->kick);
}

void routes_handle(void *context, struct http_request *request)
{
    struct gateway_loop *loop = loop_of(context, request);
    struct route_match match;
    struct problem problem;
    if (!loop->loop)
        first_request(loop, request->loop);
    switch (route_find(table, sizeof(table) / sizeof(table[0]), request->method, request->path,
                       &match)) {
    case ROUTE_FOUND:
        match.route->handle(context, request, match.params);
        break;
    case ROUTE_METHOD:
        not_allowed(loop, request, match.allow);
        break;
    default:
        problem_set(&problem, 404, "no_such_place",
                    "there is nothing at %.*s; records go to POST /v1/streams/{stream}",
                    (int)(request->path.n < 100 ? request->path.n : 100), request->path.p);
        reply_problem(loop, request, &problem);
    }
}
