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

static const char *const batches[] = { "one_row", "two_rows" };

static void copy(const char *from, const char *to)
{
    char *bytes;
    size_t size;
    FILE *file = fopen(to, "wb");
    CHECK_OK(sheaf__file_read_all(&bytes, &size, from, 1 << 24));
    assert_true(file != NULL && fwrite(bytes, 1, size, file) == size && fclose(file) == 0);
    free(bytes);
}

/* 2.5 with the config that asks for upstream's padding, and what comes of it. */
static void make_padded(const char *small)
{
    static const char *const files[][2] = { { "model.safetensors", "model.safetensors" },
                                            { "padded_config.json", "config.json" },
                                            { "padded.safetensors", "one_row.safetensors" },
                                            { "padded_grad_norms.json",
                                              "one_row_grad_norms.json" } };
    char *old = strdup(in_dir(small, "v2_5")), *made = strdup(at("padded"));
    CHECK_OK(sheaf__make_dirs(made));
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        copy(in_dir(old, files[i][0]), in_dir(made, files[i][1]));
    model_dir[models++] = made;
    free(old);
}

/* Fails where the configs of these models are not of 2.0, 2.5 and 2.6. */
static void check_versions(void)
{
    static const sheaf_minicpmv version[] = { SHEAF_MINICPMV_2_0, SHEAF_MINICPMV_2_5,
                                              SHEAF_MINICPMV_2_6 };
    for (size_t i = 0; i < ARRAY_LEN(version); i++) {
        bool found = false;
        for (int m = 0; m < models; m++) {
            sheaf_config c;
            CHECK_OK(sheaf_config_read(&c, in_dir(model_dir[m], "config.json")));
            found |= c.minicpmv == version[i];
            sheaf_config_release(&c);
        }
        if (!found)
            fail_msg("no model of %s found",
                     sheaf__minicpmv_version_of(&(sheaf_config){ .minicpmv = version[i] })->title);
    }
}

/* One of each version, and those of the full collection. */
static int find_recordings(void **state)
{
    const char *source = getenv("SHEAF_SOURCE_ROOT");
    char *small = NULL;
    if (make_scratch(state) != 0 ||
        asprintf(&small, "%s/tests/data/minicpmv", source == NULL ? "." : source) < 0)
        fail_msg("no scratch folder");
    find_in(small, "config.json", "one_row.safetensors");
    check_versions();
    make_padded(small);
    const int few = models;
    if (golden_is_full())
        find_in(golden("minicpmv"), "config.json", "one_row.safetensors");
    if (golden_is_full() && models == few)
        fail_msg("no recording of MiniCPM-V found");
    free(small);
    return 0;
}

static const char *file_of(const char *batch, const char *end)
{
    static char name[4][64];
    static int next;
    char *at = name[next++ % 4];
    snprintf(at, sizeof name[0], "%s%s", batch, end);
    return at;
}

/* ---- what is seen ---- */

static void compare_stage(const trial *t, const char *ours, const char *theirs, const float *want,
                          int64_t n)
{
    compare(theirs, stage_of(t, ours, n), want, n, 1e-5, 1e-4);
}

/* A recording of pictures padded to the longest, [pictures, most, width], as one behind the other.
 */
static float *packed(const sheaf_safetensors *want, const char *name, int64_t *n)
{
    const sheaf_safetensors_entry *sizes = sheaf__safetensors_find(want, "tgt_sizes"),
                                  *e = sheaf__safetensors_find(want, name);
    float *x = values(want, name, n);
    if (x == NULL)
        return NULL;
    assert_non_null(sizes);
    int32_t *size = malloc((size_t)sizes->bytes + 1);
    CHECK_OK(sheaf__safetensors_read(want, sizes, 0, size, sizes->bytes));
    const int64_t most = e->shape[1], width = e->shape[2];
    int64_t at = 0;
    for (int64_t i = 0; i < e->shape[0]; i++) {
        const int64_t rows = (int64_t)size[2 * i] * size[2 * i + 1];
        memmove(x + at * width, x + i * most * width, (size_t)(rows * width) * sizeof *x);
        at += rows;
    }
    *n = at * width;
    free(size);
    return x;
}

