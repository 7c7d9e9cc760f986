/* launch_attention.c - launches of attention (kernels/attention.h). */
#include "ops/devices/gpu/launch.h"

#include <stdio.h>
#include <stdlib.h>

#include "ops/attention/attention_arguments.h"
#include "ops/devices/gpu/kernels/attention.h"
#include "ops/devices/gpu/cuda/kernels/attention_few.h"

enum { SIDE = 32, ROWS = 64, FMA_THREADS = 256, MMA_THREADS = 128 };

static int64_t parts(int64_t count, int64_t size)
{
    return (count + size - 1) / size;
}

/* ---- the argument ---- */

static bool is_even(const sheaf__attention_arguments *a)
{
    const sheaf__attention *s = &a->shape;
    const uintptr_t all = (uintptr_t)a->q | (uintptr_t)a->k | (uintptr_t)a->v | (uintptr_t)a->d_o;
    return all % 16 == 0 && s->head_dim % 8 == 0 && s->ldq % 8 == 0 && s->ldk % 8 == 0 &&
           s->ldv % 8 == 0 && (a->d_o == NULL || s->ldo % 8 == 0);
}

static sheaf__attention_part part_of(const sheaf__gpu *gpu, const sheaf__attention_arguments *a)
{
    const sheaf__attention *s = &a->shape;
    const sheaf_sums sums = sheaf__sums_of_values(sheaf__gpu_sums(gpu));
    return (sheaf__attention_part){
        .o = a->o,
        .stats = a->stats,
        .q = a->q,
        .k = a->k,
        .v = a->v,
        .d_o = a->d_o,
        .dq = a->dq,
        .dk = a->dk,
        .dv = a->dv,
        .key_mask = s->key_mask,
        .mask_ld = s->mask_ld,
        .ldq = s->ldq,
        .ldk = s->ldk,
        .ldv = s->ldv,
        .ldo = s->ldo,
        .kv_rows = s->kv_rows,
        .batch = (int32_t)s->batch,
        .queries = (int32_t)s->queries,
        .keys = (int32_t)s->keys,
        .kv_heads = (int32_t)s->kv_heads,
        .group = (int32_t)s->group,
        .head_dim = (int32_t)s->head_dim,
        .window = s->full || s->window > s->keys ? 0 : (int32_t)s->window,
        .scale = s->scale,
        .cap = s->cap,
        .full = s->full,
        .by_head = s->by_head,
        .pairs = s->dtype == SHEAF_BF16 && sums <= SHEAF_SUMS_PAIRS,
        .tiles = s->dtype == SHEAF_BF16 && sums == SHEAF_SUMS_TILES,
        .even = is_even(a),
    };
}

/* Blocks of `size` queries or keys. With segments also where each begins, and with which block. */
static bool divide(sheaf__gpu *gpu, sheaf__attention_part *p, const sheaf__attention *s,
                   int64_t rows, int size, int64_t heads)
{
    if (s->segment == NULL) {
        p->per = (int32_t)parts(rows, size);
        p->tasks = heads * s->batch * p->per;
        return true;
    }
    const int64_t n = s->segments + 1;
    int64_t *table = malloc((size_t)n * 2 * sizeof *table), first = 0;
    if (table == NULL)
        return false;
    for (int64_t i = 0; i < n; i++) {
        table[i] = s->segment[i];
        table[n + i] = first;
        if (i + 1 < n)
            first += parts(s->segment[i + 1] - s->segment[i], size);
    }
    p->segment = sheaf__gpu_stage(gpu, table, (size_t)n * 2 * sizeof *table);
    p->segments = (int32_t)s->segments;
    p->tasks = heads * first;
    free(table);
    return p->segment != NULL;
}

/* ---- launches ---- */

/* Blocks that are launched: where chains, or parts, end on the way, no more than have room for
 * their sums. */
