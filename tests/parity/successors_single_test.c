/* successors_single_test.c - the successors of CogVLM agree with what their own programs computed,
 * at 1, 2 and 3 ranks with the same bytes: stages, logits and loss of a row and of batches,
 * gradients, a LoRA run, greedy tokens, pictures, and the ids of texts.
 *
 * Every folder of $SHEAF_RECORDINGS/successors (or of the committed subset, where most have no
 * weights) that holds model/config.json is run; none found is a failure. Tolerances are those of
 * the recordings' READMEs: 5e-5 for logits and stages, 1e-5 for a loss, 1e-4 of a tensor's largest
 * value for its gradient, 1e-4 for a LoRA run. */
#include "tests/parity/trial.h"

#include "base/text.h"
#include "checkpoint/convert/convert.h"
#include "infer/codec.h"
#include "infer/prompts.h"
#include "inputs/image.h"
#include "models/team.h"
#include "tests/recordings.h"
#include "train/train.h"

static const int few_ranks[] = { 1, 2, 3 };
static const double LOGITS = 5e-5, LOSS = 1e-5, GRADIENT = 1e-4, LORA = 1e-4;

static int find_successors(void **state)
{
    if (make_scratch(state) != 0)
        fail_msg("no scratch folder");
    find_in(recording("successors"), "model/config.json", NULL);
    if (models == 0)
        fail_msg("%s: no recording found", recording("successors"));
    return 0;
}

/* The file of a model's folder, if it is recorded; malloc'd. NULL also where the model has no
 * weights (the committed subset). */
static char *recorded(int m, const char *name)
{
    const char *dir = model_dir[m];
    const bool weights = exists(in_dir(dir, "model/model.safetensors.index.json")) ||
                         exists(in_dir(dir, "model/model.safetensors"));
    return weights && exists(in_dir(dir, name)) ? strdup(in_dir(dir, name)) : NULL;
}

/* ---- forward ---- */

/* Stages are told by our names where a pass reports them; those of the decoder always are. */
static int compare_stage(const trial *t, const sheaf_safetensors *want, const char *theirs,
                         const char *ours)
{
    char name[80];
    int64_t n;
    snprintf(name, sizeof name, "act.%s", theirs);
    float *x = values(want, name, &n);
    const bool both = x != NULL && stage_at(t, ours) >= 0;
    if (both)
        compare(name, stage_of(t, ours, n), x, n, LOGITS, 0);
    free(x);
    return both;
}

static void compare_stages(const trial *t, const sheaf_safetensors *want)
{
    static const struct {
        const char *theirs, *ours;
    } once[] = { { "inputs_embeds", "embedding" },
                 { "adapter_in", "adapter_in" },
                 { "adapter_out", "adapter" },
                 { "cross_out", "encoder" },
                 { "final_norm_out", "final_norm" } },
      layers[] = { { "vision_layer%d_out", "vit%d" }, { "layer%d_out", "mlp%d" } };
    int compared = 0;
    for (size_t i = 0; i < ARRAY_LEN(once); i++)
        compared += compare_stage(t, want, once[i].theirs, once[i].ours);
    for (size_t i = 0; i < ARRAY_LEN(layers); i++)
        for (int layer = 0; layer < 16; layer++) {
            char name[64], own[64];
            snprintf(name, sizeof name, layers[i].theirs, layer);
            snprintf(own, sizeof own, layers[i].ours, layer);
            compared += compare_stage(t, want, name, own);
        }
    assert_true(compared >= 6);
}

/* Logits where the mask is 1: of the sequences with the rows of their pictures. */
static void compare_logits(const trial *t, const sheaf_safetensors *want, const char *what)
{
    int64_t n;
    float *logits = values(want, "logits", &n);
    int64_t *mask = integers(want, "expanded_attention_mask");
    if (mask == NULL)
        mask = integers(want, "attention_mask");
    const int64_t vocab = t->vocab;
    if (logits == NULL || n != t->positions * vocab)
        fail_msg("%s: logits of %" PRId64 " positions, recorded are %" PRId64 " numbers", what,
                 t->positions, n);
    for (int64_t i = 0; i < t->positions; i++)
        if (mask == NULL || mask[i] != 0)
            compare(what, t->logits + i * vocab, logits + i * vocab, vocab, LOGITS, 0);
    free(logits);
    free(mask);
}

static double loss_of(const sheaf_safetensors *want)
{
    int64_t n;
    float *loss = values(want, "loss", &n);
    if (loss == NULL)
        loss = values(want, "loss_by_hand", &n);
    assert_true(loss != NULL && n == 1);
    const double value = (double)loss[0];
    free(loss);
    return value;
}

