/* codes_test.c - folders of quantized models: what is read is what their parts stand for, of any
 * box; the recorded numbers of the original programs; each way the parts can be wrong is named. */
#include "tests/findings.h"
#include "tests/quant_folders.h"
#include "tests/recordings.h"

#include <unistd.h>

#include "catalog/coded.h"
#include "dialects/common/codes.h"
#include "dialects/open.h"
#include "formats/safetensors.h"
#include "ops/quant/quantise.h"

static const char layer[] = "model.layers.0.self_attn.k_proj";

static const struct {
    const char *folder, *dequant;
    const char *form;
} folders[] = {
    { "tiny_llama/bnb_nf4", "tiny_llama/dequant_layer0_nf4", "NF4, blocks of 64" },
    { "tiny_llama/bnb_nf4_double", "tiny_llama/dequant_layer0_nf4_double",
      "NF4, blocks of 64, doubled scales" },
    { "tiny_llama/bnb_fp4", "tiny_llama/dequant_layer0_fp4", "FP4, blocks of 64" },
    { "tiny_llama/bnb_nf4_storage_bf16", "tiny_llama/dequant_layer0_nf4", "NF4, blocks of 64" },
    { "tiny_llama/bnb_int8", NULL, "bitsandbytes, 8 bits, a scale for each row" },
    { "tiny_qwen2/bnb_nf4", "tiny_qwen2/dequant_layer0_nf4", "NF4, blocks of 64" },
    { "tiny_qwen2/bnb_nf4_from_f32", NULL, "NF4, blocks of 64" },
    { "tiny_qwen2/bnb_int8", NULL, "bitsandbytes, 8 bits, a scale for each row" },
    { "tiny_llama_gptq_sym", "tiny_llama_gptq_sym_dequant_part",
      "GPTQ, 4 bits, groups of 32, zeros" },
    { "tiny_llama_gptq_v2_asym", "tiny_llama_gptq_v2_asym_dequant_part",
      "GPTQ, 4 bits, groups of 32, zeros" },
    { "tiny_llama_gptq_asym_actorder", "tiny_llama_gptq_asym_actorder_dequant_part",
      "GPTQ, 4 bits, groups of 32 by g_idx, zeros" },
    { "tiny_llama_awq", "tiny_llama_awq_dequant_part", "AWQ, 4 bits, groups of 32, zeros" },
    { "tiny_llama_ct_pack_sym", "tiny_llama_ct_pack_sym_dequant_part",
      "compressed-tensors, 4 bits, groups of 32" },
    { "tiny_llama_ct_pack_asym", "tiny_llama_ct_pack_asym_dequant_part",
      "compressed-tensors, 4 bits, groups of 32, zeros" },
};

static const char *recorded(const char *name)
{
    return recording(textf("quant/%s", name));
}

static bool is_there(const char *path)
{
    return sheaf__path_kind(path) != SHEAF_PATH_NONE;
}

static sheaf_status *open_catalog(sheaf_catalog **out, const char *path, bool as_stored)
{
    return sheaf__open(out, path, &(sheaf_dialect_hints){ .as_stored = as_stored });
}

/* A folder, written and opened. */
static sheaf_catalog *catalog_of(const quant_folder *f, bool as_stored)
{
    sheaf_catalog *c = NULL;
    CHECK_OK(sheaf__remove_tree(at("folder")));
    quant_write(f, at("folder"));
    CHECK_OK(open_catalog(&c, at("folder"), as_stored));
    return c;
}

static sheaf_source *source_of(const quant_folder *f)
{
    sheaf_source *s = NULL;
    CHECK_OK(sheaf__catalog_source(&s, catalog_of(f, true), false));
    return s;
}

/* The recorded layer alone of GPTQ's groups of 32, in the full recordings, too, with this
 * quantization_config. */
static void open_layer(quant_folder *f, const char *config)
{
    quant_open(f, recorded("tiny_llama_gptq_asym_actorder"));
    for (int k = f->count - 1; k >= 0; k--)
        if (strncmp(f->tensor[k].name, layer, strlen(layer)) != 0)
            quant_drop(f, &f->tensor[k]);
    free(f->config);
    assert_true(asprintf(&f->config, "{\"quantization_config\": {\"bits\": 4, %s}}", config) > 0);
}

/* ---- values by the definition, an element at a time ---- */

/* A tensor of a folder, with all that belongs to it. */
typedef struct parts {
    const quant_tensor *codes, *scales, *zeros, *index, *nested, *state;
    int64_t out, in;
    bool less_one;
} parts;

static const quant_tensor *part(quant_folder *f, const char *stem, const char *suffix)
{
    return quant_find(f, textf("%s%s", stem, suffix));
}

static int64_t number_at(const quant_tensor *t, int64_t i)
{
    int32_t word;
    memcpy(&word, t->data + 4 * i, 4);
    return word;
}

static float scale_at(const quant_tensor *t, int64_t i)
{
    return sheaf__load(t->data, i, (sheaf_dtype)sheaf_dtype_from_name(t->dtype));
}

static int nibble(const quant_tensor *t, int64_t word, int64_t at)
{
    return (int)((uint32_t)number_at(t, word) >> 4 * at & 15);
}

