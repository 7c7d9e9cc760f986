/* matmul_quant.c - the definition of a quantised weight's values, one at a time; see
 * matmul_quant.h. */
#include "ops/matmul/matmul_quant.h"

#include "ops/math/denormals.h"
#include "ops/quant/quantise.h"
#include "ops/quant/values.h"

/* Reserves `bytes` behind the cells; returns their offset. */
static int64_t behind(mm_codes *l, int64_t bytes)
{
    const int64_t at = mm_up(l->bytes, 64);
    l->bytes = at + bytes;
    return at;
}

mm_codes sheaf__mm_codes(const sheaf__packed *w)
{
    const sheaf__quant *q = &w->quant;
    const bool indexed = q->grouping == SHEAF__GROUPS_INDEXED;
    const int64_t last = w->k % MM_BLOCK, rows = mm_up(mm_rows_ahead(w), MM_PANEL);
    mm_codes l = { .w = w, .panels = rows / MM_PANEL };
    l.together = q->grouping != SHEAF__GROUPS_FLAT || q->block == 0 || w->box.in % q->block == 0;
    l.cell = mm_cell_bytes(&l, MM_BLOCK);
    l.bytes = l.panels * (w->k / MM_BLOCK * l.cell + (last > 0 ? mm_cell_bytes(&l, last) : 0));
    l.index = behind(&l, indexed ? 2 * w->k : 0);
    l.scales = behind(&l, indexed ? rows * q->groups * 4 : 0);
    l.zeros = behind(&l, indexed && q->zeros ? rows * q->groups : 0);
    l.nested = behind(&l, 4 * mm_quant_nested(&l.first_nested, q, &w->box));
    l.map = behind(&l, q->doubled ? 1024 : 0);
    l.bytes = mm_up(l.bytes, 64) + 64; /* a vector may begin in its last word */
    return l;
}

size_t sheaf__mm_quant_size(const sheaf__packed *w)
{
    return (size_t)(w->row_major ? mm_quant_rows_of(&w->quant, &w->box).bytes
                                 : sheaf__mm_codes(w).bytes);
}

/* ---- one value ---- */

mm_group sheaf__mm_group_of(const mm_codes *l, int64_t row, int64_t col)
{
    const sheaf__packed *w = l->w;
    const sheaf__quant *q = &w->quant;
    const int64_t k0 = col / MM_BLOCK * MM_BLOCK, at = w->row0 + row, r = at % MM_PANEL;
    const char *all = w->ahead, *cell = all + mm_cell_at(l, row, k0);
    const float *scales = (const float *)cell;
    const uint8_t *zeros;
    int64_t g = 0, number = 0;
    if (q->grouping == SHEAF__GROUPS_INDEXED) {
        const int64_t before = at / MM_PANEL * q->groups * MM_PANEL;
        g = ((const uint16_t *)(all + l->index))[col];
        scales = (const float *)(all + l->scales) + before;
        zeros = (const uint8_t *)all + l->zeros + before;
    } else {
        const int64_t phase = sheaf__quant_phase(q, &w->box, at),
                      groups = mm_cell_groups(l, mm_min(MM_BLOCK, w->k - k0));
        if (q->block > 0) {
            number = (phase + col) / q->block;
            g = number - (phase + k0) / q->block;
        }
        zeros = (const uint8_t *)cell + groups * MM_PANEL * mm_scale_bytes(q);
    }
    mm_group out = { .zero = q->zeros ? zeros[g * MM_PANEL + r] : 8 };
    if (!q->doubled) {
        const float *at = scales + g * sheaf__quant_floats(q) * MM_PANEL + r;
        out.scale = at[0];
        out.added = q->added ? at[MM_PANEL] : 0;
        return out;
    }
    const float *nested = (const float *)(all + l->nested), *map = (const float *)(all + l->map);
    const float
        value = map[((const uint8_t *)cell)[g * MM_PANEL + r]],
        by = nested[(sheaf__quant_first_group(q, &w->box, at) + number) / 256 - l->first_nested];
    out.scale = sheaf__kept_sum(sheaf__kept_product(value, by), w->offset);
    return out;
}

