/* preference_test.c - pairs of answers, judged ones, and rewards as TRL 1.16 learns them: losses
 * and gradient norms of every step and the final weights of each recorded run, and the same bytes
 * on other numbers of ranks.
 *
 * So are variants of LoRA, of which no one is a preference: DoRA, LoRA+ and other beginnings; of
 * those that PEFT takes from the base, what it makes of them for the base as it was.
 *
 * Every folder of preference/dpo, simpo, orpo, kto, vision, reward and grpo-loss with a log and its
 * batches is a run. Of the last, completions are given, and advantages follow from their rewards.
 * The committed part of the recordings has no model, so nothing is found there. Tolerances are
 * those of the recordings' README: 1e-5 of a loss, 5e-5 of one that is not a mean of logarithms;
 * final weights 1e-4, as AdamW makes a step of the noise of a gradient near 0, and all but one in
 * 200 within 1e-5. */
#include "tests/parity/trained.h"
#include "tests/pictures.h"
#include "tests/recordings.h"
#include "tests/tensors.h"

enum { ROWS = 32, LONGEST = 192, MOST_STEPS = 8 };

/* ---- the data ---- */

/* One side of the pairs of all micro-batches, as rows of one length. */
typedef struct side {
    int64_t rows, id[ROWS * LONGEST], label[ROWS * LONGEST];
    int64_t desirable[ROWS]; /* of KTO */
} side;

/* mask: 1 where a token is of the answer; label: the token there; NULL: the other one is given. */
static void put_row(side *to, const int64_t *id, const int64_t *mask, const int64_t *label,
                    int64_t n)
{
    assert_true(to->rows < ROWS && n <= LONGEST);
    int64_t *ids = to->id + to->rows * LONGEST, *labels = to->label + to->rows * LONGEST;
    for (int64_t i = 0; i < LONGEST; i++) {
        ids[i] = i < n ? id[i] : 0;
        labels[i] = i >= n ? -100 : label != NULL ? label[i] : mask[i] != 0 ? id[i] : -100;
    }
    to->rows++;
}

static const char *in_batch(int64_t batch, const char *name)
{
    return textf("batch%" PRId64 ".%s", batch, name);
}

static const int64_t *tensor_of(const sheaf_safetensors *file, int64_t batch, const char *name,
                                int64_t *rows, int64_t *cols)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, in_batch(batch, name));
    *rows = e == NULL ? 0 : e->shape[0];
    return integer_rows(file, in_batch(batch, name), cols);
}

/* TRL's DPO: chosen rows first, then the rejected ones. */
static void read_joint(side both[2], const sheaf_safetensors *file, int64_t batch)
{
    int64_t rows, cols;
    const int64_t *id = tensor_of(file, batch, "input_ids", &rows, &cols),
                  *mask = tensor_of(file, batch, "completion_mask", &rows, &cols);
    for (int64_t r = 0; r < rows; r++)
        put_row(&both[r >= rows / 2], id + r * cols, mask + r * cols, NULL, cols);
}

/* Reward models: the same, of which all counts; with margins. */
static int64_t margins[ROWS]; /* the bits of a float32 each */

static void read_scored(side both[2], const sheaf_safetensors *file, int64_t batch)
{
    int64_t rows, cols, n;
    const int64_t *id = tensor_of(file, batch, "input_ids", &rows, &cols),
                  *mask = tensor_of(file, batch, "attention_mask", &rows, &cols);
    const char *name = textf("batch%" PRId64 ".margin", batch);
    const bool has = sheaf__safetensors_find(file, name) != NULL;
    float *margin = has ? values(file, name, &n) : NULL;
    for (int64_t r = 0; r < rows / 2; r++)
        memcpy(&margins[both->rows + r], has ? &margin[r] : &(float){ 0 }, sizeof *margin);
    for (int64_t r = 0; r < rows; r++)
        put_row(&both[r >= rows / 2], id + r * cols, mask + r * cols, NULL, cols);
}

