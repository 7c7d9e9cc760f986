/* attention_mma.h - tiles and fragments of attention by tensor cores.
 *
 * A kernel is made for heads of `wide` channels at most (64, 96, 128 or 256), a constant; what a
 * head has less is zero. A block has 4 warps of 16 rows, queries or keys; tiles of the others go by
 * through shared memory. Of a tile of scores [16][cols] a thread has, as of m16n8, rows lane / 4
 * and 8 on, and of each 8 columns 2 (lane % 4) and the next: s[column / 8][4]. So the 16 lanes of
 * the definition, by keys mod 16, fall to 4 threads, and two neighbouring scores are a fragment of
 * the next product's A. */
#pragma once

#include "ops/devices/gpu/kernels/attention.h"
#include "ops/devices/gpu/kernels/vectors.h"

enum {
    ATTENTION_THREADS = 128,
    ATTENTION_ROWS = 64,  /* of a block */
    ATTENTION_WIDEST = 32 /* eights of channels */
};

/* Elements from row to row in shared memory: eight rows lie in different banks. */
DEVICE int attention_line(int wide)
{
    return wide + 8;
}

DEVICE void attention_mma(float *d, const uint32_t *a, const uint32_t *b, sheaf_dtype dtype)
{
    if (dtype == SHEAF_F16)
        mma_f16(d, a, b);
    else
        mma_bf16(d, a, b);
}

/* Two weights, rounded. They only go into products, in which one NaN is like the other. */
DEVICE uint32_t attention_pair(float x, float y, sheaf_dtype dtype)
{
#ifdef __CUDACC__
    uint32_t pair;
    if (dtype == SHEAF_F16)
        asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    else
        asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    return pair;
#else
    return dtype == SHEAF_F16 ? sheaf__f16(x) | (uint32_t)sheaf__f16(y) << 16
                              : sheaf__bf16(x) | (uint32_t)sheaf__bf16(y) << 16;
#endif
}

/* ---- tiles ---- */

/* Rows [row, row + count) of `rows`, from `from` on; zeros behind them and behind their channels.
 * Rows that cannot be copied by 16 bytes are by elements. */
DEVICE void attention_load(uint16_t *to, const sheaf__attention_part *a, const uint16_t *from,
                           int64_t ld, int32_t row, int32_t rows, int count, int wide)
{
    const int chunks = wide / 8, hop = ATTENTION_THREADS / chunks;
    if (a->even && ATTENTION_THREADS % chunks == 0) { /* a thread has one column */
        const int line = (int)threadIdx.x / chunks, c = (int)threadIdx.x % chunks * 8;
        const int32_t left = c < a->head_dim ? rows - row - line : 0;
        const uint16_t *x = from + (int64_t)(row + line) * ld + c;
        uint16_t *y = to + line * attention_line(wide) + c;
        UNROLL
        for (int i = 0; i < count; i += hop)
            copy_16(y + i * attention_line(wide), x + i * ld, i < left);
        return;
    }
    ROLLED
    for (int i = (int)threadIdx.x; i < count * chunks; i += ATTENTION_THREADS) {
        const int line = i / chunks, c = i % chunks * 8;
        const bool there = row + line < rows && c < a->head_dim;
        const uint16_t *x = from + (there ? (int64_t)(row + line) * ld + c : 0);
        uint16_t *y = to + line * attention_line(wide) + c;
        if (a->even)
            copy_16(y, x, there);
        else
            for (int e = 0; e < 8; e++)
                y[e] = there && c + e < a->head_dim ? x[e] : (uint16_t)0;
    }
}

/* Whether all numbers of a tile are finite; a warp answers for itself. One step above the largest
 * finite exponent carries into the place of the sign. */
DEVICE bool attention_is_finite(const uint16_t *tile, int count, int wide, sheaf_dtype dtype)
{
    const uint32_t step = dtype == SHEAF_F16 ? 0x04000400u : 0x00800080u;
    const int chunks = wide / 8, parts = count * chunks / 32, lane = (int)threadIdx.x % 32;
    uint32_t bad = 0;
    ROLLED
    for (int part = 0; part < parts; part++) {
        const int i = part * 32 + lane;
        const quad x = load_quad(tile + i / chunks * attention_line(wide) + i % chunks * 8);
        UNROLL
        for (int e = 0; e < 4; e++)
            bad |= (x.word[e] & 0x7fff7fffu) + step;
    }
    return (any_lane((int32_t)bad) & (int32_t)0x80008000u) == 0;
}

