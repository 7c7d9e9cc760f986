/* lora_test.c - SAT's LoRA: merged as SAT merges it, and as an adapter that says the same. */
#include "tests/made_sat.h"
#include "tests/opened.h"

#include "base/json.h"
#include "dialects/peft/peft.h"
#include "dialects/sat/lora.h"
#include "dialects/sat/parts.h"
#include "formats/torch.h"

/* ---- checkpoints with factors, made ---- */

typedef struct lora {
    int64_t rank;
    bool drift;   /* copies differ by rank */
    bool by_hand; /* weights 1, B 1, A (2^-7, 2^-17) */
    int lacks;    /* part lacks - 1 is without the first factors of its layers; 0 = none */
} lora;

static bool adapted(const char *name)
{
    return strstr(name, "attention.") != NULL && strncmp(name, "mixins.rotary", 13) != 0 &&
           strstr(name, "_layernorm") == NULL;
}

static void fill(char *dst, sheaf_dtype dtype, const lora *how, const char *name, uint64_t key,
                 int64_t n, int64_t cols)
{
    for (int64_t i = 0; i < n; i++) {
        const char *factor = strstr(name, ".matrix_A") != NULL ? "A" : "B";
        made_value(dst + (size_t)i * sheaf_dtype_bytes(dtype), dtype, key, i);
        const float x = *factor == 'B' ? 1 : i / cols == 0 ? 0x1p-7f : 0x1p-17f;
        uint32_t bits;
        memcpy(&bits, &x, 4);
        const uint16_t half = (uint16_t)(bits >> 16);
        if (how->by_hand)
            memcpy(dst + (size_t)i * sheaf_dtype_bytes(dtype),
                   dtype == SHEAF_F32 ? (void *)&bits : (void *)&half, sheaf_dtype_bytes(dtype));
    }
}

/* One part again, with factors beside its attention weights. */
static void adapt_part(const made *m, const lora *how, const char *from, const char *to, int rank)
{
    sheaf_torch *file = NULL;
    made_file *f = made_begin();
    CHECK_OK(sheaf__torch_open(&file, from));
    const sheaf_pickle *was = sheaf__pickle_get(file->doc->root, "module");
    sheaf_pickle *module = made_set(f, f->root, "module", SHEAF_PICKLE_DICT);
    for (int64_t i = 0; i < sheaf__pickle_count(was); i++) {
        const char *name = sheaf__pickle_text(sheaf__pickle_key(was, i)), *dot = strrchr(name, '.');
        const sheaf_pickle_tensor *t = sheaf__pickle_tensor(file->doc, sheaf__pickle_value(was, i));
        const int stem = (int)(dot - name);
        const bool wrap = adapted(name);
        made_copy(f, module, wrap ? textf("%.*s.original%s", stem, name, dot) : name, file, t);
        uint16_t *stored = f->tensor[f->count - 1].data;
        for (int64_t k = 0; how->by_hand && wrap && k < f->tensor[f->count - 1].bytes / 2; k++)
            stored[k] = 0x3f80;
        const int parts = strstr(name, "query_key_value") != NULL ? 3
                          : strstr(name, "key_value") != NULL     ? 2
                                                                  : 1;
        for (int p = 0; wrap && t->ndim == 2 && p < 2 * parts; p++) {
            const bool a = p % 2 == 0;
            if (p == 0 && how->lacks == rank + 1)
                continue;
            const char *factor = textf("%.*s.matrix_%c.%d", stem, name, a ? 'A' : 'B', p / 2);
            const int64_t shape[] = { a ? how->rank : t->shape[0] / parts,
                                      a ? t->shape[1] : how->rank };
            /* else it is cut, and each part has another piece */
            const bool copy = a == (strstr(factor, ".dense.") == NULL);
            char *data = malloc((size_t)(shape[0] * shape[1]) * sheaf_dtype_bytes(m->dtype) + 1);
            fill(data, m->dtype, how, factor,
                 made_key(factor, m->seed + (copy && !how->drift ? 0 : (uint64_t)rank)),
                 shape[0] * shape[1], shape[1]);
            sheaf__pickle_set(f->doc, module, factor, made_put(f, m->dtype, 2, shape, data));
        }
    }
    made_end(f, to);
    sheaf__torch_close(file);
}

