/* config: what a file says is what is there; every mistake is named with its line. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "gateway/config_reader.h"

static char folder[] = "/tmp/weir-config-XXXXXX";
static char path[64], tokens_path[64];

static void write_file(const char *name, const char *text, mode_t mode)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(name, mode), 0);
}

static struct config *good(const char *text)
{
    struct config *config = NULL;
    struct config_problems problems;
    write_file(path, text, 0600);
    if (config_read(path, &config, &problems))
        fail_msg("line %u: %s", problems.list[0].line, problems.list[0].text);
    assert_int_equal(problems.n, 0);
    config_problems_fini(&problems);
    assert_string_equal(config->path, path);
    return config;
}

/* The text has exactly one mistake, on this line, whose words include these. */
static void bad(const char *text, unsigned line, const char *words)
{
    struct config *config = NULL;
    struct config_problems problems;
    write_file(path, text, 0600);
    int err = config_read(path, &config, &problems);
    if (err != WEIR_INVALID)
        fail_msg("taken: %s", text);
    if (problems.n != 1 || problems.list[0].line != line || !strstr(problems.list[0].text, words)) {
        for (size_t i = 0; i < problems.n; i++)
            print_message("%u: %s\n", problems.list[i].line, problems.list[i].text);
        fail_msg("expected %u: ...%s... for:\n%s", line, words, text);
    }
    config_problems_fini(&problems);
}

static void test_the_least_file(void **state)
{
    (void)state;
    struct config *config = good("version: 1\n");
    assert_string_equal(config->listen, "127.0.0.1:8080");
    assert_string_equal(config->data, "./weir-data");
    assert_string_equal(config->log.kind, "journal");
    assert_int_equal(config->log.partitions, 4);
    assert_int_equal(config->log.segment_bytes, 64 << 20);
    assert_true(config->log.max_bytes == 10ull << 30);
    assert_int_equal(config->limits.body_bytes, 16 << 20);
    assert_int_equal(config->limits.memory_bytes, 64 << 20);
    assert_int_equal(config->limits.records, 100000);
    assert_int_equal(config->limits.lag_records, 0);
    assert_int_equal(config->limits.dead_bytes, 1 << 30);
    assert_int_equal(config->limits.drain_timeout_ms, 30000);
    assert_int_equal(config->limits.http.body_bytes, 16 << 20);
    assert_int_equal(config->n_sinks, 1);
    assert_string_equal(config->sinks[0].name, "main");
    assert_string_equal(config->sinks[0].ops->kind, "sqlite");
    assert_null(config->sinks[0].options[0].name);
    assert_int_equal(config->n_streams, 1);
    assert_string_equal(config->streams[0].name, "events");
    assert_string_equal(config->streams[0].id, "/id");
    assert_true(config->streams[0].id_optional);
    assert_null(config->streams[0].key);
    assert_int_equal(config->streams[0].ack, ACK_DURABLE);
    assert_int_equal(config->streams[0].ack_timeout_ms, 10000);
    assert_int_equal(config->streams[0].sinks, 1);
    config_destroy(config);
}

static void test_the_built_in_default_is_the_least_file(void **state)
{
    (void)state;
    struct config *config = config_default("/some/where");
    assert_null(config->path);
    assert_string_equal(config->data, "/some/where");
    assert_int_equal(config->n_sinks, 1);
    assert_int_equal(config->sinks[0].lane.threads, 1);
    assert_int_equal(config->n_streams, 1);
    config_destroy(config);
    config = config_default(NULL);
    assert_string_equal(config->data, "./weir-data");
    config_destroy(config);
    config_destroy(NULL);
}

