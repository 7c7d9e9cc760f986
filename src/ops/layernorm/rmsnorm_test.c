/* rmsnorm_test.c */
#include "tests/ops_twin.h"

static const struct {
    const char *name;
    float x[2], w[2], eps, want[2];
} by_hand[] = {
    { "3-4 row, rms sqrt(12.5)", { 3, 4 }, { 1, 1 }, 0, { 0.848528f, 1.131371f } },
    { "weight scales columns", { 1, 1 }, { 2, 5 }, 0, { 2, 5 } },
    { "sign is kept", { -2, 2 }, { 1, 1 }, 0, { -1, 1 } },
    { "eps keeps zero finite", { 0, 0 }, { 1, 1 }, 1e-6f, { 0, 0 } },
    { "eps counts", { 1, 1 }, { 1, 1 }, 3, { 0.5f, 0.5f } },
};

TEST(test_rmsnorm__rows_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float y[2], rstd;
        sheaf__kernels_for("ref")->rmsnorm(y, &rstd, by_hand[i].x, by_hand[i].w, 1, 2,
                                           by_hand[i].eps, false, SHEAF_F32);
        for (int c = 0; c < 2; c++)
            CHECK_NEAR(by_hand[i].name, y[c], by_hand[i].want[c], 1e-6);
    }
}

TEST(test_rmsnorm__bf16_rounds_before_the_weight)
{
    /* 3 / sqrt(9 + 0.1) = 0.994490 rounds to 255/256; times 1.51 is 1.504102, above the
     * middle of 1.5 and 1.5078125. Unrounded, 1.501680 would go to 1.5. */
    const uint16_t x[2] = { sheaf__bf16(3), sheaf__bf16(3) };
    const float w[2] = { 1.51f, 1.51f };
    uint16_t y[2];
    float rstd;
    sheaf__kernels_for("ref")->rmsnorm(y, &rstd, x, w, 1, 2, 0.1f, false, SHEAF_BF16);
    CHECK_NEAR("rounded twice", sheaf__from_bf16(y[0]), 1.5078125, 0);
    sheaf__kernels_for("ref")->rmsnorm(y, &rstd, x, w, 1, 2, 0.1f, true, SHEAF_BF16);
    CHECK_NEAR("rounded once", sheaf__from_bf16(y[0]), 1.5, 0);
}

enum { ROWS = 3, WIDTH = 21, N = ROWS * WIDTH };
static const double eps = 0.01;
static double weights[WIDTH], flow[N]; /* w of the gradient by x, and dy */

static void double_norm(double *y, const double *x, const double *w)
{
    for (int t = 0; t < ROWS; t++) {
        double sum = 0;
        for (int c = 0; c < WIDTH; c++)
            sum += x[t * WIDTH + c] * x[t * WIDTH + c];
        for (int c = 0; c < WIDTH; c++)
            y[t * WIDTH + c] = w[c] * x[t * WIDTH + c] / sqrt(sum / WIDTH + eps);
    }
}

static double loss(const double *x) /* x, then w */
{
    double y[N], sum = 0;
    double_norm(y, x, x + N);
    for (int i = 0; i < N; i++)
        sum += flow[i] * y[i];
    return sum;
}

static void double_back(double *dx, double *dw, const double *x, const double *w, const double *dy)
{
    memset(dw, 0, WIDTH * sizeof *dw);
    for (int t = 0; t < ROWS; t++) {
        double sum = 0, dot = 0;
        for (int c = 0; c < WIDTH; c++)
            sum += x[t * WIDTH + c] * x[t * WIDTH + c];
        const double rstd = 1 / sqrt(sum / WIDTH + eps);
        for (int c = 0; c < WIDTH; c++)
            dot += w[c] * dy[t * WIDTH + c] * x[t * WIDTH + c] * rstd;
        for (int c = 0; c < WIDTH; c++) {
            const double n = x[t * WIDTH + c] * rstd;
            dx[t * WIDTH + c] = rstd * (w[c] * dy[t * WIDTH + c] - n * dot / WIDTH);
            dw[c] += dy[t * WIDTH + c] * n;
        }
    }
}

TEST(test_rmsnorm_back__is_the_gradient)
{
    double x[N + WIDTH], want[N + WIDTH];
    float xf[N], w[WIDTH], dy[N], y[N], rstd[ROWS], dx[N], dw[WIDTH] = { 0 };
    for (int i = 0; i < N; i++) {
        xf[i] = twin_number((uint64_t)i, TWIN_PLAIN), x[i] = xf[i];
        dy[i] = twin_number(1000 + (uint64_t)i, TWIN_PLAIN), flow[i] = dy[i];
    }
    for (int c = 0; c < WIDTH; c++)
        w[c] = 1 + twin_number(2000 + (uint64_t)c, TWIN_PLAIN), weights[c] = x[N + c] = w[c];
    double_back(want, want + N, x, weights, flow);
    twin_gradient("rmsnorm", loss, x, N + WIDTH, want);

    const sheaf__kernels *k = sheaf__kernels_for("ref");
    k->rmsnorm(y, rstd, xf, w, ROWS, WIDTH, (float)eps, false, SHEAF_F32);
    k->rmsnorm_back(dx, dy, xf, w, rstd, ROWS, WIDTH, false, SHEAF_F32);
    k->layernorm_dw(dw, NULL, dy, WIDTH, xf, WIDTH, NULL, rstd, ROWS, 0, WIDTH, SHEAF_F32);
    twin_close("dx", dx, want, N, 1e-5);
    twin_close("dw", dw, want + N, WIDTH, 1e-5);

    float twice[N];
    memcpy(twice, dx, sizeof dx);
    k->rmsnorm_back(twice, dy, xf, w, rstd, ROWS, WIDTH, true, SHEAF_F32);
    for (int i = 0; i < N; i++)
        CHECK_NEAR("add", twice[i], 2 * dx[i], 0);
}

