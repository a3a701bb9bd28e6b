/* The journal's bytes: what goes in comes out, and no damage, however small, goes unseen. */
#include "base/hash.h"
#include "journal_kit.h"

static void fill(struct seeded *random, char *p, size_t n)
{
    for (size_t i = 0; i < n; i++)
        p[i] = (char)seeded_next(random);
}

/* Random records over `bytes` (64 KiB of noise). */
static void random_records(struct seeded *random, const char *bytes, struct record *records,
                           size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct record *record = &records[i];
        size_t id = 1 + seeded_below(random, RECORD_ID_MAX);
        size_t key = seeded_below(random, 3) ? 1 + seeded_below(random, RECORD_KEY_MAX) : id;
        *record = (struct record){
            .id = {bytes + seeded_below(random, 1000), id},
            .doc = {bytes + seeded_below(random, 1000), seeded_below(random, 3000)},
            .attributes = {bytes, seeded_below(random, 2) ? seeded_below(random, 4096) : 0},
            .version = seeded_next(random) >> 1,
            .stream = (uint32_t)seeded_next(random),
            .partition = (uint32_t)seeded_below(random, JOURNAL_PARTITIONS),
        };
        record->key = (struct slice){key == id ? record->id.p : bytes + 7, key};
    }
}

static void expect_equal(struct slice a, struct slice b)
{
    assert_true(slice_equal(a, b));
}

static void a_unit_comes_out_as_it_went_in(void **state)
{
    (void)state;
    struct seeded random = {seeded_choose()};
    char *bytes = malloc(65536);
    fill(&random, bytes, 65536);
    for (unsigned round = 0; round < 200; round++) {
        struct record records[40], record;
        size_t n = 1 + seeded_below(&random, 40);
        random_records(&random, bytes, records, n);
        size_t size = unit_bytes(records, n);
        assert_int_equal(size % 8, 0);
        char *unit = malloc(size);
        unit_encode(records, n, unit, size);
        uint64_t lsn = seeded_next(&random) >> 2 << 3;
        unit_place(unit, lsn);
        struct unit_header header;
        struct unit_walk walk;
        const char *why;
        assert_int_equal(unit_check(unit, size, lsn, &header, &why), 0);
        unit_walk_begin(&walk, unit, &header);
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(unit_walk_next(&walk, &record), 0);
            expect_equal(record.id, records[i].id);
            expect_equal(record.key, records[i].key);
            expect_equal(record.doc, records[i].doc);
            expect_equal(record.attributes, records[i].attributes);
            assert_int_equal(record.version, records[i].version);
            assert_int_equal(record.stream, records[i].stream);
            assert_int_equal(record.partition, records[i].partition);
            assert_int_equal(record.offset, lsn + i);
        }
        assert_int_equal(unit_walk_next(&walk, &record), WEIR_END);
        free(unit);
    }
    free(bytes);
}

/* A group of units, each of one record, at `lsn`. Returns its size. */
static size_t make_group(char *out, uint64_t lsn, uint64_t number, uint64_t first_id,
                         unsigned units, struct group_header *header)
{
    *header = (struct group_header){
        .nonce = 77, .number = number, .lsn = lsn, .durable = lsn, .records_before = 5};
    size_t n = sizeof *header;
    for (unsigned i = 0; i < units; i++) {
        struct body *body = kit_body(first_id + i, 1, 20, true);
        size_t bytes = unit_bytes(body->records, 1);
        uint64_t sum;
        unit_encode(body->records, 1, out + n, bytes);
        unit_place(out + n, lsn + n);
        memcpy(&sum, out + n, sizeof sum);
        header->units_fold = group_fold(header->units_fold, sum);
        header->units++;
        header->records++;
        n += bytes;
        mem_free(body);
    }
    header->payload = (uint32_t)(n - sizeof *header);
    group_header_seal(header);
    memcpy(out, header, sizeof *header);
    memcpy(out + n, &header->checksum, sizeof header->checksum);
    return n + GROUP_TRAILER;
}