static const char *make_lora(made *m, const lora *how, int ways)
{
    made_write(m, at("plain"), ways, 3);
    sheaf_status_free(sheaf__remove_tree(at("lora")));
    CHECK_OK(sheaf__make_dirs(at("lora/3")));
    put(at("lora/latest"), "3");
    const char *text = textf("{\"use_lora\": true, \"lora_rank\": %d,", (int)how->rank);
    char *config = NULL, *rest = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&rest, &size, at("plain/model_config.json"), 1 << 20));
    assert_true(asprintf(&config, "%s%s", text, rest + 1) > 0);
    put(at("lora/model_config.json"), config);
    free(config);
    free(rest);
    for (int rank = 0; rank < ways; rank++)
        adapt_part(m, how, textf("%s/3/mp_rank_%02d_model_states.pt", at("plain"), rank),
                   textf("%s/3/mp_rank_%02d_model_states.pt", at("lora"), rank), rank);
    return at("lora");
}

/* ---- what each rank's merge gives, from its own file ---- */

static float number(const void *data, sheaf_dtype dtype, int64_t i)
{
    uint32_t bits;
    uint16_t half = 0;
    float x;
    if (dtype == SHEAF_F32) {
        memcpy(&x, (const char *)data + 4 * i, 4);
        return x;
    }
    memcpy(&half, (const char *)data + 2 * i, 2);
    if (dtype == SHEAF_F16) {
        const int e = half >> 10 & 31;
        x = e == 0 ? (float)(half & 1023) * 0x1p-24f
                   : ldexpf((float)(1024 + (half & 1023)), e - 25);
        return half >> 15 ? -x : x;
    }
    bits = (uint32_t)half << 16;
    memcpy(&x, &bits, 4);
    return x;
}

static void *tensor_of(const sheaf_torch *file, const sheaf_pickle_tensor **t, const char *name)
{
    *t = sheaf__pickle_tensor(file->doc, sheaf__pickle_path(file->doc->root, "module", name, NULL));
    if (*t == NULL)
        return NULL;
    const size_t bytes = (size_t)((*t)->shape[0] * ((*t)->ndim > 1 ? (*t)->shape[1] : 1)) *
                         sheaf_dtype_bytes((*t)->dtype);
    void *data = malloc(bytes + 1);
    CHECK_OK(sheaf__torch_read(file, *t, data, bytes));
    return data;
}

/* One adapted layer of one part against the merged tensor `whole` [out, in]. */
static void check_layer(const sheaf_torch *file, const char *linear, int rank, int ways,
                        const void *whole, const sheaf_source_entry *e)
{
    const sheaf_pickle_tensor *w, *a, *b;
    sheaf_sat_rule rule;
    assert_true(sheaf__sat_rule_of(&rule, textf("%s.weight", linear)));
    const char *name = textf("%s.original.weight", linear);
    void *weight = tensor_of(file, &w, name);
    const int64_t rows = w->shape[0], cols = w->shape[1], block = rows / rule.parts;
    for (int p = 0; p < rule.parts; p++) {
        void *one = tensor_of(file, &a, textf("%s.matrix_A.%d", linear, p));
        void *two = tensor_of(file, &b, textf("%s.matrix_B.%d", linear, p));
        const int64_t r = a->shape[0];
        for (int64_t i = p * block; i < (p + 1) * block; i++)
            for (int64_t c = 0; c < cols; c++) {
                double sum = 0;
                for (int64_t k = 0; k < r; k++)
                    sum += (double)number(two, b->dtype, (i - p * block) * r + k) *
                           number(one, a->dtype, k * cols + c);
                const double want = number(weight, w->dtype, i * cols + c) + sum / (double)r;
                const int64_t row = rule.axis == 0 ? (p * ways + rank) * block + i - p * block : i;
                const int64_t col = rule.axis == 0 ? c : rank * cols + c;
                const double step = w->dtype == SHEAF_F32   ? 0x1p-22
                                    : w->dtype == SHEAF_F16 ? 0x1p-9
                                                            : 0x1p-6;
                CHECK_NEAR(linear, number(whole, e->dtype, row * e->shape[1] + col), want,
                           1e-7 + (fabs(want) + fabs(sum) / (double)r) *
                                      step); /* the sum may be rounded by itself */
            }
        free(one);
        free(two);
    }
    free(weight);
}

