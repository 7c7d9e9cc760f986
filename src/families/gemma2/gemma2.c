/* gemma2.c - the descriptor of Gemma 2. */
#include "families/llama/llama.h"

/* hidden_act is in published files, and not what its class gates with. */
static const char keys[] =
    "query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping hidden_activation "
    "hidden_act use_bidirectional_attention cache_implementation sliding_window_size";

static const sheaf__llama_form form = {
    .max_position = 8192,
    .pattern = 2,
    .attention_caps = true,
    .attention_cap = 50,
    .logit_cap = 30,
    .head_dim = 256,
    .tied = true,
    .bias = SHEAF__BIAS_SAID,
    .windows = SHEAF__WINDOW_PATTERN,
    .window = 4096,
    .query_scalar = 256,
    .ignored = keys,
    .norms_around = true,
    .norm_one = true,
    .norm_once = true,
    .gelu = true,
    .embed_scaled = true,
    .padding = 0 + 1,
};

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return sheaf__llama_named(any, self) &&
           any(self, "layers.", "pre_feedforward_layernorm.weight") &&
           !any(self, "layers.", "self_attn.q_norm.weight");
}

const sheaf__family sheaf__family_gemma2 = {
    .id = SHEAF_GEMMA2,
    .name = "gemma2",
    .title = "Gemma 2",
    .architecture = "Gemma2ForCausalLM",
    .form = &form,
    .named = named,
    .lora_targets = "q_proj,v_proj",
    SHEAF__LIKE_LLAMA,
};
