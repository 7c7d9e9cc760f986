/* rows.c - operations on rows in the tape's compute dtype; see rows.h. */
#include "tape/rows.h"

void sheaf__copy(const sheaf__context *c, void *dst, const void *src, int64_t n, bool add)
{
    if (add)
        sheaf__op_accumulate(c->device, dst, src, n, c->dtype);
    else
        sheaf__op_convert(c->device, dst, c->dtype, src, c->dtype, n);
}

void sheaf__refresh(const sheaf__context *c, float *to, const float *master, int64_t n, bool one)
{
    sheaf__op_refresh(c->device, to, master, n, one, c->dtype);
}

/* ---- rows ---- */

void sheaf__gather(const sheaf__context *c, void *dense, const void *wide, sheaf__row_map map,
                   int64_t rows, int64_t cols, bool add)
{
    sheaf__op_move_rows(c->device,
                        (sheaf__move){ c->dtype, dense, wide, NULL, rows, cols, map, true, add });
}

void sheaf__scatter(const sheaf__context *c, void *wide, const void *dense, sheaf__row_map map,
                    int64_t rows, int64_t cols, bool add)
{
    sheaf__op_move_rows(c->device,
                        (sheaf__move){ c->dtype, wide, dense, NULL, rows, cols, map, false, add });
}

void sheaf__set_rows(const sheaf__context *c, void *wide, const float *row, sheaf__row_map map,
                     int64_t rows, int64_t cols)
{
    sheaf__op_move_rows(c->device,
                        (sheaf__move){ c->dtype, wide, NULL, row, rows, cols, map, false, false });
}

void sheaf__scatter_gradient(const sheaf__context *c, const sheaf__value *x, const void *dense,
                             sheaf__row_map p, int64_t rows)
{
    if (x->grad_fresh)
        sheaf__op_zero(c->device, x->grad, x->rows * x->cols, c->dtype);
    sheaf__scatter(c, x->grad, dense, p, rows, x->cols, !x->grad_fresh);
}

void sheaf__column_sums(const sheaf__context *c, float *grad, const void *dy, int64_t ld,
                        int64_t rows, int64_t cols)
{
    sheaf__op_column_sums(c->device, grad, dy, ld, rows, cols, c->dtype);
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

void sheaf__copy_box(const sheaf__context *c, void *dst, int64_t ld_dst, const void *src,
                     int64_t ld_src, int64_t rows, int64_t cols)
{
    sheaf__op_copy_box(c->device, dst, ld_dst, src, ld_src, rows, cols, c->dtype);
}

/* ---- sums over slices, gradients ---- */

sheaf_status *sheaf__sum_partials(sheaf__context *c, const sheaf_tree *tree, float *const *part,
                                  int first, float *spare, int64_t rows, int64_t cols,
                                  float **total)
{
    float *root[SHEAF_MAX_SLICES] = { spare };
    sheaf__addition list[SHEAF_MAX_SLICES];
    int own, from = sheaf_tree_own(tree, c->rank, &own);
    for (int r = 0; r < own; r++) {
        const sheaf_root *node = &tree->root[from + r];
        sheaf_tree_add add[SHEAF_MAX_SLICES];
        int result, n = sheaf_tree_program_slices(tree, node, add, &result);
        for (int i = 0; i < n; i++)
            list[i] = (sheaf__addition){ part[node->begin + add[i].a - first],
                                         part[node->begin + add[i].b - first] };
        sheaf__op_add_list(c->device, list, n, rows * cols);
        root[r] = part[node->begin + result - first];
    }
    *total = root[0];
    return c->ranks == 1 ? NULL : sheaf__sum_among(c, c->comm, tree, root, rows, cols, NULL);
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
        sheaf__op_accumulate(c->device, x->grad, dx, sheaf__rows_present(x) * x->cols, x->dtype);
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
        sheaf__op_accumulate(c->device, to->grad, from->grad, sheaf__rows_present(from) * to->cols,
                             to->dtype);
    }
}
