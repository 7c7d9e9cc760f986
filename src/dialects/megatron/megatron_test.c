/* megatron_test.c - a recorded folder and made ones, divided in every way, give the model back;
 * what is wrong is named. */
#include "tests/made_llama.h"

#include "dialects/common/dialects.h"
#include "schema/config.h"

static sheaf_catalog *read_at(const char *path)
{
    return read_made(&sheaf__dialect_megatron, path, NULL);
}

static void check_recording(const char *path, const char *hf)
{
    const char *weights = textf("%s/model.safetensors", hf);
    char *text = NULL;
    size_t size;
    assert_ptr_equal(sheaf__dialect_of(path), &sheaf__dialect_megatron);
    sheaf_catalog *c = read_made(&sheaf__dialect_megatron, path, textf("%s/config.json", hf));
    CHECK_SOUND(c);
    CHECK_OK(sheaf__catalog_compare(c));
    assert_int_equal(check_against(c, weights, false), c->count);
    CHECK_OK(sheaf__file_read_all(&text, &size, textf("%s/latest_checkpointed_iteration.txt", path),
                                  100));
    assert_int_equal(c->step, strtoll(text, NULL, 10));
    free(text);
    sheaf__catalog_free(c);

    c = read_at(path); /* the vocabulary is not in the files */
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_WARNING, "padded", "rows are kept");
    assert_int_equal(check_against(c, weights, true), c->count);
    sheaf__catalog_free(c);
}

TEST(test_golden__every_folder_gives_the_model_it_was_made_from)
{
    each_golden("llama/megatron", "_legacy_", check_recording);
}

/* ---- made folders ---- */

typedef struct how {
    int tp, pp, vp;
    bool old;         /* names of the time before megatron.core, in nested dicts */
    bool fused_norms; /* Transformer Engine */
    int64_t padded, step, folder;
    bool says_vocab;
    double version;
    int64_t rank_of_first; /* args.rank; -1 = not there */
    /* an argument of another model class: this text, or the truth where text is NULL */
    const char *strange, *text;
    int64_t number; /* of `strange`, where it is more than 0 */
    int64_t rows;   /* of the tables, where they are not what the args say */
} how;

static int64_t rows_of(const how *h)
{
    return h->rows > 0 ? h->rows : h->padded;
}

/* Rows [from, from + rows) of a tensor behind those in `out`. */
static void join(float **out, int64_t *n, const made_tensor *t, int64_t from, int64_t rows)
{
    const int64_t cols = t->ndim == 2 ? t->shape[1] : 1;
    *out = realloc(*out, (size_t)(*n + rows * cols + 1) * sizeof **out);
    assert_non_null(*out);
    for (int64_t i = 0; i < rows * cols; i++)
        (*out)[(*n)++] =
            from * cols + i < made_elements(t) ? t->data[from * cols + i] : 7777.0f; /* padding */
}

static const made_tensor *tensor_named(const made_model *m, const char *fmt, int64_t layer)
{
    const char *name = textf(fmt, layer);
    for (int i = 0; i < m->count; i++)
        if (strcmp(m->tensor[i].name, name) == 0)
            return &m->tensor[i];
    fail_msg("no %s", name);
    return NULL;
}

static void put_rows(made_file *f, sheaf_pickle *dict, const char *key, float *data, int64_t n,
                     int64_t cols)
{
    sheaf__pickle_set(f->doc, dict, key,
                      made_put(f, SHEAF_F32, cols > 0 ? 2 : 1,
                               (int64_t[]){ cols > 0 ? n / cols : n, cols }, data));
}

static void put_table(made_file *f, sheaf_pickle *dict, const char *key, const made_tensor *t,
                      const how *h, int tp)
{
    float *data = NULL;
    int64_t n = 0;
    join(&data, &n, t, tp * (rows_of(h) / h->tp), rows_of(h) / h->tp);
    put_rows(f, dict, key, data, n, t->shape[1]);
}

static void put_cut(made_file *f, sheaf_pickle *dict, const char *key, const made_tensor *t,
                    const how *h, int tp)
{
    int64_t begin[2], size[2];
    made_box(t, tp, h->tp, begin, size);
    float *data = made_slice(t, begin, size, 0);
    put_rows(f, dict, key, data, size[0] * size[1], t->ndim == 2 ? size[1] : 0);
}

