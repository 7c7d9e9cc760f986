/* llama.c - the descriptors of Llama, Mistral and Qwen2. */
#include "families/llama/llama.h"

static const sheaf__component_rule components[] = {
    { "embed_tokens", SHEAF_PLAN_EMBEDDINGS },
    { "lm_head", SHEAF_PLAN_EMBEDDINGS },
    { NULL },
};

static bool named(bool (*any)(const void *self, const char *begin, const char *inside),
                  const void *self)
{
    return any(self, "layers.", "self_attn.q_proj.weight") &&
           any(self, "layers.", "mlp.gate_proj.weight");
}

static bool named_qwen2(bool (*any)(const void *self, const char *begin, const char *inside),
                        const void *self)
{
    return named(any, self) && any(self, "layers.", "self_attn.q_proj.bias");
}

#define LIKE_LLAMA                                                                                 \
    .position_key = "max_position_embeddings", .read = sheaf__llama_config,                        \
    .text = sheaf__llama_text, .rows = sheaf__llama_rows, .components = components,                \
    .head = "lm_head.weight", .table = "model.embed_tokens.weight",                                \
    .lora_targets = "q_proj,v_proj", /* PEFT's */ .build = sheaf__llama_build

const sheaf__family sheaf__family_llama = {
    .id = SHEAF_LLAMA,
    .name = "llama",
    .title = "Llama",
    .architecture = "LlamaForCausalLM",
    .specs = sheaf__llama_specs,
    .spec_config = sheaf__llama_spec,
    .named = named,
    LIKE_LLAMA,
};

const sheaf__family sheaf__family_mistral = {
    .id = SHEAF_MISTRAL,
    .name = "mistral",
    .title = "Mistral",
    .architecture = "MistralForCausalLM",
    LIKE_LLAMA,
};

const sheaf__family sheaf__family_qwen2 = {
    .id = SHEAF_QWEN2,
    .name = "qwen2",
    .title = "Qwen2",
    .architecture = "Qwen2ForCausalLM",
    .named = named_qwen2,
    LIKE_LLAMA,
};