static int64_t blocks_of(const sheaf__attention_part *p, bool ends, int sets, int wide, size_t room)
{
    const int64_t most = (int64_t)(room / ((size_t)sets * (size_t)wide * ROWS * sizeof(float)));
    return !ends || p->tasks < most ? p->tasks : most;
}

static int width_of(const sheaf__attention *s)
{
    return s->head_dim <= 64 ? 64 : s->head_dim <= 96 ? 96 : s->head_dim <= 128 ? 128 : 256;
}

/* Rows of shared memory of elements of 16 bits. */
static size_t rows_bytes(int rows, int wide)
{
    return (size_t)rows * (size_t)(wide + 8) * 2;
}
static size_t fma_bytes(const sheaf__attention *s)
{
    const int64_t wide = (s->head_dim + 31) / 32 * 32;
    return (size_t)(2 * SIDE * (wide + 1) + SIDE * (SIDE + 1)) * sizeof(float) + SIDE * (SIDE + 1);
}

static void launch_mma(sheaf__gpu *gpu, const char *what, const sheaf__attention *s, int64_t blocks,
                       size_t shared, const sheaf__attention_part *p)
{
    char name[64];
    snprintf(name, sizeof name, "attention_%s_mma%d_%s", what, width_of(s),
             s->dtype == SHEAF_F16 ? "f16" : "bf16");
    SHEAF__LAUNCH(gpu, name, blocks, 1, MMA_THREADS, shared, p);
}

static bool is_mma(const sheaf__gpu *gpu, const sheaf__attention *s)
{
    return sheaf__by_mma(sheaf__gpu_sums(gpu), s->dtype);
}

static int64_t heads_of(const sheaf__attention *s)
{
    return s->kv_heads * s->group;
}

/* ---- few queries, many keys ---- */

enum { FEW_QUERIES = 16, FEW_LEAST = 64 /* keys: fewer are a tile */ };

/* Its rows, keys and parts; false: others are faster. */
static bool few_shape(sheaf__attention_few *f, const sheaf__attention *s)
{
    if (s->segment != NULL || s->queries > FEW_QUERIES || s->queries * s->group > FEW_ROWS ||
        s->keys <= FEW_LEAST)
        return false;
    const int64_t least = s->keys - s->queries - f->part.window + 1;
    const int64_t begin = f->part.window > 0 && least > 0 ? least / FEW_KEYS * FEW_KEYS : 0;
    f->rows = (int32_t)(s->queries * s->group);
    f->begin = (int32_t)begin;
    f->keys = (int32_t)(parts(s->keys - begin, FEW_KEYS) * FEW_KEYS);
    f->first = (int32_t)(begin / SHEAF__ATTENTION_PART);
    f->parts = (int32_t)((s->keys - 1) / SHEAF__ATTENTION_PART) - f->first + 1;
    return true;
}

static void launch_few(sheaf__gpu *gpu, const char *what, const sheaf__attention_few *f,
                       sheaf_dtype dtype, int64_t blocks, int threads, size_t shared)
{
    char name[64];
    snprintf(name, sizeof name, "attention_few_%s_%s", what, dtype == SHEAF_F16 ? "f16" : "bf16");
    SHEAF__LAUNCH(gpu, name, blocks, 1, threads, shared, f);
}

static void launch_units(sheaf__gpu *gpu, const sheaf__attention_few *f, const sheaf__attention *s)
{
    const int64_t wide = parts(s->head_dim, 16) * 16, slices = parts(s->head_dim, FEW_CHANNELS);
    const int lines = (int)parts(f->rows, 16) * 16;
    launch_few(gpu, "scores", f, s->dtype, f->units * (f->keys / FEW_SCORES), MMA_THREADS,
               rows_bytes(FEW_SCORES + lines, (int)wide));
    launch_few(gpu, "rows", f, s->dtype, f->units * f->rows * f->parts, FEW_ROW_THREADS,
               sizeof(sheaf__attention_few_row));
    launch_few(gpu, "values", f, s->dtype, f->units * f->parts * slices, MMA_THREADS,
               (size_t)(attention_few_stages(f->rows) * attention_few_stage(f->rows)) * 2);
    if (f->parts > 1)
        launch_few(gpu, "join", f, s->dtype, parts(f->units * f->rows * s->head_dim, FMA_THREADS),
                   FMA_THREADS, 0);
}

