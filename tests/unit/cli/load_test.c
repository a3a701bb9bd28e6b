/* cli load: exit codes and messages of what is mistyped, before anything is sent. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "cli/cli.h"

static char captured[8192];

/* Runs `weir load ARGUMENTS...` with standard output and error in `captured`. */
static int run(const char *const *arguments)
{
    char *argv[20] = {strdup("load")};
    int argc = 1, saved_out = dup(1), saved_error = dup(2);
    FILE *file = tmpfile();
    for (; arguments[argc - 1]; argc++)
        argv[argc] = strdup(arguments[argc - 1]);
    fflush(NULL);
    dup2(fileno(file), 1);
    dup2(fileno(file), 2);
    int code = cli_load(argc, argv);
    fflush(NULL);
    dup2(saved_out, 1);
    dup2(saved_error, 2);
    close(saved_out);
    close(saved_error);
    rewind(file);
    captured[fread(captured, 1, sizeof captured - 1, file)] = 0;
    fclose(file);
    while (argc-- > 0)
        free(argv[argc]); /* getopt may have moved them, all are there */
    return code;
}
#define RUN(...) run((const char *const[]){__VA_ARGS__, NULL})
#define URL                                                                                        \
    "--url", (char[])                                                                              \
    {                                                                                              \
        "http://127.0.0.1:1"                                                                       \
    }

static void expect_usage(const char *option, const char *value, const char *word)
{
    int code = value ? RUN(URL, option, value) : RUN(URL, option);
    if (code != CLI_USAGE || !strstr(captured, word))
        fail_msg("%s %s: exit code %d, %s", option, value ? value : "", code, captured);
}

static void test_mistakes(void **state)
{
    (void)state;
    static const char *const numbers[] = {"", "x", "-1", "1x", " 1", "1e400", "nan", "inf", "0x10"};
    static const char *const options[] = {"--requests", "--duration", "--connections", "--threads",
                                          "--batch",    "--keys",     "--seed",        "--timeout"};
    for (size_t o = 0; o < sizeof options / sizeof *options; o++)
        for (size_t n = 0; n < sizeof numbers / sizeof *numbers; n++)
            expect_usage(options[o], numbers[n], "give");
    for (size_t n = 0; n < 8; n++) {
        expect_usage("--rate", numbers[n], "--rate");
        expect_usage("--zipf", numbers[n], "--zipf");
        expect_usage("--start-at", numbers[n], "--start-at");
    }
    expect_usage("--rate", "0", "--rate");
    expect_usage("--zipf", "21", "--zipf");
    expect_usage("--duration", "0", "more than 0");
    expect_usage("--connections", "1000001", "1000000");
    expect_usage("--ack", "durabel", "durable");
    expect_usage("--template", "/nothere", "/nothere");
    expect_usage("--nonsense", NULL, "--help");
    expect_usage("stray", NULL, "stray");
    assert_int_equal(RUN("--closed"), CLI_USAGE);
    assert_non_null(strstr(captured, "--url"));
    assert_int_equal(RUN(URL, "--closed", "--rate", "1"), CLI_USAGE);
    assert_non_null(strstr(captured, "exclude"));
}

static void test_help(void **state)
{
    (void)state;
    assert_int_equal(RUN("--help"), CLI_DONE);
    assert_non_null(strstr(captured, "usage: weir load"));
    assert_int_equal(RUN("merge", "--help"), CLI_DONE);
    assert_non_null(strstr(captured, "weir load merge"));
}

static void test_nothing_listens(void **state)
{
    (void)state;
    assert_int_equal(RUN(URL, "-n", "1"), CLI_CANNOT);
    assert_non_null(strstr(captured, "127.0.0.1:1"));
}

static void test_merge(void **state)
{
    (void)state;
    assert_int_equal(RUN("merge"), CLI_USAGE);
    assert_int_equal(RUN("merge", "--what"), CLI_USAGE);
    assert_int_equal(RUN("merge", "/nothere"), CLI_CANNOT);
    assert_non_null(strstr(captured, "/nothere"));
    assert_int_equal(RUN("merge", "/etc/passwd"), CLI_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mistakes),
        cmocka_unit_test(test_help),
        cmocka_unit_test(test_nothing_listens),
        cmocka_unit_test(test_merge),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
