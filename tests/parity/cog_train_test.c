/* cog_train_test.c - the golden CogVLM and CogAgent models learn as SAT's did: the gradients of all
 * tensors at 1, 2, 3 and 8 ranks with the same bytes, also of labels on image rows, and whole
 * training runs, step by step. */
#include "tests/parity/cog.h"

#include "base/text.h"
#include "checkpoint/convert/convert.h"
#include "train/train.h"

/* ---- gradients ---- */

TEST(test_gradients__equal_those_of_one_device)
{
    for (int m = 0; m < models; m++) {
        char *dir = model_dir[m];
        sheaf_safetensors *want = record_of(dir, "grads_fp32.safetensors");
        json_t *scalars = json_of(dir, "scalars.json"),
               *norms = json_object_get(scalars, "grad_norm_by_name");
        trial one = run_backward(in_dir(dir, "mp1"), NULL, in_dir(dir, "inputs.safetensors"),
                                 ranks_to_try, ARRAY_LEN(ranks_to_try));
        int tensors = 0;
        for (int i = 0; i < one.trained; i++) {
            const json_t *norm = json_object_get(norms, one.name[i]);
            if (norm == NULL || json_is_null(norm))
                fail_msg("%s: trained here, not there", one.name[i]);
            const double told = json_number_value(norm);
            CHECK_NEAR(one.name[i], norm_of(one.grad[i], one.numel[i]), told, 1e-4 * told + 1e-6);
            char first_rows[300];
            snprintf(first_rows, sizeof first_rows, "%s[0:64]", one.name[i]);
            int64_t n;
            float *x = values(want, one.name[i], &n);
            if (x == NULL)
                x = values(want, first_rows, &n);
            if (x == NULL)
                continue;
            compare(one.name[i], one.grad[i], x, n, 1e-5, 1e-4);
            free(x);
            tensors++;
        }
        assert_int_equal(tensors, want->header.count);
        const char *name;
        const json_t *norm;
        json_object_foreach(norms, name, norm)
        { /* what has a gradient there has one here */
            if (!json_is_null(norm) && json_number_value(norm) != 0 && trained_at(&one, name) < 0)
                fail_msg("%s: no gradient", name);
        }
        release(&one);
        json_decref(scalars);
        sheaf__safetensors_close(want);
    }
}

/* ---- labels on image rows ---- */

/* The recorded inputs with labels on image rows: on each of them, or on the last patch alone.
 * `text` tells whether the recorded labels stay. */
static void write_labelled(const char *path, const char *dir, bool each, bool text)
{
    sheaf_safetensors *in = record_of(dir, "inputs.safetensors");
    const int64_t count = in->header.count;
    sheaf_safetensors_spec *spec = calloc((size_t)count, sizeof *spec);
    sheaf_safetensors_writer *w;
    int64_t length, *label = integer_rows(in, "labels", &length),
                    *expert = integer_rows(in, "vision_expert_mask", &length);
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in, "labels");
    for (int64_t i = 0; i < e->shape[0] * e->shape[1]; i++) {
        const bool first = i % e->shape[1] == 0,
                   image = !first && expert[i - 1] && (each || !expert[i]);
        assert_true(!image || label[i] == -100);
        label[i] = image ? 3 + i % 7 : text ? label[i] : -100;
    }
    for (int64_t i = 0; i < count; i++) {
        spec[i] = (sheaf_safetensors_spec){
            in->header.entry[i].name, in->header.entry[i].dtype, in->header.entry[i].ndim, { 0 }
        };
        memcpy(spec[i].shape, in->header.entry[i].shape, sizeof spec[i].shape);
    }
    CHECK_OK(sheaf__safetensors_begin(&w, path, spec, count, NULL, 0));
    for (int64_t i = 0; i < count; i++) {
        const sheaf_safetensors_entry *from = &in->header.entry[i];
        char *bytes = malloc((size_t)from->bytes + 1);
        CHECK_OK(sheaf__safetensors_read(in, from, 0, bytes, from->bytes));
        CHECK_OK(sheaf__safetensors_write(w, i, 0, from == e ? (char *)label : bytes, from->bytes));
        free(bytes);
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    free(spec);
    free(label);
    free(expert);
    sheaf__safetensors_close(in);
}

static int64_t count_labels(const char *path)
{
    sheaf_safetensors *file;
    CHECK_OK(sheaf__safetensors_open(&file, path));
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, "labels");
    int64_t length, *label = integer_rows(file, "labels", &length), n = 0;
    for (int64_t i = 0; i < e->shape[0] * e->shape[1]; i++)
        n += i % e->shape[1] != 0 && label[i] != -100;
    free(label);
    sheaf__safetensors_close(file);
    return n;
}