/* CPO: tensors of either side. */
static void read_apart(side both[2], const sheaf_safetensors *file, int64_t batch)
{
    static const char *const names[2][2] = { { "chosen_input_ids", "chosen_labels" },
                                             { "rejected_input_ids", "rejected_labels" } };
    for (int k = 0; k < 2; k++) {
        int64_t rows, cols;
        const int64_t *id = tensor_of(file, batch, names[k][0], &rows, &cols),
                      *label = tensor_of(file, batch, names[k][1], &rows, &cols);
        for (int64_t r = 0; r < rows; r++)
            put_row(&both[k], id + r * cols, NULL, label + r * cols, cols);
    }
}

/* KTO: each row alone, and whether its answer is desirable. */
static void read_judged(side both[2], const sheaf_safetensors *file, int64_t batch)
{
    int64_t rows, cols;
    const sheaf_safetensors_entry *e;
    const int64_t *id = tensor_of(file, batch, "input_ids", &rows, &cols),
                  *mask = tensor_of(file, batch, "completion_mask", &rows, &cols);
    const uint8_t *judged = raw_of(file, in_batch(batch, "label"), &e);
    const int64_t bytes = e->bytes / rows; /* of a BOOL or an I64 */
    assert_true(rows <= ROWS);
    for (int64_t r = 0; r < rows; r++) {
        both->desirable[both->rows] = judged[r * bytes];
        put_row(both, id + r * cols, mask + r * cols, NULL, cols);
    }
}

static const char *data_of(int64_t *rows_of_it, const char *dir, int64_t micros, const char *kind)
{
    static side both[2];
    sheaf_safetensors *file = record_of(dir, "batches.safetensors");
    const bool judged = strcmp(kind, "kto") == 0, scored = strcmp(kind, "reward") == 0;
    memset(both, 0, sizeof both);
    for (int64_t i = 0; i < micros; i++)
        (judged                     ? read_judged
         : scored                   ? read_scored
         : strcmp(kind, "dpo") == 0 ? read_joint
                                    : read_apart)(both, file, i);
    const int64_t rows = *rows_of_it = both[0].rows;
    if (judged)
        return tensors_file((const tensor[]){ { "input_ids", "I64", { rows, LONGEST }, both[0].id },
                                              { "labels", "I64", { rows, LONGEST }, both[0].label },
                                              { "label", "I64", { rows }, both[0].desirable } },
                            3);
    assert_true(rows > 0 && both[1].rows == rows);
    static int64_t mask[2][ROWS * LONGEST];
    for (int64_t i = 0; i < 2 * rows * LONGEST; i++)
        mask[i % 2][i / 2] = both[i % 2].label[i / 2] != -100;
    if (scored)
        return tensors_file(
            (const tensor[]){ { "chosen.input_ids", "I32", { rows, LONGEST }, both[0].id },
                              { "chosen.labels", "I32", { rows, LONGEST }, both[0].label },
                              { "chosen.attention_mask", "I32", { rows, LONGEST }, mask[0] },
                              { "rejected.input_ids", "I32", { rows, LONGEST }, both[1].id },
                              { "rejected.labels", "I32", { rows, LONGEST }, both[1].label },
                              { "rejected.attention_mask", "I32", { rows, LONGEST }, mask[1] },
                              { "margin", "F32", { rows }, margins } },
            7);
    return tensors_file(
        (const tensor[]){ { "chosen.input_ids", "I64", { rows, LONGEST }, both[0].id },
                          { "chosen.labels", "I64", { rows, LONGEST }, both[0].label },
                          { "rejected.input_ids", "I64", { rows, LONGEST }, both[1].id },
                          { "rejected.labels", "I64", { rows, LONGEST }, both[1].label } },
        4);
}

/* ---- pictures ---- */

/* The next recorded picture as its processor resized it, which torchvision does otherwise than
 * Pillow. patch: [height / 14 * width / 14] of [3][2][14][14], four that are joined in turn. */
