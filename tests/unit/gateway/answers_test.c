/* answers: what a client is told when the log says yes, no, nothing, or that it does not know. A
 * log of the test's own takes the bodies; the rest, HTTP server included, is real. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/mem.h"
#include "gateway/state.h"
#include "http/server.h"

/* ---- the log: the record's id says what becomes of its body ---- */

static struct {
    struct log log;
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    struct body *first, **end; /* appended, not settled */
    bool hold, stop;           /* hold: nothing is settled for now */
    uint64_t offset;
    pthread_t thread;
} fake = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static struct gateway gateway;

static const struct {
    const char *id;
    int append, status;
} fates[] = {
    {"append-full", WEIR_FULL, 0},         {"append-too-large", WEIR_TOO_LARGE, 0},
    {"append-closed", WEIR_CLOSED, 0},     {"append-no-space", WEIR_NO_SPACE, 0},
    {"status-no-space", 0, WEIR_NO_SPACE}, {"status-io", 0, WEIR_IO},
    {"status-unknown", 0, WEIR_UNKNOWN},   {"status-poisoned", 0, WEIR_POISONED},
};

static int fate(const struct body *body, bool append)
{
    for (size_t i = 0; i < sizeof(fates) / sizeof(fates[0]); i++)
        if (slice_is(body->records[0].id, fates[i].id))
            return append ? fates[i].append : fates[i].status;
    return 0;
}

static int fake_append(struct log *log, struct body *body)
{
    (void)log;
    int err = fate(body, true);
    if (err)
        return err;
    pthread_mutex_lock(&fake.mutex);
    body->next = NULL;
    *fake.end = body;
    fake.end = &body->next;
    pthread_cond_signal(&fake.changed);
    pthread_mutex_unlock(&fake.mutex);
    return 0;
}

static void *fake_run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&fake.mutex);
    for (;;) {
        while ((!fake.first || fake.hold) && !fake.stop)
            pthread_cond_wait(&fake.changed, &fake.mutex);
        if (!fake.first)
            break;
        struct body *group = fake.first;
        fake.first = NULL;
        fake.end = &fake.first;
        pthread_mutex_unlock(&fake.mutex);
        for (struct body *body = group; body; body = body->next) {
            body->status = fate(body, false);
            for (uint32_t i = 0; i < body->n; i++)
                body->records[i].offset = ++fake.offset;
        }
        intake_durable(&gateway, group);
        pthread_mutex_lock(&fake.mutex);
    }
    pthread_mutex_unlock(&fake.mutex);
    return NULL;
}

static void fake_hold(bool hold)
{
    pthread_mutex_lock(&fake.mutex);
    fake.hold = hold;
    pthread_cond_signal(&fake.changed);
    pthread_mutex_unlock(&fake.mutex);
}

static void fake_position(struct log *log, uint32_t partition, uint64_t offset, char out[64])
{
    (void)log;
    snprintf(out, 64, "%u-%llu", partition, (unsigned long long)offset);
}

static void fake_stats(struct log *log, struct log_stats *out)
{
    (void)log;
    *out = (struct log_stats){0};
}

static void fake_kick(struct log *log)
{
    (void)log;
}

static const struct log_ops fake_ops = {.kind = "fake",
                                        .append = fake_append,
                                        .kick = fake_kick,
                                        .position_text = fake_position,
                                        .stats = fake_stats};

/* ---- a gateway around it ---- */

static struct config_stream stream_config = {.name = (char[]){"events"},
                                             .id = (char[]){"/id"},
                                             .id_optional = true,
                                             .ack = ACK_DURABLE,
                                             .ack_timeout_ms = 100,
                                             .sinks = 1};
static struct gateway_stream stream = {
    .config = &stream_config,
    .ingest = {.name = "events", .id = {"/id", 3}, .id_optional = true, .partitions = 4},
    .ack_timeout_ns = 100000000};
static struct config config = {.limits = {.body_bytes = 1 << 20, .records = 100}};

static int set_up(void **state)
{
    (void)state;
    struct diag diag = {0};
    pressure_init(&gateway.pressure, 1 << 20);
    fake.log.ops = &fake_ops;
    fake.end = &fake.first;
    gateway.config = &config;
    gateway.log = &fake.log;
    gateway.streams = &stream;
    gateway.n_streams = 1;
    gateway.body_limit = 1 << 20;
    gateway.acks = ack_create();
    gateway.auth = auth_create(NULL, 0);
    gateway.n_loops = 1;
    gateway.loops = mem_zalloc(sizeof(struct gateway_loop));
    gateway.loops->gateway = &gateway;
    gateway.loops->ingest = ingest_create();
    for (int level = 0; level < 4; level++)
        gateway.loops->latency_ns[level] = histogram_create();
    intake_waiting_init(gateway.loops);
    struct http_server_config server = {
        .address = "127.0.0.1:0", .loops = 1, .handle = routes_handle, .context = &gateway};
    http_limits_default(&server.limits);
    if (http_server_start(&server, &gateway.server, &diag))
        return -1;
    return pthread_create(&fake.thread, NULL, fake_run, NULL);
}

