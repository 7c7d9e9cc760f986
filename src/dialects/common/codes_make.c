/* codes_make.c - one weight out of its parts, as its row of catalog/packing.h says. */
#include "base/base.h"
#include "catalog/boxes.h"
#include "dialects/common/codes_private.h"

/* Scales lie in float32 while they are checked, and an index in 16 bits. */
enum { MOST_GROUPS = 1 << 16, PART = 4096 };

static const char again[] =
    "download or copy the files of this model again; do not mix those of two quantizations";

static sheaf_status *find_parts(sheaf__codes_weight *g)
{
    const sheaf__packing *p = g->packing;
    sheaf_status *st = NULL;
    for (int i = 0; st == NULL && i < SHEAF__PARTS; i++) {
        const bool needed = (p->optional >> i & 1) == 0 ||
                            (i == SHEAF__ZEROS_PART && !g->how.symmetric) ||
                            (i == SHEAF__INDEX_PART && g->how.act_order);
        if (p->suffix[i] != NULL && needed)
            st = sheaf__codes_need(g, i);
        else if (p->suffix[i] != NULL)
            g->part[i] = sheaf__codes_find(g, p->suffix[i]);
    }
    return st;
}

/* Is a part the matrix [rows, cols] of its plane? -1: of whatever size. */
static sheaf_status *check_plane(sheaf__codes_weight *g, int part, uint64_t dtypes, int64_t rows,
                                 int64_t cols)
{
    int64_t shape[2] = { -1, -1 };
    const sheaf__plane *p = &g->packing->plane[part];
    sheaf__plane_shape(shape, p, rows > 0 ? rows : 0, cols > 0 ? cols : 0);
    if (rows < 0)
        shape[p->turned] = -1;
    if (cols < 0)
        shape[!p->turned] = -1;
    return sheaf__codes_shape(g, g->part[part], dtypes, 2, shape[0], shape[1]);
}

/* Neighbours that share a scale: a row of `in` has `groups` of the config's size, or if it does not
 * say, of the size that fits. */
static sheaf_status *find_block(sheaf__codes_weight *g, int64_t groups)
{
    const int64_t declared = g->how.group, in = g->q->in;
    int64_t *block = &g->q->form.block;
    char want[128];
    *block = groups <= 1 ? 0 : declared > 0 ? declared : in / groups;
    if (*block == 0 && g->packing->codes == SHEAF__INT8)
        *block = in; /* 0 is bitsandbytes' (sheaf__quant_of_rows()) */
    const bool fits = groups <= 1 ? declared == 0 || declared >= in
                                  : *block > 0 && (in + *block - 1) / *block == groups;
    if (fits && groups > 0 && groups < MOST_GROUPS)
        return NULL;
    if (declared > 0)
        snprintf(want, sizeof want, "%" PRId64 " groups of %" PRId64 " in %" PRId64 " columns",
                 (in + declared - 1) / declared, declared, in);
    else
        snprintf(want, sizeof want,
                 "a scale for each row, or groups that divide %" PRId64 " columns", in);
    return sheaf__codes_wrong(g, "shape", g->part[SHEAF__SCALES_PART], want,
                              "the config.json that was saved with these weights (group_size)",
                              "%" PRId64 " groups", groups);
}

/* ---- g_idx ---- */

static sheaf_status *check_index(bool *in_order, sheaf__codes_weight *g, int64_t groups,
                                 uint16_t *to)
{
    const int64_t in = g->q->in, block = g->q->form.block;
    int32_t part[PART];
    sheaf_status *st = NULL;
    *in_order = true;
    for (int64_t c = 0; st == NULL && !g->wrong && c < in; c += PART) {
        const int64_t n = in - c < PART ? in - c : PART;
        st = sheaf__codes_read(part, g, SHEAF__INDEX_PART, 4 * c, 4 * n);
        for (int64_t i = 0; st == NULL && !g->wrong && i < n; i++) {
            if (part[i] < 0 || part[i] >= groups) {
                char want[64];
                snprintf(want, sizeof want, "groups from 0 to %" PRId64, groups - 1);
                st = sheaf__codes_wrong(g, "damaged", g->part[SHEAF__INDEX_PART], want, again,
                                        "%" PRId32 " for column %" PRId64, part[i], c + i);
                break;
            }
            to[c + i] = (uint16_t)part[i];
            *in_order = *in_order && part[i] == (block > 0 ? (c + i) / block : 0);
        }
    }
    return st;
}

