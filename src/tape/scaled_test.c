/* scaled_test.c - rows times a number on small tapes (tests/tape_problem.h). */
#include "ops/math/round.h"
#include "tests/tape_problem.h"
#include "tape/scaled.h"

static const float BY = 1.0f / 3;

static sheaf__value *record_times(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                  const problem *p)
{
    sheaf__record_times_number(tape, value[0], BY);
    return value[0];
}
static void plain_times(double *y, double *const *x, const problem *p)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        y[i] = x[0][i] * (double)BY;
}

static sheaf__value *record_divide(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                   const problem *p)
{
    return sheaf__record_divide(tape, value[0], 9);
}
static void plain_divide(double *y, double *const *x, const problem *p)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        y[i] = x[0][i] / 9;
}

static sheaf__value *record_add(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                const problem *p)
{
    return sheaf__record_add_scaled(tape, value[0], value[1], BY);
}
static void plain_add(double *y, double *const *x, const problem *p)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++)
        y[i] = x[0][i] + x[1][i] * (double)BY;
}

/* h has another reader: each layer's branch is added to what the next reads too. */
static sheaf__value *record_twice(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                  const problem *p)
{
    sheaf__value *y = sheaf__record_add_scaled(tape, value[0], value[1], BY);
    return sheaf__record_add_scaled(tape, y, sheaf__record_gelu(tape, y, false), BY);
}
static void plain_twice(double *y, double *const *x, const problem *p)
{
    for (int64_t i = 0; i < p->rows * p->cols; i++) {
        const double v = x[0][i] + x[1][i] * (double)BY;
        y[i] = v + 0.5 * v * (1 + erf(v / sqrt(2))) * (double)BY;
    }
}

TEST(test_scaled__values_and_gradients)
{
    static const problem list[] = {
        { "times", 7, 300, { { 7, 300 } }, true, record_times, plain_times },
        { "divided", 7, 300, { { 7, 300 } }, false, record_divide, plain_divide },
        { "branch", 5, 260, { { 5, 260 }, { 5, 260 } }, true, record_add, plain_add },
        { "branches", 5, 7, { { 5, 7 }, { 5, 7 } }, true, record_twice, plain_twice },
    };
    check_all(list, ARRAY_LEN(list));
}

/* In bfloat16 the number keeps its float32, the product is rounded before it is added, and a
 * quotient is no product with 1/9. */
TEST(test_scaled__roundings)
{
    enum { N = 300 };
    const problem p = { "branch", 1, N, { { 1, N }, { 1, N } }, true, record_add, plain_add, NULL };
    outcome o = run(&p, &sheaf__cpu, SHEAF_BF16, false);
    int differ = 0;
    for (int i = 0; i < N; i++) {
        const float product = sheaf__from_bf16(sheaf__bf16(o.x[1][i] * BY)),
                    once = sheaf__from_bf16(sheaf__bf16(o.x[0][i] + o.x[1][i] * BY)),
                    coarse = sheaf__from_bf16(
                        sheaf__bf16(o.x[1][i] * sheaf__from_bf16(sheaf__bf16(BY))));
        CHECK_NEAR("branch", o.y[i], sheaf__from_bf16(sheaf__bf16(o.x[0][i] + product)), 0);
        differ += once != o.y[i];
        differ += coarse != product;
    }
    assert_true(differ > 10);
    drop(&o);
    const problem q = { "divided", 1, N, { { 1, N } }, true, record_divide, plain_divide, NULL };
    o = run(&q, &sheaf__cpu, SHEAF_F32, false);
    differ = 0;
    for (int i = 0; i < N; i++) {
        CHECK_NEAR("quotient", o.y[i], o.x[0][i] / 9.0f, 0);
        differ += o.x[0][i] / 9.0f != o.x[0][i] * (1.0f / 9.0f);
    }
    assert_true(differ > 10);
    drop(&o);
}
