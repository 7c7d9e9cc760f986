/* loss_test.c - operations on logits have the bits of plain loops, on every device. */
#include "tests/devices/same.h"

#include "ops/math/math.h"
#include "ops/tensor/tensor.h"

/* Rows and columns, and the first column's place in the vocabulary. */
static const struct {
    int64_t rows, cols, first;
} shapes[] = {
    { 1, 1, 0 }, { 17, 33, 5 }, { 33, 0, 7 }, { 256, 40, 0 }, { 0, 9, 3 }, { 3, 4500, 2 }
};

static sheaf__logits take_logits(size_t shape)
{
    const int64_t rows = shapes[shape].rows, cols = shapes[shape].cols;
    return (sheaf__logits){ same_take(rows * cols, SHEAF_F32), rows, cols, shapes[shape].first };
}

static sheaf__logits there(sheaf__logits l)
{
    l.at = SAME(l.at);
    return l;
}

/* Words before the columns, in them and behind, and rows without one. */
static int32_t *take_labels(sheaf__logits l)
{
    int32_t *label = same_blank(l.rows, SHEAF_F32);
    for (int64_t i = 0; i < l.rows; i++)
        label[i] = i % 5 == 3 ? SHEAF__IGNORED : (int32_t)(i * 7 % (l.first + l.cols + 3));
    return label;
}

/* ---- the cap ---- */

SAME_TYPES(test_loss__cap, dtype)
{
    const float cap = 30;
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        sheaf__logits l = take_logits(s);
        const int64_t n = l.rows * l.cols;
        SAME_EACH (device)
            sheaf__op_softcap(device, SAME(l.at), cap, l.rows, l.cols, dtype);
        for (int64_t i = 0; i < n; i++)
            l.at[i] = isinf(l.at[i]) ? NAN : l.at[i];
        same.ref->softcap(l.at, cap, n, dtype);
        same_check("softcap");

        const float *y = same_take(n, SHEAF_F32);
        void *dx = same_take(n, dtype);
        SAME_EACH (device)
            sheaf__op_softcap_back(device, SAME(dx), SAME(y), cap, l.rows, l.cols, dtype);
        same.ref->softcap_back(dx, y, cap, n, dtype);
        same_check("softcap back");
    }
}

/* ---- a number of each row ---- */

SAME_NUMBERS(test_loss__maxima)
{
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        const sheaf__logits l = take_logits(s);
        float *max = same_blank(l.rows, SHEAF_F32), *first = same_blank(l.rows, SHEAF_F32);
        SAME_EACH (device) {
            sheaf__op_row_max(device, SAME(max), there(l));
            sheaf__op_row_first(device, SAME(first), SAME(max), there(l));
        }
        same.ref->row_max(max, l.at, l.cols, l.rows, l.cols);
        for (int64_t i = 0; i < l.rows; i++) {
            first[i] = -INFINITY;
            for (int64_t c = l.cols - 1; c >= 0; c--)
                if (l.at[i * l.cols + c] == max[i])
                    first[i] = -(float)(l.first + c);
        }
        same_check("maxima");
    }
}

static void check_sums(void)
{
    static const int64_t begin[] = { 0, 11, 11, 30 }, extent[] = { 11, 0, 19, 10 };
    for (int slices = 1; slices <= 4; slices++)
        for (int both = 0; both < 2; both++) {
            const sheaf__logits l = { same_take(37 * 40, SHEAF_F32), 37, 40, 0 };
            float *max = same_take(37, SHEAF_F32), *sums = same_blank(4 * 50, SHEAF_F32),
                  *plain = both ? same_blank(4 * 50, SHEAF_F32) : NULL;
            SAME_EACH (device)
                sheaf__op_row_sums(
                    device,
                    &(sheaf__row_sums){ SAME(sums), SAME(plain), 50, slices, begin, extent },
                    SAME(max), there(l));
            for (int s = 0; s < slices; s++) {
                if (extent[s] == 0)
                    continue;
                same.ref->row_sumexp(sums + s * 50, l.at + begin[s], 40, max, 37, extent[s]);
                if (both)
                    same.ref->layernorm_sum(plain + s * 50, l.at + begin[s], 40, 37, extent[s],
                                            SHEAF_F32);
            }
            same_check("sums");
        }
}

/* More columns than anything takes at a time. */
static void check_wide_sums(void)
{
    static const int64_t begin[] = { 0, 4097 }, extent[] = { 4097, 2049 };
    const sheaf__logits l = { same_take(3 * 6146, SHEAF_F32), 3, 6146, 0 };
    float *max = same_take(3, SHEAF_F32), *sums = same_blank(6, SHEAF_F32),
          *plain = same_blank(6, SHEAF_F32);
    SAME_EACH (device)
        sheaf__op_row_sums(device,
                           &(sheaf__row_sums){ SAME(sums), SAME(plain), 3, 2, begin, extent },
                           SAME(max), there(l));
    for (int s = 0; s < 2; s++) {
        same.ref->row_sumexp(sums + s * 3, l.at + begin[s], 6146, max, 3, extent[s]);
        same.ref->layernorm_sum(plain + s * 3, l.at + begin[s], 6146, 3, extent[s], SHEAF_F32);
    }
    same_check("wide sums");
}

