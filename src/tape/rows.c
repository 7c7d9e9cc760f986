/* rows.c - see rows.h. */
#include "tape/rows.h"

#include <string.h>

enum { CHUNK = 1 << 15 };

/* ---- elements ---- */

typedef struct pair {
    const sheaf__context *c;
    void *dst;
    const void *src;
    sheaf_dtype to, from;
    bool one;
} pair;

static void add_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const pair *p = arg;
    float *dst = p->dst;
    p->c->device->kernels->add(dst + begin, dst + begin, (const float *)p->src + begin,
                               end - begin);
}

void sheaf__add(const sheaf__context *c, float *dst, const float *src, int64_t n)
{
    sheaf__rows(c, n, CHUNK, add_elements, &(pair){ .c = c, .dst = dst, .src = src });
}

static void accumulate_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const pair *p = arg;
    p->c->device->kernels->accumulate(sheaf__at(p->dst, begin, p->to),
                                      sheaf__at(p->src, begin, p->to), end - begin, p->to);
}

void sheaf__accumulate(const sheaf__context *c, void *dst, const void *src, int64_t n,
                       sheaf_dtype dtype)
{
    sheaf__rows(c, n, CHUNK, accumulate_elements,
                &(pair){ .c = c, .dst = dst, .src = src, .to = dtype });
}

static void convert_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const pair *p = arg;
    p->c->device->kernels->convert(sheaf__at(p->dst, begin, p->to), p->to,
                                   sheaf__at(p->src, begin, p->from), p->from, end - begin);
}

void sheaf__convert(const sheaf__context *c, void *dst, sheaf_dtype to, const void *src,
                    sheaf_dtype from, int64_t n)
{
    sheaf__rows(c, n, CHUNK, convert_elements, &(pair){ c, dst, src, to, from, false });
}

void sheaf__copy(const sheaf__context *c, void *dst, const void *src, int64_t n, bool add)
{
    if (add)
        sheaf__accumulate(c, dst, src, n, c->dtype);
    else
        sheaf__convert(c, dst, c->dtype, src, c->dtype, n);
}

static void clear_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const pair *p = arg;
    memset(sheaf__at(p->dst, begin, p->to), 0, (size_t)(end - begin) * sheaf_dtype_bytes(p->to));
}

void sheaf__clear(const sheaf__context *c, void *x, int64_t n, sheaf_dtype dtype)
{
    sheaf__rows(c, n, CHUNK, clear_elements, &(pair){ .dst = x, .to = dtype });
}

static void refresh_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const pair *p = arg;
    const sheaf__kernels *k = p->c->device->kernels;
    float rounded[256], *to = p->dst; /* space for either dtype */
    for (int64_t i = begin; i < end; i += 256) {
        const int64_t n = end - i < 256 ? end - i : 256;
        k->round(rounded, p->c->dtype, (const float *)p->src + i, n);
        k->widen(to + i, rounded, p->c->dtype, n);
        for (int64_t e = i; e < i + n && p->one; e++)
            to[e] = 1.0f + to[e];
    }
}

void sheaf__refresh(const sheaf__context *c, float *to, const float *master, int64_t n, bool one)
{
    sheaf__rows(c, n, CHUNK, refresh_elements,
                &(pair){ .c = c, .dst = to, .src = master, .one = one });
}

/* ---- rows ---- */

typedef struct move {
    const sheaf__context *c;
    void *to;
    const void *from; /* NULL: zeros, or */
    const float *row; /* this in each */
    int64_t cols;
    sheaf__row_map map;
    bool gather; /* `from` is the wide one; otherwise `to` */
    bool add;
} move;

static void move_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const move *m = arg;
    const sheaf__kernels *k = m->c->device->kernels;
    const sheaf__row_map *p = &m->map;
    const sheaf_dtype t = m->c->dtype;
    const size_t bytes = (size_t)m->cols * sheaf_dtype_bytes(t);
    for (int64_t r = begin; r < end; r++) {
        const int64_t at = r / p->n * (p->before + p->n + p->after) + p->before + r % p->n,
                      wide = p->list == NULL ? at : p->list[at];
        char *to = sheaf__at(m->to, (m->gather ? r : wide) * m->cols, t);
        const char *from =
            m->from == NULL ? NULL : sheaf__at(m->from, (m->gather ? wide : r) * m->cols, t);
        if (m->row != NULL)
            k->round(to, t, m->row, m->cols);
        else if (from == NULL)
            memset(to, 0, bytes);
        else if (m->add)
            k->accumulate(to, from, m->cols, t);
        else
            memcpy(to, from, bytes);
    }
}

void sheaf__gather(const sheaf__context *c, void *dense, const void *wide, sheaf__row_map p,
                   int64_t rows, int64_t cols, bool add)
{
    sheaf__rows(c, rows, 32, move_rows, &(move){ c, dense, wide, NULL, cols, p, true, add });
}

void sheaf__scatter(const sheaf__context *c, void *wide, const void *dense, sheaf__row_map p,
                    int64_t rows, int64_t cols, bool add)
{
    sheaf__rows(c, rows, 32, move_rows, &(move){ c, wide, dense, NULL, cols, p, false, add });
}

