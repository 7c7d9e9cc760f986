/* launch_tensor.c - launches of operations of ops/tensor that are no row of operations.c: of
 * several kernels, with arguments that the host makes, or with numbers for the host. Sums of
 * columns and norms: launch_norm.c. */
#include "ops/devices/gpu/kernels/experts.h"
#include "ops/devices/gpu/kernels/gradients.h"
#include "ops/devices/gpu/kernels/loss.h"
#include "ops/devices/gpu/kernels/rows.h"
#include "ops/devices/gpu/kernels/sums.h"
#include "ops/devices/gpu/kernels/trained.h"
#include "ops/devices/gpu/kernels/weights.h"
#include "ops/devices/gpu/launch.h"
#include "ops/matmul/matmul_private.h"
#include "ops/matmul/matmul_weight.h"
#include "ops/quant/quantise.h"
#include "ops/tensor/elements.h"
#include "ops/tensor/rows.h"
#include "ops/tensor/trained.h"

/* ---- elements ---- */

static void convert(sheaf__gpu *gpu, void *dst, sheaf_dtype to, const void *src, sheaf_dtype from,
                    int64_t n)
{
    const sheaf__pair p = { .dst = dst, .src = src, .to = to, .from = from, .n = n };
    SHEAF__EACH(gpu, SHEAF__TYPED(convert, to), sheaf__gpu_threads(n, sheaf__gpu_narrow(to, from)),
                &p);
}

/* All that is written before the next number to be read may be written at once, which is half of
 * the rest; when that fits, the rest goes by way of scratch. */
bool sheaf__gpu_op_widen(sheaf__gpu *gpu, const sheaf__call *call)
{
    enum { REST = 1 << 15 };
    _Static_assert(REST * sizeof(uint16_t) <= SHEAF__GPU_SCRATCH, "");
    const sheaf__widening *w = call->arguments;
    const size_t size = sheaf_dtype_bytes(w->dtype);
    const char *narrow = (const char *)w->wide + (size_t)w->n * (sizeof(float) - size);
    void *scratch = sheaf__gpu_scratch(gpu);
    int64_t i = 0;
    for (int64_t m; w->n - i > REST; i += m) {
        m = (w->n - i) / 2;
        convert(gpu, w->wide + i, SHEAF_F32, narrow + (size_t)i * size, w->dtype, m);
    }
    convert(gpu, scratch, w->dtype, narrow + (size_t)i * size, w->dtype, w->n - i);
    convert(gpu, w->wide + i, SHEAF_F32, scratch, w->dtype, w->n - i);
    return true;
}

/* ---- the optimizer ---- */

bool sheaf__gpu_op_adamw(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__update *u = call->arguments;
    const adamw_arguments a = { u->master, u->moment1, u->moment2,
                                u->grad,   u->n,       sheaf__adamw_prepare(&u->how) };
    SHEAF__EACH(gpu, "adamw", sheaf__gpu_threads(u->n, SHEAF_F32), &a);
    return true;
}

bool sheaf__gpu_op_adamw8(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__update8 *u = call->arguments;
    adamw8_arguments a = { u->master,  u->moment1, u->moment2, u->absmax1,
                           u->absmax2, u->grad,    u->n,       sheaf__adamw_prepare(&u->how) };
    for (int k = 0; k < 2; k++)
        memcpy(a.map[k], u->map[k].value, sizeof a.map[k]);
    SHEAF__LAUNCH(gpu, "adamw8", (u->n + SHEAF__ADAMW8_BLOCK - 1) / SHEAF__ADAMW8_BLOCK, 1,
                  SHEAF__ADAMW8_BLOCK, ADAMW8_SHARED, &a);
    return true;
}

/* ---- rows ---- */

/* Bytes of the largest word that all places of boxes are multiples of. */
static int word_of(const boxes_arguments *b)
{
    uint64_t all = (uintptr_t)b->dst | (uintptr_t)b->src | (uint64_t)b->words;
    for (int i = 0; i < 3; i++)
        all |= (uint64_t)(b->ld_dst[i] | b->ld_src[i]);
    return (all & 15) == 0 ? 16 : (all & 3) == 0 ? 4 : 2;
}

