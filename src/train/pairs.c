/* pairs.c - see pairs.h. */
#include "train/pairs.h"

#include <math.h>

#include "base/base.h"

sheaf_status *sheaf__pairs_open(sheaf__pairs *out, sheaf__model *model, const sheaf_data *data,
                                const sheaf__runner_options *options, int64_t mixed,
                                const sheaf__objective *objective)
{
    sheaf__runner_options look = *options;
    look.backward = options->kept == SHEAF__KEPT_PAIRS && objective->pairs &&
                    !objective->weighting && model->context->away == NULL &&
                    model->context->activations == NULL;
    look.seq = look.seq > mixed ? look.seq : mixed;
    const size_t positions = (size_t)(look.rows * look.seq);
    *out = (sheaf__pairs){ .objective = objective, .n = options->rows, .both = look.backward };
    out->pair = calloc((size_t)options->rows, sizeof *out->pair);
    out->other = calloc((size_t)options->rows, sizeof *out->other);
    out->each = calloc(3 * positions, sizeof *out->each);
    out->answer = calloc(positions, 1);
    out->mean = calloc(4 * (size_t)options->rows, sizeof *out->mean);
    if (out->pair == NULL || out->other == NULL || out->each == NULL || out->answer == NULL ||
        out->mean == NULL)
        return sheaf__no_memory("weights of pairs");
    for (int side = 0; side < 2; side++)
        out->weight[side] = out->each + (size_t)(1 + side) * positions;
    sheaf_status *st = sheaf__runner_open(&out->look, model, data, &look);
    out->look.head.each = out->each;
    out->look.batch.answer = out->answer;
    return st;
}

void sheaf__pairs_release(sheaf__pairs *p)
{
    if (p->n > 0)
        sheaf__runner_release(&p->look);
    free(p->each);
    free(p->answer);
    free(p->other);
    free(p->pair);
    free(p->mean);
    *p = (sheaf__pairs){ 0 };
}

/* The tokens of both answers, and the margin between them. */
static void count_tokens(sheaf__pairs *p, const int64_t *const row[2])
{
    for (int64_t i = 0; i < p->n; i++) {
        for (int side = 0; side < sheaf__objective_sides(p->objective); side++)
            p->pair[i].tokens[side] = sheaf_data_labels(p->look.data, &row[side][i], 1);
        p->pair[i].margin = sheaf_data_margin(p->look.data, row[0][i]);
    }
}

static int64_t shorter(const sheaf__pair *pair)
{
    if (pair->tokens[1] == 0) /* an answer alone */
        return INT64_MAX;
    return pair->tokens[0] < pair->tokens[1] ? pair->tokens[0] : pair->tokens[1];
}

/* A token's weight in its answer's sum; weight[] has these until the slopes are known. */
enum { OF_PROMPT, WHOLE, BEYOND };

/* Of an answer the mean over its tokens; what it is with logits twice as large, less that, makes
 * the certainty: log p - log(sum of p^2) is then what is lost less, as the sum of exponentials is
 * that of squares. */
static double mean_of(const sheaf__pairs *p, int side, int64_t seq, int64_t i)
{
    return sheaf__objective_sum(p->objective, p->answer + i * seq, p->each + i * seq, seq,
                                INT64_MAX) /
           (double)p->pair[i].tokens[side];
}

void sheaf__pairs_take(sheaf__pair_sums *out, sheaf__pairs *p, int side, const sheaf_batch *batch,
                       const int64_t *row)
{
    const int64_t seq = p->seq[side] = batch->seq;
    for (int64_t i = 0; i < p->n && row != NULL; i++) {
        const int32_t *label = batch->labels + i * seq;
        const uint8_t *answer = p->answer + i * seq;
        const float *each = p->each + i * seq;
        sheaf__pair *pair = &p->pair[i];
        int64_t token = 0;
        pair->sum[side] = sheaf__objective_sum(p->objective, answer, each, seq, shorter(pair));
        pair->reference[side] = p->reference.row == NULL ? 0 : p->reference.row[row[i]];
        p->mean[4 * i + 2 * side] = mean_of(p, side, seq, i);
        for (int64_t t = 0; t < seq; t++) {
            p->weight[side][i * seq + t] = !answer[t]                ? OF_PROMPT
                                           : token++ < shorter(pair) ? WHOLE
                                                                     : BEYOND;
            if (side == 0 && label[t] >= 0) {
                out->nll += (double)each[t];
                out->nll_tokens++;
            }
        }
    }
}