void sheaf__set_rows(const sheaf__context *c, void *wide, const float *row, sheaf__row_map p,
                     int64_t rows, int64_t cols)
{
    sheaf__rows(c, rows, 64, move_rows, &(move){ c, wide, NULL, row, cols, p, false, false });
}

void sheaf__scatter_gradient(const sheaf__context *c, const sheaf__value *x, const void *dense,
                             sheaf__row_map p, int64_t rows)
{
    if (x->grad_fresh)
        sheaf__clear(c, x->grad, x->rows * x->cols, c->dtype);
    sheaf__scatter(c, x->grad, dense, p, rows, x->cols, !x->grad_fresh);
}

typedef struct columns {
    const sheaf__context *c;
    float *grad;
    const void *dy;
    int64_t ld, rows;
} columns;

static void sum_columns(void *arg, int64_t begin, int64_t end, int worker)
{
    const columns *s = arg;
    s->c->device->kernels->column_sums(s->grad + begin, sheaf__at(s->dy, begin, s->c->dtype), s->ld,
                                       s->rows, end - begin, s->c->dtype);
}

void sheaf__column_sums(const sheaf__context *c, float *grad, const void *dy, int64_t ld,
                        int64_t rows, int64_t cols)
{
    sheaf__rows(c, cols, 256, sum_columns, &(columns){ c, grad, dy, ld, rows });
}

sheaf_status *sheaf__sum_mapped(sheaf__context *c, float *grad, const void *wide, sheaf__row_map p,
                                int64_t rows, int64_t cols)
{
    void *dense = NULL;
    sheaf_status *st = sheaf__alloc_scratch(&dense, c, rows * cols);
    if (st != NULL)
        return st;
    sheaf__gather(c, dense, wide, p, rows, cols, false);
    sheaf__column_sums(c, grad, dense, cols, rows, cols);
    sheaf__free(c, dense);
    return NULL;
}

typedef struct box {
    char *dst;
    const char *src;
    int64_t ld_dst, ld_src;
    size_t bytes;
} box;

static void copy_rows(void *arg, int64_t begin, int64_t end, int worker)
{
    const box *b = arg;
    for (int64_t r = begin; r < end; r++)
        memcpy(b->dst + r * b->ld_dst, b->src + r * b->ld_src, b->bytes);
}

void sheaf__copy_box(const sheaf__context *c, void *dst, int64_t ld_dst, const void *src,
                     int64_t ld_src, int64_t rows, int64_t cols)
{
    const int64_t size = (int64_t)sheaf_dtype_bytes(c->dtype);
    if (cols > 0)
        sheaf__rows(c, rows, 64, copy_rows,
                    &(box){ dst, src, ld_dst * size, ld_src * size, (size_t)(cols * size) });
}

/* ---- sums over slices, gradients ---- */

sheaf_status *sheaf__sum_partials(sheaf__context *c, const sheaf_tree *tree, float *const *part,
                                  int first, float *spare, int64_t rows, int64_t cols,
                                  float **total)
{
    float *root[SHEAF_MAX_SLICES] = { spare };
    int own, from = sheaf_tree_own(tree, c->rank, &own);
    for (int r = 0; r < own; r++) {
        const sheaf_root *node = &tree->root[from + r];
        sheaf_tree_add add[SHEAF_MAX_SLICES];
        int result, n = sheaf_tree_program_slices(tree, node, add, &result);
        for (int i = 0; i < n; i++)
            sheaf__add(c, part[node->begin + add[i].a - first],
                       part[node->begin + add[i].b - first], rows * cols);
        root[r] = part[node->begin + result - first];
    }
    *total = root[0];
    return c->ranks == 1 ? NULL : sheaf__sum_among(c, c->comm, tree, root, rows, cols);
}

sheaf_status *sheaf__alloc_scratch(void *out, sheaf__context *c, int64_t n)
{
    return sheaf__alloc(out, c, (size_t)n * sheaf_dtype_bytes(c->dtype), SHEAF_MEM_SCRATCH);
}

sheaf_status *sheaf__gradient_begin(void **dx, sheaf__context *c, const sheaf__value *x)
{
    *dx = x->grad;
    return x->needs_grad && x->grad_fresh
               ? NULL
               : sheaf__alloc_scratch(dx, c, sheaf__rows_present(x) * x->cols);
}

void sheaf__gradient_end(sheaf__context *c, const sheaf__value *x, void *dx, bool good)
{
    if (dx == x->grad)
        return;
    if (good && x->needs_grad)
        sheaf__accumulate(c, x->grad, dx, sheaf__rows_present(x) * x->cols, x->dtype);
    sheaf__free(c, dx);
}

void sheaf__pass_gradient(const sheaf__context *c, sheaf__value *to, sheaf__value *from)
{
    if (to == NULL || !to->needs_grad)
        return;
    if (to->grad_fresh) {
        void *swap = to->grad;
        to->grad = from->grad;
        from->grad = swap;
    } else {
        sheaf__accumulate(c, to->grad, from->grad, sheaf__rows_present(from) * to->cols, to->dtype);
    }
}