static float bnb4(const parts *p, int64_t r, int64_t c)
{
    const int64_t e = r * p->in + c, b = e / 64;
    const uint8_t byte = (uint8_t)p->codes->data[e / 2];
    const bool nf4 = strstr(p->state->name, "nf4") != NULL;
    float scale, map[256];
    if (p->nested == NULL)
        scale = scale_at(p->scales, b);
    else {
        double offset = 0;
        sscanf(strstr(p->state->data, "nested_offset") + 15, "%lf", &offset);
        sheaf__dynamic_map(map, true);
        scale = map[(uint8_t)p->scales->data[b]] * scale_at(p->nested, b / 256);
        scale += (float)offset;
    }
    return sheaf__code_value(nf4 ? SHEAF__NF4 : SHEAF__FP4, e & 1 ? byte & 15 : byte >> 4) * scale;
}

static float int4(const parts *p, const char *folder, int64_t r, int64_t c)
{
    static const int order[8] = { 0, 2, 4, 6, 1, 3, 5, 7 };
    int q, z = 8, at = 0;
    if (strstr(folder, "ct_pack") != NULL) {
        const int64_t g = c / 32, groups = p->in / 32;
        q = nibble(p->codes, r * ((p->in + 7) / 8) + c / 8, c & 7);
        if (p->zeros != NULL)
            z = nibble(p->zeros, r / 8 * groups + g, r & 7);
        return (float)(q - z) * scale_at(p->scales, r * groups + g);
    }
    if (strstr(folder, "awq") != NULL) {
        while (order[at] != (r & 7))
            at++;
        q = nibble(p->codes, c * (p->out / 8) + r / 8, at);
        z = nibble(p->zeros, c / 32 * (p->out / 8) + r / 8, at);
        return (float)(q - z) * scale_at(p->scales, c / 32 * p->out + r);
    }
    const int64_t g = number_at(p->index, c);
    q = nibble(p->codes, c / 8 * p->out + r, c & 7);
    z = nibble(p->zeros, g * (p->out / 8) + r / 8, r & 7) + p->less_one; /* none is 15 here */
    return (float)(q - z) * scale_at(p->scales, g * p->out + r);
}

static float int8(const parts *p, int64_t r, int64_t c)
{
    const float scaled = (float)(int8_t)p->codes->data[r * p->in + c] * scale_at(p->scales, r);
    return scaled * 0.007874015718698502f;
}

static parts find_parts(quant_folder *f, const char *folder, const char *weight,
                        const sheaf_source_entry *e)
{
    parts p = { .out = e->shape[0], .in = e->shape[1] };
    const char *stem = textf("%.*s", (int)(strlen(weight) - 7), weight);
    p.less_one = strstr(folder, "v2") == NULL;
    p.state = part(f, stem, ".weight.quant_state.bitsandbytes__nf4");
    if (p.state == NULL)
        p.state = part(f, stem, ".weight.quant_state.bitsandbytes__fp4");
    p.codes = part(f, stem, ".weight");
    p.nested = part(f, stem, ".weight.nested_absmax");
    p.scales = part(f, stem, ".weight.absmax");
    if (p.scales == NULL)
        p.scales = part(f, stem, ".SCB");
    if (p.codes == NULL && (p.codes = part(f, stem, ".weight_packed")) == NULL)
        p.codes = part(f, stem, ".qweight");
    if (p.scales == NULL && (p.scales = part(f, stem, ".weight_scale")) == NULL)
        p.scales = part(f, stem, ".scales");
    if ((p.zeros = part(f, stem, ".qzeros")) == NULL)
        p.zeros = part(f, stem, ".weight_zero_point");
    p.index = part(f, stem, ".g_idx");
    return p;
}

static float value_at(const parts *p, const char *folder, int64_t r, int64_t c)
{
    return strstr(folder, "int8") != NULL  ? int8(p, r, c)
           : strstr(folder, "bnb") != NULL ? bnb4(p, r, c)
                                           : int4(p, folder, r, c);
}

/* ---- reading ---- */

/* The parts of a box, dequantised, are the box of the values, unrounded. */
static void check_codes(sheaf_source *s, const char *name, const float *all, int64_t in,
                        const sheaf__quant_box *b)
{
    const sheaf__quant *form = sheaf__source_form(s, name);
    sheaf__dequantised d;
    float *got = malloc((size_t)(b->rows * b->cols) * sizeof *got);
    CHECK_OK(sheaf__dequantised_new(&d, form, s->find(s, name)->shape[0], in, b->rows, b->cols));
    d.box = *b;
    d.what = SHEAF__VALUES_FORWARD;
    d.to = SHEAF_F32;
    CHECK_OK(sheaf__source_codes(s, name, b->row0, b->rows, b->col0, b->cols, &d.parts));
    CHECK_OK(sheaf__source_whole(s, name, &d.whole));
    sheaf__dequantise(got, b->cols, &d, 0, b->rows);
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t c = 0; c < b->cols; c++) {
            const float want = all[(b->row0 + r) * in + b->col0 + c], is = got[r * b->cols + c];
            if (form->codes == SHEAF__INT8 ? fabsf(is - want) > 1e-6f * fabsf(want) : is != want)
                fail_msg("%s [%d, %d]: %a, wanted %a", name, (int)(b->row0 + r), (int)(b->col0 + c),
                         (double)is, (double)want);
        }
    free(got);
    free(d.memory);
}

