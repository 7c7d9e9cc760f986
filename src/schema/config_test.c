/* config_test.c - both spellings of recorded configs, and every key that must be refused by
 * name. */
#include "tests/check.h"
#include "tests/golden.h"
#include "tests/parts.h"

#include <jansson.h>
#include <unistd.h>

#include "schema/config.h"
#include "schema/quantization.h"

/* A small sound config; rows below put keys before it or take keys away. */
static const char base[] =
    "{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"],\"vocab_size\":300,\"hidden_size\":64,"
    "\"intermediate_size\":96,\"num_hidden_layers\":4,\"num_attention_heads\":8,\"num_key_value_heads\":4}";

/* Parses `base` with `changes`, keys and values in single quotation marks, which are set, or
 * removed where "__remove__" says so. */
static sheaf_status *parse_with(sheaf_config *c, const char *changes)
{
    char *object = (char *)textf("{%s}", changes);
    json_error_t error;
    swap_quotes(object, '\'', '"');
    json_t *root = json_loads(base, 0, NULL), *more = json_loads(object, 0, &error), *value;
    const char *key;
    if (more == NULL)
        fail_msg("row is not JSON: %s: %s", changes, error.text);
    json_object_foreach(more, key, value) if (json_is_string(value) &&
                                              strcmp(json_string_value(value), "__remove__") == 0)
        json_object_del(root, key);
    else json_object_set(root, key, value);
    char *text = json_dumps(root, 0);
    sheaf_status *st = sheaf_config_parse(c, text, strlen(text));
    free(text);
    json_decref(root);
    json_decref(more);
    return st;
}

/* Everything but the texts must be the same bytes: no field may depend on the spelling. */
static void check_same(const char *name, const sheaf_config *a, const sheaf_config *b)
{
    sheaf_config x = *a, y = *b;
    x.json = y.json = x.unknown_keys = y.unknown_keys = NULL;
    CHECK_BYTES(name, &x, &y, sizeof x);
}

TEST(test_read__both_spellings_of_recorded_configs_agree)
{
    static const char *const models[] = { "tiny_llama", "tiny_mistral", "tiny_qwen2",
                                          "tiny_llama3rope" };
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        sheaf_config a, b;
        const char *new = textf("llama/%s/hf/config.json", models[i]);
        const char *old = textf("llama/%s/config_4x_style.json", models[i]);
        memset(&a, 0, sizeof a);
        memset(&b, 0, sizeof b);
        CHECK_OK(sheaf_config_read(&a, golden(new)));
        CHECK_OK(sheaf_config_read(&b, golden(old)));
        assert_null(a.unknown_keys);
        assert_null(b.unknown_keys);
        assert_non_null(strstr(b.json, "torch_dtype"));
        check_same(models[i], &a, &b);
        sheaf_config_release(&a);
        sheaf_config_release(&b);
        assert_null(a.json);
    }
}

