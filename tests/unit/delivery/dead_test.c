/* dead_test.c: dead letters: what is added is there, whatever happens to the file afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "../seeded.h"
#include "base/buf.h"
#include "delivery/dead_file.h"
#include "trial_fs.h"

#define CAP (UINT64_C(1) << 30)

static uint64_t seed;
static char *data;

static int begin(void **state)
{
    (void)state;
    trial_reset();
    data = trial_directory();
    return 0;
}

static int end(void **state)
{
    (void)state;
    trial_remove(data);
    return 0;
}

static struct dead *open_dead(bool read_only)
{
    struct dead *dead;
    struct diag diag = {0};
    if (dead_open(trial_fs(), data, "main", CAP, read_only, &dead, &diag) != 0)
        fail_msg("%s", diag.text);
    return dead;
}

static const char *file_path(void)
{
    static char path[300];
    snprintf(path, sizeof(path), "%s/dead/main", data);
    return path;
}

static size_t file_size(void)
{
    struct stat st;
    return stat(file_path(), &st) == 0 ? (size_t)st.st_size : 0;
}

static struct dead_letter letter(const char *id, const char *doc)
{
    return (struct dead_letter){
        .time_ms = 1234567890123,
        .stream_name = "orders",
        .reason = "no such column",
        .position = "0-17",
        .record = {.id = slice_of(id),
                   .key = SLICE_LIT("k"),
                   .doc = slice_of(doc),
                   .version = UINT64_C(7) << 40,
                   .offset = 99,
                   .stream = 3,
                   .partition = 2},
    };
}

static int add(struct dead *dead, const char *id)
{
    struct dead_letter l = letter(id, "{\"a\":1}");
    return dead_add(dead, &l, 1, NULL);
}

struct seen {
    unsigned n;
    uint64_t last;
    char ids[4000];
};

static int note(void *context, const struct dead_letter *l)
{
    struct seen *seen = context;
    assert_true(l->number > seen->last);
    seen->last = l->number;
    seen->n++;
    size_t at = strlen(seen->ids);
    snprintf(seen->ids + at, sizeof(seen->ids) - at, "%s%.*s", at ? " " : "", (int)l->record.id.n,
             l->record.id.p);
    return 0;
}

static void expect(struct dead *dead, const char *ids)
{
    struct seen seen = {0};
    assert_int_equal(dead_scan(dead, note, &seen, NULL), 0);
    assert_string_equal(seen.ids, ids);
    uint64_t n, bytes;
    dead_stats(dead, &n, &bytes);
    assert_int_equal(n, seen.n);
}

static int same(void *context, const struct dead_letter *l)
{
    const struct dead_letter *want = context;
    assert_int_equal(l->time_ms, want->time_ms);
    assert_string_equal(l->sink, "main");
    assert_string_equal(l->stream_name, want->stream_name);
    assert_string_equal(l->reason, want->reason);
    assert_string_equal(l->position, want->position);
    assert_true(slice_equal(l->record.id, want->record.id));
    assert_true(slice_equal(l->record.key, want->record.key));
    assert_true(slice_equal(l->record.doc, want->record.doc));
    assert_true(slice_equal(l->record.attributes, want->record.attributes));
    assert_int_equal(l->record.version, want->record.version);
    assert_int_equal(l->record.offset, want->record.offset);
    assert_int_equal(l->record.stream, want->record.stream);
    assert_int_equal(l->record.partition, want->record.partition);
    return 0;
}

static void a_letter_comes_back_as_it_was(void **state)
{
    (void)state;
    static char big[3000000];
    memset(big, 'x', sizeof(big));
    struct dead_letter all[4];
    for (int i = 0; i < 4; i++)
        all[i] = letter("id", "{}");
    all[1].record.id = (struct slice){"\xf0\x9f\x98\xad\"\n", 6};
    all[1].record.attributes = (struct slice){"\0\1\2", 3};
    all[2].record.doc = (struct slice){big, sizeof(big)};
    all[2].reason = "";
    memset(all[3].position, 'p', sizeof(all[3].position) - 1);
    struct dead *dead = open_dead(false);
    assert_int_equal(dead_add(dead, all, 4, NULL), 0);
    assert_int_equal(trial.syncs, 2); /* the new file's header, and one for all of them */
    for (int reopened = 0; reopened < 2; reopened++) {
        for (int i = 0; i < 4; i++)
            assert_int_equal(dead_get(dead, (uint64_t)i + 1, same, &all[i], NULL), 0);
        dead_close(dead);
        dead = open_dead(reopened == 0);
    }
    assert_int_equal(dead_get(dead, 5, same, &all[0], NULL), WEIR_NOT_FOUND);
    dead_close(dead);
}

