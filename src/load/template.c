/* template.c: see template.h.
 *
 * A compiled template is a list of segments: literal bytes, or one placeholder. The time-ordered id
 * is, in Crockford's base 32 (whose letters rise in ASCII): 10 characters of milliseconds, 5 of a
 * sequence, 5 of the origin. The text of a part is renewed only when its number changes. */
#include "load/template.h"

#include "base/buf.h"
#include "base/mem.h"

enum { ID_MS = 10, ID_SEQUENCE = 5, ID_ORIGIN = 5, DIGITS_MAX = 20, RAND_DIGITS_MAX = 18 };
#define PAD_MAX (64u << 20)

const char template_order[] =
    "{\"id\":\"{id}\",\"order_no\":\"{id}\",\"address_id\":{rand:15},\"merchant_id\":{rand:15},"
    "\"user_id\":1233211{key:8},\"order_amount\":{rand:6}}";

enum kind { LITERAL, ID, SEQ, KEY, RAND, MS, PAD };

struct segment {
    enum kind kind;
    unsigned digits; /* 0: as many as it takes */
    size_t at, n;    /* LITERAL: bytes in template.text */
};

struct template
{
    struct buf text; /* all literals, one after the other */
    struct segment *segments;
    size_t n, bound;
};

static const struct {
    const char *name;
    enum kind kind;
    unsigned digits_max, digits_default;
} placeholders[] = {
    {"id", ID, 0, 0},
    {"seq", SEQ, DIGITS_MAX, 0},
    {"key", KEY, DIGITS_MAX, 0},
    {"rand", RAND, RAND_DIGITS_MAX, 9},
    {"ms", MS, DIGITS_MAX, 0},
    {"pad", PAD, PAD_MAX, 0},
};

static bool lower(char c)
{
    return c >= 'a' && c <= 'z';
}

/* What follows '{' at p: 0 and *out when it is a placeholder (*used includes both braces), 1 when
 * it is a plain brace, else WEIR_SYNTAX. JSON never has a letter there outside of a string, so a
 * letter means a placeholder. */
static int read_placeholder(const char *p, const char *end, struct segment *out, size_t *used,
                            struct diag *diag)
{
    const char *name = p + 1, *q = name;
    while (q < end && lower(*q))
        q++;
    if (q == name)
        return 1;
    size_t name_n = (size_t)(q - name);
    uint64_t digits = 0;
    bool has_digits = false;
    if (q < end && *q == ':') {
        for (q++; q < end && *q >= '0' && *q <= '9' && digits <= PAD_MAX; q++) {
            digits = digits * 10 + (uint64_t)(*q - '0');
            has_digits = true;
        }
        if (!has_digits)
            q = end; /* reported below */
    }
    for (size_t i = 0; q < end && *q == '}' && i < sizeof placeholders / sizeof *placeholders;
         i++) {
        if (!slice_is((struct slice){name, name_n}, placeholders[i].name))
            continue;
        if (!has_digits)
            digits = placeholders[i].digits_default;
        else if (digits == 0 || digits > placeholders[i].digits_max)
            return diag_set(diag, WEIR_SYNTAX, "template: {%s:N} takes N from 1 to %u",
                            placeholders[i].name, placeholders[i].digits_max);
        if (placeholders[i].kind == PAD && digits == 0)
            return diag_set(diag, WEIR_SYNTAX, "template: {pad:N} needs N");
        *out = (struct segment){.kind = placeholders[i].kind, .digits = (unsigned)digits};
        *used = (size_t)(q + 1 - p);
        return 0;
    }
    return diag_set(diag, WEIR_SYNTAX,
                    "template: \"{%.*s\" is not a placeholder; known are {id} {seq} {key} {rand} "
                    "{ms} {pad:N}, and {{ for a brace",
                    (int)(name_n < 40 ? name_n : 40), name);
}

static struct segment *add(struct template *t, struct segment segment)
{
    t->segments = mem_realloc(t->segments, (t->n + 1) * sizeof *t->segments);
    t->segments[t->n] = segment;
    return &t->segments[t->n++];
}

static void add_literal(struct template *t, char c)
{
    struct segment *last = t->n ? &t->segments[t->n - 1] : NULL;
    if (!last || last->kind != LITERAL)
        last = add(t, (struct segment){.kind = LITERAL, .at = t->text.n});
    buf_put_char(&t->text, c);
    last->n++;
}

/* A pad never changes: it becomes literal letters. */
static void add_pad(struct template *t, size_t n)
{
    for (size_t i = 0; i < n; i++)
        add_literal(t, (char)('a' + i % 26));
}

static size_t bound_of(const struct segment *segment)
{
    switch (segment->kind) {
    case LITERAL:
        return segment->n;
    case ID:
        return TEMPLATE_ID_BYTES;
    default:
        return DIGITS_MAX;
    }
}