static void check_values(sheaf_source *s, const char *name, const float *all, int64_t in,
                         const sheaf__quant_box *b)
{
    const sheaf_dtype dtype = s->find(s, name)->dtype;
    const size_t bytes = sheaf_dtype_bytes(dtype);
    char *got = malloc((size_t)(b->rows * b->cols) * bytes);
    CHECK_OK(s->read(s, name, b->row0, b->rows, b->col0, b->cols, got));
    for (int64_t r = 0; r < b->rows; r++)
        for (int64_t c = 0; c < b->cols; c++) {
            const float x = all[(b->row0 + r) * in + b->col0 + c];
            const float want = dtype == SHEAF_F32   ? x
                               : dtype == SHEAF_F16 ? sheaf__from_f16(sheaf__f16(x))
                                                    : sheaf__from_bf16(sheaf__bf16(x));
            if (sheaf__load(got, r * b->cols + c, dtype) != want)
                fail_msg("%s: element %d, %d", name, (int)(b->row0 + r), (int)(b->col0 + c));
        }
    free(got);
}

/* Boxes that begin and end in every place of a group, a word and a byte. */
static void check_boxes(sheaf_source *s, const char *name, const float *all, int64_t out,
                        int64_t in)
{
    for (int64_t c = 0; c < in; c += c < 40 ? 1 : 7)
        for (int64_t n = 1; c + n <= in; n += n < 18 ? 1 : 23) {
            const int64_t row = (c * 5 + n) % (out - 4);
            const sheaf__quant_box b = { in, row, 1 + n % 4, c, n };
            check_values(s, name, all, in, &b);
            check_codes(s, name, all, in, &b);
        }
    const sheaf__quant_box whole = { in, 0, out, 0, in };
    check_values(s, name, all, in, &whole);
    check_codes(s, name, all, in, &whole);
}

/* float32 in a recorded file, before they are rounded to the type of the folder. */
static void check_recorded(sheaf_source *s, const char *file)
{
    const char *path = textf("%s.safetensors", recorded(file));
    sheaf_source *want = NULL;
    if (!is_there(path))
        return;
    CHECK_OK(sheaf__open_source(&want, path, &(sheaf_dialect_hints){ .as_stored = true }));
    for (int64_t i = 0; i < want->count(want); i++) {
        const sheaf_source_entry *e = want->entry(want, i);
        const int64_t out = e->shape[0], in = e->shape[1];
        float *all = malloc((size_t)(out * in) * sizeof *all);
        assert_int_equal(e->dtype, SHEAF_F32);
        CHECK_OK(want->read(want, e->name, 0, out, 0, in, all));
        const sheaf__quant_box whole = { in, 0, out, 0, in };
        check_values(s, e->name, all, in, &whole);
        check_codes(s, e->name, all, in, &whole);
        free(all);
    }
    want->close(want);
}

TEST(test_codes__are_read_as_their_program_does)
{
    int checked = 0;
    for (size_t k = 0; k < ARRAY_LEN(folders); k++) {
        const char *path = recorded(folders[k].folder);
        quant_folder f;
        sheaf_source *s = NULL;
        int64_t n = 0;
        if (!is_there(path))
            continue;
        quant_open(&f, path);
        CHECK_OK(sheaf__open_source(&s, path, &(sheaf_dialect_hints){ .as_stored = true }));
        for (int64_t i = 0; i < s->count(s); i++) {
            const sheaf_source_entry *e = s->entry(s, i);
            if (sheaf__source_form(s, e->name) == NULL) {
                assert_true(quant_find(&f, e->name) != NULL && strstr(e->name, "proj.w") == NULL);
                continue;
            }
            const parts p = find_parts(&f, folders[k].folder, e->name, e);
            float *all = malloc((size_t)(p.out * p.in) * sizeof *all);
            for (int64_t x = 0; x < p.out * p.in; x++)
                all[x] = value_at(&p, folders[k].folder, x / p.in, x % p.in);
            const sheaf__quant_box whole = { p.in, 0, p.out, 0, p.in };
            check_values(s, e->name, all, p.in, &whole);
            if (strncmp(e->name, layer, strlen(layer)) == 0 || n == 3)
                check_boxes(s, e->name, all, p.out, p.in);
            free(all);
            n++;
        }
        assert_true(n > 0);
        if (folders[k].dequant != NULL)
            check_recorded(s, folders[k].dequant);
        s->close(s);
        quant_close(&f);
        checked++;
    }
    assert_true(checked >= (recordings_are_full() ? (int)ARRAY_LEN(folders) : 5));
}

/* ---- FP8 by blocks ---- */

static const char fp8_config[] =
    "{\"dtype\": \"float32\", \"quantization_config\": {\"quant_method\": \"fp8\", "
    "\"weight_block_size\": [%d, %d]}}";

static void put_tensor(quant_folder *f, const char *name, const char *dtype, int rows, int cols)
{
    char shape[64];
    quant_tensor *t = &f->tensor[f->count++];
    snprintf(t->name, sizeof t->name, "%s", name);
    snprintf(shape, sizeof shape, "[%d, %d]", rows, cols);
    t->shape = NULL;
    t->data = NULL;
    t->size = 0;
    quant_resize(t, dtype, shape);
}

