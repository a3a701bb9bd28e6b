/* server_end_test.c: stopping, destroying, and what lies around a server: its port, its socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <sys/stat.h>

#include "os/listen.h"
#include "peer.h"

static int setup(void **state)
{
    (void)state;
    peer_configure();
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    peer_stop();
    return 0;
}

#define GET(path)  "GET " path " HTTP/1.1\r\nHost: x\r\n\r\n"
#define POST(path) "POST " path " HTTP/1.1\r\nHost: x\r\n"

/* ---- stopping ---- */

static void test_stopping(void **state)
{
    (void)state;
    peer.config.loops = 2;
    peer_start();
    struct peer_answer answer = {0};
    struct buf all = {0};
    int idle[20], busy = peer_connect();
    for (int i = 0; i < 20; i++) {
        idle[i] = peer_connect();
        peer_say(idle[i], GET("/echo"));
        peer_read_answer(idle[i], &answer, false);
        assert_false(peer_has(&answer, "onnection: close"));
    }
    /* Held requests are answered on loop 0 by the test; the busy one may be on either. */
    peer_say(busy, POST("/echo") "Content-Length: 4\r\n\r\nab");
    PEER_WAIT(PEER_COUNTER(connections_open) == 21 && PEER_COUNTER(bytes_in_total) > 20 * 30 + 40);
    http_server_stop_accepting(peer.server);
    http_server_stop_accepting(peer.server);
    for (int i = 0; i < 20; i++) {
        buf_clear(&all);
        assert_true(peer_read_all(idle[i], &all));
        assert_int_equal(all.n, 0);
        close(idle[i]);
    }
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)peer.port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(late, (struct sockaddr *)&to, sizeof to), -1);
    close(late);
    peer_say(busy, "cd");
    assert_true(peer_read_all(busy, &all));
    assert_non_null(strstr(buf_str(&all), "\r\nConnection: close\r\n"));
    assert_non_null(strstr(buf_str(&all), "POST /echo 4:abcd"));
    close(busy);
    PEER_WAIT(PEER_COUNTER(connections_open) == 0);
    peer_answer_fini(&answer);
    buf_fini(&all);
}

static void test_destroying_cuts_off_what_is_unanswered(void **state)
{
    (void)state;
    peer_start();
    int fd = peer_connect(), gone = peer_connect(), partial = peer_connect();
    peer_say(fd, GET("/held") GET("/echo"));
    peer_say(gone, GET("/held"));
    peer_say(partial, POST("/echo") "Content-Length: 100000\r\n\r\nabc");
    PEER_WAIT(peer_held() == 2);
    peer_reset(gone);
    PEER_WAIT(atomic_load(&peer.gone) == 1);
    peer_stop();
    assert_int_equal(atomic_load(&peer.gone), 2);
    struct buf all = {0};
    peer_read_all(fd, &all);
    assert_int_equal(all.n, 0);
    close(fd);
    close(partial);
    buf_fini(&all);
}

/* ---- addresses ---- */

static void test_the_unix_socket(void **state)
{
    (void)state;
    char dir[] = "/tmp/weir-test-XXXXXX", path[512];
    assert_non_null(mkdtemp(dir));
    /* Longer than a sockaddr_un holds. */
    snprintf(path, sizeof path, "%s/%0100d", dir, 1);
    assert_int_equal(mkdir(path, 0700), 0);
    strcat(path, "/weir.sock");
    peer.config.unix_path = path;
    for (int round = 0; round < 2; round++) { /* the second finds the first one's socket */
        struct stat there;
        struct peer_answer answer = {0};
        struct diag diag;
        int fd;
        peer_start();
        assert_int_equal(stat(path, &there), 0);
        assert_int_equal(there.st_mode & 07777, 0600);
        assert_int_equal(listen_connect_unix(path, &fd, &diag), 0);
        peer_say(fd, GET("/echo"));
        peer_read_answer(fd, &answer, false);
        assert_int_equal(answer.status, 200);
        assert_int_equal(atomic_load(&peer.locals), round + 1);
        close(fd);
        peer_answer_fini(&answer);
        if (round == 0) {
            char kept[600];
            snprintf(kept, sizeof kept, "%s.kept", path);
            assert_int_equal(link(path, kept), 0); /* as a crash would leave it */
            peer_stop();
            assert_int_equal(rename(kept, path), 0);
        }
    }
    peer_stop();
    assert_int_equal(access(path, F_OK), -1);
    *strrchr(path, '/') = 0;
    rmdir(path);
    rmdir(dir);
}

/* Listeners share their port among the loops of one server, and with nobody else. */
static void test_a_port_is_taken_once(void **state)
{
    (void)state;
    struct diag diag;
    struct http_server *second;
    char taken[32];
    peer.config.loops = 3;
    peer_start();
    snprintf(taken, sizeof taken, "127.0.0.1:%u", peer.port);
    struct http_server_config config = peer.config;
    config.address = taken;
    assert_int_equal(http_server_start(&config, &second, &diag), WEIR_EXISTS);
    assert_non_null(strstr(diag.text, taken));
    config.address = "[::1]:0";
    if (http_server_start(&config, &second, &diag) == 0) { /* where there is IPv6 */
        assert_int_not_equal(http_server_port(second), 0);
        http_server_destroy(second);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_stopping),
        TEST(test_destroying_cuts_off_what_is_unanswered),
        TEST(test_the_unix_socket),
        TEST(test_a_port_is_taken_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
