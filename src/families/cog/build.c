/* build.c - CogVLM and CogAgent: the tensors of their decoder, and their towers.
 *
 * CogAgent's second tower, for cross-attention, sees the image at a higher resolution (as in
 * CogVLM's eva_clip_L_hf.py, LN with weight and bias):
 *   x += proj(LN(attention(LN1 x)));
 *   y = LN2 x;  x += w3(LN(silu(w1 y) * w2 y))
 * Attention there is full: every patch sees every patch. The first is common/eva_clip.h. */
#include "base/base.h"
#include "families/cog/cog.h"
#include "families/common/eva_clip.h"

enum { IMAGE, MEMORY }; /* the towers, in the order of the descriptor's list */

static const double TOWER_EPS = 1e-6; /* fixed in the original program */

typedef struct tower_block {
    sheaf__layernorm norm1, norm_attention, norm2, norm_ffn;
    sheaf__linear q, k, v, proj, w1, w2, w3;
} tower_block;

/* CogAgent's second tower. */
struct sheaf__beside {
    sheaf__linear patch;
    sheaf__vector class_token, positions, extra, cos, sin;
    tower_block *block;
    int64_t blocks; /* that are run: the last of the file never is */
};

/* ---- building ---- */

#define EVA "mixins.eva."
#define VIT EVA "vit_model."
#define TOWER "mixins.encoder.vit.model."
#define BLOCK TOWER "blocks.%d."
#define LAYER "transformer.layers.%d."

/* The prefix of a layer's names. */
typedef struct prefix {
    char text[96];
} prefix;

static prefix prefix_of(const char *format, int i)
{
    prefix p;
    snprintf(p.text, sizeof p.text, format, i);
    return p;
}

/* One layer for each of `n` pieces of a fused weight; bias NULL: none. */
static sheaf_status *pieces(sheaf__model *m, sheaf__linear *const *l, int n, const char *before,
                            const char *weight, const char *bias)
{
    sheaf_status *st = NULL;
    for (int i = 0; i < n; i++)
        TRY(st, sheaf__named_linear(m, l[i], before, weight, bias, i));
    return st;
}

static sheaf_status *rmsnorm(sheaf__model *m, sheaf__norm *norm, const char *before,
                             const char *name)
{
    return sheaf__named_rmsnorm(m, norm, before, name, m->schema->config.rms_eps);
}

#define ONE(l) (sheaf__linear *const[]){ l }, 1
#define FUSED(...)                                                                                 \
    (sheaf__linear *const[]){ __VA_ARGS__ },                                                       \
        sizeof((sheaf__linear *const[]){ __VA_ARGS__ }) / sizeof(sheaf__linear *)

static sheaf_status *build_eva(sheaf__model *m)
{
    const sheaf__eva_names names = {
        .patch = VIT "mixins.patch_embedding.proj.",
        .class_token = VIT "transformer.word_embeddings.weight",
        .positions = VIT "transformer.position_embeddings.weight",
        .layer = VIT "transformer.layers.%d.",
        .up = "mlp.dense_h_to_4h",
        .down = "mlp.dense_4h_to_h",
        .extra = sheaf__cog_is_agent(&m->schema->config) ? EVA "pos_embed" : NULL,
        .adapter = EVA "linear_proj.",
        .begin = EVA "boi",
        .end = EVA "eoi",
    };
    return sheaf__eva_build(m, &names);
}

static sheaf_status *build_block(sheaf__model *m, tower_block *b, const char *p)
{
    sheaf_status *st = sheaf__named_layernorm(m, &b->norm1, p, "norm1", TOWER_EPS);
    TRY(st, sheaf__named_linear(m, &b->q, p, "attn.q_proj.weight", "attn.q_bias", 0));
    TRY(st, sheaf__named_linear(m, &b->k, p, "attn.k_proj.weight", NULL, 0));
    TRY(st, sheaf__named_linear(m, &b->v, p, "attn.v_proj.weight", "attn.v_bias", 0));
    TRY(st, sheaf__named_layernorm(m, &b->norm_attention, p, "attn.inner_attn_ln", TOWER_EPS));
    TRY(st, sheaf__named_linear(m, &b->proj, p, "attn.proj.weight", "attn.proj.bias", 0));
    TRY(st, sheaf__named_layernorm(m, &b->norm2, p, "norm2", TOWER_EPS));
    TRY(st, sheaf__named_linear(m, &b->w1, p, "mlp.w1.weight", "mlp.w1.bias", 0));
    TRY(st, sheaf__named_linear(m, &b->w2, p, "mlp.w2.weight", "mlp.w2.bias", 0));
    TRY(st, sheaf__named_layernorm(m, &b->norm_ffn, p, "mlp.ffn_ln", TOWER_EPS));
    return TRY(st, sheaf__named_linear(m, &b->w3, p, "mlp.w3.weight", "mlp.w3.bias", 0));
}

