/* build.c - CogVLM and CogAgent: the tensors of their decoder, and their towers.
 *
 * An image's way, as in CogVLM's eva_clip_model.py and eva_clip_L_hf.py, LN with weight and bias:
 *   ViT      x = [class; patches] + positions;
 *            x += LN1(dense(attention(qkv x)));  x += LN2(down(gelu(up x)))
 *   adapter  z = gelu(LN(linear x)), x the ViT's rows without the class row, CogAgent's plus
 *            positions; dense_4h_to_h(silu(gate z) * up z)
 *   tower    CogAgent's second, for cross-attention, which sees the image at a higher resolution:
 *            x += proj(LN(attention(LN1 x)));
 *            y = LN2 x;  x += w3(LN(silu(w1 y) * w2 y))
 * Attention there is full: every patch sees every patch. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "families/cog/cog.h"
#include "models/build.h"
#include "base/status.h"

enum { IMAGE, MEMORY }; /* the towers, in the order of sheaf__cog_towers() */

static const double TOWER_EPS = 1e-6, ADAPTER_EPS = 1e-5; /* fixed in the original programs */

typedef struct vit_layer {
    sheaf__linear q, k, v, dense, up, down;
    sheaf__layernorm norm1, norm2;
} vit_layer;

typedef struct tower_block {
    sheaf__layernorm norm1, norm_attention, norm2, norm_ffn;
    sheaf__linear q, k, v, proj, w1, w2, w3;
} tower_block;

struct sheaf__towers {
    struct {
        sheaf__linear patch;
        sheaf__vector class_token, positions;
        vit_layer *layer;
    } vit;
    struct {
        sheaf__vector positions;
        sheaf__linear linear, gate, up, down;
        sheaf__layernorm norm;
    } adapter;
    sheaf__vector boi, eoi;
    struct {
        sheaf__linear patch;
        sheaf__vector class_token, positions, extra, cos, sin;
        tower_block *block;
        int64_t blocks; /* that are run: the last of the file never is */
    } tower;
};

/* ---- building ---- */

/* Tensors are named before + number + after; number < 0: before alone. */
typedef struct named {
    const char *before;
    int64_t number;
    const char *after;
} named;

static sheaf_status *find(const sheaf_tensor **out, const sheaf__model *m, named n)
{
    char name[256];
    if (n.number < 0)
        snprintf(name, sizeof name, "%s%s", n.before, n.after);
    else
        snprintf(name, sizeof name, "%s%" PRId64 "%s", n.before, n.number, n.after);
    return sheaf__build_find(out, m, name);
}

/* One layer for each of `n` pieces of a fused weight; bias NULL: none. */
static sheaf_status *linear(sheaf__model *m, sheaf__linear *const *l, int n, named weight,
                            const char *bias)
{
    const sheaf_tensor *w = NULL, *b = NULL;
    sheaf_status *st = find(&w, m, weight);
    if (st == NULL && bias != NULL)
        st = find(&b, m, (named){ weight.before, weight.number, bias });
    for (int i = 0; i < n && st == NULL; i++)
        st = sheaf__build_linear(m, l[i], w, b, i);
    return st;
}

static sheaf_status *layernorm(sheaf__model *m, sheaf__layernorm *norm, named n, double eps)
{
    char weight[96], bias[96];
    const sheaf_tensor *w = NULL, *b = NULL;
    snprintf(weight, sizeof weight, "%s.weight", n.after);
    snprintf(bias, sizeof bias, "%s.bias", n.after);
    sheaf_status *st = find(&w, m, (named){ n.before, n.number, weight });
    TRY(st, find(&b, m, (named){ n.before, n.number, bias }));
    return st == NULL ? sheaf__build_layernorm(m, norm, w, b, eps) : st;
}

static sheaf_status *rmsnorm(sheaf__model *m, sheaf__norm *norm, named n)
{
    const sheaf_tensor *t = NULL;
    sheaf_status *st = find(&t, m, n);
    return st == NULL ? sheaf__build_norm(m, norm, t, m->schema->config.rms_eps, false) : st;
}

static sheaf_status *vector(sheaf__model *m, sheaf__vector *v, const char *name, int64_t width)
{
    const sheaf_tensor *t = NULL;
    sheaf_status *st = find(&t, m, (named){ name, -1, "" });
    return st == NULL ? sheaf__build_vector(m, v, t, width) : st;
}