static void nothing_is_created_before_the_first(void **state)
{
    (void)state;
    struct dead *dead = open_dead(false), *reader = open_dead(true);
    expect(dead, "");
    expect(reader, "");
    assert_int_equal(file_size(), 0);
    assert_int_equal(add(reader, "a"), WEIR_DENIED);
    dead_close(dead);
    dead_close(reader);
}

static void dropped_ones_stay_dropped_and_numbers_rise(void **state)
{
    (void)state;
    struct dead *dead = open_dead(false);
    assert_int_equal(add(dead, "a") | add(dead, "b") | add(dead, "c"), 0);
    assert_int_equal(dead_drop(dead, 2, NULL), 0);
    assert_int_equal(dead_drop(dead, 2, NULL), WEIR_NOT_FOUND);
    assert_int_equal(dead_drop(dead, 77, NULL), WEIR_NOT_FOUND);
    expect(dead, "a c");
    dead_close(dead);
    dead = open_dead(false);
    expect(dead, "a c");
    assert_int_equal(dead_drop(dead, 1, NULL) | dead_drop(dead, 3, NULL), 0);
    dead_close(dead);
    dead = open_dead(false); /* compacted to nothing */
    assert_true(file_size() < 100);
    dead_close(dead);
    dead = open_dead(false);
    assert_int_equal(add(dead, "d"), 0);
    assert_int_equal(dead_drop(dead, 3, NULL), WEIR_NOT_FOUND); /* no number is given twice */
    assert_int_equal(dead_drop(dead, 4, NULL), 0);
    dead_close(dead);
}

static void opening_compacts_and_a_long_run_does_too(void **state)
{
    (void)state;
    static char doc[20000];
    memset(doc, 'd', sizeof(doc) - 1);
    struct dead *dead = open_dead(false);
    uint64_t number = 0;
    for (int i = 0; i < 600; i++) {
        struct dead_letter l = letter("x", doc);
        assert_int_equal(dead_add(dead, &l, 1, NULL), 0);
        if (++number > 3)
            assert_int_equal(dead_drop(dead, number - 3, NULL), 0);
    }
    assert_true(file_size() < 5 << 20); /* 12 MB went through */
    expect(dead, "x x x");
    dead_close(dead);
    dead = open_dead(false);
    assert_true(file_size() < 100000);
    expect(dead, "x x x");
    dead_close(dead);
}

static void the_cap_counts_live_letters(void **state)
{
    (void)state;
    struct dead *dead;
    assert_int_equal(dead_open(trial_fs(), data, "main", 1000, false, &dead, NULL), 0);
    struct diag diag = {0};
    unsigned n = 0;
    struct dead_letter l = letter("a", "{\"a\":1}");
    int rc;
    while ((rc = dead_add(dead, &l, 1, &diag)) == 0)
        n++;
    assert_int_equal(rc, WEIR_FULL);
    assert_non_null(strstr(diag.text, "cap"));
    assert_true(n >= 4 && n < 20);
    struct dead_letter two[2] = {l, l};
    assert_int_equal(dead_drop(dead, 1, NULL), 0);
    assert_int_equal(dead_add(dead, two, 2, NULL), WEIR_FULL); /* both or none */
    assert_int_equal(dead_add(dead, two, 1, NULL), 0);
    dead_close(dead);
}

static void flip(size_t at)
{
    int fd = open(file_path(), O_RDWR);
    char c;
    assert_int_equal(pread(fd, &c, 1, (off_t)at), 1);
    c ^= 0x40;
    assert_int_equal(pwrite(fd, &c, 1, (off_t)at), 1);
    close(fd);
}

static void a_damaged_letter_is_skipped_and_reported(void **state)
{
    (void)state;
    size_t ends[6] = {40};
    struct dead *dead = open_dead(false);
    const char *ids[] = {"a", "b", "c", "d", "e"};
    for (int i = 0; i < 5; i++) {
        assert_int_equal(add(dead, ids[i]), 0);
        ends[i + 1] = file_size();
    }
    dead_close(dead);
    /* Every byte that counts of the second letter in turn. */
    for (size_t at = ends[1]; at < ends[2]; at++) {
        char text[300];
        flip(at);
        dead = open_dead(false);
        bool damaged = dead_damaged(dead, text, sizeof(text));
        if (damaged) {
            expect(dead, "a c d e");
            assert_non_null(strstr(text, "1 damaged"));
        } else {
            assert_true(at >= ends[2] - 7); /* padding */
            expect(dead, "a b c d e");
        }
        dead_close(dead);
        flip(at);
    }
    /* Two runs of damage. */
    flip(ends[0] + 40);
    flip(ends[2] + 40);
    flip(ends[3] + 8);
    dead = open_dead(false);
    expect(dead, "b e");
    assert_int_equal(add(dead, "f"), 0);
    expect(dead, "b e f");
    dead_close(dead);
}