static const float *put_recorded(const char *path, int rows, int cols, const float *patch)
{
    enum { SIDE = 14, PATCH = 3 * 2 * SIDE * SIDE };
    static const double mean[] = { 0.48145466, 0.4578275, 0.40821073 },
                        std[] = { 0.26862954, 0.26130258, 0.27577711 };
    static uint8_t pixel[3 * 128 * 144];
    const int width = cols * SIDE;
    assert_true(rows * SIDE * width * 3 <= (int)sizeof pixel);
    for (int i = 0; i < rows * cols; i++, patch += PATCH) {
        const int unit = i / 4, row = unit / (cols / 2) * 2 + i % 4 / 2,
                  col = unit % (cols / 2) * 2 + i % 2;
        for (int k = 0; k < 3 * SIDE * SIDE; k++) {
            const int c = k / (SIDE * SIDE), y = k / SIDE % SIDE, x = k % SIDE;
            const double value = patch[(c * 2 * SIDE + y) * SIDE + x] * std[c] + mean[c];
            pixel[((row * SIDE + y) * width + col * SIDE + x) * 3 + c] =
                (uint8_t)lround(255 * value);
        }
    }
    put_pixels(path, width, rows * SIDE, pixel);
    return patch;
}

/* The records with the pictures of all micro-batches, of which TRL's chosen rows come first: the
 * path of the next picture becomes one of its own, of the same length. */
static const char *with_pictures(const char *dir, int64_t micros)
{
    static const char was[] = "../../../successors/qwen2_5_vl/pictures/0.png", name[] = "0.png";
    sheaf_safetensors *file = record_of(dir, "batches.safetensors");
    size_t size;
    int n = 0;
    char *records = file_text(in_dir(dir, "data.jsonl"), &size), *path = records;
    for (int64_t b = 0; b < micros; b++) {
        char own[] = "0.png";
        int64_t rows, cols, count;
        const int64_t *grid = tensor_of(file, b, "image_grid_thw", &rows, &cols);
        const float *all = values_of(file, in_batch(b, "pixel_values"), &count), *patch = all;
        for (int64_t i = 0; i < rows / 2; i++) {
            path = strstr(path, "../../../");
            assert_non_null(path);
            own[0] = (char)('0' + n++);
            patch = put_recorded(at(own), (int)grid[3 * i + 1], (int)grid[3 * i + 2], patch);
            memset(path + 1, '/', sizeof was - 2);
            path += sizeof was - sizeof name;
            memcpy(path, own, sizeof own - 1);
        }
        assert_true(patch == all + count);
    }
    return file_with("pictures.jsonl", records, size);
}

/* ---- completions ---- */

/* Which of the batch's completions is row r of a micro-batch, whose order TRL has mixed: the
 * first that is left with these tokens and this advantage. */
static size_t find_completion(const json_t *log, size_t batch, bool *taken, const int64_t *id,
                              int64_t cols, const int64_t *prompt_mask, const int64_t *prompt,
                              int64_t prompt_cols, float advantage)
{
    const json_t *of = json_array_get(json_object_get(log, "completions"), batch),
                 *prompts = json_object_get(of, "prompts"),
                 *completions = json_object_get(of, "completions"),
                 *advantages = json_array_get(json_object_get(log, "advantages"), batch);
    for (size_t i = 0; i < json_array_size(completions); i++) {
        const json_t *p = json_array_get(prompts, i), *c = json_array_get(completions, i);
        size_t k = 0;
        bool same =
            !taken[i] && (int64_t)json_array_size(c) <= cols &&
            fabs(json_number_value(json_array_get(advantages, i)) - (double)advantage) < 1e-6;
        for (int64_t t = 0; t < prompt_cols && same; t++)
            if (prompt_mask[t] != 0)
                same = json_integer_value(json_array_get(p, k++)) == prompt[t];
        same = same && k == json_array_size(p);
        for (size_t t = 0; t < json_array_size(c) && same; t++)
            same = json_integer_value(json_array_get(c, t)) == id[t];
        if (!same)
            continue;
        taken[i] = true;
        return i;
    }
    fail_msg("batch %zu has no such completion", batch);
    return 0;
}