#define ONE(l) (sheaf__linear *const[]){ l }, 1
#define FUSED(...)                                                                                 \
    (sheaf__linear *const[]){ __VA_ARGS__ },                                                       \
        sizeof((sheaf__linear *const[]){ __VA_ARGS__ }) / sizeof(sheaf__linear *)
#define VIT "mixins.eva.vit_model."
#define VIT_LAYER VIT "transformer.layers."
#define TOWER "mixins.encoder.vit.model."
#define BLOCK TOWER "blocks."
#define LAYER "transformer.layers."

static sheaf_status *build_vit(sheaf__model *m)
{
    const sheaf_vit *v = &m->schema->config.vit;
    sheaf__towers *t = m->towers;
    t->vit.layer = calloc((size_t)v->layers, sizeof *t->vit.layer);
    if (t->vit.layer == NULL)
        return sheaf__no_memory("vision tower");
    sheaf_status *st;
    (void)(DO(linear(m, ONE(&t->vit.patch),
                     (named){ VIT "mixins.patch_embedding.proj", -1, ".weight" }, ".bias")) &&
           DO(vector(m, &t->vit.class_token, VIT "transformer.word_embeddings.weight",
                     v->hidden)) &&
           DO(vector(m, &t->vit.positions, VIT "transformer.position_embeddings.weight",
                     v->hidden)));
    for (int64_t i = 0; i < v->layers && st == NULL; i++) {
        vit_layer *l = &t->vit.layer[i];
        (void)(DO(layernorm(m, &l->norm1, (named){ VIT_LAYER, i, ".input_layernorm" },
                            v->norm_eps)) &&
               DO(linear(m, FUSED(&l->q, &l->k, &l->v),
                         (named){ VIT_LAYER, i, ".attention.query_key_value.weight" },
                         ".attention.query_key_value.bias")) &&
               DO(linear(m, ONE(&l->dense), (named){ VIT_LAYER, i, ".attention.dense.weight" },
                         ".attention.dense.bias")) &&
               DO(layernorm(m, &l->norm2, (named){ VIT_LAYER, i, ".post_attention_layernorm" },
                            v->norm_eps)) &&
               DO(linear(m, ONE(&l->up), (named){ VIT_LAYER, i, ".mlp.dense_h_to_4h.weight" },
                         ".mlp.dense_h_to_4h.bias")) &&
               DO(linear(m, ONE(&l->down), (named){ VIT_LAYER, i, ".mlp.dense_4h_to_h.weight" },
                         ".mlp.dense_4h_to_h.bias")));
    }
    return st;
}

static sheaf_status *build_adapter(sheaf__model *m)
{
    const sheaf_config *c = &m->schema->config;
    sheaf__towers *t = m->towers;
    static const char before[] = "mixins.eva.linear_proj.";
    sheaf_status *st = c->family == SHEAF_COGAGENT
                           ? vector(m, &t->adapter.positions, "mixins.eva.pos_embed", c->vit.hidden)
                           : NULL;
    if (st != NULL)
        return st;
    (void)(DO(linear(m, ONE(&t->adapter.linear), (named){ before, -1, "linear_proj.weight" },
                     NULL)) &&
           DO(layernorm(m, &t->adapter.norm, (named){ before, -1, "norm1" }, ADAPTER_EPS)) &&
           DO(linear(m, ONE(&t->adapter.up), (named){ before, -1, "dense_h_to_4h.weight" },
                     NULL)) &&
           DO(linear(m, ONE(&t->adapter.gate), (named){ before, -1, "gate_proj.weight" }, NULL)) &&
           DO(linear(m, ONE(&t->adapter.down), (named){ before, -1, "dense_4h_to_h.weight" },
                     NULL)) &&
           DO(vector(m, &t->boi, "mixins.eva.boi", c->hidden)) &&
           DO(vector(m, &t->eoi, "mixins.eva.eoi", c->hidden)));
    return st;
}

