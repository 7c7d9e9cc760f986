/* mixtral.c - the descriptor of Mixtral. */
#include "families/llama/llama.h"

static const sheaf__llama_form form = {
    .max_position = 4096 * 32,
    .eps = 1e-5,
    .theta = 1000000,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_ALL,
    .mixture = true,
};

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return any(self, "layers.", SHEAF__MIXTURE "gate.weight") &&
           any(self, "layers.", SHEAF__MIXTURE "experts.0.w1.weight");
}

const sheaf__family sheaf__family_mixtral = {
    .id = SHEAF_MIXTRAL,
    .name = "mixtral",
    .title = "Mixtral",
    .architecture = "MixtralForCausalLM",
    .form = &form,
    .named = named,
    .lora_targets = "q_proj,v_proj", /* PEFT's */
    .release = sheaf__llama_release,
    SHEAF__LIKE_LLAMA,
};
