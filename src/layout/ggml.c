/* ggml.c - see ggml.h. */
#include "layout/ggml.h"

static const sheaf__gguf_type_row rows[SHEAF__GGML_TYPES] = {
    [SHEAF__GGML_F32] = { "f32", 1, 4, SHEAF_F32 },
    [SHEAF__GGML_F16] = { "f16", 1, 2, SHEAF_F16 },
    [SHEAF__GGML_Q4_0] = { "q4_0", 32, 18, SHEAF_F32 },
    [SHEAF__GGML_Q4_1] = { "q4_1", 32, 20, SHEAF_F32 },
    [SHEAF__GGML_Q5_0] = { "q5_0", 32, 22, SHEAF_F32 },
    [SHEAF__GGML_Q5_1] = { "q5_1", 32, 24, SHEAF_F32 },
    [SHEAF__GGML_Q8_0] = { "q8_0", 32, 34, SHEAF_F32 },
    [9] = { .name = "q8_1" },
    [SHEAF__GGML_Q2_K] = { "q2_K", 256, 84, SHEAF_F32 },
    [SHEAF__GGML_Q3_K] = { "q3_K", 256, 110, SHEAF_F32 },
    [SHEAF__GGML_Q4_K] = { "q4_K", 256, 144, SHEAF_F32 },
    [SHEAF__GGML_Q5_K] = { "q5_K", 256, 176, SHEAF_F32 },
    [SHEAF__GGML_Q6_K] = { "q6_K", 256, 210, SHEAF_F32 },
    [15] = { .name = "q8_K" },
    [16] = { .name = "iq2_xxs" },
    [17] = { .name = "iq2_xs" },
    [18] = { .name = "iq3_xxs" },
    [19] = { .name = "iq1_s" },
    [20] = { .name = "iq4_nl" },
    [21] = { .name = "iq3_s" },
    [22] = { .name = "iq2_s" },
    [23] = { .name = "iq4_xs" },
    [SHEAF__GGML_I8] = { "i8", 1, 1, SHEAF_I8 },
    [SHEAF__GGML_I16] = { "i16", 1, 2, SHEAF_I16 },
    [SHEAF__GGML_I32] = { "i32", 1, 4, SHEAF_I32 },
    [SHEAF__GGML_I64] = { "i64", 1, 8, SHEAF_I64 },
    [SHEAF__GGML_F64] = { "f64", 1, 8, SHEAF_F64 },
    [29] = { .name = "iq1_m" },
    [SHEAF__GGML_BF16] = { "bf16", 1, 2, SHEAF_BF16 },
    [34] = { .name = "tq1_0" },
    [35] = { .name = "tq2_0" },
    [39] = { .name = "mxfp4" },
    [40] = { .name = "nvfp4" },
    [41] = { .name = "q1_0" },
    [42] = { .name = "q2_0" },
};

const sheaf__gguf_type_row *sheaf__gguf_type_at(int64_t number)
{
    static const sheaf__gguf_type_row none = { .name = NULL };
    return number >= 0 && number < SHEAF__GGML_TYPES ? &rows[number] : &none;
}
