/* json: the documents of the JSON test suite, read from the folder that WEIR_FIXTURES names. y_ is
 * accepted (but for duplicate names and U+0000 in names), n_ refused, i_ either. Whatever is
 * accepted, both readers accept, and its canonical form is a fixed point. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/json_scan.h"
#include "base/mem.h"
#include "weir/err.h"

static struct json_parser *parser;

/* The file followed by padding. */
static char *read_file(const char *folder, const char *name, size_t *out_n)
{
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    struct buf bytes = {0};
    size_t n;
    do {
        n = fread(buf_extend(&bytes, 65536), 1, 65536, file);
        bytes.n -= 65536 - n;
    } while (n);
    fclose(file);
    *out_n = bytes.n;
    memset(buf_extend(&bytes, JSON_PADDING), '"', JSON_PADDING);
    return bytes.p;
}

static void check_fixed_point(struct json_value root, const char *name)
{
    struct buf once = {0}, twice = {0};
    struct json_error error;
    json_canonical(root, &once);
    size_t n = once.n;
    buf_extend(&once, JSON_PADDING);
    if (json_parse(parser, once.p, n, &root, &error))
        fail_msg("%s: its canonical form is refused: %s", name, error.reason);
    json_canonical(root, &twice);
    assert_true(slice_equal((struct slice){once.p, n}, buf_slice(&twice)));
    buf_fini(&once);
    buf_fini(&twice);
}

static void check_file(const char *folder, const char *name)
{
    size_t n, place;
    char *text = read_file(folder, name, &n);
    struct json_value root;
    struct json_error error = {SIZE_MAX, ""}, scan_error;
    int err = json_parse(parser, text, n, &root, &error);
    bool duplicate = strncmp(error.reason, "duplicate", 9) == 0;
    bool by_design = strncmp(name, "y_object_duplicated_key", 23) == 0 ||
                     strncmp(name, "y_object_escaped_null_in_key", 28) == 0;
    if ((name[0] == 'y' && (err != 0) != by_design) || (name[0] == 'n' && !err))
        fail_msg("%s: %s", name, err ? error.reason : "accepted");
    if (err) {
        assert_int_equal(err, WEIR_SYNTAX);
        assert_true(error.offset <= n);
        assert_true(error.reason[0] && strcmp(error.reason, "not JSON") != 0);
    } else {
        check_fixed_point(root, name);
    }
    if (!duplicate)
        assert_int_equal(json_scan(text, n, 0, &place, &scan_error), err);
    mem_free(text);
}

static void test_suite(void **state)
{
    (void)state;
    const char *fixtures = getenv("WEIR_FIXTURES");
    if (!fixtures) {
        print_message("WEIR_FIXTURES is not set: the JSON test suite is skipped\n");
        skip();
    }
    char folder[512];
    snprintf(folder, sizeof folder, "%s/json-test-suite/test_parsing", fixtures);
    DIR *dir = opendir(folder);
    if (!dir) {
        print_message("%s is not there: the JSON test suite is skipped\n", folder);
        skip();
        return;
    }
    unsigned n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        check_file(folder, entry->d_name);
        n++;
    }
    closedir(dir);
    assert_int_equal(n, 318);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_suite)};
    parser = json_parser_create();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    json_parser_destroy(parser);
    return failed;
}
