/* init_specs.c - models that have a name here. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "base/text.h"
#include "checkpoint/tools/init.h"

static const sheaf_init_spec specs[] = {
    { "tiny-bytes", "byte vocabulary, hidden 128, 4 layers: 0.8 million parameters" },
    { "small-bytes", "byte vocabulary, hidden 256, 6 layers: 4.5 million parameters" },
    { "mini", "hidden 512, 8 layers, vocabulary 8192: 32 million parameters" },
    { "tiny1b-4l", "hidden 2048, 4 layers, vocabulary 32000: 307 million parameters" },
    { "cogvlm-tiny",
      "CogVLM, byte vocabulary, hidden 128, 4 layers, images of 56 x 56: 2.4 million parameters" },
    { "cogagent-tiny",
      "CogAgent, the same with a tower for images of 112 x 112: 2.7 million parameters" },
    { NULL, NULL },
};
enum { LLAMAS = 4 };

/* In the order of specs, those of Llama first. */
static const struct {
    int bytes, hidden, ffn, layers, heads, kv_heads, head_dim, vocab, length;
} sizes[LLAMAS] = {
    { 1, 128, 352, 4, 4, 2, 32, 259, 1024 },
    { 1, 256, 688, 6, 8, 4, 32, 259, 2048 },
    { 0, 512, 1408, 8, 8, 4, 64, 8192, 2048 },
    { 0, 2048, 5632, 4, 32, 4, 64, 32000, 2048 },
};

const sheaf_init_spec *sheaf_init_specs(void)
{
    return specs;
}

/* As SAT would write it. The vocabulary is bytes and the special tokens, and some more: a number
 * that 8 divides. */
static sheaf_status *cog_config(char **out, bool agent)
{
    sheaf_text text = { 0 };
    sheaf__text_add(
        &text,
        "{\n  \"model_class\": \"%s\",\n  \"sheaf_tokenizer\": \"bytes\",\n  \"num_layers\": 4,\n"
        "  \"hidden_size\": 128,\n  \"num_attention_heads\": 8,\n  \"vocab_size\": 264,\n"
        "  \"layernorm_order\": \"pre\",\n  \"model_parallel_size\": 1,\n  \"max_sequence_length\": 256,\n"
        "  \"use_bias\": false,\n  \"inner_hidden_size\": 352,\n  \"init_method_std\": 0.05,\n"
        "  \"bos_token_id\": 256,\n  \"eos_token_id\": 257,\n  \"pad_token_id\": 258,\n  \"image_length\": 16,\n",
        agent ? "CogAgentModel" : "CogVLMModel");
    if (agent)
        sheaf__text_add(
            &text,
            "  \"is_decoder\": true,\n  \"cross_attn_hidden_size\": 64,\n"
            "  \"cross_hidden_size_per_attention_head\": 8,\n  \"cross_image_pix\": 112,\n"
            "  \"encoder_override\": {\n    \"layers\": 3,\n    \"width\": 64,\n    \"head_width\": 8,\n"
            "    \"embed_dim\": 48,\n    \"mlp_ratio\": 2.6667\n  },\n");
    sheaf__text_add(
        &text,
        "  \"eva_args\": {\n    \"model_class\": \"EVA2CLIPModel\",\n    \"num_layers\": 4,\n"
        "    \"hidden_size\": 128,\n    \"num_attention_heads\": 8,\n    \"vocab_size\": 1,\n"
        "    \"layernorm_order\": \"post\",\n    \"model_parallel_size\": 1,\n    \"max_sequence_length\": 17,\n"
        "    \"inner_hidden_size\": 256,\n    \"use_final_layernorm\": false,\n    \"layernorm_epsilon\": 1e-06,\n"
        "    \"row_parallel_linear_final_bias\": false,\n    \"image_size\": [56, 56],\n    \"pre_len\": 1,\n"
        "    \"post_len\": 0,\n    \"in_channels\": 3,\n    \"patch_size\": 14\n  }\n}\n");
    return sheaf__text_take(out, &text);
}

sheaf_status *sheaf__init_config(char **out, const char *name)
{
    *out = NULL;
    for (size_t i = 0; specs[i].name != NULL; i++) {
        if (strcmp(specs[i].name, name) != 0)
            continue;
        if (i >= LLAMAS)
            return cog_config(out, i > LLAMAS);
        sheaf_text text = { 0 };
        sheaf__text_add(
            &text,
            "{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n"
            "  \"attention_bias\": false,\n  \"attention_dropout\": 0.0,\n"
            "  \"bos_token_id\": %d,\n  \"dtype\": \"float32\",\n  \"eos_token_id\": %d,\n"
            "  \"head_dim\": %d,\n  \"hidden_act\": \"silu\",\n  \"hidden_size\": %d,\n"
            "  \"initializer_range\": 0.02,\n  \"intermediate_size\": %d,\n",
            sizes[i].bytes ? 256 : 1, sizes[i].bytes ? 257 : 2, sizes[i].head_dim, sizes[i].hidden,
            sizes[i].ffn);
        sheaf__text_add(
            &text,
            "  \"max_position_embeddings\": %d,\n  \"mlp_bias\": false,\n  \"model_type\": \"llama\",\n"
            "  \"num_attention_heads\": %d,\n  \"num_hidden_layers\": %d,\n  \"num_key_value_heads\": %d,\n"
            "  \"pad_token_id\": %s,\n  \"rms_norm_eps\": 1e-05,\n"
            "  \"rope_parameters\": {\n    \"rope_theta\": 10000.0,\n    \"rope_type\": \"default\"\n  },\n"
            "%s  \"tie_word_embeddings\": false,\n  \"use_cache\": true,\n  \"vocab_size\": %d\n}\n",
            sizes[i].length, sizes[i].heads, sizes[i].layers, sizes[i].kv_heads,
            sizes[i].bytes ? "258" : "null",
            sizes[i].bytes ? "  \"sheaf_tokenizer\": \"bytes\",\n" : "", sizes[i].vocab);
        return sheaf__text_take(out, &text);
    }
    return NULL;
}
