/* rows.h - operations (ops/tensor/tensor.h) that tape has with the compute dtype or on values of
 * its own. */
#pragma once

#include "ops/call.h"
#include "ops/tensor/tensor.h"
#include "tape/tape.h"

/* ---- n elements ---- */

/* dst = src, of the compute dtype; with `add` dst = round(dst + src) */
void sheaf__copy(const sheaf__context *context, void *dst, const void *src, int64_t n, bool add);
/* sheaf__refresh - float32 copies of masters, rounded to the compute dtype; one: plus 1. */
void sheaf__refresh(const sheaf__context *context, float *to, const float *master, int64_t n,
                    bool one);

/* ---- rows ---- */

/* `rows` rows of the dense matrix, `cols` columns of the compute dtype; with `add` rounded sums,
 * else copies. */
void sheaf__gather(const sheaf__context *context, void *dense, const void *wide, sheaf__row_map map,
                   int64_t rows, int64_t cols, bool add);
void sheaf__scatter(const sheaf__context *context, void *wide, const void *dense,
                    sheaf__row_map map, int64_t rows, int64_t cols, bool add);
/* sheaf__scatter_gradient - to the gradient of x, of which the rows that the map does not name are
 * zero where it is fresh. */
void sheaf__scatter_gradient(const sheaf__context *context, const sheaf__value *x,
                             const void *dense, sheaf__row_map map, int64_t rows);
/* sheaf__set_rows - sets rows of `wide` to `row` (float32, rounded), or to zero when it is NULL. */
void sheaf__set_rows(const sheaf__context *context, void *wide, const float *row,
                     sheaf__row_map map, int64_t rows, int64_t cols);
/* grad += column sums of dy, rows of the compute dtype `ld` elements apart */
void sheaf__column_sums(const sheaf__context *context, float *grad, const void *dy, int64_t ld,
                        int64_t rows, int64_t cols);
/* sheaf__sum_mapped - grad[cols] += the sum of the rows of `wide` that the map names. */
sheaf_status *sheaf__sum_mapped(sheaf__context *context, float *grad, const void *wide,
                                sheaf__row_map map, int64_t rows, int64_t cols);
/* [rows, cols] of the compute dtype out of one matrix into another; lengths of rows in elements. */
void sheaf__copy_box(const sheaf__context *context, void *dst, int64_t ld_dst, const void *src,
                     int64_t ld_src, int64_t rows, int64_t cols);

/* ---- sums over slices, gradients ---- */

/* sheaf__sum_partials - the sum over slices of dense [rows, cols] partials, part[s - first] of each
 * owned slice s; destroys them. The total over all ranks ends in *total, which is one of the
 * partials or, for a rank that holds no present slice, `spare`. */
sheaf_status *sheaf__sum_partials(sheaf__context *context, const sheaf_tree *tree,
                                  float *const *part, int first, float *spare, int64_t rows,
                                  int64_t cols, float **total);
/* sheaf__alloc_scratch - scratch memory for n elements of the compute dtype. */
sheaf_status *sheaf__alloc_scratch(void *out, sheaf__context *context, int64_t n);
/* sheaf__gradient_begin - where an op that writes, and does not add, leaves the gradient of x: its
 * place if that is fresh, else as much scratch memory. sheaf__gradient_end - adds what lies there
 * (unless the op failed), and gives the memory back. */
sheaf_status *sheaf__gradient_begin(void **dx, sheaf__context *context, const sheaf__value *x);
void sheaf__gradient_end(sheaf__context *context, const sheaf__value *x, void *dx, bool good);
/* sheaf__pass_gradient - the gradient of `to` (NULL, or without one: nothing) gets that of `from`,
 * which dies in this step: where nothing was there yet the buffers change places. */
void sheaf__pass_gradient(const sheaf__context *context, sheaf__value *to, sheaf__value *from);