static int tear_down(void **state)
{
    (void)state;
    pthread_mutex_lock(&fake.mutex);
    fake.stop = true;
    pthread_cond_signal(&fake.changed);
    pthread_mutex_unlock(&fake.mutex);
    pthread_join(fake.thread, NULL);
    http_server_destroy(gateway.server);
    ack_destroy(gateway.acks);
    auth_destroy(gateway.auth);
    for (int level = 0; level < 4; level++)
        histogram_destroy(gateway.loops->latency_ns[level]);
    ingest_destroy(gateway.loops->ingest);
    buf_fini(&gateway.loops->answer);
    buf_fini(&gateway.loops->attributes);
    mem_free(gateway.loops->waiting);
    mem_free(gateway.loops);
    return 0;
}

static int fresh(void **state)
{
    (void)state;
    /* Field by field: the log's thread may be inside pressure_release. */
    gateway.pressure.memory_limit = 1 << 20;
    atomic_store(&gateway.pressure.log_failed, false);
    atomic_store(&gateway.pressure.blocked, 0);
    version_init(&gateway.versions, 1);
    version_raise(&gateway.versions, VERSION_LIMIT - 1);
    gateway.lost_records = 0;
    return 0;
}

/* ---- a client ---- */

static char answer[65536];

/* Sends one POST on a connection of its own; the whole answer is in `answer`; returns its status.
 */
static int post(const char *query, const char *body)
{
    char request[4096];
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in to = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)http_server_port(gateway.server)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof(to)), 0);
    int n = snprintf(request, sizeof(request),
                     "POST /v1/streams/events%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                     "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                     query, strlen(body), body);
    assert_int_equal(write(fd, request, (size_t)n), n);
    size_t got = 0;
    ssize_t r;
    while ((r = read(fd, answer + got, sizeof(answer) - 1 - got)) > 0)
        got += (size_t)r;
    answer[got] = 0;
    close(fd);
    assert_memory_equal(answer, "HTTP/1.1 ", 9);
    return atoi(answer + 9);
}

static bool says(const char *words)
{
    return strstr(answer, words) != NULL;
}

static void wait_nothing_charged(void)
{
    while (atomic_load(&gateway.pressure.memory_used) > 0)
        usleep(500); /* poll interval */
}

static void test_yes(void **state)
{
    (void)state;
    assert_int_equal(post("", "{\"id\":\"a\"}"), 202);
    assert_true(says("{\"id\":\"a\",\"version\":"));
    assert_true(says("\"position\":\"") && says("\"ack\":\"durable\"}"));
    assert_int_equal(post("?ack=received", "{\"id\":\"a\"}"), 202);
    assert_true(says("\"ack\":\"received\"}") && !says("position"));
    assert_int_equal(post("", "[{\"id\":\"a\"},{\"id\":\"b\"}]"), 202);
    assert_true(says("{\"ack\":\"durable\",\"records\":[\n{\"id\":\"a\",") &&
                says("\n{\"id\":\"b\","));
    wait_nothing_charged();
}

static void test_no_is_503_with_the_time_to_come_back(void **state)
{
    (void)state;
    static const struct {
        const char *body, *code;
        enum pressure_cause cause;
    } cases[] = {
        {"{\"id\":\"append-full\"}", "\"code\":\"ring\"", PRESSURE_RING},
        {"{\"id\":\"append-closed\"}", "\"code\":\"stopping\"", PRESSURE_STOPPING},
        {"{\"id\":\"append-no-space\"}", "\"code\":\"disk_full\"", PRESSURE_DISK},
        {"{\"id\":\"status-no-space\"}", "\"code\":\"disk_full\"", PRESSURE_DISK},
        {"{\"id\":\"status-io\"}", "\"code\":\"log_failed\"", PRESSURE_FAILED},
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        uint64_t before = gateway.pressure.refused[cases[i].cause];
        assert_int_equal(post("", cases[i].body), 503);
        assert_true(says(cases[i].code));
        const char *header = strstr(answer, "Retry-After: ");
        assert_non_null(header);
        assert_in_range(atoi(header + 13), 1, 60);
        assert_int_equal(gateway.pressure.refused[cases[i].cause], before + 1);
    }
    assert_int_equal(post("", "{\"id\":\"append-too-large\"}"), 413);
    assert_int_equal(post("", "{\"id\":\"and on it goes\"}"), 202);
    wait_nothing_charged();
}