/* The rows of a micro-batch as lines. */
static void put_micro(sheaf_text *to, const json_t *log, const sheaf_safetensors *file,
                      int64_t micro, size_t batch, bool *taken, int64_t each)
{
    int64_t rows, cols, prompt_cols, n;
    const int64_t *id = tensor_of(file, micro, "completion_ids", &rows, &cols),
                  *prompt = tensor_of(file, micro, "prompt_ids", &rows, &prompt_cols),
                  *mask = tensor_of(file, micro, "prompt_mask", &rows, &prompt_cols);
    const char *name = textf("batch%" PRId64 ".advantages", micro);
    const float *advantage = values_of(file, name, &n);
    const json_t *of = json_array_get(json_object_get(log, "completions"), batch),
                 *rewards = json_array_get(json_object_get(log, "rewards"), batch);
    for (int64_t r = 0; r < rows; r++) {
        const size_t i =
            find_completion(log, batch, taken, id + r * cols, cols, mask + r * prompt_cols,
                            prompt + r * prompt_cols, prompt_cols, advantage[r]);
        const json_t *list[] = { json_array_get(json_object_get(of, "prompts"), i),
                                 json_array_get(json_object_get(of, "completions"), i),
                                 json_array_get(rewards, i) };
        char *text[3];
        for (int k = 0; k < 3; k++)
            text[k] = json_dumps(list[k], JSON_ENCODE_ANY | JSON_COMPACT);
        sheaf__text_add(to,
                        "{\"prompt_ids\": %s, \"completion_ids\": %s, \"reward\": %s, "
                        "\"group\": %" PRId64 "}\n",
                        text[0], text[1], text[2], ((int64_t)batch * 1000 + (int64_t)i / each));
        for (int k = 0; k < 3; k++)
            free(text[k]);
    }
}

/* Groups by their lines' numbers; a batch that serves several steps is there once. */
static const char *rollouts_of(int64_t *rows_of_it, const char *dir, const json_t *log)
{
    const json_t *args = json_object_get(json_object_get(log, "case"), "args"),
                 *rewards = json_object_get(log, "rewards"),
                 *again = json_object_get(args, "num_iterations");
    const int64_t micros = json_integer_value(json_object_get(args, "gradient_accumulation_steps")),
                  times = again == NULL ? 1 : json_integer_value(again),
                  each = json_integer_value(json_object_get(args, "num_generations"));
    sheaf_safetensors *file = record_of(dir, "batches.safetensors");
    sheaf_text text = { 0 };
    *rows_of_it = 0;
    for (size_t b = 0; b < json_array_size(rewards); b++) {
        bool taken[64] = { false };
        for (int64_t m = 0; m < micros; m++)
            put_micro(&text, log, file, (int64_t)b * micros * times + m, b, taken, each);
        *rows_of_it += times * (int64_t)json_array_size(json_array_get(rewards, b));
    }
    const char *path = file_with("rollouts.jsonl", text.at, text.size);
    sheaf__text_release(&text);
    return path;
}

/* ---- the run ---- */

typedef struct told {
    double loss[MOST_STEPS], norm[MOST_STEPS];
    sheaf_event_value value[MOST_STEPS][SHEAF_EVENT_VALUES];
    int n;
} told;

static void hear(void *self, const sheaf_event *event)
{
    told *t = self;
    if (event->kind != SHEAF_EVENT_STEP)
        return;
    assert_in_range(t->n, 0, MOST_STEPS - 1);
    t->loss[t->n] = event->step.loss;
    memcpy(t->value[t->n], event->step.value, sizeof t->value[t->n]);
    t->norm[t->n++] = event->step.grad_norm;
}

