/* images.c - operations on the rows of pictures, see tensor.h. */
#include "ops/call.h"
#include "ops/tensor/tensor.h"

enum { PART = 256, ELEMENTS = 1 << 14, COLUMNS = 128 };

static void add_rows_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__repeats *a = arg;
    float part[PART];
    for (int64_t i = begin, n; i < end; i += n) {
        const int64_t left = a->n - i % a->n, most = left < PART ? left : PART;
        void *x = sheaf__at(a->x, i, a->dtype);
        n = end - i < most ? end - i : most;
        k->widen(part, x, a->dtype, n);
        k->add(part, part, (const float *)a->from + i % a->n, n);
        k->round(x, a->dtype, part, n);
    }
}

void sheaf__op_add_rows(sheaf__device *device, void *x, const float *rows, int64_t n, int64_t times,
                        sheaf_dtype dtype)
{
    sheaf__repeats a = { .x = x, .from = rows, .n = n, .copies = times, .dtype = dtype };
    const sheaf__operand operand[] = {
        SHEAF__WRITES(a.x, (size_t)(n * times) * sheaf_dtype_bytes(dtype)),
        SHEAF__READS(a.from, (size_t)n * sizeof(float)),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_ADD_ROWS, &a, SHEAF__OPERANDS(operand),
                                       add_rows_part, n * times, ELEMENTS });
}

static void sum_copies_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__repeats *a = arg;
    float sum[PART], was[PART];
    for (int64_t i = begin, n; i < end; i += n) {
        n = end - i < PART ? end - i : PART;
        void *dx = sheaf__at(a->x, i, a->dtype);
        for (int64_t e = 0; e < n; e++)
            sum[e] = 0;
        k->column_sums(sum, sheaf__at(a->from, i, a->dtype), a->n, a->copies, n, a->dtype);
        if (a->add) {
            k->widen(was, dx, a->dtype, n);
            k->add(sum, was, sum, n);
        }
        k->round(dx, a->dtype, sum, n);
    }
}

void sheaf__op_sum_copies(sheaf__device *device, void *dx, const void *dy, int64_t n,
                          int64_t copies, bool add, sheaf_dtype dtype)
{
    sheaf__repeats a = { dx, dy, n, copies, add, dtype };
    const sheaf__operand operand[] = {
        SHEAF__WRITES(a.x, (size_t)n * sheaf_dtype_bytes(dtype)),
        SHEAF__READS(a.from, (size_t)(n * copies) * sheaf_dtype_bytes(dtype)),
    };
    sheaf__run(device, &(sheaf__call){ SHEAF__OP_SUM_COPIES, &a, SHEAF__OPERANDS(operand),
                                       sum_copies_part, n, ELEMENTS });
}

/* ---- positions on a grid ---- */

/* Columns [from, from + n) of the position at row r, column c of a picture. */
static void blend(const sheaf__kernels *kernels, float *out, const sheaf__placed *a,
                  const sheaf__picture_at *at, int64_t r, int64_t c, int64_t from, int64_t n)
{
    const float *first = a->of.table + (a->of.first ? a->width : 0) + from;
    float part[PART], w;
    for (int64_t k = 0; k < sheaf__taps_count(&a->of, at, r, c); k++) {
        float *to = k > 0 ? part : out;
        const int64_t row = sheaf__taps_row(&w, &a->of, at, r, c, k);
        memcpy(to, first + row * a->width, (size_t)n * sizeof *to);
        kernels->scale(to, w, n);
        if (k > 0)
            kernels->add(out, out, part, n);
    }
}

/* A row's first half is of its column, its second of its row. */
static void turned(float *out, const sheaf__placed *a, int64_t r, int64_t c, int64_t from,
                   int64_t n)
{
    const int64_t half = a->width / 2;
    for (int64_t e = 0, m; e < n; e += m) {
        const bool first = from + e < half;
        const int64_t line = first ? c : r, column = first ? from + e : from + e - half;
        m = half - column < n - e ? half - column : n - e;
        memcpy(out + e, a->of.turned + line * half + column, (size_t)m * sizeof *out);
    }
}

