/* specs.c - small models of CogVLM and CogAgent that `init` makes by name. */
#include "families/cog/cog.h"

/* As SAT would write it. The vocabulary is bytes and the special tokens, and some more: a number
 * that 8 divides. */
sheaf_status *sheaf__cog_spec(char **out, const sheaf__family *family)
{
    sheaf_text text = { 0 };
    sheaf__text_add(
        &text,
        "{\n  \"model_class\": \"%s\",\n  \"sheaf_tokenizer\": \"bytes\",\n  \"num_layers\": 4,\n"
        "  \"hidden_size\": 128,\n  \"num_attention_heads\": 8,\n  \"vocab_size\": 264,\n"
        "  \"layernorm_order\": \"pre\",\n  \"model_parallel_size\": 1,\n  \"max_sequence_length\": 256,\n"
        "  \"use_bias\": false,\n  \"inner_hidden_size\": 352,\n  \"init_method_std\": 0.05,\n"
        "  \"bos_token_id\": 256,\n  \"eos_token_id\": 257,\n  \"pad_token_id\": 258,\n  \"image_length\": 16,\n",
        family->classes[0]);
    if (family->tower_names != NULL)
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
