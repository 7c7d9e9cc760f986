/* matmul_ref.c - the definition of a product, one output element at a time.
 *
 * Written to be read; fast kernels equal it bit for bit, given that the calling
 * thread has DAZ and FTZ set as every compute thread has. Compiled with -mfma
 * only so that fmaf is one instruction. */
#include <math.h>

#include "ops/math/math.h"
#include "ops/matmul/matmul_quant.h"
#include "ops/matmul/mma.h"

static void fetch(float *dst, const void *src, sheaf_dtype dtype, int64_t stride, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        dst[k] = sheaf__load(src, k * stride, dtype);
}

static const void *element(const void *base, sheaf_dtype dtype, int64_t index)
{
    return (const char *)base + index * mm_size(dtype);
}

/* Elements [k0, k0 + count) of row i of A. */
static void fetch_a(float *dst, const sheaf__term *t, sheaf_dtype dtype, int64_t i, int64_t k0,
                    int64_t count)
{
    if (t->a_km)
        fetch(dst, element(t->a, dtype, k0 * t->lda + i), dtype, t->lda, count);
    else
        fetch(dst, element(t->a, dtype, i * t->lda + k0), dtype, 1, count);
}

/* The element W[row][col] in a packed weight's panels, and behind it the rest of its block:
 * [k/256][n/32][k of the block][32], or [k/256][n/32][pairs of the block][32][2]. */
static const uint32_t *panel_of(const sheaf__packed *w, int64_t row, int64_t col)
{
    return (const uint32_t *)w->ahead + mm_ahead_at(w, row, col / MM_BLOCK * MM_BLOCK);
}

/* Element k of the block. */
static float weight(const sheaf__packed *w, const uint32_t *panel, int64_t k)
{
    if (w->dtype == SHEAF_F32)
        return sheaf__float(panel[k * MM_PANEL]);
    const uint16_t half = (uint16_t)(panel[k / 2 * MM_PANEL] >> (k % 2 * 16));
    return w->dtype == SHEAF_BF16 ? sheaf__from_bf16(half) : sheaf__from_f16(half);
}

/* Elements [k0, k0 + count) of column j of B. groups: of codes their numbers. */
static void fetch_b(float *dst, const sheaf__term *t, sheaf_dtype dtype, bool groups, int64_t j,
                    int64_t k0, int64_t count)
{
    const uint32_t *panel;
    if (mm_quantised(t)) {
        const bool back = t->form == SHEAF__B_BACK;
        const mm_made made = back ? MM_BACK : groups ? MM_NUMBERS : MM_AHEAD;
        const mm_codes l = sheaf__mm_codes(t->w);
        for (int64_t k = k0; k < k0 + count; k++)
            *dst++ = sheaf__mm_value(&l, back ? k : j, back ? j : k, made);
        return;
    }
    if (mm_compressed(t)) {
        for (int64_t k = 0; k < count; k++)
            dst[k] = sheaf__from_bf16(sheaf__mm_code_half(t->w, j, k0 + k));
        return;
    }
    switch (t->form) {
    case SHEAF__B_NK: fetch(dst, element(t->b, dtype, j * t->ldb + k0), dtype, 1, count); break;
    case SHEAF__B_KN:
        fetch(dst, element(t->b, dtype, k0 * t->ldb + j), dtype, t->ldb, count);
        break;
    case SHEAF__B_AHEAD:
        panel = panel_of(t->w, j, k0);
        for (int64_t k = 0; k < count; k++)
            dst[k] = weight(t->w, panel, k);
        break;
    case SHEAF__B_BACK:
        for (int64_t k = 0; k < count; k++)
            dst[k] = weight(t->w, panel_of(t->w, k0 + k, j), j % MM_BLOCK);
        break;
    }
}

/* An ascending chain of fma from 0. */
static float plain_sum(const float *a, const float *b, int64_t count)
{
    float sum = 0.0f;
    for (int64_t k = 0; k < count; k++)
        sum = fmaf(a[k], b[k], sum);
    return sum;
}

/* The same by pairs, odd element first. */
static float pairs_sum(const float *a, const float *b, int64_t count)
{
    float sum = 0.0f;
    for (int64_t k = 0; k < count; k += 2) {
        sum = fmaf(a[k + 1], b[k + 1], sum);
        sum = fmaf(a[k], b[k], sum);
    }
    return sum;
}

