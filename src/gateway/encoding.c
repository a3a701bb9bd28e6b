/* encoding.c: see encoding.h. */
#include "gateway/encoding.h"

#include <strings.h>
#include <zlib.h>

#include "base/mem.h"

struct inflater {
    z_stream stream;
};

struct inflater *inflater_create(void)
{
    struct inflater *inflater = mem_zalloc(sizeof(*inflater));
    if (inflateInit2(&inflater->stream, 15 + 16) != Z_OK) { /* 16: a gzip header, nothing else */
        mem_free(inflater);
        return NULL;
    }
    return inflater;
}

void inflater_destroy(struct inflater *inflater)
{
    if (!inflater)
        return;
    inflateEnd(&inflater->stream);
    mem_free(inflater);
}

enum encoding encoding_of(struct slice name)
{
    if (name.n == 0 || (name.n == 8 && strncasecmp(name.p, "identity", 8) == 0))
        return ENCODING_NONE;
    if ((name.n == 4 && strncasecmp(name.p, "gzip", 4) == 0) ||
        (name.n == 6 && strncasecmp(name.p, "x-gzip", 6) == 0))
        return ENCODING_GZIP;
    return ENCODING_UNKNOWN;
}

static int too_large(struct problem *problem, size_t max_bytes)
{
    return problem_set(problem, 413, "body_too_large",
                       "the body is larger than %zu bytes when it is inflated (limits: body)",
                       max_bytes);
}

int inflater_run(struct inflater *inflater, struct slice in, size_t max_bytes, size_t padding,
                 char **out, size_t *out_n, struct problem *problem)
{
    z_stream *z = &inflater->stream;
    struct buf to = {0};
    int status;

    inflateReset(z);
    z->next_in = (Bytef *)(uintptr_t)in.p;
    z->avail_in = (uInt)in.n;
    size_t room = in.n < max_bytes / 4 ? in.n * 4 : max_bytes;
    if (in.n > UINT32_MAX || room > UINT32_MAX) {
        status = too_large(problem, max_bytes);
        goto failed;
    }
    buf_reserve(&to, (room < 4096 ? 4096 : room) + padding);
    for (;;) {
        /* One byte more than allowed tells "exactly the limit" from "over it". */
        size_t most = max_bytes + 1 - to.n;
        size_t free_bytes = to.capacity - to.n - padding;
        z->next_out = (Bytef *)to.p + to.n;
        z->avail_out = (uInt)(free_bytes < most ? free_bytes : most);
        uInt before = z->avail_out;
        int rc = inflate(z, Z_NO_FLUSH);
        to.n += before - z->avail_out;
        if (to.n > max_bytes) {
            status = too_large(problem, max_bytes);
            goto failed;
        }
        if (rc == Z_STREAM_END) {
            if (z->avail_in == 0)
                break;
            inflateReset(z); /* the next member */
        } else if (rc == Z_OK || rc == Z_BUF_ERROR) {
            if (z->avail_in == 0 && z->avail_out > 0) {
                status = problem_set(problem, 400, "bad_gzip",
                                     "the gzip body is cut off after %zu bytes", in.n);
                goto failed;
            }
        } else {
            status = problem_set(problem, 400, "bad_gzip", "the body is not valid gzip: %s",
                                 z->msg ? z->msg : "unknown format");
            problem->offset = (int64_t)z->total_in;
            goto failed;
        }
        if (to.capacity - to.n - padding < 4096) {
            size_t more = to.n < max_bytes / 2 ? to.n : max_bytes + 1 - to.n;
            buf_reserve(&to, more + padding + 4096);
        }
    }
    *out = to.p;
    *out_n = to.n;
    return 0;
failed:
    buf_fini(&to);
    return status;
}
