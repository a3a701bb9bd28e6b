/* reconcile.h: the halves of `weir reconcile`: reconcile.c compares, reconcile_print.c says what
 * was found. One thread. */
#ifndef WEIR_CLI_RECONCILE_H
#define WEIR_CLI_RECONCILE_H

#include "cli/cli.h"
#include "delivery/reconcile.h"

#define RECONCILE_SHOWN 20 /* ids of each kind, for people */

struct reconcile_print {
    bool json;
    bool progress; /* standard error is a terminal */
    bool repair;
    /* the comparison under way */
    const char *sink, *stream, *reference;
    struct buf shown[4]; /* lines, by enum difference */
    uint64_t n_shown[4];
    size_t n_differences, n_comparisons;
};

void reconcile_print_begin(struct reconcile_print *print);
void reconcile_print_comparison(struct reconcile_print *print, const char *sink, const char *stream,
                                const char *reference);
/* As reconcile_config.found and .progress. */
void reconcile_print_found(struct reconcile_print *print, enum difference what, struct slice id,
                           const char *detail);
void reconcile_print_progress(struct reconcile_print *print, uint64_t compared);
/* Ends the comparison. error NULL: *result says what was found. */
void reconcile_print_result(struct reconcile_print *print, const struct reconcile_result *result,
                            const char *error);
/* CLI_CANNOT when standard output could not take it. */
int reconcile_print_end(struct reconcile_print *print, const struct buf *skipped, int code);

#endif