static uint32_t code_at(const mm_codes *l, int64_t row, int64_t col)
{
    const sheaf__packed *w = l->w;
    const int64_t k0 = col / MM_BLOCK * MM_BLOCK,
                  head = mm_cell_head(l, mm_min(MM_BLOCK, w->k - k0));
    const uint32_t *codes =
        (const uint32_t *)((const char *)w->ahead + mm_cell_at(l, row, k0) + head);
    int shift;
    const int64_t word = mm_code_word(&w->quant, (w->row0 + row) % MM_PANEL, col - k0, &shift);
    return codes[word] >> shift & (uint32_t)(sheaf__code_bits(w->quant.codes) == 4 ? 15 : 255);
}

float sheaf__mm_value(const mm_codes *l, int64_t row, int64_t col, mm_made made)
{
    const sheaf__quant *q = &l->w->quant;
    const mm_group g = sheaf__mm_group_of(l, row, col);
    const uint32_t code = code_at(l, row, col);
    const float number =
        q->codes == SHEAF__INT4 ? (float)((int)code - g.zero) : sheaf__code_value(q->codes, code);
    if (made == MM_NUMBERS)
        return sheaf__rounded(number, l->w->dtype);
    float value = sheaf__kept_product(number, g.scale);
    if (q->added)
        value = sheaf__kept_sum(value, g.added);
    if (made == MM_BACK && !sheaf__quant_of_rows(q))
        value = sheaf__rounded(value, q->dtype);
    return sheaf__rounded(value, l->w->dtype);
}

void sheaf__mm_values(uint32_t *to, const mm_codes *l, int64_t row, int64_t col, int64_t cols,
                      mm_made made)
{
    const sheaf__packed *w = l->w;
    const int64_t first = row - (w->row0 + row) % MM_PANEL;
    memset(to, 0, (size_t)(mm_steps(w->dtype, cols) * MM_PANEL) * sizeof *to);
    for (int64_t r = 0; r < MM_PANEL && w->row0 + first + r < mm_rows_ahead(w); r++)
        for (int64_t c = 0; c < cols; c++) {
            const float value = sheaf__mm_value(l, first + r, col + c, made);
            if (w->dtype == SHEAF_F32)
                to[c * MM_PANEL + r] = sheaf__bits(value);
            else
                to[c / 2 * MM_PANEL + r] |=
                    (uint32_t)(w->dtype == SHEAF_BF16 ? mm_to_bf16(value) : sheaf__f16(value))
                    << c % 2 * 16;
        }
}

/* ---- for vectors ---- */

/* Scales of columns [col, end) that are codes; false: what a flushed denormal would show in. */
static bool restore(mm_cell *c, const mm_codes *l, int64_t at, int64_t col, int64_t end)
{
    const sheaf__packed *w = l->w;
    const uint8_t *codes = (const uint8_t *)c->scales;
    const float *nested = (const float *)((const char *)w->ahead + l->nested),
                *map = (const float *)((const char *)w->ahead + l->map);
    const int64_t block = w->quant.block, rows = mm_min(MM_PANEL, mm_rows_ahead(w) - at);
    int64_t number = 0, before = 0, first = 0, last = 0;
    for (int64_t r = 0; r < rows; r++) {
        if (r == 0 ||
            !l->together) { /* the cell's place in its first group, and that group's number */
            const int64_t element = (w->box.row0 + at + r) * w->box.in + w->box.col0 + c->k0;
            number = element / block - l->first_nested * 256;
            before = element % block;
            first = (before + col) / block;
            last = (before + end - 1) / block;
        } else
            number += w->box.in / block;
        for (int64_t g = first; g <= last; g++) {
            const float by = nested[(number + g) / 256];
            if ((sheaf__bits(by) & 0x7fffffff) - 1 < 0x17800000)
                return false;
            c->restored[g * MM_PANEL + r] =
                sheaf__doubled_scale(map[codes[g * MM_PANEL + r]], by, w->offset);
        }
    }
    for (int64_t r = rows; r < MM_PANEL; r++)
        for (int64_t g = first; g <= last; g++)
            c->restored[g * MM_PANEL + r] = 0;
    c->scales = c->restored;
    return true;
}

