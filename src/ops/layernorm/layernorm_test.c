/* layernorm_test.c - LayerNorm and RMSNorm: rows worked by hand, a version in double, gradients. */
#include "tests/ops_twin.h"

/* The two statistics of whole rows, as the caller of the kernels works them out. */
static void statistics(const sheaf__kernels *k, float *mean, float *rstd, const void *x,
                       int64_t ldx, int64_t rows, int64_t cols, float eps, sheaf_dtype dtype)
{
    k->layernorm_sum(mean, x, ldx, rows, cols, dtype);
    for (int64_t t = 0; t < rows; t++)
        mean[t] = sheaf__one_nan(mean[t] / (float)cols);
    k->layernorm_squares(rstd, x, ldx, mean, rows, cols, dtype);
    for (int64_t t = 0; t < rows; t++)
        rstd[t] = sheaf__one_nan(1.0f / sqrtf(rstd[t] / (float)cols + eps));
}

static const struct {
    const char *name;
    float x[2], w[2], b[2], eps, want[2];
} by_hand[] = {
    { "two numbers are -1 and 1", { 3, 4 }, { 1, 1 }, { 0, 0 }, 0, { -1, 1 } },
    { "order is kept", { 7, -5 }, { 1, 1 }, { 0, 0 }, 0, { 1, -1 } },
    { "weight, then bias", { 3, 4 }, { 2, 5 }, { 10, 20 }, 0, { 8, 25 } },
    { "eps keeps equal numbers finite", { 6, 6 }, { 3, 3 }, { 1, 2 }, 1e-5f, { 1, 2 } },
    { "eps counts", { -1, 1 }, { 1, 1 }, { 0, 0 }, 3, { -0.5f, 0.5f } },
    { "far from zero", { 8388608, 8388610 }, { 1, 1 }, { 0, 0 }, 0, { -1, 1 } },
};

TEST(test_layernorm__rows_worked_by_hand)
{
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    for (size_t i = 0; i < ARRAY_LEN(by_hand); i++) {
        float y[2], mean, rstd;
        statistics(k, &mean, &rstd, by_hand[i].x, 2, 1, 2, by_hand[i].eps, SHEAF_F32);
        k->layernorm(y, 2, by_hand[i].x, 2, &mean, &rstd, by_hand[i].w, by_hand[i].b, NULL, 1, 2,
                     SHEAF_F32);
        for (int c = 0; c < 2; c++)
            CHECK_NEAR(by_hand[i].name, y[c], by_hand[i].want[c], 1e-6);
    }
}

TEST(test_layernorm__bf16_rounds_before_the_residual)
{
    /* 3 * 1.0013 = 3.0039 rounds to 3, whose next is 3.015625. 3 + 2^-7 is the middle of the
     * two and goes to the even one, 3; 3.0039 + 2^-7 is above it. */
    const uint16_t x = sheaf__bf16(3), residual = sheaf__bf16(0x1p-7f);
    const float mean = 0, rstd = 1, w = 1.0013f, b[2] = { 0, 0x1p-7f };
    uint16_t y;
    sheaf__kernels_for("ref")->layernorm(&y, 1, &x, 1, &mean, &rstd, &w, b, &residual, 1, 1,
                                         SHEAF_BF16);
    CHECK_NEAR("residual", sheaf__from_bf16(y), 3, 0);
    sheaf__kernels_for("ref")->layernorm(&y, 1, &x, 1, &mean, &rstd, &w, b + 1, NULL, 1, 1,
                                         SHEAF_BF16);
    CHECK_NEAR("bias", sheaf__from_bf16(y), 3.015625, 0);
}

enum { WIDEST = 15360 };
static const int64_t production[] = { 1792, 2730, 4096, WIDEST };

