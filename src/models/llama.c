/* llama.c - see llama.h. The pass itself is at the end and reads like the formula. */
#include "models/llama.h"

#include <stdlib.h>
#include <string.h>

#include "models/load.h"
#include "ops/math/math.h"
#include "base/random.h"

/* ---- building ---- */

typedef struct build {
    sheaf__model *m;
    sheaf__context *c;
    const sheaf_schema *schema;
} build;

static bool is_saved(const build *b, const sheaf_tensor *t)
{
    const sheaf__model_options *o = &b->m->options;
    for (int i = 0; o->train_lora && o->lora != NULL && i < o->lora->nsaved; i++)
        if (o->lora->saved[i] == t)
            return true;
    return o->trains != NULL && o->trains(o->self, t);
}

/* Names without decay: biases and norms, as the HF Trainer's rule (reference llama.md, section 5). */
static bool decays(const sheaf_tensor *t)
{
    return !t->bias && t->role != SHEAF_NORM_IN && t->role != SHEAF_NORM_POST && t->role != SHEAF_NORM_FINAL;
}

static sheaf_status *add_trained(sheaf__trained **out, build *b, const sheaf_tensor *t)
{
    return sheaf__trained_add(out, b->m->trained, t->name, t->ndim, t->shape, &t->cut, decays(t));
}

static sheaf_status *build_norm(build *b, sheaf__norm *norm, sheaf_role role, int layer)
{
    const sheaf_tensor *t = sheaf_schema_get(b->schema, role, layer, false);
    *norm = (sheaf__norm){ .name = t->name, .width = t->shape[0], .eps = (float)b->schema->config.rms_eps };
    sheaf_status *st = sheaf__take(&norm->weight, b->c, (size_t)norm->width * sizeof(float), SHEAF_MEM_WEIGHTS);
    return st == NULL && is_saved(b, t) ? add_trained(&norm->trained, b, t) : st;
}

static const sheaf_lora_module *lora_of(const build *b, const sheaf_tensor *t, int *index)
{
    const sheaf_lora *lora = b->m->options.lora;
    for (*index = 0; lora != NULL && *index < lora->nmodules; (*index)++)
        if (lora->module[*index].base == t)
            return &lora->module[*index];
    return NULL;
}

/* Compute copies of A and B, in the layout of trained tensors: slice after slice. */
static sheaf_status *build_lora(build *b, sheaf__linear *l, const sheaf_tensor *t)
{
    int index;
    const sheaf_lora_module *module = lora_of(b, t, &index);
    if (module == NULL)
        return NULL;
    sheaf__lora_part *part = l->lora = &b->m->lora[index];
    *part = (sheaf__lora_part){ .rank = module->rank, .scale = module->scale,
                                .dropout = b->m->options.lora->options.dropout,
                                .purpose = sheaf__name_key(t->module) };
    sheaf_status *st = NULL;
    for (int f = 0; f < 2 && st == NULL; f++) {
        const sheaf_cut *cut = f == 0 ? &module->a_cut : &module->b_cut;
        const int64_t *shape = f == 0 ? module->a_shape : module->b_shape;
        sheaf__trained *trained = NULL;
        if (b->m->options.train_lora) {
            st = sheaf__trained_add(&trained, b->m->trained, f == 0 ? module->a_name : module->b_name, 2, shape, cut, true);
            *(f == 0 ? &part->a : &part->b) = trained;
        }
        const bool whole = cut->nparts == 0;
        const int first = whole ? 0 : (int)b->c->own.begin, end = whole ? 1 : (int)b->c->own.end;
        for (int s = first; s < end && st == NULL; s++) {
            const int64_t n = whole ? shape[0] * shape[1]
                                    : sheaf_cut_slice_rows(cut, s) * shape[cut->axis == 0 ? 1 : 0];
            (f == 0 ? part->a_numel : part->b_numel)[s] = n;
            st = sheaf__take(&(f == 0 ? part->a_copy : part->b_copy)[s], b->c,
                             (size_t)n * sheaf_dtype_bytes(b->c->dtype),
                             trained != NULL ? SHEAF_MEM_TRAINED : SHEAF_MEM_WEIGHTS);
        }
    }
    return st;
}

