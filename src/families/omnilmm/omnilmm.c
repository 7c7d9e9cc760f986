/* omnilmm.c - OmniLMM: its descriptor; Mistral's decoder, and before it the tower (timm's eva.py)
 * and the resampler (upstream's resampler.py), whose rows stand in the sequence in place of as many
 * <im_patch>. Positions are antialiased bicubic where the grid is another; those of the resampler's
 * keys are the queries', bicubic. All blocks of the tower but the last run. */
#include "families/omnilmm/omnilmm.h"

#include "base/base.h"
#include "families/llama/tower.h"
#include "families/llama/llama.h"

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
    .grid = SHEAF__GRID_CUBIC_SMOOTH,
    .keys = SHEAF__GRID_CUBIC,
    .size_key = "vision_config.img_size",
    .queries_key = "num_query",
    .queries = true,
};

static const sheaf__tower_names *tower(const sheaf_config *c)
{
    return &names;
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
    .claims = sheaf__omnilmm_claims,
    .read = sheaf__omnilmm_config,
    .text = sheaf__omnilmm_text,
    .tells = SHEAF__OMNILMM_RESAMPLER ": layers.:self_attn.q_proj.weight",
    .spare = sheaf__tower_spare,
    .head = "lm_head.weight",
    .table = "model.embed_tokens.weight",
    .components = components,
    .tower = tower,
    .towers = towers,
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_MARKED },
    .pictures = pictures,
    .lora_targets = "q_proj,k_proj,v_proj",
    .decays = decays,
    SHEAF__LIKE_TOWER,
};
