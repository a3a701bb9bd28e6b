/* Any bytes as JSON. What must hold:
 *
 * - the fast reader (simdjson and the tape walk) and the slow scanner accept the same texts, but
 *   for duplicate names, which only the first looks for;
 * - a refusal names a place inside the text (or its end) and a reason;
 * - what follows the text does not matter;
 * - the canonical form of what is accepted is accepted, is its own canonical form, and its hash is
 *   that of the text;
 * - an array's raw elements are documents, and are its elements. */
#include <stdlib.h>

#include "base/json_scan.h"
#include "base/mem.h"
#include "weir/err.h"

#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition))                                                                          \
            abort();                                                                               \
    } while (0)

static struct json_parser *parser, *other;
static struct buf once, twice, joined;

/* Parses a copy that is followed by padding of one kind, in memory of its exact size. */
static int parse(struct json_parser *with, const void *p, size_t n, char padding, char **copy,
                 struct json_value *root, struct json_error *error)
{
    *copy = mem_alloc(n + JSON_PADDING);
    if (n)
        memcpy(*copy, p, n);
    memset(*copy + n, padding, JSON_PADDING);
    return json_parse(with, *copy, n, root, error);
}

static void check_refusal(const char *p, size_t n, const struct json_error *error)
{
    size_t place = 0;
    struct json_error scanned = {SIZE_MAX, ""};
    bool duplicate = strncmp(error->reason, "duplicate member name", 21) == 0;
    CHECK(error->offset <= n);
    CHECK(error->reason[0] && strcmp(error->reason, "not JSON") != 0);
    CHECK(strlen(error->reason) < sizeof error->reason);
    int err = json_scan(p, n, 0, &place, &scanned);
    if (duplicate) {
        CHECK(p[error->offset] == '"');
        CHECK(!err || scanned.offset > error->offset);
        return;
    }
    CHECK(err == WEIR_SYNTAX && scanned.offset == error->offset);
    CHECK(strcmp(scanned.reason, error->reason) == 0);
}

static void element(void *context, struct slice raw)
{
    (void)context;
    char *copy;
    struct json_value root;
    struct json_error error;
    CHECK(parse(other, raw.p, raw.n, ',', &copy, &root, &error) == 0);
    if (joined.n > 1)
        buf_put_char(&joined, ',');
    json_canonical(root, &joined);
    mem_free(copy);
}

static void check_value(const char *p, size_t n, struct json_value root)
{
    size_t place = 0;
    struct json_error error;
    struct json_value again;
    CHECK(json_scan(p, n, 0, &place, &error) == 0);
    buf_clear(&once);
    json_canonical(root, &once);
    struct hash128 hash = json_content_hash(root, &twice);
    CHECK(slice_equal(buf_slice(&once), buf_slice(&twice)));

    char *copy;
    CHECK(parse(other, once.p, once.n, '0', &copy, &again, &error) == 0);
    CHECK(hash128_equal(hash, json_content_hash(again, &twice)));
    CHECK(slice_equal(buf_slice(&once), buf_slice(&twice)));
    mem_free(copy);

    if (json_type(root) == JSON_ARRAY) {
        buf_clear(&joined);
        buf_put_char(&joined, '[');
        json_split_array((struct slice){p, n}, element, NULL);
        buf_put_char(&joined, ']');
        CHECK(slice_equal(buf_slice(&once), buf_slice(&joined)));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (!parser) {
        parser = json_parser_create();
        other = json_parser_create();
    }
    static const char paddings[] = {'"', '7', '}', ' ', '\\', '\0', '\xFF'};
    char *copy, *second;
    struct json_value root, unused;
    struct json_error error = {SIZE_MAX, ""}, again = {SIZE_MAX, ""};
    int err = parse(parser, data, n, paddings[n % sizeof paddings], &copy, &root, &error);
    int err2 = parse(other, data, n, paddings[(n + 1) % sizeof paddings], &second, &unused, &again);
    CHECK(err == err2);
    if (err) {
        CHECK(err == WEIR_SYNTAX);
        CHECK(error.offset == again.offset && strcmp(error.reason, again.reason) == 0);
        check_refusal(copy, n, &error);
    } else {
        check_value(copy, n, root);
    }
    mem_free(copy);
    mem_free(second);
    return 0;
}