static void test_everything_that_can_be_said(void **state)
{
    (void)state;
    write_file(tokens_path, "# comment\n\nwwwwwwwwwwwwwwww write\nrrrrrrrr\tread,admin \r\n", 0600);
    char text[4096];
    snprintf(text, sizeof text,
             "version: 1\n"
             "listen: '[::1]:0'\n"
             "data: /var/lib/weir\n"
             "insecure: true\n"
             "tokens: %s\n"
             "loops: 3\n"
             "log: {kind: journal, partitions: 1024, segment: 1MiB, max_bytes: 4MiB}\n"
             "limits:\n"
             "  {body: 1MiB, memory: 2MiB, records: 10, lag: 1000, dead: 64KiB,\n"
             "   drain_timeout: 5s, connections: 100, head: 8KiB, headers: 50,\n"
             "   pipelined: 7, head_timeout: 1s, body_timeout: 2s, idle_timeout: 3s,\n"
             "   write_timeout: 4s}\n"
             "streams:\n"
             "  orders: {id: /order_no, key: /user~1id/0, ack: everywhere,\n"
             "           ack_timeout: 250ms, primary: copy, sinks: [main, copy]}\n"
             "  loose: {sinks: [copy]}\n"
             "  all:\n"
             "sinks:\n"
             "  main: {kind: sqlite, order: none, batch: 50, batch_bytes: 64KiB,\n"
             "         retry_min: 20ms, retry_max: 1m,\n"
             "         lane: {threads: 2, queue: 10, when_full: block, split: 64}}\n"
             "  copy: {kind: \"null\", delay: 5ms}\n",
             tokens_path);
    struct config *config = good(text);
    assert_string_equal(config->listen, "[::1]:0");
    assert_string_equal(config->data, "/var/lib/weir");
    assert_true(config->insecure);
    assert_int_equal(config->loops, 3);
    assert_int_equal(config->n_tokens, 2);
    assert_string_equal(config->tokens[0].token, "wwwwwwwwwwwwwwww");
    assert_int_equal(config->tokens[0].scopes, SCOPE_WRITE);
    assert_string_equal(config->tokens[1].token, "rrrrrrrr");
    assert_int_equal(config->tokens[1].scopes, SCOPE_READ | SCOPE_ADMIN);
    assert_int_equal(config->log.partitions, 1024);
    assert_int_equal(config->limits.http.body_bytes, 1 << 20);
    assert_int_equal(config->limits.lag_records, 1000);
    assert_int_equal(config->limits.http.connections, 100);
    assert_int_equal(config->limits.http.head_bytes, 8192);
    assert_int_equal(config->limits.http.headers, 50);
    assert_int_equal(config->limits.http.pipelined, 7);
    assert_int_equal(config->limits.http.head_ms, 1000);
    assert_int_equal(config->limits.http.body_ms, 2000);
    assert_int_equal(config->limits.http.idle_ms, 3000);
    assert_int_equal(config->limits.http.write_ms, 4000);

    const struct config_sink *sink = &config->sinks[0];
    assert_false(sink->ordered);
    assert_int_equal(sink->batch_records, 50);
    assert_int_equal(sink->batch_bytes, 65536);
    assert_int_equal(sink->retry_min_ms, 20);
    assert_int_equal(sink->retry_max_ms, 60000);
    assert_int_equal(sink->lane.threads, 2);
    assert_int_equal(sink->lane.queue, 10);
    assert_int_equal(sink->lane.split, 64);
    sink = &config->sinks[1];
    assert_string_equal(sink->ops->kind, "null");
    assert_string_equal(sink->options[0].name, "delay");
    assert_string_equal(sink->options[0].value, "5ms");
    assert_int_equal(sink->options[0].line, 22);
    assert_null(sink->options[1].name);
    assert_true(sink->ordered);

    const struct config_stream *stream = &config->streams[0];
    assert_string_equal(stream->id, "/order_no");
    assert_string_equal(stream->key, "/user~1id/0");
    assert_false(stream->id_optional);
    assert_int_equal(stream->ack, ACK_EVERYWHERE);
    assert_int_equal(stream->ack_timeout_ms, 250);
    assert_int_equal(stream->primary, 1);
    assert_int_equal(stream->sinks, 3);
    assert_null(config->streams[1].id);
    assert_int_equal(config->streams[1].primary, 1);
    assert_int_equal(config->streams[1].sinks, 2);
    assert_int_equal(config->streams[2].primary, 0);
    assert_int_equal(config->streams[2].sinks, 3);
    config_destroy(config);
}