static void lay_out_slices(const build *b, sheaf__linear *l, const sheaf_tensor *t)
{
    bool present[SHEAF_MAX_SLICES];
    l->first = (int)b->c->own.begin;
    l->count = (int)(b->c->own.end - b->c->own.begin);
    for (int s = 0; s < b->c->slices; s++) {
        const sheaf_range rows = sheaf_tensor_slice(t, s);
        l->extent[s] = rows.end - rows.begin;
        present[s] = l->extent[s] > 0;
        if (s == l->first)
            l->logical0 = rows.begin;
        if (s >= l->first && s < l->first + l->count) {
            l->begin[s] = l->owned;
            l->owned += l->extent[s];
        }
    }
    sheaf_tree_init(&l->tree, b->c->slices, b->c->ranks, present);
}

static sheaf_status *build_linear(build *b, sheaf__linear *l, sheaf_role role, int layer)
{
    const sheaf_tensor *t = sheaf_schema_get(b->schema, role, layer, false);
    if (t == NULL) /* a tied head is the embedding's table */
        t = sheaf_schema_get(b->schema, SHEAF_EMBED, -1, false);
    const sheaf_tensor *bias = sheaf_schema_get(b->schema, role, layer, true);
    *l = (sheaf__linear){ .name = t->name, .out = t->shape[0], .in = t->shape[1], .rows = t->cut.axis == 1 };
    lay_out_slices(b, l, t);
    const bool trained = is_saved(b, t);
    const sheaf_memory kind = trained ? SHEAF_MEM_TRAINED : SHEAF_MEM_WEIGHTS;
    sheaf_status *st = NULL;
    for (int s = l->first; s < l->first + l->count && st == NULL; s++) {
        sheaf__packed *w = &l->w[s];
        *w = (sheaf__packed){ .dtype = b->c->dtype, .n = l->rows ? l->out : l->extent[s],
                              .k = l->rows ? l->extent[s] : l->in };
        if (l->extent[s] == 0)
            continue;
        st = sheaf__take(&w->ahead, b->c, sheaf__packed_bytes(w->dtype, w->n, w->k), kind);
        if (st == NULL && b->m->options.backward && b->m->options.pack_back)
            st = sheaf__take(&w->back, b->c, sheaf__packed_back_bytes(w->dtype, w->n, w->k), kind);
    }
    if (st == NULL && bias != NULL)
        st = sheaf__take(&l->bias, b->c, (size_t)(l->rows ? l->out : l->owned) * sizeof(float), SHEAF_MEM_WEIGHTS);
    if (st == NULL && trained)
        st = add_trained(&l->weight_trained, b, t);
    if (st == NULL && bias != NULL && is_saved(b, bias))
        st = add_trained(&l->bias_trained, b, bias);
    return st == NULL ? build_lora(b, l, t) : st;
}

static sheaf_status *build_embedding(build *b)
{
    const sheaf_tensor *t = sheaf_schema_get(b->schema, SHEAF_EMBED, -1, false);
    sheaf__table *table = &b->m->embedding;
    *table = (sheaf__table){ .name = t->name, .vocab = t->shape[0], .width = t->shape[1], .cut = t->cut };
    if (b->schema->config.tied) {
        table->packed = b->m->head.w;
        table->trained = b->m->head.weight_trained;
        return NULL;
    }
    if (is_saved(b, t))
        return add_trained(&table->trained, b, t);
    int64_t rows = 0;
    for (int64_t s = b->c->own.begin; s < b->c->own.end; s++)
        rows += sheaf_cut_slice_rows(&t->cut, (int)s);
    return sheaf__take(&table->rows, b->c, (size_t)(rows * table->width) * sheaf_dtype_bytes(b->c->dtype), SHEAF_MEM_WEIGHTS);
}

