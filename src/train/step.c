/* step.c - see step.h. */
#include "train/step.h"

#include <math.h>

#include "base/base.h"
#include "comm/activity.h"
#include "models/team.h"
#include "ops/math/math.h"
#include "train/bad.h"

struct sheaf__stepper {
    sheaf__model *model;
    sheaf__context *context;
    sheaf__subset subset;
    sheaf__step_options options;
    const sheaf_train_options *run; /* options.run */
    sheaf__runner runner;
    sheaf__pairs pairs; /* of preferences */
    sheaf__batch batch; /* of rewards */
    sheaf_data *drawn;  /* the completions at hand, where they are sampled */
    bool prefers;       /* sheaf__objective_prefers(), */
    int sides;          /* and _sides() */
    sheaf__mirror sample, position;
    sheaf__mirror half; /* [rows * seq]; of noise */
    sheaf__noise_in noise;
    /* Rows and their numbers among all samples: two micro-batches of each group, of pairs both
     * sides. */
    int64_t *rows, *samples;
    int64_t *side[2];   /* the rows of the micro-batch that runs, by side, */
    const int64_t *row; /* and those that run */
    bool follows;       /* a plan: the rows of the data, as a real run takes them */
    /* Of the micro-batch that runs: its number, and where its sums go. */
    int64_t micro;
    sheaf__pair_sums *sums;
};

static sheaf_status *weigh_both(void *self);

static sheaf_status *take_rows(sheaf__stepper *s)
{
    const int groups = s->context->groups > 1 ? s->context->groups : 1;
    const size_t rows = 2 * (size_t)s->run->micro_batch * (size_t)(groups * s->sides);
    s->rows = calloc(4 * rows, sizeof *s->rows);
    if (s->rows == NULL)
        return sheaf__no_memory("rows of a step");
    s->samples = s->rows + rows;
    s->row = s->side[0] = s->samples + rows;
    s->side[1] = s->side[0] + s->run->micro_batch;
    return NULL;
}

static sheaf_status *take_random(sheaf__stepper *s)
{
    const size_t n = (size_t)(s->run->micro_batch * s->options.seq);
    const bool drops = !s->prefers && s->model->options.lora != NULL &&
                       s->model->options.lora->options.dropout > 0,
               noisy = s->run->neftune_alpha > 0;
    sheaf_status *st = NULL;
    if (drops || noisy)
        st = sheaf__mirror_alloc(&s->sample, s->context->device, n * 8, SHEAF_MEM_INPUTS);
    if (st == NULL && (drops || noisy))
        st = sheaf__mirror_alloc(&s->position, s->context->device, n * 8, SHEAF_MEM_INPUTS);
    if (st == NULL && noisy)
        st = sheaf__mirror_alloc(&s->half, s->context->device, n * sizeof(float), SHEAF_MEM_INPUTS);
    return st;
}

/* A disk that is too small for activations is found before the first step. */
static sheaf_status *claim(sheaf__stepper *s)
{
    sheaf_batch_images fewest, most;
    if (s->context->activations == NULL || s->options.plans)
        return NULL;
    const int64_t longest = sheaf__subset_longest(&s->subset);
    sheaf_data_images_range(&fewest, &most, s->subset.data, s->run->micro_batch);
    most.seq = s->options.sampler != NULL ? s->options.seq
               : most.seq < longest       ? most.seq
                                          : longest;
    return sheaf__runner_prepare(&s->runner, most);
}

