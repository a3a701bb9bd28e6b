/* run: whole runs of the generator against a server inside the test: counts, ids, errors of each
 * kind, reconnecting, and a pause that must show. Times are only ever checked from below. */
#include "cmocka_all.h"

#include <time.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "load/load.h"
#include "os/fs.h"
#include "peer.h"

static char url[64];

static struct load_config to(const struct peer *peer)
{
    snprintf(url, sizeof url, "http://127.0.0.1:%u", peer->port);
    return (struct load_config){.url = url, .connections = 4, .threads = 2, .timeout_ms = 20000};
}

static struct load_result run(const struct load_config *config)
{
    struct load_result result;
    struct diag diag = {0};
    load_result_init(&result);
    if (load_run(config, &result, &diag) != 0)
        fail_msg("%s", diag.text);
    return result;
}

static uint64_t errors_of_connections(const struct load_result *r)
{
    uint64_t n = 0;
    for (unsigned i = 0; i < LOAD_ERRORS; i++)
        n += r->errors[i];
    return n;
}

/* ---- answers */

static bool say_202(struct peer *peer, int fd, unsigned number, const char *head, const char *body)
{
    (void)peer, (void)number, (void)head, (void)body;
    peer_write(fd, "HTTP/1.1 202 Accepted\r\nContent-Length: 2\r\n\r\nok");
    return true;
}

/* Bodies by number, to check what was sent. */
struct seen {
    pthread_mutex_t lock;
    char *bodies[2000];
    char head[1000];
};

static bool remember(struct peer *peer, int fd, unsigned number, const char *head, const char *body)
{
    struct seen *seen = peer->context;
    pthread_mutex_lock(&seen->lock);
    if (number < 2000)
        seen->bodies[number] = mem_strdup(body);
    snprintf(seen->head, sizeof seen->head, "%s", head);
    pthread_mutex_unlock(&seen->lock);
    return say_202(peer, fd, number, head, body);
}