static void test_not_known_is_504_with_the_id(void **state)
{
    (void)state;
    assert_int_equal(post("", "{\"id\":\"status-unknown\"}"), 504);
    assert_true(says("{\"id\":\"status-unknown\",\"version\":"));
    assert_true(says("harmless"));
    /* a failed sync: nothing more until the restart */
    assert_int_equal(post("", "{\"id\":\"fine\"}"), 503);
    assert_true(says("\"code\":\"log_failed\"") && says("Retry-After: 60"));
    assert_non_null(ready_or_why_not(&gateway));
    wait_nothing_charged();
}

static void test_poisoned_is_503(void **state)
{
    (void)state;
    assert_int_equal(post("", "{\"id\":\"status-poisoned\"}"), 503);
    assert_int_equal(post("", "{\"id\":\"fine\"}"), 503);
    wait_nothing_charged();
}

static void test_silence_is_504_and_what_comes_late_harms_nobody(void **state)
{
    (void)state;
    static const char *queries[] = {"", "?ack=stored", "?ack=everywhere"};
    for (size_t i = 0; i < sizeof(queries) / sizeof(queries[0]); i++) {
        fake_hold(true);
        assert_int_equal(post(queries[i], "[{\"x\":1},{\"id\":\"b\"}]"), 504);
        assert_true(says("ack_timeout") && says("\"version\":"));
        assert_true(atomic_load(&gateway.pressure.memory_used) > 0); /* the log still has it */
        fake_hold(false);
        wait_nothing_charged();
        assert_int_equal(post("", "{\"id\":\"next\"}"), 202);
    }
    assert_int_equal(ack_waiting(gateway.acks), 0);
    wait_nothing_charged();
}

static void test_durable_is_said_where_more_cannot_be_had(void **state)
{
    (void)state; /* no delivery runs: no sink can be asked */
    assert_int_equal(post("?ack=stored", "{\"id\":\"a\"}"), 202);
    assert_true(says("\"ack\":\"durable\"") && says("\"position\"") && says("\"note\""));
    assert_int_equal(post("?ack=everywhere", "[{\"id\":\"a\"},{\"id\":\"b\"}]"), 202);
    assert_true(says("{\"ack\":\"durable\"") && !says("\"outcome\""));
    wait_nothing_charged();
}

static void test_received_and_then_lost_is_counted(void **state)
{
    (void)state;
    assert_int_equal(post("?ack=received", "{\"id\":\"status-no-space\"}"), 202);
    wait_nothing_charged();
    assert_int_equal(gateway.lost_records, 1);
}

static void test_over_the_budget_is_503_before_parsing(void **state)
{
    (void)state;
    char body[2048];
    uint64_t before = gateway.pressure.refused[PRESSURE_MEMORY];
    gateway.pressure.memory_limit = 4000;
    assert_true(pressure_charge(&gateway.pressure, 2000));
    memset(body, 'x', sizeof(body));
    body[1500] = 0; /* not JSON: nobody looks */
    assert_int_equal(post("", body), 503);
    assert_true(says("\"code\":\"memory\"") && says("Retry-After: "));
    assert_int_equal(gateway.pressure.refused[PRESSURE_MEMORY], before + 1);
    body[500] = 0;
    assert_int_equal(post("", body), 400);
    pressure_release(&gateway.pressure, 2000);
    memset(body, 'x', sizeof(body));
    body[2001] = 0; /* it could never fit */
    assert_int_equal(post("", body), 413);
    wait_nothing_charged();
}

static void test_no_version_no_record(void **state)
{
    (void)state;
    version_init(&gateway.versions, 1); /* META could not be written */
    assert_int_equal(post("", "{\"id\":\"a\"}"), 503);
    assert_true(says("\"code\":\"version\""));
    wait_nothing_charged();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_yes, fresh),
        cmocka_unit_test_setup(test_no_is_503_with_the_time_to_come_back, fresh),
        cmocka_unit_test_setup(test_not_known_is_504_with_the_id, fresh),
        cmocka_unit_test_setup(test_poisoned_is_503, fresh),
        cmocka_unit_test_setup(test_silence_is_504_and_what_comes_late_harms_nobody, fresh),
        cmocka_unit_test_setup(test_durable_is_said_where_more_cannot_be_had, fresh),
        cmocka_unit_test_setup(test_received_and_then_lost_is_counted, fresh),
        cmocka_unit_test_setup(test_over_the_budget_is_503_before_parsing, fresh),
        cmocka_unit_test_setup(test_no_version_no_record, fresh),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
