/* hf_test.c - recorded folders open and pass; each way a folder can be wrong is named. */
#include "tests/check.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "tests/opened.h"
#include "tests/same_sources.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dialects/hf/hf.h"
#include "base/status.h"

/* ---- recorded folders ---- */

/* Opens a folder and checks it against its config. */
static sheaf_status *open_and_check(const char *path, const char *config_path)
{
    const sheaf_dialect_hints hints = { .from = "hf", .as_stored = true, .config = config_path };
    sheaf_catalog *catalog = NULL;
    sheaf_source *source = NULL;
    sheaf_schema *schema = NULL;
    sheaf_config c = { 0 };
    sheaf_status *st = sheaf__open(&catalog, path, &hints);
    if (st == NULL && sheaf__catalog_defects(catalog) == 0)
        st = sheaf__open_config(&c, catalog);
    if (st == NULL)
        st = sheaf__catalog_source(&source, catalog, false);
    else
        sheaf__catalog_free(catalog);
    TRY(st, sheaf_schema_new(&schema, &c, 8));
    TRY(st, sheaf_hf_check(source, schema, c.json));
    if (source != NULL)
        source->close(source);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
    return st;
}

static int check_recorded(const char *file)
{
    CHECK_OK(open_and_check(textf("%.*s", (int)(strrchr(file, '/') - file), file), NULL));
    return 1;
}

TEST(test_open__every_recorded_model_passes)
{
    static const char *const files[] = { "llama/*/hf/model.safetensors",
                                         "llama/*/hf_sharded/model.safetensors.index.json",
                                         "llama/*/lora/merged/model.safetensors" };
    int n = 0;
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        n += golden_each(files[i], check_recorded);
    assert_true(n >= 6);
    CHECK_OK(open_and_check(golden("llama/tiny_llama/hf/model.safetensors"),
                            NULL)); /* the file itself */
    CHECK_OK(open_and_check(golden("llama/half_precision/tiny_llama3rope_bf16.safetensors"),
                            golden("llama/tiny_llama3rope/hf/config.json")));
}

TEST(test_open__shards_hold_what_the_single_file_holds)
{
    sheaf_source *one = NULL, *many = NULL;
    CHECK_OK(open_stored(&one, golden("llama/tiny_llama/hf")));
    CHECK_OK(open_stored(&many, golden("llama/tiny_llama/hf_sharded")));
    assert_int_equal(one->count(one), 30);
    same_sources(one, many, 0);
    for (int64_t i = 0; i < 30; i++) { /* and a box of each */
        const sheaf_source_entry *e = one->entry(one, i);
        const int64_t cols = e->ndim == 2 ? e->shape[1] : 1, part = cols / 3;
        float *a = calloc((size_t)part + 1, sizeof *a), *b = calloc((size_t)part + 1, sizeof *b);
        CHECK_OK(one->read(one, e->name, e->shape[0] / 2, 1, cols - part, part, a));
        CHECK_OK(many->read(many, e->name, e->shape[0] / 2, 1, cols - part, part, b));
        CHECK_BYTES(e->name, a, b, (size_t)part * sizeof *a);
        free(a);
        free(b);
    }
    assert_null(many->find(many, "model.norm.bias"));
    float x;
    CHECK_FAILS(many->read(many, "model.norm.bias", 0, 1, 0, 1, &x), SHEAF_E_LAYOUT,
                "'model.norm.bias'");
    CHECK_FAILS(many->read(many, "model.norm.weight", 64, 1, 0, 1, &x), SHEAF_E_ARG,
                "'model.norm.weight': box");
    one->close(one);
    many->close(many);
}

TEST(test_open__colossalai_folders)
{
    if (!golden_is_full())
        return; /* not among the committed data; test_check__names_what_is_wrong makes the same
                   damage by hand */
    CHECK_OK(open_and_check(golden("llama/colossalai_tiny_llama/tp2_good_model"), NULL));
    CHECK_OK(open_and_check(golden("llama/colossalai_tiny_llama/tp2_pp2_model"), NULL));
    CHECK_FAILS(
        open_and_check(golden("llama/colossalai_tiny_llama/tp2_broken_model"), NULL),
        SHEAF_E_LAYOUT,
        "'model.embed_tokens.weight': missing | 511 rows, the vocabulary in the config | 256 rows: rank 0's part of a "
        "2-way save, rows 256..510 are not in these files (512 rows when padded)");
    CHECK_FAILS(open_and_check(
                    golden("llama/colossalai_tiny_llama/tp2_local_shards/tp_rank_00.safetensors"),
                    golden("llama/tiny_llama/hf/config.json")),
                SHEAF_E_LAYOUT, "2-way save");
}