sheaf_status *sheaf__stepper_new(sheaf__stepper **out, sheaf__model *model,
                                 const sheaf__subset *subset, const sheaf__step_options *options)
{
    sheaf__stepper *s = calloc(1, sizeof *s);
    if (s == NULL)
        return sheaf__no_memory("training step");
    s->model = model;
    s->context = model->context;
    s->subset = *subset;
    s->options = *options;
    s->run = options->run;
    s->sides = sheaf__objective_sides(options->objective);
    s->prefers = sheaf__objective_prefers(options->objective);
    const sheaf__runner_options how = { .rows = s->run->micro_batch,
                                        .seq = options->seq,
                                        .longest = true,
                                        .plans = options->plans,
                                        .each = options->each,
                                        .backward = true,
                                        .kept = s->run->kept,
                                        .noise = s->run->neftune_alpha > 0 ? &s->noise : NULL };
    sheaf_status *st = sheaf__runner_open(&s->runner, model, subset->data, &how);
    if (st == NULL && s->prefers)
        st = sheaf__pairs_open(&s->pairs, model, subset->data, &how, options->mixed,
                               options->objective);
    if (st == NULL && options->objective->grouped)
        st = sheaf__batch_open(&s->batch, model, options->objective, s->run->accumulate,
                               s->run->micro_batch,
                               options->plans && sheaf__sets_samples(s->run) ? 0 : options->seq);
    s->runner.head.temperature = s->pairs.look.head.temperature =
        options->objective->group.temperature;
    TRY(st, take_random(s));
    TRY(st, take_rows(s));
    s->runner.head.self = s->pairs.look.head.self = s;
    s->runner.head.each = s->pairs.each; /* NULL: not of preferences */
    s->runner.head.by_block =
        options->objective->grouped && sheaf__groups_by_token(&options->objective->group);
    s->runner.batch.answer = s->pairs.answer;
    s->pairs.look.head.weigh = weigh_both;
    s->pairs.look.head.weight = s->pairs.weight[1];
    s->noise = (sheaf__noise_in){ &s->runner.info, s->half.device };
    s->runner.head.smoothing = s->prefers ? 0 : s->run->label_smoothing;
    s->runner.info = (sheaf__step_info){ .training = !s->prefers, /* else no dropout */
                                         .seed = s->run->seed,
                                         .sample = s->sample.device,
                                         .position = s->position.device,
                                         .host = { s->sample.host, s->position.host } };
    TRY(st, claim(s));
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
    sheaf__pairs_release(&s->pairs);
    sheaf__batch_release(&s->batch);
    sheaf_data_close(s->drawn);
    sheaf__mirror_free(&s->sample, s->context->device);
    sheaf__mirror_free(&s->position, s->context->device);
    sheaf__mirror_free(&s->half, s->context->device);
    free(s->rows);
    free(s);
}

void sheaf__stepper_refer(sheaf__stepper *s, sheaf__references reference)
{
    s->pairs.reference = reference;
}

sheaf__batch *sheaf__stepper_batch(sheaf__stepper *s)
{
    return s->options.objective->grouped ? &s->batch : NULL;
}

void sheaf__stepper_hold(sheaf__stepper *s, sheaf_batch_images holds)
{
    s->runner.holds = s->pairs.look.holds = holds;
}

double sheaf__stepper_reading(const sheaf__stepper *s)
{
    return s->runner.reading + s->pairs.look.reading;
}

void sheaf__stepper_follow(sheaf__stepper *s)
{
    s->follows = true;
}

/* Several steps may learn from one batch of completions. */
static int64_t batch_of(const sheaf__stepper *s, int64_t done)
{
    return s->options.objective->grouped ? done / s->options.objective->group.iterations : done;
}

/* Rows of the data set that micro-batch `micro` of step `done` reads, of one side of pairs. */
static int64_t rows_of(const sheaf__stepper *s, int64_t done, int64_t micro, int side, int64_t *row,
                       int64_t *sample)
{
    const int64_t n = s->run->micro_batch;
    const int64_t first = (batch_of(s, done) * s->run->accumulate + micro) * n;
    for (int64_t i = 0; i < n; i++) {
        sample[i] = first + i;
        row[i] = micro * n + i;
        if (s->options.sampler != NULL)
            continue;
        row[i] = sheaf_data_side(
            s->subset.data, sheaf__subset_row(&s->subset, first + i, s->run->seed, s->run->shuffle),
            side);
    }
    return n;
}

