/* kin.c - the descriptors of Llama and of the text models that are Llama but for a form. */
#include "families/llama/llama.h"

static const sheaf__component_rule components[] = {
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

/* Of the model without a head, saved by itself, as models that embed texts are published; others.
 */
static const sheaf__name_rule file_names[] = {
    { "embed_tokens.", "model.embed_tokens." },
    { "layers.", "model.layers." },
    { "norm.", "model.norm." },
    { "model.", "model." },
    { NULL },
};

#define APART "layers.:self_attn.q_proj.weight layers.:mlp.gate_proj.weight"
#define QK_NORM " layers.:self_attn.q_norm.weight"

/* Targets are PEFT's, but for Phi-3, where it names none. */
#define KIN(ID, NAME, TITLE, CLASS, FORM, TARGETS, TELLS)                                          \
    .id = ID, .name = NAME, .title = TITLE, .architecture = CLASS, .form = &(FORM),                \
    .lora_targets = TARGETS, .signature = TELLS, .position_key = "max_position_embeddings",        \
    .read = sheaf__llama_config, .text = sheaf__llama_text, .rows = sheaf__llama_rows,             \
    .components = components, .head = "lm_head.weight", .table = "model.embed_tokens.weight",      \
    .file_names = file_names, .build = sheaf__llama_build

/* ---- small models that `init` makes by name ---- */

static const sheaf__family_spec specs[] = {
    { "tiny-bytes", "byte vocabulary, hidden 128, 4 layers: 0.8 million parameters" },
    { "small-bytes", "byte vocabulary, hidden 256, 6 layers: 4.5 million parameters" },
    { "mini", "hidden 512, 8 layers, vocabulary 8192: 32 million parameters" },
    { "tiny1b-4l", "hidden 2048, 4 layers, vocabulary 32000: 307 million parameters" },
    { NULL },
};

/* ---- forms and descriptors ---- */

static const sheaf__llama_form llama = {
    .max_position = 2048,
    .kv_heads = true,
    .bias = SHEAF__BIAS_KEYED,
    .mlp_bias = true,
    .windows = SHEAF__WINDOW_NEVER,
};
const sheaf__family sheaf__family_llama = {
    KIN(SHEAF_LLAMA, "llama", "Llama", "LlamaForCausalLM", llama, "q_proj,v_proj", APART),
    .specs = specs,
    .gguf = &sheaf__gguf_llama,
};

static const sheaf__llama_form mistral = {
    .max_position = 4096 * 32,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_ALL,
    .window = 4096,
};
const sheaf__family sheaf__family_mistral = {
    KIN(SHEAF_MISTRAL, "mistral", "Mistral", "MistralForCausalLM", mistral, "q_proj,v_proj", NULL),
    .gguf = &sheaf__gguf_llama,
};

static const sheaf__llama_form qwen2 = {
    .max_position = 32768,
    .bias = SHEAF__BIAS_QKV,
    .windows = SHEAF__WINDOW_FROM_LAYER,
    .window = 4096,
};
const sheaf__family sheaf__family_qwen2 = {
    KIN(SHEAF_QWEN2, "qwen2", "Qwen2", "Qwen2ForCausalLM", qwen2, "q_proj,v_proj",
        APART " layers.:self_attn.q_proj.bias layers.:self_attn.k_proj.bias "
              "layers.:self_attn.v_proj.bias !layers.:self_attn.o_proj.bias"),
    .gguf = &sheaf__gguf_qwen2,
};

static const sheaf__llama_form qwen3 = {
    .max_position = 32768,
    .head_dim = 128,
    .bias = SHEAF__BIAS_KEYED,
    .windows = SHEAF__WINDOW_FROM_LAYER,
    .window = 4096,
    .qk_norm = SHEAF__QK_PER_HEAD,
};
const sheaf__family sheaf__family_qwen3 = {
    KIN(SHEAF_QWEN3, "qwen3", "Qwen3", "Qwen3ForCausalLM", qwen3, "q_proj,v_proj", APART QK_NORM),
    .gguf = &sheaf__gguf_qwen3,
};

static const sheaf__llama_form smollm3 = {
    .max_position = 32768,
    .theta = 2000000,
    .tied = true,
    .bias = SHEAF__BIAS_KEYED,
    .mlp_bias = true,
    .windows = SHEAF__WINDOW_NO_ROPE,
    .no_rope = true,
    .padding = 128004 + 1,
};
const sheaf__family sheaf__family_smollm3 = {
    KIN(SHEAF_SMOLLM3, "smollm3", "SmolLM3", "SmolLM3ForCausalLM", smollm3, "q_proj,v_proj", NULL),
    .gguf = &sheaf__gguf_smollm3,
};

static const sheaf__llama_form olmo2 = {
    .max_position = 2048,
    .eps = 1e-5,
    .kv_heads = true,
    .bias = SHEAF__BIAS_KEYED,
    .windows = SHEAF__WINDOW_NEVER,
    .norms_after = true,
    .norm_once = true,
    .rope_float32 = true,
    .qk_norm = SHEAF__QK_WHOLE,
    .padding = 1 + 1,
};
const sheaf__family sheaf__family_olmo2 = {
    KIN(SHEAF_OLMO2, "olmo2", "OLMo 2", "Olmo2ForCausalLM", olmo2, "q_proj,v_proj",
        APART QK_NORM " layers.:post_feedforward_layernorm.weight "
                      "!layers.:input_layernorm.weight"),
    .gguf = &sheaf__gguf_olmo2,
};

/* Phi-3, Phi-3.5 and Phi-4 share a class. */
static const sheaf__llama_form phi3 = {
    .max_position = 4096,
    .eps = 1e-5,
    .kv_heads = true,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_ALL,
    .original = 4096,
    .only_longrope = true,
    .partial = true,
    .code = "modeling_phi3.Phi3ForCausalLM",
    .fused = true,
    .fused_mlp = true,
    .padding = 32000 + 1,
};
const sheaf__family sheaf__family_phi3 = {
    KIN(SHEAF_PHI3, "phi3", "Phi-3", "Phi3ForCausalLM", phi3, "qkv_proj",
        "layers.:self_attn.qkv_proj.weight layers.:mlp.gate_up_proj.weight"),
    .reads_again = true,
    .gguf = &sheaf__gguf_phi3,
};

static const sheaf__mixture_form mixtral_experts = {
    .prefix = "block_sparse_moe.",
    .gate = "w1",
    .up = "w3",
    .down = "w2",
    .count = 8,
    .top_k = 2,
    .keys = "num_local_experts output_router_logits router_aux_loss_coef router_jitter_noise",
};
static const sheaf__llama_form mixtral = {
    .max_position = 4096 * 32,
    .eps = 1e-5,
    .theta = 1000000,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_ALL,
    .mixture = &mixtral_experts,
};
const sheaf__family sheaf__family_mixtral = {
    KIN(SHEAF_MIXTRAL, "mixtral", "Mixtral", "MixtralForCausalLM", mixtral, "q_proj,v_proj",
        "layers.:block_sparse_moe.gate.weight layers.:block_sparse_moe.experts.0.w1.weight"),
    .gguf = &sheaf__gguf_mixtral,
};

static const sheaf__mixture_form qwen3_experts = {
    .prefix = "mlp.",
    .gate = "gate_proj",
    .up = "up_proj",
    .down = "down_proj",
    .count = 128,
    .top_k = 8,
    .count_key = "num_experts",
    .sized = true,
    .shared = true,
    .some = true,
    .keys =
        "num_experts num_local_experts moe_intermediate_size norm_topk_prob decoder_sparse_step "
        "mlp_only_layers output_router_logits router_aux_loss_coef",
};
static const sheaf__llama_form qwen3_moe = {
    .max_position = 32768,
    .bias = SHEAF__BIAS_KEYED,
    .windows = SHEAF__WINDOW_IF_USED,
    .window = 4096,
    .qk_norm = SHEAF__QK_PER_HEAD,
    .mixture = &qwen3_experts,
};
const sheaf__family sheaf__family_qwen3_moe = {
    KIN(SHEAF_QWEN3_MOE, "qwen3_moe", "Qwen3-MoE", "Qwen3MoeForCausalLM", qwen3_moe,
        "q_proj,v_proj", "layers.:self_attn.q_proj.weight" QK_NORM " layers.:mlp.experts."),
    .gguf = &sheaf__gguf_qwen3_moe,
};

/* hidden_act is in published files, and not what its class gates with. */
#define GEMMA_KEYS "hidden_activation hidden_act use_bidirectional_attention cache_implementation "
#define GEMMA_SCORE_KEYS                                                                           \
    "query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping " GEMMA_KEYS
/* Of all versions. */
#define GEMMA                                                                                      \
    .head_dim = 256, .tied = true, .bias = SHEAF__BIAS_KEYED, .norm_one = true, .norm_once = true, \
    .gelu = true, .embed_scaled = true, .padding = 0 + 1
/* Of versions 2 and 3. */
#define GEMMA_WINDOWS                                                                              \
    .windows = SHEAF__WINDOW_PATTERN, .window = 4096, .query_scalar = 256, .norms_around = true

static const sheaf__llama_form gemma = {
    .max_position = 8192,
    .windows = SHEAF__WINDOW_NEVER,
    .ignored = GEMMA_KEYS,
    GEMMA,
};
const sheaf__family sheaf__family_gemma = {
    KIN(SHEAF_GEMMA, "gemma", "Gemma", "GemmaForCausalLM", gemma, "q_proj,v_proj", NULL),
    .gguf = &sheaf__gguf_gemma,
};

static const sheaf__llama_form gemma2 = {
    .max_position = 8192,
    .pattern = 2,
    .attention_caps = true,
    .attention_cap = 50,
    .logit_cap = 30,
    .ignored = GEMMA_SCORE_KEYS "sliding_window_size",
    GEMMA,
    GEMMA_WINDOWS,
};
const sheaf__family sheaf__family_gemma2 = {
    KIN(SHEAF_GEMMA2, "gemma2", "Gemma 2", "Gemma2ForCausalLM", gemma2, "q_proj,v_proj",
        APART " layers.:pre_feedforward_layernorm.weight !layers.:self_attn.q_norm.weight"),
    .gguf = &sheaf__gguf_gemma2,
};

/* Its text model alone. */
static const sheaf__llama_form gemma3 = {
    .max_position = 131072,
    .theta = 1e6,
    .local_theta = 1e4,
    .pattern = 6,
    .pattern_said = true,
    .qk_norm = SHEAF__QK_PER_HEAD,
    .ignored =
        GEMMA_SCORE_KEYS "sliding_window_pattern _sliding_window_pattern rope_local_base_freq",
    GEMMA,
    GEMMA_WINDOWS,
};
const sheaf__family sheaf__family_gemma3 = {
    KIN(SHEAF_GEMMA3, "gemma3_text", "Gemma 3", "Gemma3ForCausalLM", gemma3, "q_proj,v_proj",
        APART QK_NORM " layers.:pre_feedforward_layernorm.weight"),
    .gguf = &sheaf__gguf_gemma3,
};

/* ---- GLM-4 ---- */

#define GLM                                                                                        \
    .max_position = 131072, .eps = 1.5625e-7, .head_dim = 128, .bias = SHEAF__BIAS_KEYED_QKV,      \
    .windows = SHEAF__WINDOW_NEVER, .partial = true, .part = 0.5, .rope_pairs = true,              \
    .fused_mlp = true, .padding = 151329 + 1
#define GLM_TELLS "layers.:self_attn.q_proj.weight layers.:mlp.gate_up_proj.weight "
#define GLM_BEHIND "post_self_attn_layernorm.weight"

/* The text model of GLM-4-9B by transformers' names; by ChatGLM's it is families/chatglm. */
static const sheaf__llama_form glm = { GLM };
const sheaf__family sheaf__family_glm = {
    KIN(SHEAF_GLM, "glm", "GLM-4-9B", "GlmForCausalLM", glm, "q_proj,v_proj",
        GLM_TELLS "!layers.:" GLM_BEHIND),
    .gguf = &sheaf__gguf_glm,
};

/* GLM-4-0414, with norms on what attention and MLP give. */
static const sheaf__llama_form glm4 = {
    GLM,
    .norms_around = true,
    .behind = { GLM_BEHIND, "post_mlp_layernorm.weight" },
};
const sheaf__family sheaf__family_glm4 = {
    KIN(SHEAF_GLM4, "glm4", "GLM-4", "Glm4ForCausalLM", glm4, "q_proj,v_proj",
        GLM_TELLS "layers.:" GLM_BEHIND),
    .gguf = &sheaf__gguf_glm4,
};
