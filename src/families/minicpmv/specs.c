/* specs.c - a small model of each version that `init` makes by name. */
#include "families/minicpmv/minicpmv.h"

const sheaf__family_spec sheaf__minicpmv_specs[] = {
    { "minicpmv-tiny", "MiniCPM-V 2.6, byte vocabulary, hidden 128, 4 layers, patches of 14: 1.1 "
                       "million parameters" },
    { "minicpmv-2.5-tiny", "the same of MiniCPM-V 2.5" },
    { "minicpmv-2.0-tiny", "the same of MiniCPM-V 2.0" },
    { NULL },
};

/* What all three have alike. */
static void add_text(sheaf_text *text)
{
    sheaf__text_add(
        text,
        "{\n  \"architectures\": [\n    \"MiniCPMV\"\n  ],\n  \"bos_token_id\": 256,\n"
        "  \"drop_vision_last_layer\": false,\n  \"eos_token_id\": 257,\n  \"hidden_act\": \"silu\",\n"
        "  \"hidden_size\": 128,\n  \"im_end_token\": 260,\n  \"im_id_end_token\": 265,\n"
        "  \"im_id_start_token\": 264,\n  \"im_start_token\": 259,\n  \"initializer_range\": 0.05,\n"
        "  \"intermediate_size\": 352,\n  \"max_position_embeddings\": 2048,\n"
        "  \"model_type\": \"minicpmv\",\n  \"num_attention_heads\": 4,\n"
        "  \"num_hidden_layers\": 4,\n  \"pad_token_id\": 258,\n  \"query_num\": 16,\n"
        "  \"resampler_num_heads\": 4,\n  \"rms_norm_eps\": 1e-06,\n  \"rope_theta\": 10000.0,\n"
        "  \"sheaf_tokenizer\": \"bytes\",\n  \"slice_end_token\": 262,\n"
        "  \"slice_start_token\": 261,\n  \"tie_word_embeddings\": false,\n"
        "  \"torch_dtype\": \"float32\",\n  \"unk_token\": 263,\n  \"vocab_size\": 266,\n");
}

sheaf_status *sheaf__minicpmv_spec(char **out, int which)
{
    static const char navit[] =
        "  \"vision_config\": {\n    \"hidden_size\": 64,\n    \"image_size\": 140,\n"
        "    \"intermediate_size\": 172,\n    \"model_type\": \"siglip_vision_model\",\n"
        "    \"num_attention_heads\": 4,\n    \"num_hidden_layers\": 3,\n    \"patch_size\": 14\n  }\n";
    static const char timm[] =
        "  \"vision_config\": {\n    \"depth\": 3,\n    \"embed_dim\": 64,\n    \"img_size\": 84,\n"
        "    \"mlp_ratio\": 2.6875,\n    \"num_heads\": 4,\n    \"patch_size\": 14\n  }\n";
    sheaf_text text = { 0 };
    add_text(&text);
    sheaf__text_add(&text,
                    "  \"num_key_value_heads\": %d,\n  \"slice_config\": {\n"
                    "    \"max_slice_nums\": 9,\n    \"patch_size\": 14,\n"
                    "    \"scale_resolution\": 84\n  },\n",
                    which == 2 ? 4 : 2);
    if (which == 2)
        sheaf__text_add(&text, "  \"dim_model_base\": 64,\n  \"scale_depth\": 1.4,\n"
                               "  \"scale_emb\": 12,\n");
    else
        sheaf__text_add(&text, "  \"use_image_id\": %s,\n", which == 0 ? "true" : "false");
    sheaf__text_add(&text, "  \"version\": %s,\n%s}\n",
                    which == 0   ? "2.6"
                    : which == 1 ? "2.5"
                                 : "2.0",
                    which == 2 ? timm : navit);
    return sheaf__text_take(out, &text);
}
