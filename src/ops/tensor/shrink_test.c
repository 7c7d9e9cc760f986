/* shrink_test.c - matrices in 8 bits have the bits of plain loops, on every device, and the same
 * whatever slices a rank owns. */
#include "tests/devices/same.h"

#include "ops/tensor/tensor.h"

static const struct {
    int64_t rows, cols;
    int parts;
    int64_t part[4];
} shapes[] = {
    { 0, 64, 0, { 0 } },
    { 3, 0, 2, { 0 } },
    { 1, 1, 0, { 0 } },
    { 17, 96, 3, { 32, 0, 64 } },
    { 40, 300, 0, { 0 } },
    { 33, 171, 4, { 43, 42, 43, 43 } },
    { 5, 4096, 2, { 2048, 2048 } },
};

/* Blocks do not cross the ends of parts. */
static void plain(const sheaf__shrunk *s, const int64_t *part, int parts, bool shrinks)
{
    int64_t at = 0, scale = 0;
    for (int64_t row = 0; row < s->rows; row++)
        for (int i = 0; i < (parts == 0 ? 1 : parts); i++) {
            const int64_t n = parts == 0 ? s->cols : part[i];
            char *x = sheaf__at(s->x, at, s->dtype);
            if (shrinks)
                same.ref->shrink(s->codes + at, s->scales + scale, x, n, s->dtype);
            else
                same.ref->expand(x, s->codes + at, s->scales + scale, n, s->dtype);
            at += n;
            scale += (n + 31) / 32;
        }
    assert_int_equal(at, s->rows * s->cols);
    assert_int_equal(scale, s->rows * s->blocks);
}

static sheaf__shrunk there(const sheaf__shrunk *s)
{
    sheaf__shrunk t = *s;
    t.x = SAME(s->x);
    t.codes = SAME(s->codes);
    t.scales = SAME(s->scales);
    return t;
}

SAME_TYPES(test_shrink__of_parts, dtype)
{
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const int64_t n = shapes[i].rows * shapes[i].cols;
        sheaf__shrunk s;
        const size_t bytes = sheaf__shrunk_init(&s, shapes[i].rows, shapes[i].cols, shapes[i].part,
                                                shapes[i].parts, dtype);
        assert_int_equal(bytes, n + s.rows * s.blocks);
        s.x = same_take(n, dtype);
        s.codes = same_blank((int64_t)(bytes + 3) / 4, SHEAF_F32);
        s.scales = (uint8_t *)s.codes + n;
        void *was = s.x, *back = same_blank(n, dtype);
        SAME_EACH (device) {
            sheaf__shrunk t = there(&s);
            sheaf__op_shrink(device, &t);
            t.x = SAME(back);
            sheaf__op_expand(device, &t);
        }
        plain(&s, shapes[i].part, shapes[i].parts, true);
        s.x = back;
        plain(&s, shapes[i].part, shapes[i].parts, false);
        s.x = was;
        same_check("shrink and expand");
    }
}

FIXTURE(same_open, same_close);