static void check_forward(int m, const char *file, bool stages)
{
    char *path = recorded(m, file), *model = strdup(in_dir(model_dir[m], "model"));
    trial one = { 0 };
    if (path != NULL) {
        sheaf_safetensors *want = record_of(model_dir[m], file);
        one = run_alike(model, NULL, path, few_ranks, ARRAY_LEN(few_ranks), SHEAF_F32, false);
        compare_logits(&one, want, path);
        CHECK_NEAR(path, one.loss, loss_of(want), LOSS);
        if (stages)
            compare_stages(&one, want);
        sheaf__safetensors_close(want);
    }
    release(&one);
    free(path);
    free(model);
}

static const char *const batches[] = { "batch_right_padded.safetensors",
                                       "batch_left_padded.safetensors", "batch_mixed.safetensors",
                                       "text_only.safetensors" };

TEST(test_forward__stages_logits_and_loss)
{
    for (int m = 0; m < models; m++) {
        check_forward(m, "single.safetensors", true);
        for (size_t b = 0; b < ARRAY_LEN(batches); b++)
            check_forward(m, batches[b], false);
    }
}

/* Weights and stored tables rounded to bfloat16, arithmetic in float32. */
TEST(test_forward__weights_of_bfloat16)
{
    static const char file[] = "single_logits_bf16_weights_fp32_math.safetensors";
    for (int m = 0; m < models; m++) {
        char *path = recorded(m, file), *model = strdup(in_dir(model_dir[m], "model")),
             *row = strdup(in_dir(model_dir[m], "single.safetensors"));
        char *half = strdup(at_format("half%d", m));
        if (path != NULL) {
            sheaf_weights_convert_report report;
            CHECK_OK(sheaf_convert(
                &report, &(sheaf_weights_convert_options){
                             .src = model, .dst = half, .to = "hf", .dtype = SHEAF_BF16 }));
            sheaf_safetensors *want = record_of(model_dir[m], file);
            trial t = run(half, NULL, row, 2, SHEAF_F32, false);
            compare_logits(&t, want, path);
            release(&t);
            sheaf__safetensors_close(want);
        }
        free(path);
        free(model);
        free(row);
        free(half);
    }
}

/* ---- gradients ---- */

/* Recorded gradients, whose names begin with `prefix`; returns how many there are. */
static int64_t compare_gradients(const trial *t, const sheaf_safetensors *want, const char *prefix)
{
    int64_t recorded = 0;
    for (int64_t e = 0; e < want->header.count; e++) {
        const char *name = want->header.entry[e].name;
        if (strncmp(name, prefix, strlen(prefix)) != 0)
            continue;
        const int i = trained_at(t, name + strlen(prefix));
        if (i < 0)
            fail_msg("%s: no gradient of it", name);
        int64_t n;
        float *x = values(want, name, &n);
        assert_int_equal(n, t->numel[i]);
        compare(name, t->grad[i], x, n, GRADIENT * largest_of(x, n) + 1e-9, 0);
        free(x);
        recorded++;
    }
    return recorded;
}

static void compare_norms(const trial *t, const json_t *norms)
{
    const char *name;
    const json_t *norm;
    for (int i = 0; i < t->trained; i++) {
        norm = json_object_get(norms, t->name[i]);
        if (norm == NULL || json_is_null(norm))
            fail_msg("%s: trained here, not there", t->name[i]);
        const double told = json_number_value(norm);
        CHECK_NEAR(t->name[i], norm_of(t->grad[i], t->numel[i]), told, GRADIENT * told + 1e-6);
    }
    json_object_foreach((json_t *)norms, name, norm)
    { /* what has a gradient there has one here */
        if (!json_is_null(norm) && json_number_value(norm) != 0 && trained_at(t, name) < 0)
            fail_msg("%s: no gradient", name);
    }
}

static trial backward(const char *model, const char *adapter, const char *path)
{
    return run_backward(model, adapter, path, few_ranks, ARRAY_LEN(few_ranks));
}

TEST(test_gradients__of_a_row_and_of_padded_ones)
{
    for (int m = 0; m < models; m++) {
        char *path = recorded(m, "single.safetensors"),
             *model = strdup(in_dir(model_dir[m], "model"));
        if (path != NULL) {
            trial t = backward(model, NULL, path);
            sheaf_safetensors *want = record_of(model_dir[m], "single_grads.safetensors");
            json_t *norms = json_of(model_dir[m], "single_grad_norms.json");
            assert_true(compare_gradients(&t, want, "") > 0);
            compare_norms(&t, norms);
            json_decref(norms);
            sheaf__safetensors_close(want);
            release(&t);
        }
        int64_t padded = 0;
        for (size_t b = 0; b < ARRAY_LEN(batches) && path != NULL; b++) {
            char *batch = recorded(m, batches[b]);
            sheaf_safetensors *want = batch == NULL ? NULL : record_of(model_dir[m], batches[b]);
            bool has = false;
            for (int64_t e = 0; want != NULL && e < want->header.count; e++)
                has |= strncmp(want->header.entry[e].name, "grad.", 5) == 0;
            if (has) {
                trial t = backward(model, NULL, batch);
                padded += compare_gradients(&t, want, "grad.");
                release(&t);
            }
            if (want != NULL)
                sheaf__safetensors_close(want);
            free(batch);
        }
        assert_true(path == NULL || padded > 0);
        free(path);
        free(model);
    }
}

