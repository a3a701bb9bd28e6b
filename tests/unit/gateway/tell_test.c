/* tell: lines with a time; what says the same too often is held back and counted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <unistd.h>

#include "gateway/tell.h"

static char said[65536];

/* Runs with standard error going to a file; `said` is what came. */
static void listen_to(void (*run)(void))
{
    FILE *file = tmpfile();
    int keep = dup(STDERR_FILENO);
    assert_non_null(file);
    dup2(fileno(file), STDERR_FILENO);
    run();
    dup2(keep, STDERR_FILENO);
    close(keep);
    rewind(file);
    said[fread(said, 1, sizeof(said) - 1, file)] = 0;
    fclose(file);
}

static unsigned lines(void)
{
    unsigned n = 0;
    for (const char *p = said; (p = strchr(p, '\n')); p++)
        n++;
    return n;
}

static void say_one(void)
{
    tell("sink %s is %s", "main", "down");
}

static void test_a_line(void **state)
{
    (void)state;
    listen_to(say_one);
    assert_int_equal(lines(), 1);
    assert_true(said[4] == '-' && said[10] == 'T' && said[23] == 'Z');
    assert_string_equal(said + 24, " weir: sink main is down\n");
}

static void say_many(void)
{
    for (int i = 0; i < 1000; i++)
        tell("record %d was refused at byte %d", i, i * 7);
    for (int i = 0; i < 3; i++)
        tell("something else");
}

static void test_the_same_in_other_numbers_is_held_back(void **state)
{
    (void)state;
    listen_to(say_many);
    assert_int_equal(lines(), 5 + 3);
    assert_non_null(strstr(said, "record 4 was"));
    assert_null(strstr(said, "record 5 was"));
}

static void say_long(void)
{
    static char text[5000];
    memset(text, 'x', sizeof(text) - 1);
    tell_text(text);
    tell("%s", text);
}

static void test_a_long_text_is_one_line(void **state)
{
    (void)state;
    listen_to(say_long);
    assert_int_equal(lines(), 2);
    assert_true(strlen(said) < 3000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_line),
        cmocka_unit_test(test_the_same_in_other_numbers_is_held_back),
        cmocka_unit_test(test_a_long_text_is_one_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