static bool valid(const char *group, size_t n)
{
    struct group_header header;
    const char *why = "";
    if (!group_header_read(group, 77, &header) || group_bytes(&header) > n)
        return false;
    int rc = group_check(group, &header, &why);
    assert_true(rc == 0 ? why == NULL : why != NULL);
    return rc == 0;
}

static void every_flipped_bit_of_a_group_is_seen(void **state)
{
    (void)state;
    char group[1024];
    struct group_header header;
    size_t n = make_group(group, 8000, 3, 100, 3, &header);
    assert_true(valid(group, n));
    for (size_t i = 0; i < n; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            group[i] ^= (char)(1 << bit);
            assert_false(valid(group, n));
            group[i] ^= (char)(1 << bit);
        }
    assert_true(valid(group, n));
}

/* Whatever lay there before: zeros, noise, or an older attempt at the same place. */
static void no_part_of_a_group_is_one(void **state)
{
    (void)state;
    struct seeded random = {seeded_choose()};
    char group[1024], disk[1024], older[1024], noise[1024];
    struct group_header header;
    size_t n = make_group(group, 8000, 3, 100, 3, &header);
    assert_int_equal(make_group(older, 8000, 3, 200, 3, &header), n);
    memset(older + n - 1, 0, sizeof older - n + 1);
    fill(&random, noise, sizeof noise);
    for (size_t cut = 0; cut < n; cut++) {
        memset(disk, 0, sizeof disk);
        memcpy(disk, group, cut);
        assert_false(valid(disk, n));
        memcpy(disk, noise, sizeof disk);
        memcpy(disk, group, cut);
        assert_false(valid(disk, n));
        /* An older attempt that was told to have failed, whole but for its last byte. */
        memcpy(disk, older, sizeof disk);
        memcpy(disk, group, cut);
        assert_false(valid(disk, n));
    }
}

static void a_new_header_over_older_units_is_no_group(void **state)
{
    (void)state;
    char group[1024], older[1024];
    struct group_header header;
    size_t n = make_group(group, 8000, 3, 100, 3, &header);
    make_group(older, 8000, 3, 200, 3, &header);
    memcpy(group + sizeof header, older + sizeof header, n - sizeof header - GROUP_TRAILER);
    assert_false(valid(group, n));
}

static void a_unit_of_another_place_is_refused(void **state)
{
    (void)state;
    char group[1024];
    struct group_header header;
    const char *why;
    struct unit_header unit;
    make_group(group, 8000, 3, 100, 1, &header);
    const char *p = group + sizeof header;
    assert_int_equal(unit_check(p, header.payload, 8000 + sizeof header, &unit, &why), 0);
    assert_int_equal(unit_check(p, header.payload, 9000 + sizeof header, &unit, &why),
                     WEIR_CORRUPT);
    for (size_t n = 0; n < header.payload; n++)
        assert_int_equal(unit_check(p, n, 8000 + sizeof header, &unit, &why), WEIR_CORRUPT);
}

/* A checksum proves that the bytes are those that were written, not that they are sane. */
/* A file that is used again still holds the groups of its last life. */
static void a_group_of_another_segment_is_none(void **state)
{
    (void)state;
    char group[1024];
    struct group_header header, out;
    make_group(group, 8000, 3, 100, 1, &header);
    assert_true(group_header_read(group, header.nonce, &out));
    for (unsigned bit = 0; bit < 64; bit++)
        assert_false(group_header_read(group, header.nonce ^ UINT64_C(1) << bit, &out));
}

