/* listen_test.c: addresses, shared ports, unix sockets of any length of path. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/listen.h"

static void test_addresses(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint16_t port;
        bool loopback;
    } good[] = {
        {"127.0.0.1:8080", 8080, true}, {"localhost:1", 1, true},        {"127.8.8.8:0", 0, true},
        {"[::1]:80", 80, true},         {"0.0.0.0:65535", 65535, false}, {"[::]:80", 80, false},
        {"192.168.1.1:7", 7, false},
    };
    static const char *const bad[] = {"",
                                      "127.0.0.1",
                                      "127.0.0.1:",
                                      "127.0.0.1:x",
                                      ":80",
                                      "127.0.0.1:-1",
                                      "127.0.0.1: 1",
                                      "::1:80",
                                      "[::1]80",
                                      "[::1",
                                      "[]:80",
                                      "1.2.3:80",
                                      "a.example:1",
                                      "[1.2.3.4]:80",
                                      "127.0.0.1:65536",
                                      "127.0.0.1:000080",
                                      "127.0.0.1:99999999999",
                                      "[0000:0000:0000:0000:0000:0000:0000:0000:0000:0001]:1"};
    struct listen_address address;
    struct diag diag;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_int_equal(listen_parse(good[i].text, &address, &diag), 0);
        assert_int_equal(address.port, good[i].port);
        assert_int_equal(address.loopback, good[i].loopback);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        memset(&address, 0x55, sizeof address);
        assert_int_equal(listen_parse(bad[i], &address, &diag), WEIR_INVALID);
        assert_non_null(strstr(diag.text, bad[i]));
        assert_int_equal(address.port, 0x5555); /* untouched */
    }
}

static void test_a_port_for_all_and_for_nobody_else(void **state)
{
    (void)state;
    struct listen_address address, same;
    struct diag diag;
    int fds[4], other;
    assert_int_equal(listen_parse("127.0.0.1:0", &address, &diag), 0);
    assert_int_equal(listen_tcp(&address, 4, fds, &diag), 0);
    assert_int_not_equal(address.port, 0);
    for (int i = 0; i < 4; i++) {
        assert_true(fcntl(fds[i], F_GETFL) & O_NONBLOCK);
        assert_true(fcntl(fds[i], F_GETFD) & FD_CLOEXEC);
    }
    same = address;
    assert_int_equal(listen_tcp(&same, 1, &other, &diag), WEIR_EXISTS);
    assert_non_null(strstr(diag.text, "127.0.0.1:"));
    for (int i = 0; i < 4; i++)
        close(fds[i]);
    assert_int_equal(listen_tcp(&same, 1, &other, &diag), 0);
    close(other);
    assert_int_equal(listen_parse("192.0.2.1:80", &address, &diag), 0); /* not of this machine */
    assert_int_equal(listen_tcp(&address, 2, fds, &diag), WEIR_NET);
}

static void test_unix_sockets(void **state)
{
    (void)state;
    char dir[] = "/tmp/weir-listen-XXXXXX", path[512];
    struct stat there;
    struct diag diag;
    int fd, client;
    assert_non_null(mkdtemp(dir));
    for (int length = 1; length <= 200; length += 199) {
        int n = snprintf(path, sizeof path, "%s/%0*d", dir, length, 1);
        assert_int_equal(mkdir(path, 0700), 0);
        snprintf(path + n, sizeof path - (size_t)n, "/weir.sock");
        assert_int_equal(listen_connect_unix(path, &client, &diag), WEIR_UNAVAILABLE);
        for (int round = 0; round < 2; round++) { /* the second finds what the first left */
            mode_t mask = umask(0);
            assert_int_equal(listen_unix(path, &fd, &diag), 0);
            umask(mask);
            assert_int_equal(stat(path, &there), 0);
            assert_int_equal(there.st_mode & 07777, 0600);
            assert_int_equal(listen_connect_unix(path, &client, &diag), 0);
            close(client);
            close(fd);
        }
        assert_int_equal(listen_connect_unix(path, &client, &diag), WEIR_UNAVAILABLE);
        unlink(path);
        /* A file that is no socket stays. */
        close(open(path, O_CREAT | O_WRONLY, 0600));
        assert_int_equal(listen_unix(path, &fd, &diag), WEIR_EXISTS);
        assert_int_equal(access(path, F_OK), 0);
        unlink(path);
        path[n] = 0;
        rmdir(path);
    }
    assert_int_equal(rmdir(dir), 0);
    snprintf(path, sizeof path, "/tmp/%0300d", 1); /* a name that no file can have */
    assert_int_equal(listen_unix(path, &fd, &diag), WEIR_NET);
    assert_int_equal(listen_unix("/nowhere/at/all/weir.sock", &fd, &diag), WEIR_NET);
}

static void test_the_limit_of_files(void **state)
{
    (void)state;
    struct rlimit limit;
    getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = limit.rlim_max < 100 ? limit.rlim_max : 100;
    setrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(listen_raise_file_limit(), limit.rlim_max);
    getrlimit(RLIMIT_NOFILE, &limit);
    assert_int_equal(limit.rlim_cur, limit.rlim_max);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_addresses),
        cmocka_unit_test(test_a_port_for_all_and_for_nobody_else),
        cmocka_unit_test(test_unix_sockets),
        cmocka_unit_test(test_the_limit_of_files),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
