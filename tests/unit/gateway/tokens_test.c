/* tokens: the file of tokens; whatever is wrong with it, no message holds a token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/buf.h"
#include "gateway/config_reader.h"

static char folder[] = "/tmp/weir-tokens-XXXXXX";
static char path[64];
static struct buf said;
static unsigned n_said;

static void words(void *context, const char *text)
{
    (void)context;
    n_said++;
    buf_put_str(&said, text);
    buf_put_char(&said, '\n');
}

static int read_bytes(struct slice text, mode_t mode, struct config_token **tokens, size_t *n)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_int_equal(fwrite(text.p, 1, text.n, file), text.n);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, mode), 0);
    buf_clear(&said);
    n_said = 0;
    return tokens_read(path, tokens, n, words, NULL);
}

static void bad(const char *text, const char *expected)
{
    struct config_token *tokens = NULL;
    size_t n = 0;
    assert_int_equal(read_bytes(slice_of(text), 0600, &tokens, &n), WEIR_INVALID);
    assert_null(tokens);
    assert_int_equal(n_said, 1);
    if (!strstr(buf_str(&said), expected))
        fail_msg("%sexpected: %s", buf_str(&said), expected);
    assert_null(strstr(buf_str(&said), "secret"));
}

static void test_good(void **state)
{
    (void)state;
    struct config_token *tokens;
    size_t n;
    assert_int_equal(read_bytes(SLICE_LIT("# all of them\n"
                                          "\n"
                                          "   \t\n"
                                          "secret-one write\n"
                                          "  secret-two\tread,write,admin  \r\n"
                                          "secret=three/+~ read"),
                                0600, &tokens, &n),
                     0);
    assert_int_equal(n, 3);
    assert_string_equal(tokens[0].token, "secret-one");
    assert_int_equal(tokens[0].scopes, SCOPE_WRITE);
    assert_string_equal(tokens[1].token, "secret-two");
    assert_int_equal(tokens[1].scopes, SCOPE_READ | SCOPE_WRITE | SCOPE_ADMIN);
    assert_string_equal(tokens[2].token, "secret=three/+~");
    assert_int_equal(tokens[2].scopes, SCOPE_READ);
    tokens_free(tokens, n);
}

static void test_bad_lines(void **state)
{
    (void)state;
    bad("secret-one write\nsecret-two\n", "line 2: a token needs scopes");
    bad("secret-one writes\n", "line 1: a scope is none of");
    bad("secret-one write, read\n", "line 1: a line is one token");
    bad("secret-one write,\n", "line 1: a scope is none of");
    bad("secret-one ,\n", "line 1: a scope is none of");
    bad("secret secret-two\n", "line 1: a scope is none of");
    bad("secret write\n", "line 1: a token has 8 to 512 characters");
    bad("secret-\xC3\xA9 write\n", "line 1: a token may hold printable ASCII");
    bad("secret-one write\n# x\nsecret-one read\n", "line 3: the token is there twice");
    bad("# nothing\n", "holds no token");
    bad("", "holds no token");
}

static void test_a_nul_and_a_long_token(void **state)
{
    (void)state;
    struct config_token *tokens;
    size_t n;
    assert_int_equal(read_bytes(SLICE_LIT("secret-\0one write\n"), 0600, &tokens, &n),
                     WEIR_INVALID);
    struct buf text = {0};
    memset(buf_extend(&text, 513), 's', 513);
    buf_put_str(&text, " read\n");
    assert_int_equal(read_bytes(buf_slice(&text), 0600, &tokens, &n), WEIR_INVALID);
    assert_int_equal(read_bytes((struct slice){text.p + 1, text.n - 1}, 0600, &tokens, &n), 0);
    tokens_free(tokens, n);
    buf_fini(&text);
}

static void test_all_mistakes_are_named(void **state)
{
    (void)state;
    struct config_token *tokens;
    size_t n;
    assert_int_equal(
        read_bytes(SLICE_LIT("secret-one x\nsecret-two\nsecret-six read\n"), 0600, &tokens, &n),
        WEIR_INVALID);
    assert_int_equal(n_said, 2);
}

static void test_others_may_not_read_it(void **state)
{
    (void)state;
    static const mode_t open_modes[] = {0644, 0640, 0604, 0660, 0620, 0777, 0610};
    static const mode_t closed_modes[] = {0600, 0400, 0700};
    struct config_token *tokens;
    size_t n;
    for (unsigned i = 0; i < sizeof open_modes / sizeof open_modes[0]; i++) {
        assert_int_equal(read_bytes(SLICE_LIT("secret-one write\n"), open_modes[i], &tokens, &n),
                         WEIR_DENIED);
        assert_non_null(strstr(buf_str(&said), "chmod 600 "));
        assert_non_null(strstr(buf_str(&said), path));
    }
    for (unsigned i = 0; i < sizeof closed_modes / sizeof closed_modes[0]; i++) {
        unlink(path);
        assert_int_equal(read_bytes(SLICE_LIT("secret-one write\n"), closed_modes[i], &tokens, &n),
                         0);
        tokens_free(tokens, n);
    }
    unlink(path);
}

static void test_no_file(void **state)
{
    (void)state;
    struct config_token *tokens;
    size_t n;
    buf_clear(&said);
    assert_int_equal(tokens_read(path, &tokens, &n, words, NULL), WEIR_IO);
    assert_non_null(strstr(buf_str(&said), "cannot be read"));
    assert_int_equal(tokens_read(folder, &tokens, &n, words, NULL), WEIR_INVALID);
    assert_non_null(strstr(buf_str(&said), "is not a file"));
    char fifo[80];
    snprintf(fifo, sizeof fifo, "%s/fifo", folder);
    assert_int_equal(mkfifo(fifo, 0600), 0);
    assert_int_equal(tokens_read(fifo, &tokens, &n, words, NULL), WEIR_INVALID);
    unlink(fifo);
}

static int start(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    snprintf(path, sizeof path, "%s/tokens", folder);
    return 0;
}

static int end(void **state)
{
    (void)state;
    buf_fini(&said);
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad_lines),
        cmocka_unit_test(test_a_nul_and_a_long_token),
        cmocka_unit_test(test_all_mistakes_are_named),
        cmocka_unit_test(test_others_may_not_read_it),
        cmocka_unit_test(test_no_file),
    };
    return cmocka_run_group_tests(tests, start, end);
}
