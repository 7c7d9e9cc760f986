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
#include "tests/parity/trial.h"
#include "tests/pictures.h"
#include "tests/recordings.h"
#include "tests/tensors.h"
#include "train/train.h"

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

static int64_t *tensor_of(const sheaf_safetensors *file, int64_t batch, const char *name,
                          int64_t *rows, int64_t *cols)
{
    char full[64];
    snprintf(full, sizeof full, "batch%" PRId64 ".%s", batch, name);
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, full);
    if (e == NULL)
        fail_msg("no '%s'", full);
    *rows = e->shape[0];
    return integer_rows(file, full, cols);
}

/* TRL's DPO: chosen rows first, then the rejected ones. */
static void read_joint(side both[2], const sheaf_safetensors *file, int64_t batch)
{
    int64_t rows, cols, *id = tensor_of(file, batch, "input_ids", &rows, &cols),
                        *mask = tensor_of(file, batch, "completion_mask", &rows, &cols);
    for (int64_t r = 0; r < rows; r++)
        put_row(&both[r >= rows / 2], id + r * cols, mask + r * cols, NULL, cols);
    free(id);
    free(mask);
}

/* Reward models: the same, of which all counts; with margins. */
static int64_t margins[ROWS]; /* the bits of a float32 each */

static void read_scored(side both[2], const sheaf_safetensors *file, int64_t batch)
{
    char name[64];
    int64_t rows, cols, n, *id = tensor_of(file, batch, "input_ids", &rows, &cols),
                           *mask = tensor_of(file, batch, "attention_mask", &rows, &cols);
    snprintf(name, sizeof name, "batch%" PRId64 ".margin", batch);
    const bool has = sheaf__safetensors_find(file, name) != NULL;
    float *margin = has ? values(file, name, &n) : NULL;
    for (int64_t r = 0; r < rows / 2; r++)
        memcpy(&margins[both->rows + r], has ? &margin[r] : &(float){ 0 }, sizeof *margin);
    for (int64_t r = 0; r < rows; r++)
        put_row(&both[r >= rows / 2], id + r * cols, mask + r * cols, NULL, cols);
    free(margin);
    free(id);
    free(mask);
}

/* CPO: tensors of either side. */
static void read_apart(side both[2], const sheaf_safetensors *file, int64_t batch)
{
    static const char *const names[2][2] = { { "chosen_input_ids", "chosen_labels" },
                                             { "rejected_input_ids", "rejected_labels" } };
    for (int k = 0; k < 2; k++) {
        int64_t rows, cols, *id = tensor_of(file, batch, names[k][0], &rows, &cols),
                            *label = tensor_of(file, batch, names[k][1], &rows, &cols);
        for (int64_t r = 0; r < rows; r++)
            put_row(&both[k], id + r * cols, NULL, label + r * cols, cols);
        free(id);
        free(label);
    }
}

