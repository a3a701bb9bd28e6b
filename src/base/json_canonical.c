/* json_canonical.c: the canonical form and the content hash (see json.h, docs/content-hash.md).
 *
 * The tree is walked without recursion: `frames` is what is open, `members` holds the sorted
 * members of every open object, one after the other. Both start in the caller's stack frame, for
 * the usual small record, and move to the heap when they outgrow it. */
#include <assert.h>
#include <stdlib.h>

#include "base/json.h"
#include "base/mem.h"

struct member {
    struct slice name;
    struct json_value value;
};

struct frame {
    struct json_iter iter;  /* an array's: where the walk is */
    size_t from, next, end; /* an object's: its members, and the next to write */
    bool object, first;
};

enum { MEMBERS_INLINE = 64, FRAMES_INLINE = 16, INSERTION_MAX = 16 };

struct walk {
    struct member *members;
    size_t n_members, members_capacity;
    struct frame *frames;
    size_t n_frames, frames_capacity;
    struct member members_inline[MEMBERS_INLINE];
    struct frame frames_inline[FRAMES_INLINE];
};

static int compare_members(const void *a, const void *b)
{
    return slice_compare(((const struct member *)a)->name, ((const struct member *)b)->name);
}

static void sort_members(struct member *members, size_t n)
{
    if (n > INSERTION_MAX) {
        qsort(members, n, sizeof *members, compare_members);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        struct member moving = members[i];
        size_t at = i;
        for (; at > 0 && slice_compare(members[at - 1].name, moving.name) > 0; at--)
            members[at] = members[at - 1];
        members[at] = moving;
    }
}

/* Doubles an array that began inside the walk. */
static void *grow(void *array, const void *inline_array, size_t *capacity, size_t item)
{
    size_t bytes = *capacity * item;
    *capacity *= 2;
    if (array != inline_array)
        return mem_realloc(array, 2 * bytes);
    void *moved = mem_alloc(2 * bytes);
    memcpy(moved, array, bytes);
    return moved;
}

static void open_frame(struct walk *walk, struct json_value v, bool object)
{
    if (walk->n_frames == walk->frames_capacity)
        walk->frames =
            grow(walk->frames, walk->frames_inline, &walk->frames_capacity, sizeof *walk->frames);
    struct frame *frame = &walk->frames[walk->n_frames++];
    *frame = (struct frame){.iter = json_iter(v), .object = object, .first = true};
    if (!object)
        return;
    frame->from = frame->next = walk->n_members;
    struct member member;
    while (json_next(&frame->iter, &member.name, &member.value)) {
        if (walk->n_members == walk->members_capacity)
            walk->members = grow(walk->members, walk->members_inline, &walk->members_capacity,
                                 sizeof *walk->members);
        walk->members[walk->n_members++] = member;
    }
    frame->end = walk->n_members;
    sort_members(walk->members + frame->from, frame->end - frame->from);
}

/* Writes a scalar, or the opening of a container, which becomes the top frame. */
static void put_value(struct walk *walk, struct json_value v, struct buf *out)
{
    switch (json_type(v)) {
    case JSON_NULL:
        buf_put(out, "null", 4);
        return;
    case JSON_BOOL:
        buf_put_str(out, json_bool(v) ? "true" : "false");
        return;
    case JSON_INT:
        buf_put_i64(out, json_int(v));
        return;
    case JSON_DOUBLE:
        buf_put_double(out, json_double(v));
        return;
    case JSON_STRING:
        buf_put_json_string(out, json_string(v));
        return;
    case JSON_ARRAY:
        buf_put_char(out, '[');
        open_frame(walk, v, false);
        return;
    case JSON_OBJECT:
        buf_put_char(out, '{');
        open_frame(walk, v, true);
        return;
    }
    assert(!"a type that does not exist");
}

/* The next member or element of the top frame, or its end. */
static void advance(struct walk *walk, struct buf *out)
{
    struct frame *frame = &walk->frames[walk->n_frames - 1];
    struct json_value v;
    if (frame->object) {
        if (frame->next == frame->end) {
            buf_put_char(out, '}');
            walk->n_members = frame->from;
            walk->n_frames--;
            return;
        }
        struct member *member = &walk->members[frame->next++];
        if (!frame->first)
            buf_put_char(out, ',');
        frame->first = false;
        buf_put_json_string(out, member->name);
        buf_put_char(out, ':');
        put_value(walk, member->value, out);
        return;
    }
    if (!json_next(&frame->iter, NULL, &v)) {
        buf_put_char(out, ']');
        walk->n_frames--;
        return;
    }
    if (!frame->first)
        buf_put_char(out, ',');
    frame->first = false;
    put_value(walk, v, out);
}

void json_canonical(struct json_value v, struct buf *out)
{
    struct walk walk;
    walk.members = walk.members_inline;
    walk.frames = walk.frames_inline;
    walk.members_capacity = MEMBERS_INLINE;
    walk.frames_capacity = FRAMES_INLINE;
    walk.n_members = walk.n_frames = 0;
    put_value(&walk, v, out);
    while (walk.n_frames)
        advance(&walk, out);
    if (walk.members != walk.members_inline)
        mem_free(walk.members);
    if (walk.frames != walk.frames_inline)
        mem_free(walk.frames);
}

struct hash128 json_content_hash(struct json_value v, struct buf *scratch)
{
    buf_clear(scratch);
    json_canonical(v, scratch);
    return hash128(scratch->p, scratch->n);
}
