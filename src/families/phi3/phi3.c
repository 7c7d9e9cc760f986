/* phi3.c - the descriptor of Phi-3, Phi-3.5 and Phi-4, which share a class. */
#include "families/llama/llama.h"

static const sheaf__llama_form form = {
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
    .padding = 32000 + 1,
};

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return any(self, "layers.", "self_attn.qkv_proj.weight") &&
           any(self, "layers.", "mlp.gate_up_proj.weight");
}

const sheaf__family sheaf__family_phi3 = {
    .id = SHEAF_PHI3,
    .name = "phi3",
    .title = "Phi-3",
    .architecture = "Phi3ForCausalLM",
    .form = &form,
    .named = named,
    .reads_again = true,
    .lora_targets = "qkv_proj" /* PEFT names none for it */,
    SHEAF__LIKE_LLAMA,
};