/* Blocks that do not fit are cropped. */
TEST(test_codes__float8_by_blocks)
{
    static const struct {
        int out, in, rows, cols;
    } cases[] = { { 64, 96, 32, 32 }, { 40, 52, 16, 24 }, { 5, 9, 128, 128 } };
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        const int out = cases[k].out, in = cases[k].in, bo = cases[k].rows, bi = cases[k].cols;
        const int across = (in + bi - 1) / bi;
        quant_folder f = { .count = 0 };
        float *all = malloc((size_t)(out * in) * sizeof *all);
        assert_true(asprintf(&f.config, fp8_config, bo, bi) > 0);
        put_tensor(&f, "x.weight", "F8_E4M3", out, in);
        put_tensor(&f, "x.weight_scale_inv", "F32", (out + bo - 1) / bo, across);
        for (int i = 0; i < out * in; i++)
            f.tensor[0].data[i] = (char)((i * 37 & 0x7f) == 0x7f ? 1 : i * 37);
        for (size_t i = 0; i < f.tensor[1].size / 4; i++)
            memcpy(f.tensor[1].data + 4 * i, &(float){ 0.01f * (float)(i + 1) }, 4);
        for (int i = 0; i < out * in; i++)
            all[i] = sheaf__f8_value((uint8_t)f.tensor[0].data[i]) *
                     scale_at(&f.tensor[1], i / in / bo * across + i % in / bi);
        sheaf_source *s = source_of(&f);
        assert_int_equal(s->count(s), 1);
        check_boxes(s, "x.weight", all, out, in);
        s->close(s);
        quant_close(&f);
        free(all);
    }
}

/* ---- MXFP4 ---- */

static const char mxfp4_config[] =
    "{\"dtype\": \"bfloat16\", \"quantization_config\": {\"quant_method\": "
    "\"compressed-tensors\", \"format\": \"mxfp4-pack-quantized\", \"config_groups\": {\"group_0\": "
    "{\"weights\": {\"num_bits\": 4, \"type\": \"float\", \"strategy\": \"group\", "
    "\"group_size\": 32, \"symmetric\": true}}}}}";

/* E2M1 by its bits: sign, two of exponent with bias 1, one of significand; an exponent of 0 is
 * half of the significand. The scale is 2^(e - 127). OCP Microscaling Formats 1.0, 5.3.3 and 5.4.1
 */
static float mxfp4(int code, int e)
{
    const int exponent = code >> 1 & 3, one = code & 1;
    const double size = exponent == 0 ? 0.5 * one : ldexp(1 + 0.5 * one, exponent - 1);
    return (float)ldexp((code & 8) != 0 ? -size : size, e - 127);
}

/* Scales from the smallest exponent to the largest whose values are finite; those that are bytes of
 * 8 bits and those said to be exponents. */
TEST(test_codes__mxfp4_by_its_definition)
{
    static const struct {
        const char *scales;
        int out, in;
    } cases[] = { { "U8", 48, 96 }, { "F8_E8M0", 7, 160 }, { "U8", 5, 80 } };
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        const int out = cases[k].out, in = cases[k].in, groups = (in + 31) / 32;
        quant_folder f = { .count = 0, .config = strdup(mxfp4_config) };
        sheaf_text forms = { 0 };
        int64_t coded = 0;
        float *all = malloc((size_t)(out * in) * sizeof *all);
        put_tensor(&f, "x.weight_packed", "U8", out, in / 2);
        put_tensor(&f, "x.weight_scale", cases[k].scales, out, groups);
        for (size_t i = 0; i < f.tensor[0].size; i++)
            f.tensor[0].data[i] = (char)(i * 37 + i / 5);
        for (size_t i = 0; i < f.tensor[1].size; i++)
            f.tensor[1].data[i] = (char)(i % 9 == 0 ? 0 : i % 7 == 0 ? 252 : 110 + i % 30);
        for (int i = 0; i < out * in; i++)
            all[i] = mxfp4((uint8_t)f.tensor[0].data[i / 2] >> i % 2 * 4 & 15,
                           (uint8_t)f.tensor[1].data[i / in * groups + i % in / 32]);
        sheaf_catalog *c = catalog_of(&f, true);
        sheaf__catalog_forms(&forms, &coded, c);
        assert_string_equal(forms.at, "MXFP4, groups of 32; 1 of 1 tensors quantized");
        sheaf__catalog_free(c);
        sheaf_source *s = source_of(&f);
        check_boxes(s, "x.weight", all, out, in);
        s->close(s);
        f.tensor[1].data[3] = (char)255; /* the exponent that is no number */
        s = source_of(&f);
        CHECK_FAILS(s->read(s, "x.weight", 0, out, 0, in, all), SHEAF_E_NUMBER, "x.weight_scale");
        s->close(s);
        sheaf__text_release(&forms);
        quant_close(&f);
        free(all);
    }
}

