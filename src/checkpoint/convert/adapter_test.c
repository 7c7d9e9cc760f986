/* adapter_test.c - SAT's LoRA as an adapter and back: the same factors, bit for bit. */
#include "tests/made_sat.h"
#include "tests/resolved.h"

#include "base/json.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/merge/merge.h"
#include "dialects/peft/peft.h"
#include "dialects/sat/lora.h"
#include "formats/torch.h"
#include "tests/faults/faults.h"

static sheaf_status *convert(const char *src, const char *adapter, const char *dst, const char *to,
                             int tp)
{
    sheaf_weights_convert_report report;
    return sheaf_convert(
        &report,
        &(sheaf_weights_convert_options){
            .src = src, .adapter = adapter, .dst = dst, .to = to, .tp = tp, .threads = 2 });
}

static void *read_logical(const sheaf_catalog *c, const sheaf_logical *t, size_t *bytes)
{
    int64_t rows = 1, cols = 1;
    for (int d = 0; d < t->entry.ndim; d++)
        *(d > 0 && d == t->entry.ndim - 1 ? &cols : &rows) *= t->entry.shape[d];
    *bytes = (size_t)(rows * cols) * sheaf_dtype_bytes(t->entry.dtype);
    void *data = room(*bytes);
    CHECK_OK(sheaf__catalog_read(c, t, 0, rows, 0, cols, data));
    return data;
}

/* Tensors of this kind are the same in both; gives how many there are. */
static int64_t same_kind(const sheaf_catalog *a, const sheaf_catalog *b, sheaf_kind kind)
{
    int64_t n = 0, others = 0;
    for (int64_t i = 0; i < b->count; i++)
        others += b->tensor[i].kind == kind;
    for (int64_t i = 0; i < a->count; i++) {
        const sheaf_logical *x = &a->tensor[i], *y = sheaf__catalog_find(b, x->entry.name);
        if (x->kind != kind)
            continue;
        n++;
        if (y == NULL || y->kind != kind || y->entry.dtype != x->entry.dtype ||
            y->entry.ndim != x->entry.ndim ||
            memcmp(x->entry.shape, y->entry.shape,
                   (size_t)x->entry.ndim * sizeof *x->entry.shape) != 0)
            fail_msg("%s: is not in both alike", x->entry.name);
        size_t size, other;
        void *one = read_logical(a, x, &size), *two = read_logical(b, y, &other);
        CHECK_BYTES(x->entry.name, one, two, size);
    }
    assert_int_equal(n, others);
    return n;
}

/* Are files cut as SAT cuts them? All names and shapes of each part. */
static void same_parts(const sheaf_catalog *a, const sheaf_catalog *b)
{
    for (int64_t i = 0; i < a->count; i++) {
        const sheaf_logical *x = &a->tensor[i], *y = sheaf__catalog_find(b, x->entry.name);
        assert_non_null(y);
        if (x->npieces != y->npieces || x->replicated != y->replicated)
            fail_msg("%s: in %d and %d pieces", x->entry.name, (int)x->npieces, (int)y->npieces);
    }
}

/* Of each part that is written: the names in its file, in order. */
static int64_t same_names(const sheaf_catalog *a, const sheaf_catalog *b)
{
    int64_t n = 0;
    assert_int_equal(a->nfiles, b->nfiles);
    for (int64_t f = 0; f < a->nfiles; f++) {
        sheaf_torch *one = NULL, *two = NULL;
        CHECK_OK(sheaf__torch_open(&one, a->file[f].path));
        CHECK_OK(sheaf__torch_open(&two, b->file[f].path));
        const sheaf_pickle *x = sheaf__pickle_get(one->doc->root, "module"),
                           *y = sheaf__pickle_get(two->doc->root, "module");
        n = sheaf__pickle_count(x);
        assert_int_equal(n, sheaf__pickle_count(y));
        for (int64_t i = 0; i < n; i++)
            assert_string_equal(sheaf__pickle_text(sheaf__pickle_key(x, i)),
                                sheaf__pickle_text(sheaf__pickle_key(y, i)));
        sheaf__torch_close(one);
        sheaf__torch_close(two);
    }
    return n;
}

