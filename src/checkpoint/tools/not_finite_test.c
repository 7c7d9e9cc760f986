/* not_finite_test.c - what `sheaf verify` counts as NaN and as infinite, in every dtype that has
 * them. */
#include "tests/stored.h"

#include "checkpoint/tools/verify.h"

enum { N = 8 };

/* The largest finite number, zero and the smallest are neither. */
static const struct {
    sheaf_dtype dtype;
    uint64_t number[N];
    const char *found;
} cases[] = {
    { SHEAF_F32,
      { 0x7f7fffff, 0xff7fffff, 0x80000000, 1, 0x7f800000, 0xff800000, 0x7fc00000, 0xff800001 },
      "2 NaN and 2 Inf" },
    { SHEAF_F64,
      { 0x7fefffffffffffff, 0xffefffffffffffff, 0, 1, 0x7ff0000000000000, 0x7ff0000000000001,
        0xfff8000000000000, 0xffffffffffffffff },
      "3 NaN and 1 Inf" },
    { SHEAF_F16, { 0x7bff, 0xfbff, 0x8000, 1, 0x7c00, 0xfc00, 0xfc00, 0x7c01 }, "1 NaN and 3 Inf" },
    { SHEAF_BF16,
      { 0x7f7f, 0xff7f, 0x8000, 1, 0x7f80, 0xff80, 0xff80, 0x7f81 },
      "1 NaN and 3 Inf" },
    { SHEAF_BF16, { 0x7f7f, 0xff7f, 0x8000, 1, 0x7c00, 0xfc00, 2, 0xff80 }, "0 NaN and 1 Inf" },
    { SHEAF_F8_E5M2, { 0x7b, 0xfb, 0x80, 1, 0x7c, 0xfc, 0x7d, 0xff }, "2 NaN and 2 Inf" },
    { SHEAF_F8_E4M3, { 0x7e, 0xfe, 0x80, 1, 0x7c, 0x78, 0x7f, 0xff }, "2 NaN and 0 Inf" },
    { SHEAF_BF16, { 0x7f7f, 0xff7f, 0x8000, 1, 0x7c00, 0xfc00, 2, 3 }, NULL },
    { SHEAF_F8_E4M3, { 0x7e, 0xfe, 0x80, 1, 0x7c, 0x78, 2, 3 }, NULL },
};

TEST(test_verify__counts_what_is_not_finite)
{
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const size_t size = sheaf_dtype_bytes(cases[i].dtype);
        const char *path = at("x.safetensors");
        made_tensors made = { .count = 0 };
        char bytes[N * 8];
        for (size_t k = 0; k < N; k++)
            memcpy(bytes + k * size, &cases[i].number[k], size); /* little endian */
        made_add(&made, "x", cases[i].dtype, 1, (const int64_t[]){ N }, bytes);
        made_write(&made, path);
        sheaf_verify_report report;
        CHECK_OK(sheaf_verify(&report, path, &(sheaf_weights_verify_options){ .threads = 1 }));
        const sheaf_finding *f = sheaf__catalog_finding(report.catalog, "not-finite");
        const char *found = f == NULL ? NULL : f->found;
        if ((found == NULL) != (cases[i].found == NULL) ||
            (found != NULL && strcmp(found, cases[i].found) != 0))
            fail_msg("case %zu, %s: %s", i, sheaf_dtype_name(cases[i].dtype),
                     found == NULL ? "nothing found" : found);
        assert_int_equal(sheaf_verify_sound(&report), cases[i].found == NULL);
        sheaf_verify_release(&report);
    }
}

FIXTURE(make_scratch, remove_scratch);