static void take_recorded(quant_folder *f, sheaf_safetensors *file, const char *stored,
                          const char *name)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, stored);
    assert_non_null(e);
    put_tensor(f, name, sheaf_dtype_name(e->dtype), (int)e->shape[0], (int)e->shape[1]);
    CHECK_OK(sheaf__safetensors_read(file, e, 0, f->tensor[f->count - 1].data, e->bytes));
}

TEST(test_codes__float8_as_recorded)
{
    static const struct {
        const char *name;
        int block;
    } cases[] = { { "even", 32 }, { "ragged", 128 } };
    sheaf_safetensors *file = NULL;
    if (!recordings_are_full()) /* its weights are not in the committed part */
        return;
    CHECK_OK(sheaf__safetensors_open(&file, recorded("fp8_block/tensors.safetensors")));
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        static const char *const parts_of[] = { "weight", "weight_scale_inv", "dequant" };
        quant_folder f = { .count = 0 };
        for (int i = 0; i < 3; i++) {
            const char *name = textf("x.%s", parts_of[i]);
            take_recorded(&f, file, textf("%s.%s", cases[k].name, parts_of[i]), name);
        }
        assert_true(asprintf(&f.config, fp8_config, cases[k].block, cases[k].block) > 0);
        sheaf_source *s = source_of(&f);
        const sheaf_source_entry *e = s->find(s, "x.weight");
        check_boxes(s, "x.weight", (const float *)f.tensor[2].data, e->shape[0], e->shape[1]);
        s->close(s);
        quant_close(&f);
    }
    sheaf__safetensors_close(file);
}

/* ---- layers that stay plain, wrappers' names, names of the whole ---- */

TEST(test_codes__the_whole_model_is_checked_against_its_config)
{
    sheaf_catalog *c = NULL;
    CHECK_OK(open_catalog(&c, recorded("tiny_llama/bnb_nf4_double"), false));
    assert_int_equal(c->nfindings, 0);
    assert_int_equal(c->count, 21);
    assert_null(strstr(c->config, "quantization_config"));
    assert_non_null(strstr(c->quantization, "\"bnb_4bit_use_double_quant\":true"));
    sheaf__catalog_free(c);
}

TEST(test_codes__plain_layers_lie_among_quantized_ones)
{
    static const char *const drop[] = { ".absmax", ".quant_map", ".nested_absmax",
                                        ".nested_quant_map", ".quant_state.bitsandbytes__nf4" };
    quant_folder f;
    quant_open(&f, recorded("tiny_llama/bnb_nf4_double"));
    for (size_t i = 0; i < ARRAY_LEN(drop); i++)
        quant_drop(&f, quant_find(&f, textf("%s.weight%s", layer, drop[i])));
    quant_resize(quant_find(&f, "model.layers.0.self_attn.k_proj.weight"), "BF16", "[32, 64]");
    sheaf_catalog *c = catalog_of(&f, false);
    assert_int_equal(c->nfindings, 0);
    assert_null(sheaf__catalog_find(c, "model.layers.0.self_attn.k_proj.weight")->coded);
    assert_non_null(sheaf__catalog_find(c, "model.layers.0.self_attn.q_proj.weight")->coded);
    sheaf__catalog_free(c);
    quant_close(&f);
}

/* ---- what is wrong ---- */

typedef enum change {
    DROP,   /* the tensor with this suffix */
    TYPE,   /* it has another dtype and shape: text */
    FLOAT,  /* element `at` is the float `value` */
    WORD,   /* element `at` is the 32-bit word `value` */
    TEXT,   /* `text` becomes `to` in it, of the same length */
    COPY,   /* another tensor `to` with its content */
    CONFIG, /* `text` becomes `to` in the config */
    NAME,   /* its name ends in `to` */
    CUT,    /* the file ends early */
} change;

#define DOUBLED "tiny_llama/bnb_nf4_double"
#define INT8 "tiny_llama/bnb_int8"
#define BY_INDEX "tiny_llama_gptq_asym_actorder"
#define PACKED "tiny_llama_ct_pack_asym"
#define STATE ".weight.quant_state.bitsandbytes__nf4"

