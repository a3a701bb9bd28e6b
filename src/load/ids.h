/* ids.h: the file of acknowledged records, one line each:
 *
 *   {"stream":"events","id":"...","version":N,"hash":"32 hex digits"}
 *
 * Load threads collect lines in a buffer of their own and hand it over; a thread of its own writes,
 * so that a slow disk does not show in the latencies. At most IDS_PENDING_MAX bytes wait; beyond
 * that ids_put waits. */
#ifndef WEIR_LOAD_IDS_H
#define WEIR_LOAD_IDS_H

#include "base/buf.h"
#include "base/diag.h"
#include "base/hash.h"

#define IDS_PENDING_MAX (64u << 20)

struct ids;

/* Creates the file or empties it. */
int ids_open(const char *path, struct ids **out, struct diag *diag);
/* Writes what is left, closes, frees. The first failed write, if any, is reported here. */
int ids_close(struct ids *ids, struct diag *diag);
bool ids_failed(struct ids *ids); /* any thread: a write failed, going on is pointless */

/* Takes the lines and leaves an empty buf. Any thread; not on a loop that must not wait. */
void ids_put(struct ids *ids, struct buf *lines);

void ids_line(struct buf *lines, struct slice stream, struct slice id, uint64_t version,
              struct hash128 hash);

#endif
