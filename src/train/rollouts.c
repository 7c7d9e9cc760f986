/* rollouts.c - see rollouts.h. */
#include "train/rollouts.h"

#include <math.h>

#include "base/base.h"
#include "base/json.h"
#include "base/json_write.h"
#include "checkpoint/store/manifest.h"
#include "comm/all.h"

sheaf_status *sheaf__batch_open(sheaf__batch *b, sheaf__model *model,
                                const sheaf__objective *objective, int64_t micros, int64_t n,
                                int64_t stride)
{
    const size_t rows = (size_t)(micros * n), all = rows * (size_t)stride;
    *b = (sheaf__batch){ .of = &objective->group,
                         .model = model,
                         .micros = micros,
                         .n = n,
                         .stride = stride,
                         .number = -1 };
    b->reward = calloc(3 * rows + (size_t)stride, sizeof *b->reward);
    b->group = calloc(2 * rows, sizeof *b->group);
    b->ended = calloc(2 * rows, 1);
    b->old = calloc(2 * all + (size_t)stride, sizeof *b->old);
    if (b->reward == NULL || b->group == NULL || b->ended == NULL || b->old == NULL)
        return sheaf__no_memory("completions of a step");
    b->advantage = b->reward + rows;
    b->kl = b->advantage + rows;
    b->weight = b->kl + rows;
    b->labels = b->group + rows;
    b->seen = b->ended + rows;
    b->reference = b->old + all;
    b->lp = b->reference + all;
    return objective->reference
               ? sheaf__alloc(&b->start, model->context,
                              (size_t)model->trained->kept * sizeof *b->start, SHEAF_MEM_TRAINED)
               : NULL;
}

void sheaf__batch_release(sheaf__batch *b)
{
    if (b->model != NULL)
        sheaf__free(b->model->context, b->start);
    free(b->reward);
    free(b->group);
    free(b->ended);
    free(b->old);
    *b = (sheaf__batch){ 0 };
}

/* ---- the reference ---- */

void sheaf__batch_refer(sheaf__batch *b)
{
    if (b->start != NULL)
        sheaf__trained_copy(b->start, b->model->trained);
}

/* The trained tensors and the reference's change places; no gradient is held meanwhile. */
static sheaf_status *change_places(sheaf__batch *b)
{
    sheaf__trained_set *set = b->model->trained;
    sheaf__trained_exchange(set, b->start);
    sheaf_status *st = sheaf__trained_publish(set);
    if (st == NULL)
        sheaf__model_refresh(b->model);
    return TRY(st, sheaf__device_check(b->model->context->device));
}

/* ---- log-probabilities ---- */

/* Of the labels of row i of the pass that ran, of `seq` positions; returns how many. */
static int64_t take_row(float *out, const sheaf__pairs *p, int64_t seq, int64_t i)
{
    int64_t n = 0;
    for (int64_t t = i * seq; t < (i + 1) * seq; t++)
        if (p->answer[t])
            out[n++] = -p->each[t];
    return n;
}

/* Of all own micro-batches into to[rows, stride]. `unseen`: of rows that came without. */
static sheaf_status *look_at(float *to, sheaf__batch *b, sheaf__pairs *p, const int64_t *row,
                             sheaf_range own, bool unseen)
{
    sheaf_status *st = NULL;
    for (int64_t micro = own.begin; micro < own.end && st == NULL; micro++) {
        sheaf__costs before;
        sheaf__costs_of(&before, b->model->context);
        st = sheaf__runner_run(&p->look, row == NULL ? NULL : row + micro * b->n);
        if (row == NULL) {
            sheaf__costs_repeat(b->model->context, &before, own.end - 1 - micro);
            break;
        }
        for (int64_t i = micro * b->n; i < (micro + 1) * b->n && st == NULL; i++)
            if (!unseen || !b->seen[i])
                take_row(to + i * b->stride, p, p->look.batch.seq, i - micro * b->n);
    }
    return st;
}

/* ---- the log ---- */

/* From the first of all ranks to all; `st`: of having it, consumed. */
static sheaf_status *share(char **text, const sheaf__context *c, sheaf_status *st)
{
    st = sheaf__agree_groups(c, st);
    TRY(st, sheaf__all_share(sheaf__model_comm(c), text));
    st = sheaf__agree_groups(c, st);
    TRY(st, sheaf__all_share(c->peers, text));
    return sheaf__agree_groups(c, st);
}

