/* ggml.h - ggml's types of tensors, as GGUF files number them.
 *
 * A type stores a row in blocks: `elements` neighbours of it become `bytes` bytes. Of plain numbers
 * a block is one. What is in a block: ops/quant/ggml.h. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "sheaf/dtype.h"

typedef enum sheaf__gguf_type {
    SHEAF__GGUF_F32 = 0,
    SHEAF__GGUF_F16 = 1,
    SHEAF__GGUF_Q4_0 = 2,
    SHEAF__GGUF_Q4_1 = 3,
    SHEAF__GGUF_Q5_0 = 6,
    SHEAF__GGUF_Q5_1 = 7,
    SHEAF__GGUF_Q8_0 = 8,
    SHEAF__GGUF_Q2_K = 10,
    SHEAF__GGUF_Q3_K = 11,
    SHEAF__GGUF_Q4_K = 12,
    SHEAF__GGUF_Q5_K = 13,
    SHEAF__GGUF_Q6_K = 14,
    SHEAF__GGUF_I8 = 24,
    SHEAF__GGUF_I16 = 25,
    SHEAF__GGUF_I32 = 26,
    SHEAF__GGUF_I64 = 27,
    SHEAF__GGUF_F64 = 28,
    SHEAF__GGUF_BF16 = 30,
    SHEAF__GGUF_TYPES = 43 /* numbers that llama.cpp gives; some of them no more, or not yet here */
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
/* sheaf__gguf_blocks - are its numbers stored in blocks, not one by one? */
static inline bool sheaf__gguf_blocks(sheaf__gguf_type type)
{
    return sheaf__gguf_type_at(type)->elements > 1;
}
/* sheaf__gguf_type_of - the plain type of `dtype`; -1: there is none. */
int sheaf__gguf_type_of(sheaf_dtype dtype);
