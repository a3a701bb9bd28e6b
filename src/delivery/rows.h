/* rows.h: a sink's scan, pulled: row after row in the byte order of ids, in pieces, so that two
 * scans can be merged. One thread. */
#ifndef WEIR_DELIVERY_ROWS_H
#define WEIR_DELIVERY_ROWS_H

#include "sink/sink.h"

#define ROWS_PIECE       512
#define ROWS_PIECE_BYTES ((size_t)1 << 20)

struct rows_item {
    size_t id_n, key_n, doc_n;
    uint64_t version;
};

struct rows {
    struct sink_session *session;
    uint32_t stream;
    struct rows_item items[ROWS_PIECE];
    size_t n, next;
    size_t at;        /* where the next row's bytes begin */
    bool last;        /* no piece behind this one */
    struct buf bytes; /* with JSON_PADDING readable behind it */
    struct buf after; /* the last id of the piece before */
    struct sink_row row;
};

void rows_begin(struct rows *rows, struct sink_session *session, uint32_t stream);
/* *row: NULL at the end; lives until the next call. Else the sink's error. */
int rows_next(struct rows *rows, const struct sink_row **row, struct diag *diag);
void rows_end(struct rows *rows);

#endif