/* A's fragment k: rows of the warp's 16, channels 16 k. */
DEVICE void attention_a(uint32_t *q, const uint16_t *rows, int k, int wide)
{
    const int lane = (int)threadIdx.x % 32;
    load_matrices(q, rows + lane % 16 * attention_line(wide) + k * 16 + lane / 16 * 8);
}

/* s += one step of channels: of 16 rows, in q, and `cols` rows of a tile. */
DEVICE void attention_step(float (*s)[4], const uint32_t *q, const uint16_t *tile, int k, int cols,
                           int wide, sheaf_dtype dtype)
{
    const int lane = (int)threadIdx.x % 32;
    UNROLL
    for (int j = 0; j < cols / 8; j += 2) {
        uint32_t b[4];
        load_matrices(b, tile + (j * 8 + lane / 16 * 8 + lane % 8) * attention_line(wide) + k * 16 +
                             lane / 8 % 2 * 8);
        attention_mma(s[j], q, b, dtype);
        attention_mma(s[j + 1], q, b + 2, dtype);
    }
}

/* Products over channels of 16 rows and `cols` rows, both in shared memory. */
DEVICE void attention_products(float (*s)[4], const uint16_t *rows, const uint16_t *tile, int cols,
                               int wide, sheaf_dtype dtype)
{
    UNROLL
    for (int i = 0; i < cols / 2; i++)
        s[i / 4][i % 4] = 0;
    UNROLL
    for (int k = 0; k < wide / 16; k++) {
        uint32_t q[4];
        attention_a(q, rows, k, wide);
        attention_step(s, q, tile, k, cols, wide, dtype);
    }
}

/* The first four go behind the others: a loop that is not unrolled has each of them in its turn. */
DEVICE void attention_turn(float (*s)[4], int cols)
{
    UNROLL
    for (int e = 0; e < 4; e++) {
        const float first = s[0][e];
        UNROLL
        for (int j = 0; j < cols / 8 - 1; j++)
            s[j][e] = s[j + 1][e];
        s[cols / 8 - 1][e] = first;
    }
}

/* Scores of products. Caps are rare and long: their code stands here once. */
DEVICE void attention_scores(const sheaf__attention_part *a, float (*s)[4], int cols)
{
    UNROLL
    for (int i = 0; i < cols / 2; i++)
        s[i / 4][i % 4] = a->scale * s[i / 4][i % 4];
    if (a->cap == 0)
        return;
    ROLLED
    for (int j = 0; j < cols / 8; j++) {
        ROLLED
        for (int e = 0; e < 4; e++) {
            const float score = a->cap * sheaf__tanh_of(s[0][0] / a->cap);
            s[0][0] = s[0][1];
            s[0][1] = s[0][2];
            s[0][2] = s[0][3];
            s[0][3] = score;
        }
        attention_turn(s, cols);
    }
}

/* ---- what is seen ---- */

/* Whether the mask hides one of the keys [j, j + cols), a multiple of 32; a warp answers for
 * itself. */
DEVICE bool attention_hides(const sheaf__attention_view *v, int32_t j, int cols)
{
    int32_t hidden = 0;
    UNROLL
    for (int c = 0; c < cols; c += 32)
        hidden |= v->mask[j + c + (int)threadIdx.x % 32] == 0;
    return any_lane(hidden) != 0;
}

/* Queries [i, i + rows) and keys [j, j + cols): whether some of them do not see some; a warp
 * answers for itself. Most tiles are whole, also where there is a mask: those cost no test of their
 * elements. */
DEVICE bool attention_cuts(const sheaf__attention_view *v, int32_t i, int rows, int32_t j, int cols)
{
    return j + cols > v->keys || i + rows > v->queries || attention_last(v, i) < j + cols - 1 ||
           attention_first(v, i + rows - 1) > j || (v->mask != NULL && attention_hides(v, j, cols));
}