/* I32 [in]: where columns are in order there is nothing to keep. */
static sheaf_status *read_index(sheaf__codes_weight *g, int64_t groups)
{
    bool in_order = false;
    const sheaf_logical *t = g->part[SHEAF__INDEX_PART];
    sheaf_status *st = sheaf__codes_shape(g, t, 1u << SHEAF_I32, 1, g->q->in, 0);
    if (st != NULL || g->wrong)
        return st;
    g->q->index = malloc((size_t)g->q->in * sizeof *g->q->index + 1);
    if (g->q->index == NULL)
        return sheaf__no_memory(t->entry.name);
    st = check_index(&in_order, g, groups, g->q->index);
    if (st == NULL && !g->wrong && !in_order && g->q->form.codes == SHEAF__INT8)
        return sheaf__codes_wrong(g, "unread", t, "columns in order, of 8 bits",
                                  "the model that was quantized, in 16 or 32 bits",
                                  "columns by activation");
    if (in_order) {
        free(g->q->index);
        g->q->index = NULL;
    } else {
        g->q->form.grouping = SHEAF__GROUPS_INDEXED;
        g->q->form.groups = groups;
        g->q->group = g->q->form.block;
        g->q->form.block = 0;
    }
    return st;
}

/* ---- zeros of GPTQ ---- */

/* Are zeros all 7, or all 8 (of 8 bits 127, or 128)? Stored ones tell GPTQ's two formats apart. Of
 * 4 bits the first group says it; 8 bits are read without them. */
static sheaf_status *look_at_zeros(sheaf__codes_weight *g)
{
    const bool eight = g->packing->by == SHEAF__GPTQ_8;
    const sheaf_logical *t = g->part[SHEAF__ZEROS_PART];
    const int64_t words = t->entry.shape[1] * (eight ? t->entry.shape[0] : 1);
    const uint32_t seven = eight ? UINT32_C(0x7f7f7f7f) : UINT32_C(0x77777777),
                   next = eight ? UINT32_C(0x80808080) : UINT32_C(0x88888888);
    uint32_t part[PART];
    bool sevens = true, eights = true;
    sheaf_status *st = NULL;
    for (int64_t i = 0; st == NULL && !g->wrong && (sevens || eights) && i < words; i += PART) {
        const int64_t n = words - i < PART ? words - i : PART;
        st = sheaf__codes_read(part, g, SHEAF__ZEROS_PART, 4 * i, 4 * n);
        for (int64_t k = 0; st == NULL && !g->wrong && k < n; k++) {
            sevens = sevens && part[k] == seven;
            eights = eights && part[k] == next;
        }
    }
    g->x->with_zeros++;
    g->x->sevens += sevens;
    g->x->eights += eights;
    return st != NULL || g->wrong || !eight || sevens || eights
               ? st
               : sheaf__codes_wrong(g, "unread", t, "zeros of 128, of 8 bits",
                                    "the model that was quantized, in 16 or 32 bits", "others");
}

/* ---- sizes ---- */

/* compressed-tensors' weight_shape: words may not be full. */
static sheaf_status *read_shape(int64_t shape[2], sheaf__codes_weight *g)
{
    const sheaf_logical *t = g->part[SHEAF__FURTHER_PARTS];
    sheaf_status *st = sheaf__codes_shape(g, t, 1u << SHEAF_I64, 1, 2, 0);
    TRY(st, !g->wrong ? sheaf__codes_read(shape, g, SHEAF__FURTHER_PARTS, 0, 16) : NULL);
    if (st == NULL && !g->wrong &&
        (shape[0] < 1 || shape[1] < 1 || shape[0] > INT64_MAX / 64 / shape[1]))
        st = sheaf__codes_wrong(g, "damaged", t, "two positive numbers, rows and columns", again,
                                "%" PRId64 " and %" PRId64, shape[0], shape[1]);
    return st;
}