static const char *text_at(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

/* A name, or a list, as a flag has it; empty: none. */
static const char *list_of(const json_t *value)
{
    const char *text = json_is_string(value) ? json_string_value(value) : "";
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        const char *comma = i == 0 ? "" : ",";
        text = json_is_string(one) ? textf("%s%s%s", text, comma, json_string_value(one))
                                   : textf("%s%s%.17g", text, comma, json_number_value(one));
    }
    return text;
}

static bool is_grouped(const char *kind)
{
    return strcmp(kind, "grpo") == 0 || strcmp(kind, "rloo") == 0;
}

/* A recorded run, and what its options point to. */
typedef struct course {
    const char *dir;
    const json_t *log;
    bool loose; /* the loss is not a mean of logarithms */
    bool cut;   /* TRL's last step has fewer rows, where a step of sheaf's goes on in the next
                   epoch */
    sheaf_train_options o;
} course;

static void take_group(course *c, const json_t *args)
{
    sheaf__group_options *o = &c->o.objective.group;
    o->epsilon = number_or(args, "epsilon", 0);
    o->epsilon_high = number_or(args, "epsilon_high", 0);
    o->delta = number_or(args, "delta", 0);
    o->scale_rewards = text_at(args, "scale_rewards");
    o->level = text_at(args, "importance_sampling_level");
    o->iterations = (int64_t)number_or(args, "num_iterations", 0);
    o->max_new = (int64_t)number_or(args, "max_completion_length", 0);
    o->temperature = number_or(args, "temperature", 0);
    o->mask_truncated = json_is_true(json_object_get(args, "mask_truncated_completions"));
    o->plain_kl = json_is_false(json_object_get(args, "use_bias_correction_kl"));
    o->normalize = json_is_true(json_object_get(args, "normalize_advantages"));
}

/* As flags give it: 0, where that is not the default, is -1. */
static double given(const json_t *args, const char *key)
{
    const double x = number_or(args, key, NAN);
    return isnan(x) ? 0 : x == 0 ? -1 : x;
}

static void take_objective(course *c, const json_t *one, const json_t *args)
{
    const char *kind = text_at(one, "kind"), *peft = text_at(one, "peft");
    const bool grouped = is_grouped(kind),
               refers = strcmp(kind, "dpo") == 0 || strcmp(kind, "kto") == 0 ||
                        strcmp(kind, "rloo") == 0 || (grouped && number_or(args, "beta", 0) > 0);
    c->o.objective.name = kind;
    c->o.objective.loss_type = list_of(json_object_get(args, "loss_type"));
    c->o.objective.loss_weights = list_of(json_object_get(args, "loss_weights"));
    c->o.objective.beta = number_or(args, "beta", 0);
    c->o.objective.ld_alpha = given(args, "ld_alpha");
    c->o.objective.simpo_gamma = given(args, "simpo_gamma");
    c->o.objective.cpo_alpha = given(args, "cpo_alpha");
    c->o.objective.simpo_alpha = number_or(args, "alpha", 0);
    c->o.objective.discopop_tau = number_or(args, "discopop_tau", 0);
    c->o.objective.divergence = text_at(args, "f_divergence_type");
    if (strcmp(c->o.objective.divergence, "alpha_divergence") == 0)
        c->o.objective.divergence_alpha = given(args, "f_alpha_divergence_coef");
    c->o.objective.weighting = json_is_true(json_object_get(args, "use_weighting"));
    c->o.objective.desirable = given(args, "desirable_weight");
    c->o.objective.undesirable = given(args, "undesirable_weight");
    c->o.objective.center = number_or(args, "center_rewards_coefficient", 0);
    c->o.objective.reference = refers && peft[0] == '\0' ? "base" : NULL;
    c->o.label_smoothing = number_or(args, "label_smoothing", 0);
    c->loose = strstr(c->o.objective.loss_type, "hinge") != NULL ||
               strstr(c->o.objective.loss_type, "sppo") != NULL || strcmp(kind, "rloo") == 0;
    if (grouped)
        take_group(c, args);
}

/* An adapter as sheaf begins it, whose start is kept beside the factors, from the recorded start.
 */
