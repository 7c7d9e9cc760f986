/* images_test.c - operations on rows of pictures have the bits of plain loops, on every device. */
#include "tests/devices/same.h"

#include "ops/tensor/tensor.h"

SAME_TYPES(test_images__add_rows, dtype)
{
    for (size_t i = 0; i < 25; i++) {
        const int64_t n = same_sizes[i / 5], times = same_sizes[i % 5];
        char *x = same_take(n * times, dtype);
        const float *rows = same_take(n, SHEAF_F32);
        if (n == 0)
            continue;
        SAME_EACH (device)
            sheaf__op_add_rows(device, SAME(x), SAME(rows), n, times, dtype);
        for (int64_t e = 0; e < n * times; e++) {
            float v;
            same.ref->widen(&v, sheaf__at(x, e, dtype), dtype, 1);
            same.ref->add(&v, &v, &rows[e % n], 1);
            same.ref->round(sheaf__at(x, e, dtype), dtype, &v, 1);
        }
        same_check("add_rows");
    }
}

SAME_TYPES(test_images__sum_copies, dtype)
{
    for (size_t i = 0; i < 52; i++) {
        const bool many = i >= 50; /* more than are summed in one block */
        const int64_t n = many ? 17 : same_sizes[i / 2 / 5] * 64,
                      copies = many ? 600 : same_sizes[i / 2 % 5] / 10;
        const bool add = i & 1;
        char *dx = same_take(n, dtype), *dy = same_take(n * copies, dtype);
        SAME_EACH (device)
            sheaf__op_sum_copies(device, SAME(dx), SAME(dy), n, copies, add, dtype);
        for (int64_t e = 0; e < n; e++) {
            float sum = 0, was;
            same.ref->column_sums(&sum, sheaf__at(dy, e, dtype), n, copies, 1, dtype);
            same.ref->widen(&was, sheaf__at(dx, e, dtype), dtype, 1);
            if (add)
                same.ref->add(&sum, &was, &sum, 1);
            same.ref->round(sheaf__at(dx, e, dtype), dtype, &sum, 1);
        }
        same_check("sum_copies");
    }
}

/* ---- positions: three pictures, the last with two rows behind it, of the table's 5 x 4 ---- */

enum { ROWS = 5, COLS = 4, LINES = 3 + 2 + 5 + 4 + 1 + 4, MOST = 3, PATCHES = 6 + 20 + 6 };

static sheaf__positions make_positions(bool class_row, bool first, bool turned, int64_t width)
{
    static const sheaf__picture_at pictures[] = {
        { 0, 3, 2, 0 },
        { 6, 5, 4, 5 },
        { 26, 1, 4, 14 },
        { PATCHES, 0, 0, LINES },
    };
    sheaf__picture_at *at = same_blank(sizeof pictures / 4, SHEAF_F32);
    int32_t *begin = same_blank(LINES + 1, SHEAF_F32), *index = same_blank(LINES * MOST, SHEAF_F32);
    memcpy(at, pictures, sizeof pictures);
    begin[0] = 0;
    for (int l = 0; l < LINES; l++) {
        begin[l + 1] = begin[l] + 1 + l % MOST;
        for (int k = 0; begin[l] + k < begin[l + 1]; k++)
            index[begin[l] + k] = (l + 2 * k) % COLS;
    }
    sheaf__positions p = { .at = at,
                           .images = 3,
                           .class_row = class_row,
                           .rows = ROWS,
                           .cols = COLS,
                           .first = first,
                           .lines = LINES,
                           .taps = begin[LINES] };
    if (turned) {
        p.lines = 5; /* as many as a picture has rows or columns */
        p.turned = same_take(p.lines * width / 2, SHEAF_F32);
        return p;
    }
    p.table = same_take((ROWS * COLS + first) * width, SHEAF_F32);
    p.begin = begin, p.index = index;
    p.weight = same_take(LINES * MOST, SHEAF_F32);
    return p;
}

static sheaf__positions positions_there(sheaf__positions p)
{
    p.at = SAME(p.at), p.table = SAME(p.table), p.begin = SAME(p.begin), p.index = SAME(p.index);
    p.weight = SAME(p.weight), p.turned = SAME(p.turned);
    return p;
}

/* Column `col` of the position of a patch, at row r and column c of its picture. */
static float position_plainly(const sheaf__positions *p, const sheaf__picture_at *at, int64_t r,
                              int64_t c, int64_t col, int64_t width)
{
    const int64_t down = at->line + r, across = at->line + at->down + c, half = width / 2;
    float sum = 0;
    if (p->turned != NULL)
        return p->turned[(col < half ? c : r) * half + col % half];
    for (int i = p->begin[down]; i < p->begin[down + 1]; i++)
        for (int k = p->begin[across]; k < p->begin[across + 1]; k++) {
            const int64_t row = p->index[i] * COLS + p->index[k];
            float v = p->table[(row + p->first) * width + col];
            same.ref->scale(&v, p->weight[i] * p->weight[k], 1);
            if (i > p->begin[down] || k > p->begin[across])
                same.ref->add(&sum, &sum, &v, 1);
            else
                sum = v;
        }
    return sum;
}

