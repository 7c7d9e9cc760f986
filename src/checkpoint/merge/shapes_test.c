/* shapes_test.c - shapes, orientations and ties that no recording has, against sums written out
 * here; and the ways to stop a merge. */
#include "tests/lora_product.h"
#include "tests/made_adapters.h"

#include <time.h>

#include "base/json.h"
#include "checkpoint/merge/plan.h"

/* ---- every orientation, over several panels of columns ---- */

typedef struct module {
    int64_t out, in, rank;
    bool across;
} module;

/* W + s B A by its definition. */
static void change(float *w, const module *m, const thing *a, const thing *b, float scale)
{
    float *fa = values(a, scale_of(a->name)), *fb = values(b, scale_of(b->name));
    for (int64_t o = 0; o < m->out; o++) {
        for (int64_t i = 0; i < m->in; i++) {
            float sum = 0, *at = m->across ? &w[i * m->out + o] : &w[o * m->in + i];
            for (int64_t k = 0; k < m->rank; k++)
                sum = fmaf(fb[o * m->rank + k], fa[k * m->in + i], sum);
            const float part = sum * scale;
            *at += part;
        }
    }
}

enum { WIDE = 66001 };
static const thing base_things[] = {
    { "wide.weight", SHEAF_BF16, 2, { 3, WIDE } },
    { "tall.weight", SHEAF_F16, 2, { WIDE, 3 } },
    { "kernel.weight", SHEAF_F32, 4, { 6, 5, 3, 2 } },
    { "long.weight", SHEAF_BF16, 3, { 2, 22003, 3 } },
    { "turned.weight", SHEAF_F32, 2, { 4, WIDE } },
    { "table.weight", SHEAF_BF16, 2, { 300, 24 } },
    { "scalar", SHEAF_F32, 0, { 0 } },
    { "ids", SHEAF_I64, 1, { 70000 } },
    { "none", SHEAF_F32, 2, { 0, 4 } },
    { "five", SHEAF_F16, 5, { 2, 3, 1, 2, 4 } },
    { "empty", SHEAF_BF16, 3, { 2, 3, 0 } },
    { "longs", SHEAF_I64, 2, { 3, 70000 } },
    { "mask", SHEAF_I64, 3, { 1, 2, 70000 } },
    { "turned.bias", SHEAF_F32, 1, { WIDE } },
};
static const thing adapter_things[] = {
    { P "wide.lora_A.weight", SHEAF_F32, 2, { 5, WIDE } },
    { P "wide.lora_B.weight", SHEAF_BF16, 2, { 3, 5 } },
    { P "tall.lora_A.weight", SHEAF_F16, 2, { 5, 3 } },
    { P "tall.lora_B.weight", SHEAF_F32, 2, { WIDE, 5 } },
    { P "kernel.lora_A.weight", SHEAF_F32, 4, { 5, 5, 3, 2 } },
    { P "kernel.lora_B.weight", SHEAF_F32, 4, { 6, 5, 1, 1 } },
    { P "long.lora_A.weight", SHEAF_F32, 3, { 5, 22003, 3 } },
    { P "long.lora_B.weight", SHEAF_F32, 3, { 2, 5, 1 } },
    { P "turned.lora_A.weight", SHEAF_F32, 2, { 5, 4 } },
    { P "turned.lora_B.weight", SHEAF_F32, 2, { WIDE, 5 } },
    { P "table.lora_embedding_A", SHEAF_F32, 2, { 5, 300 } },
    { P "table.lora_embedding_B", SHEAF_F32, 2, { 24, 5 } },
};
static const module modules[] = {
    { 3, WIDE, 5, false },  { WIDE, 3, 5, false }, { 6, 30, 5, false },
    { 2, 66009, 5, false }, { WIDE, 4, 5, true },  { 24, 300, 5, true },
};
static const char config[] =
    "{\"peft_type\": \"LORA\", \"r\": 5, \"lora_alpha\": 7, \"target_modules\": "
    "[\"wide\", \"tall\", \"kernel\", \"long\", \"turned\", \"table\"]}";

static void base_values(float *x, const thing *t)
{
    void *stored = room((size_t)volume(t) * 4);
    float *plain = values(t, 1);
    sheaf__kernels_for("ref")->convert(stored, t->dtype, plain, SHEAF_F32, volume(t));
    sheaf__kernels_for("ref")->convert(x, SHEAF_F32, stored, t->dtype, volume(t));
}

