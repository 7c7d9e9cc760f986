/* qwenvl.c - Qwen2.5-VL and Qwen3-VL: their descriptors. */
#include "families/qwenvl/qwenvl.h"

#include "base/base.h"

/* Defaults of absent keys. */
static const sheaf__llama_form second = {
    .max_position = 32768,
    .theta = 1000000,
    .bias = SHEAF__BIAS_QKV,
    .windows = SHEAF__WINDOW_FROM_LAYER,
    .window = 4096,
    .ignored = sheaf__qwenvl_keys,
    .body = SHEAF__QWENVL_TEXT,
    .section = { 16, 24, 24 },
};

static const sheaf__llama_form third = {
    .max_position = 128000,
    .theta = 500000,
    .head_dim = 128,
    .bias = SHEAF__BIAS_KEYED,
    .windows = SHEAF__WINDOW_NEVER,
    .ignored = sheaf__qwenvl_keys,
    .body = SHEAF__QWENVL_TEXT,
    .section = { 24, 20, 20 },
    .interleaved = true,
    .qk_norm = SHEAF__QK_PER_HEAD,
};

/* As in memory, which programs without transformers' save_pretrained() write; of the model without
 * a head, saved by itself; as published, as transformers writes them too. */
static const sheaf__name_rule second_names[] = {
    { SHEAF__QWENVL_TEXT, SHEAF__QWENVL_TEXT }, { SHEAF__QWENVL_TOWER, SHEAF__QWENVL_TOWER },
    { "language_model.", SHEAF__QWENVL_TEXT },  { "visual.", SHEAF__QWENVL_TOWER },
    { "model.", SHEAF__QWENVL_TEXT },           { NULL },
};

/* Of the model without a head, saved by itself; as published. */
static const sheaf__name_rule third_names[] = {
    { "language_model.", SHEAF__QWENVL_TEXT },
    { "visual.", SHEAF__QWENVL_TOWER },
    { SHEAF__QWENVL_TEXT, SHEAF__QWENVL_TEXT },
    { SHEAF__QWENVL_TOWER, SHEAF__QWENVL_TOWER },
    { NULL },
};

static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    const sheaf_qwen_vit *q = &c->qwen_vit;
    out[0] = sheaf__vit_tower(c, 0, c->patches / (q->merge * q->merge));
    out[0].ragged = true;
    out[0].merge = q->merge;
    out[0].window = q->window;
    out[0].repeats = out[0].frames = q->frames;
    out[0].behind = q->deep;
    out[0].columns = c->hidden * (1 + q->deep);
    return 1;
}

static const sheaf__component_rule components[] = {
    { SHEAF__QWENVL_TOWER "merger.", SHEAF_PLAN_ADAPTER },
    { SHEAF__QWENVL_TOWER "deepstack_merger_list.", SHEAF_PLAN_ADAPTER },
    { SHEAF__QWENVL_TOWER, SHEAF_PLAN_VIT },
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

#define BOTH                                                                                       \
    .position_key = "max_position_embeddings", .read = sheaf__qwenvl_config,                       \
    .text = sheaf__qwenvl_text, .rows = sheaf__qwenvl_rows, .head = "lm_head.weight",              \
    .table = SHEAF__QWENVL_TEXT "embed_tokens.weight", .components = components, .towers = towers, \
    .image = { .most = SHEAF__ANY_IMAGES, .file = SHEAF__IMAGES_GRID },                            \
    .pictures = sheaf__qwenvl_pictures, .beside = sheaf__qwenvl_beside,                            \
    .videos_beside = sheaf__qwenvl_videos_beside, .lora_targets = "q_proj,v_proj",                 \
    .build = sheaf__qwenvl_build, .encode = sheaf__qwenvl_encode, .place = sheaf__qwenvl_place

const sheaf__family sheaf__family_qwen2_5_vl = {
    .id = SHEAF_QWEN2_5_VL,
    .name = "qwen2_5_vl",
    .title = "Qwen2.5-VL",
    .architecture = "Qwen2_5_VLForConditionalGeneration",
    .form = &second,
    .claims = sheaf__qwen2_5_vl_claims,
    .file_names = second_names,
    .signature = "visual.blocks.:mlp.gate_proj.weight visual.merger.:ln_q.weight",
    BOTH,
};

const sheaf__family sheaf__family_qwen3_vl = {
    .id = SHEAF_QWEN3_VL,
    .name = "qwen3_vl",
    .title = "Qwen3-VL",
    .architecture = "Qwen3VLForConditionalGeneration",
    .form = &third,
    .claims = sheaf__qwen3_vl_claims,
    .file_names = third_names,
    .signature = "visual.blocks.:mlp.linear_fc1.weight visual.merger.:linear_fc1.weight",
    BOTH,
};