static sheaf_status *find_size(sheaf__codes_weight *g)
{
    const sheaf__packing *p = g->packing;
    const sheaf_logical *codes = g->part[SHEAF__CODES_PART];
    int64_t shape[2] = { 0 };
    sheaf_status *st = NULL;
    if (p->by == SHEAF__COMPRESSED_TENSORS_4)
        st = read_shape(shape, g);
    else if (codes->entry.ndim == 2)
        sheaf__plane_size(&shape[0], &shape[1], &p->plane[SHEAF__CODES_PART], codes->entry.shape);
    g->q->out = shape[0];
    g->q->in = shape[1];
    if (st != NULL || g->wrong)
        return st;
    return codes->entry.ndim == 2
               ? check_plane(g, SHEAF__CODES_PART, p->code_types, shape[0], shape[1])
               : check_plane(g, SHEAF__CODES_PART, p->code_types, -1, -1);
}

/* Scales of blocks of rows and columns, of rows, or of groups of a row; *groups of a row. */
static sheaf_status *check_scales(int64_t *groups, sheaf__codes_weight *g)
{
    sheaf__coded *q = g->q;
    const sheaf__packing *p = g->packing;
    const sheaf_logical *scales = g->part[SHEAF__SCALES_PART];
    if (p->squares) {
        q->block_rows = g->how.block[0];
        q->form.block = g->how.block[1];
        return check_plane(g, SHEAF__SCALES_PART, p->scale_types,
                           (q->out + q->block_rows - 1) / q->block_rows,
                           (q->in + q->form.block - 1) / q->form.block);
    }
    if (p->by == SHEAF__BITSANDBYTES)
        return sheaf__codes_shape(g, scales, p->scale_types, 1, q->out, 0);
    *groups =
        scales->entry.ndim == 2 ? scales->entry.shape[!p->plane[SHEAF__SCALES_PART].turned] : -1;
    sheaf_status *st = check_plane(g, SHEAF__SCALES_PART, p->scale_types, q->out, *groups);
    return TRY(st, !g->wrong ? find_block(g, *groups) : NULL);
}

static sheaf_status *check_parts(sheaf__codes_weight *g)
{
    int64_t groups = 0;
    const int zeros = SHEAF__ZEROS_PART;
    sheaf_status *st = find_size(g);
    TRY(st, !g->wrong ? check_scales(&groups, g) : NULL);
    if (st == NULL && !g->wrong && g->packing->plane[zeros].turned && g->q->out % 8 != 0)
        st = sheaf__codes_wrong(g, "shape", g->part[SHEAF__CODES_PART], "a multiple of 8 rows",
                                again, "%" PRId64, g->q->out);
    if (st == NULL && !g->wrong && g->part[zeros] != NULL)
        st = check_plane(g, zeros, 1u << SHEAF_I32, g->q->out, groups);
    if (st == NULL && !g->wrong && sheaf__is_gptq(g->packing->by) &&
        (g->how.symmetric || g->packing->by == SHEAF__GPTQ_8))
        st = look_at_zeros(g);
    if (st == NULL && !g->wrong && g->part[SHEAF__INDEX_PART] != NULL)
        st = read_index(g, groups);
    return TRY(st,
               !g->wrong && g->packing->by == SHEAF__BITSANDBYTES ? sheaf__codes_order(g) : NULL);
}

sheaf_status *sheaf__codes_make(sheaf__codes_weight *g)
{
    const sheaf__packing *p = g->packing;
    const bool flat = p->grouping == SHEAF__GROUPS_FLAT;
    sheaf_status *st = find_parts(g);
    if (st != NULL || g->wrong)
        return st;
    const sheaf_dtype scales = g->part[SHEAF__SCALES_PART]->entry.dtype;
    g->dtype = !p->squares && (scales == SHEAF_F16 || scales == SHEAF_BF16) ? scales : g->x->dtype;
    *g->q = (sheaf__coded){ .form = { .codes = p->codes,
                                      .grouping = p->grouping,
                                      .zeros = p->codes == SHEAF__INT4 &&
                                               g->part[SHEAF__ZEROS_PART] != NULL },
                            .packing = p,
                            .less_one = sheaf__is_gptq(p->by) && g->how.less_one };
    st = flat ? sheaf__codes_state(g) : check_parts(g);
    TRY(st, flat && !g->wrong ? sheaf__codes_tables(g) : NULL);
    for (int i = 0; st == NULL && !g->wrong && i < SHEAF__PARTS; i++)
        if (g->part[i] != NULL)
            st = sheaf__codes_take(g, i);
    return st;
}
