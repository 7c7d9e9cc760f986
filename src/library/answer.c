/* answer.c - the ranks of a model answer prompts: sheaf__model_answer(), and what an answer tells.
 */
#include "base/base.h"
#include "library/model.h"
#include "base/inside.h"

/* ---- answers ---- */

static sheaf_answer *new_answer(int64_t most, const sheaf__asking *a)
{
    const size_t n = (size_t)most, best = (size_t)a->best;
    sheaf_answer *answer = calloc(1, sizeof *answer);
    if (answer == NULL)
        return NULL;
    sheaf__continuation *said = &answer->said;
    answer->best = a->best;
    said->ids = malloc(n * sizeof *said->ids);
    if (a->logprobs) {
        said->logprob = malloc(n * sizeof *said->logprob);
        said->best_ids = malloc(n * best * sizeof *said->best_ids + 1);
        said->best_logprob = malloc(n * best * sizeof *said->best_logprob + 1);
    }
    if (said->ids != NULL && (!a->logprobs || (said->logprob != NULL && said->best_ids != NULL &&
                                               said->best_logprob != NULL)))
        return answer;
    sheaf_answer_free(answer);
    return NULL;
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
    return (sheaf_ending)answer->said.ending;
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
    free(answer->said.ids);
    free(answer->said.logprob);
    free(answer->said.best_ids);
    free(answer->said.best_logprob);
    free(answer->text);
    free(answer);
}

/* ---- on the ranks ---- */

/* A rank at it. */
typedef struct member {
    const sheaf__answering *w;
    bool first, keeps; /* keeps: w->out is what it finds */
    sheaf__answer_stream
        *spoken;          /* [count]; of ranks that keep nothing only where texts end answers */
    sheaf_status *failed; /* the first failure of a callback */
} member;

static sheaf_status *load_images(void *self, int64_t prompt, const sheaf__picture *picture,
                                 int64_t n)
{
    const member *r = self;
    return r->w->a->load(r->w->a->self, prompt, picture, n);
}

/* Tokens so far but the one that ends the answer. */
static int64_t spoken(const sheaf__continuation *so_far)
{
    return so_far->n - (so_far->ending == SHEAF__ENDS_TOKEN);
}

static void say(const sheaf__asking *a, int64_t prompt, const char *text)
{
    sheaf__numbers before = sheaf__callback_begin();
    a->on_text(a->context, prompt, text);
    sheaf__numbers_restore(&before);
}

static void tell(void *self, int64_t prompt, const sheaf__continuation *so_far)
{
    member *r = self;
    const sheaf__asking *a = r->w->a;
    char *more = NULL;
    if (a->on_token != NULL) {
        sheaf__numbers before = sheaf__callback_begin();
        a->on_token(a->context, so_far->ids[so_far->n - 1]);
        sheaf__numbers_restore(&before);
    }
    if (a->on_text == NULL || r->failed != NULL)
        return;
    r->failed = sheaf__answer_stream_more(&more, &r->spoken[prompt], so_far->ids, spoken(so_far));
    if (r->failed == NULL && more[0] != '\0')
        say(a, prompt, more);
    free(more);
}

/* The same on every rank: a function of the tokens. */
static bool is_over(void *self, int64_t prompt, const sheaf__continuation *so_far)
{
    member *r = self;
    sheaf__answer_stream *s = &r->spoken[prompt];
    sheaf_status *st = r->first && r->w->a->on_text != NULL
                           ? NULL
                           : sheaf__answer_stream_more(NULL, s, so_far->ids, spoken(so_far));
    if (r->failed == NULL)
        r->failed = st;
    else
        sheaf_status_free(st);
    return s->over;
}

