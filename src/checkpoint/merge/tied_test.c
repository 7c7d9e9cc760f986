/* tied_test.c - bases that know one tensor under several names: which of them are written, and with
 * whose values. What transformers and PEFT make of the same: bench/ties_live.py. */
#include "tests/made_adapters.h"

#include "base/text.h"
#include "checkpoint/merge/plan.h"

enum { MOST = 6 };

#define TIED "\"tie_word_embeddings\": true, \"vocab_size\": 10"
#define SAVE(module) LORA "\"target_modules\": [], \"modules_to_save\": [\"" module "\"]}"
#define CLASS(name, flag) "{\"model_type\": \"odd\", \"architectures\": [\"" name "\"], " flag "}"
#define LORA_OF(module, part)                                                                      \
    LORA "\"target_modules\": [\"" module "\"], \"trainable_token_indices\": " part "}"

/* Of the adapter's tensor every row is trained, or it is PEFT's copy. In `written`: a name of the
 * result, and "=base", "=own" (its second tensor), "=mine" or "=rows", row 7 of which is the
 * adapter's. */
static const struct {
    const char *what, *config, *base[MOST], *adapter_config, *mine[MOST];
    int64_t rows;
    const char *written[MOST], *flag;
} rows[] = {
    { "the head of names before 4.52",
      CLASS("LlavaForConditionalGeneration",
            "\"text_config\": {\"vocab_size\": 10, \"tie_word_embeddings\": true}"),
      LIST("language_model.model.embed_tokens.weight"), SAVE("embed_tokens"),
      LIST("language_model.model.embed_tokens.weight"), 10,
      LIST("language_model.model.embed_tokens.weight=mine", "language_model.lm_head.weight=base"),
      "\"text_config\": {\"vocab_size\": 10, \"tie_word_embeddings\": false}" },
    { "a tie that only a part of the config has: transformers 5 wants the head, 4 takes it",
      CLASS("LlavaForConditionalGeneration",
            "\"text_config\": {\"vocab_size\": 10, \"tie_word_embeddings\": true}"),
      LIST("language_model.model.embed_tokens.weight"), LORA "\"target_modules\": [\"x\"]}",
      LIST(NULL), 10,
      LIST("language_model.model.embed_tokens.weight=base", "language_model.lm_head.weight=base"),
      "\"text_config\": {\"vocab_size\": 10, \"tie_word_embeddings\": false}" },
    { "PEFT's copies of a head and of its bias",
      CLASS("PhiForCausalLM", "\"tie_word_embeddings\": false"),
      LIST("model.embed_tokens.weight", "lm_head.weight", "lm_head.bias"),
      LORA "\"target_modules\": [\"x\"]}", LIST("lm_head.bias"), 10,
      LIST("model.embed_tokens.weight=base", "lm_head.weight=own", "lm_head.bias=mine"),
      "\"tie_word_embeddings\": false" },
    { "a vocabulary of 12 in a model of several parts",
      CLASS("LlavaForConditionalGeneration", "\"text_config\": {\"vocab_size\": 10}"),
      LIST("model.language_model.embed_tokens.weight"), LORA "\"target_modules\": [\"x\"]}",
      LIST("lm_head.weight"), 12, LIST("model.language_model.embed_tokens.weight=mine"),
      "\"text_config\": {\"vocab_size\": 12}}" },
    { "Llama, whose config says nothing: a stored head is its own",
      CLASS("LlamaForCausalLM", "\"vocab_size\": 10"),
      LIST("model.embed_tokens.weight", "lm_head.weight=model.embed_tokens.weight"),
      LORA_OF("x", "{\"embed_tokens\": [7]}"),
      LIST("model.embed_tokens.token_adapter.trainable_tokens_delta"), 1,
      LIST("model.embed_tokens.weight=rows", "lm_head.weight=own"), "{\"model_type\": \"odd\"" },
    { "GPT-2, which ties then: rows are of both", CLASS("GPT2LMHeadModel", "\"vocab_size\": 10"),
      LIST("transformer.wte.weight", "lm_head.weight=transformer.wte.weight"),
      LORA_OF("x", "{\"wte\": [7]}"), LIST("transformer.wte.token_adapter.trainable_tokens_delta"),
      1, LIST("transformer.wte.weight=rows", "lm_head.weight=rows"), "{\"model_type\": \"odd\"" },
    { "names of the bare model", CLASS("GPT2LMHeadModel", "\"vocab_size\": 10"), LIST("wte.weight"),
      SAVE("wte"), LIST("transformer.wte.weight"), 10,
      LIST("wte.weight=mine", "lm_head.weight=base"), "\"tie_word_embeddings\": false" },
    { "Falcon's head, which no file names", CLASS("FalconForCausalLM", TIED),
      LIST("transformer.word_embeddings.weight"), SAVE("lm_head"), LIST("lm_head.weight"), 10,
      LIST("transformer.word_embeddings.weight=base", "lm_head.weight=mine"),
      "\"tie_word_embeddings\": false" },
    { "a classifier ties nothing", CLASS("GPT2ForSequenceClassification", "\"vocab_size\": 10"),
      LIST("transformer.wte.weight"), SAVE("wte"), LIST("transformer.wte.weight"), 10,
      LIST("transformer.wte.weight=mine"), "{\"model_type\": \"odd\"" },
    { "an unknown class that says it ties nothing",
      CLASS("OddForCausalLM", "\"tie_word_embeddings\": false"),
      LIST("model.embed_tokens.weight", "lm_head.weight"), SAVE("embed_tokens"),
      LIST("model.embed_tokens.weight"), 10, LIST("model.embed_tokens.weight=mine"),
      "\"tie_word_embeddings\": false" },
};

