/* encoding.h: takes a body out of its Content-Encoding.
 *
 * Known: none, identity, gzip (x-gzip), also of several members in a row. Memory is bounded by the
 * limit whatever the body claims: a bomb costs no more than a body of the largest size. An inflater
 * belongs to one thread. */
#ifndef WEIR_GATEWAY_ENCODING_H
#define WEIR_GATEWAY_ENCODING_H

#include "gateway/problem.h"

struct inflater; /* made once a loop: zlib's state is 40 KiB */

struct inflater *inflater_create(void);
void inflater_destroy(struct inflater *inflater);

enum encoding { ENCODING_NONE, ENCODING_GZIP, ENCODING_UNKNOWN };
enum encoding encoding_of(struct slice content_encoding); /* {NULL, 0}: no such header */

/* Inflates gzip. 0: *out (mem_free) holds *out_n bytes and `padding` readable ones after them. Else
 * the problem's status: 413 over max_bytes, 400 for what is not gzip, is cut off, or has something
 * behind it. */
int inflater_run(struct inflater *inflater, struct slice in, size_t max_bytes, size_t padding,
                 char **out, size_t *out_n, struct problem *problem);

#endif
