/* json.cc: simdjson's DOM behind the C interface of json.h; the only C++ file.
 *
 * simdjson leaves a tape of 64-bit words (its doc/tape.md): the type in the top byte, a payload of
 * 56 bits. A name or string holds its place in the string buffer (u32 length, bytes, NUL); 'l' and
 * 'd' are followed by a word with the number; '{' and '[' hold the index after their end in the
 * low 32 bits and their count above (saturated at COUNT_MAX). A json_value is an index into it.
 *
 * What simdjson lets through and weir does not is found by one more walk over the tape: integers of
 * int64's upside, duplicate names, U+0000 in names, nesting over JSON_DEPTH_MAX.
 *
 * Invariants:
 * 1. No C++ type and no exception leaves this file; memory that is not there is WEIR_NO_MEMORY.
 * 2. Nothing recurses over the document.
 * 3. The walk is linear in the text: an object's names are compared pairwise up to SMALL_OBJECT,
 *    above that through a hash table whose seed no client knows.
 * 4. A small text gives back what a large one before it needed (KEEP_BYTES). */
#include <cassert>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <new>

#define SIMDJSON_EXCEPTIONS 0
#include <simdjson.h>

#pragma GCC diagnostic push
/* C lets a function share its struct's name; C++ calls that hiding a constructor. */
#pragma GCC diagnostic ignored "-Wshadow"
extern "C" {
#include "base/json_scan.h"
#include "base/mem.h"
#include "weir/err.h"
}
#pragma GCC diagnostic pop

static_assert(JSON_PADDING >= simdjson::SIMDJSON_PADDING, "the padding that callers give");

namespace
{

constexpr uint64_t PAYLOAD = (uint64_t(1) << 56) - 1;
constexpr uint64_t COUNT_MAX = 0xFFFFFF;
constexpr unsigned SMALL_OBJECT = 8;
constexpr size_t KEEP_BYTES = 1 << 20;
constexpr size_t START_BYTES = 4096;

} // namespace

struct json_parser {
    const uint64_t *tape = nullptr;
    const uint8_t *strings = nullptr;
    uint64_t *table = nullptr; /* of the names of a large object: hash's high half, tape index */
    size_t table_capacity = 0; /* a power of two */
    simdjson::dom::parser parser;
};