/* The picture of a row and its patch, -1: the class row. */
static const sheaf__picture_at *picture_plainly(const sheaf__positions *p, int64_t row,
                                                int64_t *patch)
{
    for (int64_t i = 0, from = 0;; i++) {
        const int64_t rows = p->at[i + 1].first - p->at[i].first + p->class_row;
        if (row < from + rows) {
            *patch = row - from - p->class_row;
            return &p->at[i];
        }
        from += rows;
    }
}

static const struct {
    bool class_row, first, turned;
} positions[] = { { 0, 0, 0 }, { 1, 1, 0 }, { 1, 0, 0 }, { 0, 0, 1 }, { 1, 0, 1 } };

static const int64_t widths[] = { 2, 18, 34, 300 };

SAME_TYPES(test_images__positions, dtype)
{
    for (size_t i = 0; i < 2 * 4 * ARRAY_LEN(positions); i++) {
        const size_t kind = i / 8;
        const int64_t width = widths[i / 2 % 4], rows = PATCHES + 3 * positions[kind].class_row;
        const sheaf__positions p = make_positions(positions[kind].class_row, positions[kind].first,
                                                  positions[kind].turned, width);
        char *x = same_take(rows * width, dtype), *y = i & 1 ? x : same_blank(rows * width, dtype);
        SAME_EACH (device)
            sheaf__op_add_positions(device, SAME(y), SAME(x), positions_there(p), rows, width,
                                    dtype);
        for (int64_t e = 0; e < rows * width; e++) {
            int64_t patch, col = e % width;
            const sheaf__picture_at *at = picture_plainly(&p, e / width, &patch);
            float v, position;
            same.ref->widen(&v, sheaf__at(x, e, dtype), dtype, 1);
            if (patch >= 0 && patch < at->down * at->across) {
                uint32_t rounded;
                position =
                    position_plainly(&p, at, patch / at->across, patch % at->across, col, width);
                same.ref->round(&rounded, dtype, &position, 1);
                same.ref->widen(&position, &rounded, dtype, 1);
                same.ref->add(&v, &v, &position, 1);
            } else if (patch < 0 && p.first) {
                same.ref->add(&v, &v, &p.table[col], 1);
            }
            same.ref->round(sheaf__at(y, e, dtype), dtype, &v, 1);
        }
        same_check("add_positions");
    }
}

/* grad[row of the table] += weight * dy, of each row that the position is made of. */
static void spread_plainly(const sheaf__positions *p, float *grad, const sheaf__picture_at *at,
                           int64_t patch, int64_t col, float dy, int64_t width)
{
    const int64_t down = at->line + patch / at->across,
                  across = at->line + at->down + patch % at->across;
    for (int i = p->begin[down]; i < p->begin[down + 1]; i++)
        for (int k = p->begin[across]; k < p->begin[across + 1]; k++) {
            const int64_t row = p->index[i] * COLS + p->index[k];
            float v = dy, *to = &grad[(row + p->first) * width + col];
            same.ref->scale(&v, p->weight[i] * p->weight[k], 1);
            same.ref->add(to, to, &v, 1);
        }
}

SAME_TYPES(test_images__positions_back, dtype)
{
    for (size_t i = 0; i < 4 * 3; i++) {
        const size_t kind = i / 4;
        const int64_t width = widths[i % 4], rows = PATCHES + 3 * positions[kind].class_row;
        const sheaf__positions p =
            make_positions(positions[kind].class_row, positions[kind].first, false, width);
        const char *dy = same_take(rows * width, dtype);
        float *grad = same_take((ROWS * COLS + p.first) * width, SHEAF_F32), v;
        SAME_EACH (device)
            sheaf__op_add_positions_back(device, SAME(grad), SAME(dy), positions_there(p), rows,
                                         width, dtype);
        for (int64_t e = 0; e < rows * width; e++) {
            int64_t patch, col = e % width;
            const sheaf__picture_at *at = picture_plainly(&p, e / width, &patch);
            same.ref->widen(&v, sheaf__at(dy, e, dtype), dtype, 1);
            if (patch >= 0 && patch < at->down * at->across)
                spread_plainly(&p, grad, at, patch, col, v, width);
            else if (patch < 0 && p.first)
                same.ref->add(&grad[col], &grad[col], &v, 1);
        }
        same_check("add_positions_back");
    }
}

FIXTURE(same_open, same_close);