TEST(test_merge__any_shape_and_orientation)
{
    write_base(NULL, base_things, ARRAY_LEN(base_things));
    write_adapter(at("adapter"), config, adapter_things, ARRAY_LEN(adapter_things));
    sheaf_weights_merge_report report;
    CHECK_OK(merge(at("base"), at("adapter"), NULL, SHEAF_MERGE_ROUND_ONCE, &report));
    assert_int_equal(report.adapted, 6);
    assert_true(report.worst_product > 0 && report.worst_product < 8);
    assert_int_equal(report.products_checked, 3 + WIDE + 6 + 2 + 4 + 300);
    for (size_t i = 0; i < ARRAY_LEN(modules); i++) {
        const thing *t = &base_things[i], *a = &adapter_things[2 * i],
                    *b = &adapter_things[2 * i + 1];
        float *want = room((size_t)volume(t) * 4), *got = result(at("out"), t->name, NULL);
        base_values(want, t);
        if (a->dtype == SHEAF_F32 &&
            b->dtype == SHEAF_F32) { /* halves of A and B would be rounded first */
            change(want, &modules[i], a, b, (float)(7.0 / 5.0));
            void *stored = room((size_t)volume(t) * 4);
            sheaf__kernels_for("ref")->convert(stored, t->dtype, want, SHEAF_F32, volume(t));
            sheaf__kernels_for("ref")->convert(want, SHEAF_F32, stored, t->dtype, volume(t));
            CHECK_BYTES(t->name, got, want, volume(t) * 4);
        }
    }
    for (size_t i = 6; i < ARRAY_LEN(base_things); i++) { /* the copied ones */
        sheaf_source *x, *y;
        const thing *t = &base_things[i];
        CHECK_OK(open_stored(&x, at("base")));
        CHECK_OK(open_stored(&y, at("out")));
        const int64_t cols = t->ndim > 1 ? t->shape[t->ndim - 1] : 1,
                      rows = cols == 0 ? 0 : volume(t) / cols;
        char *p = room((size_t)volume(t) * 8), *q = room((size_t)volume(t) * 8);
        CHECK_OK(x->read(x, t->name, 0, rows, 0, cols, p));
        CHECK_OK(y->read(y, t->name, 0, rows, 0, cols, q));
        CHECK_BYTES(t->name, q, p, volume(t) * (int64_t)sheaf_dtype_bytes(t->dtype));
        x->close(x);
        y->close(y);
    }
}

/* DoRA over several panels, by rows and by columns: each output has the magnitude it was given. */
TEST(test_merge__magnitudes_are_the_norms)
{
    static const thing things[] = {
        { P "turned.lora_A.weight", SHEAF_F32, 2, { 5, 4 } },
        { P "turned.lora_B.weight", SHEAF_F32, 2, { WIDE, 5 } },
        { P "turned.lora_magnitude_vector", SHEAF_F32, 1, { WIDE } },
        { P "long.lora_A.weight", SHEAF_F32, 3, { 5, 22003, 3 } },
        { P "long.lora_B.weight", SHEAF_F32, 3, { 2, 5, 1 } },
        { P "long.lora_magnitude_vector", SHEAF_F32, 3, { 1, 2, 1 } },
        { P "table.lora_embedding_A", SHEAF_F32, 2, { 5, 300 } },
        { P "table.lora_embedding_B", SHEAF_F32, 2, { 24, 5 } },
        { P "table.lora_magnitude_vector", SHEAF_F32, 1, { 24 } },
    };
    static const struct {
        const char *name;
        int64_t out, in;
        bool across;
        int magnitude;
        double close;
    } by[] = {
        { "turned.weight", WIDE, 4, true, 2, 1e-5 },
        { "long.weight", 2, 66009, false, 5, 1e-3 },
        { "table.weight", 24, 300, true, 8, 1e-3 },
    };
    write_base(NULL, base_things, ARRAY_LEN(base_things));
    write_adapter(
        at("dora"),
        "{\"peft_type\": \"LORA\", \"r\": 5, \"lora_alpha\": 7, \"use_dora\": true, \"target_modules\": "
        "[\"turned\", \"long\", \"table\"]}",
        things, ARRAY_LEN(things));
    sheaf_weights_merge_report report;
    CHECK_OK(merge(at("base"), at("dora"), NULL, SHEAF_MERGE_ROUND_ONCE, &report));
    assert_true(report.worst_product > 0 && report.worst_product < 8);
    for (size_t i = 0; i < ARRAY_LEN(by); i++) {
        float *w = result(at("out"), by[i].name, NULL), *m = values(&things[by[i].magnitude], 0.2f);
        for (int64_t o = 0; o < by[i].out; o++) {
            double squares = 0;
            for (int64_t k = 0; k < by[i].in; k++) {
                const double x =
                    (double)(by[i].across ? w[k * by[i].out + o] : w[o * by[i].in + k]);
                squares += x * x;
            }
            CHECK_NEAR(by[i].name, sqrt(squares), fabs((double)m[o]),
                       by[i].close * fabs((double)m[o]));
        }
    }
    /* in turn after plain LoRA, in every mode: the checks that run along pass */
    write_adapter(at("adapter"), config, adapter_things, ARRAY_LEN(adapter_things));
    for (int mode = SHEAF_MERGE_ROUND_ONCE; mode <= SHEAF_MERGE_LIKE_PEFT_SAFE; mode++) {
        CHECK_OK(merge(at("base"), at("adapter"), at("dora"), mode, &report));
        assert_true(report.worst_product > 0 && report.worst_product < 8);
        CHECK_OK(merge(at("base"), at("dora"), at("adapter"), mode, &report));
        assert_true(report.worst_product < 8);
    }
}