/* As many units at a time as there is room for. */
static bool launch_all_few(sheaf__gpu *gpu, const sheaf__attention_part *p,
                           const sheaf__attention *s)
{
    sheaf__attention_few f = { .part = *p };
    f.part.per = 1;
    if (!few_shape(&f, s))
        return false;
    const size_t scores = (size_t)f.rows * (size_t)f.keys,
                 part_rows = (size_t)f.rows * (size_t)f.parts,
                 unit = scores * (sizeof(float) + sizeof(uint16_t)) +
                        part_rows * (sizeof(float) * ((size_t)s->head_dim + FEW_BLOCKS) +
                                     sizeof(attention_all));
    const int64_t units = s->batch * s->kv_heads, room = (int64_t)(SHEAF__GPU_SCRATCH / unit),
                  most = room < units ? room : units;
    if (most == 0)
        return false;
    f.score = sheaf__gpu_scratch(gpu);
    f.weight = (uint16_t *)(void *)(f.score + (size_t)most * scores);
    f.sum = (float *)(void *)(f.weight + (size_t)most * scores);
    f.factor = f.sum + (size_t)most * part_rows * (size_t)s->head_dim;
    f.part_of = (attention_all *)(void *)(f.factor + (size_t)most * part_rows * FEW_BLOCKS);
    for (; f.unit < units; f.unit += f.units) {
        f.units = units - f.unit < most ? units - f.unit : most;
        launch_units(gpu, &f, s);
    }
    return true;
}

bool sheaf__gpu_op_attention(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__attention_arguments *a = call->arguments;
    const sheaf__attention *s = &a->shape;
    const bool mma = is_mma(gpu, s);
    const int wide = width_of(s);
    sheaf__attention_part p = part_of(gpu, a);
    if (mma && !sheaf__gpu_computes(gpu, sheaf__gpu_sums(gpu)))
        return false;
    if (mma && launch_all_few(gpu, &p, s))
        return true;
    if (!divide(gpu, &p, s, s->queries, mma ? ROWS : SIDE, heads_of(s)))
        return false;
    const bool ends = s->keys > SHEAF__ATTENTION_PART, kept = wide == 64 || wide == 128;
    if (ends)
        p.total = sheaf__gpu_scratch(gpu);
    if (!mma) { /* half as many rows; and M and the sum of each, for each 16th of it */
        const int64_t blocks =
            blocks_of(&p, ends, 1, (SHEAF__HEAD_DIM_MAX + 32) * SIDE / ROWS, SHEAF__GPU_SCRATCH);
        SHEAF__LAUNCH(gpu, SHEAF__TYPED(attention_forward_fma, s->dtype), blocks, 1, FMA_THREADS,
                      fma_bytes(s), &p);
        return true;
    }
    launch_mma(gpu, "forward", s, blocks_of(&p, ends, 1, wide, SHEAF__GPU_SCRATCH),
               rows_bytes(ROWS + (kept ? 1 : 2) * SHEAF__ATTENTION_KEYS, wide), &p);
    return true;
}

/* ---- backward ---- */

static void back_mma(sheaf__gpu *gpu, const sheaf__attention *s, sheaf__attention_part *p,
                     const sheaf__attention_part *keys, size_t room)
{
    const int wide = width_of(s);
    const size_t shared = rows_bytes(2 * ROWS + (wide > 128 ? 2 : 4) * SIDE, wide);
    launch_mma(gpu, "dq", s, blocks_of(p, s->keys > ATTENTION_CHAIN, 1, wide, room), shared, p);
    const int64_t blocks = blocks_of(keys, s->queries > ATTENTION_CHAIN, 2, wide, room);
    if (wide > 128) {
        launch_mma(gpu, "dv", s, blocks, shared, keys);
        launch_mma(gpu, "dk", s, blocks, shared, keys);
    } else {
        launch_mma(gpu, "dkv", s, blocks, shared, keys);
    }
}

