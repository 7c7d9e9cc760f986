/* versions.c - what the versions of MiniCPM-V differ in, and which one a config is of. */
#include "base/base.h"
#include "families/minicpmv/minicpmv.h"
#include "schema/config_keys.h"

/* Common to the text models: defaults of absent keys, keys that are not theirs. */
#define TEXT(CLASS, IGNORED)                                                                       \
    .max_position = 4096, .kv_heads = true, .windows = SHEAF__WINDOW_FROM_LAYER, .window = 4096,   \
    .ignored = IGNORED, .code = CLASS, .prefix = SHEAF__MINICPMV_LLM
#define CODE_V "modeling_minicpmv.MiniCPMV"
#define CODE_O "modeling_minicpmo.MiniCPMO"

/* im_end_token_id: of one revision of 2.0; the tokenizer has these. quantization_config: one that
 * is not read is refused here, with the folder that works. batch_3d_resampler: false is another way
 * to the same numbers, which upstream gets wrong. */
#define KEYS                                                                                       \
    "batch_3d_resampler batch_vision_input dim_model_base drop_vision_last_layer im_end_token "    \
    "im_end_token_id im_id_end_token im_id_start_token im_start_token im_start_token_id "          \
    "image_size max_slice_nums mm_use_im_start_end model patch_size qkv_bias "                     \
    "quantization_config query_num resampler_ln_eps resampler_max_size resampler_num_heads "       \
    "scale_depth scale_emb scale_resolution sheaf_padding_seen slice_config slice_end_token "      \
    "slice_end_token_id slice_mode slice_start_token slice_start_token_id text unk_token "         \
    "unk_token_id use_image_id version vision vision_batch_size vision_config vision_encoder"
/* Of its audio and speech. */
#define KEYS_O                                                                                     \
    KEYS " audio_chunk_length audio_config audio_pool_step chunk_input init_audio init_tts "       \
         "init_vision listen_speak_type stream_input tts_config"

static const sheaf__llama_form llama = { TEXT(CODE_V, KEYS), .bias = SHEAF__BIAS_NEVER },
                               qwen2 = { TEXT(CODE_V, KEYS), .bias = SHEAF__BIAS_QKV },
                               omni = { TEXT(CODE_O, KEYS_O), .bias = SHEAF__BIAS_QKV },
                               qwen3 = { TEXT(CODE_V, KEYS), .head_dim = 128,
                                         .bias = SHEAF__BIAS_KEYED, .qk_norm = SHEAF__QK_PER_HEAD };

