/* cog_test.c - the golden CogVLM and CogAgent models agree with what SAT computed: the values of all
 * stages, logits, loss and gradients, at 1, 2, 3 and 8 ranks with the same bytes, from the files of
 * every model-parallel size and in half precision; and greedy generation.
 *
 * Every folder of $SHEAF_GOLDEN (or of the committed subset) that holds inputs.safetensors and
 * mp1/model_config.json is run; none found is a failure. The subset has no other sizes, dtypes and adapters. Tolerances are those of the recordings'
 * README: 5e-5 for logits and stages, 1e-4 relative for gradients. */
#include "tests/check.h"

#include <dirent.h>
#include <math.h>
#include <unistd.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/convert.h"
#include "formats/safetensors.h"
#include "infer/generate.h"
#include "models/crew.h"
#include "tests/files.h"
#include "tests/golden.h"
#include "train/evaluate.h"
#include "train/train.h"

enum { MAX_MODELS = 32, MAX_STAGES = 512 };
static char *model_dir[MAX_MODELS];
static int models;
static const int ranks_to_try[] = { 1, 2, 3, 8 };

/* "dir/name"; the last sixteen results stay valid. */
static const char *in_dir(const char *dir, const char *name)
{
    static char *ring[16];
    static int next;
    char *joined = NULL;
    if (asprintf(&joined, "%s/%s", dir, name) < 0)
        fail_msg("out of memory");
    char **slot = &ring[next++ % 16];
    free(*slot);
    return *slot = joined;
}

static bool exists(const char *path) { return access(path, R_OK) == 0; }

static int find_models(void **state)
{
    char **names;
    int64_t count;
    if (make_scratch(state) != 0)
        fail_msg("no scratch folder");
    char *root = strdup(golden(""));
    CHECK_OK(sheaf__list_dir(&names, &count, root));
    for (int64_t i = 0; i < count && models < MAX_MODELS; i++) {
        char *dir = strdup(in_dir(root, names[i]));
        if (exists(in_dir(dir, "inputs.safetensors")) && exists(in_dir(dir, "mp1/model_config.json")))
            model_dir[models++] = dir;
        else
            free(dir);
    }
    sheaf__names_free(names, count);
    free(root);
    if (models == 0)
        fail_msg("no model with images found");
    return 0;
}

/* ---- recorded tensors ---- */

static sheaf_safetensors *record_of(const char *dir, const char *name)
{
    sheaf_safetensors *file;
    CHECK_OK(sheaf__safetensors_open(&file, in_dir(dir, name)));
    return file;
}

/* Floats of a recorded tensor, malloc'd; NULL when there is none of the name. */
static float *values(const sheaf_safetensors *file, const char *name, int64_t *n)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
    if (e == NULL)
        return NULL;
    assert_int_equal(e->dtype, SHEAF_F32);
    float *x = malloc((size_t)e->bytes + 1);
    *n = e->bytes / 4;
    CHECK_OK(sheaf__safetensors_read(file, e, 0, x, e->bytes));
    return x;
}

static json_t *json_of(const char *dir, const char *name)
{
    json_t *object = json_load_file(in_dir(dir, name), 0, NULL);
    if (object == NULL)
        fail_msg("%s/%s: not JSON", dir, name);
    return object;
}

/* ---- one run ---- */

typedef struct stage { char name[64]; int stream; sheaf__value *value; } stage;

typedef struct trial {
    /* in */
    const sheaf__opened *opened;
    const sheaf_data *data;
    int ranks;
    sheaf_dtype dtype;
    bool backward;
    /* out, of rank 0 */
    float *logits;
    double loss;
    float *stage[MAX_STAGES]; /* rows of the sequences in their order */
    int64_t stage_numel[MAX_STAGES];
    char stage_name[MAX_STAGES][64];
    int stages;
    float **grad;  /* by trained tensor, logical [shape], when backward */
    char **name;
    int64_t *numel;
    int trained;
} trial;

typedef struct watched { stage at[MAX_STAGES]; int count; } watched;

static void watch(void *self, sheaf__tape *tape, const char *name, int layer, int stream, sheaf__value *value)
{
    watched *w = self;
    assert_true(w->count < MAX_STAGES);
    stage *s = &w->at[w->count++];
    snprintf(s->name, sizeof s->name, layer < 0 ? "%s" : "%s%d", name, layer);
    s->stream = stream;
    s->value = value;
    sheaf__tape_pin(tape, value);
}