static sheaf_status *build_tower(sheaf__model *m)
{
    const sheaf_encoder *e = &m->schema->config.encoder;
    sheaf__towers *t = m->towers;
    t->tower.blocks = e->layers - 1;
    t->tower.block = calloc((size_t)t->tower.blocks + 1, sizeof *t->tower.block);
    if (t->tower.block == NULL)
        return sheaf__no_memory("high-resolution tower");
    sheaf_status *st;
    (void)(DO(linear(m, ONE(&t->tower.patch), (named){ TOWER "patch_embed.proj", -1, ".weight" },
                     ".bias")) &&
           DO(vector(m, &t->tower.class_token, TOWER "cls_token", e->width)) &&
           DO(vector(m, &t->tower.positions, TOWER "pos_embed", e->width)) &&
           DO(vector(m, &t->tower.extra, "mixins.encoder.pos_embed", e->width)) &&
           DO(vector(m, &t->tower.cos, TOWER "rope.freqs_cos", e->head_width)) &&
           DO(vector(m, &t->tower.sin, TOWER "rope.freqs_sin", e->head_width)));
    for (int64_t i = 0; i < t->tower.blocks && st == NULL; i++) {
        tower_block *b = &t->tower.block[i];
        (void)(DO(layernorm(m, &b->norm1, (named){ BLOCK, i, ".norm1" }, TOWER_EPS)) &&
               DO(linear(m, ONE(&b->q), (named){ BLOCK, i, ".attn.q_proj.weight" },
                         ".attn.q_bias")) &&
               DO(linear(m, ONE(&b->k), (named){ BLOCK, i, ".attn.k_proj.weight" }, NULL)) &&
               DO(linear(m, ONE(&b->v), (named){ BLOCK, i, ".attn.v_proj.weight" },
                         ".attn.v_bias")) &&
               DO(layernorm(m, &b->norm_attention, (named){ BLOCK, i, ".attn.inner_attn_ln" },
                            TOWER_EPS)) &&
               DO(linear(m, ONE(&b->proj), (named){ BLOCK, i, ".attn.proj.weight" },
                         ".attn.proj.bias")) &&
               DO(layernorm(m, &b->norm2, (named){ BLOCK, i, ".norm2" }, TOWER_EPS)) &&
               DO(linear(m, ONE(&b->w1), (named){ BLOCK, i, ".mlp.w1.weight" }, ".mlp.w1.bias")) &&
               DO(linear(m, ONE(&b->w2), (named){ BLOCK, i, ".mlp.w2.weight" }, ".mlp.w2.bias")) &&
               DO(layernorm(m, &b->norm_ffn, (named){ BLOCK, i, ".mlp.ffn_ln" }, TOWER_EPS)) &&
               DO(linear(m, ONE(&b->w3), (named){ BLOCK, i, ".mlp.w3.weight" }, ".mlp.w3.bias")));
    }
    return st;
}

static sheaf_status *build_cross(sheaf__model *m, sheaf__layer *l, int i)
{
    l->has_cross = true;
    sheaf_status *st;
    if (!(DO(rmsnorm(m, &l->norm_cross,
                     (named){ LAYER, i, ".post_cross_attention_layernorm.weight" })) &&
          DO(linear(m, ONE(&l->cross_q), (named){ LAYER, i, ".cross_attention.query.weight" },
                    NULL))))
        return st;
    st = linear(m, FUSED(&l->cross_k, &l->cross_v),
                (named){ LAYER, i, ".cross_attention.key_value.weight" }, NULL);
    return st != NULL ? st
                      : linear(m, ONE(&l->cross_o),
                               (named){ LAYER, i, ".cross_attention.dense.weight" }, NULL);
}

