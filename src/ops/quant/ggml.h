/* ggml.h - rows of numbers to ggml's blocks and back, bit for bit as ggml does it on a processor
 * (layout/ggml.h has the sizes). d, m: float16; indexes count elements of the block.
 *
 *   Q8_0  32:  d, i8 q[32]                       q d
 *   Q4_0  32:  d, q[16]                          (q - 8) d      element i and 16 + i in a byte, the
 *   Q4_1  32:  d, m, q[16]                       q d + m        first in its low half; a fifth bit
 *   Q5_0  32:  d, h[4], q[16]                    (q - 16) d     of element i is bit i of h
 *   Q5_1  32:  d, m, h[4], q[16]                 q d + m
 *   Q2_K  256: s[16], q[64], d, m                (d s) q - m n  s and n of 16 elements: halves of s
 *   Q3_K  256: h[32], q[64], s[12], d            (d (s - 32)) (q - 4)    s of 16 elements: 6 bits
 *   Q4_K  256: d, m, s[12], q[128]               (d s) q - m n  s and n of 32 elements: 6 bits
 *   Q5_K  256: d, m, s[12], h[32], q[128]        (d s) q - m n
 *   Q6_K  256: l[128], h[64], i8 s[16], d        (d s) (q - 32)          s of 16 elements
 *
 * Each product, sum and difference is rounded to float32. Serial, thread-safe. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "layout/ggml.h"
#include "ops/quant/quant.h"

/* sheaf__ggml_values - n numbers, whole blocks. Of plain types (F32, F16, BF16) as well; not of
 * integers and F64. */
void sheaf__ggml_values(float *values, const void *blocks, sheaf__gguf_type type, int64_t n);

/* sheaf__ggml_form - of a type with blocks (ops/quant/quant.h); NULL of others. sheaf__ggml_parts -
 * n elements, whole blocks of such a type: codes [n], and [groups][floats] of scales. */
const sheaf__quant *sheaf__ggml_form(sheaf__gguf_type type);
void sheaf__ggml_parts(uint8_t *codes, float *scales, const void *blocks, sheaf__gguf_type type,
                       int64_t n);

/* sheaf__ggml_writes - can numbers become such blocks here? F32, F16, BF16, Q8_0, Q5_0, Q5_1, Q4_K,
 * Q5_K and Q6_K can. */
bool sheaf__ggml_writes(sheaf__gguf_type type);
/* sheaf__ggml_blocks - n numbers, whole blocks of a type that is written. Rows that are not finite
 * give some blocks, without meaning. */
void sheaf__ggml_blocks(void *blocks, const float *values, sheaf__gguf_type type, int64_t n);
