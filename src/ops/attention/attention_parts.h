/* attention_parts.h - what the files of this folder share.
 *
 * Both directions divide into parts that can be computed alone: the output of a
 * range of queries of one key head, dq of a range of queries, dk and dv of a range
 * of keys. The reference has each as a function; kernels use it when they meet a
 * number that is not finite, unless the attention is full. */
#pragma once

#include "ops/attention/attention.h"
#include "ops/attention/attention_steps.h"
#include "ops/math/round.h"
#include "ops/matmul/mma.h"

#define SHEAF__ATTENTION_BLOCK 256 /* of the contract: keys or queries of one chain */
#define SHEAF__ATTENTION_CHUNK 32  /* of its order `tiles` */
#define SHEAF__ATTENTION_STRIP 32  /* keys whose scores go through the backward pass together */
#define SHEAF__ATTENTION_LD                                                                        \
    272 /* queries of a strip's row: 256 would put rows into one cache set */

typedef struct sheaf__attention_call {
    const sheaf__attention *shape;
    void *o; /* written forward, read backward */
    float *stats;
    const void *q, *k, *v, *d_o;
    void *dq, *dk, *dv;
    sheaf_sums sums;    /* of 16 bits */
    sheaf__units units; /* the units that kernels may use */
} sheaf__attention_call;

/* A part: of one sequence and key head, query heads [g0, g1) of the group and queries or
 * keys [begin, end). Forward, [begin, end) are rows instead: query * group + head. */
typedef struct sheaf__attention_part {
    int64_t batch, kv, g0, g1, begin, end;
} sheaf__attention_part;

void sheaf__attention_ref_rows(const sheaf__attention_call *call,
                               const sheaf__attention_part *part);
void sheaf__attention_ref_dq(const sheaf__attention_call *call, const sheaf__attention_part *part);
void sheaf__attention_ref_dkv(const sheaf__attention_call *call, const sheaf__attention_part *part);

typedef enum sheaf__attention_what {
    SHEAF__ATTENTION_ROWS, /* o (and stats) of rows [begin, end) */
    /* dk and dv of keys [begin, end), begin a multiple of 256; all heads of the group. With dq
     * these are all keys, and dq of all queries is written as well. */
    SHEAF__ATTENTION_DKV,
    SHEAF__ATTENTION_DKV_DQ,
    SHEAF__ATTENTION_DQ, /* dq of queries [begin, end), begin a multiple of 256 */
} sheaf__attention_what;

/* Computes a part on one instruction set, with `bytes` of scratch. */
typedef void sheaf__attention_kernel(const sheaf__attention_call *call,
                                     const sheaf__attention_part *part, sheaf__attention_what what,
                                     void *scratch, size_t bytes);

/* By the functions above, without scratch. */
sheaf__attention_kernel sheaf__attention_ref, sheaf__attention_avx2, sheaf__attention_avx512;
/* For kernels->isa on this CPU; the reference for "ref". */
sheaf__attention_kernel *sheaf__attention_kernel_for(const char *isa);

/* Whether kernels keep bfloat16 as pairs; else they widen it to floats where they pack it. */
static inline bool sheaf__attention_by_pairs(const sheaf__attention_call *call)
{
    return call->shape->dtype == SHEAF_BF16 &&
           (call->sums == SHEAF_SUMS_TILES || call->units.pairs);
}

/* Whether chains of mma8 or mma16 over `count` keys or queries end before these do. */
static inline bool sheaf__attention_ends(const sheaf__attention *s, sheaf_sums sums, int64_t count)
{
    return sheaf__by_mma(sums, s->dtype) && count > SHEAF__MMA_CHAIN;
}

/* Most keys whose dk and dv the dkv kernels can hold in `bytes`: a multiple of 256. */
int64_t sheaf__attention_keys_held(const sheaf__attention *shape, sheaf_sums sums, size_t bytes);

/* The window that counts; 0 = none. */
static inline int64_t sheaf__attention_window(const sheaf__attention *s)
{
    return s->full ? 0 : s->window;
}

/* Keys that query i may see: [first, last] by order and window alone, without key_mask. */
static inline int64_t sheaf__attention_last(const sheaf__attention *s, int64_t i)
{
    return s->full ? s->keys - 1 : s->keys - s->queries + i;
}

static inline int64_t sheaf__attention_first(const sheaf__attention *s, int64_t i)
{
    const int64_t window = sheaf__attention_window(s);
    const int64_t first = sheaf__attention_last(s, i) - window + 1;
    return window > 0 && first > 0 ? first : 0;
}

static inline bool sheaf__attention_masked(const sheaf__attention *s, int64_t batch, int64_t j)
{
    return s->key_mask != NULL && s->key_mask[batch * s->mask_ld + j] == 0;
}

/* sheaf__attention_segment - the call of one segment: `shape` and `call` are the caller's space.
 * Without segments the whole call. */
void sheaf__attention_segment(sheaf__attention_call *call, sheaf__attention *shape,
                              const sheaf__attention_call *all, int64_t index);

/* Index of the first element of head `h` of a row, in elements. */
static inline int64_t sheaf__attention_at(int64_t row, int64_t ld, int64_t h, int64_t head_dim)
{
    return row * ld + h * head_dim;
}

/* The same of key j of sequence `batch` in k or v. */
static inline int64_t sheaf__attention_key_at(const sheaf__attention *s, int64_t batch, int64_t kv,
                                              int64_t j, int64_t ld)
{
    if (s->by_head)
        return ((batch * s->kv_heads + kv) * s->kv_rows + j) * ld;
    return sheaf__attention_at(batch * s->kv_rows + j, ld, kv, s->head_dim);
}

static inline float *sheaf__attention_stats(const sheaf__attention_call *call, int64_t batch,
                                            int64_t head, int64_t i)
{
    const sheaf__attention *s = call->shape;
    return call->stats + ((batch * s->kv_heads * s->group + head) * s->queries + i) * 2;
}