/* Sample and position for dropout and noise over one row: each of its records on its own, padding
 * with the last. */
static void name_positions(sheaf__stepper *s, int64_t at, int64_t seq, int64_t row, int64_t index)
{
    const sheaf_data *data = s->subset.data;
    const int64_t parts = sheaf_data_parts(data, row), end = at + seq;
    for (int64_t i = 0; i < parts; i++) {
        const sheaf_data_part part =
            sheaf_data_part_of(data, row, i, index, s->run->seed, s->run->shuffle);
        const int64_t stop = i + 1 == parts ? end : at + part.positions;
        const float half = s->half.host == NULL
                               ? 0
                               : sheaf__noise_half(s->run->neftune_alpha, part.tokens,
                                                   s->model->schema->config.hidden);
        for (int64_t t = 0; at < stop; t++, at++) {
            ((int64_t *)s->sample.host)[at] = part.sample;
            ((int64_t *)s->position.host)[at] = t;
            if (s->half.host != NULL)
                ((float *)s->half.host)[at] = half;
        }
    }
}

static bool knows_rows(const sheaf__stepper *s)
{
    return !s->options.plans || s->follows;
}

/* The rows of a micro-batch, and what dropout and noise ask of their tokens. A plan that does not
 * follow the data knows only how many there are. */
static sheaf_status *choose_rows(sheaf__stepper *s, int side)
{
    const bool known = knows_rows(s);
    s->row = s->side[side];
    const int64_t n = s->run->micro_batch,
                  seq = sheaf__runner_holds(&s->runner, known ? s->row : NULL).seq;
    const bool named = s->sample.host != NULL;
    for (int64_t r = 0; r < n && named && known; r++)
        name_positions(s, r * seq, seq, s->row[r], s->samples[r]);
    const size_t all = named ? (size_t)(n * seq) : 0;
    sheaf__device *device = s->context->device;
    sheaf_status *st = sheaf__mirror_upload(&s->sample, device, all * 8);
    TRY(st, sheaf__mirror_upload(&s->position, device, all * 8));
    return TRY(
        st, sheaf__mirror_upload(&s->half, device, s->half.host == NULL ? 0 : all * sizeof(float)));
}

/* Micro-batches that `group` runs, one accumulator after the other. */
static sheaf_range micros_of(const sheaf__stepper *s, int group)
{
    const int64_t n = s->run->accumulate, count = s->options.accumulators;
    sheaf__context c = *s->context;
    c.group = group;
    const sheaf_range own = sheaf__share_of(count, &c, c.group);
    return (sheaf_range){ n * own.begin / count, n * own.end / count };
}

/* Prefetches this micro-batch and the next, also of the next step. If ranks share a cache, only the
 * first one prefetches, and assumes that other groups are as far. `row` and `sample` have space for
 * two of each group. */
static void announce(sheaf__stepper *s, int64_t done, int64_t micro)
{
    const sheaf__context *c = s->context;
    const int64_t at = micro - micros_of(s, c->group).begin;
    int64_t count = 0;
    if (!sheaf__team_keeps_result(c) || s->options.sampler != NULL)
        return;
    for (int g = 0; g < (c->groups > 1 ? c->groups : 1); g++) {
        const sheaf_range of = micros_of(s, g);
        if (c->own_process && g != c->group)
            continue;
        const bool last = of.begin + at + 1 >= of.end;
        for (int side = 0; side < s->sides && of.begin + at < of.end; side++)
            count += rows_of(s, done, of.begin + at, side, s->rows + count, s->samples + count);
        for (int side = 0; side < s->sides && of.begin < of.end; side++)
            count += rows_of(s, last ? done + 1 : done, last ? of.begin : of.begin + at + 1, side,
                             s->rows + count, s->samples + count);
    }
    sheaf_data_announce(s->subset.data, s->rows, count);
}

