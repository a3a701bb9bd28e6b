/* What comes out of SQLite: exact values, ids byte for byte, scans in order and in pieces, readers
 * beside a writer. */
#include <pthread.h>
#include <stdatomic.h>

#include "../seeded.h"
#include "sqlite_kit.h"

static void put_slices(struct kit *kit, struct slice id, struct slice doc)
{
    kit_add_slices(kit, 0, id, SLICE_LIT("k"), 1, doc, (struct slice){0});
}

static void documents_come_out_as_they_went_in(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    const char *const docs[] = {
        "{\"a\":\"\\u0000 \\ud83d\\ude2d\"}",
        "{\"a\":\"\xF0\x9F\x98\xAD\xF4\x8F\xBF\xBF \xEF\xBF\xBF\xEF\xBB\xBF\"}",
        "{\"n\":9223372036854775807,\"m\":-9223372036854775808,\"d\":5e-324,\"e\":0.1}",
        "{ \"white\" :\t\"space\r\n\" }",
        "{\"q\":\"' \\\" ; -- ? ?1 :x @y $z\"}",
        "{}",
    };
    char id[8];
    for (size_t i = 0; i < sizeof docs / sizeof docs[0]; i++) {
        snprintf(id, sizeof id, "%zu", i);
        kit_put(kit, id, i + 1, docs[i]);
        kit_expect(kit, id, i + 1, docs[i]);
    }
    assert_string_equal(kit_ask(kit, "SELECT group_concat(DISTINCT typeof(doc)) FROM events"),
                        "text");
}

static void a_document_of_a_mebibyte(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    struct buf doc = {0};
    buf_put_str(&doc, "{\"x\":\"");
    while (doc.n < (1u << 20) - 6)
        buf_put_str(&doc, "\xF0\x9F\x98\xAD");
    buf_put_str(&doc, "\"}");
    for (int i = 0; i < 5; i++) {
        char id[2] = {(char)('a' + i)};
        put_slices(kit, slice_of(id), buf_slice(&doc));
    }
    assert_int_equal(kit_write(kit), 0);
    for (int i = 0; i < 5; i++) {
        char id[2] = {(char)('a' + i)};
        kit_expect(kit, id, 1, buf_str(&doc));
    }
    buf_fini(&doc);
}

struct collected {
    struct buf ids; /* each followed by a newline */
    size_t n, stop_after;
};

static int collect(void *context, const struct sink_row *row)
{
    struct collected *c = context;
    buf_put_slice(&c->ids, row->id);
    buf_put_char(&c->ids, '\n');
    assert_true(slice_is(row->key, "k"));
    assert_true(row->doc.n >= 2 && row->doc.p[0] == '{');
    return ++c->n == c->stop_after ? 99 : 0;
}

static int scan(struct kit *kit, struct slice after, struct collected *c)
{
    return kit->sink->ops->scan(kit->reader, 0, after, collect, c, &kit->diag);
}