static sheaf_status *build_layer(sheaf__model *m, int i)
{
    const sheaf_config *c = &m->schema->config;
    sheaf__layer *l = &m->layer[i];
    sheaf__expert *text = &l->expert[SHEAF__TEXT], *image = &l->expert[SHEAF__IMAGE];
    sheaf_status *st;
    (void)(DO(rmsnorm(m, &l->norm_in, (named){ LAYER, i, ".input_layernorm.weight" })) &&
           DO(rmsnorm(m, &l->norm_post, (named){ LAYER, i, ".post_attention_layernorm.weight" })) &&
           DO(linear(m, FUSED(&text->q, &text->k, &text->v),
                     (named){ LAYER, i, ".attention.query_key_value.weight" }, NULL)) &&
           DO(linear(m, ONE(&text->o), (named){ LAYER, i, ".attention.dense.weight" }, NULL)) &&
           DO(linear(m, ONE(&text->gate), (named){ "mixins.mlp.gate_proj.", i, ".weight" },
                     NULL)) &&
           DO(linear(m, ONE(&text->up), (named){ LAYER, i, ".mlp.dense_h_to_4h.weight" }, NULL)) &&
           DO(linear(m, ONE(&text->down), (named){ LAYER, i, ".mlp.dense_4h_to_h.weight" }, NULL)));
    l->has_expert = i < c->experts;
    if (st == NULL && l->has_expert)
        (void)(DO(linear(m, FUSED(&image->q, &image->k, &image->v),
                         (named){ "mixins.rotary.vision_query_key_value_list.", i, ".weight" },
                         NULL)) &&
               DO(linear(m, ONE(&image->o),
                         (named){ "mixins.rotary.vision_dense_list.", i, ".weight" }, NULL)) &&
               DO(linear(m, ONE(&image->gate),
                         (named){ "mixins.mlp.vision_gate_proj.", i, ".weight" }, NULL)) &&
               DO(linear(m, ONE(&image->up),
                         (named){ "mixins.mlp.vision_dense_h_to_4h_list.", i, ".weight" }, NULL)) &&
               DO(linear(m, ONE(&image->down),
                         (named){ "mixins.mlp.vision_dense_4h_to_h_list.", i, ".weight" }, NULL)));
    return st == NULL && (c->cross_layers[i / 64] >> i % 64 & 1) != 0 ? build_cross(m, l, i) : st;
}

sheaf_status *sheaf__cog_build(sheaf__model *m)
{
    const sheaf_config *c = &m->schema->config;
    const sheaf_tensor *head = NULL, *table = NULL;
    m->towers = calloc(1, sizeof *m->towers);
    if (m->towers == NULL)
        return sheaf__no_memory("vision tower");
    sheaf_status *st = find(&head, m, (named){ "mixins.lm.lm_head.weight", -1, "" });
    TRY(st, find(&table, m, (named){ "transformer.word_embeddings.weight", -1, "" }));
    if (st == NULL && m->ends)
        st = sheaf__build_linear(m, &m->head, head, NULL, 0);
    if (st == NULL && m->begins)
        st = sheaf__build_table(m, &m->embedding, table, NULL);
    if (st == NULL && m->begins)
        st = build_vit(m);
    if (st == NULL && m->begins)
        st = build_adapter(m);
    if (st == NULL && m->begins && c->family == SHEAF_COGAGENT)
        st = build_tower(m);
    for (int64_t i = m->first_layer; i < m->end_layer && st == NULL; i++)
        st = build_layer(m, (int)i);
    if (st == NULL && m->ends)
        st = rmsnorm(m, &m->norm, (named){ "transformer.final_layernorm.weight", -1, "" });
    return st == NULL ? sheaf__build_rope(m, &m->rope, c->head_dim) : st;
}

void sheaf__cog_release(sheaf__model *m)
{
    if (m->towers == NULL)
        return;
    free(m->towers->vit.layer);
    free(m->towers->tower.block);
    free(m->towers);
}

/* ---- the pass ---- */

typedef struct run {
    sheaf__model *m;
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
    return sheaf__record_rows(r->tape, x, l, residual, &r->pass->info[r->kind]);
}

static sheaf__value *attention(const run *r, sheaf__value *const qkv[3], int64_t patches,
                               int64_t width)
{
    const sheaf__heads heads = { .batch = r->pass->images,
                                 .queries = patches + 1,
                                 .kv_heads = qkv[1]->cols / width,
                                 .group = 1,
                                 .head_dim = width };
    return sheaf__record_full_attention(r->tape, qkv[0], qkv[1], qkv[2], &heads, patches + 1, NULL);
}