static void test_names(void **state)
{
    (void)state;
    bad("version: 1\nlisen: 127.0.0.1:0\n", 2, "\"lisen\" is not known; did you mean \"listen\"?");
    bad("version: 1\nxyzzy: 5\n", 2, "\"xyzzy\" is not known; there are: version, listen");
    bad("version: 1\nlog:\n  kind: journal\n  partitons: 4\n", 4, "did you mean \"partitions\"?");
    bad("version: 1\nlimits: {bdy: 1MiB}\n", 2, "did you mean \"body\"?");
    bad("version: 1\nstreams: {events: {idd: /x}}\n", 2, "did you mean \"id\"?");
    bad("version: 1\nsinks:\n  main:\n    kind: sqlite\n    bacth: 5\n", 5,
        "did you mean \"batch\"?");
    bad("version: 1\nsinks:\n  main:\n    kind: sqlite\n    pth: x\n", 5, "did you mean \"path\"?");
    bad("version: 1\nsinks: {main: {kind: sqlite, lane: {thread: 5}}}\n", 2,
        "did you mean \"threads\"?");
    bad("version: 1\ndata: a\ndata: b\n", 3, "\"data\" is there twice");
}

static void test_what_comes_later(void **state)
{
    (void)state;
    bad("version: 1\nhotkeys: {memory: 256MiB}\n", 2, "hotkeys is not in this version");
    bad("version: 1\n\nconsumers: []\n", 3, "consumers is not in this version");
    static const char *const kinds[] = {"mysql", "redis", "elastic", "mongo", "kafka"};
    for (unsigned i = 0; i < 5; i++) {
        char text[200];
        snprintf(text, sizeof text, "version: 1\nsinks:\n  a: {kind: %s, url: x}\n", kinds[i]);
        bad(text, 3, "is not in this version");
    }
    bad("version: 1\nlog: {kind: kafka}\n", 2, "kind kafka is not in this version");
    bad("version: 1\nlog: {kind: none}\n", 2, "kind none is not in this version");
    bad("version: 1\nsinks: {a: {kind: sqlite, lane: {fibers: 64}}}\n", 2, "fibers is not in this");
    bad("version: 1\nsinks: {a: {kind: sqlite, lane: {when_full: reject}}}\n", 2,
        "reject is not in this version");
}

static void test_values(void **state)
{
    (void)state;
    bad("version: 1\nloops: many\n", 2, "loops: \"many\" is not a number");
    bad("version: 1\nloops: -1\n", 2, "\"-1\" is not a number");
    bad("version: 1\nloops: 65\n", 2, "\"65\" is outside 0 to 64");
    bad("version: 1\nloops: 99999999999999999999\n", 2, "is not a number");
    bad("version: 1\nloops:\n", 2, "is not a number");
    bad("version: 1\nloops: [1]\n", 2, "must be one plain value");
    bad("version: 1\nlog: {partitions: 0}\n", 2, "outside 1 to 1024");
    bad("version: 1\nlog: {partitions: 1025}\n", 2, "outside 1 to 1024");
    bad("version: 1\nlog: {segment: 64MB0}\n", 2, "\"64MB0\" is not a size");
    bad("version: 1\nlog: {segment: -1}\n", 2, "\"-1\" is not a size");
    bad("version: 1\nlog: {segment: 1KiB}\n", 2, "outside 1 MiB to 4 GiB");
    bad("version: 1\nlog: {kind: journl}\n", 2, "did you mean \"journal\"?");
    bad("version: 1\nlimits: {drain_timeout: 30}\n", 2, "\"30\" is not a duration");
    bad("version: 1\nlimits: {idle_timeout: 1ms}\n", 2, "outside 10ms to 86400s");
    bad("version: 1\ninsecure: yes\n", 2, "\"yes\" is not true or false");
    bad("version: 1\ndata: ''\n", 2, "data: is empty");
    bad("version: 1\nlog: journal\n", 2, "log: must be a map");
    bad("version: 1\nlimits: [1]\n", 2, "limits: must be a map");
    bad("version: 2\n", 1, "version: this weir reads version 1 only");
    bad("version: [1]\n", 1, "version: this weir reads version 1 only");
    bad("listen: 127.0.0.1:0\n", 1, "\"version: 1\" is missing");
    bad("", 0, "\"version: 1\" is missing");
}