/* Two adapters in turn: one rounding at the end, or with PEFT's bits one after each. */
TEST(test_merge__in_turn_rounds_once_unless_asked)
{
    static const thing base[] = { { "x.weight", SHEAF_BF16, 2, { 40, 30 } } };
    static const thing first[] = { { P "x.lora_A.weight", SHEAF_F32, 2, { 2, 30 } },
                                   { P "x.lora_B.weight", SHEAF_F32, 2, { 40, 2 } } };
    static const char text[] =
        "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"target_modules\": [\"x\"]}";
    const module m = { 40, 30, 2, false };
    write_base(NULL, base, 1);
    write_adapter(at("one"), text, first, 2);
    sheaf_weights_merge_report report;
    for (int mode = SHEAF_MERGE_ROUND_ONCE; mode <= SHEAF_MERGE_LIKE_PEFT; mode++) {
        CHECK_OK(merge(at("base"), at("one"), at("one"), mode, &report));
        float want[1200], *got = result(at("out"), "x.weight", NULL);
        uint16_t half[1200];
        base_values(want, base);
        for (int i = 0; i < 2; i++) {
            change(want, &m, &first[0], &first[1], 1.5f);
            if (i == 1 || mode == SHEAF_MERGE_LIKE_PEFT) {
                sheaf__kernels_for("ref")->convert(half, SHEAF_BF16, want, SHEAF_F32, 1200);
                sheaf__kernels_for("ref")->convert(want, SHEAF_F32, half, SHEAF_BF16, 1200);
            }
        }
        CHECK_BYTES("in turn", got, want, sizeof want);
    }
}

/* Convolutions and tables combine like linear layers; merging the file that is written gives the
 * same bits. */
TEST(test_combine__of_every_kind_of_module)
{
    static const thing more[] = {
        /* another rank, and not all modules */
        { P "kernel.lora_A.weight", SHEAF_BF16, 4, { 3, 5, 3, 2 } },
        { P "kernel.lora_B.weight", SHEAF_F32, 4, { 6, 3, 1, 1 } },
        { P "table.lora_embedding_A", SHEAF_F32, 2, { 3, 300 } },
        { P "table.lora_embedding_B", SHEAF_F32, 2, { 24, 3 } },
    };
    const double weights[] = { 1.5, -0.25 };
    write_base(NULL, base_things, ARRAY_LEN(base_things));
    write_adapter(at("one"), config, adapter_things, ARRAY_LEN(adapter_things));
    write_adapter(
        at("two"),
        "{\"peft_type\": \"LORA\", \"r\": 3, \"lora_alpha\": 7, \"target_modules\": [\"kernel\", \"table\"]}",
        more, 4);
    sheaf_weights_merge_options how = { .base = at("base"),
                                        .adapters = (const char *const[]){ at("one"), at("two") },
                                        .nadapters = 2,
                                        .dst = at("whole"),
                                        .combine = "cat",
                                        .weights = weights,
                                        .threads = 2 };
    sheaf_weights_merge_report report;
    CHECK_OK(sheaf__remove_tree(at("whole")));
    CHECK_OK(sheaf__remove_tree(at("mixed")));
    CHECK_OK(sheaf_merge(&report, &how));
    how.dst = at("mixed");
    CHECK_OK(sheaf_merge_adapters(&how));
    CHECK_OK(merge(at("base"), at("mixed"), NULL, SHEAF_MERGE_ROUND_ONCE, &report));
    for (size_t i = 0; i < 6; i++) {
        float *x = result(at("whole"), base_things[i].name, NULL),
              *y = result(at("out"), base_things[i].name, NULL);
        CHECK_BYTES(base_things[i].name, x, y, volume(&base_things[i]) * 4);
    }
    /* and it is w1 s1 B1 A1 + w2 s2 B2 A2 */
    float want[180], *got = result(at("whole"), "kernel.weight", NULL), *a = values(&more[0], 0.2f);
    const module first = { 6, 30, 5, false };
    base_values(want, &base_things[2]);
    change(want, &first, &adapter_things[4], &adapter_things[5], 1.5f * 1.4f);
    float *b = values(&more[1], 0.2f);
    for (int o = 0; o < 6; o++)
        for (int i = 0; i < 30; i++)
            for (int k = 0; k < 3; k++)
                want[o * 30 + i] += -0.25f * (float)(7.0 / 3.0) * b[o * 3 + k] * a[k * 30 + i];
    for (int i = 0; i < 180; i++) /* the second A is rounded to bfloat16 in its file */
        CHECK_NEAR("kernel", got[i], want[i], 5e-3);
    how.combine = "linear";
    how.dst = at("no");
    CHECK_FAILS(sheaf_merge(&report, &how), SHEAF_E_LAYOUT, "one rank in all adapters");
}

/* ---- square weights ---- */

static const thing gpt_things[] = { { "h.attn.c_proj.weight", SHEAF_F32, 2, { 6, 6 } },
                                    { "h.mlp.c_proj.weight", SHEAF_F32, 2, { 24, 6 } },
                                    { "h.q.weight", SHEAF_F32, 2, { 6, 6 } } };
static const thing gpt_adapter[] = {
    { P "h.attn.c_proj.lora_A.weight", SHEAF_F32, 2, { 2, 6 } },
    { P "h.attn.c_proj.lora_B.weight", SHEAF_F32, 2, { 6, 2 } },
    { P "h.mlp.c_proj.lora_A.weight", SHEAF_F32, 2, { 2, 24 } },
    { P "h.mlp.c_proj.lora_B.weight", SHEAF_F32, 2, { 6, 2 } },
    { P "h.q.lora_A.weight", SHEAF_F32, 2, { 2, 6 } },
    { P "h.q.lora_B.weight", SHEAF_F32, 2, { 6, 2 } },
};