static bool everything(void *self, const sheaf_tensor *t) { return true; }

static sheaf_status *keep_logits(void *self, int64_t row0, const int32_t *row, int64_t n, const float *logits)
{
    trial *t = self;
    const int64_t vocab = t->opened->config.vocab;
    for (int64_t i = 0; i < n; i++)
        memcpy(t->logits + row[i] * vocab, logits + i * vocab, (size_t)vocab * sizeof *logits);
    return NULL;
}

static sheaf_status *drop_logits(void *self, int64_t row0, const int32_t *row, int64_t n, const float *logits) { return NULL; }

/* Both streams of a stage in one array, rows in the order of the sequences. */
static void keep_stages(trial *t, const watched *w, const sheaf__runner *r)
{
    const sheaf__kernels *k = r->model->context->device->kernels;
    for (int i = 0; i < w->count; i++) {
        const stage *s = &w->at[i];
        int at = 0;
        while (at < t->stages && strcmp(t->stage_name[at], s->name) != 0)
            at++;
        const bool split = strncmp(s->name, "attention", 9) == 0 || strncmp(s->name, "cross_attention", 15) == 0 || strncmp(s->name, "mlp", 3) == 0;
        const int64_t cols = s->value->cols, rows = split ? r->options.rows * r->options.seq : s->value->rows;
        if (at == t->stages) {
            snprintf(t->stage_name[t->stages++], 64, "%s", s->name);
            t->stage[at] = calloc((size_t)(rows * cols), sizeof(float));
            t->stage_numel[at] = rows * cols;
        }
        for (int64_t row = 0; row < s->value->rows; row++) {
            const int64_t to = split ? r->batch.stream[s->stream][row] : row;
            k->widen(t->stage[at] + to * cols, (const char *)s->value->data + row * cols * (int64_t)sheaf_dtype_bytes(s->value->dtype),
                     s->value->dtype, cols);
        }
    }
}

/* A rank's slices of the gradients, into arrays that all ranks fill. */
static void keep_gradients(trial *t, const sheaf__trained_set *set)
{
    for (int i = 0; i < set->count; i++) {
        const sheaf__trained *m = set->item[i];
        assert_string_equal(t->name[i], m->name);
        for (int s = m->first; s < m->first + m->count; s++) {
            const float *x = m->grad[s];
            for (int part = 0; part < sheaf__trained_parts(m); part++) {
                sheaf_range rows, cols;
                sheaf__trained_box(m, part, s, &rows, &cols);
                for (int64_t r = rows.begin; r < rows.end; r++)
                    for (int64_t c = cols.begin; c < cols.end; c++)
                        t->grad[i][r * m->shape[1] + c] = *x++;
            }
        }
    }
}

static sheaf_status *trial_rank(void *arg, sheaf_comm *comm)
{
    trial *t = arg;
    sheaf__device *device;
    sheaf__model *model;
    sheaf__runner runner;
    watched *w = calloc(1, sizeof *w);
    const sheaf__stages stages = { watch, w };
    const int rank = sheaf_comm_rank(comm);
    const int64_t rows = sheaf_data_rows(t->data), seq = sheaf_data_seq(t->data);
    CHECK_OK(sheaf__device_open(&device, SHEAF_CPU, 1, NULL, 0));
    sheaf__context c = { .device = device, .comm = t->ranks == 1 ? NULL : comm, .rank = rank, .ranks = t->ranks, .slices = 8,
                         .own = sheaf_owner_slices(8, t->ranks, rank), .dtype = t->dtype };
    CHECK_OK(sheaf__model_new(&model, &c, t->opened->schema,
                              &(sheaf__model_options){ .trains = t->backward ? everything : NULL, .backward = t->backward, .positions = seq,
                                                       .lora = t->opened->lora }));
    CHECK_OK(sheaf__model_load(model, t->opened->weights, t->opened->adapter));
    CHECK_OK(sheaf__runner_open(&runner, model, t->data, &(sheaf__runner_options){ rows, seq, t->backward, t->backward && t->ranks == 3,
                                                                                   rank == 0 && !t->backward ? &stages : NULL }));
    int64_t row[64];
    for (int64_t i = 0; i < rows; i++)
        row[i] = i;
    runner.info.training = t->backward;
    runner.head.gradient_scale = 1.0f / (float)sheaf_data_labels(t->data, row, rows);
    runner.head.all_rows = !t->backward;
    runner.head.take = t->backward ? NULL : rank == 0 ? keep_logits : drop_logits; /* all ranks or none */
    runner.head.self = t;
    sheaf__lane_stack lanes;
    sheaf__lanes_open(&lanes, 1);
    if (t->backward)
        CHECK_OK(sheaf__lane_begin(model->trained, &lanes, 0));
    if (rank == 0 && t->backward) {
        t->trained = model->trained->count;
        t->grad = calloc((size_t)t->trained, sizeof *t->grad);
        t->name = calloc((size_t)t->trained, sizeof *t->name);
        t->numel = calloc((size_t)t->trained, sizeof *t->numel);
        for (int i = 0; i < t->trained; i++) {
            const sheaf__trained *m = model->trained->item[i];
            t->numel[i] = m->shape[0] * m->shape[1];
            t->grad[i] = calloc((size_t)t->numel[i], sizeof(float));
            t->name[i] = strdup(m->name);
        }
    }
    CHECK_OK(sheaf__runner_run(&runner, row));
    CHECK_OK(sheaf_comm_barrier(comm));
    if (rank == 0) {
        t->loss = runner.head.loss_sum / (double)sheaf_data_labels(t->data, row, rows);
        keep_stages(t, w, &runner);
    }
    if (t->backward)
        keep_gradients(t, model->trained);
    sheaf__runner_release(&runner);
    sheaf__model_free(model);
    sheaf__device_close(device);
    free(w);
    return NULL;
}

