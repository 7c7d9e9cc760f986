/* engine.c - see engine.h. */
#include "infer/engine.h"

#include <time.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/thread.h"
#include "infer/job.h"

enum {
    CHUNK = 256,        /* rows of a prompt that are read between two tokens of the others */
    LOOK_NS = 50000000, /* between two looks at requests whose pictures are not there yet */
    ASK_NS = 200000000, /* between two looks whether other processes are to end */
};

struct sheaf__engine {
    sheaf__engine_options o;
    sheaf__decoder *decoder;
    /* Of the leader, which works between passes. */
    sheaf__slots_job *job;
    sheaf__model *const *model;  /* [models] */
    sheaf__engine_request *live; /* in order of arrival */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t changed;
    sheaf__engine_request *first, *last; /* that the leader has not seen */
    int64_t requests, waiting, active;   /* not over; of these that wait; answers */
    bool draining, closing, open, over;  /* over: the ranks have ended */
    bool ends;                           /* another process is to end */
    sheaf_status *broken;                /* the ranks are gone */
};

/* ---- on the ranks ---- */

static sheaf_status *join_adapter(sheaf__model **out, const sheaf__model *base,
                                  const sheaf__opened *opened)
{
    sheaf__model_options o = base->options;
    o.lora = opened->lora;
    o.forms = sheaf__opened_forms(opened);
    o.like = base;
    sheaf_status *st = sheaf__model_new(out, base->context, opened->schema, &o);
    st = sheaf__agree_all(base->context, st);
    return TRY(st, sheaf__model_load(*out, opened->weights, opened->adapter));
}

/* The models of a rank, of which the first is that of its team. */
static sheaf_status *open_models(sheaf__model **out, const sheaf__engine *e, sheaf__model *base)
{
    sheaf_status *st = NULL;
    out[0] = base;
    for (int i = 1; i < e->o.models; i++) {
        sheaf__opened *opened = e->o.opened[i];
        TRY(st, sheaf_in(join_adapter(&out[i], base, opened), "%s", e->o.name[i]));
        st = sheaf__agree_all(base->context, st);
        TRY(st, sheaf__opened_check(opened, sheaf__model_comm(base->context)));
    }
    return st;
}

static void work(sheaf__engine *e);
static bool ready(sheaf__sequence *sequence);

/* The leader answers until the engine is closed. */
static sheaf_status *lead(sheaf__engine *e, const sheaf__member *m)
{
    const int64_t length = e->o.positions, places = e->o.places;
    sheaf__slots_job job;
    bool ends;
    sheaf_status *st =
        sheaf__slots_job_open(&job, m,
                              &(sheaf__slots_size){ .places = places,
                                                    .length = length,
                                                    .prompt = (length + places - 1) / places,
                                                    .asks = e->o.processes > 1 },
                              CHUNK, ready);
    TRY(st, sheaf__lead_wait(&ends, m->model[0]->context, NULL)); /* could all of them open it? */
    if (st == NULL) {
        pthread_mutex_lock(&e->lock);
        e->job = &job;
        e->model = m->model;
        e->open = true;
        pthread_cond_broadcast(&e->changed);
        pthread_mutex_unlock(&e->lock);
        work(e);
    }
    return sheaf__slots_job_close(&job, st, m);
}

static sheaf_status *on_rank(void *self, sheaf__model *base)
{
    sheaf__engine *e = self;
    sheaf__model **model = calloc((size_t)e->o.models, sizeof *model);
    const sheaf__member member = { .model = model, .models = e->o.models, .stop = e->o.stop };
    bool over;
    sheaf_status *st = model == NULL ? sheaf__no_memory("models of adapters") : NULL;
    st = sheaf__agree_all(base->context, TRY(st, open_models(model, e, base)));
    if (st == NULL)
        st =
            sheaf__is_first(base->context) ? lead(e, &member) : sheaf__slots_follow(&over, &member);
    for (int i = 1; i < e->o.models && model != NULL; i++)
        sheaf__model_free(model[i]);
    free(model);
    return st;
}

