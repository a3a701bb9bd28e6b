/* admin.h: what the command socket (data/weir.sock, HTTP, mode 0600) and tokens with scope admin
 * can ask for. All run on the admin lane, one at a time, and may take long.
 *
 *   POST /v1/admin/dead/{sink}/replay?number=N     writes the letter to its sink again and drops it
 *   POST /v1/admin/dead/{sink}/replay?all          the same with each, oldest first
 *   POST /v1/admin/dead/{sink}/drop?number=N       drops it
 *   POST /v1/admin/dead/{sink}/drop?all
 *
 * They answer 200 with
 *   {"done":N,"failed":N,"left":N,"failures":[{"number":N,"code":"refused","reason":"..."},...]}
 * where `left` counts the letters that are still there, `code` is a name of weir/err.h (refused:
 * the sink refused it again; not_found; unavailable, io, ...: try later), and `failures` has the
 * first 100. An unknown sink is 404.
 *
 *   POST /v1/admin/repair/{sink}/{stream}          writes records into the sink (delivery/repair.h
 * says what the body and the answer are) At most limits.body bytes at once. 200 with an outcome for
 * each record; 400: the body is not what it should be; 404: no such sink or stream; 503: the sink
 * cannot be written now.
 *
 *   POST /v1/admin/ping                            200 {"pid":N}: a gateway runs here */
#ifndef WEIR_GATEWAY_ADMIN_H
#define WEIR_GATEWAY_ADMIN_H

#define ADMIN_SOCKET "weir.sock" /* in the data directory */

#endif