/* A training step leaves out the last MLP of image rows where no label is on one
 * (sheaf_data_labels_images); an evaluation never does. So the losses of the two are one another's
 * check; and a gradient, a sum over labels, is that of the text's labels, where it is left out, and
 * that of the image's, each by its count. */
static void check_labelled(const char *dir, bool each, int ranks)
{
    char *both = strdup(at("both.safetensors")), *image = strdup(at("image.safetensors")),
         *text = strdup(in_dir(dir, "inputs.safetensors"));
    write_labelled(both, dir, each, true);
    write_labelled(image, dir, each, false);
    const double of_text = (double)count_labels(text), of_image = (double)count_labels(image),
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
    unlink(both);
    unlink(image);
    free(both);
    free(image);
    free(text);
}

TEST(test_gradients__of_labels_on_image_rows)
{
    for (int m = 0; m < models; m++)
        for (int each = 0; each < 2; each++) {
            check_labelled(model_dir[m], each, 1);
            check_labelled(model_dir[m], each, 3);
        }
}

/* ---- training ---- */

/* SAT's factors as one PEFT module for each linear layer: A's parts below each other, B's on the
 * diagonal. */
typedef struct fused {
    char module[300];
    int parts;
    int64_t rank, in, out;
    float *a, *b;
} fused;

static int by_module(const void *a, const void *b)
{
    return strcmp(((const fused *)a)->module, ((const fused *)b)->module);
}

static int read_factors(fused *f, int capacity, const sheaf_safetensors *file)
{
    int n = 0;
    for (int64_t i = 0; i < file->header.count; i++) {
        const char *name = file->header.entry[i].name, *tail = strstr(name, ".matrix_A.");
        if (tail == NULL)
            continue;
        int at = 0;
        while (at < n && (strlen(f[at].module) != (size_t)(tail - name) ||
                          strncmp(f[at].module, name, (size_t)(tail - name)) != 0))
            at++;
        if (at == n) {
            assert_true(n < capacity);
            f[n++] = (fused){ .rank = file->header.entry[i].shape[0],
                              .in = file->header.entry[i].shape[1] };
            snprintf(f[at].module, sizeof f[at].module, "%.*s", (int)(tail - name), name);
        }
        f[at].parts++;
    }
    for (int at = 0; at < n; at++) {
        fused *m = &f[at];
        const int64_t wide = m->parts * m->rank;
        for (int p = 0; p < m->parts; p++) {
            char name[400];
            int64_t na, nb;
            snprintf(name, sizeof name, "%s.matrix_A.%d", m->module, p);
            float *a = values(file, name, &na);
            snprintf(name, sizeof name, "%s.matrix_B.%d", m->module, p);
            float *b = values(file, name, &nb);
            const int64_t rows = nb / m->rank;
            if (p == 0) {
                m->out = rows * m->parts;
                m->a = calloc((size_t)(wide * m->in), sizeof *m->a);
                m->b = calloc((size_t)(m->out * wide), sizeof *m->b);
            }
            memcpy(m->a + p * m->rank * m->in, a, (size_t)na * sizeof *a);
            for (int64_t r = 0; r < rows; r++)
                memcpy(m->b + (p * rows + r) * wide + p * m->rank, b + r * m->rank,
                       (size_t)m->rank * sizeof *b);
            free(a);
            free(b);
        }
    }
    qsort(f, (size_t)n, sizeof *f, by_module);
    return n;
}

static void write_adapter(const char *dir, fused *f, int n)
{
    sheaf_safetensors_spec *spec = calloc((size_t)n * 2, sizeof *spec);
    sheaf_safetensors_writer *w;
    json_t *targets = json_array(), *ranks = json_object(), *alphas = json_object();
    CHECK_OK(sheaf__make_dirs(dir));
    for (int i = 0; i < n; i++) {
        char *a = NULL, *b = NULL;
        const int64_t wide = f[i].parts * f[i].rank;
        assert_true(asprintf(&a, "base_model.model.%s.lora_A.weight", f[i].module) > 0 &&
                    asprintf(&b, "base_model.model.%s.lora_B.weight", f[i].module) > 0);
        spec[2 * i] = (sheaf_safetensors_spec){ a, SHEAF_F32, 2, { wide, f[i].in } };
        spec[2 * i + 1] = (sheaf_safetensors_spec){ b, SHEAF_F32, 2, { f[i].out, wide } };
        json_array_append_new(targets, json_string(f[i].module));
        json_object_set_new(ranks, f[i].module, json_integer(wide));
        json_object_set_new(alphas, f[i].module,
                            json_integer(f[i].parts)); /* SAT's alpha is 1 for each part */
    }
    CHECK_OK(sheaf__safetensors_begin(&w, in_dir(dir, "adapter_model.safetensors"), spec, 2 * n,
                                      NULL, 0));
    for (int i = 0; i < n; i++) {
        CHECK_OK(sheaf__safetensors_write(w, 2 * i, 0, f[i].a,
                                          spec[2 * i].shape[0] * spec[2 * i].shape[1] * 4));
        CHECK_OK(sheaf__safetensors_write(w, 2 * i + 1, 0, f[i].b,
                                          spec[2 * i + 1].shape[0] * spec[2 * i + 1].shape[1] * 4));
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    json_t *config =
        json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:s, s:f}", "peft_type", "LORA", "r",
                  (int)f[0].rank, "lora_alpha", 1, "target_modules", targets, "rank_pattern", ranks,
                  "alpha_pattern", alphas, "bias", "none", "lora_dropout", 0.0);
    assert_int_equal(json_dump_file(config, in_dir(dir, "adapter_config.json"), 0), 0);
    json_decref(config);
    for (int i = 0; i < 2 * n; i++)
        free((char *)spec[i].name);
    free(spec);
}

