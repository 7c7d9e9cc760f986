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
    answer->said = *c;
    answer->said.ids = memcpy(at, c->ids, n * sizeof *at);
    if (c->logprob != NULL) {
        answer->said.logprob = memcpy(at + n, c->logprob, n * sizeof *at);
        answer->said.best_ids = memcpy(at + 2 * n, c->best_ids, many * sizeof *at);
        answer->said.best_logprob = memcpy(at + 2 * n + many, c->best_logprob, many * sizeof *at);
    }
    return answer;
}

const int32_t *sheaf_answer_tokens(const sheaf_answer *answer, int64_t *n)
{
    *n = answer->said.n;
    return answer->said.ids;
}

const char *sheaf_answer_text(const sheaf_answer *answer)
{
    return answer->text;
}

sheaf_ending sheaf_answer_ending(const sheaf_answer *answer)
{
    return answer->said.ending;
}

const float *sheaf_answer_logprobs(const sheaf_answer *answer)
{
    return answer->said.logprob;
}

const int32_t *sheaf_answer_top(const sheaf_answer *answer, int64_t i, int64_t *n,
                                const float **logprobs)
{
    const bool there =
        answer->said.logprob != NULL && answer->best > 0 && i >= 0 && i < answer->said.n;
    *n = there ? answer->best : 0;
    *logprobs = there ? answer->said.best_logprob + i * answer->best : NULL;
    return there ? answer->said.best_ids + i * answer->best : NULL;
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
    sheaf_model *m;     /* whose caches are used */
} job;

/* The state of one rank. */
typedef struct member {
    const job *w;
    sheaf__activity *activity;
    bool first;
    sheaf__answers answers;
    sheaf_status *failed; /* the first failure of a callback */
} member;

/* The callback may block, as on a slow reader of its output. */
static void say(const sheaf__answer_options *a, sheaf__activity *activity, int64_t prompt,
                const char *text)
{
    sheaf__numeric_env before = sheaf__callback_env();
    sheaf__activity_idle(activity, true);
    a->on_text(a->context, prompt, text);
    sheaf__activity_idle(activity, false);
    sheaf__numeric_env_restore(&before);
}

/* Calls back with tokens and text; the end of the answer is a function of the tokens. */
static bool take_token(void *self, int64_t prompt, const sheaf__continuation *so_far)
{
    member *r = self;
    const sheaf__answer_options *a = r->w->a;
    const bool speaks = r->first && a->on_text != NULL && r->failed == NULL;
    char *more = NULL;
    bool over;
    if (r->first && a->on_token != NULL) {
        sheaf__numeric_env before = sheaf__callback_env();
        a->on_token(a->context, so_far->ids[so_far->n - 1]);
        sheaf__numeric_env_restore(&before);
    }
    sheaf_status *st = sheaf__answers_more(speaks ? &more : NULL, &over, &r->answers, prompt);
    if (more != NULL && more[0] != '\0')
        say(a, r->activity, prompt, more);
    free(more);
    if (r->failed == NULL)
        r->failed = st;
    else
        sheaf_status_free(st);
    return over;
}

/* Callbacks get the first group's answers; groups share the prompts only without callbacks. */
static bool divides(const job *w)
{
    return w->count > 1 && w->a->on_token == NULL && w->a->on_text == NULL;
}

/* `st`: of getting ready, consumed. */
static sheaf_status *generate(member *r, sheaf__model *model, sheaf_status *st)
{
    const job *w = r->w;
    const sheaf__answer_options *a = w->a;
    const bool listens = r->first && (a->on_token != NULL || a->on_text != NULL);
    int64_t stop[SHEAF__MOST_STOPS];
    int nstop, nturn;
    sheaf__codec_stops(stop, &nstop, &nturn, a->codec);
    sheaf__generate_options how = a->generate;
    how.stop = stop;
    how.nstop = nstop;
    how.nturn = nturn;
    how.divided = divides(w);
    how.on_token = listens || a->nstop > 0 || a->codec->end_text != NULL ? take_token : NULL;
    how.listener = r;
    if (!r->first)
        how.events = NULL;
    how.cache = sheaf__model_rank_cache(w->m, model->context);
    if (!how.followed)
        st = sheaf__agree_groups(model->context, st);
    else if (st != NULL)
        sheaf_status_free(sheaf__lead_close(model->context));
    TRY(st, sheaf__generate(r->answers.output, model, w->prompt, w->count, &how));
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_STOPPED && a->partial) {
        sheaf_status_free(st); /* on all ranks alike */
        st = NULL;
    }
    if (st == NULL) {
        st = r->failed;
        r->failed = NULL;
    }
    return st;
}

/* Decodes the answers; calls back with the rest of each text. */
static sheaf_status *finish(member *r)
{
    const job *w = r->w;
    const bool speaks = r->first && w->a->on_text != NULL;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < w->count && st == NULL; i++) {
        char *rest = NULL;
        w->out[i] = new_answer(&r->answers.output[i], w->a->generate.best);
        st = w->out[i] == NULL
                 ? sheaf__no_memory("answers")
                 : sheaf__answers_end(speaks ? &rest : NULL, &w->out[i]->text, &r->answers, i);
        if (st == NULL && rest != NULL && rest[0] != '\0')
            say(w->a, r->activity, i, rest);
        free(rest);
    }
    return st;
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    const job *w = self;
    member r = { .w = w,
                 .activity = model->context->activity,
                 .first = sheaf__is_first(model->context) };
    sheaf_status *st =
        generate(&r, model, sheaf__answers_open(&r.answers, w->a, w->prompt, w->count));
    if (sheaf__team_keeps_result(model->context))
        TRY(st, finish(&r));
    sheaf_status_free(r.failed);
    sheaf__answers_release(&r.answers);
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