/* With logits twice as large. */
static sheaf_status *look_twice(sheaf__pairs *p, int side, const int64_t *row)
{
    p->look.head.temperature = 0.5;
    sheaf_status *st = sheaf__runner_run(&p->look, row);
    p->look.head.temperature = 0;
    for (int64_t i = 0; i < p->n && st == NULL && row != NULL; i++)
        p->mean[4 * i + 2 * side + 1] = mean_of(p, side, p->look.batch.seq, i);
    return st;
}

static void add_answer(sheaf__pair_sums *out, int kind, double reward, double sum)
{
    const bool first = out->count[0] + out->count[1] == 0;
    out->least = first || reward < out->least ? reward : out->least;
    out->most = first || reward > out->most ? reward : out->most;
    out->count[kind]++;
    out->reward[kind] += reward;
    out->sum[kind] += sum;
}

static sheaf__pair_loss add_pair(sheaf__pair_sums *out, const sheaf__objective *objective,
                                 const sheaf__pair *pair)
{
    const sheaf__pair_loss of = sheaf__objective_pair(objective, pair);
    out->loss += of.loss;
    out->samples++;
    out->right += of.reward[0] > of.reward[1];
    for (int side = 0; side < 2; side++)
        add_answer(out, side, of.reward[side], of.logp[side]);
    return of;
}

static sheaf__pair_loss add_single(sheaf__pair_sums *out, const sheaf__objective *objective,
                                   const sheaf__pair *of, bool desirable, double drift)
{
    const sheaf__pair_loss loss = sheaf__objective_single(objective, of, desirable, drift);
    out->loss += loss.loss;
    out->samples++;
    out->right += desirable ? loss.reward[0] > 0 : loss.reward[0] < 0;
    add_answer(out, desirable ? 0 : 1, loss.reward[0], loss.logp[0]);
    return loss;
}

void sheaf__pairs_weigh(sheaf__pair_sums *out, sheaf__pairs *p, const int64_t *row)
{
    const bool pairs = p->objective->pairs;
    for (int64_t i = 0; i < p->n; i++) {
        const double *mean = p->mean + 4 * i;
        p->pair[i].certainty = -mean[0] + mean[1] - mean[2] + mean[3];
        const sheaf__pair_loss of =
            pairs ? add_pair(out, p->objective, &p->pair[i])
                  : add_single(out, p->objective, &p->pair[i],
                               sheaf_data_desirable(p->look.data, row[i]), out->drift);
        for (int side = 0; side < sheaf__objective_sides(p->objective); side++) {
            const double whole = -of.slope[side] * p->pair_weight,
                         nll = side == 0 ? p->token_weight : 0,
                         weight[] = { nll, nll + whole, nll + p->objective->ld_alpha * whole };
            float *w = p->weight[side] + i * p->seq[side];
            for (int64_t t = 0; t < p->seq[side]; t++)
                w[t] = (float)weight[(int)w[t]];
        }
    }
}

void sheaf__pairs_other(int64_t *out, const int64_t *row, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = row[(i + n - 1) % n];
}

/* The mean of S - R of prompts with others' answers, at least 0. */
static sheaf_status *find_drift(sheaf__pair_sums *out, sheaf__pairs *p, const int64_t *row,
                                int64_t sample)
{
    if (row != NULL)
        sheaf__pairs_other(p->other, row, p->n);
    const sheaf_batch_images holds = p->look.holds;
    if (row == NULL) /* of a plan: as long as they can be */
        p->look.holds.seq = p->look.options.seq, p->look.holds.read = 0;
    p->look.other = row == NULL ? NULL : p->other;
    sheaf_status *st = sheaf__runner_run(&p->look, row);
    p->look.other = NULL;
    p->look.holds = holds;
    const int64_t seq = p->look.batch.seq;
    double sum = 0;
    for (int64_t i = 0; i < p->n && row != NULL && st == NULL; i++)
        sum += sheaf__objective_sum(p->objective, p->answer + i * seq, p->each + i * seq, seq,
                                    INT64_MAX) -
               (p->reference.mixed == NULL ? 0 : p->reference.mixed[sample + i]);
    out->drift = sum > 0 ? sum / (double)p->n : 0;
    return st;
}

