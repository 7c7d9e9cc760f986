/* eva_clip.c - see eva_clip.h; formulas as in CogVLM's eva_clip_model.py. */
#include "families/common/eva_clip.h"

#include "base/base.h"

static const double ADAPTER_EPS = 1e-5; /* fixed in the original programs */

/* ---- building ---- */

static sheaf_status *build_layer(sheaf__model *m, sheaf__eva_layer *l, const char *p,
                                 const sheaf__eva_names *n)
{
    const double eps = m->schema->config.vit.norm_eps;
    sheaf__linear *const qkv[] = { &l->q, &l->k, &l->v };
    sheaf_status *st = sheaf__named_layernorm(m, &l->norm1, p, "input_layernorm", eps);
    for (int i = 0; i < 3; i++)
        TRY(st, sheaf__named_biased(m, qkv[i], p, "attention.query_key_value", i));
    TRY(st, sheaf__named_layernorm(m, &l->norm2, p, "post_attention_layernorm", eps));
    TRY(st, sheaf__named_biased(m, &l->dense, p, "attention.dense", 0));
    TRY(st, sheaf__named_biased(m, &l->up, p, n->up, 0));
    return TRY(st, sheaf__named_biased(m, &l->down, p, n->down, 0));
}

static sheaf_status *build_adapter(sheaf__model *m, sheaf__towers *e, const char *p)
{
    sheaf_status *st = sheaf__named_linear(m, &e->adapter.linear, p, "linear_proj.weight", NULL, 0);
    TRY(st, sheaf__named_layernorm(m, &e->adapter.norm, p, "norm1", ADAPTER_EPS));
    TRY(st, sheaf__named_linear(m, &e->adapter.up, p, "dense_h_to_4h.weight", NULL, 0));
    TRY(st, sheaf__named_linear(m, &e->adapter.gate, p, "gate_proj.weight", NULL, 0));
    return TRY(st, sheaf__named_linear(m, &e->adapter.down, p, "dense_4h_to_h.weight", NULL, 0));
}

sheaf_status *sheaf__eva_build(sheaf__model *m, const sheaf__eva_names *n)
{
    const sheaf_config *c = &m->schema->config;
    const int64_t width = c->vit.hidden;
    sheaf_status *st = sheaf__build_parts(&m->towers, m, 1, sizeof *m->towers);
    sheaf__towers *e = m->towers;
    TRY(st, sheaf__build_parts(&e->layer, m, c->vit.layers, sizeof *e->layer));
    TRY(st, sheaf__named_linear(m, &e->patch, n->patch, "weight", "bias", 0));
    TRY(st, sheaf__named_vector(m, &e->class_token, "", n->class_token, width));
    TRY(st, sheaf__named_vector(m, &e->positions, "", n->positions, width));
    for (int i = 0; i < c->vit.layers; i++) {
        char prefix[96];
        snprintf(prefix, sizeof prefix, n->layer, i);
        TRY(st, build_layer(m, &e->layer[i], prefix, n));
    }
    if (n->conv != NULL)
        TRY(st, sheaf__named_linear(m, &e->conv, n->conv, "weight", "bias", 0));
    if (n->extra != NULL)
        TRY(st, sheaf__named_vector(m, &e->extra, "", n->extra, width));
    TRY(st, build_adapter(m, e, n->adapter));
    TRY(st, sheaf__named_vector(m, &e->begin, "", n->begin, c->hidden));
    return TRY(st, sheaf__named_vector(m, &e->end, "", n->end, c->hidden));
}

/* ---- the pass ---- */

typedef struct run {
    sheaf__tape *tape;
    const sheaf__pass *pass;
    const sheaf__step_info *info; /* of its rows */
} run;

#define COLUMNS(r, y, x, ...)                                                                      \
    sheaf__record_columns(                                                                         \
        (r)->tape, y, x, (sheaf__linear *const[]){ __VA_ARGS__ },                                  \
        (int)(sizeof((sheaf__linear *const[]){ __VA_ARGS__ }) / sizeof(sheaf__linear *)),          \
        (r)->info)