/* config.json, the flag, how many tensors of the adapter: is attn.c_proj turned, is q? */
static const struct {
    const char *config;
    bool flag;
    int things;
    bool proj, q;
} square[] = {
    { "{\"model_type\": \"gpt2\"}", false, 6, true,
      false }, /* mlp.c_proj decides; no model has q as a Conv1D */
    { "{\"model_type\": \"odd\"}", false, 6, true, false },
    { "{\"model_type\": \"gpt2\"}", false, 2, true, false }, /* the kind of model tells */
    { "{\"model_type\": \"llama4\"}", true, 2, false,
      false }, /* PEFT drops the flag on linear layers */
    { NULL, true, 2, true, false },
    { NULL, false, 2, false, false },
};

TEST(test_merge__square_weights_lie_as_their_like_do)
{
    for (size_t i = 0; i < ARRAY_LEN(square); i++) {
        const char *text = textf(
            "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"fan_in_fan_out\": %s, \"target_modules\": "
            "\".*(attn.c_proj%s)\"}",
            square[i].flag ? "true" : "false", square[i].things > 2 ? "|mlp.c_proj|q" : "");
        write_base(square[i].config, gpt_things, 3);
        write_adapter(at("one"), text, gpt_adapter, square[i].things);
        CHECK_OK(merge_one(NULL));
        for (int k = 0; k < (square[i].things > 2 ? 2 : 1); k++) {
            const thing *t = &gpt_things[k == 0 ? 0 : 2], *a = &gpt_adapter[k == 0 ? 0 : 4];
            const module m = { 6, 6, 2, k == 0 ? square[i].proj : square[i].q };
            float want[36], *got = result(at("out"), t->name, NULL);
            base_values(want, t);
            change(want, &m, a, a + 1, 1.5f);
            CHECK_BYTES(t->name, got, want, sizeof want);
        }
    }
}

/* ---- many modules ---- */

/* Experts of n numbers of square weights, and an adapter of all of them: what a merge takes of the
 * processor. */
static double seconds_of(int64_t n)
{
    sheaf_safetensors_spec *spec = room((size_t)n * 3 * sizeof *spec);
    static const int64_t shapes[3][2] = { { 2, 2 }, { 1, 2 }, { 2, 1 } };
    static const char *const ends[] = { "weight", "lora_A.weight", "lora_B.weight" };
    static const char *const files[] = { "base/model.safetensors",
                                         "one/adapter_model.safetensors" };
    sheaf_weights_merge_report report;
    for (int64_t i = 0; i < n; i++)
        for (int k = 0; k < 3; k++) {
            const int64_t at = k == 0 ? i : n + 2 * i + k - 1;
            spec[at] = (sheaf_safetensors_spec){ textf("%slayers.%d.e.%d.proj.%s", k == 0 ? "" : P,
                                                       (int)(i / 128), (int)(i % 128), ends[k]),
                                                 SHEAF_F32,
                                                 2,
                                                 { shapes[k][0], shapes[k][1] } };
        }
    for (int f = 0; f < 2; f++) {
        sheaf_safetensors_writer *w = NULL;
        const sheaf_safetensors_spec *of = f == 0 ? spec : spec + n;
        const int64_t count = f == 0 ? n : 2 * n;
        static const float ones[4] = { 1, 1, 1, 1 };
        write_folder(at(f == 0 ? "base" : "one"), "x",
                     f == 0 ? "config.json" : "adapter_config.json",
                     f == 0 ? "{\"model_type\": \"odd\"}"
                            : "{\"peft_type\": \"LORA\", \"r\": 1, \"target_modules\": [\"proj\"]}",
                     NULL, 0);
        CHECK_OK(sheaf__safetensors_begin(&w, at(files[f]), of, count, NULL, 0));
        for (int64_t i = 0; i < count; i++)
            CHECK_OK(sheaf__safetensors_write(w, i, 0, ones, of[i].shape[0] * of[i].shape[1] * 4));
        CHECK_OK(sheaf__safetensors_finish(w));
    }
    const clock_t began = clock();
    CHECK_OK(merge_one(&report));
    assert_int_equal(report.adapted, n);
    return (double)(clock() - began) / CLOCKS_PER_SEC;
}

/* 8 times as many take about 8 times as long; 40 times where each is looked for among all. */
TEST(test_merge__work_grows_with_the_modules)
{
    const double few = seconds_of(3000), many = seconds_of(24000);
    print_message("%g s, %g s\n", few, many);
    assert_true(many < 20 * few);
}

/* ---- names that begin otherwise ---- */

static const struct {
    const char *base, *a, *b;
    bool fits;
} begins[] = {
    { "h.0.x.weight", P "transformer.h.0.x.lora_A.weight", P "transformer.h.0.x.lora_B.weight",
      true },
    { "model.h.0.x.weight", P "h.0.x.lora_A.weight", P "h.0.x.lora_B.weight", true },
    { "model.h.0.x.weight", P "model.h.0.x.lora_A.weight", P "model.h.0.x.lora_B.weight", true },
    { "model.h.0.x.weight", P "other.h.0.x.lora_A.weight", P "other.h.0.x.lora_B.weight", false },
    { "h.0.x.weight", P "transformer.h.1.x.lora_A.weight", P "transformer.h.1.x.lora_B.weight",
      false },
};

