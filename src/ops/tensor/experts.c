/* experts.c - the operations of a mixture of experts, see tensor.h. */
#include "ops/tensor/tensor.h"

#include <math.h>

#include "base/base.h"
#include "ops/call.h"

enum { PART = 256 };

/* ---- the choice ---- */

/* p = softmax(x), in place; NaN stays NaN. */
static void softmax(float *x, int64_t n)
{
    float most = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        most = x[i] > most ? x[i] : most;
    for (int64_t i = 0; i < n; i++) {
        x[i] = sheaf__choice_exp(x[i], most);
        sum += x[i];
    }
    for (int64_t i = 0; i < n; i++)
        x[i] /= sum;
}

static void choice_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__choice *p = arg;
    const int64_t n = p->experts;
    for (int64_t r = begin; r < end; r++) {
        float *w = p->weights + r * n;
        k->widen(w, sheaf__at(p->logits, r * n, p->dtype), p->dtype, n);
        softmax(w, n);
        for (int64_t i = 0; i < n; i++)
            w[i] = fabsf(w[i]); /* of NaN too: the sign is the mark */
        for (int64_t i = 0; i < n && p->all != NULL; i++)
            p->all[r * n + i] = sheaf__one_nan(w[i]);
        const float sum = sheaf__choice_mark(w, n, p->top_k);
        for (int64_t i = 0; i < n; i++)
            w[i] = sheaf__choice_weight(w[i], p->of_all ? 1 : sum);
    }
}

static void choice_back_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__choice *p = arg;
    const int64_t n = p->experts;
    for (int64_t r = begin; r < end; r++) {
        const float *w = p->weights + r * n, *all = p->all == NULL ? NULL : p->all + r * n,
                    *v = p->of_all ? all : w;
        const bool adds = sheaf__choice_adds(p, r);
        float *d = p->grad + r * n, mean = 0, mean_add = 0;
        for (int64_t i = 0; i < n; i++)
            mean += w[i] * d[i];
        for (int64_t i = 0; i < n && adds; i++)
            mean_add += all[i] * p->add[i];
        for (int64_t i = 0; i < n; i++) {
            const float own = v[i] * (d[i] - mean);
            d[i] = sheaf__one_nan(adds ? own + all[i] * (p->add[i] - mean_add) : own);
        }
        k->round(sheaf__at(p->logits, r * n, p->dtype), p->dtype, d, n);
    }
}

static void run_choice(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                       sheaf__choice *p)
{
    const bool back = p->grad != NULL;
    const size_t floats = (size_t)(p->rows * p->experts) * sizeof(float),
                 masked = p->add == NULL || p->rows == 0
                              ? 0
                              : (size_t)((p->rows - 1) / p->queries * p->mask_ld + p->queries);
    const sheaf__operand operand[] = {
        { &p->logits, (size_t)(p->rows * p->experts) * sheaf_dtype_bytes(p->dtype), back },
        { &p->weights, floats, !back },
        SHEAF__WRITES(p->grad, floats),
        { &p->all, p->all == NULL ? 0 : floats, !back },
        SHEAF__READS(p->add, (size_t)p->experts * sizeof(float)),
        SHEAF__READS(p->mask, masked),
    };
    sheaf__run(device, &(sheaf__call){ operation, p, SHEAF__OPERANDS(operand), part, p->rows, 32 });
}

void sheaf__op_choice(sheaf__device *device, sheaf__choice choice)
{
    run_choice(device, SHEAF__OP_CHOICE, choice_part, &choice);
}

void sheaf__op_choice_back(sheaf__device *device, sheaf__choice choice)
{
    run_choice(device, SHEAF__OP_CHOICE_BACK, choice_back_part, &choice);
}

/* ---- the sum ---- */

/* to = round(w * from), n elements of `dtype` */
static void scaled(const sheaf__kernels *k, void *to, const void *from, float w, int64_t n,
                   sheaf_dtype dtype)
{
    float part[PART];
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < PART ? n - at : PART;
        k->widen(part, sheaf__at(from, at, dtype), dtype, m);
        k->scale(part, w, m);
        k->round(sheaf__at(to, at, dtype), dtype, part, m);
    }
}

static void share_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__share *s = arg;
    const int64_t cols = s->cols;
    const sheaf_dtype t = s->dtype;
    float part[PART]; /* space for any dtype */
    for (int64_t i = begin; i < end; i++) {
        const int64_t r = sheaf__share_row(s, i);
        const float w = s->weights[r * s->experts + s->expert];
        for (int64_t at = 0, n; at < cols && w != 0; at += n) {
            n = cols - at < PART ? cols - at : PART;
            scaled(k, part, sheaf__at(s->y, i * cols + at, t), w, n, t);
            k->accumulate(sheaf__at(s->sum, r * cols + at, t), part, n, t);
        }
    }
}

/* Sum of a * b, each product and sum in double, in ascending order. */
static float dot(const sheaf__kernels *k, const void *a, const void *b, int64_t n,
                 sheaf_dtype dtype)
{
    float left[PART], right[PART];
    double sum = 0;
    for (int64_t at = 0, m; at < n; at += m) {
        m = n - at < PART ? n - at : PART;
        k->widen(left, sheaf__at(a, at, dtype), dtype, m);
        k->widen(right, sheaf__at(b, at, dtype), dtype, m);
        for (int64_t i = 0; i < m; i++)
            sum += (double)left[i] * right[i];
    }
    return sheaf__narrow(sum);
}

static void share_back_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__share *s = arg;
    const int64_t cols = s->cols;
    const sheaf_dtype t = s->dtype;
    for (int64_t i = begin; i < end; i++) {
        const int64_t r = sheaf__share_row(s, i), own = r * s->experts + s->expert;
        const float w = s->weights[own];
        const void *ds = sheaf__at(s->sum, r * cols, t);
        if (s->dweights != NULL)
            s->dweights[own] = w != 0 ? dot(k, sheaf__at(s->y, i * cols, t), ds, cols, t) : 0;
        if (s->dy == NULL)
            continue;
        if (w != 0)
            scaled(k, sheaf__at(s->dy, i * cols, t), ds, w, cols, t);
        else
            memset(sheaf__at(s->dy, i * cols, t), 0, (size_t)cols * sheaf_dtype_bytes(t));
    }
}

static void run_share(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                      sheaf__share *s, bool back)
{
    const size_t row = (size_t)s->cols * sheaf_dtype_bytes(s->dtype),
                 weights = (size_t)(s->wide * s->experts) * sizeof(float);
    const sheaf__operand operand[] = {
        { &s->sum, (size_t)s->wide * row, !back },
        SHEAF__READS(s->y, (size_t)s->rows * row),
        SHEAF__READS(s->which, (size_t)s->rows * sizeof(int32_t)),
        SHEAF__READS(s->weights, weights),
        SHEAF__WRITES(s->dy, (size_t)s->rows * row),
        SHEAF__WRITES(s->dweights, weights),
    };
    sheaf__run(device, &(sheaf__call){ operation, s, SHEAF__OPERANDS(operand), part, s->rows, 32 });
}

void sheaf__op_share(sheaf__device *device, sheaf__share share)
{
    run_share(device, SHEAF__OP_SHARE, share_part, &share, false);
}

void sheaf__op_share_back(sheaf__device *device, sheaf__share share)
{
    run_share(device, SHEAF__OP_SHARE_BACK, share_back_part, &share, true);
}
