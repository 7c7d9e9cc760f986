/* rows.c - the tensors of Llama and its kin: names, shapes and cuts as docs/layouts.md lists
 * them. */
#include "base/base.h"
#include "families/common/rows.h"
#include "families/llama/llama.h"

typedef struct builder {
    sheaf_schema *schema;
    const sheaf__llama_form *form;
} builder;

static sheaf_status *add(const builder *b, int layer, sheaf__tensor_row row)
{
    char before[128];
    const char *prefix = b->form->prefix == NULL ? "" : b->form->prefix,
               *body = row.role == SHEAF_HEAD  ? ""
                       : b->form->body == NULL ? "model."
                                               : b->form->body;
    snprintf(before, sizeof before, layer >= 0 ? "%s%slayers.%d." : "%s%s", prefix, body, layer);
    row.zero = sheaf__is_norm(row.role) && b->form->norm_one;
    return sheaf__rows_add(b->schema, before, layer, &row, 1);
}

/* A row that some of these families have. */
typedef struct choice {
    bool has;
    sheaf__tensor_row row;
} choice;

static sheaf_status *add_rows(const builder *b, int layer, const choice *rows, size_t n)
{
    sheaf_status *st = NULL;
    for (size_t i = 0; i < n; i++)
        if (rows[i].has)
            TRY(st, add(b, layer, rows[i].row));
    return st;
}

/* The router, which every rank has whole, and the experts, each cut as an MLP is. */
static sheaf_status *add_mixture(const builder *b, int layer)
{
    const sheaf_config *c = &b->schema->config;
    const sheaf__mixture_form *form = b->form->mixture;
    const int64_t e = c->hidden, f = c->expert_ffn;
    static const char router[] = "mlp.gate.weight", gate_up[] = "mlp.experts.gate_up_proj",
                      down[] = "mlp.experts.down_proj";
    char name[64];
    snprintf(name, sizeof name, "%sgate.weight", form->prefix);
    sheaf_status *st = add(b, layer,
                           (sheaf__tensor_row){ name,
                                                { c->num_experts, e },
                                                SHEAF_LINEAR,
                                                .stack = strcmp(name, router) == 0 ? NULL : router,
                                                .bare = true });
    for (int64_t i = 0; i < c->num_experts; i++) {
        const sheaf__tensor_row rows[] = {
            { form->gate,
              { f, e },
              SHEAF_LINEAR,
              SHEAF__BY_OUT,
              .stack = gate_up,
              .stack_rows = 2 * f },
            { form->down, { e, f }, SHEAF_LINEAR, SHEAF__BY_IN, .stack = down, .stack_rows = e },
            { form->up,
              { f, e },
              SHEAF_LINEAR,
              SHEAF__BY_OUT,
              .stack = gate_up,
              .stack_row = f,
              .stack_rows = 2 * f },
        };
        for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
            sheaf__tensor_row row = rows[k];
            snprintf(name, sizeof name, "%sexperts.%" PRId64 ".%s.weight", form->prefix, i,
                     rows[k].name);
            row.name = name;
            row.bare = true;
            row.member = i;
            row.members = c->num_experts;
            TRY(st, add(b, layer, row));
        }
    }
    return st;
}

/* Query heads travel with the key/value head they read: the unit is the whole group. */
static sheaf_status *add_attention(const builder *b, int layer)
{
    const sheaf__llama_form *form = b->form;
    const sheaf_config *c = &b->schema->config;
    const int64_t e = c->hidden, d = c->head_dim, n = c->kv_heads, q = c->heads * d, k = n * d;
    const sheaf_part part[] = { { n, q / n }, { n, d }, { n, d } };
    const bool apart = !form->fused, bias = apart && c->qkv_bias,
               normed = form->qk_norm != SHEAF__QK_PLAIN, whole = form->qk_norm == SHEAF__QK_WHOLE;
    const sheaf__split norm = whole ? SHEAF__BY_OUT : SHEAF__WHOLE;
    const choice rows[] = {
        { form->fused,
          { "self_attn.qkv_proj.weight",
            { q + 2 * k, e },
            SHEAF_QKV,
            SHEAF__BY_OUT3,
            .part = part } },
        { apart, { "self_attn.q_proj.weight", { q, e }, SHEAF_Q, SHEAF__BY_OUT, n } },
        { bias, { "self_attn.q_proj.bias", { q }, SHEAF_Q, SHEAF__BY_OUT, n } },
        { apart, { "self_attn.k_proj.weight", { k, e }, SHEAF_K, SHEAF__BY_OUT, n } },
        { bias, { "self_attn.k_proj.bias", { k }, SHEAF_K, SHEAF__BY_OUT, n } },
        { apart, { "self_attn.v_proj.weight", { k, e }, SHEAF_V, SHEAF__BY_OUT, n } },
        { bias, { "self_attn.v_proj.bias", { k }, SHEAF_V, SHEAF__BY_OUT, n } },
        { normed, { "self_attn.q_norm.weight", { whole ? q : d }, SHEAF_NORM_Q, norm, n } },
        { normed, { "self_attn.k_norm.weight", { whole ? k : d }, SHEAF_NORM_K, norm, n } },
        { true, { "self_attn.o_proj.weight", { e, q }, SHEAF_O, SHEAF__BY_IN, n } },
        { c->o_bias, { "self_attn.o_proj.bias", { e }, SHEAF_O } },
    };
    return add_rows(b, layer, rows, sizeof rows / sizeof *rows);
}

