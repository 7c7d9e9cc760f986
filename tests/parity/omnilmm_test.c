/* omnilmm_test.c - the golden OmniLMM agrees with what the original program computed: the values of
 * all stages, logits, loss and every gradient, with the same bytes at 1, 2, 3 and 8 ranks, and its
 * recorded LoRA runs. Of several images in a row each counts, where upstream keeps the last.
 *
 * Every folder of $SHEAF_GOLDEN is run that holds single.safetensors and batch.safetensors; none
 * found is a failure, but in the committed subset, which is too small for a model. */
#include "tests/golden.h"
#include "tests/parity/trained.h"
#include "tests/parity/trial.h"

static int find_omnilmm(void **state)
{
    if (make_scratch(state) != 0)
        fail_msg("no scratch folder");
    find_in(golden(""), "single.safetensors", "batch.safetensors");
    if (models == 0 && golden_is_full())
        fail_msg("no OmniLMM found");
    return 0;
}

static const char *const inputs[] = { "single.safetensors", "batch.safetensors" };

/* ---- forward ---- */

/* The queries are recorded once for each image, the same; here they are there once. */
static void compare_stages(const trial *t, const sheaf_safetensors *want)
{
    static const struct {
        const char *theirs, *ours;
    } rows[] = {
        { "patch_embed", "patches" },     { "vit_input", "vit_in" },
        { "vit_block0_out", "vit0" },     { "vit_features", "adapter_in" },
        { "resampler_q", "resampler_q" }, { "resampler_k", "resampler_k" },
        { "resampler_v", "resampler_v" }, { "resampler_attn_out", "resampler_attention" },
        { "image_features", "adapter" },  { "inputs_embeds", "embedding" },
        { "layer0_out", "mlp0" },         { "final_norm_out", "final_norm" },
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        int64_t n;
        const float *x = values(want, rows[i].theirs, &n);
        const int s = stage_at(t, rows[i].ours);
        if (x == NULL || s < 0)
            fail_msg("no %s, or no %s", rows[i].theirs, rows[i].ours);
        const bool once = strcmp(rows[i].ours, "resampler_q") == 0;
        const int64_t ours = t->stage_numel[s];
        assert_true(once ? n % ours == 0 : n == ours);
        compare(rows[i].theirs, t->stage[s], x, ours, 1e-5, 1e-4);
    }
}

static void check_forward(const char *dir, const char *name)
{
    sheaf_safetensors *want = record_of(dir, name);
    int64_t n, one_number;
    const float *logits = values_of(want, "logits", &n),
                *loss = values_of(want, "loss", &one_number);
    trial one = run_forward(dir, NULL, in_dir(dir, name), SHEAF_F32);
    compare(dir, one.logits, logits, n, 1e-5, 1e-4);
    CHECK_NEAR(dir, one.loss, *loss, 1e-5);
    compare_stages(&one, want);
    release(&one);
}

TEST(test_forward__stages_logits_and_loss)
{
    for (int m = 0; m < models; m++)
        for (size_t i = 0; i < ARRAY_LEN(inputs); i++)
            check_forward(model_dir[m], inputs[i]);
}

/* In half precision the loss moves by its rounding, and the bytes by nothing. */
TEST(test_forward__half_precision)
{
    for (int m = 0; m < models; m++)
        for (int d = 0; d < 2; d++) {
            const sheaf_dtype dtype = d == 0 ? SHEAF_BF16 : SHEAF_F16;
            const char *data = in_dir(model_dir[m], inputs[1]);
            trial exact = run(model_dir[m], NULL, data, 1, SHEAF_F32, false),
                  one = run_forward(model_dir[m], NULL, data, dtype);
            CHECK_NEAR(data, one.loss, exact.loss, 0.02);
            release(&exact);
            release(&one);
        }
}

/* ---- gradients ---- */

static void check_gradients(const trial *t, const char *dir)
{
    const json_t *norms = json_of(dir, "single_grad_norms.json");
    const sheaf_safetensors *want = record_of(dir, "single_grads.safetensors");
    assert_int_equal(compare_norms(t, norms, 1e-3, 1e-6), t->trained);
    assert_int_equal(json_object_size(norms), t->trained + 1); /* the queries' positions */
    assert_int_equal(compare_gradients(t, want, "grad.", (tolerance){ 1e-5, 1e-3, 0 }),
                     want->header.count);
}

