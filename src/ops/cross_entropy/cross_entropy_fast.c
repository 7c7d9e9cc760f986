/* cross_entropy_fast.c - cross_entropy_ref.c on vectors. */
#include "ops/columns.h"

#include <math.h>

#include "ops/each.h"

void SHEAF__FAST(row_max)(float *max, const float *logits, int64_t ld, int64_t rows, int64_t cols)
{
    const vec least = v_set(-INFINITY);
    for (int64_t r = 0; r < rows; r++, logits += ld) {
        veci best = vi_order(least), other = best;
        int64_t c = 0;
        for (; c + 32 <= cols; c += 32) {
            best = vi_max(best, vi_order(v_load(logits + c, 16)));
            other = vi_max(other, vi_order(v_load(logits + c + 16, 16)));
        }
        best = vi_max(best, other);
        if (c + 16 <= cols) {
            best = vi_max(best, vi_order(v_load(logits + c, 16)));
            c += 16;
        }
        if (c < cols)
            best = vi_max(best, vi_order(v_keep(cols - c, v_load(logits + c, cols - c), least)));
        uint32_t lane[16];
        vi_store(lane, best);
        int32_t top = (int32_t)lane[0];
        for (int i = 1; i < 16; i++)
            top = (int32_t)lane[i] > top ? (int32_t)lane[i] : top;
        max[r] = sheaf__float((uint32_t)(top ^ (top >> 31 & 0x7fffffff))); /* order undone */
    }
}

/* e^(logit - max) of `many` vectors from column c on. */
SHEAF__INLINE void exp_part(vec *e, const float *logits, vec max, int64_t c, const int many,
                            int64_t count)
{
    for (int k = 0; k < many; k++)
        e[k] = v_sub(v_load(logits + c + 16 * k, count), max);
    v_exp(e, e, many);
}

SHEAF__INLINE void sumexp_part(vec *total, const float *logits, vec max, int64_t c, const int many,
                               int64_t count)
{
    vec e[SHEAF__MANY];
    exp_part(e, logits, max, c, many, count);
    for (int k = 0; k < many; k++)
        *total = v_keep(count, v_add(*total, e[k]), *total);
}

void SHEAF__FAST(row_sumexp)(float *sum, const float *logits, int64_t ld, const float *max,
                             int64_t rows, int64_t cols)
{
    for (int64_t r = 0; r < rows; r++, logits += ld) {
        const vec top = v_set(max[r]);
        vec total = v_zero();
        V_WALK(c, cols, sumexp_part(&total, logits, top, c, many, count));
        sum[r] = v_join(total);
    }
}

SHEAF__INLINE void softmax_part(void *d, int64_t di, const float *logits, vec max, vec sum,
                                vec even, vec scale, int64_t c, const int many, int64_t count,
                                sheaf_dtype dtype)
{
    vec p[SHEAF__MANY];
    exp_part(p, logits, max, c, many, count);
    for (int k = 0; k < many; k++)
        p[k] = v_div(p[k], sum);
    for (int k = 0; k < many; k++)
        v_write(d, di + c + 16 * k, v_mul(v_sub(p[k], even), scale), count, dtype);
}

/* p - 0 is p, so every column can go as if it were not the target; then the target. Labels that are
 * not smoothed have keep 1 and even 0. */
SHEAF__INLINE void row_gradient(void *d, int64_t ldd, const float *logits, int64_t ld,
                                const float *max, const float *sum, const int32_t *target,
                                const sheaf__label_weights how, int64_t rows, int64_t cols,
                                sheaf_dtype dtype)
{
    for (int64_t r = 0; r < rows; r++, logits += ld) {
        if (target[r] == SHEAF__IGNORED) {
            const size_t size = dtype == SHEAF_F32 ? 4 : 2;
            memset((char *)d + (size_t)(r * ldd) * size, 0, (size_t)cols * size);
            continue;
        }
        const bool here = target[r] >= 0 && target[r] < cols;
        const float wanted = here ? logits[target[r]] : 0; /* d may be logits */
        const vec top = v_set(max[r]), total = v_set(sum[r]), by = v_set(how.weight[r]),
                  even = v_set(how.even);
        V_WALK(c, cols,
               softmax_part(d, r * ldd, logits, top, total, even, by, c, many, count, dtype));
        if (here) {
            const float p = sheaf__exp(wanted - max[r]) / sum[r];
            sheaf__store(d, r * ldd + target[r], ((p - how.keep) - how.even) * how.weight[r],
                         dtype);
        }
    }
}

void SHEAF__FAST(row_dlogits)(void *d, int64_t ldd, const float *logits, int64_t ld,
                              const float *max, const float *sum, const int32_t *target,
                              const sheaf__label_weights *how, int64_t rows, int64_t cols,
                              sheaf_dtype dtype)
{
    V_BY_TYPE(dtype, row_gradient(d, ldd, logits, ld, max, sum, target, *how, rows, cols, of));
}
