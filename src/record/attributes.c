/* attributes.c: a record's named attributes (see attributes.h).
 *
 * The encoding is the form on disk. Reading never trusts it: a walk ends at the first entry that
 * does not fit, attributes_check() says whether the whole is well formed. */
#include "record/attributes.h"

#include "weir/err.h"

enum { NAME_MAX_BYTES = 64, HEAD = 6 };

static bool name_valid(struct slice name)
{
    if (name.n == 0 || name.n > NAME_MAX_BYTES)
        return false;
    for (size_t i = 0; i < name.n; i++) {
        char c = name.p[i];
        if (c <= ' ' || c > '~' || (c >= 'A' && c <= 'Z'))
            return false;
    }
    return true;
}

int attributes_put(struct buf *encoded, struct slice name, struct slice value)
{
    size_t at = 0;
    struct slice have;
    if (!name_valid(name))
        return WEIR_INVALID;
    while (attributes_next(buf_slice(encoded), &at, &have, NULL)) {
        if (slice_equal(have, name))
            return WEIR_INVALID;
    }
    if (value.n > ATTRIBUTES_MAX_BYTES ||
        encoded->n + HEAD + name.n + value.n > ATTRIBUTES_MAX_BYTES)
        return WEIR_TOO_LARGE;
    unsigned char head[HEAD] = {
        (unsigned char)name.n,          (unsigned char)(name.n >> 8),
        (unsigned char)value.n,         (unsigned char)(value.n >> 8),
        (unsigned char)(value.n >> 16), (unsigned char)(value.n >> 24),
    };
    buf_put(encoded, head, sizeof head);
    buf_put_slice(encoded, name);
    buf_put_slice(encoded, value);
    return 0;
}

bool attributes_next(struct slice encoded, size_t *at, struct slice *name, struct slice *value)
{
    if (*at > encoded.n || encoded.n - *at < HEAD)
        return false;
    const unsigned char *p = (const unsigned char *)encoded.p + *at;
    size_t name_n = (size_t)p[0] | (size_t)p[1] << 8;
    size_t value_n = (size_t)p[2] | (size_t)p[3] << 8 | (size_t)p[4] << 16 | (size_t)p[5] << 24;
    size_t left = encoded.n - *at - HEAD;
    if (name_n > left || value_n > left - name_n)
        return false;
    const char *bytes = encoded.p + *at + HEAD;
    if (name)
        *name = (struct slice){bytes, name_n};
    if (value)
        *value = (struct slice){bytes + name_n, value_n};
    *at += HEAD + name_n + value_n;
    return true;
}

int attributes_check(struct slice encoded)
{
    if (encoded.n > ATTRIBUTES_MAX_BYTES)
        return WEIR_CORRUPT;
    size_t at = 0, start = 0;
    struct slice name;
    while (attributes_next(encoded, &at, &name, NULL)) {
        size_t before = 0;
        struct slice other;
        if (!name_valid(name))
            return WEIR_CORRUPT;
        while (before < start && attributes_next(encoded, &before, &other, NULL)) {
            if (slice_equal(other, name))
                return WEIR_CORRUPT;
        }
        start = at;
    }
    return at == encoded.n ? 0 : WEIR_CORRUPT;
}

bool attributes_get(struct slice encoded, const char *name, struct slice *value)
{
    size_t at = 0;
    struct slice have, found;
    while (attributes_next(encoded, &at, &have, &found)) {
        if (slice_is(have, name)) {
            *value = found;
            return true;
        }
    }
    return false;
}

void attributes_to_json(struct slice encoded, struct buf *out)
{
    size_t at = 0;
    struct slice name, value;
    bool first = true;
    buf_put_char(out, '{');
    while (attributes_next(encoded, &at, &name, &value)) {
        if (!first)
            buf_put_char(out, ',');
        first = false;
        buf_put_json_string(out, name);
        buf_put_char(out, ':');
        buf_put_json_string(out, value);
    }
    buf_put_char(out, '}');
}