static const struct {
    const char *folder;
    change kind;
    const char *suffix;
    const char *code, *part; /* of the finding, and what it contains */
    const char *text, *to;
    int at;
    double value;
} wrong[] = {
    { DOUBLED, DROP, ".weight.absmax", "missing", "k_proj.weight.absmax, which belongs to it" },
    { DOUBLED, DROP, ".weight.quant_map", "missing", "k_proj.weight.quant_map, which belongs" },
    { DOUBLED, DROP, ".weight.nested_absmax", "missing",
      "k_proj.weight.nested_absmax, which belongs" },
    { DOUBLED, DROP, ".weight.nested_quant_map", "missing",
      "k_proj.weight.nested_quant_map, which belongs" },
    { DOUBLED, DROP, ".weight", "missing", "k_proj.weight, which belongs" },
    { DOUBLED, DROP, STATE, "missing", "quant" },
    { DOUBLED, TYPE, ".weight", "shape", "1024 bytes: two codes in each, of [32, 64]", "U8",
      "[1000, 1]" },
    { DOUBLED, TYPE, ".weight", "conflict", "quantized twice", "I8", "[1024, 1]" },
    { DOUBLED, TYPE, ".weight.absmax", "shape", "U8 [32]", "U8", "[31]" },
    { DOUBLED, TYPE, ".weight.absmax", "dtype", "U8 [32]", "F32", "[32]" },
    { DOUBLED, TYPE, ".weight.nested_absmax", "shape", "F32 [1]", "F32", "[2]" },
    { DOUBLED, FLOAT, ".weight.quant_map", "unsupported", "-0.39", .at = 3, .value = -0.39 },
    { DOUBLED, FLOAT, ".weight.nested_quant_map", "unsupported", "value 200 of the table",
      .at = 200, .value = 0.5 },
    { DOUBLED, TEXT, STATE, "damaged", "quant_state", "\"shape\": [", "\"shape\": {" },
    { DOUBLED, TEXT, STATE, "damaged", "blocksize", "\"blocksize\"", "\"blockzise\"" },
    { DOUBLED, TEXT, STATE, "unsupported", "a power of 2 from 32 to 4096", "\"blocksize\": 64",
      "\"blocksize\": 48" },
    { DOUBLED, TEXT, STATE, "unsupported", "nested_blocksize", "256", "128" },
    { DOUBLED, TEXT, STATE, "shape", "2048 bytes", "[32, 64]", "[64, 64]" },
    { DOUBLED, TEXT, STATE, "damaged", "quant_type", "\"nf4\"", "\"fp4\"" },
    { DOUBLED, TEXT, STATE, "unsupported", "float32, float16 or bfloat16", "bfloat16", "bfloat32" },
    { DOUBLED, COPY, ".weight.nested_absmax", "conflict", "quantized twice", .to = ".SCB" },
    { DOUBLED, CONFIG, "", "unsupported", "HQQ", "\"bitsandbytes\"", "\"hqq\"" },
    { DOUBLED, NAME, STATE, "missing", "codes (U8)", .to = ".wight.quant_state.bitsandbytes__nf4" },
    { DOUBLED, NAME, STATE, "missing", "codes (U8)", .to = ".quant_state.bitsandbytes__nf4" },
    { DOUBLED, CUT, "", "damaged", "model.safetensors" },
    { INT8, TYPE, ".SCB", "shape", "F32 [32]", "F32", "[31]" },
    { INT8, TYPE, ".weight", "dtype", "I8", "U8", "[32, 64]" },
    { INT8, DROP, ".SCB", "missing", "without" },
    { INT8, WORD, ".weight_format", "unsupported", "0: rows in order", .at = 0, .value = 1 },
    { BY_INDEX, TYPE, ".qzeros", "shape", "I32 [2, 4]", "I32", "[2, 3]" },
    { BY_INDEX, TYPE, ".scales", "shape", "2 groups of 32 in 64 columns", "F16", "[3, 32]" },
    { BY_INDEX, TYPE, ".scales", "shape", "[2, 32]", "F16", "[2, 31]" },
    { BY_INDEX, TYPE, ".scales", "dtype", "F16 or BF16 or F32", "I16", "[2, 32]" },
    { BY_INDEX, TYPE, ".g_idx", "shape", "I32 [64]", "I32", "[63]" },
    { BY_INDEX, WORD, ".g_idx", "damaged", "groups from 0 to 1", .at = 5, .value = 2 },
    { BY_INDEX, WORD, ".g_idx", "damaged", "-1 for column 63", .at = 63, .value = -1 },
    { BY_INDEX, DROP, ".qzeros", "missing", "k_proj.qzeros" },
    { BY_INDEX, DROP, ".qweight", "missing", "without" },
    { BY_INDEX, CONFIG, "", "unsupported", "gemm, of AWQ", "\"gptq\"", "\"awq\"" },
    { BY_INDEX, CONFIG, "", "unsupported", "4, of GPTQ", "\"bits\": 4", "\"bits\": 8" },
    { BY_INDEX, COPY, ".scales", "conflict", "one weight, held twice", .to = ".weight" },
    { "tiny_llama_awq", TYPE, ".qweight", "shape", "k_proj", "I32", "[64]" },
    { "tiny_llama_awq", CONFIG, "", "shape", "1 groups of 64 in 64 columns", "\"group_size\": 32",
      "\"group_size\": 64" },
    { "tiny_llama_awq", CONFIG, "", "unsupported", "gemm", "\"gemm\"", "\"gemv\"" },
    { PACKED, TYPE, ".weight_zero_point", "shape", "I32 [4, 2]", "I32", "[32, 2]" },
    { BY_INDEX, DROP, ".g_idx", "missing", "k_proj.g_idx" },
    { PACKED, DROP, ".weight_zero_point", "missing", "k_proj.weight_zero_point" },
    { PACKED, DROP, ".weight_shape", "missing", "k_proj.weight_shape" },
    { PACKED, WORD, ".weight_shape", "damaged", "two positive numbers", .at = 1, .value = -1 },
    { PACKED, WORD, ".weight_shape", "shape", "I32 [32, 25]", .at = 2, .value = 200 },
};

