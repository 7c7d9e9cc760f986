/* llama.c - the descriptors of Llama, Mistral and Qwen2. */
#include "families/llama/llama.h"

const sheaf__component_rule sheaf__llama_components[] = {
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

bool sheaf__llama_named(bool (*any)(const void *self, const char *begin, const char *inside),
                        const void *self)
{
    return any(self, "layers.", "self_attn.q_proj.weight") &&
           any(self, "layers.", "mlp.gate_proj.weight");
}

static bool named_qwen2(bool (*any)(const void *self, const char *begin, const char *inside),
                        const void *self)
{
    return sheaf__llama_named(any, self) && any(self, "layers.", "self_attn.q_proj.bias");
}

static const sheaf__llama_form llama = {
    .max_position = 2048,
    .kv_heads = true,
    .bias = SHEAF__BIAS_SAID,
    .mlp_bias = true,
    .windows = SHEAF__WINDOW_NEVER,
};

static const sheaf__llama_form mistral = {
    .max_position = 4096 * 32,
    .bias = SHEAF__BIAS_NEVER,
    .windows = SHEAF__WINDOW_ALL,
    .window = 4096,
};

static const sheaf__llama_form qwen2 = {
    .max_position = 32768,
    .bias = SHEAF__BIAS_QKV,
    .windows = SHEAF__WINDOW_FROM_LAYER,
    .window = 4096,
};

const sheaf__family sheaf__family_llama = {
    .id = SHEAF_LLAMA,
    .name = "llama",
    .title = "Llama",
    .architecture = "LlamaForCausalLM",
    .form = &llama,
    .specs = sheaf__llama_specs,
    .spec_config = sheaf__llama_spec,
    .named = sheaf__llama_named,
    .lora_targets = "q_proj,v_proj", /* PEFT's */
    SHEAF__LIKE_LLAMA,
};

const sheaf__family sheaf__family_mistral = {
    .id = SHEAF_MISTRAL,
    .name = "mistral",
    .title = "Mistral",
    .architecture = "MistralForCausalLM",
    .form = &mistral,
    .lora_targets = "q_proj,v_proj",
    SHEAF__LIKE_LLAMA,
};

const sheaf__family sheaf__family_qwen2 = {
    .id = SHEAF_QWEN2,
    .name = "qwen2",
    .title = "Qwen2",
    .architecture = "Qwen2ForCausalLM",
    .form = &qwen2,
    .named = named_qwen2,
    .lora_targets = "q_proj,v_proj",
    SHEAF__LIKE_LLAMA,
};