/* ---- LoRA ---- */

typedef struct progress {
    const json_t *losses, *norms;
    int seen;
} progress;

static void on_event(void *self, const sheaf_event *event)
{
    progress *t = self;
    if (event->kind != SHEAF_EVENT_STEP)
        return;
    const size_t step = (size_t)t->seen++;
    const double norm = json_number_value(json_array_get(t->norms, step));
    CHECK_NEAR("loss", event->step.loss, json_number_value(json_array_get(t->losses, step)), LORA);
    CHECK_NEAR("gradient norm", event->step.grad_norm, norm, LORA * norm);
}

static void train_lora(int m, const char *out, int ranks, const json_t *told)
{
    const json_t *adam = json_object_get(told, "optimizer");
    char *model = strdup(in_dir(model_dir[m], "model")),
         *data = strdup(in_dir(model_dir[m], "single.safetensors")),
         *adapter = strdup(in_dir(model_dir[m], "lora/adapter_start"));
    sheaf_train_options o;
    sheaf_train_options_default(&o);
    o.model = model;
    o.data = data;
    o.out = out;
    o.adapter = adapter;
    o.tp = ranks;
    o.threads = 2;
    o.steps = json_integer_value(json_object_get(told, "steps"));
    o.micro_batch = 1;
    o.shuffle = false;
    o.lr = json_number_value(json_object_get(adam, "lr"));
    o.beta1 = json_number_value(json_array_get(json_object_get(adam, "betas"), 0));
    o.beta2 = json_number_value(json_array_get(json_object_get(adam, "betas"), 1));
    o.eps = json_number_value(json_object_get(adam, "eps"));
    o.weight_decay = json_number_value(json_object_get(adam, "weight_decay"));
    o.clip = 0;
    o.schedule = SHEAF_SCHEDULE_CONSTANT;
    o.dtype = SHEAF_F32;
    progress t = { json_object_get(told, "losses"),
                   json_object_get(told, "grad_norm_all_trainable"), 0 };
    sheaf_train_result result;
    CHECK_OK(sheaf_train(&result, &o, "", "",
                         &(sheaf_train_hooks){ .events = &(sheaf_events){ on_event, &t } }));
    assert_int_equal(t.seen, o.steps);
    sheaf_train_result_release(&result);
    free(model);
    free(data);
    free(adapter);
}

/* The tensors of two adapters: near each other, or the same bytes. */
static void compare_adapters(const char *got, const char *want, bool bytes)
{
    sheaf_safetensors *a = record_of(got, "adapter_model.safetensors"),
                      *b = record_of(want, "adapter_model.safetensors");
    assert_int_equal(a->header.count, b->header.count);
    for (int64_t i = 0; i < b->header.count; i++) {
        const char *name = b->header.entry[i].name;
        int64_t n, k;
        float *x = values(a, name, &n), *y = values(b, name, &k);
        if (x == NULL || n != k)
            fail_msg("%s: not in the adapter", name);
        if (bytes)
            CHECK_BYTES(name, x, y, (size_t)n * sizeof *x);
        else
            compare(name, x, y, n, LORA, 0);
        free(x);
        free(y);
    }
    sheaf__safetensors_close(a);
    sheaf__safetensors_close(b);
}

/* Gradients of B at the start; PEFT's names in memory have ".default" in them. */
static void compare_first_step(int m, const char *model, const char *row)
{
    sheaf_safetensors *want = record_of(model_dir[m], "lora/first_step_grads.safetensors");
    char *start = strdup(in_dir(model_dir[m], "lora/adapter_start"));
    trial t = backward(model, start, row);
    assert_true(want->header.count > 0);
    for (int64_t e = 0; e < want->header.count; e++) {
        char name[300], *inner;
        snprintf(name, sizeof name, "%s", want->header.entry[e].name);
        if ((inner = strstr(name, ".default")) != NULL)
            memmove(inner, inner + 8, strlen(inner + 8) + 1);
        const int i = trained_at(&t, name);
        if (i < 0)
            fail_msg("%s: no gradient of it", name);
        int64_t n;
        float *x = values(want, want->header.entry[e].name, &n);
        assert_int_equal(n, t.numel[i]);
        compare(name, t.grad[i], x, n, GRADIENT * largest_of(x, n), 0);
        free(x);
    }
    release(&t);
    free(start);
    sheaf__safetensors_close(want);
}