static const char *double_start(const course *c)
{
    const sheaf_safetensors *file = record_of(c->dir, "adapter_init/adapter_model.safetensors");
    const char *dir = at("doubled");
    made_tensors made = { .count = 0 };
    for (int64_t i = 0; i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        const bool a = strstr(e->name, ".lora_A.") != NULL;
        const int64_t rows = e->shape[0], cols = e->shape[1];
        int64_t n;
        const float *x = values_of(file, e->name, &n);
        float *twice = room((size_t)(2 * n) * sizeof *twice);
        for (int64_t k = 0; k < 2 * n; k++) {
            const int64_t row = k / (2 * cols), col = k % (2 * cols);
            twice[k] = a ? x[k % n] : x[row * cols + col % cols] * (col < cols ? 1 : -1);
        }
        made_add(&made, e->name, SHEAF_F32, 2, (const int64_t[]){ rows * (1 + a), cols * (2 - a) },
                 twice);
    }
    CHECK_OK(sheaf__make_dirs(dir));
    made_write(&made, in_dir(dir, "adapter_model.safetensors"));
    copy_file(in_dir(dir, "adapter_config.json"),
              in_dir(c->dir, "adapter_final_as_lora/adapter_config.json"));
    return dir;
}

/* A variant of LoRA, trained on records that were batched before. */
static void open_variant(course *c)
{
    static const char *const names[] = { "input_ids", "labels", "attention_mask" };
    static int64_t field[3][ROWS * LONGEST];
    const json_t *one = json_object_get(c->log, "case"), *optim = json_object_get(one, "optim");
    const sheaf_safetensors *file = record_of(c->dir, "batches.safetensors");
    const sheaf_safetensors_entry *e = NULL, *next;
    const bool held = exists(in_dir(c->dir, "residual.safetensors"));
    int64_t steps = 0, n = 0;
    for (; (next = sheaf__safetensors_find(file, textf("step%d.%s", (int)steps, names[0]))) != NULL;
         steps++) {
        e = next;
        n = e->shape[0] * e->shape[1];
        assert_true((steps + 1) * n <= ROWS * LONGEST);
        for (int k = 0; k < 3; k++)
            memcpy(field[k] + steps * n, integers(file, textf("step%d.%s", (int)steps, names[k])),
                   (size_t)n * sizeof **field);
    }
    assert_non_null(e);
    sheaf_train_options *o = &c->o;
    *o = adamw_options(optim);
    o->init = held ? "pissa" : NULL;
    o->objective.name = "";
    o->model = in_dir(recording("preference/models"), text_at(one, "model"));
    o->adapter = held ? double_start(c) : in_dir(c->dir, "adapter_init");
    o->data = rows_file("batches.safetensors", field[0], field[1], field[2], steps * e->shape[0],
                        e->shape[1]);
    o->micro_batch = e->shape[0];
    o->steps = steps;
    o->lora_plus = number_or(optim, "ratio", 0);
    o->clip = 1;
    o->threads = 1;
}

static bool is_variant(const course *c)
{
    return json_object_get(c->log, "groups") != NULL;
}

