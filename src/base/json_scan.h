/* json_scan.h: the slow, strict reading of JSON that finds where a text is wrong and says why.
 * Private to the json files: simdjson decides quickly whether a text is good, this says what is
 * bad about it. Both accept the same texts (tests/fuzz/json_fuzz.c holds them to it). */
#ifndef WEIR_BASE_JSON_SCAN_H
#define WEIR_BASE_JSON_SCAN_H

#include "base/json.h"

#define JSON_DEPTH_MAX 1024

/* Reads one whole document. 0, or WEIR_SYNTAX and *error with the first thing that is wrong.
 * Everything that json.h refuses is found, but for duplicate names.
 *
 * Tokens are the values and the member names, counted from 1 in the text's order (closing brackets
 * do not count). When token number `token` is reached, *token_offset becomes its place; 0: none. */
int json_scan(const char *text, size_t n, uint64_t token, size_t *token_offset,
              struct json_error *error);

/* The length of the UTF-8 character at p (1 to 4), or 0 when it is not valid UTF-8 (overlong,
 * surrogate, above U+10FFFF, cut off). `left` is at least 1. */
size_t json_utf8_length(const unsigned char *p, size_t left);

#endif
