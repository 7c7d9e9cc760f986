/* quant.h - weights stored in 4 or 8 bits with scales: what the codes stand for.
 *
 * A quantised matrix is [rows, cols] codes, and for each group of a row's neighbours a scale and,
 * in some forms, a zero:
 *     value = fl(table[code] * scale), or with zeros fl((code - zero) * scale),
 *     of ggml's blocks also fl(fl(table[code] * scale) + added)
 * in float32, which is rounded once to the type that is computed in. Groups belong to the logical
 * tensor: where a slice cuts one, its scale is on both sides, so that no value depends on who has
 * it (docs/contract.md). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/shared_fn.h"
#include "sheaf/dtype.h"

/* Kinds of codes, a row each: a name for messages, the bits of a code in memory (4 or 8), and of 4
 * bits its 16 numbers. Places of rows go into the hash of a base: new ones go to the end.
 *   NF4, FP4  bitsandbytes' tables (FP4: 0, 1/192, 2/3, 1, 1/3, 1/2, 1/6, 1/4)
 *   INT4      without zeros 8 stands for 0
 *   INT8      two's complement; the scale is float32, fl(SCB * fl(1/127))
 *   E2M1      MXFP4, whose scales are powers of two
 *   UINT4     ggml's */
/* clang-format off */
#define SHEAF__KINDS_OF_CODES(KIND)                                                                \
    KIND(NF4, "NF4", 4,                                                                            \
         -1, -0x1.647362p-1f, -0x1.0cd66p-1f, -0x1.94654p-2f, -0x1.23449ap-2f, -0x1.7a6a7ep-3f,    \
         -0x1.74f0e2p-4f, 0, 0x1.45f5fep-4f, 0x1.4995c6p-3f, 0x1.f809bap-3f, 0x1.5a0674p-2f,       \
         0x1.c3497p-2f, 0x1.200f56p-1f, 0x1.722766p-1f, 1)                                         \
    KIND(FP4, "FP4", 4,                                                                            \
         0, 0x1.555556p-8f, 0x1.555556p-1f, 1, 0x1.555556p-2f, 0.5f, 0x1.555556p-3f, 0.25f,        \
         0, -0x1.555556p-8f, -0x1.555556p-1f, -1, -0x1.555556p-2f, -0.5f, -0x1.555556p-3f, -0.25f) \
    KIND(INT4, "INT4", 4, -8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7)                  \
    KIND(INT8, "INT8", 8, 0)                                                                       \
    KIND(F8_E4M3, "FP8", 8, 0)                                                                     \
    KIND(E2M1, "MXFP4", 4,                                                                         \
         0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6)                    \
    KIND(UINT4, "4 bits", 4, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15)
/* clang-format on */

typedef enum sheaf__codes {
#define KIND(id, ...) SHEAF__##id,
    SHEAF__KINDS_OF_CODES(KIND)
#undef KIND
        SHEAF__CODES
} sheaf__codes;

SHEAF__SHARED_FN int sheaf__code_bits(sheaf__codes codes)
{
#define KIND(id, name, bits, ...) bits,
    static const uint8_t bits[SHEAF__CODES] = { SHEAF__KINDS_OF_CODES(KIND) };
#undef KIND
    return bits[codes];
}

/* sheaf__code_numbers - of 4 bits. */
SHEAF__SHARED_FN const float *sheaf__code_numbers(sheaf__codes codes)
{
#define KIND(id, name, bits, ...) { __VA_ARGS__ },
    static const float numbers[SHEAF__CODES][16] = { SHEAF__KINDS_OF_CODES(KIND) };
#undef KIND
    return numbers[codes];
}

/* sheaf__codes_name - "NF4". */
const char *sheaf__codes_name(sheaf__codes codes);

/* Which groups the elements of a row have. */
typedef enum sheaf__groups {
    SHEAF__GROUPS_OF_ROW,  /* `block` neighbours of a row, from its first element; block 0: all */
    SHEAF__GROUPS_FLAT,    /* `block` neighbours of the tensor, row after row: bitsandbytes */
    SHEAF__GROUPS_INDEXED, /* column c has group index[c] of `groups`: GPTQ's act-order */
} sheaf__groups;

/* How a logical tensor [out, in] is quantised. */
typedef struct sheaf__quant {
    sheaf__codes codes;
    sheaf__groups grouping;
    int64_t block;
    int64_t groups; /* of a row, where they are indexed */
    bool zeros;     /* a zero for each group */
    /* Scales are codes themselves, of the signed map of 8 bits, in groups of 256 of the tensor's
     * scales (grouping is FLAT): scale = fl(fl(map[code] * nested[group / 256]) + offset) */
    bool doubled;
    /* The type to which its program dequantises. What reads values in this type or a wider one
     * gets them rounded to it; products take them as docs/contract.md says. F32: as they are. */
    sheaf_dtype dtype;
    /* Behind each group's scale lies what is added to its scaled elements; not of codes of doubled
     * scales, with zeros or of indexed groups. */
    bool added;
    /* ggml's: the source reads the same values as plain numbers, too, and says that the tensor is
     * plain wherever its form in memory is not asked for (sheaf__source_form()). */
    bool blocks;
} sheaf__quant;