namespace
{

inline char type_of(uint64_t word)
{
    return char(word >> 56);
}

inline uint64_t after_container(uint64_t word)
{
    return uint32_t(word);
}

inline struct slice string_at(const uint8_t *strings, uint64_t word)
{
    const uint8_t *p = strings + (word & PAYLOAD);
    uint32_t n;
    memcpy(&n, p, sizeof n);
    return {reinterpret_cast<const char *>(p + sizeof n), n};
}

/* The tape index after the value at `at`. */
inline uint64_t after_value(const uint64_t *tape, uint64_t at)
{
    switch (type_of(tape[at])) {
    case '{':
    case '[':
        return after_container(tape[at]);
    case 'l':
    case 'u':
    case 'd':
        return at + 2;
    default:
        return at + 1;
    }
}

enum verdict { GOOD, BAD, OUT_OF_MEMORY };

/* The names of an object with many members; *duplicate is the tape index of the first that was
 * there before. */
verdict check_names_hashed(struct json_parser *parser, uint64_t object, uint64_t *duplicate)
{
    const uint64_t *tape = parser->tape;
    uint64_t end = after_container(tape[object]) - 1, count = tape[object] >> 32 & COUNT_MAX;
    if (count == COUNT_MAX) {
        count = 0;
        for (uint64_t at = object + 1; at < end; at = after_value(tape, at + 1))
            count++;
    }
    size_t capacity = 64;
    while (capacity < count * 2)
        capacity *= 2;
    if (capacity > parser->table_capacity) {
        auto table = static_cast<uint64_t *>(mem_try_alloc(capacity * sizeof(uint64_t)));
        if (!table)
            return OUT_OF_MEMORY;
        mem_free(parser->table);
        parser->table = table;
        parser->table_capacity = capacity;
    }
    uint64_t *table = parser->table;
    memset(table, 0, capacity * sizeof *table);
    uint64_t seed = hash_process_seed();
    for (uint64_t at = object + 1; at < end; at = after_value(tape, at + 1)) {
        struct slice name = string_at(parser->strings, tape[at]);
        uint64_t hash = hash64_seeded(name.p, name.n, seed);
        uint64_t entry = (hash & ~uint64_t(UINT32_MAX)) | at;
        size_t slot = hash & (capacity - 1);
        for (; table[slot]; slot = (slot + 1) & (capacity - 1)) {
            if (((table[slot] ^ entry) >> 32) == 0 &&
                slice_equal(name, string_at(parser->strings, tape[uint32_t(table[slot])]))) {
                *duplicate = at;
                return BAD;
            }
        }
        table[slot] = entry;
    }
    return GOOD;
}

/* A name's length and first four bytes in one word: most names differ in it. The string buffer
 * ends with padding, so eight bytes can always be read. */
inline uint64_t name_head(const uint8_t *strings, uint64_t word)
{
    uint64_t head;
    memcpy(&head, strings + (word & PAYLOAD), sizeof head);
    uint32_t n = uint32_t(head);
    return n >= 4 ? head : head & ((uint64_t(1) << (32 + 8 * n)) - 1);
}

/* One object's names, and those of its values that are no containers. *nested: it has containers.
 * With names_only the rest is not looked at. */
inline verdict check_object(struct json_parser *parser, uint64_t object, bool escapes,
                            bool names_only, bool *nested, uint64_t *duplicate)
{
    const uint64_t *tape = parser->tape;
    const uint8_t *strings = parser->strings;
    uint64_t end = after_container(tape[object]) - 1;
    uint64_t count = tape[object] >> 32 & COUNT_MAX;
    bool small = count <= SMALL_OBJECT;
    uint64_t heads[SMALL_OBJECT], places[SMALL_OBJECT];
    unsigned n = 0;
    if (!small) {
        verdict names = check_names_hashed(parser, object, duplicate);
        if (names != GOOD)
            return names;
    }
    for (uint64_t at = object + 1; at < end;) {
        if (small) {
            uint64_t head = name_head(strings, tape[at]);
            for (unsigned i = 0; i < n; i++) {
                if (heads[i] == head && slice_equal(string_at(strings, tape[places[i]]),
                                                    string_at(strings, tape[at]))) {
                    *duplicate = at;
                    return BAD;
                }
            }
            heads[n] = head;
            places[n++] = at;
        }
        if (escapes && !names_only) {
            struct slice name = string_at(strings, tape[at]);
            if (memchr(name.p, 0, name.n))
                return BAD;
        }
        switch (type_of(tape[++at])) {
        case '{':
        case '[':
            *nested = true;
            at = after_container(tape[at]);
            break;
        case 'u':
            if (!names_only)
                return BAD;
            at += 2;
            break;
        case 'l':
        case 'd':
            at += 2;
            break;
        default:
            at++;
        }
    }
    return GOOD;
}

/* The whole document. BAD says that it must be refused, the slow pass says why. An object without
 * containers is done in one go; the walk goes on into any other. */
verdict check_document(struct json_parser *parser, bool escapes)
{
    const uint64_t *tape = parser->tape;
    uint64_t at = 1, end = after_container(tape[0]) - 1, duplicate;
    unsigned depth = 0;
    while (at < end) {
        switch (type_of(tape[at])) {
        case '{': {
            bool nested = false;
            if (depth == JSON_DEPTH_MAX)
                return BAD;
            verdict object = check_object(parser, at, escapes, false, &nested, &duplicate);
            if (object != GOOD)
                return object;
            if (!nested) {
                at = after_container(tape[at]);
                break;
            }
            depth++;
            at++;
            break;
        }
        case '[':
            if (depth++ == JSON_DEPTH_MAX)
                return BAD;
            at++;
            break;
        case '}':
        case ']':
            depth--;
            at++;
            break;
        case 'u':
            return BAD;
        case 'l':
        case 'd':
            at += 2;
            break;
        default:
            at++;
        }
    }
    return GOOD;
}

/* The earliest name that repeats one of its object, as tape index; 0: none. */
uint64_t first_duplicate(struct json_parser *parser)
{
    const uint64_t *tape = parser->tape;
    uint64_t end = after_container(tape[0]) - 1, first = 0;
    for (uint64_t at = 1; at < end;) {
        if (type_of(tape[at]) == '{') {
            uint64_t duplicate = 0;
            bool nested;
            if (check_object(parser, at, false, true, &nested, &duplicate) == BAD &&
                (first == 0 || duplicate < first))
                first = duplicate;
        }
        at += type_of(tape[at]) == 'l' || type_of(tape[at]) == 'u' || type_of(tape[at]) == 'd' ? 2
                                                                                               : 1;
    }
    return first;
}

/* Which token of json_scan() the tape word at `index` is. */
uint64_t token_of(const uint64_t *tape, uint64_t index)
{
    uint64_t token = 0;
    for (uint64_t at = 1; at <= index;) {
        char type = type_of(tape[at]);
        token += type != '}' && type != ']';
        at += type == 'l' || type == 'u' || type == 'd' ? 2 : 1;
    }
    return token;
}

void explain_duplicate(struct json_parser *parser, uint64_t index, size_t offset,
                       struct json_error *error)
{
    struct slice name = string_at(parser->strings, parser->tape[index]);
    struct buf quoted = {};
    size_t n = name.n;
    if (n > 48) {
        /* Cut before a whole character. */
        for (n = 48; (name.p[n] & 0xC0) == 0x80;)
            n--;
    }
    buf_put_json_string(&quoted, {name.p, n});
    if (quoted.n > 120)
        snprintf(error->reason, sizeof error->reason, "duplicate member name");
    else
        snprintf(error->reason, sizeof error->reason, "duplicate member name %s%s",
                 buf_str(&quoted), n < name.n ? "..." : "");
    error->offset = offset;
    buf_fini(&quoted);
}

/* The slow pass. `parsed`: the tape is whole, only the checks failed. */
int explain(struct json_parser *parser, const char *text, size_t n, bool parsed,
            struct json_error *error)
{
    struct json_error found = {};
    uint64_t duplicate = parsed ? first_duplicate(parser) : 0;
    uint64_t token = duplicate ? token_of(parser->tape, duplicate) : 0;
    size_t offset = SIZE_MAX;
    int err = json_scan(text, n, token, &offset, &found);
    /* A name before the scan's first mistake is the first thing that is wrong. */
    if (offset != SIZE_MAX && (!err || offset < found.offset))
        explain_duplicate(parser, duplicate, offset, &found);
    else if (!err)
        snprintf(found.reason, sizeof found.reason, "not JSON");
    *error = found;
    return WEIR_SYNTAX;
}

/* Room for n bytes. simdjson grows to what is asked for exactly; a power of two makes it rare. */
bool reserve(struct json_parser *parser, size_t n)
{
    size_t have = parser->parser.capacity();
    if (n <= have && (have <= KEEP_BYTES || n > KEEP_BYTES))
        return true;
    size_t capacity = START_BYTES;
    while (capacity < n)
        capacity *= 2;
    if (capacity > simdjson::SIMDJSON_MAXSIZE_BYTES)
        capacity = n;
    if (capacity < have && parser->table_capacity * sizeof(uint64_t) > KEEP_BYTES) {
        mem_free(parser->table);
        parser->table = nullptr;
        parser->table_capacity = 0;
    }
    /* One level more than allowed: simdjson does not count a level that is empty, so the exact
     * limit is held by check_document(). */
    return parser->parser.allocate(capacity, JSON_DEPTH_MAX + 1) == simdjson::SUCCESS &&
           parser->parser.doc.allocate(capacity) == simdjson::SUCCESS;
}

inline const struct json_parser *tree(struct json_value v)
{
    return static_cast<const struct json_parser *>(v.doc);
}

inline uint64_t word(struct json_value v)
{
    return tree(v)->tape[v.at];
}

} // namespace