/* The warp's first row and the tile's first column; which of them is the query. */
typedef struct sheaf__attention_place {
    const sheaf__attention_view *v;
    int32_t row, col;
    bool keys_down; /* rows are keys */
    bool cut;       /* something is not seen */
    int32_t heads;  /* rows of a query; 0: one */
} sheaf__attention_place;

DEVICE bool attention_pair_sees(const sheaf__attention_place *at, int row, int col)
{
    const int32_t line = at->row + row, c = at->col + col,
                  r = at->heads > 0 ? line / at->heads : line;
    return at->keys_down ? attention_sees(at->v, c, r) : attention_sees(at->v, r, c);
}

/* Columns [first, first + n) that a row sees, but for the mask of keys. */
typedef struct attention_span {
    int32_t first, n;
} attention_span;

DEVICE attention_span attention_span_of(const sheaf__attention_place *at, int row)
{
    const sheaf__attention_view *v = at->v;
    const int32_t line = at->row + row;
    int32_t end;
    attention_span span;
    if (at->keys_down) {
        span.first = attention_query_begin(v, line, 1);
        end = attention_query_end(v, line, 1);
        end = line < v->keys && (v->mask == NULL || v->mask[line] != 0) ? end : 0;
    } else {
        span.first = attention_first(v, line);
        end = line < v->queries ? attention_end(v, line, 1) : 0;
    }
    span.n = end > span.first ? end - span.first : 0;
    return span;
}

/* Bit 4 j + e: whether s[j][e] is. Rows are not those of several heads. */
DEVICE uint32_t attention_seen(const sheaf__attention_place *at, int cols)
{
    const int lane = (int)threadIdx.x % 32;
    const int32_t col = at->col + lane % 4 * 2;
    uint32_t seen = 0;
    if (!at->cut)
        return ~0u;
    UNROLL
    for (int r = 0; r < 2; r++) {
        const attention_span span = attention_span_of(at, lane / 4 + r * 8);
        UNROLL
        for (int i = 0; i < cols / 4; i++)
            if ((uint32_t)(col - span.first + i / 2 * 8 + i % 2) < (uint32_t)span.n)
                seen |= 1u << (i / 2 * 4 + r * 2 + i % 2);
    }
    if (at->keys_down || at->v->mask == NULL)
        return seen;
    UNROLL
    for (int i = 0; i < cols / 4; i++) {
        const int32_t key = col + i / 2 * 8 + i % 2;
        if (key < at->v->keys && at->v->mask[key] == 0)
            seen &= ~(5u << (i / 2 * 4 + i % 2));
    }
    return seen;
}

/* ---- sums over columns ---- */

/* Weights [16][cols], rounded, as fragments of A. */
DEVICE void attention_weights(uint32_t (*w)[4], float (*weight)[4], int cols, sheaf_dtype dtype)
{
    UNROLL
    for (int i = 0; i < cols / 4; i++) {
        const float *x = &weight[i / 4 * 2 + i % 4 / 2][i % 2 * 2];
        w[i / 4][i % 4] = attention_pair(x[0], x[1], dtype);
    }
}

/* Of columns [col, col + 16) as B's fragment has them: all bits of those that a row sees. */
DEVICE void attention_mask(uint32_t *mask, const sheaf__attention_place *at, int row, int col)
{
    const int t = (int)threadIdx.x % 4 * 2;
    UNROLL
    for (int i = 0; i < 2; i++)
        mask[i] = (attention_pair_sees(at, row, col + t + i * 8) ? 0xffffu : 0u) |
                  (attention_pair_sees(at, row, col + t + i * 8 + 1) ? 0xffff0000u : 0u);
}