static void *run(void *self)
{
    sheaf__engine *e = self;
    sheaf_status *st = sheaf__model_ranks_do(e->o.ranks, on_rank, e);
    pthread_mutex_lock(&e->lock);
    e->over = true;
    e->broken = sheaf__first_of(e->broken, st);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- open and close ---- */

/* A request may begin. */
static void wake(void *self)
{
    sheaf__engine *e = self;
    pthread_mutex_lock(&e->lock);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Waits until the ranks take requests; in other processes than the first, until all is over. */
static sheaf_status *wait_open(sheaf__engine *e)
{
    pthread_mutex_lock(&e->lock);
    while (!e->open && !e->over)
        pthread_cond_wait(&e->changed, &e->lock);
    sheaf_status *st = e->broken;
    e->broken = NULL;
    pthread_mutex_unlock(&e->lock);
    return st;
}

sheaf_status *sheaf__engine_open(sheaf__engine **out, const sheaf__engine_options *o)
{
    sheaf__engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (e == NULL)
        return sheaf__no_memory("serving");
    e->o = *o;
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    sheaf_status *st = sheaf__decoder_open(&e->decoder, wake, e);
    if (st == NULL && sheaf__thread_start(&e->thread, run, e) != 0)
        st = sheaf__no_memory("a thread");
    e->started = st == NULL;
    TRY(st, wait_open(e));
    if (st == NULL)
        *out = e;
    else
        sheaf__engine_close(e);
    return st;
}

void sheaf__engine_close(sheaf__engine *e)
{
    if (e == NULL)
        return;
    pthread_mutex_lock(&e->lock);
    e->closing = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    if (e->started)
        pthread_join(e->thread, NULL);
    sheaf__decoder_close(e->decoder);
    sheaf_status_free(e->broken);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- requests ---- */

static sheaf_status *load_pictures(void *self, int64_t answer, const sheaf__picture *picture,
                                   int64_t n)
{
    sheaf__engine_request *q = self;
    return sheaf__prompts_load(&q->prompts, answer / q->each, picture, n);
}

static void release_answers(sheaf__engine_request *q)
{
    sheaf__answers_release(&q->answers);
    free(q->s);
    q->s = NULL;
}

static sheaf_status *no_room(const sheaf__prompt *p, int64_t positions)
{
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt"),
                                   "fewer than %" PRId64 " positions, which is what an answer "
                                   "and all before it may have here",
                                   positions),
                    "%" PRId64, p->n),
        "a shorter one; sheaf serve --max-length says how many there are");
}

/* Its answers, none of which has begun. */
static sheaf_status *prepare(sheaf__engine_request *q, sheaf__engine *e)
{
    sheaf__answer_options how = q->how;
    const sheaf__prompt *prompt = q->prompts.prompt;
    const int64_t positions = e->o.positions;
    int64_t most = 0; /* tokens of an answer */
    sheaf_status *st = NULL;
    how.generate.number = 0;
    how.generate.load = load_pictures;
    how.generate.self = q;
    how.generate.stop_now = NULL;
    how.generate.events = NULL;
    how.generate.max_length = positions;
    for (int64_t i = 0; i < q->prompts.count && st == NULL; i++) {
        st = prompt[i].n < positions
                 ? sheaf__batch_images_check(e->model[q->model], &prompt[i], i, &how.generate)
                 : no_room(&prompt[i], positions);
        q->too_long = prompt[i].n >= positions;
        most = positions - prompt[i].n > most ? positions - prompt[i].n : most;
    }
    how.generate.max_new = how.generate.max_new < most ? how.generate.max_new : most;
    TRY(st, sheaf__answers_open(&q->answers, &how, prompt, q->prompts.count, q->each, q->on_delta,
                                q->context));
    if (st == NULL && (q->s = calloc((size_t)q->answers.count, sizeof *q->s)) == NULL)
        st = sheaf__no_memory("answers");
    for (int64_t i = 0; i < q->answers.count && st == NULL; i++)
        q->s[i] = (sheaf__sequence){ .prompt = &prompt[i / q->each],
                                     .options = &q->answers.how,
                                     .out = &q->answers.output[i],
                                     .number = i,
                                     .model = q->model,
                                     .of = q };
    return st;
}