static void lengths_that_lead_out_of_a_unit_are_refused(void **state)
{
    (void)state;
    struct seeded random = {seeded_choose()};
    struct body *body = kit_body(1, 4, 30, true);
    size_t bytes = unit_bytes(body->records, 4);
    char *sound = malloc(bytes), *unit = malloc(bytes);
    unit_encode(body->records, 4, sound, bytes);
    unsigned refused = 0;
    for (unsigned round = 0; round < 20000; round++) {
        memcpy(unit, sound, bytes);
        size_t at = 20 + seeded_below(&random, bytes - 20);
        unit[at] ^= (char)(1 + seeded_below(&random, 255));
        uint64_t sum = hash64(unit + 16, bytes - 16);
        memcpy(unit, &sum, sizeof sum);
        struct unit_header header;
        struct unit_walk walk;
        struct record record;
        const char *why;
        int rc = unit_check(unit, bytes, 0, &header, &why);
        if (rc == 0) {
            unit_walk_begin(&walk, unit, &header);
            while ((rc = unit_walk_next(&walk, &record)) == 0) {
                assert_true(record.doc.p >= unit && record.doc.p + record.doc.n <= unit + bytes);
                assert_true(record.id.n > 0 && record.id.n <= RECORD_ID_MAX);
            }
        }
        refused += rc == WEIR_CORRUPT;
    }
    assert_true(refused > 1000);
    free(sound);
    free(unit);
    mem_free(body);
}

static void a_segment_header_tells_what_the_file_is(void **state)
{
    (void)state;
    char page[SEGMENT_DATA] = {0};
    struct segment_header out, header = {.number = 7,
                                         .nonce = 99,
                                         .base = 8192,
                                         .bytes = 65536,
                                         .previous_number = 6,
                                         .previous_nonce = 98,
                                         .first_group = 10,
                                         .records_before = 20};
    assert_int_equal(segment_header_check(page, sizeof page, 7, &out), SEGMENT_UNUSED);
    assert_int_equal(segment_header_check(page, 0, 7, &out), SEGMENT_UNUSED);
    segment_header_seal(&header);
    memcpy(page, &header, sizeof header);
    assert_int_equal(segment_header_check(page, sizeof page, 7, &out), SEGMENT_BEGUN);
    assert_memory_equal(&out, &header, sizeof out);
    assert_int_equal(segment_header_check(page, sizeof page, 9, &out), SEGMENT_FOREIGN);
    for (size_t i = 0; i < sizeof header; i++) {
        page[i] ^= 0x10;
        assert_int_equal(segment_header_check(page, sizeof page, 7, &out), SEGMENT_DAMAGED);
        page[i] ^= 0x10;
    }
    for (size_t n = 1; n < sizeof header; n++) { /* a torn begin */
        char torn[SEGMENT_DATA] = {0};
        memcpy(torn, page, n);
        assert_int_equal(segment_header_check(torn, sizeof torn, 7, &out), SEGMENT_DAMAGED);
    }
    header.format = JOURNAL_FORMAT + 1;
    header.checksum = hash64(&header, offsetof(struct segment_header, checksum));
    memcpy(page, &header, sizeof header);
    assert_int_equal(segment_header_check(page, sizeof page, 7, &out), SEGMENT_NEWER);
}

static void what_no_unit_can_hold_is_told_before(void **state)
{
    (void)state;
    struct record record = {.id = {"a", 1}, .key = {"a", 1}, .doc = {"", (size_t)1 << 40}};
    assert_true(unit_bytes(&record, 1) == SIZE_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unit_comes_out_as_it_went_in),
        cmocka_unit_test(every_flipped_bit_of_a_group_is_seen),
        cmocka_unit_test(no_part_of_a_group_is_one),
        cmocka_unit_test(a_new_header_over_older_units_is_no_group),
        cmocka_unit_test(a_unit_of_another_place_is_refused),
        cmocka_unit_test(a_group_of_another_segment_is_none),
        cmocka_unit_test(lengths_that_lead_out_of_a_unit_are_refused),
        cmocka_unit_test(a_segment_header_tells_what_the_file_is),
        cmocka_unit_test(what_no_unit_can_hold_is_told_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