TEST(test_merge__a_prefix_that_explains_all_names)
{
    for (size_t i = 0; i < ARRAY_LEN(begins); i++) {
        const thing base[] = { { begins[i].base, SHEAF_F32, 2, { 4, 3 } } };
        const thing adapter[] = { { begins[i].a, SHEAF_F32, 2, { 2, 3 } },
                                  { begins[i].b, SHEAF_F32, 2, { 4, 2 } } };
        const module m = { 4, 3, 2, false };
        write_base(NULL, base, 1);
        write_adapter(
            at("one"),
            "{\"peft_type\": \"LORA\", \"r\": 2, \"lora_alpha\": 3, \"target_modules\": [\"x\"]}",
            adapter, 2);
        if (!begins[i].fits) {
            CHECK_FAILS(merge_one(NULL), SHEAF_E_LAYOUT, begins[i].b);
            continue;
        }
        CHECK_OK(merge_one(NULL));
        float want[12], *got = result(at("out"), begins[i].base, NULL);
        base_values(want, base);
        change(want, &m, &adapter[0], &adapter[1], 1.5f);
        CHECK_BYTES(begins[i].base, got, want, sizeof want);
    }
}

/* ---- tied tables ---- */

static const thing tied_things[] = { { "model.embed_tokens.weight", SHEAF_F32, 2, { 10, 4 } },
                                     { "model.x.weight", SHEAF_F32, 2, { 4, 4 } } };
static const char tied_config[] =
    "{\"model_type\": \"odd\", \"architectures\": [\"LlamaForCausalLM\"], \"tie_word_embeddings\": true, \"vocab_size\": 10}";

static bool tie_of(const char *dir, int64_t *vocab)
{
    json_t *object = NULL;
    CHECK_OK(sheaf__json_load(&object, textf("%s/config.json", dir)));
    const bool tied = json_is_true(json_object_get(object, "tie_word_embeddings"));
    *vocab = json_integer_value(json_object_get(object, "vocab_size"));
    json_decref(object);
    return tied;
}

#define EMBED P "model.embed_tokens"
#define HEAD P "lm_head"
/* The use that differs from the base afterwards. */
static const struct {
    const char *name, *config;
    thing things[4];
    int n;
    bool tied, embed, head;
    int64_t rows;
} ties[] = {
    { "LoRA on the head alone", LORA "\"target_modules\": [\"lm_head\"]}",
      LIST({ HEAD ".lora_A.weight", SHEAF_F32, 2, { 2, 4 } },
           { HEAD ".lora_B.weight", SHEAF_F32, 2, { 10, 2 } }),
      2, false, false, true, 10 },
    { "LoRA on the table alone", LORA "\"target_modules\": [\"embed_tokens\"]}",
      LIST({ EMBED ".lora_embedding_A", SHEAF_F32, 2, { 2, 10 } },
           { EMBED ".lora_embedding_B", SHEAF_F32, 2, { 4, 2 } }),
      2, false, true, false, 10 },
    { "the same, and the tie is kept",
      LORA "\"ensure_weight_tying\": true, \"target_modules\": [\"embed_tokens\"]}",
      LIST({ EMBED ".lora_embedding_A", SHEAF_F32, 2, { 2, 10 } },
           { EMBED ".lora_embedding_B", SHEAF_F32, 2, { 4, 2 } }),
      2, true, true, true, 10 },
    { "trained rows belong to both",
      LORA "\"target_modules\": [], \"trainable_token_indices\": {\"embed_tokens\": [7, 2]}}",
      LIST({ EMBED ".token_adapter.trainable_tokens_delta", SHEAF_F32, 2, { 2, 4 } }), 1, true,
      true, true, 10 },
    { "a table with more rows, one trained use",
      LORA "\"target_modules\": [], \"modules_to_save\": [\"embed_tokens\", \"lm_head\"]}",
      LIST({ EMBED ".weight", SHEAF_F32, 2, { 12, 4 } },
           { HEAD ".weight", SHEAF_F32, 2, { 12, 4 } }),
      2, false, true, true, 12 },
    { "PEFT's copies of a vocabulary that grew, which the config does not name",
      LORA "\"target_modules\": [\"x\"]}",
      LIST({ P "model.x.lora_A.weight", SHEAF_F32, 2, { 2, 4 } },
           { P "model.x.lora_B.weight", SHEAF_F32, 2, { 4, 2 } },
           { EMBED ".weight", SHEAF_F32, 2, { 12, 4 } },
           { HEAD ".weight", SHEAF_F32, 2, { 12, 4 } }),
      4, false, true, true, 12 },
    { "such a copy of the table alone, of one that did not grow",
      LORA "\"target_modules\": [\"x\"]}",
      LIST({ P "model.x.lora_A.weight", SHEAF_F32, 2, { 2, 4 } },
           { P "model.x.lora_B.weight", SHEAF_F32, 2, { 4, 2 } },
           { EMBED ".weight", SHEAF_F32, 2, { 10, 4 } }),
      3, true, true, true, 10 },
    { "trained rows of a vocabulary that grew, all of them new",
      LORA "\"target_modules\": [], \"trainable_token_indices\": [11, 2, 10]}",
      LIST({ EMBED ".token_adapter.trainable_tokens_delta", SHEAF_F32, 2, { 3, 4 } }), 1, true,
      true, true, 12 },
    { "and PEFT's copies, of which not all were trained",
      LORA "\"target_modules\": [], \"trainable_token_indices\": [2, 12]}",
      LIST({ EMBED ".token_adapter.base_layer.weight", SHEAF_F32, 2, { 13, 4 } },
           { EMBED ".token_adapter.trainable_tokens_delta", SHEAF_F32, 2, { 2, 4 } }),
      2, true, true, true, 13 },
    { "PEFT's copy with more rows", LORA "\"target_modules\": [\"embed_tokens\"]}",
      LIST({ EMBED ".lora_embedding_A", SHEAF_F32, 2, { 2, 12 } },
           { EMBED ".lora_embedding_B", SHEAF_F32, 2, { 4, 2 } },
           { EMBED ".base_layer.weight", SHEAF_F32, 2, { 12, 4 } }),
      3, false, true, true, 12 },
};

