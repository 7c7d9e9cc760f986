/* config_text_test.c - every key of a config that is read shows in its text; another spelling does
 * not. */
#include "tests/check.h"
#include "tests/golden.h"
#include "tests/parts.h"

#include <jansson.h>

#include "schema/config_text.h"

static char *text_of(const json_t *object)
{
    char *json = json_dumps(object, 0), *text = NULL;
    sheaf_config c;
    sheaf_status *st = sheaf_config_parse(&c, json, strlen(json));
    if (st != NULL)
        fail_msg("%s: %s", json, sheaf_status_where(st));
    CHECK_OK(sheaf__config_text(&text, &c));
    sheaf_config_release(&c);
    free(json);
    return text;
}

#define SIZES                                                                                      \
    "'vocab_size':300,'intermediate_size':96,'num_hidden_layers':4,'num_attention_heads':8,"
#define SMALL SIZES "'hidden_size':64,"
#define GROUPED SMALL "'num_key_value_heads':4,"

static const char llama[] = GROUPED
    "'model_type':'llama','rope_scaling':{'rope_type':'llama3','factor':8.0,'low_freq_factor':1.0,"
    "'high_freq_factor':4.0,'original_max_position_embeddings':512}";
static const char qwen2[] = GROUPED
    "'model_type':'qwen2','use_sliding_window':true,'sliding_window':16,'max_window_layers':2";
static const char yarn[] =
    GROUPED "'model_type':'smollm3','use_sliding_window':true,'sliding_window':16,"
            "'no_rope_layers':[1,0,1,0],'rope_scaling':{'rope_type':'yarn','factor':4.0,"
            "'original_max_position_embeddings':512,'mscale':1.0,'mscale_all_dim':1.5}";
static const char turning[] = SMALL "'model_type':'phi3'";
static const char phi3[] =
    SMALL "'model_type':'phi3','rope_scaling':{'type':'longrope','short_factor':[1,1,1,1],"
          "'long_factor':[1,2,3,4]}";
static const char mixtral[] = GROUPED "'model_type':'mixtral'";
static const char qwen3_moe[] = GROUPED "'model_type':'qwen3_moe','moe_intermediate_size':24";
static const char gemma2[] = GROUPED "'model_type':'gemma2'";
static const char gemma[] = SMALL "'model_type':'gemma','num_key_value_heads':1";
static const char gemma3[] = GROUPED "'model_type':'gemma3_text'";
static const char omnilmm[] =
    SIZES "'model_type':'omnilmm','hidden_size':128,'num_key_value_heads':4,'num_query':16,"
          "'image_size':84,'vision_config':{'img_size':56,'patch_size':14,'embed_dim':64,'depth':4,"
          "'num_heads':4,'mlp_ratio':2.5}";

/* A key, or one inside an object, is given another value. */
static const struct {
    const char *base, *changes[32];
} changed[] = {
    { llama,
      LIST("'model_type':'mistral'", "'vocab_size':301", "'hidden_size':128",
           "'intermediate_size':97", "'num_hidden_layers':5", "'num_attention_heads':4",
           "'num_key_value_heads':8", "'head_dim':16", "'rms_norm_eps':1.0000001e-6",
           "'attention_bias':true", "'mlp_bias':true", "'tie_word_embeddings':true",
           "'rope_theta':10000.001", "'max_position_embeddings':77", "'bos_token_id':1",
           "'pad_token_id':1", "'eos_token_id':1", "'eos_token_id':[1,2]",
           "'sheaf_tokenizer':'bytes'", "'text_processor_version':'vqa'", "'rope_scaling':null",
           "'rope_scaling':{'factor':9.0}", "'rope_scaling':{'low_freq_factor':1.5}",
           "'rope_scaling':{'high_freq_factor':4.5}",
           "'rope_scaling':{'original_max_position_embeddings':513}",
           "'rope_scaling':{'rope_type':'linear'}", "'rope_scaling':{'rope_type':'default'}") },
    { qwen2,
      LIST(
          "'sliding_window':17", "'max_window_layers':1", "'use_sliding_window':false",
          "'layer_types':['full_attention','sliding_attention','sliding_attention','sliding_attention']",
          "'layer_types':['full_attention','sliding_attention','full_attention','sliding_attention']") },
    { yarn, LIST("'no_rope_layers':[1,0,1,1]", "'use_sliding_window':false",
                 "'rope_scaling':{'factor':5.0}",
                 "'rope_scaling':{'original_max_position_embeddings':513}",
                 "'rope_scaling':{'attention_factor':1.5}", "'rope_scaling':{'beta_fast':31}",
                 "'rope_scaling':{'beta_slow':2}", "'rope_scaling':{'mscale':1.25}",
                 "'rope_scaling':{'mscale_all_dim':1.25}", "'rope_scaling':{'truncate':false}",
                 "'rope_scaling':{'rope_type':'dynamic'}") },
    { phi3,
      LIST("'rope_scaling':{'short_factor':[1,1,1,1.5]}",
           "'rope_scaling':{'long_factor':[1,2,3,4.5]}", "'rope_scaling':{'attention_factor':1.5}",
           "'original_max_position_embeddings':77") },
    { turning, LIST("'partial_rotary_factor':0.5") },
    { mixtral, LIST("'num_local_experts':4", "'num_experts_per_tok':1") },
    { qwen3_moe,
      LIST("'num_experts':64", "'num_local_experts':64", "'num_experts_per_tok':7",
           "'moe_intermediate_size':25", "'norm_topk_prob':true", "'output_router_logits':true",
           "'decoder_sparse_step':2", "'mlp_only_layers':[3]") },
    { gemma, LIST("'head_dim':64", "'tie_word_embeddings':false") },
    { gemma2, LIST("'query_pre_attn_scalar':200", "'attn_logit_softcapping':null",
                   "'final_logit_softcapping':31") },
    { gemma3, LIST("'final_logit_softcapping':31", "'rope_local_base_freq':200",
                   "'sliding_window_pattern':2") },
    { omnilmm, LIST("'vocab_size':301", "'sliding_window':100", "'num_query':25", "'image_size':98",
                    "'resampler_num_heads':2", "'resampler_ln_eps':1e-5", "'im_start_token':7",
                    "'im_patch_token':7", "'im_end_token':7", "'vision_config':{'img_size':70}",
                    "'vision_config':{'patch_size':7}", "'vision_config':{'embed_dim':72}",
                    "'vision_config':{'depth':5}", "'vision_config':{'num_heads':2}",
                    "'vision_config':{'mlp_ratio':3}", "'vision_config':{'in_chans':4}",
                    "'vision_config':{'layer_norm_eps':1e-5}") },
    { NULL, LIST("'model_class':'CogVLMModel'", "'vocab_size':400", "'inner_hidden_size':77",
                 "'num_layers':1", "'num_attention_heads':1", "'max_sequence_length':99",
                 "'layernorm_epsilon':1e-4", "'cross_hidden_size_per_attention_head':8",
                 "'cross_attn_hidden_size':8", "'is_decoder':false", "'cross_image_pix':140",
                 "'encoder_override':{'layers':4}", "'encoder_override':{'width':80}",
                 "'encoder_override':{'head_width':4}", "'encoder_override':{'mlp_ratio':3.5}",
                 "'encoder_override':{'embed_dim':7}", "'eva_args':{'num_layers':5}",
                 "'eva_args':{'num_attention_heads':1}", "'eva_args':{'inner_hidden_size':77}",
                 "'eva_args':{'vocab_size':2}", "'eva_args':{'max_sequence_length':99}",
                 "'eva_args':{'layernorm_epsilon':1e-3}", "'eva_args':{'in_channels':4}",
                 "'bos_token_id':7", "'pad_token_id':7", "'eos_token_id':7",
                 "'text_processor_version':'chat'") },
};

