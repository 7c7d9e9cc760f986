/* coded.h - tensors that files hold as codes with scales, in the forms of other programs.
 *
 * Such a tensor is one logical tensor of the catalog, "X.weight" [out, in]; the tensors of the file
 * that it is made of are its parts, and no tensors of the catalog any more. Which names and shapes
 * they have is the dialects' (dialects/common/codes.h); what their bytes stand for is here: */
#pragma once

#include <stdlib.h>

#include "catalog/catalog.h"
#include "ops/quant/quant.h"

typedef enum sheaf__packing {
    /* bitsandbytes: two elements of the tensor, row after row, in a byte, the first one in its high
     * half. Scales [blocks] F32; or U8, of nested ones F32 [blocks / 256]. */
    SHEAF__BNB4,
    /* codes I8 [out, in], scales F32 [out] that are 127 times as large */
    SHEAF__BNB8,
    /* GPTQ: codes I32 [in / 8, out], eight neighbours of a row in a word, the first one lowest;
     * zeros I32 [groups, out / 8], likewise along a column; scales [groups, out]. */
    SHEAF__GPTQ,
    /* AWQ: codes I32 [in, out / 8], zeros I32 [groups, out / 8], eight neighbours of a column in a
     * word, which has them in the order 0 2 4 6 1 3 5 7; scales [groups, out]. */
    SHEAF__AWQ,
    /* compressed-tensors: codes I32 [out, in / 8], zeros I32 [out / 8, groups] along a column, the
     * first one lowest; scales [out, groups]. */
    SHEAF__PACKED32,
    /* codes F8_E4M3 [out, in], scales [out / block_rows, in / block] */
    SHEAF__BLOCKS8,
} sheaf__packing;

enum {
    SHEAF__CODES_PART,
    SHEAF__SCALES_PART,
    SHEAF__ZEROS_PART,
    SHEAF__NESTED_PART,
    SHEAF__INDEX_PART,
    SHEAF__FURTHER_PARTS, /* from here: what was read when the tensor was found */
    SHEAF__PARTS = SHEAF__FURTHER_PARTS + 4
};

typedef struct sheaf__coded {
    sheaf__quant form;
    sheaf__packing packing;
    const char *method; /* "bitsandbytes", "GPTQ", ...: a constant */
    int64_t out, in;
    int64_t block_rows; /* BLOCKS8 */
    bool less_one;      /* stored zeros are less by one, in words of eight: GPTQ's first format */
    float offset;
    uint16_t *index; /* [in] of the groups, where they are indexed; owned */
    int64_t group;   /* then: columns that each has */
    /* Each is dense and in one place; without a name: there is none. Owned. */
    sheaf_logical part[SHEAF__PARTS];
} sheaf__coded;

/* sheaf__coded_free - accepts NULL. */
static inline void sheaf__coded_free(sheaf__coded *q)
{
    if (q == NULL)
        return;
    for (int i = 0; i < SHEAF__PARTS; i++) {
        free((char *)q->part[i].entry.name);
        free(q->part[i].piece);
    }
    free(q->index);
    free(q);
}

/* sheaf__coded_take - moves what `tensor` is stored as into a part. The tensor stays, without
 * pieces. Errors: SHEAF_E_MEMORY; SHEAF_E_UNSUPPORTED where it is not dense and in one place. */
sheaf_status *sheaf__coded_take(sheaf__coded *coded, int part, const sheaf_catalog *catalog,
                                sheaf_logical *tensor);
/* sheaf__part_bytes - bytes [begin, begin + size) of a part, or of another dense tensor in one
 * place. Errors: also SHEAF_E_LAYOUT, where it has fewer. */
sheaf_status *sheaf__part_bytes(void *dst, const sheaf_catalog *catalog, const sheaf_logical *part,
                                int64_t begin, int64_t size);
/* sheaf__coded_bytes - of all parts, as they are stored. */
int64_t sheaf__coded_bytes(const sheaf__coded *coded);
/* sheaf__form_text - "NF4, blocks of 64, doubled scales". */
void sheaf__form_text(sheaf_text *out, const sheaf__coded *coded);

/* ---- reading; thread-safe, in memory of the box's size, or O(1) for values ---- */

/* Bytes that a thread which reads codes takes of its own. */
enum { SHEAF__CODED_ROOM = 96 << 10 };

/* sheaf__coded_read - as sheaf__quantised_source has it; the tensor is one with `coded`. Errors:
 * also SHEAF_E_NUMBER, for a scale that is no finite number. */
sheaf_status *sheaf__coded_read(const sheaf_catalog *catalog, const sheaf_logical *tensor,
                                int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                const sheaf__quant_parts *to);
/* sheaf__coded_raw - the same, but the scales of BNB8 are as they are stored: SCB. */
sheaf_status *sheaf__coded_raw(const sheaf_catalog *catalog, const sheaf_logical *tensor,
                               int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                               const sheaf__quant_parts *to);
sheaf_status *sheaf__coded_whole(const sheaf_catalog *catalog, const sheaf_logical *tensor,
                                 sheaf__quant_whole *to);
/* sheaf__coded_check - the scales alone, for who copies codes without reading them. */
sheaf_status *sheaf__coded_check(const sheaf_catalog *catalog, const sheaf_logical *tensor);
/* sheaf__coded_values - dequantised, in the entry's dtype. Of BNB8 as bitsandbytes'
 * int8_vectorwise_dequant() has them, which merges: (code * 127 scale) * (1 / 127). */
sheaf_status *sheaf__coded_values(const sheaf_catalog *catalog, const sheaf_logical *tensor,
                                  int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                  void *dst);