TEST(test_gradients__equal_those_of_one_device)
{
    for (int m = 0; m < models; m++)
        for (size_t i = 0; i < ARRAY_LEN(inputs); i++) {
            trial one = run_backward(model_dir[m], NULL, in_dir(model_dir[m], inputs[i]),
                                     ranks_to_try, ARRAY_LEN(ranks_to_try));
            if (i == 0)
                check_gradients(&one, model_dir[m]);
            release(&one);
        }
}

/* ---- several images in a row ---- */

/* A row of marks and rows of images between a token each, labels on the last; its file. */
static const char *write_row(const char *name, const sheaf_config *c, int64_t images,
                             const float *pixels)
{
    const int64_t q = c->resampler.queries, n = images * (q + 3) + 2, tower = c->vit.height;
    int64_t *ids = room((size_t)n * sizeof *ids), *labels = room((size_t)n * sizeof *labels),
            to = 0;
    made_tensors t = { .count = 0 };
    ids[to++] = 1;
    for (int64_t i = 0; i < images; i++) {
        ids[to++] = c->image_mark.begin;
        for (int64_t k = 0; k < q; k++)
            ids[to++] = c->image_mark.patch;
        ids[to++] = c->image_mark.end;
        ids[to++] = 5 + i;
    }
    ids[to] = 7;
    for (int64_t i = 0; i < n; i++)
        labels[i] = i == n - 1 ? 7 : -100;
    made_add(&t, "images", SHEAF_F32, 4, (const int64_t[]){ images, c->vit.channels, tower, tower },
             pixels);
    made_add(&t, "input_ids", SHEAF_I64, 2, (const int64_t[]){ 1, n }, ids);
    made_add(&t, "labels", SHEAF_I64, 2, (const int64_t[]){ 1, n }, labels);
    return made_write(&t, at(name));
}

/* The rows of both images stand in the sequence as they were recorded for each. */
TEST(test_images__all_of_a_row_count)
{
    for (int m = 0; m < models; m++) {
        const sheaf_config *c = config_of(model_dir[m], "config.json");
        const sheaf_safetensors *in = record_of(model_dir[m], inputs[1]);
        const int64_t h = c->hidden, q = c->resampler.queries;
        int64_t n, features;
        const float *pixels = values_of(in, "images", &n),
                    *want = values_of(in, "image_features", &features);
        assert_int_equal(features, 2 * q * h);
        const char *path = write_row("two.safetensors", c, 2, pixels);
        trial two = run(model_dir[m], NULL, path, 1, SHEAF_F32, false),
              three = run(model_dir[m], NULL, path, 3, SHEAF_F32, false),
              one = run(model_dir[m], NULL, write_row("one.safetensors", c, 1, pixels), 1,
                        SHEAF_F32, false);
        const float *x = stage_of(&two, "embedding", two.positions * h);
        compare("first image", x + 2 * h, want, q * h, 1e-5, 1e-4);
        compare("second image", x + (q + 5) * h, want + q * h, q * h, 1e-5, 1e-4);
        CHECK_BYTES("ranks", two.logits, three.logits, (size_t)(two.positions * c->vocab) * 4);
        CHECK_BYTES("up to the second image", one.logits, two.logits,
                    (size_t)((q + 4) * c->vocab) * 4);
        release(&one);
        release(&two);
        release(&three);
    }
}

/* ---- pictures that do not fall into patches ---- */

/* The model with pictures of `size` pixels, as a folder. */
static const char *resized(const char *dir, int64_t size)
{
    const char *out = at(textf("size%d", (int)size));
    json_t *config = json_of(dir, "config.json");
    CHECK_OK(sheaf__make_dirs(out));
    json_object_set_new(config, "image_size", json_integer(size));
    assert_int_equal(json_dump_file(config, in_dir(out, "config.json"), 0), 0);
    assert_int_equal(symlink(in_dir(dir, "model.safetensors"), in_dir(out, "model.safetensors")),
                     0);
    return out;
}

