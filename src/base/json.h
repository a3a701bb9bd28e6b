/* json.h: JSON, read strictly and written exactly.
 *
 * A parser (simdjson behind a C interface; json.cc is the only C++ file) turns text into a
 * tree that stays valid until its next parse. A parser belongs to one thread.
 *
 * What is refused, always: anything that is not RFC 8259 JSON in valid UTF-8; numbers that are
 * integers outside int64; numbers beyond double; lone surrogates; duplicate member names in one
 * object; U+0000 in a member name; nesting over 1024. Everything else comes through exactly. */
#ifndef WEIR_BASE_JSON_H
#define WEIR_BASE_JSON_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/slice.h"

/* Text given to json_parse must be followed by this many readable bytes (any content). */
#define JSON_PADDING 64

enum json_type {
    JSON_NULL,
    JSON_BOOL,
    JSON_INT,
    JSON_DOUBLE,
    JSON_STRING,
    JSON_ARRAY,
    JSON_OBJECT,
};

struct json_value { /* a place in the parser's tree; copied freely, dies with the next parse */
    const void *doc;
    uint64_t at;
};

struct json_error {
    uint64_t offset;  /* byte offset in the text of the first thing that is wrong */
    char reason[160]; /* "duplicate member name \"a\"", "integer outside -2^63..2^63-1" ... */
};

struct json_parser;
struct json_parser *json_parser_create(void);
void json_parser_destroy(struct json_parser *parser);

/* Parses one whole document (white space around it allowed). 0, or WEIR_SYNTAX with *error filled
 * (a second, slow pass finds the offset), or WEIR_NO_MEMORY. */
int json_parse(struct json_parser *parser, const char *text, size_t n, struct json_value *root,
               struct json_error *error);

enum json_type json_type(struct json_value v);
bool json_bool(struct json_value v);
int64_t json_int(struct json_value v);
double json_double(struct json_value v);       /* JSON_INT or JSON_DOUBLE */
struct slice json_string(struct json_value v); /* decoded UTF-8; may hold U+0000 */
size_t json_count(struct json_value v);        /* members or elements */

struct json_iter { /* over an array's elements or an object's members, in the text's order */
    struct json_value v;
    uint64_t at, end;
    bool object;
};
struct json_iter json_iter(struct json_value container);
/* false at the end. `name` (may be NULL) is set for objects. */
bool json_next(struct json_iter *iter, struct slice *name, struct json_value *value);
bool json_member(struct json_value object, const char *name, struct json_value *out); /* by name */

/* JSON Pointer (RFC 6901). "" is the whole. json_pointer_check gives WEIR_SYNTAX for a bad one. */
int json_pointer_check(struct slice pointer);
bool json_pointer(struct json_value root, struct slice pointer, struct json_value *out);

/* Canonical form: members sorted by the bytes of their names, no white space, integers as such,
 * doubles as the shortest text that reads back (always with '.' or 'e', so never equal to an
 * integer), strings with the fewest escapes. The content hash is XXH3-128 of it. */
void json_canonical(struct json_value v, struct buf *out);
struct hash128 json_content_hash(struct json_value v, struct buf *scratch);

/* A finite double as canonical form writes it (not terminated): the digits of the shortest decimal
 * that reads back as the same double, laid out as docs/content-hash.md says. Infinities and NaN,
 * for which JSON has no word, become "null". Returns the length. */
#define JSON_DOUBLE_TEXT 32
size_t json_format_double(double v, char out[JSON_DOUBLE_TEXT]);

/* Splits a valid JSON array's text (already parsed) into its elements' raw texts, in order: calls
 * once per element. */
void json_split_array(struct slice text, void (*element)(void *context, struct slice raw),
                      void *context);

/* The parser behind it, for `weir version`: "3.0.1". */
const char *json_library(void);

#endif
