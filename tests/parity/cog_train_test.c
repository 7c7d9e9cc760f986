/* cog_train_test.c - the golden CogVLM and CogAgent models learn as SAT's did: the gradients of all
 * tensors at 1, 2, 3 and 8 ranks with the same bytes, also of labels on image rows. Whole runs:
 * recipes_test.c. */
#include "tests/parity/cog.h"

/* ---- gradients ---- */

TEST(test_gradients__equal_those_of_one_device)
{
    for (int m = 0; m < models; m++) {
        const char *dir = model_dir[m];
        sheaf_safetensors *want = record_of(dir, "grads_fp32.safetensors");
        json_t *scalars = json_of(dir, "scalars.json");
        trial one = run_backward(in_dir(dir, "mp1"), NULL, in_dir(dir, "inputs.safetensors"),
                                 ranks_to_try, ARRAY_LEN(ranks_to_try));
        compare_norms(&one, json_object_get(scalars, "grad_norm_by_name"), 1e-4, 1e-6);
        assert_true(compare_gradients(&one, want, "", (tolerance){ 1e-5, 1e-4, 0 }) > 0);
        release(&one);
    }
}

/* ---- labels on image rows ---- */

/* The recorded inputs with labels on image rows: on each of them, or on the last patch alone.
 * `text` tells whether the recorded labels stay. */
static const char *write_labelled(const char *name, const char *dir, bool each, bool text)
{
    const sheaf_safetensors *in = record_of(dir, "inputs.safetensors");
    int64_t length, *label = integer_rows(in, "labels", &length);
    const int64_t *expert = integer_rows(in, "vision_expert_mask", &length);
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in, "labels");
    made_tensors made = { .count = 0 };
    for (int64_t i = 0; i < e->shape[0] * e->shape[1]; i++) {
        const bool first = i % e->shape[1] == 0,
                   image = !first && expert[i - 1] && (each || !expert[i]);
        assert_true(!image || label[i] == -100);
        label[i] = image ? 3 + i % 7 : text ? label[i] : -100;
    }
    for (int64_t i = 0; i < in->header.count; i++)
        if (&in->header.entry[i] == e)
            made_add(&made, "labels", SHEAF_I64, 2, e->shape, label);
        else
            made_copy(&made, in->header.entry[i].name, in, in->header.entry[i].name);
    return made_write(&made, at(name));
}

static int64_t count_labels(const char *dir, const char *name)
{
    const sheaf_safetensors *file = record_of(dir, name);
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, "labels");
    const int64_t *label = integers(file, "labels");
    int64_t n = 0;
    for (int64_t i = 0; i < e->shape[0] * e->shape[1]; i++)
        n += i % e->shape[1] != 0 && label[i] != -100;
    return n;
}

/* A training step leaves out the last MLP of image rows where no label is on one
 * (sheaf_data_labels_images); an evaluation never does. So the losses of the two are one another's
 * check; and a gradient, a sum over labels, is that of the text's labels, where it is left out, and
 * that of the image's, each by its count. */
static void check_labelled(const char *dir, bool each, int ranks)
{
    const char *both = write_labelled("both.safetensors", dir, each, true),
               *image = write_labelled("image.safetensors", dir, each, false),
               *text = in_dir(dir, "inputs.safetensors");
    const double of_text = (double)count_labels(dir, "inputs.safetensors"),
                 of_image = (double)count_labels(scratch.dir, "image.safetensors"),
                 n = of_text + of_image;
    assert_true(of_image > 0 && of_text > 0);
    trial want = run(in_dir(dir, "mp1"), NULL, both, ranks, SHEAF_F32, false),
          got = run(in_dir(dir, "mp1"), NULL, both, ranks, SHEAF_F32, true);
    CHECK_BYTES(dir, &got.loss, &want.loss, sizeof got.loss);
    trial t = run(in_dir(dir, "mp1"), NULL, text, ranks, SHEAF_F32, true),
          i = run(in_dir(dir, "mp1"), NULL, image, ranks, SHEAF_F32, true);
    for (int k = 0; k < got.trained; k++) {
        for (int64_t j = 0; j < got.numel[k]; j++) {
            const double sum = (of_text * t.grad[k][j] + of_image * i.grad[k][j]) / n;
            CHECK_NEAR(got.name[k], got.grad[k][j], sum, 1e-5 + 1e-4 * fabs(sum));
        }
        if (strncmp(got.name[k], "mixins.mlp.vision_", 18) == 0 &&
            norm_of(i.grad[k], i.numel[k]) == 0)
            fail_msg("%s: no gradient from labels on image rows", got.name[k]);
    }
    release(&want);
    release(&got);
    release(&t);
    release(&i);
}

TEST(test_gradients__of_labels_on_image_rows)
{
    for (int m = 0; m < models; m++)
        for (int each = 0; each < 2; each++) {
            check_labelled(model_dir[m], each, 1);
            check_labelled(model_dir[m], each, 3);
        }
}

FIXTURE(find_models, remove_scratch);
