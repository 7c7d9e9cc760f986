/* smollm3.c - the descriptor of SmolLM3. */
#include "families/llama/llama.h"

static const sheaf__llama_form form = {
    .max_position = 32768,
    .theta = 2000000,
    .tied = true,
    .bias = SHEAF__BIAS_SAID,
    .mlp_bias = true,
    .windows = SHEAF__WINDOW_NO_ROPE,
    .no_rope = true,
    .padding = 128004 + 1,
};

const sheaf__family sheaf__family_smollm3 = {
    .id = SHEAF_SMOLLM3,
    .name = "smollm3",
    .title = "SmolLM3",
    .architecture = "SmolLM3ForCausalLM",
    .form = &form,
    .lora_targets = "q_proj,v_proj",
    SHEAF__LIKE_LLAMA,
};
