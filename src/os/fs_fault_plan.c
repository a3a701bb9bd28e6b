/* fs_fault_plan.c: reads a fault plan (see fs_fault_plan.h). Strict: a plan that is misspelt would
 * test nothing and pass. */
#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/slice.h"
#include "os/fs_fault_plan.h"

static const char *const op_names[] = {
    [FS_OP_OPEN] = "open",     [FS_OP_READ] = "read",         [FS_OP_WRITE] = "write",
    [FS_OP_SYNC] = "sync",     [FS_OP_TRUNCATE] = "truncate", [FS_OP_UNLINK] = "unlink",
    [FS_OP_RENAME] = "rename", [FS_OP_MKDIR] = "mkdir",       [FS_OP_SYNC_DIR] = "sync_dir",
    [FS_OP_LIST] = "list",
};
#define N_OPS (sizeof op_names / sizeof op_names[0])

/* Cuts `rest` at the first `at`; false when it holds none: then *head is all of it. */
static bool split(struct slice *rest, char at, struct slice *head)
{
    const char *p = rest->n ? memchr(rest->p, at, rest->n) : NULL;
    *head = *rest;
    if (!p) {
        *rest = (struct slice){NULL, 0};
        return false;
    }
    head->n = (size_t)(p - rest->p);
    rest->n -= head->n + 1;
    rest->p = p + 1;
    return true;
}

static bool number(struct slice text, uint64_t *out)
{
    uint64_t n = 0;
    if (text.n == 0 || text.n > 19)
        return false;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            return false;
        n = n * 10 + (uint64_t)(text.p[i] - '0');
    }
    *out = n;
    return true;
}

/* EIO|ENOSPC|SHORT @ N, N+ or N-M */
static bool failure(struct slice text, struct fault_failure *out)
{
    struct slice kind, from;
    if (!split(&text, '@', &kind))
        return false;
    *out = (struct fault_failure){.error = EIO};
    if (slice_is(kind, "ENOSPC"))
        out->error = ENOSPC;
    else if (slice_is(kind, "SHORT"))
        out->short_write = true;
    else if (!slice_is(kind, "EIO"))
        return false;
    if (text.n && text.p[text.n - 1] == '+') {
        text.n--;
        out->to = UINT64_MAX;
        return number(text, &out->from) && out->from > 0;
    }
    if (split(&text, '-', &from))
        return number(from, &out->from) && number(text, &out->to) && out->from > 0 &&
               out->from <= out->to;
    out->to = 0;
    if (!number(from, &out->from) || out->from == 0)
        return false;
    out->to = out->from;
    return true;
}

static bool operations(struct slice text, unsigned *out)
{
    unsigned ops = 0;
    bool more;
    do {
        struct slice name;
        more = split(&text, ',', &name);
        size_t i = 0;
        while (i < N_OPS && !slice_is(name, op_names[i]))
            i++;
        if (i == N_OPS)
            return false;
        ops |= 1u << i;
    } while (more);
    *out = ops;
    return true;
}

static bool item(struct fault_plan *plan, struct slice name, bool has_value, struct slice value)
{
    if (!has_value) {
        plan->count = true;
        return slice_is(name, "count");
    }
    if (slice_is(name, "seed"))
        return number(value, &plan->seed);
    if (slice_is(name, "fail"))
        return plan->n_failures < FAULT_FAILURES_MAX &&
               failure(value, &plan->failures[plan->n_failures++]);
    if (slice_is(name, "ops"))
        return operations(value, &plan->ops);
    if (slice_is(name, "powercut"))
        return number(value, &plan->powercut) && plan->powercut > 0;
    if (slice_is(name, "powercut-ms"))
        return number(value, &plan->powercut_ms) && plan->powercut_ms > 0;
    if (slice_is(name, "path") && value.n > 0) {
        mem_free(plan->path);
        plan->path = mem_printf("%.*s", (int)value.n, value.p);
        return true;
    }
    return false;
}

int fault_plan_parse(const char *text, struct fault_plan *out, struct diag *diag)
{
    struct fault_plan plan = {.ops = (1u << N_OPS) - 1};
    plan.seed = clock_wall_ms() * 1000003 + (uint64_t)getpid();
    struct slice rest = slice_of(text);
    bool more = rest.n > 0;
    while (more) {
        struct slice whole, value, name;
        more = split(&rest, ';', &whole);
        if (whole.n == 0)
            continue; /* a ';' too many does no harm */
        value = whole;
        bool has_value = split(&value, '=', &name);
        if (!item(&plan, name, has_value, value)) {
            fault_plan_fini(&plan);
            return diag_set(diag, WEIR_SYNTAX,
                            "fault plan: not understood: \"%.*s\" (fs_fault.h "
                            "lists the items)",
                            (int)whole.n, whole.p);
        }
    }
    *out = plan;
    return 0;
}

void fault_plan_fini(struct fault_plan *plan)
{
    mem_free(plan->path);
    plan->path = NULL;
}

bool fault_plan_counts(const struct fault_plan *plan, enum fs_op op, const char *path)
{
    return (plan->ops >> op & 1) && (!plan->path || strstr(path, plan->path));
}

const struct fault_failure *fault_plan_failure(const struct fault_plan *plan, uint64_t operation)
{
    for (unsigned i = 0; i < plan->n_failures; i++)
        if (operation >= plan->failures[i].from && operation <= plan->failures[i].to)
            return &plan->failures[i];
    return NULL;
}
