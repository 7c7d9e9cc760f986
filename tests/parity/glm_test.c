/* glm_test.c - GLM-4-9B, whose text model stands in files by ChatGLM's names (`chatglm`) and by
 * those of transformers (`glm`): the same weights give the same bytes under both, at every number
 * of ranks, and the logits that were recorded of a row of text alone.
 *
 * The model is that of every folder of $SHEAF_RECORDINGS/successors (or of the committed subset,
 * which has no weights: they are random then) with a config of ChatGLM, without its tower. The
 * tolerance is the recording's: 5e-5. */
#include "tests/parity/trial.h"

#include "checkpoint/tools/init.h"
#include "tests/recordings.h"

static int find_chatglm(void **state)
{
    if (make_scratch(state) != 0)
        fail_msg("no scratch folder");
    find_in(recording("successors"), "model/config.json", NULL);
    int n = 0;
    for (int m = 0; m < models; m++) {
        json_t *config = json_of(model_dir[m], "model/config.json");
        const char *type = json_string_value(json_object_get(config, "model_type"));
        if (type != NULL && strcmp(type, "chatglm") == 0)
            model_dir[n++] = model_dir[m];
    }
    models = n;
    if (models == 0)
        fail_msg("%s: no model of ChatGLM", recording("successors"));
    return 0;
}

static void put_config(const char *dir, const json_t *config)
{
    CHECK_OK(sheaf__make_dirs(dir));
    assert_int_equal(json_dump_file(config, in_dir(dir, "config.json"), 0), 0);
}

/* ---- by ChatGLM's names ---- */

/* The weights of a folder but its tower's, from all its files. */
static void take_text(made_tensors *made, const char *dir)
{
    char **names;
    int64_t count;
    CHECK_OK(sheaf__list_dir(&names, &count, dir));
    for (int64_t i = 0; i < count; i++) {
        const size_t n = strlen(names[i]);
        if (n < 12 || strcmp(names[i] + n - 12, ".safetensors") != 0)
            continue;
        sheaf_safetensors *file = record_of(dir, names[i]);
        for (int64_t e = 0; e < file->header.count; e++) {
            const char *name = file->header.entry[e].name;
            if (strncmp(name, "transformer.vision.", 19) != 0)
                made_copy(made, name, file, name);
        }
    }
    sheaf__names_free(names, count);
}

/* The text model of recording m in a folder of its own; *config: its, without a tower. */
static const char *text_model(json_t **config, int m)
{
    const char *from = in_dir(model_dir[m], "model"), *dir = at("chatglm");
    *config = json_of(from, "config.json");
    json_object_del(*config, "vision_config");
    CHECK_OK(sheaf__remove_tree(dir));
    if (exists(in_dir(model_dir[m], "model/model.safetensors.index.json"))) {
        made_tensors made = { 0 };
        put_config(dir, *config);
        take_text(&made, from);
        made_write(&made, in_dir(dir, "model.safetensors"));
    } else {
        sheaf_weights_init_report report;
        put_config(at("spec"), *config);
        CHECK_OK(sheaf_init(&report, &(sheaf_weights_init_options){
                                         .spec = at("spec/config.json"), .dst = dir, .seed = 7 }));
    }
    return dir;
}

/* ---- by transformers' names ---- */

static const struct {
    const char *chatglm, *glm;
} keys[] = {
    { "hidden_size", "hidden_size" },
    { "ffn_hidden_size", "intermediate_size" },
    { "num_layers", "num_hidden_layers" },
    { "num_attention_heads", "num_attention_heads" },
    { "multi_query_group_num", "num_key_value_heads" },
    { "kv_channels", "head_dim" },
    { "padded_vocab_size", "vocab_size" },
    { "seq_length", "max_position_embeddings" },
    { "layernorm_epsilon", "rms_norm_eps" },
    { "eos_token_id", "eos_token_id" },
    { "pad_token_id", "pad_token_id" },
}, once[] = {
    { "transformer.embedding.word_embeddings.weight", "model.embed_tokens.weight" },
    { "transformer.encoder.final_layernorm.weight", "model.norm.weight" },
    { "transformer.output_layer.weight", "lm_head.weight" },
}, layers[] = {
    { "input_layernorm", "input_layernorm" },
    { "post_attention_layernorm", "post_attention_layernorm" },
    { "self_attention.dense", "self_attn.o_proj" },
    { "mlp.dense_h_to_4h", "mlp.gate_up_proj" },
    { "mlp.dense_4h_to_h", "mlp.down_proj" },
};