/* ---- recorded ---- */

static bool is_apart(const sheaf_sat_lora *lora)
{
    for (int64_t i = 0; i < lora->count; i++)
        if (lora->linear[i].apart)
            return true;
    return false;
}

/* One folder with LoRA: to PEFT, and onto `base` again. 1 if it went, 0 if it is none, or one that
 * SAT cannot divide so. */
static int check_folder(const char *path, const char *base)
{
    if (!sheaf__dialect_sat.is(path))
        return 0;
    sheaf_catalog *c = sat_read_at(path);
    sheaf_sat_lora *lora = NULL;
    int went = 0;
    if (sheaf__catalog_defects(c) == 0)
        CHECK_OK(sheaf_sat_lora_open(&lora, c));
    if (lora == NULL || lora->count == 0)
        goto done;
    sheaf_status_free(sheaf__remove_tree(at("peft")));
    sheaf_status_free(sheaf__remove_tree(at("back")));
    CHECK_OK(convert(path, NULL, at("peft"), "peft", 0));
    if (is_apart(lora)) { /* independent factors on each rank: no r that all layers share */
        CHECK_FAILS(convert(base, at("peft"), at("back"), "sat", c->tp), SHEAF_E_UNSUPPORTED,
                    "sheaf merge BASE ADAPTER MERGED");
        goto done;
    }
    CHECK_OK(convert(base, at("peft"), at("back"), "sat", c->tp));
    sheaf_catalog *back = sat_read_at(at("back")), *plain = sat_read_at(base);
    want_defects(back, 0);
    assert_int_equal(back->tp, c->tp);
    assert_true(same_kind(c, back, SHEAF_LORA) > 8);
    assert_true(same_kind(plain, back, SHEAF_WEIGHT) > 8);
    same_parts(c, back);
    assert_true(same_names(c, back) > 8);
    sheaf_sat_lora *again = NULL;
    CHECK_OK(sheaf_sat_lora_open(&again, back));
    assert_true(again->count == lora->count && again->rank == lora->rank &&
                again->scale == lora->scale && !is_apart(again));
    sheaf_sat_lora_free(again);
    sheaf__catalog_free(back);
    sheaf__catalog_free(plain);
    CHECK_FAILS(convert(path, at("peft"), at("no"), "sat", 1), SHEAF_E_UNSUPPORTED,
                "without LoRA of its own");
    went = 1;
done:
    sheaf_sat_lora_free(lora);
    sheaf__catalog_free(c);
    return went;
}

static int check_model(const char *model)
{
    const char *base = textf("%s/mp1", model);
    char **names = NULL;
    int64_t n = 0;
    int found = 0;
    if (sheaf__path_kind(base) != SHEAF_PATH_DIR)
        return 0;
    CHECK_OK(sheaf__list_dir(&names, &n, model));
    for (int64_t i = 0; i < n; i++) {
        const char *path = textf("%s/%s", model, names[i]);
        if (sheaf__path_kind(path) == SHEAF_PATH_DIR)
            found += check_folder(path, base);
    }
    sheaf__names_free(names, n);
    return found;
}

TEST(test_adapter__sats_lora_to_peft_and_back)
{
    const int n = golden_each("*/", check_model);
    if (golden_is_full())
        assert_true(n >= 4);
}

/* ---- made ---- */

typedef struct wish {
    /* dense: a module whose B is not zero off its blocks */
    const char *targets, *saved, *ranks, *dense;
    bool unasked; /* the config does not name what is saved */
    int64_t rank;
    double alpha;
    bool rslora;
    sheaf_dtype dtype;
} wish;