/* All adapted layers of a checkpoint; gives how many there are. */
static int check_merge(const char *path)
{
    sheaf_catalog *c = sat_read_at(path);
    sheaf_source *source = NULL;
    int n = 0;
    const int ways = c->tp;
    want_says(c, 0, "unmerged", "");
    CHECK_OK(sheaf_sat_merged(&source, c));
    for (int rank = 0; rank < ways; rank++) {
        sheaf_torch *file = NULL;
        CHECK_OK(sheaf__torch_open(&file, c->file[rank].path));
        const sheaf_pickle *module = sheaf__pickle_get(file->doc->root, "module");
        for (int64_t i = 0; i < sheaf__pickle_count(module); i++) {
            const char *name = sheaf__pickle_text(sheaf__pickle_key(module, i)),
                       *tail = strstr(name, ".original.weight");
            if (tail == NULL)
                continue;
            const char *linear = textf("%.*s", (int)(tail - name), name);
            const char *weight = textf("%s.weight", linear);
            const sheaf_source_entry *e = source->find(source, weight);
            void *whole = malloc((size_t)(e->shape[0] * e->shape[1] * 4));
            CHECK_OK(source->read(source, weight, 0, e->shape[0], 0, e->shape[1], whole));
            check_layer(file, linear, rank, ways, whole, e);
            free(whole);
            n += rank == 0;
        }
        sheaf__torch_close(file);
    }
    source->close(source);
    return n;
}

/* Boxes of one column, most of which lie in no block or slice of a row, have what the whole has. */
static void check_columns(sheaf_source *source, const sheaf_source_entry *e, const char *whole)
{
    const size_t each = sheaf_dtype_bytes(e->dtype);
    char *column = malloc((size_t)e->shape[0] * each);
    for (int64_t c = 0; c < e->shape[1]; c++) {
        CHECK_OK(source->read(source, e->name, 0, e->shape[0], c, 1, column));
        for (int64_t r = 0; r < e->shape[0]; r++)
            assert_memory_equal(column + (size_t)r * each,
                                whole + (size_t)(r * e->shape[1] + c) * each, each);
    }
    free(column);
}

/* As convert writes it. */
static void write_adapter(const char *dst, const sheaf_sat_lora *lora)
{
    sheaf_source *source = NULL;
    sheaf_folder *folder = NULL;
    char *config = NULL;
    CHECK_OK(sheaf_sat_adapter(&source, lora));
    CHECK_OK(sheaf_sat_adapter_config(&config, lora));
    const int64_t n = source->count(source);
    sheaf_safetensors_spec *spec = calloc((size_t)n, sizeof *spec);
    for (int64_t i = 0; i < n; i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        spec[i] = (sheaf_safetensors_spec){ e->name, e->dtype, 2, { e->shape[0], e->shape[1] } };
    }
    CHECK_OK(sheaf_peft_begin(&folder, dst, config, NULL, spec, n, true));
    for (int64_t i = 0; i < n; i++) {
        const sheaf_source_entry *e = source->entry(source, i);
        void *bytes = malloc((size_t)(e->shape[0] * e->shape[1]) * sheaf_dtype_bytes(e->dtype));
        CHECK_OK(source->read(source, e->name, 0, e->shape[0], 0, e->shape[1], bytes));
        check_columns(source, e, bytes);
        CHECK_OK(sheaf__folder_write(folder, i, 0, e->shape[0], 0, e->shape[1], bytes));
        free(bytes);
    }
    CHECK_OK(sheaf__folder_commit(folder));
    source->close(source);
    free(config);
    free(spec);
}