static json_t *their_config(const json_t *of)
{
    json_t *config =
        json_pack("{s:[s], s:s, s:s, s:b, s:b}", "architectures", "GlmForCausalLM", "model_type",
                  "glm", "torch_dtype", "float32", "attention_bias", 1, "tie_word_embeddings", 0);
    for (size_t i = 0; i < ARRAY_LEN(keys); i++)
        json_object_set(config, keys[i].glm, json_object_get(of, keys[i].chatglm));
    const double ratio = json_number_value(json_object_get(of, "rope_ratio"));
    json_object_set_new(config, "rope_theta", json_real(10000 * (ratio > 0 ? ratio : 1)));
    return config;
}

/* q, k and v of a layer, which ChatGLM holds one above the other. */
static void add_parts(made_tensors *made, const sheaf_safetensors *file, int layer,
                      const char *what, const json_t *config)
{
    static const char *const parts[] = { "q", "k", "v" };
    const int64_t wide = json_integer_value(json_object_get(config, "head_dim")),
                  heads = json_integer_value(json_object_get(config, "num_attention_heads")),
                  kv = json_integer_value(json_object_get(config, "num_key_value_heads"));
    const char *from =
        textf("transformer.encoder.layers.%d.self_attention.query_key_value.%s", layer, what);
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, from);
    assert_non_null(e);
    int64_t n, row = 0;
    const float *all = values_of(file, from, &n);
    for (int p = 0; p < 3; p++) {
        int64_t shape[2] = { wide * (p == 0 ? heads : kv), e->ndim == 2 ? e->shape[1] : 1 };
        made_add(made, textf("model.layers.%d.self_attn.%s_proj.%s", layer, parts[p], what),
                 SHEAF_F32, e->ndim, shape, all + row * shape[1]);
        row += shape[0];
    }
    assert_int_equal(row, e->shape[0]);
}

static const char *renamed_model(const char *chatglm, const json_t *of)
{
    const char *dir = at("glm");
    CHECK_OK(sheaf__remove_tree(dir));
    json_t *config = kept(their_config(of), drop_json);
    put_config(dir, config);
    sheaf_safetensors *file = record_of(chatglm, "model.safetensors");
    made_tensors made = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(once); i++)
        made_copy(&made, once[i].glm, file, once[i].chatglm);
    const int n = (int)json_integer_value(json_object_get(config, "num_hidden_layers"));
    for (int layer = 0; layer < n; layer++) {
        for (size_t i = 0; i < ARRAY_LEN(layers); i++)
            made_copy(&made, textf("model.layers.%d.%s.weight", layer, layers[i].glm), file,
                      textf("transformer.encoder.layers.%d.%s.weight", layer, layers[i].chatglm));
        add_parts(&made, file, layer, "weight", config);
        add_parts(&made, file, layer, "bias", config);
    }
    made_write(&made, in_dir(dir, "model.safetensors"));
    return dir;
}

/* ---- both ---- */

static const char *some_rows(int64_t vocab)
{
    enum { ROWS = 2, LENGTH = 11 };
    int64_t id[ROWS * LENGTH];
    for (int i = 0; i < ROWS * LENGTH; i++)
        id[i] = (i * 37 + 5) % vocab;
    return rows_file("rows.safetensors", id, id, NULL, ROWS, LENGTH);
}

static const char *recorded_row(int m)
{
    static const char *const inputs[] = { "input_ids", "labels", "attention_mask" };
    made_tensors made = { 0 };
    sheaf_safetensors *file = record_of(model_dir[m], "text_only.safetensors");
    for (size_t i = 0; i < ARRAY_LEN(inputs); i++)
        made_copy(&made, inputs[i], file, inputs[i]);
    return made_write(&made, at("rows.safetensors"));
}

TEST(test_names__both_programs_give_the_same_bytes)
{
    for (int m = 0; m < models; m++) {
        json_t *config;
        const char *chatglm = text_model(&config, m), *glm = renamed_model(chatglm, config);
        const int64_t vocab = json_integer_value(json_object_get(config, "padded_vocab_size"));
        const char *recorded = in_dir(model_dir[m], "text_only.safetensors");
        const bool is =
            exists(in_dir(model_dir[m], "model/model.safetensors.index.json")) && exists(recorded);
        const char *rows = is ? recorded_row(m) : some_rows(vocab);
        for (int ranks = 1; ranks <= 3; ranks++) {
            trial a = run(chatglm, NULL, rows, ranks, SHEAF_F32, false),
                  b = run(glm, NULL, rows, ranks, SHEAF_F32, false);
            assert_int_equal(a.vocab, vocab);
            CHECK_BYTES("logits", a.logits, b.logits,
                        (size_t)(a.positions * a.vocab) * sizeof *a.logits);
            if (is) {
                int64_t n;
                sheaf_safetensors *want = record_of(model_dir[m], "text_only.safetensors");
                const float *logits = values_of(want, "logits", &n);
                assert_int_equal(n, a.positions * a.vocab);
                compare(recorded, a.logits, logits, n, 5e-5, 0);
            }
            release(&a);
            release(&b);
        }
    }
}

FIXTURE(find_chatglm, remove_scratch);
