/* codes_int4.c - GPTQ, AWQ, compressed-tensors (pack-quantized): 4 bits with a scale, and perhaps a
 * zero, for each group of a row's neighbours; and FP8 by blocks. catalog/coded.h has the bytes. */
#include <math.h>

#include "base/base.h"
#include "catalog/boxes.h"
#include "dialects/common/codes_private.h"

/* Scales lie in float32 while they are checked, and an index in 16 bits. */
enum { MOST_GROUPS = 1 << 16, PART = 4096 };

static const char again[] =
    "download or copy the files of this model again; do not mix those of two quantizations";

/* Is it a matrix of 32-bit words? */
static sheaf_status *check_words(sheaf__coding *g, const sheaf_logical *t)
{
    return t->entry.ndim == 2
               ? sheaf__coding_shape(g, t, 1u << SHEAF_I32, 2, t->entry.shape[0], t->entry.shape[1])
               : sheaf__coding_shape(g, t, 1u << SHEAF_I32, 2, -1, -1);
}

/* Neighbours that share a scale: a row of `in` has `groups` of the config's size, or if it does not
 * say, of the size that fits. */
static sheaf_status *find_block(int64_t *block, sheaf__coding *g, const sheaf_logical *scales,
                                int64_t in, int64_t groups)
{
    const int64_t said = g->how.group;
    char want[128];
    *block = groups <= 1 ? 0 : said > 0 ? said : in / groups;
    const bool fits =
        groups <= 1 ? said == 0 || said >= in : *block > 0 && (in + *block - 1) / *block == groups;
    if (fits && groups < MOST_GROUPS)
        return NULL;
    if (said > 0)
        snprintf(want, sizeof want, "%" PRId64 " groups of %" PRId64 " in %" PRId64 " columns",
                 (in + said - 1) / said, said, in);
    else
        snprintf(want, sizeof want,
                 "a scale for each row, or groups that divide %" PRId64 " columns", in);
    return sheaf__coding_wrong(g, "shape", scales, want,
                               "the config.json that was saved with these weights (group_size)",
                               "%" PRId64 " groups", groups);
}

/* ---- g_idx ---- */

static sheaf_status *check_index(bool *in_order, sheaf__coding *g, const sheaf_logical *t,
                                 int64_t groups, int64_t block, uint16_t *to)
{
    const int64_t in = t->entry.shape[0];
    int32_t part[PART];
    sheaf_status *st = NULL;
    *in_order = true;
    for (int64_t c = 0; st == NULL && !g->wrong && c < in; c += PART) {
        const int64_t n = in - c < PART ? in - c : PART;
        st = sheaf__part_bytes(part, g->x->c, t, 4 * c, 4 * n);
        for (int64_t i = 0; st == NULL && !g->wrong && i < n; i++) {
            if (part[i] < 0 || part[i] >= groups) {
                char want[64];
                snprintf(want, sizeof want, "groups from 0 to %" PRId64, groups - 1);
                st = sheaf__coding_wrong(g, "damaged", t, want, again,
                                         "%" PRId32 " for column %" PRId64, part[i], c + i);
                break;
            }
            to[c + i] = (uint16_t)part[i];
            *in_order = *in_order && part[i] == (block > 0 ? (c + i) / block : 0);
        }
    }
    if (!sheaf__catalog_is_finding(st))
        return st;
    g->wrong = true;
    return sheaf__catalog_defect(g->x->c, sheaf__catalog_path_of(g->x->c, t), st);
}

sheaf_status *sheaf__coding_index(sheaf__coding *g, sheaf_logical *t, int64_t groups, int64_t block)
{
    bool in_order = false;
    sheaf_status *st = sheaf__coding_shape(g, t, 1u << SHEAF_I32, 1, g->q->in, 0);
    if (st != NULL || g->wrong)
        return st;
    g->q->index = malloc((size_t)g->q->in * sizeof *g->q->index + 1);
    if (g->q->index == NULL)
        return sheaf__no_memory(t->entry.name);
    st = check_index(&in_order, g, t, groups, block, g->q->index);
    if (in_order) {
        free(g->q->index);
        g->q->index = NULL;
    } else {
        g->q->form.grouping = SHEAF__GROUPS_INDEXED;
        g->q->form.groups = groups;
        g->q->group = block;
        g->q->form.block = 0;
    }
    return TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__INDEX_PART, t) : NULL);
}

/* ---- GPTQ and AWQ ---- */

