/* quantise.h - numbers to codes of 4 and 8 bits and back, over memory of the host.
 *
 * Each rule is bitsandbytes' on the processor, bit for bit; the plain-C columns of kernels.h are
 * the definition. The caller may have DAZ and FTZ set or not: here denormals are kept. What is NaN
 * is stored as the one NaN of round.h. Serial, thread-safe, without allocations. */
#pragma once

#include "base/base.h"
#include "ops/quant/quant.h"
#include "ops/quant/values.h"

/* ---- 4 bits: NF4 and FP4 ---- */

/* sheaf__quantise4 - n numbers of type `from` (F32, BF16, F16), from the first one of a block of
 * 32 to 4096. An incomplete last block is the tensor's last one, whose rule differs.
 *   codes    [n] a byte each
 *   absmax   [ceil(n / block)] the largest size of each block; NaN where one is NaN */
void sheaf__quantise4(uint8_t *codes, float *absmax, const void *x, sheaf_dtype from, int64_t n,
                      int64_t block, sheaf__codes kind);

/* ---- 8 bits by blocks, of bitsandbytes' dynamic maps ---- */

typedef struct sheaf__map8 {
    float value[256];
    /* The processor's search: y in [-1, 1] has code[(y + 1) / 2 * 65535, to the nearest], which is
     * not the nearest value's. */
    uint8_t code[65536];
} sheaf__map8;

/* sheaf__dynamic_map - the 256 values, ascending: both signs, or from 0 up. */
void sheaf__dynamic_map(float map[256], bool is_signed);
void sheaf__map8_init(sheaf__map8 *map, bool is_signed);

/* ---- scales as codes themselves ---- */

/* sheaf__mean - of n float32 as torch has it with one thread: with several, and on a GPU, torch's
 * last bits are others for 32,768 numbers and more. */
float sheaf__mean(const float *x, int64_t n);
/* sheaf__double_scales - all n scales of a tensor to codes [n] and nested [ceil(n / 256)] of
 * (scale - offset), by the signed map. */
void sheaf__double_scales(uint8_t *codes, float *nested, float *offset, const float *scales,
                          int64_t n, const sheaf__map8 *map);

/* ---- int8 by rows ---- */

/* sheaf__quant_of_rows - bitsandbytes' int8, whose scale is fl(SCB * fl(1/127)). */
static inline bool sheaf__quant_of_rows(const sheaf__quant *q)
{
    return q->codes == SHEAF__INT8 && q->block == 0;
}

/* sheaf__quantise_rows - x [rows, cols] dense, of type `from`, is rounded to float16; codes
 * [rows, cols] of INT8, scb [rows] the largest size of each row. The scales of such a form in
 * training are sheaf__int8_scale(scb). */
void sheaf__quantise_rows(uint8_t *codes, float *scb, const void *x, sheaf_dtype from, int64_t rows,
                          int64_t cols);

/* ---- 4 and 8 bits by groups: GPTQ and AWQ ---- */

/* sheaf__quantise_groups - n numbers of type `from` to the nearest code of each group of `block`, a
 * part of 4096: x / scale + zero, to nearest even, where scales are rounded to float16 beforehand.
 *   codes    [n] of INT4, or of INT8
 *   scales   [n / block], of float16's numbers; NaN or infinity where x has such numbers, or larger
 *            ones
 *   zeros    [n / block], so that the group's least and largest number, and 0, are between the
 * ends; NULL: symmetric, twice the largest size over 15, or over 255 */
void sheaf__quantise_groups(uint8_t *codes, float *scales, uint8_t *zeros, const void *x,
                            sheaf_dtype from, int64_t n, int64_t block, sheaf__codes kind);

/* ---- codes to numbers ---- */

/* What values are wanted for; each rounding is to nearest even.
 *   FORWARD  fl(value * scale), rounded to `to`
 *   BACK     the same, rounded to quant->dtype before that; of rows: as FORWARD
 *   PROGRAM  what its program's own dequantisation gives (files, merges): as BACK, but for INT8
 *            scales are SCB itself: fl(fl(code * SCB) * fl(1/127)) */
typedef enum sheaf__values_for {
    SHEAF__VALUES_FORWARD,
    SHEAF__VALUES_BACK,
    SHEAF__VALUES_PROGRAM,
} sheaf__values_for;

typedef struct sheaf__dequantised {
    const sheaf__quant *quant;
    sheaf__quant_box box;
    sheaf__quant_parts parts; /* of the box, as a source gives them */
    sheaf__quant_whole whole;
    sheaf__values_for what;
    sheaf_dtype to; /* F32, BF16, F16 */
    void *memory;   /* of the parts, from sheaf__dequantised_new(): free() it */
} sheaf__dequantised;

/* sheaf__dequantise - rows [first, first + count) of the box to y, `ld` elements apart. */
void sheaf__dequantise(void *y, int64_t ld, const sheaf__dequantised *from, int64_t first,
                       int64_t count);

/* sheaf__dequantised_new - memory for the parts of a box [rows, cols], wherever it lies, and for
 * what belongs to all of a tensor [out, in]. */
sheaf_status *sheaf__dequantised_new(sheaf__dequantised *d, const sheaf__quant *quant, int64_t out,
                                     int64_t in, int64_t rows, int64_t cols);

/* A quantised tensor [out, in] of a file, by its parts. */
typedef struct sheaf__codes_reader {
    const sheaf__quant *quant;
    int64_t out, in;
    sheaf_dtype to; /* of the values */
    bool tall;      /* a few rows cost as much as several hundred */
    void *self;     /* of both, which are as sheaf__quantised_source has them */
    sheaf_status *(*read)(void *self, int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                          const sheaf__quant_parts *to);
    sheaf_status *(*whole)(void *self, sheaf__quant_whole *to);
} sheaf__codes_reader;

/* sheaf__read_values - the values of a box as its program has them, dense; in memory of a strip. */
sheaf_status *sheaf__read_values(void *dst, const sheaf__codes_reader *reader, int64_t row0,
                                 int64_t rows, int64_t col0, int64_t cols);
