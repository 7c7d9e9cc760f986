/* tensor.h - operations on whole tensors: what the tape's ops are made of.
 *
 * Every pointer is an address of the device's memory, unless it says otherwise; only what runs
 * behind call.h reads or writes there. Each operation has the bits of a plain loop over the kernels
 * of kernels.h, whatever the device and its threads. Shapes are in elements; `ld` is the distance
 * of two rows. Operands that are not said to be allowed to coincide must not overlap. */
#pragma once

#include "ops/device.h"

/* ---- n elements ---- */

/* dst += src, float32 */
void sheaf__op_add(sheaf__device *device, float *dst, const float *src, int64_t n);
/* dst = round(dst + src), both of `dtype` */
void sheaf__op_accumulate(sheaf__device *device, void *dst, const void *src, int64_t n,
                          sheaf_dtype dtype);
/* dst = src, rounded; dst may be src where the types are the same */
void sheaf__op_convert(sheaf__device *device, void *dst, sheaf_dtype to, const void *src,
                       sheaf_dtype from, int64_t n);
/* x = 0 */
void sheaf__op_zero(sheaf__device *device, void *x, int64_t n, sheaf_dtype dtype);
/* dst = src, float32, rounded to `dtype`; one: plus 1. dst may be src. */
void sheaf__op_refresh(sheaf__device *device, float *dst, const float *src, int64_t n, bool one,
                       sheaf_dtype dtype);

/* ---- rows ---- */

/* Rows of a dense matrix and where they lie in a wider one: patches among the tokens of an image,
 * an image's rows in a sequence, a stream's rows in all. Groups of n rows have `before` and `after`
 * other rows around each; a list, if there is one, then names the rows of the wide matrix. No row
 * may lie in two places. */
typedef struct sheaf__row_map {
    const int32_t *list;
    int64_t n, before, after;
    int64_t wide; /* with a list: rows of the wide matrix */
} sheaf__row_map;

/* sheaf__row_map_listed - row i of the dense matrix lies at list[i] of `wide`; NULL: at i. */
static inline sheaf__row_map sheaf__row_map_listed(const int32_t *list, int64_t wide)
{
    return (sheaf__row_map){ list, 1, 0, 0, wide };
}

/* What is done with `rows` rows of `cols` columns. */
typedef struct sheaf__move {
    sheaf_dtype dtype;
    void *to;
    const void *from; /* NULL: zeros, or */
    const float *row; /* this in each, rounded */
    int64_t rows, cols;
    sheaf__row_map map;
    bool gather; /* `from` is the wide one; otherwise `to` */
    bool add;    /* rounded sums; else copies */
} sheaf__move;

void sheaf__op_move_rows(sheaf__device *device, sheaf__move how);
/* grad[cols] += column sums of dy */
void sheaf__op_column_sums(sheaf__device *device, float *grad, const void *dy, int64_t ld,
                           int64_t rows, int64_t cols, sheaf_dtype dtype);
/* [rows, cols] out of one matrix into another */
void sheaf__op_copy_box(sheaf__device *device, void *dst, int64_t ld_dst, const void *src,
                        int64_t ld_src, int64_t rows, int64_t cols, sheaf_dtype dtype);