/* Chunks of 32 elements: a chain over the even ones, a chain over the odd ones, and their sum is
 * added to what the chunks before gave. */
static float tiles_sum(const float *a, const float *b, int64_t count)
{
    float sum = 0.0f;
    for (int64_t k0 = 0; k0 < count; k0 += MM_CHUNK) {
        float even = 0.0f, odd = 0.0f;
        for (int64_t k = k0; k < k0 + MM_CHUNK; k += 2) {
            even = fmaf(a[k], b[k], even);
            odd = fmaf(a[k + 1], b[k + 1], odd);
        }
        sum = sum + (even + odd);
    }
    return sum;
}

/* The sum of one block. What is missing of a last pair, or of a last chunk, is zero. */
static float block_sum(const sheaf__term *t, sheaf_dtype dtype, sheaf_sums sums, bool groups,
                       int64_t i, int64_t j, int64_t k0, int64_t count)
{
    float a[MM_BLOCK] = { 0 }, b[MM_BLOCK] = { 0 };
    fetch_a(a, t, dtype, i, k0, count);
    fetch_b(b, t, dtype, groups, j, k0, count);
    if (dtype != SHEAF_BF16)
        return mm_quiet(plain_sum(a, b, count));
    return mm_quiet(sheaf__sums_of_values(sums) == SHEAF_SUMS_TILES ? tiles_sum(a, b, count)
                                                                    : pairs_sum(a, b, count));
}

/* ---- the orders mma8 and mma16 ---- */

/* The 16 bits that a float32 was widened from. */
static void narrow(uint16_t *half, const float *x, sheaf_dtype dtype, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        half[k] = dtype == SHEAF_F16 ? sheaf__f16(x[k]) : (uint16_t)(sheaf__bits(x[k]) >> 16);
}

/* Elements [k0, k0 + count) of a term into a chain. */
static uint32_t chain_on(uint32_t chain, const sheaf__term *t, sheaf_dtype dtype, sheaf_sums sums,
                         int64_t i, int64_t j, int64_t k0, int64_t count)
{
    float x[MM_BLOCK];
    uint16_t a[MM_BLOCK], b[MM_BLOCK];
    fetch_a(x, t, dtype, i, k0, count);
    narrow(a, x, dtype, count);
    fetch_b(x, t, dtype, false, j, k0, count);
    narrow(b, x, dtype, count);
    return sheaf__mma_chain(sums, dtype, chain, a, b, count);
}

/* A chain's sum, of which what is denormal is a zero of its sign. */
static float ended(uint32_t chain)
{
    return sheaf__float((chain & 0x7f800000) == 0 ? chain & 0x80000000u : chain);
}

/* The sum of terms [first, end): chains in ascending order. */
static float chains_sum(const sheaf__product *job, sheaf_sums sums, int first, int end, int64_t i,
                        int64_t j)
{
    uint32_t chain = 0;
    float sum = 0.0f;
    bool started = false, any = false;
    for (int t = first; t < end; t++) {
        const int64_t k = job->term[t].k;
        for (int64_t k0 = 0; k0 < k; k0 += MM_BLOCK) {
            if (started && (k0 == 0 ? job->term[t].apart : k0 % SHEAF__MMA_CHAIN == 0)) {
                sum = any ? sum + ended(chain) : ended(chain);
                any = true;
                chain = 0;
            }
            chain = chain_on(chain, &job->term[t], job->dtype, sums, i, j, k0,
                             mm_min(MM_BLOCK, k - k0));
            started = true;
        }
    }
    return mm_quiet(any ? sum + ended(chain) : ended(chain));
}

/* The sum of A's elements in a block, by lanes. */
static float elements_sum(const sheaf__term *t, int64_t i, int64_t k0, int64_t count)
{
    float a[MM_BLOCK] = { 0 }, lane[16] = { 0 };
    fetch_a(a, t, SHEAF_BF16, i, k0, count);
    for (int64_t k = 0; k < mm_up(count, 16); k++)
        lane[k % 16] = lane[k % 16] + a[k];
    return sheaf__lanes_join(lane);
}

/* The sum with a block of codes in groups. */
static float scaled(float sum, bool any, const sheaf__term *t, int64_t i, int64_t j, int64_t k0,
                    int64_t count, float block)
{
    const mm_codes l = sheaf__mm_codes(t->w);
    const mm_group g = sheaf__mm_group_of(&l, j, k0);
    sum = any ? fmaf(g.scale, block, sum) : g.scale * block;
    if (mm_adds(t))
        sum = fmaf(g.added, elements_sum(t, i, k0, count), sum);
    return mm_quiet(sum);
}

