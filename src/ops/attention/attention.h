/* attention.h - causal and full attention of the heads one rank owns, forward and backward.
 *
 * Sequence b has keys 0..keys-1; its queries are the last `queries` of them
 * (all of them in training; the new ones when decoding with a cache). Query i
 * (absolute index q0 + i, q0 = keys - queries) sees key j when j <= q0 + i,
 * j > q0 + i - window (if window > 0), and key_mask[b][j] != 0.
 * With `full` set order and window do not count: every query sees each key j with
 * key_mask[b][j] != 0, and there may be more queries than keys. All else is the same.
 *
 * Forward. s = scale * (q . k) in float32, with a cap s = cap * tanh(s / cap). Keys go by parts of
 * 1024 and blocks of 64, counted from key 0. In a part m begins as the least float. Where the
 * largest visible s of a block, b, is above m + 8, m becomes b + 0.0f, and all that the part has so
 * far is multiplied by exp(old m - m): 16 lanes, and o. Then e = exp(s - m); lane j mod 16, j the
 * absolute key index, takes the visible e; o = o + the block's sum of round(e) * v, in `tiles` each
 * chunk's, and in mma8 and mma16 o is the chain. Parts meet in order: M, the least float at first,
 * becomes the larger m; sum = fma(joined lanes, exp(m - M), sum * exp(old M - M)), and o the same;
 * exp(x - x) is 1. In the end o = round(o * (1 / sum) + 0.0f). So max = M, up to 8 below the
 * largest s, and e reaches exp(8): as o is divided only in the end, values above about
 * FLT_MAX / (2981 keys) overflow.
 * Backward. D = dot(do, o) in 16 lanes; p32 = exp(s - max) / sum, unrounded, p = round(p32); dp =
 * do . v; ds = round(scale * p32 * (dp - D)), from left to right, with a cap times (1 - t * t)
 * before it is rounded, t = s / cap; dq = sum over keys of ds * k in blocks of 256 keys counted
 * from key 0; dk = sum ds * q and dv = sum p * do: a key head's query heads ascending, each over
 * its queries in blocks of 256 counted from query 0, all blocks added to one running sum. Every dq,
 * dk, dv has + 0.0f added before it is rounded to dtype. Products over head_dim, keys and queries
 * follow the numeric contract; in bfloat16 (float16 is widened and summed as float32) in the order
 * of device->sums, where pairs are (2i, 2i + 1) of the index that is summed, and chunks 32 of it,
 * counted as above. In mma8 and mma16, of bfloat16 and float16, blocks of backward are chains
 * (matmul.h): groups are 8 or 16 of the index, a chain ends after 4096 keys, counted from key 0, or
 * after 4096 queries of a head, counted from query 0, if more of them follow; the next query head
 * goes on in the chain of the one before. What a query does not see is a zero in its place.
 *
 * What a query does not see contributes nothing: its term is left out of the
 * chain, the lane and the maximum. Kernels may multiply it by +0 instead, or
 * leave out blocks, because a +0 never changes a lane (e >= 0) and changes a
 * chain only in the sign of a zero, which the final + 0.0f removes. That fails
 * when the other factor is not finite (0 * inf); then causal kernels take the slow path
 * of the definition, so an inf or NaN reaches exactly the queries that see it. Full
 * ones need it never: all queries see a key or none does.
 * Packed sequences. With `segment` set the batch * queries rows of q and o, which are also those of
 * k and v, fall into segments [segment[i], segment[i + 1]), each of which is a sequence of its own:
 * keys, order, window, lanes and blocks count from its first row. So a sequence has the bits it
 * would have alone, wherever it lies.
 * A query that sees nothing, or nothing but s = -inf, gives o = 0, stats (-inf, 0); the former no
 * gradient. Where the largest s is the least float, m stays: its e is 1, its max in stats -inf.
 * A NaN result is the one NaN of math/round.h.
 *
 * Since lanes, blocks and pairs are counted from key 0, causal decoding gives the bits
 * of the last rows of the forward pass over the whole sequence. The way work
 * is divided (heads, query blocks, threads) never changes a bit. */
#pragma once

#include "ops/device.h"

#define SHEAF__HEAD_DIM_MAX 256

typedef struct sheaf__attention {
    sheaf_dtype dtype;
    int64_t batch, queries, keys;
    int64_t kv_heads, group; /* owned key/value heads; query heads of each */
    int64_t head_dim;        /* 1 .. SHEAF__HEAD_DIM_MAX; odd ones are slow in bfloat16 */
    int64_t window;          /* 0 = none; ignored if full */
    bool full;               /* every query sees all keys */
    float scale;
    float cap;               /* 0 = none */
    const uint8_t *key_mask; /* [batch, mask_ld], NULL = all visible */
    int64_t mask_ld;
    /* q, o: row b*queries + i, column (kv*group + g)*head_dim + c, row stride ldq / ldo.
     * k, v: row b*kv_rows + j, column kv*head_dim + c, row stride ldk, ldv; with by_head (forward
     * only) row (b*kv_heads + kv)*kv_rows + j, column c, so that a head's keys follow each other.
     */
    int64_t ldq, ldk, ldv, ldo;
    bool by_head;
    int64_t kv_rows; /* rows between sequences in k and v (keys, or the cache's length) */
    /* [segments + 1], the host's, ascending from 0 to batch * queries, each b * queries among them;
     * needs equal queries, keys and kv_rows, and not `full`. NULL: every b is a sequence */
    const int64_t *segment;
    int64_t segments;
} sheaf__attention;

/* sheaf__attention_forward - one parallel region over device->pool.
 *   stats  [batch, kv_heads*group, queries, 2] f32: row max and sum. May be
 *          NULL when no backward follows. With segments [heads, rows of it, 2] of each, one after
 *          the other.
 * Scratch: device->scratch only, and no more for more keys, but that V is packed once for several
 * blocks of rows where it fits in a quarter of the rest (tested up to 100 000 keys).
 * Needs queries <= keys unless full. Adds to device->flops 2 multiply-adds per visible
 * (query, key, channel), the causal and the window limit counted exactly (full: queries *
 * keys), key_mask ignored; on dry does nothing else. */
void sheaf__attention_forward(sheaf__device *device, const sheaf__attention *shape, void *o,
                              float *stats, const void *q, const void *k, const void *v);
/* sheaf__attention_backward - dq has the layout of q, dk of k, dv of v, d_o of o; every
 * element of the owned heads is written. Needs queries == keys unless full. Counts 5
 * multiply-adds per visible (query, key, channel), whatever it recomputes. Where dk and dv of all
 * keys of a head do not fit in a thread's scratch, it takes up to four times that of the device's
 * memory, also on dry; without it, it computes scores twice. */
void sheaf__attention_backward(sheaf__device *device, const sheaf__attention *shape, void *dq,
                               void *dk, void *dv, const void *d_o, const void *o,
                               const float *stats, const void *q, const void *k, const void *v);
