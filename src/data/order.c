/* order.c - the order of rows; see data_rows.h. */
#include "data/data_rows.h"

#include <stdlib.h>

#include "base/random.h"

enum { MICRO_BATCHES = 50 }; /* of a group, as the Hugging Face Trainer has it */

int64_t sheaf__data_group(int64_t micro_batch)
{
    const int64_t most = SHEAF__GROUP_MOST / micro_batch,
                  n = most < MICRO_BATCHES ? most : MICRO_BATCHES;
    return n < 2 ? 0 : n * micro_batch;
}

/* ---- without lengths ---- */

typedef struct order {
    const sheaf_data *data;
    const int64_t *row; /* [n]; NULL: all */
    uint64_t n, seed;
    bool shuffle;
} order;

/* ---- data sets with weights ----
 *
 * The n samples of an epoch, in the order above, are numbered; set p has those up to
 * sheaf__share_end(), d of them, and takes its own m rows one after the other, or permuted anew in
 * each pass over them: number j of its share in epoch e is its sample e d + j, row (e d + j) mod m
 * of pass floor((e d + j)/m). So it begins again only when each of its rows was there. */

/* First row of set p among the rows that take part; p == count: the end of all. */
static uint64_t set_begin(const order *o, int p)
{
    const sheaf__data_sets *m = o->data->sets;
    const int64_t first =
        o->data->pack_set != NULL ? o->data->pack_set[p] : m->begin[p] / sheaf_data_sides(o->data);
    uint64_t low = 0, high = o->n;
    if (o->row == NULL)
        return (uint64_t)first;
    while (low < high) {
        const uint64_t middle = (low + high) / 2;
        if (o->row[middle] < first)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static uint64_t share_begin(const order *o, int p)
{
    return p == 0 ? 0 : (uint64_t)sheaf__share_end(o->data->sets, p - 1, (int64_t)o->n);
}

/* The k-th row of an epoch, among the rows that take part. */
static uint64_t drawn(const order *o, uint64_t epoch, uint64_t k)
{
    static const uint64_t own = 0x6f776e; /* "own" */
    int p = 0;
    while (k >= share_begin(o, p + 1))
        p++;
    const uint64_t begin = set_begin(o, p), rows = set_begin(o, p + 1) - begin,
                   share = share_begin(o, p + 1) - share_begin(o, p),
                   sample = epoch * share + k - share_begin(o, p), at = sample % rows;
    return begin + (o->shuffle ? sheaf__permute(at, rows, o->seed ^ own ^ ((uint64_t)p << 40),
                                                sample / rows)
                               : at);
}

sheaf_status *sheaf_data_check_shares(const sheaf_data *data, const int64_t *row, int64_t rows)
{
    const order o = { data, row, (uint64_t)(row == NULL ? sheaf_data_samples(data) : rows), 0,
                      false };
    const sheaf__data_sets *m = data->sets;
    for (int p = 0; m != NULL && m->weighted && p < m->count; p++) {
        const bool any = set_begin(&o, p + 1) > set_begin(&o, p);
        if (any && share_begin(&o, p + 1) > share_begin(&o, p))
            continue;
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", m->path[p]),
                                       "rows to train on, and a sample of each epoch"),
                        "%s", any ? "its share of an epoch is none" : "no row is left of it"),
            "a larger weight, more data, or leave it out");
    }
    return NULL;
}

static int64_t nth(const order *o, uint64_t epoch, uint64_t i)
{
    const bool weighted = o->data->sets != NULL && o->data->sets->weighted;
    uint64_t k = o->shuffle ? sheaf__permute(i, o->n, o->seed, epoch) : i;
    if (weighted)
        k = drawn(o, epoch, k);
    return o->row == NULL ? (int64_t)k : o->row[k];
}

/* ---- by length ---- */

typedef struct item {
    int64_t row, length;
} item;

