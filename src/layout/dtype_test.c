/* dtype_test.c - names lead back to themselves; sizes are those of the formats. */
#include "tests/check.h"

#include "sheaf/dtype.h"

TEST(test_dtype__every_name_leads_back)
{
    for (int i = 0; i < SHEAF_DTYPE_COUNT; i++) {
        const char *torch_name = sheaf_dtype_torch_name((sheaf_dtype)i);
        assert_int_equal(sheaf_dtype_from_name(sheaf_dtype_name((sheaf_dtype)i)), i);
        if (torch_name != NULL)
            assert_int_equal(sheaf_dtype_from_torch_name(torch_name), i);
    }
    assert_int_equal(sheaf_dtype_from_name("bf16"), -1);
    assert_int_equal(sheaf_dtype_from_name(""), -1);
    assert_int_equal(sheaf_dtype_from_torch_name("BF16"), -1);
    assert_int_equal(sheaf_dtype_from_torch_name("torch.bfloat16"), -1);
}

static const struct {
    sheaf_dtype dtype;
    const char *name, *torch_name;
    int bits;
    size_t bytes;
} known[] = {
    { SHEAF_BOOL, "BOOL", "bool", 8, 1 },
    { SHEAF_F4, "F4", NULL, 4, 0 },
    { SHEAF_F6_E3M2, "F6_E3M2", NULL, 6, 0 },
    { SHEAF_U8, "U8", "uint8", 8, 1 },
    { SHEAF_F8_E4M3, "F8_E4M3", "float8_e4m3fn", 8, 1 },
    { SHEAF_F8_E5M2, "F8_E5M2", "float8_e5m2", 8, 1 },
    { SHEAF_F8_E8M0, "F8_E8M0", "float8_e8m0fnu", 8, 1 },
    { SHEAF_F8_E4M3FNUZ, "F8_E4M3FNUZ", "float8_e4m3fnuz", 8, 1 },
    { SHEAF_F8_E5M2FNUZ, "F8_E5M2FNUZ", "float8_e5m2fnuz", 8, 1 },
    { SHEAF_F6_E2M3, "F6_E2M3", NULL, 6, 0 },
    { SHEAF_I8, "I8", "int8", 8, 1 },
    { SHEAF_I16, "I16", "int16", 16, 2 },
    { SHEAF_U16, "U16", "uint16", 16, 2 },
    { SHEAF_I32, "I32", "int32", 32, 4 },
    { SHEAF_U32, "U32", "uint32", 32, 4 },
    { SHEAF_U64, "U64", "uint64", 64, 8 },
    { SHEAF_F16, "F16", "float16", 16, 2 },
    { SHEAF_BF16, "BF16", "bfloat16", 16, 2 },
    { SHEAF_F32, "F32", "float32", 32, 4 },
    { SHEAF_F64, "F64", "float64", 64, 8 },
    { SHEAF_C64, "C64", "complex64", 64, 8 },
    { SHEAF_I64, "I64", "int64", 64, 8 },
};

TEST(test_dtype__known_names_and_sizes)
{
    assert_int_equal(ARRAY_LEN(known), SHEAF_DTYPE_COUNT);
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        assert_string_equal(sheaf_dtype_name(known[i].dtype), known[i].name);
        if (known[i].torch_name == NULL)
            assert_null(sheaf_dtype_torch_name(known[i].dtype));
        else
            assert_string_equal(sheaf_dtype_torch_name(known[i].dtype), known[i].torch_name);
        assert_int_equal(sheaf_dtype_bits(known[i].dtype), known[i].bits);
        assert_int_equal(sheaf_dtype_bytes(known[i].dtype), known[i].bytes);
    }
}

/* The writer of safetensors sorts by this order, so whole bytes must ascend. */
TEST(test_dtype__order_ascends_in_bits)
{
    for (int i = SHEAF_F4; i + 1 < SHEAF_DTYPE_COUNT; i++)
        assert_true(sheaf_dtype_bits((sheaf_dtype)i) <= sheaf_dtype_bits((sheaf_dtype)(i + 1)));
}