/* The adapter, multiplied out, gives what the merge gives. */
static void check_adapter(const char *path)
{
    sheaf_catalog *c = sat_read_at(path), *again = sat_read_at(path);
    sheaf_sat_lora *lora = NULL;
    sheaf_source *merged = NULL, *adapter = NULL;
    json_t *config = NULL;
    CHECK_OK(sheaf_sat_lora_open(&lora, c));
    write_adapter(at("adapter"), lora);
    CHECK_OK(sheaf_sat_merged(&merged, again));
    CHECK_OK(open_adapter_at(&adapter, at("adapter")));
    CHECK_OK(sheaf__json_load(&config, at("adapter/adapter_config.json")));
    assert_int_equal(adapter->count(adapter), 2 * lora->count);
    assert_true(json_is_string(json_object_get(config, "target_modules")));
    for (int64_t i = 0; i < lora->count; i++) {
        const sheaf_sat_lora_linear *l = &lora->linear[i];
        const char *a_name = textf("base_model.model.%s.lora_A.weight", l->name);
        const char *b_name = textf("base_model.model.%s.lora_B.weight", l->name);
        const char *weight = textf("%s.weight", l->name);
        const char *key = textf("^%s", l->name);
        const json_t *r = json_object_get(json_object_get(config, "rank_pattern"), key);
        const json_t *alpha = json_object_get(json_object_get(config, "alpha_pattern"), key);
        r = r != NULL ? r : json_object_get(config, "r");
        alpha = alpha != NULL ? alpha : json_object_get(config, "lora_alpha");
        const int64_t rank = json_integer_value(r);
        assert_int_equal(rank, l->adapter_rank);
        const double scale = (double)json_integer_value(alpha) / (double)rank;
        assert_true(scale == 1.0 / (double)lora->rank);
        const sheaf_logical *base = sheaf__catalog_find(c, weight);
        float *w = malloc((size_t)(l->out * l->in) * 4), *m = malloc((size_t)(l->out * l->in) * 4);
        float *a = malloc((size_t)(rank * l->in) * 4), *b = malloc((size_t)(l->out * rank) * 4);
        CHECK_OK(sheaf__catalog_read(c, base, 0, l->out, 0, l->in, w));
        CHECK_OK(merged->read(merged, weight, 0, l->out, 0, l->in, m));
        CHECK_OK(adapter->read(adapter, a_name, 0, rank, 0, l->in, a));
        CHECK_OK(adapter->read(adapter, b_name, 0, l->out, 0, rank, b));
        const sheaf_dtype dtype = base->entry.dtype;
        const double step = dtype == SHEAF_F32 ? 0x1p-22 : dtype == SHEAF_F16 ? 0x1p-9 : 0x1p-6;
        for (int64_t o = 0; o < l->out; o++)
            for (int64_t k = 0; k < l->in; k++) {
                double sum = 0;
                for (int64_t j = 0; j < rank; j++)
                    sum += (double)number(b, l->dtype, o * rank + j) *
                           number(a, l->dtype, j * l->in + k);
                const double want = number(w, dtype, o * l->in + k) + scale * sum;
                CHECK_NEAR(l->name, number(m, dtype, o * l->in + k), want,
                           1e-7 + (fabs(want) + fabs(scale * sum)) * step);
            }
        free(w);
        free(m);
        free(a);
        free(b);
    }
    json_decref(config);
    adapter->close(adapter);
    merged->close(merged);
    sheaf_sat_lora_free(lora);
    sheaf__catalog_free(c);
}

/* ---- recorded ---- */

static bool says_lora(const char *path)
{
    json_t *object = NULL;
    const char *config = textf("%s/model_config.json", path);
    if (sheaf__path_kind(config) != SHEAF_PATH_FILE)
        return false;
    CHECK_OK(sheaf__json_load(&object, config));
    const bool yes = json_is_true(json_object_get(object, "use_lora"));
    json_decref(object);
    return yes;
}

static sheaf_source *merged_of(const char *path)
{
    sheaf_source *source = NULL;
    CHECK_OK(sheaf_sat_merged(&source, sat_read_at(path)));
    return source;
}

/* One recorded model: each folder with LoRA, against its merged form and against the same LoRA at
 * other sizes. */
static int check_model(const char *model)
{
    char **names = NULL;
    int64_t n = 0;
    int found = 0;
    CHECK_OK(sheaf__list_dir(&names, &n, model));
    for (int64_t i = 0; i < n; i++) {
        const char *path = textf("%s/%s", model, names[i]);
        if (sheaf__path_kind(path) != SHEAF_PATH_DIR || !says_lora(path))
            continue;
        found++;
        assert_true(check_merge(path) > 3);
        check_adapter(path);
        sheaf_source *merged = merged_of(path);
        const char *other = textf("%s_merged", path);
        if (sheaf__path_kind(other) == SHEAF_PATH_DIR)
            equals(other, merged); /* SAT's own, bit for bit */
        other = textf("%s/lora_mp1", model);
        if (strncmp(names[i], "lora_mp", 7) == 0 && sheaf__path_kind(other) == SHEAF_PATH_DIR) {
            sheaf_source *one = merged_of(other);
            same_sources(one, merged, 0);
            one->close(one);
        }
        merged->close(merged);
    }
    sheaf__names_free(names, n);
    return found;
}

