/* rows.c - the tensors of Llama and its kin: names, shapes and cuts as docs/layouts.md lists
 * them. */
#include <assert.h>

#include "families/common/rows.h"
#include "base/base.h"
#include "families/llama/llama.h"

enum { PER_LAYER_MOST = 20 }; /* 6 norms, 7 weights, 7 biases; 3 weights for each expert */

/* A schema while it grows. */
typedef struct builder {
    sheaf_schema *schema;
    int64_t capacity;
    bool failed;
} builder;

/* The module's name; "model.layers.%d." is put before names inside a layer. */
static const char *const module_name[SHEAF_ROLES] = {
    [SHEAF_EMBED] = "model.embed_tokens",
    [SHEAF_HEAD] = "lm_head",
    [SHEAF_Q] = "self_attn.q_proj",
    [SHEAF_K] = "self_attn.k_proj",
    [SHEAF_V] = "self_attn.v_proj",
    [SHEAF_O] = "self_attn.o_proj",
    [SHEAF_GATE] = "mlp.gate_proj",
    [SHEAF_UP] = "mlp.up_proj",
    [SHEAF_DOWN] = "mlp.down_proj",
    [SHEAF_NORM_IN] = "input_layernorm",
    [SHEAF_NORM_POST] = "post_attention_layernorm",
    [SHEAF_NORM_FINAL] = "model.norm",
    [SHEAF_QKV] = "self_attn.qkv_proj",
    [SHEAF_GATE_UP] = "mlp.gate_up_proj",
    [SHEAF_NORM_Q] = "self_attn.q_norm",
    [SHEAF_NORM_K] = "self_attn.k_norm",
    [SHEAF_NORM_AFTER_ATTENTION] = "post_attention_layernorm",
    [SHEAF_NORM_AFTER_MLP] = "post_feedforward_layernorm",
};

/* Where norms stand around both, the one before the MLP has another name. */
static const char *name_of(const builder *b, sheaf_role role)
{
    const sheaf__llama_form *form = sheaf__family_for(&b->schema->config)->form;
    return role == SHEAF_NORM_POST && form->norms_around ? "pre_feedforward_layernorm"
                                                         : module_name[role];
}

/* name: of the module inside its layer; NULL: that of the role. */
static sheaf_tensor *add_named(builder *b, sheaf_role role, const char *name, int layer, bool bias)
{
    sheaf_schema *schema = b->schema;
    sheaf_tensor *t = &schema->tensor[schema->count];
    assert(schema->count < b->capacity);
    if (b->failed)
        return NULL;
    *t = (sheaf_tensor){ .role = role,
                         .bias = bias,
                         .layer = layer,
                         .in_axis = -1,
                         .out_axis = -1,
                         .shape = { 1, 1, 1, 1 } };
    const char *begin = sheaf__family_for(&schema->config)->form->prefix;
    char prefix[64];
    if (name == NULL)
        name = name_of(b, role);
    snprintf(prefix, sizeof prefix, layer >= 0 ? "%smodel.layers.%d." : "%s",
             begin == NULL ? "" : begin, layer);
    if (asprintf(&t->module, "%s%s", prefix, name) < 0)
        t->module = NULL;
    if (asprintf(&t->name, "%s%s.%s", prefix, name, bias ? "bias" : "weight") < 0)
        t->name = NULL;
    b->failed = t->module == NULL || t->name == NULL;
    schema->count++;
    return b->failed ? NULL : t;
}

static sheaf_tensor *add(builder *b, sheaf_role role, int layer, bool bias)
{
    return add_named(b, role, NULL, layer, bias);
}

static void add_vector(builder *b, sheaf_role role, int layer, bool bias, int64_t n, sheaf_cut cut)
{
    sheaf_tensor *t = add(b, role, layer, bias);
    if (t == NULL)
        return;
    t->ndim = 1;
    t->zero = sheaf__is_norm(role) && sheaf__family_for(&b->schema->config)->form->norm_one;
    t->shape[0] = n;
    t->cut = cut;
    t->cut.slices = b->schema->slices;
}