bool sheaf__gpu_op_copy_boxes(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__boxes *b = call->arguments;
    const int64_t size = (int64_t)sheaf_dtype_bytes(b->dtype);
    boxes_arguments a = { .dst = b->dst, .src = b->src, .words = b->cols * size };
    int64_t rows = 1;
    for (int i = 0; i < 3; i++) { /* in bytes; of what there is one of, no distance counts */
        a.count[i] = b->count[i];
        a.ld_dst[i] = b->count[i] == 1 ? 0 : b->ld_dst[i] * size;
        a.ld_src[i] = b->count[i] == 1 ? 0 : b->ld_src[i] * size;
        rows *= b->count[i];
    }
    a.word = word_of(&a);
    a.words /= a.word;
    for (int i = 0; i < 3; i++) {
        a.ld_dst[i] /= a.word;
        a.ld_src[i] /= a.word;
    }
    SHEAF__EACH(gpu, "copy_boxes", rows * a.words, &a);
    return true;
}

/* Rows of a weight are rows of a table. */
bool sheaf__gpu_op_packed_rows(sheaf__gpu *gpu, const sheaf__call *call)
{
    const mm_lookup *l = call->arguments;
    sheaf__lookup table = { .pieces = l->pieces,
                            .tokens = l->tokens,
                            .x = l->x,
                            .dtype = l->dtype,
                            .from = l->w[0].dtype,
                            .cols = l->w[0].k };
    for (int i = 0; i < l->pieces.count; i++) {
        if (l->w[i].quantised) /* tables are not: linear layers alone */
            return false;
        table.pieces.at[i] = l->w[i].ahead == NULL ? NULL : mm_row_at(&l->w[i], 0);
    }
    SHEAF__EACH(gpu, SHEAF__TYPED(table_rows, l->dtype),
                l->tokens.n *
                    sheaf__gpu_threads(table.cols, sheaf__gpu_narrow(l->dtype, table.from)),
                &table);
    return true;
}

static bool by_token(sheaf__gpu *gpu, const sheaf__lookup *l, bool factor)
{
    const int64_t n = l->tokens.n;
    if (n == 0 || l->cols == 0)
        return true;
    if ((size_t)(2 * n) * sizeof(int32_t) > SHEAF__GPU_SCRATCH)
        return false;
    int32_t *order = sheaf__gpu_scratch(gpu);
    const tokens_sort_arguments sort = { l->tokens, order, order + n };
    const tokens_add_arguments add = { *l, order, order + n, factor };
    SHEAF__EACH(gpu, "tokens_sort", 32 * n, &sort);
    SHEAF__LAUNCH(gpu, SHEAF__TYPED(tokens_add, l->dtype), n, (l->cols + 255) / 256,
                  l->cols < 256 ? (int)((l->cols + 31) / 32 * 32) : 256, 0, &add);
    return true;
}

bool sheaf__gpu_op_table_gradient(sheaf__gpu *gpu, const sheaf__call *call)
{
    return by_token(gpu, call->arguments, false);
}

bool sheaf__gpu_op_factor_gradient(sheaf__gpu *gpu, const sheaf__call *call)
{
    return by_token(gpu, call->arguments, true);
}

/* ---- weights, which lie row by row, and are loaded by transfers ---- */

bool sheaf__gpu_op_weight_refresh(sheaf__gpu *gpu, const sheaf__call *call)
{
    const mm_load *l = call->arguments;
    if (l->w.quantised)
        return false;
    const sheaf__weight_rows rows = { mm_row_at(&l->w, 0), l->src, l->w.n * l->w.k };
    SHEAF__EACH(gpu, SHEAF__TYPED(weight_refresh, l->w.dtype), mm_div_up(rows.n, 8), &rows);
    return true;
}

/* ---- experts ---- */