static void check_lora(int m, const char *row)
{
    json_t *told = json_of(model_dir[m], "lora/training.json");
    char *model = strdup(in_dir(model_dir[m], "model")), *first = NULL,
         *end = strdup(in_dir(model_dir[m], "lora/adapter_end"));
    for (size_t r = 0; r < ARRAY_LEN(few_ranks); r++) {
        char *out = strdup(at_format("run%d-%d", m, few_ranks[r])), *adapter = NULL;
        train_lora(m, out, few_ranks[r], told);
        assert_true(asprintf(&adapter, "%s/adapter", out) > 0);
        if (r == 0)
            compare_adapters(adapter, end, false);
        else
            compare_adapters(adapter, first, true);
        free(out);
        if (r == 0)
            first = adapter;
        else
            free(adapter);
    }
    const json_t *losses = json_object_get(told, "losses");
    sheaf_safetensors *want = record_of(model_dir[m], "lora/end_logits.safetensors");
    trial t = run(model, end, row, 3, SHEAF_F32, false);
    compare_logits(&t, want, end);
    CHECK_NEAR(end, t.loss, json_number_value(json_array_get(losses, json_array_size(losses) - 1)),
               LORA);
    release(&t);
    compare_first_step(m, model, row);
    sheaf__safetensors_close(want);
    json_decref(told);
    free(model);
    free(first);
    free(end);
}

TEST(test_lora__recorded_runs)
{
    for (int m = 0; m < models; m++) {
        char *row = recorded(m, "single.safetensors");
        if (row != NULL)
            check_lora(m, row);
        free(row);
    }
}

/* ---- generation ---- */

typedef struct answers {
    const sheaf__prompt *prompt;
    const sheaf_data *rows;
    int64_t max_new;
    sheaf__continuation *out;
} answers;

static sheaf_status *load_row(void *self, int64_t prompt, const sheaf__picture *picture, int64_t n)
{
    return sheaf_data_row_pixels(picture, n, self, prompt);
}

static sheaf_status *generate_rank(void *self, sheaf__model *model)
{
    answers *a = self;
    int32_t ids[64];
    sheaf__continuation own = { ids, 0 };
    const sheaf__generate_options how = {
        .sampling = { .greedy = true, .temperature = 1, .top_p = 1, .repetition_penalty = 1 },
        .max_new = a->max_new,
        .batch = 1,
        .load = load_row,
        .self = (void *)a->rows,
    };
    return sheaf__generate(model->context->rank == 0 ? a->out : &own, model, a->prompt, 1, &how);
}

/* A copy of a prompt of the row with these ids, up to `context`, where the learnt part begins
 * before it: with the mark of who answers. more: rows of pictures that the ids have few places for.
 */
static sheaf__prompt lengthened(const sheaf__prompt *p, const int64_t *row, int64_t context,
                                int64_t more)
{
    const int64_t n = context + more;
    int32_t *ids = malloc((size_t)n * sizeof *ids),
            *position = malloc((size_t)n * sizeof *position);
    uint8_t *embed = calloc((size_t)n, 1), *expert = calloc((size_t)n, 1);
    sheaf__prompt out = *p;
    assert_true(p->n <= n && p->position != NULL && p->embed != NULL && p->expert != NULL);
    for (int64_t i = 0; i < n; i++) {
        const bool own = i < p->n;
        ids[i] = own ? p->ids[i] : (int32_t)row[i - more];
        position[i] = own ? p->position[i] : position[i - 1] + 1;
        embed[i] = own && p->embed[i];
        expert[i] = own && p->expert[i];
    }
    out.ids = ids;
    out.position = position;
    out.embed = embed;
    out.expert = expert;
    out.n = n;
    return out;
}

static void check_greedy(int m, const char *row)
{
    sheaf_safetensors *want = record_of(model_dir[m], "single.safetensors");
    int64_t *tokens = integers(want, "greedy_tokens"), *context = integers(want, "context_length");
    const int64_t n = sheaf__safetensors_find(want, "greedy_tokens")->shape[0];
    char *model = strdup(in_dir(model_dir[m], "model"));
    sheaf__opened opened;
    sheaf__codec codec;
    sheaf__prompts prompts;
    CHECK_OK(sheaf__open_model(&opened, &(sheaf__open_options){ .model = model, .slices = 8 }));
    CHECK_OK(sheaf__codec_open(&codec, &opened.config, &(sheaf__codec_options){ .folder = model }));
    sheaf_prompts_options from = { .data = row };
    CHECK_OK(sheaf__prompts_read(&prompts, &codec, &from, NULL));
    assert_int_equal(prompts.count, 1);
    /* Where the ids have a few places for a picture, the rows stand in them already. */
    const int64_t length = sheaf__safetensors_find(want, "input_ids")->shape[1],
                  more = sheaf_data_seq(prompts.rows) - length;
    int64_t *row_ids = integers(want, "input_ids");
    const sheaf__prompt prompt = lengthened(&prompts.prompt[0], row_ids, context[0], more);
    for (size_t r = 0; r < ARRAY_LEN(few_ranks); r++) {
        int32_t ids[64];
        sheaf__continuation out = { ids, 0 };
        answers a = { &prompt, prompts.rows, n, &out };
        assert_true(n <= 64);
        CHECK_OK(sheaf__team_run(&opened,
                                 &(sheaf__team_options){ .ranks = few_ranks[r],
                                                         .threads = 2,
                                                         .dtype = SHEAF_F32,
                                                         .positions = prompt.n + n },
                                 generate_rank, &a));
        assert_int_equal(out.n, n);
        for (int64_t i = 0; i < n; i++)
            assert_int_equal(out.ids[i], tokens[i]);
    }
    sheaf__prompts_release(&prompts);
    sheaf__codec_close(&codec);
    sheaf__opened_close(&opened);
    sheaf__safetensors_close(want);
    free((void *)prompt.ids);
    free((void *)prompt.position);
    free((void *)prompt.embed);
    free((void *)prompt.expert);
    free(row_ids);
    free(tokens);
    free(context);
    free(model);
}

