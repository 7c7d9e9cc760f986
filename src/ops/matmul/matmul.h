/* matmul.h - matrix products in the order of the numeric contract.
 *
 * A product job computes, for one output [m, n],
 *     y = finish( tree over slices ( sum over the slice's terms ( A_t * B_t ) ) )
 * Within a slice the terms are taken in order; each term's summed axis k is
 * taken in ascending blocks of 256, every block an ascending chain of fma from
 * 0, and the block sums are added, in that order and across terms, to one
 * running float32 sum that starts as the first block's sum. A slice whose terms
 * all have k = 0 gives +0. The slices meet in the tree of owner.h.
 * float16 is widened, which is exact, and summed as float32 (but for mma8 and mma16). So is a
 * packed weight of bfloat16 or float16 where the job's A is float32.
 * A block of bfloat16 has one of these orders (device->sums):
 *   pairs  a chain by pairs, odd element first; an odd last element is paired with zero
 *   tiles  chunks of 32, the last one filled up with zeros; of each a chain of fma from 0 over
 *          its even elements and one over its odd ones; sum = sum + (even + odd), from +0
 *   groups, tiles in groups
 *           the same, but that a term on codes of 4 bits without zeros, whose groups begin at
 *           multiples of 16 of its columns and of W's rows, is one of codes in groups: its elements
 *           are what codes stand for, rounded to bfloat16, its blocks end where groups do as well,
 *           and sum = fma(group's scale, block, sum), from scale * block on; where something is
 *           added to scaled codes, then sum = fma(that, sum by lanes of A in the block, sum)
 * There are no blocks where all of a job is bfloat16, or all float16, which is then not widened, in
 *   mma8, mma16  (mma.h) a slice is a chain of groups, each term's from its first element
 * After SHEAF__MMA_CHAIN elements of a term, if more of it follow, the chain ends, and before a
 * term that is `apart` and not the first one that has elements; other terms go on in the chain of
 * the one before. Chains are added in order to a running float32 sum that starts as the first
 * one's. What is denormal stays so inside a chain alone: its sum is then a zero of its sign.
 * A slice that the tree says is present and that no term names also gives +0; one
 * that is not present does not count even if terms name it. A NaN is stored as
 * the default quiet NaN, 0xffc00000 (bfloat16 0xffc0, float16 0xfe00), whatever went in: which
 * payload an fma passes on depends on the order a compiler gives its operands.
 * Blocking of m and n, threads and packing never change a bit. */
#pragma once

#include "base/base.h"
#include "sheaf/dtype.h"
#include "sheaf/owner.h"
#include "ops/device.h"
#include "ops/quant/quant.h"

/* A weight W [n, k] (n = out, k = in), stored in panels private to matmul; products dy W repack
 * them on the way. Several weights may share the panels of a larger one, of whose rows each has
 * some: the larger one meets x at once, whatever its parts are, and each part meets its own dy.
 * On a device whose class says so, W is its rows one after the other instead, without gaps. */
typedef struct sheaf__packed {
    sheaf_dtype dtype; /* F32, BF16 or F16 */
    int64_t n, k;
    void *ahead; /* panels for x W^T; sheaf__packed_size() bytes, 64-aligned; of the larger one */
    int64_t row0, rows;   /* W's first row among the larger one's, and how many that has; rows 0: W
                             is a part of nothing */
    struct mm_code *code; /* `ahead` is compressed; else NULL */
    bool row_major;       /* rows, no panels */
    /* `ahead` has codes and what belongs to them, in a layout private to matmul, of this box of the
     * logical tensor (a part's: the larger one's); dtype is the type that values are computed in.
     */
    bool quantised;
    sheaf__quant quant;
    sheaf__quant_box box;
    float offset; /* of doubled scales */
} sheaf__packed;

/* sheaf__packed_on - W as the device has it, or the one that it plans for; `ahead` is not taken. */
sheaf__packed sheaf__packed_on(const sheaf__device *device, sheaf_dtype dtype, int64_t n,
                               int64_t k);
/* sheaf__packed_size - bytes of W, or of the larger one. sheaf__packed_bytes - of panels. */
size_t sheaf__packed_size(const sheaf__packed *w);
size_t sheaf__packed_bytes(sheaf_dtype dtype, int64_t n, int64_t k);
/* sheaf__packed_part - rows [row0, row0 + n) of w. */
sheaf__packed sheaf__packed_part(const sheaf__packed *w, int64_t row0, int64_t n);
/* sheaf__pack - writes rows [first, first + count) of W from src [count, k] (row stride
 * ld elements, of F32, BF16 or F16), converting by rounding to nearest even. Any
 * order and split of rows gives the same panels; the call that writes the last
 * row also clears the padding. Serial; different row ranges that are multiples
 * of 32 apart may be packed by different threads, and so may different parts. */
void sheaf__pack(sheaf__packed *w, const void *src, sheaf_dtype from, int64_t ld, int64_t first,
                 int64_t count);
/* sheaf__weight_load - sheaf__pack() on a device; src is the host's, and may be of several threads
 * at once as there. sheaf__weight_refresh - all of W from masters [n, k], by the device's threads.
 */
void sheaf__weight_load(sheaf__device *device, sheaf__packed *w, const void *src, sheaf_dtype from,
                        int64_t ld, int64_t first, int64_t count);
