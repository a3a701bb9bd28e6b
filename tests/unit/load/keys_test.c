/* keys: the chosen keys follow the distribution that was asked for (chi-squared against the exact
 * probabilities), for exponents below, at and above 1, and for the smallest and largest n. */
#include "cmocka_all.h"

#include <math.h>
#include <string.h>

#include "../seeded.h"
#include "load/keys.h"

static uint64_t seed;

/* Draws from n keys; the first `cells - 1` keys have a cell each, the last holds the others. */
static double chi_squared(uint64_t n, double s, unsigned cells, unsigned draws)
{
    struct keys keys;
    struct rng rng = {seed};
    double expected[64] = {0}, total = 0, chi = 0;
    unsigned seen[64] = {0};
    keys_init(&keys, n, s);
    for (unsigned i = 0; i < draws; i++) {
        uint64_t k = keys_next(&keys, &rng);
        assert_true(k < n);
        seen[k < cells ? k : cells - 1]++;
    }
    for (uint64_t k = 0; k < n; k++) {
        double p = pow((double)k + 1, -s);
        expected[k < cells ? k : cells - 1] += p;
        total += p;
    }
    for (unsigned i = 0; i < cells; i++) {
        double e = expected[i] / total * draws;
        assert_true(e > 5); /* else the test says nothing */
        chi += (seen[i] - e) * (seen[i] - e) / e;
    }
    return chi;
}

/* Mean cells - 1, deviation sqrt(2 (cells - 1)): six of them are never passed by chance. */
static void expect_fit(uint64_t n, double s, unsigned cells)
{
    double limit = cells - 1 + 6 * sqrt(2.0 * (cells - 1));
    double chi = chi_squared(n, s, cells, 200000);
    if (chi > limit)
        fail_msg("n %llu, s %g: chi squared %g over %g", (unsigned long long)n, s, chi, limit);
}

static void test_zipf(void **state)
{
    (void)state;
    static const double exponents[] = {0.3, 0.5, 0.99, 1.0, 1.01, 1.5, 2.0};
    for (unsigned i = 0; i < sizeof exponents / sizeof *exponents; i++) {
        expect_fit(2, exponents[i], 2);
        expect_fit(20, exponents[i], 20);
        expect_fit(10000, exponents[i], 10);
    }
}

static void test_uniform(void **state)
{
    (void)state;
    expect_fit(2, 0, 2);
    expect_fit(50, 0, 50);
}

static void test_edges(void **state)
{
    (void)state;
    struct keys keys;
    struct rng rng = {seed};
    static const double exponents[] = {0, 0.01, 1, 20};
    static const uint64_t sizes[] = {1, 2, 100000000, (uint64_t)1 << 53};
    for (unsigned s = 0; s < 4; s++)
        for (unsigned n = 0; n < 4; n++) {
            keys_init(&keys, sizes[n], exponents[s]);
            for (int i = 0; i < 2000; i++)
                assert_true(keys_next(&keys, &rng) < sizes[n]);
        }
}

static void test_a_hot_key_is_hot(void **state)
{
    (void)state;
    struct keys keys;
    struct rng rng = {seed};
    unsigned first = 0;
    keys_init(&keys, 1000000, 1.2);
    for (int i = 0; i < 100000; i++)
        first += keys_next(&keys, &rng) == 0;
    assert_in_range(first, 17000, 22000); /* 1 / zeta_1000000(1.2) = 0.196 */
}

int main(void)
{
    seed = seeded_choose();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_zipf),
        cmocka_unit_test(test_uniform),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_a_hot_key_is_hot),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