static void test_files_that_are_no_configuration(void **state)
{
    (void)state;
    bad("- a\n- b\n", 1, "must be a map");
    bad("words\n", 1, "must be a map");
    bad("version: 1\nlog: {kind: journal\nstreams: {}\n", 3, "");
    bad("version: 1\n\tx: 1\n", 2, "");
    struct config *config = NULL;
    struct config_problems problems;
    char missing[80];
    snprintf(missing, sizeof missing, "%s/nothing.yaml", folder);
    assert_int_equal(config_read(missing, &config, &problems), WEIR_IO);
    assert_int_equal(problems.n, 1);
    assert_non_null(strstr(problems.list[0].text, "cannot be read: No such file"));
    config_problems_fini(&problems);
    assert_int_equal(config_read(folder, &config, &problems), WEIR_IO);
    assert_int_equal(problems.n, 1);
    config_problems_fini(&problems);
}

static void test_sinks(void **state)
{
    (void)state;
    bad("version: 1\nsinks: {main: {kind: sqlit}}\n", 2,
        "\"sqlit\" is not known; did you mean \"sqlite\"?");
    bad("version: 1\nsinks:\n  main: {batch: 5}\n", 3, "its kind is missing");
    bad("version: 1\nsinks:\n  main: sqlite\n", 3, "must be a map");
    bad("version: 1\nsinks: {main: {kind: sqlite, order: none, batch: 0}}\n", 2, "outside 1 to");
    bad("version: 1\nsinks: {main: {kind: sqlite, order: id}}\n", 2, "\"id\" is not known");
    bad("version: 1\nsinks: {main: {kind: sqlite, lane: {split: 65}}}\n", 2, "outside 1 to 64");
    bad("version: 1\nsinks:\n  main:\n    kind: sqlite\n    retry_min: 20s\n", 4,
        "retry_max is less than retry_min");
    bad("version: 1\nsinks:\n  main:\n    kind: 'null'\n    delay: soon\n", 5, "\"soon\"");
    bad("version: 1\nsinks: {ma/in: {kind: sqlite}}\n", 2, "\"ma/in\" is not 1 to 64 of");
    bad("version: 1\nsinks: {'..': {kind: sqlite}}\n", 2, "is not 1 to 64 of");
    bad("version: 1\nsinks: {.main: {kind: sqlite}}\n", 2, "the first not a point");
    struct buf text = {0};
    buf_put_str(&text, "version: 1\nsinks:\n");
    for (unsigned i = 0; i < 64; i++)
        buf_printf(&text, "  s%u: {kind: sqlite}\n", i);
    struct config *config = good(buf_str(&text));
    assert_int_equal(config->n_sinks, 64);
    assert_true(config->streams[0].sinks == UINT64_MAX);
    config_destroy(config);
    buf_put_str(&text, "  s64: {kind: sqlite}\n");
    bad(buf_str(&text), 67, "more than 64 sinks");
    buf_fini(&text);
}