/* Are the zeros of the first group all 7, or all 8? Stored ones tell GPTQ's two formats apart. */
static sheaf_status *look_at_zeros(sheaf__coding *g, const sheaf_logical *zeros)
{
    const int64_t width = zeros->entry.shape[1];
    uint32_t part[PART];
    bool sevens = true, eights = true;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && (sevens || eights) && i < width; i += PART) {
        const int64_t n = width - i < PART ? width - i : PART;
        st = sheaf__part_bytes(part, g->x->c, zeros, 4 * i, 4 * n);
        for (int64_t k = 0; st == NULL && k < n; k++) {
            sevens = sevens && part[k] == UINT32_C(0x77777777);
            eights = eights && part[k] == UINT32_C(0x88888888);
        }
    }
    g->x->with_zeros++;
    g->x->sevens += sevens;
    g->x->eights += eights;
    if (!sheaf__catalog_is_finding(st))
        return st;
    g->wrong = true;
    return sheaf__catalog_defect(g->x->c, sheaf__catalog_path_of(g->x->c, zeros), st);
}

typedef struct parts_of {
    sheaf_logical *codes, *zeros, *scales, *index;
} parts_of;

static sheaf_status *check_parts(sheaf__coding *g, const parts_of *p)
{
    sheaf__coded *q = g->q;
    if (p->scales->entry.ndim != 2)
        return sheaf__coding_shape(g, p->scales, SHEAF__FLOATS, 2, -1, q->out);
    const int64_t groups = p->scales->entry.shape[0];
    sheaf_status *st = sheaf__coding_shape(g, p->scales, SHEAF__FLOATS, 2, groups, q->out);
    TRY(st, !g->wrong ? find_block(&q->form.block, g, p->scales, q->in, groups) : NULL);
    if (st == NULL && !g->wrong && q->out % 8 != 0)
        st = sheaf__coding_wrong(g, "shape", p->codes, "a multiple of 8 rows", again, "%" PRId64,
                                 q->out);
    TRY(st, !g->wrong ? sheaf__coding_shape(g, p->zeros, 1u << SHEAF_I32, 2, groups, q->out / 8)
                      : NULL);
    if (st == NULL && !g->wrong && q->packing == SHEAF__GPTQ && g->how.symmetric)
        st = look_at_zeros(g, p->zeros);
    if (st == NULL && !g->wrong && p->index != NULL)
        st = sheaf__coding_index(g, p->index, groups, q->form.block);
    return st;
}

sheaf_status *sheaf__codes_int4(sheaf__coding *g)
{
    const bool gptq = g->how.by == SHEAF__GPTQ_4;
    parts_of p = { .index = gptq ? sheaf__coding_find(g, ".g_idx") : NULL };
    sheaf_status *st = sheaf__coding_need(&p.codes, g, ".qweight");
    TRY(st, sheaf__coding_need(&p.zeros, g, ".qzeros"));
    TRY(st, sheaf__coding_need(&p.scales, g, ".scales"));
    if (gptq && g->how.act_order)
        TRY(st, sheaf__coding_need(&p.index, g, ".g_idx"));
    TRY(st, !g->wrong ? check_words(g, p.codes) : NULL);
    if (st != NULL || g->wrong)
        return st;
    const int64_t *shape = p.codes->entry.shape;
    g->dtype = sheaf__scales_dtype(g, p.scales->entry.dtype);
    *g->q = (sheaf__coded){
        .form = { .codes = SHEAF__INT4, .grouping = SHEAF__GROUPS_OF_ROW, .zeros = true },
        .packing = gptq ? SHEAF__GPTQ : SHEAF__AWQ,
        .method = sheaf__quantizer_name(g->how.by),
        .out = gptq ? shape[1] : shape[1] * 8,
        .in = gptq ? shape[0] * 8 : shape[0],
        .less_one = gptq && g->how.less_one,
    };
    st = check_parts(g, &p);
    TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__CODES_PART, p.codes) : NULL);
    TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__ZEROS_PART, p.zeros) : NULL);
    return TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__SCALES_PART, p.scales) : NULL);
}

/* ---- compressed-tensors ---- */

static sheaf_status *read_shape(int64_t shape[2], sheaf__coding *g, const sheaf_logical *t)
{
    sheaf_status *st = sheaf__coding_shape(g, t, 1u << SHEAF_I64, 1, 2, 0);
    TRY(st, !g->wrong ? sheaf__part_bytes(shape, g->x->c, t, 0, 2 * (int64_t)sizeof *shape) : NULL);
    if (st == NULL && !g->wrong &&
        (shape[0] < 1 || shape[1] < 1 || shape[0] > INT64_MAX / 64 / shape[1]))
        st = sheaf__coding_wrong(g, "damaged", t, "two positive numbers, rows and columns", again,
                                 "%" PRId64 " and %" PRId64, shape[0], shape[1]);
    if (!sheaf__catalog_is_finding(st))
        return st;
    g->wrong = true;
    return sheaf__catalog_defect(g->x->c, sheaf__catalog_path_of(g->x->c, t), st);
}