static void apply(quant_folder *f, size_t i, const char *path)
{
    char name[256];
    const char *old = textf("%s%s", layer, wrong[i].suffix);
    quant_tensor *t = quant_find(f, old);
    char *found;
    const int32_t word = (int32_t)wrong[i].value;
    if (wrong[i].kind == CONFIG) {
        sheaf_text text = { 0 };
        for (const char *c = f->config; (found = strstr(c, wrong[i].text)) != NULL || *c != '\0';
             c = found + strlen(wrong[i].text)) {
            if (found == NULL) {
                sheaf__text_add(&text, "%s", c);
                break;
            }
            sheaf__text_bytes(&text, c, (size_t)(found - c));
            sheaf__text_add(&text, "%s", wrong[i].to);
        }
        free(f->config);
        CHECK_OK(sheaf__text_take(&f->config, &text));
    } else if (wrong[i].kind != CUT)
        assert_non_null(t);
    switch (wrong[i].kind) {
    case DROP: quant_drop(f, t); break;
    case TYPE: quant_resize(t, wrong[i].text, wrong[i].to); break;
    case FLOAT: memcpy(t->data + 4 * wrong[i].at, &(float){ (float)wrong[i].value }, 4); break;
    case WORD: memcpy(t->data + 4 * wrong[i].at, &word, t->size < 4 ? t->size : 4); break;
    case TEXT:
        found = memmem(t->data, t->size, wrong[i].text, strlen(wrong[i].text));
        assert_non_null(found);
        memcpy(found, wrong[i].to, strlen(wrong[i].to));
        break;
    case COPY:
    case NAME:
        snprintf(name, sizeof name, "%s%s", layer, wrong[i].to);
        quant_add(f, t, name);
        if (wrong[i].kind == NAME)
            quant_drop(f, quant_find(f, old));
        break;
    default: break;
    }
    CHECK_OK(sheaf__remove_tree(path));
    quant_write(f, path);
    if (wrong[i].kind == CUT) {
        assert_int_equal(truncate(textf("%s/model.safetensors", path), 3000), 0);
    }
}

TEST(test_codes__what_contradicts_is_named)
{
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        const char *path = recorded(wrong[i].folder);
        quant_folder f;
        sheaf_catalog *c = NULL;
        quant_open(&f, path);
        apply(&f, i, at("wrong"));
        CHECK_OK(open_catalog(&c, at("wrong"), false));
        if (finding(c, -1, wrong[i].code, wrong[i].part) == NULL) {
            print_findings(c);
            fail_msg("case %zu, %s%s: no '%s' with '%s'", i, wrong[i].folder, wrong[i].suffix,
                     wrong[i].code, wrong[i].part);
        }
        sheaf__catalog_free(c);
        quant_close(&f);
    }
}