TEST(test_generation__greedy_tokens)
{
    for (int m = 0; m < models; m++) {
        char *row = recorded(m, "single.safetensors");
        if (row != NULL)
            check_greedy(m, row);
        free(row);
    }
}

/* ---- pictures ---- */

static uint8_t *bytes_of(const sheaf_safetensors *file, const char *name, size_t size)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
    if (e == NULL || (size_t)e->bytes != size)
        fail_msg("%s: %zu bytes asked for", name, size);
    uint8_t *x = malloc(size + 1);
    CHECK_OK(sheaf__safetensors_read(file, e, 0, x, e->bytes));
    return x;
}

static void check_picture(const sheaf_safetensors *want, const char *dir, int k,
                          const sheaf__tower *tower, const char *which)
{
    char name[64];
    sheaf_image image;
    int64_t n;
    snprintf(name, sizeof name, "picture%d.png", k);
    CHECK_OK(sheaf_image_load(&image, in_dir(dir, name)));
    const size_t decoded = (size_t)(image.width * image.height * 3),
                 size = (size_t)(tower->width * tower->height * 3);
    snprintf(name, sizeof name, "picture%d_u8_hwc", k);
    uint8_t *theirs = bytes_of(want, name, decoded), *ours = malloc(size + 1);
    CHECK_BYTES(name, image.pixels, theirs, decoded);
    free(theirs);
    snprintf(name, sizeof name, "picture%d%s_resized_u8_hwc", k, which);
    theirs = bytes_of(want, name, size);
    CHECK_OK(sheaf_image_resize(ours, &image, tower->width, tower->height));
    CHECK_BYTES(name, ours, theirs, size);
    free(theirs);
    free(ours);
    snprintf(name, sizeof name, "picture%d%s_pixels", k, which);
    float *x = values(want, name, &n), *y = malloc(size * sizeof *y);
    assert_int_equal(n, size);
    CHECK_OK(sheaf_image_prepare(y, &image, tower->width, tower->height, &sheaf_image_clip_scale));
    compare(name, y, x, n, 1e-6, 0);
    free(x);
    free(y);
    sheaf_image_release(&image);
}

TEST(test_pictures__resized_and_normalised)
{
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "preprocess.safetensors")))
            continue;
        sheaf_safetensors *want = record_of(model_dir[m], "preprocess.safetensors");
        sheaf_config config;
        sheaf__tower tower[SHEAF__MOST_TOWERS];
        int seen = 0;
        CHECK_OK(sheaf_config_read(&config, in_dir(model_dir[m], "model/config.json")));
        const int towers = sheaf__towers_of(tower, &config);
        assert_true(towers == 1 || towers == 2);
        for (int k = 0; k < 4; k++) {
            char name[32];
            snprintf(name, sizeof name, "picture%d.png", k);
            for (int t = 0; t < towers && exists(in_dir(model_dir[m], name)); t++, seen++)
                check_picture(want, model_dir[m], k, &tower[t], t == 0 ? "" : "_cross");
        }
        assert_true(seen > 0);
        sheaf_config_release(&config);
        sheaf__safetensors_close(want);
    }
}

/* ---- texts ---- */

/* A content of a message: its text, and the picture in front of it. */
static json_t *content_of(const char *text, const char *picture)
{
    return picture == NULL ? json_string(text)
                           : json_pack("[{s:s, s:{s:s}}, {s:s, s:s}]", "type", "image_url",
                                       "image_url", "url", picture, "type", "text", "text", text);
}

static bool beside; /* a picture stands beside the content of its message, not in it */