static void open_course(course *c, const char *dir)
{
    *c = (course){ .dir = dir, .log = json_of(dir, "log.json") };
    const json_t *one = json_object_get(c->log, "case"), *args = json_object_get(one, "args");
    if (is_variant(c)) {
        open_variant(c);
        return;
    }
    const int64_t micros = (int64_t)json_array_size(json_object_get(c->log, "micro_batch_losses"));
    const bool full = strcmp(text_at(one, "peft"), "none") == 0;
    sheaf_train_options *o = &c->o;
    const bool pictures = exists(in_dir(dir, "data.jsonl")); /* of records, with their own start */
    int64_t rows = 4;
    const char *models_dir = recording("preference/models"),
               *data = pictures ? with_pictures(dir, micros)
                       : is_grouped(text_at(one, "kind"))
                           ? rollouts_of(&rows, dir, c->log)
                           : data_of(&rows, dir, micros, text_at(one, "kind"));
    *o = adamw_options(NULL);
    o->loss_on = pictures ? SHEAF_LOSS_BEHIND : SHEAF_LOSS_UNNAMED;
    o->prompt_template = pictures ? "chatml" : NULL; /* without a system's message */
    o->model = in_dir(pictures ? recording(".") : models_dir, text_at(one, "model"));
    o->data = data;
    o->method = full ? SHEAF_METHOD_FULL : SHEAF_METHOD_LORA;
    o->adapter = full       ? NULL
                 : pictures ? in_dir(dir, "adapter_init")
                            : in_dir(models_dir, text_at(one, "adapter"));
    o->micro_batch = (int64_t)number_or(args, "per_device_train_batch_size", 0);
    o->accumulate = (int64_t)number_or(args, "gradient_accumulation_steps", 1);
    o->steps = rows / (o->micro_batch * o->accumulate);
    c->cut = o->steps < micros / o->accumulate;
    o->lr = number_or(args, "learning_rate", 5e-3);
    o->weight_decay = number_or(args, "weight_decay", 0.01);
    o->clip = number_or(args, "max_grad_norm", 1);
    o->threads = 1;
    o->accumulators = full ? 2 : 0; /* which two groups divide */
    take_objective(c, one, args);
}

static told train(const course *c, int tp, int dp, const char *out)
{
    told t = { .n = 0 };
    sheaf_train_options o = c->o;
    o.tp = tp;
    o.dp = dp;
    o.out = out;
    train_as(&o, hear, &t);
    assert_int_equal(t.n, o.steps);
    return t;
}

/* The same with a stop after each step. */
static void train_in_pieces(const course *c, const char *out)
{
    static const int tp[] = { 1, 2, 3 };
    sheaf_train_options o = c->o;
    o.out = out;
    for (o.steps = 1; o.steps <= c->o.steps; o.steps++) {
        o.resume = o.steps > 1;
        o.tp = tp[o.steps % 3];
        train_as(&o, NULL, NULL);
    }
}

/* ---- the comparison ---- */

static void check_steps(const course *c, const told *got)
{
    /* means over all pairs and tokens of a step, as sheaf takes them, where TRL's are others */
    const bool means = exists(in_dir(c->dir, "step_mean.json"));
    const json_t *steps =
        means ? json_of(c->dir, "step_mean.json") : json_object_get(c->log, "steps");
    assert_int_equal(json_array_size(steps), got->n + c->cut);
    for (int i = 0; i < got->n; i++) {
        const json_t *want = json_array_get(steps, (size_t)i);
        const double norm = number_or(want, "grad_norm", NAN);
        CHECK_NEAR(c->dir, got->loss[i], number_or(want, "loss", NAN), c->loose ? 5e-5 : 1e-5);
        CHECK_NEAR(c->dir, got->norm[i], norm, 1e-4 * norm);
        for (int k = 0; k < 5 && strcmp(c->o.objective.name, "reward") == 0; k++) {
            const sheaf_event_value *v = &got->value[i][k];
            CHECK_NEAR(v->name, v->value, number_or(want, v->name, NAN), 1e-4);
        }
    }
}

static const char *weights_of(const course *c)
{
    return c->o.method == SHEAF_METHOD_FULL ? "model/model.safetensors"
                                            : "adapter/adapter_model.safetensors";
}

static void check_weights(const course *c, const char *out)
{
    const bool full = c->o.method == SHEAF_METHOD_FULL;
    const char *name = full ? "model_final.safetensors"
                       : exists(in_dir(c->dir, "adapter_step_mean.safetensors"))
                           ? "adapter_step_mean.safetensors"
                       : c->o.init != NULL ? "adapter_final_as_lora/adapter_model.safetensors"
                                           : "adapter_final/adapter_model.safetensors";
    compare_nearly(in_dir(out, weights_of(c)), in_dir(c->dir, name), 1e-5, 1e-4, 200);
}

