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

static int64_t nth(const order *o, uint64_t epoch, uint64_t i)
{
    const uint64_t k = o->shuffle ? sheaf__permute(i, o->n, o->seed, epoch) : i;
    return o->row == NULL ? (int64_t)k : o->row[k];
}

/* ---- by length ---- */

typedef struct item {
    int64_t row, length;
} item;

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
        g->item[i] = (item){ row, sheaf_data_used(o->data, &row, 1) };
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
    const order o = { data, row, (uint64_t)(row == NULL ? sheaf_data_rows(data) : rows), seed,
                      shuffle };
    g.known = false;
    return sample(&g, &o, index);
}

double sheaf_data_padding(const sheaf_data *data, const sheaf_data_order *how)
{
    enum { MOST = 1 << 20 }; /* rows of a sufficient sample */
    const int64_t all = how->row == NULL ? sheaf_data_rows(data) : how->rows, n = how->micro_batch,
                  most = all < MOST ? all : MOST;
    const int64_t rows = how->samples > 0 && how->samples < most ? how->samples : most;
    const order o = { data, how->row, (uint64_t)all, how->seed, how->shuffle };
    group g;
    double used = 0, positions = 0;
    g.known = false;
    for (int64_t first = 0; first < rows;
         first += n) { /* the last one may extend into the next epoch */
        int64_t longest = how->seq;
        for (int64_t i = first; i < first + n && i - first < MOST; i++) {
            const int64_t row = sample(&g, &o, i), of_row = sheaf_data_used(data, &row, 1);
            used += (double)of_row;
            if (how->seq == 0 && of_row > longest)
                longest = of_row;
        }
        positions += (double)(n < MOST ? n : MOST) * (double)longest;
    }
    return positions > 0 ? 1 - used / positions : 0;
}