static void on_event(void *self, const sheaf_event *event)
{
    const json_t *want = recorded_step(self, event);
    if (want == NULL)
        return;
    const double norm = number_in(want, "global_grad_norm");
    CHECK_NEAR("gradient norm", event->step.grad_norm, norm, 1e-5 * (1 + norm));
    CHECK_NEAR("learning rate", event->step.lr,
               json_number_value(json_array_get(json_object_get(want, "lr_used_by_group"), 0)),
               1e-12);
}

/* Does a pass read the tensor? SAT lists the tower's last block, norm and head too, which get no
 * gradient. */
static bool is_read(const char *name, const json_t *norms)
{
    const json_t *norm = json_object_get(norms, name);
    return norm == NULL || !json_is_null(norm);
}

/* Names of all groups without LoRA, as a --train pattern; of layers that carry LoRA without
 * ".original". */
static char *trained_names(const json_t *groups, const json_t *norms)
{
    sheaf_text text = { 0 };
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const json_t *names = json_object_get(json_array_get(groups, g), "names");
        for (size_t i = 0; i < json_array_size(names); i++) {
            const char *name = json_string_value(json_array_get(names, i)),
                       *original = strstr(name, ".original.");
            if (strstr(name, ".matrix_") != NULL || !is_read(name, norms))
                continue;
            const char *comma = text.size > 0 ? "," : "";
            if (original == NULL)
                sheaf__text_add(&text, "%s%s", comma, name);
            else
                sheaf__text_add(&text, "%s%.*s%s", comma, (int)(original - name), name,
                                original + strlen(".original"));
        }
    }
    char *out = NULL;
    CHECK_OK(sheaf__text_take(&out, &text));
    return out;
}

/* The groups whose rate is scaled: "NAME=SCALE,". */
static char *scaled_names(const json_t *groups, const json_t *norms)
{
    sheaf_text text = { 0 };
    for (size_t g = 0; g < json_array_size(groups); g++) {
        const json_t *group = json_array_get(groups, g), *names = json_object_get(group, "names");
        const double scale = json_number_value(json_object_get(group, "lr"));
        for (size_t i = 0; scale != 1 && i < json_array_size(names); i++) {
            const char *name = json_string_value(json_array_get(names, i)),
                       *original = strstr(name, ".original.");
            const char *comma = text.size > 0 ? "," : "", *factor = strstr(name, ".matrix_A.0");
            if (factor != NULL)
                sheaf__text_add(&text, "%s*%.*s.lora_*=%g", comma, (int)(factor - name), name,
                                scale);
            else if (strstr(name, ".matrix_") == NULL && original == NULL && is_read(name, norms))
                sheaf__text_add(&text, "%s%s=%g", comma, name, scale);
            else if (original != NULL)
                sheaf__text_add(&text, "%s%.*s%s=%g", comma, (int)(original - name), name,
                                original + strlen(".original"), scale);
        }
    }
    char *out = NULL;
    CHECK_OK(sheaf__text_take(&out, &text));
    return out;
}

