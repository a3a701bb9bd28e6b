/* encoding: gzip comes out as it went in, a bomb costs no more than the limit, damage is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>
#include <zlib.h>

#include "../seeded.h"
#include "base/mem.h"
#include "gateway/encoding.h"

static struct inflater *inflater;

static struct buf gzip(const char *p, size_t n)
{
    struct buf out = {0};
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    buf_reserve(&out, deflateBound(&z, n) + 64);
    z.next_in = (Bytef *)(uintptr_t)p;
    z.avail_in = (uInt)n;
    z.next_out = (Bytef *)out.p;
    z.avail_out = (uInt)out.capacity;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    out.n = z.total_out;
    deflateEnd(&z);
    return out;
}

static int run(struct slice in, size_t max, struct buf *out, struct problem *problem)
{
    char *p;
    buf_fini(out);
    int status = inflater_run(inflater, in, max, 64, &p, &out->n, problem);
    out->p = status ? NULL : p;
    out->capacity = out->n + 64;
    return status;
}

static void test_round_trips(void **state)
{
    (void)state;
    struct seeded random = {seeded_choose()};
    struct buf out = {0};
    struct problem problem;
    for (int i = 0; i < 200; i++) {
        size_t n = seeded_below(&random, i < 100 ? 300 : 60000);
        char *text = mem_alloc(n);
        unsigned alphabet = i % 2 ? 256 : 3;
        for (size_t k = 0; k < n; k++)
            text[k] = (char)seeded_below(&random, alphabet);
        struct buf packed = gzip(text, n);
        assert_int_equal(run(buf_slice(&packed), n, &out, &problem), 0); /* exactly the limit */
        assert_int_equal(out.n, n);
        if (n)
            assert_memory_equal(out.p, text, n);
        if (n > 0)
            assert_int_equal(run(buf_slice(&packed), n - 1, &out, &problem), 413);
        buf_fini(&packed);
        mem_free(text);
    }
    buf_fini(&out);
}

static void test_members_in_a_row(void **state)
{
    (void)state;
    struct buf out = {0}, two = gzip("hello ", 6), second = gzip("world", 5);
    struct problem problem;
    buf_put_slice(&two, buf_slice(&second));
    assert_int_equal(run(buf_slice(&two), 100, &out, &problem), 0);
    assert_int_equal(out.n, 11);
    assert_memory_equal(out.p, "hello world", 11);
    assert_int_equal(run(buf_slice(&two), 10, &out, &problem), 413);
    buf_fini(&two);
    buf_fini(&second);
    buf_fini(&out);
}

static void test_a_bomb_stops_at_the_limit(void **state)
{
    (void)state;
    size_t n = 64 << 20;
    char *zeros = calloc(1, n);
    struct buf out = {0}, bomb = gzip(zeros, n);
    struct problem problem;
    free(zeros);
    assert_true(bomb.n < 100000);
    assert_int_equal(run(buf_slice(&bomb), 1 << 20, &out, &problem), 413);
    assert_non_null(strstr(problem.detail, "1048576"));
    buf_fini(&bomb);
    buf_fini(&out);
}

static void test_damage_is_400_and_the_next_is_read(void **state)
{
    (void)state;
    static const char text[] = "{\"id\":\"a\",\"text\":\"aaaaaaaaaaaaaaaaaaaaaaaaaaa\"}";
    size_t text_n = sizeof(text) - 1;
    struct buf out = {0}, good = gzip(text, text_n);
    struct problem problem;
    for (size_t n = 0; n < good.n; n++) {
        assert_int_equal(run((struct slice){good.p, n}, 1000, &out, &problem), 400);
        assert_non_null(strstr(problem.detail, "gzip"));
    }
    for (size_t bit = 0; bit < good.n * 8; bit++) {
        if (bit / 8 >= 4 && bit / 8 < 10)
            continue; /* time, flags and system in the header say nothing about the content */
        good.p[bit / 8] ^= (char)(1 << bit % 8);
        int status = run(buf_slice(&good), 1000, &out, &problem);
        if (status == 0) { /* a bit that means nothing: between the last block and its byte's end */
            assert_int_equal(out.n, text_n);
            assert_memory_equal(out.p, text, text_n);
        }
        good.p[bit / 8] ^= (char)(1 << bit % 8);
    }
    buf_put_str(&good, "junk");
    assert_int_equal(run(buf_slice(&good), 1000, &out, &problem), 400);
    good.n -= 4;
    assert_int_equal(run(buf_slice(&good), 1000, &out, &problem), 0);
    assert_int_equal(out.n, text_n);
    buf_fini(&good);
    buf_fini(&out);
}

static void test_names(void **state)
{
    (void)state;
    assert_int_equal(encoding_of((struct slice){0}), ENCODING_NONE);
    assert_int_equal(encoding_of(slice_of("identity")), ENCODING_NONE);
    assert_int_equal(encoding_of(slice_of("GZip")), ENCODING_GZIP);
    assert_int_equal(encoding_of(slice_of("x-gzip")), ENCODING_GZIP);
    const char *unknown[] = {"br", "deflate", "zstd", "gzip, gzip", "gzip,br", "gzi", "gzip "};
    for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
        assert_int_equal(encoding_of(slice_of(unknown[i])), ENCODING_UNKNOWN);
}

static int set_up(void **state)
{
    (void)state;
    inflater = inflater_create();
    return inflater ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    inflater_destroy(inflater);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_members_in_a_row),
        cmocka_unit_test(test_a_bomb_stops_at_the_limit),
        cmocka_unit_test(test_damage_is_400_and_the_next_is_read),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
