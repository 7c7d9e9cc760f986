/* matmul_finish.h - from finished sums in cache to the result; part of matmul_kernel.h. */
#include "ops/matmul/matmul_private.h"

static inline vec load_some(const float *p, int64_t n)
{
    return n == LANES ? LOAD(p) : LOAD_PART(p, n);
}

static inline vec load_halves(const uint16_t *p, int64_t n)
{
    return FROM_BF16(n == LANES ? LOAD_HALVES(p) : LOAD_PART_HALVES(p, n));
}

/* n <= LANES sums at row i, column j of the result. */
static inline void finish_vector(const mm_finish *f, vec v, int64_t i, int64_t j, int64_t n)
{
    const bool bf16 = f->out == SHEAF_BF16;
    float *y = (float *)f->y + i * f->ldy + j;
    uint16_t *y16 = (uint16_t *)f->y + i * f->ldy + j;
    if (f->round_bf16)
        v = FROM_BF16(TO_BF16(QUIET(v)));
    v = MUL(SPLAT(f->alpha), v);
    if (f->add) {
        v = ADD(load_some(y, n), v);
    } else {
        if (f->bias)
            v = ADD(v, load_some(f->bias + j, n));
        if (f->residual && bf16)
            v = ADD(FROM_BF16(TO_BF16(QUIET(v))),
                    load_halves((const uint16_t *)f->residual + i * f->ldr + j, n));
        else if (f->residual)
            v = ADD(v, load_some((const float *)f->residual + i * f->ldr + j, n));
    }
    v = QUIET(v);
    if (bf16 && n == LANES)
        STORE_HALVES(y16, TO_BF16(v));
    else if (bf16)
        STORE_PART_HALVES(y16, TO_BF16(v), n);
    else if (n == LANES)
        STORE(y, v);
    else
        STORE_PART(y, v, n);
}

/* `sum` [rows, cols], row stride MM_PANEL, belongs at row i, column j of the result. */
static void finish_tile(const mm_finish *f, const float *sum, int64_t i, int64_t j, int64_t rows,
                        int64_t cols)
{
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cols; c += LANES)
            finish_vector(f, LOAD(sum + r * MM_PANEL + c), i + r, j + c, mm_min(LANES, cols - c));
}

/* The same; when the product was transposed, sum is [columns, rows] of the result. */
static void finish_panel(const mm_finish *f, const float *sum, int64_t i, int64_t j, int64_t rows,
                         int64_t cols)
{
    if (!f->transposed) {
        finish_tile(f, sum, i, j, rows, cols);
        return;
    }
    float transposed[MM_PANEL * MM_PANEL];
    for (int64_t c = 0; c < cols; c++) {
        for (int64_t r = 0; r < rows; r++)
            transposed[c * MM_PANEL + r] = sum[r * MM_PANEL + c];
        for (int64_t r = rows; r < mm_up(rows, LANES); r++)
            transposed[c * MM_PANEL + r] = 0.0f;
    }
    finish_tile(f, transposed, j, i, cols, rows);
}