/* Label tokens of the whole step, before its first forward. */
static void count_labels(sheaf__stepper *s, int64_t done, sheaf__step_result *out)
{
    for (int64_t micro = 0; micro < s->run->accumulate; micro++)
        for (int side = 0; side < s->sides; side++) {
            const int64_t n = rows_of(s, done, micro, side, s->rows, s->samples),
                          tokens = sheaf_data_tokens(s->runner.data, s->rows, n);
            /* with prompts: all but the first of each row */
            const bool whole = side == 0 && s->options.objective->prompts;
            const int64_t labels =
                whole ? tokens - n : sheaf_data_labels(s->runner.data, s->rows, n);
            out->labels += labels;
            out->tokens += tokens;
            out->chosen += side == 0 ? labels : 0;
        }
}

/* ---- a micro-batch ---- */

/* Once the losses of the first side are known; those of the other are. */
static sheaf_status *weigh_first(void *self)
{
    sheaf__stepper *s = self;
    const sheaf_train_options *o = s->run;
    const int64_t seq = s->runner.batch.seq;
    const double rows = (double)o->micro_batch * (double)o->accumulate;
    if (!s->options.objective->grouped)
        sheaf__pairs_take(s->sums, &s->pairs, 0, &s->runner.batch,
                          knows_rows(s) ? s->side[0] : NULL);
    if (!knows_rows(s))
        return NULL;
    if (s->options.objective->grouped)
        sheaf__batch_weigh(s->sums, &s->batch, &s->pairs, s->micro, seq,
                           s->pairs.pair_weight * rows, s->runner.head.labels);
    else
        sheaf__pairs_weigh(s->sums, &s->pairs, s->side[0]);
    return NULL;
}

static sheaf_status *run_side(sheaf__stepper *s, int side)
{
    sheaf_status *st = choose_rows(s, side);
    s->runner.head.weight = s->pairs.weight[side]; /* NULL: one for all rows */
    s->runner.head.weigh = s->prefers && side == 0 ? weigh_first : NULL;
    s->batch.weighed = s->batch.passed = 0;
    s->runner.batch.prompts_too = side == 0 && s->options.objective->prompts;
    return TRY(st, sheaf__runner_run(&s->runner, knows_rows(s) ? s->row : NULL));
}

/* Where both sides of pairs are kept: once the losses of the other are known, the first runs. */
static sheaf_status *weigh_both(void *self)
{
    sheaf__stepper *s = self;
    if (s->runner.watch != NULL && s->runner.watch->op != NULL)
        return NULL;
    sheaf__pairs_take(s->sums, &s->pairs, 1, &s->pairs.look.batch,
                      knows_rows(s) ? s->side[1] : NULL);
    return run_side(s, 0);
}

static sheaf_status *run_micro(sheaf__pair_sums *out, sheaf__stepper *s, int64_t done,
                               int64_t micro)
{
    const int64_t *const both[2] = { s->side[0], s->side[1] };
    const sheaf__nonfinite *bad = s->runner.watch;
    sheaf_status *st = NULL;
    s->sums = out;
    s->micro = micro;
    for (int side = 0; side < s->sides && knows_rows(s); side++)
        rows_of(s, done, micro, side, s->side[side], s->samples);
    if (s->prefers && !s->options.objective->grouped)
        st = sheaf__pairs_look(out, &s->pairs, knows_rows(s) ? both : NULL, s->samples[0]);
    for (int side = 0; side < s->sides && !s->pairs.both && (bad == NULL || bad->op == NULL);
         side++)
        TRY(st, run_side(s, side));
    if (!s->prefers)
        *out = (sheaf__pair_sums){ .loss = s->runner.head.loss_sum };
    return st;
}

/* ---- a number that is not finite ---- */

/* Runs micro-batches [begin, end) of a step again, up to the first with a value that is not finite:
 * `micro`, with the rows `row`. Discards the gradients of this step. */