/* KTO: each row alone, and whether its answer is desirable. */
static void read_judged(side both[2], const sheaf_safetensors *file, int64_t batch)
{
    char name[64];
    int64_t rows, cols, *id = tensor_of(file, batch, "input_ids", &rows, &cols),
                        *mask = tensor_of(file, batch, "completion_mask", &rows, &cols);
    snprintf(name, sizeof name, "batch%" PRId64 ".label", batch);
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
    assert_true(e != NULL && rows <= ROWS);
    uint8_t judged[ROWS * 8];
    const int64_t bytes = e->bytes / rows; /* of a BOOL or an I64 */
    CHECK_OK(sheaf__safetensors_read(file, e, 0, judged, e->bytes));
    for (int64_t r = 0; r < rows; r++) {
        both->desirable[both->rows] = judged[r * bytes];
        put_row(both, id + r * cols, mask + r * cols, NULL, cols);
    }
    free(id);
    free(mask);
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
    sheaf__safetensors_close(file);
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
    char *records;
    size_t size;
    int n = 0;
    CHECK_OK(sheaf__file_read_all(&records, &size, in_dir(dir, "data.jsonl"), 1 << 20));
    char *path = records;
    for (int64_t b = 0; b < micros; b++) {
        char pixels[64], own[] = "0.png";
        int64_t rows, cols, count, *grid = tensor_of(file, b, "image_grid_thw", &rows, &cols);
        snprintf(pixels, sizeof pixels, "batch%" PRId64 ".pixel_values", b);
        float *const all = values(file, pixels, &count);
        const float *patch = all;
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
        free(grid);
        free(all);
    }
    sheaf__safetensors_close(file);
    const char *made = file_with("pictures.jsonl", records, size);
    free(records);
    return made;
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
    char name[64];
    int64_t rows, cols, prompt_cols, n;
    int64_t *id = tensor_of(file, micro, "completion_ids", &rows, &cols),
            *prompt = tensor_of(file, micro, "prompt_ids", &rows, &prompt_cols),
            *mask = tensor_of(file, micro, "prompt_mask", &rows, &prompt_cols);
    snprintf(name, sizeof name, "batch%" PRId64 ".advantages", micro);
    float *advantage = values(file, name, &n);
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
    free(id);
    free(prompt);
    free(mask);
    free(advantage);
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
    sheaf__safetensors_close(file);
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

static double number(const json_t *object, const char *key, double otherwise)
{
    const json_t *x = json_object_get(object, key);
    return x == NULL ? otherwise : json_number_value(x);
}

static const char *text_of(const json_t *object, const char *key)
{
    const char *text = json_string_value(json_object_get(object, key));
    return text == NULL ? "" : text;
}

/* A name, or a list, as a flag has it; empty: none. */
static void list_of(char text[100], const json_t *value)
{
    int n = snprintf(text, 100, "%s", json_is_string(value) ? json_string_value(value) : "");
    for (size_t i = 0; i < json_array_size(value); i++) {
        const json_t *one = json_array_get(value, i);
        const char *comma = i == 0 ? "" : ",";
        n += json_is_string(one) ? sprintf(text + n, "%s%s", comma, json_string_value(one))
                                 : sprintf(text + n, "%s%.17g", comma, json_number_value(one));
    }
}

static bool is_grouped(const char *kind)
{
    return strcmp(kind, "grpo") == 0 || strcmp(kind, "rloo") == 0;
}

/* A recorded run, and what its options point to. */
typedef struct course {
    const char *dir;
    json_t *log;
    char model[1600], adapter[1600], data[400], losses[100], weights[100];
    bool loose; /* the loss is not a mean of logarithms */
    bool cut;   /* TRL's last step has fewer rows, where a step of sheaf's goes on in the next
                   epoch */
    sheaf_train_options o;
} course;

static void take_group(course *c, const json_t *args)
{
    sheaf__group_options *o = &c->o.objective.group;
    o->epsilon = number(args, "epsilon", 0);
    o->epsilon_high = number(args, "epsilon_high", 0);
    o->delta = number(args, "delta", 0);
    o->scale_rewards = text_of(args, "scale_rewards");
    o->level = text_of(args, "importance_sampling_level");
    o->iterations = (int64_t)number(args, "num_iterations", 0);
    o->max_new = (int64_t)number(args, "max_completion_length", 0);
    o->temperature = number(args, "temperature", 0);
    o->mask_truncated = json_is_true(json_object_get(args, "mask_truncated_completions"));
    o->plain_kl = json_is_false(json_object_get(args, "use_bias_correction_kl"));
    o->normalize = json_is_true(json_object_get(args, "normalize_advantages"));
}

/* As flags give it: 0, where that is not the default, is -1. */
static double given(const json_t *args, const char *key)
{
    const double x = number(args, key, NAN);
    return isnan(x) ? 0 : x == 0 ? -1 : x;
}

static void take_objective(course *c, const json_t *one, const json_t *args)
{
    const char *kind = text_of(one, "kind"), *peft = text_of(one, "peft");
    const bool grouped = is_grouped(kind),
               refers = strcmp(kind, "dpo") == 0 || strcmp(kind, "kto") == 0 ||
                        strcmp(kind, "rloo") == 0 || (grouped && number(args, "beta", 0) > 0);
    list_of(c->losses, json_object_get(args, "loss_type"));
    list_of(c->weights, json_object_get(args, "loss_weights"));
    c->o.objective.name = kind;
    c->o.objective.loss_type = c->losses;
    c->o.objective.loss_weights = c->weights;
    c->o.objective.beta = number(args, "beta", 0);
    c->o.objective.ld_alpha = given(args, "ld_alpha");
    c->o.objective.simpo_gamma = given(args, "simpo_gamma");
    c->o.objective.cpo_alpha = given(args, "cpo_alpha");
    c->o.objective.simpo_alpha = number(args, "alpha", 0);
    c->o.objective.discopop_tau = number(args, "discopop_tau", 0);
    c->o.objective.divergence = text_of(args, "f_divergence_type");
    if (strcmp(c->o.objective.divergence, "alpha_divergence") == 0)
        c->o.objective.divergence_alpha = given(args, "f_alpha_divergence_coef");
    c->o.objective.weighting = json_is_true(json_object_get(args, "use_weighting"));
    c->o.objective.desirable = given(args, "desirable_weight");
    c->o.objective.undesirable = given(args, "undesirable_weight");
    c->o.objective.center = number(args, "center_rewards_coefficient", 0);
    c->o.objective.reference = refers && peft[0] == '\0' ? "base" : NULL;
    c->o.label_smoothing = number(args, "label_smoothing", 0);
    c->loose = strstr(c->losses, "hinge") != NULL || strstr(c->losses, "sppo") != NULL ||
               strcmp(kind, "rloo") == 0;
    if (grouped)
        take_group(c, args);
}

/* An adapter as sheaf begins it, whose start is kept beside the factors, from the recorded start.
 */
static void double_start(course *c)
{
    static tensor list[32];
    static char name[32][160];
    sheaf_safetensors *file = record_of(c->dir, "adapter_init/adapter_model.safetensors");
    char *config;
    size_t size;
    int count = 0;
    for (int64_t i = 0; i < file->header.count; i++) {
        const sheaf_safetensors_entry *e = &file->header.entry[i];
        const bool a = strstr(e->name, ".lora_A.") != NULL;
        const int64_t rows = e->shape[0], cols = e->shape[1];
        int64_t n, *bits = calloc((size_t)(2 * rows * cols), sizeof *bits);
        float *x = values(file, e->name, &n);
        for (int64_t k = 0; k < 2 * n; k++) {
            const int64_t row = k / (2 * cols), col = k % (2 * cols);
            const float is = a ? x[k % n] : x[row * cols + col % cols] * (col < cols ? 1 : -1);
            memcpy(&bits[k], &is, sizeof is);
        }
        snprintf(name[count], sizeof name[count], "%s", e->name);
        list[count] = (tensor){ name[count], "F32", { rows * (1 + a), cols * (2 - a) }, bits };
        count++;
        free(x);
    }
    sheaf__safetensors_close(file);
    const char *made = tensors_file(list, count);
    snprintf(c->adapter, sizeof c->adapter, "%s", at("doubled"));
    CHECK_OK(sheaf__make_dirs(c->adapter));
    rename(made, in_dir(c->adapter, "adapter_model.safetensors"));
    CHECK_OK(sheaf__file_read_all(
        &config, &size, in_dir(c->dir, "adapter_final_as_lora/adapter_config.json"), 1 << 20));
    CHECK_OK(sheaf__file_write_whole(in_dir(c->adapter, "adapter_config.json"), config, size));
    free(config);
    for (int i = 0; i < count; i++)
        free((int64_t *)list[i].value);
}

/* A variant of LoRA, trained on records that were batched before. */
static void open_variant(course *c)
{
    static int64_t id[ROWS * LONGEST], label[ROWS * LONGEST], seen[ROWS * LONGEST];
    const json_t *one = json_object_get(c->log, "case"), *optim = json_object_get(one, "optim");
    const double ratio = number(optim, "ratio", 0);
    const bool held = exists(in_dir(c->dir, "residual.safetensors"));
    if (held)
        double_start(c);
    sheaf_safetensors *file = record_of(c->dir, "batches.safetensors");
    sheaf_train_options *o = &c->o;
    int64_t *const to[] = { id, label, seen }, rows = 0, cols = 0, steps = 0;
    for (bool more = true; more; steps += more) {
        static const char *const names[] = { "input_ids", "labels", "attention_mask" };
        for (int k = 0; k < 3 && more; k++) {
            char name[64];
            snprintf(name, sizeof name, "step%" PRId64 ".%s", steps, names[k]);
            const sheaf_safetensors_entry *e = sheaf__safetensors_find(file, name);
            more = e != NULL;
            if (!more)
                break;
            int64_t *x = integer_rows(file, name, &cols);
            rows = e->shape[0];
            assert_true((steps + 1) * rows * cols <= ROWS * LONGEST);
            memcpy(to[k] + steps * rows * cols, x, (size_t)(rows * cols) * sizeof *x);
            free(x);
        }
    }
    sheaf__safetensors_close(file);
    const int64_t all = steps * rows;
    snprintf(c->data, sizeof c->data, "%s",
             tensors_file((const tensor[]){ { "input_ids", "I64", { all, cols }, id },
                                            { "labels", "I64", { all, cols }, label },
                                            { "attention_mask", "I64", { all, cols }, seen } },
                          3));
    snprintf(c->model, sizeof c->model, "%s/%s", recording("preference/models"),
             text_of(one, "model"));
    if (!held)
        snprintf(c->adapter, sizeof c->adapter, "%s/adapter_init", c->dir);
    sheaf_train_options_default(o);
    o->init = held ? "pissa" : NULL;
    o->objective.name = "";
    o->model = c->model;
    o->adapter = c->adapter;
    o->data = c->data;
    o->micro_batch = rows;
    o->accumulate = 1;
    o->steps = steps;
    o->lr = number(optim, "lr", 0);
    o->weight_decay = number(optim, "weight_decay", 0);
    o->lora_plus = ratio;
    o->schedule = SHEAF_SCHEDULE_CONSTANT;
    o->warmup = 0;
    o->warmup_ratio = 0;
    o->shuffle = false;
    o->dtype = SHEAF_F32;
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
    const bool full = strcmp(text_of(one, "peft"), "none") == 0;
    sheaf_train_options *o = &c->o;
    const bool pictures = exists(in_dir(dir, "data.jsonl")); /* of records, with their own start */
    snprintf(c->model, sizeof c->model, "%s/%s", recording(pictures ? "." : "preference/models"),
             text_of(one, "model"));
    snprintf(c->adapter, sizeof c->adapter, "%s/%s",
             pictures ? dir : recording("preference/models"),
             pictures ? "adapter_init" : text_of(one, "adapter"));
    int64_t rows = 4;
    snprintf(c->data, sizeof c->data, "%s",
             pictures ? with_pictures(dir, micros)
             : is_grouped(text_of(one, "kind"))
                 ? rollouts_of(&rows, dir, c->log)
                 : data_of(&rows, dir, micros, text_of(one, "kind")));
    sheaf_train_options_default(o);
    o->loss_on = pictures ? SHEAF_LOSS_BEHIND : SHEAF_LOSS_UNNAMED;
    o->prompt_template = pictures ? "chatml" : NULL; /* without a system's message */
    o->model = c->model;
    o->data = c->data;
    o->method = full ? SHEAF_METHOD_FULL : SHEAF_METHOD_LORA;
    o->adapter = full ? NULL : c->adapter;
    o->micro_batch = (int64_t)number(args, "per_device_train_batch_size", 0);
    o->accumulate = (int64_t)number(args, "gradient_accumulation_steps", 1);
    o->steps = rows / (o->micro_batch * o->accumulate);
    c->cut = o->steps < micros / o->accumulate;
    o->lr = number(args, "learning_rate", 5e-3);
    o->schedule = SHEAF_SCHEDULE_CONSTANT;
    o->warmup = 0;
    o->warmup_ratio = 0;
    o->weight_decay = number(args, "weight_decay", 0.01);
    o->clip = number(args, "max_grad_norm", 1);
    o->shuffle = false;
    o->dtype = SHEAF_F32;
    o->threads = 1;
    o->accumulators = full ? 2 : 0; /* which two groups divide */
    take_objective(c, one, args);
}

static told train(course *c, int tp, int dp, const char *out)
{
    told t = { .n = 0 };
    sheaf_train_result result = { 0 };
    const sheaf_events events = { hear, &t };
    sheaf_train_options o = c->o;
    o.tp = tp;
    o.dp = dp;
    o.out = out;
    CHECK_OK(sheaf_train(&result, &o, "settings: none\n", "steps: 1\n",
                         &(sheaf_train_hooks){ .events = &events }));
    sheaf_train_result_release(&result);
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
        sheaf_train_result result = { 0 };
        o.resume = o.steps > 1;
        o.tp = tp[o.steps % 3];
        CHECK_OK(sheaf_train(&result, &o, "settings: none\n", "steps: 1\n", NULL));
        sheaf_train_result_release(&result);
    }
}