/* Layer `layer` of the model as number `local` of its stage. */
static void put_layer(made_file *f, sheaf_pickle *dict, const made_model *m, const how *h, int tp,
                      int64_t layer, int64_t local)
{
    static const char *const names[2][6] = {
        { "self_attention.linear_qkv.weight", "self_attention.linear_proj.weight",
          "mlp.linear_fc1.weight", "mlp.linear_fc2.weight", "input_layernorm.weight",
          "pre_mlp_layernorm.weight" },
        { "self_attention.query_key_value.weight", "self_attention.dense.weight",
          "mlp.dense_h_to_4h.weight", "mlp.dense_4h_to_h.weight", "input_norm.weight",
          "post_attention_norm.weight" },
    };
    static const char *const fused[2] = { "self_attention.linear_qkv.layer_norm_weight",
                                          "mlp.linear_fc1.layer_norm_weight" };
    char key[6][128];
    for (int i = 0; i < 6; i++)
        snprintf(key[i], sizeof key[i], "%slayers.%" PRId64 ".%s", h->old ? "" : "decoder.", local,
                 i >= 4 && h->fused_norms ? fused[i - 4] : names[h->old][i]);
    const int64_t each = m->heads / m->groups, mine = m->groups / h->tp, d = m->width;
    float *data = NULL;
    int64_t n = 0;
    for (int64_t g = tp * mine; g < (mine == 0 ? m->groups : (tp + 1) * mine); g++) {
        join(&data, &n, tensor_named(m, "model.layers.%" PRId64 ".self_attn.q_proj.weight", layer),
             g * each * d, each * d);
        join(&data, &n, tensor_named(m, "model.layers.%" PRId64 ".self_attn.k_proj.weight", layer),
             g * d, d);
        join(&data, &n, tensor_named(m, "model.layers.%" PRId64 ".self_attn.v_proj.weight", layer),
             g * d, d);
    }
    if (mine == 0) { /* a share of all rows, which does not end where a head does */
        n /= h->tp;
        memmove(data, data + tp * n, (size_t)n * sizeof *data);
    }
    put_rows(f, dict, key[0], data, n, m->hidden);
    data = NULL;
    n = 0;
    join(&data, &n, tensor_named(m, "model.layers.%" PRId64 ".mlp.gate_proj.weight", layer),
         tp * (m->ffn / h->tp), m->ffn / h->tp);
    join(&data, &n, tensor_named(m, "model.layers.%" PRId64 ".mlp.up_proj.weight", layer),
         tp * (m->ffn / h->tp), m->ffn / h->tp);
    put_rows(f, dict, key[2], data, n, m->hidden);
    made_tensor o = *tensor_named(m, "model.layers.%" PRId64 ".self_attn.o_proj.weight", layer);
    o.units = mine == 0 ? m->heads : o.units;
    put_cut(f, dict, key[1], &o, h, tp);
    put_cut(f, dict, key[3],
            tensor_named(m, "model.layers.%" PRId64 ".mlp.down_proj.weight", layer), h, tp);
    put_cut(f, dict, key[4],
            tensor_named(m, "model.layers.%" PRId64 ".input_layernorm.weight", layer), h, tp);
    put_cut(f, dict, key[5],
            tensor_named(m, "model.layers.%" PRId64 ".post_attention_layernorm.weight", layer), h,
            tp);
    snprintf(key[0], sizeof key[0], "%slayers.%" PRId64 ".self_attention.linear_qkv._extra_state",
             h->old ? "" : "decoder.", local);
    sheaf__pickle_set(f->doc, dict, key[0], sheaf__pickle_make_none(f->doc));
}

static void put_args(made_file *f, const made_model *m, const how *h, int64_t rank)
{
    sheaf_pickle *args = made_args(f, m, h->tp, h->pp, h->padded);
    made_set_int(f, args, "max_position_embeddings", 64);
    made_set_int(f, args, "rotary_base", 20000);
    sheaf__pickle_set(f->doc, args, "group_query_attention", sheaf__pickle_make_bool(f->doc, true));
    sheaf__pickle_set(f->doc, args, "position_embedding_type",
                      sheaf__pickle_make_string(f->doc, "rope"));
    sheaf__pickle_set(f->doc, args, "rotary_percent", sheaf__pickle_make_float(f->doc, 1));
    sheaf__pickle_set(f->doc, args, "norm_epsilon", sheaf__pickle_make_float(f->doc, 1e-6));
    if (h->says_vocab)
        made_set_int(f, args, "vocab_size", m->vocab);
    if (rank >= 0)
        made_set_int(f, args, "rank", rank);
    if (h->strange != NULL)
        sheaf__pickle_set(f->doc, args, h->strange,
                          h->number > 0 ? sheaf__pickle_make_int(f->doc, h->number)
                          : h->text != NULL
                              ? sheaf__pickle_make_string(f->doc, h->text)
                              : sheaf__pickle_make_bool(f->doc, strcmp(h->strange, "swiglu") != 0));
}