static trial run(const char *model, const char *adapter, const char *inputs, int ranks, sheaf_dtype dtype, bool backward)
{
    sheaf__opened opened;
    sheaf_data *data;
    CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .model = model, .slices = 8, .adapter = adapter }));
    CHECK_OK(sheaf_data_open(&data, inputs, &(sheaf_data_options){ .config = &opened.config }));
    trial t = { .opened = &opened, .data = data, .ranks = ranks, .dtype = dtype, .backward = backward };
    t.logits = calloc((size_t)(sheaf_data_rows(data) * sheaf_data_seq(data) * opened.config.vocab), sizeof *t.logits);
    CHECK_OK(sheaf_comm_run_threads(ranks, trial_rank, &t));
    sheaf_data_close(data);
    sheaf__opened_close(&opened);
    return t;
}

static void release(trial *t)
{
    free(t->logits);
    for (int i = 0; i < t->stages; i++)
        free(t->stage[i]);
    for (int i = 0; i < t->trained; i++) {
        free(t->grad[i]);
        free(t->name[i]);
    }
    free(t->grad);
    free(t->name);
    free(t->numel);
}

/* ---- forward ---- */

static void compare(const char *what, const float *x, const float *want, int64_t n, double absolute, double relative)
{
    for (int64_t i = 0; i < n; i++)
        CHECK_NEAR(what, x[i], want[i], absolute + relative * fabs((double)want[i]));
}

static float *stage_of(const trial *t, const char *name, int64_t n)
{
    for (int i = 0; i < t->stages; i++)
        if (strcmp(t->stage_name[i], name) == 0) {
            assert_int_equal(t->stage_numel[i], n);
            return t->stage[i];
        }
    fail_msg("no stage %s", name);
    return NULL;
}

/* Ours is what SAT's layer makes of the stream: its output added to the residual. */
static void compare_stages(const trial *t, const sheaf_safetensors *want)
{
    static const struct { const char *theirs, *ours; } rows[] = {
        { "adapter_in", "adapter_in" }, { "adapter_out", "adapter" }, { "embedding_out", "embedding" },
        { "encoder_out", "encoder" }, { "final_layernorm_out", "final_norm" },
    };
    int64_t n, compared = 0;
    float *x;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if ((x = values(want, rows[i].theirs, &n)) != NULL) {
            compare(rows[i].theirs, stage_of(t, rows[i].ours, n), x, n, 5e-5, 0);
            free(x);
            compared++;
        }
    for (int layer = 0;; layer++) {
        char theirs[64], ours[64];
        snprintf(theirs, sizeof theirs, "vit_layer%d.out", layer);
        snprintf(ours, sizeof ours, "vit%d", layer);
        if ((x = values(want, theirs, &n)) == NULL)
            break;
        compare(theirs, stage_of(t, ours, n), x, n, 5e-5, 0);
        free(x);
        compared++;
    }
    for (int layer = 0;; layer++) {
        static const char *const parts[] = { "attention", "cross_attention", "mlp" };
        char name[64];
        snprintf(name, sizeof name, "layer%d.in", layer);
        float *h = values(want, name, &n);
        if (h == NULL)
            break;
        for (int p = 0; p < 3; p++) {
            snprintf(name, sizeof name, "layer%d.%s_out", layer, parts[p]);
            if ((x = values(want, name, &n)) == NULL)
                continue;
            for (int64_t i = 0; i < n; i++)
                h[i] += x[i];
            free(x);
            char ours[64];
            snprintf(ours, sizeof ours, "%s%d", parts[p], layer);
            compare(name, stage_of(t, ours, n), h, n, 5e-5, 0);
            compared++;
        }
        free(h);
    }
    assert_true(compared >= 9);
}

