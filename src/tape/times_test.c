/* times_test.c - y = x W for W as it is stored, on small tapes (tests/tape_problem.h). */
#include "tape/linear.h"
#include "tests/tape_problem.h"

enum { IN = 37, OUT = 70, TOKENS = 6 };

typedef struct times_env {
    sheaf__linear linear;
} times_env;

static void *panels(size_t bytes)
{
    void *to = aligned_alloc(64, (bytes + 63) / 64 * 64);
    assert_non_null(to);
    return to;
}

static void release(times_env *e)
{
    free(e->linear.w[0].ahead);
    e->linear = (sheaf__linear){ 0 };
}

static sheaf__value *record_times(sheaf__tape *tape, sheaf__value **value, sheaf__vector *vector,
                                  const problem *p)
{
    times_env *e = p->env;
    const sheaf_dtype t = sheaf__tape_context(tape)->dtype;
    release(e);
    e->linear = (sheaf__linear){ .name = "w",
                                 .in = OUT, /* the names of a layer that computes x w^T */
                                 .out = IN,
                                 .whole = true,
                                 .transposed = true,
                                 .count = 1,
                                 .extent = { IN },
                                 .owned = IN,
                                 .weight_trained = vector[1].trained,
                                 .w[0] = { .dtype = t, .n = IN, .k = OUT } };
    e->linear.w[0].ahead = panels(sheaf__packed_bytes(t, IN, OUT));
    sheaf__pack(&e->linear.w[0], vector[1].data, SHEAF_F32, OUT, 0, IN);
    sheaf__value *y;
    sheaf__record_columns(tape, &y, value[0], (sheaf__linear *const[]){ &e->linear }, 1, NULL);
    return y;
}

static void plain_times(double *y, double *const *x, const problem *p)
{
    for (int64_t r = 0; r < TOKENS; r++)
        for (int64_t c = 0; c < OUT; c++) {
            y[r * OUT + c] = 0;
            for (int64_t k = 0; k < IN; k++)
                y[r * OUT + c] += x[0][r * IN + k] * x[1][k * OUT + c];
        }
}

TEST(test_times__values_and_gradients)
{
    for (int frozen = 0; frozen < 4; frozen++) {
        times_env env = { 0 };
        check_here(&(problem){ "x times W",
                               TOKENS,
                               OUT,
                               { { TOKENS, IN, false, frozen & 1 }, { IN, OUT, true, frozen & 2 } },
                               false,
                               record_times,
                               plain_times,
                               &env });
        release(&env);
    }
}
