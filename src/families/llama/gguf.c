/* gguf.c - Llama and its kin in GGUF files (schema/gguf_form.h). */
#include "families/llama/llama.h"

#define LAYER(PREFIX, NAME, THERE)                                                                 \
    {                                                                                              \
        PREFIX "model.layers.#." NAME ".", "blk.#." THERE "."                                      \
    }
#define ENDS(PREFIX)                                                                               \
    { PREFIX "model.embed_tokens.", "token_embd." }, { PREFIX "model.norm.", "output_norm." },     \
        { PREFIX "lm_head.", "output." }, LAYER(PREFIX, "self_attn.o_proj", "attn_output"),        \
        LAYER(PREFIX, "mlp.down_proj", "ffn_down")
#define NORMS(PREFIX)                                                                              \
    LAYER(PREFIX, "input_layernorm", "attn_norm"),                                                 \
        LAYER(PREFIX, "post_attention_layernorm", "ffn_norm")
#define ATTENTION(PREFIX)                                                                          \
    LAYER(PREFIX, "self_attn.q_proj", "attn_q"), LAYER(PREFIX, "self_attn.k_proj", "attn_k"),      \
        LAYER(PREFIX, "self_attn.v_proj", "attn_v"),                                               \
        LAYER(PREFIX, "self_attn.q_norm", "attn_q_norm"),                                          \
        LAYER(PREFIX, "self_attn.k_norm", "attn_k_norm")
#define MLP(PREFIX)                                                                                \
    LAYER(PREFIX, "mlp.gate_proj", "ffn_gate"), LAYER(PREFIX, "mlp.up_proj", "ffn_up")
#define GATE_UP LAYER("", "mlp.gate_up_proj", "ffn_up")

/* Also of text models inside others, whose names have a prefix. */
#define PLAIN(PREFIX) ENDS(PREFIX), NORMS(PREFIX), ATTENTION(PREFIX), MLP(PREFIX)
static const sheaf__name_rule plain[] = { PLAIN(""), { NULL } },
                              inside[] = { PLAIN(SHEAF__GGUF_INSIDE), { NULL } };

/* With a router. */
static const sheaf__name_rule mixtral[] = { PLAIN(""),
                                            LAYER("", "block_sparse_moe.gate", "ffn_gate_inp"),
                                            { NULL } };
static const sheaf__name_rule qwen3_moe[] = { PLAIN(""),
                                              LAYER("", "mlp.gate", "ffn_gate_inp"),
                                              { NULL } };

static const sheaf__name_rule fused[] = {
    ENDS(""), NORMS(""), LAYER("", "self_attn.qkv_proj", "attn_qkv"), GATE_UP, { NULL }
};

/* Norms stand behind attention and MLP: OLMo 2's alone, Gemma's around. */
#define BEHIND                                                                                     \
    LAYER("", "post_attention_layernorm", "post_attention_norm"),                                  \
        LAYER("", "post_feedforward_layernorm", "post_ffw_norm")
static const sheaf__name_rule olmo2[] = { ENDS(""), ATTENTION(""), MLP(""), BEHIND, { NULL } };
static const sheaf__name_rule around[] = { ENDS(""),
                                           LAYER("", "input_layernorm", "attn_norm"),
                                           LAYER("", "pre_feedforward_layernorm", "ffn_norm"),
                                           ATTENTION(""),
                                           MLP(""),
                                           BEHIND,
                                           { NULL } };

static const sheaf__name_rule glm[] = {
    ENDS(""),
    NORMS(""),
    ATTENTION(""),
    GATE_UP,
    LAYER("", "post_self_attn_layernorm", "post_attention_norm"),
    LAYER("", "post_mlp_layernorm", "post_ffw_norm"),
    { NULL },
};

static const sheaf__name_rule mixtral_experts[] = {
    { "w1.", "ffn_gate_exps." }, { "w2.", "ffn_down_exps." }, { "w3.", "ffn_up_exps." }, { NULL }
};
static const sheaf__name_rule qwen3_experts[] = { { "gate_proj.", "ffn_gate_exps." },
                                                  { "down_proj.", "ffn_down_exps." },
                                                  { "up_proj.", "ffn_up_exps." },
                                                  { NULL } };

#define LLAMA                                                                                      \
    .neighbours = true,                                                                            \
    .keys = SHEAF__GGUF_VOCAB_SIZE | SHEAF__GGUF_ROPE_SIZE | SHEAF__GGUF_ROPE_FREQS
const sheaf__gguf_form sheaf__gguf_llama = { "llama", plain, LLAMA };
const sheaf__gguf_form sheaf__gguf_smollm3 = { "smollm3", plain, LLAMA, .every_no_rope = 4 };
const sheaf__gguf_form sheaf__gguf_mixtral = { "llama", mixtral, "block_sparse_moe.experts.",
                                               mixtral_experts, LLAMA };
const sheaf__gguf_form sheaf__gguf_qwen2 = { "qwen2", plain };
const sheaf__gguf_form sheaf__gguf_qwen3 = { "qwen3", plain, .keys = SHEAF__GGUF_HEAD_SIZE };
const sheaf__gguf_form sheaf__gguf_qwen3_moe = { "qwen3moe", qwen3_moe, "mlp.experts.",
                                                 qwen3_experts, .keys = SHEAF__GGUF_HEAD_SIZE };
const sheaf__gguf_form sheaf__gguf_olmo2 = { "olmo2", olmo2 };
const sheaf__gguf_form sheaf__gguf_phi3 = { "phi3", fused,
                                            .keys = SHEAF__GGUF_ROPE_SIZE |
                                                    SHEAF__GGUF_WINDOW_OR_0 |
                                                    SHEAF__GGUF_ROPE_FACTORS };

#define GEMMA .norms_plus_one = true, .keys = SHEAF__GGUF_HEAD_SIZE
const sheaf__gguf_form sheaf__gguf_gemma = { "gemma", plain, GEMMA | SHEAF__GGUF_TIED };
const sheaf__gguf_form sheaf__gguf_gemma2 = { "gemma2", around,
                                              GEMMA | SHEAF__GGUF_WINDOW | SHEAF__GGUF_TIED,
                                              .every_full = 2 };
const sheaf__gguf_form sheaf__gguf_gemma3 = { "gemma3", around, GEMMA | SHEAF__GGUF_WINDOW,
                                              .every_full = 6 };

const sheaf__gguf_form sheaf__gguf_glm = { "chatglm", glm, .keys = SHEAF__GGUF_ROPE_SIZE,
                                           .pre = "chatglm-bpe" };
const sheaf__gguf_form sheaf__gguf_glm4 = { "glm4", glm, .keys = SHEAF__GGUF_ROPE_SIZE,
                                            .pre = "glm4" };

const sheaf__gguf_form sheaf__gguf_inside_minicpm = { "minicpm", inside, .neighbours = true,
                                                      .keys = SHEAF__GGUF_SCALES |
                                                              SHEAF__GGUF_ROPE_FREQS |
                                                              SHEAF__GGUF_ROPE_FACTORS };
const sheaf__gguf_form sheaf__gguf_inside_llama = { "llama", inside, LLAMA };
const sheaf__gguf_form sheaf__gguf_inside_qwen2 = { "qwen2", inside };
const sheaf__gguf_form sheaf__gguf_inside_qwen3 = { "qwen3", inside,
                                                    .keys = SHEAF__GGUF_HEAD_SIZE };
