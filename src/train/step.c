/* step.c - see step.h. */
#include "train/step.h"

#include <math.h>
#include <stdlib.h>

#include "ops/math/math.h"

struct sheaf__stepper {
    sheaf__model *model;
    sheaf__context *context;
    sheaf__subset subset;
    sheaf__step_options options;
    sheaf__runner runner;
    int64_t *sample, *position; /* per token row, for dropout and noise; NULL without */
    float *half;                /* per token row, of noise; NULL without */
    sheaf__noise_in noise;
};

static sheaf_status *take_random(sheaf__stepper *s)
{
    const size_t n = (size_t)(s->options.micro_batch * s->options.seq);
    const bool drops =
                   s->model->options.lora != NULL && s->model->options.lora->options.dropout > 0,
               noisy = s->options.neftune_alpha > 0;
    sheaf_status *st = NULL;
    if (drops || noisy)
        st = sheaf__take(&s->sample, s->context, n * 8, SHEAF_MEM_INPUTS);
    if (st == NULL && (drops || noisy))
        st = sheaf__take(&s->position, s->context, n * 8, SHEAF_MEM_INPUTS);
    if (st == NULL && noisy)
        st = sheaf__take(&s->half, s->context, n * sizeof *s->half, SHEAF_MEM_INPUTS);
    return st;
}

sheaf_status *sheaf__stepper_new(sheaf__stepper **out, sheaf__model *model,
                                 const sheaf__subset *subset, const sheaf__step_options *options)
{
    sheaf__stepper *s = calloc(1, sizeof *s);
    if (s == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "training step");
    s->model = model;
    s->context = model->context;
    s->subset = *subset;
    s->options = *options;
    sheaf_status *st = sheaf__runner_open(
        &s->runner, model, subset->data,
        &(sheaf__runner_options){ .rows = options->micro_batch,
                                  .seq = options->seq,
                                  .longest = options->longest,
                                  .backward = true,
                                  .rerun = options->checkpointing,
                                  .noise = options->neftune_alpha > 0 ? &s->noise : NULL });
    if (st == NULL)
        st = take_random(s);
    s->noise = (sheaf__noise_in){ &s->runner.info, s->half };
    s->runner.head.smoothing = options->label_smoothing;
    s->runner.info = (sheaf__step_info){
        .training = true, .seed = options->seed, .sample = s->sample, .position = s->position
    };
    if (st != NULL) {
        sheaf__stepper_free(s);
        return st;
    }
    *out = s;
    return NULL;
}

void sheaf__stepper_free(sheaf__stepper *s)
{
    if (s == NULL)
        return;
    sheaf__runner_release(&s->runner);
    sheaf__give(s->context, s->sample);
    sheaf__give(s->context, s->position);
    sheaf__give(s->context, s->half);
    free(s);
}

void sheaf__stepper_hold(sheaf__stepper *s, sheaf_batch_images holds)
{
    s->runner.holds = holds;
}

/* Rows of the data set that micro-batch `micro` of step `done` reads. */
static int64_t rows_of(const sheaf__stepper *s, int64_t done, int64_t micro, int64_t *row,
                       int64_t *sample)
{
    const int64_t n = s->options.micro_batch;
    const int64_t first = (done * s->options.accumulate + micro) * n;
    for (int64_t i = 0; i < n; i++) {
        sample[i] = first + i;
        row[i] = sheaf__subset_row(&s->subset, first + i, s->options.seed, s->options.shuffle);
    }
    return n;
}

static void choose_rows(sheaf__stepper *s, int64_t done, int64_t micro, int64_t *row,
                        int64_t *sample)
{
    const int64_t n = rows_of(s, done, micro, row, sample),
                  seq = sheaf__runner_holds(&s->runner, row).seq;
    for (int64_t i = 0; s->sample != NULL && i < n * seq; i++) {
        s->sample[i] = sample[i / seq];
        s->position[i] = i % seq;
    }
    for (int64_t r = 0; r < n && s->half != NULL; r++) { /* padding does not count */
        const float half = sheaf__noise_half(s->options.neftune_alpha,
                                             sheaf_data_tokens(s->subset.data, row + r, 1),
                                             s->model->schema->config.hidden);
        for (int64_t i = 0; i < seq; i++)
            s->half[r * seq + i] = half;
    }
}

/* This micro-batch and the one after it, of the next step if need be. One rank's word is enough.
 * `row` and `sample` have space for two. */
static void announce(sheaf__stepper *s, int64_t done, int64_t micro, int64_t *row, int64_t *sample)
{
    const int64_t n = s->options.micro_batch;
    const bool last = micro + 1 == s->options.accumulate;
    if (s->context->rank != 0)
        return;
    rows_of(s, last ? done + 1 : done, last ? 0 : micro + 1, row + n, sample + n);
    sheaf_data_announce(s->subset.data, row, 2 * n);
}