/* The sum of the job's p-th slice: blocks in ascending order, across its terms. */
static float slice_sum(const sheaf__product *job, sheaf_sums sums, int p, int64_t i, int64_t j)
{
    const int first = job->first ? job->first[p] : 0;
    const int end = job->first ? job->first[p + 1] : job->nterms;
    float sum = 0.0f;
    bool any = false;
    if (mm_by_mma(job, sums))
        return chains_sum(job, sums, first, end, i, j);
    for (int t = first; t < end; t++) {
        const sheaf__term *term = &job->term[t];
        const bool groups = mm_sums_groups(job, sums) && mm_in_groups(term);
        for (int64_t k0 = 0, count; k0 < term->k; k0 += count) {
            count = mm_block(term, k0, groups);
            const float block = block_sum(term, job->dtype, sums, groups, i, j, k0, count);
            sum = groups ? scaled(sum, any, term, i, j, k0, count, block)
                  : any  ? sum + block
                         : block;
            any = true;
        }
    }
    return mm_quiet(sum);
}

/* The sum of the slices [begin, end), a node of the tree; false if none is present. */
static bool node_sum(float *sum, const sheaf__product *job, sheaf_sums sums, int begin, int end,
                     int64_t i, int64_t j)
{
    if (end - begin == 1) {
        if (!job->tree->present[begin])
            return false;
        *sum = 0.0f;
        for (int p = 0; p < job->nslices; p++)
            if (mm_slice_of(job, p) == begin)
                *sum = slice_sum(job, sums, p, i, j);
        return true;
    }
    const int middle = (begin + end) / 2;
    float left, right;
    const bool has_left = node_sum(&left, job, sums, begin, middle, i, j);
    const bool has_right = node_sum(&right, job, sums, middle, end, i, j);
    if (has_left || has_right)
        *sum = mm_quiet(has_left && has_right ? left + right : has_left ? left : right);
    return has_left || has_right;
}

/* round(round(alpha * sum + bias) + residual), or y + alpha * sum. */
static void finish(const sheaf__product *job, int64_t i, int64_t j, float sum)
{
    if (job->out == SHEAF_F32)
        sum = sheaf__rounded(mm_quiet(sum), job->round_to);
    float v = job->alpha * sum;
    if (job->add) {
        v = ((float *)job->y)[i * job->ldy + j] + v;
    } else {
        if (job->bias)
            v = v + job->bias[j];
        if (job->residual) {
            float r;
            fetch(&r, element(job->residual, job->out, i * job->ldr + j), job->out, 1, 1);
            v = sheaf__rounded(v, job->out) + r;
        }
    }
    const int64_t at = i * job->ldy + j;
    if (job->out == SHEAF_BF16)
        ((uint16_t *)job->y)[at] = mm_to_bf16(v);
    else if (job->out == SHEAF_F16)
        ((uint16_t *)job->y)[at] = sheaf__f16(mm_quiet(v));
    else
        ((float *)job->y)[at] = mm_quiet(v);
}

static void product_at(const sheaf__product *job, sheaf_sums sums, int64_t i, int64_t j)
{
    float sum = 0.0f;
    if (job->roots) {
        int own = 0;
        for (int r = 0; r < job->tree->nroots; r++)
            if (job->tree->root[r].rank == job->rank) {
                node_sum(&sum, job, sums, job->tree->root[r].begin, job->tree->root[r].end, i, j);
                job->roots[own++][i * job->n + j] = sum;
            }
        return;
    }
    if (job->tree == NULL)
        sum = slice_sum(job, sums, 0, i, j);
    else if (!node_sum(&sum, job, sums, 0, job->tree->slices, i, j))
        sum = 0.0f;
    finish(job, i, j, sum);
}

void sheaf__product_ref_part(const sheaf__product *job, sheaf_sums sums, int64_t i0, int64_t i1,
                             int64_t j0, int64_t j1)
{
    for (int64_t i = i0; i < i1; i++)
        for (int64_t j = j0; j < j1; j++)
            product_at(job, sums, i, j);
}

void sheaf__product_ref(const sheaf__product *job, sheaf_sums sums)
{
    sheaf__product_ref_part(job, sums, 0, job->m, 0, job->n);
}
