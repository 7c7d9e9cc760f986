/* requantise_test.c - merging onto bases in 4 and 8 bits: dequantised, quantised again, and onto
 * the plain model that was quantised, with the bits of PEFT and bitsandbytes. */
#include <sys/stat.h>

#include "tests/recordings.h"
#include "tests/stored.h"

#include "base/hash.h"
#include "base/random.h"
#include "checkpoint/convert/convert.h"
#include "checkpoint/merge/merge.h"
#include "dialects/open.h"
#include "ops/quant/quantise.h"

static sheaf_status *merge(sheaf_weights_merge_report *report, const char *base,
                           const char *adapter, const char *dst, sheaf_weights_merge_options how)
{
    how.base = base;
    how.adapters = &adapter;
    how.nadapters = 1;
    how.dst = dst;
    CHECK_OK(sheaf__remove_tree(dst));
    return sheaf_merge(report, &how);
}

/* Each tensor of `part` whose name begins with `prefix`, and that does (or not) have
 * `inside` (NULL: any), has the bytes of
 * the same without the prefix in the folder's one file. */
static void compare_tensors(const char *dir, const char *part, const char *prefix,
                            const char *inside, bool has)
{
    const size_t mark = keeping.n;
    const sheaf_safetensors *a = record(textf("%s/model.safetensors", dir)), *b = record(part);
    int compared = 0;
    for (int64_t i = 0; i < b->header.count; i++) {
        const char *name = b->header.entry[i].name;
        if (strncmp(name, prefix, strlen(prefix)) != 0 ||
            (inside != NULL && (strstr(name, inside) != NULL) != has))
            continue;
        check_same_tensor(a, name + strlen(prefix), b, name);
        compared++;
    }
    assert_true(compared > 0);
    release_kept(mark);
}

static void compare_part(const char *dir, const char *part, const char *prefix)
{
    compare_tensors(dir, part, prefix, NULL, true);
}

static bool names_quantization(const char *dir)
{
    return strstr(file_text(textf("%s/config.json", dir), NULL), "\"quantization_config\"") != NULL;
}

static const char *tiny(const char *name)
{
    return recording(textf("quant/tiny_llama/%s", name));
}

static const char *const runs[] = { "qlora_float32", "qlora_bfloat16" };

static const char *of_run(int run, const char *name)
{
    return tiny(textf("%s/%s", runs[run], name));
}

/* An adapter of one layer, or of two: A and B are random. scores: of a reward model. */
static const char *make_adapter(const char *name, int layers, bool scores)
{
    static const char *const modules[] = { "self_attn.q_proj", "mlp.down_proj" };
    static const int64_t in[] = { 64, 128 };
    float x[4 * 128];
    made_tensors made = { .count = 0 };
    for (int i = 0; i < 2 * layers; i++) {
        const char *tensor = textf("base_model.model.model.layers.0.%s.lora_%c.weight",
                                   modules[i / 2], i % 2 == 0 ? 'A' : 'B');
        const int64_t shape[] = { i % 2 == 1 ? 64 : 4, i % 2 == 1 ? 4 : in[i / 2] };
        sheaf__random_normals(x, 3, sheaf__name_key(tensor), 0, shape[0] * shape[1]);
        made_add(&made, tensor, SHEAF_F32, 2, shape, x);
    }
    if (scores)
        made_add(&made, "base_model.model.score.weight", SHEAF_F32, 2, (int64_t[]){ 1, 64 }, x);
    CHECK_OK(sheaf__remove_tree(at(name)));
    assert_int_equal(mkdir(at(name), 0755), 0);
    made_write(&made, textf("%s/adapter_model.safetensors", at(name)));
    put(textf("%s/adapter_config.json", at(name)),
        textf("{\"peft_type\": \"LORA\", \"r\": 4, \"lora_alpha\": 1, "
              "\"target_modules\": \"model.layers.0.%s\"%s}",
              layers == 1 ? "self_attn.q_proj" : "(self_attn.q_proj|mlp.down_proj)",
              scores ? ", \"task_type\": \"SEQ_CLS\", \"modules_to_save\": [\"score\"]" : ""));
    return at(name);
}

/* Of all that is recorded; what is committed has a q_proj, which the next test compares. */
TEST(test_merge__onto_quantised_bases_gives_the_bits_of_peft)
{
    sheaf_weights_merge_report report;
    for (int run = recordings_are_full() ? 0 : 2; run < 2; run++)
        for (int mode = 0; mode < 2; mode++) {
            const char *adapter = of_run(run, "adapter_final"), *base = tiny("bnb_nf4_double"),
                       *plain = tiny("base_bf16");
            sheaf_weights_merge_options how = { .mode = mode == 0 ? SHEAF_MERGE_ROUND_ONCE
                                                                  : SHEAF_MERGE_LIKE_PEFT,
                                                .threads = 1 + 2 * mode,
                                                .dtype = run == 0 ? SHEAF_F32 : SHEAF_BOOL };
            CHECK_OK(merge(&report, base, adapter, at("out"), how));
            compare_part(at("out"), of_run(run, "merged_dequantised_part.safetensors"), "merged.");
            assert_false(names_quantization(at("out")));
            assert_int_equal(report.base_quantised, 14);
            assert_int_equal(report.requantised, 0);
            how.dtype = SHEAF_BOOL;
            CHECK_OK(merge(&report, plain, adapter, at("out"), how));
            compare_part(at("out"), of_run(run, "merged_original_part.safetensors"), "");
            assert_int_equal(report.base_quantised, 0);
            how.requantize = true;
            CHECK_OK(merge(&report, base, adapter, at("out"), how));
            compare_part(at("out"), of_run(run, "merged_4bit_part.safetensors"), "");
            assert_true(names_quantization(at("out")));
            assert_int_equal(report.requantised, 14);
        }
}