static void ids_are_compared_byte_for_byte(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    char *longest = mem_zalloc(513), *longer = mem_zalloc(513);
    memset(longest, 'z', 511);
    memset(longer, 'z', 512);
    const char *const ids[] = {/* in the order of their bytes */
                               "\x01",
                               " ",
                               "\"",
                               "'",
                               "' OR 1=1 --",
                               "0",
                               "007",
                               "01",
                               "1",
                               "1.0",
                               "A",
                               "Abc",
                               "a",
                               "aB",
                               "ab",
                               "ab ",
                               "abc",
                               "e\xCC\x81",
                               "x'00'",
                               longest,
                               longer,
                               "\x7F",
                               "\xC3\x89",
                               "\xC3\xA9",
                               "\xEF\xBF\xBF",
                               "\xF0\x9F\x98\xAD",
                               "\xF4\x8F\xBF\xBF"};
    size_t n = sizeof ids / sizeof ids[0];
    struct buf expected = {0};
    for (size_t i = 0; i < n; i++) {
        kit_add(kit, ids[(i * 7) % n], (i * 7) % n + 1, "{}"); /* 7 and 27 have no common factor */
        buf_put_str(&expected, ids[i]);
        buf_put_char(&expected, '\n');
    }
    assert_int_equal(kit_write(kit), 0);
    assert_int_equal(kit_count(kit), n);
    for (size_t i = 0; i < n; i++)
        kit_expect(kit, ids[i], i + 1, "{}");
    kit_expect_none(kit, "B");
    kit_expect_none(kit, "1.00");
    struct collected c = {0};
    assert_int_equal(scan(kit, (struct slice){0}, &c), 0);
    assert_true(slice_equal(buf_slice(&c.ids), buf_slice(&expected)));
    buf_fini(&c.ids);
    buf_fini(&expected);
    mem_free(longest);
    mem_free(longer);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void a_scan_may_stop_and_go_on_anywhere(void **state)
{
    struct kit *kit = *state;
    struct seeded random = {seeded_choose()};
    kit_open(kit);
    enum { N = 2600 }; /* more than five pieces */
    char *ids[N];
    struct buf expected = {0};
    for (int i = 0; i < N; i++) {
        ids[i] = mem_printf("%0*llx", (int)seeded_below(&random, 20) + 1,
                            (unsigned long long)seeded_next(&random));
        kit_add(kit, ids[i], 1, "{}");
    }
    assert_int_equal(kit_write(kit), 0);
    qsort(ids, N, sizeof ids[0], compare);
    for (int i = 0; i < N; i++) {
        buf_put_str(&expected, ids[i]);
        buf_put_char(&expected, '\n');
    }
    struct collected all = {0};
    assert_int_equal(scan(kit, (struct slice){0}, &all), 0);
    assert_int_equal(all.n, N);
    assert_true(slice_equal(buf_slice(&all.ids), buf_slice(&expected)));

    struct collected parts = {0};
    char *after = mem_strdup("");
    for (int rc = 99; rc == 99;) {
        parts.stop_after = parts.n + 1 + seeded_below(&random, 700);
        rc = scan(kit, slice_of(after), &parts);
        assert_true(rc == 0 || rc == 99);
        mem_free(after);
        after = mem_strdup(ids[parts.n - 1]);
    }
    assert_true(slice_equal(buf_slice(&parts.ids), buf_slice(&expected)));
    struct collected none = {0};
    assert_int_equal(scan(kit, SLICE_LIT("zzz"), &none), 0);
    assert_int_equal(none.n, 0);
    mem_free(after);
    for (int i = 0; i < N; i++)
        mem_free(ids[i]);
    buf_fini(&all.ids);
    buf_fini(&parts.ids);
    buf_fini(&expected);
}

static void rows_that_weir_did_not_write_do_not_trap_a_scan(void **state)
{
    struct kit *kit = *state;
    kit_beside(kit, "CREATE TABLE events(id UNIQUE, key, version, doc);"
                    "INSERT INTO events VALUES(1, 'k', 1, '{}'), (NULL, 'k', 1, '{}'), (x'00', "
                    "'k', 1, '{}'), (x'ff', 'k', 1, '{}')");
    kit_open(kit);
    kit_put(kit, "b", 1, "{}");
    kit_put(kit, "a", 1, "{}");
    struct collected c = {0};
    assert_int_equal(scan(kit, (struct slice){0}, &c), 0);
    assert_true(slice_is(buf_slice(&c.ids), "a\nb\n"));
    buf_fini(&c.ids);
}

static void a_removed_id_is_gone(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    kit_put(kit, "a", 1, "{}");
    kit_put(kit, "A", 1, "{}");
    assert_int_equal(kit->sink->ops->remove(kit->writer, 0, SLICE_LIT("a"), &kit->diag), 0);
    assert_int_equal(kit->sink->ops->remove(kit->writer, 0, SLICE_LIT("none"), &kit->diag), 0);
    kit_expect_none(kit, "a");
    kit_expect(kit, "A", 1, "{}");
}

struct beside {
    struct kit *kit;
    struct sink_session *session;
    _Atomic bool stop;
    _Atomic unsigned scans, reads;
};

static int count_row(void *context, const struct sink_row *row)
{
    size_t *n = context;
    (*n)++;
    if (row->doc.n < 2 || row->version == 0)
        return 1;
    return 0;
}

static void *read_all_the_time(void *context)
{
    struct beside *b = context;
    const struct sink_ops *ops = b->kit->sink->ops;
    size_t before = 0;
    while (!atomic_load_explicit(&b->stop, memory_order_relaxed)) { /* a flag, nothing else */
        struct diag diag;
        struct sink_row row;
        size_t n = 0;
        int rc = ops->scan(b->session, 0, (struct slice){0}, count_row, &n, &diag);
        /* what was seen once stays */
        if (rc != 0 || n < before)
            return (void *)(uintptr_t) "a scan failed or lost rows";
        before = n;
        rc = ops->read(b->session, 0, SLICE_LIT("r0000000"), &row, &diag);
        if (rc != 0 && rc != WEIR_NOT_FOUND)
            return (void *)(uintptr_t) "a read failed";
        b->scans++;
    }
    return NULL;
}

static void readers_and_the_writer_do_not_disturb_each_other(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    struct beside beside[2] = {{.kit = kit}, {.kit = kit}};
    pthread_t thread[2];
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            kit->sink->ops->session_open(kit->sink, true, &beside[i].session, &kit->diag), 0);
        pthread_create(&thread[i], NULL, read_all_the_time, &beside[i]);
    }
    char id[16];
    unsigned written = 0;
    for (int batch = 0; batch < 60 || !beside[0].scans || !beside[1].scans; batch++) {
        for (int i = 0; i < 100; i++) {
            snprintf(id, sizeof id, "r%07u", written++ % 6000);
            kit_add(kit, id, (uint64_t)batch + 1, "{\"pad\":\"xxxxxxxxxxxxxxxxxxxxxxxxx\"}");
        }
        if (kit_write(kit) != 0)
            fail_msg("%s", kit->diag.text);
    }
    for (int i = 0; i < 2; i++) {
        void *failure;
        atomic_store_explicit(&beside[i].stop, true, memory_order_relaxed);
        pthread_join(thread[i], &failure);
        if (failure)
            fail_msg("%s", (char *)failure);
        kit->sink->ops->session_close(beside[i].session);
    }
}