/* A weight [out, in] cut along `axis` in `units` units. */
static sheaf_tensor *add_matrix(builder *b, sheaf_role role, const char *name, int layer,
                                int64_t out, int64_t in, int axis, int64_t units)
{
    sheaf_tensor *t = add_named(b, role, name, layer, false);
    if (t == NULL)
        return NULL;
    t->ndim = 2;
    t->shape[0] = out;
    t->shape[1] = in;
    t->in_axis = 1;
    t->out_axis = 0;
    t->cut = (sheaf_cut){ .axis = axis,
                          .slices = b->schema->slices,
                          .nparts = 1,
                          .part = { { units, (axis == 0 ? out : in) / units } } };
    return t;
}

/* The same; its bias, if it has one, is cut like the weight's out axis. */
static void add_weight(builder *b, sheaf_role role, int layer, int64_t out, int64_t in, int axis,
                       int64_t units, bool bias)
{
    const sheaf_tensor *t = add_matrix(b, role, NULL, layer, out, in, axis, units);
    if (t != NULL && bias)
        add_vector(b, role, layer, true, out, axis == 0 ? t->cut : (sheaf_cut){ 0 });
}

/* A fused weight, cut along out: each part is divided on its own. */
static void add_fused(builder *b, sheaf_role role, int layer, int64_t in, const sheaf_part *part,
                      int parts)
{
    int64_t out = 0;
    for (int i = 0; i < parts; i++)
        out += part[i].units * part[i].rows_per_unit;
    const int64_t at = b->schema->count;
    add_weight(b, role, layer, out, in, 0, 1, false);
    if (b->failed)
        return;
    sheaf_cut *cut = &b->schema->tensor[at].cut;
    cut->nparts = parts;
    memcpy(cut->part, part, (size_t)parts * sizeof *part);
}

static void add_attention(builder *b, const sheaf_config *c, const sheaf__llama_form *form,
                          int layer)
{
    const int64_t q = c->heads * c->head_dim, kv = c->kv_heads * c->head_dim;
    /* Query heads travel with the key/value head they read: the unit is the whole group. */
    const sheaf_part part[] = { { c->kv_heads, q / c->kv_heads },
                                { c->kv_heads, c->head_dim },
                                { c->kv_heads, c->head_dim } };
    if (form->fused) {
        add_fused(b, SHEAF_QKV, layer, c->hidden, part, 3);
    } else {
        add_weight(b, SHEAF_Q, layer, q, c->hidden, 0, c->kv_heads, c->qkv_bias);
        add_weight(b, SHEAF_K, layer, kv, c->hidden, 0, c->kv_heads, c->qkv_bias);
        add_weight(b, SHEAF_V, layer, kv, c->hidden, 0, c->kv_heads, c->qkv_bias);
    }
    for (int i = 0; i < 2 && form->qk_norm != SHEAF__QK_PLAIN; i++) {
        const bool whole = form->qk_norm == SHEAF__QK_WHOLE;
        add_vector(b, i == 0 ? SHEAF_NORM_Q : SHEAF_NORM_K, layer, false,
                   whole ? part[i].units * part[i].rows_per_unit : c->head_dim,
                   whole ? (sheaf_cut){ .axis = 0, .nparts = 1, .part = { part[i] } }
                         : (sheaf_cut){ 0 });
    }
    add_weight(b, SHEAF_O, layer, c->hidden, q, 1, c->kv_heads, c->o_bias);
}

static void add_mlp(builder *b, const sheaf_config *c, const sheaf__llama_form *form, int layer)
{
    if (form->fused) {
        add_fused(b, SHEAF_GATE_UP, layer, c->hidden,
                  (const sheaf_part[]){ { c->ffn, 1 }, { c->ffn, 1 } }, 2);
    } else {
        add_weight(b, SHEAF_GATE, layer, c->ffn, c->hidden, 0, c->ffn, c->mlp_bias);
        add_weight(b, SHEAF_UP, layer, c->ffn, c->hidden, 0, c->ffn, c->mlp_bias);
    }
    add_weight(b, SHEAF_DOWN, layer, c->hidden, c->ffn, 1, c->ffn, c->mlp_bias);
}