/* Keys and values in single quotation marks. */
static json_t *parsed(const char *keys)
{
    json_error_t error;
    char *text = (char *)textf("{%s}", keys);
    swap_quotes(text, '\'', '"');
    json_t *root = json_loads(text, 0, &error);
    if (root == NULL)
        fail_msg("%s: %s", text, error.text);
    return root;
}

/* A sound config of CogAgent, with every key that the rows change. */
static json_t *cogagent(void)
{
    json_error_t error;
    json_t *all = json_load_file(golden("cogagent/config.json"), 0, &error);
    assert_non_null(all);
    json_t *root = json_incref(json_object_get(all, "config"));
    json_object_set_new(root, "model_class", json_string("CogAgentModel"));
    json_object_set_new(root, "is_decoder", json_true());
    json_object_set(root, "encoder_override", json_object_get(all, "encoder_override"));
    json_decref(all);
    return root;
}

static void change(json_t *root, const json_t *changes)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)changes, key, value)
    {
        json_t *there = json_object_get(root, key);
        if (json_is_object(value) && json_is_object(there))
            change(there, value);
        else
            json_object_set(root, key, value);
    }
}

/* Of the config `base`, with `changes`. */
static char *text_with(const char *base, const char *changes)
{
    json_t *root = base == NULL ? cogagent() : parsed(base), *what = parsed(changes);
    change(root, what);
    char *text = text_of(root);
    json_decref(root);
    json_decref(what);
    return text;
}

TEST(test_text__every_value_that_is_read_shows)
{
    for (size_t i = 0; i < ARRAY_LEN(changed); i++)
        for (const char *const *what = changed[i].changes; *what != NULL; what++) {
            char *a = text_with(changed[i].base, ""), *b = text_with(changed[i].base, *what);
            if (strcmp(a, b) == 0)
                fail_msg("%s does not show in:\n%s", *what, a);
            free(a);
            free(b);
        }
}

TEST(test_text__another_spelling_does_not)
{
    static const char *const models[] = { "tiny_llama", "tiny_mistral", "tiny_qwen2",
                                          "tiny_llama3rope" };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        char *text[2];
        sheaf_config c[2];
        CHECK_OK(sheaf_config_read(&c[0], golden(textf("llama/%s/hf/config.json", models[i]))));
        CHECK_OK(
            sheaf_config_read(&c[1], golden(textf("llama/%s/config_4x_style.json", models[i]))));
        for (int k = 0; k < 2; k++) {
            CHECK_OK(sheaf__config_text(&text[k], &c[k]));
            sheaf_config_release(&c[k]);
        }
        assert_string_equal(text[0], text[1]);
        free(text[0]);
        free(text[1]);
    }
    static const char *const alike[] = { "'initializer_range':0.5", "'torch_dtype':'bfloat16'",
                                         "'transformers_version':'9'",
                                         "'architectures':['LlamaForCausalLM']" };
    for (size_t i = 0; i < ARRAY_LEN(alike); i++) {
        char *a = text_with(llama, ""), *b = text_with(llama, alike[i]);
        assert_string_equal(a, b);
        free(a);
        free(b);
    }
}