static int list_things(thing *out, const char *const *list, const char *before, int64_t n)
{
    int count = 0;
    for (; count < MOST && list[count] != NULL; count++) {
        const char *like = strchr(list[count], '=');
        out[count] = (thing){ textf("%s%.*s", before, (int)strcspn(list[count], "="), list[count]),
                              SHEAF_F32,
                              strstr(list[count], ".bias") != NULL ? 1 : 2,
                              { n, 4 },
                              .like = like == NULL ? NULL : like + 1 };
    }
    return count;
}

static void check_written(const char *written, const thing *base, const thing *mine)
{
    int64_t n = 0;
    const char *name = textf("%.*s", (int)strcspn(written, "="), written);
    float *got = result(at("out"), name, &n);
    if (got == NULL)
        fail_msg("'%s' was not written", name);
    const bool new = sheaf__ends_with(written, "=mine");
    if (sheaf__ends_with(written, "=own")) /* the base's second */
        base++;
    float *want = values(new ? mine : base, 1);
    if (sheaf__ends_with(written, "=rows")) {
        float *row = values(mine, 1);
        memcpy(want + 28, row, 16);
    }
    if (strchr(written, '=') != NULL) {
        assert_int_equal(n, (new ? mine : base)->shape[0]);
        assert_memory_equal(got, want, (size_t)n * (strstr(name, ".bias") != NULL ? 4 : 16));
    }
}

static void check_config(const char *flag)
{
    const char *text = file_text(at("out/config.json"), NULL);
    if (strstr(text, flag) == NULL)
        fail_msg("no %s in %s", flag, text);
}

static sheaf_status *merge_row(size_t i, const char *config, thing *base, thing *mine)
{
    const int n = list_things(base, rows[i].base, "", 10),
              k = list_things(mine, rows[i].mine, P, rows[i].rows);
    base[n] = (thing){ "x.weight", SHEAF_F32, 2, { 4, 4 } };
    mine[k] = (thing){ P "x.lora_A.weight", SHEAF_F32, 2, { 2, 4 } };
    mine[k + 1] = (thing){ P "x.lora_B.weight", SHEAF_F32, 2, { 4, 2 } };
    const bool x = strstr(rows[i].adapter_config, "\"x\"") != NULL;
    write_base(config, base, n + 1);
    write_adapter(at("one"), rows[i].adapter_config, mine, x ? k + 2 : k);
    return merge_one(NULL);
}

TEST(test_tied__every_name_has_its_own_values)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        thing base[MOST + 1], mine[MOST + 2];
        print_message("%s\n", rows[i].what);
        CHECK_OK(merge_row(i, rows[i].config, base, mine));
        for (int k = 0; k < MOST && rows[i].written[k] != NULL; k++)
            check_written(rows[i].written[k], &base[0], &mine[0]);
        check_config(rows[i].flag);
    }
}