/* The log must be used again from its start although someone scans slowly all the time. */
static int write_meanwhile(void *context, const struct sink_row *row)
{
    struct kit *kit = context;
    static unsigned n;
    (void)row;
    if (n++ % 8 != 0)
        return 0;
    for (int i = 0; i < 400; i++) {
        char id[16];
        snprintf(id, sizeof id, "w%05d", i);
        kit_add(kit, id, n,
                "{\"pad\":\"yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy\"}");
    }
    assert_int_equal(kit_write(kit), 0);
    return 0;
}

static void a_slow_scan_does_not_hold_the_log(void **state)
{
    struct kit *kit = *state;
    kit_open(kit);
    char id[16];
    for (int i = 0; i < 4000; i++) {
        snprintf(id, sizeof id, "r%05d", i);
        kit_add(kit, id, 1, "{}");
    }
    assert_int_equal(kit_write(kit), 0);
    assert_int_equal(
        kit->sink->ops->scan(kit->reader, 0, (struct slice){0}, write_meanwhile, kit, &kit->diag),
        0);
    struct stat st;
    assert_int_equal(stat(kit_path(kit, "main.db-wal"), &st), 0);
    assert_true(st.st_size < 2 * SQLITE_CHECKPOINT_FRAMES * 4120);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        KIT_TEST(documents_come_out_as_they_went_in),
        KIT_TEST(a_document_of_a_mebibyte),
        KIT_TEST(ids_are_compared_byte_for_byte),
        KIT_TEST(a_scan_may_stop_and_go_on_anywhere),
        KIT_TEST(rows_that_weir_did_not_write_do_not_trap_a_scan),
        KIT_TEST(a_removed_id_is_gone),
        KIT_TEST(readers_and_the_writer_do_not_disturb_each_other),
        KIT_TEST(a_slow_scan_does_not_hold_the_log),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