/* ---- folders made wrong on purpose ---- */

#define CONFIG                                                                                                         \
    "{\"model_type\":\"llama\",\"vocab_size\":511,\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":1," \
    "\"num_attention_heads\":4,\"num_key_value_heads\":2"

/* A change of a small model before it is written. */
typedef struct change {
    const char *name; /* a tensor to change: */
    int ndim;         /* 0: keep */
    int64_t rows, cols;
    const char *rename;           /* NULL: keep; "": leave out */
    sheaf_dtype dtype;            /* SHEAF_BOOL (0): keep */
    const char *config;           /* more keys, beginning with a comma */
    sheaf_safetensors_spec extra; /* one more tensor, if it has a name */
    float extra_value;
    const char *says; /* what is wrong with it, and its code (0: SHEAF_E_LAYOUT) */
    sheaf_code code;
} change;

typedef struct filling {
    const sheaf_safetensors_spec *spec;
    const char *special;
    float value;
} filling;

/* All values are 1, those of one special tensor another. */
static sheaf_status *fill(void *context, int64_t index, int64_t row0, int64_t rows, void *dst)
{
    const filling *f = context;
    const sheaf_safetensors_spec *s = &f->spec[index];
    const int64_t n =
        rows * (s->ndim == 2 ? s->shape[1] : 1) * (int64_t)sheaf_dtype_bytes(s->dtype);
    memset(dst, 0, (size_t)n);
    if (s->dtype == SHEAF_F32)
        for (int64_t i = 0; i < n / 4; i++)
            ((float *)dst)[i] =
                f->special != NULL && strcmp(s->name, f->special) == 0 && row0 + rows == s->shape[0]
                    ? f->value
                    : 1;
    return NULL;
}

static sheaf_safetensors_spec *changed_specs(int64_t *n, const sheaf_schema *schema,
                                             const change *c)
{
    sheaf_safetensors_spec *spec = NULL;
    CHECK_OK(sheaf_hf_specs(&spec, n, schema, NULL, SHEAF_F32));
    spec = realloc(spec, (size_t)(*n + 1) * sizeof *spec);
    for (int64_t i = 0; c->name != NULL && i < *n; i++) {
        if (strcmp(spec[i].name, c->name) != 0)
            continue;
        if (c->ndim > 0) {
            spec[i].ndim = c->ndim;
            spec[i].shape[0] = c->rows;
            spec[i].shape[1] = c->cols;
        }
        if (c->dtype != SHEAF_BOOL)
            spec[i].dtype = c->dtype;
        if (c->rename != NULL)
            spec[i].name = c->rename;
        if (c->rename != NULL && *c->rename == '\0')
            memmove(&spec[i], &spec[i + 1], (size_t)(--*n - i) * sizeof *spec);
        break;
    }
    if (c->extra.name != NULL)
        spec[(*n)++] = c->extra;
    return spec;
}

/* A small model folder with the change in it. */
static const char *make_model(const change *c, int64_t shard_bytes)
{
    const char *path = at("model");
    sheaf_config config;
    sheaf_schema *schema = NULL;
    sheaf_folder *folder = NULL;
    int64_t n = 0;
    const char *text = textf(CONFIG "%s}", c->config == NULL ? "" : c->config);
    CHECK_OK(sheaf_config_parse(&config, text, strlen(text)));
    CHECK_OK(sheaf_schema_new(&schema, &config, 2));
    sheaf_safetensors_spec *spec = changed_specs(&n, schema, c);
    filling f = { spec, c->extra.name, c->extra_value };
    CHECK_OK(
        sheaf_hf_begin(&folder, path, text, spec, n,
                       &(sheaf_folder_options){ .shard_bytes = shard_bytes, .replace = true }));
    CHECK_OK(sheaf__folder_write_all(folder, fill, &f, 64));
    CHECK_OK(sheaf__folder_commit(folder));
    free(spec);
    sheaf_schema_free(schema);
    sheaf_config_release(&config);
    return path;
}

