/* omnilmm_test.c - the golden OmniLMM agrees with what the original program computed: the values of
 * all stages, logits, loss and every gradient, with the same bytes at 1, 2, 3 and 8 ranks, and its
 * recorded LoRA runs. Of several images in a row each counts, where upstream keeps the last.
 *
 * Every folder of $SHEAF_GOLDEN is run that holds single.safetensors and batch.safetensors; none
 * found is a failure, but in the committed subset, which is too small for a model. */
#include "tests/golden.h"
#include "tests/parity/trial.h"

#include "train/train.h"

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
        float *x = values(want, rows[i].theirs, &n);
        const int s = stage_at(t, rows[i].ours);
        if (x == NULL || s < 0)
            fail_msg("no %s, or no %s", rows[i].theirs, rows[i].ours);
        const bool once = strcmp(rows[i].ours, "resampler_q") == 0;
        const int64_t ours = t->stage_numel[s];
        assert_true(once ? n % ours == 0 : n == ours);
        compare(rows[i].theirs, t->stage[s], x, ours, 1e-5, 1e-4);
        free(x);
    }
}

static void check_forward(const char *dir, const char *name)
{
    sheaf_safetensors *want = record_of(dir, name);
    int64_t n, one_number;
    float *logits = values(want, "logits", &n), *loss = values(want, "loss", &one_number);
    trial one = run_forward(dir, NULL, in_dir(dir, name), SHEAF_F32);
    compare(dir, one.logits, logits, n, 1e-5, 1e-4);
    CHECK_NEAR(dir, one.loss, *loss, 1e-5);
    compare_stages(&one, want);
    release(&one);
    free(logits);
    free(loss);
    sheaf__safetensors_close(want);
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
            char *data = strdup(in_dir(model_dir[m], inputs[1]));
            trial exact = run(model_dir[m], NULL, data, 1, SHEAF_F32, false),
                  one = run_forward(model_dir[m], NULL, data, dtype);
            CHECK_NEAR(data, one.loss, exact.loss, 0.02);
            release(&exact);
            release(&one);
            free(data);
        }
}

/* ---- gradients ---- */