static sheaf_status *add_mlp(const builder *b, int layer)
{
    const sheaf_config *c = &b->schema->config;
    const int64_t e = c->hidden, f = c->ffn;
    const bool apart = !b->form->fused_mlp, bias = apart && c->mlp_bias;
    const choice rows[] = {
        { !apart, { "mlp.gate_up_proj.weight", { 2 * f, e }, SHEAF_GATE_UP, SHEAF__BY_OUT2 } },
        { apart, { "mlp.gate_proj.weight", { f, e }, SHEAF_GATE, SHEAF__BY_OUT } },
        { bias, { "mlp.gate_proj.bias", { f }, SHEAF_GATE, SHEAF__BY_OUT } },
        { apart, { "mlp.up_proj.weight", { f, e }, SHEAF_UP, SHEAF__BY_OUT } },
        { bias, { "mlp.up_proj.bias", { f }, SHEAF_UP, SHEAF__BY_OUT } },
        { true, { "mlp.down_proj.weight", { e, f }, SHEAF_DOWN, SHEAF__BY_IN } },
        { c->mlp_bias, { "mlp.down_proj.bias", { e }, SHEAF_DOWN } },
    };
    return add_rows(b, layer, rows, sizeof rows / sizeof *rows);
}

static sheaf_status *add_layer(const builder *b, int layer)
{
    const bool around = b->form->norms_around, before = !b->form->norms_after,
               behind = around || !before;
    const int64_t e = b->schema->config.hidden;
    static const char post[] = "post_attention_layernorm.weight";
    const bool named = b->form->behind[0] != NULL;
    const choice first = { before, { "input_layernorm.weight", { e }, SHEAF_NORM_IN } };
    /* With norms around both, `post` names the one behind attention, unless the form has names. */
    const choice middle[] = {
        { behind, { named ? b->form->behind[0] : post, { e }, SHEAF_NORM_AFTER_ATTENTION } },
        { before,
          { around && !named ? "pre_feedforward_layernorm.weight" : post,
            { e },
            SHEAF_NORM_POST } },
    };
    const choice last = { behind,
                          { named ? b->form->behind[1] : "post_feedforward_layernorm.weight",
                            { e },
                            SHEAF_NORM_AFTER_MLP } };
    sheaf_status *st = add_rows(b, layer, &first, 1);
    TRY(st, add_attention(b, layer));
    TRY(st, add_rows(b, layer, middle, 2));
    const bool mixed =
        b->form->mixture != NULL && !sheaf__layer_in(b->schema->config.mlp_layers, layer);
    TRY(st, mixed ? add_mixture(b, layer) : add_mlp(b, layer));
    return TRY(st, add_rows(b, layer, &last, 1));
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
    const sheaf_config *c = &schema->config;
    const int64_t v = c->vocab, e = c->hidden;
    builder b = { .schema = schema, .form = sheaf__llama_form_of(c) };
    const choice table = { true, { "embed_tokens.weight", { v, e }, SHEAF_EMBED, SHEAF__BY_OUT } };
    const choice ends[] = {
        { true, { "norm.weight", { e }, SHEAF_NORM_FINAL } },
        { !c->tied && !c->scores, { "lm_head.weight", { v, e }, SHEAF_HEAD, SHEAF__BY_OUT } },
        { c->scores, { SHEAF__SCORE, { 1, e }, SHEAF_HEAD, SHEAF__BY_OUT } },
    };
    sheaf_status *st = check_config(c);
    TRY(st, add_rows(&b, -1, &table, 1));
    for (int64_t i = 0; i < c->layers; i++)
        TRY(st, add_layer(&b, (int)i));
    return TRY(st, add_rows(&b, -1, ends, 3));
}