/* Classes of which it is not known what they tie. */
TEST(test_tied__what_is_not_known_is_refused)
{
    static const struct {
        const char *config, *found;
    } unknown[] = {
        { CLASS("OddForCausalLM", TIED), "OddForCausalLM" },
        { CLASS("OddForCausalLM", "\"vocab_size\": 10"), "OddForCausalLM" },
        { CLASS("T5ForConditionalGeneration", TIED), "T5ForConditionalGeneration" },
        { CLASS("BertForSequenceClassification", TIED), "BertForSequenceClassification" },
        { CLASS("LlamaModel", "\"auto_map\": {\"AutoModel\": \"odd.LlamaModel\"}"), "LlamaModel" },
        { "{\"model_type\": \"odd\"}", "no architectures" },
    };
    thing base[MOST + 1], mine[MOST + 2];
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
        CHECK_FAILS(merge_row(0, unknown[i].config, base, mine), SHEAF_E_UNSUPPORTED,
                    "embed_tokens.weight' | an architecture whose tied tensors are known");
        CHECK_FAILS(merge_row(0, unknown[i].config, base, mine), SHEAF_E_UNSUPPORTED,
                    unknown[i].found);
        assert_int_equal(sheaf__path_kind(at("out")), SHEAF_PATH_NONE);
    }
}

/* A table of 12 rows for a vocabulary of 10 whose other tensors of 10 rows the adapter lacks. */
TEST(test_resized__what_lacks_rows_is_refused)
{
    static const struct {
        const char *config, *table;
        thing lacks;
        const char *found;
    } lacking[] = {
        { CLASS("PhiForCausalLM", "\"tie_word_embeddings\": false"), "model.embed_tokens.weight",
          LIST("lm_head.weight", SHEAF_F32, 2, { 10, 4 }), "'lm_head.weight' | as many rows" },
        { CLASS("GPTNeoXJapaneseForCausalLM", TIED), "gpt_neox_japanese.embed_in.weight",
          LIST("embed_out.bias", SHEAF_F32, 1, { 10 }), "bias' | as many rows" },
        { CLASS("OddForCausalLM", "\"tie_word_embeddings\": false"), "lm_head.weight",
          LIST("lm_head.bias", SHEAF_F32, 1, { 10 }), "'lm_head.bias' | as many rows" },
        { CLASS("OddForConditionalGeneration", "\"tie_word_embeddings\": false"),
          "model.embed_tokens.weight", LIST("final_logits_bias", SHEAF_F32, 2, { 1, 10 }),
          "'final_logits_bias' | as many rows" },
    };
    for (size_t i = 0; i < ARRAY_LEN(lacking); i++) {
        const thing base[] = { lacking[i].lacks, { lacking[i].table, SHEAF_F32, 2, { 10, 4 } } };
        const char *name = textf(P "%s", lacking[i].table);
        const thing mine = { name, SHEAF_F32, 2, { 12, 4 } };
        write_base(lacking[i].config, base, 2);
        write_adapter(at("one"), LORA "\"target_modules\": [\"x\"]}", &mine, 1);
        CHECK_FAILS(merge_one(NULL), SHEAF_E_LAYOUT, lacking[i].found);
    }
}

/* PEFT writes both tensors of a head that LoRA changes, under its own names for them. */
TEST(test_head__with_a_bias_takes_pefts_copies)
{
    static const thing base[] = { { "lm_head.bias", SHEAF_F32, 1, { 10 } },
                                  { "lm_head.weight", SHEAF_F32, 2, { 10, 4 } } },
                       mine[] = { { P "lm_head.base_layer.bias", SHEAF_F32, 1, { 10 } },
                                  { P "lm_head.base_layer.weight", SHEAF_F32, 2, { 10, 4 } },
                                  { P "lm_head.lora_A.weight", SHEAF_F32, 2, { 2, 4 } },
                                  { P "lm_head.lora_B.weight", SHEAF_F32, 2, { 10, 2 } } };
    sheaf_weights_merge_report report;
    write_base(CLASS("PhiForCausalLM", "\"tie_word_embeddings\": false"), base, 2);
    write_adapter(at("one"), LORA "\"target_modules\": [\"lm_head\"]}", mine, 4);
    CHECK_OK(merge_one(&report));
    float *got = result(at("out"), "lm_head.bias", NULL), *want = values(&mine[0], 1);
    assert_memory_equal(got, want, 10 * sizeof *got);
    assert_int_equal(report.adapted, 1);
}

