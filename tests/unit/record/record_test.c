/* record: chunks and batches hold exactly the references that they promise; ack levels by name. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "record/record.h"
#include "weir/err.h"

static struct record record_in(struct chunk *chunk, size_t id, size_t key, size_t doc)
{
    return (struct record){.id = {chunk->data, id},
                           .key = {chunk->data + id, key},
                           .doc = {chunk->data + id + key, doc}};
}

static unsigned refs(struct chunk *chunk)
{
    return atomic_load_explicit(&chunk->refs, memory_order_relaxed);
}

static void test_chunks(void **state)
{
    (void)state;
    struct chunk *chunk = chunk_create(100);
    assert_int_equal(chunk->bytes, 100);
    memset(chunk->data, 'x', 100);
    chunk_ref(chunk);
    assert_int_equal(refs(chunk), 2);
    chunk_unref(chunk);
    chunk_unref(chunk);
    chunk_unref(NULL);
    chunk_ref(NULL);
}

static void test_a_batch_counts_bytes_and_references(void **state)
{
    (void)state;
    struct chunk *chunks[3];
    struct batch batch;
    batch_init(&batch);
    for (unsigned i = 0; i < 3; i++)
        chunks[i] = chunk_create(64);
    for (unsigned i = 0; i < 300; i++) {
        struct record record = record_in(chunks[i % 3], 3, 4, i % 50);
        record.version = i;
        batch_add(&batch, &record, chunks[i % 3]);
    }
    assert_int_equal(batch.n, 300);
    size_t bytes = 0;
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(batch.records[i].version, i);
        assert_ptr_equal(batch.chunks[i], chunks[i % 3]);
        bytes += 7 + i % 50;
    }
    assert_int_equal(batch.bytes, bytes);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(refs(chunks[i]), 101);
    batch_clear(&batch);
    assert_int_equal(batch.n, 0);
    assert_int_equal(batch.bytes, 0);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(refs(chunks[i]), 1);

    /* A batch alone keeps a chunk alive. */
    struct record record = record_in(chunks[0], 1, 1, 1);
    batch_add(&batch, &record, chunks[0]);
    for (unsigned i = 0; i < 3; i++)
        chunk_unref(chunks[i]);
    memset(chunks[0]->data, 'y', 64);
    batch_fini(&batch);
    assert_null(batch.records);
}

static void test_a_record_may_come_from_the_batch_itself(void **state)
{
    (void)state;
    struct batch batch;
    struct record record = {.version = 7};
    batch_init(&batch);
    batch_add(&batch, &record, NULL);
    for (unsigned i = 0; i < 100; i++)
        batch_add(&batch, &batch.records[0], NULL);
    assert_int_equal(batch.records[100].version, 7);
    batch_fini(&batch);
}

static void test_ack_levels(void **state)
{
    (void)state;
    static const char *const names[] = {"received", "durable", "stored", "everywhere"};
    for (unsigned i = 0; i < 4; i++) {
        enum ack_level level;
        assert_int_equal(ack_level_parse(slice_of(names[i]), &level), 0);
        assert_int_equal(level, i);
        assert_string_equal(ack_level_name(level), names[i]);
    }
    static const char *const bad[] = {"", "Durable", "durabl", "durable ", "store", "none"};
    for (unsigned i = 0; i < 6; i++) {
        enum ack_level level = ACK_STORED;
        assert_int_equal(ack_level_parse(slice_of(bad[i]), &level), WEIR_SYNTAX);
        assert_int_equal(level, ACK_STORED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chunks),
        cmocka_unit_test(test_a_batch_counts_bytes_and_references),
        cmocka_unit_test(test_a_record_may_come_from_the_batch_itself),
        cmocka_unit_test(test_ack_levels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
