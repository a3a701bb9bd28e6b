/* histogram.c: a log-linear histogram (see histogram.h).
 *
 * Cells: values below 2^8 have one each; above, every power of two is cut into 2^7 cells of equal
 * width, so a cell is narrower than 1/128 of any value in it. The layout is HdrHistogram's with
 * seven sub-bucket bits (G. Tene, hdrhistogram.org).
 *
 * Threads: one writer, which may load and store instead of adding atomically; readers load. All
 * accesses are relaxed: each cell is a number of its own, and no reader is promised one moment. */
#include "base/histogram.h"

#include <inttypes.h>
#include <stdbool.h>

#include "base/mem.h"
#include "weir/err.h"

enum {
    SUB_BITS = 7,
    SUB = 1 << SUB_BITS,
    CELLS = 2 * SUB + (64 - SUB_BITS - 1) * SUB,
};

struct histogram {
    _Atomic uint64_t count, sum, min, max;
    _Atomic uint64_t cells[CELLS];
};

static uint64_t get(const _Atomic uint64_t *cell)
{
    return atomic_load_explicit(cell, memory_order_relaxed);
}

static void set(_Atomic uint64_t *cell, uint64_t v)
{
    atomic_store_explicit(cell, v, memory_order_relaxed);
}

static unsigned cell_of(uint64_t value)
{
    if (value < 2 * SUB)
        return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - SUB_BITS;
    return shift * SUB + (unsigned)(value >> shift);
}

/* The highest value of a cell. */
static uint64_t cell_high(unsigned cell)
{
    if (cell < 2 * SUB)
        return cell;
    unsigned shift = cell / SUB - 1;
    uint64_t low = (uint64_t)(cell % SUB + SUB) << shift;
    return low + ((1ull << shift) - 1);
}

struct histogram *histogram_create(void)
{
    struct histogram *h = mem_zalloc(sizeof *h);
    set(&h->min, UINT64_MAX);
    return h;
}

void histogram_destroy(struct histogram *h)
{
    mem_free(h);
}

void histogram_reset(struct histogram *h)
{
    for (unsigned i = 0; i < CELLS; i++)
        set(&h->cells[i], 0);
    set(&h->count, 0);
    set(&h->sum, 0);
    set(&h->max, 0);
    set(&h->min, UINT64_MAX);
}

void histogram_record_n(struct histogram *h, uint64_t value, uint64_t n)
{
    if (n == 0)
        return;
    _Atomic uint64_t *cell = &h->cells[cell_of(value)];
    set(cell, get(cell) + n);
    set(&h->count, get(&h->count) + n);
    set(&h->sum, get(&h->sum) + value * n);
    if (value > get(&h->max))
        set(&h->max, value);
    if (value < get(&h->min))
        set(&h->min, value);
}

void histogram_record(struct histogram *h, uint64_t value)
{
    histogram_record_n(h, value, 1);
}

void histogram_add(struct histogram *into, const struct histogram *from)
{
    for (unsigned i = 0; i < CELLS; i++) {
        uint64_t n = get(&from->cells[i]);
        if (n)
            set(&into->cells[i], get(&into->cells[i]) + n);
    }
    set(&into->count, get(&into->count) + get(&from->count));
    set(&into->sum, get(&into->sum) + get(&from->sum));
    if (get(&from->max) > get(&into->max))
        set(&into->max, get(&from->max));
    if (get(&from->min) < get(&into->min))
        set(&into->min, get(&from->min));
}

uint64_t histogram_count(const struct histogram *h)
{
    return get(&h->count);
}

uint64_t histogram_sum(const struct histogram *h)
{
    return get(&h->sum);
}

uint64_t histogram_max(const struct histogram *h)
{
    return get(&h->max);
}

uint64_t histogram_min(const struct histogram *h)
{
    uint64_t min = get(&h->min);
    return min == UINT64_MAX && get(&h->count) == 0 ? 0 : min;
}

double histogram_mean(const struct histogram *h)
{
    uint64_t count = get(&h->count);
    return count ? (double)get(&h->sum) / (double)count : 0;
}

