/* rows.h - what several ops of the tape do to rows, on the device's threads; nothing on dry. */
#pragma once

#include "tape/tape.h"

/* Where an element of an array of `dtype` lies. */
static inline char *sheaf__at(const void *data, int64_t element, sheaf_dtype dtype)
{
    return (char *)data + element * (int64_t)sheaf_dtype_bytes(dtype);
}

/* dst += src, n float32 */
void sheaf__add(const sheaf__context *context, float *dst, const float *src, int64_t n);
/* dst = round(dst + src), n elements of `dtype` */
void sheaf__accumulate(const sheaf__context *context, void *dst, const void *src, int64_t n,
                       sheaf_dtype dtype);
/* grad += column sums of dy, rows of the compute dtype `ld` elements apart */
void sheaf__column_sums(const sheaf__context *context, float *grad, const void *dy, int64_t ld,
                        int64_t rows, int64_t cols);
/* [rows, cols] of the compute dtype out of one matrix into another; lengths of rows in elements. */
void sheaf__copy_box(const sheaf__context *context, void *dst, int64_t ld_dst, const void *src,
                     int64_t ld_src, int64_t rows, int64_t cols);
/* sheaf__sum_partials - the sum over slices of dense [rows, cols] partials, part[s - first] of each
 * owned slice s; destroys them. The total over all ranks ends in *total, which is one of the
 * partials or, for a rank that holds no present slice, `spare`. */
sheaf_status *sheaf__sum_partials(sheaf__context *context, const sheaf_tree *tree,
                                  float *const *part, int first, float *spare, int64_t rows,
                                  int64_t cols, float **total);
/* sheaf__take_gradient - where an op that writes, and does not add, leaves the gradient of x: its
 * place if that is fresh, else as much scratch memory. sheaf__give_gradient - adds what lies there
 * (unless the op failed), and gives the memory back. */
sheaf_status *sheaf__take_gradient(void **dx, sheaf__context *context, const sheaf__value *x);
void sheaf__give_gradient(sheaf__context *context, const sheaf__value *x, void *dx, bool good);
/* sheaf__hand_on - the gradient of `to` gets that of `from`, which dies in this step: where nothing
 * was there yet the buffers change places. */
void sheaf__hand_on(const sheaf__context *context, sheaf__value *to, sheaf__value *from);
/* sheaf__refresh - float32 copies of masters, rounded to the compute dtype. */
void sheaf__refresh(const sheaf__context *context, float *to, const float *master, int64_t n);
/* sheaf__add_one - x = 1 + x, n floats. */
void sheaf__add_one(const sheaf__context *context, float *x, int64_t n);
