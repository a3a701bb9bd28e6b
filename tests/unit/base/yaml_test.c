/* yaml: the tree and its lines, what is refused, and suggestions for misspelled names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/yaml.h"

static struct yaml_node *good(const char *text)
{
    struct diag diag = {0};
    struct yaml_node *root = yaml_parse("f.yaml", slice_of(text), &diag);
    if (!root)
        fail_msg("%s", diag.text);
    return root;
}

static void bad_slice(struct slice text, const char *words)
{
    struct diag diag = {0};
    if (yaml_parse("f.yaml", text, &diag))
        fail_msg("\"%.*s\" was taken", (int)text.n, text.p);
    if (!strstr(diag.text, words) || !strstr(diag.text, "f.yaml") || diag.code == 0)
        fail_msg("%s; expected: %s", diag.text, words);
}

static void bad(const char *text, const char *words)
{
    bad_slice(slice_of(text), words);
}

static void test_tree(void **state)
{
    (void)state;
    struct yaml_node *root = good("# a comment\n"
                                  "version: 1\n"
                                  "log: {kind: journal,\n"
                                  "      partitions: 4}\n"
                                  "list:\n"
                                  "  - a\n"
                                  "  - \"b c\"\n"
                                  "  - {x: ''}\n"
                                  "empty:\n"
                                  "text: |\n"
                                  "  two\n"
                                  "  lines\n");
    assert_int_equal(root->kind, YAML_MAP);
    assert_int_equal(root->n, 5);
    assert_int_equal(root->keys[1]->line, 3);
    struct yaml_node *node = yaml_get(root, "version");
    assert_true(slice_is(node->scalar, "1"));
    assert_int_equal(node->line, 2);
    assert_int_equal(node->column, 10);
    assert_false(node->quoted);
    node = yaml_get(yaml_get(root, "log"), "partitions");
    assert_int_equal(node->line, 4);
    node = yaml_get(root, "list");
    assert_int_equal(node->kind, YAML_LIST);
    assert_int_equal(node->n, 3);
    assert_true(slice_is(node->items[1]->scalar, "b c"));
    assert_true(node->items[1]->quoted);
    assert_int_equal(node->items[1]->scalar.p[3], '\0');
    assert_true(slice_is(yaml_get(node->items[2], "x")->scalar, ""));
    assert_int_equal(node->items[2]->line, 8);
    assert_int_equal(yaml_get(root, "empty")->kind, YAML_SCALAR);
    assert_int_equal(yaml_get(root, "empty")->scalar.n, 0);
    assert_true(slice_is(yaml_get(root, "text")->scalar, "two\nlines\n"));
    assert_null(yaml_get(root, "versio"));
    assert_null(yaml_get(node, "a"));
    assert_null(yaml_get(NULL, "a"));
    yaml_destroy(root);
}

static void test_documents(void **state)
{
    (void)state;
    struct yaml_node *root = good("");
    assert_int_equal(root->kind, YAML_MAP);
    assert_int_equal(root->n, 0);
    yaml_destroy(root);
    root = good("# nothing\n");
    assert_int_equal(root->n, 0);
    yaml_destroy(root);
    root = good("---\na: 1\n...\n");
    assert_int_equal(root->n, 1);
    yaml_destroy(root);
    root = good("- 1\n- 2\n");
    assert_int_equal(root->kind, YAML_LIST);
    yaml_destroy(root);
    root = good("just words");
    assert_int_equal(root->kind, YAML_SCALAR);
    yaml_destroy(root);
    bad("a: 1\n---\nb: 2\n", "f.yaml:2: more than one document");
}

static void test_many_pairs(void **state)
{
    (void)state;
    struct buf text = {0};
    for (unsigned i = 0; i < 1000; i++)
        buf_printf(&text, "name%u: %u\n", i, i);
    struct yaml_node *root = good(buf_str(&text));
    assert_int_equal(root->n, 1000);
    assert_true(slice_is(yaml_get(root, "name999")->scalar, "999"));
    assert_int_equal(root->items[500]->line, 501);
    yaml_destroy(root);
    buf_fini(&text);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    bad("a: 1\nb: 2\na: 3\n", "f.yaml:3: \"a\" is there twice (first on line 1)");
    bad("x: {p: 1, p: 2}\n", "f.yaml:1: \"p\" is there twice");
    bad("a: &x 1\nb: 2\n", "f.yaml:1: anchors");
    bad("a: 1\nb: *x\n", "alias");
    bad("a: &x [1]\nb: *x\n", "f.yaml:1: anchors");
    bad("a: !!str 1\n", "f.yaml:1: tags");
    bad("a: !mine {b: 1}\n", "f.yaml:1: tags");
    bad("? [1, 2]\n: 3\n", "a name must be plain text");
    bad("{a: 1}: 2\n", "a name must be plain text");
    bad("a: \"x\\0y\"\n", "U+0000");
    bad("a: [1, 2\nb: 3\n", "f.yaml:2");
    bad("a: 1\n b: 2\n", "f.yaml:2");
    bad("\tb: 2\n", "f.yaml:1");
    bad("a: 'x\n", "f.yaml:");
    bad("a: \xFF\n", "f.yaml");
    bad("a: b: c\n", "f.yaml:1");
    bad_slice(SLICE_LIT("\0\1\2"), "f.yaml");
    bad_slice(SLICE_LIT("a: \0\n"), "f.yaml");
}

static void test_depth_has_a_limit(void **state)
{
    (void)state;
    struct buf text = {0};
    for (unsigned i = 0; i < 100000; i++)
        buf_put_char(&text, '[');
    bad_slice(buf_slice(&text), "nested too deeply");
    buf_clear(&text);
    for (unsigned i = 0; i < 32; i++)
        buf_put_char(&text, '[');
    for (unsigned i = 0; i < 32; i++)
        buf_put_char(&text, ']');
    yaml_destroy(good(buf_str(&text)));
    buf_fini(&text);
}

static void test_nearest(void **state)
{
    (void)state;
    static const char *const known[] = {"listen", "streams", "sinks", "partitions",
                                        "key",    "ack",     "id",    NULL};
    static const struct {
        const char *name, *nearest;
    } cases[] = {{"steams", "streams"},
                 {"sink", "sinks"},
                 {"partitons", "partitions"},
                 {"lsiten", "listen"},
                 {"kye", "key"},
                 {"aack", "ack"},
                 {"partishuns", "partitions"},
                 {"Listen", "listen"},
                 {"listen", "listen"},
                 {"zz", NULL},
                 {"x", NULL},
                 {"", NULL},
                 {"nothinglikeit", NULL},
                 {"kk", NULL}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const char *nearest = yaml_nearest(slice_of(cases[i].name), known);
        if (!cases[i].nearest)
            assert_null(nearest);
        else
            assert_string_equal(nearest, cases[i].nearest);
    }
    char huge[1000];
    memset(huge, 'a', sizeof huge);
    assert_null(yaml_nearest((struct slice){huge, sizeof huge}, known));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tree),
        cmocka_unit_test(test_documents),
        cmocka_unit_test(test_many_pairs),
        cmocka_unit_test(test_what_is_refused),
        cmocka_unit_test(test_depth_has_a_limit),
        cmocka_unit_test(test_nearest),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
