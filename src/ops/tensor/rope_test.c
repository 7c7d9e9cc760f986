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

/* Where each row stands: any line of the tables; its own line, without positions; one row that is
 * left alone and then one for each position, over and over. */
typedef enum order { ANY, OWN, GRID } order;

static void check_rope(sheaf_dtype dtype, bool pairs, order order)
{
    for (size_t i = 0; i < 2 * ARRAY_LEN(shapes); i++) {
        const int64_t rows = order == GRID ? shapes[i / 2].rows / (shapes[i / 2].positions + 1) *
                                                 (shapes[i / 2].positions + 1)
                                           : shapes[i / 2].rows,
                      positions = order == OWN ? rows : shapes[i / 2].positions,
                      heads = shapes[i / 2].heads, head_dim = shapes[i / 2].head_dim,
                      rot = order == GRID ? head_dim : shapes[i / 2].rot,
                      angles = positions * (pairs ? rot : rot / 2), ld = heads * head_dim + 3;
        int32_t *position = same_blank(rows, SHEAF_F32);
        for (int64_t r = 0; r < rows; r++)
            position[r] = (int32_t)(order == ANY   ? r * 5 % positions
                                    : order == OWN ? r
                                                   : r % (positions + 1) - 1);
        const sheaf__rope r = { .x = same_take(rows * ld, dtype),
                                .cos = same_take(angles, SHEAF_F32),
                                .sin = same_take(angles, SHEAF_F32),
                                .position = order == ANY ? position : NULL,
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

SAME_TYPES(test_rope__halves_and_pairs_of_any_rows, dtype)
{
    check_rope(dtype, false, ANY);
    check_rope(dtype, true, ANY);
    check_rope(dtype, false, OWN);
    check_rope(dtype, true, GRID);
}

FIXTURE(same_open, same_close);