/* sheaf__quant_alike - are two stored in one form, whatever their sizes and the type of values? */
SHEAF__SHARED_FN bool sheaf__quant_alike(const sheaf__quant *a, const sheaf__quant *b)
{
    return a->codes == b->codes && a->grouping == b->grouping && a->block == b->block &&
           a->zeros == b->zeros && a->doubled == b->doubled && a->added == b->added;
}

/* A box of a quantised tensor: rows [row0, row0 + rows), columns [col0, col0 + cols) of `in`. */
typedef struct sheaf__quant_box {
    int64_t in, row0, rows, col0, cols;
} sheaf__quant_box;

/* sheaf__quant_phase - elements of the first group of a box's row that lie before the box. */
SHEAF__SHARED_FN int64_t sheaf__quant_phase(const sheaf__quant *q, const sheaf__quant_box *b,
                                            int64_t row)
{
    if (q->grouping == SHEAF__GROUPS_INDEXED || q->block == 0)
        return 0;
    return (q->grouping == SHEAF__GROUPS_FLAT ? (b->row0 + row) * b->in + b->col0 : b->col0) %
           q->block;
}

/* sheaf__quant_groups - scales that a box has for each of its rows. The group of its element (row,
 * col) is (phase + col) / block, or index[col]; rows that have fewer leave the last one unused. */
SHEAF__SHARED_FN int64_t sheaf__quant_groups(const sheaf__quant *q, const sheaf__quant_box *b)
{
    if (q->grouping == SHEAF__GROUPS_INDEXED)
        return q->groups;
    if (q->block == 0)
        return 1;
    const bool shifts = q->grouping == SHEAF__GROUPS_FLAT && b->in % q->block != 0;
    const int64_t before = shifts ? q->block - 1 : b->col0 % q->block;
    return b->cols == 0 ? 0 : (before + b->cols - 1) / q->block + 1;
}

/* sheaf__quant_floats - of a group's scale, with what is added. */
SHEAF__SHARED_FN int64_t sheaf__quant_floats(const sheaf__quant *q)
{
    return q->added ? 2 : 1;
}

/* sheaf__quant_first_group - number, among all groups of the tensor, of the first group of a box's
 * row (FLAT). */
SHEAF__SHARED_FN int64_t sheaf__quant_first_group(const sheaf__quant *q, const sheaf__quant_box *b,
                                                  int64_t row)
{
    return ((b->row0 + row) * b->in + b->col0) / q->block;
}

/* What a box is made of, as it is handed over from files: all the caller's. */
typedef struct sheaf__quant_parts {
    uint8_t *codes;       /* [rows][cols], a byte each */
    float *scales;        /* [rows][groups][floats]; not where they are doubled: */
    uint8_t *scale_codes; /* [rows][groups] */
    uint8_t *zeros;       /* [rows][groups], 0 to 16; where q->zeros */
    bool stored;          /* the scales of INT8 are SCB, as files have them */
} sheaf__quant_parts;

/* What belongs to all of a tensor. */
typedef struct sheaf__quant_whole {
    uint16_t *index; /* [in] where groups are indexed, else NULL */
    float *nested;   /* [sheaf__quant_nested()] of doubled scales, else NULL */
    float offset;
} sheaf__quant_whole;

/* sheaf__quant_nested - scales of the doubled scales of a tensor of n elements. */
SHEAF__SHARED_FN int64_t sheaf__quant_nested(const sheaf__quant *q, int64_t n)
{
    const int64_t scales = q->block > 0 ? (n + q->block - 1) / q->block : 0;
    return q->doubled ? (scales + 255) / 256 : 0;
}

/* Of a source with such tensors (sheaf/source.h); thread-safe. */
struct sheaf_source;
struct sheaf_status;
typedef struct sheaf__quantised_source {
    /* NULL: the tensor is plain, or not there. */
    const sheaf__quant *(*form)(struct sheaf_source *self, const char *name);
    struct sheaf_status *(*read)(struct sheaf_source *self, const char *name, int64_t row0,
                                 int64_t rows, int64_t col0, int64_t cols,
                                 const sheaf__quant_parts *to);
    /* Into memory of the caller's: index [in], nested as above. */
    struct sheaf_status *(*whole)(struct sheaf_source *self, const char *name,
                                  sheaf__quant_whole *to);
    /* In place of these three, of a source that lies over another: whose tensor it is, under which
     * name; NULL: its own, which is plain. */
    struct sheaf_source *(*behind)(struct sheaf_source *self, const char **name);
} sheaf__quantised_source;

/* sheaf__source_form - NULL: plain, or not there. sheaf__source_held - the same, but ggml's blocks
 * are not plain: how memory may hold it. sheaf__source_codes, sheaf__source_whole - of a tensor
 * that is held so. */
const sheaf__quant *sheaf__source_form(struct sheaf_source *source, const char *name);
const sheaf__quant *sheaf__source_held(struct sheaf_source *source, const char *name);
struct sheaf_status *sheaf__source_codes(struct sheaf_source *source, const char *name,
                                         int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                         const sheaf__quant_parts *to);
struct sheaf_status *sheaf__source_whole(struct sheaf_source *source, const char *name,
                                         sheaf__quant_whole *to);