/* Of line `row` of batch `number`, which is not as the run wrote it. */
static sheaf_status *bad_line(const sheaf__batch *b, int64_t number, int64_t row,
                              const char *expected, int64_t most, int64_t found)
{
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "rollouts.jsonl: line %" PRId64,
                                              number * b->micros * b->n + row + 1),
                                   "%s, %" PRId64, expected, most),
                    "%" PRId64, found),
        "take the line out, with all behind it: they are made again");
}

/* The log-probabilities in the lines of batch `number`. */
static sheaf_status *read_old(sheaf__batch *b, const char *text, const sheaf_data *data,
                              const int64_t *row, int64_t number)
{
    const char *at = text;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < b->micros * b->n && st == NULL; i++) {
        const char *stop = strchr(at, '\n');
        json_t *line = NULL;
        st = sheaf_in(sheaf__json_parse_line(&line, at, (size_t)(stop - at)), "rollouts.jsonl");
        const json_t *list = json_object_get(line, "logps");
        const int64_t labels = sheaf_data_labels(data, &row[i], 1),
                      n = (int64_t)json_array_size(list);
        if (st == NULL && n != labels)
            st = bad_line(b, number, i, "a number for each token of the completion", labels, n);
        for (size_t t = 0; st == NULL && t < (size_t)n; t++)
            b->old[i * b->stride + (int64_t)t] = (float)json_number_value(json_array_get(list, t));
        json_decref(line);
        at = stop + 1;
    }
    return st;
}

static sheaf_status *write_old(sheaf__batch *b, const sheaf_data *data, const int64_t *row,
                               int64_t number)
{
    sheaf_json_writer j = { .compact = true };
    for (int64_t i = 0; i < b->micros * b->n; i++) {
        const int64_t labels = sheaf_data_labels(data, &row[i], 1);
        sheaf__json_begin(&j);
        sheaf__json_put(&j, "step:d contract:i completion:d reward:f",
                        number * b->of->iterations + 1, SHEAF__CONTRACT, row[i] + 1, b->reward[i]);
        sheaf__json_open(&j, "logps", '[');
        for (int64_t t = 0; t < labels; t++)
            sheaf__json_put_real(&j, NULL, (double)b->old[i * b->stride + t]);
        sheaf__json_close(&j, ']');
        sheaf__json_end(&j);
        sheaf__text_bytes(&j.text, "\n", 1);
    }
    sheaf_status *st = j.text.at == NULL || j.text.failed
                           ? sheaf__no_memory("rollouts.jsonl")
                           : sheaf__rollout_log_add(b->log, j.text.at, j.text.size);
    sheaf__text_release(&j.text);
    return st;
}

/* Log-probabilities that several steps compare with: of the log, or else made and put there. */
static sheaf_status *find_old(sheaf__batch *b, sheaf__pairs *p, int64_t number, const int64_t *row,
                              const sheaf_range *own)
{
    const sheaf__context *c = b->model->context;
    char *text = NULL;
    size_t size[SHEAF_MAX_SLICES];
    sheaf_status *st =
        share(&text, c, b->log == NULL ? NULL : sheaf__rollout_log_find(&text, b->log, number));
    if (st == NULL && text != NULL)
        st = read_old(b, text, p->look.data, row, number);
    if (st != NULL || text != NULL) {
        free(text);
        return st;
    }
    st = look_at(b->old, b, p, row, own[c->group], true);
    for (int g = 0; g < c->groups && c->peers != NULL; g++)
        size[g] = (size_t)((own[g].end - own[g].begin) * b->n * b->stride) * sizeof *b->old;
    if (c->peers != NULL)
        TRY(st, sheaf_comm_gather(c->peers, b->old, size));
    if (b->log != NULL)
        TRY(st, write_old(b, p->look.data, row, number));
    return sheaf__agree_groups(c, st);
}

/* Is no row longer than there is room for? */
static sheaf_status *check_drawn(const sheaf__batch *b, const sheaf_data *data, int64_t number)
{
    for (int64_t i = 0; i < sheaf_data_rows(data); i++) {
        const int64_t used = sheaf_data_used(data, &i, 1);
        if (used > b->stride)
            return bad_line(b, number, i, "tokens of a prompt and a completion, at most", b->stride,
                            used);
    }
    return NULL;
}

/* The rows of lines, completions of what->prompt of `prompts`. */
static sheaf_status *rows_of(sheaf_data **out, const sheaf__batch *b, const char *text,
                             const sheaf_data *prompts, const sheaf__sampler_batch *what)
{
    return sheaf_data_rollouts(out, &b->model->schema->config, text, strlen(text), prompts,
                               what->prompt, what->count, what->each);
}