/* As timm pads them: zeros on the right and below. */
TEST(test_images__zeros_lie_behind_the_edge)
{
    for (int m = 0; m < models; m++) {
        const sheaf_config *c = config_of(model_dir[m], "config.json");
        const int64_t side = c->vit.height, less = side - 5, planes = 2 * c->vit.channels,
                      rows = 2 * (c->resampler.queries + 3) + 2;
        float *whole = room((size_t)(planes * side * side) * sizeof *whole),
              *cut = room((size_t)(planes * less * less) * sizeof *cut);
        for (int64_t i = 0; i < planes * less * less; i++)
            whole[i / less / less * side * side + i / less % less * side + i % less] = cut[i] =
                (float)(i * 7919 % 1000) / 500 - 1;
        const char *dir = resized(model_dir[m], less),
                   *of_cut = write_row("cut.safetensors", config_of(dir, "config.json"), 2, cut),
                   *of_whole = write_row("whole.safetensors", c, 2, whole);
        for (int d = 0; d < 2; d++) {
            const sheaf_dtype dtype = d == 0 ? SHEAF_F32 : SHEAF_BF16;
            trial a = run(dir, NULL, of_cut, 2, dtype, false),
                  b = run(model_dir[m], NULL, of_whole, 1, dtype, false);
            CHECK_BYTES(dir, a.logits, b.logits, (size_t)(rows * c->vocab) * sizeof(float));
            release(&a);
            release(&b);
        }
    }
}

/* ---- recorded LoRA runs ---- */

typedef struct progress {
    const json_t *losses;
    int seen;
} progress;

static void on_event(void *self, const sheaf_event *event)
{
    progress *t = self;
    if (event->kind == SHEAF_EVENT_STEP) {
        const double want = json_number_value(json_array_get(t->losses, (size_t)t->seen++));
        CHECK_NEAR("loss", event->step.loss, want, 1e-4 * want);
    }
}

/* The middle third of a bias, that of the keys, moves no probability: its gradient is noise. */
static void check_trained(void *self, const char *name, const float *x, const float *want,
                          int64_t n)
{
    const bool noise = strstr(name, "in_proj_bias") != NULL;
    compare(name, x, want, noise ? n / 3 : n, 1e-4, 0);
    if (noise)
        compare(name, x + n / 3 * 2, want + n / 3 * 2, n / 3, 1e-4, 0);
    if (strstr(name, "pos_embed") != NULL)
        CHECK_BYTES(name, x, want, (size_t)n * sizeof(float));
}

static void check_run(const char *dir, const char *name, int ranks)
{
    static int runs;
    const char *run_dir = in_dir(dir, name), *end = in_dir(run_dir, "adapter_end");
    const json_t *told = json_of(run_dir, "training.json"),
                 *adam = json_object_get(told, "optimizer");
    progress t = { json_object_get(told, "losses"), 0 };
    sheaf_train_options o = adamw_options(adam);
    o.model = dir;
    o.data = in_dir(dir, inputs[0]);
    o.out = at(textf("run%d", runs++));
    o.adapter = in_dir(run_dir, "adapter_start");
    o.tp = ranks;
    o.steps = json_integer_value(json_object_get(adam, "steps"));
    train_as(&o, on_event, &t);
    assert_int_equal(t.seen + 1, json_array_size(t.losses));
    const char *trained = in_dir(o.out, "adapter");
    each_pair(in_dir(trained, "adapter_model.safetensors"),
              in_dir(end, "adapter_model.safetensors"), check_trained, NULL);
    /* After the last step: with the trained adapter, as it was written. */
    const sheaf_safetensors *last = record_of(run_dir, "end_logits.safetensors");
    int64_t n;
    const float *logits = values_of(last, last->header.entry[0].name, &n);
    trial ours = run(dir, trained, o.data, 2, SHEAF_F32, false),
          theirs = run(dir, end, o.data, 1, SHEAF_F32, false);
    compare(name, ours.logits, logits, n, 1e-3, 1e-3);
    CHECK_NEAR(name, ours.loss, json_number_value(json_array_get(t.losses, (size_t)t.seen)), 5e-4);
    compare(name, theirs.logits, logits, n, 1e-5, 1e-4);
    release(&ours);
    release(&theirs);
}

TEST(test_training__recorded_runs)
{
    static const char *const runs[] = { "lora_qkvo", "lora_all" };
    for (int m = 0; m < models; m++)
        for (size_t i = 0; i < ARRAY_LEN(runs); i++)
            for (int ranks = 1; ranks <= 3; ranks += 2)
                check_run(model_dir[m], runs[i], ranks);
}

FIXTURE(find_omnilmm, remove_scratch);
