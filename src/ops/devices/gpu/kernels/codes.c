/* codes.c - panels of quantised weights (codes.h): their values as a matrix, rounded, that kernels
 * of products read. */
#include "ops/devices/gpu/kernels/codes_value.h"

enum { EACH = SHEAF__CODES_EACH };

/* Codes of elements [col, col + EACH) of a row, a byte each; what is behind the row is padding. */
typedef struct eight {
    uint32_t word[2];
} eight;

DEVICE eight eight_codes(const sheaf__codes_matrix *m, int64_t row, int64_t col, bool bytes)
{
    const uint8_t *at = m->code + row * m->stride + (bytes ? col : col / 2);
    eight x;
    x.word[0] = ((const uint32_t *)(const void *)at)[0];
    x.word[1] = bytes ? ((const uint32_t *)(const void *)at)[1] : 0;
    return x;
}

DEVICE uint32_t code_of(const eight *x, int e, bool bytes)
{
    return bytes ? x->word[e / 4] >> e % 4 * 8 & 255 : x->word[0] >> e * 4 & 15;
}

/* The numbers of a group. */
typedef struct scaled {
    float scale, zero, added;
} scaled;

DEVICE scaled scaled_of(const sheaf__codes_panel *p, const codes_row *r, int64_t row, int32_t group,
                        const float *map)
{
    const sheaf__codes_matrix *m = &p->of;
    scaled s;
    s.scale = p->numbers ? 1.0f : codes_scale(m, r, row, group, map);
    s.zero = m->codes == SHEAF__INT4 ? codes_zero(m, row, group) : 0.0f;
    s.added = m->added && !p->numbers ? codes_added(m, row, group) : 0.0f;
    return s;
}

DEVICE float value_of(const sheaf__codes_matrix *m, const eight *x, int e, scaled s, bool bytes,
                      const float *table)
{
    const uint32_t code = code_of(x, e, bytes);
    const float value = bytes ? sheaf__code_value((sheaf__codes)m->codes, code) : table[code];
    const float product = sheaf__kept_product(value - s.zero, s.scale);
    return m->added ? sheaf__kept_sum(product, s.added) : product;
}

/* Elements from `col` on, of a row up to column `last`; of one group more often than not. */
DEVICE void values_of(float *v, const sheaf__codes_panel *p, const float *table, int64_t row,
                      int64_t col, int64_t last, bool bytes)
{
    const sheaf__codes_matrix *m = &p->of;
    const eight x = eight_codes(m, row, col, bytes);
    const codes_row r = codes_row_at(m, row);
    int32_t now = codes_group(m, &r, col);
    scaled s = scaled_of(p, &r, row, now, table + 16);
    if (m->index == NULL && now == codes_group(m, &r, col + EACH - 1)) {
        UNROLL
        for (int e = 0; e < EACH; e++)
            v[e] = value_of(m, &x, e, s, bytes, table);
        return;
    }
    UNROLL
    for (int e = 0; e < EACH; e++) {
        const int32_t group = codes_group(m, &r, col + e < last ? col + e : last);
        if (group != now)
            s = scaled_of(p, &r, row, group, table + 16);
        now = group;
        v[e] = value_of(m, &x, e, s, bytes, table);
    }
}

/* The tables of all threads: 16 values, and the map of doubled scales. */
DEVICE const float *tables_of(const sheaf__codes_matrix *m)
{
    float *table = (float *)(void *)shared_memory;
    const int thread = (int)threadIdx.x;
    if (thread < 16)
        table[thread] = codes_of_table(m, thread);
    if (m->doubled)
        table[16 + thread] = m->map[thread];
    sync_threads();
    return table;
}

/* That of this block. */
DEVICE const sheaf__codes_panel *own_panel(const sheaf__codes_panels *a)
{
    int32_t i = 0;
    while (i + 1 < a->panels && a->panel[i + 1].block0 <= (int32_t)blockIdx.x)
        i++;
    return &a->panel[i];
}

KERNELS(codes_panels, sheaf__codes_panels, SHEAF__CODES_THREADS)
{
    const sheaf__codes_panel *p = own_panel(a);
    const float *table = tables_of(&p->of);
    const int64_t in_row = (p->cols + EACH - 1) / EACH;
    int64_t at;
    const int64_t row =
        divide(own_index() - (int64_t)p->block0 * SHEAF__CODES_THREADS, in_row, &at);
    if (row >= p->rows)
        return;
    at *= EACH;
    float v[EACH];
    const int64_t last = p->col0 + p->cols - 1;
    if (sheaf__code_bits((sheaf__codes)p->of.codes) == 8)
        values_of(v, p, table, p->row0 + row, p->col0 + at, last, true);
    else
        values_of(v, p, table, p->row0 + row, p->col0 + at, last, false);
    UNROLL
    for (int e = 0; e < EACH; e++)
        if (p->back)
            v[e] = rounded_one(v[e], (sheaf_dtype)p->of.dtype);
    const int64_t to = row * p->cols + at, end = (row + 1) * p->cols;
    move_some(p->to, to, end, v, dtype, dtype == SHEAF_F32 ? 4 : EACH);
    if (dtype == SHEAF_F32)
        move_some(p->to, to + 4, end, v + 4, dtype, 4);
}