static void put_part(const char *path, const made_model *m, const how *h, int tp, int pp)
{
    made_file *f = made_begin();
    const int64_t each = m->layers / (h->pp * h->vp);
    put_args(f, m, h, h->rank_of_first < 0 ? -1 : h->rank_of_first + pp * h->tp + tp);
    sheaf__pickle_set(f->doc, f->root, "checkpoint_version",
                      sheaf__pickle_make_float(f->doc, h->version));
    made_set_int(f, f->root, "iteration", h->step);
    for (int v = 0; v < h->vp; v++) {
        sheaf_pickle *model = made_set(f, f->root, textf(h->vp > 1 ? "model%d" : "model", v),
                                       SHEAF_PICKLE_DICT),
                     *encoder = model, *embedding = model, *output = model;
        if (h->old) {
            sheaf_pickle *language = made_set(f, model, "language_model", SHEAF_PICKLE_DICT);
            encoder = made_set(f, language, "encoder", SHEAF_PICKLE_DICT);
            embedding = made_set(f, made_set(f, language, "embedding", SHEAF_PICKLE_DICT),
                                 "word_embeddings", SHEAF_PICKLE_DICT);
            output = made_set(f, language, "output_layer", SHEAF_PICKLE_DICT);
        }
        if (v == 0 && pp == 0)
            put_table(f, embedding, h->old ? "weight" : "embedding.word_embeddings.weight",
                      tensor_named(m, "model.embed_tokens.weight", 0), h, tp);
        for (int64_t l = 0; l < each; l++)
            put_layer(f, encoder, m, h, tp, (v * h->pp + pp) * each + l, l);
        if (v == h->vp - 1 && pp == h->pp - 1) {
            put_cut(f, encoder, h->old ? "final_norm.weight" : "decoder.final_layernorm.weight",
                    tensor_named(m, "model.norm.weight", 0), h, tp);
            put_table(f, output, h->old ? "weight" : "output_layer.weight",
                      tensor_named(m, "lm_head.weight", 0), h, tp);
        }
    }
    made_end(f, path);
}

static const char *part_dir(const char *dir, const how *h, int tp, int pp)
{
    const char *one = textf("%s/iter_%07" PRId64 "/mp_rank_%02d", dir, h->folder, tp);
    return h->pp > 1 ? textf("%s_%03d", one, pp) : one;
}

static const char *part_of(const char *dir, const how *h, int tp, int pp)
{
    return textf("%s/model_optim_rng.pt", part_dir(dir, h, tp, pp));
}

static const char *made_folder(const made_model *m, const how *h)
{
    static int number;
    const char *dir = textf("%s/mg%d", scratch.dir, number++);
    for (int tp = 0; tp < h->tp; tp++)
        for (int pp = 0; pp < h->pp; pp++) {
            CHECK_OK(sheaf__make_dirs(part_dir(dir, h, tp, pp)));
            put_part(part_of(dir, h, tp, pp), m, h, tp, pp);
        }
    put(textf("%s/latest_checkpointed_iteration.txt", dir), textf("%" PRId64, h->folder));
    return dir;
}

TEST(test_made__every_way_to_divide_gives_the_model_back)
{
    made_model *m = made_llama(37, 12, 24, 8, 12, 4, 2, true);
    const how ways[] = {
        { 1, 1, 1, false, false, 40, 7, 7, true, 3, -1 },
        { 2, 1, 1, false, true, 40, 7, 7, true, 3, 0 },
        { 4, 1, 1, true, false, 64, 7, 7, true, 2, -1 },
        { 2, 1, 1, true, false, 40, 7, 7, true, 3, -1 },
        { 2, 2, 1, false, false, 38, 7, 7, true, 3, 0 },
        { 1, 4, 2, false, true, 37, 7, 7, true, 3, 0 },
        { 2, 2, 2, true, false, 128, 7, 7, true, 3, -1 },
        { 4, 2, 4, false, false, 512, 7, 7, true, 3, 24 },
    };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        const how *h = &ways[i];
        const char *dir = made_folder(m, h);
        assert_ptr_equal(sheaf__dialect_of(dir), &sheaf__dialect_megatron);
        sheaf_catalog *c = read_at(dir);
        CHECK_SOUND(c);
        CHECK_OK(sheaf__catalog_compare(c));
        assert_null(finding(c, SHEAF_WARNING, "replica", ""));
        assert_int_equal(c->count, m->count);
        assert_int_equal(c->by_names, h->tp * h->pp > 1 && h->rank_of_first < 0);
        assert_true(c->tp == h->tp && c->pp == h->pp && c->step == 7 && c->vocab == 37 &&
                    c->padded_vocab == h->padded);
        check_made(c, m, "", 0);
        sheaf__catalog_free(c);
    }
    made_free(m);
}

