/* gemma3.c - the descriptor of Gemma 3, text only. */
#include "families/llama/llama.h"

/* hidden_act is in published files, and not what its class gates with. */
static const char keys[] =
    "query_pre_attn_scalar attn_logit_softcapping final_logit_softcapping hidden_activation "
    "hidden_act use_bidirectional_attention cache_implementation sliding_window_pattern "
    "_sliding_window_pattern rope_local_base_freq";

static const sheaf__llama_form form = {
    .max_position = 131072,
    .theta = 1e6,
    .local_theta = 1e4,
    .pattern = 6,
    .pattern_said = true,
    .qk_norm = SHEAF__QK_PER_HEAD,
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
           any(self, "layers.", "self_attn.q_norm.weight");
}

const sheaf__family sheaf__family_gemma3 = {
    .id = SHEAF_GEMMA3,
    .name = "gemma3_text",
    .title = "Gemma 3",
    .architecture = "Gemma3ForCausalLM",
    .form = &form,
    .named = named,
    .lora_targets = "q_proj,v_proj",
    SHEAF__LIKE_LLAMA,
};