static void test_forward__stages_logits_and_loss(void **state)
{
    for (int m = 0; m < models; m++) {
        char *dir = model_dir[m];
        sheaf_safetensors *want = record_of(dir, "forward_fp32.safetensors");
        json_t *scalars = json_of(dir, "scalars.json");
        int64_t n;
        float *logits = values(want, "logits", &n);
        trial one = { 0 };
        for (size_t r = 0; r < ARRAY_LEN(ranks_to_try); r++) {
            trial t = run(in_dir(dir, "mp1"), NULL, in_dir(dir, "inputs.safetensors"), ranks_to_try[r], SHEAF_F32, false);
            if (r == 0) {
                compare(dir, t.logits, logits, n, 5e-5, 0);
                CHECK_NEAR(dir, t.loss, json_number_value(json_object_get(scalars, "loss_fp32")), 1e-5);
                compare_stages(&t, want);
                one = t;
                continue;
            }
            CHECK_BYTES(dir, t.logits, one.logits, (size_t)n * sizeof(float));
            CHECK_BYTES(dir, &t.loss, &one.loss, sizeof t.loss);
            for (int s = 0; s < t.stages; s++)
                CHECK_BYTES(t.stage_name[s], t.stage[s], one.stage[s], (size_t)t.stage_numel[s] * sizeof(float));
            release(&t);
        }
        release(&one);
        free(logits);
        json_decref(scalars);
        sheaf__safetensors_close(want);
    }
}

/* Every folder mpN of the model holds the same weights. */
static void test_forward__every_size_of_files(void **state)
{
    int folders = 0;
    for (int m = 0; m < models; m++) {
        sheaf_safetensors *want = record_of(model_dir[m], "forward_fp32.safetensors");
        int64_t n;
        float *logits = values(want, "logits", &n);
        for (int ways = 2; ways <= 16; ways++) {
            char name[32];
            snprintf(name, sizeof name, "mp%d", ways);
            char *dir = strdup(in_dir(model_dir[m], name));
            if (exists(in_dir(dir, "latest"))) {
                trial t = run(dir, NULL, in_dir(model_dir[m], "inputs.safetensors"), 3, SHEAF_F32, false);
                compare(dir, t.logits, logits, n, 5e-5, 0);
                release(&t);
                folders++;
            }
            free(dir);
        }
        free(logits);
        sheaf__safetensors_close(want);
    }
    assert_true(folders > 0 || !golden_is_full());
}

static void test_forward__half_precision_files(void **state)
{
    int folders = 0;
    for (int m = 0; m < models; m++) {
        json_t *scalars = json_of(model_dir[m], "scalars.json");
        static const char *const dtype[] = { "bf16", "fp16" };
        for (int d = 0; d < 2; d++) {
            char name[64];
            snprintf(name, sizeof name, "mp1_%s", dtype[d]);
            char *dir = strdup(in_dir(model_dir[m], name));
            snprintf(name, sizeof name, "loss_%s_weights_fp32_math", dtype[d]);
            const double loss = json_number_value(json_object_get(scalars, name));
            if (exists(in_dir(dir, "latest"))) {
                trial t = run(dir, NULL, in_dir(model_dir[m], "inputs.safetensors"), 2, SHEAF_F32, false);
                CHECK_NEAR(dir, t.loss, loss, 1e-5);
                int64_t n;
                sheaf_safetensors *file = record_of(model_dir[m], "logits_from_bf16_weights_fp32_math.safetensors");
                float *want = values(file, "logits_sample0", &n);
                if (d == 0)
                    compare(dir, t.logits, want, n, 5e-5, 0);
                release(&t);
                /* In bfloat16 the loss moves by its rounding, and the bytes by nothing. */
                trial half = run(dir, NULL, in_dir(model_dir[m], "inputs.safetensors"), 1, SHEAF_BF16, false);
                CHECK_NEAR(dir, half.loss, loss, 0.05);
                for (size_t r = 1; r < ARRAY_LEN(ranks_to_try); r++) {
                    trial other = run(dir, NULL, in_dir(model_dir[m], "inputs.safetensors"), ranks_to_try[r], SHEAF_BF16, false);
                    CHECK_BYTES(dir, &other.loss, &half.loss, sizeof half.loss);
                    CHECK_BYTES(dir, other.logits, half.logits, (size_t)n * sizeof(float));
                    release(&other);
                }
                release(&half);
                free(want);
                sheaf__safetensors_close(file);
                folders++;
            }
            free(dir);
        }
        json_decref(scalars);
    }
    assert_true(folders > 0 || !golden_is_full());
}