static void a_torn_tail_is_cut(void **state)
{
    (void)state;
    struct dead *dead = open_dead(false);
    assert_int_equal(add(dead, "a") | add(dead, "b"), 0);
    size_t two = file_size();
    assert_int_equal(add(dead, "c"), 0);
    size_t three = file_size();
    dead_close(dead);
    for (size_t size = three - 1; size > two; size--) {
        assert_int_equal(truncate(file_path(), (off_t)size), 0);
        struct dead *reader = open_dead(true);
        expect(reader, "a b");
        assert_int_equal(file_size(), size); /* a reader changes nothing */
        dead_close(reader);
    }
    dead = open_dead(false);
    char text[300];
    assert_true(dead_damaged(dead, text, sizeof(text)));
    assert_int_equal(file_size(), two);
    assert_int_equal(add(dead, "d"), 0);
    expect(dead, "a b d");
    dead_close(dead);
    dead = open_dead(false);
    assert_false(dead_damaged(dead, text, sizeof(text)));
    expect(dead, "a b d");
    dead_close(dead);
}

static void a_damaged_header_is_an_error_with_a_name(void **state)
{
    (void)state;
    struct dead *dead = open_dead(false);
    assert_int_equal(add(dead, "a"), 0);
    dead_close(dead);
    for (size_t at = 0; at < 40; at++) {
        struct diag diag = {0};
        flip(at);
        assert_int_equal(dead_open(trial_fs(), data, "main", CAP, false, &dead, &diag),
                         WEIR_CORRUPT);
        assert_non_null(strstr(diag.text, "dead/main"));
        flip(at);
    }
}

/* A letter whose document holds a whole frame: damage before it must not bring that to life. */
static void bytes_inside_a_record_are_never_a_frame(void **state)
{
    (void)state;
    struct buf frame = {0};
    struct dead_letter inner = letter("inner", "{}");
    dead_frame_put_letter(&frame, 0, 1000, &inner); /* all right but for the nonce */
    const size_t size = frame.n;
    struct dead *dead = open_dead(false);
    struct dead_letter l = letter("outer", "");
    for (int pad = 0; pad < 8; pad++) {
        static char doc[5000];
        memset(doc, ' ', sizeof(doc));
        memcpy(doc + pad, frame.p, size);
        l.record.doc = (struct slice){doc, size + 16};
        assert_int_equal(dead_add(dead, &l, 1, NULL), 0);
    }
    assert_int_equal(add(dead, "last"), 0);
    dead_close(dead);
    size_t outer = (file_size() - 40 - size) / 8;
    for (size_t i = 0; i < 8; i++)
        flip(40 + i * outer);
    dead = open_dead(false);
    expect(dead, "last");
    dead_close(dead);
    buf_fini(&frame);
}

static void readers_beside_a_writer(void **state)
{
    (void)state;
    struct dead *dead = open_dead(false);
    assert_int_equal(add(dead, "a") | add(dead, "b"), 0);
    struct dead *reader = open_dead(true);
    for (int i = 0; i < 50; i++)
        assert_int_equal(add(dead, "more"), 0);
    for (uint64_t i = 1; i <= 50; i++)
        assert_int_equal(dead_drop(dead, i, NULL), 0);
    dead_close(dead);
    dead = open_dead(false); /* compacts under the reader */
    expect(reader, "a b");
    dead_close(reader);
    expect(dead, "more more");
    dead_close(dead);
}

struct dropping {
    struct dead *dead;
    unsigned n;
};

static int drop_it(void *context, const struct dead_letter *l)
{
    struct dropping *d = context;
    d->n++;
    return dead_drop(d->dead, l->number, NULL);
}

static void what_is_visited_may_be_dropped(void **state)
{
    (void)state;
    struct dead *dead = open_dead(false);
    for (int i = 0; i < 300; i++)
        assert_int_equal(add(dead, "a"), 0);
    struct dropping d = {dead, 0};
    assert_int_equal(dead_scan(dead, drop_it, &d, NULL), 0);
    assert_int_equal(d.n, 300);
    expect(dead, "");
    dead_close(dead);
}

