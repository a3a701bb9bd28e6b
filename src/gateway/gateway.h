/* gateway.h: one running gateway: data directory, log, sinks, delivery, HTTP server, wired
 * together.
 *
 * Start opens in this order: LOCK, META, sinks, log, lanes, delivery, server; a failure closes what
 * is open and says what it was. Stop is the reverse, with everything answered in between.
 *
 * Threads it runs: loops (http-N), the log's, one per consumer, the lanes' (each sink's, "read",
 * "status", "admin"), and "housekeeper". */
#ifndef WEIR_GATEWAY_GATEWAY_H
#define WEIR_GATEWAY_GATEWAY_H

#include "gateway/config.h"

struct gateway;

/* `config` must outlive the gateway. Not on a loop thread. */
int gateway_start(const struct config *config, const struct fs *fs, struct gateway **out,
                  struct diag *diag);

/* "http://127.0.0.1:8080", with the port that was really taken. Lives as long as the gateway. */
const char *gateway_url(const struct gateway *gateway);

/* Takes over the tokens of a configuration that was read again. Any thread but a loop's. */
void gateway_use_tokens(struct gateway *gateway, const struct config_token *tokens, size_t n);

/* No new connections; answers what is in flight; flushes; stops delivery; saves cursors; frees.
 * Takes limits.drain_timeout at most, but for a disk that does not answer. */
void gateway_stop(struct gateway *gateway);

#endif