TEST(test_loss__sums)
{
    same_numbers(check_sums);
    same_numbers(check_wide_sums);
}

SAME_NUMBERS(test_loss__labels)
{
    for (size_t s = 0; s < ARRAY_LEN(shapes); s++) {
        const sheaf__logits l = take_logits(s);
        const int32_t *label = take_labels(l);
        float *logit = same_blank(l.rows, SHEAF_F32);
        SAME_EACH (device)
            sheaf__op_row_labels(device, SAME(logit), SAME(label), there(l));
        for (int64_t i = 0; i < l.rows; i++) {
            logit[i] = 0;
            for (int64_t c = 0; c < l.cols; c++)
                if (label[i] == l.first + c)
                    logit[i] = l.at[i * l.cols + c];
        }
        same_check("logits of labels");
    }
}

/* ---- the gradient ---- */

SAME_TYPES(test_loss__gradient, dtype)
{
    for (size_t s = 0; s < 2 * ARRAY_LEN(shapes); s++) {
        const sheaf__logits l = take_logits(s / 2);
        const int32_t *label = take_labels(l);
        const float *max = same_take(l.rows, SHEAF_F32), *sum = same_take(l.rows, SHEAF_F32);
        const float *weight = same_take(l.rows, SHEAF_F32), keep = s % 2 ? 0.9f : 1,
                    even = s % 2 ? 0.001f : 0;
        const bool over = dtype == SHEAF_F32 && s % 2;
        void *d = over ? l.at : same_blank(l.rows * l.cols, dtype);
        int32_t target[256];
        SAME_EACH (device)
            sheaf__op_row_gradient(device,
                                   &(sheaf__row_gradient){ SAME(d),
                                                           SAME(max),
                                                           SAME(sum),
                                                           SAME(label),
                                                           { SAME(weight), keep, even },
                                                           dtype },
                                   there(l));
        for (int64_t i = 0; i < l.rows; i++)
            target[i] = label[i] < 0 ? SHEAF__IGNORED : label[i] - (int32_t)l.first;
        same.ref->row_dlogits(d, l.cols, l.at, l.cols, max, sum, target,
                              &(sheaf__label_weights){ weight, keep, even }, l.rows, l.cols, dtype);
        same_check("gradient of logits");
    }
}

/* ---- losses ---- */

static bool equal(double a, double b)
{
    return (isnan(a) && isnan(b)) || a == b;
}

SAME_NUMBERS(test_loss__losses)
{
    enum { ROWS = 1100, VOCAB = 50 };
    for (int way = 0; way < 4; way++) {
        const double eps = way & 1 ? 0.1 : 0;
        const float *max = same_take(ROWS, SHEAF_F32), *target = same_take(ROWS, SHEAF_F32),
                    *all = same_take(ROWS, SHEAF_F32);
        float *sum = same_take(ROWS, SHEAF_F32);
        float *first = way & 2 ? same_blank(ROWS, SHEAF_F32) : NULL;
        int32_t label[ROWS];
        float each[ROWS];
        double want = 0;
        int64_t labels = 0, correct = 0;
        for (int i = 0; i < ROWS; i++) {
            label[i] = i % 3 == 0 ? SHEAF__IGNORED : i * 7 % VOCAB;
            if (first != NULL)
                first[i] = i % 2 ? -(float)label[i] : -1;
            sum[i] = fabsf(sum[i]);
            if (label[i] < 0)
                continue;
            const float whole = sheaf__log(sum[i]) + max[i], even = whole - all[i] / VOCAB,
                        loss = whole - target[i];
            each[i] = eps > 0 ? (float)(1 - eps) * loss + (float)eps * even : loss;
            want += (double)each[i];
            labels++;
            correct += first != NULL && first[i] == -(float)label[i];
        }
        SAME_EACH (device) {
            float got_each[ROWS];
            double got = 0;
            int64_t got_labels = 1, got_correct = 2;
            sheaf__op_losses(device, &(sheaf__losses){ .max = SAME(max),
                                                       .sum = SAME(sum),
                                                       .target = SAME(target),
                                                       .logits = SAME(all),
                                                       .first = SAME(first),
                                                       .label = label,
                                                       .rows = ROWS,
                                                       .vocab = VOCAB,
                                                       .smoothing = eps,
                                                       .each = way & 2 ? got_each : NULL,
                                                       .loss = &got,
                                                       .labels = &got_labels,
                                                       .correct = &got_correct });
            assert_true(equal(got, want));
            for (int i = 0; i < ROWS && (way & 2); i++)
                assert_true(label[i] < 0 || equal((double)got_each[i], (double)each[i]));
            assert_int_equal(got_labels, 1 + labels);
            assert_int_equal(got_correct, 2 + correct);
        }
        same_check("what losses are made of");
    }
}

FIXTURE(same_open, same_close);