/* In order and names of llama.cpp's own script, in which fc1 is ffn_down. */
#define BLOCK SHEAF__MINICPMV_TOWER "encoder.layers.#."
#define ATTENTION SHEAF__MINICPMV_RESAMPLER "attn."
static const sheaf__gguf_piece pieces[] = {
    { "resampler.query", SHEAF__MINICPMV_RESAMPLER "query" },
    { "resampler.pos_embed_k", NULL },
    { "resampler.proj.weight", SHEAF__MINICPMV_RESAMPLER "proj", .turned = true },
    { "resampler.kv.weight", SHEAF__MINICPMV_RESAMPLER "kv_proj.weight" },
    { "resampler.attn.q.weight", ATTENTION "in_proj_weight", 1 },
    { "resampler.attn.k.weight", ATTENTION "in_proj_weight", 2 },
    { "resampler.attn.v.weight", ATTENTION "in_proj_weight", 3 },
    { "resampler.attn.q.bias", ATTENTION "in_proj_bias", 1 },
    { "resampler.attn.k.bias", ATTENTION "in_proj_bias", 2 },
    { "resampler.attn.v.bias", ATTENTION "in_proj_bias", 3 },
    { "resampler.attn.out.weight", ATTENTION "out_proj.weight" },
    { "resampler.attn.out.bias", ATTENTION "out_proj.bias" },
    { "resampler.ln_q.weight", SHEAF__MINICPMV_RESAMPLER "ln_q.weight" },
    { "resampler.ln_q.bias", SHEAF__MINICPMV_RESAMPLER "ln_q.bias" },
    { "resampler.ln_kv.weight", SHEAF__MINICPMV_RESAMPLER "ln_kv.weight" },
    { "resampler.ln_kv.bias", SHEAF__MINICPMV_RESAMPLER "ln_kv.bias" },
    { "resampler.ln_post.weight", SHEAF__MINICPMV_RESAMPLER "ln_post.weight" },
    { "resampler.ln_post.bias", SHEAF__MINICPMV_RESAMPLER "ln_post.bias" },
    { "v.patch_embd.weight", SHEAF__MINICPMV_TOWER "embeddings.patch_embedding.weight" },
    { "v.patch_embd.bias", SHEAF__MINICPMV_TOWER "embeddings.patch_embedding.bias" },
    { "v.position_embd.weight", SHEAF__MINICPMV_TOWER "embeddings.position_embedding.weight" },
    { "v.blk.#.attn_k.weight", BLOCK "self_attn.k_proj.weight" },
    { "v.blk.#.attn_k.bias", BLOCK "self_attn.k_proj.bias" },
    { "v.blk.#.attn_v.weight", BLOCK "self_attn.v_proj.weight" },
    { "v.blk.#.attn_v.bias", BLOCK "self_attn.v_proj.bias" },
    { "v.blk.#.attn_q.weight", BLOCK "self_attn.q_proj.weight" },
    { "v.blk.#.attn_q.bias", BLOCK "self_attn.q_proj.bias" },
    { "v.blk.#.attn_out.weight", BLOCK "self_attn.out_proj.weight" },
    { "v.blk.#.attn_out.bias", BLOCK "self_attn.out_proj.bias" },
    { "v.blk.#.ln1.weight", BLOCK "layer_norm1.weight" },
    { "v.blk.#.ln1.bias", BLOCK "layer_norm1.bias" },
    { "v.blk.#.ffn_down.weight", BLOCK "mlp.fc1.weight" },
    { "v.blk.#.ffn_down.bias", BLOCK "mlp.fc1.bias" },
    { "v.blk.#.ffn_up.weight", BLOCK "mlp.fc2.weight" },
    { "v.blk.#.ffn_up.bias", BLOCK "mlp.fc2.bias" },
    { "v.blk.#.ln2.weight", BLOCK "layer_norm2.weight" },
    { "v.blk.#.ln2.bias", BLOCK "layer_norm2.bias" },
    { "v.post_ln.weight", SHEAF__MINICPMV_TOWER "post_layernorm.weight" },
    { "v.post_ln.bias", SHEAF__MINICPMV_TOWER "post_layernorm.bias" },
    { NULL },
};

static const sheaf__minicpmv_version versions[] = {
    { .version = SHEAF_MINICPMV_2_0,
      .number = 2.0,
      .title = "MiniCPM-V 2.0",
      .folder = "openbmb/MiniCPM-V-2",
      .text = "minicpm",
      .form = &llama,
      .gguf = &sheaf__gguf_inside_minicpm,
      .chat = "minicpm" },
    { .version = SHEAF_MINICPMV_2_5,
      .number = 2.5,
      .title = "MiniCPM-V 2.5",
      .folder = "openbmb/MiniCPM-Llama3-V-2_5",
      .text = "llama",
      .form = &llama,
      .gguf = &sheaf__gguf_inside_llama,
      .projector = { pieces, 2, true },
      .chat = "llama3" },
    { .version = SHEAF_MINICPMV_2_6,
      .number = 2.6,
      .title = "MiniCPM-V 2.6",
      .folder = "openbmb/MiniCPM-V-2_6",
      .text = "qwen2",
      .form = &qwen2,
      .gguf = &sheaf__gguf_inside_qwen2,
      .projector = { pieces, 3 },
      .chat = "qwen2",
      .stop = "<|endoftext|>",
      .numbered = true,
      .frame_slices = 2 },
    { .version = SHEAF_MINICPMO_2_6,
      .number = 2.6,
      .omni = true,
      .title = "MiniCPM-o 2.6",
      .folder = "openbmb/MiniCPM-o-2_6",
      .text = "qwen2",
      .form = &omni,
      .gguf = &sheaf__gguf_inside_qwen2,
      .projector = { pieces, 4 },
      .chat = "qwen2",
      .stop = "<|endoftext|>",
      .numbered = true },
    { .version = SHEAF_MINICPMV_4_0,
      .number = 4.0,
      .title = "MiniCPM-V 4.0",
      .folder = "openbmb/MiniCPM-V-4",
      .text = "llama",
      .form = &llama,
      .gguf = &sheaf__gguf_inside_llama,
      .projector = { pieces, 5 },
      .chat = "chatml",
      .stop = "</s>",
      .numbered = true },
    { .version = SHEAF_MINICPMV_4_5,
      .number = 4.5,
      .title = "MiniCPM-V 4.5",
      .folder = "openbmb/MiniCPM-V-4_5",
      .text = "qwen3",
      .form = &qwen3,
      .gguf = &sheaf__gguf_inside_qwen3,
      .projector = { pieces, 6 },
      .chat = "qwen3-thoughts",
      .stop = "<|endoftext|>",
      .numbered = true,
      .thoughts = true,
      .frames = 6,
      .frame_slices = 1 },
};
enum { VERSIONS = sizeof versions / sizeof *versions };