/* transformers leaves layers out that predict further tokens, so no adapter has them. */
TEST(test_layers__behind_the_last_need_no_factors)
{
    static const thing base[] = { { "model.layers.0.q.weight", SHEAF_F32, 2, { 4, 4 } },
                                  { "model.layers.1.q.weight", SHEAF_F32, 2, { 4, 4 } },
                                  { "model.mtp_block.0.q.weight", SHEAF_F32, 2, { 4, 4 } },
                                  { "mtp.layers.0.q.weight", SHEAF_F32, 2, { 4, 4 } } },
                       mine[] = { { P "model.layers.0.q.lora_A.weight", SHEAF_F32, 2, { 2, 4 } },
                                  { P "model.layers.0.q.lora_B.weight", SHEAF_F32, 2, { 4, 2 } } };
    static const char *const counts[] = {
        "{\"model_type\": \"odd\", \"num_hidden_layers\": 1}",
        "{\"model_type\": \"odd\", \"text_config\": {\"num_hidden_layers\": 1}}",
        "{\"model_type\": \"odd\", \"num_hidden_layers\": 2}", "{\"model_type\": \"odd\"}"
    };
    write_adapter(at("one"), LORA "\"target_modules\": [\"q\"]}", mine, 2);
    for (size_t i = 0; i < ARRAY_LEN(counts); i++) {
        write_base(counts[i], base, 4);
        sheaf_status *st = merge_one(NULL);
        if (i < 2)
            CHECK_OK(st);
        else
            CHECK_FAILS(st, SHEAF_E_LAYOUT, "model.layers.1.q.lora_A.weight");
    }
}

/* Nor are the experts, where transformers holds them as bare parameters: then none has factors. */
TEST(test_layers__experts_need_none_or_all)
{
    static const thing base[] = {
        { "model.layers.0.mlp.up.weight", SHEAF_F32, 2, { 4, 4 } },
        { "model.layers.1.mlp.experts.0.up.weight", SHEAF_F32, 2, { 4, 4 } },
        { "model.layers.1.mlp.experts.1.up.weight", SHEAF_F32, 2, { 4, 4 } }
    };
    static const thing mine[] = {
        { P "model.layers.0.mlp.up.lora_A.weight", SHEAF_F32, 2, { 2, 4 } },
        { P "model.layers.0.mlp.up.lora_B.weight", SHEAF_F32, 2, { 4, 2 } },
        { P "model.layers.1.mlp.experts.0.up.lora_A.weight", SHEAF_F32, 2, { 2, 4 } },
        { P "model.layers.1.mlp.experts.0.up.lora_B.weight", SHEAF_F32, 2, { 4, 2 } }
    };
    sheaf_weights_merge_report report;
    write_base("{\"model_type\": \"odd\"}", base, 3);
    write_adapter(at("one"), LORA "\"target_modules\": [\"up\"]}", mine, 2);
    CHECK_OK(merge_one(&report));
    write_adapter(at("two"), LORA "\"target_modules\": [\"up\"]}", mine, 4);
    CHECK_FAILS(merge(at("base"), at("two"), NULL, SHEAF_MERGE_ROUND_ONCE, &report), SHEAF_E_LAYOUT,
                "experts.1.up.lora_A.weight");
}

/* Classes without a head are known by the model that has one. */
TEST(test_ties__are_known_by_class)
{
    assert_string_equal(sheaf__ties_of("LlamaForCausalLM", true)->head, "lm_head.weight");
    assert_string_equal(sheaf__ties_of("LlamaForSequenceClassification", false)->table, "");
    assert_string_equal(sheaf__ties_of("LlavaModel", false)->table, "");
    assert_null(sheaf__ties_of("LlamaForSequenceClassification", true));
    assert_null(sheaf__ties_of("Llama", false));
    assert_null(sheaf__ties_of("T5Model", false));
    assert_null(sheaf__ties_of("", false));
}

FIXTURE(make_scratch, remove_scratch);