static void check_training(const char *dir, int ranks, const char *out)
{
    sheaf_safetensors *init = record_of(dir, "train_lora_mp1_init_lora.safetensors");
    json_t *told = json_of(dir, "train_lora_mp1_train.json");
    fused *f = calloc(512, sizeof *f);
    const int n = read_factors(f, 512, init);
    char *adapter = NULL, *model = strdup(in_dir(dir, "mp1")),
         *data = strdup(in_dir(dir, "inputs.safetensors")), *folder = strdup(out);
    assert_true(n > 0 && asprintf(&adapter, "%s-init", out) > 0);
    write_adapter(adapter, f, n);
    const json_t *ds = json_object_get(told, "deepspeed_config"),
                 *adam = json_object_get(json_object_get(ds, "optimizer"), "params");
    const json_t *schedule = json_object_get(told, "scheduler"),
                 *steps = json_object_get(told, "steps");
    assert_string_equal(json_string_value(json_object_get(schedule, "style")), "cosine");
    json_t *scalars = json_of(dir, "scalars.json");
    const json_t *norms = json_object_get(scalars, "grad_norm_by_name");
    char *train = trained_names(json_object_get(told, "param_groups"), norms),
         *scale = scaled_names(json_object_get(told, "param_groups"), norms);
    json_decref(scalars);
    sheaf_train_options o;
    sheaf_train_options_default(&o);
    o.model = model;
    o.data = data;
    o.out = folder;
    o.adapter = adapter;
    o.train = train;
    o.lr_scale = scale;
    o.tp = ranks;
    o.threads = 2;
    o.steps = (int64_t)json_array_size(steps);
    o.micro_batch = json_integer_value(json_object_get(ds, "train_micro_batch_size_per_gpu"));
    o.shuffle = false;
    o.lr = json_number_value(json_object_get(adam, "lr"));
    o.beta1 = json_number_value(json_array_get(json_object_get(adam, "betas"), 0));
    o.beta2 = json_number_value(json_array_get(json_object_get(adam, "betas"), 1));
    o.eps = json_number_value(json_object_get(adam, "eps"));
    o.weight_decay = json_number_value(json_object_get(adam, "weight_decay"));
    o.clip = json_number_value(json_object_get(ds, "gradient_clipping"));
    o.schedule = SHEAF_SCHEDULE_SAT_COSINE;
    o.warmup_ratio = json_number_value(json_object_get(schedule, "warmup"));
    o.dtype = SHEAF_F32;
    trace t = { steps, 1e-5, 0 };
    sheaf_train_result result;
    CHECK_OK(sheaf_train(&result, &o, "", "",
                         &(sheaf_train_hooks){ .events = &(sheaf_events){ on_event, &t } }));
    assert_int_equal(t.seen, (int)json_array_size(steps));
    sheaf_train_result_release(&result);
    for (int i = 0; i < n; i++) {
        free(f[i].a);
        free(f[i].b);
    }
    free(f);
    free(train);
    free(scale);
    free(adapter);
    free(model);
    free(data);
    free(folder);
    json_decref(told);
    sheaf__safetensors_close(init);
}

/* SAT's own result of the same run, where it is recorded: its factors and ours. */
static void compare_with_sat(const char *dir, const char *out)
{
    char *theirs = strdup(in_dir(dir, "train_lora_mp1"));
    if (!exists(in_dir(theirs, "latest"))) {
        free(theirs);
        return;
    }
    char *peft = NULL;
    sheaf_weights_convert_report report;
    assert_true(asprintf(&peft, "%s-sat", out) > 0);
    CHECK_OK(sheaf_convert(
        &report, &(sheaf_weights_convert_options){ .src = theirs, .dst = peft, .to = "peft" }));
    sheaf_safetensors *want = record_of(peft, "adapter_model.safetensors"),
                      *got = record_of(in_dir(out, "adapter"), "adapter_model.safetensors");
    assert_true(want->header.count > 0);
    for (int64_t i = 0; i < want->header.count; i++) {
        const char *name = want->header.entry[i].name;
        int64_t n, m;
        float *x = values(want, name, &n), *y = values(got, name, &m);
        if (y == NULL || n != m)
            fail_msg("%s: not in the adapter", name);
        compare(name, y, x, n, 2e-6, 1e-4);
        free(x);
        free(y);
    }
    sheaf__safetensors_close(want);
    sheaf__safetensors_close(got);
    free(theirs);
    free(peft);
}

TEST(test_training__as_sat_on_one_device)
{
    int ran = 0;
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "train_lora_mp1_train.json")))
            continue;
        char *one = strdup(at_format("run%d-1", m));
        check_training(model_dir[m], 1, one);
        compare_with_sat(model_dir[m], one);
        for (int ranks = 3; ranks <= 8; ranks += 5) {
            char *more = strdup(at_format("run%d-%d", m, ranks));
            check_training(model_dir[m], ranks, more);
            sheaf_safetensors *a = record_of(in_dir(one, "adapter"), "adapter_model.safetensors"),
                              *b = record_of(in_dir(more, "adapter"), "adapter_model.safetensors");
            assert_int_equal(a->header.count, b->header.count);
            for (int64_t i = 0; i < a->header.count; i++) {
                int64_t n, k;
                float *x = values(a, a->header.entry[i].name, &n),
                      *y = values(b, a->header.entry[i].name, &k);
                assert_int_equal(n, k);
                CHECK_BYTES(a->header.entry[i].name, x, y, (size_t)n * sizeof *x);
                free(x);
                free(y);
            }
            sheaf__safetensors_close(a);
            sheaf__safetensors_close(b);
            free(more);
        }
        free(one);
        ran++;
    }
    assert_true(ran > 0);
}

FIXTURE(find_models, forget_models);
