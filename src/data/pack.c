/* pack.c - see pack.h. */
#include "data/pack.h"

#include <stdlib.h>

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

/* The first with room for `length`, which some empty one always has. */
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

/* Rows by pack, those of one in the order of the file; `of` is the pack of each row. */
static void sort(sheaf_data *d, const int64_t *of)
{
    for (int64_t r = 0; r < d->rows; r++)
        d->pack_begin[of[r] + 1]++;
    for (int64_t p = 0; p < d->packs; p++)
        d->pack_begin[p + 1] += d->pack_begin[p];
    for (int64_t r = d->rows - 1; r >= 0; r--) /* from the ends on: each end becomes a begin */
        d->pack_row[--d->pack_begin[of[r] + 1]] = r;
    for (int64_t p = 0; p < d->packs; p++)
        d->pack_begin[p] = d->pack_begin[p + 1];
    d->pack_begin[d->packs] = d->rows;
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

sheaf_status *sheaf__data_pack(sheaf_data *d, int64_t seq)
{
    rooms left = { 0 };
    int64_t *of = malloc((size_t)d->rows * sizeof *of);
    sheaf_status *st =
        of == NULL ? sheaf__data_no_memory(d->tokens) : open_rooms(&left, d->rows, seq);
    for (int64_t r = 0; r < d->rows && st == NULL; r++) {
        of[r] = take_room(&left, sheaf__data_used_by(d, r));
        d->packs = of[r] >= d->packs ? of[r] + 1 : d->packs;
    }
    if (st == NULL) {
        d->pack_begin = calloc((size_t)d->packs + 1, sizeof *d->pack_begin);
        d->pack_row = malloc((size_t)d->rows * sizeof *d->pack_row);
        if (d->pack_begin == NULL || d->pack_row == NULL)
            st = sheaf__data_no_memory(d->tokens);
    }
    if (st == NULL) {
        sort(d, of);
        find_longest(d);
    }
    free(left.most);
    free(of);
    return st;
}