static void positions_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__placed *a = arg;
    const sheaf_dtype t = a->dtype;
    const int64_t width = a->width;
    float position[PART], x[PART];
    for (int64_t row = begin; row < end; row++) {
        int64_t patch;
        const sheaf__picture_at *at =
            &a->of.at[sheaf__picture_of(a->of.at, a->of.images, a->of.class_row, row, &patch)];
        const int64_t r = patch < 0 ? 0 : patch / at->across,
                      c = patch < 0 ? 0 : patch % at->across;
        for (int64_t from = 0, n; from < width; from += n) {
            n = width - from < PART ? width - from : PART;
            void *to = sheaf__at(a->y, row * width + from, t);
            k->widen(x, sheaf__at(a->x, row * width + from, t), t, n);
            if (patch < 0 && a->of.first)
                k->add(x, x, a->of.table + from, n);
            else if (patch >= 0 && r < at->down) { /* not behind the picture's own */
                if (a->of.turned != NULL)
                    turned(position, a, r, c, from, n);
                else
                    blend(k, position, a, at, r, c, from, n);
                k->round(to, t, position, n);
                k->widen(position, to, t, n);
                k->add(x, x, position, n);
            }
            k->round(to, t, x, n);
        }
    }
}

/* Columns of one row of dy go to the table's rows that the position was made of. */
static void spread(const sheaf__kernels *kernels, const sheaf__placed *a, float *grad,
                   const float *dy, const sheaf__picture_at *at, int64_t patch, int64_t n)
{
    const int64_t r = patch / at->across, c = patch % at->across;
    float part[COLUMNS], w;
    for (int64_t k = 0; k < sheaf__taps_count(&a->of, at, r, c); k++) {
        float *to = grad + sheaf__taps_row(&w, &a->of, at, r, c, k) * a->width;
        memcpy(part, dy, (size_t)n * sizeof *part);
        kernels->scale(part, w, n);
        kernels->add(to, to, part, n);
    }
}

/* Some columns. */
static void back_part(const sheaf__kernels *k, const void *arg, int64_t begin, int64_t end)
{
    const sheaf__placed *a = arg;
    const int64_t width = a->width, with_class = a->of.first ? width : 0;
    float *grad = a->grad, dy[COLUMNS];
    for (int64_t from = begin, n; from < end; from += n) {
        n = end - from < COLUMNS ? end - from : COLUMNS;
        for (int64_t row = 0, patch; row < a->rows; row++) {
            const sheaf__picture_at *at =
                &a->of.at[sheaf__picture_of(a->of.at, a->of.images, a->of.class_row, row, &patch)];
            if ((patch < 0 && !a->of.first) ||
                patch >= at->down * at->across) /* behind the picture's own */
                continue;
            k->widen(dy, sheaf__at(a->x, row * width + from, a->dtype), a->dtype, n);
            if (patch < 0)
                k->add(grad + from, grad + from, dy, n);
            else
                spread(k, a, grad + with_class + from, dy, at, patch, n);
        }
    }
}

static void run_placed(sheaf__device *device, sheaf__operation operation, sheaf__placed *a,
                       sheaf__part_fn *part, int64_t rows, int64_t grain)
{
    sheaf__positions *p = &a->of;
    const size_t values = (size_t)(a->rows * a->width) * sheaf_dtype_bytes(a->dtype),
                 table = (size_t)((p->rows * p->cols + p->first) * a->width) * sizeof(float);
    const sheaf__operand operand[] = {
        SHEAF__WRITES(a->y, values),
        SHEAF__WRITES(a->grad, table),
        SHEAF__READS(a->x, values),
        SHEAF__READS(p->at, (size_t)(p->images + 1) * sizeof *p->at),
        SHEAF__READS(p->table, table),
        SHEAF__READS(p->begin, (size_t)(p->lines + 1) * sizeof *p->begin),
        SHEAF__READS(p->index, (size_t)p->taps * sizeof *p->index),
        SHEAF__READS(p->weight, (size_t)p->taps * sizeof *p->weight),
        SHEAF__READS(p->turned, (size_t)(p->lines * (a->width / 2)) * sizeof(float)),
    };
    sheaf__run(device, &(sheaf__call){ operation, a, SHEAF__OPERANDS(operand), part, rows, grain });
}

void sheaf__op_add_positions(sheaf__device *device, void *y, const void *x, sheaf__positions of,
                             int64_t rows, int64_t width, sheaf_dtype dtype)
{
    sheaf__placed a = { .of = of, .y = y, .x = x, .rows = rows, .width = width, .dtype = dtype };
    run_placed(device, SHEAF__OP_ADD_POSITIONS, &a, positions_part, rows, 4);
}

void sheaf__op_add_positions_back(sheaf__device *device, float *grad, const void *dy,
                                  sheaf__positions of, int64_t rows, int64_t width,
                                  sheaf_dtype dtype)
{
    of.table = NULL;
    sheaf__placed a = {
        .of = of, .x = dy, .grad = grad, .rows = rows, .width = width, .dtype = dtype
    };
    run_placed(device, SHEAF__OP_ADD_POSITIONS_BACK, &a, back_part, width, COLUMNS);
}
