/* started.c - adapters that PEFT began with PiSSA or OLoRA and saved unconverted: their base is the
 * one they name, less the start, which PEFT makes again as it loads them. Here the start comes
 * beside the factors, as sheaf trains them. */
#include "base/base.h"
#include "base/thread.h"
#include "catalog/over_source.h"
#include "lora/match.h"
#include "lora/names.h"
#include "lora/start.h"
#include "ops/kernels.h"

typedef struct started {
    sheaf__over_source over; /* first; its own are all factors, of float32 */
    float **data;
} started;

static sheaf_status *read_box(sheaf_source *self, const char *name, int64_t row0, int64_t rows,
                              int64_t col0, int64_t cols, void *dst)
{
    const started *s = (const started *)self;
    const int64_t at = sheaf__over_find(&s->over, name);
    if (at < 0)
        return s->over.under->read(s->over.under, name, row0, rows, col0, cols, dst);
    const int64_t wide = s->over.own[at].shape[1];
    for (int64_t r = 0; r < rows; r++)
        memcpy((float *)dst + r * cols, s->data[at] + (row0 + r) * wide + col0,
               (size_t)cols * sizeof(float));
    return NULL;
}

static void release(sheaf__over_source *self)
{
    started *s = (started *)self;
    for (int64_t i = 0; s->data != NULL && i < s->over.count + 2; i++) /* and of a failed layer */
        free(s->data[i]);
    free(s->data);
}

sheaf_status *sheaf__start_read(float *to, int64_t ld, sheaf_source *from,
                                const sheaf_source_entry *e, int64_t row0, int64_t rows,
                                int64_t cols)
{
    const sheaf__kernels *kernels = sheaf__kernels_for(NULL);
    char *row = malloc((size_t)cols * sheaf_dtype_bytes(e->dtype) + 1);
    sheaf_status *st = row == NULL ? sheaf__no_memory(e->name) : NULL;
    for (int64_t r = 0; r < rows && st == NULL; r++) {
        st = from->read(from, e->name, row0 + r, 1, 0, cols, row);
        if (st == NULL)
            kernels->convert(to + r * ld, SHEAF_F32, row, e->dtype, cols);
    }
    free(row);
    return st;
}

/* Factors of one layer and its weight, as they are stored. */
typedef struct layer {
    const sheaf_source_entry *a, *b, *w;
    float scale;
} layer;

static sheaf_status *unknown(const char *name)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", name);
    sheaf_expected(st, "factors of a linear layer of the base, whose start is known");
    return sheaf_try_this(
        st,
        "save the adapter as plain LoRA: save_pretrained(..., path_initial_model_for_weight_conversion=...)");
}

static sheaf_status *find_layer(layer *out, sheaf_source *adapter, const sheaf_source_entry *a,
                                const sheaf_lora_options *o, sheaf_source *base)
{
    const char *path;
    size_t length;
    char name[512], module[480];
    sheaf__lora_part(&path, &length, a->name);
    snprintf(name, sizeof name, "%.*s.lora_B.weight", (int)(path + length - a->name), a->name);
    snprintf(module, sizeof module, "%.*s", (int)length, path);
    *out = (layer){ .a = a, .b = adapter->find(adapter, name) };
    snprintf(name, sizeof name, "%s.weight", module);
    out->w = base->find(base, name);
    const sheaf_source_entry *b = out->b, *w = out->w;
    if (b == NULL || w == NULL || a->ndim != 2 || b->ndim != 2 || w->ndim != 2 ||
        a->shape[1] != w->shape[1] || b->shape[0] != w->shape[0] || a->shape[0] != b->shape[1] ||
        a->shape[0] > w->shape[0] || a->shape[0] > w->shape[1] || o->fan_in_fan_out)
        return unknown(a->name);
    double alpha;
    sheaf_status *st = sheaf__lora_pattern_value(&alpha, &o->alpha_pattern, module, o->alpha);
    if (st == NULL)
        out->scale = sheaf_lora_scale(alpha, a->shape[0], o->rslora);
    return st;
}

/* [A; A0] and [B, -B0] */
static sheaf_status *add_layer(started *s, const layer *l, sheaf_lora_init init, sheaf_source *base,
                               sheaf__pool *pool)
{
    const int64_t rank = l->a->shape[0], in = l->w->shape[1], out = l->w->shape[0];
    float *w = malloc((size_t)(in * out) * sizeof *w),
          *a = s->data[s->over.count] = malloc((size_t)(2 * rank * in) * sizeof *a),
          *b = s->data[s->over.count + 1] = malloc((size_t)(2 * rank * out) * sizeof *b);
    sheaf_status *st = w == NULL || a == NULL || b == NULL ? sheaf__no_memory(l->a->name) : NULL;
    TRY(st, sheaf__start_read(w, in, base, l->w, 0, out, in));
    TRY(st, sheaf__start_read(a, in, s->over.under, l->a, 0, rank, in));
    TRY(st, sheaf__start_read(b, 2 * rank, s->over.under, l->b, 0, out, rank));
    TRY(st, sheaf__start_hold(a, b, false, init,
                              &(sheaf__start){ .w = w,
                                               .name = l->w->name,
                                               .out = out,
                                               .in = in,
                                               .rank = rank,
                                               .scale = l->scale,
                                               .pool = pool }));
    free(w);
    const sheaf_source_entry of_a = { .dtype = SHEAF_F32, .ndim = 2, .shape = { 2 * rank, in } },
                             of_b = { .dtype = SHEAF_F32, .ndim = 2, .shape = { out, 2 * rank } };
    TRY(st, sheaf__over_add(&s->over, strdup(l->a->name), of_a));
    return TRY(st, sheaf__over_add(&s->over, strdup(l->b->name), of_b));
}

sheaf_status *sheaf__lora_take_start(sheaf_source **adapter, sheaf_lora_options *o,
                                     sheaf_source *base)
{
    sheaf_source *under = *adapter;
    sheaf__pool *pool = NULL;
    if (!sheaf__start_is_held(o->init))
        return NULL;
    const int64_t n = base == NULL || under == NULL ? 0 : under->count(under);
    started *s = sheaf__over_new(sizeof *s, under, n, read_box, release);
    sheaf_status *st = s == NULL ? sheaf__no_memory("adapter") : NULL;
    TRY(st, sheaf__pool_new(&pool, sheaf__cores(0)));
    if (st == NULL && (s->data = calloc((size_t)n + 2, sizeof *s->data)) == NULL)
        st = sheaf__no_memory("adapter");
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf_source_entry *e = under->entry(under, i);
        const char *path;
        size_t length;
        const sheaf_lora_part part = sheaf__lora_part(&path, &length, e->name);
        layer l;
        if (part == SHEAF_PART_TABLE_A || (part == SHEAF_PART_A && o->parameters.n > 0))
            st = unknown(e->name);
        else if (part == SHEAF_PART_A) {
            st = find_layer(&l, under, e, o, base);
            TRY(st, add_layer(s, &l, o->init, base, pool));
        }
    }
    sheaf__pool_free(pool);
    if (st == NULL && n > 0)
        *adapter = &s->over.source;
    else
        sheaf__over_free(s);
    if (st == NULL) {
        sheaf__lora_double(o);
        o->init = SHEAF_LORA_DEFAULT;
    }
    return st;
}
