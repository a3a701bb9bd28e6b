/* buf.h: bytes that grow. `{0}` is a valid empty buf. Owned by one thread. */
#ifndef WEIR_BASE_BUF_H
#define WEIR_BASE_BUF_H

#include <stdint.h>

#include "base/slice.h"

struct buf {
    char *p; /* NULL while empty */
    size_t n;
    size_t capacity;
};

void buf_fini(struct buf *buf); /* frees; buf is `{0}` again */
static inline void buf_clear(struct buf *buf)
{
    buf->n = 0;
}
void buf_reserve(struct buf *buf, size_t more); /* room for `more` further bytes */
char *buf_extend(struct buf *buf, size_t n);    /* grows n by n, returns where; caller writes */
void buf_put(struct buf *buf, const void *p, size_t n);
void buf_put_slice(struct buf *buf, struct slice s);
void buf_put_str(struct buf *buf, const char *s); /* without its terminator */
void buf_put_char(struct buf *buf, char c);
void buf_put_u64(struct buf *buf, uint64_t v); /* decimal */
void buf_put_i64(struct buf *buf, int64_t v);
void buf_put_double(struct buf *buf, double v); /* shortest text that reads back the same */
void buf_put_json_string(struct buf *buf, struct slice s); /* quoted, escaped; s is UTF-8 */
void buf_printf(struct buf *buf, const char *format, ...) __attribute__((format(printf, 2, 3)));
const char *buf_str(struct buf *buf); /* terminated; n unchanged */
static inline struct slice buf_slice(const struct buf *buf)
{
    return (struct slice){buf->p, buf->n};
}

#endif
