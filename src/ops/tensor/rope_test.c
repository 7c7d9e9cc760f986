/* rope_test.c - rotary embedding has the bits of plain loops, on every device. */
#include "tests/devices/same.h"

#include "ops/tensor/tensor.h"

static const struct {
    int64_t rows, heads, head_dim, rot, positions;
} shapes[] = { { 0, 1, 8, 8, 5 }, { 1, 1, 2, 2, 1 }, { 17, 3, 34, 34, 4 }, { 300, 2, 16, 6, 33 } };

static sheaf__rope there(const sheaf__rope *r)
{
    sheaf__rope it = *r;
    it.x = SAME(r->x), it.cos = SAME(r->cos), it.sin = SAME(r->sin);
    it.position = r->position == NULL ? NULL : SAME(r->position);
    return it;
}

static void check_rope(sheaf_dtype dtype, bool pairs)
{
    for (size_t i = 0; i < 2 * ARRAY_LEN(shapes); i++) {
        const int64_t rows = shapes[i / 2].rows, positions = shapes[i / 2].positions,
                      heads = shapes[i / 2].heads, head_dim = shapes[i / 2].head_dim,
                      rot = shapes[i / 2].rot, angles = pairs ? rot : rot / 2,
                      ld = heads * head_dim + 3;
        int32_t *position = same_blank(rows, SHEAF_F32);
        for (int64_t r = 0; r < rows; r++)
            position[r] = (int32_t)(r * 5 % positions);
        const sheaf__rope r = { .x = same_take(rows * ld, dtype),
                                .cos = same_take(positions * angles, SHEAF_F32),
                                .sin = same_take(positions * angles, SHEAF_F32),
                                .position = position,
                                .ld = ld,
                                .rows = rows,
                                .heads = heads,
                                .head_dim = head_dim,
                                .rot = rot,
                                .positions = positions,
                                .inverse = i & 1,
                                .dtype = dtype };
        SAME_EACH (device)
            (pairs ? sheaf__op_rope_pairs : sheaf__op_rope)(device, there(&r));
        (pairs ? same.ref->rope_pairs : same.ref->rope)(r.x, ld, r.cos, r.sin, position, rows,
                                                        heads, head_dim, rot, r.inverse, dtype);
        same_check("rope");
    }
}

static void check_halves(sheaf_dtype dtype)
{
    check_rope(dtype, false);
}

static void check_pairs(sheaf_dtype dtype)
{
    check_rope(dtype, true);
}

TEST(test_rope__halves)
{
    same_types(check_halves);
}

TEST(test_rope__pairs)
{
    same_types(check_pairs);
}

/* Without positions row r turns by line r of the tables. */
static void check_own(sheaf_dtype dtype)
{
    for (size_t i = 0; i < 2 * ARRAY_LEN(shapes); i++) {
        const int64_t rows = shapes[i / 2].rows, heads = shapes[i / 2].heads,
                      head_dim = shapes[i / 2].head_dim, rot = shapes[i / 2].rot,
                      ld = heads * head_dim + 3;
        int32_t position[300];
        for (int64_t r = 0; r < rows; r++)
            position[r] = (int32_t)r;
        const sheaf__rope r = { .x = same_take(rows * ld, dtype),
                                .cos = same_take(rows * rot / 2, SHEAF_F32),
                                .sin = same_take(rows * rot / 2, SHEAF_F32),
                                .ld = ld,
                                .rows = rows,
                                .heads = heads,
                                .head_dim = head_dim,
                                .rot = rot,
                                .positions = rows,
                                .inverse = i & 1,
                                .dtype = dtype };
        SAME_EACH (device)
            sheaf__op_rope(device, there(&r));
        same.ref->rope(r.x, ld, r.cos, r.sin, position, rows, heads, head_dim, rot, r.inverse,
                       dtype);
        same_check("rope of rows with their own angles");
    }
}

TEST(test_rope__rows_with_their_own_angles)
{
    same_types(check_own);
}

/* A row that is left alone, then one for each position. */
static void check_grid(sheaf_dtype dtype)
{
    for (size_t i = 0; i < 2 * ARRAY_LEN(shapes); i++) {
        const int64_t positions = shapes[i / 2].positions, heads = shapes[i / 2].heads,
                      head_dim = shapes[i / 2].head_dim, ld = heads * head_dim + 3;
        const int64_t rows = shapes[i / 2].rows / (positions + 1) * (positions + 1);
        int32_t position[300];
        for (int64_t r = 0; r < rows; r++)
            position[r] = (int32_t)(r % (positions + 1)) - 1;
        const sheaf__rope r = { .x = same_take(rows * ld, dtype),
                                .cos = same_take(positions * head_dim, SHEAF_F32),
                                .sin = same_take(positions * head_dim, SHEAF_F32),
                                .ld = ld,
                                .rows = rows,
                                .heads = heads,
                                .head_dim = head_dim,
                                .rot = head_dim,
                                .positions = positions,
                                .inverse = i & 1,
                                .dtype = dtype };
        SAME_EACH (device)
            sheaf__op_rope_pairs(device, there(&r));
        same.ref->rope_pairs(r.x, ld, r.cos, r.sin, position, rows, heads, head_dim, head_dim,
                             r.inverse, dtype);
        same_check("rope of a grid");
    }
}

TEST(test_rope__pairs_of_a_grid)
{
    same_types(check_grid);
}

FIXTURE(same_open, same_close);