static sheaf_status *find_source(sheaf__nonfinite *bad, int64_t *micro, sheaf__stepper *s,
                                 int64_t done, int64_t begin, int64_t end)
{
    sheaf_status *st = NULL;
    sheaf__pair_sums unused;
    *bad = (sheaf__nonfinite){ 0 };
    s->runner.watch = bad;
    s->pairs.look.watch = s->pairs.both ? bad : NULL;
    for (int64_t m = begin; m < end && st == NULL && bad->op == NULL; m++) {
        st = run_micro(&unused, s, done, m);
        *micro = m;
    }
    s->runner.watch = s->pairs.look.watch = NULL;
    return st;
}

static sheaf_status *advise(sheaf_status *st, const sheaf__stepper *s, const char *weight,
                            bool backward)
{
    const sheaf__trained_set *set = s->model->trained;
    bool trained = false;
    for (int i = 0; weight != NULL && i < set->count && !trained; i++)
        trained = strcmp(set->item[i]->name, weight) == 0;
    if (trained)
        return sheaf_try_this(
            st, "training made it so: nothing of this step was kept; " SHEAF__BEGIN_ANEW);
    if (weight != NULL)
        return sheaf_try_this(st, "the file holds it, or a number too large for the type it is "
                                  "computed in; look at the weights with: sheaf verify");
    if (s->options.scaler != NULL && backward)
        return sheaf_try_this(
            st,
            "the loss scale is %g and may not fall any more; %s, a smaller `lr`, or `dtype bfloat16`",
            s->options.scaler->scale,
            s->options.scaler->options.dynamic ? "a smaller `loss-scale-min`"
                                               : "`loss-scale dynamic`");
    if (s->context->dtype == SHEAF_F16)
        return sheaf_try_this(st, "float16 ends at 65504: `dtype bfloat16` or float32; or, if it "
                                  "went well so far, " SHEAF__BEGIN_ANEW);
    return sheaf_try_this(st, "nothing of this step was kept; " SHEAF__BEGIN_ANEW);
}

/* micro: the one whose loss it is, -1: the gradient of all of them. */
static sheaf_status *not_finite(sheaf__stepper *s, int64_t done, int64_t micro, const char *what,
                                double value)
{
    const bool all = micro < 0;
    const char *weight = NULL, *gradient = NULL;
    sheaf__nonfinite bad = { 0 };
    sheaf_text text = { 0 };
    sheaf_status *st = sheaf__model_bad_weight(&weight, s->model);
    if (st == NULL && all)
        /* the second run adds to it */
        st = sheaf__bad_trained(&gradient, s->model->trained, s->context->comm, true);
    TRY(st,
        find_source(&bad, &micro, s, done, all ? 0 : micro, all ? s->run->accumulate : micro + 1));
    if (st != NULL)
        return st;
    sheaf__text_add(&text, "%s", isnan(value) ? "nan" : value < 0 ? "-inf" : "inf");
    if (bad.op != NULL) {
        sheaf__text_add(&text, " in micro-batch %" PRId64 " of %" PRId64 " (", micro + 1,
                        s->run->accumulate);
        sheaf__bad_rows(&text, s->row, s->run->micro_batch);
        sheaf__text_add(&text, " of the data, counted from 0)");
    } else if (gradient != NULL) {
        sheaf__text_add(&text, ": the gradient of '%s'; all that it is made of is finite",
                        gradient);
    }
    sheaf__text_add(&text, bad.op != NULL || weight != NULL ? ": " : "");
    sheaf__bad_describe(&text, &bad, weight);
    sheaf__text_bytes(&text, "", 0);
    st = sheaf_fail(SHEAF_E_NUMBER, "step %" PRId64 ": %s", done + 1, what);
    sheaf_expected(st, "a finite number");
    sheaf_found(st, "%s", text.at == NULL ? "none" : text.at);
    sheaf__text_release(&text);
    return advise(st, s, weight, all);
}