static void value_of(void *dst, const wish *how, const char *name, int64_t i)
{
    made_value(dst, how->dtype, made_key(name, 21), i);
}

typedef struct giving {
    const wish *how;
    const sheaf_lora *lora;
    const sheaf_safetensors_spec *spec;
} giving;

static sheaf_status *give_rows(void *context, int64_t index, int64_t row0, int64_t rows, void *dst)
{
    const giving *g = context;
    const sheaf_safetensors_spec *spec = &g->spec[index];
    const sheaf_lora_module *m = index / 2 < g->lora->nmodules ? &g->lora->module[index / 2] : NULL;
    const bool fused = m != NULL && index % 2 == 1 && m->parts > 1;
    const bool dense =
        fused && g->how->dense != NULL && strcmp(g->how->dense, m->base->module) == 0;
    const int64_t cols = fused && !dense  ? m->rank
                         : spec->ndim > 1 ? spec->shape[spec->ndim - 1]
                                          : 1;
    const size_t bytes = sheaf_dtype_bytes(g->how->dtype);
    char *x = room((size_t)(rows * cols) * bytes);
    for (int64_t i = 0; i < rows * cols; i++)
        value_of(x + (size_t)i * bytes, g->how, spec->name, row0 * cols + i);
    if (fused && !dense)
        sheaf_lora_spread(dst, x, m, row0, rows, bytes);
    else
        memcpy(dst, x, (size_t)(rows * cols) * bytes);
    return NULL;
}

/* The adapter, as a PEFT folder. */
static void make_adapter(const made *m, const wish *how, const char *dst)
{
    sheaf_lora_options *o = options_of(how->targets);
    sheaf_safetensors_spec spec[512];
    sheaf_folder *folder;
    char *config;
    int64_t n = 0;
    CHECK_OK(sheaf__lora_set_saved(o, how->saved));
    CHECK_OK(sheaf__lora_set_pattern(&o->rank_pattern, how->ranks, true));
    o->rank = how->rank, o->alpha = how->alpha, o->rslora = how->rslora;
    const sheaf_lora *lora = resolved(m->schema, o);
    for (int i = 0; i < lora->nmodules; i++) {
        const sheaf_lora_module *x = &lora->module[i];
        spec[n++] =
            (sheaf_safetensors_spec){ x->a_name, how->dtype, 2, { x->a_shape[0], x->a_shape[1] } };
        spec[n++] =
            (sheaf_safetensors_spec){ x->b_name, how->dtype, 2, { x->b_shape[0], x->file_rank } };
    }
    for (int i = 0; i < lora->nsaved; i++) {
        spec[n] = (sheaf_safetensors_spec){
            lora->saved_name[i], how->dtype, lora->saved[i]->ndim, { 0 }
        };
        memcpy(spec[n++].shape, lora->saved[i]->shape, sizeof lora->saved[i]->shape);
    }
    sheaf_lora_options told = lora->options;
    told.modules_to_save.n = how->unasked ? 0 : told.modules_to_save.n;
    CHECK_OK(sheaf_lora_options_json(&config, &told));
    CHECK_OK(sheaf_peft_begin(&folder, dst, config, NULL, spec, n, true));
    CHECK_OK(sheaf__folder_write_all(folder, give_rows, &(giving){ how, lora, spec }, 100));
    CHECK_OK(sheaf__folder_commit(folder));
    free(config);
}

/* Factor `which` of part p of a module against the values that went into the adapter, B times
 * `by`. */