static void say(json_t *messages, const char *role, const char *text, const char *picture)
{
    json_t *message =
        json_pack("{s:s, s:o}", "role", role, "content", content_of(text, beside ? NULL : picture));
    if (beside && picture != NULL)
        json_object_set_new(message, "image", json_string(picture));
    json_array_append_new(messages, message);
}

/* The case as a record: rounds of questions and answers, which a template may leave out, or
 * messages as they are. */
static json_t *record_of_case(const json_t *one, const char *picture, bool rounds)
{
    json_t *messages = json_array();
    const json_t *history = rounds ? json_object_get(one, "history") : NULL,
                 *list = json_object_get(one, "messages"), *answer = json_object_get(one, "answer");
    const bool seen = json_is_true(json_object_get(one, "image"));
    const char *first = seen ? picture : NULL;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *said = json_array_get(list, i);
        const bool shows = json_object_get(said, "image") != NULL &&
                           !json_is_false(json_object_get(said, "image")) &&
                           !json_is_null(json_object_get(said, "image"));
        say(messages, json_string_value(json_object_get(said, "role")),
            json_string_value(json_object_get(said, "content")), shows ? picture : NULL);
    }
    for (size_t i = 0; i < json_array_size(history); i++) {
        const json_t *round = json_array_get(history, i);
        say(messages, "user", json_string_value(json_array_get(round, 0)), first);
        say(messages, "assistant", json_string_value(json_array_get(round, 1)), NULL);
        first = NULL;
    }
    if (list == NULL)
        say(messages, "user", json_string_value(json_object_get(one, "query")), first);
    if (json_is_string(answer))
        say(messages, "assistant", json_string_value(answer), NULL);
    return json_pack("{s:o}", "messages", messages);
}

static void compare_numbers(const char *what, const int32_t *x, const json_t *want, int64_t n)
{
    if ((int64_t)json_array_size(want) != n)
        fail_msg("%s: %" PRId64 " of them, recorded are %zu", what, n, json_array_size(want));
    for (int64_t i = 0; i < n; i++)
        if (x[i] != json_integer_value(json_array_get(want, (size_t)i)))
            fail_msg("%s: at %" PRId64 " %" PRId32 ", recorded is %lld", what, i, x[i],
                     json_integer_value(json_array_get(want, (size_t)i)));
}

/* Ids without the rows of pictures: where the recorded ids have few places, or other ids in them,
 * both sides leave them out. */
static void compare_ids(const char *what, const int32_t *ids, const uint8_t *embed, int64_t n,
                        const json_t *one)
{
    const json_t *want = json_object_get(one, "input_ids"),
                 *types = json_object_get(one, "token_type_ids");
    int32_t type[1024];
    assert_true(n <= 1024);
    for (int64_t i = 0; i < n; i++)
        type[i] = embed != NULL && embed[i];
    if (types != NULL) {
        compare_numbers(what, ids, want, n);
        compare_numbers(what, type, types, n);
        return;
    }
    int64_t at = 0, rows = 0;
    for (int64_t i = 0; i < n; i++) {
        if (type[i] != 0 && rows++ == 0)
            at += 3; /* begin, place, end */
        if (type[i] == 0 && ids[i] != json_integer_value(json_array_get(want, (size_t)at++)))
            fail_msg("%s: position %" PRId64 " is %" PRId32, what, i, ids[i]);
    }
    assert_int_equal(at, json_array_size(want));
}

/* A case with an answer is a row to be trained, another a prompt. */
static void check_text(int m, const sheaf_config *config, const json_t *one, const char *what)
{
    const char *version = json_string_value(json_object_get(one, "template_version"));
    char *model = strdup(in_dir(model_dir[m], "model")),
         *picture = realpath(in_dir(model_dir[m], "picture1.png"), NULL),
         *path = strdup(at("case.jsonl"));
    sheaf__codec codec;
    CHECK_OK(sheaf__codec_open(&codec, config,
                               &(sheaf__codec_options){ .folder = model, .version = version }));
    beside = sheaf__pictures_of(config) != NULL;
    json_t *record = record_of_case(one, picture, sheaf__codec_keeps_turns(&codec));
    assert_int_equal(json_dump_file(record, path, JSON_COMPACT), 0);
    if (json_is_string(json_object_get(one, "answer"))) {
        sheaf_data *data;
        int64_t row = 0;
        CHECK_OK(sheaf_data_open(&data, path,
                                 &(sheaf_data_options){ .config = config,
                                                        .folder = model,
                                                        .prompt_template = version }));
        const int64_t n = sheaf_data_used(data, &row, 1);
        int32_t tokens[1024], label[1024], whole[1024], images[1024];
        uint8_t embed[1024] = { 0 };
        assert_true(n < 1024);
        const sheaf_batch_images holds = sheaf_data_images(data, &row, 1);
        CHECK_OK(sheaf_data_batch(
            &(sheaf_batch){ .tokens = tokens, .labels = label, .image_row = images, .seq = n },
            data, &row, 1));
        for (int64_t i = 0; i < holds.pictures.images * sheaf__image_positions(config); i++)
            embed[images[i]] = 1;
        compare_ids(what, tokens, embed, n, one);
        whole[0] = -100;
        for (int64_t i = 1; i < n; i++) /* ours are those of the next position */
            whole[i] = label[i - 1] < 0 ? -100 : label[i - 1];
        compare_numbers(what, whole, json_object_get(one, "labels"), n);
        sheaf_data_close(data);
    } else {
        sheaf__prompts prompts;
        sheaf_prompts_options from = { .data = path };
        CHECK_OK(sheaf__prompts_read(&prompts, &codec, &from, NULL));
        assert_int_equal(prompts.count, 1);
        const sheaf__prompt *p = &prompts.prompt[0];
        compare_ids(what, p->ids, p->embed, p->n, one);
        sheaf__prompts_release(&prompts);
    }
    sheaf__codec_close(&codec);
    json_decref(record);
    free(model);
    free(picture);
    free(path);
}

