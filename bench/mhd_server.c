/* mhd_server.c: a bare libmicrohttpd server: it reads a body, counts its bytes, keeps nothing and
 * answers 202. The peer of weir's HTTP server, set up as fast as the library goes (epoll, a pool of
 * threads, one response for all).
 *
 *     mhd_server PORT [THREADS]
 *
 * Prints its port and serves on 127.0.0.1 until SIGTERM or SIGINT. */
#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct MHD_Response *response;
static atomic_ullong bytes;

static enum MHD_Result handle(void *context, struct MHD_Connection *connection, const char *url,
                              const char *method, const char *version, const char *data,
                              size_t *data_n, void **request)
{
    static char begun;
    (void)context, (void)url, (void)version;
    if (!*request) { /* the head is there; an answer now would close the connection */
        *request = &begun;
        return MHD_YES;
    }
    if (*data_n > 0) {
        (void)data;
        atomic_fetch_add_explicit(&bytes, *data_n, memory_order_relaxed);
        *data_n = 0;
        return MHD_YES;
    }
    return MHD_queue_response(connection, strcmp(method, "POST") == 0 ? 202 : 200, response);
}

int main(int argc, char **argv)
{
    static char answer[] = "{\"status\":\"ok\"}";
    struct sockaddr_in address = {.sin_family = AF_INET};
    sigset_t signals;
    int signal;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons((uint16_t)(argc > 1 ? atoi(argv[1]) : 0));
    unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 2;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigprocmask(SIG_BLOCK, &signals, NULL);

    response = MHD_create_response_from_buffer(sizeof answer - 1, answer, MHD_RESPMEM_PERSISTENT);
    MHD_add_response_header(response, "Content-Type", "application/json");
    struct MHD_Daemon *daemon = MHD_start_daemon(
        MHD_USE_EPOLL_INTERNAL_THREAD | MHD_USE_TURBO, 0, NULL, NULL, handle, NULL,
        MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&address, MHD_OPTION_THREAD_POOL_SIZE, threads,
        MHD_OPTION_CONNECTION_LIMIT, 10000u, MHD_OPTION_LISTEN_BACKLOG_SIZE, 4096u, MHD_OPTION_END);
    if (!daemon) {
        fprintf(stderr, "mhd_server: cannot start\n");
        return 3;
    }
    printf("%u\n", (unsigned)MHD_get_daemon_info(daemon, MHD_DAEMON_INFO_BIND_PORT)->port);
    fflush(stdout);
    sigwait(&signals, &signal);
    MHD_stop_daemon(daemon);
    MHD_destroy_response(response);
    return 0;
}