/* As PEFT 0.21 merges it where the base was resized by hand: the base's rows, and the adapter's in
 * their places. A row that is nowhere is not made up. */
TEST(test_merge__new_tokens_get_their_rows)
{
    const thing base[] = { { "model.embed_tokens.weight", SHEAF_F32, 2, { 3, 2 } } },
                rows = { EMBED ".token_adapter.trainable_tokens_delta", SHEAF_F32, 2, { 2, 2 } };
    int64_t n;
    write_base(tied_config, base, 1);
    write_adapter(at("one"), LORA "\"target_modules\": [], \"trainable_token_indices\": [3, 1]}",
                  &rows, 1);
    CHECK_OK(merge_one(NULL));
    float *was = values(&base[0], 1), *delta = values(&rows, 1),
          *is = result(at("out"), "model.embed_tokens.weight", &n);
    const float want[8] = {
        was[0], was[1], delta[2], delta[3], was[4], was[5], delta[0], delta[1]
    };
    assert_int_equal(n, 4);
    CHECK_BYTES("rows", is, want, sizeof want);
    write_adapter(at("one"), LORA "\"target_modules\": [], \"trainable_token_indices\": [4, 1]}",
                  &rows, 1);
    CHECK_FAILS(merge_one(NULL), SHEAF_E_LAYOUT,
                "different rows below 3, the rows of 'model.embed_tokens.weight' | 4");
}

/* A full copy that float16 cannot hold, over a base that is finite there or infinite. */
TEST(test_merge__a_copy_beyond_float16_is_refused)
{
    for (int of_base = 0; of_base < 2; of_base++)
        for (int of_copy = 0; of_copy < 2; of_copy++) {
            const thing
                base[] = { tied_things[0],
                           { "model.x.weight", SHEAF_F16, 2, { 4, 4 }, of_base ? INFINITY : 1 } },
                copy = { P "model.x.weight", SHEAF_F32, 2, { 4, 4 }, of_copy ? 65520 : 65504 };
            write_base(tied_config, base, 2);
            write_adapter(at("one"), LORA "\"target_modules\": [], \"modules_to_save\": [\"x\"]}",
                          &copy, 1);
            sheaf_status *st = merge_one(NULL);
            if (of_copy)
                CHECK_FAILS(st, SHEAF_E_NUMBER,
                            "'model.x.weight', row 0, column 1 | a finite float16 after");
            else
                CHECK_OK(st);
        }
}

TEST(test_merge__tied_tables_by_name)
{
    float base[40];
    base_values(base, &tied_things[0]);
    for (size_t i = 0; i < ARRAY_LEN(ties); i++)
        for (int mode = SHEAF_MERGE_ROUND_ONCE; mode <= SHEAF_MERGE_LIKE_PEFT_SAFE; mode++) {
            print_message("%s\n", ties[i].name);
            write_base(tied_config, tied_things, 2);
            write_adapter(at("one"), ties[i].config, ties[i].things, ties[i].n);
            sheaf_weights_merge_report report;
            CHECK_OK(merge(at("base"), at("one"), NULL, mode, &report));
            int64_t vocab, rows = 0, head_rows = 0;
            assert_int_equal(tie_of(at("out"), &vocab), ties[i].tied);
            assert_int_equal(report.untied, !ties[i].tied);
            const float *embed = result(at("out"), "model.embed_tokens.weight", &rows),
                        *head = result(at("out"), "lm_head.weight", &head_rows);
            assert_true((head == NULL) == ties[i].tied);
            assert_true(rows == ties[i].rows && vocab == ties[i].rows &&
                        (head == NULL || head_rows == rows));
            assert_int_equal(memcmp(embed, base, sizeof base) != 0, ties[i].embed);
            if (head != NULL)
                assert_int_equal(memcmp(head, base, sizeof base) != 0, ties[i].head);
        }
}

/* Whether two uses come out equal is looked at before anything is written; a table that DoRA
 * changes has the bytes that it has where the head stays as it was. */