extern "C" {

#define TEXT_OF(macro) #macro
#define TEXT(macro)    TEXT_OF(macro)

const char *json_library(void)
{
    return TEXT(SIMDJSON_VERSION);
}

struct json_parser *json_parser_create(void)
{
    return new (mem_alloc(sizeof(struct json_parser))) json_parser;
}

void json_parser_destroy(struct json_parser *parser)
{
    if (!parser)
        return;
    mem_free(parser->table);
    parser->~json_parser();
    mem_free(parser);
}

int json_parse(struct json_parser *parser, const char *text, size_t n, struct json_value *root,
               struct json_error *error)
{
    if (n > simdjson::SIMDJSON_MAXSIZE_BYTES) {
        error->offset = 0;
        snprintf(error->reason, sizeof error->reason, "a text over 4 GiB");
        return WEIR_SYNTAX;
    }
    if (!reserve(parser, n))
        return WEIR_NO_MEMORY;
    simdjson::error_code code = parser->parser.parse(text, n, false).error();
    if (code == simdjson::MEMALLOC)
        return WEIR_NO_MEMORY;
    if (code != simdjson::SUCCESS)
        return explain(parser, text, n, false, error);
    parser->tape = parser->parser.doc.tape.get();
    parser->strings = parser->parser.doc.string_buf.get();
    bool escapes = memchr(text, '\\', n) != nullptr;
    switch (check_document(parser, escapes)) {
    case GOOD:
        *root = {parser, 1};
        return 0;
    case OUT_OF_MEMORY:
        return WEIR_NO_MEMORY;
    default:
        return explain(parser, text, n, true, error);
    }
}

enum json_type json_type(struct json_value v)
{
    switch (type_of(word(v))) {
    case 'n':
        return JSON_NULL;
    case 't':
    case 'f':
        return JSON_BOOL;
    case 'l':
        return JSON_INT;
    case 'd':
        return JSON_DOUBLE;
    case '"':
        return JSON_STRING;
    case '[':
        return JSON_ARRAY;
    default:
        return JSON_OBJECT;
    }
}

bool json_bool(struct json_value v)
{
    char type = type_of(word(v));
    assert(type == 't' || type == 'f');
    return type == 't';
}

int64_t json_int(struct json_value v)
{
    assert(type_of(word(v)) == 'l');
    return int64_t(tree(v)->tape[v.at + 1]);
}

double json_double(struct json_value v)
{
    if (type_of(word(v)) == 'l')
        return double(json_int(v));
    assert(type_of(word(v)) == 'd');
    double d;
    memcpy(&d, &tree(v)->tape[v.at + 1], sizeof d);
    return d;
}

struct slice json_string(struct json_value v)
{
    assert(type_of(word(v)) == '"');
    return string_at(tree(v)->strings, word(v));
}

size_t json_count(struct json_value v)
{
    assert(type_of(word(v)) == '{' || type_of(word(v)) == '[');
    uint64_t count = word(v) >> 32 & COUNT_MAX;
    if (count < COUNT_MAX)
        return count;
    struct json_iter iter = json_iter(v);
    struct json_value each;
    for (count = 0; json_next(&iter, nullptr, &each);)
        count++;
    return count;
}

struct json_iter json_iter(struct json_value container)
{
    uint64_t w = word(container);
    assert(type_of(w) == '{' || type_of(w) == '[');
    struct json_iter iter;
    iter.v = container;
    iter.at = container.at + 1;
    iter.end = after_container(w) - 1;
    iter.object = type_of(w) == '{';
    return iter;
}

bool json_next(struct json_iter *iter, struct slice *name, struct json_value *value)
{
    if (iter->at >= iter->end)
        return false;
    const struct json_parser *parser = tree(iter->v);
    if (iter->object) {
        if (name)
            *name = string_at(parser->strings, parser->tape[iter->at]);
        iter->at++;
    }
    *value = {parser, iter->at};
    iter->at = after_value(parser->tape, iter->at);
    return true;
}

size_t json_format_double(double v, char out[JSON_DOUBLE_TEXT])
{
    if (!std::isfinite(v)) {
        memcpy(out, "null", 4);
        return 4;
    }
    /* d[.ddd]e[+-]dd[d] with the fewest digits: taken apart and laid out again. */
    char text[JSON_DOUBLE_TEXT];
    char *end = std::to_chars(text, text + sizeof text, v, std::chars_format::scientific).ptr;
    char *p = out;
    const char *from = text;
    if (*from == '-')
        *p++ = *from++;
    char digits[20];
    int n = 0;
    for (; *from != 'e'; from++) {
        if (*from != '.')
            digits[n++] = *from;
    }
    bool negative = from[1] == '-';
    int exponent = 0;
    for (from += 2; from < end; from++)
        exponent = exponent * 10 + (*from - '0');
    if (negative)
        exponent = -exponent;

    if (exponent >= 16 || exponent < -4) {
        *p++ = digits[0];
        if (n > 1) {
            *p++ = '.';
            memcpy(p, digits + 1, (size_t)n - 1);
            p += n - 1;
        }
        *p++ = 'e';
        *p++ = negative ? '-' : '+';
        unsigned e = (unsigned)(negative ? -exponent : exponent);
        if (e >= 100)
            *p++ = (char)('0' + e / 100);
        *p++ = (char)('0' + e / 10 % 10);
        *p++ = (char)('0' + e % 10);
    } else if (exponent < 0) {
        *p++ = '0';
        *p++ = '.';
        for (int i = -1; i > exponent; i--)
            *p++ = '0';
        memcpy(p, digits, (size_t)n);
        p += n;
    } else {
        for (int i = 0; i <= exponent; i++)
            *p++ = i < n ? digits[i] : '0';
        *p++ = '.';
        if (n > exponent + 1) {
            memcpy(p, digits + exponent + 1, (size_t)(n - exponent - 1));
            p += n - exponent - 1;
        } else {
            *p++ = '0';
        }
    }
    return (size_t)(p - out);
}

} // extern "C"
