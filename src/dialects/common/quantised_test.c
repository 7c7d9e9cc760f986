/* quantised_test.c - which tensors of a quantized model mean something else in another dtype. */
#include "tests/check.h"
#include "tests/fake_source.h"

#include "dialects/common/quantised.h"

enum { MOST = 8 };

typedef struct row {
    const char *name;
    sheaf_dtype dtype;
    bool keeps;
} row;

static const struct {
    const char *what, *config;
    row tensor[MOST];
} models[] = {
    { "FP8 in blocks", "{\"quantization_config\": {\"quant_method\": \"fp8\"}}",
      LIST({ "a.mlp.weight", SHEAF_F8_E4M3, true }, { "a.mlp.weight_scale_inv", SHEAF_F32, true },
           { "a.mlp.bias", SHEAF_BF16, true }, { "a.attn.k_scale", SHEAF_F32, true },
           { "a.norm.weight", SHEAF_F32, false }, { "a.weight", SHEAF_F32, false }) },
    { "FP8 without a config", NULL,
      LIST({ "a.weight", SHEAF_F8_E4M3, true }, { "a.input_scale", SHEAF_F32, true },
           { "norm.weight", SHEAF_F32, false }) },
    { "bitsandbytes, 4 bits", NULL,
      LIST({ "a.weight", SHEAF_U8, true }, { "a.weight.absmax", SHEAF_F32, true },
           { "a.weight.quant_map", SHEAF_F32, true }, { "a.weight.nested_absmax", SHEAF_F32, true },
           { "a.weight.quant_state.bitsandbytes__nf4", SHEAF_U8, true },
           { "head.weight", SHEAF_F16, false }) },
    { "bitsandbytes, 8 bits",
      NULL,
      { { "a.weight", SHEAF_I8, true }, { "a.SCB", SHEAF_F32, true }, { "b", SHEAF_F32, false } } },
    { "GPTQ", NULL,
      LIST({ "a.qweight", SHEAF_I32, true }, { "a.scales", SHEAF_F16, true },
           { "a.g_idx", SHEAF_I32, true }, { "b.weight", SHEAF_F16, false }) },
    { "HQQ, by its config alone",
      "{\"text_config\": {\"quantization_config\": {\"quant_method\": \"hqq\"}}}",
      LIST({ "a.W_q", SHEAF_U8, true }, { "a.zero", SHEAF_F16, true },
           { "b.weight", SHEAF_F16, false }) },
    { "QuIP#, whose codes look like positions",
      "{\"quantization_config\": {\"quant_method\": \"quip\"}}",
      LIST({ "a.Qidxs", SHEAF_I64, true }, { "a.SU", SHEAF_F32, true },
           { "b.weight", SHEAF_F16, false }) },
    { "masks and positions of a model in floats", "{}",
      LIST({ "h.0.attn.bias", SHEAF_U8, false }, { "h.0.attn.c_attn.weight", SHEAF_F32, false },
           { "e.position_ids", SHEAF_I64, false }, { "e.scale", SHEAF_F32, false }) },
};

TEST(test_quantised__what_must_not_be_rounded)
{
    for (size_t i = 0; i < ARRAY_LEN(models); i++) {
        fake_source f = { { fake_find, fake_count, fake_entry, NULL, NULL }, 0, { { 0 } } };
        sheaf__quantised q;
        for (; f.n < MOST && models[i].tensor[f.n].name != NULL; f.n++)
            f.entry[f.n] = (sheaf_source_entry){
                models[i].tensor[f.n].name, models[i].tensor[f.n].dtype, 2, { 4, 4 }
            };
        CHECK_OK(sheaf__quantised_find(&q, &f.source, models[i].config));
        for (int k = 0; k < f.n; k++)
            if (sheaf__quantised_keeps(&q, f.entry[k].name) != models[i].tensor[k].keeps)
                fail_msg("%s: %s", models[i].what, f.entry[k].name);
        sheaf__quantised_release(&q);
    }
}

/* Scales of a KV cache lie beside weights in floats. */
TEST(test_quantised__a_config_is_stale_over_weights_in_floats_alone)
{
    static const char *const names[] = { "a.v_proj.weight", "a.k_scale" };
    static const sheaf_dialect dialect = { .name = "x" };
    for (int n = 1; n <= 2; n++) {
        sheaf_catalog *c = NULL;
        CHECK_OK(sheaf__catalog_new(&c, &dialect, "x"));
        for (int i = 0; i < n; i++) {
            sheaf_logical *l;
            CHECK_OK(sheaf__catalog_tensor(&l, c, names[i], SHEAF_BF16, 1, (int64_t[]){ 4 }));
        }
        c->config = strdup("{\"a\": 1, \"quantization_config\": {\"quant_method\": \"fp8\"}}");
        CHECK_OK(sheaf__catalog_stale_quantization(c));
        assert_int_equal(strstr(c->config, "quantization_config") == NULL, n == 1);
        assert_int_equal(sheaf__catalog_finding(c, "conflict") != NULL, n == 1);
        sheaf__catalog_free(c);
    }
}