TEST(test_merge__dora_of_both_uses)
{
    static const thing things[] = { { EMBED ".lora_embedding_A", SHEAF_F32, 2, { 2, 10 } },
                                    { EMBED ".lora_embedding_B", SHEAF_F32, 2, { 4, 2 } },
                                    { EMBED ".lora_magnitude_vector", SHEAF_F32, 1, { 4 } },
                                    { HEAD ".lora_A.weight", SHEAF_F32, 2, { 2, 4 } },
                                    { HEAD ".lora_B.weight", SHEAF_F32, 2, { 10, 2 } },
                                    { HEAD ".lora_magnitude_vector", SHEAF_F32, 1, { 10 } } };
    write_base(tied_config, tied_things, 2);
    for (int mode = SHEAF_MERGE_ROUND_ONCE; mode <= SHEAF_MERGE_LIKE_PEFT_SAFE; mode++) {
        float *one[2], *both[2];
        sheaf_weights_merge_report report;
        for (int uses = 1; uses <= 2; uses++) {
            write_adapter(
                at("one"),
                uses == 1 ? LORA "\"use_dora\": true, \"target_modules\": [\"embed_tokens\"]}"
                          : LORA
                    "\"use_dora\": true, \"target_modules\": [\"embed_tokens\", \"lm_head\"]}",
                things, 3 * uses);
            CHECK_OK(merge(at("base"), at("one"), NULL, mode, &report));
            (uses == 1 ? one : both)[0] = result(at("out"), "model.embed_tokens.weight", NULL);
        }
        both[1] = result(at("out"), "lm_head.weight", NULL);
        write_adapter(at("one"), LORA "\"use_dora\": true, \"target_modules\": [\"lm_head\"]}",
                      things + 3, 3);
        CHECK_OK(merge(at("base"), at("one"), NULL, mode, &report));
        one[1] = result(at("out"), "lm_head.weight", NULL);
        for (int i = 0; i < 2; i++)
            assert_memory_equal(both[i], one[i], 40 * 4);
    }
}

/* ---- refusals ---- */

static const struct {
    const char *config;
    sheaf_code code;
    const char *part;
} refused[] = {
    { "{\"peft_type\": \"ADALORA\"}", SHEAF_E_UNSUPPORTED, "ADALORA" },
    { LORA "\"layer_replication\": [[0, 2]]}", SHEAF_E_UNSUPPORTED, "layer replication" },
    { LORA "\"target_parameters\": [\"experts.w\"]}", SHEAF_E_UNSUPPORTED,
      "LoRA on bare parameters" },
    { LORA "\"use_qalora\": true}", SHEAF_E_UNSUPPORTED, "QA-LoRA" },
    { LORA "\"arrow_config\": {\"top_k\": 2}}", SHEAF_E_UNSUPPORTED, "Arrow" },
    { LORA "\"use_bdlora\": {\"nblocks\": 2}}", SHEAF_E_UNSUPPORTED, "BD-LoRA" },
    { LORA "\"alora_invocation_tokens\": [1]}", SHEAF_E_UNSUPPORTED, "activated LoRA" },
    { LORA "\"use_tomorrow\": true}", SHEAF_E_UNSUPPORTED, "use_tomorrow" },
    { LORA "\"newer_config\": {\"a\": 1}}", SHEAF_E_UNSUPPORTED, "newer_config" },
    { LORA "\"init_lora_weights\": \"pissa_niter_16\"}", SHEAF_E_UNSUPPORTED, "init_lora_weights" },
    { LORA "\"use_dora\": true, \"target_modules\": [\"x\"]}", SHEAF_E_LAYOUT,
      "x.lora_magnitude_vector" },
    { LORA "\"target_modules\": [\"y\"]}", SHEAF_E_LAYOUT, "x.lora_A.weight" },
    { LORA "\"target_modules\": [\"x\", \"z\"]}", SHEAF_E_LAYOUT,
      "'base_model.model.z.lora_A.weight'" },
    { LORA "\"target_modules\": [\"x\"], \"trainable_token_indices\": [-1]}", SHEAF_E_FORMAT,
      "trainable_token_indices" },
};

TEST(test_merge__what_is_not_known_is_named)
{
    static const thing base[] = { { "x.weight", SHEAF_F32, 2, { 4, 3 } },
                                  { "z.weight", SHEAF_F32, 2, { 4, 3 } },
                                  { "q.weight", SHEAF_I8, 2, { 4, 3 } } };
    static const thing adapter[] = { { P "x.lora_A.weight", SHEAF_F32, 2, { 2, 3 } },
                                     { P "x.lora_B.weight", SHEAF_F32, 2, { 4, 2 } } };
    write_base(NULL, base, 2);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        write_adapter(at("one"), refused[i].config, adapter, 2);
        CHECK_FAILS(merge_one(NULL), refused[i].code, refused[i].part);
        assert_int_equal(sheaf__path_kind(at("out")), SHEAF_PATH_NONE);
    }
    static const char *const ways[] = { "svd", "ties", "dare_linear", "magnitude_prune" };
    sheaf_combine how;
    for (size_t i = 0; i < ARRAY_LEN(ways); i++)
        CHECK_FAILS(sheaf_combine_parse(&how, ways[i]), SHEAF_E_UNSUPPORTED,
                    "add_weighted_adapter");
    CHECK_FAILS(sheaf_combine_parse(&how, "lineer"), SHEAF_E_ARG, "linear or cat");
}

/* ---- stopping, and a wrong result ---- */