/* Two key/value heads over four and eight ranks: shares of rows, which begin within heads. */
TEST(test_made__more_ranks_than_key_value_heads)
{
    made_model *m = made_llama(37, 12, 24, 2, 8, 2, 4, true);
    const how ways[] = { { 4, 1, 1, false, false, 40, 7, 7, true, 3, -1 },
                         { 8, 2, 1, true, false, 40, 7, 7, true, 3, 0 } };
    for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
        check_gives(read_at(made_folder(m, &ways[i])), m, m->count);
    }
    made_free(m);
}

/* Settings that no shape shows must be in the written config. */
TEST(test_made__args_that_no_shape_shows)
{
    made_model *m = made_llama(37, 12, 24, 1, 6, 2, 4, true);
    how h = { 1, 1, 1, false, false, 40, 7, 7, false, 3, -1 };
    sheaf_config config;
    h.strange = "rotary_seq_len_interpolation_factor";
    h.number = 4;
    sheaf_catalog *c = read_at(made_folder(m, &h));
    CHECK_SOUND(c);
    CHECK_OK(sheaf_config_parse(&config, c->config, strlen(c->config)));
    assert_true(config.rope.type == SHEAF_ROPE_LINEAR && config.rope.factor == 4);
    sheaf_config_release(&config);
    sheaf__catalog_free(c);

    h.strange = "add_qkv_bias"; /* Qwen2: heads are not as wide as hidden / heads */
    h.number = 0;
    c = read_at(made_folder(m, &h));
    CHECK_OK(sheaf_config_parse(&config, c->config, strlen(c->config)));
    assert_true(config.family == SHEAF_QWEN2 && config.head_dim == 4);
    sheaf_config_release(&config);
    sheaf__catalog_free(c);
    made_free(m);
}

/* A config of the same sizes may be another model's all the same. */
TEST(test_made__a_config_is_held_against_the_args)
{
    static const struct {
        const char *keys;
        sheaf_severity severity;
        const char *code, *part;
    } rows[] = {
        { "\"rms_norm_eps\": 1e-6, \"rope_theta\": 20000", SHEAF_NOTE, "padded", "" },
        { "\"rms_norm_eps\": 1e-5, \"rope_theta\": 20000", SHEAF_WARNING, "class",
          "rms_norm_eps 1e-05, which counts" },
        { "\"rms_norm_eps\": 1e-6, \"rope_theta\": 500000", SHEAF_WARNING, "class",
          "rope_theta 500000, which counts" },
        { "\"rms_norm_eps\": 1e-6, \"rope_theta\": 20000, \"rope_scaling\": {\"rope_type\": "
          "\"linear\", \"factor\": 2}",
          SHEAF_WARNING, "class", "a rope_scaling factor of 2, which counts" },
        { "\"rms_norm_eps\": 1e-6, \"rope_theta\": 20000, \"tie_word_embeddings\": true",
          SHEAF_DEFECT, "class", "the stored head is lost" },
    };
    made_model *m = made_llama(37, 12, 24, 1, 6, 2, 4, true);
    const how h = { 1, 1, 1, false, false, 40, 7, 7, false, 3, -1 };
    const char *path = at("held.json");
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        put(path,
            textf("{\"model_type\": \"llama\", \"hidden_size\": 12, \"intermediate_size\": 24, "
                  "\"num_hidden_layers\": 1, \"num_attention_heads\": 6, "
                  "\"num_key_value_heads\": 2, \"head_dim\": 4, \"vocab_size\": 37, "
                  "\"max_position_embeddings\": 64, %s}",
                  rows[i].keys));
        sheaf_catalog *c = read_made(&sheaf__dialect_megatron, made_folder(m, &h), path);
        CHECK_FINDING(c, rows[i].severity, rows[i].code, rows[i].part);
        assert_int_equal(sheaf__catalog_defects(c), rows[i].severity == SHEAF_DEFECT);
        if (i == 0)
            assert_null(finding(c, SHEAF_WARNING, "class", ""));
        sheaf__catalog_free(c);
    }
    made_free(m);
}