/* ---- the comparison ---- */

static void check_steps(const course *c, const told *got)
{
    /* means over all pairs and tokens of a step, as sheaf takes them, where TRL's are others */
    const bool means = exists(in_dir(c->dir, "step_mean.json"));
    json_t *own = means ? json_of(c->dir, "step_mean.json") : NULL;
    const json_t *steps = means ? own : json_object_get(c->log, "steps");
    assert_int_equal(json_array_size(steps), got->n + c->cut);
    for (int i = 0; i < got->n; i++) {
        const json_t *want = json_array_get(steps, (size_t)i);
        const double norm = number(want, "grad_norm", NAN);
        CHECK_NEAR(c->dir, got->loss[i], number(want, "loss", NAN), c->loose ? 5e-5 : 1e-5);
        CHECK_NEAR(c->dir, got->norm[i], norm, 1e-4 * norm);
        for (int k = 0; k < 5 && strcmp(c->o.objective.name, "reward") == 0; k++) {
            const sheaf_event_value *v = &got->value[i][k];
            CHECK_NEAR(v->name, v->value, number(want, v->name, NAN), 1e-4);
        }
    }
    json_decref(own);
}

static void check_weights(const course *c, const char *out)
{
    const bool full = c->o.method == SHEAF_METHOD_FULL;
    const char *name = full ? "model_final.safetensors"
                       : exists(in_dir(c->dir, "adapter_step_mean.safetensors"))
                           ? "adapter_step_mean.safetensors"
                       : c->o.init != NULL ? "adapter_final_as_lora/adapter_model.safetensors"
                                           : "adapter_final/adapter_model.safetensors";
    sheaf_safetensors *want = record_of(c->dir, name),
                      *got = record_of(out, full ? "model/model.safetensors"
                                                 : "adapter/adapter_model.safetensors");
    int64_t beyond = 0, all = 0;
    for (int64_t i = 0; i < want->header.count; i++) {
        int64_t n, m;
        const char *tensor = want->header.entry[i].name;
        float *w = values(want, tensor, &n), *g = values(got, tensor, &m);
        if (n == 0 || m != n)
            fail_msg("%s: '%s' has %" PRId64 " numbers, not %" PRId64, c->dir, tensor, m, n);
        for (int64_t k = 0; k < n; k++) {
            CHECK_NEAR(tensor, g[k], w[k], 1e-4);
            beyond += fabs((double)g[k] - w[k]) > 1e-5;
        }
        all += n;
        free(w);
        free(g);
    }
    assert_true(all > 0);
    if (beyond * 200 > all)
        fail_msg("%s: %" PRId64 " of %" PRId64 " numbers are off by more than 1e-5", c->dir, beyond,
                 all);
    sheaf__safetensors_close(want);
    sheaf__safetensors_close(got);
}