TEST(test_merge__a_stop_leaves_nothing)
{
    write_base(NULL, base_things, ARRAY_LEN(base_things));
    write_adapter(at("adapter"), config, adapter_things, ARRAY_LEN(adapter_things));
    CHECK_OK(sheaf__remove_tree(at("dir")));
    assert_int_equal(mkdir(at("dir"), 0755), 0);
    sheaf_weights_merge_report report;
    sheaf_control stop = { .stop = 15 };
    CHECK_FAILS(sheaf_merge(&report,
                            &(sheaf_weights_merge_options){
                                .base = at("base"),
                                .adapters = (const char *const[]){ at("adapter") },
                                .nadapters = 1,
                                .dst = at("dir/out"),
                                .control = &stop }),
                SHEAF_E_STOPPED, "nothing was left behind");
    assert_int_equal(entries(at("dir")), 0);
}

/* Were the base written instead of the merged weights, the products would tell. */
TEST(test_check__products_see_a_wrong_weight)
{
    write_base(NULL, base_things, ARRAY_LEN(base_things));
    write_adapter(at("adapter"), config, adapter_things, ARRAY_LEN(adapter_things));
    const sheaf_weights_merge_options options = { .base = at("base"),
                                                  .adapters =
                                                      (const char *const[]){ at("adapter") },
                                                  .nadapters = 1,
                                                  .dst = at("out"),
                                                  .threads = 2 };
    sheaf__merge_plan plan;
    sheaf__merge_workers workers = { 0 };
    sheaf_source *written;
    sheaf_weights_merge_report report = { 0 };
    CHECK_OK(sheaf__merge_plan_open(&plan, &options));
    CHECK_OK(sheaf__merge_workers_init(&workers, &plan, &options));
    CHECK_OK(open_stored(&written, at("base")));
    CHECK_FAILS(sheaf__merge_check_products(&workers, &plan, written, &report), SHEAF_E_NUMBER,
                "times the rounding expected");
    CHECK_FAILS(sheaf__merge_check_rows(&workers, &plan, written, &report), SHEAF_E_IO,
                "read back as computed");
    written->close(written);
    sheaf__merge_workers_release(&workers);
    sheaf__merge_plan_close(&plan);
}

/* ---- above rank 192 ---- */

typedef struct heard {
    int order, unknown;
} heard;

static void hear(void *context, const sheaf_event *event)
{
    heard *h = context;
    h->order += event->kind == SHEAF_EVENT_NOTE &&
                strstr(event->text, "ranks above 192 are summed as PEFT does on") != NULL;
    h->unknown += event->kind == SHEAF_EVENT_WARNING &&
                  strstr(event->text, "rank 200 ...): their last bits may differ") != NULL;
}

/* PEFT's bits there depend on its processor: the one that is named counts, what was not measured is
 * said. */
TEST(test_merge__above_rank_192_the_processor_is_told)
{
    static const thing base[] = { { "x.weight", SHEAF_F32, 2, { 24, 40 } } };
    static const thing parts[] = { { P "x.lora_A.weight", SHEAF_F32, 2, { 200, 40 } },
                                   { P "x.lora_B.weight", SHEAF_F32, 2, { 24, 200 } } };
    static const struct {
        sheaf_weights_merge_mode mode;
        sheaf_peft_cpu cpu;
        int order, unknown, block;
    } rows[] = {
        { SHEAF_MERGE_ROUND_ONCE, SHEAF_PEFT_CPU_AMD, 0, 0, 200 },
        { SHEAF_MERGE_LIKE_PEFT, SHEAF_PEFT_CPU_INTEL, 1, 0, 200 },
        { SHEAF_MERGE_LIKE_PEFT, SHEAF_PEFT_CPU_AMD, 1, 0, 100 },
        { SHEAF_MERGE_LIKE_PEFT_SAFE, SHEAF_PEFT_CPU_AMD, 1, 0, 100 },
        { SHEAF_MERGE_LIKE_PEFT, SHEAF_PEFT_CPU_OTHER, 1, 1, 100 },
    };
    write_folder(at("high"), "model.safetensors", "none", NULL, base, 1);
    write_adapter(
        at("high-adapter"),
        "{\"peft_type\": \"LORA\", \"r\": 200, \"lora_alpha\": 200, \"target_modules\": [\"x\"]}",
        parts, 2);
    float *a = values(&parts[0], 0.2f), *b = values(&parts[1], 0.2f), *w = values(&base[0], 1),
          d[24 * 40];
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        heard h = { 0 };
        const sheaf_events events = { hear, &h };
        sheaf_weights_merge_report report;
        CHECK_OK(sheaf__remove_tree(at("out")));
        CHECK_OK(sheaf_merge(&report, &(sheaf_weights_merge_options){
                                          .base = at("high"),
                                          .adapters = (const char *const[]){ at("high-adapter") },
                                          .nadapters = 1,
                                          .dst = at("out"),
                                          .mode = rows[i].mode,
                                          .peft_cpu = rows[i].cpu,
                                          .events = &events }));
        float *got = result(at("out"), "x.weight", NULL);
        lora_product(d, b, a, 24, 40, 200, rows[i].block);
        for (int k = 0; k < 24 * 40; k++)
            d[k] += w[k];
        CHECK_BYTES("high rank", got, d, sizeof d);
        if (h.order != rows[i].order || h.unknown != rows[i].unknown)
            fail_msg("row %zu: %d notes, %d warnings", i, h.order, h.unknown);
    }
}

FIXTURE(make_scratch, remove_scratch);
