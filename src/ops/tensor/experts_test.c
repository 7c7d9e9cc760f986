/* experts_test.c - the operations of a mixture of experts have the bits of plain loops, on every
 * device. */
#include "tests/devices/same.h"

#include "base/elementary.h"
#include "ops/tensor/tensor.h"

static const struct {
    int64_t rows, experts, top_k;
} choices[] = {
    { 0, 4, 2 }, { 1, 1, 1 }, { 17, 8, 2 }, { 300, 5, 1 }, { 33, 6, 6 }, { 40, 128, 8 }
};

/* One row: the softmax, of which the largest stay, of equal ones the first: with `all`, which gets
 * the whole of it, as they are, else divided by their sum. */
static void choose_plainly(float *w, float *all, const float *x, int64_t n, int64_t top_k)
{
    bool taken[128] = { 0 };
    float most = x[0], sum = 0, p[128];
    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++) {
        p[i] = (float)sheaf__exp_d((double)(x[i] - most));
        sum += p[i];
    }
    for (int64_t i = 0; i < n; i++)
        p[i] = fabsf(p[i] / sum);
    sum = 0;
    for (int64_t k = 0; k < top_k; k++) {
        int64_t best = -1;
        for (int64_t i = 0; i < n; i++)
            if (!taken[i] && (best < 0 || p[i] > p[best]))
                best = i;
        taken[best] = true;
        sum += p[best];
    }
    for (int64_t i = 0; i < n; i++) {
        const float share = all == NULL ? p[i] / sum : p[i];
        w[i] = taken[i] ? sheaf__one_nan(share) : 0;
        if (all != NULL)
            all[i] = sheaf__one_nan(p[i]);
    }
}

SAME_TYPES(test_experts__choice, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        const int64_t rows = choices[i].rows, n = choices[i].experts;
        float *weights = same_blank(rows * n, SHEAF_F32), x[128],
              *all = i % 2 == 0 ? same_blank(rows * n, SHEAF_F32) : NULL;
        char *logits = same_take(rows * n, dtype);
        SAME_EACH (device)
            sheaf__op_choice(device, (sheaf__choice){ .logits = SAME(logits),
                                                      .weights = SAME(weights),
                                                      .all = SAME(all),
                                                      .of_all = all != NULL,
                                                      .rows = rows,
                                                      .experts = n,
                                                      .top_k = choices[i].top_k,
                                                      .dtype = dtype });
        for (int64_t r = 0; r < rows; r++) {
            same.ref->widen(x, logits + r * n * (int64_t)sheaf_dtype_bytes(dtype), dtype, n);
            choose_plainly(weights + r * n, all == NULL ? NULL : all + r * n, x, n,
                           choices[i].top_k);
        }
        same_check("choice");
    }
}

/* Of every kind: shares or p itself, with and without a gradient of p, which masked rows have not.
 */
SAME_TYPES(test_experts__choice_back, dtype)
{
    enum { QUERIES = 7, MASK_LD = 9 };
    for (size_t i = 0; i < 4 * ARRAY_LEN(choices); i++) {
        const int64_t rows = choices[i / 4].rows, n = choices[i / 4].experts;
        const bool of_all = i & 1, added = i & 2;
        float *w = same_take(rows * n, SHEAF_F32), *d = same_take(rows * n, SHEAF_F32),
              *all = of_all || added ? same_take(rows * n, SHEAF_F32) : NULL,
              *add = added ? same_take(n, SHEAF_F32) : NULL;
        uint8_t *mask =
            added ? same_blank((rows / QUERIES + 1) * MASK_LD / 4 + 1, SHEAF_F32) : NULL;
        void *dlogits = same_blank(rows * n, dtype);
        for (int64_t r = 0; mask != NULL && r < (rows / QUERIES + 1) * MASK_LD; r++)
            mask[r] = r % 3 != 0;
        SAME_EACH (device)
            sheaf__op_choice_back(device, (sheaf__choice){ .logits = SAME(dlogits),
                                                           .weights = SAME(w),
                                                           .all = SAME(all),
                                                           .of_all = of_all,
                                                           .grad = SAME(d),
                                                           .add = SAME(add),
                                                           .mask = SAME(mask),
                                                           .queries = QUERIES,
                                                           .mask_ld = MASK_LD,
                                                           .rows = rows,
                                                           .experts = n,
                                                           .dtype = dtype });
        for (int64_t r = 0; r < rows; r++) {
            const bool adds = added && mask[r / QUERIES * MASK_LD + r % QUERIES];
            float mean = 0, mean_add = 0;
            for (int64_t e = r * n; e < (r + 1) * n; e++)
                mean += w[e] * d[e];
            for (int64_t e = 0; e < n && adds; e++)
                mean_add += all[r * n + e] * add[e];
            for (int64_t e = r * n; e < (r + 1) * n; e++) {
                const float own = (of_all ? all : w)[e] * (d[e] - mean);
                d[e] = sheaf__one_nan(adds ? own + all[e] * (add[e - r * n] - mean_add) : own);
            }
        }
        same.ref->round(dlogits, dtype, d, rows * n);
        same_check("choice_back");
    }
}

