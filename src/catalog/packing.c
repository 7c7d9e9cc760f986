/* packing.c - see packing.h. */
#include "catalog/packing.h"

#include <stddef.h>

#define PART(x) (UINT32_C(1) << SHEAF__##x)
#define TYPE(x) (UINT64_C(1) << SHEAF_##x)
#define FLOATS (TYPE(F32) | TYPE(F16) | TYPE(BF16))

/* Eight codes in a word of 32 bits, or four, the first one lowest; AWQ's in the order 0 2 4 6 1 3
 * 5 7. */
#define EIGHT .word = 4, .per = 8, .shift = { 0, 4, 8, 12, 16, 20, 24, 28 }
#define FOUR .word = 4, .per = 4, .shift = { 0, 8, 16, 24 }
#define AWQ_EIGHT .word = 4, .per = 8, .shift = { 0, 16, 4, 20, 8, 24, 12, 28 }
/* Two in a byte, the first one in its high half, or in its low one. */
#define HIGH_FIRST .word = 1, .per = 2, .shift = { 4, 0 }
#define LOW_FIRST .word = 1, .per = 2, .shift = { 0, 4 }
#define BYTES .word = 1, .per = 1

/* Blocks of the flat tensor; scales [blocks] F32, or U8 of nested ones F32 [blocks / 256]. */
#define BNB4(KIND, TYPE_NAME)                                                                      \
    {                                                                                              \
        .by = SHEAF__BITSANDBYTES, .codes = KIND, .grouping = SHEAF__GROUPS_FLAT,                  \
        .suffix = { ".weight",                                                                     \
                    ".weight.absmax",                                                              \
                    NULL,                                                                          \
                    ".weight.nested_absmax",                                                       \
                    NULL,                                                                          \
                    ".weight.quant_map",                                                           \
                    ".weight.quant_state.bitsandbytes__" TYPE_NAME,                                \
                    ".weight.nested_quant_map" },                                                  \
        .optional = PART(NESTED_PART) | PART(FURTHER_PARTS) << 2,                                  \
        .sign = SHEAF__FURTHER_PARTS + 1, .plane = { { HIGH_FIRST } }, .sizes = true               \
    }