/* A vocabulary that cannot have been padded to the rows that are stored is another model's. */
TEST(test_made__a_vocabulary_must_fit_its_padding)
{
    made_model *m = made_llama(37, 12, 24, 1, 6, 2, 4, true);
    how h = { 1, 1, 1, false, false, 9001, 7, 7, true, 3, -1 };
    sheaf_catalog *c = read_at(made_folder(m, &h));
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_WARNING, "conflict", "37, which no program pads to 9001 rows; not used");
    assert_true(c->vocab == -1 && c->padded_vocab == 9001);
    sheaf__catalog_free(c);

    const char *path = textf("%s/short.json", scratch.dir);
    put(path, "{\"model_type\": \"llama\", \"hidden_size\": 12, \"intermediate_size\": 24, "
              "\"num_hidden_layers\": 1, \"num_attention_heads\": 6, \"rope_theta\": 20000, "
              "\"num_key_value_heads\": 2, \"head_dim\": 4, \"vocab_size\": 37, "
              "\"rms_norm_eps\": 1e-6, \"max_position_embeddings\": 64}");
    c = read_made(&sheaf__dialect_megatron, made_folder(m, &h), path);
    check_found(c, SHEAF_DEFECT, "shape", "9001 rows, to which no program pads a vocabulary of 37");

    h.padded = 999; /* only by the args' own rule */
    h.strange = "make_vocab_size_divisible_by";
    h.number = 333;
    c = read_made(&sheaf__dialect_megatron, made_folder(m, &h), path);
    check_found(c, SHEAF_DEFECT, "shape", "999 rows, to which no program pads");
    h.number = 999;
    c = read_made(&sheaf__dialect_megatron, made_folder(m, &h), path);
    CHECK_SOUND(c);
    check_found(c, SHEAF_NOTE, "padded", "rows 37..998 exist only as padding");

    h.padded = 512; /* by another's rule, where the args would have padded to 40 */
    h.number = 8;
    c = read_made(&sheaf__dialect_megatron, made_folder(m, &h), path);
    CHECK_SOUND(c);
    check_found(c, SHEAF_WARNING, "padded", "rows 37..511 are left out as padding");

    h.padded = 40; /* its number may not count the end of a document */
    h.strange = "tokenizer_type";
    h.text = "NullTokenizer";
    h.number = 0;
    c = read_at(made_folder(m, &h));
    CHECK_SOUND(c);
    CHECK_FINDING(c, SHEAF_NOTE, "conflict", "37 with a NullTokenizer");
    CHECK_FINDING(c, SHEAF_WARNING, "padded", "all 40 rows are kept");
    assert_int_equal(c->vocab, -1);
    sheaf__catalog_free(c);
    made_free(m);
}

/* The first distributed optimizer: models alone, and its own parts in folders that look like those
 * of stages and of experts. */
TEST(test_made__a_model_may_lie_beside_its_optimizer)
{
    made_model *m = made_llama(37, 12, 24, 2, 8, 4, 2, true);
    for (int pp = 1; pp <= 2; pp++) {
        const how h = { 2, pp, 1, true, false, 40, 7, 7, true, 3, 0 };
        const char *dir = made_folder(m, &h);
        for (int tp = 0; tp < 2; tp++)
            for (int s = 0; s < pp; s++) {
                const char *part = part_dir(dir, &h, tp, s);
                assert_int_equal(rename(part_of(dir, &h, tp, s), textf("%s/model_rng.pt", part)),
                                 0);
                for (int dp = 0; dp < 2; dp++) {
                    CHECK_OK(sheaf__make_dirs(textf("%s_%03d", part, dp)));
                    put(textf("%s_%03d/optim.pt", part, dp), "moments");
                }
            }
        assert_ptr_equal(sheaf__dialect_of(dir), &sheaf__dialect_megatron);
        sheaf_catalog *c = read_at(dir);
        CHECK_SOUND(c);
        CHECK_FINDING(c, SHEAF_NOTE, "unsupported", "the optimizer's state has no names");
        assert_true(c->tp == 2 && c->pp == pp);
        check_gives(c, m, m->count);
    }
    made_free(m);
}

TEST(test_made__args_become_a_config)
{
    made_model *m = made_llama(37, 12, 24, 1, 6, 2, 4, true);
    const how h = { 1, 1, 1, false, false, 40, 7, 7, false, 3, -1 };
    sheaf_catalog *c = read_at(made_folder(m, &h));
    sheaf_config config;
    CHECK_SOUND(c);
    CHECK_OK(sheaf_config_parse(&config, c->config, strlen(c->config)));
    assert_int_equal(config.family, SHEAF_LLAMA);
    assert_true(config.vocab == 40 && config.hidden == 12 && config.ffn == 24 &&
                config.layers == 1 && config.heads == 6 && config.kv_heads == 2 &&
                config.head_dim == 4 && config.rms_eps == 1e-6 && config.rope.theta == 20000 &&
                !config.tied && !config.qkv_bias);
    CHECK_FINDING(c, SHEAF_WARNING, "padded", "all 40 rows are kept");
    assert_true(c->vocab == -1 && c->padded_vocab == 40);
    assert_int_equal(sheaf__catalog_find(c, "lm_head.weight")->entry.shape[0], 40);
    sheaf_config_release(&config);
    sheaf__catalog_free(c);
    made_free(m);
}

