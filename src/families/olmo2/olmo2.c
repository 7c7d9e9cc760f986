/* olmo2.c - the descriptor of OLMo 2. */
#include "families/llama/llama.h"

static const sheaf__llama_form form = {
    .max_position = 2048,
    .eps = 1e-5,
    .kv_heads = true,
    .bias = SHEAF__BIAS_SAID,
    .windows = SHEAF__WINDOW_NEVER,
    .norms_after = true,
    .norm_once = true,
    .rope_float32 = true,
    .qk_norm = SHEAF__QK_WHOLE,
    .padding = 1 + 1,
};

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return sheaf__llama_named(any, self) && any(self, "layers.", "self_attn.q_norm.weight") &&
           any(self, "layers.", "post_feedforward_layernorm.weight") &&
           !any(self, "layers.", "input_layernorm.weight");
}

const sheaf__family sheaf__family_olmo2 = {
    .id = SHEAF_OLMO2,
    .name = "olmo2",
    .title = "OLMo 2",
    .architecture = "Olmo2ForCausalLM",
    .form = &form,
    .named = named,
    .lora_targets = "q_proj,v_proj",
    SHEAF__LIKE_LLAMA,
};