TEST(test_read__recorded_values)
{
    static const struct {
        const char *model;
        sheaf_family family;
        int64_t vocab, hidden, ffn, layers, heads, kv_heads, head_dim, window, max_position;
        double eps, theta;
        bool qkv_bias, tied;
        sheaf_rope_type rope;
    } rows[] = {
        { "tiny_llama", SHEAF_LLAMA, 511, 64, 172, 3, 8, 4, 8, 0, 128, 1e-5, 1e4, false, false,
          SHEAF_ROPE_DEFAULT },
        { "tiny_mistral", SHEAF_MISTRAL, 259, 48, 112, 2, 4, 2, 16, 8, 128, 1e-6, 1e6, false, false,
          SHEAF_ROPE_DEFAULT },
        { "tiny_qwen2", SHEAF_QWEN2, 301, 48, 136, 2, 6, 2, 8, 0, 128, 1e-6, 1e6, true, true,
          SHEAF_ROPE_DEFAULT },
        { "tiny_llama3rope", SHEAF_LLAMA, 263, 64, 120, 2, 4, 1, 16, 0, 512, 1e-5, 5e5, false,
          false, SHEAF_ROPE_LLAMA3 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_OK(sheaf_config_read(&c, golden(textf("llama/%s/hf/config.json", rows[i].model))));
        assert_true(c.family == rows[i].family && c.rope.type == rows[i].rope &&
                    c.dtype == SHEAF_F32);
        assert_true(c.vocab == rows[i].vocab && c.hidden == rows[i].hidden && c.ffn == rows[i].ffn);
        assert_true(c.layers == rows[i].layers && c.heads == rows[i].heads &&
                    c.kv_heads == rows[i].kv_heads);
        assert_true(c.head_dim == rows[i].head_dim && c.window == rows[i].window &&
                    c.window_from_layer == 0);
        assert_true(c.max_position == rows[i].max_position && c.rms_eps == rows[i].eps &&
                    c.rope.theta == rows[i].theta);
        assert_true(c.qkv_bias == rows[i].qkv_bias && !c.o_bias && !c.mlp_bias &&
                    c.tied == rows[i].tied);
        assert_true(c.bos == 1 && c.pad == 0 && c.neos == 1 && c.eos[0] == 2 &&
                    c.rope.partial == 1 && !c.byte_vocab);
        if (c.rope.type == SHEAF_ROPE_LLAMA3)
            assert_true(c.rope.factor == 8 && c.rope.low_freq_factor == 1 &&
                        c.rope.high_freq_factor == 4 && c.rope.original_length == 64);
        sheaf_config_release(&c);
    }
}

/* ---- one key at a time ---- */

typedef struct number_row {
    const char *changes;
    double got;
} number_row;

/* Checks one field of the parsed config for each row. */
#define CHECK_FIELD(rows, field)                                                                   \
    for (size_t row = 0; row < ARRAY_LEN(rows); row++) {                                           \
        sheaf_config c;                                                                            \
        CHECK_OK(parse_with(&c, (rows)[row].changes));                                             \
        CHECK_NEAR((rows)[row].changes, (double)(c.field), (rows)[row].got, 0);                    \
        sheaf_config_release(&c);                                                                  \
    }

#define Q2 "'model_type':'qwen2','architectures':null"
#define M7 "'model_type':'mistral','architectures':null"
#define Q3 "'model_type':'qwen3','architectures':null,'head_dim':8"
#define S3 "'model_type':'smollm3','architectures':null"
#define O2 "'model_type':'olmo2','architectures':null"
#define MX "'model_type':'mixtral','architectures':null"
#define QM "'model_type':'qwen3_moe','architectures':null,'moe_intermediate_size':24"
#define G2 "'model_type':'gemma2','architectures':null,'hidden_act':'gelu'"
#define G3 "'model_type':'gemma3_text','architectures':null,'hidden_act':null"
#define P3 "'model_type':'phi3','architectures':null"

/* What is just allowed, and one more. */
TEST(test_limits__what_just_fits_is_read)
{
    for (int more = 0; more < 2; more++) {
        const int pairs = SHEAF_MAX_ROPE_PAIRS + more;
        char *list = calloc(1, 4096), *text = calloc(1, 16384);
        sheaf_config c;
        for (int i = 0; i < pairs; i++)
            strcat(list, i > 0 ? ",1" : "1");
        sprintf(text,
                "'head_dim':%d,'max_position_embeddings':64,'rope_parameters':{'rope_type':"
                "'longrope','original_max_position_embeddings':16,'short_factor':[%s],"
                "'long_factor':[%s]}",
                2 * pairs, list, list);
        sheaf_status *st = parse_with(&c, text);
        if (more)
            CHECK_FAILS(st, SHEAF_E_UNSUPPORTED, "at most 256 numbers | 257");
        else
            CHECK_OK(st);
        sheaf_config_release(&c);
        sprintf(text,
                "'head_dim':null,'num_attention_heads':1,'num_key_value_heads':1,'hidden_size':%d",
                65536 + 2 * more);
        st = parse_with(&c, text);
        if (more)
            CHECK_FAILS(st, SHEAF_E_LAYOUT, "'head_dim'");
        else
            CHECK_OK(st);
        sheaf_config_release(&c);
        free(list);
        free(text);
    }
}

TEST(test_defaults__when_keys_are_absent_or_null)
{
    static const number_row kv[] = {
        { "", 4 },
        { "'num_key_value_heads':'__remove__'", 8 },
        { "'num_key_value_heads':null", 8 },
        { "'model_type':'mistral','architectures':null,'num_key_value_heads':null", 8 }
    };
    static const number_row head[] = { { "", 8 },
                                       { "'head_dim':null", 8 },
                                       { "'head_dim':16", 16 },
                                       { "'head_dim':16,'hidden_size':63", 16 } };
    static const number_row eps[] = { { "", 1e-6 },
                                      { "'rms_norm_eps':1e-5", 1e-5 },
                                      { "'rms_norm_eps':0", 0 } };
    static const number_row theta[] = { { "", 1e4 },
                                        { "'rope_theta':500000", 5e5 },
                                        { "'rope_parameters':{'rope_theta':7}", 7 },
                                        { "'rope_theta':7.0,'rope_parameters':{'rope_theta':7}",
                                          7 },
                                        { "'rope_scaling':null,'rope_theta':7", 7 } };
    static const number_row partial[] = { { "", 1 },
                                          { "'partial_rotary_factor':1", 1 },
                                          { P3 ",'partial_rotary_factor':0.5", .5 },
                                          { P3 ",'rope_parameters':{'partial_rotary_factor':0.25}",
                                            .25 } };
    static const number_row position[] = { { "", 2048 },
                                           { "'max_position_embeddings':99", 99 },
                                           { "'model_type':'qwen2','architectures':null", 32768 },
                                           { "'model_type':'mistral','architectures':null",
                                             131072 } };
    static const number_row tied[] = { { "", 0 }, { "'tie_word_embeddings':true", 1 } };
    static const number_row dtype[] = { { "", SHEAF_F32 },
                                        { "'dtype':'bfloat16'", SHEAF_BF16 },
                                        { "'torch_dtype':'float16'", SHEAF_F16 },
                                        { "'torch_dtype':'float16','dtype':'float16'",
                                          SHEAF_F16 } };
    static const number_row range[] = { { "", .02 }, { "'initializer_range':0.1", .1 } };
    CHECK_FIELD(kv, kv_heads);
    CHECK_FIELD(head, head_dim);
    CHECK_FIELD(eps, rms_eps);
    CHECK_FIELD(theta, rope.theta);
    CHECK_FIELD(partial, rope.partial);
    CHECK_FIELD(position, max_position);
    CHECK_FIELD(tied, tied);
    CHECK_FIELD(dtype, dtype);
    CHECK_FIELD(range, initializer_range);
}

TEST(test_family__from_either_key)
{
    static const number_row rows[] = {
        { "", SHEAF_LLAMA },
        { "'architectures':'__remove__'", SHEAF_LLAMA },
        { "'architectures':[]", SHEAF_LLAMA },
        { "'model_type':'__remove__'", SHEAF_LLAMA },
        { "'model_type':'__remove__','architectures':['Qwen2ForCausalLM']", SHEAF_QWEN2 },
        { "'model_type':'mistral','architectures':['MistralForCausalLM']", SHEAF_MISTRAL },
    };
    CHECK_FIELD(rows, family);
    assert_string_equal(sheaf_family_name(SHEAF_LLAMA), "llama");
    assert_string_equal(sheaf_family_name(SHEAF_MISTRAL), "mistral");
    assert_string_equal(sheaf_family_name(SHEAF_QWEN2), "qwen2");
}

#define SCORES "'architectures':['LlamaForSequenceClassification']"
/* Without a list transformers has two labels. */
TEST(test_scores__of_a_class_with_one_label)
{
    static const number_row rows[] = {
        { "", 0 },
        { "'id2label':{'0':'a'}", 0 },
        { SCORES ",'id2label':{'0':'LABEL_0'}", 1 },
        { SCORES ",'num_labels':1", 1 },
        { "'model_type':'qwen2','architectures':['Qwen2ForSequenceClassification'],"
          "'num_labels':1,'tie_word_embeddings':true",
          1 },
    };
    CHECK_FIELD(rows, scores);
    sheaf_config c;
    CHECK_OK(parse_with(&c, rows[4].changes));
    assert_false(c.tied);
    sheaf_config_release(&c);
    CHECK_FAILS(parse_with(&c, SCORES), SHEAF_E_UNSUPPORTED,
                "'id2label' | one label, a reward, of a LlamaForSequenceClassification | 2 labels");
    CHECK_FAILS(parse_with(&c, SCORES ",'id2label':{'0':'a','1':'b','2':'c'}"), SHEAF_E_UNSUPPORTED,
                "3 labels");
}

TEST(test_mixture__of_mixtral)
{
    static const struct {
        const char *changes;
        int64_t num_experts, top_k;
    } rows[] = {
        { "", 0, 0 },
        { "'num_experts_per_tok':2", 0, 0 },
        { MX, 8, 2 },
        { MX ",'num_local_experts':5,'num_experts_per_tok':5", 5, 5 },
        { MX ",'output_router_logits':false,'router_aux_loss_coef':0.02,"
             "'router_jitter_noise':0.0",
          8, 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_OK(parse_with(&c, rows[i].changes));
        if (c.num_experts != rows[i].num_experts || c.top_k != rows[i].top_k)
            fail_msg("%s", rows[i].changes);
        sheaf_config_release(&c);
    }
}

TEST(test_mixture__loss_of_the_router)
{
    static const number_row rows[] = {
        { MX, 0 },
        { MX ",'router_aux_loss_coef':0.02", 0 },
        { MX ",'output_router_logits':true", 0.001 },
        { QM ",'output_router_logits':true,'router_aux_loss_coef':0.25", 0.25 },
    };
    CHECK_FIELD(rows, router_loss);
}

TEST(test_mixture__layers_of_qwen3)
{
    static const struct {
        const char *changes;
        uint64_t mlps; /* of 4 layers */
        bool of_all;
    } rows[] = {
        { QM, 0, true },
        { QM ",'norm_topk_prob':true,'mlp_only_layers':[]", 0, false },
        { QM ",'mlp_only_layers':[1,3,7]", 10, true },
        { QM ",'decoder_sparse_step':2", 5, true },
        { QM ",'decoder_sparse_step':2,'mlp_only_layers':[3]", 13, true },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_OK(parse_with(&c, rows[i].changes));
        if (c.mlp_layers[0] != rows[i].mlps || c.shares_of_all != rows[i].of_all ||
            c.expert_ffn != 24 || c.num_experts != 128 || c.top_k != 8)
            fail_msg("%s", rows[i].changes);
        sheaf_config_release(&c);
    }
}

TEST(test_biases__by_family)
{
    static const struct {
        const char *changes;
        bool qkv, o, mlp;
    } rows[] = {
        { "", false, false, false },
        { "'attention_bias':true", true, true, false },
        { "'mlp_bias':true", false, false, true },
        { Q2, true, false, false },
        { Q2 ",'attention_bias':true", true, false, false },
        { M7, false, false, false },
        { M7 ",'attention_bias':false", false, false, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_OK(parse_with(&c, rows[i].changes));
        if (c.qkv_bias != rows[i].qkv || c.o_bias != rows[i].o || c.mlp_bias != rows[i].mlp)
            fail_msg("%s", rows[i].changes);
        sheaf_config_release(&c);
    }
}

#define FULL "'full_attention'"
#define SLIDE "'sliding_attention'"

TEST(test_window__who_has_one_and_from_where)
{
    static const struct {
        const char *changes;
        int64_t window, from;
        uint64_t full; /* layers behind that see everything, a bit each */
    } rows[] = {
        { "", 0, 0 },
        { "'sliding_window':9", 0, 0 }, /* the Llama class ignores it */
        { "'layer_types':[" FULL "," FULL "," FULL "," FULL "]", 0, 0 },
        { M7, 4096, 0 },
        { M7 ",'sliding_window':null", 0, 0 },
        { M7 ",'sliding_window':9", 9, 0 },
        { M7 ",'sliding_window':9,'layer_types':[" SLIDE "," SLIDE "," SLIDE "," SLIDE "]", 9, 0 },
        { M7 ",'sliding_window':null,'layer_types':[" FULL "," FULL "," FULL "," FULL "]", 0, 0 },
        { G2, 4096, 0, 10 },
        { G3 ",'sliding_window':9", 9, 0 }, /* every sixth is full */
        { G3 ",'sliding_window':9,'sliding_window_pattern':3", 9, 0, 4 },
        { G3 ",'sliding_window':null,'layer_types':[" FULL "," FULL "," FULL "," FULL "]", 0, 0 },
        { Q2 ",'sliding_window':9", 0, 0 },
        { Q2 ",'sliding_window':9,'use_sliding_window':false", 0, 0 },
        { Q2 ",'sliding_window':9,'use_sliding_window':true", 0, 0 }, /* max_window_layers is 28 */
        { Q2 ",'sliding_window':9,'use_sliding_window':true,'max_window_layers':3", 9, 3 },
        { Q2 ",'sliding_window':9,'use_sliding_window':true,'max_window_layers':0", 9, 0 },
        { Q2 ",'sliding_window':9,'use_sliding_window':true,'max_window_layers':4", 0, 0 },
        { Q2 ",'sliding_window':null,'use_sliding_window':true,'max_window_layers':1", 0, 0 },
        { Q2 ",'use_sliding_window':true,'max_window_layers':1", 4096, 1 },
        { Q2 ",'sliding_window':9,'use_sliding_window':true,'max_window_layers':1,"
             "'layer_types':[" FULL "," FULL "," SLIDE "," SLIDE "]",
          9, 2 }, /* what is written out wins */
        { Q2 ",'sliding_window':9,'use_sliding_window':true,'max_window_layers':1,"
             "'layer_types':[" FULL "," FULL "," FULL "," FULL "]",
          0, 0 },
        { Q2 ",'use_sliding_window':true,'sliding_window':9,'layer_types':[" SLIDE "," FULL "," FULL
             "," SLIDE "]",
          9, 0, 6 },
        { Q3 ",'sliding_window':9", 0, 0 },
        { Q3 ",'sliding_window':9,'use_sliding_window':true,'max_window_layers':3", 9, 3 },
        { P3, 0, 0 },
        { P3 ",'sliding_window':9", 9, 0 },
        { MX, 0, 0 },
        { MX ",'sliding_window':9", 9, 0 },
        { O2 ",'sliding_window':9", 0, 0 },
        { S3 ",'sliding_window':9", 0, 0 },
        { S3 ",'sliding_window':9,'use_sliding_window':true", 9, 3 }, /* every fourth */
        { S3 ",'sliding_window':9,'use_sliding_window':true,'no_rope_layers':[0,1,0,1]", 9, 0, 10 },
        { S3 ",'sliding_window':9,'layer_types':[" FULL "," FULL "," FULL "," FULL "]", 0, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_OK(parse_with(&c, rows[i].changes));
        if (c.window != rows[i].window || c.window_from_layer != rows[i].from ||
            c.full_layers[0] != rows[i].full)
            fail_msg("%s: %ld from %ld", rows[i].changes, (long)c.window,
                     (long)c.window_from_layer);
        sheaf_config_release(&c);
    }
}

TEST(test_tokens__one_several_or_none)
{
    static const struct {
        const char *changes;
        int neos;
        int64_t eos0, eos1, bos, pad, padding;
    } rows[] = {
        { "", 0, 0, 0, -1, -1, 0 },
        { "'eos_token_id':5,'bos_token_id':null,'pad_token_id':-1", 1, 5, 0, -1, -1, 300 },
        { "'eos_token_id':[7,5],'bos_token_id':0,'pad_token_id':299", 2, 7, 5, 0, 299, 300 },
        { "'pad_token_id':0", 0, 0, 0, -1, 0, 1 },
        { "'pad_token_id':null", 0, 0, 0, -1, -1, 0 },
        { G2, 0, 0, 0, -1, -1, 1 },
        { G3, 0, 0, 0, -1, -1, 1 },
        { O2, 0, 0, 0, -1, -1, 2 },
        { S3, 0, 0, 0, -1, -1, 0 }, /* of a larger vocabulary */
        { S3 ",'vocab_size':128256", 0, 0, 0, -1, -1, 128005 },
        { P3 ",'vocab_size':32064", 0, 0, 0, -1, -1, 32001 },
        { "'eos_token_id':0", 1, 0, 0, -1, -1 },
        { "'eos_token_id':[]", 0, 0, 0, -1, -1 },
        { "'eos_token_id':null", 0, 0, 0, -1, -1 },
        { "'eos_token_id':-1", 0, -1, 0, -1, -1 },
        { "'eos_token_id':[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16]", 16, 1, 2, -1, -1 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_OK(parse_with(&c, rows[i].changes));
        if (c.neos != rows[i].neos || c.bos != rows[i].bos || c.pad != rows[i].pad ||
            c.padding != rows[i].padding || (c.neos > 0 && c.eos[0] != rows[i].eos0) ||
            (c.neos > 1 && c.eos[1] != rows[i].eos1))
            fail_msg("%s", rows[i].changes);
        sheaf_config_release(&c);
    }
}

TEST(test_rope__spellings_and_types)
{
    static const struct {
        const char *changes;
        sheaf_rope_type type;
        double factor, low, high;
        int64_t original;
        double beta_fast, attention;
    } rows[] = {
        { "'rope_scaling':{'type':'dynamic','factor':2}", SHEAF_ROPE_DYNAMIC, 2, 0, 0, 0 },
        { "'rope_scaling':{'type':'yarn','factor':4}", SHEAF_ROPE_YARN, 4, 0, 0, 2048, 32 },
        { "'rope_scaling':{'type':'yarn','original_max_position_embeddings':512,'beta_fast':7,"
          "'attention_factor':1.5}",
          SHEAF_ROPE_YARN, 4, 0, 0, 512, 7, 1.5 },
        { "'original_max_position_embeddings':512,'rope_scaling':{'type':'longrope',"
          "'short_factor':[1,1,1,1],'long_factor':[1,2,3,4]}",
          SHEAF_ROPE_LONGROPE, 4, 0, 0, 512 },
        { P3 ",'max_position_embeddings':8192,'rope_scaling':{'type':'su',"
             "'short_factor':[1,1,1,1],'long_factor':[1,2,3,4]}",
          SHEAF_ROPE_LONGROPE, 2, 0, 0, 4096 },
        { "'rope_scaling':{'type':'linear','factor':2}", SHEAF_ROPE_LINEAR, 2, 0, 0, 0 },
        { "'rope_scaling':{'rope_type':'linear','type':'linear','factor':2.5}", SHEAF_ROPE_LINEAR,
          2.5, 0, 0, 0 },
        { "'rope_parameters':{'rope_type':'default','factor':3}", SHEAF_ROPE_DEFAULT, 0, 0, 0, 0 },
        { "'rope_parameters':{'rope_type':'llama3','factor':8,'low_freq_factor':1,'high_freq_factor':4,"
          "'original_max_position_embeddings':64}",
          SHEAF_ROPE_LLAMA3, 8, 1, 4, 64 },
        { "'rope_parameters':{'rope_type':'linear','factor':2},'rope_scaling':{'type':'linear','factor':2}",
          SHEAF_ROPE_LINEAR, 2, 0, 0, 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_OK(parse_with(&c, rows[i].changes));
        if (c.rope.type != rows[i].type || c.rope.factor != rows[i].factor ||
            c.rope.low_freq_factor != rows[i].low || c.rope.high_freq_factor != rows[i].high ||
            c.rope.original_length != rows[i].original || c.rope.beta_fast != rows[i].beta_fast ||
            c.rope.attention_factor != rows[i].attention)
            fail_msg("%s", rows[i].changes);
        sheaf_config_release(&c);
    }
}

TEST(test_keys__unknown_ones_are_kept_and_reported)
{
    sheaf_config c;
    CHECK_OK(parse_with(
        &c, "'my_note':{'deep':[1]},'use_cache':true,'temperature':0.5,'rope_scaling':null,"
            "'rope_parameters':{'odd':1,'factor':null},'zzz':null"));
    assert_string_equal(c.unknown_keys, "my_note,zzz,rope_parameters.odd");
    assert_non_null(strstr(c.json, "\"my_note\": {\"deep\": [1]}"));
    sheaf_config_release(&c);
}

TEST(test_bytes__vocabulary_of_bytes)
{
    sheaf_config c;
    CHECK_OK(parse_with(&c, "'sheaf_tokenizer':'bytes'"));
    assert_true(c.byte_vocab);
    sheaf_config_release(&c);
    CHECK_FAILS(parse_with(&c, "'sheaf_tokenizer':'bytes','vocab_size':255"), SHEAF_E_LAYOUT,
                "at least 256");
    CHECK_FAILS(parse_with(&c, "'sheaf_tokenizer':'words'"), SHEAF_E_UNSUPPORTED, "\"bytes\"");
}

/* ---- what must be refused ---- */

#define BY(METHOD, MORE) "'quantization_config':{'quant_method':'" METHOD "'" MORE "}"

TEST(test_refused__by_key_expected_and_found)
{
    static const struct {
        const char *changes;
        const char *part;
        sheaf_code code; /* 0: SHEAF_E_UNSUPPORTED */
    } rows[] = {
        /* family */
        { "'model_type':'lama'", "| \"llama\", if that was meant, in config.json" },
        { "'model_type':'dbrx'",
          "\"dbrx\" | another model: this one is not supported. sheaf merge, verify and diff take models of any kind" },
        { "'model_type':'Qwen-2'", "| \"qwen2\", if that was meant, in config.json" },
        { "'architectures':['DbrxForCausalLM']", "| another model" },
        { "'architectures':['FalconForCausalLM']", "| another model" },
        { "'architectures':['Qwen2MoeForCausalLM']", "| another model" },
        { "'model_type':'falcon'",
          "'model_type' | one of llama, mistral, qwen2, qwen3, smollm3, olmo2, phi3, mixtral" },
        { "'model_type':'gemma3'", "\"gemma3\" | its text model alone, of model_type gemma3_text" },
        { "'architectures':['Gemma3ForConditionalGeneration']",
          "its text model alone, of model_type gemma3_text" },
        { G3 ",'sliding_window':null", "'sliding_window' | a number", SHEAF_E_LAYOUT },
        { G3 ",'hidden_activation':'gelu'",
          "'hidden_activation' | \"gelu_pytorch_tanh\" | \"gelu\"" },
        { G3 ",'use_bidirectional_attention':true",
          "'use_bidirectional_attention' | false or null" },
        { G2 ",'attn_logit_softcapping':0", "'attn_logit_softcapping'", SHEAF_E_FORMAT },
        { G3
          ",'rope_theta':null,'rope_parameters':{'sliding_attention':{'rope_type':'linear','factor':2}}",
          "'rope_parameters.sliding_attention'" },
        { G3 ",'rope_theta':null,'rope_parameters':{'rope_type':'default'}",
          "only 'full_attention' and 'sliding_attention'", SHEAF_E_LAYOUT },
        { "'model_type':'qwen3'",
          "'architectures' | Qwen3ForCausalLM, as 'model_type' is qwen3 | LlamaForCausalLM",
          SHEAF_E_LAYOUT },
        { "'model_type':'gpt2'", "\"gpt2\" | " },
        { "'model_type':7", "'model_type' | a string | 7", SHEAF_E_FORMAT },
        { "'architectures':['LlamaForTokenClassification']", "LlamaForCausalLM" },
        { "'architectures':['LLaMAForCausalLM']",
          "| \"LlamaForCausalLM\", if that was meant, in config.json" },
        { "'architectures':['MistralForCausalLM']",
          "LlamaForCausalLM, as 'model_type' is llama | MistralForCausalLM", SHEAF_E_LAYOUT },
        { "'architectures':[7]", "a list of one string", SHEAF_E_FORMAT },
        { "'architectures':['LlamaForCausalLM','LlamaForCausalLM']", "a list of one string",
          SHEAF_E_FORMAT },
        { "'architectures':'LlamaForCausalLM'", "'architectures' | a list", SHEAF_E_FORMAT },
        { "'model_type':null,'architectures':null", "'model_type'", SHEAF_E_FORMAT },
        /* sizes */
        { "'vocab_size':'__remove__'",
          "'vocab_size' | a whole number from 1 to 2147483647 | nothing", SHEAF_E_FORMAT },
        { "'vocab_size':null", "'vocab_size'", SHEAF_E_FORMAT },
        { "'vocab_size':0", "'vocab_size' | a whole number from 1 to 2147483647 | 0",
          SHEAF_E_FORMAT },
        { "'vocab_size':2147483648", "2147483648", SHEAF_E_FORMAT },
        { "'vocab_size':300.0", "300.0 (a fraction)", SHEAF_E_FORMAT },
        { "'vocab_size':true", "true (a boolean)", SHEAF_E_FORMAT },
        { "'vocab_size':'300'", "\"300\" (a string)", SHEAF_E_FORMAT },
        { "'hidden_size':-64", "'hidden_size' | a whole number from 1 to 16777216 | -64",
          SHEAF_E_FORMAT },
        { "'hidden_size':9223372036854775807", "'hidden_size'", SHEAF_E_FORMAT },
        { "'intermediate_size':0", "'intermediate_size'", SHEAF_E_FORMAT },
        { "'num_hidden_layers':0", "'num_hidden_layers'", SHEAF_E_FORMAT },
        { "'num_hidden_layers':4097", "'num_hidden_layers'", SHEAF_E_FORMAT },
        { "'num_attention_heads':0", "'num_attention_heads'", SHEAF_E_FORMAT },
        { "'num_key_value_heads':0", "'num_key_value_heads'", SHEAF_E_FORMAT },
        { "'num_key_value_heads':3", "a number that divides num_attention_heads, 8 | 3",
          SHEAF_E_LAYOUT },
        { "'num_key_value_heads':16", "a number that divides", SHEAF_E_LAYOUT },
        { Q2 ",'num_key_value_heads':'__remove__'", "'num_key_value_heads'", SHEAF_E_FORMAT },
        { "'hidden_size':63", "'head_dim'", SHEAF_E_LAYOUT },
        { "'head_dim':0", "'head_dim'", SHEAF_E_FORMAT },
        { "'head_dim':7", "an even number of rotated elements in a head | 7 of a head of 7",
          SHEAF_E_LAYOUT },
        { "'head_dim':1", "even number", SHEAF_E_LAYOUT },
        { "'max_position_embeddings':0", "'max_position_embeddings'", SHEAF_E_FORMAT },
        { "'rms_norm_eps':-1", "'rms_norm_eps'", SHEAF_E_FORMAT },
        { "'rms_norm_eps':'1e-5'", "'rms_norm_eps'", SHEAF_E_FORMAT },
        { "'initializer_range':-1", "'initializer_range'", SHEAF_E_FORMAT },
        { "'tie_word_embeddings':1", "'tie_word_embeddings' | true or false | 1", SHEAF_E_FORMAT },
        /* biases */
        { "'attention_bias':0", "'attention_bias'", SHEAF_E_FORMAT },
        { Q2 ",'attention_bias':false",
          "'attention_bias' | true, or no such key, for model_type qwen2" },
        { M7 ",'attention_bias':true",
          "'attention_bias' | false, or no such key, for model_type mistral" },
        { M7 ",'mlp_bias':true", "'mlp_bias' | false for model_type mistral" },
        { Q2 ",'mlp_bias':true", "'mlp_bias'" },
        /* tokens */
        { "'eos_token_id':300", "'eos_token_id' | a token id below vocab_size, 300 | 300",
          SHEAF_E_LAYOUT },
        { "'eos_token_id':[1,-1]", "'eos_token_id'", SHEAF_E_LAYOUT },
        { "'eos_token_id':[1,[2]]",
          "'eos_token_id' | a token id below vocab_size, 300 | a list of 1", SHEAF_E_FORMAT },
        { "'eos_token_id':[1,300]", "| 300", SHEAF_E_LAYOUT },
        { "'eos_token_id':1.0", "'eos_token_id'", SHEAF_E_FORMAT },
        { "'eos_token_id':[1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17]", "at most 16 ids" },
        { "'bos_token_id':-2", "'bos_token_id'", SHEAF_E_LAYOUT },
        { "'bos_token_id':true", "'bos_token_id'", SHEAF_E_FORMAT },
        { "'pad_token_id':300", "'pad_token_id'", SHEAF_E_LAYOUT },
        /* dtype */
        { "'dtype':'int8'", "'dtype' | float32, bfloat16 or float16 | \"int8\"" },
        { "'torch_dtype':'float64'", "'torch_dtype'" },
        { "'torch_dtype':'float16','dtype':'bfloat16'", "'torch_dtype' | the same as 'dtype'",
          SHEAF_E_LAYOUT },
        { "'dtype':16", "'dtype' | a string", SHEAF_E_FORMAT },
        /* window */
        { M7 ",'sliding_window':0", "'sliding_window'", SHEAF_E_FORMAT },
        { M7 ",'sliding_window':-1", "'sliding_window'", SHEAF_E_FORMAT },
        { Q2 ",'use_sliding_window':1", "'use_sliding_window'", SHEAF_E_FORMAT },
        { Q2 ",'max_window_layers':-1", "'max_window_layers'", SHEAF_E_FORMAT },
        { "'layer_types':[" FULL "]", "one for each of the 4 layers | a list of 1",
          SHEAF_E_LAYOUT },
        { "'layer_types':[" FULL "," FULL "," FULL ",'linear_attention']",
          "\"linear_attention\" at layer 3" },
        { "'layer_types':[" FULL "," FULL "," FULL ",5]", "no string at layer 3" },
        { "'layer_types':[" FULL "," FULL "," FULL "," SLIDE "]", "no window is in use",
          SHEAF_E_LAYOUT },
        { Q2 ",'layer_types':[" FULL "," FULL "," FULL "," SLIDE "]", "no window is in use",
          SHEAF_E_LAYOUT },
        { S3 ",'sliding_window':9,'layer_types':[" SLIDE "," FULL "," FULL "," FULL "]",
          "no window is in use", SHEAF_E_LAYOUT },
        { S3 ",'use_sliding_window':true,'sliding_window':null,'layer_types':[" SLIDE "," FULL
             "," FULL "," FULL "]",
          "no window is in use", SHEAF_E_LAYOUT },
        { M7 ",'sliding_window':9,'layer_types':[" FULL "," FULL "," FULL "," SLIDE "]",
          "one kind for all layers" },
        { M7 ",'sliding_window':9,'layer_types':[" FULL "," FULL "," FULL "," FULL "]",
          "one kind for all layers" },
        /* rotary */
        { "'rope_theta':0", "'rope_theta'", SHEAF_E_FORMAT },
        { "'rope_theta':'1e4'", "'rope_theta'", SHEAF_E_FORMAT },
        { "'rope_theta':5,'rope_parameters':{'rope_theta':6}",
          "'rope_theta' | the same number everywhere in the file | 5 and 6", SHEAF_E_LAYOUT },
        { "'partial_rotary_factor':1.5", "'partial_rotary_factor'", SHEAF_E_FORMAT },
        { P3 ",'partial_rotary_factor':0.1", "0 of a head of 8", SHEAF_E_LAYOUT },
        { "'partial_rotary_factor':0.5",
          "'partial_rotary_factor' | 1, or no such key, for model_type llama" },
        { G2 ",'rope_parameters':{'partial_rotary_factor':0.5}",
          "'partial_rotary_factor' | 1, or no such key, for model_type gemma2" },
        { "'partial_rotary_factor':0.5,'rope_scaling':{'partial_rotary_factor':0.25}",
          "'partial_rotary_factor'", SHEAF_E_LAYOUT },
        { "'rope_scaling':[]", "'rope_scaling' | an object", SHEAF_E_FORMAT },
        { "'rope_scaling':{'type':'linaer','factor':2}", "nearest supported name is \"linear\"" },
        { "'rope_scaling':{'rope_type':'su','factor':2}",
          "'rope_scaling.rope_type' | default, linear, dynamic, yarn, longrope or llama3 | \"su\"" },
        { "'rope_scaling':{'type':'dynamic'}", "'factor', which rope type \"dynamic\" needs",
          SHEAF_E_FORMAT },
        { "'head_dim':2,'rope_scaling':{'type':'dynamic','factor':2}",
          "at least 4 rotated elements", SHEAF_E_LAYOUT },
        { "'rope_parameters':{'rope_type':'longrope'}",
          "'short_factor', which rope type \"longrope\" needs", SHEAF_E_FORMAT },
        { "'rope_parameters':{'rope_type':'longrope','short_factor':[1,2,3,4],'long_factor':[1,2,3]}",
          "4 numbers in long_factor, one for each pair of channels | 3", SHEAF_E_LAYOUT },
        { "'rope_parameters':{'rope_type':'longrope','short_factor':[1,0,3,4],'long_factor':[1,2,3,4]}",
          "short_factor' | numbers above 0", SHEAF_E_FORMAT },
        { "'original_max_position_embeddings':64,'rope_scaling':{'rope_type':'yarn','factor':2,"
          "'original_max_position_embeddings':65}",
          "'original_max_position_embeddings' | the same number everywhere", SHEAF_E_LAYOUT },
        { G3 ",'rope_scaling':{'rope_type':'yarn','factor':2,'truncate':false}",
          "'rope_scaling' | truncate true" },
        { G3 ",'rope_parameters':{'full_attention':{'rope_type':'yarn','factor':2,"
             "'truncate':false}}",
          "'rope_parameters' | truncate true" },
        { G3 ",'original_max_position_embeddings':64,'rope_scaling':{'rope_type':'yarn',"
             "'factor':2}",
          "'original_max_position_embeddings' | the key in 'rope_scaling'" },
        /* families */
        { "'num_local_experts':8", "'num_local_experts'" },
        { MX ",'num_local_experts':0", "'num_local_experts'", SHEAF_E_FORMAT },
        { MX ",'num_local_experts':5000", "'num_local_experts'", SHEAF_E_FORMAT },
        { MX ",'num_local_experts':3,'num_experts_per_tok':4",
          "'num_experts_per_tok' | at most the number of experts, 3 | 4", SHEAF_E_LAYOUT },
        { MX ",'num_local_experts':1", "'num_experts_per_tok' |", SHEAF_E_LAYOUT },
        { MX ",'num_experts':4", "'num_experts'" },
        { QM ",'num_experts':9,'num_local_experts':10",
          "'num_experts' | 10, as 'num_local_experts' is | 9", SHEAF_E_LAYOUT },
        { "'model_type':'qwen3_moe','architectures':null", "'moe_intermediate_size'",
          SHEAF_E_FORMAT },
        { QM ",'mlp_only_layers':[0,-1]", "numbers of layers, from 0", SHEAF_E_FORMAT },
        { QM ",'mlp_only_layers':['1']", "'mlp_only_layers'", SHEAF_E_FORMAT },
        { QM ",'decoder_sparse_step':0", "'decoder_sparse_step'", SHEAF_E_FORMAT },
        { QM ",'decoder_sparse_step':9", "experts in at least one layer" },
        { MX ",'router_jitter_noise':0.01", "'router_jitter_noise' | 0" },
        { P3 ",'attention_bias':true", "'attention_bias' | false" },
        { P3 ",'mlp_bias':true", "'mlp_bias' | false" },
        { P3 ",'lm_head_bias':true", "'lm_head_bias'" },
        { P3 ",'resid_pdrop':0.1", "'resid_pdrop'" },
        { P3 ",'rope_scaling':{'type':'linear','factor':2}", "default or longrope" },
        { P3 ",'auto_map':{'AutoModelForCausalLM':'modeling.X'}",
          "no program code of the model's own" },
        { S3 ",'no_rope_layers':[1,1,0]", "'no_rope_layers' | one for each of the 4 layers | 3",
          SHEAF_E_LAYOUT },
        { S3 ",'no_rope_layers':[1,1,0,2]", "'no_rope_layers' | 1 or 0", SHEAF_E_FORMAT },
        { "'no_rope_layers':[1,1,0,1]", "'no_rope_layers'" },
        { Q3 ",'mlp_bias':true", "'mlp_bias' | false" },
        { Q3 ",'num_key_value_heads':'__remove__'", "'num_key_value_heads'", SHEAF_E_FORMAT },
        { O2 ",'clip_qkv':8", "'clip_qkv'" },
        { "'rope_scaling':{'type':'linear','rope_type':'default','factor':2}",
          "'rope_scaling.type'", SHEAF_E_LAYOUT },
        { "'rope_scaling':{'type':'linear'}", "'factor', which rope type \"linear\" needs",
          SHEAF_E_FORMAT },
        { "'rope_scaling':{'type':'linear','factor':0}", "'rope_scaling.factor'", SHEAF_E_FORMAT },
        { "'rope_scaling':{'type':'linear','factor':true}", "'rope_scaling.factor'",
          SHEAF_E_FORMAT },
        { "'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':1,'high_freq_factor':4}",
          "'original_max_position_embeddings', which rope type \"llama3\" needs", SHEAF_E_FORMAT },
        { "'rope_scaling':{'rope_type':'llama3','factor':8,'high_freq_factor':4,'original_max_position_embeddings':64}",
          "'low_freq_factor'", SHEAF_E_FORMAT },
        { "'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':1,'original_max_position_embeddings':64}",
          "'high_freq_factor'", SHEAF_E_FORMAT },
        { "'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':4,'high_freq_factor':4,"
          "'original_max_position_embeddings':64}",
          "low_freq_factor below high_freq_factor | 4 and 4", SHEAF_E_LAYOUT },
        { "'rope_scaling':{'rope_type':'llama3','factor':8,'low_freq_factor':1,'high_freq_factor':4,"
          "'original_max_position_embeddings':64.0}",
          "'rope_scaling.original_max_position_embeddings'", SHEAF_E_FORMAT },
        { "'rope_scaling':{'type':'linear','factor':2},'rope_parameters':{'rope_type':'linear','factor':3}",
          "the same as 'rope_parameters'", SHEAF_E_LAYOUT },
        { "'rope_parameters':{'full_attention':{'rope_type':'default'}}",
          "one rotary embedding for all layers" },
        /* keys that would change the arithmetic */
        { "'hidden_act':'gelu'", "'hidden_act' | \"silu\"" },
        { "'hidden_act':5", "'hidden_act'", SHEAF_E_FORMAT },
        { "'attention_dropout':0.1", "'attention_dropout' | 0, false or null" },
        { "'is_causal':false", "'is_causal' | true, or no such key" },
        { "'is_causal':null", "'is_causal' | true, or no such key" },
        { BY("gptq", ",'bits':3"),
          "'quantization_config.bits' | 4, of GPTQ, or 8 with sym and without desc_act | GPTQ, 3 bits: 3 | the model that was quantized" },
        { BY("gptq", ",'bits':8,'sym':true,'desc_act':true"),
          "4, of GPTQ, or 8 with sym and without desc_act | GPTQ, 8 bits: 8" },
        { BY("gptq", ",'bits':8"), "4, of GPTQ, or 8 with sym and without desc_act" },
        { BY("gptq", ",'bits':4,'format':'marlin'"),
          "'quantization_config.format' | gptq or gptq_v2" },
        { BY("gptq", ""), "'quantization_config.bits'", SHEAF_E_FORMAT },
        { BY("awq", ",'bits':4,'version':'gemv'"), "'quantization_config.version' | gemm, of AWQ" },
        { BY("awq", ",'bits':4,'checkpoint_format':'marlin'"),
          "'quantization_config.checkpoint_format' | gemm, of AWQ" },
        { BY("awq", ",'bits':4,'format':'gemv_fast'"),
          "'quantization_config.format' | gemm, of AWQ" },
        { BY("awq", ",'bits':4,'dynamic':{'+:.*':{'bits':8}}"),
          "or plain ones | 8 bits of '+:.*'" },
        { BY("fp8", ",'weight_block_size':null"),
          "'quantization_config.weight_block_size' | two sizes" },
        { BY("fp8", ",'weight_block_size':[0,128]"), "two positive numbers", SHEAF_E_FORMAT },
        { BY("compressed-tensors", ",'format':'nvfp4-pack-quantized'"),
          "'quantization_config.format' | pack-quantized or mxfp4-pack-quantized" },
        { BY("compressed-tensors",
             ",'format':'pack-quantized','config_groups':{'a':{'weights':{'num_bits':8,'type':'int'}}}"),
          "weights of 4 bits" },
        { BY("compressed-tensors",
             ",'format':'mxfp4-pack-quantized','config_groups':{'a':{'weights':{'num_bits':4,'type':'float','strategy':'group','group_size':16}}}"),
          "type float, groups of 32" },
        { BY("compressed-tensors",
             ",'format':'pack-quantized','sparsity_config':{'format':'sparse-24-bitmask'},'config_groups':{'a':{'weights':{'num_bits':4,'type':'int'}}}"),
          "'quantization_config.sparsity_config'" },
        { BY("hqq", ""), "others are not read | HQQ | the model that was quantized" },
        { BY("eetq", ""), "others are not read | EETQ | the model that was quantized" },
        { BY("gptq", ",'bits':4,'dynamic':{'+:.*q_proj':{'bits':8}}"),
          "'quantization_config.dynamic' | as many bits and one format for all modules, or plain ones | 8 bits of '+:.*q_proj'" },
        { BY("gptq", ",'bits':4,'dynamic':{'+:.*q_proj':{'format':'gptq_v2'}}"),
          "or plain ones | format of '+:.*q_proj'" },
        { BY("gptq", ",'bits':4,'dynamic':{'-:*q_proj':{}}"),
          "or plain ones | quantifier does not follow a repeatable item" },
        { BY("gptq", ",'bits':4,'dynamic':{'+:.*q_proj':{'group_size':'64'}}"),
          "'quantization_config: group_size'", SHEAF_E_FORMAT },
        { BY("gptq", ",'bits':4,'dynamic':[]"), "'quantization_config.dynamic' | an object" },
        { BY("gptq", ",'bits':4,'is_marlin_format':true"),
          "'quantization_config.is_marlin_format'" },
        { BY("gptq_marlin", ",'bits':4"), "others are not read | GPTQ in Marlin's order, 4 bits" },
        { BY("awq_marlin", ""), "others are not read | AWQ in Marlin's order" },
        { BY("auto-round", ",'bits':8"), "'quantization_config.bits' | 4, of auto-round" },
        { BY("auto-round", ",'packing_format':'auto_round:fp8_static'"),
          "'quantization_config.packing_format' | auto_round:auto_gptq" },
        { BY("auto-round", ",'data_type':'mx_fp'"), "'quantization_config.data_type' | int" },
        { BY("auto-round", ",'act_bits':8"), "'quantization_config.act_bits'" },
        { BY("auto-round", ",'extra_config':{'model.layers.0.mlp.up_proj':{'bits':2}}"),
          "or plain ones | 2 bits of 'model.layers.0.mlp.up_proj'" },
        { "'quantization_config':{}", "'quantization_config.quant_method' | bitsandbytes, gptq" },
        { "'quantization_config':7", "'quantization_config' | an object", SHEAF_E_FORMAT },
        { "'pruned_heads':{'0':[1]}", "'pruned_heads'" },
        { "'add_cross_attention':true", "'add_cross_attention'" },
        { "'final_logit_softcapping':30.0", "'final_logit_softcapping'" },
        { "'text_config':{}", "'text_config'" },
        { "'auto_map':{'AutoModelForCausalLM':'modeling.X'}",
          "no program code of the model's own | \"AutoModelForCausalLM\"" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_FAILS(parse_with(&c, rows[i].changes),
                    rows[i].code != 0 ? rows[i].code : SHEAF_E_UNSUPPORTED, rows[i].part);
    }
}

TEST(test_neutral__values_pass)
{
    static const char *const rows[] = {
        "'hidden_act':'silu'",
        "'hidden_act':'swish'",
        "'hidden_act':null",
        "'attention_dropout':0",
        "'attention_dropout':0.0",
        "'attention_dropout':null",
        "'is_causal':true",
        "'pretraining_tp':1",
        "'pretraining_tp':2",
        "'quantization_config':null",
        "'quantization_config':{'_load_in_8bit':true}",
        BY("bitsandbytes", ",'load_in_4bit':true"),
        BY("gptq", ",'bits':4,'group_size':-1"),
        BY("gptq", ",'bits':8,'sym':true,'dynamic':{'+:.*':{'bits':8}}"),
        BY("awq", ",'w_bit':4,'version':'GEMM'"),
        BY("awq", ",'bits':4,'checkpoint_format':'gemm'"),
        BY("intel/auto-round", ",'bits':4"),
        BY("fp8", ",'weight_block_size':[128,128]"),
        "'pruned_heads':{}",
        "'pruned_heads':[]",
        "'add_cross_attention':false",
        "'auto_map':{'AutoTokenizer':['tok.X',null]}",
        "'auto_map':null",
        "'embedding_multiplier':1",
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_OK(parse_with(&c, rows[i]));
        assert_null(c.unknown_keys);
        sheaf_config_release(&c);
    }
}

static const char *only_name(const void *self, int64_t i)
{
    return self;
}

/* As gptqmodel's dynamic_get() and auto-round's get_layer_config() find them. */
TEST(test_quantization__of_single_modules)
{
    static const char q[] = "model.layers.1.self_attn.q_proj", up[] = "model.layers.1.mlp.up_proj",
                      up11[] = "model.layers.11.mlp.up_proj";
#define DYNAMIC(TEXT) "\"quant_method\": \"gptq\", \"dynamic\": {" TEXT "}"
#define EXTRA(TEXT) "\"quant_method\": \"auto-round\", \"extra_config\": {" TEXT "}"
    static const struct {
        const char *config, *module;
        int64_t group;
        bool symmetric, act_order;
    } rows[] = {
        { DYNAMIC(""), q, 128, true, false },
        { DYNAMIC("\"+:.*\\\\.q_proj\": {\"group_size\": 64, \"desc_act\": true}"), q, 64, true,
          true },
        { DYNAMIC("\".*q_proj\": {\"sym\": false}"), q, 128, false, false },
        { DYNAMIC("\"+:q_proj\": {\"group_size\": 64}"), q, 128, true, false }, /* re.match */
        { DYNAMIC("\"+:.*q_proj$\": {\"group_size\": -1}"), q, 0, true, false },
        { DYNAMIC("\"+:model.layers.1\": {\"group_size\": 32}"), up11, 32, true, false },
        { DYNAMIC("\"+:.*layers\\\\.1\\\\.(?!mlp)\": {\"group_size\": 32}"), up, 128, true, false },
        { DYNAMIC("\"-:.*attn\": {}, \"+:.*proj\": {\"group_size\": 32}"), q, 128, true, false },
        { DYNAMIC("\"+:.*proj\": {\"group_size\": 32}, \"+:.*q_proj\": {\"group_size\": 16}"), q,
          32, true, false },
        { EXTRA("\"model.layers.1.mlp.up_proj\": {\"group_size\": 32}"), up, 32, true, false },
        { EXTRA("\"model.layers.1.mlp.up_proj\": {\"group_size\": 32}"), up11, 128, true, false },
        { EXTRA("\"up_proj\": {\"group_size\": 32}, \"model.layers.1.mlp.up_proj\": "
                "{\"sym\": false}"),
          up, 128, false, false },
        { EXTRA("\".*mlp\\\\.up.*\": {\"group_size\": 64}"), up11, 64, true, false },
        { EXTRA("\"up_proj\": {\"bits\": 16, \"data_type\": \"float\"}"), q, 128, true, false },
        { EXTRA("\"*\": {\"group_size\": 64}"), q, 128, true, false }, /* no pattern */
        { "\"quant_method\": \"awq\"", q, 128, false, false },
        { "\"quant_method\": \"awq\", \"q_group_size\": 32", q, 32, false, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *value = NULL;
        sheaf__quantization of, is;
        const char *text =
            textf("{\"bits\": 4, \"group_size\": 128, \"sym\": true, %s}", rows[i].config);
        CHECK_OK(sheaf__json_parse(&value, text, strlen(text)));
        CHECK_OK(sheaf__quantization_read(&of, value));
        CHECK_OK(sheaf__quantization_of_module(&is, &of, rows[i].module));
        if (is.group != rows[i].group || is.symmetric != rows[i].symmetric ||
            is.act_order != rows[i].act_order)
            fail_msg("%s of %s: groups of %d, sym %d, desc_act %d", rows[i].module, text,
                     (int)is.group, is.symmetric, is.act_order);
        json_decref(value);
    }
}

TEST(test_quantization__how_auto_round_packs)
{
    static const struct {
        const char *packing;
        sheaf__quantizer by;
        bool less_one;
    } rows[] = {
        { "\"auto_round:auto_gptq\"", SHEAF__GPTQ_4, true },
        { "\"auto_round:gptq\"", SHEAF__GPTQ_4, true },
        { "null", SHEAF__GPTQ_4, true },
        { "\"auto_round\"", SHEAF__GPTQ_4, false },
        { "\"auto_round:gptqmodel\"", SHEAF__GPTQ_4, false },
        { "\"auto_round:auto_awq\"", SHEAF__AWQ_4, false },
        { "\"auto_round:awq\"", SHEAF__AWQ_4, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        json_t *value = NULL;
        sheaf__quantization q;
        const char *text =
            textf("{\"quant_method\": \"auto-round\", \"packing_format\": %s}", rows[i].packing);
        CHECK_OK(sheaf__json_parse(&value, text, strlen(text)));
        CHECK_OK(sheaf__quantization_read(&q, value));
        assert_int_equal(q.by, rows[i].by);
        assert_int_equal(q.less_one, rows[i].less_one);
        assert_int_equal(q.group, 128);
        assert_true(q.symmetric);
        json_decref(value);
    }
}

/* Names alone show quantizers that are not read, too. */
TEST(test_quantization__is_named_by_tensors)
{
    static const struct {
        const char *tensor, *is;
    } rows[] = {
        { "a.W_q", "HQQ" },
        { "a.codebooks", "AQLM" },
        { "a.Qidxs", "QuIP#" },
        { "a.weight._data", "quanto" },
        { "a.weight_scales", "EETQ" },
        { "a.weight_global_scale", "NVFP4" },
        { "a.gate_up_proj_blocks", "MXFP4" },
        { "a.qweight", "GPTQ or AWQ" },
        { "a.weight.quant_state.bitsandbytes__nf4", "bitsandbytes, 4 bits" },
        { "a.weight_scale", "FP8 or the like" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        assert_string_equal(sheaf__quantization_by_names(only_name, rows[i].tensor, 1), rows[i].is);
    assert_null(sheaf__quantization_by_names(only_name, "a.weight", 1));
}

/* Text faults that no object can express. */
TEST(test_text__broken_files_are_named)
{
    static const struct {
        const char *text;
        const char *part;
    } rows[] = {
        { "", "line" },
        { "null", "an object" },
        { "[{}]", "a list of 1" },
        { "{\"vocab_size\":1,\"vocab_size\":2}", "a duplicate, 'vocab_size'" },
        { "{\"model_type\":\"ll\xff\"}", "UTF-8 | byte 0xff" },
        { "{\"vocab_size\":99999999999999999999}", "2^63" },
        { "{\"rms_norm_eps\":NaN}", "line 1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_config c;
        CHECK_FAILS(sheaf_config_parse(&c, rows[i].text, strlen(rows[i].text)), SHEAF_E_FORMAT,
                    rows[i].part);
    }
    sheaf_config c;
    char path[] = "/tmp/sheaf-config-XXXXXX";
    const int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "{\"vocab_size\": }", 16) == 16);
    close(fd);
    CHECK_FAILS(sheaf_config_read(&c, path), SHEAF_E_FORMAT, path);
    unlink(path);
    CHECK_FAILS(sheaf_config_read(&c, path), SHEAF_E_IO, path);
}

TEST(test_text__every_cut_is_refused)
{
    for (size_t n = 0; n < sizeof base - 1; n++) {
        sheaf_config c;
        char *exact = malloc(n + 1);
        memcpy(exact, base, n);
        CHECK_FAILS(sheaf_config_parse(&c, exact, n), SHEAF_E_FORMAT, "line");
        free(exact);
    }
}