/* again: other numbers of ranks and groups, and a run that is stopped, leave the same. */
static void check_course(const char *dir, bool again)
{
    static const struct {
        int tp, dp;
    } others[] = { { 3, 1 }, { 2, 1 }, { 1, 2 }, { 5, 1 }, { 8, 1 } };
    course c;
    const char *first = at("first"), *out = at("other");
    open_course(&c, dir);
    const char *file = weights_of(&c);
    const told got = train(&c, 1, 1, first);
    check_steps(&c, &got);
    if (!c.cut)
        check_weights(&c, first);
    const size_t most = !again ? 0 : is_variant(&c) ? ARRAY_LEN(others) : 3;
    for (size_t i = 0; i < most; i += (size_t)every(4)) {
        const told other = train(&c, others[i].tp, others[i].dp, out);
        CHECK_BYTES(dir, other.loss, got.loss, sizeof got.loss);
        CHECK_BYTES(dir, other.norm, got.norm, sizeof got.norm);
        check_same_files(in_dir(out, file), in_dir(first, file));
        CHECK_OK(sheaf__remove_tree(out));
    }
    if (again && (c.o.objective.group.max_new > 0 || is_variant(&c))) {
        train_in_pieces(&c, out);
        check_same_files(in_dir(out, file), in_dir(first, file));
        CHECK_OK(sheaf__remove_tree(out));
    }
    CHECK_OK(sheaf__remove_tree(first));
}

TEST(test_preference__recorded_runs_are_reproduced)
{
    int checked = 0;
    for (int m = 0; m < models; m += every(2), checked++) {
        print_message("%s\n", model_dir[m]);
        check_course(model_dir[m], m % every(3) == 0);
    }
    assert_true(!recordings_are_full() || checked > 50 / every(2));
}

/* TRL keeps another batch's padding in its precomputed sums; sheaf's do not depend on it. */
TEST(test_preference__forms_of_one_run_are_one)
{
    static const char *const names[] = { "sigmoid", "precomputed" };
    told got[2];
    for (int i = 0; i < 2 && recordings_are_full(); i++) {
        course c;
        open_course(&c, in_dir(recording("preference/dpo"), names[i]));
        got[i] = train(&c, 1, 1, at("one"));
        CHECK_OK(sheaf__remove_tree(at("one")));
        if (i == 1)
            CHECK_BYTES("precomputed", &got[1], &got[0], sizeof *got);
    }
}

/* An adapter that is its own reference is as far from it as log 2 says, to the last bit. */
TEST(test_preference__a_start_is_no_preference)
{
    if (!recordings_are_full())
        return;
    course c;
    open_course(&c, in_dir(recording("preference/dpo"), "ref-start"));
    const told got = train(&c, 1, 1, at("start"));
    assert_true(got.loss[0] == 0x1.62e42fefa39efp-1);
    CHECK_OK(sheaf__remove_tree(at("start")));
}

static int find_runs(void **state)
{
    static const char *const kinds[] = { "preference/dpo",    "preference/simpo",
                                         "preference/orpo",   "preference/kto",
                                         "preference/vision", "preference/grpo-loss",
                                         "preference/reward" },
                             *const variants[] = { "preference/lora-variants/dora",
                                                   "preference/lora-variants/dora-filled",
                                                   "preference/lora-variants/gaussian",
                                                   "preference/lora-variants/orthogonal",
                                                   "preference/lora-variants/olora",
                                                   "preference/lora-variants/pissa",
                                                   "preference/lora-variants/pissa-fast",
                                                   "preference/lora-variants/loraplus" };
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (exists(recording(kinds[i])))
            find_in(recording(kinds[i]), "log.json", "batches.safetensors");
    for (size_t i = 0; i < ARRAY_LEN(variants); i++)
        if (exists(recording(variants[i])))
            model_dir[models++] = recording(variants[i]);
    return make_scratch(state);
}

FIXTURE(find_runs, remove_scratch);
