/* http_server.c: weir's HTTP server and nothing else: it reads a body and answers 202 at once.
 * The peer of mhd_server.c.
 *
 *     http_server PORT [LOOPS]
 *
 * Prints its port and serves on 127.0.0.1 until SIGTERM or SIGINT. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "http/server.h"

static void handle(void *context, struct http_request *request)
{
    (void)context;
    http_answer(request, 202, "application/json", SLICE_LIT(""), SLICE_LIT("{\"status\":\"ok\"}"));
}

int main(int argc, char **argv)
{
    struct http_server *server;
    struct diag diag;
    char address[32];
    sigset_t signals;
    int signal;
    snprintf(address, sizeof address, "127.0.0.1:%s", argc > 1 ? argv[1] : "0");
    struct http_server_config config = {
        .address = address, .loops = argc > 2 ? (unsigned)atoi(argv[2]) : 2, .handle = handle};
    http_limits_default(&config.limits);
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    if (http_server_start(&config, &server, &diag)) {
        fprintf(stderr, "http_server: %s\n", diag.text);
        return 3;
    }
    printf("%u\n", http_server_port(server));
    fflush(stdout);
    sigwait(&signals, &signal);
    http_server_destroy(server);
    return 0;
}
