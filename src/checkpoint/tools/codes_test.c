/* codes_test.c - verify and diff of folders of quantized models. */
#include "tests/quant_folders.h"
#include "tests/recordings.h"

#include "checkpoint/tools/verify.h"

static const char double_nf4[] = "quant/tiny_llama/bnb_nf4_double",
                  layer[] = "model.layers.0.self_attn.k_proj";

/* Parameters are those of the model, bytes those of the files, every one of which is read. */
TEST(test_verify__counts_what_is_stored)
{
    sheaf_verify_report r;
    CHECK_OK(
        sheaf_verify(&r, recording(double_nf4), &(sheaf_weights_verify_options){ .threads = 2 }));
    assert_true(sheaf_verify_sound(&r));
    assert_int_equal(r.elements, 92480);
    assert_int_equal(r.tensors, 21);
    assert_int_equal(r.bytes, 93143);
    assert_int_equal(r.read, r.bytes);
    assert_string_equal(r.forms, "NF4, blocks of 64, doubled scales; 14 of 21 tensors quantized");
    sheaf_verify_release(&r);
    CHECK_OK(sheaf_verify(&r, recording("quant/tiny_llama/base_bf16"),
                          &(sheaf_weights_verify_options){ .quick = true }));
    assert_null(r.forms);
    sheaf_verify_release(&r);
}

static const struct {
    const char *folder, *suffix;
    int at;
    double value;
    const char *code, *found; /* code NULL: it is sound */
} wrong[] = {
    { "quant/tiny_llama/bnb_nf4_double", ".weight.nested_absmax", 0, NAN, "not-finite",
      "1 NaN, 0 Inf and 0 below 0" },
    { "quant/tiny_llama/bnb_nf4_double", ".weight.nested_absmax", 0, -1, "not-finite",
      "0 NaN, 0 Inf and 1 below 0" },
    { "quant/tiny_llama/bnb_nf4_storage_bf16", ".weight.absmax", 31, INFINITY, "not-finite",
      "0 NaN, 1 Inf and 0 below 0" },
    { "quant/tiny_llama/bnb_nf4_storage_bf16", ".weight", 31, NAN, NULL, NULL }, /* codes */
    { "quant/tiny_llama/bnb_int8", ".SCB", 5, -2, "not-finite", "1 below 0" },
    { "quant/tiny_llama_ct_pack_asym", ".weight_scale", 0, -NAN, "not-finite", "NaN" },
};

TEST(test_verify__scales_are_numbers)
{
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++) {
        quant_folder f;
        sheaf_verify_report r;
        const float value = (float)wrong[i].value;
        const char *name = textf("%s%s", layer, wrong[i].suffix);
        quant_open(&f, recording(wrong[i].folder));
        memcpy(quant_find(&f, name)->data + 4 * wrong[i].at, &value, 4);
        CHECK_OK(sheaf__remove_tree(at("wrong")));
        quant_write(&f, at("wrong"));
        CHECK_OK(sheaf_verify(&r, at("wrong"), &(sheaf_weights_verify_options){ .threads = 1 }));
        const sheaf_finding *is = sheaf__catalog_finding(r.catalog, "not-finite");
        if (wrong[i].code == NULL)
            assert_null(is);
        else {
            assert_non_null(is);
            if (strstr(is->found, wrong[i].found) == NULL ||
                strncmp(is->tensor, layer, strlen(layer)) != 0)
                fail_msg("%s%s: %s: %s", wrong[i].folder, wrong[i].suffix, is->tensor, is->found);
        }
        sheaf_verify_release(&r);
        quant_close(&f);
    }
}

/* A download that allocated its file and did not fill it. */
TEST(test_verify__zeros_of_codes_are_seen)
{
    quant_folder f;
    sheaf_verify_report r;
    quant_open(&f, recording(double_nf4));
    for (int i = 0; i < f.count; i++)
        if (strstr(f.tensor[i].name, "layers.1.mlp") != NULL &&
            strstr(f.tensor[i].name, "quant_") == NULL)
            memset(f.tensor[i].data, 0, f.tensor[i].size);
    CHECK_OK(sheaf__remove_tree(at("zeros")));
    quant_write(&f, at("zeros"));
    CHECK_OK(sheaf_verify(&r, at("zeros"), &(sheaf_weights_verify_options){ .threads = 1 }));
    assert_non_null(sheaf__catalog_finding(r.catalog, "zeros"));
    sheaf_verify_release(&r);
    quant_close(&f);
}

static int items;

static void count_item(void *context, const sheaf_diff_item *item)
{
    items++;
}

/* The same weights under doubled scales are other weights; a folder is as itself. */
TEST(test_diff__compares_dequantised_values)
{
    sheaf_weights_diff_report r;
    const sheaf_weights_diff_options how = { .on_item = count_item };
    CHECK_OK(sheaf_diff(&r, recording(double_nf4), recording(double_nf4), &how));
    assert_true(r.same);
    assert_int_equal(r.forms, 0);
    CHECK_OK(sheaf_diff(&r, recording("quant/tiny_llama/base_bf16"), recording(double_nf4), &how));
    assert_false(r.same);
    assert_int_equal(r.tensors, 21);
    assert_int_equal(r.different, 14);
    assert_int_equal(r.forms, 14);
    assert_int_equal(r.config_keys, 0);
    assert_int_equal(items, 14);
    assert_true(r.largest > 0.01 && r.largest < 0.5);
}

FIXTURE(make_scratch, remove_scratch);