static sheaf__value *record_vit(const run *r)
{
    const sheaf_vit *v = &r->m->schema->config.vit;
    sheaf__towers *t = r->m->towers;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, &r->m->schema->config);
    const int64_t patches = tower[IMAGE].patches;
    sheaf__value *pixels = sheaf__record_patches(r->tape, r->pass->images_in, r->pass->images,
                                                 &tower[IMAGE], IMAGE),
                 *x;
    columns(r, &x, pixels, ONE(&t->vit.patch));
    x = sheaf__record_tokens(r->tape, x, r->pass->images, &t->vit.class_token, &t->vit.positions);
    for (int64_t i = 0; i < v->layers; i++) {
        vit_layer *l = &t->vit.layer[i];
        sheaf__value *qkv[3], *h;
        sheaf__tape_segment_begin(r->tape, (int)i);
        columns(r, qkv, x, FUSED(&l->q, &l->k, &l->v));
        sheaf__value *a =
            rows(r, attention(r, qkv, patches, v->hidden / v->heads), &l->dense, NULL);
        x = sheaf__record_layernorm(r->tape, a, &l->norm1, x);
        columns(r, &h, x, ONE(&l->up));
        a = rows(r, sheaf__record_gelu(r->tape, h, false), &l->down, NULL);
        x = sheaf__record_layernorm(r->tape, a, &l->norm2, x);
        sheaf__stage(r->pass, r->tape, "vit", (int)i, SHEAF__TEXT, x);
        sheaf__tape_segment_end(r->tape);
    }
    return sheaf__record_grid(r->tape, x, r->pass->images,
                              t->adapter.positions.data == NULL ? NULL : &t->adapter.positions);
}

static sheaf__value *see_image(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass)
{
    const run r = { m, tape, pass, sheaf__rows_after(IMAGE) };
    sheaf__towers *t = m->towers;
    sheaf__value *x = record_vit(&(run){ m, tape, pass, sheaf__rows_inside(IMAGE) }), *gate_up[2];
    sheaf__stage(pass, tape, "adapter_in", -1, SHEAF__TEXT, x);
    sheaf__value *z =
        rows(&r, sheaf__record_own_columns(tape, x, &t->adapter.linear), &t->adapter.linear, NULL);
    z = sheaf__record_gelu(tape, sheaf__record_layernorm(tape, z, &t->adapter.norm, NULL), false);
    columns(&r, gate_up, z, FUSED(&t->adapter.gate, &t->adapter.up));
    x = rows(&r, sheaf__record_swiglu(tape, gate_up[0], gate_up[1], false), &t->adapter.down, NULL);
    return x;
}

/* A value that nothing reads would have no gradient to walk back. */
static sheaf__value *see_memory(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass)
{
    const run r = { m, tape, pass, sheaf__rows_inside(MEMORY) };
    sheaf__towers *t = m->towers;
    const sheaf_encoder *e = &m->schema->config.encoder;
    sheaf__tower tower;
    if (t->tower.block == NULL || sheaf__tower_beside(&tower, &m->schema->config) < 0)
        return NULL;
    const int64_t patches = tower.patches;
    sheaf__value *pixels =
                     sheaf__record_patches(tape, pass->images_in, pass->images, &tower, MEMORY),
                 *x;
    columns(&r, &x, pixels, ONE(&t->tower.patch));
    x = sheaf__record_tokens(tape, x, pass->images, &t->tower.class_token, &t->tower.positions);
    for (int64_t i = 0; i < t->tower.blocks; i++) {
        tower_block *b = &t->tower.block[i];
        sheaf__value *qkv[3], *w[2];
        sheaf__tape_segment_begin(tape, (int)i);
        columns(&r, qkv, sheaf__record_layernorm(tape, x, &b->norm1, NULL),
                FUSED(&b->q, &b->k, &b->v));
        for (int j = 0; j < 2; j++)
            sheaf__record_rope_grid(tape, qkv[j], t->tower.cos.data, t->tower.sin.data,
                                    pass->images, qkv[j]->cols / e->head_width, e->head_width);
        sheaf__value *o = sheaf__record_layernorm(tape, attention(&r, qkv, patches, e->head_width),
                                                  &b->norm_attention, NULL);
        x = rows(&r, o, &b->proj, x);
        columns(&r, w, sheaf__record_layernorm(tape, x, &b->norm2, NULL), FUSED(&b->w1, &b->w2));
        x = rows(&r,
                 sheaf__record_layernorm(tape, sheaf__record_swiglu(tape, w[0], w[1], false),
                                         &b->norm_ffn, NULL),
                 &b->w3, x);
        sheaf__tape_segment_end(tape);
    }
    return sheaf__record_grid(tape, x, pass->images, &t->tower.extra);
}

sheaf__value *sheaf__cog_see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass, int tower)
{
    return tower == IMAGE ? see_image(m, tape, pass) : see_memory(m, tape, pass);
}

void sheaf__cog_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                      const sheaf__pass *pass)
{
    sheaf__record_place_images(tape, x, image, pass->images, &m->towers->boi, &m->towers->eoi,
                               pass->images_in);
}