TEST(test_merge__is_sats_for_every_recorded_checkpoint)
{
    const int n = golden_each("*/", check_model);
    if (golden_is_full())
        assert_true(n >= 4);
}

/* ---- made ---- */

/* Of the layer's adapter; -1: it is not adapted. */
static int64_t rank_of(const sheaf_sat_lora *lora, const char *name)
{
    for (int64_t i = 0; i < lora->count; i++)
        if (strcmp(lora->linear[i].name, name) == 0)
            return lora->linear[i].adapter_rank;
    return -1;
}

TEST(test_merge__takes_each_slice_with_its_own_factors)
{
    static const struct {
        made m;
        lora how;
        int ways;
        int64_t qkv, dense;
    } rows[] = {
        { { .seed = 1 }, { 4, false, false }, 1, 12, 4 },
        { { .seed = 2 }, { 3, false, false }, 2, 9, 3 },
        { { .seed = 3 }, { 3, true, false }, 2, 18, 6 },
        { { .agent = true, .seed = 4, .dtype = SHEAF_BF16, .head = 10 },
          { 5, true, false },
          4,
          60,
          20 },
        { { .agent = true, .seed = 5, .dtype = SHEAF_F16 }, { 2, false, false }, 2, 6, 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        made m = rows[i].m;
        made_init(&m);
        const char *path = make_lora(&m, &rows[i].how, rows[i].ways);
        const int64_t layers = m.layers * (m.agent ? 5 : 2) + m.vit_layers * 2;
        assert_int_equal(check_merge(path), layers);
        check_adapter(path);
        sheaf_catalog *c = sat_read_at(path);
        sheaf_sat_lora *lora = NULL;
        CHECK_OK(sheaf_sat_lora_open(&lora, c));
        assert_int_equal(lora->count, layers);
        assert_int_equal(rank_of(lora, "transformer.layers.1.attention.query_key_value"),
                         rows[i].qkv);
        assert_int_equal(rank_of(lora, "transformer.layers.0.attention.dense"), rows[i].dense);
        assert_int_equal(rank_of(lora, "transformer.layers.0.mlp.dense_h_to_4h"), -1);
        assert_true((finding(c, -1, "unmerged", "factors of its own") != NULL) ==
                    rows[i].how.drift);
        sheaf_sat_lora_free(lora);
        sheaf__catalog_free(c);
        made_release(&m);
    }
}

/* W = 1, delta = 2^-8 + 2^-18: rounded to bfloat16 before it is added it leaves W as it is. */
TEST(test_merge__rounds_twice_as_sat_does)
{
    made m = { .seed = 7, .dtype = SHEAF_BF16 };
    made_init(&m);
    sheaf_source *source = merged_of(make_lora(&m, &(lora){ .rank = 2, .by_hand = true }, 2));
    uint16_t row[16], some[3];
    CHECK_OK(source->read(source, "transformer.layers.0.attention.dense.weight", 3, 1, 0, 16, row));
    for (int i = 0; i < 16; i++)
        assert_int_equal(row[i], 0x3f80);
    CHECK_OK(source->read(source, "transformer.layers.1.attention.query_key_value.weight", 47, 1,
                          13, 3, some));
    assert_int_equal(some[2], 0x3f80);
    CHECK_FAILS(
        source->read(source, "transformer.layers.0.attention.dense.weight", 16, 1, 0, 16, row),
        SHEAF_E_ARG, "outside");
    CHECK_FAILS(
        source->read(source, "transformer.layers.0.attention.dense.weight", 0, 1, 1, 16, row),
        SHEAF_E_ARG, "outside");
    source->close(source);
    made_release(&m);
}

/* Merged and written: a plain checkpoint whose config says so. */
TEST(test_merge__writes_a_plain_checkpoint)
{
    made m = { .agent = true, .seed = 8 };
    made_init(&m);
    const char *path = make_lora(&m, &(lora){ .rank = 2, .drift = true }, 4);
    sheaf_catalog *c = sat_read_at(path);
    char *config = strdup(c->config);
    sheaf__catalog_free(c);
    sheaf_source *merged = merged_of(path);
    CHECK_OK(sheaf_sat_write(
        at("merged"), merged,
        &(sheaf_sat_write_options){ .config = config, .ways = 2, .step = 3, .replace = true }));
    c = sat_read_at(at("merged"));
    want_defects(c, 0);
    assert_null(finding(c, -1, "unmerged", ""));
    assert_null(finding(c, -1, "missing", ""));
    assert_non_null(strstr(c->config, "\"use_lora\": false"));
    sheaf__catalog_free(c);
    equals(at("merged"), merged);
    merged->close(merged);
    free(config);
    made_release(&m);
}

/* Each part in turn lacks some factors: reported, and not merged. */
TEST(test_lora__is_missed_in_any_part)
{
    made m = { .seed = 9 };
    made_init(&m);
    for (int lacks = 1; lacks <= 2; lacks++)
        for (int drift = 0; drift < 2; drift++) {
            sheaf_sat_lora *lora = NULL;
            const char *path =
                make_lora(&m, &(struct lora){ .rank = 2, .drift = drift != 0, .lacks = lacks }, 2);
            sheaf_catalog *c = sat_read_at(path);
            assert_non_null(finding(c, SHEAF_DEFECT, "missing", ""));
            sheaf_status *st = sheaf_sat_lora_open(&lora, c);
            sheaf_status_free(st);
            if (st == NULL)
                sheaf_sat_lora_free(lora);
            sheaf_source *merged = NULL;
            CHECK_FAILS(sheaf_sat_merged(&merged, c), SHEAF_E_LAYOUT, "missing");
        }
    made_release(&m);
}

static void set_config(const char *key, json_t *value)
{
    json_t *config;
    CHECK_OK(sheaf__json_load(&config, at("lora/model_config.json")));
    json_object_set_new(config, key, value);
    char *text = json_dumps(config, 0);
    put(at("lora/model_config.json"), text);
    free(text);
    json_decref(config);
}

TEST(test_lora__is_checked_against_the_config)
{
    made m = { .seed = 8 };
    sheaf_sat_lora *lora = NULL;
    made_init(&m);
    const char *path = make_lora(&m, &(struct lora){ .rank = 2, .drift = true }, 2);
    set_config("lora_rank", json_integer(3));
    sheaf_catalog *c = sat_read_at(path);
    want_says(c, -1, "conflict", "factors of rank 2 where lora_rank is 3");
    CHECK_FAILS(sheaf_sat_lora_open(&lora, c), SHEAF_E_LAYOUT, "by its weight and the rank");
    sheaf__catalog_free(c);
    for (int i = 0; i < 2; i++) {
        const int rank = i == 0 ? -1 : 65537;
        set_config("lora_rank", json_integer(rank));
        c = sat_read_at(path);
        CHECK_FAILS(sheaf_sat_lora_open(&lora, c), SHEAF_E_LAYOUT,
                    textf("lora_rank | 1 to 65536 | %d", rank));
        sheaf__catalog_free(c);
    }
    set_config("lora_rank", json_null()); /* then the shapes say it */
    c = sat_read_at(path);
    want_defects(c, 0);
    CHECK_OK(sheaf_sat_lora_open(&lora, c));
    assert_int_equal(lora->rank, 2);
    sheaf_sat_lora_free(lora);
    sheaf__catalog_free(c);
    c = sat_read_at(at("plain")); /* none is fine, but no adapter */
    CHECK_OK(sheaf_sat_lora_open(&lora, c));
    assert_int_equal(lora->count, 0);
    CHECK_FAILS(sheaf_sat_adapter(&(sheaf_source *){ NULL }, lora), SHEAF_E_LAYOUT, "not merged");
    sheaf_sat_lora_free(lora);
    sheaf__catalog_free(c);
    /* use_lora without factors */
    char *config = NULL;
    size_t size;
    CHECK_OK(sheaf__file_read_all(&config, &size, at("lora/model_config.json"), 1 << 20));
    put(at("plain/model_config.json"), config);
    free(config);
    want_found(sat_read_at(at("plain")), 0, "missing", "SAT would go on with fresh ones");
    made_release(&m);
}

FIXTURE(make_scratch, remove_scratch);