sheaf_status *sheaf__pairs_look(sheaf__pair_sums *out, sheaf__pairs *p, const int64_t *const row[2],
                                int64_t sample)
{
    sheaf_status *st = NULL;
    *out = (sheaf__pair_sums){ .means = 1 };
    if (row != NULL)
        count_tokens(p, row);
    for (int side = sheaf__objective_sides(p->objective) - 1; side >= 0 && st == NULL; side--) {
        const int64_t *of = row == NULL ? NULL : row[side];
        p->look.batch.prompts_too = side == 0 && p->objective->prompts;
        if (side == 1)
            st = sheaf__runner_run(&p->look, of);
        if (side == 1 && st == NULL && !p->both)
            sheaf__pairs_take(out, p, side, &p->look.batch, of);
        if (p->objective->weighting)
            TRY(st, look_twice(p, side, of));
    }
    return st == NULL && p->objective->mismatched
               ? find_drift(out, p, row == NULL ? NULL : row[0], sample)
               : st;
}

/* ---- sums of rows ---- */

static double sum_of(void *self, int64_t row, const uint8_t *answer, const float *each, int64_t n)
{
    const sheaf__pair_reading *of = self;
    if (!of->objective->pairs)
        return sheaf__objective_sum(of->objective, answer, each, n, INT64_MAX);
    const int64_t other = row ^ 1, own = sheaf_data_labels(of->subset->data, &row, 1),
                  beside = sheaf_data_labels(of->subset->data, &other, 1);
    return sheaf__objective_sum(of->objective, answer, each, n, own < beside ? own : beside);
}

static int64_t sample_of(const sheaf__subset *subset, int64_t i)
{
    return subset->row != NULL ? subset->row[i] : i;
}

/* S of n rows, in their order, into values[]. other: as sheaf__evaluate_options has it. */
static sheaf_status *sum_rows(double *values, const sheaf__pair_reading *of, const int64_t *row,
                              const int64_t *other, int64_t n)
{
    sheaf__pair_reading self = *of;
    sheaf__evaluate_options options = *of->how;
    sheaf__evaluation unused;
    options.row = row;
    options.other = other;
    options.rows = n;
    options.value = sum_of;
    options.values = values;
    options.self = &self;
    return sheaf__evaluate(&unused, of->model, of->subset->data, &options);
}

/* Marks the rows of the samples that are drawn. */
static void mark(double *sum, const sheaf__subset *of, const sheaf_train_options *o,
                 int64_t samples)
{
    const int64_t all = sheaf__subset_rows(of);
    for (int64_t i = 0; i < (samples > 0 ? samples : all); i++) {
        const int64_t sample =
            samples > 0 ? sheaf__subset_row(of, i, o->seed, o->shuffle) : sample_of(of, i);
        for (int side = 0; side < sheaf_data_sides(of->data); side++)
            sum[sheaf_data_side(of->data, sample, side)] = 0;
    }
}

sheaf_status *sheaf__pairs_sums(double *out, const sheaf__pair_reading *of, int64_t samples)
{
    const int64_t all = sheaf_data_rows(of->subset->data);
    int64_t *row = malloc((size_t)all * sizeof *row), n = 0;
    double *value = malloc((size_t)all * sizeof *value);
    sheaf_status *st = sheaf__agree_groups(
        of->model->context,
        row == NULL || value == NULL ? sheaf__no_memory("sums of pairs") : NULL);
    for (int64_t i = 0; i < all; i++)
        out[i] = NAN;
    mark(out, of->subset, of->options, samples);
    for (int64_t i = 0; i < all && st == NULL; i++)
        if (!isnan(out[i]))
            row[n++] = i;
    TRY(st, sum_rows(value, of, row, NULL, n));
    for (int64_t i = 0; i < n && st == NULL; i++)
        out[row[i]] = value[i];
    free(row);
    free(value);
    return st;
}