/* One row of y and dx by the formulas, in double; plain: RMSNorm's, whose mean is zero. */
static void double_norm(double *y, double *dx, const double *x, const double *w, const double *b,
                        const double *dy, int64_t width, double eps, bool plain)
{
    double sum = 0, squares = 0, sum_a = 0, sum_an = 0;
    for (int64_t c = 0; c < width && !plain; c++)
        sum += x[c];
    const double mean = sum / (double)width;
    for (int64_t c = 0; c < width; c++)
        squares += (x[c] - mean) * (x[c] - mean);
    const double rstd = 1 / sqrt(squares / (double)width + eps);
    for (int64_t c = 0; c < width; c++) {
        y[c] = w[c] * (x[c] - mean) * rstd + b[c];
        sum_a += plain ? 0 : w[c] * dy[c];
        sum_an += w[c] * dy[c] * (x[c] - mean) * rstd;
    }
    for (int64_t c = 0; c < width; c++) {
        const double n = (x[c] - mean) * rstd;
        dx[c] = rstd * (w[c] * dy[c] - sum_a / (double)width - n * sum_an / (double)width);
    }
}

/* Also in parts: the slices of a width are rows of their own, whose sums the caller adds. */
static void check_wide(int64_t width, int slices, sheaf_dtype dtype)
{
    static uint32_t x[WIDEST], dy[WIDEST], y[WIDEST], dx[WIDEST];
    static float w[WIDEST], b[WIDEST];
    static double wide[4][WIDEST], want[2][WIDEST];
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    const int64_t each = width / slices;
    float sum[5], mean[5], rstd[5], mean_a[5], mean_an[5], total = 0, squares = 0, a = 0, an = 0;
    for (int64_t c = 0; c < width; c++) {
        const float far = 5 + twin_number((uint64_t)c, TWIN_PLAIN),
                    flow = twin_number(90000 + (uint64_t)c, TWIN_PLAIN);
        k->round((char *)x + c * (int64_t)twin_bytes(dtype), dtype, &far, 1);
        k->round((char *)dy + c * (int64_t)twin_bytes(dtype), dtype, &flow, 1);
        wide[0][c] = sheaf__load(x, c, dtype), wide[1][c] = sheaf__load(dy, c, dtype);
        wide[2][c] = w[c] = 1 + twin_number(180000 + (uint64_t)c, TWIN_PLAIN) / 8;
        wide[3][c] = b[c] = twin_number(270000 + (uint64_t)c, TWIN_PLAIN) / 8;
    }
    double_norm(want[0], want[1], wide[0], wide[2], wide[3], wide[1], width, 1e-6, false);
    k->layernorm_sum(sum, x, each, slices, each, dtype);
    for (int s = 0; s < slices; s++)
        total += sum[s];
    for (int s = 0; s < slices; s++)
        mean[s] = total / (float)width;
    k->layernorm_squares(sum, x, each, mean, slices, each, dtype);
    for (int s = 0; s < slices; s++)
        squares += sum[s];
    for (int s = 0; s < slices; s++)
        rstd[s] = 1.0f / sqrtf(squares / (float)width + 1e-6f);
    for (int s = 0; s < slices; s++) {
        const size_t at = (size_t)(s * each) * twin_bytes(dtype);
        k->layernorm((char *)y + at, each, (char *)x + at, each, mean, rstd, w + s * each,
                     b + s * each, NULL, 1, each, dtype);
        k->layernorm_back_sums(mean_a, mean_an, (char *)dy + at, each, (char *)x + at, each, mean,
                               rstd, w + s * each, 1, each, dtype);
        a += mean_a[0], an += mean_an[0];
    }
    mean_a[0] = a / (float)width, mean_an[0] = an / (float)width;
    for (int s = 0; s < slices; s++) {
        const size_t at = (size_t)(s * each) * twin_bytes(dtype);
        k->layernorm_back((char *)dx + at, (char *)dy + at, each, (char *)x + at, each, mean, rstd,
                          w + s * each, mean_a, mean_an, 1, each, false, dtype);
    }
    /* The mean, of numbers near 5, is off by a few 2^-22 and all others are smaller: 2e-6. Then,
     * in bfloat16, one rounding: half of 2^-7 at most. */
    const double last = dtype == SHEAF_BF16 ? 0x1p-8 : 0;
    for (int64_t c = 0; c < width; c++) {
        CHECK_NEAR("y", sheaf__load(y, c, dtype), want[0][c], 2e-6 + last * fabs(want[0][c]));
        CHECK_NEAR("dx", sheaf__load(dx, c, dtype), want[1][c], 2e-6 + last * fabs(want[1][c]));
    }
}