static void no_space_loses_nothing_and_passes(void **state)
{
    (void)state;
    struct dead *dead = open_dead(false);
    assert_int_equal(add(dead, "a"), 0);
    struct dead_letter two[2] = {letter("lost1", "{\"long\":\"................\"}"),
                                 letter("lost2", "{}")};
    trial.fail_writes = true;
    for (int i = 0; i < 3; i++)
        assert_int_equal(dead_add(dead, two, 2, NULL), WEIR_NO_SPACE);
    expect(dead, "a");
    trial.fail_writes = false;
    assert_int_equal(add(dead, "b"), 0);
    dead_close(dead);
    dead = open_dead(false);
    char text[300];
    assert_false(dead_damaged(dead, text, sizeof(text)));
    expect(dead, "a b");
    dead_close(dead);
}

static void a_failed_sync_ends_promises_until_restart(void **state)
{
    (void)state;
    struct dead *dead = open_dead(false);
    assert_int_equal(add(dead, "a"), 0);
    trial.fail_syncs = true;
    assert_int_equal(add(dead, "b"), WEIR_IO);
    trial.fail_syncs = false;
    assert_int_equal(add(dead, "c"), WEIR_POISONED);
    assert_int_equal(dead_drop(dead, 1, NULL), WEIR_POISONED);
    expect(dead, "a");
    dead_close(dead);
    dead = open_dead(false); /* b was written, and may well be there now */
    struct seen seen = {0};
    assert_int_equal(dead_scan(dead, note, &seen, NULL), 0);
    assert_memory_equal(seen.ids, "a", 1);
    dead_close(dead);
}

/* The process dies at the Nth change of the disk, N swept over a run with additions, drops and
 * compactions: what was acknowledged is there, what was dropped is not. */
static void any_moment_of_death_is_safe(void **state)
{
    (void)state;
    struct seeded random = {seed};
    for (unsigned fatal = 1;; fatal++) {
        end(NULL);
        begin(NULL);
        bool live[64] = {0}, doubtful[64] = {0};
        unsigned added = 0;
        trial.error = fatal % 2 ? WEIR_IO : WEIR_NO_SPACE;
        trial.fail_from = fatal;
        trial.fail_to = UINT32_MAX; /* nothing works any more: as good as dead */
        for (int run = 0; run < 3; run++) {
            struct dead *dead;
            if (dead_open(trial_fs(), data, "main", CAP, false, &dead, NULL))
                break;
            for (int i = 0; i < 10; i++) {
                char id[8];
                snprintf(id, sizeof(id), "%u", added);
                if (add(dead, id) == 0)
                    live[added] = true;
                else
                    doubtful[added] = true;
                added++;
                unsigned which = (unsigned)seeded_below(&random, added);
                if (run < 2 && dead_drop(dead, which + 1, NULL) == 0)
                    live[which] = false;
                else if (trial.changes >= fatal)
                    doubtful[which] = true;
            }
            dead_close(dead);
        }
        bool fired = trial.changes >= fatal;
        trial_reset();
        struct dead *dead = open_dead(false);
        struct seen seen = {0};
        assert_int_equal(dead_scan(dead, note, &seen, NULL), 0);
        char ids[4002];
        snprintf(ids, sizeof(ids), " %s ", seen.ids);
        for (unsigned i = 0; i < added; i++) {
            char id[16];
            snprintf(id, sizeof(id), " %u ", i);
            if (!doubtful[i] && live[i] != (strstr(ids, id) != NULL))
                fail_msg("death at change %u: letter %u is %s", fatal, i,
                         live[i] ? "lost" : "back again");
        }
        assert_int_equal(add(dead, "after"), 0);
        dead_close(dead);
        if (!fired)
            break;
    }
}

static void names_that_no_file_may_have(void **state)
{
    (void)state;
    const char *bad[] = {"", ".", "..", "a/b", ".x", "x~"};
    for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
        struct dead *dead;
        struct diag diag = {0};
        assert_int_equal(dead_open(trial_fs(), data, bad[i], CAP, false, &dead, &diag),
                         WEIR_INVALID);
    }
}

int main(void)
{
    seed = seeded_choose();
#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)
    const struct CMUnitTest tests[] = {
        T(a_letter_comes_back_as_it_was),
        T(nothing_is_created_before_the_first),
        T(dropped_ones_stay_dropped_and_numbers_rise),
        T(opening_compacts_and_a_long_run_does_too),
        T(the_cap_counts_live_letters),
        T(a_damaged_letter_is_skipped_and_reported),
        T(a_torn_tail_is_cut),
        T(a_damaged_header_is_an_error_with_a_name),
        T(bytes_inside_a_record_are_never_a_frame),
        T(readers_beside_a_writer),
        T(what_is_visited_may_be_dropped),
        T(no_space_loses_nothing_and_passes),
        T(a_failed_sync_ends_promises_until_restart),
        T(any_moment_of_death_is_safe),
        T(names_that_no_file_may_have),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
