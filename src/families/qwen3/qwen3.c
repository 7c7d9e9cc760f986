/* qwen3.c - the descriptor of Qwen3 (dense). */
#include "families/llama/llama.h"

static const sheaf__llama_form form = {
    .max_position = 32768,
    .head_dim = 128,
    .bias = SHEAF__BIAS_SAID,
    .windows = SHEAF__WINDOW_FROM_LAYER,
    .window = 4096,
    .qk_norm = SHEAF__QK_PER_HEAD,
};

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return sheaf__llama_named(any, self) && any(self, "layers.", "self_attn.q_norm.weight");
}

const sheaf__family sheaf__family_qwen3 = {
    .id = SHEAF_QWEN3,
    .name = "qwen3",
    .title = "Qwen3",
    .architecture = "Qwen3ForCausalLM",
    .form = &form,
    .named = named,
    .lora_targets = "q_proj,v_proj", /* PEFT's */
    SHEAF__LIKE_LLAMA,
};
