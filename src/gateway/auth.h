/* auth.h: who may do what. A token has scopes: read, write, admin (which includes both).
 *
 * No token configured: everybody may read and write, nobody is admin but the command socket.
 * A token is compared in time that depends on its length alone. */
#ifndef WEIR_GATEWAY_AUTH_H
#define WEIR_GATEWAY_AUTH_H

#include "gateway/config.h"

struct auth; /* immutable */

struct auth *auth_create(const struct config_token *tokens, size_t n); /* copies */
void auth_destroy(struct auth *auth);                                  /* wipes the tokens */
bool auth_is_open(const struct auth *auth);                            /* no token is configured */

/* `authorization` is the header's value ({NULL, 0}: none). 0: allowed; 401: no token or a wrong
 * one; 403: the token does not have the scope. */
int auth_check(const struct auth *auth, struct slice authorization, enum config_scope scope);

#endif
