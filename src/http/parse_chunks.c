/* parse_chunks.c: chunked framing (RFC 9112 7.1; see parse.h).
 *
 * A state for each place between two bytes of the framing, so that it does not matter how the
 * input is cut. Stricter than the RFC in one point: no white space around chunk extensions, which
 * no client sends and others' parsers disagree about. Trailers are checked as headers are, and
 * dropped; those that would say something about framing or routing are refused. */
#include <assert.h>

#include "http/parse.h"

enum state {
    SIZE_FIRST, /* the first digit of a size */
    SIZE,
    EXTENSION_FIRST, /* the first byte of a name */
    EXTENSION_NAME,
    EXTENSION_VALUE_FIRST,
    EXTENSION_TOKEN,
    EXTENSION_QUOTED,
    EXTENSION_ESCAPED,
    EXTENSION_UNQUOTED, /* behind the closing quote */
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER_FIRST,
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    END_LF,
    ENDED,
};

static enum parse_result refuse(struct parse_error *error, int status, const char *detail)
{
    *error = (struct parse_error){status, detail};
    return PARSE_REFUSED;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_token(char c)
{
    return parse_is_token((struct slice){&c, 1});
}

static bool is_text(char c) /* HTAB, SP, visible, obs-text */
{
    return c == '\t' || ((unsigned char)c >= 0x20 && c != 0x7f);
}

void parse_chunks_init(struct parse_chunks *chunks, const struct parse_limits *limits,
                       uint64_t body_limit)
{
    *chunks = (struct parse_chunks){.body_limit = body_limit,
                                    .overhead_limit = limits->head_bytes,
                                    .trailers_left = limits->headers,
                                    .state = SIZE_FIRST};
}

/* Behind a size or an extension: what may come next. */
static enum parse_result after_size(struct parse_chunks *chunks, char c, struct parse_error *error)
{
    if (c == ';')
        chunks->state = EXTENSION_FIRST;
    else if (c == '\r')
        chunks->state = SIZE_LF;
    else
        return refuse(error, 400, "a chunk's size is followed by what does not belong there");
    return PARSE_MORE;
}

static enum parse_result size_digit(struct parse_chunks *chunks, char c, struct parse_error *error)
{
    int digit = hex_value(c);
    if (digit < 0) {
        if (chunks->state == SIZE_FIRST)
            return refuse(error, 400, "a chunk's size is not a hexadecimal number");
        return after_size(chunks, c, error);
    }
    if (++chunks->digits > 16)
        return refuse(error, 400, "a chunk's size is larger than any body can be");
    chunks->left = chunks->left << 4 | (unsigned)digit;
    chunks->state = SIZE;
    return PARSE_MORE;
}

static enum parse_result size_complete(struct parse_chunks *chunks, struct parse_error *error)
{
    if (chunks->left > chunks->body_limit - chunks->total)
        return refuse(error, 413, "the body is larger than the limit");
    chunks->total += chunks->left;
    chunks->digits = 0;
    chunks->state = chunks->left ? DATA : TRAILER_FIRST;
    return PARSE_MORE;
}

static enum parse_result extension(struct parse_chunks *chunks, char c, struct parse_error *error)
{
    bool good = false;
    switch (chunks->state) {
    case EXTENSION_FIRST:
        good = is_token(c);
        chunks->state = EXTENSION_NAME;
        break;
    case EXTENSION_NAME:
        if (is_token(c))
            return PARSE_MORE;
        if (c != '=')
            return after_size(chunks, c, error);
        good = true;
        chunks->state = EXTENSION_VALUE_FIRST;
        break;
    case EXTENSION_VALUE_FIRST:
        good = is_token(c) || c == '"';
        chunks->state = c == '"' ? EXTENSION_QUOTED : EXTENSION_TOKEN;
        break;
    case EXTENSION_TOKEN:
        return is_token(c) ? PARSE_MORE : after_size(chunks, c, error);
    case EXTENSION_QUOTED:
        good = is_text(c);
        if (c == '"')
            chunks->state = EXTENSION_UNQUOTED;
        else if (c == '\\')
            chunks->state = EXTENSION_ESCAPED;
        break;
    case EXTENSION_ESCAPED:
        good = is_text(c);
        chunks->state = EXTENSION_QUOTED;
        break;
    default:
        return after_size(chunks, c, error);
    }
    return good ? PARSE_MORE : refuse(error, 400, "a chunk's extension is malformed");
}

static bool is_forbidden_trailer(const struct parse_chunks *chunks)
{
    struct slice name = {chunks->name, chunks->n_name};
    return parse_same(name, "content-length") || parse_same(name, "transfer-encoding") ||
           parse_same(name, "host") || parse_same(name, "connection") ||
           parse_same(name, "expect") || parse_same(name, "content-encoding");
}

static enum parse_result trailer(struct parse_chunks *chunks, char c, struct parse_error *error)
{
    switch (chunks->state) {
    case TRAILER_FIRST:
        if (c == '\r') {
            chunks->state = END_LF;
            return PARSE_MORE;
        }
        if (!chunks->trailers_left--)
            return refuse(error, 431, "there are more trailers than the limit allows");
        chunks->n_name = 0;
        chunks->state = TRAILER_NAME;
        /* fall through */
    case TRAILER_NAME:
        if (c == ':' && chunks->n_name) {
            if (is_forbidden_trailer(chunks))
                return refuse(error, 400, "a trailer speaks about framing");
            chunks->state = TRAILER_VALUE;
            return PARSE_MORE;
        }
        if (!is_token(c))
            return refuse(error, 400, "a trailer is malformed");
        /* A name that is longer than any forbidden one needs no more than its length. */
        if (chunks->n_name < sizeof chunks->name)
            chunks->name[chunks->n_name++] = c;
        return PARSE_MORE;
    default:
        if (c == '\r')
            chunks->state = TRAILER_LF;
        else if (!is_text(c))
            return refuse(error, 400, "a trailer holds a control byte");
        return PARSE_MORE;
    }
}

/* A byte that must be this one. */
static enum parse_result expect(struct parse_chunks *chunks, char c, char wanted, unsigned next,
                                struct parse_error *error)
{
    if (c != wanted)
        return refuse(error, 400, "chunked framing is broken: CRLF was expected");
    chunks->state = next;
    return PARSE_MORE;
}

static enum parse_result step(struct parse_chunks *chunks, char c, struct parse_error *error)
{
    switch (chunks->state) {
    case SIZE_FIRST:
    case SIZE:
        return size_digit(chunks, c, error);
    case SIZE_LF:
        if (c != '\n')
            return expect(chunks, c, '\n', DATA, error);
        return size_complete(chunks, error);
    case DATA_CR:
        return expect(chunks, c, '\r', DATA_LF, error);
    case DATA_LF:
        return expect(chunks, c, '\n', SIZE_FIRST, error);
    case TRAILER_FIRST:
    case TRAILER_NAME:
    case TRAILER_VALUE:
        return trailer(chunks, c, error);
    case TRAILER_LF:
        return expect(chunks, c, '\n', TRAILER_FIRST, error);
    case END_LF:
        if (expect(chunks, c, '\n', ENDED, error) != PARSE_MORE)
            return PARSE_REFUSED;
        return PARSE_DONE;
    default:
        return extension(chunks, c, error);
    }
}

/* Many bytes of extensions and trailers for little data would be work for nothing: counted. */
static bool is_overhead(unsigned state)
{
    return (state >= EXTENSION_FIRST && state <= EXTENSION_UNQUOTED) || state >= TRAILER_FIRST;
}

enum parse_result parse_chunks(struct parse_chunks *chunks, const char *in, size_t n, size_t *used,
                               struct slice *data, struct parse_error *error)
{
    assert(chunks->state != ENDED);
    *data = (struct slice){NULL, 0};
    for (size_t i = 0; i < n;) {
        if (chunks->state == DATA) {
            size_t run = n - i < chunks->left ? n - i : (size_t)chunks->left;
            *data = (struct slice){in + i, run};
            chunks->left -= run;
            if (!chunks->left)
                chunks->state = DATA_CR;
            *used = i + run;
            return PARSE_MORE;
        }
        if (is_overhead(chunks->state) && ++chunks->overhead > chunks->overhead_limit)
            return refuse(error, 431, "chunk extensions or trailers are larger than the limit");
        enum parse_result result = step(chunks, in[i++], error);
        if (result != PARSE_MORE) {
            *used = i;
            return result;
        }
    }
    *used = n;
    return PARSE_MORE;
}