static void check_factor(const sheaf_catalog *c, const wish *how, const char *module, char which,
                         int p, float by)
{
    size_t bytes;
    const char *name = textf("%s.matrix_%c.%d", module, which, p);
    const char *peft = textf("base_model.model.%s.lora_%c.weight", module, which);
    const sheaf_logical *t = sheaf__catalog_find(c, name);
    if (t == NULL)
        fail_msg("no %s", name);
    assert_int_equal(t->entry.shape[which == 'A' ? 0 : 1], how->rank);
    const int64_t n = t->entry.shape[0] * t->entry.shape[1];
    char *x = read_logical(c, t, &bytes);
    for (int64_t i = 0; i < n; i++) {
        uint32_t want = 0, got = 0;
        float a, b;
        value_of(&want, how, peft, p * n + i);
        memcpy(&got, x + (size_t)i * bytes / (size_t)n, bytes / (size_t)n);
        want <<= how->dtype == SHEAF_F32 ? 0 : 16;
        got <<= how->dtype == SHEAF_F32 ? 0 : 16;
        memcpy(&a, &want, 4);
        memcpy(&b, &got, 4);
        if (b != a * (which == 'B' ? by : 1))
            fail_msg("%s: %g, not %g, at %d", name, b, a, (int)i);
    }
}

/* Is there a tensor of this name in the first part? */
static bool has_name(const sheaf_catalog *c, const char *name)
{
    sheaf_torch *file = NULL;
    CHECK_OK(sheaf__torch_open(&file, c->file[0].path));
    const bool yes = sheaf__pickle_path(file->doc->root, "module", name, NULL) != NULL;
    sheaf__torch_close(file);
    return yes;
}

