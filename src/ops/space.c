/* space.c - see space.h. Holes are a sorted array. Of plans of large models it has thousands,
 * most of them small: a scan begins behind those that are known to be too small. */
#include "ops/space.h"

#include <assert.h>

#include "base/base.h"
#include "base/round_up.h"

void sheaf__space_init(sheaf__space *space, size_t capacity)
{
    *space = (sheaf__space){ .capacity = capacity };
}

void sheaf__space_release(sheaf__space *space)
{
    free(space->hole);
    free(space->used);
}

static size_t unit_of(size_t bytes)
{
    return bytes >= SHEAF__LARGE_BLOCK ? SHEAF__LARGE_UNIT : SHEAF__SMALL_UNIT;
}

size_t sheaf__space_size(size_t bytes)
{
    if (bytes > SIZE_MAX / 2)
        return 0;
    return bytes == 0 ? SHEAF__SMALL_UNIT : sheaf__round_up(bytes, unit_of(bytes));
}

/* ---- blocks in use ---- */

static size_t home_of(const sheaf__space *space, size_t begin)
{
    return (size_t)(((uint64_t)begin * 0x9e3779b97f4a7c15u) >> 32) & (space->used_capacity - 1);
}

static void record_put(sheaf__space *space, sheaf__used entry)
{
    size_t at = home_of(space, entry.begin);
    while (space->used[at].bytes != 0)
        at = (at + 1) & (space->used_capacity - 1);
    space->used[at] = entry;
}

/* Entries behind the hole move up so that probing never meets a gap too early. */
static void record_close_gap(sheaf__space *space, size_t gap)
{
    const size_t mask = space->used_capacity - 1;
    for (size_t at = (gap + 1) & mask; space->used[at].bytes != 0; at = (at + 1) & mask) {
        const size_t home = home_of(space, space->used[at].begin);
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            space->used[gap] = space->used[at];
            gap = at;
        }
    }
    space->used[gap].bytes = 0;
}

static size_t record_find(const sheaf__space *space, size_t begin)
{
    assert(space->blocks > 0);
    size_t at = home_of(space, begin);
    while (space->used[at].bytes != 0 && space->used[at].begin != begin)
        at = (at + 1) & (space->used_capacity - 1);
    assert(space->used[at].bytes != 0 && "not in use: freed twice, or never allocated here");
    return at;
}

static sheaf__used record_remove(sheaf__space *space, size_t begin)
{
    const size_t at = record_find(space, begin);
    const sheaf__used entry = space->used[at];
    record_close_gap(space, at);
    space->blocks--;
    return entry;
}

/* Room for one more block, and for the hole each block leaves when freed, so that
 * giving back never needs memory. */
static bool reserve(sheaf__space *space)
{
    if (2 * (space->blocks + 1) > space->used_capacity) {
        sheaf__space grown = *space;
        grown.used_capacity = space->used_capacity == 0 ? 64 : 2 * space->used_capacity;
        grown.used = calloc(grown.used_capacity, sizeof *grown.used);
        if (grown.used == NULL)
            return false;
        for (size_t i = 0; i < space->used_capacity; i++)
            if (space->used[i].bytes != 0)
                record_put(&grown, space->used[i]);
        free(space->used);
        *space = grown;
    }
    /* There is at most one hole below each block, and a block being cut out of a
     * hole makes two of one. */
    const size_t need = space->blocks + 4;
    if (need > space->hole_capacity) {
        sheaf__hole *hole = realloc(space->hole, 2 * need * sizeof *hole);
        if (hole == NULL)
            return false;
        space->hole = hole;
        space->hole_capacity = 2 * need;
    }
    return true;
}

/* ---- holes ---- */

static void hole_insert(sheaf__space *space, size_t at, sheaf__hole hole)
{
    assert(space->holes < space->hole_capacity);
    memmove(space->hole + at + 1, space->hole + at, (space->holes - at) * sizeof hole);
    space->hole[at] = hole;
    space->holes++;
}

static void hole_remove(sheaf__space *space, size_t at)
{
    space->holes--;
    memmove(space->hole + at, space->hole + at + 1, (space->holes - at) * sizeof *space->hole);
}

