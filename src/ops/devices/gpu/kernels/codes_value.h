/* codes_value.h - codes to values in kernels (codes.h). */
#pragma once

#include "ops/devices/gpu/kernels/codes.h"
#include "ops/devices/gpu/kernels/vectors.h"
#include "ops/math/denormals.h"
#include "ops/quant/values.h"

/* The group of a row's first element, and elements of that group before it. */
typedef struct codes_row {
    int64_t first; /* among all of the tensor; flat alone */
    int32_t phase;
} codes_row;

DEVICE codes_row codes_row_at(const sheaf__codes_matrix *m, int64_t row)
{
    codes_row r = { 0, m->phase };
    if (m->flat) {
        const int64_t at = m->first + row * m->in;
        int64_t phase = at & (m->block - 1);
        r.first = m->shift >= 0 ? at >> m->shift : divide(at, m->block, &phase);
        r.phase = (int32_t)phase;
    }
    return r;
}

DEVICE int32_t codes_group(const sheaf__codes_matrix *m, const codes_row *r, int64_t col)
{
    if (m->index != NULL)
        return m->index[col];
    if (m->block == 0)
        return 0;
    const uint32_t at = (uint32_t)(r->phase + col);
    return (int32_t)(m->shift >= 0 ? at >> m->shift : at / (uint32_t)m->block);
}

/* map: of doubled scales, wherever it is quick. */
DEVICE float codes_scale(const sheaf__codes_matrix *m, const codes_row *r, int64_t row,
                         int32_t group, const float *map)
{
    const int64_t at = row * m->groups + group;
    if (!m->doubled)
        return ((const float *)m->scale)[m->added ? 2 * at : at];
    const float product = sheaf__kept_product(map[((const uint8_t *)m->scale)[at]],
                                              m->nested[(r->first + group) >> 8]);
    return sheaf__kept_sum(product, m->offset);
}

/* The summand of scaled elements, for forms that have one. */
DEVICE float codes_added(const sheaf__codes_matrix *m, int64_t row, int32_t group)
{
    return ((const float *)m->scale)[2 * (row * m->groups + group) + 1];
}

/* The value of a code before it is scaled, less the zero's. */
DEVICE float codes_zero(const sheaf__codes_matrix *m, int64_t row, int32_t group)
{
    return m->zero == NULL ? 8.0f : (float)m->zero[row * m->groups + group];
}

/* One value, from memory alone. */
DEVICE float codes_value(const sheaf__codes_matrix *m, const codes_row *r, int64_t row, int64_t col)
{
    const int32_t group = codes_group(m, r, col);
    const bool bytes = sheaf__code_bits((sheaf__codes)m->codes) == 8;
    const uint8_t byte = m->code[row * m->stride + (bytes ? col : col / 2)];
    const uint32_t code = bytes ? byte : byte >> col % 2 * 4 & 15u;
    const float value = m->codes == SHEAF__INT4 ? (float)code - codes_zero(m, row, group)
                                                : sheaf__code_value((sheaf__codes)m->codes, code);
    const float product = sheaf__kept_product(value, codes_scale(m, r, row, group, m->map));
    return m->added ? sheaf__kept_sum(product, codes_added(m, row, group)) : product;
}

/* A table of the 16 values of 4 bits, but of INT4 these without their zero. */
DEVICE float codes_of_table(const sheaf__codes_matrix *m, int32_t code)
{
    return m->codes == SHEAF__INT4 ? (float)code
                                   : sheaf__code_value((sheaf__codes)m->codes, (uint32_t)code);
}
