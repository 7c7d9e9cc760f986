/* build.c - CogVLM2: the tensors of its decoder, whose layers have an expert for each kind of row,
 * and the tower (common/eva_clip.h). */
#include "base/base.h"
#include "families/cogvlm2/cogvlm2.h"
#include "families/common/eva_clip.h"

static const sheaf__eva_names names = SHEAF__EVA_NAMES(SHEAF__COGVLM2_VISION);

/* kind: "vision" or "language". */
static sheaf_status *build_expert(sheaf__model *m, sheaf__expert *x, const char *prefix,
                                  const char *kind, bool bias)
{
    sheaf__linear *const qkv[] = { &x->q, &x->k, &x->v };
    const struct {
        sheaf__linear *l;
        const char *format;
    } rest[] = { { &x->o, "self_attn.%s_expert_dense.weight" },
                 { &x->gate, "mlp.%s_mlp.gate_proj.weight" },
                 { &x->up, "mlp.%s_mlp.up_proj.weight" },
                 { &x->down, "mlp.%s_mlp.down_proj.weight" } };
    char weight[96], beside[96];
    sheaf_status *st = NULL;
    snprintf(weight, sizeof weight, "self_attn.%s_expert_query_key_value.weight", kind);
    snprintf(beside, sizeof beside, "self_attn.%s_expert_query_key_value.bias", kind);
    for (int i = 0; i < 3; i++)
        TRY(st, sheaf__named_linear(m, qkv[i], prefix, weight, bias ? beside : NULL, i));
    for (size_t i = 0; i < sizeof rest / sizeof *rest; i++) {
        snprintf(weight, sizeof weight, rest[i].format, kind);
        TRY(st, sheaf__named_linear(m, rest[i].l, prefix, weight, NULL, 0));
    }
    return st;
}

static sheaf_status *build_layer(sheaf__model *m, int i)
{
    sheaf__layer *l = &m->layer[i];
    char prefix[64];
    snprintf(prefix, sizeof prefix, "model.layers.%d.", i);
    l->has_expert = true;
    const double eps = m->schema->config.rms_eps;
    sheaf_status *st = sheaf__named_rmsnorm(m, &l->norm_in, prefix, "input_layernorm", eps);
    TRY(st, sheaf__named_rmsnorm(m, &l->norm_post, prefix, "post_attention_layernorm", eps));
    TRY(st, build_expert(m, &l->expert[SHEAF__TEXT], prefix, "language", false));
    return TRY(st, build_expert(m, &l->expert[SHEAF__IMAGE], prefix, "vision", true));
}

sheaf_status *sheaf__cogvlm2_build(sheaf__model *m)
{
    const sheaf_config *c = &m->schema->config;
    const sheaf_tensor *table = NULL;
    sheaf_status *st = sheaf__build_find(&table, m, "model.embed_tokens.weight");
    if (m->ends)
        TRY(st, sheaf__named_linear(m, &m->head, "", "lm_head.weight", NULL, 0));
    if (m->begins) {
        TRY(st, sheaf__build_table(m, &m->embedding, table, NULL));
        TRY(st, sheaf__eva_build(m, &names));
    }
    for (int64_t i = m->first_layer; i < m->end_layer; i++)
        TRY(st, build_layer(m, (int)i));
    if (m->ends)
        TRY(st, sheaf__named_rmsnorm(m, &m->norm, "model.", "norm", c->rms_eps));
    return TRY(st, sheaf__build_rope(m, &m->rope, c->head_dim));
}