/* inv_freq and angle in float32, as the original does; cos and sin of that angle. */
static sheaf_status *build_rope(build *b)
{
    const sheaf_config *config = &b->schema->config;
    sheaf__rope_table *t = &b->m->rope;
    t->positions = b->m->options.positions;
    t->rot = (int64_t)((double)config->head_dim * config->rope.partial) / 2 * 2;
    const int64_t half = t->rot / 2;
    const size_t bytes = (size_t)(t->positions * half) * sizeof(float);
    sheaf_status *st = sheaf__take(&t->cos, b->c, bytes, SHEAF_MEM_WEIGHTS);
    if (st == NULL)
        st = sheaf__take(&t->sin, b->c, bytes, SHEAF_MEM_WEIGHTS);
    if (st == NULL && b->c->device->kind != SHEAF_DRY)
        sheaf__rope_fill(t, config, b->c->device->kernels, b->c->dtype);
    return st;
}

sheaf_status *sheaf__model_new(sheaf__model **out, sheaf__context *context, const sheaf_schema *schema,
                               const sheaf__model_options *options)
{
    const int64_t layers = schema->config.layers;
    sheaf_status *refused = sheaf_family_check_runs(schema->config.family);
    if (refused != NULL)
        return refused;
    sheaf__model *m = calloc(1, sizeof *m);
    if (m == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "model");
    *m = (sheaf__model){ .context = context, .schema = schema, .options = *options };
    m->layer = calloc((size_t)layers + 1, sizeof *m->layer);
    m->lora = calloc(options->lora == NULL ? 1 : (size_t)options->lora->nmodules + 1, sizeof *m->lora);
    build b = { m, context, schema };
    sheaf_status *st = m->layer == NULL || m->lora == NULL ? sheaf_fail(SHEAF_E_MEMORY, "model")
                                                           : sheaf__trained_set_new(&m->trained, context);
    if (st == NULL)
        st = build_linear(&b, &m->head, SHEAF_HEAD, -1);
    if (st == NULL)
        st = build_embedding(&b);
    for (int i = 0; i < layers && st == NULL; i++) {
        sheaf__layer *l = &m->layer[i];
        sheaf__linear *const linear[] = { &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down };
        static const sheaf_role role[] = { SHEAF_Q, SHEAF_K, SHEAF_V, SHEAF_O, SHEAF_GATE, SHEAF_UP, SHEAF_DOWN };
        st = build_norm(&b, &l->norm_in, SHEAF_NORM_IN, i);
        if (st == NULL)
            st = build_norm(&b, &l->norm_post, SHEAF_NORM_POST, i);
        for (int j = 0; j < 7 && st == NULL; j++)
            st = build_linear(&b, linear[j], role[j], i);
    }
    if (st == NULL)
        st = build_norm(&b, &m->norm, SHEAF_NORM_FINAL, -1);
    if (st == NULL)
        st = build_rope(&b);
    if (st == NULL && m->trained->count > 0)
        st = sheaf__trained_allocate(m->trained);
    if (st != NULL) {
        sheaf__model_free(m);
        return st;
    }
    *out = m;
    return NULL;
}

static void free_linear(sheaf__context *c, sheaf__linear *l)
{
    for (int s = 0; s < SHEAF_MAX_SLICES; s++) {
        sheaf__give(c, l->w[s].ahead);
        sheaf__give(c, l->w[s].back);
        if (l->lora != NULL) {
            sheaf__give(c, l->lora->a_copy[s]);
            sheaf__give(c, l->lora->b_copy[s]);
        }
    }
    sheaf__give(c, l->bias);
}

