/* specs.c - small models of Llama that `init` makes by name. */
#include "families/llama/llama.h"

const sheaf__family_spec sheaf__llama_specs[] = {
    { "tiny-bytes", "byte vocabulary, hidden 128, 4 layers: 0.8 million parameters" },
    { "small-bytes", "byte vocabulary, hidden 256, 6 layers: 4.5 million parameters" },
    { "mini", "hidden 512, 8 layers, vocabulary 8192: 32 million parameters" },
    { "tiny1b-4l", "hidden 2048, 4 layers, vocabulary 32000: 307 million parameters" },
    { NULL },
};

/* In the order of the names. */
static const struct {
    int bytes, hidden, ffn, layers, heads, kv_heads, head_dim, vocab, length;
} sizes[] = {
    { 1, 128, 352, 4, 4, 2, 32, 259, 1024 },
    { 1, 256, 688, 6, 8, 4, 32, 259, 2048 },
    { 0, 512, 1408, 8, 8, 4, 64, 8192, 2048 },
    { 0, 2048, 5632, 4, 32, 4, 64, 32000, 2048 },
};

sheaf_status *sheaf__llama_spec(char **out, int which)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text,
                    "{\n  \"architectures\": [\n    \"LlamaForCausalLM\"\n  ],\n"
                    "  \"attention_bias\": false,\n  \"attention_dropout\": 0.0,\n"
                    "  \"bos_token_id\": %d,\n  \"dtype\": \"float32\",\n  \"eos_token_id\": %d,\n"
                    "  \"head_dim\": %d,\n  \"hidden_act\": \"silu\",\n  \"hidden_size\": %d,\n"
                    "  \"initializer_range\": 0.02,\n  \"intermediate_size\": %d,\n",
                    sizes[which].bytes ? 256 : 1, sizes[which].bytes ? 257 : 2,
                    sizes[which].head_dim, sizes[which].hidden, sizes[which].ffn);
    sheaf__text_add(
        &text,
        "  \"max_position_embeddings\": %d,\n  \"mlp_bias\": false,\n  \"model_type\": \"llama\",\n"
        "  \"num_attention_heads\": %d,\n  \"num_hidden_layers\": %d,\n  \"num_key_value_heads\": %d,\n"
        "  \"pad_token_id\": %s,\n  \"rms_norm_eps\": 1e-05,\n"
        "  \"rope_parameters\": {\n    \"rope_theta\": 10000.0,\n    \"rope_type\": \"default\"\n  },\n"
        "%s  \"tie_word_embeddings\": false,\n  \"use_cache\": true,\n  \"vocab_size\": %d\n}\n",
        sizes[which].length, sizes[which].heads, sizes[which].layers, sizes[which].kv_heads,
        sizes[which].bytes ? "258" : "null",
        sizes[which].bytes ? "  \"sheaf_tokenizer\": \"bytes\",\n" : "", sizes[which].vocab);
    return sheaf__text_take(out, &text);
}