int template_compile(struct slice text, struct template **out, struct diag *diag)
{
    struct template *t = mem_zalloc(sizeof *t);
    while (text.n > 0 && memchr(" \t\r\n", text.p[text.n - 1], 4))
        text.n--;
    int err = 0;
    if (text.n == 0)
        err = diag_set(diag, WEIR_SYNTAX, "template: it is empty");
    const char *end = text.p + text.n;
    for (const char *p = text.p; !err && p < end; p++) {
        struct segment segment;
        size_t used = 0;
        if (*p != '{') {
            add_literal(t, *p == '\n' || *p == '\r' ? ' ' : *p);
            continue;
        }
        if (p + 1 < end && p[1] == '{') {
            add_literal(t, *p++);
            continue;
        }
        err = read_placeholder(p, end, &segment, &used, diag);
        if (err == 1) {
            add_literal(t, *p);
            err = 0;
        } else if (err == 0) {
            if (segment.kind == PAD)
                add_pad(t, segment.digits);
            else
                add(t, segment);
            p += used - 1;
        }
    }
    if (err) {
        template_destroy(t);
        return err;
    }
    for (size_t i = 0; i < t->n; i++)
        t->bound += bound_of(&t->segments[i]);
    *out = t;
    return 0;
}

void template_destroy(struct template *template)
{
    if (!template)
        return;
    buf_fini(&template->text);
    mem_free(template->segments);
    mem_free(template);
}

size_t template_bound(const struct template *template)
{
    return template->bound;
}

/* Crockford's base 32, n characters, the highest first. */
static void put_base32(char *out, unsigned n, uint64_t v)
{
    static const char letters[] = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
    while (n-- > 0) {
        out[n] = letters[v & 31];
        v >>= 5;
    }
}

/* Decimal, at least `digits` long. Returns the end. */
static char *put_decimal(char *out, uint64_t v, unsigned digits)
{
    static const char pairs[] = "00010203040506070809101112131415161718192021222324"
                                "25262728293031323334353637383940414243444546474849"
                                "50515253545556575859606162636465666768697071727374"
                                "75767778798081828384858687888990919293949596979899";
    char text[DIGITS_MAX], *p = text + DIGITS_MAX;
    while (v >= 100) {
        p -= 2;
        memcpy(p, pairs + v % 100 * 2, 2);
        v /= 100;
    }
    if (v >= 10) {
        p -= 2;
        memcpy(p, pairs + v * 2, 2);
    } else {
        *--p = (char)('0' + v);
    }
    unsigned n = (unsigned)(text + DIGITS_MAX - p);
    for (; n < digits; n++)
        *--p = '0';
    memcpy(out, p, n);
    return out + n;
}

/* Exactly `digits` random digits, the first not 0. */
static char *put_random(char *out, struct rng *rng, unsigned digits)
{
    static const uint64_t powers[RAND_DIGITS_MAX + 1] = {
        0,
        1,
        10,
        100,
        1000,
        10000,
        100000,
        1000000,
        10000000,
        100000000,
        1000000000,
        10000000000,
        100000000000,
        1000000000000,
        10000000000000,
        100000000000000,
        1000000000000000,
        10000000000000000,
        100000000000000000,
    };
    return put_decimal(out, powers[digits] + rng_below(rng, 9 * powers[digits]), digits);
}

void template_source_init(struct template_source *source, uint64_t seed, uint32_t origin,
                          const struct keys *keys, bool random_ids)
{
    *source =
        (struct template_source){.rng = {seed}, .keys = keys, .random_ids = random_ids, .id_ms = 0};
    put_base32(source->id + ID_MS + ID_SEQUENCE, ID_ORIGIN, origin);
}

static void next_id(struct template_source *source, uint64_t wall_ms)
{
    if (source->random_ids) {
        put_base32(source->id, TEMPLATE_ID_BYTES / 2, rng_next(&source->rng));
        put_base32(source->id + TEMPLATE_ID_BYTES / 2, TEMPLATE_ID_BYTES / 2,
                   rng_next(&source->rng));
        return;
    }
    if (wall_ms > source->id_ms) { /* a clock that steps back does not break the order */
        source->id_ms = wall_ms;
        put_base32(source->id, ID_MS, wall_ms);
        source->id_sequence = 0;
    }
    put_base32(source->id + ID_MS, ID_SEQUENCE, source->id_sequence++);
}

size_t template_render(const struct template *template, struct template_source *source,
                       uint64_t wall_ms, char *out)
{
    char *p = out;
    uint64_t key = UINT64_MAX;
    next_id(source, wall_ms);
    for (size_t i = 0; i < template->n; i++) {
        const struct segment *segment = &template->segments[i];
        switch (segment->kind) {
        case LITERAL:
            memcpy(p, template->text.p + segment->at, segment->n);
            p += segment->n;
            break;
        case ID:
            memcpy(p, source->id, TEMPLATE_ID_BYTES);
            p += TEMPLATE_ID_BYTES;
            break;
        case SEQ:
            p = put_decimal(p, source->seq, segment->digits);
            break;
        case KEY:
            if (key == UINT64_MAX)
                key = keys_next(source->keys, &source->rng);
            p = put_decimal(p, key, segment->digits);
            break;
        case RAND:
            p = put_random(p, &source->rng, segment->digits);
            break;
        case MS:
            p = put_decimal(p, wall_ms, segment->digits);
            break;
        case PAD:
            break;
        }
    }
    return (size_t)(p - out);
}