/* The micro-batches of one accumulator; loss: of each. */
static sheaf_status *run_accumulator(sheaf__stepper *s, int64_t done, sheaf_range micros,
                                     sheaf__pair_sums *sums)
{
    const bool plans = s->options.plans;
    sheaf_status *st = NULL;
    for (int64_t micro = micros.begin; micro < micros.end && st == NULL; micro++) {
        sheaf__costs before;
        sheaf__costs_of(&before, s->context);
        sheaf__activity_step(s->context->activity, done + 1, micro + 1);
        if (!plans)
            announce(s, done, micro);
        st = run_micro(&sums[micro], s, done, micro);
        const double loss = sums[micro].loss + sums[micro].nll;
        if (st == NULL && !plans && !isfinite(loss))
            st = not_finite(s, done, micro, "loss", loss);
        if (plans && !s->follows &&
            micro > micros.begin) { /* the accumulator's other members are like this one */
            sheaf__costs_repeat(s->context, &before, micros.end - 1 - micro);
            break;
        }
    }
    return st;
}

/* Every group has the sums of its own micro-batches, which follow each other; all are added in
 * their order. */
static sheaf_status *add_sums(sheaf__pair_sums *out, const sheaf__stepper *s,
                              sheaf__pair_sums *sums)
{
    enum { NUMBERS = sizeof *sums / sizeof(double) };
    const sheaf__context *c = s->context;
    size_t size[SHEAF_MAX_SLICES];
    sheaf_status *st = NULL;
    *out = (sheaf__pair_sums){ 0 };
    for (int g = 0; g < c->groups && c->peers != NULL; g++) {
        const sheaf_range of = micros_of(s, g);
        size[g] = (size_t)(of.end - of.begin) * sizeof *sums;
    }
    if (c->peers != NULL)
        st = sheaf_comm_gather(c->peers, sums, size);
    for (int64_t micro = 0; micro < s->run->accumulate && st == NULL; micro++)
        for (int i = 0; i < NUMBERS; i++)
            ((double *)out)[i] += ((const double *)&sums[micro])[i];
    return st;
}

/* The loss of a step, and what its rows' losses count. Without a label the loss is NaN: there is
 * none. */
static void weigh(sheaf__stepper *s, sheaf__step_result *out)
{
    const double scale = out->scale > 0 ? out->scale : 1;
    out->samples = s->run->micro_batch * s->run->accumulate;
    s->runner.head.gradient_scale = out->labels == 0 ? 0 : (float)(scale / (double)out->labels);
    s->pairs.pair_weight = scale / (double)out->samples;
    s->pairs.token_weight =
        out->chosen == 0 ? 0 : scale * s->options.objective->nll / (double)out->chosen;
}

static double loss_of(const sheaf__stepper *s, const sheaf__step_result *step)
{
    const sheaf__pair_sums *sums = &step->sums;
    if (!s->prefers)
        return sums->loss / (double)step->labels;
    if (s->options.objective->grouped)
        return sums->loss;
    const double nll = s->options.objective->nll;
    return sums->loss / (double)step->samples +
           (nll == 0 ? 0 : nll * (sums->nll / (double)step->chosen));
}

/* Time by the clock of context->work, and seconds in calls so far; 0 if nothing is measured. */
static double time_of(const sheaf__context *c)
{
    return c->work == NULL ? 0 : sheaf__context_now(c);
}

static double waiting_of(const sheaf__context *c)
{
    sheaf__costs costs;
    if (c->work == NULL)
        return 0;
    sheaf__costs_of(&costs, c);
    return sheaf__costs_waiting(&costs);
}

/* The work once per step, whatever the number of micro-batches. */
static void add_update(const sheaf__context *c, double began, double waited)
{
    if (c->work == NULL)
        return;
    c->work->update += time_of(c) - began;
    c->work->update_waiting += waiting_of(c) - waited;
}