sheaf_status *sheaf__pairs_given(bool *all, double *out, const sheaf_data *data)
{
    const int64_t rows = sheaf_data_rows(data);
    int64_t n = 0;
    for (int64_t r = 0; r < rows; r++)
        n += sheaf_data_reference(&out[r], data, r);
    *all = n == rows;
    return n == 0 || *all ? NULL
                          : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "ref_chosen_logps"),
                                                       "in all data sets, or in none"),
                                        "of %" PRId64 " of %" PRId64 " pairs", n / 2, rows / 2);
}

sheaf_status *sheaf__pairs_mixed(double *out, const sheaf__pair_reading *of, int64_t samples)
{
    const sheaf_train_options *o = of->options;
    const int64_t n = o->micro_batch;
    int64_t *row = malloc(2 * (size_t)samples * sizeof *row + 1), *other = row + samples;
    sheaf_status *st = sheaf__agree_groups(
        of->model->context, row == NULL ? sheaf__no_memory("sums of mismatched answers") : NULL);
    for (int64_t i = 0; i < samples && st == NULL; i++)
        row[i] = sheaf__subset_row(of->subset, i, o->seed, o->shuffle);
    for (int64_t i = 0; i < samples && st == NULL; i += n)
        sheaf__pairs_other(other + i, row + i, samples - i < n ? samples - i : n);
    TRY(st, sum_rows(out, of, row, other, samples));
    free(row);
    return st;
}

/* Sums in which all tokens count whole. */
static sheaf_status *whole_sums(double *sum, const sheaf__pair_reading *of)
{
    sheaf__objective whole = *of->objective;
    sheaf__pair_reading with = *of;
    whole.ld_alpha = 1;
    with.objective = &whole;
    return sheaf__pairs_sums(sum, &with, 0);
}

/* Of each row its part of sheaf__pair.certainty, from its sums in *out. */
static sheaf_status *certainties(double *out, double *doubled, const sheaf__pair_reading *of)
{
    const sheaf_data *data = of->subset->data;
    sheaf__evaluate_options how = *of->how;
    sheaf__pair_reading twice = *of;
    how.temperature = 0.5;
    twice.how = &how;
    sheaf_status *st = whole_sums(out, of);
    TRY(st, whole_sums(doubled, &twice));
    for (int64_t r = 0; r < sheaf_data_rows(data) && st == NULL; r++)
        out[r] = (doubled[r] - out[r]) / (double)sheaf_data_labels(data, &r, 1);
    return st;
}

/* The cross-entropy of the chosen answers' tokens, and of their prompts' where these count. */
static sheaf_status *chosen_nll(sheaf__pair_sums *out, double *sum, const sheaf__pair_reading *of)
{
    const sheaf__subset *subset = of->subset;
    const bool whole = of->objective->prompts;
    const int64_t n = sheaf__subset_rows(subset);
    int64_t *row = malloc((size_t)n * sizeof *row + 1);
    sheaf__evaluate_options prompts = *of->how;
    sheaf__evaluation with;
    sheaf_status *st = sheaf__agree_groups(
        of->model->context, row == NULL ? sheaf__no_memory("cross-entropy of answers") : NULL);
    for (int64_t i = 0; i < n && st == NULL; i++)
        row[i] = sheaf_data_side(subset->data, sample_of(subset, i), 0);
    prompts.row = row;
    prompts.rows = n;
    prompts.prompts_too = true;
    if (whole) {
        TRY(st, sheaf__evaluate(&with, of->model, subset->data, &prompts));
        out->nll_tokens = st == NULL ? (double)with.tokens : 0;
        out->nll = st == NULL ? with.loss * out->nll_tokens : 0;
    } else if (of->objective->ld_alpha != 1) {
        TRY(st, whole_sums(sum, of));
    }
    for (int64_t i = 0; i < n && st == NULL && !whole; i++) {
        out->nll -= sum[row[i]];
        out->nll_tokens += (double)sheaf_data_labels(subset->data, &row[i], 1);
    }
    free(row);
    return st;
}