bool sheaf__mm_cell(mm_cell *c, const mm_codes *l, int64_t row, int64_t k0, int64_t col,
                    int64_t end)
{
    const sheaf__packed *w = l->w;
    const sheaf__quant *q = &w->quant;
    const int64_t r0 = w->row0 + row - (w->row0 + row) % MM_PANEL;
    const char *all = w->ahead, *cell = all + mm_cell_at(l, row, k0);
    c->l = l;
    c->k0 = k0;
    c->cols = mm_min(MM_BLOCK, w->k - k0);
    c->codes = (const uint32_t *)(cell + mm_cell_head(l, c->cols));
    c->scales = (const float *)cell;
    int64_t groups = mm_cell_groups(l, c->cols);
    const uint8_t *zeros = (const uint8_t *)cell + groups * MM_PANEL * mm_scale_bytes(q);
    if (q->grouping == SHEAF__GROUPS_INDEXED) {
        groups = q->groups;
        c->index = (const uint16_t *)(all + l->index) + k0;
        c->scales = (const float *)(all + l->scales) + r0 * groups;
        zeros = (const uint8_t *)all + l->zeros + r0 * groups;
    }
    if (groups > MM_MOST_GROUPS || (q->doubled && !restore(c, l, r0, col, end)))
        return false;
    for (int64_t i = 0; q->zeros && i < groups * MM_PANEL; i++)
        c->zeros[i] = zeros[i];
    if (q->grouping == SHEAF__GROUPS_INDEXED || q->block == 0)
        return true;
    c->phase = (sheaf__quant_phase(q, &w->box, r0) + k0) % q->block;
    for (int64_t r = 0; !l->together && r < MM_PANEL; r++) {
        const int64_t before = (sheaf__quant_phase(q, &w->box, r0 + r) + k0) % q->block;
        c->group[r] = (before + col) / q->block;
        c->end[r] = (c->group[r] + 1) * q->block - before;
    }
    return true;
}

/* Scales of group g, and what else it has. */
static const float *scales_at(const mm_cell *c, int64_t g)
{
    return c->scales + g * sheaf__quant_floats(&c->l->w->quant) * MM_PANEL;
}

static const float *others_at(const mm_cell *c, int64_t g)
{
    return c->l->w->quant.added ? scales_at(c, g) + MM_PANEL : c->zeros + g * MM_PANEL;
}

static void mix(mm_cell *c, int64_t r, int side)
{
    c->mixed[side][r] = scales_at(c, c->group[r])[r];
    if (c->l->w->quant.zeros || c->l->w->quant.added)
        c->mixed[2 + side][r] = others_at(c, c->group[r])[r];
}

/* Rows whose groups end at columns of their own. */
static int64_t mixed_scales(mm_scales *out, mm_cell *c, int64_t col)
{
    const int64_t block = c->l->w->quant.block;
    int64_t next = c->cols;
    for (int64_t r = 0; r < MM_PANEL; r++)
        for (int side = 0; side < 2; side++) {
            for (; c->end[r] <= col + side && col + side < c->cols; c->end[r] += block)
                c->group[r]++;
            mix(c, r, side);
            next = mm_min(next, c->end[r]);
        }
    *out = (mm_scales){ { c->mixed[0], c->mixed[1] }, { c->mixed[2], c->mixed[3] } };
    return next - col < 4 ? col + 2 : next / 2 * 2;
}

int64_t sheaf__mm_cell_scales(mm_scales *out, mm_cell *c, int64_t col)
{
    const sheaf__quant *q = &c->l->w->quant;
    int64_t g[2] = { 0, 0 }, next = c->cols;
    if (q->grouping == SHEAF__GROUPS_INDEXED) {
        g[0] = c->index[col];
        g[1] = c->index[mm_min(col + 1, c->cols - 1)];
        next = col + 2;
    } else if (q->block > 0) {
        if (!c->l->together)
            return mixed_scales(out, c, col);
        g[0] = (c->phase + col) / q->block;
        const int64_t end = (g[0] + 1) * q->block - c->phase;
        g[1] = g[0] + (end == col + 1 && end < c->cols);
        next = end == col + 1 ? col + 2 : end / 2 * 2;
        if (q->block == 1)
            next = col + 2;
    }
    for (int side = 0; side < 2; side++) {
        out->scale[side] = scales_at(c, g[side]);
        out->other[side] = others_at(c, g[side]);
    }
    return next;
}

