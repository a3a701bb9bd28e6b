/* server_stress_test.c: several clients, two loops, and a thread that answers in groups, one chain
 * of messages for each loop, as a log does. Clients pipeline, cut their bytes anywhere, and leave
 * at any moment. Every answer that arrives is the right one, in its place; none is lost. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../seeded.h"
#include "peer.h"

#define LOOPS   2
#define CLIENTS 4
#define VISITS  40 /* connections of each client */

struct waiting {                 /* one request that waits for the answering thread */
    struct loop_message message; /* first */
    struct http_request *request;
    struct waiting *next;
};

static struct {
    pthread_mutex_t mutex;
    struct waiting *first[LOOPS]; /* guarded by mutex; the newest first */
    _Atomic bool stop;
} group = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static void answer_one(struct loop_message *message)
{
    struct waiting *waiting = (struct waiting *)message;
    peer_echo(waiting->request, waiting->request->body);
    free(waiting);
}

static void wait_for_the_group(struct http_request *request)
{
    struct waiting *waiting = calloc(1, sizeof *waiting);
    assert(waiting && request->loop_index < LOOPS);
    waiting->message.run = answer_one;
    waiting->request = request;
    pthread_mutex_lock(&group.mutex);
    waiting->next = group.first[request->loop_index];
    group.first[request->loop_index] = waiting;
    pthread_mutex_unlock(&group.mutex);
}

static void *answer_in_groups(void *argument)
{
    (void)argument;
    bool last = false;
    while (!last) {
        last = atomic_load(&group.stop);
        for (unsigned i = 0; i < LOOPS; i++) {
            pthread_mutex_lock(&group.mutex);
            struct waiting *all = group.first[i];
            group.first[i] = NULL;
            pthread_mutex_unlock(&group.mutex);
            if (!all)
                continue;
            struct loop_message *first = &all->message, *end = first;
            for (struct waiting *at = all; at; at = at->next) {
                end->next = &at->message;
                end = &at->message;
            }
            loop_post_list(http_server_loop(peer.server, i), first, end);
        }
        poll(NULL, 0, 0);
    }
    return NULL;
}

/* One connection: some requests, pipelined; all answers are read, or the client leaves. */
static unsigned visit(struct seeded *random, unsigned client, unsigned number)
{
    struct buf in = {0};
    struct peer_answer answer = {0};
    unsigned n = 1 + (unsigned)seeded_below(random, 30), read = 0;
    bool leaves = seeded_below(random, 4) == 0;
    for (unsigned i = 0; i < n; i++) {
        size_t bytes = seeded_below(random, 20) ? seeded_below(random, 300) : 10000;
        buf_printf(&in, "POST /%s?%u-%u-%u HTTP/1.1\r\nHost: x\r\nContent-Length: %zu\r\n\r\n",
                   seeded_below(random, 3) ? "group" : "take", client, number, i, bytes);
        for (size_t k = 0; k < bytes; k++)
            buf_put_char(&in, (char)('a' + (i + k) % 26));
    }
    int fd = peer_connect();
    size_t stop = leaves ? (size_t)seeded_below(random, in.n) : in.n;
    for (size_t at = 0; at < stop;) {
        size_t piece = 1 + (size_t)seeded_below(random, stop - at);
        peer_send(fd, in.p + at, piece);
        at += piece;
    }
    for (; !leaves && read < n; read++) {
        char place[64];
        peer_read_answer(fd, &answer, false);
        assert(answer.status == 200);
        snprintf(place, sizeof place, "?%u-%u-%u ", client, number, read);
        assert(strstr(buf_str(&answer.body), place));
        const char *body = strchr(answer.body.p, ':') + 1;
        for (size_t k = 0; body + k < answer.body.p + answer.body.n; k++)
            assert(body[k] == (char)('a' + (read + k) % 26));
    }
    if (leaves && seeded_below(random, 2)) {
        struct linger hard = {1, 0};
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &hard, sizeof hard);
    }
    close(fd);
    buf_fini(&in);
    peer_answer_fini(&answer);
    return read;
}

static uint64_t seed;
static void *be_a_client(void *argument)
{
    unsigned client = (unsigned)(uintptr_t)argument;
    struct seeded random = {seed + client};
    unsigned answered = 0;
    for (unsigned i = 0; i < VISITS; i++)
        answered += visit(&random, client, i);
    return (void *)(uintptr_t)answered;
}

static void test_clients_and_groups(void **state)
{
    (void)state;
    pthread_t clients[CLIENTS], answering;
    uintptr_t answered = 0;
    seed = seeded_choose();
    peer_configure();
    peer.config.loops = LOOPS;
    peer.config.limits.pipelined = 8;
    peer.other = wait_for_the_group;
    peer_start();
    pthread_create(&answering, NULL, answer_in_groups, NULL);
    for (uintptr_t i = 0; i < CLIENTS; i++)
        pthread_create(&clients[i], NULL, be_a_client, (void *)i);
    for (unsigned i = 0; i < CLIENTS; i++) {
        void *one;
        pthread_join(clients[i], &one);
        answered += (uintptr_t)one;
    }
    PEER_WAIT(PEER_COUNTER(connections_open) == 0 && http_server_unanswered(peer.server) == 0);
    atomic_store(&group.stop, true);
    pthread_join(answering, NULL);
    assert_int_equal(PEER_COUNTER(bad_requests_total), 0);
    assert_in_range(answered, CLIENTS * VISITS * 5, PEER_COUNTER(requests_total));
    peer_stop();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_clients_and_groups)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