/* Upstream fails in some cases; a list of messages that does not ask for an answer, or ends with
 * one, is no prompt. */
static bool is_prompt(const json_t *one, const char *model)
{
    const json_t *asks = json_object_get(one, "add_generation_prompt"),
                 *list = json_object_get(one, "messages"),
                 *last = json_array_get(list, json_array_size(list) - 1);
    const char *role = json_string_value(json_object_get(last, "role"));
    const char *version = json_string_value(json_object_get(one, "template_version"));
    if (sheaf__ends_with(model, "cogagent_hf") && version != NULL &&
        (strcmp(version, "vqa") == 0 || strcmp(version, "chat_old") == 0))
        return false; /* upstream writes the mark of a picture, "<EOI>", into the text */
    return json_object_get(one, "error") == NULL && (asks == NULL || json_is_true(asks)) &&
           (role == NULL || strcmp(role, "user") == 0);
}

TEST(test_texts__ids_types_and_labels)
{
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "text_cases.json")))
            continue;
        json_t *cases = json_of(model_dir[m], "text_cases.json");
        sheaf_config config;
        int seen = 0;
        CHECK_OK(sheaf_config_read(&config, in_dir(model_dir[m], "model/config.json")));
        for (size_t i = 0; i < json_array_size(cases); i++) {
            char what[1200];
            const json_t *one = json_array_get(cases, i);
            snprintf(what, sizeof what, "%s: text case %zu", model_dir[m], i);
            if (!is_prompt(one, model_dir[m]))
                continue;
            check_text(m, &config, one, what);
            seen++;
        }
        assert_true(seen > 0);
        sheaf_config_release(&config);
        json_decref(cases);
    }
}

/* ---- rows of upstream's fine-tuning ---- */

typedef struct said {
    int32_t id[1024], label[1024];
    int64_t n,
        picture; /* tokens without the picture, and how many stand before it; -1: no picture */
} said;

/* Upstream's: begin, place and end are one picture; -100 at what is not learnt. */
static said upstream_row(const json_t *one, const sheaf_config *c)
{
    const json_t *ids = json_object_get(one, "input_ids"), *labels = json_object_get(one, "labels");
    said s = { .picture = -1 };
    assert_true(json_array_size(ids) < 1024);
    for (size_t i = 0; i < json_array_size(ids); i++) {
        const int32_t id = (int32_t)json_integer_value(json_array_get(ids, i));
        if (id == c->image_mark.begin) {
            s.picture = s.n;
            i += 2;
            continue;
        }
        s.id[s.n] = id;
        s.label[s.n++] = (int32_t)json_integer_value(json_array_get(labels, i));
    }
    return s;
}

static said our_row(const char *path, const char *model, const sheaf_config *c)
{
    int32_t tokens[1024], label[1024], image[1024];
    uint8_t embed[1024] = { 0 };
    sheaf_data *data;
    int64_t row = 0;
    said s = { .picture = -1 };
    CHECK_OK(sheaf_data_open(&data, path, &(sheaf_data_options){ .config = c, .folder = model }));
    const int64_t n = sheaf_data_used(data, &row, 1),
                  rows =
                      sheaf_data_images(data, &row, 1).pictures.images * sheaf__image_positions(c);
    assert_true(n < 1024);
    CHECK_OK(sheaf_data_batch(
        &(sheaf_batch){ .tokens = tokens, .labels = label, .image_row = image, .seq = n }, data,
        &row, 1));
    for (int64_t i = 0; i < rows; i++)
        embed[image[i]] = 1;
    for (int64_t i = 0; i < n; i++) {
        if (embed[i]) {
            s.picture = s.picture < 0 ? s.n : s.picture;
            continue;
        }
        s.id[s.n] = tokens[i];
        s.label[s.n++] = i == 0 || label[i - 1] < 0 ? -100 : label[i - 1]; /* of the next there */
    }
    sheaf_data_close(data);
    return s;
}