/* The router, which every rank has whole, and the experts, each cut as an MLP is. */
static void add_mixture(builder *b, const sheaf_config *c, int layer)
{
    sheaf_tensor *router =
        add_matrix(b, SHEAF_LINEAR, SHEAF__MIXTURE "gate", layer, c->mixed, c->hidden, 0, c->mixed);
    if (router != NULL)
        router->cut = (sheaf_cut){ .slices = b->schema->slices };
    for (int64_t i = 0; i < c->mixed; i++)
        for (int w = 1; w <= 3; w++) {
            char name[64];
            snprintf(name, sizeof name, SHEAF__MIXTURE "experts.%" PRId64 ".w%d", i, w);
            add_matrix(b, SHEAF_LINEAR, name, layer, w == 2 ? c->hidden : c->ffn,
                       w == 2 ? c->ffn : c->hidden, w == 2, c->ffn);
        }
}

static void add_layer(builder *b, const sheaf_config *c, const sheaf__llama_form *form, int layer)
{
    const sheaf_cut whole = { 0 };
    if (!form->norms_after)
        add_vector(b, SHEAF_NORM_IN, layer, false, c->hidden, whole);
    add_attention(b, c, form, layer);
    if (form->norms_after || form->norms_around)
        add_vector(b, SHEAF_NORM_AFTER_ATTENTION, layer, false, c->hidden, whole);
    if (!form->norms_after)
        add_vector(b, SHEAF_NORM_POST, layer, false, c->hidden, whole);
    if (form->mixture)
        add_mixture(b, c, layer);
    else
        add_mlp(b, c, form, layer);
    if (form->norms_after || form->norms_around)
        add_vector(b, SHEAF_NORM_AFTER_MLP, layer, false, c->hidden, whole);
}

/* Sizes may come from elsewhere than a config that was read: Megatron's arguments. */
static sheaf_status *check_config(const sheaf_config *c)
{
    const struct {
        const char *name;
        int64_t value, most;
    } sizes[] = {
        { "vocab", c->vocab, INT32_MAX },     { "hidden", c->hidden, 1 << 24 },
        { "ffn", c->ffn, 1 << 26 },           { "layers", c->layers, 4096 },
        { "heads", c->heads, 1 << 16 },       { "kv_heads", c->kv_heads, 1 << 16 },
        { "head_dim", c->head_dim, 1 << 16 },
    };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        TRY(st, sheaf__rows_size(sizes[i].name, sizes[i].value, sizes[i].most));
    if (st != NULL)
        return st;
    if (c->heads % c->kv_heads != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "config: heads"),
                                          "a multiple of the %" PRId64 " key/value heads",
                                          c->kv_heads),
                           "%" PRId64, c->heads);
    const int64_t rotated =
        (int64_t)((double)c->head_dim * (c->rope.partial == 0 ? 1 : c->rope.partial));
    if (rotated < 2 || rotated % 2 != 0)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_LAYOUT, "config: head_dim"),
                                          "an even number of rotated elements in a head"),
                           "%" PRId64 " of a head of %" PRId64, rotated, c->head_dim);
    return NULL;
}

sheaf_status *sheaf__llama_rows(sheaf_schema *schema)
{
    const sheaf_config *config = &schema->config;
    const sheaf__llama_form *form = sheaf__family_for(config)->form;
    sheaf_status *st = check_config(config);
    if (st != NULL)
        return st;
    builder b = { schema, 3 + (PER_LAYER_MOST + 3 * config->mixed) * config->layers, false };
    schema->tensor = calloc((size_t)b.capacity, sizeof *schema->tensor);
    if (schema->tensor == NULL)
        return sheaf__no_memory("out of memory for the list of tensors");
    /* The table maps a token (its in axis, cut) to a hidden vector. */
    add_weight(&b, SHEAF_EMBED, -1, config->vocab, config->hidden, 0, config->vocab, false);
    if (!b.failed) {
        schema->tensor[0].in_axis = 0;
        schema->tensor[0].out_axis = 1;
    }
    for (int64_t i = 0; i < config->layers; i++)
        add_layer(&b, config, form, (int)i);
    add_vector(&b, SHEAF_NORM_FINAL, -1, false, config->hidden, (sheaf_cut){ 0 });
    if (!config->tied)
        add_weight(&b, SHEAF_HEAD, -1, config->vocab, config->hidden, 0, config->vocab, false);
    if (b.failed)
        return sheaf__no_memory("out of memory for the names of tensors");
    /* Roles do not tell the tensors of a mixture. */
    return form->mixture ? sheaf__schema_sort(schema) : NULL;
}
