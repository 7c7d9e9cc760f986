/* rows.h - what several ops of the tape do to rows, on the device's threads; nothing on dry. */
#ifndef SHEAF_TAPE_ROWS_H
#define SHEAF_TAPE_ROWS_H

#include "tape/tape.h"

/* dst += src, n float32 */
void sheaf__add(const sheaf__context *context, float *dst, const float *src, int64_t n);
/* dst = round(dst + src), n elements of `dtype` */
void sheaf__accumulate(const sheaf__context *context, void *dst, const void *src, int64_t n, sheaf_dtype dtype);
/* sheaf__hand_on - the gradient of `to` gets that of `from`, which dies in this step: where nothing
 * was there yet the buffers change places. */
void sheaf__hand_on(const sheaf__context *context, sheaf__value *to, sheaf__value *from);
/* sheaf__refresh - float32 copies of masters, rounded to the compute dtype. */
void sheaf__refresh(const sheaf__context *context, float *to, const float *master, int64_t n);

#endif