static sheaf_status *check_packed(sheaf__coding *g, const parts_of *p)
{
    sheaf__coded *q = g->q;
    sheaf_status *st =
        sheaf__coding_shape(g, p->codes, 1u << SHEAF_I32, 2, q->out, (q->in + 7) / 8);
    if (st != NULL || g->wrong)
        return st;
    if (p->scales->entry.ndim != 2)
        return sheaf__coding_shape(g, p->scales, SHEAF__FLOATS, 2, q->out, -1);
    const int64_t groups = p->scales->entry.shape[1];
    st = sheaf__coding_shape(g, p->scales, SHEAF__FLOATS, 2, q->out, groups);
    TRY(st, !g->wrong ? find_block(&q->form.block, g, p->scales, q->in, groups) : NULL);
    if (st == NULL && !g->wrong && p->zeros != NULL)
        st = sheaf__coding_shape(g, p->zeros, 1u << SHEAF_I32, 2, (q->out + 7) / 8, groups);
    if (st == NULL && !g->wrong && p->index != NULL)
        st = sheaf__coding_index(g, p->index, groups, q->form.block);
    return st;
}

sheaf_status *sheaf__codes_packed(sheaf__coding *g)
{
    parts_of p = { .zeros = sheaf__coding_find(g, ".weight_zero_point"),
                   .index = sheaf__coding_find(g, ".weight_g_idx") };
    sheaf_logical *size;
    int64_t shape[2] = { 0 };
    sheaf_status *st = sheaf__coding_need(&p.codes, g, ".weight_packed");
    TRY(st, sheaf__coding_need(&p.scales, g, ".weight_scale"));
    TRY(st, sheaf__coding_need(&size, g, ".weight_shape"));
    if (!g->how.symmetric)
        TRY(st, sheaf__coding_need(&p.zeros, g, ".weight_zero_point"));
    TRY(st, !g->wrong ? read_shape(shape, g, size) : NULL);
    if (st != NULL || g->wrong)
        return st;
    g->dtype = sheaf__scales_dtype(g, p.scales->entry.dtype);
    *g->q = (sheaf__coded){
        .form = { .codes = SHEAF__INT4,
                  .grouping = SHEAF__GROUPS_OF_ROW,
                  .zeros = p.zeros != NULL },
        .packing = SHEAF__PACKED32,
        .method = sheaf__quantizer_name(SHEAF__COMPRESSED_TENSORS_4),
        .out = shape[0],
        .in = shape[1],
    };
    st = check_packed(g, &p);
    TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__CODES_PART, p.codes) : NULL);
    TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__SCALES_PART, p.scales) : NULL);
    if (p.zeros != NULL)
        TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__ZEROS_PART, p.zeros) : NULL);
    return TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__FURTHER_PARTS, size) : NULL);
}

/* ---- FP8 by blocks ---- */

sheaf_status *sheaf__codes_fp8(sheaf__coding *g)
{
    const int64_t *block = g->how.block;
    sheaf_logical *codes, *scales;
    sheaf_status *st = sheaf__coding_need(&codes, g, ".weight");
    TRY(st, sheaf__coding_need(&scales, g, ".weight_scale_inv"));
    if (st != NULL || g->wrong)
        return st;
    if (codes->entry.ndim != 2)
        return sheaf__coding_shape(g, codes, 1u << SHEAF_F8_E4M3, 2, -1, -1);
    const int64_t out = codes->entry.shape[0], in = codes->entry.shape[1];
    st = sheaf__coding_shape(g, codes, 1u << SHEAF_F8_E4M3, 2, out, in);
    TRY(st, sheaf__coding_shape(g, scales, SHEAF__FLOATS, 2, (out + block[0] - 1) / block[0],
                                (in + block[1] - 1) / block[1]));
    if (st != NULL || g->wrong)
        return st;
    g->dtype = g->x->dtype;
    *g->q = (sheaf__coded){
        .form = { .codes = SHEAF__F8_E4M3, .grouping = SHEAF__GROUPS_OF_ROW, .block = block[1] },
        .packing = SHEAF__BLOCKS8,
        .method = sheaf__quantizer_name(SHEAF__FP8_BLOCKS),
        .out = out,
        .in = in,
        .block_rows = block[0],
    };
    st = sheaf__coding_take(g, SHEAF__CODES_PART, codes);
    return TRY(st, !g->wrong ? sheaf__coding_take(g, SHEAF__SCALES_PART, scales) : NULL);
}