/* Index of the first hole that begins at or above `begin`. */
static size_t hole_at_or_above(const sheaf__space *space, size_t begin)
{
    size_t low = 0, high = space->holes;
    while (low < high) {
        const size_t mid = (low + high) / 2;
        if (space->hole[mid].begin < begin)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* The largest c with 2^c <= bytes. */
static int size_class(size_t bytes)
{
    return 63 - __builtin_clzll((unsigned long long)bytes);
}

/* A hole of `bytes` at `begin` is new, or has grown. */
static void hole_seen(sheaf__space *space, size_t begin, size_t bytes)
{
    for (int c = size_class(bytes); c >= 0; c--)
        if (space->below[c] > begin)
            space->below[c] = begin;
}

static void cut_out(sheaf__space *space, size_t at, size_t begin, size_t end)
{
    const sheaf__hole hole = space->hole[at];
    if (hole.begin == begin && hole.end == end) {
        hole_remove(space, at);
    } else if (hole.begin == begin) {
        space->hole[at].begin = end;
    } else {
        space->hole[at].end = begin;
        if (hole.end != end)
            hole_insert(space, at + 1, (sheaf__hole){ end, hole.end });
    }
}

static bool take_at_top(sheaf__space *space, size_t size, size_t unit, size_t *begin)
{
    const size_t at = sheaf__round_up(space->top, unit);
    if (at > space->capacity || size > space->capacity - at)
        return false;
    if (at != space->top) {
        hole_insert(space, space->holes, (sheaf__hole){ space->top, at });
        hole_seen(space, space->top, at - space->top);
    }
    space->top = at + size;
    if (space->top > space->mark)
        space->mark = space->top;
    *begin = at;
    return true;
}

static bool take_anywhere(sheaf__space *space, size_t size, size_t unit, size_t *begin)
{
    const int c = size_class(size);
    size_t i = hole_at_or_above(space, space->below[c]);
    while (i < space->holes && space->hole[i].end - space->hole[i].begin < (size_t)1 << c)
        i++;
    space->below[c] = i < space->holes ? space->hole[i].begin : space->top;
    for (; i < space->holes; i++) {
        const size_t at = sheaf__round_up(space->hole[i].begin, unit);
        if (at < space->hole[i].end && space->hole[i].end - at >= size) {
            cut_out(space, i, at, at + size);
            *begin = at;
            return true;
        }
    }
    return take_at_top(space, size, unit, begin);
}

sheaf__alloc sheaf__space_take(sheaf__space *space, size_t bytes, int tag, size_t *begin)
{
    const size_t size = sheaf__space_size(bytes);
    if (size == 0)
        return SHEAF__NO_SPACE;
    if (!reserve(space))
        return SHEAF__NO_RECORD;
    if (!take_anywhere(space, size, unit_of(bytes), begin))
        return SHEAF__NO_SPACE;
    record_put(space, (sheaf__used){ *begin, size, tag });
    space->blocks++;
    return SHEAF__TAKEN;
}

size_t sheaf__space_give(sheaf__space *space, size_t begin, int *tag)
{
    const sheaf__used block = record_remove(space, begin);
    sheaf__hole hole = { begin, begin + block.bytes };
    size_t at = hole_at_or_above(space, begin);
    if (at < space->holes && space->hole[at].begin == hole.end) {
        hole.end = space->hole[at].end;
        hole_remove(space, at);
    }
    if (at > 0 && space->hole[at - 1].end == hole.begin) {
        at--;
        hole.begin = space->hole[at].begin;
        hole_remove(space, at);
    }
    if (hole.end == space->top)
        space->top = hole.begin;
    else {
        hole_insert(space, at, hole);
        hole_seen(space, hole.begin, hole.end - hole.begin);
    }
    *tag = block.tag;
    return block.bytes;
}

size_t sheaf__space_find(const sheaf__space *space, size_t begin, int *tag)
{
    const sheaf__used *block = &space->used[record_find(space, begin)];
    *tag = block->tag;
    return block->bytes;
}