void sheaf__mm_take(mm_taken *t, const sheaf__term *term, int64_t row, int64_t k0)
{
    const sheaf__packed *w = term->w;
    t->w = NULL;
    if (!mm_in_groups(term))
        return;
    const mm_codes l = sheaf__mm_codes(w);
    const int64_t cols = mm_min(MM_BLOCK, w->k - k0), block = w->quant.block, at = w->row0 + row,
                  element = (w->box.row0 + at) * w->box.in + w->box.col0 + k0,
                  left = block > 0 ? block - (w->box.col0 + k0) % block : cols;
    *t = (mm_taken){ .w = w,
                     .cells = (const char *)w->ahead + mm_cell_at(&l, row, k0),
                     .row = row,
                     .k0 = k0,
                     .cols = cols,
                     .bytes = mm_cell_bytes(&l, cols),
                     .head = mm_cell_head(&l, cols),
                     .block = mm_min(block > 0 ? block : cols, MM_BLOCK),
                     .first = mm_min(left, cols),
                     .nested = (const float *)((const char *)w->ahead + l.nested),
                     .map = (const float *)((const char *)w->ahead + l.map),
                     .floats = sheaf__quant_floats(&w->quant) };
    for (uint32_t code = 0; code < 16; code++)
        t->number[code] = mm_to_bf16(sheaf__code_value(w->quant.codes, code));
    if (w->quant.doubled) {
        t->first_group = element / block - l.first_nested * 256;
        t->apart = w->box.in / block;
    }
}

/* Scales of a group of a panel, of which `rows` are there; `number` is the first row's among those
 * of doubled scales. */
static void restored(float to[MM_PANEL], const mm_taken *t, const uint8_t *codes, int64_t number,
                     int64_t rows)
{
    float by[MM_PANEL], value[MM_PANEL];
    bool ordinary = true;
    for (int64_t r = 0; r < rows; r++, number += t->apart) {
        by[r] = t->nested[number / 256];
        value[r] = t->map[codes[r]];
        ordinary &= (sheaf__bits(by[r]) & 0x7fffffff) - 1 >= 0x17800000;
    }
    for (int64_t r = 0; r < rows; r++)
        to[r] = value[r] * by[r] + t->w->offset;
    for (int64_t r = 0; !ordinary && r < rows; r++) /* with kept denormals */
        to[r] = sheaf__kept_sum(sheaf__kept_product(value[r], by[r]), t->w->offset);
    for (int64_t r = rows; r < MM_PANEL; r++)
        to[r] = 0;
}

/* Those of group g of the block. */
static void group_scales(float to[MM_PANEL], const mm_taken *t, int64_t panel, int64_t g)
{
    const int64_t before = panel * MM_PANEL, number = t->first_group + before * t->apart + g,
                  rows = mm_min(MM_PANEL, mm_rows_ahead(t->w) - t->w->row0 - t->row - before);
    restored(to, t, (const uint8_t *)t->cells + panel * t->bytes + g * MM_PANEL, number, rows);
}

const float *sheaf__mm_scales(float room[MM_MOST_SCALES], const mm_taken *t, int64_t panel)
{
    if (!t->w->quant.doubled)
        return (const float *)(t->cells + panel * t->bytes);
    for (int64_t g = 0, col = 0; col < t->cols; g++, col = t->first + (g - 1) * t->block)
        group_scales(room + g * MM_PANEL, t, panel, g);
    return room;
}

void sheaf__mm_group_scales(float *to, const mm_taken *t, int64_t panel, int64_t col)
{
    const int64_t g = col < t->first ? 0 : (col - t->first) / t->block + 1;
    if (t->w->quant.doubled)
        group_scales(to, t, panel, g);
    else
        memcpy(to, (const float *)(t->cells + panel * t->bytes) + g * t->floats * MM_PANEL,
               (size_t)(t->floats * MM_PANEL) * sizeof *to);
}
