/* products_fma.h - what the kernels of products by plain fma share: orders of sums within a block
 * of 256 elements, and operands of any type, eight elements at a time. */
#pragma once

#include "ops/devices/gpu/kernels/codes_value.h"
#include "ops/devices/gpu/kernels/products_finish.h"
#include "ops/devices/gpu/kernels/vectors.h"

/* Of the elements of a block: matmul.h. All but PLAIN are of bfloat16. */
typedef enum products_order { PRODUCTS_PLAIN, PRODUCTS_PAIRS, PRODUCTS_TILES } products_order;

enum { PRODUCTS_BLOCK = 256, PRODUCTS_CHUNK = 32 };

/* Eight elements that lie one after the other, as they are stored: words, or pairs. */
typedef struct products_run {
    uint32_t word[8];
} products_run;

/* Those from element `at` of `data` on, which is at a multiple of 16 bytes. */
DEVICE products_run products_fetch_whole(const void *data, int64_t at, int type)
{
    products_run run;
    const char *from = (const char *)data + at * (type == SHEAF_F32 ? 4 : 2);
    quad q = load_quad(from);
    UNROLL
    for (int i = 0; i < 4; i++)
        run.word[i] = q.word[i];
    if (type == SHEAF_F32)
        q = load_quad(from + 16);
    UNROLL
    for (int i = 0; i < 4; i++)
        run.word[4 + i] = q.word[i];
    return run;
}

/* The same from anywhere, unless `even`; n are there, what is not is zero. */
DEVICE products_run products_fetch(const void *data, int64_t at, int32_t n, int type, bool even)
{
    products_run run;
    if (n >= 8 && even)
        return products_fetch_whole(data, at, type);
    UNROLL
    for (int i = 0; i < 8; i++)
        run.word[i] = 0;
    UNROLL
    for (int i = 0; i < 8; i++) {
        if (i >= n)
            continue;
        if (type == SHEAF_F32)
            run.word[i] = ((const uint32_t *)data)[at + i];
        else
            run.word[i / 2] |= (uint32_t)((const uint16_t *)data)[at + i] << i % 2 * 16;
    }
    return run;
}

DEVICE void products_widen(float *x, const products_run *run, int type)
{
    if (type == SHEAF_F32) {
        UNROLL for (int i = 0; i < 8; i++) x[i] = sheaf__float(run->word[i]);
    } else if (type == SHEAF_BF16) {
        UNROLL for (int i = 0; i < 8; i++) x[i] =
            sheaf__float(i % 2 == 0 ? run->word[i / 2] << 16 : run->word[i / 2] & 0xffff0000u);
    } else {
        UNROLL for (int i = 0; i < 8; i++) x[i] =
            widened_f16((uint16_t)(run->word[i / 2] >> i % 2 * 16));
    }
}

/* The factor of a scaled part's sum in a column of results, and of the sum of A's elements. */
typedef struct products_scale {
    float scale, added;
    bool adds;
} products_scale;

/* In column `col` of the job's results. */
DEVICE products_scale products_scale_of(const sheaf__products_table *t,
                                        const sheaf__products_job *job,
                                        const sheaf__products_part *part, int32_t col)
{
    const sheaf__codes_matrix *m = &t->codes[part->scaled - 1];
    const int64_t row = m->row0 + (col < job->n ? col : job->n - 1);
    const codes_row r = codes_row_at(m, row);
    const int32_t group = codes_group(m, &r, part->col);
    products_scale s;
    s.scale = codes_scale(m, &r, row, group, m->map);
    s.adds = m->added != 0;
    s.added = s.adds ? codes_added(m, row, group) : 0.0f;
    return s;
}

/* The sum by lanes of a part's elements of A, in row `row` of the job's results. */
DEVICE float products_elements(const sheaf__products_job *job, const sheaf__products_part *part,
                               int32_t row)
{
    const int64_t at = row < job->m ? row : job->m - 1;
    float lane[16];
    UNROLL
    for (int i = 0; i < 16; i++)
        lane[i] = 0.0f;
    ROLLED
    for (int32_t k = 0; k < part->k; k += 16) {
        UNROLL
        for (int i = 0; i < 16; i++) {
            const int64_t e = k + i;
            lane[i] +=
                e < part->k
                    ? sheaf__load(part->a, part->a_km ? e * part->lda + at : at * part->lda + e,
                                  (sheaf_dtype)job->dtype)
                    : 0.0f;
        }
    }
    UNROLL
    for (int apart = 8; apart > 0; apart /= 2)
        UNROLL
    for (int i = 0; i < 8; i++)
        if (i < apart)
            lane[i] += lane[i + apart];
    return lane[0];
}

/* The sum of blocks with one more, of codes in groups, of whose elements of A `elements` is the
 * sum. */
DEVICE float products_scaled(products_scale s, float block, float elements, float sum, bool any)
{
    sum = any ? fmaf(s.scale, block, sum) : s.scale * block;
    return s.adds ? fmaf(s.added, elements, sum) : sum;
}

/* Elements that are computed for n that are there, of those at hand: what is missing of a pair or
 * chunk is zero. */
DEVICE int32_t products_steps(products_order order, int32_t n, int32_t most)
{
    n = order == PRODUCTS_TILES ? most : order == PRODUCTS_PAIRS ? n + n % 2 : n;
    return n < most ? n : most;
}

/* Four floats at a multiple of 16 bytes. */
DEVICE void products_take4(float *x, const float *from)
{
    const quad q = load_quad(from);
    UNROLL
    for (int i = 0; i < 4; i++)
        x[i] = sheaf__float(q.word[i]);
}
DEVICE void products_put4(float *to, const float *x)
{
    quad q;
    UNROLL
    for (int i = 0; i < 4; i++)
        q.word[i] = sheaf__bits(x[i]);
    store_quad(to, q);
}
