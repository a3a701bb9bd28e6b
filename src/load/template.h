/* template.h: the record that is sent, as text with placeholders, compiled once and filled in for
 * every record by copying (no printf on the way).
 *
 *   {id}    20 characters that no other record has: time-ordered (their byte order is the order of
 *           making, per thread; milliseconds first) or random; all {id} of a record are the same
 *   {seq}   the record's number in this run, from 0, over all threads
 *   {key}   the chosen key, from 0 (--keys, --zipf)
 *   {rand}  a random whole number
 *   {ms}    the wall clock in milliseconds
 *   {pad:N} N letters that are always the same
 *
 * {seq:N}, {key:N} and {ms:N} are filled with zeros on the left to N digits; {rand:N} has exactly N
 * digits, the first not 0 (9 when left out). "{{" stands for a brace. Line ends in the text become
 * spaces, so that every record is one line of NDJSON.
 *
 * A template is constant after template_compile; a source belongs to one thread. */
#ifndef WEIR_LOAD_TEMPLATE_H
#define WEIR_LOAD_TEMPLATE_H

#include <stdbool.h>

#include "base/diag.h"
#include "base/slice.h"
#include "load/keys.h"

#define TEMPLATE_ID_BYTES 20

/* The order of a web shop, 170 bytes. */
extern const char template_order[];

struct template;

/* WEIR_SYNTAX and *diag when a placeholder is not one of the above. */
int template_compile(struct slice text, struct template **out, struct diag *diag);
void template_destroy(struct template *template);
size_t template_bound(const struct template *template); /* the most bytes one record can take */

struct template_source {
    struct rng rng;
    const struct keys *keys;
    bool random_ids;
    uint64_t seq; /* of the next record; set by the caller */
    /* the rest is template.c's */
    uint64_t id_ms, id_sequence;
    char id[TEMPLATE_ID_BYTES];
};

/* `origin` keeps ids of different generators and threads apart (25 bits count). */
void template_source_init(struct template_source *source, uint64_t seed, uint32_t origin,
                          const struct keys *keys, bool random_ids);

/* Writes one record (at most template_bound bytes) and returns its length. */
size_t template_render(const struct template *template, struct template_source *source,
                       uint64_t wall_ms, char *out);

#endif