sheaf_status *sheaf__batch_draw(sheaf_data **out, sheaf__batch *b, const sheaf__sampler *sampler,
                                const sheaf_data *prompts, const sheaf__sampler_batch *what,
                                int64_t number)
{
    const sheaf__context *c = b->model->context;
    char *text = NULL;
    sheaf_status *st =
        share(&text, c, b->log == NULL ? NULL : sheaf__rollout_log_find(&text, b->log, number));
    if (st == NULL && text == NULL) {
        st = sampler->sample(sampler->self, &text, b->model, what);
        if (st == NULL && b->log != NULL)
            st = sheaf__rollout_log_add(b->log, text, strlen(text));
        st = share(&text, c, st);
    }
    TRY(st, sheaf_in(rows_of(out, b, text, prompts, what), "rollouts.jsonl: line %" PRId64,
                     number * b->micros * b->n + 1));
    free(text);
    if (st == NULL && (st = check_drawn(b, *out, number)) != NULL) {
        sheaf_data_close(*out);
        *out = NULL;
    }
    return st;
}

/* ---- evaluations ---- */

/* Of the completions of some prompts, sampled as `what` says. */
static sheaf_status *answer_some(double *reward, sheaf__group_sums *sums, const sheaf__batch *b,
                                 const sheaf__sampler *sampler, const sheaf_data *prompts,
                                 const sheaf__sampler_batch *what)
{
    sheaf_data *said = NULL;
    char *text = NULL;
    sheaf_status *st =
        share(&text, b->model->context, sampler->sample(sampler->self, &text, b->model, what));
    TRY(st, rows_of(&said, b, text, prompts, what));
    for (int64_t i = 0; i < what->count && st == NULL; i++) {
        const sheaf_data_rollout of = sheaf_data_rollout_of(said, i);
        reward[i] = of.reward;
        sums->ended += of.ended;
        sums->tokens += (double)sheaf_data_labels(said, &i, 1);
    }
    sheaf_data_close(said);
    free(text);
    return st;
}

sheaf_status *sheaf__batch_evaluate(sheaf__evaluation *out, sheaf__group_sums *sums,
                                    const sheaf__batch *b, const sheaf__sampler *sampler,
                                    const sheaf__sampler_batch *what, const sheaf__subset *eval,
                                    const sheaf__evaluate_options *how)
{
    const sheaf__context *c = b->model->context;
    const int64_t n = sheaf__subset_rows(eval), most = b->micros * b->n;
    int64_t *row = malloc((size_t)n * sizeof *row);
    double *reward = malloc((size_t)n * sizeof *reward);
    sheaf__sampler_batch some = *what;
    some.each = 1;
    some.greedy = true;
    *sums = (sheaf__group_sums){ .rows = (double)n };
    sheaf_status *st = sheaf__agree_groups(
        c, row == NULL || reward == NULL ? sheaf__no_memory("prompts of evaluations") : NULL);
    for (int64_t i = 0; i < n && st == NULL; i++)
        row[i] = eval->row == NULL ? i : eval->row[i];
    for (int64_t at = 0; at < n && st == NULL; at += some.count) {
        some.prompt = row + at;
        some.first = some.group = at;
        some.count = n - at < most ? n - at : most;
        st = sheaf__evaluate_stopped(c, how->stop);
        TRY(st, answer_some(reward + at, sums, b, sampler, eval->data, &some));
        sheaf_emit(how->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                .text = "prompts",
                                                .done = at + some.count,
                                                .total = n });
    }
    for (int64_t i = 0; i < n && st == NULL; i++)
        row[i] = i; /* each prompt is a group */
    bool any = false;
    for (int64_t i = 0; i < n && st == NULL; i++)
        any = any || !isnan(reward[i]);
    if (st == NULL)
        sheaf__groups_rewards(sums, reward, row, n);
    *out = (sheaf__evaluation){ .loss = any ? -sums->reward : NAN, .tokens = n };
    free(row);
    free(reward);
    return st;
}

/* ---- a batch ---- */

