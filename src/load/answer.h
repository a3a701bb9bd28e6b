/* answer.h: from a 2xx answer of weir and the records that were sent to the lines of the id file:
 * id and version as the answer gives them, the content hash from the record. One thread each. */
#ifndef WEIR_LOAD_ANSWER_H
#define WEIR_LOAD_ANSWER_H

#include "base/json.h"

struct answers;
struct answers *answers_create(void);
void answers_destroy(struct answers *answers);

/* `docs` holds the n records that were sent, a line each; both bufs get padding after their bytes.
 * Appends a line for every record that the answer calls taken and counts them in *taken. 0, or
 * WEIR_SYNTAX: the answer does not tell of exactly n records, or a record was no JSON (some lines
 * may have been added). */
int answers_keep(struct answers *answers, int status, struct buf *body, struct buf *docs,
                 uint64_t n, struct slice stream, struct buf *lines, uint64_t *taken);

#endif