bool sheaf__gpu_op_share_back(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__share *s = call->arguments;
    if (s->dweights != NULL)
        SHEAF__LAUNCH(gpu, SHEAF__TYPED(share_dot, s->dtype), s->rows, 1, SHARE_THREADS,
                      2 * SHARE_CHUNK * sizeof(double), s);
    if (s->dy != NULL)
        SHEAF__EACH(gpu, SHEAF__TYPED(share_back, s->dtype),
                    s->rows * sheaf__gpu_threads(s->cols, s->dtype), s);
    return true;
}

/* ---- sums, and numbers for the host ---- */

bool sheaf__gpu_op_row_sums(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__of_rows *o = call->arguments;
    const sheaf__row_sums *to = &o->sums;
    row_sums_arguments a = { .l = o->l,
                             .max = o->max,
                             .exponentials = to->exponentials,
                             .logits = to->logits,
                             .ld = to->ld };
    for (int s = 0; s < to->slices; s++)
        a.begin[s] = to->begin[s], a.extent[s] = to->extent[s];
    if (to->slices > 0)
        SHEAF__LAUNCH(gpu, "row_sums", o->l.rows, to->slices, ROW_SUMS_THREADS,
                      (to->logits != NULL ? 4 : 2) * ROW_SUMS_CHUNK * sizeof(float), &a);
    return true;
}

/* The host adds up, in double, what the rows lose. */
bool sheaf__gpu_op_losses(sheaf__gpu *gpu, const sheaf__call *call)
{
    enum { ROWS = 1024 };
    const sheaf__losses *of = call->arguments;
    for (int64_t first = 0, n; first < of->rows; first += n) {
        float read[2 * ROWS] = { 0 }, *scratch = sheaf__gpu_scratch(gpu);
        n = of->rows - first < ROWS ? of->rows - first : ROWS;
        losses_arguments a = { *of, scratch };
        a.of.max += first, a.of.sum += first, a.of.target += first, a.of.rows = n;
        a.of.logits = of->logits == NULL ? NULL : of->logits + first;
        a.of.first = of->first == NULL ? NULL : of->first + first;
        SHEAF__EACH(gpu, "losses", n, &a);
        sheaf__gpu_read(gpu, read, scratch, (size_t)(2 * n) * sizeof *read);
        for (int64_t i = 0; i < n; i++)
            if (of->label[first + i] >= 0)
                sheaf__losses_add(of, first + i, read[i], read[n + i]);
    }
    return true;
}

bool sheaf__gpu_op_squares(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__squares_of *of = call->arguments;
    const size_t n = (size_t)of->count;
    squares_item item[SHEAF__SQUARES];
    double sum[SHEAF__SQUARES] = { 0 };
    for (size_t i = 0; i < n; i++)
        item[i] = (squares_item){ of->each[i].x, of->each[i].n };
    const squares_arguments a = { sheaf__gpu_stage(gpu, item, n * sizeof *item),
                                  sheaf__gpu_scratch(gpu) };
    if (a.item == NULL)
        return true; /* the device's failure */
    SHEAF__LAUNCH(gpu, "squares", of->count, 1, SQUARES_THREADS, 2 * SQUARES_CHUNK * sizeof(double),
                  &a);
    sheaf__gpu_read(gpu, sum, a.sum, n * sizeof *sum);
    for (size_t i = 0; i < n; i++)
        of->each[i].sum = sum[i];
    return true;
}

bool sheaf__gpu_op_is_finite(sheaf__gpu *gpu, const sheaf__call *call)
{
    enum { THREADS = 256, PER_BLOCK = THREADS * 8 * 4, BLOCKS = 1024 };
    const sheaf__look *of = call->arguments;
    const int64_t all = (of->n + PER_BLOCK - 1) / PER_BLOCK, blocks = all < BLOCKS ? all : BLOCKS;
    int32_t found[BLOCKS] = { 0 };
    const finite_arguments a = { *of, sheaf__gpu_scratch(gpu) };
    SHEAF__LAUNCH(gpu, SHEAF__TYPED(finite, of->from), blocks, 1, THREADS,
                  THREADS / 32 * sizeof(int32_t), &a);
    sheaf__gpu_read(gpu, found, a.found, (size_t)blocks * sizeof *found);
    for (int64_t b = 0; b < blocks; b++)
        if (found[b])
            sheaf__look_found(of);
    return true;
}