static void put_bytes(const char *path, const char *bytes, size_t size)
{
    FILE *to = fopen(path, "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(bytes, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
}

/* Without a config, a tokenizer beside the save tells the vocabulary. */
TEST(test_made__a_tokenizer_tells_padding_from_rows)
{
    static const char model[] =
        "\x0a\x05\x0a\x03<s>\x0a\x02\x0a\x00\x12\x02\x08\x01\x18\x96\x01"; /* two pieces, and other
                                                                              fields */
    char pieces[37 * 4];
    for (size_t i = 0; i < sizeof pieces; i++)
        pieces[i] = "\x0a\x02\x0a\x00"[i % 4];
    const struct {
        const char *file, *bytes;
        size_t size;
        int64_t vocab;
        sheaf_severity severity;
        const char *code;
    } rows[] = {
        { "tokenizer.json",
          "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 35}}, \"added_tokens\": [{\"id\": 36}]}", 0,
          37, SHEAF_NOTE, "inferred" },
        { "tokenizer.json",
          "{\"model\": {\"vocab\": [[\"a\", 0], [\"b\", 1]]}, \"added_tokens\": [{\"id\": 38}, 7]}",
          0, 39, SHEAF_NOTE, "inferred" },
        { "tokenizer.json", "{\"model\": {\"vocab\": {\"a\": 199}}}", 0, -1, SHEAF_WARNING,
          "conflict" },
        { "tokenizer.json", "{\"model\": {\"vocab\": {\"a\": \"b\", \"c\": -3}}}", 0, -1,
          SHEAF_WARNING, "padded" },
        { "tokenizer.json", "{\"model\": ", 0, -1, SHEAF_WARNING, "padded" },
        { "tokenizer.model", pieces, sizeof pieces, 37, SHEAF_NOTE, "inferred" },
        { "tokenizer.model", pieces, sizeof pieces - 1, -1, SHEAF_WARNING, "padded" },
        { "tokenizer.model", model, sizeof model - 1, -1, SHEAF_WARNING, "conflict" },
        { "tokenizer.model", "\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", 10, -1, SHEAF_WARNING,
          "padded" },
    };
    made_model *m = made_llama(37, 12, 24, 1, 6, 2, 4, true);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const how h = { 1, 1, 1, false, false, 40, 7, 7, false, 3, -1 };
        const char *dir = made_folder(m, &h);
        const char *path = textf("%s/%s", dir, rows[i].file);
        put_bytes(path, rows[i].bytes, rows[i].size > 0 ? rows[i].size : strlen(rows[i].bytes));
        sheaf_catalog *c = read_at(dir);
        CHECK_SOUND(c);
        CHECK_FINDING(c, rows[i].severity, rows[i].code, "");
        if (c->vocab != rows[i].vocab || sheaf__catalog_find(c, "lm_head.weight")->entry.shape[0] !=
                                             (rows[i].vocab > 0 ? rows[i].vocab : 40))
            fail_msg("row %zu: vocabulary %" PRId64, i, c->vocab);
        sheaf__catalog_free(c);
        unlink(path);
    }
    made_free(m);
}

/* ---- harm ---- */