static sheaf_status *build_tower(sheaf__model *m)
{
    const sheaf_encoder *e = &m->schema->config.encoder;
    struct sheaf__beside *t;
    sheaf_status *st = sheaf__build_parts(&t, m, 1, sizeof *t);
    if (st != NULL)
        return st;
    m->towers->beside = t;
    t->blocks = e->layers - 1;
    st = sheaf__build_parts(&t->block, m, t->blocks, sizeof *t->block);
    TRY(st, sheaf__named_linear(m, &t->patch, TOWER "patch_embed.proj.", "weight", "bias", 0));
    TRY(st, sheaf__named_vector(m, &t->class_token, TOWER, "cls_token", e->width));
    TRY(st, sheaf__named_vector(m, &t->positions, TOWER, "pos_embed", e->width));
    TRY(st, sheaf__named_vector(m, &t->extra, "mixins.encoder.", "pos_embed", e->width));
    TRY(st, sheaf__named_vector(m, &t->cos, TOWER, "rope.freqs_cos", e->head_width));
    TRY(st, sheaf__named_vector(m, &t->sin, TOWER, "rope.freqs_sin", e->head_width));
    for (int i = 0; i < t->blocks; i++)
        TRY(st, build_block(m, &t->block[i], prefix_of(BLOCK, i).text));
    return st;
}

static sheaf_status *build_cross(sheaf__model *m, sheaf__layer *l, const char *p)
{
    l->has_cross = true;
    sheaf_status *st = rmsnorm(m, &l->norm_cross, p, "post_cross_attention_layernorm");
    TRY(st, sheaf__named_linear(m, &l->cross_q, p, "cross_attention.query.weight", NULL, 0));
    TRY(st,
        pieces(m, FUSED(&l->cross_k, &l->cross_v), p, "cross_attention.key_value.weight", NULL));
    return TRY(st, sheaf__named_linear(m, &l->cross_o, p, "cross_attention.dense.weight", NULL, 0));
}

static sheaf_status *build_expert(sheaf__model *m, sheaf__expert *x, int i)
{
    const struct {
        sheaf__linear *l;
        const char *before;
    } rest[] = { { &x->o, "mixins.rotary.vision_dense_list.%d." },
                 { &x->gate, "mixins.mlp.vision_gate_proj.%d." },
                 { &x->up, "mixins.mlp.vision_dense_h_to_4h_list.%d." },
                 { &x->down, "mixins.mlp.vision_dense_4h_to_h_list.%d." } };
    sheaf_status *st =
        pieces(m, FUSED(&x->q, &x->k, &x->v),
               prefix_of("mixins.rotary.vision_query_key_value_list.%d.", i).text, "weight", NULL);
    for (size_t r = 0; r < sizeof rest / sizeof *rest; r++)
        TRY(st, sheaf__named_linear(m, rest[r].l, prefix_of(rest[r].before, i).text, "weight", NULL,
                                    0));
    return st;
}

static sheaf_status *build_layer(sheaf__model *m, int i)
{
    const sheaf_config *c = &m->schema->config;
    sheaf__layer *l = &m->layer[i];
    sheaf__expert *text = &l->expert[SHEAF__TEXT];
    const prefix p = prefix_of(LAYER, i), gate = prefix_of("mixins.mlp.gate_proj.%d.", i);
    sheaf_status *st = rmsnorm(m, &l->norm_in, p.text, "input_layernorm");
    TRY(st, rmsnorm(m, &l->norm_post, p.text, "post_attention_layernorm"));
    TRY(st, pieces(m, FUSED(&text->q, &text->k, &text->v), p.text,
                   "attention.query_key_value.weight", NULL));
    TRY(st, sheaf__named_linear(m, &text->o, p.text, "attention.dense.weight", NULL, 0));
    TRY(st, sheaf__named_linear(m, &text->gate, gate.text, "weight", NULL, 0));
    TRY(st, sheaf__named_linear(m, &text->up, p.text, "mlp.dense_h_to_4h.weight", NULL, 0));
    TRY(st, sheaf__named_linear(m, &text->down, p.text, "mlp.dense_4h_to_h.weight", NULL, 0));
    l->has_expert = i < c->experts;
    if (l->has_expert)
        TRY(st, build_expert(m, &l->expert[SHEAF__IMAGE], i));
    if (sheaf__layer_in(c->cross_layers, i))
        TRY(st, build_cross(m, l, p.text));
    return st;
}