/* NAME_0, NAME_1, ... one behind the other. */
static float *joined(const sheaf_safetensors *want, const char *name, int64_t *n)
{
    float *all = NULL;
    *n = 0;
    for (int i = 0;; i++) {
        char one[64];
        int64_t more;
        snprintf(one, sizeof one, "%s_%d", name, i);
        float *x = values(want, one, &more);
        if (x == NULL)
            return all;
        all = realloc(all, (size_t)(*n + more) * sizeof *all);
        assert_non_null(all);
        memcpy(all + *n, x, (size_t)more * sizeof *x);
        *n += more;
        free(x);
    }
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
        float *x = rows[i].read(want, rows[i].theirs, &n);
        if (x == NULL)
            continue;
        compare_stage(t, rows[i].ours, rows[i].theirs, x, n);
        free(x);
        compared++;
    }
    assert_true(compared >= 3);
}

static void check_forward(const char *dir, const char *batch)
{
    char *path = strdup(in_dir(dir, file_of(batch, ".safetensors")));
    sheaf_safetensors *want = record_of(dir, file_of(batch, ".safetensors"));
    int64_t n, one_loss;
    float *logits = values(want, "logits", &n), *loss = values(want, "loss", &one_loss);
    assert_true(logits != NULL && one_loss == 1);
    trial one = run_forward(dir, NULL, path, SHEAF_F32);
    compare(path, one.logits, logits, n, 1e-5, 1e-4);
    CHECK_NEAR(path, one.loss, (double)loss[0], 1e-5 + 1e-4 * (double)loss[0]);
    compare_stages(&one, want);
    release(&one);
    free(logits);
    free(loss);
    free(path);
    sheaf__safetensors_close(want);
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
static void compare_gradients(const trial *t, const char *dir, const char *batch)
{
    json_t *norms = json_of(dir, file_of(batch, "_grad_norms.json"));
    const char *whole = file_of(batch, "_grads.safetensors");
    sheaf_safetensors *want = exists(in_dir(dir, whole)) ? record_of(dir, whole) : NULL;
    int64_t tensors = 0, trained = 0;
    for (int i = 0; i < t->trained; i++) {
        const json_t *norm = json_object_get(norms, t->name[i]);
        char name[300];
        int64_t n;
        if (norm == NULL || json_is_null(norm))
            fail_msg("%s: trained here, not there", t->name[i]);
        const double told = json_number_value(norm);
        CHECK_NEAR(t->name[i], norm_of(t->grad[i], t->numel[i]), told, 1e-3 * told + 1e-5);
        trained++;
        snprintf(name, sizeof name, "grad.%s", t->name[i]);
        float *x = want == NULL ? NULL : values(want, name, &n);
        if (x == NULL)
            continue;
        assert_int_equal(n, t->numel[i]);
        compare(name, t->grad[i], x, n, 1e-5, 1e-3);
        free(x);
        tensors++;
    }
    if (want != NULL) {
        assert_int_equal(tensors, want->header.count);
        sheaf__safetensors_close(want);
    }
    const char *name;
    const json_t *norm;
    json_object_foreach(norms, name, norm) trained -= !json_is_null(norm);
    assert_int_equal(trained, 0); /* what has a gradient there has one here */
    json_decref(norms);
}

static void check_gradients(const char *dir, const char *batch)
{
    char *path = strdup(in_dir(dir, file_of(batch, ".safetensors")));
    trial one = run_backward(dir, NULL, path, ranks_to_try, ARRAY_LEN(ranks_to_try));
    compare_gradients(&one, dir, batch);
    release(&one);
    free(path);
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

FIXTURE(find_recordings, forget_models);
