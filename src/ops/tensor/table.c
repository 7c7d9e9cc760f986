/* table.c - operations on vocabulary tables by token, see tensor.h. */
#include "ops/call.h"
#include "ops/math/round.h"
#include "ops/tensor/tensor.h"

enum { PART = 256 };

/* Writes x, or else the pieces. */
static void run(sheaf__device *device, sheaf__operation operation, sheaf__part_fn *part,
                sheaf__lookup *l, bool writes_x, int64_t rows, int64_t grain)
{
    sheaf__operand operand[SHEAF_MAX_SLICES + 2] = {
        { &l->x, (size_t)(l->tokens.n * l->cols) * sheaf_dtype_bytes(l->dtype), writes_x },
        SHEAF__READS(l->tokens.id, (size_t)l->tokens.n * sizeof(int32_t)),
    };
    for (int i = 0; i < l->pieces.count; i++)
        operand[2 + i] = (sheaf__operand){ &l->pieces.at[i],
                                           (size_t)(sheaf__lookup_rows(&l->pieces, i) * l->cols) *
                                               sheaf_dtype_bytes(l->from),
                                           !writes_x };
    sheaf__run(device,
               &(sheaf__call){ operation, l, operand, 2 + l->pieces.count, part, rows, grain });
}

/* ---- rows ---- */

static void rows_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__lookup *l = arg;
    for (int64_t i = begin, inside; i < end; i++) {
        const int piece = sheaf__lookup_at(l, i, &inside);
        if (piece >= 0)
            k->convert(sheaf__at(l->x, i * l->cols, l->dtype), l->dtype,
                       sheaf__at(l->pieces.at[piece], inside * l->cols, l->from), l->from, l->cols);
    }
}

void sheaf__op_table_rows(sheaf__device *device, void *x, sheaf_dtype to,
                          const sheaf__pieces *table, sheaf_dtype from, int64_t width,
                          sheaf__tokens tokens)
{
    sheaf__lookup l = { *table, tokens, x, to, from, .cols = width };
    run(device, SHEAF__OP_TABLE_ROWS, rows_part, &l, true, tokens.n, 32);
}

/* Each row receives its tokens in ascending order; threads share columns. */
static void gradient_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__lookup *l = arg;
    float part[PART];
    for (int64_t i = 0, inside; i < l->tokens.n; i++) {
        const int piece = sheaf__lookup_taking(l, i, &inside);
        if (piece < 0)
            continue;
        float *grad = (float *)l->pieces.at[piece] + inside * l->cols;
        for (int64_t c = begin, n; c < end; c += n) {
            n = end - c < PART ? end - c : PART;
            k->widen(part, sheaf__at(l->x, i * l->cols + c, l->dtype), l->dtype, n);
            k->add(grad + c, grad + c, part, n);
        }
    }
}

void sheaf__op_table_gradient(sheaf__device *device, const sheaf__pieces *grad, const void *dy,
                              sheaf_dtype dtype, int64_t width, sheaf__tokens tokens)
{
    sheaf__lookup l = { *grad, tokens, (void *)dy, dtype, SHEAF_F32, .cols = width };
    run(device, SHEAF__OP_TABLE_GRADIENT, gradient_part, &l, false, width, PART);
}

/* ---- columns of a factor ---- */

static void columns_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__lookup *l = arg;
    for (int64_t i = begin, inside; i < end; i++) {
        const int piece = sheaf__lookup_at(l, i, &inside);
        for (int64_t j = 0; j < l->cols && piece >= 0; j++) {
            float v;
            k->widen(&v,
                     sheaf__at(l->pieces.at[piece],
                               j * sheaf__lookup_rows(&l->pieces, piece) + inside, l->dtype),
                     l->dtype, 1);
            v = sheaf__one_nan(v * l->scale);
            k->round(sheaf__at(l->x, i * l->cols + j, l->dtype), l->dtype, &v, 1);
        }
    }
}

void sheaf__op_factor_columns(sheaf__device *device, void *h, const sheaf__pieces *a,
                              sheaf_dtype dtype, int64_t rank, float scale, sheaf__tokens tokens)
{
    sheaf__lookup l = { *a, tokens, h, dtype, dtype, rank, scale };
    run(device, SHEAF__OP_FACTOR_COLUMNS, columns_part, &l, true, tokens.n, 32);
}

/* Threads share the rows of the factor; each column receives its tokens in ascending order. */
static void columns_gradient_part(const sheaf__kernels *k, const void *arg, int64_t begin,
                                  int64_t end)
{
    const sheaf__lookup *l = arg;
    for (int64_t i = 0, inside; i < l->tokens.n; i++) {
        const int piece = sheaf__lookup_taking(l, i, &inside);
        for (int64_t j = begin; j < end && piece >= 0; j++) {
            float v, *grad = (float *)l->pieces.at[piece] +
                             j * sheaf__lookup_rows(&l->pieces, piece) + inside;
            k->widen(&v, sheaf__at(l->x, i * l->cols + j, l->dtype), l->dtype, 1);
            k->add(grad, grad, &v, 1);
        }
    }
}

void sheaf__op_factor_gradient(sheaf__device *device, const sheaf__pieces *grad, const void *g,
                               sheaf_dtype dtype, int64_t rank, sheaf__tokens tokens)
{
    sheaf__lookup l = { *grad, tokens, (void *)g, dtype, SHEAF_F32, .cols = rank };
    run(device, SHEAF__OP_FACTOR_GRADIENT, columns_gradient_part, &l, false, rank, 1);
}
