/* dtype.c - see sheaf/dtype.h. */
#include "sheaf/dtype.h"

#include <string.h>

/* Torch packs two F4 into one of its elements (float4_e2m1fn_x2), so a shape in
 * F4 elements has no torch dtype; the F6 types it lacks altogether. */
static const struct {
    const char *name, *torch_name;
    int bits;
} types[SHEAF_DTYPE_COUNT] = {
    [SHEAF_BOOL] = { "BOOL", "bool", 8 },
    [SHEAF_F4] = { "F4", NULL, 4 },
    [SHEAF_F6_E2M3] = { "F6_E2M3", NULL, 6 },
    [SHEAF_F6_E3M2] = { "F6_E3M2", NULL, 6 },
    [SHEAF_U8] = { "U8", "uint8", 8 },
    [SHEAF_I8] = { "I8", "int8", 8 },
    [SHEAF_F8_E5M2] = { "F8_E5M2", "float8_e5m2", 8 },
    [SHEAF_F8_E4M3] = { "F8_E4M3", "float8_e4m3fn", 8 },
    [SHEAF_F8_E8M0] = { "F8_E8M0", "float8_e8m0fnu", 8 },
    [SHEAF_F8_E4M3FNUZ] = { "F8_E4M3FNUZ", "float8_e4m3fnuz", 8 },
    [SHEAF_F8_E5M2FNUZ] = { "F8_E5M2FNUZ", "float8_e5m2fnuz", 8 },
    [SHEAF_I16] = { "I16", "int16", 16 },
    [SHEAF_U16] = { "U16", "uint16", 16 },
    [SHEAF_F16] = { "F16", "float16", 16 },
    [SHEAF_BF16] = { "BF16", "bfloat16", 16 },
    [SHEAF_I32] = { "I32", "int32", 32 },
    [SHEAF_U32] = { "U32", "uint32", 32 },
    [SHEAF_F32] = { "F32", "float32", 32 },
    [SHEAF_C64] = { "C64", "complex64", 64 },
    [SHEAF_F64] = { "F64", "float64", 64 },
    [SHEAF_I64] = { "I64", "int64", 64 },
    [SHEAF_U64] = { "U64", "uint64", 64 },
};

int sheaf_dtype_bits(sheaf_dtype dtype)
{
    return types[dtype].bits;
}

size_t sheaf_dtype_bytes(sheaf_dtype dtype)
{
    return types[dtype].bits % 8 == 0 ? (size_t)types[dtype].bits / 8 : 0;
}

const char *sheaf_dtype_name(sheaf_dtype dtype)
{
    return types[dtype].name;
}
const char *sheaf_dtype_torch_name(sheaf_dtype dtype)
{
    return types[dtype].torch_name;
}

int sheaf_dtype_from_name(const char *name)
{
    for (int i = 0; i < SHEAF_DTYPE_COUNT; i++)
        if (strcmp(types[i].name, name) == 0)
            return i;
    return -1;
}

int sheaf_dtype_from_torch_name(const char *name)
{
    for (int i = 0; i < SHEAF_DTYPE_COUNT; i++)
        if (types[i].torch_name != NULL && strcmp(types[i].torch_name, name) == 0)
            return i;
    return -1;
}