/* Label tokens of the whole step, before its first forward. */
static void count_labels(sheaf__stepper *s, int64_t done, int64_t *row, int64_t *sample,
                         sheaf__step_result *out)
{
    for (int64_t micro = 0; micro < s->options.accumulate; micro++) {
        const int64_t n = rows_of(s, done, micro, row, sample);
        out->labels += sheaf_data_labels(s->subset.data, row, n);
        out->tokens += sheaf_data_tokens(s->subset.data, row, n);
    }
}

/* All micro-batches, accumulator by accumulator; gradients end in the trained set. */
static sheaf_status *run_accumulators(sheaf__stepper *s, int64_t done, int64_t *row,
                                      int64_t *sample, sheaf__step_result *out)
{
    const bool dry = s->context->device->kind == SHEAF_DRY;
    const int64_t n = s->options.accumulate, count = s->options.accumulators;
    sheaf__accumulators stack;
    sheaf_status *st = NULL;
    double loss = 0;
    s->runner.info.step = (uint64_t)done;
    s->runner.head.gradient_scale = out->labels == 0 ? 0 : (float)(1.0 / (double)out->labels);
    sheaf__accumulators_open(&stack, (int)count);
    for (int64_t g = 0; g < count && st == NULL; g++) {
        const int64_t begin = n * g / count, end = n * (g + 1) / count;
        if (begin == end)
            continue;
        st = sheaf__accumulator_begin(s->model->trained, &stack, (int)g);
        for (int64_t micro = begin; micro < end && st == NULL; micro++) {
            const double flops = s->context->device->flops, sent = s->context->sent;
            if (!dry) {
                choose_rows(s, done, micro, row, sample);
                announce(s, done, micro, row, sample);
            }
            st = sheaf__runner_run(&s->runner, row);
            loss += s->runner.head.loss_sum;
            if (dry && micro > begin) { /* the others of the accumulator are as this one */
                s->context->device->flops +=
                    (double)(end - 1 - micro) * (s->context->device->flops - flops);
                s->context->sent += (double)(end - 1 - micro) * (s->context->sent - sent);
                break;
            }
        }
        if (st == NULL)
            sheaf__accumulator_end(s->model->trained, &stack);
    }
    if (st == NULL)
        sheaf__accumulators_close(s->model->trained, &stack);
    out->loss = out->labels == 0 ? 0 : loss / (double)out->labels;
    return st;
}

static sheaf_status *not_finite(sheaf__stepper *s, int64_t done, const char *what, double value)
{
    const char *name = NULL;
    int layer = -1;
    sheaf_status *search = sheaf__tape_first_bad(s->runner.last, &name, &layer);
    if (search != NULL)
        return search;
    sheaf_status *st = sheaf_fail(SHEAF_E_NUMBER, "step %lld: %s", (long long)done + 1, what);
    sheaf_expected(st, "a finite number");
    if (name == NULL)
        sheaf_found(st, "%g; every value of the forward pass of its last micro-batch is finite",
                    value);
    else if (layer < 0)
        sheaf_found(st, "%g; the first value that is not finite is '%s'", value, name);
    else
        sheaf_found(st, "%g; the first value that is not finite is in layer %d, '%s'", value, layer,
                    name);
    return sheaf_try_this(
        st, "nothing of this step was kept; resume from the last checkpoint with a smaller --lr, "
            "or look at the weights with: sheaf verify");
}

static void update(sheaf__stepper *s, int64_t done, double lr, double norm)
{
    const sheaf__step_options *o = &s->options;
    const double t = (double)(done + 1);
    float clip = 1;
    if (o->clip > 0) { /* torch's clip_grad_norm_ works in float32 */
        clip = (float)o->clip / ((float)norm + 1e-6f);
        clip = clip < 1 ? clip : 1;
    }
    const sheaf__adamw how = { .lr = lr,
                               .beta1 = o->beta1,
                               .beta2 = o->beta2,
                               .eps = o->eps,
                               .weight_decay = o->weight_decay,
                               .bias1 = 1 - sheaf__pow_d(o->beta1, t),
                               .bias2_sqrt = sqrt(1 - sheaf__pow_d(o->beta2, t)),
                               .grad_scale = clip };
    sheaf__trained_update(s->model->trained, &how);
    sheaf__model_refresh(s->model);
}

sheaf_status *sheaf__stepper_run(sheaf__step_result *out, sheaf__stepper *s, int64_t done,
                                 double lr)
{
    const bool dry = s->context->device->kind == SHEAF_DRY;
    int64_t *row = calloc((size_t)s->options.micro_batch * 4, sizeof *row),
            *sample = row + 2 * s->options.micro_batch;
    *out = (sheaf__step_result){ 0 };
    if (row == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "rows of a step");
    if (!dry)
        count_labels(s, done, row, sample, out);
    sheaf_status *st = run_accumulators(s, done, row, sample, out);
    if (st == NULL && !isfinite(out->loss))
        st = not_finite(s, done, "loss", out->loss);
    if (st == NULL)
        st = sheaf__grad_norm(&out->grad_norm, s->model->trained);
    if (st == NULL && !isfinite(out->grad_norm))
        st = not_finite(s, done, "gradient norm", out->grad_norm);
    if (st == NULL)
        update(s, done, lr, out->grad_norm);
    free(row);
    return st;
}
