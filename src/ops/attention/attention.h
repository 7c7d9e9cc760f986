/* attention.h - causal attention of the heads one rank owns, forward and backward.
 *
 * Sequence b has keys 0..keys-1; its queries are the last `queries` of them
 * (all of them in training; the new ones when decoding with a cache). Query i
 * (absolute index q0 + i, q0 = keys - queries) sees key j when j <= q0 + i,
 * j > q0 + i - window (if window > 0), and key_mask[b][j] != 0.
 * s = scale * (q . k) in float32; e = exp(s - max); p = round(e / sum e); masked
 * p are +0; o = round(sum over keys of p * v, in blocks of 256 keys counted from
 * key 0, + 0.0f). A row that sees nothing gives o = 0 and no gradient.
 * Backward: D = dot(do, o) in 16 lanes; dp = do . v; ds = round(scale * p32 * (dp - D))
 * with p32 = e / sum e unrounded; dq = sum ds k; dk = sum ds q; dv = sum p do, where
 * p is the rounded one. dk, dv of a key head add its query heads in ascending order,
 * each over its queries in blocks of 256 (counted from query 0); every result has
 * + 0.0f added before it is rounded to dtype. */
#ifndef SHEAF_OPS_ATTENTION_H
#define SHEAF_OPS_ATTENTION_H

#include "ops/device.h"

typedef struct sheaf__attention {
    sheaf_dtype dtype;
    int64_t batch, queries, keys;
    int64_t kv_heads, group; /* owned key/value heads; query heads of each */
    int64_t head_dim;
    int64_t window;          /* 0 = none */
    float scale;
    const uint8_t *key_mask; /* [batch, mask_ld], NULL = all visible */
    int64_t mask_ld;
    /* q, o: row b*queries + i, column (kv*group + g)*head_dim + c, row stride ldq / ldo.
     * k, v: row b*kv_rows + j, column kv*head_dim + c, row stride ldk, ldv. */
    int64_t ldq, ldk, ldv, ldo;
    int64_t kv_rows;         /* rows between sequences in k and v (keys, or the cache's length) */
} sheaf__attention;

/* stats [batch, kv_heads*group, queries, 2] f32: row max of s, and sum of e. May be
 * NULL when no backward follows. */
void sheaf__attention_forward(sheaf__device *device, const sheaf__attention *shape, void *o,
                              float *stats, const void *q, const void *k, const void *v);
/* dq has the layout of q, dk of k, dv of v, do of o; needs queries == keys. */
void sheaf__attention_backward(sheaf__device *device, const sheaf__attention *shape, void *dq,
                               void *dk, void *dv, const void *d_o, const void *o,
                               const float *stats, const void *q, const void *k, const void *v);
void sheaf__attention_forward_ref(const sheaf__attention *shape, void *o, float *stats,
                                  const void *q, const void *k, const void *v);
void sheaf__attention_backward_ref(const sheaf__attention *shape, void *dq, void *dk, void *dv,
                                   const void *d_o, const void *o, const float *stats,
                                   const void *q, const void *k, const void *v);

#endif
