/* matmul_finish.h - from finished sums in cache to the result; part of matmul_kernel.h. */
#include "ops/matmul/matmul_private.h"

static inline vec load_some(const float *p, int64_t n)
{
    return n == LANES ? LOAD(p) : LOAD_PART(p, n);
}

/* Rounded to `type` and widened again; a NaN is the default one already. */
static inline vec through(vec v, sheaf_dtype type)
{
    return type == SHEAF_BF16 ? FROM_BF16(TO_BF16(v)) : type == SHEAF_F16 ? FROM_F16(TO_F16(v)) : v;
}

static inline vec load_residual(const mm_finish *f, int64_t at, int64_t n)
{
    if (f->out == SHEAF_F32)
        return load_some((const float *)f->residual + at, n);
    const uint16_t *p = (const uint16_t *)f->residual + at;
    const halves h = n == LANES ? LOAD_HALVES(p) : LOAD_PART_HALVES(p, n);
    return f->out == SHEAF_BF16 ? FROM_BF16(h) : FROM_F16(h);
}

/* n <= LANES sums at row i, column j of the result. */
static inline void finish_vector(const mm_finish *f, vec v, int64_t i, int64_t j, int64_t n)
{
    float *y = (float *)f->y + i * f->ldy + j;
    uint16_t *y16 = (uint16_t *)f->y + i * f->ldy + j;
    if (f->round_to != SHEAF_F32)
        v = through(QUIET(v), f->round_to);
    v = MUL(SPLAT(f->alpha), v);
    if (f->add) {
        v = ADD(load_some(y, n), v);
    } else {
        if (f->bias)
            v = ADD(v, load_some(f->bias + j, n));
        if (f->residual)
            v = ADD(through(f->out == SHEAF_F32 ? v : QUIET(v), f->out),
                    load_residual(f, i * f->ldr + j, n));
    }
    v = QUIET(v);
    if (f->out != SHEAF_F32) {
        const halves h = f->out == SHEAF_BF16 ? TO_BF16(v) : TO_F16(v);
        if (n == LANES)
            STORE_HALVES(y16, h);
        else
            STORE_PART_HALVES(y16, h, n);
    } else if (n == LANES)
        STORE(y, v);
    else
        STORE_PART(y, v, n);
}

/* Asks for what finishing rows [i, i + rows), columns [j, j + cols) will read, so that it arrives
 * while their last block is multiplied. */
static inline void ask_addend(const mm_finish *f, int64_t i, int64_t j, int64_t rows, int64_t cols)
{
    const char *from = f->add ? f->y : f->residual;
    const int64_t ld = f->add ? f->ldy : f->ldr, size = mm_size(f->out);
    if (from == NULL || f->transposed)
        return;
    for (int64_t r = i; r < i + rows; r++)
        for (int64_t at = 0; at < cols * size; at += 64)
            __builtin_prefetch(from + (r * ld + j) * size + at);
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