TEST(test_harm__is_named)
{
    made_model *m = made_llama(37, 12, 24, 4, 12, 4, 2, true);
    static const struct {
        how how;
        harm harm;
        const char *code, *part;
    } cases[] = {
        { LIST(2, 2, 1, false, false, 38, 7, 7, true, 3, -1), REMOVED, "missing",
          "mp_rank_01_001" },
        { LIST(2, 2, 1, false, false, 38, 7, 7, true, 3, -1), REMOVED, "missing",
          "rows 12..23 of 24" },
        { LIST(2, 2, 1, false, false, 38, 7, 7, true, 3, -1), CUT_SHORT, "damaged",
          "mp_rank_01_001" },
        { LIST(2, 2, 1, false, false, 38, 7, 7, true, 3, 0), SWAPPED, "conflict",
          "whose tensor-parallel rank is 0" },
        { LIST(1, 1, 1, false, false, 38, 7, 7, true, 1, -1),
          NO_HARM, /* the old order of q, k, v */
          "unsupported", "checkpoint_version 1" },
        { LIST(1, 1, 1, false, false, 38, 6, 7, true, 3, -1), NO_HARM, "stale", "iteration 6" },
        { LIST(1, 1, 1, false, false, 38, 6, 0, true, 3, -1), NO_HARM, "stale", "iteration 6" },
        { LIST(2, 1, 1, false, false, 38, 7, 7, true, 3, -1, "tensor_model_parallel_size", NULL, 1),
          NO_HARM, "conflict", "2 x 1 parts in a save of 1 tensor-parallel ranks and 1 stages" },
        { LIST(1, 2, 1, false, false, 38, 7, 7, true, 3, -1, "pipeline_model_parallel_size", NULL,
               1),
          NO_HARM, "conflict", "1 x 2 parts in a save of 1 tensor-parallel ranks and 1 stages" },
        /* tables of fewer rows than the args say, than the vocabulary has, of more */
        { LIST(2, 1, 1, false, false, 44, 7, 7, true, 3, -1, NULL, NULL, 0, 38), NO_HARM, "shape",
          "19 rows, in a save of 2 ranks with 44 rows in all" },
        { LIST(1, 1, 1, false, false, 30, 7, 7, true, 3, -1), NO_HARM, "shape",
          "30 rows for a vocabulary of 37" },
        { LIST(2, 1, 1, false, false, 38, 7, 7, true, 3, -1, NULL, NULL, 0, 44), NO_HARM, "shape",
          "22 rows, in a save of 2 ranks with 38 rows in all" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const how *h = &cases[i].how;
        const char *dir = made_folder(m, h);
        do_harm(cases[i].harm, part_of(dir, h, 1, 1), part_of(dir, h, 0, 1));
        check_found(read_at(dir), SHEAF_DEFECT, cases[i].code, cases[i].part);
    }
    made_free(m);
}

TEST(test_harm__an_argument_of_another_model_class_is_named)
{
    static const struct {
        const char *key, *text;
    } cases[] = {
        { "normalization", "LayerNorm" },
        { "position_embedding_type", "learned_absolute" },
        { "swiglu", NULL },
        { "rotary_interleaved", NULL },
        { "rotary_percent", "0.5" },
        { "apply_layernorm_1p", NULL },
        { "layernorm_zero_centered_gamma", NULL },
        { "multi_latent_attention", NULL },
        { "qk_layernorm", NULL },
        { "attention_output_gate", NULL },
        { "apply_residual_connection_post_layernorm", NULL },
        { "squared_relu", NULL },
        { "quick_geglu", NULL },
        { "heterogeneous_layers_config_path", "layers.json" },
        { "num_experts", "8" },
        { "window_size", "(128, 0)" },
        { "mtp_num_layers", "1" },
        { "no_rope_freq", "4" },
        { "rope_type", "yarn" },
        { "softmax_type", "off-by-one" },
        { "softmax_scale", "0.5" },
        { "qk_l2_norm", NULL },
        { "glu_linear_offset", "1" },
        { "activation_func_clamp_value", "7" },
        { "use_mup", NULL },
        { "glu_activation", "swiglu" },
    };
    made_model *m = made_llama(37, 12, 24, 1, 6, 2, 4, true);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const how h = { 1, 1, 1, false, false, 40, 7, 7, true, 3, -1, cases[i].key, cases[i].text };
        sheaf_catalog *c = read_at(made_folder(m, &h));
        want_found(c, 1, "unsupported",
                   textf("args.%s = %s", cases[i].key, cases[i].text == NULL ? "" : "'"));
    }
    made_free(m);
}

/* What the folder's name does not tell the parts do: the newest step, and that stages are numbered
 * though there is one. */
TEST(test_harm__parts_tell_the_step_and_the_names)
{
    made_model *m = made_llama(37, 12, 24, 4, 12, 4, 2, true);
    const how h = { 2, 1, 1, false, false, 38, 7, 7, true, 3, -1 },
              older = { 2, 1, 1, false, false, 38, 6, 7, true, 3, -1 };
    const char *dir = made_folder(m, &h), *parts = textf("%s/parts", dir);
    assert_int_equal(unlink(part_of(dir, &h, 1, 0)), 0);
    put_part(part_of(dir, &h, 1, 0), m, &older, 1, 0);
    assert_int_equal(rename(textf("%s/iter_0000007", dir), parts), 0);
    sheaf_catalog *c = read_at(parts);
    assert_int_equal(c->step, 7);
    check_found(c, SHEAF_DEFECT, "stale", "mp_rank_01");
    assert_int_equal(rename(textf("%s/mp_rank_00", parts), textf("%s/mp_rank_00_000", parts)), 0);
    CHECK_OK(sheaf__remove_tree(textf("%s/mp_rank_01", parts)));
    check_found(read_at(parts), SHEAF_DEFECT, "missing", "mp_rank_01_000");
    made_free(m);
}