static void test_two_sinks_may_not_share_a_file(void **state)
{
    (void)state;
    bad("version: 1\nsinks:\n  a: {kind: sqlite, path: x.db}\n  b: {kind: sqlite, path: x.db}\n", 4,
        "sink b: writes the same file as sink a");
    bad("version: 1\nsinks:\n  a: {kind: sqlite}\n  b: {kind: sqlite, path: ./y/../a.db}\n", 4,
        "sink b: writes the same file as sink a");
    bad("version: 1\ndata: /d\nsinks:\n  a: {kind: sqlite}\n  b: {kind: sqlite, path: /d//a.db}\n",
        5, "sink b: writes the same file as sink a");
    config_destroy(good("version: 1\ndata: /d\nsinks:\n  a: {kind: sqlite}\n"
                        "  b: {kind: sqlite, path: /a.db}\n  c: {kind: sqlite, path: d/a.db}\n"
                        "  n: {kind: 'null'}\n  m: {kind: 'null'}\n"));
}

static void test_streams(void **state)
{
    (void)state;
    bad("version: 1\nstreams:\n  a: {id: order_no}\n", 3, "\"order_no\" is not a JSON Pointer");
    bad("version: 1\nstreams:\n  a: {id: /x~2}\n", 3, "is not a JSON Pointer");
    bad("version: 1\nstreams:\n  a: {key: user}\n", 3, "key: \"user\" is not a JSON Pointer");
    bad("version: 1\nstreams:\n  a: {id: ''}\n", 3, "id: is empty");
    bad("version: 1\nstreams:\n  a: {ack: durabel}\n", 3, "did you mean \"durable\"?");
    bad("version: 1\nstreams:\n  a: {ack_timeout: 0s}\n", 3, "outside 1ms to");
    bad("version: 1\nstreams:\n  a:\n    sinks: [main, cache]\n", 4, "\"cache\" is not known");
    bad("version: 1\nstreams:\n  a:\n    sinks:\n    - main\n    - mian\n", 6,
        "did you mean \"main\"?");
    bad("version: 1\nstreams:\n  a: {sinks: []}\n", 3, "must be a list of sinks");
    bad("version: 1\nstreams:\n  a: {sinks: main}\n", 3, "must be a list of sinks");
    bad("version: 1\nstreams:\n  a: {sinks: [main, main]}\n", 3, "main is there twice");
    bad("version: 1\nstreams:\n  a: {primary: mian}\n", 3, "primary: the sink \"mian\"");
    bad("version: 1\nstreams:\n  a: {primary: two, sinks: [one]}\n"
        "sinks: {one: {kind: sqlite}, two: {kind: sqlite}}\n",
        3, "two is not among the sinks");
    bad("version: 1\nstreams: {or/ders: {id: /x}}\n", 2, "\"or/ders\" is not 1 to 64 of");
    bad("version: 1\nstreams: {a: [1]}\n", 2, "must be a map");
    bad("version: 1\nstreams:\n", 2, "must be a map with at least one");
}

static void test_limits_together(void **state)
{
    (void)state;
    bad("version: 1\nlimits:\n  memory: 1MiB\n  body: 2MiB\n", 4, "a body may be 2 MiB");
    bad("version: 1\nlimits:\n  memory: 1MiB\n", 3, "");
    bad("version: 1\nlog: {segment: 64MiB,\n      max_bytes: 100MiB}\n", 3, "four segments");
}

static void test_nobody_gets_in_by_mistake(void **state)
{
    (void)state;
    static const char *const beyond[] = {"0.0.0.0:8080", "192.0.2.1:80", "'[::]:8080'",
                                         "128.0.0.1:1"};
    static const char *const within[] = {"127.0.0.1:8080", "127.9.9.9:0", "'[::1]:8080'",
                                         "localhost:8080"};
    char text[256];
    for (unsigned i = 0; i < 4; i++) {
        snprintf(text, sizeof text, "version: 1\nlisten: %s\n", beyond[i]);
        bad(text, 2, "insecure: true");
        bad(text, 2, "tokens");
        snprintf(text, sizeof text, "version: 1\nlisten: %s\ninsecure: true\n", beyond[i]);
        config_destroy(good(text));
        write_file(tokens_path, "wwwwwwwwwwwwwwww write\n", 0600);
        snprintf(text, sizeof text, "version: 1\nlisten: %s\ntokens: %s\n", beyond[i], tokens_path);
        config_destroy(good(text));
        snprintf(text, sizeof text, "version: 1\nlisten: %s\n", within[i]);
        config_destroy(good(text));
    }
    bad("version: 1\nlisten: 127.0.0.1\n", 2, "127.0.0.1");
    bad("version: 1\nlisten: 127.0.0.1:99999\n", 2, "99999");
    bad("version: 1\nlisten: ':8080'\n", 2, "listen");
    bad("version: 1\nlisten: example.org:80\n", 2, "listen");
}

