/* ggml.h - ggml's types of tensors, as GGUF files number them.
 *
 * A type stores a row in blocks: `elements` neighbours of it become `bytes` bytes. Of plain numbers
 * a block is one. What is in a block: ops/quant/ggml.h. */
#pragma once

#include <stdint.h>

#include "sheaf/dtype.h"

typedef enum sheaf__gguf_type {
    SHEAF__GGML_F32 = 0,
    SHEAF__GGML_F16 = 1,
    SHEAF__GGML_Q4_0 = 2,
    SHEAF__GGML_Q4_1 = 3,
    SHEAF__GGML_Q5_0 = 6,
    SHEAF__GGML_Q5_1 = 7,
    SHEAF__GGML_Q8_0 = 8,
    SHEAF__GGML_Q2_K = 10,
    SHEAF__GGML_Q3_K = 11,
    SHEAF__GGML_Q4_K = 12,
    SHEAF__GGML_Q5_K = 13,
    SHEAF__GGML_Q6_K = 14,
    SHEAF__GGML_I8 = 24,
    SHEAF__GGML_I16 = 25,
    SHEAF__GGML_I32 = 26,
    SHEAF__GGML_I64 = 27,
    SHEAF__GGML_F64 = 28,
    SHEAF__GGML_BF16 = 30,
    SHEAF__GGML_TYPES = 43 /* numbers that llama.cpp gives; some of them no more, or not yet here */
} sheaf__gguf_type;

typedef struct sheaf__gguf_type_row {
    const char *name; /* as llama.cpp spells it, "q8_0"; NULL: no type has this number */
    int elements;     /* of a block, 0: sheaf does not read this type */
    int bytes;        /* of a block */
    /* The type of the numbers, or that which blocks are read as (F32). */
    sheaf_dtype dtype;
} sheaf__gguf_type_row;

/* sheaf__gguf_type_at - never NULL; an empty row for a number of none. */
const sheaf__gguf_type_row *sheaf__gguf_type_at(int64_t number);
/* Of a block of a type that sheaf reads. */
static inline int64_t sheaf__gguf_type_block(sheaf__gguf_type type)
{
    return sheaf__gguf_type_at(type)->elements;
}
static inline int64_t sheaf__gguf_type_bytes(sheaf__gguf_type type)
{
    return sheaf__gguf_type_at(type)->bytes;
}