/* Two stages of four are gone: each had as many layers as the others leave to it. */
TEST(test_harm__stages_that_are_gone_share_what_is_left)
{
    made_model *m = made_llama(37, 12, 24, 8, 12, 4, 2, true);
    const how h = { 1, 4, 1, false, false, 38, 7, 7, true, 3, -1 };
    const char *dir = made_folder(m, &h);
    for (int pp = 1; pp <= 2; pp++)
        assert_int_equal(unlink(part_of(dir, &h, 0, pp)), 0);
    sheaf_catalog *c = read_at(dir);
    CHECK_FINDING(c, SHEAF_DEFECT, "missing", "mp_rank_00_001");
    for (int l = 0; l < 8; l++) {
        const sheaf_logical *t =
            sheaf__catalog_find(c, textf("model.layers.%d.mlp.down_proj.weight", l));
        assert_int_equal(t != NULL && t->npieces > 0, l < 2 || l >= 6);
    }
    sheaf__catalog_free(c);
    made_free(m);
}

/* A part of another run, and one of an older step. */
TEST(test_harm__parts_of_two_saves_contradict_each_other)
{
    made_model *m = made_llama(37, 12, 24, 4, 12, 4, 2, true),
               *other = made_llama(37, 12, 48, 4, 12, 4, 2, true);
    const how h = { 2, 1, 1, false, false, 38, 7, 7, true, 3, -1 },
              older = { 2, 1, 1, false, false, 38, 6, 7, true, 3, -1 };
    const char *from = part_of(made_folder(other, &h), &h, 1, 0), *dir = made_folder(m, &h);
    assert_int_equal(rename(from, part_of(dir, &h, 1, 0)), 0);
    check_found(read_at(dir), SHEAF_DEFECT, "conflict", "args.ffn_hidden_size");
    from = part_of(made_folder(m, &older), &h, 1, 0);
    dir = made_folder(m, &h);
    assert_int_equal(rename(from, part_of(dir, &h, 1, 0)), 0);
    want_found(read_at(dir), 1, "stale", "mp_rank_01");
    made_free(m);
    made_free(other);
}

/* Two folders with the same sizes, args and step: the copies of norms tell. */
TEST(test_harm__parts_of_two_runs_differ_in_their_copies)
{
    made_model *m = made_llama(37, 12, 24, 4, 12, 4, 4, true),
               *other = made_llama(37, 12, 24, 4, 12, 4, 4, true);
    made_again(other, 1);
    for (int foreign = 1; foreign <= 2; foreign++) {
        const how h = { 4, 2, 1, false, false, 40, 7, 7, true, 3, -1 };
        const char *dir = made_folder(m, &h);
        for (int tp = 2; tp < 2 + foreign; tp++) /* of the second stage alone */ {
            assert_int_equal(unlink(part_of(dir, &h, tp, 1)), 0);
            put_part(part_of(dir, &h, tp, 1), other, &h, tp, 1);
        }
        sheaf_catalog *c = read_at(dir);
        CHECK_SOUND(c);
        CHECK_OK(sheaf__catalog_ranks(c));
        check_found(c, SHEAF_DEFECT, foreign == 1 ? "foreign" : "conflict",
                    foreign == 1 ? "mp_rank_02_001" : "parts 0, 1 and parts 2, 3 are of");
    }
    made_free(m);
    made_free(other);
}

/* Where the parts say their process, one that stands twice is a copy, and a later stage is a later
 * process. */
TEST(test_harm__processes_tell_copies_and_stages)
{
    made_model *m = made_llama(37, 12, 24, 4, 12, 4, 4, true);
    const how told = { 2, 4, 1, false, false, 38, 7, 7, true, 3, 0 },
              ranks_unknown = { 2, 4, 1, false, false, 38, 7, 7, true, 3, -1 };
    for (int harm = 0; harm < 6; harm++) {
        const how *h = harm >= 3 ? &ranks_unknown : &told;
        const char *dir = made_folder(m, h);
        const char *a = part_of(dir, h, 1, 1), *b = part_of(dir, h, 1, 2);
        if (harm == 1 || harm > 3) { /* another stage's part, or another rank's of the same stage */
            assert_int_equal(unlink(b), 0);
            put_part(b, m, h, harm == 5 ? 0 : 1, harm == 5 ? 2 : 1);
        } else if (harm == 2)
            swap_files(a, b);
        sheaf_catalog *c = read_at(dir);
        if (harm == 1 || harm > 3)
            CHECK_FINDING(c, SHEAF_DEFECT, "duplicate", "mp_rank_01_002");
        else if (harm == 2)
            CHECK_FINDING(c, SHEAF_DEFECT, "conflict", "args.rank 3, where");
        else
            CHECK_SOUND(c);
        assert_int_equal(c->by_names, harm >= 3);
        sheaf__catalog_free(c);
    }
    made_free(m);
}

FIXTURE(make_scratch, remove_scratch);
