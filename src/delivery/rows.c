/* rows.c: see rows.h. */
#include "delivery/rows.h"

#include "base/json.h"

#define FULL 1 /* what ends a scan when the piece is */

void rows_begin(struct rows *rows, struct sink_session *session, uint32_t stream)
{
    *rows = (struct rows){.session = session, .stream = stream};
}

void rows_end(struct rows *rows)
{
    buf_fini(&rows->bytes);
    buf_fini(&rows->after);
}

static int keep(void *context, const struct sink_row *row)
{
    struct rows *rows = context;
    rows->items[rows->n++] = (struct rows_item){row->id.n, row->key.n, row->doc.n, row->version};
    buf_put_slice(&rows->bytes, row->id);
    buf_put_slice(&rows->bytes, row->key);
    buf_put_slice(&rows->bytes, row->doc);
    return rows->n == ROWS_PIECE || rows->bytes.n >= ROWS_PIECE_BYTES ? FULL : 0;
}

int rows_next(struct rows *rows, const struct sink_row **row, struct diag *diag)
{
    if (rows->next == rows->n && !rows->last) {
        if (rows->n) {
            buf_clear(&rows->after);
            buf_put_slice(&rows->after, rows->row.id);
        }
        rows->n = rows->next = rows->at = 0;
        buf_clear(&rows->bytes);
        int rc = rows->session->ops->scan(rows->session, rows->stream, buf_slice(&rows->after),
                                          keep, rows, diag);
        if (rc != 0 && rc != FULL)
            return rc;
        rows->last = rc == 0;
        buf_reserve(&rows->bytes, JSON_PADDING);
    }
    if (rows->next == rows->n) {
        *row = NULL;
        return 0;
    }
    const struct rows_item *item = &rows->items[rows->next++];
    const char *p = rows->bytes.p + rows->at;
    rows->row.id = (struct slice){p, item->id_n};
    rows->row.key = (struct slice){p + item->id_n, item->key_n};
    rows->row.doc = (struct slice){p + item->id_n + item->key_n, item->doc_n};
    rows->row.version = item->version;
    rows->at += item->id_n + item->key_n + item->doc_n;
    *row = &rows->row;
    return 0;
}
