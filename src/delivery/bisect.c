/* bisect.c: see bisect.h. */
#include "delivery/bisect.h"

#include <assert.h>

static struct bisect_span *front(struct bisect *b)
{
    return &b->spans[b->depth - 1];
}

static void spend(struct bisect *b)
{
    if (b->budget && --b->budget == 0)
        b->single = true;
}

void bisect_begin(struct bisect *b, size_t n, unsigned budget)
{
    assert(n > 1);
    *b = (struct bisect){.depth = 1, .budget = budget, .single = budget == 0};
    b->spans[0] = (struct bisect_span){.n = n, .bad = true};
}

void bisect_reset(struct bisect *b)
{
    b->depth = 0;
}

size_t bisect_take(struct bisect *b)
{
    assert(b->depth > 0);
    if (b->single)
        return 1;
    while (front(b)->bad && front(b)->n > 1) {
        struct bisect_span *span = front(b);
        assert(b->depth < BISECT_DEPTH);
        size_t left = span->n / 2;
        *span = (struct bisect_span){.n = span->n - left, .bad_if_others = true};
        b->spans[b->depth++] = (struct bisect_span){.n = left};
    }
    return front(b)->n;
}

/* The front span is known to hold a bad record: that explains its parent, so what is behind it in
 * the same parent may well be clean. */
static void explained(struct bisect *b)
{
    front(b)->bad = true;
    if (b->depth > 1)
        b->spans[b->depth - 2].bad_if_others = false;
}

void bisect_refused(struct bisect *b, size_t taken)
{
    assert(b->depth > 0 && taken > 1 && taken <= front(b)->n);
    (void)taken;
    spend(b);
    explained(b);
}

void bisect_answered(struct bisect *b, size_t taken, size_t left, bool clean)
{
    assert(b->depth > 0 && taken <= front(b)->n && left <= taken);
    spend(b);
    if (!clean)
        explained(b);
    front(b)->n -= taken - left;
    if (!clean)
        front(b)->bad = false; /* what is left of it may be good */
    if (front(b)->n > 0)
        return;
    b->depth--;
    if (b->depth && front(b)->bad_if_others)
        *front(b) = (struct bisect_span){.n = front(b)->n, .bad = true};
}