/* ---- shares ---- */

enum { COLS = 2500 };

/* Every third row does not take this expert. */
static sheaf__share make_share(size_t i, sheaf_dtype dtype)
{
    const bool long_rows = i % 50 == 49;
    const int64_t rows = long_rows ? 5 : same_sizes[i / 5 % 5],
                  cols = long_rows ? COLS : same_sizes[i % 5], experts = 3,
                  wide = i & 1 ? 2 * rows + 1 : rows;
    float *weights = same_take(wide * experts, SHEAF_F32);
    for (int64_t r = 0; r < wide; r += 3)
        weights[r * experts + 1] = 0;
    return (sheaf__share){ .sum = same_take(wide * cols, dtype),
                           .y = same_take(rows * cols, dtype),
                           .which = i & 1 ? same_list(rows, wide) : NULL,
                           .weights = weights,
                           .rows = rows,
                           .wide = wide,
                           .cols = cols,
                           .experts = experts,
                           .expert = 1,
                           .dtype = dtype };
}

static sheaf__share share_there(const sheaf__share *s)
{
    sheaf__share there = *s;
    there.sum = SAME(s->sum), there.y = SAME(s->y), there.which = SAME(s->which);
    there.weights = SAME(s->weights), there.dy = SAME(s->dy), there.dweights = SAME(s->dweights);
    return there;
}

/* to = round(w * from), one row */
static void scale_row(void *to, const void *from, float w, int64_t n, sheaf_dtype dtype)
{
    float row[COLS];
    same.ref->widen(row, from, dtype, n);
    same.ref->scale(row, w, n);
    same.ref->round(to, dtype, row, n);
}

SAME_TYPES(test_experts__share, dtype)
{
    for (size_t i = 0; i < 50; i++) {
        const sheaf__share s = make_share(i, dtype);
        const int64_t row = s.cols * (int64_t)sheaf_dtype_bytes(dtype);
        SAME_EACH (device)
            sheaf__op_share(device, share_there(&s));
        for (int64_t k = 0; k < s.rows; k++) {
            const int64_t r = s.which == NULL ? k : s.which[k];
            const float w = s.weights[r * s.experts + s.expert];
            float part[COLS];
            if (w == 0)
                continue;
            scale_row(part, (const char *)s.y + k * row, w, s.cols, dtype);
            same.ref->accumulate((char *)s.sum + r * row, part, s.cols, dtype);
        }
        same_check("share");
    }
}

static float dot_plainly(const void *a, const void *b, int64_t n, sheaf_dtype dtype)
{
    float left[COLS], right[COLS];
    double sum = 0;
    same.ref->widen(left, a, dtype, n);
    same.ref->widen(right, b, dtype, n);
    for (int64_t i = 0; i < n; i++)
        sum += (double)left[i] * right[i];
    return sheaf__one_nan((float)sum);
}

SAME_TYPES(test_experts__share_back, dtype)
{
    for (size_t i = 0; i < 150; i++) {
        sheaf__share s = make_share(i, dtype);
        const int64_t row = s.cols * (int64_t)sheaf_dtype_bytes(dtype);
        if (i / 50 != 1)
            s.dy = same_blank(s.rows * s.cols, dtype);
        if (i / 50 != 2)
            s.dweights = same_take(s.wide * s.experts, SHEAF_F32);
        else
            s.y = NULL;
        SAME_EACH (device)
            sheaf__op_share_back(device, share_there(&s));
        for (int64_t k = 0; k < s.rows; k++) {
            const int64_t r = s.which == NULL ? k : s.which[k], at = r * s.experts + s.expert;
            const char *ds = (const char *)s.sum + r * row;
            const float w = s.weights[at];
            if (s.dweights != NULL)
                s.dweights[at] =
                    w != 0 ? dot_plainly((const char *)s.y + k * row, ds, s.cols, dtype) : 0;
            if (s.dy != NULL && w != 0)
                scale_row((char *)s.dy + k * row, ds, w, s.cols, dtype);
            else if (s.dy != NULL)
                memset((char *)s.dy + k * row, 0, (size_t)row);
        }
        same_check("share_back");
    }
}

FIXTURE(same_open, same_close);