/* The completions of batch `number`: of the run's log, or sampled. */
static sheaf_status *draw(sheaf__stepper *s, int64_t number)
{
    const int64_t rows = s->run->accumulate * s->run->micro_batch,
                  each = sheaf__sets_generations(s->run);
    int64_t *prompt = malloc((size_t)rows * sizeof *prompt);
    sheaf_data *drawn = NULL;
    sheaf_status *st = sheaf__agree_groups(
        s->context, prompt == NULL ? sheaf__no_memory("prompts of a step") : NULL);
    for (int64_t i = 0; i < rows / each && st == NULL; i++)
        prompt[i] = sheaf__subset_row(&s->subset, number * (rows / each) + i, s->run->seed,
                                      s->run->shuffle);
    TRY(st, sheaf__batch_draw(&drawn, &s->batch, s->options.sampler, s->subset.data,
                              &(sheaf__sampler_batch){
                                  .prompt = prompt,
                                  .count = rows / each,
                                  .each = each,
                                  .first = number * rows,
                                  .group = number * (rows / each),
                                  .judge = s->options.judge,
                                  .step = number * s->options.objective->group.iterations + 1 },
                              number));
    free(prompt);
    if (st != NULL)
        return st;
    sheaf_data_close(s->drawn);
    s->runner.data = s->pairs.look.data = s->drawn = drawn;
    return NULL;
}

/* Before the first step of a batch of completions. */
static sheaf_status *begin_batch(sheaf__stepper *s, int64_t done)
{
    const bool known = knows_rows(s);
    const int64_t number = batch_of(s, done), micros = s->run->accumulate, n = s->run->micro_batch;
    const int groups = s->context->groups > 1 ? s->context->groups : 1;
    sheaf_range own[SHEAF_MAX_SLICES];
    if (s->batch.number == number && !s->options.plans)
        return NULL;
    sheaf_status *st = s->options.sampler != NULL ? draw(s, number) : NULL;
    int64_t *row = malloc(2 * (size_t)(micros * n) * sizeof *row);
    if (st == NULL && row == NULL)
        st = sheaf__no_memory("rows of a step");
    for (int g = 0; g < groups; g++)
        own[g] = micros_of(s, g);
    st = s->options.plans ? st : sheaf__agree_groups(s->context, st);
    if (st != NULL) {
        free(row);
        return st;
    }
    for (int64_t micro = 0; micro < micros && known; micro++)
        rows_of(s, done, micro, 0, row + micro * n, row + (micros + micro) * n);
    st = sheaf__batch_begin(&s->batch, &s->pairs, number, known ? row : NULL, own);
    free(row);
    return st;
}

/* Runs this group's micro-batches, accumulator by accumulator, and exchanges losses with peers;
 * gradients end in the trained set. */
static sheaf_status *run_accumulators(sheaf__stepper *s, int64_t done, sheaf__step_result *out)
{
    const int64_t n = s->run->accumulate, count = s->options.accumulators;
    const sheaf_range own = sheaf__share_of(count, s->context, s->context->group);
    bool present[SHEAF__MOST_ACCUMULATORS];
    sheaf__accumulators stack = { 0 };
    sheaf_status *st = NULL;
    sheaf__pair_sums *sums = calloc((size_t)n, sizeof *sums);
    if (sums == NULL)
        return sheaf__no_memory("losses of a step");
    s->runner.info.step = (uint64_t)done;
    weigh(s, out);
    for (int64_t g = 0; g < count && st == NULL; g++) {
        const sheaf_range micros = { n * g / count, n * (g + 1) / count };
        present[g] = micros.begin < micros.end;
        if (!present[g] || g < own.begin || g >= own.end)
            continue;
        st = sheaf__accumulator_begin(s->model->trained, &stack, (int)g);
        TRY(st, run_accumulator(s, done, micros, sums));
    }
    const double began = time_of(s->context), waited = waiting_of(s->context);
    if (st == NULL) {
        sheaf__accumulators_close(s->model->trained, &stack);
        st = sheaf__accumulators_reduce(s->model->trained, (int)count, present);
    }
    TRY(st, add_sums(&out->sums, s, sums));
    add_update(s->context, began, waited);
    out->loss = loss_of(s, out);
    free(sums);
    return st;
}