/* Numbers that no check of shapes sees are refused where they are read. */
TEST(test_codes__scales_that_are_no_numbers)
{
    static const struct {
        const char *folder, *suffix;
        int at;
        double value;
    } cases[] = {
        { "tiny_llama/bnb_nf4_storage_bf16", ".weight.absmax", 3, NAN },
        { "tiny_llama/bnb_nf4_storage_bf16", ".weight.absmax", 31, INFINITY },
        { "tiny_llama/bnb_nf4_storage_bf16", ".weight.absmax", 0, -1 },
        { "tiny_llama/bnb_nf4_double", ".weight.nested_absmax", 0, NAN },
        { "tiny_llama/bnb_int8", ".SCB", 7, NAN },
        { "tiny_llama/bnb_int8", ".SCB", 31, -2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        uint16_t values[32 * 64];
        quant_folder f;
        const char *name = textf("%s%s", layer, cases[i].suffix);
        const char *weight = textf("%s.weight", layer);
        quant_open(&f, recorded(cases[i].folder));
        memcpy(quant_find(&f, name)->data + 4 * cases[i].at, &(float){ (float)cases[i].value }, 4);
        sheaf_source *s = source_of(&f);
        CHECK_FAILS(s->read(s, weight, 0, 32, 0, 64, values), SHEAF_E_NUMBER,
                    "a finite number, 0 or more");
        s->close(s);
        quant_close(&f);
    }
}

/* vLLM#38966: the zeros of the other format, which only symmetric ones show. */
TEST(test_codes__zeros_of_gptq_tell_its_format)
{
    static const struct {
        const char *format, *sym;
        uint32_t zeros;
        bool wrong;
    } cases[] = {
        { "gptq", "true", 0x77777777, false },
        { "gptq", "true", 0x88888888, true },
        { "gptq_v2", "true", 0x88888888, false },
        { "gptq_v2", "true", 0x77777777, true },
        { "gptq", "false", 0x88888888, false },
        { "auto_round:auto_gptq", "true", 0x77777777, false },
        { "auto_round:auto_gptq", "true", 0x88888888, true },
        { "auto_round", "true", 0x88888888, false },
        { "auto_round:gptqmodel", "true", 0x77777777, true },
        { "gptq\", \"dynamic\": {\".*\": {\"sym\": false}}, \"x\": \"", "true", 0x88888888, false },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const bool rounds = strncmp(cases[i].format, "auto_round", 10) == 0;
        quant_folder f;
        char config[256];
        snprintf(config, sizeof config,
                 "\"quant_method\": \"%s\", \"group_size\": 32, \"%s\": \"%s\", \"sym\": %s",
                 rounds ? "auto-round" : "gptq", rounds ? "packing_format" : "checkpoint_format",
                 cases[i].format, cases[i].sym);
        open_layer(&f, config);
        const quant_tensor *t = quant_find(&f, textf("%s.qzeros", layer));
        for (size_t w = 0; w < t->size; w += 4)
            memcpy(t->data + w, &cases[i].zeros, 4);
        sheaf_catalog *c = catalog_of(&f, true);
        assert_int_equal(finding(c, -1, "conflict",
                                 rounds ? "set packing_format to \"auto_round:"
                                        : "set checkpoint_format") != NULL,
                         cases[i].wrong);
        sheaf__catalog_free(c);
        quant_close(&f);
    }
}

/* k_proj has groups of 32, whatever the others have. */
TEST(test_codes__of_modules_with_settings_of_their_own)
{
    static const struct {
        const char *config;
        bool wrong;
    } cases[] = {
        { "\"quant_method\": \"gptq\"", true },
        { "\"quant_method\": \"gptq\", \"dynamic\": {\"+:.*k_proj\": {\"group_size\": 32}}",
          false },
        { "\"quant_method\": \"gptq\", \"dynamic\": {\"+:.*q_proj\": {\"group_size\": 32}}", true },
        { "\"quant_method\": \"auto-round\", \"extra_config\": "
          "{\"model.layers.0.self_attn.k_proj\": {\"group_size\": 32}}",
          false },
        { "\"quant_method\": \"gptq\", \"dynamic\": {\"+:((o|o|k|[a-z._0-9])+)+$x\": {}}", true },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        quant_folder f;
        char config[256];
        snprintf(config, sizeof config, "\"group_size\": 16, \"sym\": false, %s", cases[i].config);
        open_layer(&f, config);
        sheaf_catalog *c = catalog_of(&f, true);
        assert_int_equal(sheaf__catalog_defects(c) > 0, cases[i].wrong);
        for (int64_t k = 0; k < c->count; k++)
            if (c->tensor[k].coded != NULL)
                assert_int_equal(c->tensor[k].coded->group, 32);
        sheaf__catalog_free(c);
        quant_close(&f);
    }
}

/* One scale for a row of 64: group_size is -1, or no less than the row. */
TEST(test_codes__of_one_group_for_a_row)
{
    static const int sizes[] = { -1, 64, 128, 63, 32 };
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        quant_folder f;
        char config[128];
        snprintf(config, sizeof config,
                 "\"quant_method\": \"gptq\", \"group_size\": %d, \"sym\": false", sizes[i]);
        open_layer(&f, config);
        for (quant_tensor *t = f.tensor; t < f.tensor + f.count; t++)
            if (sheaf__ends_with(t->name, ".g_idx"))
                memset(t->data, 0, t->size);
            else if (sheaf__ends_with(t->name, ".qzeros"))
                quant_resize(t, "I32", "[1, 4]");
            else if (sheaf__ends_with(t->name, ".scales"))
                quant_resize(t, "F16", "[1, 32]");
        sheaf_catalog *c = catalog_of(&f, true);
        assert_int_equal(finding(c, -1, "shape", "1 groups") != NULL,
                         sizes[i] == 63 || sizes[i] == 32);
        assert_int_equal(sheaf__catalog_defects(c) > 0, sizes[i] == 63 || sizes[i] == 32);
        sheaf__catalog_free(c);
        quant_close(&f);
    }
}

/* ---- AutoGPTQ ---- */

static void put_bias(quant_folder *f, const char *name, float value)
{
    put_tensor(f, name, "F16", 64, 1);
    quant_resize(&f->tensor[f->count - 1], "F16", "[64]");
    const uint16_t half = sheaf__f16(value);
    memcpy(f->tensor[f->count - 1].data + 6, &half, sizeof half);
}

/* Its config lies in a file of its own, and each weight has a bias, which is of zeros. */
TEST(test_codes__folders_of_autogptq)
{
    static const char name[] = "model.layers.0.self_attn.q_proj.bias";
    if (!is_there(recorded("tiny_llama_gptq_sym")))
        return; /* a whole model of it is in the full recordings */
    for (int wrong = 0; wrong < 2; wrong++) {
        quant_folder f;
        json_t *config;
        quant_open(&f, recorded("tiny_llama_gptq_sym"));
        put_bias(&f, name, (float)wrong);
        config = json_loads(f.config, 0, NULL);
        json_object_del(config, "quantization_config");
        free(f.config);
        f.config = json_dumps(config, 0);
        json_decref(config);
        sheaf_catalog *c = catalog_of(&f, false);
        assert_true(finding(c, -1, "missing", "quantize_config.json") != NULL);
        sheaf__catalog_free(c);
        put(at("folder/quantize_config.json"),
            "{\"bits\": 4, \"group_size\": 32, \"desc_act\": false, \"sym\": true}");
        CHECK_OK(open_catalog(&c, at("folder"), false));
        assert_int_equal(finding(c, -1, "inferred", "biases of zeros") != NULL, !wrong);
        assert_int_equal(finding(c, -1, "foreign", name) != NULL, wrong);
        assert_int_equal(sheaf__catalog_defects(c), wrong);
        sheaf__catalog_free(c);
        quant_close(&f);
    }
}

FIXTURE(make_scratch, remove_scratch);
