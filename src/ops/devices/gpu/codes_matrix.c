/* codes_matrix.c - quantised weights as kernels have them: see launch_products.h. */
#include "ops/devices/gpu/gpu.h"
#include "ops/devices/gpu/kernels/codes.h"
#include "ops/devices/gpu/launch_products.h"
#include "ops/matmul/matmul_private.h"
#include "ops/matmul/quant_layout.h"
#include "ops/quant/quantise.h"

static int32_t shift_of(int64_t block)
{
    int32_t shift = 0;
    while (INT64_C(1) << shift < block)
        shift++;
    return block > 0 && INT64_C(1) << shift == block ? shift : -1;
}

/* Whether groups begin at multiples of 32 of W's columns, where they begin within a row. */
static bool is_even(const sheaf__quant *q, const sheaf__quant_box *b)
{
    if (sheaf__code_bits(q->codes) != 4 || q->added || q->grouping == SHEAF__GROUPS_INDEXED)
        return false;
    return q->block == 0 || (q->block % 32 == 0 && b->col0 % 32 == 0 &&
                             (q->grouping != SHEAF__GROUPS_FLAT || b->in % 32 == 0));
}

void sheaf__codes_matrix_of(sheaf__codes_matrix *to, const sheaf__packed *w)
{
    const sheaf__quant *q = &w->quant;
    const sheaf__quant_box *b = &w->box;
    const mm_quant_rows l = mm_quant_rows_of(q, b);
    const char *at = w->ahead;
    const bool flat = q->grouping == SHEAF__GROUPS_FLAT,
               indexed = q->grouping == SHEAF__GROUPS_INDEXED;
    *to = (sheaf__codes_matrix){
        .code = (const uint8_t *)at,
        .scale = at + l.scales,
        .zero = q->zeros ? (const uint8_t *)at + l.zeros : NULL,
        .index = indexed ? (const uint16_t *)(const void *)(at + l.index) : NULL,
        .nested = (const float *)(const void *)(at + l.nested_at) - l.first_nested,
        .map = (const float *)(const void *)(at + l.map),
        .stride = l.row_bytes,
        .row0 = w->row0,
        .in = b->in,
        .first = b->row0 * b->in + b->col0,
        .groups = (int32_t)l.groups,
        .block = indexed ? 0 : (int32_t)q->block,
        .shift = shift_of(q->block),
        .phase = flat ? 0 : (int32_t)sheaf__quant_phase(q, b, 0),
        .offset = w->offset,
        .codes = (uint8_t)q->codes,
        .flat = flat && q->block > 0,
        .doubled = q->doubled,
        .added = q->added,
        .even = is_even(q, b),
        .dtype = (uint8_t)(sheaf__quant_of_rows(q) ? SHEAF_F32 : q->dtype),
    };
}