/* updates: the number before this one, without skipped steps. */
static sheaf_status *update(sheaf__stepper *s, int64_t updates, double lr,
                            const sheaf__step_result *step)
{
    const sheaf_train_options *o = s->run;
    const double t = (double)(updates + 1);
    float clip = 1;
    if (o->clip > 0) { /* torch's clip_grad_norm_ works in float32 */
        clip = (float)o->clip / ((float)step->grad_norm + 1e-6f);
        clip = clip < 1 ? clip : 1;
    }
    const sheaf__adamw how = { .lr = lr,
                               .beta1 = o->beta1,
                               .beta2 = o->beta2,
                               .eps = o->eps,
                               .weight_decay = o->weight_decay,
                               .bias1 = 1 - sheaf__pow_d(o->beta1, t),
                               .bias2_sqrt = sqrt(1 - sheaf__pow_d(o->beta2, t)),
                               .grad_scale =
                                   step->scale > 0 ? clip * (float)(1 / step->scale) : clip };
    sheaf__trained_update(s->model->trained, &how);
    sheaf_status *st = sheaf__trained_publish(s->model->trained);
    if (st == NULL)
        sheaf__model_refresh(s->model);
    return TRY(st, sheaf__device_check(s->context->device));
}

/* The gradient norm before clipping. If it is not finite, the loss scale falls; without one it is
 * an error. */
static sheaf_status *judge(sheaf__step_result *out, sheaf__stepper *s, int64_t done)
{
    sheaf__scaler *scaler = s->options.scaler;
    sheaf_status *st = sheaf__grad_norm(&out->grad_norm, s->model->trained);
    if (st != NULL)
        return st;
    if (out->scale > 0)
        out->grad_norm /= out->scale; /* a power of two */
    if (!isfinite(out->grad_norm)) {
        out->skipped = scaler != NULL && sheaf__scaler_overflow(scaler);
        return out->skipped ? NULL : not_finite(s, done, -1, "gradient norm", out->grad_norm);
    }
    if (scaler != NULL)
        sheaf__scaler_good(scaler);
    return NULL;
}

/* Where the reference is the model as it begins, both have the same sums in the first step: the
 * loss of dpo is then log 2, to the last bit. */
static sheaf_status *check_start(const sheaf__stepper *s, int64_t done,
                                 const sheaf__step_result *out)
{
    const sheaf__objective *o = s->options.objective;
    const double *reward = out->sums.reward;
    if (done > 0 || s->pairs.reference.row == NULL || s->pairs.reference.given || o->base ||
        o->folder != NULL || !(o->pairs || o->judged) || (reward[0] == 0 && reward[1] == 0))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_NUMBER, "step 1: rewards");
    sheaf_expected(st, "0: the reference is the model as it begins");
    sheaf_found(st, "%.9g of chosen answers, %.9g of others", reward[0], reward[1]);
    return sheaf_try_this(
        st, "remove OUT/reference, or the file in the folder of `reference-cache`, so "
            "that its sums are made anew");
}

sheaf_status *sheaf__stepper_run(sheaf__step_result *out, sheaf__stepper *s, int64_t done,
                                 double lr)
{
    const sheaf__scaler *scaler = s->options.scaler;
    const int64_t updates = done - (scaler == NULL ? 0 : scaler->skipped);
    *out = (sheaf__step_result){ .scale = scaler == NULL ? 0 : scaler->scale };
    sheaf_status *st = s->options.objective->grouped ? begin_batch(s, done) : NULL;
    if (st == NULL && !s->options.plans)
        count_labels(s, done, out);
    TRY(st, run_accumulators(s, done, out));
    TRY(st, check_start(s, done, out));
    sheaf__activity_step(s->context->activity, done + 1, 0);
    sheaf__activity_phase(s->context->activity, "update");
    const double began = time_of(s->context), waited = waiting_of(s->context);
    TRY(st, judge(out, s, done));
    if (st == NULL && !out->skipped)
        st = sheaf_in(update(s, updates, lr, out), "update");
    add_update(s->context, began, waited);
    return st;
}
