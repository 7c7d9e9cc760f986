/* omnilmm.c - OmniLMM: its descriptor; Mistral's decoder, and before it the tower (timm's eva.py)
 * and the resampler (upstream's resampler.py), whose rows stand in the sequence in place of as many
 * <im_patch>. Positions are antialiased bicubic where the grid is another; those of the resampler's
 * keys are the queries', bicubic. All blocks of the tower but the last run. */
#include "families/omnilmm/omnilmm.h"

#include "base/base.h"
#include "families/common/rows.h"
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

static const sheaf__tower_names names = {
    .tower = SHEAF__OMNILMM_TOWER,
    .resampler = SHEAF__OMNILMM_RESAMPLER,
    .patch = { "patch_embed.proj.weight", "patch_embed.proj.bias" },
    .class_token = "cls_token",
    .positions = "pos_embed",
    .norm = "norm",
    .block = "blocks.%lld.",
    .norm1 = "norm1",
    .norm2 = "norm2",
    .q = { "attn.qkv.weight", "attn.q_bias" },
    .k = { "attn.qkv.weight" },
    .v = { "attn.qkv.weight", "attn.v_bias" },
    .proj = { "attn.proj.weight", "attn.proj.bias" },
    .fused = true,
    .norms_after = true,
};

static sheaf_status *build_towers(sheaf__model *m)
{
    return sheaf__tower_build(m, &names);
}

static sheaf_status *build(sheaf__model *m)
{
    return sheaf__llama_build_behind(m, build_towers);
}

static sheaf__value *see(sheaf__model *m, sheaf__tape *tape, const sheaf__pass *pass, int tower)
{
    const int64_t side = sheaf__square_side(m->schema->config.vit.positions - 1);
    return sheaf__tower_record(m, tape, pass, tower, &names,
                               &(sheaf__position_grid){ SHEAF__GRID_CUBIC_SMOOTH,
                                                        &m->towers->positions, side, side, true },
                               SHEAF__GRID_CUBIC);
}

static sheaf_status *rows(sheaf_schema *schema)
{
    sheaf_status *st = sheaf__llama_rows(schema);
    TRY(st, sheaf__tower_rows(schema, &names));
    TRY(st,
        sheaf__resampler_rows(schema, SHEAF__OMNILMM_RESAMPLER, schema->config.vit.hidden, true));
    return st;
}

/* The tower's last block, which upstream leaves out; its position is beyond those that run. */
static bool spare(const char *name, const sheaf_config *c)
{
    static const char blocks[] = SHEAF__OMNILMM_TOWER "blocks.";
    char *end;
    return strncmp(name, blocks, sizeof blocks - 1) == 0 &&
           strtoll(name + sizeof blocks - 1, &end, 10) == c->vit.layers && *end == '.';
}

/* How pictures stand in a conversation, and how its chat.py asks. */
static void pictures(sheaf__picture_form *out, const sheaf_config *c)
{
    *out = (sheaf__picture_form){
        .mark = { [SHEAF__MARK_BEGIN] = { "<im_start>", "im_start_token" },
                  [SHEAF__MARK_ROW] = { "<im_patch>", "im_patch_token" },
                  [SHEAF__MARK_END] = { "<im_end>", "im_end_token" } },
        .rows = c->resampler.queries,
        .bos = true,
        .chat = "zephyr",
        .byte_chat = "zephyr",
        .system = "You are an artificial intelligence assistant, which gives helpful, detailed, "
                  "and polite answers to the human's questions.",
        .temperature = 0.6,
        .top_k = 30,
        .top_p = 0.9,
        .repetition_penalty = 1.1,
    };
}

static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    out[0] = sheaf__vit_tower(c, 1, c->resampler.queries);
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
    .rows = rows,
    .named = named,
    .spare = spare,
    .idle = idle,
    .advise = advise,
    .buffer = sheaf__queries_buffer,
    .head = "lm_head.weight",
    .table = "model.embed_tokens.weight",
    .components = components,
    .towers = towers,
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_MARKED },
    .pictures = pictures,
    .lora_targets = "q_proj,k_proj,v_proj",
    .decays = decays,
    .build = build,
    .see = see,
    .place = sheaf__tower_place,
    .release = sheaf__tower_release,
};