static void test_overrides(void **state)
{
    (void)state;
    struct config *config = config_default(NULL);
    struct diag diag = {0};
    assert_int_equal(config_override(config, "127.0.0.1:0", "/elsewhere", &diag), 0);
    assert_string_equal(config->listen, "127.0.0.1:0");
    assert_string_equal(config->data, "/elsewhere");
    assert_int_equal(config_override(config, NULL, NULL, &diag), 0);
    assert_int_equal(config_override(config, "0.0.0.0:0", NULL, &diag), WEIR_DENIED);
    assert_non_null(strstr(diag.text, "tokens"));
    assert_non_null(strstr(diag.text, "insecure: true"));
    assert_true(config_override(config, "nonsense", "/third", &diag) != 0);
    assert_true(config_override(config, NULL, "", &diag) != 0);
    assert_string_equal(config->listen, "127.0.0.1:0");
    assert_string_equal(config->data, "/elsewhere");
    config->insecure = true;
    assert_int_equal(config_override(config, "0.0.0.0:0", NULL, &diag), 0);
    config_destroy(config);
}

static void test_variables(void **state)
{
    (void)state;
    setenv("WEIR_TEST_NAME", "from-the-environment", 1);
    setenv("WEIR_TEST_PORT", "8099", 1);
    unsetenv("WEIR_TEST_MISSING");
    struct config *config = good("version: 1\ndata: /a/${WEIR_TEST_NAME}/$b$\n"
                                 "listen: 127.0.0.1:${WEIR_TEST_PORT}\n");
    assert_string_equal(config->data, "/a/from-the-environment/$b$");
    assert_string_equal(config->listen, "127.0.0.1:8099");
    config_destroy(config);
    bad("version: 1\n\ndata: ${WEIR_TEST_MISSING}\n", 3,
        "environment variable WEIR_TEST_MISSING is not set");
    bad("version: 1\ndata: ${}\n", 2, "must be followed by a name");
    bad("version: 1\ndata: ${A\n", 2, "must be followed by a name");
    bad("version: 1\ndata: ${A B}\n", 2, "must be followed by a name");
}

