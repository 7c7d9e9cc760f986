/* answer.c - the ranks of a model answer prompts: sheaf__model_answer(), and the fields of an
 * answer.
 */
#include "base/base.h"
#include "infer/lead.h"
#include "library/model.h"
#include "base/numeric_env.h"

/* ---- answers ---- */

/* A copy, in one block; NULL: no memory. */
static sheaf_answer *new_answer(const sheaf__continuation *c, int64_t best)
{
    const size_t n = (size_t)c->n, many = n * (size_t)best;
    sheaf_answer *answer = calloc(1, sizeof *answer + (2 * n + 2 * many) * sizeof *c->ids);
    if (answer == NULL)
        return NULL;
    int32_t *at = (int32_t *)(answer + 1);
    answer->best = best;
    answer->output = *c;
    answer->output.ids = memcpy(at, c->ids, n * sizeof *at);
    if (c->logprob != NULL) {
        answer->output.logprob = memcpy(at + n, c->logprob, n * sizeof *at);
        answer->output.best_ids = memcpy(at + 2 * n, c->best_ids, many * sizeof *at);
        answer->output.best_logprob = memcpy(at + 2 * n + many, c->best_logprob, many * sizeof *at);
    }
    return answer;
}

const int32_t *sheaf_answer_tokens(const sheaf_answer *answer, int64_t *n)
{
    *n = answer->output.n;
    return answer->output.ids;
}

const char *sheaf_answer_text(const sheaf_answer *answer)
{
    return answer->text;
}

sheaf_ending sheaf_answer_ending(const sheaf_answer *answer)
{
    return answer->output.ending;
}

const float *sheaf_answer_logprobs(const sheaf_answer *answer)
{
    return answer->output.logprob;
}

const int32_t *sheaf_answer_top(const sheaf_answer *answer, int64_t i, int64_t *n,
                                const float **logprobs)
{
    const bool there =
        answer->output.logprob != NULL && answer->best > 0 && i >= 0 && i < answer->output.n;
    *n = there ? answer->best : 0;
    *logprobs = there ? answer->output.best_logprob + i * answer->best : NULL;
    return there ? answer->output.best_ids + i * answer->best : NULL;
}

void sheaf_answer_free(sheaf_answer *answer)
{
    if (answer == NULL)
        return;
    free(answer->text);
    free(answer);
}

/* ---- on the ranks ---- */

/* The work of the ranks for some prompts. */
typedef struct job {
    const sheaf__answer_options *a;
    const sheaf__prompt *prompt; /* [count] */
    int64_t count;
    sheaf_answer **out; /* [count], NULL at first; filled by one rank of each process */
    sheaf_model *m;     /* its caches are used */
} job;

/* The callbacks of one rank. */
typedef struct listener {
    const sheaf__answer_options *a;
    sheaf__activity *activity;
} listener;

/* on_text may block, as on a slow reader of its output. */
static void on_delta(void *self, int64_t i, const sheaf__delta *delta, bool over)
{
    const listener *l = self;
    const sheaf__answer_options *a = l->a;
    sheaf__numeric_env before = sheaf__callback_env();
    if (!over && a->on_token != NULL)
        a->on_token(a->context, delta->output->ids[delta->output->n - 1]);
    if (a->on_text != NULL && delta->piece[0] != '\0') {
        sheaf__activity_idle(l->activity, true);
        a->on_text(a->context, i, delta->piece);
        sheaf__activity_idle(l->activity, false);
    }
    sheaf__numeric_env_restore(&before);
}

/* Callbacks get the first group's answers; groups share the prompts only without callbacks. */
static bool divides(const job *w)
{
    return w->count > 1 && w->a->on_token == NULL && w->a->on_text == NULL;
}

/* `st`: of getting ready, consumed. */
static sheaf_status *generate(sheaf__answers *answers, const job *w, sheaf__model *model,
                              sheaf_status *st)
{
    sheaf__generate_options *how = &answers->how;
    how->divided = divides(w);
    how->cache = sheaf__model_rank_cache(w->m, model->context);
    if (!sheaf__is_first(model->context))
        how->events = NULL;
    if (!how->followed)
        st = sheaf__agree_groups(model->context, st);
    else if (st != NULL)
        sheaf_status_free(sheaf__lead_close(model->context));
    TRY(st, sheaf__generate(answers->output, model, w->prompt, w->count, how));
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED && w->a->partial) {
        sheaf_status_free(st); /* the same on all ranks */
        st = NULL;
    }
    if (st == NULL) {
        st = answers->failed;
        answers->failed = NULL;
    }
    return st;
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    const job *w = self;
    const sheaf__answer_options *a = w->a;
    const bool listens =
        sheaf__is_first(model->context) && (a->on_token != NULL || a->on_text != NULL);
    listener l = { a, model->context->activity };
    sheaf__answers answers;
    sheaf_status *st =
        sheaf__answers_open(&answers, a, w->prompt, w->count, 1, listens ? on_delta : NULL, &l);
    st = generate(&answers, w, model, st);
    for (int64_t i = 0; i < w->count && st == NULL && sheaf__team_keeps_result(model->context);
         i++) {
        w->out[i] = new_answer(&answers.output[i], a->generate.best);
        st = w->out[i] == NULL ? sheaf__no_memory("answers")
                               : sheaf__answers_end(&w->out[i]->text, &answers, i);
    }
    sheaf__answers_release(&answers);
    return st;
}

sheaf_status *sheaf__model_answer(sheaf_answer **out, sheaf_model *m, const sheaf__prompt *prompt,
                                  int64_t count, const sheaf__answer_options *a)
{
    job w = { .m = m, .a = a, .prompt = prompt, .count = count, .out = out };
    for (int64_t i = 0; i < count; i++)
        out[i] = NULL;
    sheaf_status *st = sheaf__model_ready(m, prompt, count, a);
    TRY(st, sheaf__model_ranks_do(m->ranks, on_rank, &w));
    for (int64_t i = 0; i < count && st != NULL; i++) {
        sheaf_answer_free(out[i]);
        out[i] = NULL;
    }
    return st;
}
