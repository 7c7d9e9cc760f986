/* build.c - the tensors of Llama and its kin as parts of the decoder. */
#include <math.h>

#include "base/base.h"
#include "families/llama/tower.h"
#include "families/llama/llama.h"

#include "models/build.h"
#include "models/rope.h"

static const sheaf__llama_form *form_of(const sheaf__model *m)
{
    return sheaf__llama_form_of(&m->schema->config);
}

static sheaf_status *linear(sheaf__model *m, sheaf__linear *l, sheaf_role role, int layer,
                            int piece)
{
    return sheaf__build_linear(m, l, sheaf_schema_get(m->schema, role, layer, false),
                               sheaf_schema_get(m->schema, role, layer, true), piece);
}

/* The norm of this role, where the family has one. */
static sheaf_status *norm(sheaf__model *m, sheaf__norm *n, sheaf_role role, int layer)
{
    const sheaf_tensor *t = sheaf_schema_get(m->schema, role, layer, false);
    sheaf_status *st =
        t == NULL ? NULL
                  : sheaf__build_norm(m, n, t, m->schema->config.rms_eps, form_of(m)->norm_once);
    n->one = form_of(m)->norm_one;
    return st;
}

/* The same of one that is added to the residual stream, or that is cut as its rows are. */
static sheaf_status *wide_norm(sheaf__model *m, sheaf__layernorm *n, sheaf_role role, int layer)
{
    const sheaf_tensor *t = sheaf_schema_get(m->schema, role, layer, false);
    sheaf_status *st =
        t == NULL ? NULL : sheaf__build_layernorm(m, n, t, NULL, m->schema->config.rms_eps);
    n->one = form_of(m)->norm_one;
    return st;
}

static sheaf_status *qk_norms(sheaf__model *m, sheaf__layer *l, int i)
{
    if (form_of(m)->qk_norm == SHEAF__QK_WHOLE) {
        sheaf_status *st = wide_norm(m, &l->whole_q, SHEAF_NORM_Q, i);
        return st == NULL ? wide_norm(m, &l->whole_k, SHEAF_NORM_K, i) : st;
    }
    sheaf_status *st = norm(m, &l->norm_q, SHEAF_NORM_Q, i);
    return st == NULL ? norm(m, &l->norm_k, SHEAF_NORM_K, i) : st;
}

/* A layer of the mixture of layer `layer`: "gate", or one of expert i. */
static sheaf_status *mixture_linear(sheaf__model *m, sheaf__linear *l, int layer, int i,
                                    const char *part)
{
    char inside[64] = "", name[128];
    const sheaf_tensor *t = NULL;
    if (i >= 0)
        snprintf(inside, sizeof inside, "experts.%d.", i);
    snprintf(name, sizeof name, "model.layers.%d.%s%s%s.weight", layer, form_of(m)->mixture->prefix,
             inside, part);
    sheaf_status *st = sheaf__build_find(&t, m, name);
    return st == NULL ? sheaf__build_linear(m, l, t, NULL, 0) : st;
}

static sheaf_status *mixture(sheaf__model *m, sheaf__layer *l, int layer)
{
    const sheaf__mixture_form *form = form_of(m)->mixture;
    const int64_t n = m->schema->config.num_experts;
    sheaf__mixture *mix;
    sheaf_status *st =
        sheaf__build_parts(&mix, m, 1, sizeof *mix + (size_t)n * sizeof *mix->expert);
    if (st != NULL)
        return st;
    l->mixture = mix;
    mix->num_experts = n;
    mix->top_k = m->schema->config.top_k;
    mix->of_all = m->schema->config.shares_of_all;
    for (int i = 0; i < layer; i++)
        mix->number += !sheaf__layer_in(m->schema->config.mlp_layers, i);
    st = mixture_linear(m, &mix->router, layer, -1, "gate");
    for (int i = 0; i < n && st == NULL; i++) {
        TRY(st, mixture_linear(m, &mix->expert[i].gate, layer, i, form->gate));
        TRY(st, mixture_linear(m, &mix->expert[i].down, layer, i, form->down));
        TRY(st, mixture_linear(m, &mix->expert[i].up, layer, i, form->up));
    }
    return st;
}