/* The arguments of `heads` key heads from `first` on. */
static sheaf__attention_arguments some_heads(const sheaf__attention_arguments *all, int64_t first,
                                             int64_t heads)
{
    sheaf__attention_arguments of = *all;
    const size_t key = (size_t)(first * all->shape.head_dim) * sheaf_dtype_bytes(all->shape.dtype),
                 query = key * (size_t)all->shape.group;
    of.shape.kv_heads = heads;
    of.q = (const char *)all->q + query;
    of.o = (char *)all->o + query;
    of.d_o = (const char *)all->d_o + query;
    of.dq = (char *)all->dq + query;
    of.k = (const char *)all->k + key;
    of.v = (const char *)all->v + key;
    of.dk = (char *)all->dk + key;
    of.dv = (char *)all->dv + key;
    return of;
}

/* `kept`: bytes of what is kept of each query. */
static bool back(sheaf__gpu *gpu, sheaf__attention_part p, const sheaf__attention *s, size_t kept)
{
    const bool mma = is_mma(gpu, s);
    const int size = mma ? ROWS : SIDE;
    if (!divide(gpu, &p, s, s->queries, size, heads_of(s)))
        return false;
    p.row = sheaf__gpu_scratch(gpu);
    p.total = (float *)(void *)((char *)p.row + kept);
    sheaf__attention_part keys = p;
    if (s->segment != NULL)
        keys.tasks = p.tasks / s->group;
    else
        divide(gpu, &keys, s, s->keys, size, s->kv_heads);
    SHEAF__LAUNCH(gpu, SHEAF__TYPED(attention_rows, s->dtype),
                  parts(s->batch * s->queries * heads_of(s), 16), 1, FMA_THREADS, 0, &p);
    if (mma) {
        back_mma(gpu, s, &p, &keys, SHEAF__GPU_SCRATCH - kept);
        return true;
    }
    SHEAF__LAUNCH(gpu, SHEAF__TYPED(attention_dq_fma, s->dtype), p.tasks, 1, FMA_THREADS,
                  fma_bytes(s), &p);
    SHEAF__LAUNCH(gpu, SHEAF__TYPED(attention_dkv_fma, s->dtype), 2 * keys.tasks, 1, FMA_THREADS,
                  fma_bytes(s), &keys);
    return true;
}

/* As many key heads at a time as there is room for what is kept of their queries; false, but for
 * other tensor cores: there is none for one head. */
bool sheaf__gpu_op_attention_back(sheaf__gpu *gpu, const sheaf__call *call)
{
    const sheaf__attention_arguments *a = call->arguments;
    const sheaf__attention *s = &a->shape;
    const size_t head = (size_t)(s->batch * s->queries * s->group) * sizeof(sheaf__attention_row);
    const int64_t room = head == 0 ? s->kv_heads : (int64_t)(sheaf__gpu_kept(gpu) / head);
    bool done = room > 0 && (!is_mma(gpu, s) || sheaf__gpu_computes(gpu, sheaf__gpu_sums(gpu)));
    for (int64_t h = 0, n; h < s->kv_heads && done; h += n) {
        n = s->kv_heads - h < room ? s->kv_heads - h : room;
        const sheaf__attention_arguments of = some_heads(a, h, n);
        sheaf__attention_part p = part_of(gpu, &of);
        p.first_head = (int32_t)(h * s->group);
        p.stats_heads = (int32_t)heads_of(s);
        done = back(gpu, p, &of.shape, (size_t)n * head);
    }
    return done;
}
