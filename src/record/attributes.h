/* attributes.h: a record's named attributes as bytes: for each, u16 name length, u32 value length
 * (little endian), name, value. Names are lower case ASCII, unique, at most 64; 4 KiB in all. */
#ifndef WEIR_RECORD_ATTRIBUTES_H
#define WEIR_RECORD_ATTRIBUTES_H

#include "base/buf.h"

#define ATTRIBUTES_MAX_BYTES 4096

int attributes_put(struct buf *encoded, struct slice name,
                   struct slice value); /* WEIR_TOO_LARGE, WEIR_INVALID */
/* Walks: start with *at = 0; false at the end or when the bytes are malformed. */
bool attributes_next(struct slice encoded, size_t *at, struct slice *name, struct slice *value);
int attributes_check(struct slice encoded); /* WEIR_CORRUPT */
bool attributes_get(struct slice encoded, const char *name, struct slice *value);
void attributes_to_json(struct slice encoded, struct buf *out); /* {"traceparent":"..."} */

#endif