/* Of names and bytes of the tensors of one layer's q_proj in a folder's one file. */
static const char *hash_q_proj(const char *dir)
{
    static char text[33];
    const sheaf_safetensors *f = record(textf("%s/model.safetensors", dir));
    sheaf_hasher *hasher = sheaf__hasher_new();
    for (int64_t i = 0; i < f->header.count; i++) { /* by name */
        const sheaf_safetensors_entry *e = &f->header.entry[f->header.by_name[i].index];
        if (strstr(e->name, "layers.0.self_attn.q_proj") == NULL)
            continue;
        sheaf__hasher_add(hasher, e->name, strlen(e->name));
        sheaf__hasher_add(hasher, raw_of(f, e->name, NULL), (size_t)e->bytes);
    }
    sheaf__hash_text(text, sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    return text;
}

/* The hashes are those of what PEFT recorded (merged_dequantised_part, merged_4bit_part and
 * merged_original_part of qlora_bfloat16), which the test above compares where it is. */
TEST(test_merge__q_proj_has_the_bits_of_peft)
{
    static const struct {
        const char *base;
        bool requantize;
        const char *hash;
    } rows[] = { { "bnb_nf4_double", false, "07aa0677ef022ca5b3f8ff34ba866480" },
                 { "bnb_nf4_double", true, "8005ba86a60923073da2566af1143544" },
                 { "base_bf16", false, "084d9cd76bab537032552f6497f6b2f6" } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        sheaf_weights_merge_report report;
        const char *adapter =
            recordings_are_full() ? of_run(1, "adapter_final") : tiny("qlora_q_proj");
        CHECK_OK(merge(&report, tiny(rows[i].base), adapter, at("out"),
                       (sheaf_weights_merge_options){ .requantize = rows[i].requantize }));
        assert_string_equal(hash_q_proj(at("out")), rows[i].hash);
    }
}

/* Differences of two models' values. */
static void distance(double *worst, double *mean, const char *a, const char *b)
{
    const sheaf_dialect_hints hints = { .as_stored = true };
    sheaf_source *x = NULL, *y = NULL;
    double sum = 0, n = 0;
    *worst = 0;
    CHECK_OK(sheaf__open_source(&x, a, &hints));
    CHECK_OK(sheaf__open_source(&y, b, &hints));
    for (int64_t i = 0; i < x->count(x); i++) {
        const sheaf_source_entry *e = x->entry(x, i);
        if (sheaf__source_form(y, e->name) == NULL || y->find(y, e->name)->dtype != SHEAF_F32)
            continue; /* not changed, or never quantised */
        const int64_t count = e->shape[0] * e->shape[1];
        float *p = room((size_t)count * sizeof *p), *q = room((size_t)count * sizeof *q);
        CHECK_OK(x->read(x, e->name, 0, e->shape[0], 0, e->shape[1], p));
        CHECK_OK(y->read(y, e->name, 0, e->shape[0], 0, e->shape[1], q));
        for (int64_t k = 0; k < count; k++) {
            const double by = fabs((double)p[k] - (double)q[k]);
            *worst = by > *worst ? by : *worst;
            sum += by;
        }
        n += (double)count;
    }
    x->close(x);
    y->close(y);
    assert_true(n > 0);
    *mean = sum / n;
}

/* int8 as PEFT merges onto it: code by SCB by 1/127 in float32, the change, float16, and new codes.
 * The scales of these adapters are powers of two. */
static void check_int8(const char *base, const char *adapter, const char *merged, float scale)
{
#define LAYER "model.layers.0.self_attn.q_proj"
    enum { N = 64, RANK = 4 };
    const sheaf_safetensors *was = record(textf("%s/model.safetensors", base)),
                            *factors = record(textf("%s/adapter_model.safetensors", adapter)),
                            *is = record(textf("%s/model.safetensors", merged));
    const int8_t *code = raw_of(was, LAYER ".weight", NULL);
    const float *scb = raw_of(was, LAYER ".SCB", NULL),
                *a = raw_of(factors, "base_model.model." LAYER ".lora_A.weight", NULL),
                *b = raw_of(factors, "base_model.model." LAYER ".lora_B.weight", NULL);
    uint8_t want[N * N];
    float x[N * N], want_scb[N];
    for (int i = 0; i < N; i++)
        for (int j = 0; j < N; j++) {
            const float product = (float)code[i * N + j] * scb[i];
            float change = 0;
            for (int k = 0; k < RANK; k++)
                change = fmaf(b[i * RANK + k], a[k * N + j], change);
            x[i * N + j] = product * 7.874015718698502e-3f + scale * change;
        }
    sheaf__quantise_rows(want, want_scb, x, SHEAF_F32, N, N);
    CHECK_BYTES("SCB", raw_of(is, LAYER ".SCB", NULL), want_scb, sizeof want_scb);
    CHECK_BYTES("codes", raw_of(is, LAYER ".weight", NULL), want, sizeof want);
#undef LAYER
}

/* Of every form: what is quantised again is the merged model in float32, quantised; and the report
 * says how far it is from it. */
TEST(test_merge__quantised_again_is_the_merged_model_quantised)
{
    static const struct {
        const char *base;
        sheaf_quantize as; /* NONE: convert does not write this form */
    } rows[] = { { "bnb_nf4", SHEAF_QUANTIZE_NF4 },
                 { "bnb_nf4_double", SHEAF_QUANTIZE_NF4_DOUBLE },
                 { "bnb_fp4", SHEAF_QUANTIZE_NONE },
                 { "bnb_int8", SHEAF_QUANTIZE_INT8 } };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const char *adapter =
            recordings_are_full() ? of_run(0, "adapter_final") : make_adapter("made", 2, false);
        sheaf_weights_merge_report report, plain;
        sheaf_weights_convert_report converted;
        if (rows[i].as != SHEAF_QUANTIZE_NF4_DOUBLE && !recordings_are_full())
            continue;
        CHECK_OK(merge(&report, tiny(rows[i].base), adapter, at("again"),
                       (sheaf_weights_merge_options){ .requantize = true, .threads = 2 }));
        CHECK_OK(merge(&plain, tiny(rows[i].base), adapter, at("plain"),
                       (sheaf_weights_merge_options){ .dtype = SHEAF_F32 }));
        if (rows[i].as == SHEAF_QUANTIZE_INT8) {
            check_int8(tiny(rows[i].base), adapter, at("again"), 2);
        } else if (rows[i].as != SHEAF_QUANTIZE_NONE) {
            double worst, mean;
            CHECK_OK(sheaf__remove_tree(at("quantised")));
            CHECK_OK(sheaf_convert(&converted,
                                   &(sheaf_weights_convert_options){ .src = at("plain"),
                                                                     .dst = at("quantised"),
                                                                     .to = "hf",
                                                                     .quantize = rows[i].as }));
            compare_tensors(at("quantised"), at("again/model.safetensors"), "",
                            "layers.0.self_attn.q_proj", true);
            compare_tensors(at("quantised"), at("again/model.safetensors"), "",
                            "layers.0.mlp.down_proj", true);
            distance(&worst, &mean, at("plain"), at("again"));
            CHECK_NEAR("worst", report.requantise_worst, worst, 0);
            CHECK_NEAR("mean", report.requantise_mean, mean, 1e-12);
        }
        assert_true(report.requantise_worst > 0 && report.requantise_mean > 0);
        assert_true(report.requantise_mean < report.requantise_worst);
        assert_true(strncmp(report.requantise_tensor, "model.layers.", 13) == 0);
    }
}