static void take_facts(sheaf__batch *b, const sheaf_data *data, const int64_t *row)
{
    const int64_t rows = b->micros * b->n;
    b->tokens = 0;
    for (int64_t i = 0; i < rows; i++) {
        const sheaf_data_rollout of = sheaf_data_rollout_of(data, row[i]);
        const int64_t labels = sheaf_data_labels(data, &row[i], 1);
        b->reward[i] = of.reward;
        b->group[i] = of.group;
        b->ended[i] = of.ended;
        b->labels[i] = b->of->mask_truncated && !of.ended ? 0 : labels;
        b->tokens += b->labels[i];
        b->seen[i] = of.logp != NULL;
        if (b->seen[i])
            memcpy(b->old + i * b->stride, of.logp, (size_t)labels * sizeof *of.logp);
    }
    b->rewards = (sheaf__group_sums){ 0 };
    sheaf__groups_rewards(&b->rewards, b->reward, b->group, rows);
}

/* Of rloo: how far each completion is from the reference; every group of ranks has all. */
static sheaf_status *find_kl(sheaf__batch *b, const sheaf_range *own)
{
    const sheaf__context *c = b->model->context;
    size_t size[SHEAF_MAX_SLICES];
    for (int64_t i = own[c->group].begin * b->n; i < own[c->group].end * b->n; i++) {
        b->kl[i] = 0;
        for (int64_t t = 0; t < b->labels[i]; t++)
            b->kl[i] += (double)b->old[i * b->stride + t] - (double)b->reference[i * b->stride + t];
    }
    for (int g = 0; g < c->groups && c->peers != NULL; g++)
        size[g] = (size_t)((own[g].end - own[g].begin) * b->n) * sizeof *b->kl;
    return c->peers == NULL ? NULL : sheaf_comm_gather(c->peers, b->kl, size);
}

sheaf_status *sheaf__batch_begin(sheaf__batch *b, sheaf__pairs *p, int64_t number,
                                 const int64_t *row, const sheaf_range *own)
{
    const sheaf_range mine = own[b->model->context->group];
    const bool taxed = b->of->leave_one_out && b->start != NULL; /* the reward is */
    bool again = b->of->iterations > 1 || taxed;
    sheaf_status *st = NULL;
    if (row != NULL)
        take_facts(b, p->look.data, row);
    if (row != NULL && memchr(b->seen, 0, (size_t)(b->micros * b->n)) == NULL)
        again = false;
    if (b->of->iterations > 1 && row != NULL && again)
        st = find_old(b, p, number, row, own);
    else if (again)
        st = look_at(b->old, b, p, row, mine, true);
    if (b->start != NULL) {
        TRY(st, change_places(b));
        TRY(st, look_at(b->reference, b, p, row, mine, false));
        TRY(st, change_places(b));
    }
    if (st != NULL || row == NULL)
        return st;
    if (again)
        memset(b->seen, 1, (size_t)(b->micros * b->n));
    if (taxed)
        st = find_kl(b, own);
    if (st == NULL)
        sheaf__groups_advantages(b->advantage, b->of, b->reward, b->group, taxed ? b->kl : NULL,
                                 b->micros * b->n);
    b->number = number;
    return st;
}

void sheaf__batch_weigh(sheaf__pair_sums *out, sheaf__batch *b, sheaf__pairs *p, int64_t micro,
                        int64_t seq, double scale, int64_t known)
{
    const int64_t first = micro * b->n;
    sheaf__group_counts counts = { .rows = b->micros * b->n, b->tokens, b->n, 0 };
    if (b->weighed == 0)
        *out = (sheaf__pair_sums){ .group = micro == 0 ? b->rewards : (sheaf__group_sums){ 0 } };
    for (int64_t i = first; i < first + b->n; i++)
        counts.micro_tokens += b->labels[i];
    for (int64_t i = first + b->weighed; i < first + b->n; i++) {
        float *w = p->weight[0] + (i - first) * seq;
        const uint8_t *answer = p->answer + (i - first) * seq;
        const int64_t end = b->passed + take_row(b->lp, p, seq, i - first);
        sheaf__pair_sums sums = *out;
        const sheaf__completion one = { .lp = b->lp,
                                        .old = b->seen[i] ? b->old + i * b->stride : b->lp,
                                        .reference =
                                            b->start == NULL ? NULL : b->reference + i * b->stride,
                                        .n = b->labels[i],
                                        .advantage = b->advantage[i] };
        sums.loss += sheaf__groups_weigh(b->weight, &sums.group, b->of, &one, &counts);
        sums.group.ended += b->ended[i];
        sums.samples++;
        for (int64_t t = 0, k = 0; t < seq; t++)
            w[t] = answer[t] && k < one.n ? (float)(b->weight[k++] * scale) : 0;
        if (end > known)
            return;
        *out = sums;
        b->weighed++;
        b->passed = end;
    }
}
