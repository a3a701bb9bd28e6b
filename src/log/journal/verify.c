/* verify.c: reads a whole journal (see verify.h). After damage in a segment it goes on at the next
 * group that can be told from the rest, so that all damage is found in one run. */
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "log/journal/segment.h"
#include "log/journal/verify.h"
#include "log/journal/walk.h"

static void say(struct journal_verify *verify, bool damage, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static void say(struct journal_verify *verify, bool damage, const char *format, ...)
{
    char text[1024];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    verify->damages += damage;
    if (verify->found)
        verify->found(verify->context, damage, text);
}

/* The records inside a group whose checksums hold. False: one is malformed. */
static bool count_records(struct journal_verify *verify, const struct group_header *group,
                          const char *units)
{
    const char *p = units, *why;
    uint64_t lsn = group->lsn + sizeof *group;
    for (uint32_t i = 0; i < group->units; i++) {
        struct unit_header unit;
        struct unit_walk walk;
        struct record record;
        int rc = unit_check(p, (size_t)(units + group->payload - p), lsn, &unit, &why);
        if (rc)
            return false;
        unit_walk_begin(&walk, p, &unit);
        while ((rc = unit_walk_next(&walk, &record)) == 0)
            verify->records++;
        if (rc != WEIR_END)
            return false;
        verify->units++;
        p += unit.bytes;
        lsn += unit.bytes;
    }
    return true;
}

/* At a bad frame: says what it is and goes behind it. False: nothing is left in this segment. */
static bool pass_bad_frame(struct journal_verify *verify, const struct segment *segment,
                           struct walk *walk, const char *path)
{
    struct group_header next;
    uint64_t bad = walk->lsn;
    const char *why = walk->why;
    bool vouched = segment->end != UINT64_MAX; /* the next segment's header vouches for all of it */
    int rc;
    for (uint64_t from = bad + 8;; from = next.lsn + 8) {
        rc = walk_search(walk, from, &next);
        if (rc || next.durable > bad)
            break;
    }
    if (rc == 0 || vouched)
        say(verify, true, "%s: damaged at byte %" PRIu64 " (offset %" PRIu64 "): %s", path,
            segment_offset(&segment->header, bad), bad, why);
    if (rc == 0) {
        say(verify, false, "%s: readable again from byte %" PRIu64 " (offset %" PRIu64 ") on", path,
            segment_offset(&segment->header, next.lsn), next.lsn);
        walk_resume(walk, &next);
        return true;
    }
    char header[sizeof next];
    if (!vouched &&
        fs_pread_all(walk->file, header, sizeof header, segment_offset(&segment->header, bad)) ==
            0 &&
        group_header_read(header, segment->header.nonce, &next) && next.lsn == bad)
        say(verify, false,
            "%s: the last group (byte %" PRIu64 ") is not whole: it is being written, or was when "
            "weir ended, and never acknowledged",
            path, segment_offset(&segment->header, bad));
    return false;
}

static int verify_segment(struct journal_verify *verify, const char *folder,
                          const struct segment *segment, struct diag *diag)
{
    char *path = segment_path(folder, segment->header.number);
    struct fs_file *file = NULL;
    struct walk walk = {0};
    struct group_header group;
    struct segment_header now;
    enum segment_state state;
    const char *units;
    int rc = fs_open(verify->fs, path, FS_READ, &file);
    if (rc == WEIR_NOT_FOUND) { /* let go of since it was listed */
        rc = 0;
        goto out;
    }
    if (rc) {
        diag_set(diag, rc, "%s: cannot be opened: %s", path, strerror(errno));
        goto out;
    }
    walk_begin(&walk, file, &segment->header, segment->end);
    for (;;) {
        rc = walk_next(&walk, &group, &units);
        if (rc == WEIR_CORRUPT) {
            rc = segment_header_load(file, segment->header.number, &now, &state);
            if (rc == 0 && (state != SEGMENT_BEGUN || now.nonce != segment->header.nonce))
                break; /* taken for another since it was listed */
            if (pass_bad_frame(verify, segment, &walk, path))
                continue;
            break;
        }
        if (rc)
            break;
        verify->groups++;
        verify->bytes += group_bytes(&group);
        if (!count_records(verify, &group, units))
            say(verify, true,
                "%s: damaged at byte %" PRIu64 " (offset %" PRIu64
                "): the checksums hold and the records are malformed",
                path, segment_offset(&segment->header, group.lsn), group.lsn);
        if (group.units)
            verify->end_offset = walk.lsn;
    }
    if (rc == WEIR_END)
        rc = 0;
    if (rc)
        diag_set(diag, rc, "%s: cannot be read: %s", path, strerror(errno));
    verify->segments++;
out:
    walk_end(&walk);
    fs_close(file);
    mem_free(path);
    return rc;
}

int journal_verify(struct journal_verify *verify, struct diag *diag)
{
    struct segment_folder found;
    char *folder = mem_printf("%s/journal", verify->data);
    verify->segments = verify->groups = verify->units = verify->records = verify->bytes = 0;
    verify->first_offset = verify->end_offset = verify->damages = 0;
    int rc = segment_folder_read(verify->fs, folder, &found, diag);
    if (rc)
        goto out;
    for (size_t i = 0; rc == 0 && i < found.begun.n; i++) {
        const struct segment *segment = &found.begun.items[i];
        if (i == 0)
            verify->first_offset = verify->end_offset = segment->header.base;
        if (segment->damaged) {
            say(verify, true,
                "%s/%010" PRIu64 ".seg: damaged at byte 0: this is no segment's header", folder,
                segment->header.number);
            continue;
        }
        rc = verify_segment(verify, folder, segment, diag);
        if (rc == 0 && segment->lost_after && !found.begun.items[i + 1].damaged)
            say(verify, true, "%s/%010" PRIu64 ".seg: is missing, or is another file than it was",
                folder, segment->lost_after);
    }
    /* Above the last: a damaged header is what a begun segment has lost, if there are groups. */
    struct segment_header last = {0};
    if (found.begun.n)
        last = found.begun.items[found.begun.n - 1].header;
    for (size_t i = 0; rc == 0 && i < found.n_others; i++) {
        bool holds = false;
        rc = segment_holds_groups(verify->fs, folder, &found.others[i], last.base, &holds);
        if (rc == WEIR_NOT_FOUND)
            rc = 0;
        if (rc)
            diag_set(diag, rc, "%s: cannot be read: %s", folder, strerror(errno));
        if (rc == 0 && holds && found.others[i].number > last.number)
            say(verify, true,
                "%s/%010" PRIu64 ".seg: damaged at byte 0: this is no segment's header, and the "
                "file holds groups",
                folder, found.others[i].number);
    }
    segment_folder_fini(&found);
out:
    mem_free(folder);
    return rc;
}
