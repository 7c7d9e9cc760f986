/* build.c - the tensors of Llama, Mistral and Qwen2 as parts of the decoder. */
#include "families/llama/llama.h"
#include "models/build.h"
#include "models/load.h"

static sheaf_status *linear(sheaf__model *m, sheaf__linear *l, sheaf_role role, int layer)
{
    return sheaf__build_linear(m, l, sheaf_schema_get(m->schema, role, layer, false),
                               sheaf_schema_get(m->schema, role, layer, true), 0);
}

static sheaf_status *norm(sheaf__model *m, sheaf__norm *n, sheaf_role role, int layer)
{
    return sheaf__build_norm(m, n, sheaf_schema_get(m->schema, role, layer, false),
                             m->schema->config.rms_eps);
}

static sheaf_status *layer(sheaf__model *m, int i)
{
    sheaf__layer *l = &m->layer[i];
    sheaf__expert *text = &l->expert[SHEAF__TEXT];
    sheaf__linear *const part[] = { &text->q,    &text->k,  &text->v,   &text->o,
                                    &text->gate, &text->up, &text->down };
    static const sheaf_role role[] = { SHEAF_Q,    SHEAF_K,  SHEAF_V,   SHEAF_O,
                                       SHEAF_GATE, SHEAF_UP, SHEAF_DOWN };
    sheaf_status *st = norm(m, &l->norm_in, SHEAF_NORM_IN, i);
    if (st == NULL)
        st = norm(m, &l->norm_post, SHEAF_NORM_POST, i);
    for (int j = 0; j < 7 && st == NULL; j++)
        st = linear(m, part[j], role[j], i);
    return st;
}

sheaf_status *sheaf__llama_build(sheaf__model *m)
{
    const sheaf_config *config = &m->schema->config;
    const sheaf_tensor *embed = sheaf_schema_get(m->schema, SHEAF_EMBED, -1, false);
    /* A tied head is the embedding's table. */
    m->flows = true; /* what lies before the head is built after it */
    sheaf_status *st = !m->ends       ? NULL
                       : config->tied ? sheaf__build_linear(m, &m->head, embed, NULL, 0)
                                      : linear(m, &m->head, SHEAF_HEAD, -1);
    if (st == NULL && m->begins)
        st = sheaf__build_table(m, &m->embedding, embed, config->tied ? &m->head : NULL);
    m->flows = m->embedding.trained != NULL;
    for (int64_t i = m->first_layer; i < m->end_layer && st == NULL; i++)
        st = layer(m, (int)i);
    if (st == NULL && m->ends)
        st = norm(m, &m->norm, SHEAF_NORM_FINAL, -1);
    if (st == NULL)
        st = sheaf__build_rope(m, &m->rope,
                               (int64_t)((double)config->head_dim * config->rope.partial) / 2 * 2);
    if (st == NULL && m->context->device->kind != SHEAF_DRY)
        sheaf__rope_fill(&m->rope, config, m->context->device->kernels, m->context->dtype);
    return st;
}