/* Tensors that no adapter changes keep their bytes, also where a score replaces the head. */
TEST(test_merge__quantised_again_copies_the_rest)
{
    for (int scores = 0; scores < 2; scores++) {
        sheaf_weights_merge_report report;
        CHECK_OK(merge(&report, tiny("bnb_nf4_double"), make_adapter("one", 1, scores), at("out"),
                       (sheaf_weights_merge_options){ .requantize = true }));
        assert_int_equal(report.requantised, 1);
        assert_int_equal(report.base_quantised, 14);
        compare_tensors(at("out"), tiny("bnb_nf4_double/model.safetensors"), "",
                        scores ? ".layers.1." : "layers.0.self_attn.q_proj", scores);
    }
}

TEST(test_merge__what_cannot_be_quantised_again)
{
    sheaf_weights_merge_report report;
    const sheaf_weights_merge_options how = { .requantize = true };
    const char *adapter = make_adapter("made", 2, false);
    CHECK_FAILS(merge(&report, tiny("base_bf16"), adapter, at("no"), how), SHEAF_E_ARG,
                "`requantize` | a base with weights in 4 or 8 bits");
    const char *gptq = recording("quant/tiny_llama_gptq_sym");
    if (recordings_are_full())
        CHECK_FAILS(merge(&report, gptq, adapter, at("no"), how), SHEAF_E_UNSUPPORTED,
                    "`requantize` | weights of bitsandbytes");
    assert_int_equal(sheaf__path_kind(at("no")), SHEAF_PATH_NONE);
}

FIXTURE(make_scratch, remove_scratch);