static void test_closed_loop_sends_exactly_n(void **state)
{
    (void)state;
    static struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = remember;
    peer->context = &seen;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.requests = 1001;
    config.threads = 3;
    config.connections = 7;
    config.token = "secret";
    config.ack = "stored";
    config.template = "{\"id\":\"{id}\",\"seq\":{seq}}";
    struct load_result r = run(&config);
    assert_int_equal(r.sent, 1001);
    assert_int_equal(r.ok, 1001);
    assert_int_equal(r.ok_in_window, 1001);
    assert_int_equal(r.statuses[202], 1001);
    assert_int_equal(load_error_count(&r), 0);
    assert_int_equal(histogram_count(r.latency_ns), 1001);
    assert_int_equal(atomic_load(&peer->requests), 1001);
    assert_true(load_rate_per_s(&r) > 0);
    bool have[1001] = {false}; /* each number once, over all threads */
    for (int i = 0; i < 1001; i++) {
        const char *seq = strstr(seen.bodies[i], "\"seq\":");
        unsigned long n = strtoul(seq + 6, NULL, 10);
        assert_true(n < 1001 && !have[n]);
        have[n] = true;
        mem_free(seen.bodies[i]);
        seen.bodies[i] = NULL;
    }
    assert_true(strncmp(seen.head, "POST /v1/streams/events?ack=stored HTTP/1.1\r\n", 45) == 0);
    assert_non_null(strstr(seen.head, "\r\nAuthorization: Bearer secret\r\n"));
    assert_non_null(strstr(seen.head, "\r\nContent-Type: application/json\r\n"));
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

static void test_open_loop_sends_what_the_time_holds(void **state)
{
    (void)state;
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = say_202;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.rate_per_s = 2000;
    config.duration_ms = 300;
    struct load_result r = run(&config);
    assert_int_equal(r.sent + r.unsent, 600);
    assert_int_equal(r.ok, r.sent);
    assert_true(r.duration_s > 0.2999 && r.duration_s < 0.3001);
    assert_int_equal(histogram_count(r.latency_ns), 600);
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

static void test_batches_are_lines(void **state)
{
    (void)state;
    static struct seen seen = {.lock = PTHREAD_MUTEX_INITIALIZER};
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = remember;
    peer->context = &seen;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.requests = 20;
    config.batch = 30;
    config.template = "{\"seq\":{seq}}";
    struct load_result r = run(&config);
    assert_int_equal(r.records_sent, 600);
    assert_int_equal(r.records_ok, 600);
    bool have[600] = {false};
    for (int i = 0; i < 20; i++) {
        char *line = seen.bodies[i];
        for (int k = 0; k < 30; k++) {
            char *end = strchr(line, '\n');
            assert_non_null(end);
            unsigned long n = strtoul(line + 7, NULL, 10);
            assert_true(n < 600 && !have[n]);
            have[n] = true;
            line = end + 1;
        }
        assert_int_equal(*line, 0);
        mem_free(seen.bodies[i]);
    }
    assert_non_null(strstr(seen.head, "\r\nContent-Type: application/x-ndjson\r\n"));
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

/* Answers as weir does, with an id of its own; every tenth is 503, every eleventh cut off. */
static bool like_weir(struct peer *peer, int fd, unsigned number, const char *head,
                      const char *body)
{
    (void)peer, (void)head, (void)body;
    char json[200], text[400];
    if (number % 11 == 10)
        return false;
    if (number % 10 == 9) {
        peer_write(fd, "HTTP/1.1 503 No\r\nContent-Length: 0\r\n\r\n");
        return true;
    }
    snprintf(json, sizeof json, "{\"id\":\"i%u\",\"version\":%u,\"ack\":\"durable\"}", number,
             number + 1);
    snprintf(text, sizeof text,
             "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n%zx\r\n%s\r\n0\r\n\r\n",
             strlen(json), json);
    peer_write(fd, text);
    return true;
}

static void test_ids_of_acknowledged_records_only(void **state)
{
    (void)state;
    char path[] = "/tmp/weir-ids-XXXXXX";
    close(mkstemp(path));
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = like_weir;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.requests = 200;
    config.ids_path = path;
    struct load_result r = run(&config);
    assert_int_equal(r.sent, 200);
    assert_int_equal(r.errors[LOAD_CLOSED] + r.errors[LOAD_RESET], 18);
    assert_int_equal(r.statuses[503], 19);
    assert_int_equal(r.ok, 163);
    assert_int_equal(r.reconnects, 18);

    char *text, *line;
    size_t n, lines = 0;
    bool have[200] = {false};
    assert_int_equal(fs_read_file(fs_posix(), path, 1 << 20, &text, &n), 0);
    text = mem_realloc(text, n + JSON_PADDING);
    struct json_parser *parser = json_parser_create();
    for (line = text; line < text + n; lines++) {
        char *end = memchr(line, '\n', (size_t)(text + n - line));
        struct json_value root, v;
        struct json_error error;
        assert_non_null(end);
        assert_int_equal(json_parse(parser, line, (size_t)(end - line), &root, &error), 0);
        assert_true(json_member(root, "stream", &v) && slice_is(json_string(v), "events"));
        assert_true(json_member(root, "hash", &v) && json_string(v).n == 32);
        assert_true(json_member(root, "version", &v));
        int64_t version = json_int(v);
        assert_true(json_member(root, "id", &v) && json_string(v).p[0] == 'i');
        assert_int_equal(strtol(json_string(v).p + 1, NULL, 10) + 1, version);
        assert_false(have[version - 1]);
        have[version - 1] = true;
        line = end + 1;
    }
    assert_int_equal(lines, 163);
    json_parser_destroy(parser);
    mem_free(text);
    unlink(path);
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

static bool misbehave(struct peer *peer, int fd, unsigned number, const char *head,
                      const char *body)
{
    struct linger linger = {.l_onoff = 1};
    switch (number % 6) {
    case 0:
        return say_202(peer, fd, number, head, body);
    case 1:
        peer_write(fd, "HTTP/1.1 202 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx");
        return true;
    case 2: /* two answers to one request */
        peer_write(fd, "HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n"
                       "HTTP/1.1 202 OK\r\nContent-Length: 0\r\n\r\n");
        return true;
    case 3: /* half an answer */
        peer_write(fd, "HTTP/1.1 202 OK\r\nContent-Length: 10\r\n\r\nabc");
        return false;
    case 4: /* whole, and the connection ends */
        peer_write(fd, "HTTP/1.1 202 OK\r\nConnection: close\r\n\r\nto the end");
        return false;
    default:
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
        peer_write(fd, "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n");
        return true;
    }
}

static void test_every_request_has_one_outcome(void **state)
{
    (void)state;
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = misbehave;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.requests = 60;
    config.threads = 1;
    config.connections = 2;
    struct load_result r = run(&config);
    assert_int_equal(r.sent, 60);
    assert_int_equal(r.ok, 20); /* 0 and 4 */
    assert_int_equal(r.statuses[404], 10);
    assert_int_equal(r.errors[LOAD_MALFORMED], 20); /* 1 and 2 */
    assert_int_equal(r.errors[LOAD_CLOSED] + r.errors[LOAD_RESET], 10);
    assert_int_equal(load_error_count(&r), 40);
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

static bool silent(struct peer *peer, int fd, unsigned number, const char *head, const char *body)
{
    if (number == 3) /* read on, say nothing */
        return true;
    return say_202(peer, fd, number, head, body);
}

static void test_a_timeout_is_counted_and_shows(void **state)
{
    (void)state;
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = silent;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.requests = 50;
    config.timeout_ms = 150;
    struct load_result r = run(&config);
    assert_int_equal(r.errors[LOAD_TIMEOUT], 1);
    assert_int_equal(r.sent, 50);
    assert_int_equal(r.ok, 49);
    assert_true(histogram_max(r.latency_ns) >= 150000000);
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

/* The pause is what is tested; nothing is waited for with it. */
static void stand_still(unsigned ms)
{
    struct timespec pause = {.tv_nsec = ms * 1000000L};
    nanosleep(&pause, NULL);
}

static bool pause_once(struct peer *peer, int fd, unsigned number, const char *head,
                       const char *body)
{
    static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&one_at_a_time);
    if (number == 50)
        stand_still(300);
    pthread_mutex_unlock(&one_at_a_time);
    return say_202(peer, fd, number, head, body);
}

static void test_a_paused_server_shows_in_open_loop(void **state)
{
    (void)state;
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = pause_once;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.rate_per_s = 400;
    config.duration_ms = 1000;
    struct load_result r = run(&config);
    assert_int_equal(r.sent + r.unsent, 400);
    /* 120 requests were meant for the pause, on 4 connections: at most 4 of them would show in a
     * closed loop. A quarter of all waited; the slowest tenth over 150 ms. */
    assert_true(histogram_quantile(r.latency_ns, 0.9) > 150000000);
    assert_true(histogram_quantile(r.latency_ns, 0.99) > 250000000);
    assert_true(r.late_server > 50);
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

/* Stops the server after some requests and starts it again on the same port. */
struct restarter {
    struct peer *first, *second;
};

static void *restart(void *argument)
{
    struct restarter *restarter = argument;
    while (atomic_load(&restarter->first->requests) < 100)
        usleep(1000); /* poll interval */
    unsigned port = restarter->first->port;
    peer_stop(restarter->first);
    stand_still(50); /* refused meanwhile */
    restarter->second->answer = say_202;
    peer_start(restarter->second, port);
    return NULL;
}

static void test_reconnect(void **state)
{
    (void)state;
    struct peer *first = mem_zalloc(sizeof *first), *second = mem_zalloc(sizeof *second);
    struct restarter restarter = {first, second};
    pthread_t thread;
    first->answer = say_202;
    peer_start(first, 0);
    pthread_create(&thread, NULL, restart, &restarter);
    struct load_config config = to(first);
    config.requests = 100000;
    config.duration_ms = 900;
    config.reconnect = true;
    struct load_result r = run(&config);
    pthread_join(thread, NULL);
    assert_true(atomic_load(&second->requests) > 0);
    assert_true(errors_of_connections(&r) > 0);
    assert_int_equal(r.sent, r.ok + r.errors[LOAD_RESET] + r.errors[LOAD_CLOSED] +
                                 r.errors[LOAD_TIMEOUT] + r.errors[LOAD_MALFORMED]);
    load_result_fini(&r);
    peer_stop(second);
    mem_free(first);
    mem_free(second);
}

static void *stop_soon(void *argument)
{
    struct peer *peer = argument;
    while (atomic_load(&peer->requests) < 100)
        usleep(1000); /* poll interval */
    peer_stop(peer);
    return NULL;
}

static void test_without_reconnect_it_ends_early(void **state)
{
    (void)state;
    struct peer *peer = mem_zalloc(sizeof *peer);
    pthread_t thread;
    peer->answer = say_202;
    peer_start(peer, 0);
    pthread_create(&thread, NULL, stop_soon, peer);
    struct load_config config = to(peer);
    config.duration_ms = 3600000;
    struct load_result r = run(&config); /* comes back: every connection is refused now */
    pthread_join(thread, NULL);
    assert_true(r.ok >= 90 && r.duration_s < 3600);
    assert_int_equal(r.errors[LOAD_CONNECT], 4);
    load_result_fini(&r);
    mem_free(peer);
}

static atomic_bool stop;

static bool stop_at_100(struct peer *peer, int fd, unsigned number, const char *head,
                        const char *body)
{
    if (number == 100)
        atomic_store(&stop, true);
    return say_202(peer, fd, number, head, body);
}

static void test_stop_ends_it(void **state)
{
    (void)state;
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = stop_at_100;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.duration_ms = 3600000;
    config.stop = &stop;
    struct load_result r = run(&config);
    assert_true(r.sent > 100 && r.ok == r.sent && r.duration_s < 3600);
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

static void test_start_at(void **state)
{
    (void)state;
    struct peer *peer = mem_zalloc(sizeof *peer);
    struct load_result r;
    struct diag diag = {0};
    peer->answer = say_202;
    peer_start(peer, 0);
    struct load_config config = to(peer);
    config.requests = 10;
    uint64_t at_ms = clock_wall_ms() + 300;
    config.start_at = (double)at_ms / 1000;
    r = run(&config);
    assert_true(r.started_ms >= at_ms - 1 && r.started_ms <= at_ms + 1);
    assert_true(clock_wall_ms() >= at_ms);
    load_result_fini(&r);
    config.start_at = 1000;
    load_result_init(&r);
    assert_int_equal(load_run(&config, &r, &diag), WEIR_INVALID);
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

static void expect_failure(struct load_config config, int code, const char *word)
{
    struct load_result r;
    struct diag diag = {0};
    load_result_init(&r);
    assert_int_equal(load_run(&config, &r, &diag), code);
    if (!strstr(diag.text, word))
        fail_msg("%s: does not say %s", diag.text, word);
    assert_int_equal(r.sent, 0);
    load_result_fini(&r);
}

static void test_settings_that_cannot_be(void **state)
{
    (void)state;
    struct peer *peer = mem_zalloc(sizeof *peer);
    peer->answer = say_202;
    peer_start(peer, 0);
    struct load_config good = to(peer), c;
    good.requests = 1;
    c = good, c.url = "nonsense";
    expect_failure(c, WEIR_INVALID, "nonsense");
    c = good, c.template = "{what}";
    expect_failure(c, WEIR_SYNTAX, "what");
    c = good, c.threads = 5;
    expect_failure(c, WEIR_INVALID, "--threads");
    c = good, c.threads = 1000, c.connections = 1000;
    expect_failure(c, WEIR_INVALID, "--threads");
    c = good, c.token = "a\r\nX: y";
    expect_failure(c, WEIR_INVALID, "token");
    c = good, c.ids_path = "/nothere/ids";
    expect_failure(c, WEIR_NOT_FOUND, "/nothere/ids");
    c = good, c.ids_path = "/dev/null", c.template = "{\"a\":}";
    expect_failure(c, WEIR_INVALID, "JSON");
    c = good, c.url = "http://127.0.0.1:1";
    expect_failure(c, WEIR_UNAVAILABLE, "127.0.0.1:1");
    c = good, c.ids_path = "/dev/full", c.requests = 20;
    struct load_result r;
    struct diag diag = {0};
    load_result_init(&r);
    peer->answer = like_weir;
    assert_int_not_equal(load_run(&c, &r, &diag), 0); /* the disk is full: said, not hidden */
    assert_non_null(strstr(diag.text, "/dev/full"));
    assert_true(r.sent > 0);
    load_result_fini(&r);
    peer_stop(peer);
    mem_free(peer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_closed_loop_sends_exactly_n),
        cmocka_unit_test(test_open_loop_sends_what_the_time_holds),
        cmocka_unit_test(test_batches_are_lines),
        cmocka_unit_test(test_ids_of_acknowledged_records_only),
        cmocka_unit_test(test_every_request_has_one_outcome),
        cmocka_unit_test(test_a_timeout_is_counted_and_shows),
        cmocka_unit_test(test_a_paused_server_shows_in_open_loop),
        cmocka_unit_test(test_reconnect),
        cmocka_unit_test(test_without_reconnect_it_ends_early),
        cmocka_unit_test(test_stop_ends_it),
        cmocka_unit_test(test_start_at),
        cmocka_unit_test(test_settings_that_cannot_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
