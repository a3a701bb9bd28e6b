/* keys.c: Zipf by rejection-inversion (W. Hormann, G. Derflinger, "Rejection-inversion to generate
 * variates from monotone discrete distributions", ACM TOMACS 6(3), 1996): invert the integral of
 * x^-s, round to the nearest rank, and accept unless the point lies above the rank's bar. Under 1.1
 * tries on average for every n and s. */
#include "load/keys.h"

#include <math.h>

/* (e^x - 1) / x and log(1 + x) / x, exact near 0, where s = 1 lands. */
static double expm1_over(double x)
{
    return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x / 2 * (1 + x / 3 * (1 + x / 4));
}

static double log1p_over(double x)
{
    return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x * (0.5 - x * (1.0 / 3 - x / 4));
}

static double bar(const struct keys *keys, double x) /* x^-s */
{
    return exp(-keys->s * log(x));
}

static double integral(const struct keys *keys, double x) /* (x^(1-s) - 1) / (1 - s) */
{
    double l = log(x);
    return expm1_over((1 - keys->s) * l) * l;
}

static double inverse(const struct keys *keys, double x)
{
    double t = x * (1 - keys->s);
    if (t < -1)
        t = -1; /* rounding can step outside the domain */
    return exp(log1p_over(t) * x);
}

void keys_init(struct keys *keys, uint64_t n, double s)
{
    *keys = (struct keys){.n = n, .s = s};
    if (s <= 0)
        return;
    keys->h_first = integral(keys, 1.5) - 1;
    keys->h_last = integral(keys, (double)n + 0.5);
    keys->shortcut = 2 - inverse(keys, integral(keys, 2.5) - bar(keys, 2));
}

uint64_t keys_next(const struct keys *keys, struct rng *rng)
{
    if (keys->n == 1)
        return 0;
    if (keys->s <= 0)
        return rng_below(rng, keys->n);
    for (;;) {
        double u = keys->h_last + rng_unit(rng) * (keys->h_first - keys->h_last);
        double x = inverse(keys, u);
        double k = floor(x + 0.5);
        if (k < 1)
            k = 1;
        else if (k > (double)keys->n)
            k = (double)keys->n;
        if (k - x <= keys->shortcut || u >= integral(keys, k + 0.5) - bar(keys, k))
            return (uint64_t)k - 1;
    }
}