TEST(test_layernorm__equals_the_double_formulas_at_production_widths)
{
    for (size_t i = 0; i < ARRAY_LEN(production); i++)
        for (int slices = 1; slices <= 2; slices++) {
            check_wide(production[i], slices, SHEAF_F32);
            check_wide(production[i], slices, SHEAF_BF16);
        }
}

enum { ROWS = 3, WIDTH = 21, N = ROWS * WIDTH };
static const double eps = 0.01;
static double flow[N]; /* dy */
static bool plain;

/* x, then w and b; and their gradients. */
typedef struct problem {
    double x[N + 2 * WIDTH], want[N + 2 * WIDTH];
    float xf[N], w[WIDTH], dy[N];
} problem;

static double loss(const double *x)
{
    double y[WIDTH], unused[WIDTH], sum = 0;
    for (int t = 0; t < ROWS; t++) {
        double_norm(y, unused, x + t * WIDTH, x + N, x + N + WIDTH, flow + t * WIDTH, WIDTH, eps,
                    plain);
        for (int c = 0; c < WIDTH; c++)
            sum += flow[t * WIDTH + c] * y[c];
    }
    return sum;
}

static problem make_problem(bool without_means)
{
    problem p = { .want = { 0 } };
    double y[WIDTH];
    plain = without_means;
    for (int i = 0; i < N; i++) {
        p.xf[i] = twin_number((uint64_t)i, TWIN_PLAIN), p.x[i] = p.xf[i];
        p.dy[i] = twin_number(1000 + (uint64_t)i, TWIN_PLAIN), flow[i] = p.dy[i];
    }
    for (int c = 0; c < WIDTH; c++) {
        p.w[c] = 1 + twin_number(2000 + (uint64_t)c, TWIN_PLAIN), p.x[N + c] = p.w[c];
        p.x[N + WIDTH + c] = 0; /* with no bias, y is w n: the gradient of w is y dy / w */
    }
    for (int t = 0; t < ROWS; t++) {
        const double *d = flow + t * WIDTH;
        double_norm(y, p.want + t * WIDTH, p.x + t * WIDTH, p.x + N, p.x + N + WIDTH, d, WIDTH, eps,
                    plain);
        for (int c = 0; c < WIDTH; c++)
            p.want[N + c] += d[c] * y[c] / p.x[N + c], p.want[N + WIDTH + c] += d[c];
    }
    twin_gradient(plain ? "rmsnorm" : "layernorm", loss, p.x, N + (plain ? 1 : 2) * WIDTH, p.want);
    return p;
}

/* A kernel that adds to dx doubles it. */
static void check_twice(const float *twice, const float *dx)
{
    for (int i = 0; i < N; i++)
        CHECK_NEAR("add", twice[i], 2 * dx[i], 0);
}

