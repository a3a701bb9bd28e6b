/* reconcile_print.c: what `weir reconcile` says (see reconcile.h).
 *
 * For people: a line for each sink and stream, and the first ids of each kind beneath it. With
 * --json one document, which names every difference; they are written as they are found, so that
 * their number does not matter to memory. */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "cli/reconcile.h"

static const char *const kinds[] = {
    [DIFFERENCE_MISSING] = "missing",
    [DIFFERENCE_EXTRA] = "extra",
    [DIFFERENCE_CONTENT] = "different",
    [DIFFERENCE_LAG] = "lag",
};

static void put(struct buf *out)
{
    if (out->n)
        fwrite(out->p, 1, out->n, stdout);
    buf_fini(out);
}

void reconcile_print_begin(struct reconcile_print *print)
{
    if (print->json)
        fputs("{\"sinks\":[", stdout);
}

void reconcile_print_comparison(struct reconcile_print *print, const char *sink, const char *stream,
                                const char *reference)
{
    struct buf out = {0};
    print->sink = sink;
    print->stream = stream;
    print->reference = reference;
    print->n_differences = 0;
    memset(print->n_shown, 0, sizeof print->n_shown);
    if (!print->json)
        return;
    buf_put_str(&out, print->n_comparisons++ ? ",\n{\"sink\":" : "\n{\"sink\":");
    buf_put_json_string(&out, slice_of(sink));
    buf_put_str(&out, ",\"stream\":");
    buf_put_json_string(&out, slice_of(stream));
    buf_put_str(&out, ",\"reference\":");
    buf_put_json_string(&out, slice_of(reference));
    buf_put_str(&out, ",\"differences\":[");
    put(&out);
}

void reconcile_print_found(struct reconcile_print *print, enum difference what, struct slice id,
                           const char *detail)
{
    struct buf *shown = &print->shown[what], out = {0};
    if (!print->json) {
        if (print->n_shown[what]++ >= RECONCILE_SHOWN)
            return;
        /* Ids are strangers' text: quoted, so that they cannot play with the terminal. */
        buf_put_str(shown, "    ");
        buf_put_json_string(shown, id);
        buf_printf(shown, "  %s\n", detail);
        return;
    }
    buf_printf(&out, "%s{\"kind\":\"%s\",\"id\":", print->n_differences++ ? ",\n " : "\n ",
               kinds[what]);
    buf_put_json_string(&out, id);
    buf_put_str(&out, ",\"detail\":");
    buf_put_json_string(&out, slice_of(detail));
    buf_put_char(&out, '}');
    put(&out);
}

void reconcile_print_progress(struct reconcile_print *print, uint64_t compared)
{
    if (print->progress)
        fprintf(stderr, "\r%s, %s: %" PRIu64 " compared", print->sink, print->stream, compared);
}

static void print_json_result(const struct reconcile_result *r, const char *error)
{
    struct buf out = {0};
    if (error) {
        buf_put_str(&out, "],\"error\":");
        buf_put_json_string(&out, slice_of(error));
        buf_put_char(&out, '}');
    } else {
        buf_printf(&out,
                   "],\"compared\":%" PRIu64 ",\"equal\":%" PRIu64 ",\"missing\":%" PRIu64
                   ",\"extra\":%" PRIu64 ",\"different\":%" PRIu64 ",\"lag\":%" PRIu64
                   ",\"repaired\":%" PRIu64 ",\"not_repairable\":%" PRIu64 "}",
                   r->compared, r->equal, r->missing, r->extra, r->different, r->lag, r->repaired,
                   r->not_repairable);
    }
    put(&out);
}

static void print_shown(struct reconcile_print *print, enum difference what, uint64_t n)
{
    if (n > RECONCILE_SHOWN)
        printf("  %s, the first %d (--json names all):\n", kinds[what], RECONCILE_SHOWN);
    else if (n)
        printf("  %s:\n", kinds[what]);
    put(&print->shown[what]);
}

void reconcile_print_result(struct reconcile_print *print, const struct reconcile_result *r,
                            const char *error)
{
    if (print->progress)
        fputs("\r\033[K", stderr);
    if (error)
        fprintf(stderr, "weir reconcile: sink %s, stream %s: %s\n", print->sink, print->stream,
                error);
    if (print->json) {
        print_json_result(r, error);
        return;
    }
    if (!error) {
        printf("sink %s, stream %s, against %s: %" PRIu64 " compared, %" PRIu64 " equal, %" PRIu64
               " missing, %" PRIu64 " extra, %" PRIu64 " different, %" PRIu64 " lag\n",
               print->sink, print->stream, print->reference, r->compared, r->equal, r->missing,
               r->extra, r->different, r->lag);
        if (print->repair)
            printf("  %" PRIu64 " repaired, %" PRIu64 " not repairable\n", r->repaired,
                   r->not_repairable);
    }
    for (int what = DIFFERENCE_MISSING; what <= DIFFERENCE_LAG; what++)
        print_shown(print, (enum difference)what, print->n_shown[what]);
}

int reconcile_print_end(struct reconcile_print *print, const struct buf *skipped, int code)
{
    if (print->json)
        printf("\n],\"skipped\":[%.*s],\"holds\":%s}\n", (int)skipped->n,
               skipped->n ? skipped->p : "", code == CLI_DONE ? "true" : "false");
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    fprintf(stderr, "weir reconcile: standard output: %s\n", strerror(errno));
    return CLI_CANNOT;
}