sheaf_status *sheaf__pairs_evaluate(sheaf__evaluation *out, sheaf__pair_sums *sums,
                                    const sheaf__pair_reading *of, const double *reference)
{
    const sheaf__objective *objective = of->objective;
    const sheaf_data *data = of->subset->data;
    const int64_t n = sheaf__subset_rows(of->subset), rows = sheaf_data_rows(data);
    const int numbers = objective->weighting ? 3 : 1; /* of a row */
    double *sum = malloc((size_t)(numbers * rows) * sizeof *sum);
    *out = (sheaf__evaluation){ .tokens = n };
    *sums = (sheaf__pair_sums){ .means = objective->scores };
    sheaf_status *st = sheaf__agree_groups(of->model->context,
                                           sum == NULL ? sheaf__no_memory("sums of pairs") : NULL);
    TRY(st, sheaf__pairs_sums(sum, of, 0));
    if (objective->weighting)
        TRY(st, certainties(sum + rows, sum + 2 * rows, of));
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const int64_t first = sheaf_data_side(data, sample_of(of->subset, i), 0);
        sheaf__pair pair = { 0 };
        for (int side = 0; side < sheaf_data_sides(data); side++) {
            const int64_t row = first + side;
            pair.sum[side] = sum[row];
            pair.reference[side] = reference == NULL ? 0 : reference[row];
            pair.tokens[side] = sheaf_data_labels(data, &row, 1);
            pair.certainty += objective->weighting ? sum[rows + row] : 0;
        }
        pair.margin = sheaf_data_margin(data, first);
        if (objective->pairs)
            add_pair(sums, objective, &pair);
        else /* the drift of a micro-batch is taken as 0 */
            add_single(sums, objective, &pair, sheaf_data_desirable(data, first), 0);
    }
    if (objective->nll != 0)
        TRY(st, chosen_nll(sums, sum, of));
    out->correct = (int64_t)sums->right;
    out->loss = (n == 0 ? 0 : sums->loss / (double)n) +
                (sums->nll_tokens == 0 ? 0 : objective->nll * (sums->nll / sums->nll_tokens));
    free(sum);
    return st;
}

/* Of a reward model, by the names of TRL's RewardTrainer. */
static int score_values(sheaf_event_value out[SHEAF_EVENT_VALUES], const sheaf__pair_sums *s)
{
    const double n = s->samples, both = s->reward[0] + s->reward[1];
    const sheaf_event_value all[] = { { "min_reward", s->least / s->means },
                                      { "mean_reward", both / (2 * n) },
                                      { "max_reward", s->most / s->means },
                                      { "margin", (s->reward[0] - s->reward[1]) / n },
                                      { "accuracy", s->right / n } };
    memcpy(out, all, sizeof all);
    return sizeof all / sizeof *all;
}

int sheaf__pairs_values(sheaf_event_value out[SHEAF_EVENT_VALUES], const sheaf__objective *o,
                        const sheaf__pair_sums *s, bool evaluated)
{
    static const char *const names[][2] = { { "rewards/chosen", "rewards/rejected" },
                                            { "logps/chosen", "logps/rejected" } };
    const bool both = s->count[0] > 0 && s->count[1] > 0;
    int n = 0;
    if (s->group.rows > 0)
        return sheaf__groups_values(out, &s->group, evaluated);
    if (o->scores && s->samples > 0)
        return score_values(out, s) - evaluated;
    for (int k = 0; k < 2; k++)
        if (s->count[k] > 0)
            out[n++] = (sheaf_event_value){ names[0][k], s->reward[k] / s->count[k] };
    if (both)
        out[n++] = (sheaf_event_value){ "rewards/margins",
                                        s->reward[0] / s->count[0] - s->reward[1] / s->count[1] };
    if (s->samples > 0)
        out[n++] = (sheaf_event_value){ "rewards/accuracies", s->right / s->samples };
    for (int k = 0; k < 2; k++)
        if (s->count[k] > 0)
            out[n++] = (sheaf_event_value){ names[1][k], s->sum[k] / s->count[k] };
    if (!o->reference && o->nll != 0 && s->nll_tokens > 0)
        out[n++] = (sheaf_event_value){ "nll_loss", s->nll / s->nll_tokens };
    if (o->mismatched && s->means > 0)
        out[n++] = (sheaf_event_value){ "kl", s->drift / s->means };
    return n;
}