#define EMBED "model.embed_tokens.weight"
#define L0 "model.layers.0."

TEST(test_check__accepts_what_does_no_harm)
{
    static const change rows[] = {
        { 0 },
        { .name = EMBED, .dtype = SHEAF_BF16 },
        { .name = "model.norm.weight", .dtype = SHEAF_F16 },
        { .extra = { L0 "self_attn.rotary_emb.inv_freq", SHEAF_F32, 1, { 2 } } },
        { .extra = { "model.rotary_emb.inv_freq", SHEAF_F32, 1, { 2 } } },
        { .config = ",\"tie_word_embeddings\":true" },
        { .config = ",\"tie_word_embeddings\":true",
          .extra = { "lm_head.weight", SHEAF_F32, 2, { 511, 8 } },
          .extra_value = 1 },
        { .config = ",\"attention_bias\":true,\"mlp_bias\":true" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK_OK(open_and_check(make_model(&rows[i], 0), NULL));
        CHECK_OK(open_and_check(make_model(&rows[i], 4000), NULL)); /* in shards */
        sheaf_source *source = NULL;
        CHECK_OK(open_stored(&source, at("model")));
        assert_null(source->find(source, "model.rotary_emb.inv_freq"));
        source->close(source);
    }
}

TEST(test_check__names_what_is_wrong)
{
    static const change rows[] = {
        { EMBED, 2, 256, 8,
          .says =
              "| 511 rows, the vocabulary in the config | 256 rows: rank 0's part of a 2-way save, rows 256..510" },
        { "lm_head.weight", 2, 192, 8,
          .says =
              "'lm_head.weight': missing | 511 rows, the vocabulary in the config | 192 rows: rank 0's part of a 3-way save" },
        { EMBED, 2, 128, 8, .says = "4-way save, rows 128..510" },
        { EMBED, 2, 73, 8, .says = "7-way save, rows 73..510" },
        { EMBED, 2, 500, 8, .says = "500 rows | use a complete copy of the model" },
        { EMBED, 2, 512, 8,
          .says = "512 rows: 1 of them are padding | sheaf convert MODEL NEW --to hf" },
        { EMBED, 2, 0, 8, .says = "| 0 rows | use a complete copy" },
        { EMBED, 2, 511, 4, .says = "'" EMBED "': shape | [511, 8] | [511, 4]" },
        { EMBED, 1, 511, 0, .says = "[511, 8] | [511]" },
        { L0 "self_attn.q_proj.weight", 2, 4, 8,
          .says = "this looks like one part of a 2-way save" },
        { L0 "self_attn.q_proj.weight", 2, 12, 8, .says = "[8, 8] | [12, 8]" },
        { L0 "self_attn.k_proj.weight", 2, 8, 8, .says = "[4, 8] | [8, 8]" },
        { L0 "self_attn.v_proj.weight", 2, 2, 8,
          .says = "[4, 8] | [2, 8] | give the config of these weights" },
        { L0 "self_attn.o_proj.weight", 2, 8, 12, .says = "[8, 8] | [8, 12]" },
        { L0 "mlp.down_proj.weight", 2, 8, 3, .says = "one part of a 4-way save" },
        { L0 "mlp.down_proj.weight", 2, 12, 8, .says = "[8, 12] | [12, 8]" },
        { L0 "mlp.up_proj.weight", 2, 0, 8, .says = "[0, 8]" },
        { "model.norm.weight", 1, 7, 0, .says = "'model.norm.weight': shape | [8] | [7]" },
        { "model.norm.weight", 2, 8, 1, .says = "[8] | [8, 1]" },
        { "model.norm.weight", .dtype = SHEAF_F64,
          .says = "'model.norm.weight': dtype | F32, BF16 or F16 | F64",
          .code = SHEAF_E_UNSUPPORTED },
        { EMBED, .dtype = SHEAF_I8, .says = "quantized", .code = SHEAF_E_UNSUPPORTED },
        { "model.norm.weight", .rename = "", .says = "'model.norm.weight': missing" },
        { "lm_head.weight", .rename = "",
          .says =
              "'lm_head.weight': missing | [511, 8] | no tensor of this name | use a complete copy of the model, or set tie_word_embeddings to true" },
        { "model.norm.weight", .rename = "module.model.norm.weight",
          .says = "begin with 'module.': remove that" },
        { L0 "mlp.up_proj.weight", .rename = "0.mlp.up_proj.weight",
          .says = "lack 'model.layers.' at their beginning" },
        { .config = ",\"attention_bias\":true",
          .name = L0 "self_attn.q_proj.bias",
          .rename = "",
          .says = "'" L0 "self_attn.q_proj.bias': missing" },
        { .extra = { L0 "self_attn.q_proj.bias", SHEAF_F32, 1, { 8 } },
          .says = "'" L0 "self_attn.q_proj.bias': foreign" },
        { .extra = { "model.layers.1.mlp.up_proj.weight", SHEAF_F32, 2, { 12, 8 } },
          .says = "'model.layers.1.mlp.up_proj.weight': foreign" },
        { .config = ",\"tie_word_embeddings\":true",
          .extra = { "lm_head.weight", SHEAF_F32, 2, { 511, 8 } },
          .extra_value = 2,
          .says = "'lm_head.weight' | the values of '" EMBED
                  "', as tie_word_embeddings is true | other values" },
        { .config = ",\"tie_word_embeddings\":true",
          .extra = { "lm_head.weight", SHEAF_F32, 2, { 510, 8 } },
          .says = "another shape or dtype" },
        { .config = ",\"tie_word_embeddings\":true",
          .extra = { "lm_head.weight", SHEAF_F16, 2, { 511, 8 } },
          .extra_value = 2,
          .says = "other values from row 0 on" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CHECK_FAILS(open_and_check(make_model(&rows[i], 0), NULL),
                    rows[i].code != 0 ? rows[i].code : SHEAF_E_LAYOUT, rows[i].says);
}

TEST(test_check__counts_when_there_are_many)
{
    const change whole = { 0 };
    make_model(&whole, 0);
    const char *config = at("more.json");
    put(config,
        "{\"model_type\":\"llama\",\"vocab_size\":511,\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":3,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2}");
    CHECK_FAILS(
        open_and_check(at("model"), config), SHEAF_E_LAYOUT,
        "'model.layers.1.input_layernorm.weight': missing | [8] | no tensor of this name; the same of model.layers.1.");
    CHECK_FAILS(open_and_check(at("model"), config), SHEAF_E_LAYOUT,
                "self_attn.o_proj.weight and 13 more | ");
    put(config,
        "{\"model_type\":\"llama\",\"vocab_size\":511,\"hidden_size\":64,\"intermediate_size\":172,\"num_hidden_layers\":1,"
        "\"num_attention_heads\":8,\"num_key_value_heads\":4}");
    CHECK_FAILS(open_and_check(golden("llama/tiny_llama/hf"), config), SHEAF_E_LAYOUT,
                "'model.layers.1.input_layernorm.weight': foreign");
    CHECK_FAILS(open_and_check(golden("llama/tiny_llama/hf"),
                               textf("%s", golden("llama/tiny_llama3rope/hf/config.json"))),
                SHEAF_E_LAYOUT, "263 rows, the vocabulary in the config | 511 rows");
}

TEST(test_check__looks_at_the_tables_first)
{
    const change part = { "lm_head.weight", 2, 256, 8 };
    make_model(&part, 0);
    put(at("other.json"),
        "{\"model_type\":\"llama\",\"vocab_size\":511,\"hidden_size\":8,\"intermediate_size\":24,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":4,\"num_key_value_heads\":2}");
    CHECK_FAILS(open_and_check(at("model"), at("other.json")), SHEAF_E_LAYOUT,
                "'lm_head.weight': missing");
}

/* ---- index and shards ---- */

/* Replaces one text by another in a file. */
static void edit(const char *path, const char *from, const char *to)
{
    char *text = NULL, edited[8192];
    size_t n = 0;
    CHECK_OK(sheaf__file_read_all(&text, &n, path, sizeof edited / 2));
    char *where = strstr(text, from);
    assert_non_null(where);
    snprintf(edited, sizeof edited, "%.*s%s%s", (int)(where - text), text, to,
             where + strlen(from));
    put(path, edited);
    free(text);
}

#define IN2 "\"model-00002-of-00003.safetensors\""
#define NORM "\"model.norm.weight\": \"model-00002-of-00003.safetensors\""

TEST(test_index__disagreements_are_named)
{
    static const struct {
        const char *from, *to;
        sheaf_code code;
        const char *part;
    } rows[] = {
        { ",\n    " NORM, "", SHEAF_E_LAYOUT,
          "model-00002-of-00003.safetensors: tensor 'model.norm.weight': foreign | a name of the index | a tensor that the index does not name | " },
        { NORM, NORM ",\"model.extra\":\"model-00002-of-00003.safetensors\"", SHEAF_E_LAYOUT,
          "model-00002-of-00003.safetensors: tensor 'model.extra': missing | in this file, as the index says | no tensor of this name" },
        { NORM, "\"model.norm.weight\": \"model-00001-of-00003.safetensors\"", SHEAF_E_LAYOUT,
          "model-00002-of-00003.safetensors: tensor 'model.norm.weight': duplicate | model-00001-of-00003.safetensors | it lies in this file too (and more: see sheaf verify)" },
        { NORM, "\"model.norm.weight\": \"model-00009-of-00003.safetensors\"", SHEAF_E_LAYOUT,
          "tensor 'model.norm.weight': duplicate | model-00009-of-00003.safetensors | it lies in" },
        { NORM, "\"model.norm.weight\": \"../model-00002-of-00003.safetensors\"", SHEAF_E_FORMAT,
          "tensor 'model.norm.weight': damaged | the name of a file of weights in the same folder | \"../model" },
        { NORM, "\"model.norm.weight\": \"/etc/passwd\"", SHEAF_E_FORMAT, "in the same folder" },
        { NORM, "\"model.norm.weight\": \"sub/model.safetensors\"", SHEAF_E_FORMAT,
          "in the same folder" },
        { NORM, NORM ",\"e1\":" IN2 ",\"e2\":" IN2 ",\"e3\":" IN2 ",\"e4\":" IN2 ",\"e5\":" IN2,
          SHEAF_E_LAYOUT,
          "tensor 'e1': missing | in this file, as the index says | no tensor of this name in it; the same of e2, e3, e4, e5 | " },
        { NORM,
          NORM ",\"e1\":" IN2 ",\"e2\":" IN2 ",\"e3\":" IN2 ",\"e4\":" IN2 ",\"e5\":" IN2
               ",\"e6\":" IN2 ",\"e7\":" IN2,
          SHEAF_E_LAYOUT, "; the same of e2, e3, e4, e5 and 2 more | " },
        { NORM, "\"model.norm.weight\": \".model.safetensors\"", SHEAF_E_FORMAT,
          "in the same folder" },
        { NORM, "\"model.norm.weight\": \"..\"", SHEAF_E_FORMAT, "in the same folder" },
        { NORM, "\"model.norm.weight\": \"\"", SHEAF_E_FORMAT, "in the same folder" },
        { NORM, "\"model.norm.weight\": \"model.bin\"", SHEAF_E_LAYOUT,
          "tensor 'model.norm.weight': duplicate | model.bin | it lies in" },
        { NORM, "\"model.norm.weight\": 2", SHEAF_E_FORMAT, "in the same folder | 2" },
        { NORM, "\"model.norm.weight\": null", SHEAF_E_FORMAT, "in the same folder | null" },
        { NORM, NORM "," NORM, SHEAF_E_FORMAT, "a duplicate, 'model.norm.weight'" },
        { "\"weight_map\"", "\"weights\"", SHEAF_E_FORMAT, "'weight_map'" },
        { "\"weight_map\": {", "\"weight_map\": [], \"x\": {", SHEAF_E_FORMAT,
          "an object that maps tensors to files | 'weight_map'" },
        { "\"weight_map\": {", "\"weight_map\": {}, \"x\": {", SHEAF_E_FORMAT, "'weight_map'" },
        { "}\n}", "}", SHEAF_E_FORMAT, "line" },
    };
    const change whole = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        make_model(&whole, 17000);
        edit(at("model/model.safetensors.index.json"), rows[i].from, rows[i].to);
        CHECK_FAILS(open_and_check(at("model"), NULL), rows[i].code, rows[i].part);
        CHECK_FAILS(open_and_check(at("model"), NULL), rows[i].code, "index");
    }
    make_model(&whole, 17000); /* metadata is not believed */
    edit(at("model/model.safetensors.index.json"),
         "\"total_size\": ", "\"total_size\": 0.5, \"x\": ");
    CHECK_OK(open_and_check(at("model"), NULL));
    edit(at("model/model.safetensors.index.json"), "\"metadata\"", "\"meta\"");
    CHECK_OK(open_and_check(at("model"), NULL));
}

TEST(test_index__buffers_may_differ)
{
    const change with_buffer = { .extra = { "model.rotary_emb.inv_freq", SHEAF_F32, 1, { 2 } } };
    make_model(&with_buffer, 17000);
    edit(at("model/model.safetensors.index.json"), "\"model.rotary_emb.inv_freq\"",
         "\"x.rotary_emb.inv_freq\"");
    CHECK_OK(open_and_check(at("model"), NULL)); /* promised but absent, present but not promised */
}

TEST(test_shards__damage_names_the_file)
{
    const change whole = { 0 };
    make_model(&whole, 17000);
    assert_int_equal(truncate(at("model/model-00002-of-00003.safetensors"), 3000), 0);
    CHECK_FAILS(open_and_check(at("model"), NULL), SHEAF_E_FORMAT,
                "model-00002-of-00003.safetensors: header: file size");
    unlink(at("model/model-00002-of-00003.safetensors"));
    CHECK_FAILS(open_and_check(at("model"), NULL), SHEAF_E_LAYOUT,
                "model-00002-of-00003.safetensors: missing | ");
}

TEST(test_folder__explains_what_is_there_instead)
{
    static const struct {
        const char *file;
        sheaf_code code;
        const char *part;
    } rows[] = {
        { "README", SHEAF_E_UNSUPPORTED,
          "no dialect that sheaf knows | a model: its config.json and weights, or a checkpoint of another program | README | give the model's own folder" },
        { "pytorch_model.bin", SHEAF_E_FORMAT, "pytorch_model.bin: damaged" },
        { "pytorch_model-00001-of-00002.bin", SHEAF_E_LAYOUT, "no shards 2..2" },
        { "adapter_model.safetensors", SHEAF_E_UNSUPPORTED,
          "no model here | a model: its config.json and weights, or a checkpoint of another program | a PEFT adapter | give it as `adapter`" },
        { "model-00001-of-00002.safetensors", SHEAF_E_LAYOUT, "no shards 2..2" },
        { "model.fp16.safetensors", SHEAF_E_FORMAT, "model.fp16.safetensors: damaged" },
        { "latest", SHEAF_E_UNSUPPORTED, "no dialect that sheaf knows" },
        { "latest_checkpointed_iteration.txt", SHEAF_E_UNSUPPORTED, "no dialect that sheaf knows" },
        { "consolidated.00.pth", SHEAF_E_FORMAT, "consolidated.00.pth: damaged" },
        { "llama.gguf", SHEAF_E_FORMAT, "llama.gguf: damaged" },
        { "weights.safetensors", SHEAF_E_FORMAT, "weights.safetensors: damaged" },
    };
    const sheaf_dialect_hints hints = { .want = SHEAF_WANT_MODEL, .as_stored = true };
    sheaf_source *source = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char file[200];
        const char *folder = textf("f%zu", i);
        snprintf(file, sizeof file, "f%zu/%s", i, rows[i].file);
        CHECK_OK(sheaf__make_dir(at(folder)));
        put(at(file), "x");
        CHECK_FAILS(sheaf__open_source(&source, at(folder), &hints), rows[i].code, rows[i].part);
    }
    mkdir(at("void"), 0700);
    CHECK_FAILS(open_stored(&source, at("void")), SHEAF_E_UNSUPPORTED, "an empty folder");
    CHECK_FAILS(open_stored(&source, at("none")), SHEAF_E_IO, "nothing there");
    CHECK_FAILS(sheaf__open_source(&source, at("void"), &(sheaf_dialect_hints){ .from = "zip" }),
                SHEAF_E_ARG, "`from zip`");
    const change whole = { 0 };
    make_model(&whole, 0);
    put(at("model/model.safetensors.index.json"), "{}");
    CHECK_FAILS(
        open_stored(&source, at("model")), SHEAF_E_LAYOUT,
        "both model.safetensors and model.safetensors.index.json: one is left from another save");
}

TEST(test_folder__other_frameworks_are_refused)
{
    sheaf_safetensors_writer *w = NULL;
    sheaf_source *source = NULL;
    const sheaf_safetensors_pair tf = { "format", "tf" };
    CHECK_OK(sheaf__safetensors_begin(&w, at("tf.safetensors"), NULL, 0, &tf, 1));
    CHECK_OK(sheaf__safetensors_finish(w));
    CHECK_FAILS(open_stored(&source, at("tf.safetensors")), SHEAF_E_UNSUPPORTED,
                "metadata 'format': pt | tf | ");
}

/* ---- writing ---- */

typedef struct copy_job {
    sheaf_source *from;
    const sheaf_safetensors_spec *spec;
} copy_job;

static sheaf_status *copy_rows(void *context, int64_t index, int64_t row0, int64_t rows, void *dst)
{
    const copy_job *job = context;
    const sheaf_safetensors_spec *s = &job->spec[index];
    return job->from->read(job->from, s->name, row0, rows, 0, s->ndim == 2 ? s->shape[1] : 1, dst);
}

static void copy_model(const char *from, const char *to, int64_t shard_bytes)
{
    sheaf_config c;
    sheaf_schema *schema = NULL;
    sheaf_safetensors_spec *spec = NULL;
    sheaf_folder *folder = NULL;
    copy_job job = { 0 };
    int64_t n = 0;
    sheaf_catalog *catalog = NULL;
    CHECK_OK(sheaf__open(&catalog, from, &(sheaf_dialect_hints){ .as_stored = true }));
    CHECK_OK(sheaf__open_config(&c, catalog));
    CHECK_OK(sheaf_schema_new(&schema, &c, 8));
    CHECK_OK(sheaf__catalog_source(&job.from, catalog, false));
    CHECK_OK(sheaf_hf_specs(&spec, &n, schema, job.from, SHEAF_F32));
    job.spec = spec;
    CHECK_OK(sheaf_hf_begin(&folder, to, c.json, spec, n,
                            &(sheaf_folder_options){ .shard_bytes = shard_bytes }));
    CHECK_OK(sheaf_hf_copy_extras(folder, from, NULL));
    CHECK_OK(sheaf__folder_write_all(folder, copy_rows, &job, 1000));
    CHECK_OK(sheaf__folder_commit(folder));
    job.from->close(job.from);
    free(spec);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
}

static void check_same_folder(const char *a, const char *b)
{
    char **names = NULL, **others = NULL;
    int64_t n = 0, m = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, a));
    CHECK_OK(sheaf__list_dir(&others, &m, b));
    assert_int_equal(n, m);
    for (int64_t i = 0; i < n; i++) {
        assert_string_equal(names[i], others[i]);
        check_same_file(a, b, names[i]);
    }
    sheaf__names_free(names, n);
    sheaf__names_free(others, m);
}