/* The same tokens; a picture stands behind the line feed of the message that has it, and what is
 * learnt of an answer begins behind the mark of who speaks and goes on to the next mark. */
static void check_row(int m, const sheaf_config *config, const json_t *one)
{
    char *model = strdup(in_dir(model_dir[m], "model")),
         *picture = strdup(in_dir(model_dir[m], "picture1.png")), *path = strdup(at("rows.jsonl"));
    json_t *record = json_pack("{s:O}", "messages", json_object_get(one, "messages")), *list;
    int64_t message = -1, mark = -1, at_mark = -1;
    list = json_object_get(record, "messages");
    for (size_t i = 0; i < json_array_size(list); i++)
        if (json_object_get(json_array_get(list, i), "image") != NULL) {
            json_object_set_new(json_array_get(list, i), "image", json_string(picture));
            message = (int64_t)i;
        }
    assert_int_equal(json_dump_file(record, path, JSON_COMPACT), 0);
    const said want = upstream_row(one, config), got = our_row(path, model, config);
    const char *what = json_string_value(json_object_get(one, "case"));
    CHECK_BYTES(what, got.id, want.id, (size_t)want.n * sizeof *want.id);
    assert_int_equal(got.n, want.n);
    for (int64_t i = 0; i < want.n; i++) {
        /* system, user, assistant and observation lie before the marks of pictures */
        const bool role = want.id[i] < config->image_mark.begin &&
                          want.id[i] >= config->image_mark.begin - 4,
                   ends = role && i > 0 && want.label[i - 1] >= 0;
        mark += role;
        at_mark = role && mark == message ? i : at_mark;
        const int32_t label = ends ? want.id[i] : role ? -100 : want.label[i];
        if (got.label[i] != label)
            fail_msg("%s: label %" PRId64 " is %" PRId32 ", not %" PRId32, what, i, got.label[i],
                     label);
    }
    assert_int_equal(got.picture, at_mark + 2);
    json_decref(record);
    free(model);
    free(picture);
    free(path);
}

TEST(test_texts__rows_of_finetuning)
{
    for (int m = 0; m < models; m++) {
        if (!exists(in_dir(model_dir[m], "finetune_rows.json")))
            continue;
        json_t *rows = json_of(model_dir[m], "finetune_rows.json");
        sheaf_config config;
        CHECK_OK(sheaf_config_read(&config, in_dir(model_dir[m], "model/config.json")));
        assert_true(json_array_size(rows) > 0);
        for (size_t i = 0; i < json_array_size(rows); i++)
            check_row(m, &config, json_array_get(rows, i));
        sheaf_config_release(&config);
        json_decref(rows);
    }
}

/* ---- tensors ---- */

/* The shape of a recorded tensor; NULL: there is none of the name. */
static const json_t *shape_of(const json_t *list, const char *name, bool *parameter)
{
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *one = json_array_get(list, i);
        *parameter = strcmp(json_string_value(json_array_get(one, 2)), "param") == 0;
        if (strcmp(json_string_value(json_array_get(one, 0)), name) == 0)
            return json_array_get(one, 1);
    }
    return NULL;
}

/* Names and shapes; tables of angles may be missing on either side. */
TEST(test_tensors__names_and_shapes)
{
    for (int m = 0; m < models; m++) {
        char *list_path = recorded(m, "parameters.json");
        if (list_path == NULL)
            continue;
        json_t *list = json_of(model_dir[m], "parameters.json");
        sheaf__opened opened;
        CHECK_OK(sheaf__open_model(
            &opened,
            &(sheaf__open_options){ .model = in_dir(model_dir[m], "model"), .slices = 8 }));
        const sheaf_schema *schema = opened.schema;
        int64_t parameters = 0;
        for (int64_t i = 0; i < schema->count; i++) {
            const sheaf_tensor *t = &schema->tensor[i];
            bool parameter = false;
            const json_t *shape = shape_of(list, t->name, &parameter);
            if (shape == NULL && t->buffer)
                continue;
            if (shape == NULL || (int)json_array_size(shape) != t->ndim)
                fail_msg("%s: %s", t->name, shape == NULL ? "not recorded" : "other axes");
            for (int k = 0; k < t->ndim; k++)
                assert_int_equal(t->shape[k], json_integer_value(json_array_get(shape, (size_t)k)));
            parameters += parameter;
        }
        for (size_t i = 0; i < json_array_size(list); i++)
            parameters -=
                strcmp(json_string_value(json_array_get(json_array_get(list, i), 2)), "param") == 0;
        assert_int_equal(parameters, 0);
        sheaf__opened_close(&opened);
        json_decref(list);
        free(list_path);
    }
}

FIXTURE(find_successors, forget_models);