static void check_gradients(const trial *t, const char *dir)
{
    json_t *norms = json_of(dir, "single_grad_norms.json");
    sheaf_safetensors *want = record_of(dir, "single_grads.safetensors");
    const char *name;
    const json_t *norm;
    int compared = 0;
    json_object_foreach(norms, name, norm)
    {
        const int i = trained_at(t, name);
        if ((i < 0) != json_is_null(norm))
            fail_msg("%s: trained in one of the two only", name);
        if (i < 0)
            continue;
        const double told = json_number_value(norm);
        CHECK_NEAR(name, norm_of(t->grad[i], t->numel[i]), told, 1e-3 * told + 1e-6);
        char recorded[300];
        int64_t n;
        snprintf(recorded, sizeof recorded, "grad.%s", name);
        float *x = values(want, recorded, &n);
        if (x != NULL) {
            assert_int_equal(n, t->numel[i]);
            compare(name, t->grad[i], x, n, 1e-5, 1e-3);
            compared++;
        }
        free(x);
    }
    assert_int_equal(json_object_size(norms), t->trained + 1); /* the queries' positions */
    assert_int_equal(compared, want->header.count);
    json_decref(norms);
    sheaf__safetensors_close(want);
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

/* A row of marks and rows of images between a token each, labels on the last. */
static void write_row(const char *path, const sheaf_config *c, int64_t images, const float *pixels)
{
    const int64_t q = c->resampler.queries, n = images * (q + 3) + 2, tower = c->vit.height;
    int64_t *ids = calloc((size_t)n, sizeof *ids), *labels = calloc((size_t)n, sizeof *labels);
    int64_t at = 0;
    ids[at++] = 1;
    for (int64_t i = 0; i < images; i++) {
        ids[at++] = c->image_mark.begin;
        for (int64_t k = 0; k < q; k++)
            ids[at++] = c->image_mark.patch;
        ids[at++] = c->image_mark.end;
        ids[at++] = 5 + i;
    }
    ids[at] = 7;
    for (int64_t i = 0; i < n; i++)
        labels[i] = i == n - 1 ? 7 : -100;
    const sheaf_safetensors_spec spec[] = {
        { "images", SHEAF_F32, 4, { images, c->vit.channels, tower, tower } },
        { "input_ids", SHEAF_I64, 2, { 1, n } },
        { "labels", SHEAF_I64, 2, { 1, n } },
    };
    sheaf_safetensors_writer *w;
    CHECK_OK(sheaf__safetensors_begin(&w, path, spec, 3, NULL, 0));
    CHECK_OK(
        sheaf__safetensors_write(w, 0, 0, pixels, images * c->vit.channels * tower * tower * 4));
    CHECK_OK(sheaf__safetensors_write(w, 1, 0, ids, n * 8));
    CHECK_OK(sheaf__safetensors_write(w, 2, 0, labels, n * 8));
    CHECK_OK(sheaf__safetensors_finish(w));
    free(ids);
    free(labels);
}

/* The rows of both images stand in the sequence as they were recorded for each. */
TEST(test_images__all_of_a_row_count)
{
    for (int m = 0; m < models; m++) {
        sheaf_config c;
        CHECK_OK(sheaf_config_read(&c, in_dir(model_dir[m], "config.json")));
        sheaf_safetensors *in = record_of(model_dir[m], inputs[1]);
        int64_t n, features, h = c.hidden, q = c.resampler.queries;
        float *pixels = values(in, "images", &n), *want = values(in, "image_features", &features);
        assert_int_equal(features, 2 * q * h);
        char *path = strdup(at("two.safetensors"));
        write_row(path, &c, 2, pixels);
        trial two = run(model_dir[m], NULL, path, 1, SHEAF_F32, false),
              three = run(model_dir[m], NULL, path, 3, SHEAF_F32, false);
        const float *x = stage_of(&two, "embedding", two.positions * h);
        compare("first image", x + 2 * h, want, q * h, 1e-5, 1e-4);
        compare("second image", x + (q + 5) * h, want + q * h, q * h, 1e-5, 1e-4);
        CHECK_BYTES("ranks", two.logits, three.logits, (size_t)(two.positions * c.vocab) * 4);
        unlink(path);
        write_row(path, &c, 1, pixels);
        trial one = run(model_dir[m], NULL, path, 1, SHEAF_F32, false);
        CHECK_BYTES("up to the second image", one.logits, two.logits,
                    (size_t)((q + 4) * c.vocab) * 4);
        release(&one);
        release(&two);
        release(&three);
        free(path);
        free(pixels);
        free(want);
        sheaf__safetensors_close(in);
        sheaf_config_release(&c);
    }
}

/* ---- pictures that do not fall into patches ---- */

/* The model with pictures of `size` pixels, as a folder. */
static char *resized(const char *dir, int64_t size)
{
    char *out, *text;
    out = strdup(at_format("size%lld", (long long)size));
    CHECK_OK(sheaf__make_dirs(out));
    json_t *config = json_of(dir, "config.json");
    json_object_set_new(config, "image_size", json_integer(size));
    text = json_dumps(config, 0);
    put(in_dir(out, "config.json"), text);
    assert_int_equal(symlink(in_dir(dir, "model.safetensors"), in_dir(out, "model.safetensors")),
                     0);
    free(text);
    json_decref(config);
    return out;
}

/* As timm pads them: zeros on the right and below. */
TEST(test_images__zeros_lie_behind_the_edge)
{
    for (int m = 0; m < models; m++) {
        sheaf_config c, small;
        CHECK_OK(sheaf_config_read(&c, in_dir(model_dir[m], "config.json")));
        const int64_t side = c.vit.height, less = side - 5, planes = 2 * c.vit.channels;
        float *whole = calloc((size_t)(planes * side * side), sizeof *whole),
              *cut = calloc((size_t)(planes * less * less), sizeof *cut);
        for (int64_t i = 0; i < planes * less * less; i++)
            whole[i / less / less * side * side + i / less % less * side + i % less] = cut[i] =
                (float)(i * 7919 % 1000) / 500 - 1;
        char *dir = resized(model_dir[m], less),
             *path[2] = { strdup(at("cut.safetensors")), strdup(at("whole.safetensors")) };
        CHECK_OK(sheaf_config_read(&small, in_dir(dir, "config.json")));
        write_row(path[0], &small, 2, cut);
        write_row(path[1], &c, 2, whole);
        for (int d = 0; d < 2; d++) {
            const sheaf_dtype dtype = d == 0 ? SHEAF_F32 : SHEAF_BF16;
            trial a = run(dir, NULL, path[0], 2, dtype, false),
                  b = run(model_dir[m], NULL, path[1], 1, dtype, false);
            const int64_t rows = 2 * (c.resampler.queries + 3) + 2;
            CHECK_BYTES(dir, a.logits, b.logits, (size_t)(rows * c.vocab) * sizeof(float));
            release(&a);
            release(&b);
        }
        free(whole);
        free(cut);
        free(dir);
        free(path[0]);
        free(path[1]);
        sheaf_config_release(&c);
        sheaf_config_release(&small);
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
static void compare_adapter(const char *ours, const char *theirs)
{
    sheaf_safetensors *a = record_of(ours, "adapter_model.safetensors"),
                      *b = record_of(theirs, "adapter_model.safetensors");
    assert_int_equal(a->header.count, b->header.count);
    for (int64_t i = 0; i < b->header.count; i++) {
        const char *name = b->header.entry[i].name;
        int64_t n, other;
        float *want = values(b, name, &n), *x = values(a, name, &other);
        assert_int_equal(n, other);
        const bool noise = strstr(name, "in_proj_bias") != NULL;
        compare(name, x, want, noise ? n / 3 : n, 1e-4, 0);
        if (noise)
            compare(name, x + n / 3 * 2, want + n / 3 * 2, n / 3, 1e-4, 0);
        if (strstr(name, "pos_embed") != NULL)
            CHECK_BYTES(name, x, want, (size_t)n * sizeof(float));
        free(want);
        free(x);
    }
    sheaf__safetensors_close(a);
    sheaf__safetensors_close(b);
}

/* One row a step, by AdamW as it was recorded: without clipping, at one rate. */
static void optimizer_of(sheaf_train_options *o, const json_t *adam)
{
    sheaf_train_options_default(o);
    o->threads = 2;
    o->steps = json_integer_value(json_object_get(adam, "steps"));
    o->micro_batch = 1;
    o->shuffle = false;
    o->lr = json_number_value(json_object_get(adam, "lr"));
    o->beta1 = json_number_value(json_array_get(json_object_get(adam, "betas"), 0));
    o->beta2 = json_number_value(json_array_get(json_object_get(adam, "betas"), 1));
    o->eps = json_number_value(json_object_get(adam, "eps"));
    o->weight_decay = json_number_value(json_object_get(adam, "weight_decay"));
    o->clip = 0;
    o->schedule = SHEAF_SCHEDULE_CONSTANT;
    o->dtype = SHEAF_F32;
}

static void check_run(const char *dir, const char *name, int ranks)
{
    char *run_dir = strdup(in_dir(dir, name)), *out = strdup(at("run")),
         *data = strdup(in_dir(dir, inputs[0])),
         *adapter = strdup(in_dir(run_dir, "adapter_start"));
    json_t *told = json_of(run_dir, "training.json");
    sheaf_train_options o;
    optimizer_of(&o, json_object_get(told, "optimizer"));
    o.model = dir;
    o.data = data;
    o.out = out;
    o.adapter = adapter;
    o.tp = ranks;
    progress t = { json_object_get(told, "losses"), 0 };
    sheaf_train_result result;
    CHECK_OK(sheaf_train(&result, &o, "", "",
                         &(sheaf_train_hooks){ .events = &(sheaf_events){ on_event, &t } }));
    assert_int_equal(t.seen + 1, json_array_size(t.losses));
    compare_adapter(in_dir(out, "adapter"), in_dir(run_dir, "adapter_end"));
    /* After the last step: with the trained adapter, as it was written. */
    sheaf_safetensors *end = record_of(run_dir, "end_logits.safetensors");
    int64_t n;
    float *logits = values(end, end->header.entry[0].name, &n);
    char *trained = strdup(in_dir(out, "adapter"));
    trial last = run(dir, trained, data, 2, SHEAF_F32, false);
    compare(name, last.logits, logits, n, 1e-3, 1e-3);
    CHECK_NEAR(name, last.loss, json_number_value(json_array_get(t.losses, (size_t)t.seen)), 5e-4);
    release(&last);
    char *theirs = strdup(in_dir(run_dir, "adapter_end"));
    last = run(dir, theirs, data, 1, SHEAF_F32, false);
    compare(name, last.logits, logits, n, 1e-5, 1e-4);
    release(&last);
    sheaf_train_result_release(&result);
    sheaf__safetensors_close(end);
    json_decref(told);
    free(logits);
    free(theirs);
    free(trained);
    free(adapter);
    free(data);
    free(run_dir);
    free(out);
}

TEST(test_training__recorded_runs)
{
    static const char *const runs[] = { "lora_qkvo", "lora_all" };
    for (int m = 0; m < models; m++) {
        for (size_t i = 0; i < ARRAY_LEN(runs); i++)
            for (int ranks = 1; ranks <= 3; ranks += 2) {
                check_run(model_dir[m], runs[i], ranks);
                remove_scratch(state);
                assert_int_equal(make_scratch(state), 0);
            }
    }
}

FIXTURE(find_omnilmm, remove_scratch);