TEST(test_write__gives_the_folders_that_transformers_writes)
{
    copy_model(golden("llama/tiny_llama/hf_sharded"), at("one"), 0);
    check_same_folder(golden("llama/tiny_llama/hf"), at("one"));
    copy_model(golden("llama/tiny_llama/hf"), at("five"), 200000);
    check_same_folder(golden("llama/tiny_llama/hf_sharded"), at("five"));
    copy_model(golden("llama/tiny_llama/hf/model.safetensors"), at("file"), 0);
    check_same_folder(golden("llama/tiny_llama/hf"), at("file"));
    copy_model(golden("llama/tiny_qwen2/hf"), at("two"), 200000);
    check_same_folder(golden("llama/tiny_qwen2/hf_sharded"), at("two"));
}

TEST(test_specs__take_the_stored_dtypes_or_one)
{
    const change mixed = { .name = "model.norm.weight", .dtype = SHEAF_F16 };
    sheaf_source *source = NULL;
    sheaf_config c;
    sheaf_schema *schema = NULL;
    sheaf_safetensors_spec *spec = NULL;
    int64_t n = 0;
    make_model(&mixed, 0);
    CHECK_OK(open_stored(&source, at("model")));
    CHECK_OK(sheaf_config_read(&c, at("model/config.json")));
    CHECK_OK(sheaf_schema_new(&schema, &c, 1));
    for (int stored = 0; stored < 2; stored++) {
        CHECK_OK(sheaf_hf_specs(&spec, &n, schema, stored ? source : NULL, SHEAF_BF16));
        assert_int_equal(n, 12);
        assert_string_equal(spec[0].name, EMBED);
        assert_string_equal(spec[8].name, L0 "input_layernorm.weight");
        assert_true(spec[0].dtype == (stored ? SHEAF_F32 : SHEAF_BF16));
        assert_true(spec[10].dtype == (stored ? SHEAF_F16 : SHEAF_BF16)); /* model.norm */
        free(spec);
    }
    source->close(source);
    sheaf_schema_free(schema);
    sheaf_config_release(&c);
}

