/* tower.c - the tower of Qwen2.5-VL and Qwen3-VL and what joins its rows: tensors, building,
 * passes.
 *
 *   x = patches [+ positions], in the order of windows
 *   x += proj(attention(turn q, turn k, v)),  q, k, v = qkv N1 x;  x += mlp(N2 x)
 *
 *   2.5          mlp h = down(silu(gate h) * up h), N an RMSNorm
 *   3            mlp h = fc2(gelu(fc1 h)), N a LayerNorm
 *   merger       y = fc2(gelu(fc1(join(N x))))
 *   deepstack's  y_k = fc2(gelu(fc1(N(join x)))), x behind block deepstack_visual_indexes[k]
 *
 * gelu of tanh in blocks, of erf in mergers. */
#include "base/base.h"
#include "families/common/rows.h"
#include "families/qwenvl/qwenvl.h"
#include "models/build.h"
#include "models/resampler.h"
#include "models/rope.h"
#include "schema/grid.h"
#include "tape/windows.h"

/* One of both has a name. */
typedef struct either_norm {
    sheaf__norm rms;
    sheaf__layernorm layer;
} either_norm;

typedef struct block {
    either_norm norm1, norm2;
    sheaf__linear q, k, v, proj, gate, up, down; /* of an MLP of two layers: gate and down */
} block;

typedef struct merger {
    either_norm norm;
    sheaf__linear fc1, fc2;
} merger;

struct sheaf__towers {
    sheaf__linear patch;
    sheaf__vector positions;
    block *block;
    merger merger, deep[SHEAF_MAX_DEEP];
    sheaf__angles angles;
};

/* ---- tensors ---- */

#define TOWER SHEAF__QWENVL_TOWER
#define ROWS(rows) rows, sizeof rows / sizeof *rows