/* ---- gradients ---- */

static double norm_of(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

static void test_gradients__equal_those_of_one_device(void **state)
{
    for (int m = 0; m < models; m++) {
        char *dir = model_dir[m];
        sheaf_safetensors *want = record_of(dir, "grads_fp32.safetensors");
        json_t *scalars = json_of(dir, "scalars.json"), *norms = json_object_get(scalars, "grad_norm_by_name");
        trial one = { 0 };
        for (size_t r = 0; r < ARRAY_LEN(ranks_to_try); r++) {
            trial t = run(in_dir(dir, "mp1"), NULL, in_dir(dir, "inputs.safetensors"), ranks_to_try[r], SHEAF_F32, true);
            for (int i = 0; i < t.trained && r > 0; i++)
                CHECK_BYTES(t.name[i], t.grad[i], one.grad[i], (size_t)t.numel[i] * sizeof(float));
            if (r == 0)
                one = t;
            else
                release(&t);
        }
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
        json_object_foreach(norms, name, norm) { /* what has a gradient there has one here */
            bool found = json_is_null(norm) || json_number_value(norm) == 0;
            for (int i = 0; i < one.trained && !found; i++)
                found = strcmp(one.name[i], name) == 0;
            if (!found)
                fail_msg("%s: no gradient", name);
        }
        release(&one);
        json_decref(scalars);
        sheaf__safetensors_close(want);
    }
}

/* ---- LoRA, merged nowhere ---- */

static void test_lora__logits_from_an_adapter(void **state)
{
    int compared = 0;
    for (int m = 0; m < models; m++) {
        char *adapter = strdup(in_dir(model_dir[m], "lora_mp1"));
        if (exists(in_dir(adapter, "latest"))) {
            char name[32];
            snprintf(name, sizeof name, "adapter%d", m);
            char *peft = strdup(at(name));
            sheaf_convert_report report;
            CHECK_OK(sheaf_convert(&report, &(sheaf_convert_options){ .src = adapter, .dst = peft, .to = "peft", .step = -1 }));
            sheaf_safetensors *file = record_of(model_dir[m], "lora_mp1_forward_fp32.safetensors");
            int64_t n;
            float *want = values(file, "logits", &n);
            trial one = { 0 };
            for (size_t r = 0; r < ARRAY_LEN(ranks_to_try); r++) {
                trial t = run(in_dir(model_dir[m], "mp1"), peft, in_dir(model_dir[m], "inputs.safetensors"), ranks_to_try[r], SHEAF_F32, false);
                if (r == 0) {
                    compare(adapter, t.logits, want, n, 5e-5, 0);
                    one = t;
                    continue;
                }
                CHECK_BYTES(adapter, t.logits, one.logits, (size_t)n * sizeof(float));
                release(&t);
            }
            release(&one);
            free(want);
            sheaf__safetensors_close(file);
            free(peft);
            compared++;
        }
        free(adapter);
    }
    assert_true(compared > 0 || !golden_is_full());
}

/* ---- generation ---- */

typedef struct answers { const sheaf__prompt *prompt; int64_t count, max_new; const sheaf_config *config; sheaf__continuation *out; } answers;

static sheaf_status *generate_rank(void *self, sheaf__model *model)
{
    answers *a = self;
    int32_t ids[8][256];
    sheaf__continuation own[8];
    for (int i = 0; i < 8; i++)
        own[i] = (sheaf__continuation){ ids[i], 0 };
    const sheaf__generate_options how = { .sampling = { .greedy = true, .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
                                          .max_new = a->max_new, .batch = 8, .stop = a->config->eos, .nstop = a->config->neos };
    return sheaf__generate(model->context->rank == 0 ? a->out : own, model, a->prompt, a->count, &how);
}

/* 0 and 1 of a recorded integer tensor, row by row. */
static int64_t *integers(const sheaf_safetensors *file, const char *name, int64_t *cols)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
    assert_non_null(e);
    assert_int_equal(e->dtype, SHEAF_I64);
    int64_t *x = malloc((size_t)e->bytes + 1);
    *cols = e->ndim == 2 ? e->shape[1] : 1;
    CHECK_OK(sheaf__safetensors_read(file, e, 0, x, e->bytes));
    return x;
}

static void test_generation__greedy_tokens(void **state)
{
    for (int m = 0; m < models; m++) {
        json_t *told = json_of(model_dir[m], "generate_greedy.json");
        sheaf_safetensors *in = record_of(model_dir[m], "inputs.safetensors");
        int64_t length, one, npixels, ncross = 0, max_new = 1;
        int64_t *ids = integers(in, "input_ids", &length), *position = integers(in, "position_ids", &length),
                *embed = integers(in, "image_embed_mask", &length), *expert = integers(in, "vision_expert_mask", &length),
                *context = integers(in, "context_length", &one);
        float *pixels = values(in, "vision_image", &npixels), *cross = values(in, "cross_image", &ncross);
        const int64_t rows = sheaf__safetensors_find(in, "input_ids")->shape[0];
        assert_true(rows <= 8 && length <= 256);
        int32_t id32[8][256], position32[8][256], found[8][256];
        uint8_t embed8[8][256], expert8[8][256];
        sheaf__prompt prompt[8];
        sheaf__continuation out[8];
        for (int64_t r = 0; r < rows; r++) {
            for (int64_t t = 0; t < length; t++) {
                id32[r][t] = (int32_t)ids[r * length + t];
                position32[r][t] = (int32_t)position[r * length + t];
                embed8[r][t] = (uint8_t)embed[r * length + t];
                expert8[r][t] = (uint8_t)expert[r * length + t];
            }
            prompt[r] = (sheaf__prompt){ id32[r], context[r], position32[r], embed8[r], expert8[r], pixels + r * (npixels / rows),
                                         cross == NULL ? NULL : cross + r * (ncross / rows) };
            out[r] = (sheaf__continuation){ found[r], 0 };
            char name[32];
            snprintf(name, sizeof name, "sample%d", (int)r);
            max_new = json_integer_value(json_object_get(json_object_get(told, name), "max_new"));
        }
        sheaf__opened opened;
        CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .model = in_dir(model_dir[m], "mp1"), .slices = 8 }));
        for (size_t k = 0; k < ARRAY_LEN(ranks_to_try); k++) {
            answers a = { prompt, rows, max_new, &opened.config, out };
            CHECK_OK(sheaf__crew_run(&opened, &(sheaf__crew_options){ .ranks = ranks_to_try[k], .threads = 2, .dtype = SHEAF_F32, .positions = length + max_new },
                                     generate_rank, &a));
            for (int64_t r = 0; r < rows; r++) {
                char name[32];
                snprintf(name, sizeof name, "sample%d", (int)r);
                const json_t *sample = json_object_get(told, name), *want = json_object_get(sample, "output_ids");
                assert_int_equal((int64_t)json_array_size(want), context[r] + out[r].n);
                for (int64_t t = 0; t < out[r].n; t++)
                    assert_int_equal(out[r].ids[t], json_integer_value(json_array_get(want, (size_t)(context[r] + t))));
            }
        }
        sheaf__opened_close(&opened);
        json_decref(told);
        sheaf__safetensors_close(in);
        free(ids);
        free(position);
        free(embed);
        free(expert);
        free(context);
        free(pixels);
        free(cross);
    }
}

