/* fs_fault_plan.h: the text of a fault plan, taken apart (see fs_fault.h for its items). */
#ifndef WEIR_OS_FS_FAULT_PLAN_H
#define WEIR_OS_FS_FAULT_PLAN_H

#include "base/diag.h"
#include "os/fs_fault.h"

#define FAULT_FAILURES_MAX 8

struct fault_plan {
    uint64_t seed;
    struct fault_failure {
        int error;         /* EIO or ENOSPC */
        bool short_write;  /* SHORT */
        uint64_t from, to; /* operations, both included */
    } failures[FAULT_FAILURES_MAX];
    unsigned n_failures;
    unsigned ops;                   /* bit 1 << enum fs_op: counted */
    char *path;                     /* NULL: all */
    uint64_t powercut, powercut_ms; /* 0: none */
    bool count;
};

/* WEIR_SYNTAX and *diag names the item; *out needs fault_plan_fini only after 0. */
int fault_plan_parse(const char *text, struct fault_plan *out, struct diag *diag);
void fault_plan_fini(struct fault_plan *plan);

/* Whether the plan counts this operation. */
bool fault_plan_counts(const struct fault_plan *plan, enum fs_op op, const char *path);
/* What the Nth counted operation must fail with; NULL: nothing. */
const struct fault_failure *fault_plan_failure(const struct fault_plan *plan, uint64_t number);

#endif