uint64_t histogram_quantile(const struct histogram *h, double q)
{
    /* Counted from the cells and not from `count`: a reader must not look for a rank that the
     * cells it has read do not reach. */
    uint64_t total = 0;
    for (unsigned i = 0; i < CELLS; i++)
        total += get(&h->cells[i]);
    if (total == 0)
        return 0;
    uint64_t max = get(&h->max);
    if (!(q > 0))
        q = 0;
    if (q >= 1)
        return max;
    /* The rank is the smallest whole number that is at least q of all. */
    double exact = q * (double)total;
    uint64_t rank = (uint64_t)exact;
    if ((double)rank < exact || rank == 0)
        rank++;
    uint64_t below = 0;
    for (unsigned i = 0; i < CELLS; i++) {
        below += get(&h->cells[i]);
        if (below >= rank) {
            uint64_t high = cell_high(i);
            return high < max ? high : max;
        }
    }
    return max;
}

uint64_t histogram_count_below(const struct histogram *h, uint64_t bound)
{
    uint64_t n = 0;
    unsigned last = cell_of(bound);
    for (unsigned i = 0; i <= last; i++)
        n += get(&h->cells[i]);
    return n;
}

/* "h1;SUM;MIN;MAX;STEP:COUNT,STEP:COUNT": the cells that are not empty, STEP from the one before
 * (from -1 at first). */
void histogram_encode(const struct histogram *h, struct buf *out)
{
    buf_printf(out, "h1;%" PRIu64 ";%" PRIu64 ";%" PRIu64 ";", get(&h->sum), histogram_min(h),
               get(&h->max));
    unsigned next = 0;
    bool first = true;
    for (unsigned i = 0; i < CELLS; i++) {
        uint64_t n = get(&h->cells[i]);
        if (n == 0)
            continue;
        if (!first)
            buf_put_char(out, ',');
        buf_put_u64(out, i + 1 - next);
        buf_put_char(out, ':');
        buf_put_u64(out, n);
        next = i + 1;
        first = false;
    }
}

static bool take_number(struct slice *text, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;
    for (; i < text->n && text->p[i] >= '0' && text->p[i] <= '9'; i++) {
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(text->p[i] - '0'), &v))
            return false;
    }
    if (i == 0)
        return false;
    text->p += i;
    text->n -= i;
    *out = v;
    return true;
}

static bool take_char(struct slice *text, char c)
{
    if (text->n == 0 || text->p[0] != c)
        return false;
    text->p++;
    text->n--;
    return true;
}

/* Walks the cells of an encoded histogram; adds them to `h` unless it is NULL. */
static bool walk_cells(struct slice text, struct histogram *h, uint64_t *total, unsigned *lowest,
                       unsigned *highest)
{
    uint64_t cell = 0; /* one past the cell before */
    bool first = true;
    *total = 0;
    while (text.n) {
        uint64_t step, n;
        if (!first && !take_char(&text, ','))
            return false;
        if (!take_number(&text, &step) || !take_char(&text, ':') || !take_number(&text, &n))
            return false;
        if (step == 0 || step > CELLS || cell + step > CELLS || n == 0 ||
            __builtin_add_overflow(*total, n, total))
            return false;
        cell += step;
        if (first)
            *lowest = (unsigned)cell - 1;
        *highest = (unsigned)cell - 1;
        if (h)
            set(&h->cells[cell - 1], get(&h->cells[cell - 1]) + n);
        first = false;
    }
    return true;
}

int histogram_decode(struct histogram *h, struct slice text)
{
    uint64_t sum, min, max, total;
    unsigned lowest = 0, highest = 0;
    if (!take_char(&text, 'h') || !take_char(&text, '1') || !take_char(&text, ';') ||
        !take_number(&text, &sum) || !take_char(&text, ';') || !take_number(&text, &min) ||
        !take_char(&text, ';') || !take_number(&text, &max) || !take_char(&text, ';'))
        return WEIR_SYNTAX;
    /* Checked whole before anything is added: a bad text changes nothing. */
    if (!walk_cells(text, NULL, &total, &lowest, &highest))
        return WEIR_SYNTAX;
    if (total == 0)
        return sum || min || max ? WEIR_SYNTAX : 0;
    if (cell_of(min) != lowest || cell_of(max) != highest)
        return WEIR_SYNTAX;
    walk_cells(text, h, &total, &lowest, &highest);
    set(&h->count, get(&h->count) + total);
    set(&h->sum, get(&h->sum) + sum);
    if (max > get(&h->max))
        set(&h->max, max);
    if (min < get(&h->min))
        set(&h->min, min);
    return 0;
}
