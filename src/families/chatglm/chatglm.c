/* chatglm.c - the descriptor of ChatGLM's GLM-4-9B, GLM-4V-9B and CogAgent-9B: a decoder of Llama's
 * kin (families/llama), and before it, where the config has a tower, EVA2-CLIP with a convolution
 * of 2 x 2 patches and CogVLM's adapter (common/eva_clip.h). A row before and one behind an image's
 * rows, the whole divided by scaling_factor, stand in the sequence. */
#include "families/chatglm/chatglm.h"

#include "base/base.h"
#include "base/elementary.h"
#include "families/common/eva_clip.h"
#include "families/llama/llama.h"
#include "tape/scaled.h"

/* Half of each head turns, neighbours by one angle. Its config is read by config.c. */
static const sheaf__llama_form form = {
    .bias = SHEAF__BIAS_KEYED_QKV,
    .windows = SHEAF__WINDOW_NEVER,
    .partial = true,
    .fused = true,
    .fused_mlp = true,
    .rope_pairs = true,
};

/* ---- small models that `init` makes by name ---- */

static const sheaf__family_spec specs[] = {
    { "glm4v-tiny",
      "GLM-4V, byte vocabulary, hidden 128, 4 layers, images of 56 x 56: 1.1 million parameters" },
    { NULL },
};

/* ---- the tower ---- */

static int towers(sheaf__tower out[SHEAF__MOST_TOWERS], const sheaf_config *c)
{
    if (c->vit.layers == 0)
        return 0;
    out[0] = sheaf__vit_tower(c, 1, c->patches / (SHEAF__EVA_BLOCK * SHEAF__EVA_BLOCK));
    return 1;
}

static const sheaf__eva_names names = SHEAF__EVA_NAMES(SHEAF__CHATGLM_VISION);

static sheaf_status *build(sheaf__model *m)
{
    sheaf_status *st = sheaf__llama_build(m);
    if (m->begins && m->schema->config.vit.layers > 0)
        TRY(st, sheaf__eva_build(m, &names));
    return st;
}

static void place(sheaf__model *m, sheaf__tape *tape, sheaf__value *x, sheaf__value *image,
                  const sheaf__pass *pass)
{
    sheaf__towers *e = m->towers;
    sheaf__value *whole =
        sheaf__record_around(tape, image, pass->pictures.images, &e->begin, &e->end);
    whole = sheaf__record_divide(tape, whole, (float)m->schema->config.image_divisor);
    sheaf__record_place_images(tape, x, whole, pass->pictures.images, NULL, NULL, pass->images_in);
}

/* How pictures stand in a conversation, and how CogAgent's scripts ask. */
static void pictures(sheaf__picture_form *out, const sheaf_config *c)
{
    *out = (sheaf__picture_form){
        .mark = { [SHEAF__MARK_BEGIN] = { "<|begin_of_image|>", "boi_token_id" },
                  [SHEAF__MARK_ROW] = { "<|endoftext|>", "pad_token_id" },
                  [SHEAF__MARK_END] = { "<|end_of_image|>", "eoi_token_id" } },
        .rows = c->patches / (SHEAF__EVA_BLOCK * SHEAF__EVA_BLOCK),
        .joined = true,
        .chat = "glm4",
        .byte_chat = "glm4",
        .end = "<|user|>",
        .temperature = 1,
        .top_k = 1,
        .top_p = 1,
        .repetition_penalty = 1,
    };
}

/* ---- the descriptor ---- */

#define LAYER "transformer.encoder.layers.#."
static const sheaf__name_rule gguf_names[] = {
    { "transformer.embedding.word_embeddings.", "token_embd." },
    { "transformer.encoder.final_layernorm.", "output_norm." },
    { "transformer.output_layer.", "output." },
    { LAYER "input_layernorm.", "blk.#.attn_norm." },
    { LAYER "self_attention.query_key_value.", "blk.#.attn_qkv." },
    { LAYER "self_attention.dense.", "blk.#.attn_output." },
    { LAYER "post_attention_layernorm.", "blk.#.ffn_norm." },
    { LAYER "mlp.dense_h_to_4h.", "blk.#.ffn_up." },
    { LAYER "mlp.dense_4h_to_h.", "blk.#.ffn_down." },
    { NULL },
};
static const sheaf__gguf_form gguf = { "chatglm", gguf_names,
                                       .keys = SHEAF__GGUF_ROPE_SIZE | SHEAF__GGUF_CHATGLM,
                                       .pre = "chatglm-bpe" };

static const char frequencies[] = "rotary_pos_emb.inv_freq";

/* Stored, and not read: upstream computes them anew. */
static bool idle(const char *name, bool (*has)(const void *self, const char *begin),
                 const void *self)
{
    return sheaf__ends_with(name, frequencies);
}

static float buffer(const sheaf_tensor *t, const sheaf_config *c, int64_t index)
{
    const int64_t rot = c->head_dim / 2;
    return (float)(1.0 / sheaf__pow_d(c->rope.theta, 2.0 * (double)index / (double)rot));
}

static const sheaf__component_rule components[] = {
    { SHEAF__CHATGLM_VISION "patch_embedding", SHEAF_PLAN_VIT },
    { SHEAF__CHATGLM_VISION "transformer", SHEAF_PLAN_VIT },
    { SHEAF__CHATGLM_VISION, SHEAF_PLAN_ADAPTER },
    { "word_embeddings", SHEAF_PLAN_EMBEDDINGS },
    { "output_layer", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

#define TEXT_TITLE "ChatGLM's GLM-4"
#define VISION_TITLE "GLM-4V"
static const sheaf__variant variants[] = {
    { VISION_TITLE, SHEAF__CHATGLM_VISION ":" },
    { TEXT_TITLE, "!" SHEAF__CHATGLM_VISION ":" },
    { NULL },
};

static const char *variant_of(const sheaf_config *c)
{
    return c->vit.layers > 0 ? VISION_TITLE : TEXT_TITLE;
}

const sheaf__family sheaf__family_chatglm = {
    .id = SHEAF_CHATGLM,
    .name = SHEAF__CHATGLM_NAME,
    .title = TEXT_TITLE,
    .form = &form,
    .specs = specs,
    .position_key = "seq_length",
    .claims = sheaf__chatglm_claims,
    .read = sheaf__chatglm_config,
    .text = sheaf__chatglm_text,
    .rows = sheaf__chatglm_rows,
    .signature = "transformer.embedding.:word_embeddings "
                 "transformer.encoder.:self_attention.query_key_value.weight",
    .variants = variants,
    .variant_of = variant_of,
    .idle = idle,
    .buffer = buffer,
    .head = "transformer.output_layer.weight",
    .table = "transformer.embedding.word_embeddings.weight",
    .components = components,
    .towers = towers,
    .image = { .before = 1,
               .after = 1,
               .most = 1,
               .one_position = true,
               .file = SHEAF__IMAGES_FOLDED },
    .pictures = pictures,
    .lora_targets = "query_key_value",
    .build = build,
    .encode = sheaf__eva_encode,
    .place = place,
    .gguf = &gguf,
};