void sheaf__model_free(sheaf__model *m)
{
    if (m == NULL)
        return;
    sheaf__context *c = m->context;
    for (int64_t i = 0; m->layer != NULL && i < m->schema->config.layers; i++) {
        sheaf__layer *l = &m->layer[i];
        sheaf__linear *const linear[] = { &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down };
        for (int j = 0; j < 7; j++)
            free_linear(c, linear[j]);
        sheaf__give(c, l->norm_in.weight);
        sheaf__give(c, l->norm_post.weight);
    }
    free_linear(c, &m->head);
    sheaf__give(c, m->embedding.rows);
    sheaf__give(c, m->norm.weight);
    sheaf__give(c, m->rope.cos);
    sheaf__give(c, m->rope.sin);
    sheaf__trained_set_free(m->trained);
    free(m->layer);
    free(m->lora);
    free(m);
}

void sheaf__model_refresh(sheaf__model *m)
{
    for (int64_t i = 0; i < m->schema->config.layers; i++) {
        sheaf__layer *l = &m->layer[i];
        sheaf__linear *const linear[] = { &l->q, &l->k, &l->v, &l->o, &l->gate, &l->up, &l->down };
        for (int j = 0; j < 7; j++)
            sheaf__linear_refresh(m->context, linear[j]);
        sheaf__norm_refresh(m->context, &l->norm_in);
        sheaf__norm_refresh(m->context, &l->norm_post);
    }
    sheaf__norm_refresh(m->context, &m->norm);
    sheaf__linear_refresh(m->context, &m->head);
}

/* ---- the pass ---- */

int64_t sheaf__model_kv_heads(const sheaf__model *m)
{
    return m->layer[0].k.owned / m->schema->config.head_dim;
}

static sheaf__value *record_layer(sheaf__model *m, sheaf__tape *tape, int i, sheaf__value *x, int64_t batch,
                                  int64_t queries, const sheaf__rows_in *in, const sheaf__step_info *info,
                                  const sheaf__cache *cache)
{
    const sheaf_config *config = &m->schema->config;
    sheaf__layer *l = &m->layer[i];
    const int64_t kv_heads = sheaf__model_kv_heads(m), group = config->heads / config->kv_heads;
    const sheaf__heads heads = { .batch = batch, .queries = queries, .kv_heads = kv_heads, .group = group,
                                 .head_dim = config->head_dim,
                                 .window = i >= config->window_from_layer ? config->window : 0 };
    sheaf__value *qkv[3], *gate_up[2];

    sheaf__value *a = sheaf__record_rmsnorm(tape, x, &l->norm_in);
    sheaf__record_columns(tape, qkv, a, (sheaf__linear *const[]){ &l->q, &l->k, &l->v }, 3, info);
    sheaf__record_rope(tape, qkv[0], &m->rope, kv_heads * group, config->head_dim, in);
    sheaf__record_rope(tape, qkv[1], &m->rope, kv_heads, config->head_dim, in);
    sheaf__value *o = sheaf__record_attention(tape, qkv[0], qkv[1], qkv[2], &heads, in, cache);
    x = sheaf__record_rows(tape, o, &l->o, x, info);

    sheaf__value *n = sheaf__record_rmsnorm(tape, x, &l->norm_post);
    sheaf__record_columns(tape, gate_up, n, (sheaf__linear *const[]){ &l->gate, &l->up }, 2, info);
    sheaf__value *h = sheaf__record_swiglu(tape, gate_up[0], gate_up[1]);
    return sheaf__record_rows(tape, h, &l->down, x, info);
}

void sheaf__model_record(sheaf__model *m, sheaf__tape *tape, int64_t batch, int64_t queries,
                         const sheaf__rows_in *in, const sheaf__step_info *info,
                         sheaf__head_run *head, const sheaf__cache *cache)
{
    sheaf__value *x = sheaf__record_embedding(tape, &m->embedding, batch * queries, in);
    for (int i = 0; i < m->schema->config.layers; i++) {
        sheaf__tape_segment_begin(tape, i);
        x = record_layer(m, tape, i, x, batch, queries, in, info, cache == NULL ? NULL : &cache[i]);
        sheaf__tape_segment_end(tape);
    }
    x = sheaf__record_rmsnorm(tape, x, &m->norm);
    sheaf__record_head(tape, x, &m->head, head);
}