sheaf_status *sheaf__engine_submit(bool *full, sheaf__engine *e, sheaf__engine_request *q)
{
    *full = false;
    q->dropped = false;
    q->waits = true;
    q->engine = e;
    q->next = NULL;
    q->arrived = sheaf__seconds();
    sheaf_status *st = prepare(q, e);
    pthread_mutex_lock(&e->lock);
    if (st == NULL && e->broken != NULL)
        st = sheaf_status_copy(e->broken);
    else if (st == NULL && (e->draining || e->closing))
        st = sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "sheaf serve"), "a request to stop");
    else if (st == NULL)
        *full = e->waiting >= e->o.waiting;
    const bool taken = st == NULL && !*full;
    if (taken) {
        if (e->last != NULL)
            e->last->next = q;
        else
            e->first = q;
        e->last = q;
        e->waiting++;
        e->requests++;
        sheaf__decoder_add(e->decoder, &q->pictures, &q->prompts);
        pthread_cond_broadcast(&e->changed);
    }
    pthread_mutex_unlock(&e->lock);
    if (!taken)
        release_answers(q);
    return st;
}

void sheaf__engine_drain(sheaf__engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->draining = true;
    while (e->requests > 0)
        pthread_cond_wait(&e->changed, &e->lock);
    pthread_mutex_unlock(&e->lock);
}

void sheaf__engine_counts(sheaf__engine *e, int64_t *waiting, int64_t *running)
{
    pthread_mutex_lock(&e->lock);
    *waiting = e->waiting;
    *running = e->active;
    pthread_mutex_unlock(&e->lock);
}

sheaf_status *sheaf__engine_lost(bool *over, sheaf__engine *e)
{
    pthread_mutex_lock(&e->lock);
    sheaf_status *st = e->broken == NULL ? NULL : sheaf_status_copy(e->broken);
    *over = e->ends || st != NULL;
    pthread_mutex_unlock(&e->lock);
    return st;
}

/* ---- the worker ---- */

/* Are its pictures there, or never will be? */
static bool decoded(sheaf__engine_request *q)
{
    sheaf_status *failed;
    const bool decoded = sheaf__decoder_ready(&failed, q->engine->decoder, &q->pictures);
    sheaf__answers_fail(&q->answers, failed);
    return decoded;
}

static bool ready(sheaf__sequence *s)
{
    sheaf__engine_request *q = s->of;
    return decoded(q) && q->answers.failed == NULL;
}

static void take_new(sheaf__engine *e)
{
    sheaf__engine_request **end = &e->live;
    while (*end != NULL)
        end = &(*end)->next;
    pthread_mutex_lock(&e->lock);
    sheaf__engine_request *q = *end = e->first;
    e->first = e->last = NULL;
    pthread_mutex_unlock(&e->lock);
    for (; q != NULL; q = q->next)
        for (int64_t i = 0; i < q->answers.count; i++)
            sheaf__scheduler_add(e->job->scheduler, &q->s[i]);
}

static sheaf_status *too_late(const sheaf__engine_request *q, int64_t started)
{
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_STOPPED, "waiting"),
                                   "an answer within %g seconds", q->engine->o.seconds),
                    "%s", started > 0 ? "too many answers" : "too many questions before"),
        "it again, later");
}

/* Ends those of its answers that cannot go on. */
static void end_answers(sheaf__engine_request *q)
{
    const double most = q->engine->o.seconds;
    const bool late = most > 0 && sheaf__seconds() - q->arrived > most;
    int64_t started = 0;
    for (int64_t i = 0; i < q->answers.count; i++)
        started += !q->s[i].waits;
    if (late && started < q->answers.count && q->answers.failed == NULL)
        q->answers.failed = too_late(q, started);
    q->dropped = q->dropped || q->cancelled(q->context);
    for (int64_t i = 0; i < q->answers.count; i++) {
        if (!q->s[i].over && late)
            q->answers.output[i].ending = SHEAF_ENDS_STOPPED;
        q->s[i].over = q->s[i].over || late || q->dropped || q->answers.failed != NULL;
    }
}

