/* row_map.c - see row_map.h. */
#include "tape/row_map.h"

#include <string.h>

#include "tape/rows.h"

int64_t sheaf__row_map_at(const sheaf__row_map *p, int64_t row)
{
    const int64_t in_groups = row / p->n * (p->before + p->n + p->after) + p->before + row % p->n;
    return p->list == NULL ? in_groups : p->list[in_groups];
}

typedef struct move {
    const sheaf__context *c;
    void *to;
    const void *from;
    int64_t cols;
    sheaf__row_map map;
    bool gather; /* `from` is the wide one; otherwise `to` */
    bool add;
} move;

static void move_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const move *m = arg;
    const sheaf_dtype t = m->c->dtype;
    for (int64_t r = begin; r < end; r++) {
        const int64_t wide = sheaf__row_map_at(&m->map, r);
        char *to = sheaf__at(m->to, (m->gather ? r : wide) * m->cols, t);
        const char *from = sheaf__at(m->from, (m->gather ? wide : r) * m->cols, t);
        if (m->add)
            m->c->device->kernels->accumulate(to, from, m->cols, t);
        else
            memcpy(to, from, (size_t)m->cols * sheaf_dtype_bytes(t));
    }
}

void sheaf__gather(const sheaf__context *c, void *dense, const void *wide, sheaf__row_map p,
                   int64_t rows, int64_t cols, bool add)
{
    sheaf__rows(c, rows, 32, move_rows, &(move){ c, dense, wide, cols, p, true, add });
}

void sheaf__scatter(const sheaf__context *c, void *wide, const void *dense, sheaf__row_map p,
                    int64_t rows, int64_t cols, bool add)
{
    sheaf__rows(c, rows, 32, move_rows, &(move){ c, wide, dense, cols, p, false, add });
}

typedef struct fill {
    const sheaf__context *c;
    void *wide;
    const float *row;
    int64_t cols;
    sheaf__row_map map;
} fill;

static void fill_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const fill *f = arg;
    for (int64_t r = begin; r < end; r++) {
        char *to = sheaf__at(f->wide, sheaf__row_map_at(&f->map, r) * f->cols, f->c->dtype);
        if (f->row != NULL)
            f->c->device->kernels->round(to, f->c->dtype, f->row, f->cols);
        else
            memset(to, 0, (size_t)f->cols * sheaf_dtype_bytes(f->c->dtype));
    }
}

void sheaf__set_rows(const sheaf__context *c, void *wide, const float *row, sheaf__row_map p,
                     int64_t rows, int64_t cols)
{
    sheaf__rows(c, rows, 64, fill_rows, &(fill){ c, wide, row, cols, p });
}

void sheaf__scatter_gradient(const sheaf__context *c, const sheaf__value *x, const void *dense,
                             sheaf__row_map p, int64_t rows)
{
    if (x->grad_fresh)
        sheaf__set_rows(c, x->grad, NULL, sheaf__row_map_listed(NULL), x->rows, x->cols);
    sheaf__scatter(c, x->grad, dense, p, rows, x->cols, !x->grad_fresh);
}

sheaf_status *sheaf__sum_mapped(sheaf__context *c, float *grad, const void *wide, sheaf__row_map p,
                                int64_t rows, int64_t cols)
{
    void *dense = NULL;
    sheaf_status *st = sheaf__take(&dense, c, (size_t)(rows * cols) * sheaf_dtype_bytes(c->dtype),
                                   SHEAF_MEM_SCRATCH);
    if (st != NULL)
        return st;
    sheaf__gather(c, dense, wide, p, rows, cols, false);
    sheaf__column_sums(c, grad, dense, cols, rows, cols);
    sheaf__give(c, dense);
    return NULL;
}