void sheaf__weight_refresh(sheaf__device *device, sheaf__packed *w, const float *master);
/* sheaf__packed_quantised - W as sheaf__packed_on(), of codes: the box of a tensor that `quant` is
 * the form of. A product in `dtype` meets, each rounded once to `dtype`,
 *     x W^T   the values of quant.h, but of codes in groups
 *     dy W    these rounded to quant->dtype, but for INT8
 * so that it has the bytes of a product with such panels.
 * sheaf__weight_load_codes - rows [first, first + count), as sheaf__weight_load().
 * sheaf__weight_load_whole - before them, on one thread: what belongs to all of the tensor, if only
 * its offset. W or a part may be loaded; parts made after sheaf__weight_load_whole() have the
 * offset. */
sheaf__packed sheaf__packed_quantised(const sheaf__device *device, sheaf_dtype dtype,
                                      const sheaf__quant *quant, const sheaf__quant_box *box);
void sheaf__weight_load_codes(sheaf__device *device, sheaf__packed *w,
                              const sheaf__quant_parts *parts, int64_t first, int64_t count);
void sheaf__weight_load_whole(sheaf__device *device, sheaf__packed *w,
                              const sheaf__quant_whole *whole);
/* sheaf__packed_compress - before W is packed: its panels shall be held in 12 bits an element
 * instead of 16, without loss, so that what reads them from memory reads a quarter less. Sets
 * w->code where that may be (W is bfloat16, in panels and part of nothing); parts made after
 * that have it too. Then only whole panels are packed: rows [first, first + count) begin at a
 * multiple of 32 and end at one or with W. Compressed weights have no backward product. */
void sheaf__packed_compress(sheaf__packed *w);
/* sheaf__packed_as_wanted - after all of W is packed: false where its numbers cannot be compressed
 * (matmul_compress.c says which). Then w->code is NULL, and W has to be packed again from its first
 * row. */
bool sheaf__packed_as_wanted(sheaf__packed *w);
/* sheaf__packed_expand - W's panels in 16 bits again, where there is memory to do it with; parts
 * have to take w->code over. Serial. */
void sheaf__packed_expand(sheaf__packed *w);
/* sheaf__packed_few - rows of x up to which a compressed weight is met faster than another; 0:
 * none. */
int64_t sheaf__packed_few(const sheaf__device *device);
/* sheaf__packed_row - row `row` of W [k] in w->dtype; W is the host's. */
void sheaf__packed_row(void *dst, const sheaf__packed *w, int64_t row);

typedef enum sheaf__right {
    SHEAF__B_NK,    /* b stored [n, k], row stride ldb: A * B^T */
    SHEAF__B_KN,    /* b stored [k, n], row stride ldb */
    SHEAF__B_AHEAD, /* w: n = w->n, k = w->k: A * W^T; no part, or one that begins a panel */
    SHEAF__B_BACK,  /* w: n = w->k, k = w->n: A * W */
} sheaf__right;

typedef struct sheaf__term {
    const void *a; /* [m, k] row stride lda; or stored [k, m] when a_km */
    int64_t lda;
    bool a_km;
    sheaf__right form;
    const void *b; /* B_NK, B_KN */
    int64_t ldb;
    const sheaf__packed *w; /* B_AHEAD, B_BACK */
    int64_t k;
    bool apart; /* by mma8 and mma16 begins a chain, where it is not the first of its slice */
} sheaf__term;

typedef struct sheaf__product {
    int64_t m, n;
    /* Of all A and B. A packed weight has the same, but where this is F32 or F16 it may have any
     * of the three. */
    sheaf_dtype dtype;
    /* Terms of all slices this rank owns, ascending by slice: slice slice_of[i] has
     * terms term[first[i] .. first[i+1]). */
    int nslices;
    const int *slice_of; /* [nslices]; may be NULL when nslices == 1 */
    const int *first;    /* [nslices + 1]; NULL when nslices == 1: all nterms */
    const sheaf__term *term;
    int nterms;
    /* Destination of the sum: exactly one of
     *  roots != NULL: for each of this rank's roots of `tree`, a dense float32 [m, n];
     *  y != NULL: this rank holds every present slice (or nslices == 1, tree NULL) and
     *    y = round(round(alpha * sum + bias) + residual) in `out`, or, when add is set
     *    (out must be F32), y = y + alpha * sum. */
    const sheaf_tree *tree; /* may be NULL when nslices == 1 */
    int rank;
    float *const *roots;
    void *y;
    int64_t ldy;
    sheaf_dtype out;      /* F32, BF16 or F16 */
    float alpha;          /* set it: 1 is exact */
    const float *bias;    /* [n] or NULL */
    const void *residual; /* in `out`, row stride ldr, or NULL */
    int64_t ldr;
    bool add;
    /* In all cases the float32 sum is additionally rounded to `round_to` before alpha
     * when this is BF16 or F16 and out is F32 (logits); otherwise set it to F32. */
    sheaf_dtype round_to;
} sheaf__product;

/* sheaf__products - runs the jobs, which must not depend on each other, as one
 * parallel region over device->pool; on dry it only adds to device->flops.
 * Uses device->scratch only. */
void sheaf__products(sheaf__device *device, const sheaf__product *job, int jobs);

/* sheaf__product_ref - the definition, plain C, serial, on any machine. */
void sheaf__product_ref(const sheaf__product *job, sheaf_sums sums);