/* Without a rank nothing can be answered any more. */
static void note_lost(sheaf__engine *e, const sheaf_status *st)
{
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_PEER)
        return;
    pthread_mutex_lock(&e->lock);
    if (e->broken == NULL)
        e->broken = sheaf_status_copy(st);
    pthread_mutex_unlock(&e->lock);
}

/* Hands out answer i, which is over. */
static void leave(sheaf__engine_request *q, int64_t i)
{
    sheaf__sequence *s = &q->s[i];
    char *text = NULL;
    note_lost(q->engine, s->failed);
    sheaf__answers_fail(&q->answers, s->failed);
    s->failed = NULL;
    s->of = NULL;
    if (q->answers.failed == NULL && !q->dropped)
        sheaf__answers_fail(&q->answers, sheaf__answers_end(&text, &q->answers, i));
    free(text);
}

/* After its last answer; on_end may free it. */
static void finish(sheaf__engine_request *q)
{
    sheaf_status *st = q->answers.failed;
    q->answers.failed = NULL;
    release_answers(q);
    q->on_end(q->context, st);
}

/* Answers that are over leave, requests with the last of them, and others begin. */
static void tend(sheaf__engine *e)
{
    int64_t gone = 0, started = 0, active = 0;
    for (sheaf__engine_request *q = e->live; q != NULL; q = q->next)
        end_answers(q);
    sheaf__scheduler_leave(e->job->scheduler);
    for (sheaf__engine_request **at = &e->live, *q; (q = *at) != NULL;) {
        bool waits = false, runs = false;
        for (int64_t i = 0; i < q->answers.count; i++) {
            if (q->s[i].over && q->s[i].of != NULL)
                leave(q, i);
            waits |= q->s[i].waits;
            runs |= !q->s[i].over;
            active += !q->s[i].over && !q->s[i].waits;
        }
        const bool ends = !runs && sheaf__decoder_drop(e->decoder, &q->pictures);
        started += q->waits && !waits;
        q->waits = waits;
        *at = ends ? q->next : q;
        if (ends)
            finish(q);
        else
            at = &q->next;
        gone += ends;
    }
    pthread_mutex_lock(&e->lock);
    e->requests -= gone;
    e->waiting -= started;
    e->active = active;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static void sleep_for(sheaf__engine *e, long ns)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += ns;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    pthread_cond_timedwait(&e->changed, &e->lock, &until);
}

/* Sleeps while there is nothing to compute, but looks after requests whose pictures are not there
 * yet, and returns now and then where other processes wait. The lock is held. */
static void wait_for_work(sheaf__engine *e)
{
    bool some = e->first != NULL || e->active > 0 || e->closing;
    for (sheaf__engine_request *q = e->live; q != NULL && !some; q = q->next)
        some = decoded(q);
    if (!some && e->live != NULL)
        sleep_for(e, LOOK_NS);
    else if (!some && e->o.processes > 1 && e->broken == NULL)
        sleep_for(e, ASK_NS);
    else if (!some)
        pthread_cond_wait(&e->changed, &e->lock);
}

static void note_end(sheaf__engine *e, bool ends)
{
    pthread_mutex_lock(&e->lock);
    e->ends = e->ends || ends;
    pthread_mutex_unlock(&e->lock);
}

/* With nothing to compute: is another process to end? */
static void ask_others(sheaf__engine *e)
{
    bool ends;
    sheaf_status *st = sheaf__lead_wait(&ends, e->job->slots.model->context, NULL);
    note_lost(e, st);
    note_end(e, ends);
    sheaf_status_free(st);
}

static void work(sheaf__engine *e)
{
    sheaf__activity *activity = e->job->slots.model->context->activity;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        sheaf__activity_idle(activity, true);
        wait_for_work(e);
        sheaf__activity_idle(activity, false);
        const bool some = e->first != NULL || e->live != NULL, over = e->closing && !some,
                   asks = !some && e->o.processes > 1 && e->broken == NULL;
        pthread_mutex_unlock(&e->lock);
        if (over)
            return;
        if (asks)
            ask_others(e);
        take_new(e);
        tend(e);
        sheaf__scheduler_step(e->job->scheduler);
        note_end(e, e->job->slots.stopped);
    }
}