/* ---- training ---- */

/* SAT's factors as one PEFT module for each linear layer: A's parts below each other, B's on the diagonal. */
typedef struct fused { char module[300]; int parts; int64_t rank, in, out; float *a, *b; } fused;

static int by_module(const void *a, const void *b) { return strcmp(((const fused *)a)->module, ((const fused *)b)->module); }

static int read_factors(fused *f, int room, const sheaf_safetensors *file)
{
    int n = 0;
    for (int64_t i = 0; i < file->header.count; i++) {
        const char *name = file->header.entry[i].name, *tail = strstr(name, ".matrix_A.");
        if (tail == NULL)
            continue;
        int at = 0;
        while (at < n && (strlen(f[at].module) != (size_t)(tail - name) || strncmp(f[at].module, name, (size_t)(tail - name)) != 0))
            at++;
        if (at == n) {
            assert_true(n < room);
            f[n++] = (fused){ .rank = file->header.entry[i].shape[0], .in = file->header.entry[i].shape[1] };
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
                memcpy(m->b + (p * rows + r) * wide + p * m->rank, b + r * m->rank, (size_t)m->rank * sizeof *b);
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
    CHECK_OK(sheaf__make_dirs(dir, NULL));
    for (int i = 0; i < n; i++) {
        char *a = NULL, *b = NULL;
        const int64_t wide = f[i].parts * f[i].rank;
        assert_true(asprintf(&a, "base_model.model.%s.lora_A.weight", f[i].module) > 0 && asprintf(&b, "base_model.model.%s.lora_B.weight", f[i].module) > 0);
        spec[2 * i] = (sheaf_safetensors_spec){ a, SHEAF_F32, 2, { wide, f[i].in } };
        spec[2 * i + 1] = (sheaf_safetensors_spec){ b, SHEAF_F32, 2, { f[i].out, wide } };
        json_array_append_new(targets, json_string(f[i].module));
        json_object_set_new(ranks, f[i].module, json_integer(wide));
        json_object_set_new(alphas, f[i].module, json_integer(f[i].parts)); /* SAT's alpha is 1 for each part */
    }
    CHECK_OK(sheaf__safetensors_begin(&w, in_dir(dir, "adapter_model.safetensors"), spec, 2 * n, NULL, 0, NULL));
    for (int i = 0; i < n; i++) {
        CHECK_OK(sheaf__safetensors_write(w, 2 * i, 0, f[i].a, spec[2 * i].shape[0] * spec[2 * i].shape[1] * 4));
        CHECK_OK(sheaf__safetensors_write(w, 2 * i + 1, 0, f[i].b, spec[2 * i + 1].shape[0] * spec[2 * i + 1].shape[1] * 4));
    }
    CHECK_OK(sheaf__safetensors_finish(w));
    json_t *config = json_pack("{s:s, s:i, s:i, s:o, s:o, s:o, s:s, s:f}", "peft_type", "LORA", "r", (int)f[0].rank, "lora_alpha", 1,
                               "target_modules", targets, "rank_pattern", ranks, "alpha_pattern", alphas, "bias", "none", "lora_dropout", 0.0);
    assert_int_equal(json_dump_file(config, in_dir(dir, "adapter_config.json"), 0), 0);
    json_decref(config);
    for (int i = 0; i < 2 * n; i++)
        free((char *)spec[i].name);
    free(spec);
}

typedef struct trace { const json_t *steps; int seen; } trace;

static void on_event(void *self, const sheaf_event *event)
{
    trace *t = self;
    if (event->kind != SHEAF_EVENT_STEP)
        return;
    const json_t *want = json_array_get(t->steps, (size_t)t->seen++);
    const double norm = json_number_value(json_object_get(want, "global_grad_norm"));
    CHECK_NEAR("loss", event->step.loss, json_number_value(json_object_get(want, "loss")), 1e-5);
    CHECK_NEAR("gradient norm", event->step.grad_norm, norm, 1e-5 * (1 + norm));
    CHECK_NEAR("learning rate", event->step.lr, json_number_value(json_array_get(json_object_get(want, "lr_used_by_group"), 0)), 1e-12);
}

/* Does a pass read the tensor? SAT lists the tower's last block, norm and head too, which get no gradient. */
static bool is_read(const char *name, const json_t *norms)
{
    const json_t *norm = json_object_get(norms, name);
    return norm == NULL || !json_is_null(norm);
}

/* Names of the list without LoRA, as a --train pattern; of layers that carry LoRA without ".original". */
static char *trained_names(const json_t *list, const json_t *norms)
{
    sheaf_text text = { 0 };
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *name = json_string_value(json_array_get(list, i)), *original = strstr(name, ".original.");
        if (strstr(name, ".matrix_") != NULL || !is_read(name, norms))
            continue;
        const char *comma = text.size > 0 ? "," : "";
        if (original == NULL)
            sheaf__text_add(&text, "%s%s", comma, name);
        else
            sheaf__text_add(&text, "%s%.*s%s", comma, (int)(original - name), name, original + strlen(".original"));
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
            const char *name = json_string_value(json_array_get(names, i)), *original = strstr(name, ".original.");
            const char *comma = text.size > 0 ? "," : "", *factor = strstr(name, ".matrix_A.0");
            if (factor != NULL)
                sheaf__text_add(&text, "%s*%.*s.lora_*=%g", comma, (int)(factor - name), name, scale);
            else if (strstr(name, ".matrix_") == NULL && original == NULL && is_read(name, norms))
                sheaf__text_add(&text, "%s%s=%g", comma, name, scale);
            else if (original != NULL)
                sheaf__text_add(&text, "%s%.*s%s=%g", comma, (int)(original - name), name, original + strlen(".original"), scale);
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
    char *adapter = NULL, *model = strdup(in_dir(dir, "mp1")), *data = strdup(in_dir(dir, "inputs.safetensors")), *folder = strdup(out);
    assert_true(n > 0 && asprintf(&adapter, "%s-init", out) > 0);
    write_adapter(adapter, f, n);
    const json_t *ds = json_object_get(told, "deepspeed_config"), *adam = json_object_get(json_object_get(ds, "optimizer"), "params");
    const json_t *schedule = json_object_get(told, "scheduler"), *steps = json_object_get(told, "steps");
    assert_string_equal(json_string_value(json_object_get(schedule, "style")), "cosine");
    json_t *scalars = json_of(dir, "scalars.json");
    const json_t *norms = json_object_get(scalars, "grad_norm_by_name");
    char *train = trained_names(json_object_get(told, "trainable"), norms), *scale = scaled_names(json_object_get(told, "param_groups"), norms);
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
    o.decay_ratio = json_number_value(json_object_get(schedule, "decay_ratio"));
    o.held_steps = 100;
    o.held_rate = 0.05;
    o.dtype = SHEAF_F32;
    trace t = { steps, 0 };
    sheaf_train_result result;
    CHECK_OK(sheaf_train(&result, &o, "", "", &(sheaf_train_hooks){ .events = &(sheaf_events){ on_event, &t } }));
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
    sheaf_convert_report report;
    assert_true(asprintf(&peft, "%s-sat", out) > 0);
    CHECK_OK(sheaf_convert(&report, &(sheaf_convert_options){ .src = theirs, .dst = peft, .to = "peft", .step = -1 }));
    sheaf_safetensors *want = record_of(peft, "adapter_model.safetensors"), *got = record_of(in_dir(out, "adapter"), "adapter_model.safetensors");
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

static void test_training__as_sat_on_one_device(void **state)
{
    int ran = 0;
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "train_lora_mp1_train.json")))
            continue;
        char first[64], other[64];
        snprintf(first, sizeof first, "run%d-1", m);
        char *one = strdup(at(first));
        check_training(model_dir[m], 1, one);
        compare_with_sat(model_dir[m], one);
        for (int ranks = 3; ranks <= 8; ranks += 5) {
            snprintf(other, sizeof other, "run%d-%d", m, ranks);
            char *more = strdup(at(other));
            check_training(model_dir[m], ranks, more);
            sheaf_safetensors *a = record_of(in_dir(one, "adapter"), "adapter_model.safetensors"), *b = record_of(in_dir(more, "adapter"), "adapter_model.safetensors");
            assert_int_equal(a->header.count, b->header.count);
            for (int64_t i = 0; i < a->header.count; i++) {
                int64_t n, k;
                float *x = values(a, a->header.entry[i].name, &n), *y = values(b, a->header.entry[i].name, &k);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forward__stages_logits_and_loss),
        cmocka_unit_test(test_forward__every_size_of_files),
        cmocka_unit_test(test_forward__half_precision_files),
        cmocka_unit_test(test_gradients__equal_those_of_one_device),
        cmocka_unit_test(test_lora__logits_from_an_adapter),
        cmocka_unit_test(test_generation__greedy_tokens),
        cmocka_unit_test(test_training__as_sat_on_one_device),
    };
    return cmocka_run_group_tests(tests, find_models, remove_scratch);
}
