/* auth.c: see auth.h. */
#include "gateway/auth.h"

#include <strings.h>

#include "base/mem.h"

struct auth {
    size_t n;
    struct auth_token {
        char *token;
        size_t bytes;
        unsigned scopes;
    } tokens[];
};

struct auth *auth_create(const struct config_token *tokens, size_t n)
{
    struct auth *auth = mem_zalloc(sizeof(*auth) + n * sizeof(auth->tokens[0]));
    auth->n = n;
    for (size_t i = 0; i < n; i++) {
        unsigned scopes = tokens[i].scopes;
        if (scopes & SCOPE_ADMIN)
            scopes |= SCOPE_READ | SCOPE_WRITE;
        auth->tokens[i] = (struct auth_token){
            .token = mem_strdup(tokens[i].token),
            .bytes = strlen(tokens[i].token),
            .scopes = scopes,
        };
    }
    return auth;
}

void auth_destroy(struct auth *auth)
{
    if (!auth)
        return;
    for (size_t i = 0; i < auth->n; i++) {
        explicit_bzero(auth->tokens[i].token, auth->tokens[i].bytes);
        mem_free(auth->tokens[i].token);
    }
    mem_free(auth);
}

bool auth_is_open(const struct auth *auth)
{
    return auth->n == 0;
}

/* Looks at every byte whatever differs. */
static bool same(const struct auth_token *token, struct slice given)
{
    volatile unsigned char difference = 0;
    if (token->bytes != given.n)
        return false;
    for (size_t i = 0; i < given.n; i++)
        difference |= (unsigned char)(token->token[i] ^ given.p[i]);
    return difference == 0;
}

int auth_check(const struct auth *auth, struct slice authorization, enum config_scope scope)
{
    unsigned scopes = 0;
    bool known = false;
    if (auth->n == 0)
        return scope == SCOPE_ADMIN ? 403 : 0;
    if (authorization.n <= 7 || strncasecmp(authorization.p, "Bearer ", 7) != 0)
        return 401;
    struct slice given = {authorization.p + 7, authorization.n - 7};
    while (given.n && given.p[0] == ' ')
        given.p++, given.n--;
    for (size_t i = 0; i < auth->n; i++) {
        if (same(&auth->tokens[i], given)) {
            known = true;
            scopes |= auth->tokens[i].scopes;
        }
    }
    if (!known)
        return 401;
    return scopes & (unsigned)scope ? 0 : 403;
}