/* ---- the text of config.json ---- */

TEST(test_config_set__changes_one_value_and_nothing_else)
{
    static const struct {
        const char *json, *key, *value, *want;
    } rows[] = {
        { "{\"a\": 1e-05, \"b\" : [1, {\"a\": 2}] }\n", "b", "null",
          "{\"a\": 1e-05, \"b\" : null }\n" },
        { "{\"a\": 1e-05, \"b\" : [1, {\"a\": 2}] }\n", "a", "\"x\"",
          "{\"a\": \"x\", \"b\" : [1, {\"a\": 2}] }\n" },
        { "{\n  \"a\": 1\n}\n", "c", "true", "{\n  \"c\": true,\n  \"a\": 1\n}\n" },
        { "{}", "c", "7", "{\n  \"c\": 7\n}" },
        { "{\"x\": {\"a\": 1}, \"a\":\"}\"}", "a", "2", "{\"x\": {\"a\": 1}, \"a\":2}" },
    };
    char *got = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK_OK(sheaf_hf_config_set(&got, rows[i].json, rows[i].key, rows[i].value));
        assert_string_equal(got, rows[i].want);
        free(got);
    }
    CHECK_FAILS(sheaf_hf_config_set(&got, "{\"a\": }", "a", "1"), SHEAF_E_FORMAT, "config.json");
    CHECK_FAILS(sheaf_hf_config_set(&got, "[]", "a", "1"), SHEAF_E_FORMAT, "an object");
}