TEST(test_layernorm_back__is_the_gradient)
{
    const problem p = make_problem(false);
    const float *xf = p.xf, *w = p.w, *dy = p.dy;
    float mean[ROWS], rstd[ROWS], a[ROWS], an[ROWS], dx[N], twice[N];
    float dw[WIDTH] = { 0 }, db[WIDTH] = { 0 }, alone[WIDTH] = { 0 };
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    statistics(k, mean, rstd, xf, WIDTH, ROWS, WIDTH, (float)eps, SHEAF_F32);
    k->layernorm_back_sums(a, an, dy, WIDTH, xf, WIDTH, mean, rstd, w, ROWS, WIDTH, SHEAF_F32);
    for (int t = 0; t < ROWS; t++)
        a[t] /= WIDTH, an[t] /= WIDTH;
    k->layernorm_back(dx, dy, WIDTH, xf, WIDTH, mean, rstd, w, a, an, ROWS, WIDTH, false,
                      SHEAF_F32);
    k->layernorm_dw(dw, db, dy, WIDTH, xf, WIDTH, mean, rstd, ROWS, 0, WIDTH, SHEAF_F32);
    twin_close("dx", dx, p.want, N, 1e-5);
    twin_close("dw", dw, p.want + N, WIDTH, 1e-5);
    twin_close("db", db, p.want + N + WIDTH, WIDTH, 1e-6);
    k->layernorm_dw(alone, NULL, dy, WIDTH, xf, WIDTH, mean, rstd, ROWS, 0, WIDTH, SHEAF_F32);
    CHECK_BYTES("dw without db", alone, dw, sizeof dw);
    memcpy(twice, dx, sizeof dx);
    k->layernorm_back(twice, dy, WIDTH, xf, WIDTH, mean, rstd, w, a, an, ROWS, WIDTH, true,
                      SHEAF_F32);
    check_twice(twice, dx);
}

/* ---- RMSNorm ---- */

static const struct {
    const char *name;
    float x[2], w[2], eps, want[2];
} rms_by_hand[] = {
    { "3-4 row, rms sqrt(12.5)", { 3, 4 }, { 1, 1 }, 0, { 0.848528f, 1.131371f } },
    { "weight scales columns", { 1, 1 }, { 2, 5 }, 0, { 2, 5 } },
    { "sign is kept", { -2, 2 }, { 1, 1 }, 0, { -1, 1 } },
    { "eps keeps zero finite", { 0, 0 }, { 1, 1 }, 1e-6f, { 0, 0 } },
    { "eps counts", { 1, 1 }, { 1, 1 }, 3, { 0.5f, 0.5f } },
};

TEST(test_rmsnorm__rows_worked_by_hand)
{
    for (size_t i = 0; i < ARRAY_LEN(rms_by_hand); i++) {
        float y[2], rstd;
        sheaf__kernels_for("ref")->rmsnorm(y, &rstd, rms_by_hand[i].x, rms_by_hand[i].w, 1, 2,
                                           rms_by_hand[i].eps, false, SHEAF_F32);
        for (int c = 0; c < 2; c++)
            CHECK_NEAR(rms_by_hand[i].name, y[c], rms_by_hand[i].want[c], 1e-6);
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

TEST(test_rmsnorm_back__is_the_gradient)
{
    const problem p = make_problem(true);
    float y[N], rstd[ROWS], dx[N], twice[N], dw[WIDTH] = { 0 };
    const sheaf__kernels *k = sheaf__kernels_for("ref");
    k->rmsnorm(y, rstd, p.xf, p.w, ROWS, WIDTH, (float)eps, false, SHEAF_F32);
    k->rmsnorm_back(dx, p.dy, p.xf, p.w, rstd, ROWS, WIDTH, false, SHEAF_F32);
    k->layernorm_dw(dw, NULL, p.dy, WIDTH, p.xf, WIDTH, NULL, rstd, ROWS, 0, WIDTH, SHEAF_F32);
    twin_close("dx", dx, p.want, N, 1e-5);
    twin_close("dw", dw, p.want + N, WIDTH, 1e-5);
    memcpy(twice, dx, sizeof dx);
    k->rmsnorm_back(twice, p.dy, p.xf, p.w, rstd, ROWS, WIDTH, true, SHEAF_F32);
    check_twice(twice, dx);
}
