/* minicpmv.c - the descriptor of MiniCPM-V. */
#include "families/minicpmv/minicpmv.h"

#include <string.h>

#include "families/common/tower.h"
#include "families/common/vision.h"
#include "families/llama/llama.h"
#include "schema/grid.h"

/* What absent keys mean; biases of 2.6 are the reader's. */
static const sheaf__llama_form form = {
    .max_position = 4096,
    .kv_heads = true,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_FROM_LAYER,
    .window = 4096,
    .ignored = sheaf__minicpmv_keys,
    .code = "modeling_minicpmv.MiniCPMV",
    .prefix = SHEAF__MINICPMV_LLM,
};

/* The largest picture that slicing makes of an ordinary one. */
static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    out[0] = (sheaf__tower){ .channels = v->channels,
                             .height = v->height,
                             .width = v->width,
                             .patch = v->patch,
                             .patches = c->patches,
                             .rows = c->patches,
                             .gives = c->resampler.queries,
                             .columns = c->hidden,
                             .ragged = true,
                             .padded = c->padding_seen };
    return 1;
}

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return any(self, SHEAF__MINICPMV_LLM "model.layers.", "") &&
           any(self, SHEAF__MINICPMV_TOWER, "");
}

/* The version whose tensors these are. */
static const char *variant(bool (*any)(const void *self, const char *begin, const char *inside),
                           const void *self)
{
    if (!named(any, self))
        return NULL;
    if (any(self, SHEAF__MINICPMV_TOWER "blocks.", "attn.qkv.weight"))
        return sheaf__minicpmv_title(SHEAF_MINICPMV_2_0);
    if (!any(self, SHEAF__MINICPMV_TOWER "encoder.layers.", "self_attn.q_proj.weight"))
        return NULL;
    return sheaf__minicpmv_title(
        any(self, SHEAF__MINICPMV_LLM "model.layers.", "self_attn.q_proj.bias")
            ? SHEAF_MINICPMV_2_6
            : SHEAF_MINICPMV_2_5);
}

static const char *variant_of(const sheaf_config *c)
{
    return sheaf__minicpmv_title(c->minicpmv);
}

static bool idle(const char *name, bool (*has)(const void *self, const char *begin),
                 const void *self)
{
    return strcmp(name, SHEAF__MINICPMV_RESAMPLER "pos_embed") == 0;
}

static sheaf_status *advise(sheaf_status *st, const sheaf_config *c, const char *name,
                            const int64_t *shape, int ndim)
{
    const bool timm = c->minicpmv == SHEAF_MINICPMV_2_0;
    const char *table = timm ? SHEAF__MINICPMV_TOWER "pos_embed"
                             : SHEAF__MINICPMV_TOWER "embeddings.position_embedding.weight";
    sheaf_config less = *c;
    less.vit_dropped = true;
    less.vit.layers--;
    if (shape == NULL && !c->vit_dropped && sheaf__minicpmv_spare(name, &less))
        return sheaf_try_this(st, "\"drop_vision_last_layer\": true in config.json, if the tower's "
                                  "last block was left out of the files");
    if (shape == NULL || ndim < 2)
        return st;
    if (strcmp(name, table) == 0)
        return sheaf__advise_grid(st, shape[ndim - 2],
                                  timm ? "vision_config.img_size" : "vision_config.image_size",
                                  c->vit.patch);
    return strcmp(name, SHEAF__MINICPMV_RESAMPLER "pos_embed") == 0
               ? sheaf__advise_grid(st, shape[0], "query_num", 0)
               : st;
}

/* As transformers' Trainer has it, by names: neither biases nor norms. */
static bool decays(const char *name)
{
    return strstr(name, "bias") == NULL && strstr(name, "norm") == NULL &&
           strstr(name, ".ln_") == NULL;
}

static const sheaf__component_rule components[] = {
    { SHEAF__MINICPMV_TOWER, SHEAF_PLAN_VIT },
    { SHEAF__MINICPMV_RESAMPLER, SHEAF_PLAN_ADAPTER },
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

const sheaf__family sheaf__family_minicpmv = {
    .id = SHEAF_MINICPMV,
    .name = SHEAF__MINICPMV_NAME,
    .title = "MiniCPM-V",
    .architecture = SHEAF__MINICPMV_CLASS,
    .form = &form,
    .specs = sheaf__minicpmv_specs,
    .spec_config = sheaf__minicpmv_spec,
    .position_key = "max_position_embeddings",
    .claims = sheaf__minicpmv_claims,
    .read = sheaf__minicpmv_config,
    .text = sheaf__minicpmv_text,
    .rows = sheaf__minicpmv_rows,
    .named = named,
    .variant = variant,
    .variant_of = variant_of,
    .spare = sheaf__minicpmv_spare,
    .idle = idle,
    .advise = advise,
    .buffer = sheaf__queries_buffer,
    .head = SHEAF__MINICPMV_LLM "lm_head.weight",
    .table = SHEAF__MINICPMV_LLM "model.embed_tokens.weight",
    .components = components,
    .towers = towers,
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_BOUND },
    .pictures = sheaf__minicpmv_pictures,
    .disagree = sheaf__minicpmv_disagree,
    .lora_targets = "llm\\..*layers\\.\\d+\\.self_attn\\.(q_proj|k_proj|v_proj)",
    .decays = decays,
    .build = sheaf__minicpmv_build,
    .see = sheaf__minicpmv_see,
    .place = sheaf__tower_place,
    .release = sheaf__tower_release,
};