const sheaf__packing sheaf__packings[] = {
    BNB4(SHEAF__NF4, "nf4"),
    BNB4(SHEAF__FP4, "fp4"),
    /* Scales are 127 times as large. */
    { .by = SHEAF__BITSANDBYTES,
      .codes = SHEAF__INT8,
      .suffix = { ".weight", ".SCB", NULL, NULL, NULL, ".weight_format" },
      .optional = PART(FURTHER_PARTS),
      .sign = SHEAF__SCALES_PART,
      .code_types = TYPE(I8),
      .scale_types = TYPE(F32),
      .plane = { { BYTES } },
      .sizes = true },
    { .by = SHEAF__GPTQ_4,
      .codes = SHEAF__INT4,
      .suffix = { ".qweight", ".scales", ".qzeros", NULL, ".g_idx" },
      .optional = PART(INDEX_PART),
      .sign = SHEAF__CODES_PART,
      .code_types = TYPE(I32),
      .scale_types = FLOATS,
      .plane = { { .turned = true, EIGHT },
                 { .turned = true },
                 { .turned = true, .down = true, EIGHT } } },
    /* 0 to 255, and all zeros are 128: two's complement with its highest bit flipped. */
    { .by = SHEAF__GPTQ_8,
      .codes = SHEAF__INT8,
      .suffix = { ".qweight", ".scales", ".qzeros", NULL, ".g_idx" },
      .optional = PART(INDEX_PART),
      .sign = SHEAF__CODES_PART,
      .code_types = TYPE(I32),
      .scale_types = FLOATS,
      .plane = { { .turned = true, .flip = 0x80, FOUR },
                 { .turned = true },
                 { .turned = true, .down = true, FOUR } } },
    { .by = SHEAF__AWQ_4,
      .codes = SHEAF__INT4,
      .suffix = { ".qweight", ".scales", ".qzeros" },
      .sign = SHEAF__CODES_PART,
      .code_types = TYPE(I32),
      .scale_types = FLOATS,
      .plane = { { .turned = true, .down = true, AWQ_EIGHT },
                 { .turned = true },
                 { .turned = true, .down = true, AWQ_EIGHT } } },
    { .by = SHEAF__COMPRESSED_TENSORS_4,
      .codes = SHEAF__INT4,
      .suffix = { ".weight_packed", ".weight_scale", ".weight_zero_point", NULL, ".weight_g_idx",
                  ".weight_shape" },
      .optional = PART(ZEROS_PART) | PART(INDEX_PART),
      .sign = SHEAF__CODES_PART,
      .code_types = TYPE(I32),
      .scale_types = FLOATS,
      .plane = { { EIGHT }, { .turned = false }, { .down = true, EIGHT } } },
    { .by = SHEAF__FP8_BLOCKS,
      .codes = SHEAF__F8_E4M3,
      .suffix = { ".weight", ".weight_scale_inv" },
      .sign = SHEAF__SCALES_PART,
      .code_types = TYPE(F8_E4M3),
      .scale_types = FLOATS,
      .plane = { { BYTES } },
      .squares = true },
    /* Scales are exponents of two, 127 for 1 (OCP Microscaling Formats 1.0). */
    { .by = SHEAF__MXFP4,
      .codes = SHEAF__E2M1,
      .suffix = { ".weight_packed", ".weight_scale" },
      .sign = SHEAF__CODES_PART,
      .code_types = TYPE(U8),
      .scale_types = TYPE(U8) | TYPE(F8_E8M0),
      .plane = { { LOW_FIRST } } },
};
const int sheaf__packings_count = sizeof sheaf__packings / sizeof *sheaf__packings;

const sheaf__packing *sheaf__packing_of(sheaf__quantizer by, sheaf__codes codes)
{
    for (int i = 0; i < sheaf__packings_count; i++)
        if (sheaf__packings[i].by == by &&
            (codes == SHEAF__CODES || sheaf__packings[i].codes == codes))
            return &sheaf__packings[i];
    return NULL;
}

/* Codes of n words, `apart` words from each other. */
static inline __attribute__((always_inline)) void join(uint8_t *words, int64_t apart, int64_t n,
                                                       const uint8_t *codes, const sheaf__plane *p,
                                                       const int word, const int per)
{
    const sheaf__plane plane = *p;
    for (int64_t i = 0; i < n; i++, words += apart * word, codes += per) {
        uint32_t w = 0;
        for (int j = 0; j < per; j++)
            w |= (uint32_t)(codes[j] ^ plane.flip) << plane.shift[j];
        for (int b = 0; b < word; b++)
            words[b] = (uint8_t)(w >> 8 * b);
    }
}

void sheaf__plane_put(uint8_t *words, const sheaf__plane *p, int64_t rows, int64_t cols,
                      int64_t row, int64_t col, const uint8_t *codes, int64_t n)
{
    int64_t shape[2];
    sheaf__plane_shape(shape, p, rows, cols);
    const int64_t apart = p->turned ? shape[1] : 1, line = p->down ? row / p->per : row;
    uint8_t *at = words + p->word * ((p->turned ? line : line * shape[1]) +
                                     apart * (p->down ? col : col / p->per));
    const int shift = p->shift[row % p->per];
    if (!p->down && p->per == 8)
        join(at, apart, n / 8, codes, p, 4, 8);
    else if (!p->down && p->per == 4)
        join(at, apart, n / 4, codes, p, 4, 4);
    else if (!p->down)
        join(at, apart, n / 2, codes, p, 1, 2);
    for (int64_t i = 0; p->down && i < n; i++)
        at[i * apart * p->word + shift / 8] |= (uint8_t)((codes[i] ^ p->flip) << shift % 8);
}
