/* far_codes.h - for tests of products on other devices: terms with quantised weights of every form.
 */
#pragma once

#include "tests/devices/far_products.h"

static inline float random_scale(kind kind)
{
    const uint32_t u = random_u32();
    if (kind == TINY) /* values around the smallest normal number */
        return sheaf__float((u & 0x7fffff) | (u >> 24) % 8 << 23);
    return (float)(1 + u % 1000000) * 1e-6f;
}

/* even: as programs that quantise make them. */
static inline sheaf__quant random_form(bool even)
{
    static const int64_t blocks[] = { 64, 128, 32, 256, 4096, 16, 100, 7 };
    static const sheaf_dtype types[] = { SHEAF_BF16, SHEAF_F16, SHEAF_F32 };
    static const sheaf__codes four[] = { SHEAF__NF4, SHEAF__FP4, SHEAF__INT4, SHEAF__E2M1 };
    sheaf__quant q = { .codes = even ? four[below(4)] : (sheaf__codes)below(SHEAF__CODES),
                       .grouping = (sheaf__groups)below(even ? 2 : 3),
                       .block = blocks[below(even ? 5 : 8)],
                       .dtype = types[below(3)] };
    q.zeros = q.codes == SHEAF__INT4 && below(2);
    q.doubled = q.grouping == SHEAF__GROUPS_FLAT && q.codes != SHEAF__INT8 && below(2);
    q.added = !even && !q.zeros && !q.doubled &&
              (q.codes == SHEAF__UINT4 || q.codes == SHEAF__INT8) &&
              q.grouping != SHEAF__GROUPS_INDEXED && below(2);
    q.blocks = q.added;
    if (q.grouping == SHEAF__GROUPS_OF_ROW && below(4) == 0)
        q.block = 0;
    if (q.grouping == SHEAF__GROUPS_INDEXED) {
        q.block = 0;
        q.groups = 1 + below(9);
    }
    return q;
}

/* W [n, k] on the processor's device, all of a box or a part of it. */
static inline coded *random_codes(sheaf__device *here, sheaf_dtype dtype, int64_t n, int64_t k,
                                  bool even, kind kind)
{
    const sheaf__quant q = random_form(even);
    const int64_t before = below(2) ? 32 * below(4) : 0, after = below(2) ? below(70) : 0,
                  col0 = below(2) ? 0
                         : even   ? 32 * below(5)
                                  : below(90),
                  unit = even ? 32 : 1;
    const sheaf__quant_box box = { .in = (col0 + k + below(100) + unit - 1) / unit * unit,
                                   .row0 = below(50),
                                   .rows = before + n + after,
                                   .col0 = col0,
                                   .cols = k };
    const int64_t groups = sheaf__quant_groups(&q, &box), floats = sheaf__quant_floats(&q),
                  nested = sheaf__quant_nested(&q, (box.row0 + box.rows) * box.in);
    coded *c = keep(sizeof *c);
    *c = (coded){ .before = before,
                  .parts = { .codes = keep((size_t)(n * k)),
                             .scales = keep((size_t)(n * groups * floats) * 4),
                             .scale_codes = keep((size_t)(n * groups)),
                             .zeros = keep((size_t)(n * groups)) },
                  .whole = { .index = keep((size_t)box.in * 2),
                             .nested = keep((size_t)nested * 4),
                             .offset = kind == TINY ? 0 : random_scale(ORDINARY) } };
    for (int64_t i = 0; i < n * k; i++)
        c->parts.codes[i] = (uint8_t)below(sheaf__code_bits(q.codes) == 4 ? 16 : 256);
    for (int64_t i = 0; i < n * groups; i++) {
        c->parts.scales[i * floats] = random_scale(kind);
        if (q.added) { /* scales of 17 bits, as ggml's are */
            float *scale = &c->parts.scales[2 * i];
            *scale = sheaf__float(sheaf__bits(*scale) & 0xffffff80);
            scale[1] = -random_scale(kind);
        }
        c->parts.scale_codes[i] = (uint8_t)below(256);
        c->parts.zeros[i] = (uint8_t)below(17);
    }
    for (int64_t i = 0; i < box.in; i++)
        c->whole.index[i] = (uint16_t)below(q.groups > 0 ? q.groups : 1);
    for (int64_t i = 0; i < nested; i++)
        c->whole.nested[i] = random_scale(kind);
    c->all = sheaf__packed_quantised(here, dtype, &q, &box);
    c->all.ahead = aligned_alloc(64, mm_up((int64_t)sheaf__packed_size(&c->all), 64) + 64);
    kept[nkept++] = memset(c->all.ahead, 0xff, sheaf__packed_size(&c->all));
    c->w = load_coded(here, c, &c->all, n);
    return c;
}

static inline sheaf__term coded_term(sheaf__device *here, sheaf_dtype dtype, bool back, int64_t m,
                                     int64_t n, int64_t k, bool even, kind kind)
{
    const sheaf_dtype stored = dtype == SHEAF_BF16 || below(2) ? dtype : random_type();
    sheaf__term t = random_term(dtype, SHEAF__B_NK, below(4) == 0, m, 1, k, kind);
    if (even) {
        t.a_km = false;
        t.lda = (k + 15) / 8 * 8;
        t.a = random_matrix(dtype, m, k, t.lda, kind);
    }
    coded *c = random_codes(here, even ? dtype : stored, back ? k : n, back ? n : k, even, kind);
    t.form = back ? SHEAF__B_BACK : SHEAF__B_AHEAD;
    t.b = NULL;
    t.w = &c->w;
    t.apart = below(4) == 0;
    return t;
}
