/* dead_power_test.c: the power goes at the Nth file operation, N swept over a run of additions,
 * drops and compactions: what was acknowledged is there, what was dropped is not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>
#include <sys/mman.h>

#include "../child.h"
#include "../scratch.h"
#include "../seeded.h"
#include "delivery/dead.h"
#include "os/fs_fault.h"

#define MOST 200

enum fate { NONE, DOUBTFUL, ADDED, DROPPED };

static struct ledger { /* shared with the child: what it was told */
    unsigned added;
    uint8_t fates[MOST];
    uint64_t numbers[MOST];
} * ledger;

static uint64_t seed;
static char *data;
static char plan[100];

static int last_number(void *context, const struct dead_letter *letter)
{
    *(uint64_t *)context = letter->number;
    return 0;
}

static void add_one(struct dead *dead)
{
    char id[16];
    unsigned i = ledger->added++;
    snprintf(id, sizeof(id), "%u", i);
    struct dead_letter letter = {.stream_name = "s",
                                 .reason = "r",
                                 .record.id = slice_of(id),
                                 .record.key = slice_of(id),
                                 .record.doc = slice_of("{}")};
    ledger->fates[i] = DOUBTFUL;
    child_check(dead_add(dead, &letter, 1, NULL) == 0);
    child_check(dead_scan(dead, last_number, &ledger->numbers[i], NULL) == 0);
    ledger->fates[i] = ADDED;
}

static void drop_one(struct dead *dead, unsigned i)
{
    if (ledger->fates[i] != ADDED)
        return;
    ledger->fates[i] = DOUBTFUL;
    child_check(dead_drop(dead, ledger->numbers[i], NULL) == 0);
    ledger->fates[i] = DROPPED;
}

static void live(void *context)
{
    struct seeded random = {*(uint64_t *)context};
    const struct fs *fs = fs_fault_install(fs_posix(), plan, NULL);
    child_check(fs);
    for (int run = 0; run < 4; run++) { /* each opening compacts */
        struct dead *dead;
        child_check(dead_open(fs, data, "main", 1 << 20, false, &dead, NULL) == 0);
        for (int i = 0; i < 6; i++) {
            add_one(dead);
            drop_one(dead, (unsigned)seeded_below(&random, ledger->added));
            drop_one(dead, (unsigned)seeded_below(&random, ledger->added));
        }
        dead_close(dead);
    }
}

static int mark(void *context, const struct dead_letter *letter)
{
    bool *there = context;
    char id[16];
    snprintf(id, sizeof(id), "%.*s", (int)letter->record.id.n, letter->record.id.p);
    there[atoi(id)] = true;
    return 0;
}

static void check(unsigned n)
{
    struct dead *dead;
    struct diag diag = {0};
    bool there[MOST] = {0};
    if (dead_open(fs_posix(), data, "main", 1 << 20, false, &dead, &diag))
        fail_msg("power cut at operation %u: %s", n, diag.text);
    assert_int_equal(dead_scan(dead, mark, there, NULL), 0);
    for (unsigned i = 0; i < ledger->added; i++)
        if (ledger->fates[i] != DOUBTFUL && there[i] != (ledger->fates[i] == ADDED))
            fail_msg("power cut at operation %u: letter %u is %s", n, i,
                     there[i] ? "back again" : "lost");
    dead_close(dead);
}

static void at_any_operation(void **state)
{
    (void)state;
    for (unsigned n = 1;; n++) {
        uint64_t this_seed = seed + n;
        data = scratch_create_fast();
        memset(ledger, 0, sizeof(*ledger));
        snprintf(plan, sizeof(plan), "seed=%llu;powercut=%u", (unsigned long long)this_seed, n);
        int status = child_run(live, &this_seed);
        if (status != 137 && status != 0)
            fail_msg("the child ended with %d", status);
        check(n);
        scratch_remove(data);
        free(data);
        if (status == 0) {
            assert_true(n > 100); /* it was swept indeed */
            break;
        }
    }
}

int main(void)
{
    seed = seeded_choose();
    ledger = mmap(NULL, sizeof(*ledger), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    const struct CMUnitTest tests[] = {cmocka_unit_test(at_any_operation)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