static void check_course(const char *dir)
{
    static const struct {
        int tp, dp;
    } others[] = { { 3, 1 }, { 2, 1 }, { 1, 2 }, { 5, 1 }, { 8, 1 } };
    course c;
    char first[400], out[400], *bytes[2];
    size_t size[2];
    open_course(&c, dir);
    const char *file = c.o.method == SHEAF_METHOD_FULL ? "model/model.safetensors"
                                                       : "adapter/adapter_model.safetensors";
    snprintf(first, sizeof first, "%s", at("first"));
    snprintf(out, sizeof out, "%s", at("other"));
    const told got = train(&c, 1, 1, first);
    check_steps(&c, &got);
    if (!c.cut)
        check_weights(&c, first);
    CHECK_OK(sheaf__file_read_all(&bytes[0], &size[0], in_dir(first, file), 1 << 24));
    for (size_t i = 0; i < (is_variant(&c) ? ARRAY_LEN(others) : 3); i += (size_t)every(4)) {
        const told other = train(&c, others[i].tp, others[i].dp, out);
        CHECK_BYTES(dir, other.loss, got.loss, sizeof got.loss);
        CHECK_BYTES(dir, other.norm, got.norm, sizeof got.norm);
        CHECK_OK(sheaf__file_read_all(&bytes[1], &size[1], in_dir(out, file), 1 << 24));
        assert_int_equal(size[0], size[1]);
        CHECK_BYTES(dir, bytes[1], bytes[0], size[0]);
        free(bytes[1]);
        CHECK_OK(sheaf__remove_tree(out));
    }
    if (c.o.objective.group.max_new > 0 || is_variant(&c)) {
        train_in_pieces(&c, out);
        CHECK_OK(sheaf__file_read_all(&bytes[1], &size[1], in_dir(out, file), 1 << 24));
        assert_int_equal(size[0], size[1]);
        CHECK_BYTES(dir, bytes[1], bytes[0], size[0]);
        free(bytes[1]);
        CHECK_OK(sheaf__remove_tree(out));
    }
    free(bytes[0]);
    json_decref(c.log);
    CHECK_OK(sheaf__remove_tree(first));
}

TEST(test_preference__recorded_runs_are_reproduced)
{
    int checked = 0;
    for (int m = 0; m < models; m++, checked++) {
        print_message("%s\n", model_dir[m]);
        check_course(model_dir[m]);
    }
    assert_true(!recordings_are_full() || checked > 50);
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
        json_decref(c.log);
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
    json_decref(c.log);
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
            model_dir[models++] = strdup(recording(variants[i]));
    return make_scratch(state);
}

FIXTURE(find_runs, forget_models);
