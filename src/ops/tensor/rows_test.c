/* rows_test.c - operations on rows have the bits of plain loops, on every device. */
#include "tests/devices/same.h"

#include "ops/tensor/tensor.h"

static int64_t wide_row(const sheaf__row_map *map, int64_t r)
{
    const int64_t at = r / map->n * (map->before + map->n + map->after) + map->before + r % map->n;
    return map->list == NULL ? at : map->list[at];
}

/* One row after another. */
static void move_plainly(const sheaf__move *m)
{
    const int64_t size = m->cols * (int64_t)sheaf_dtype_bytes(m->dtype);
    for (int64_t r = 0; r < m->rows; r++) {
        const int64_t wide = wide_row(&m->map, r);
        char *to = (char *)m->to + (m->gather ? r : wide) * size;
        const char *from =
            m->from == NULL ? NULL : (const char *)m->from + (m->gather ? wide : r) * size;
        if (m->row != NULL)
            same.ref->round(to, m->dtype, m->row, m->cols);
        else if (from == NULL)
            memset(to, 0, (size_t)size);
        else if (m->add)
            same.ref->accumulate(to, from, m->cols, m->dtype);
        else
            memcpy(to, from, (size_t)size);
    }
}

static void check_one_move(sheaf__move m, const char *what)
{
    SAME_EACH (device) {
        sheaf__move there = m;
        there.to = SAME(m.to), there.from = SAME(m.from), there.row = SAME(m.row);
        there.map.list = SAME(m.map.list);
        sheaf__op_move_rows(device, there);
    }
    move_plainly(&m);
    same_check(what);
}

static const struct {
    const char *name;
    bool gather, add, from, row;
} moves[] = {
    { "gather", true, false, true, false },      { "gather and add", true, true, true, false },
    { "scatter", false, false, true, false },    { "scatter and add", false, true, true, false },
    { "zero rows", false, false, false, false }, { "set rows", false, false, false, true },
};

static const struct {
    int64_t rows, cols, n, before, after;
} groups[] = {
    { 0, 17, 1, 0, 0 },     { 1, 1, 1, 0, 0 },    { 33, 17, 11, 2, 1 },
    { 300, 33, 100, 0, 3 }, { 17, 300, 1, 1, 1 }, { 17, 0, 1, 0, 0 },
};

SAME_TYPES(test_rows__move, dtype)
{
    for (size_t i = 0; i < 2 * ARRAY_LEN(groups) * ARRAY_LEN(moves); i++) {
        const size_t g = i / 2 % ARRAY_LEN(groups), what = i / 2 / ARRAY_LEN(groups);
        const int64_t rows = groups[g].rows, cols = groups[g].cols;
        const int64_t outer =
            rows / groups[g].n * (groups[g].before + groups[g].n + groups[g].after);
        const int64_t wide = outer * 2 + 1; /* of which a list names some */
        sheaf__move m = { .dtype = dtype,
                          .rows = rows,
                          .cols = cols,
                          .gather = moves[what].gather,
                          .add = moves[what].add,
                          .map = { i & 1 ? same_list(outer, wide) : NULL, groups[g].n,
                                   groups[g].before, groups[g].after, wide } };
        void *dense = same_take(rows * cols, dtype),
             *outside = same_take((i & 1 ? wide : outer) * cols, dtype);
        m.to = m.gather ? dense : outside;
        if (moves[what].from)
            m.from = m.gather ? outside : dense;
        if (moves[what].row)
            m.row = same_take(cols, SHEAF_F32);
        check_one_move(m, moves[what].name);
    }
}

SAME_TYPES(test_rows__column_sums, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(same_sizes) * ARRAY_LEN(same_sizes); i++) {
        const int64_t rows = same_sizes[i / 5], cols = same_sizes[i % 5], ld = cols + 3;
        float *grad = same_take(cols, SHEAF_F32);
        void *dy = same_take(rows * ld, dtype);
        SAME_EACH (device)
            sheaf__op_column_sums(device, SAME(grad), SAME(dy), ld, rows, cols, dtype);
        same.ref->column_sums(grad, dy, ld, rows, cols, dtype);
        same_check("column sums");
    }
}

SAME_TYPES(test_rows__copy_box, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(same_sizes) * ARRAY_LEN(same_sizes); i++) {
        const int64_t rows = same_sizes[i / 5], cols = same_sizes[i % 5], to = cols + 5,
                      from = cols + 2;
        char *dst = same_take(rows * to, dtype), *src = same_take(rows * from, dtype);
        const int64_t size = (int64_t)sheaf_dtype_bytes(dtype);
        SAME_EACH (device)
            sheaf__op_copy_box(device, SAME(dst), to, SAME(src), from, rows, cols, dtype);
        for (int64_t r = 0; r < rows; r++)
            memcpy(dst + r * to * size, src + r * from * size, (size_t)(cols * size));
        same_check("copy box");
    }
}

/* [outer, rows, boxes, cols] becomes [outer, boxes, length, cols], of which some rows stay. */
SAME_TYPES(test_rows__copy_boxes, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(same_sizes) * ARRAY_LEN(same_sizes); i++) {
        const int64_t rows = same_sizes[i / 5] / 4, cols = same_sizes[i % 5], outer = 2, boxes = 3,
                      length = rows + 2, size = (int64_t)sheaf_dtype_bytes(dtype);
        char *src = same_take(outer * rows * boxes * cols, dtype),
             *dst = same_take(outer * boxes * length * cols, dtype);
        SAME_EACH (device)
            sheaf__op_copy_boxes(
                device, (sheaf__boxes){ .dtype = dtype,
                                        .dst = SAME(dst),
                                        .src = SAME(src),
                                        .count = { outer, boxes, rows },
                                        .ld_dst = { boxes * length * cols, length * cols, cols },
                                        .ld_src = { rows * boxes * cols, cols, boxes * cols },
                                        .cols = cols });
        for (int64_t r = 0; r < outer * boxes * rows; r++) {
            const int64_t o = r / (boxes * rows), b = r / rows % boxes, row = r % rows;
            memcpy(dst + ((o * boxes + b) * length + row) * cols * size,
                   src + ((o * rows + row) * boxes + b) * cols * size, (size_t)(cols * size));
        }
        same_check("copy boxes");
    }
}

SAME_NUMBERS(test_rows__transpose)
{
    for (size_t i = 0; i < ARRAY_LEN(same_sizes) * ARRAY_LEN(same_sizes); i++) {
        const int64_t rows = same_sizes[i / 5], cols = same_sizes[i % 5];
        uint32_t *from = same_take(rows * cols, SHEAF_F32),
                 *to = same_blank(rows * cols, SHEAF_F32);
        SAME_EACH (device)
            sheaf__op_transpose(device, SAME((float *)to), SAME((float *)from), rows, cols);
        for (int64_t e = 0; e < rows * cols; e++)
            to[e % cols * rows + e / cols] = from[e];
        same_check("transpose");
    }
}

FIXTURE(same_open, same_close);