static sheaf__value *record_layer(const run *r, sheaf__value *x, sheaf__eva_layer *l, int64_t rows,
                                  int64_t width)
{
    sheaf__value *qkv[3], *h;
    COLUMNS(r, qkv, x, &l->q, &l->k, &l->v);
    const sheaf__heads heads = { .batch = r->pass->pictures.images,
                                 .queries = rows,
                                 .kv_heads = qkv[1]->cols / width,
                                 .group = 1,
                                 .head_dim = width };
    h = sheaf__record_full_attention(r->tape, qkv[0], qkv[1], qkv[2], &heads, rows, NULL, NULL);
    h = sheaf__record_rows(r->tape, h, &l->dense, NULL, NULL, r->info);
    x = sheaf__record_layernorm(r->tape, h, &l->norm1, x);
    sheaf__tape_mlp(r->tape);
    COLUMNS(r, &h, x, &l->up);
    h = sheaf__record_rows(r->tape, sheaf__record_gelu(r->tape, h, false), &l->down, NULL, NULL,
                           r->info);
    return sheaf__record_layernorm(r->tape, h, &l->norm2, x);
}

static sheaf__value *record_vit(const run *r, sheaf__model *m, sheaf__towers *e,
                                const sheaf__tower *tower, int number)
{
    const sheaf_vit *v = &m->schema->config.vit;
    sheaf__value *x =
        sheaf__record_patches(r->tape, r->pass->images_in, r->pass->pictures.images, tower, number);
    COLUMNS(r, &x, x, &e->patch);
    x = sheaf__record_tokens(r->tape, x, r->pass->pictures.images, &e->class_token, &e->positions);
    for (int64_t i = 0; i < v->layers; i++) {
        sheaf__tape_segment_begin(r->tape, (int)i);
        x = record_layer(r, x, &e->layer[i], tower->rows, v->hidden / v->heads);
        sheaf__stage(r->pass, r->tape, "vit", (int)i, SHEAF__TEXT, x);
        sheaf__tape_segment_end(r->tape);
    }
    return sheaf__record_grid(r->tape, x, r->pass->pictures.images,
                              e->extra.data == NULL ? NULL : &e->extra);
}

static sheaf__value *record_adapter(const run *r, sheaf__value *x, sheaf__towers *e)
{
    sheaf__value *gate_up[2];
    x = sheaf__record_rows(r->tape, sheaf__record_own_columns(r->tape, x, &e->adapter.linear),
                           &e->adapter.linear, NULL, NULL, r->info);
    x = sheaf__record_gelu(r->tape, sheaf__record_layernorm(r->tape, x, &e->adapter.norm, NULL),
                           false);
    COLUMNS(r, gate_up, x, &e->adapter.gate, &e->adapter.up);
    x = sheaf__record_swiglu(r->tape, gate_up[0], gate_up[1], false);
    return sheaf__record_rows(r->tape, x, &e->adapter.down, NULL, NULL, r->info);
}

sheaf__value *sheaf__eva_encode(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                int number)
{
    sheaf__towers *e = m->towers;
    const run inside = { tape, pass, &pass->info[sheaf__rows_inside(number)] },
              given = { tape, pass, &pass->info[sheaf__rows_given(number)] };
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, &m->schema->config);
    sheaf__value *x = record_vit(&inside, m, e, &tower[number], number);
    if (e->conv.name != NULL) {
        x = sheaf__record_blocks(tape, x, tower[number].width / tower[number].patch,
                                 SHEAF__EVA_BLOCK);
        COLUMNS(&given, &x, x, &e->conv);
    }
    sheaf__stage(pass, tape, "adapter_in", -1, SHEAF__TEXT, x);
    return record_adapter(&given, x, e);
}

void sheaf__eva_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                      const sheaf__pass *pass)
{
    sheaf__record_place_images(tape, x, image, pass->pictures.images, &m->towers->begin,
                               &m->towers->end, pass->images_in);
}
