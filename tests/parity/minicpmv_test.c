/* minicpmv_test.c - MiniCPM-V agrees with what upstream's code computed: what the tower and the
 * resampler give, embedded sequences, logits and loss, at 1, 2, 3 and 8 ranks with the same bytes,
 * and the gradients of all tensors.
 *
 * Every folder of tests/data/minicpmv, and of $SHEAF_GOLDEN/minicpmv, that holds config.json and a
 * recorded batch is run; one of 2.0, 2.5 or 2.6 that is not there is a failure. Tolerances are
 * those of the recordings' README: 1e-5 + 1e-4 relative, of gradients 1e-3. */
#include "families/minicpmv/minicpmv.h"
#include "tests/golden.h"
#include "tests/parity/trial.h"
#include "tests/sources.h"

static const char *const batches[] = { "one_row", "two_rows" };

/* 2.5 with the config that asks for upstream's padding, and what comes of it. */
static void make_padded(const char *small)
{
    static const char *const files[][2] = { { "model.safetensors", "model.safetensors" },
                                            { "padded_config.json", "config.json" },
                                            { "padded.safetensors", "one_row.safetensors" },
                                            { "padded_grad_norms.json",
                                              "one_row_grad_norms.json" } };
    const char *old = in_dir(small, "v2_5"), *made = at("padded");
    CHECK_OK(sheaf__make_dirs(made));
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        copy_file(in_dir(made, files[i][1]), in_dir(old, files[i][0]));
    model_dir[models++] = made;
}

/* Fails where the configs of these models are not of 2.0, 2.5 and 2.6. */
static void check_versions(void)
{
    static const sheaf_minicpmv version[] = { SHEAF_MINICPMV_2_0, SHEAF_MINICPMV_2_5,
                                              SHEAF_MINICPMV_2_6 };
    for (size_t i = 0; i < ARRAY_LEN(version); i++) {
        bool found = false;
        for (int m = 0; m < models; m++)
            found |= config_of(model_dir[m], "config.json")->minicpmv == version[i];
        if (!found)
            fail_msg("no model of %s found",
                     sheaf__minicpmv_version_of(&(sheaf_config){ .minicpmv = version[i] })->title);
    }
}

/* One of each version, and those of the full collection. */
static int find_recordings(void **state)
{
    const char *small = in_sources("tests/data/minicpmv");
    if (make_scratch(state) != 0)
        fail_msg("no scratch folder");
    find_in(small, "config.json", "one_row.safetensors");
    check_versions();
    make_padded(small);
    const int few = models;
    if (golden_is_full())
        find_in(golden("minicpmv"), "config.json", "one_row.safetensors");
    if (golden_is_full() && models == few)
        fail_msg("no recording of MiniCPM-V found");
    return 0;
}

static const char *file_of(const char *batch, const char *end)
{
    return textf("%s%s", batch, end);
}

/* ---- what is seen ---- */

/* A recording of pictures padded to the longest, [pictures, most, width], as one behind the other.
 */
static float *packed(const sheaf_safetensors *want, const char *name, int64_t *n)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(want, name);
    float *x = values(want, name, n);
    if (x == NULL)
        return NULL;
    const int32_t *size = raw_of(want, "tgt_sizes", NULL);
    const int64_t most = e->shape[1], width = e->shape[2];
    int64_t at = 0;
    for (int64_t i = 0; i < e->shape[0]; i++) {
        const int64_t rows = (int64_t)size[2 * i] * size[2 * i + 1];
        memmove(x + at * width, x + i * most * width, (size_t)(rows * width) * sizeof *x);
        at += rows;
    }
    *n = at * width;
    return x;
}

/* NAME_0, NAME_1, ... one behind the other. */
static float *joined(const sheaf_safetensors *want, const char *name, int64_t *n)
{
    float *all = NULL;
    const float *x;
    int64_t more;
    *n = 0;
    for (int i = 0; (x = values(want, textf("%s_%d", name, i), &more)) != NULL; i++) {
        const float *before = all;
        all = room((size_t)(*n + more) * sizeof *all);
        if (before != NULL)
            memcpy(all, before, (size_t)*n * sizeof *all);
        memcpy(all + *n, x, (size_t)more * sizeof *x);
        *n += more;
    }
    return all;
}

static void compare_stages(const trial *t, const sheaf_safetensors *want)
{
    static const struct {
        const char *theirs, *ours;
        float *(*read)(const sheaf_safetensors *want, const char *name, int64_t *n);
    } rows[] = {
        { "vit_embeddings", "vit_in", packed },   { "vit_last_hidden", "adapter_in", packed },
        { "vit_features", "adapter_in", joined }, { "resampler_out", "adapter", values },
        { "resampler_out", "adapter", joined },   { "inputs_embeds", "embedding", values },
        { "layer0_out", "mlp0", values },         { "final_norm_out", "final_norm", values },
    };
    int compared = 0;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t n;
        const float *x = rows[i].read(want, rows[i].theirs, &n);
        if (x == NULL)
            continue;
        compare(rows[i].theirs, stage_of(t, rows[i].ours, n), x, n, 1e-5, 1e-4);
        compared++;
    }
    assert_true(compared >= 3);
}

static void check_forward(const char *dir, const char *batch)
{
    const char *path = in_dir(dir, file_of(batch, ".safetensors"));
    sheaf_safetensors *want = record_of(dir, file_of(batch, ".safetensors"));
    int64_t n, one_loss;
    const float *logits = values_of(want, "logits", &n), *loss = values_of(want, "loss", &one_loss);
    assert_int_equal(one_loss, 1);
    trial one = run_forward(dir, NULL, path, SHEAF_F32);
    compare(path, one.logits, logits, n, 1e-5, 1e-4);
    CHECK_NEAR(path, one.loss, (double)loss[0], 1e-5 + 1e-4 * (double)loss[0]);
    compare_stages(&one, want);
    release(&one);
}

TEST(test_forward__stages_logits_and_loss)
{
    for (int m = 0; m < models; m++)
        for (size_t b = 0; b < ARRAY_LEN(batches); b++)
            if (exists(in_dir(model_dir[m], file_of(batches[b], ".safetensors"))))
                check_forward(model_dir[m], batches[b]);
}

/* ---- gradients ---- */

/* Norms of all tensors, and those gradients that were recorded whole. */
static void check_gradients(const char *dir, const char *batch)
{
    const char *path = in_dir(dir, file_of(batch, ".safetensors")),
               *whole = file_of(batch, "_grads.safetensors");
    trial one = run_backward(dir, NULL, path, ranks_to_try, ARRAY_LEN(ranks_to_try));
    const json_t *norms = json_of(dir, file_of(batch, "_grad_norms.json"));
    assert_int_equal(compare_norms(&one, norms, 1e-3, 1e-5), one.trained);
    if (exists(in_dir(dir, whole))) {
        const sheaf_safetensors *want = record_of(dir, whole);
        assert_int_equal(compare_gradients(&one, want, "grad.", (tolerance){ 1e-5, 1e-3, 0 }),
                         want->header.count);
    }
    release(&one);
}

TEST(test_gradients__equal_those_of_one_device)
{
    int checked = 0;
    for (int m = 0; m < models; m++)
        for (size_t b = 0; b < ARRAY_LEN(batches); b++)
            if (exists(in_dir(model_dir[m], file_of(batches[b], "_grad_norms.json")))) {
                check_gradients(model_dir[m], batches[b]);
                checked++;
            }
    assert_true(checked > 0);
}

FIXTURE(find_recordings, remove_scratch);