enum { MOST = 9 * 6145 };

static void *operand(int which, size_t bytes)
{
    static void *block[6];
    if (block[which] == NULL)
        block[which] = twin_take(MOST * 4);
    return twin_end(block[which], MOST * 4, bytes);
}

static void compare(const twin *t, int64_t rows, int64_t width)
{
    const int64_t n = rows * width;
    const size_t bytes = (size_t)n * twin_bytes(t->dtype);
    float scales[2][600], *w = operand(0, (size_t)width * 4);
    void *x = operand(1, bytes), *dy = operand(2, bytes), *want = operand(3, bytes),
         *got = operand(4, bytes);
    twin_fill(w, width, SHEAF_F32, t->numbers, 1);
    twin_fill(x, n, t->dtype, t->numbers, 2);
    twin_fill(dy, n, t->dtype, t->numbers, 3);
    for (int once = 0; once < 2; once++) {
        t->ref->rmsnorm(want, scales[0], x, w, rows, width, 1e-5f, once, t->dtype);
        t->fast->rmsnorm(got, scales[1], x, w, rows, width, 1e-5f, once, t->dtype);
        twin_same(t, "rmsnorm", got, want, bytes);
        twin_same(t, "rstd", scales[1], scales[0], (size_t)rows * 4);
    }
    for (int add = 0; add < 2; add++) {
        t->ref->rmsnorm_back(want, dy, x, w, scales[0], rows, width, add, t->dtype);
        t->fast->rmsnorm_back(got, dy, x, w, scales[0], rows, width, add, t->dtype);
        twin_same(t, "rmsnorm_back", got, want, bytes);
    }
    float *dw = operand(3, (size_t)width * 4), *dw2 = operand(4, (size_t)width * 4);
    const int64_t begin = width / 3, end = width - width / 7;
    twin_fill(dw, width, SHEAF_F32, t->numbers, 4);
    memcpy(dw2, dw, (size_t)width * 4);
    t->ref->layernorm_dw(dw, NULL, dy, width, x, width, NULL, scales[0], rows, begin, end,
                         t->dtype);
    t->fast->layernorm_dw(dw2, NULL, dy, width, x, width, NULL, scales[0], rows, begin, end,
                          t->dtype);
    twin_same(t, "dw of rmsnorm", dw2, dw, (size_t)width * 4);
}

/* The same kernels with the result laid over an operand. */
static void compare_in_place(const twin *t, int64_t rows, int64_t width)
{
    const int64_t n = rows * width;
    const size_t bytes = (size_t)n * twin_bytes(t->dtype);
    float rstd[16], *w = operand(0, (size_t)width * 4);
    void *x = operand(1, bytes), *dy = operand(2, bytes), *want = operand(3, bytes);
    twin_fill(w, width, SHEAF_F32, t->numbers, 1);
    twin_fill(x, n, t->dtype, t->numbers, 2);
    twin_fill(dy, n, t->dtype, t->numbers, 3);
    t->ref->rmsnorm(want, rstd, x, w, rows, width, 1e-5f, false, t->dtype);
    t->ref->rmsnorm_back(want, dy, x, w, rstd, rows, width, false, t->dtype);
    t->fast->rmsnorm_back(dy, dy, x, w, rstd, rows, width, false, t->dtype);
    twin_same(t, "dx over dy", dy, want, bytes);
    t->ref->rmsnorm(want, rstd, x, w, rows, width, 1e-5f, false, t->dtype);
    t->fast->rmsnorm(x, rstd, x, w, rows, width, 1e-5f, false, t->dtype);
    twin_same(t, "y over x", x, want, bytes);
}

static void twins(const twin *t)
{
    static const int64_t rows[] = { 1, 4, 5, 7 };
    for (size_t s = 0; s < ARRAY_LEN(twin_sizes); s++) {
        compare(t, rows[s % 4], twin_sizes[s]);
        compare_in_place(t, rows[s % 4], twin_sizes[s]);
    }
    static const int64_t tall[][2] = {
        { 255, 17 }, { 256, 33 }, { 257, 20 }, { 600, 40 }, { 9, 2048 }
    };
    for (size_t s = 0; s < ARRAY_LEN(tall); s++)
        compare(t, tall[s][0], tall[s][1]);
}

TEST(test_rmsnorm__fast_kernels_give_the_reference_bits)
{
    twin_each(twins);
}
