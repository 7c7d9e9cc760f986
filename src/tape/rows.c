/* rows.c - see rows.h. */
#include "tape/rows.h"

#include <string.h>

enum { CHUNK = 1 << 15 };

typedef struct pair {
    const sheaf__context *c;
    void *dst;
    const void *src;
    sheaf_dtype dtype;
} pair;

static void add_floats(void *arg, int64_t begin, int64_t end, int worker)
{
    const pair *p = arg;
    float *dst = p->dst;
    p->c->device->kernels->add(dst + begin, dst + begin, (const float *)p->src + begin,
                               end - begin);
}

void sheaf__add(const sheaf__context *c, float *dst, const float *src, int64_t n)
{
    sheaf__rows(c, n, CHUNK, add_floats, &(pair){ c, dst, src, SHEAF_F32 });
}

static void accumulate_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const pair *p = arg;
    const int64_t bytes = (int64_t)sheaf_dtype_bytes(p->dtype);
    p->c->device->kernels->accumulate((char *)p->dst + begin * bytes,
                                      (const char *)p->src + begin * bytes, end - begin, p->dtype);
}

void sheaf__accumulate(const sheaf__context *c, void *dst, const void *src, int64_t n,
                       sheaf_dtype dtype)
{
    sheaf__rows(c, n, CHUNK, accumulate_elements, &(pair){ c, dst, src, dtype });
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

sheaf_status *sheaf__take_gradient(void **dx, sheaf__context *c, const sheaf__value *x)
{
    *dx = x->grad;
    if (x->needs_grad && x->grad_fresh)
        return NULL;
    return sheaf__take(dx, c,
                       (size_t)(sheaf__rows_there(x) * x->cols) * sheaf_dtype_bytes(x->dtype),
                       SHEAF_MEM_SCRATCH);
}

void sheaf__give_gradient(sheaf__context *c, const sheaf__value *x, void *dx, bool good)
{
    if (dx == x->grad)
        return;
    if (good && x->needs_grad)
        sheaf__accumulate(c, x->grad, dx, sheaf__rows_there(x) * x->cols, x->dtype);
    sheaf__give(c, dx);
}

void sheaf__hand_on(const sheaf__context *c, sheaf__value *to, sheaf__value *from)
{
    if (to->grad_fresh) {
        void *swap = to->grad;
        to->grad = from->grad;
        from->grad = swap;
    } else {
        sheaf__accumulate(c, to->grad, from->grad, sheaf__rows_there(from) * to->cols, to->dtype);
    }
}

static void refresh_elements(void *arg, int64_t begin, int64_t end, int worker)
{
    const pair *p = arg;
    const sheaf__kernels *k = p->c->device->kernels;
    float rounded[256]; /* space for either dtype */
    for (int64_t i = begin; i < end; i += 256) {
        const int64_t n = end - i < 256 ? end - i : 256;
        k->round(rounded, p->c->dtype, (const float *)p->src + i, n);
        k->widen((float *)p->dst + i, rounded, p->c->dtype, n);
    }
}

void sheaf__refresh(const sheaf__context *c, float *to, const float *master, int64_t n)
{
    sheaf__rows(c, n, CHUNK, refresh_elements, &(pair){ c, to, master, SHEAF_F32 });
}

void sheaf__add_one(const sheaf__context *c, float *x, int64_t n)
{
    for (int64_t i = 0; i < n && c->device->kind != SHEAF_DRY; i++)
        x[i] = 1.0f + x[i];
}