static sheaf_status *block_rows(sheaf_schema *schema, int i)
{
    const sheaf_vit *v = &schema->config.vit;
    const int64_t w = v->hidden, f = v->ffn, h = v->heads;
    const bool third = sheaf__qwenvl_is_third(&schema->config);
    const sheaf__tensor_row attention[] = {
        { "attn.qkv.weight", { 3 * w, w }, SHEAF_LINEAR, SHEAF__BY_OUT3, h },
        { "attn.qkv.bias", { 3 * w }, SHEAF_LINEAR, SHEAF__BY_OUT3, h },
        { "attn.proj.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_IN, h },
        { "attn.proj.bias", { w }, SHEAF_LINEAR },
    };
    const sheaf__tensor_row norms[] = { { "norm1.weight", { w }, SHEAF_NORM },
                                        { "norm2.weight", { w }, SHEAF_NORM } };
    const sheaf__tensor_row norms_biased[] = { { "norm1.weight", { w }, SHEAF_NORM },
                                               { "norm1.bias", { w }, SHEAF_NORM },
                                               { "norm2.weight", { w }, SHEAF_NORM },
                                               { "norm2.bias", { w }, SHEAF_NORM } };
    const sheaf__tensor_row gated[] = {
        { "mlp.gate_proj.weight", { f, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.gate_proj.bias", { f }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.up_proj.weight", { f, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.up_proj.bias", { f }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.down_proj.weight", { w, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.down_proj.bias", { w }, SHEAF_LINEAR },
    };
    const sheaf__tensor_row plain[] = {
        { "mlp.linear_fc1.weight", { f, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.linear_fc1.bias", { f }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.linear_fc2.weight", { w, f }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.linear_fc2.bias", { w }, SHEAF_LINEAR },
    };
    char p[64];
    snprintf(p, sizeof p, TOWER "blocks.%d.", i);
    sheaf_status *st = third ? sheaf__rows_add(schema, p, i, ROWS(norms_biased))
                             : sheaf__rows_add(schema, p, i, ROWS(norms));
    TRY(st, sheaf__rows_add(schema, p, i, ROWS(attention)));
    return TRY(st, third ? sheaf__rows_add(schema, p, i, ROWS(plain))
                         : sheaf__rows_add(schema, p, i, ROWS(gated)));
}

/* norm: the width of its norm. */
static sheaf_status *merger_rows(sheaf_schema *schema, const char *prefix, int64_t norm)
{
    const sheaf_config *c = &schema->config;
    const int64_t w = c->vit.hidden * c->qwen_vit.merge * c->qwen_vit.merge;
    const sheaf__tensor_row second[] = {
        { "ln_q.weight", { norm }, SHEAF_NORM },
        { "mlp.0.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.0.bias", { w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "mlp.2.weight", { c->hidden, w }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "mlp.2.bias", { c->hidden }, SHEAF_LINEAR },
    };
    const sheaf__tensor_row third[] = {
        { "norm.weight", { norm }, SHEAF_NORM },
        { "norm.bias", { norm }, SHEAF_NORM },
        { "linear_fc1.weight", { w, w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "linear_fc1.bias", { w }, SHEAF_LINEAR, SHEAF__BY_OUT },
        { "linear_fc2.weight", { c->hidden, w }, SHEAF_LINEAR, SHEAF__BY_IN },
        { "linear_fc2.bias", { c->hidden }, SHEAF_LINEAR },
    };
    return sheaf__qwenvl_is_third(c) ? sheaf__rows_add(schema, prefix, -1, ROWS(third))
                                     : sheaf__rows_add(schema, prefix, -1, ROWS(second));
}

static void deep_prefix(char prefix[64], int64_t k)
{
    snprintf(prefix, 64, TOWER "deepstack_merger_list.%" PRId64 ".", k);
}

sheaf_status *sheaf__qwenvl_rows(sheaf_schema *schema)
{
    const sheaf_config *c = &schema->config;
    const sheaf_vit *v = &c->vit;
    const sheaf__tensor_row first[] = {
        { "patch_embed.proj.weight",
          { v->hidden, v->channels, c->qwen_vit.frames, v->patch, v->patch },
          SHEAF_OTHER },
        { "patch_embed.proj.bias", { v->hidden }, SHEAF_OTHER },
        { "pos_embed.weight", { v->positions, v->hidden }, SHEAF_OTHER },
    };
    sheaf_status *st = sheaf__llama_rows(schema);
    TRY(st, sheaf__rows_add(schema, TOWER, -1, first, sheaf__qwenvl_is_third(c) ? 3 : 1));
    for (int64_t i = 0; i < v->layers; i++)
        TRY(st, block_rows(schema, (int)i));
    TRY(st, merger_rows(schema, TOWER "merger.", v->hidden));
    for (int64_t k = 0; k < c->qwen_vit.deep; k++) {
        char prefix[64];
        deep_prefix(prefix, k);
        TRY(st, merger_rows(schema, prefix, v->hidden * c->qwen_vit.merge * c->qwen_vit.merge));
    }
    return st;
}

/* ---- building ---- */

static sheaf_status *build_norm(sheaf__model *m, either_norm *n, const char *prefix,
                                const char *name)
{
    const double eps = m->schema->config.vit.norm_eps;
    return sheaf__qwenvl_is_third(&m->schema->config)
               ? sheaf__named_layernorm(m, &n->layer, prefix, name, eps)
               : sheaf__named_rmsnorm(m, &n->rms, prefix, name, eps);
}

static sheaf_status *build_block(sheaf__model *m, block *b, int64_t i)
{
    const bool third = sheaf__qwenvl_is_third(&m->schema->config);
    char p[64];
    snprintf(p, sizeof p, TOWER "blocks.%" PRId64 ".", i);
    sheaf_status *st = build_norm(m, &b->norm1, p, "norm1");
    TRY(st, build_norm(m, &b->norm2, p, "norm2"));
    TRY(st, sheaf__named_biased(m, &b->q, p, "attn.qkv", 0));
    TRY(st, sheaf__named_biased(m, &b->k, p, "attn.qkv", 1));
    TRY(st, sheaf__named_biased(m, &b->v, p, "attn.qkv", 2));
    TRY(st, sheaf__named_biased(m, &b->proj, p, "attn.proj", 0));
    TRY(st, sheaf__named_biased(m, &b->gate, p, third ? "mlp.linear_fc1" : "mlp.gate_proj", 0));
    if (!third)
        TRY(st, sheaf__named_biased(m, &b->up, p, "mlp.up_proj", 0));
    return TRY(st,
               sheaf__named_biased(m, &b->down, p, third ? "mlp.linear_fc2" : "mlp.down_proj", 0));
}

static sheaf_status *build_merger(sheaf__model *m, merger *g, const char *prefix)
{
    const bool third = sheaf__qwenvl_is_third(&m->schema->config);
    sheaf_status *st = build_norm(m, &g->norm, prefix, third ? "norm" : "ln_q");
    TRY(st, sheaf__named_biased(m, &g->fc1, prefix, third ? "linear_fc1" : "mlp.0", 0));
    return TRY(st, sheaf__named_biased(m, &g->fc2, prefix, third ? "linear_fc2" : "mlp.2", 0));
}

/* Of each head the first half of the pairs turns by the row, the others by the column, at the same
 * frequencies. sheaf__model_new() has refused heads of more pairs than there is room for. */
static void build_angles(sheaf__angles *out, const sheaf_config *c)
{
    const int64_t quarter = c->vit.hidden / c->vit.heads / 4;
    sheaf_config as = { .rope = { .theta = c->qwen_vit.theta } };
    *out = (sheaf__angles){ .pairs = 2 * quarter, .attention = 1, .dtype = SHEAF_F32 };
    for (int64_t j = 0; j < 2 * quarter; j++) {
        out->axis[j] = (uint8_t)(j / quarter);
        out->frequency[j] = sheaf__rope_frequency(&as, j % quarter, 2 * quarter, 0);
    }
}

sheaf_status *sheaf__qwenvl_build(sheaf__model *m)
{
    const sheaf_config *c = &m->schema->config;
    const bool third = sheaf__qwenvl_is_third(c);
    sheaf_status *st = sheaf__llama_build(m);
    if (st != NULL || !m->begins) /* the tower is on the first stage */
        return st;
    st = sheaf__build_parts(&m->towers, m, 1, sizeof *m->towers);
    sheaf__towers *t = m->towers;
    if (st == NULL)
        build_angles(&t->angles, c);
    TRY(st, sheaf__build_parts(&t->block, m, c->vit.layers, sizeof *t->block));
    TRY(st, sheaf__named_linear(m, &t->patch, TOWER, "patch_embed.proj.weight",
                                third ? "patch_embed.proj.bias" : NULL, 0));
    if (third)
        TRY(st, sheaf__named_vector(m, &t->positions, TOWER, "pos_embed.weight", c->vit.hidden));
    for (int64_t i = 0; i < c->vit.layers; i++)
        TRY(st, build_block(m, &t->block[i], i));
    TRY(st, build_merger(m, &t->merger, TOWER "merger."));
    for (int64_t k = 0; k < c->qwen_vit.deep; k++) {
        char prefix[64];
        deep_prefix(prefix, k);
        TRY(st, build_merger(m, &t->deep[k], prefix));
    }
    return st;
}

/* ---- the pass ---- */

static sheaf__value *record_norm(sheaf__tape *tape, sheaf__value *x, either_norm *n)
{
    return n->rms.name != NULL ? sheaf__record_rmsnorm(tape, x, &n->rms)
                               : sheaf__record_layernorm(tape, x, &n->layer, NULL);
}

static sheaf__value *record_block(sheaf__tape *tape, sheaf__value *x, block *b,
                                  const sheaf__pictures *pictures, sheaf__turns turns,
                                  int64_t width, const sheaf__step_info *info)
{
    sheaf__value *qkv[3], *up[2], *h = record_norm(tape, x, &b->norm1);
    sheaf__record_columns(tape, qkv, h, (sheaf__linear *const[]){ &b->q, &b->k, &b->v }, 3, info);
    for (int i = 0; i < 2; i++)
        sheaf__record_turned(tape, qkv[i], turns, width);
    const sheaf__heads heads = { .kv_heads = qkv[1]->cols / width, .group = 1, .head_dim = width };
    h = sheaf__record_picture_attention(tape, qkv[0], qkv[1], qkv[2], &heads, pictures, 0);
    x = sheaf__record_rows(tape, h, &b->proj, x, NULL, info);
    sheaf__tape_mlp(tape);
    h = record_norm(tape, x, &b->norm2);
    const bool gated = b->up.name != NULL;
    sheaf__record_columns(tape, up, h, (sheaf__linear *const[]){ &b->gate, &b->up }, gated ? 2 : 1,
                          info);
    h = gated ? sheaf__record_swiglu(tape, up[0], up[1], false)
              : sheaf__record_gelu(tape, up[0], true);
    return sheaf__record_rows(tape, h, &b->down, x, NULL, info);
}

/* normed: the norm is of each patch; else of those that were joined. */
static sheaf__value *record_merger(sheaf__tape *tape, sheaf__value *x, merger *g, bool normed,
                                   const sheaf__pictures *pictures, const sheaf__step_info *info)
{
    if (normed)
        x = record_norm(tape, x, &g->norm);
    x = sheaf__record_joined(tape, x, pictures->tower.merge);
    if (!normed)
        x = record_norm(tape, x, &g->norm);
    sheaf__record_columns(tape, &x, x, (sheaf__linear *const[]){ &g->fc1 }, 1, info);
    x = sheaf__record_gelu(tape, x, false);
    x = sheaf__record_rows(tape, x, &g->fc2, NULL, NULL, info);
    return sheaf__record_squares(tape, x, pictures);
}

/* Patches in the order of windows. */
static sheaf__value *record_patches(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                    const sheaf__pictures *pictures, const sheaf__step_info *info)
{
    sheaf__towers *t = m->towers;
    sheaf__value *x = sheaf__record_picture_patches(tape, pictures);
    sheaf__record_columns(tape, &x, x, (sheaf__linear *const[]){ &t->patch }, 1, info);
    if (t->positions.name != NULL) {
        const int64_t side = sheaf__square_side(t->positions.rows);
        x = sheaf__record_grid_positions(
            tape, x, pictures,
            &(sheaf__position_grid){ SHEAF__GRID_LINEAR, &t->positions, side, side, false });
    }
    x = sheaf__record_windows(tape, x, pictures);
    sheaf__stage(pass, tape, "vit_in", -1, SHEAF__TEXT, x);
    return x;
}

sheaf__value *sheaf__qwenvl_encode(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass,
                                   int tower)
{
    const sheaf_config *c = &m->schema->config;
    const sheaf_qwen_vit *q = &c->qwen_vit;
    const sheaf__step_info *info = &pass->info[sheaf__rows_inside(tower)],
                           *given = &pass->info[sheaf__rows_given(tower)];
    sheaf__towers *t = m->towers;
    sheaf__pictures pictures = sheaf__pass_pictures(m, pass, tower);
    sheaf__value *gives[1 + SHEAF_MAX_DEEP];
    int64_t deep = 0;
    sheaf__value *x = record_patches(m, tape, pass, &pictures, info);
    const sheaf__turns turns = sheaf__record_patch_turns(tape, &t->angles, &pictures);
    for (int64_t i = 0; i < c->vit.layers; i++) {
        pictures.windows = q->window > 0 && !sheaf__layer_in(q->full_blocks, i);
        sheaf__tape_segment_begin(tape, (int)i);
        x = record_block(tape, x, &t->block[i], &pictures, turns, c->vit.hidden / c->vit.heads,
                         info);
        sheaf__stage(pass, tape, "vit", (int)i, SHEAF__TEXT, x);
        sheaf__tape_segment_end(tape);
        if (deep < q->deep && q->deep_at[deep] == i) {
            gives[1 + deep] = record_merger(tape, x, &t->deep[deep], false, &pictures, given);
            deep++;
        }
    }
    gives[0] = record_merger(tape, x, &t->merger, true, &pictures, given);
    return sheaf__record_beside(tape, gives, 1 + deep);
}

void sheaf__qwenvl_place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                         const sheaf__pass *pass)
{
    image = sheaf__record_part(tape, image, 0, m->schema->config.hidden);
    sheaf__record_place_images(tape, x, image, pass->pictures.images, NULL, NULL, pass->images_in);
}
