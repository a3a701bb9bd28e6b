/* format.c: the journal's bytes (see format.h). */
#include <assert.h>

#include "base/hash.h"
#include "log/journal/format.h"
#include "weir/err.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the journal is little endian");
_Static_assert(sizeof(struct segment_header) == 88, "no holes");
_Static_assert(sizeof(struct group_header) == 80, "no holes");
_Static_assert(sizeof(struct unit_header) == 24, "no holes");
_Static_assert(sizeof(struct record_header) == 24, "no holes");

#define SEGMENT_MAGIC 0x3167657372696577u /* "weirseg1" */
#define GROUP_MAGIC   0x3170726772696577u /* "weirgrp1" */

void segment_header_seal(struct segment_header *header)
{
    header->magic = SEGMENT_MAGIC;
    header->format = JOURNAL_FORMAT;
    header->reserved = 0;
    header->checksum = hash64(header, offsetof(struct segment_header, checksum));
}

static bool all_zero(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (p[i])
            return false;
    return true;
}

enum segment_state segment_header_check(const char *page, size_t n, uint64_t number,
                                        struct segment_header *out)
{
    struct segment_header header;
    if (all_zero(page, n))
        return SEGMENT_UNUSED;
    if (n < sizeof header)
        return SEGMENT_DAMAGED;
    memcpy(&header, page, sizeof header);
    if (header.magic != SEGMENT_MAGIC ||
        header.checksum != hash64(&header, offsetof(struct segment_header, checksum)))
        return SEGMENT_DAMAGED;
    if (header.format > JOURNAL_FORMAT)
        return SEGMENT_NEWER;
    /* The checksum is no proof against a header made to deceive: these are relied on. */
    if (header.nonce == 0 || header.base < JOURNAL_FIRST_LSN || header.base % 8 ||
        header.base > INT64_MAX || header.bytes < SEGMENT_DATA || header.bytes > UINT32_MAX ||
        header.records_before > INT64_MAX)
        return SEGMENT_DAMAGED;
    *out = header;
    return header.number == number ? SEGMENT_BEGUN : SEGMENT_FOREIGN;
}

void group_header_seal(struct group_header *header)
{
    header->magic = GROUP_MAGIC;
    header->reserved = 0;
    header->checksum = hash64(header, offsetof(struct group_header, checksum));
}

uint64_t group_fold(uint64_t fold, uint64_t unit_checksum)
{
    /* One round of a multiplicative hash: depends on order, and no unit's checksum cancels another.
     */
    fold = (fold ^ unit_checksum) * 0x9e3779b97f4a7c15u;
    return fold ^ (fold >> 32);
}

bool group_header_read(const char *p, uint64_t nonce, struct group_header *out)
{
    struct group_header header;
    memcpy(&header.magic, p, sizeof header.magic);
    if (header.magic != GROUP_MAGIC) /* a search looks at every eighth byte: be quick */
        return false;
    memcpy(&header, p, sizeof header);
    if (header.nonce != nonce ||
        header.checksum != hash64(&header, offsetof(struct group_header, checksum)))
        return false;
    *out = header;
    return true;
}

int group_check(const char *group, const struct group_header *header, const char **why)
{
    const char *p = group + sizeof *header;
    const char *end = p + header->payload;
    uint64_t lsn = header->lsn + sizeof *header, fold = 0, records = 0;
    for (uint32_t i = 0; i < header->units; i++) {
        struct unit_header unit;
        int rc = unit_check(p, (size_t)(end - p), lsn, &unit, why);
        if (rc)
            return rc;
        fold = group_fold(fold, unit.checksum);
        records += unit.records;
        p += unit.bytes;
        lsn += unit.bytes;
    }
    uint64_t trailer;
    memcpy(&trailer, end, sizeof trailer);
    *why = NULL;
    if (p != end)
        *why = "its units do not fill it";
    else if (records != header->records)
        *why = "its records are not as many as it says";
    else if (fold != header->units_fold)
        *why = "its units are not the ones it was written with";
    else if (trailer != header->checksum)
        *why = "its trailer is not its own";
    return *why ? WEIR_CORRUPT : 0;
}

static bool key_is_id(const struct record *record)
{
    return slice_equal(record->key, record->id);
}

static size_t record_bytes(const struct record *record)
{
    return sizeof(struct record_header) + record->id.n + (key_is_id(record) ? 0 : record->key.n) +
           record->attributes.n + record->doc.n;
}