/* What this rank keeps; of pictures with a number, space for what is seen of them. */
static sheaf_status *find_past(sheaf__generate_options *how, const sheaf__answering *w,
                               sheaf__model *model)
{
    const int64_t look = w->count == 1 ? w->prompt->look : 0;
    sheaf_status *st = NULL;
    if (w->m == NULL)
        return NULL;
    sheaf__rank_past *p = sheaf__model_past(w->m, model->context);
    how->past = &p->past;
    if (look == 0)
        return NULL;
    if (p->images < w->prompt->pictures) {
        sheaf__sight_release(&p->sight, model);
        p->images = 0;
        st = sheaf__sight_new(&p->sight, model, w->prompt->pictures);
    }
    if (st != NULL) {
        sheaf__sight_release(&p->sight, model);
        return st;
    }
    p->images = p->images < w->prompt->pictures ? w->prompt->pictures : p->images;
    p->sight.full = p->sight.full && p->look == look;
    p->look = look;
    how->sight = &p->sight;
    return NULL;
}

/* Whoever listens hears of the first group alone. */
static bool divides(const sheaf__answering *w)
{
    return w->count > 1 && w->a->on_token == NULL && w->a->on_text == NULL;
}

static sheaf_status *generate(member *r, sheaf__continuation *out, sheaf__model *model)
{
    const sheaf__answering *w = r->w;
    const sheaf__asking *a = w->a;
    int64_t stop[SHEAF_MAX_EOS + 2];
    int nstop, nturn;
    sheaf__wording_stops(stop, &nstop, &nturn, a->wording);
    sheaf__generate_options how = {
        .sampling = a->sampling,
        .max_new = a->max_new,
        .max_length = a->max_length,
        .batch = a->batch,
        .stop = stop,
        .nstop = nstop,
        .nturn = nturn,
        .number = a->number,
        .divided = divides(w),
        .load = a->load != NULL ? load_images : NULL,
        .told = r->first && (a->on_token != NULL || a->on_text != NULL) ? tell : NULL,
        .over = a->nstop > 0 || a->wording->end_text != NULL ? is_over : NULL,
        .self = r,
        .best = a->best,
        .stop_now = a->stop_now,
        .events = r->first ? a->events : NULL
    };
    sheaf_status *st = sheaf__agree_groups(model->context, find_past(&how, w, model));
    TRY(st, sheaf__generate(out, model, w->prompt, w->count, &how));
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

static sheaf__answer_stream *new_spoken(const sheaf__answering *w)
{
    sheaf__answer_stream *s = calloc((size_t)w->count, sizeof *s);
    for (int64_t i = 0; i < w->count && s != NULL; i++)
        s[i] =
            (sheaf__answer_stream){ .wording = w->a->wording,
                                    .laid_out = w->prompt[i].laid_out || w->a->wording->templated,
                                    .stop = w->a->stop,
                                    .nstop = w->a->nstop };
    return s;
}

/* Other groups' are passed on, so their ranks have space for them: in one block. */
static sheaf_status *keep_logprobs(sheaf__continuation *own, float **block,
                                   const sheaf__answering *w)
{
    const int64_t n = w->a->max_new, best = n * w->a->best;
    *block = malloc((size_t)(w->count * (n + 2 * best)) * sizeof **block + 1);
    if (*block == NULL)
        return sheaf__no_memory("answers");
    for (int64_t i = 0; i < w->count; i++) {
        float *at = *block + i * (n + 2 * best);
        own[i].logprob = at;
        own[i].best_logprob = at + n;
        own[i].best_ids = (int32_t *)(at + n + best);
    }
    return NULL;
}

sheaf_status *sheaf__answering_on_rank(void *self, sheaf__model *model)
{
    const sheaf__answering *w = self;
    member r = { .w = w,
                 .first = sheaf__is_first(model->context),
                 .keeps = sheaf__crew_keeps(model->context) };
    sheaf__continuation *own = NULL;
    float *logprobs = NULL;
    int32_t *ids = NULL;
    sheaf_status *st = NULL;
    r.spoken = r.keeps ? w->spoken : new_spoken(w);
    if (!r.keeps) {
        own = calloc((size_t)w->count, sizeof *own);
        ids = malloc((size_t)(w->count * w->a->max_new) * sizeof *ids);
        if (own == NULL || ids == NULL || r.spoken == NULL)
            st = sheaf__no_memory("answers");
        for (int64_t i = 0; i < w->count && st == NULL; i++)
            own[i].ids = ids + i * w->a->max_new;
        if (st == NULL && divides(w) && model->context->peers != NULL && w->a->logprobs)
            st = keep_logprobs(own, &logprobs, w);
    }
    st = sheaf__agree_groups(model->context, st);
    TRY(st, generate(&r, r.keeps ? w->first : own, model));
    sheaf_status_free(r.failed);
    for (int64_t i = 0; i < w->count && !r.keeps && r.spoken != NULL; i++)
        sheaf__answer_stream_release(&r.spoken[i]);
    if (!r.keeps)
        free(r.spoken);
    free(own);
    free(ids);
    free(logprobs);
    return st;
}

/* ---- all of it ---- */

sheaf_status *sheaf__answering_begin(sheaf__answering *w)
{
    const sheaf__asking *a = w->a;
    if (a->max_new > INT64_MAX / 64 / (a->best + 1) / w->count)
        return sheaf_fail(SHEAF_E_MEMORY, "%lld answers of %lld tokens", (long long)w->count,
                          (long long)a->max_new);
    w->first = calloc((size_t)w->count, sizeof *w->first);
    w->spoken = new_spoken(w);
    bool made = w->first != NULL && w->spoken != NULL;
    for (int64_t i = 0; i < w->count && made; i++) {
        w->out[i] = new_answer(a->max_new, a);
        made = w->out[i] != NULL;
        if (made)
            w->first[i] = w->out[i]->said;
    }
    return made ? NULL
                : sheaf_fail(SHEAF_E_MEMORY, "%lld answers of %lld tokens", (long long)w->count,
                             (long long)a->max_new);
}

/* Answers as text; the rest of each is said. */
static sheaf_status *finish(const sheaf__answering *w)
{
    const sheaf__asking *a = w->a;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < w->count && st == NULL; i++) {
        char *rest = NULL;
        w->out[i]->said = w->first[i];
        st = sheaf__answer_stream_end(a->on_text != NULL ? &rest : NULL, &w->out[i]->text,
                                      &w->spoken[i], w->first[i].ids, spoken(&w->first[i]));
        if (st == NULL && rest != NULL && rest[0] != '\0')
            say(a, i, rest);
        free(rest);
    }
    return st;
}