TEST(test_adapter__becomes_factors_at_any_size)
{
    static const struct {
        made m;
        wish how;
        int tp;
        float by;
    } rows[] = {
        { LIST(.agent = true, .seed = 1),
          LIST(.targets = "sat-vit", .rank = 3, .alpha = 1, .dtype = SHEAF_F32), 1, 1 },
        { LIST(.agent = true, .seed = 2, .dtype = SHEAF_BF16),
          LIST(.targets = "sat-vit", .rank = 5, .alpha = 8, .dtype = SHEAF_F32), 4, 8 },
        { LIST(.seed = 3, .dtype = SHEAF_BF16),
          LIST(.targets = "sat", .rank = 2, .alpha = 0.25, .dtype = SHEAF_BF16), 2, 0.25f },
        { LIST(.seed = 4),
          LIST(.targets = "sat", .rank = 4, .alpha = 4, .rslora = true, .dtype = SHEAF_F32), 4, 8 },
        { LIST(.seed = 8), LIST(.targets = "sat-vit", .rank = 3, .alpha = 6, .dtype = SHEAF_F32), 2,
          6 },
        { LIST(.agent = true, .seed = 5, .heads = 16, .vit_heads = 16, .vocab = 1600, .ffn = 32,
               .vit_ffn = 16),
          LIST(.targets = "attention.dense", .rank = 1, .alpha = 2, .dtype = SHEAF_F32), 16, 2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        made m = rows[i].m;
        const wish *how = &rows[i].how;
        made_init(&m);
        made_write(&m, at("base"), 1, 3);
        make_adapter(&m, how, at("adapter"));
        sheaf_status_free(sheaf__remove_tree(at("lora")));
        CHECK_OK(convert(at("base"), at("adapter"), at("lora"), "sat", rows[i].tp));
        sheaf_catalog *c = sat_read_at(at("lora")), *plain = sat_read_at(at("base"));
        sheaf_sat_lora *lora;
        want_defects(c, 0);
        assert_int_equal(c->tp, rows[i].tp);
        same_kind(plain, c, SHEAF_WEIGHT);
        assert_non_null(strstr(c->config, m.agent ? "\"FineTuneTestCogAgentModel\""
                                                  : "\"FineTuneTestCogVLMModel\""));
        assert_non_null(strstr(c->config, "\"use_lora\": true"));
        CHECK_OK(sheaf_sat_lora_open(&lora, c));
        assert_true(has_name(c, "transformer.layers.0.attention.dense.original.weight") &&
                    !has_name(c, "transformer.layers.0.attention.dense.weight"));
        assert_true(lora->rank == how->rank && lora->scale == (float)(1.0 / (double)how->rank) &&
                    !is_apart(lora));
        assert_int_equal(lora->count,
                         strcmp(how->targets, "attention.dense") == 0
                             ? m.layers + m.vit_layers
                             : m.layers * (m.agent ? 5 : 2) +
                                   (strcmp(how->targets, "sat") == 0 ? 0 : m.vit_layers * 2));
        for (int64_t k = 0; k < lora->count; k++)
            for (int p = 0; p < lora->linear[k].parts; p++) {
                check_factor(c, how, lora->linear[k].name, 'A', p, 1);
                check_factor(c, how, lora->linear[k].name, 'B', p, rows[i].by);
            }
        sheaf_sat_lora_free(lora);
        sheaf__catalog_free(c);
        sheaf__catalog_free(plain);
        made_release(&m);
    }
}

/* Whole tensors of the adapter take the place of the base's, in the base's dtype. */
TEST(test_adapter__whole_tensors_replace_the_bases)
{
    static const struct {
        wish how;
        const char *saved[3];
    } cases[] = {
        { { .saved = "boi,patch_embedding,vision_gate_proj.0" },
          { "mixins.eva.boi", "mixins.eva.vit_model.mixins.patch_embedding.proj.weight",
            "mixins.mlp.vision_gate_proj.0.weight" } },
        /* as PEFT saves tables for a vocabulary that was resized */
        { { .saved = "transformer.word_embeddings.weight,lm_head", .unasked = true },
          { "transformer.word_embeddings.weight", "mixins.lm.lm_head.weight" } },
    };
    made m = { .seed = 6, .dtype = SHEAF_BF16 };
    made_init(&m);
    made_write(&m, at("base"), 2, 3);
    for (size_t n = 0; n < ARRAY_LEN(cases); n++) {
        const char *const *const saved = cases[n].saved;
        wish how = cases[n].how;
        how.targets = "sat";
        how.rank = 2;
        how.alpha = 1;
        how.dtype = SHEAF_F32;
        make_adapter(&m, &how, at("adapter"));
        sheaf_status_free(sheaf__remove_tree(at("lora")));
        CHECK_OK(convert(at("base"), at("adapter"), at("lora"), "sat", 2));
        sheaf_catalog *c = sat_read_at(at("lora"));
        want_defects(c, 0);
        for (size_t i = 0; i < 3 && saved[i] != NULL; i++) {
            const sheaf_logical *t = sheaf__catalog_find(c, saved[i]);
            size_t bytes;
            assert_true(t != NULL && t->entry.dtype == SHEAF_BF16);
            const char *peft = textf("base_model.model.%s", saved[i]);
            uint16_t *x = read_logical(c, t, &bytes);
            for (size_t k = 0; k < bytes / 2; k++) {
                uint32_t bits;
                value_of(&bits, &how, peft, (int64_t)k);
                assert_int_equal(x[k], bits >> 16);
            }
        }
        sheaf__catalog_free(c);
    }
    made_release(&m);
}

/* Two ways to one model: merge the adapter; or write it as SAT's LoRA, which is merged when
 * read. */
TEST(test_adapter__is_merged_to_the_same)
{
    static const wish hows[] = {
        { .targets = "sat-vit", .rank = 5, .alpha = 4, .dtype = SHEAF_F32 },
        { .targets = "sat",
          .saved = "boi,patch_embedding,attn.q_bias",
          .rank = 3,
          .alpha = 1,
          .dtype = SHEAF_F32 },
        /* factors on a weight that is trained as well */
        { .targets = "sat",
          .saved = "transformer.layers.0.cross_attention.key_value.weight",
          .rank = 3,
          .alpha = 1,
          .dtype = SHEAF_F32 },
    };
    for (size_t i = 0; i < ARRAY_LEN(hows); i++) {
        made m = { .agent = true, .seed = 30 + i };
        made_init(&m);
        static const char *const made_here[] = { "lora", "one", "two" };
        for (size_t k = 0; k < ARRAY_LEN(made_here); k++)
            sheaf_status_free(sheaf__remove_tree(at(made_here[k])));
        made_write(&m, at("base"), 2, 3);
        make_adapter(&m, &hows[i], at("adapter"));
        CHECK_OK(convert(at("base"), at("adapter"), at("lora"), "sat", 4));
        CHECK_OK(convert(at("lora"), NULL, at("one"), "sat", 1));
        const char *const adapters[] = { at("adapter") };
        sheaf_weights_merge_report report;
        CHECK_OK(sheaf_merge(&report, &(sheaf_weights_merge_options){ .base = at("base"),
                                                                      .adapters = adapters,
                                                                      .nadapters = 1,
                                                                      .dst = at("two") }));
        CHECK_OK(convert(at("two"), NULL, at("three"), "sat", 1));
        sheaf_source *one = as_source(sat_read_at(at("one")));
        equals(at("three"), one);
        one->close(one);
        sheaf_status_free(sheaf__remove_tree(at("three")));
        made_release(&m);
    }
}

static sheaf_status *merge_to_sat(const char *dst, int tp, sheaf_weights_merge_report *report)
{
    return sheaf_merge(
        report, &(sheaf_weights_merge_options){ .base = at("base"),
                                                .adapters = (const char *const[]){ at("adapter") },
                                                .nadapters = 1,
                                                .dst = dst,
                                                .to = "sat",
                                                .tp = tp,
                                                .threads = 2 });
}

/* Merged and divided at once: the files that the two commands make one after the other. Every call
 * that writes is once the one that fails: nothing of it stands, or all. */
TEST(test_adapter__is_merged_into_parts_in_one_pass)
{
    static const char *const here[] = { "two", "parts", "once" };
    const wish how = { .targets = "sat-vit", .rank = 2, .alpha = 1, .dtype = SHEAF_F32 };
    made m = { .agent = true, .seed = 41 };
    made_init(&m);
    made_write(&m, at("base"), 2, 3);
    make_adapter(&m, &how, at("adapter"));
    sheaf_weights_merge_report report;
    for (int tp = 1; tp <= 4; tp *= 2) {
        for (size_t k = 0; k < ARRAY_LEN(here); k++)
            sheaf_status_free(sheaf__remove_tree(at(here[k])));
        CHECK_OK(sheaf_merge(&report, &(sheaf_weights_merge_options){
                                          .base = at("base"),
                                          .adapters = (const char *const[]){ at("adapter") },
                                          .nadapters = 1,
                                          .dst = at("two") }));
        CHECK_OK(convert(at("two"), NULL, at("parts"), "sat", tp));
        CHECK_OK(merge_to_sat(at("once"), tp, &report));
        assert_true(report.rows_checked > 0 && report.products_checked > 0 && report.changed > 0);
        check_same_file(at("parts"), at("once"), "latest");
        check_same_file(at("parts"), at("once"), "model_config.json");
        for (int rank = 0; rank < tp; rank++)
            check_same_file(at("parts"), at("once"), textf("1/mp_rank_%02d_model_states.pt", rank));
    }
    int64_t seen = 1;
    for (int64_t n = 1; n <= seen; n += 1 + n / 8) {
        sheaf_faults faults = { .op = SHEAF_FAULT_ANY, .action = SHEAF_FAULT_ENOSPC, .n = n };
        sheaf_status_free(sheaf__remove_tree(at("full")));
        sheaf_status *st = UNDER(&faults, merge_to_sat(at("full/out"), 2, &report));
        seen = faults.seen >= n ? n + n / 8 + 1 : n;
        if (st == NULL || sheaf__path_kind(at("full/out")) !=
                              SHEAF_PATH_NONE) { /* a last sync that failed: it is whole */
            CHECK_OK(sheaf__remove_tree(at("whole")));
            CHECK_OK(convert(at("full/out"), NULL, at("whole"), "hf", 0));
        } else if (sheaf__path_kind(at("full")) != SHEAF_PATH_NONE) {
            assert_int_equal(entries(at("full")), 0);
        }
        sheaf_status_free(st);
    }
    made_release(&m);
}

TEST(test_adapter__what_sat_cannot_say_is_refused)
{
    static const struct {
        wish how;
        sheaf_code code;
        const char *part;
    } rows[] = {
        { { .targets = "sat", .rank = 3, .alpha = 3, .dtype = SHEAF_BF16 },
          SHEAF_E_UNSUPPORTED,
          "3 / 3" },
        { { .targets = "sat", .rank = 2, .alpha = 1, .rslora = true, .dtype = SHEAF_F16 },
          SHEAF_E_UNSUPPORTED,
          "a scale of 1 / r" },
        { { .targets = "all-linear", .rank = 2, .alpha = 1 },
          SHEAF_E_UNSUPPORTED,
          "no factors elsewhere" },
        { { .targets = "attention.dense,mixins.rotary.vision_dense_list.1", .rank = 2, .alpha = 1 },
          SHEAF_E_UNSUPPORTED,
          "vision_dense_list.1" },
        { { .targets = "sat", .ranks = "layers.1.attention.dense=4", .rank = 2, .alpha = 1 },
          SHEAF_E_UNSUPPORTED,
          "one rank for all layers" },
        { LIST(.targets = "sat", .dense = "transformer.layers.1.attention.query_key_value",
               .rank = 2, .alpha = 1),
          SHEAF_E_UNSUPPORTED, "mixes the parts" },
    };
    made m = { .seed = 7 };
    made_init(&m);
    made_write(&m, at("base"), 1, 3);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        wish how = rows[i].how;
        how.dtype = how.dtype == SHEAF_BF16 || how.dtype == SHEAF_F16 ? how.dtype : SHEAF_F32;
        make_adapter(&m, &how, at("adapter"));
        CHECK_FAILS(convert(at("base"), at("adapter"), at("refused"), "sat", 2), rows[i].code,
                    rows[i].part);
        assert_int_equal(sheaf__path_kind(at("refused")), SHEAF_PATH_NONE);
    }
    /* values near the end of float16, times 2^10 */
    wish how = { .targets = "sat", .rank = 2, .alpha = 0x1p20, .dtype = SHEAF_F16 };
    make_adapter(&m, &how, at("adapter"));
    CHECK_FAILS(convert(at("base"), at("adapter"), at("refused"), "sat", 2), SHEAF_E_NUMBER,
                "too large or too small");
    assert_int_equal(sheaf__path_kind(at("refused")), SHEAF_PATH_NONE);
    CHECK_FAILS(convert(at("base"), at("adapter"), at("refused"), "hf", 0), SHEAF_E_ARG,
                "sheaf merge");
    CHECK_FAILS(convert(at("base"), at("nothing"), at("refused"), "sat", 1), SHEAF_E_IO, "nothing");
    how.alpha = 1;
    make_adapter(&m, &how, at("adapter"));
    FILE *file =
        fopen(at("adapter/adapter_model.safetensors"), "r+b"); /* its last number becomes NaN */
    assert_true(file != NULL && fseek(file, -2, SEEK_END) == 0 &&
                fwrite("\x01\x7c", 1, 2, file) == 2 && fclose(file) == 0);
    CHECK_FAILS(convert(at("base"), at("adapter"), at("refused"), "sat", 2), SHEAF_E_NUMBER,
                "finite numbers | Inf or NaN");
    assert_int_equal(sheaf__path_kind(at("refused")), SHEAF_PATH_NONE);
    make_adapter(&m, &how, at("adapter"));
    CHECK_FAILS(convert(at("base"), at("adapter"), at("refused"), "sat", 3), SHEAF_E_ARG,
                "model-parallel size");
    made_release(&m);
}

FIXTURE(make_scratch, remove_scratch);
