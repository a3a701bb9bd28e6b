/* json_pointer.c: JSON Pointer (RFC 6901), members by name, and the raw texts of an array's
 * elements (see json.h). */
#include <assert.h>

#include "base/json.h"
#include "weir/err.h"

int json_pointer_check(struct slice pointer)
{
    if (pointer.n == 0)
        return 0;
    if (pointer.p[0] != '/')
        return WEIR_SYNTAX;
    for (size_t i = 0; i < pointer.n; i++) {
        if (pointer.p[i] != '~')
            continue;
        if (i + 1 == pointer.n || (pointer.p[i + 1] != '0' && pointer.p[i + 1] != '1'))
            return WEIR_SYNTAX;
    }
    return 0;
}

/* Whether a reference token, with its ~0 and ~1, is this name. */
static bool token_is(struct slice token, struct slice name)
{
    if (name.n == token.n && memcmp(token.p, name.p, name.n) == 0)
        return memchr(token.p, '~', token.n) == NULL;
    size_t n = 0;
    for (size_t i = 0; i < token.n; i++, n++) {
        char c = token.p[i];
        if (c == '~')
            c = token.p[++i] == '0' ? '~' : '/';
        if (n == name.n || name.p[n] != c)
            return false;
    }
    return n == name.n;
}

static bool find_member(struct json_value object, struct slice token, struct json_value *out)
{
    struct json_iter iter = json_iter(object);
    struct slice name;
    struct json_value value;
    while (json_next(&iter, &name, &value)) {
        /* An escaped token is longer than its name: most names are ruled out by length. */
        if (name.n <= token.n && token_is(token, name)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool find_element(struct json_value array, struct slice token, struct json_value *out)
{
    uint64_t index = 0;
    if (token.n == 0 || (token.n > 1 && token.p[0] == '0'))
        return false;
    for (size_t i = 0; i < token.n; i++) {
        if (token.p[i] < '0' || token.p[i] > '9' || index > UINT32_MAX)
            return false;
        index = index * 10 + (uint64_t)(token.p[i] - '0');
    }
    struct json_iter iter = json_iter(array);
    struct json_value value;
    while (json_next(&iter, NULL, &value)) {
        if (index-- == 0) {
            *out = value;
            return true;
        }
    }
    return false;
}

bool json_pointer(struct json_value root, struct slice pointer, struct json_value *out)
{
    struct json_value v = root;
    size_t at = 0;
    while (at < pointer.n) {
        assert(pointer.p[at] == '/');
        size_t end = ++at;
        while (end < pointer.n && pointer.p[end] != '/')
            end++;
        struct slice token = {pointer.p + at, end - at};
        enum json_type type = json_type(v);
        if (type == JSON_OBJECT ? !find_member(v, token, &v)
                                : type != JSON_ARRAY || !find_element(v, token, &v))
            return false;
        at = end;
    }
    *out = v;
    return true;
}

bool json_member(struct json_value object, const char *name, struct json_value *out)
{
    struct json_iter iter = json_iter(object);
    struct slice wanted = slice_of(name), have;
    struct json_value value;
    while (json_next(&iter, &have, &value)) {
        if (slice_equal(have, wanted)) {
            *out = value;
            return true;
        }
    }
    return false;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

/* From an opening quote to after the closing one. */
static size_t skip_string(const char *p, size_t at)
{
    for (at++; p[at] != '"'; at++) {
        if (p[at] == '\\')
            at++;
    }
    return at + 1;
}

void json_split_array(struct slice text, void (*element)(void *context, struct slice raw),
                      void *context)
{
    const char *p = text.p;
    size_t at = 0;
    while (at < text.n && is_space(p[at]))
        at++;
    assert(at < text.n && p[at] == '[');
    at++;
    for (;;) {
        while (is_space(p[at]))
            at++;
        if (p[at] == ']')
            return;
        size_t start = at, depth = 0;
        for (;;) {
            char c = p[at];
            if (c == '"') {
                at = skip_string(p, at);
                continue;
            }
            if (depth == 0 && (c == ',' || c == ']'))
                break;
            depth += c == '[' || c == '{';
            depth -= c == ']' || c == '}';
            at++;
        }
        size_t end = at;
        while (is_space(p[end - 1]))
            end--;
        element(context, (struct slice){p + start, end - start});
        if (p[at] == ',')
            at++;
    }
}