const sheaf__minicpmv_version *sheaf__minicpmv_version_of(const sheaf_config *c)
{
    for (int i = 0; i < VERSIONS; i++)
        if (versions[i].version == c->minicpmv)
            return &versions[i];
    return &versions[0]; /* while its reader has not found it */
}

const sheaf__llama_form *sheaf__minicpmv_form(const sheaf_config *c)
{
    return sheaf__minicpmv_version_of(c)->form;
}

/* ---- which one a config is of ---- */

/* A number as it is written: 2.6, or "2.6". */
static double version_number(const json_t *value)
{
    char *end = NULL;
    if (json_is_number(value))
        return json_number_value(value);
    const char *text = json_string_value(value);
    const double number = text == NULL ? 0 : strtod(text, &end);
    return text == NULL || *end != '\0' ? 0 : number;
}

/* "MiniCPM-V 2.6 layout" */
static double layout_number(const char *model)
{
    const char *digits = model == NULL ? NULL : strpbrk(model, "0123456789");
    return digits == NULL ? 0 : strtod(digits, NULL);
}

/* 2.0 and 2.5 have no key that says it: the first names its tower, the second describes it. */
static double untold_number(const json_t *object)
{
    const bool described = json_is_object(json_object_get(object, "vision_config"));
    return !described || json_object_get(object, "scale_emb") != NULL ? 2.0 : 2.5;
}

static bool is_omni(const json_t *object)
{
    return sheaf__config_names(object, "minicpmo", "MiniCPMO");
}

bool sheaf__minicpmv_claims(const json_t *object)
{
    const char *type = json_string_value(json_object_get(object, "model_type")),
               *model = json_string_value(json_object_get(object, "model"));
    return sheaf__config_names(object, SHEAF__MINICPMV_NAME, SHEAF__MINICPMV_CLASS) ||
           is_omni(object) ||
           (type == NULL && model != NULL && strncmp(model, "MiniCPM-V", 9) == 0);
}

void sheaf__minicpmv_read_version(sheaf_json_reader *r, sheaf_config *c)
{
    const json_t *declared = json_object_get(r->object, "version");
    const char *model = sheaf__json_string(r, "model"),
               *key = declared != NULL || model == NULL ? "version" : "model";
    const double number = declared != NULL ? version_number(declared)
                          : model != NULL  ? layout_number(model)
                                           : untold_number(r->object);
    for (int i = 0; i < VERSIONS; i++)
        if (number == versions[i].number && is_omni(r->object) == versions[i].omni)
            c->minicpmv = versions[i].version;
    if (r->st == NULL && c->minicpmv == SHEAF_MINICPMV_NONE)
        sheaf_try_this(sheaf__json_fail(r, SHEAF_E_UNSUPPORTED, key, "%s",
                                        is_omni(r->object) ? "2.6, of MiniCPM-o"
                                                           : "MiniCPM-V 2.0, 2.5, 2.6, 4.0 or 4.5"),
                       "one of these: other versions have other towers or text models");
}