/* Two eights of channels, from b on in their tile, row by row. */
DEVICE void attention_add_rows(float (*sum)[4], uint32_t (*w)[4], const uint16_t *tile,
                               const sheaf__attention_place *at, int cols, int wide,
                               sheaf_dtype dtype)
{
    const int lane = (int)threadIdx.x % 32;
    ROLLED
    for (int i = 0; i < cols; i++) {
        const int row = i % 16, k = i / 16;
        uint32_t b[4], mask[2], weight[4];
        attention_mask(mask, at, row, k * 16);
        load_transposed(b, tile + (k * 16 + lane % 16) * attention_line(wide) + lane / 16 * 8);
        UNROLL
        for (int e = 0; e < 4; e++) {
            weight[e] = k == 0 ? w[0][e] : k == 1 ? w[1][e] : k == 2 ? w[2][e] : w[3][e];
            b[e] &= mask[e % 2];
        }
        UNROLL
        for (int h = 0; h < 2; h++) {
            float one[4] = { sum[h][0], sum[h][1], sum[h][2], sum[h][3] };
            attention_mma(one, weight, b + h * 2, dtype);
            UNROLL
            for (int e = 0; e < 4; e++)
                sum[h][e] = lane / 4 + e / 2 * 8 == row ? one[e] : sum[h][e];
        }
    }
}

/* attention_add() row by row, each with what it sees: zero times infinity is no zero. Its code is
 * there once, and takes hardly a register more. */
DEVICE void attention_add_apart(float (*sum)[4], uint32_t (*w)[4], const uint16_t *tile,
                                const sheaf__attention_place *at, int cols, int wide,
                                sheaf_dtype dtype)
{
    ROLLED
    for (int j = 0; j < wide / 8; j += 2) {
        attention_add_rows(sum, w, tile + j * 8, at, cols, wide, dtype);
        attention_turn(sum, wide);
        attention_turn(sum, wide);
    }
}

/* sum += weights times a tile of `cols` rows of channels. */
DEVICE void attention_add(float (*sum)[4], float (*weight)[4], const uint16_t *tile,
                          const sheaf__attention_place *at, int cols, int wide, sheaf_dtype dtype)
{
    const int lane = (int)threadIdx.x % 32;
    uint32_t w[4][4];
    attention_weights(w, weight, cols, dtype);
    if (at->cut && !attention_is_finite(tile, cols, wide, dtype)) {
        attention_add_apart(sum, w, tile, at, cols, wide, dtype);
        return;
    }
    UNROLL
    for (int k = 0; k < cols / 16; k++) {
        const uint16_t *rows = tile + (k * 16 + lane % 16) * attention_line(wide) + lane / 16 * 8;
        UNROLL
        for (int j = 0; j < wide / 8; j += 2) {
            uint32_t b[4];
            load_transposed(b, rows + j * 8);
            attention_mma(sum[j], w[k], b, dtype);
            attention_mma(sum[j + 1], w[k], b + 2, dtype);
        }
    }
}

DEVICE void attention_clear(float (*sum)[4], int wide)
{
    UNROLL
    for (int i = 0; i < wide / 2; i++)
        sum[i / 4][i % 4] = 0;
}

/* The block's part of `total`, `sets` sums of a thread each. */
DEVICE float *attention_total(const sheaf__attention_part *a, int set, int sets, int wide)
{
    return a->total + ((int64_t)blockIdx.x * sets + set) * (wide / 2) * ATTENTION_THREADS +
           threadIdx.x;
}

/* Chains end: they are added to the total, which begins with the first of them. */
DEVICE void attention_end_chains(float (*sum)[4], float *total, bool started, int wide)
{
    UNROLL
    for (int i = 0; i < wide / 2; i++) {
        float *t = total + i * ATTENTION_THREADS;
        *t = (started ? *t : 0.0f) + sum[i / 4][i % 4];
        sum[i / 4][i % 4] = 0;
    }
}

/* The warp's 16 rows, of which `rows` are there. */
DEVICE void attention_store(void *to, int64_t at, int64_t ld, int32_t rows, float (*sum)[4],
                            const float *total, bool started, int head_dim, int wide,
                            sheaf_dtype dtype)
{
    const int lane = (int)threadIdx.x % 32;
    UNROLL
    for (int i = 0; i < wide / 2; i++) {
        const int row = lane / 4 + i / 2 % 2 * 8, c = i / 4 * 8 + lane % 4 * 2 + i % 2;
        const float rest = (started ? total[i * ATTENTION_THREADS] : 0.0f) + sum[i / 4][i % 4];
        if (row < rows && c < head_dim)
            sheaf__store(to, at + row * ld + c, rest + 0.0f, dtype);
    }
}
