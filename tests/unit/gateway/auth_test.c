/* auth: who may do what; nothing near a token is a token. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/auth.h"

static char writer[] = "wwwwwwwwwwwwwwww", reader[] = "rrrrrrrrrrrrrrrr",
            chief[] = "aaaaaaaaaaaaaaaa";
static const struct config_token tokens[] = {
    {writer, SCOPE_WRITE}, {reader, SCOPE_READ}, {chief, SCOPE_ADMIN}};

static int check(const struct auth *auth, const char *header, enum config_scope scope)
{
    return auth_check(auth, header ? slice_of(header) : (struct slice){0}, scope);
}

static void test_scopes(void **state)
{
    (void)state;
    struct auth *auth = auth_create(tokens, 3);
    assert_false(auth_is_open(auth));
    assert_int_equal(check(auth, "Bearer wwwwwwwwwwwwwwww", SCOPE_WRITE), 0);
    assert_int_equal(check(auth, "Bearer wwwwwwwwwwwwwwww", SCOPE_READ), 403);
    assert_int_equal(check(auth, "Bearer wwwwwwwwwwwwwwww", SCOPE_ADMIN), 403);
    assert_int_equal(check(auth, "Bearer rrrrrrrrrrrrrrrr", SCOPE_READ), 0);
    assert_int_equal(check(auth, "Bearer rrrrrrrrrrrrrrrr", SCOPE_WRITE), 403);
    assert_int_equal(check(auth, "Bearer aaaaaaaaaaaaaaaa", SCOPE_READ), 0);
    assert_int_equal(check(auth, "Bearer aaaaaaaaaaaaaaaa", SCOPE_WRITE), 0);
    assert_int_equal(check(auth, "Bearer aaaaaaaaaaaaaaaa", SCOPE_ADMIN), 0);
    assert_int_equal(check(auth, "bearer  wwwwwwwwwwwwwwww", SCOPE_WRITE), 0); /* RFC 9110, 11.1 */
    auth_destroy(auth);
}

static void test_what_is_no_token(void **state)
{
    (void)state;
    struct auth *auth = auth_create(tokens, 3);
    const char *bad[] = {NULL,
                         "",
                         "Bearer",
                         "Bearer ",
                         "Bearer  ",
                         "Bearer wwwwwwwwwwwwwww",
                         "Bearer wwwwwwwwwwwwwwwww",
                         "Bearer wwwwwwwwwwwwwwww ",
                         "Bearer wwwwwwwwwwwwwwwx",
                         "Bearer Wwwwwwwwwwwwwwww",
                         "Bearer wwwwwwwwwwwwwwww,rrrrrrrrrrrrrrrr",
                         "Basic wwwwwwwwwwwwwwww",
                         "wwwwwwwwwwwwwwww"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
        assert_int_equal(check(auth, bad[i], SCOPE_WRITE), 401);
    auth_destroy(auth);
}

static void test_no_token_configured(void **state)
{
    (void)state;
    struct auth *auth = auth_create(NULL, 0);
    assert_true(auth_is_open(auth));
    assert_int_equal(check(auth, NULL, SCOPE_WRITE), 0);
    assert_int_equal(check(auth, "Bearer x", SCOPE_READ), 0);
    assert_int_equal(check(auth, NULL, SCOPE_ADMIN), 403); /* only by the socket */
    auth_destroy(auth);
}

static void test_one_token_twice_has_both_scopes(void **state)
{
    (void)state;
    const struct config_token twice[] = {{writer, SCOPE_WRITE}, {writer, SCOPE_READ}};
    struct auth *auth = auth_create(twice, 2);
    assert_int_equal(check(auth, "Bearer wwwwwwwwwwwwwwww", SCOPE_WRITE), 0);
    assert_int_equal(check(auth, "Bearer wwwwwwwwwwwwwwww", SCOPE_READ), 0);
    auth_destroy(auth);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_what_is_no_token),
        cmocka_unit_test(test_no_token_configured),
        cmocka_unit_test(test_one_token_twice_has_both_scopes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