/* The longer side of a sample. */
static int64_t length_of(const sheaf_data *data, int64_t sample)
{
    const int64_t side[2] = { sheaf_data_side(data, sample, 0), sheaf_data_side(data, sample, 1) };
    return sheaf_data_used(data, side, sheaf_data_sides(data));
}

/* The group that was sorted last. */
typedef struct group {
    bool known;
    uint64_t epoch, number;
    item item[SHEAF__GROUP_MOST];
} group;

static int longest_first(const void *a, const void *b)
{
    const item *x = a, *y = b;
    if (x->length != y->length)
        return x->length < y->length ? 1 : -1;
    return (x->row > y->row) - (x->row < y->row);
}

static void fill_group(group *g, const order *o, uint64_t epoch, uint64_t number, uint64_t size)
{
    const uint64_t first = number * (uint64_t)o->data->group;
    if (g->known && g->epoch == epoch && g->number == number)
        return;
    for (uint64_t i = 0; i < size; i++) {
        const int64_t row = nth(o, epoch, first + i);
        g->item[i] = (item){ row, length_of(o->data, row) };
    }
    qsort(g->item, size, sizeof *g->item, longest_first);
    g->known = true;
    g->epoch = epoch;
    g->number = number;
}

static int64_t nth_by_length(group *g, const order *o, uint64_t epoch, uint64_t i)
{
    static const uint64_t grouped = 0x67726f7570; /* "group" */
    const uint64_t most = (uint64_t)o->data->group, batch = (uint64_t)o->data->micro_batch,
                   number = i / most, left = o->n - number * most, size = left < most ? left : most,
                   at = i % most, whole = size / batch;
    fill_group(g, o, epoch, number, size);
    if (at / batch >= whole) /* the shortest rows, too few for a micro-batch */
        return g->item[at].row;
    const uint64_t which =
        sheaf__permute(at / batch, whole, o->seed ^ grouped ^ (number << 20), epoch);
    return g->item[which * batch + at % batch].row;
}

static int64_t sample(group *g, const order *o, int64_t index)
{
    const uint64_t i = (uint64_t)index, epoch = i / o->n;
    return o->data->group > 0 ? nth_by_length(g, o, epoch, i % o->n) : nth(o, epoch, i % o->n);
}

/* ---- the interface ---- */

int64_t sheaf_data_sample_of(const sheaf_data *data, const int64_t *row, int64_t rows,
                             int64_t index, uint64_t seed, bool shuffle)
{
    group g;
    const order o = { data, row, (uint64_t)(row == NULL ? sheaf_data_samples(data) : rows), seed,
                      shuffle };
    g.known = false;
    return sample(&g, &o, index);
}

double sheaf_data_padding(const sheaf_data *data, const sheaf_data_order *how)
{
    enum { MOST = 1 << 20 }; /* rows of a sufficient sample */
    const int64_t all = how->row == NULL ? sheaf_data_samples(data) : how->rows,
                  n = how->micro_batch, most = all < MOST ? all : MOST;
    const int64_t rows = how->samples > 0 && how->samples < most ? how->samples : most;
    const order o = { data, how->row, (uint64_t)all, how->seed, how->shuffle };
    group g;
    double used = 0, positions = 0;
    g.known = false;
    for (int64_t first = 0; first < rows;
         first += n) { /* the last one may extend into the next epoch */
        int64_t longest[2] = { how->seq, how->seq };
        for (int64_t i = first; i < first + n && i - first < MOST; i++) {
            const int64_t number = sample(&g, &o, i);
            for (int side = 0; side < sheaf_data_sides(data); side++) {
                const int64_t row = sheaf_data_side(data, number, side),
                              of_row = sheaf_data_used(data, &row, 1);
                used += (double)of_row;
                if (how->seq == 0 && of_row > longest[side])
                    longest[side] = of_row;
            }
        }
        for (int side = 0; side < sheaf_data_sides(data); side++)
            positions += (double)(n < MOST ? n : MOST) * (double)longest[side];
    }
    return positions > 0 ? 1 - used / positions : 0;
}