static sheaf_status *layer(sheaf__model *m, int i)
{
    sheaf__layer *l = &m->layer[i];
    sheaf__expert *text = &l->expert[SHEAF__TEXT];
    sheaf__linear *const part[] = { &text->q,    &text->k,  &text->v,   &text->o,
                                    &text->gate, &text->up, &text->down };
    static const struct {
        sheaf_role role;
        int piece;
    } apart[] = { { SHEAF_Q },    { SHEAF_K },  { SHEAF_V },   { SHEAF_O },
                  { SHEAF_GATE }, { SHEAF_UP }, { SHEAF_DOWN } },
      fused[] = { { SHEAF_QKV, 0 },     { SHEAF_QKV, 1 },     { SHEAF_QKV, 2 }, { SHEAF_O },
                  { SHEAF_GATE_UP, 0 }, { SHEAF_GATE_UP, 1 }, { SHEAF_DOWN } };
    enum { ATTENTION = 4 }; /* of these */
    l->gelu = form_of(m)->gelu;
    if (m->schema->config.local_theta > 0 && l->window > 0)
        l->rope = &m->local;
    sheaf_status *st = norm(m, &l->norm_in, SHEAF_NORM_IN, i);
    TRY(st, norm(m, &l->norm_post, SHEAF_NORM_POST, i));
    const bool mixed =
        form_of(m)->mixture != NULL && !sheaf__layer_in(m->schema->config.mlp_layers, i);
    const int parts = mixed ? ATTENTION : 7;
    for (int j = 0; j < parts && st == NULL; j++) {
        st = (j < ATTENTION ? form_of(m)->fused : form_of(m)->fused_mlp)
                 ? linear(m, part[j], fused[j].role, i, fused[j].piece)
                 : linear(m, part[j], apart[j].role, i, 0);
        if (j == 2 && st == NULL)
            st = qk_norms(m, l, i);
        if (j == 3 && st == NULL)
            st = wide_norm(m, &l->norm_after[0], SHEAF_NORM_AFTER_ATTENTION, i);
    }
    if (st == NULL && mixed)
        st = mixture(m, l, i);
    return st == NULL ? wide_norm(m, &l->norm_after[1], SHEAF_NORM_AFTER_MLP, i) : st;
}

/* Angles of a float32 position and frequency. */
static sheaf_status *ropes(sheaf__model *m)
{
    const sheaf_config *config = &m->schema->config;
    const int64_t rot = (int64_t)((double)config->head_dim * config->rope.partial) / 2 * 2;
    const sheaf_dtype dtype = form_of(m)->rope_float32 ? SHEAF_F32 : m->context->dtype;
    sheaf__device *device = m->context->device;
    m->rope.pairs = form_of(m)->rope_pairs;
    if (sheaf__position_axes(config) > 1)
        return sheaf__rope_axes(&m->angles, config, rot, dtype);
    sheaf_status *st = sheaf__build_rope(m, &m->rope, rot);
    TRY(st, sheaf__rope_fill(&m->rope, config, device, dtype));
    if (config->local_theta != 0) {
        TRY(st, sheaf__build_rope(m, &m->local, rot));
        TRY(st, sheaf__rope_fill_plain(&m->local, config->local_theta, device, dtype));
    }
    return st;
}

sheaf_status *sheaf__llama_build(sheaf__model *m)
{
    const sheaf_config *config = &m->schema->config;
    const sheaf_tensor *embed = sheaf_schema_get(m->schema, SHEAF_EMBED, -1, false);
    /* A tied head is the embedding's table. */
    sheaf_status *st = !m->ends       ? NULL
                       : config->tied ? sheaf__build_linear(m, &m->head, embed, NULL, 0)
                                      : linear(m, &m->head, SHEAF_HEAD, -1, 0);
    if (st == NULL && m->begins)
        st = sheaf__build_table(m, &m->embedding, embed, config->tied ? &m->head : NULL);
    if (sheaf__family_for(config)->tower != NULL)
        TRY(st, sheaf__tower_build(m));
    for (int64_t i = m->first_layer; i < m->end_layer && st == NULL; i++)
        st = layer(m, (int)i);
    if (st == NULL && m->ends)
        st = norm(m, &m->norm, SHEAF_NORM_FINAL, -1);
    m->scale = form_of(m)->embed_scaled ? (float)sqrt((double)config->hidden) : 0;
    m->head.cap = (float)config->logit_cap;
    if (config->scale_emb > 0 && config->scale_emb != 1)
        m->times = (float)config->scale_emb;
    if (config->scale_depth > 0)
        m->branch = (float)(config->scale_depth / sqrt((double)config->layers));
    if (config->dim_model_base > 0)
        m->divide = (float)((double)config->hidden / (double)config->dim_model_base);
    return st == NULL ? ropes(m) : st;
}
