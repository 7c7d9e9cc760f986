/* omnilmm.c - the descriptor of OmniLMM. */
#include "families/omnilmm/omnilmm.h"

#include <string.h>

#include "families/common/tower.h"
#include "families/common/vision.h"
#include "families/llama/llama.h"
#include "schema/grid.h"

static const sheaf__llama_form form = {
    .max_position = 4096 * 32,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_ALL,
    .window = 4096,
    .ignored = sheaf__omnilmm_keys,
};

static const sheaf__family_spec specs[] = {
    { "omnilmm-tiny",
      "OmniLMM, byte vocabulary, hidden 128, 4 layers, images of 84 x 84: 1.1 million parameters" },
    { NULL },
};

/* As upstream would write it, with the tower's sizes and the ids of the marks. */
static sheaf_status *spec_config(char **out, int which)
{
    sheaf_text text = { 0 };
    sheaf__text_add(
        &text,
        "{\n  \"architectures\": [\n    \"OmniLMMForCausalLM\"\n  ],\n"
        "  \"bos_token_id\": 256,\n  \"eos_token_id\": 257,\n  \"hidden_act\": \"silu\",\n"
        "  \"hidden_size\": 128,\n  \"im_end_token\": 261,\n  \"im_patch_token\": 259,\n"
        "  \"im_start_token\": 260,\n  \"image_size\": 84,\n  \"initializer_range\": 0.05,\n"
        "  \"intermediate_size\": 352,\n  \"max_position_embeddings\": 1024,\n"
        "  \"mm_use_im_start_end\": true,\n  \"mm_vision_tower\": "
        "\"eva02_enormous_patch14_clip_224.laion2b_plus\",\n  \"model_type\": \"omnilmm\",\n"
        "  \"num_attention_heads\": 4,\n  \"num_hidden_layers\": 4,\n  \"num_key_value_heads\": 2,\n"
        "  \"num_query\": 16,\n  \"pad_token_id\": 258,\n  \"rms_norm_eps\": 1e-05,\n"
        "  \"rope_theta\": 10000.0,\n  \"sheaf_tokenizer\": \"bytes\",\n  \"sliding_window\": 4096,\n");
    sheaf__text_add(
        &text,
        "  \"tie_word_embeddings\": false,\n  \"torch_dtype\": \"float32\",\n  \"vision_config\": {\n"
        "    \"depth\": 4,\n    \"embed_dim\": 64,\n    \"img_size\": 56,\n    \"mlp_ratio\": 2.5,\n"
        "    \"num_heads\": 4,\n    \"patch_size\": 14\n  },\n  \"vocab_size\": 262\n}\n");
    return sheaf__text_take(out, &text);
}

static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    const sheaf_vit *v = &c->vit;
    out[0] = (sheaf__tower){ .channels = v->channels,
                             .height = v->height,
                             .width = v->width,
                             .patch = v->patch,
                             .patches = c->patches,
                             .rows = c->patches + 1,
                             .gives = c->resampler.queries,
                             .columns = c->hidden };
    return 1;
}

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return any(self, SHEAF__OMNILMM_RESAMPLER, "") &&
           any(self, "layers.", "self_attn.q_proj.weight");
}

static bool idle(const char *name, bool (*has)(const void *self, const char *begin),
                 const void *self)
{
    return strcmp(name, SHEAF__OMNILMM_RESAMPLER "pos_embed") == 0;
}

static sheaf_status *advise(sheaf_status *st, const sheaf_config *c, const char *name,
                            const int64_t *shape, int ndim)
{
    if (shape == NULL || ndim < 2)
        return st;
    if (strcmp(name, SHEAF__OMNILMM_TOWER "pos_embed") == 0) /* behind the class row */
        return sheaf__advise_grid(st, shape[ndim - 2] - 1, "vision_config.img_size", c->vit.patch);
    return strcmp(name, SHEAF__OMNILMM_RESAMPLER "pos_embed") == 0
               ? sheaf__advise_grid(st, shape[0], "num_query", 0)
               : st;
}

/* All that is trained, as the recorded runs have it: torch's AdamW over one group of parameters.
 * docs/omnilmm.md says what that is beside the rule of transformers' Trainer. */
static bool decays(const char *name)
{
    return true;
}

static const sheaf__component_rule components[] = {
    { SHEAF__OMNILMM_TOWER, SHEAF_PLAN_VIT },
    { SHEAF__OMNILMM_RESAMPLER, SHEAF_PLAN_ADAPTER },
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

const sheaf__family sheaf__family_omnilmm = {
    .id = SHEAF_OMNILMM,
    .name = "omnilmm",
    .title = "OmniLMM",
    .architecture = "OmniLMMForCausalLM",
    .form = &form,
    .specs = specs,
    .spec_config = spec_config,
    .position_key = "max_position_embeddings",
    .claims = sheaf__omnilmm_claims,
    .read = sheaf__omnilmm_config,
    .text = sheaf__omnilmm_text,
    .rows = sheaf__omnilmm_rows,
    .named = named,
    .spare = sheaf__omnilmm_spare,
    .idle = idle,
    .advise = advise,
    .buffer = sheaf__queries_buffer,
    .head = "lm_head.weight",
    .table = "model.embed_tokens.weight",
    .components = components,
    .towers = towers,
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_MARKED },
    .pictures = sheaf__omnilmm_pictures,
    .lora_targets = "q_proj,k_proj,v_proj",
    .decays = decays,
    .build = sheaf__omnilmm_build,
    .see = sheaf__omnilmm_see,
    .place = sheaf__tower_place,
    .release = sheaf__tower_release,
};