TEST(test_config_without__takes_one_key_out)
{
    static const struct {
        const char *json, *key, *want;
    } rows[] = {
        { "{\"a\": 1e-05, \"b\" : [1, {\"a\": 2}] }\n", "b", "{\"a\": 1e-05 }\n" },
        { "{\"a\": 1e-05, \"b\" : [1, {\"a\": 2}] }\n", "a", "{\"b\" : [1, {\"a\": 2}] }\n" },
        { "{\n  \"a\": 1,\n  \"b\" :\n{\"x\": \"}:\\\"\"},\n  \"c\": 2\n}\n", "b",
          "{\n  \"a\": 1,\n  \"c\": 2\n}\n" },
        { "{\n  \"a\": 1\n}\n", "a", "{\n}\n" },
        { "{\"a\": 1}", "c", "{\"a\": 1}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        char *got = NULL;
        CHECK_OK(sheaf_hf_config_edit(&got, rows[i].json, NULL, rows[i].key, NULL));
        assert_string_equal(got, rows[i].want);
        free(got);
    }
}

TEST(test_config_dtype__in_the_spelling_of_the_file)
{
    static const struct {
        const char *json, *want;
    } rows[] = {
        { "{\"torch_dtype\": \"float32\"}", "{\"torch_dtype\": \"bfloat16\"}" },
        { "{\"dtype\": \"float32\"}", "{\"dtype\": \"bfloat16\"}" },
        { "{\"dtype\": \"float32\", \"torch_dtype\": \"float32\"}",
          "{\"dtype\": \"bfloat16\", \"torch_dtype\": \"bfloat16\"}" },
        { "{\"a\": 1}", "{\n  \"dtype\": \"bfloat16\",\"a\": 1}" },
    };
    char *got = NULL;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        CHECK_OK(sheaf_hf_config_with_dtype(&got, rows[i].json, SHEAF_BF16));
        assert_string_equal(got, rows[i].want);
        free(got);
    }
    CHECK_FAILS(sheaf_hf_config_with_dtype(&got, "{}", SHEAF_F4), SHEAF_E_ARG, "F4");
}

FIXTURE(make_scratch, remove_scratch);
