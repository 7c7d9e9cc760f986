/* pack.c - rows of a data set that share one row of a batch.
 *
 * Each row goes, in the order of the file, into the first packed row that still has room for it
 * (first fit). So packs depend only on the lengths of the rows and on --seq. */
#include "data/data.h"

#include <stdlib.h>

#include "data/data_rows.h"

/* The room that is left in each packed row, under a tree of maxima: leaf i is at leaves + i. */
typedef struct rooms {
    int32_t *most;
    int64_t leaves;
} rooms;

static sheaf_status *open_rooms(rooms *r, int64_t rows, int64_t seq)
{
    r->leaves = 1;
    while (r->leaves < rows)
        r->leaves *= 2;
    r->most = malloc((size_t)(2 * r->leaves) * sizeof *r->most);
    if (r->most == NULL)
        return sheaf__data_no_memory(0);
    for (int64_t i = 0; i < 2 * r->leaves; i++)
        r->most[i] = (int32_t)seq;
    return NULL;
}

/* The first one with room for `length`; an empty one always has it. */
static int64_t take_room(rooms *r, int64_t length)
{
    int64_t i = 1;
    while (i < r->leaves)
        i = r->most[2 * i] >= length ? 2 * i : 2 * i + 1;
    const int64_t found = i - r->leaves;
    r->most[i] -= (int32_t)length;
    for (i /= 2; i > 0; i /= 2) {
        const int32_t a = r->most[2 * i], b = r->most[2 * i + 1];
        r->most[i] = a > b ? a : b;
    }
    return found;
}

/* Rows by pack, those of one in the order of the file; `of` is the pack of each member. */
static void sort(sheaf_data *d, const int64_t *of, const int64_t *row)
{
    for (int64_t i = 0; i < d->members; i++)
        d->pack_begin[of[i] + 1]++;
    for (int64_t p = 0; p < d->packs; p++)
        d->pack_begin[p + 1] += d->pack_begin[p];
    for (int64_t i = d->members - 1; i >= 0; i--) { /* from the ends on: each end becomes a begin */
        const int64_t at = --d->pack_begin[of[i] + 1];
        d->pack_place[at] = i;
        d->pack_row[at] = row == NULL ? i : row[i];
    }
    for (int64_t p = 0; p < d->packs; p++)
        d->pack_begin[p] = d->pack_begin[p + 1];
    d->pack_begin[d->packs] = d->members;
}

static void find_longest(sheaf_data *d)
{
    d->longest = 0;
    for (int64_t p = 0; p < d->packs; p++) {
        int64_t sum = 0;
        for (int64_t i = d->pack_begin[p]; i < d->pack_begin[p + 1]; i++)
            sum += sheaf__data_used_by(d, d->pack_row[i]);
        d->longest = sum > d->longest ? sum : d->longest;
    }
}

/* Members [begin, end), in packed rows of their own. */
static sheaf_status *fill_some(sheaf_data *d, const int64_t *row, int64_t *of, int64_t begin,
                               int64_t end)
{
    const int64_t before = d->packs;
    rooms left = { 0 };
    sheaf_status *st = open_rooms(&left, end - begin, d->seq);
    for (int64_t i = begin; i < end && st == NULL; i++) {
        of[i] = before + take_room(&left, sheaf__data_used_by(d, row == NULL ? i : row[i]));
        d->packs = of[i] >= d->packs ? of[i] + 1 : d->packs;
    }
    free(left.most);
    return st;
}

/* With weights those of each data set for themselves. */
static sheaf_status *fill_packs(sheaf_data *d, const int64_t *row, int64_t *of)
{
    const sheaf__data_sets *m = d->sets;
    int64_t begin = 0;
    sheaf_status *st = NULL;
    if (m == NULL || !m->weighted)
        return fill_some(d, row, of, 0, d->members);
    d->pack_set = calloc((size_t)m->count + 1, sizeof *d->pack_set);
    if (d->pack_set == NULL)
        return sheaf__data_no_memory(d->tokens);
    for (int p = 0; p < m->count && st == NULL; p++) {
        int64_t end = begin;
        while (end < d->members && (row == NULL ? end : row[end]) < m->begin[p + 1])
            end++;
        st = end == begin ? NULL : fill_some(d, row, of, begin, end);
        d->pack_set[p + 1] = d->packs;
        begin = end;
    }
    return st;
}

sheaf_status *sheaf_data_pack(sheaf_data **out, const sheaf_data *of, const int64_t *row,
                              int64_t rows)
{
    const size_t n = (size_t)(row == NULL ? of->rows : rows);
    sheaf_data *d = malloc(sizeof *d);
    int64_t *pack_of = malloc(n * sizeof *pack_of);
    sheaf_status *st = d == NULL || pack_of == NULL ? sheaf__data_no_memory(of->tokens) : NULL;
    if (st == NULL) {
        *d = *of;
        d->members = (int64_t)n;
        st = fill_packs(d, row, pack_of);
    }
    if (st == NULL) {
        d->pack_begin = calloc((size_t)d->packs + 1, sizeof *d->pack_begin);
        d->pack_row = malloc(n * sizeof *d->pack_row);
        d->pack_place = malloc(n * sizeof *d->pack_place);
        if (d->pack_begin == NULL || d->pack_row == NULL || d->pack_place == NULL) {
            sheaf_data_close(d);
            d = NULL;
            st = sheaf__data_no_memory(of->tokens);
        }
    }
    if (st == NULL) {
        sort(d, pack_of, row);
        find_longest(d);
        *out = d;
    } else {
        free(d == NULL ? NULL : d->pack_set);
        free(d);
    }
    free(pack_of);
    return st;
}