sheaf_status *sheaf__cog_build(sheaf__model *m)
{
    const sheaf_config *c = &m->schema->config;
    const sheaf_tensor *table = NULL;
    sheaf_status *st = sheaf__build_find(&table, m, "transformer.word_embeddings.weight");
    if (m->ends)
        TRY(st, sheaf__named_linear(m, &m->head, "mixins.lm.", "lm_head.weight", NULL, 0));
    if (m->begins) {
        TRY(st, sheaf__build_table(m, &m->embedding, table, NULL));
        TRY(st, build_eva(m));
        if (sheaf__cog_is_agent(c))
            TRY(st, build_tower(m));
    }
    for (int64_t i = m->first_layer; i < m->end_layer; i++)
        TRY(st, build_layer(m, (int)i));
    if (m->ends)
        TRY(st, rmsnorm(m, &m->norm, "transformer.", "final_layernorm"));
    return TRY(st, sheaf__build_rope(m, &m->rope, c->head_dim));
}

/* ---- the pass ---- */

typedef struct run {
    sheaf__tape *tape;
    const sheaf__pass *pass;
    int kind; /* of its rows */
} run;

static void columns(const run *r, sheaf__value **y, sheaf__value *x, sheaf__linear *const *l, int n)
{
    sheaf__record_columns(r->tape, y, x, l, n, &r->pass->info[r->kind]);
}

static sheaf__value *rows(const run *r, sheaf__value *x, sheaf__linear *l, sheaf__value *residual)
{
    return sheaf__record_rows(r->tape, x, l, residual, NULL, &r->pass->info[r->kind]);
}

static sheaf__value *attention(const run *r, sheaf__value *const qkv[3], int64_t patches,
                               int64_t width)
{
    const sheaf__heads heads = { .batch = r->pass->pictures.images,
                                 .queries = patches + 1,
                                 .kv_heads = qkv[1]->cols / width,
                                 .group = 1,
                                 .head_dim = width };
    return sheaf__record_full_attention(r->tape, qkv[0], qkv[1], qkv[2], &heads, patches + 1, NULL,
                                        NULL);
}

/* A value that nothing reads would have no gradient to walk back. */
static sheaf__value *see_memory(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass)
{
    const run r = { tape, pass, sheaf__rows_inside(MEMORY) };
    struct sheaf__beside *t = m->towers->beside;
    const sheaf_encoder *e = &m->schema->config.encoder;
    sheaf__tower tower;
    if (t == NULL || sheaf__tower_beside(&tower, &m->schema->config) < 0)
        return NULL;
    const int64_t patches = tower.patches;
    sheaf__value *pixels = sheaf__record_patches(tape, pass->images_in, pass->pictures.images,
                                                 &tower, MEMORY),
                 *x;
    columns(&r, &x, pixels, ONE(&t->patch));
    x = sheaf__record_tokens(tape, x, pass->pictures.images, &t->class_token, &t->positions);
    for (int64_t i = 0; i < t->blocks; i++) {
        tower_block *b = &t->block[i];
        sheaf__value *qkv[3], *w[2];
        sheaf__tape_segment_begin(tape, (int)i);
        columns(&r, qkv, sheaf__record_layernorm(tape, x, &b->norm1, NULL),
                FUSED(&b->q, &b->k, &b->v));
        for (int j = 0; j < 2; j++)
            sheaf__record_rope_grid(tape, qkv[j], t->cos.data, t->sin.data, pass->pictures.images,
                                    qkv[j]->cols / e->head_width, e->head_width);
        sheaf__value *o = sheaf__record_layernorm(tape, attention(&r, qkv, patches, e->head_width),
                                                  &b->norm_attention, NULL);
        x = rows(&r, o, &b->proj, x);
        sheaf__tape_mlp(tape);
        columns(&r, w, sheaf__record_layernorm(tape, x, &b->norm2, NULL), FUSED(&b->w1, &b->w2));
        x = rows(&r,
                 sheaf__record_layernorm(tape, sheaf__record_swiglu(tape, w[0], w[1], false),
                                         &b->norm_ffn, NULL),
                 &b->w3, x);
        sheaf__tape_segment_end(tape);
    }
    return sheaf__record_grid(tape, x, pass->pictures.images, &t->extra);
}

sheaf__value *sheaf__cog_encode(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                int tower)
{
    return tower == IMAGE ? sheaf__eva_encode(m, tape, pass, IMAGE) : see_memory(m, tape, pass);
}
