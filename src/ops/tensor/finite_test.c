/* finite_test.c - is every number finite, on every device? */
#include "tests/devices/same.h"

#include "ops/tensor/tensor.h"

static const int64_t counts[] = { 0, 1, 17, 300, 33, (1 << 15) + 1, 100003 };

/* One element that is not, at any place; and finite ones that rounding makes infinite. */
static void check_finite(sheaf_dtype from)
{
    static const float odd[] = { 1.0f, INFINITY, -INFINITY, NAN, 3e38f, 65519.9f, 65520.0f };
    for (size_t i = 0; i < 3 * ARRAY_LEN(odd) * ARRAY_LEN(counts); i++) {
        const sheaf_dtype to = same_dtypes[i % 3];
        const int64_t n = counts[i / 3 % ARRAY_LEN(counts)],
                      size = (int64_t)sheaf_dtype_bytes(from);
        char *x = same_take(n, from);
        if (n > 0)
            same.ref->round(x + (n - 1) * (int64_t)(i % 4) / 3 * size, from,
                            &odd[i / 3 / ARRAY_LEN(counts)], 1);
        bool want = true;
        for (int64_t e = 0; e < n; e++) {
            uint32_t rounded;
            float value;
            same.ref->convert(&rounded, to, x + e * size, from, 1);
            same.ref->widen(&value, &rounded, to, 1);
            want &= value - value == 0;
        }
        SAME_EACH (device)
            if (sheaf__op_is_finite(device, SAME(x), from, n, to) != want)
                fail_msg("%s rounded to %s: case %zu is not %d on %s", sheaf_dtype_name(from),
                         sheaf_dtype_name(to), i, want, device->class->name);
        same_check("finite");
    }
}

TEST(test_finite__as_rounded)
{
    same_plain(check_finite);
    SAME_EACH (device)
        assert_true(sheaf__op_is_finite(device, NULL, SHEAF_F32, 0, SHEAF_F32));
    same_check("none");
}

FIXTURE(same_open, same_close);