/* However it is misused, the value of a variable is in no message. */
static void test_values_of_variables_are_never_shown(void **state)
{
    (void)state;
    char secret[601];
    memset(secret, 's', sizeof secret);
    memcpy(secret, "Zq7-", 4);
    secret[600] = '\0';
    static const char *const uses[] = {
        "version: 1\nlisten: ${WEIR_TEST_SECRET}\n",
        "version: 1\nlisten: 127.0.0.1:${WEIR_TEST_SECRET}\n",
        "version: 1\ntokens: ${WEIR_TEST_SECRET}\n",
        "version: 1\nloops: ${WEIR_TEST_SECRET}\n",
        "version: 1\nlog: {kind: \"${WEIR_TEST_SECRET}\"}\n",
        "version: 1\nlog: {segment: \"${WEIR_TEST_SECRET}\"}\n",
        "version: 1\ninsecure: ${WEIR_TEST_SECRET}\n",
        "version: 1\nsinks: {a: {kind: \"${WEIR_TEST_SECRET}\"}}\n",
        "version: 1\nsinks: {a: {kind: 'null', delay: \"${WEIR_TEST_SECRET}\"}}\n",
        "version: 1\nsinks: {a: {kind: sqlite, order: \"${WEIR_TEST_SECRET}\"}}\n",
        "version: 1\nsinks: {a: {kind: sqlite, lane: {when_full: \"${WEIR_TEST_SECRET}\"}}}\n",
        "version: 1\nstreams: {a: {id: \"${WEIR_TEST_SECRET}\"}}\n",
        "version: 1\nstreams: {a: {ack: \"${WEIR_TEST_SECRET}\"}}\n",
        "version: 1\nstreams: {a: {primary: \"${WEIR_TEST_SECRET}\"}}\n",
        "version: 1\nstreams: {a: {sinks: [\"${WEIR_TEST_SECRET}\"]}}\n",
    };
    for (unsigned length = 4; length <= 600; length = length * 5 + 1) {
        secret[length] = '\0';
        setenv("WEIR_TEST_SECRET", secret, 1);
        for (unsigned i = 0; i < sizeof uses / sizeof uses[0]; i++) {
            struct config *config = NULL;
            struct config_problems problems;
            write_file(path, uses[i], 0600);
            assert_int_equal(config_read(path, &config, &problems), WEIR_INVALID);
            for (size_t k = 0; k < problems.n; k++) {
                if (strstr(problems.list[k].text, "Zq7-") || strstr(problems.list[k].text, "ssss"))
                    fail_msg("%s: %s", uses[i], problems.list[k].text);
            }
            config_problems_fini(&problems);
        }
        secret[length] = 's';
    }
}

static void test_every_mistake_is_named_in_order(void **state)
{
    (void)state;
    struct config *config = NULL;
    struct config_problems problems;
    write_file(path,
               "version: 1\n"
               "listen: 0.0.0.0:1\n"
               "log: {partitons: 4}\n"
               "streams:\n"
               "  a: {id: x, ack: soon}\n"
               "  b: {sinks: [nowhere]}\n"
               "sinks:\n"
               "  main: {knd: sqlite}\n"
               "loops: x\n",
               0600);
    assert_int_equal(config_read(path, &config, &problems), WEIR_INVALID);
    static const unsigned lines[] = {2, 3, 5, 5, 6, 8, 8, 9};
    assert_int_equal(problems.n, 8);
    for (unsigned i = 0; i < 8; i++)
        assert_int_equal(problems.list[i].line, lines[i]);
    config_problems_fini(&problems);

    struct buf many = {0};
    buf_put_str(&many, "version: 1\n");
    for (unsigned i = 0; i < 5000; i++)
        buf_printf(&many, "unknown%u: 1\n", i);
    write_file(path, buf_str(&many), 0600);
    assert_int_equal(config_read(path, &config, &problems), WEIR_INVALID);
    assert_int_equal(problems.n, 200);
    config_problems_fini(&problems);
    buf_fini(&many);
}

static int start(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/weir.yaml", folder);
    snprintf(tokens_path, sizeof tokens_path, "%s/tokens", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    unlink(path);
    unlink(tokens_path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_least_file),
        cmocka_unit_test(test_the_built_in_default_is_the_least_file),
        cmocka_unit_test(test_everything_that_can_be_said),
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_what_comes_later),
        cmocka_unit_test(test_values),
        cmocka_unit_test(test_files_that_are_no_configuration),
        cmocka_unit_test(test_sinks),
        cmocka_unit_test(test_two_sinks_may_not_share_a_file),
        cmocka_unit_test(test_streams),
        cmocka_unit_test(test_limits_together),
        cmocka_unit_test(test_nobody_gets_in_by_mistake),
        cmocka_unit_test(test_overrides),
        cmocka_unit_test(test_variables),
        cmocka_unit_test(test_values_of_variables_are_never_shown),
        cmocka_unit_test(test_every_mistake_is_named_in_order),
    };
    return cmocka_run_group_tests(tests, start, end);
}