sheaf_status *sheaf__answering_end(sheaf__answering *w, sheaf_status *st)
{
    TRY(st, finish(w));
    for (int64_t i = 0; i < w->count && w->spoken != NULL; i++)
        sheaf__answer_stream_release(&w->spoken[i]);
    free(w->spoken);
    free(w->first);
    w->spoken = NULL;
    w->first = NULL;
    return st;
}

sheaf_status *sheaf__model_answer(sheaf_answer **out, sheaf_model *m, const sheaf__prompt *prompt,
                                  int64_t count, const sheaf__asking *a)
{
    sheaf__answering w = { .m = m, .a = a, .prompt = prompt, .count = count, .out = out };
    for (int64_t i = 0; i < count; i++)
        out[i] = NULL;
    sheaf_status *st = sheaf__model_ready(m, prompt, count, a);
    TRY(st, sheaf__answering_begin(&w));
    if (st == NULL && a->begin != NULL)
        st = a->begin(a->context);
    TRY(st, sheaf__model_ranks_do(m->ranks, sheaf__answering_on_rank, &w));
    st = sheaf__answering_end(&w, st);
    for (int64_t i = 0; i < count && st != NULL; i++) {
        sheaf_answer_free(out[i]);
        out[i] = NULL;
    }
    return st;
}
