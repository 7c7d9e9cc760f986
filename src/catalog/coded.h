/* coded.h - tensors that files hold as codes with scales, in the forms of other programs.
 *
 * Such a tensor is one logical tensor of the catalog, "X.weight" [out, in]; the tensors of the file
 * that it is made of are its parts, and no tensors of the catalog any more. packing.h has their
 * names and bytes; dialects/common/codes.h puts them together. */
#pragma once

#include <stdlib.h>

#include "catalog/catalog.h"
#include "catalog/packing.h"

typedef struct sheaf__coded {
    sheaf__quant form;
    const sheaf__packing *packing;
    int64_t out, in;
    int64_t block_rows; /* that have one scale */
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
sheaf_status *sheaf__coded_whole(const sheaf_catalog *catalog, const sheaf_logical *tensor,
                                 sheaf__quant_whole *to);
/* sheaf__coded_check - the scales alone, for callers that copy codes without reading them. */
sheaf_status *sheaf__coded_check(const sheaf_catalog *catalog, const sheaf_logical *tensor);
/* sheaf__coded_values - dequantised, in the entry's dtype. Of int8 as bitsandbytes'
 * int8_vectorwise_dequant() has them, which merges: (code * 127 scale) * (1 / 127). */
sheaf_status *sheaf__coded_values(const sheaf_catalog *catalog, const sheaf_logical *tensor,
                                  int64_t row0, int64_t rows, int64_t col0, int64_t cols,
                                  void *dst);