size_t unit_bytes(const struct record *records, size_t n)
{
    size_t bytes = sizeof(struct unit_header);
    if (n > UINT32_MAX)
        return SIZE_MAX;
    for (size_t i = 0; i < n; i++) {
        assert(records[i].id.n > 0 && records[i].id.n <= RECORD_ID_MAX);
        assert(records[i].key.n <= RECORD_KEY_MAX);
        assert(records[i].attributes.n <= UINT16_MAX && records[i].partition < JOURNAL_PARTITIONS);
        if (records[i].doc.n > SEGMENT_BYTES_MAX || bytes > SEGMENT_BYTES_MAX)
            return SIZE_MAX;
        bytes += record_bytes(&records[i]);
    }
    return bytes > SEGMENT_BYTES_MAX ? SIZE_MAX : (bytes + 7) & ~(size_t)7;
}

static char *put(char *to, struct slice s)
{
    if (s.n)
        memcpy(to, s.p, s.n);
    return to + s.n;
}

void unit_encode(const struct record *records, size_t n, char *out, size_t bytes)
{
    struct unit_header unit = {.bytes = (uint32_t)bytes, .records = (uint32_t)n};
    char *to = out + sizeof unit;
    for (size_t i = 0; i < n; i++) {
        const struct record *record = &records[i];
        bool same = key_is_id(record);
        struct record_header header = {
            .version = record->version,
            .stream = record->stream,
            .doc = (uint32_t)record->doc.n,
            .partition = (uint16_t)record->partition,
            .id = (uint16_t)record->id.n,
            .key = same ? RECORD_KEY_IS_ID : (uint16_t)record->key.n,
            .attributes = (uint16_t)record->attributes.n,
        };
        memcpy(to, &header, sizeof header);
        to = put(to + sizeof header, record->id);
        if (!same)
            to = put(to, record->key);
        to = put(to, record->attributes);
        to = put(to, record->doc);
    }
    assert((size_t)(out + bytes - to) < 8);
    memset(to, 0, (size_t)(out + bytes - to));
    memcpy(out, &unit, sizeof unit);
    unit.checksum = hash64(out + offsetof(struct unit_header, bytes),
                           bytes - offsetof(struct unit_header, bytes));
    memcpy(out, &unit.checksum, sizeof unit.checksum);
}

int unit_check(const char *p, size_t available, uint64_t lsn, struct unit_header *out,
               const char **why)
{
    struct unit_header unit;
    *why = NULL;
    if (available < sizeof unit) {
        *why = "a unit is cut off";
        return WEIR_CORRUPT;
    }
    memcpy(&unit, p, sizeof unit);
    if (unit.bytes < sizeof unit || unit.bytes % 8 || unit.bytes > available)
        *why = "a unit's size is impossible";
    else if (unit.lsn != lsn)
        *why = "a unit belongs to another place";
    else if (unit.checksum != hash64(p + offsetof(struct unit_header, bytes),
                                     unit.bytes - offsetof(struct unit_header, bytes)))
        *why = "a unit's checksum does not hold";
    else if (unit.records > unit.bytes / sizeof(struct record_header))
        *why = "a unit cannot hold its records";
    if (*why)
        return WEIR_CORRUPT;
    *out = unit;
    return 0;
}

void unit_walk_begin(struct unit_walk *walk, const char *unit, const struct unit_header *header)
{
    walk->at = unit + sizeof *header;
    walk->end = unit + header->bytes;
    walk->lsn = header->lsn;
    walk->index = 0;
    walk->records = header->records;
}

int unit_walk_next(struct unit_walk *walk, struct record *out)
{
    struct record_header header;
    size_t left = (size_t)(walk->end - walk->at);
    if (walk->index == walk->records)
        return left < 8 ? WEIR_END : WEIR_CORRUPT;
    if (left < sizeof header)
        return WEIR_CORRUPT;
    memcpy(&header, walk->at, sizeof header);
    bool same = header.key == RECORD_KEY_IS_ID;
    size_t key = same ? 0 : header.key;
    if (header.id == 0 || header.id > RECORD_ID_MAX || key > RECORD_KEY_MAX ||
        left - sizeof header < (size_t)header.id + key + header.attributes + header.doc)
        return WEIR_CORRUPT;
    const char *p = walk->at + sizeof header;
    struct record record = {
        .version = header.version,
        .stream = header.stream,
        .partition = header.partition,
        .offset = walk->lsn + walk->index,
    };
    record.id = (struct slice){p, header.id};
    p += header.id;
    record.key = same ? record.id : (struct slice){p, key};
    p += key;
    record.attributes = (struct slice){p, header.attributes};
    p += header.attributes;
    record.doc = (struct slice){p, header.doc};
    walk->at = p + header.doc;
    walk->index++;
    *out = record;
    return 0;
}
