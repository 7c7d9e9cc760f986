/* engine.c - see engine.h. */
#include "serve/engine.h"

#include <time.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/numeric_env.h"
#include "base/thread.h"
#include "infer/scheduler.h"

enum { CHUNK = 256 }; /* rows of a prompt that are read between two tokens of the others */

/* One of the models that are answered with. */
typedef struct served {
    sheaf_model *model;
    char *name;
    sheaf__codec chat;
    sheaf_status *no_chat; /* why there is none */
} served;

/* What one rank has. */
typedef struct rank_state {
    sheaf__slots slots;
    sheaf__model **model; /* [models] on this rank; the first is that of its team */
} rank_state;

/* One answer. */
typedef struct sheaf__engine_answer {
    sheaf__sequence s;
    sheaf__generate_options how;
    sheaf__continuation output;
    sheaf__answer_stream stream;
    int64_t stop[SHEAF__MOST_STOPS]; /* of `how` */
    sheaf__engine_request *of;
    int64_t prompt, number;
} answer;

struct sheaf__engine {
    served *served; /* [models] */
    int models;
    int64_t places, most_waiting;
    double seconds;
    rank_state *rank_state; /* [tp * stages] */
    sheaf__decoder *decoder;
    /* By the worker, between passes. */
    sheaf__scheduler *scheduler;
    answer **running; /* [places], NULL: none */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t changed;
    sheaf__engine_request *first, *last; /* that wait */
    int64_t waiting, active;             /* questions; answers */
    bool draining, closing;
    sheaf_status *broken; /* the ranks are gone */
};

/* ---- open and close ---- */

static sheaf_status *check_names(const sheaf__engine *e)
{
    for (int i = 0; i < e->models; i++)
        for (int j = 0; j < i; j++)
            if (strcmp(e->served[i].name, e->served[j].name) == 0)
                return sheaf_try_this(
                    sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--adapter"),
                                               "folders of different names, by which requests "
                                               "choose"),
                                "'%s' twice", e->served[i].name),
                    "another name for one of them, as by ln -s");
    return NULL;
}

/* An adapter shares the base in memory, so it is computed as that is. */
static sheaf_status *check_same(const served *base, const served *v)
{
    const sheaf_model_open_options *a = &base->model->o, *b = &v->model->o;
    if (a->dtype == b->dtype && a->sums == b->sums)
        return NULL;
    return sheaf_try_this(
        sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "adapter %s", v->name),
                                   "the type of the model, %s%s", sheaf_dtype_name(a->dtype),
                                   a->sums == b->sums ? "" : ", and its order of sums"),
                    "%s", sheaf_dtype_name(b->dtype)),
        "--dtype %s, and --sums where that is not enough: then all are computed so",
        sheaf_dtype_torch_name(b->dtype));
}

static sheaf_status *open_served(served *v, const sheaf_model_open_options *model,
                                 const char *adapter)
{
    sheaf_model_open_options o = *model;
    o.adapter = adapter;
    o.late = true;
    sheaf_status *st = sheaf__path_name(&v->name, adapter != NULL ? adapter : model->model);
    TRY(st, sheaf_model_open(&v->model, &o));
    if (st == NULL) {
        v->no_chat = sheaf__codec_open_chat(&v->chat, &v->model->codec, model->events);
        if (v->no_chat == NULL)
            v->no_chat = sheaf__codec_check_tokenizer(&v->chat);
    }
    return st;
}

static rank_state *rank_state_of(const sheaf__engine *e, const sheaf__context *c)
{
    return &e->rank_state[c->stage * c->ranks + c->rank];
}

static sheaf_status *join_adapter(sheaf__model **out, const sheaf__model *base,
                                  const sheaf__opened *opened)
{
    sheaf__model_options o = base->options;
    o.lora = opened->lora;
    o.forms = sheaf__opened_forms(opened);
    o.like = base;
    sheaf_status *st = sheaf__model_new(out, base->context, opened->schema, &o);
    TRY(st, sheaf__model_load(*out, opened->weights, opened->adapter));
    return st;
}

static sheaf_status *open_rank(void *self, sheaf__model *model)
{
    const sheaf__engine *e = self;
    rank_state *m = rank_state_of(e, model->context);
    m->model = calloc((size_t)e->models, sizeof *m->model);
    sheaf_status *st = m->model == NULL ? sheaf__no_memory("models of adapters") : NULL;
    if (st == NULL)
        m->model[0] = model;
    for (int i = 1; i < e->models; i++) {
        sheaf__opened *opened = &e->served[i].model->opened;
        if (st == NULL)
            st = sheaf_in(join_adapter(&m->model[i], model, opened), "%s", e->served[i].name);
        st = sheaf__agree_all(model->context, st);
        TRY(st, sheaf__opened_check(opened, sheaf__model_comm(model->context)));
    }
    const int64_t length = e->served[0].model->positions;
    return TRY(st, sheaf__slots_open(&m->slots, &(sheaf__slots_options){
                                                    .model = m->model,
                                                    .models = e->models,
                                                    .places = e->places,
                                                    .length = length,
                                                    .prompt = (length + e->places - 1) / e->places,
                                                    .first_chooses = true }));
}

static sheaf_status *close_rank(void *self, sheaf__model *model)
{
    const sheaf__engine *e = self;
    rank_state *m = rank_state_of(e, model->context);
    sheaf__slots_close(&m->slots);
    for (int i = 1; i < e->models && m->model != NULL; i++)
        sheaf__model_free(m->model[i]);
    free(m->model);
    return NULL;
}

static sheaf_status *run_pass(void *self, const sheaf__slots_pass *pass);

static sheaf_status *take_lists(sheaf__engine *e)
{
    const sheaf_model *base = e->served[0].model;
    e->rank_state = calloc((size_t)(base->o.tp * base->placement.stages), sizeof *e->rank_state);
    e->running = calloc((size_t)e->places, sizeof *e->running);
    if (e->rank_state == NULL || e->running == NULL)
        return sheaf__no_memory("answers");
    return sheaf__scheduler_open(&e->scheduler,
                                 &(sheaf__scheduler_options){ .config = &base->opened.config,
                                                              .models = e->models,
                                                              .places = e->places,
                                                              .length = base->positions,
                                                              .chunk = CHUNK,
                                                              .run = run_pass,
                                                              .self = e });
}

static void *work(void *self);

/* A question may begin. */
static void wake(void *self)
{
    sheaf__engine *e = self;
    pthread_mutex_lock(&e->lock);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

sheaf_status *sheaf__engine_open(sheaf__engine **out, const sheaf__engine_options *o)
{
    sheaf__engine *e = calloc(1, sizeof *e);
    *out = NULL;
    if (e == NULL)
        return sheaf__no_memory("serving");
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    e->places = o->places;
    e->most_waiting = o->waiting;
    e->seconds = o->seconds;
    e->served = calloc((size_t)o->nadapters + 1, sizeof *e->served);
    sheaf_status *st = e->served == NULL ? sheaf__no_memory("serving") : NULL;
    for (int i = 0; i <= o->nadapters && st == NULL; i++) {
        st = open_served(&e->served[i], o->model, i == 0 ? NULL : o->adapter[i - 1]);
        e->models++;
        if (st == NULL && i > 0)
            st = check_same(&e->served[0], &e->served[i]);
    }
    TRY(st, check_names(e));
    TRY(st, sheaf__model_load_batch(e->served[0].model, e->places));
    TRY(st, take_lists(e));
    TRY(st, sheaf__model_ranks_do(e->served[0].model->ranks, open_rank, e));
    TRY(st, sheaf__decoder_open(&e->decoder, wake, e));
    if (st == NULL && sheaf__thread_start(&e->thread, work, e) != 0)
        st = sheaf__no_memory("a thread");
    e->started = st == NULL;
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
    if (e->models > 0 && e->rank_state != NULL && e->served[0].model->ranks != NULL)
        sheaf_status_free(sheaf__model_ranks_do(e->served[0].model->ranks, close_rank, e));
    sheaf__scheduler_close(e->scheduler);
    for (int i = 0; i < e->models; i++) {
        served *v = &e->served[i];
        sheaf__codec_close(&v->chat);
        sheaf_status_free(v->no_chat);
        sheaf_model_close(v->model);
        free(v->name);
    }
    free(e->served);
    free(e->rank_state);
    free(e->running);
    sheaf_status_free(e->broken);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

int sheaf__engine_models(const sheaf__engine *e)
{
    return e->models;
}

const char *sheaf__engine_name(const sheaf__engine *e, int model)
{
    return e->served[model].name;
}

sheaf_model *sheaf__engine_model(const sheaf__engine *e, int model)
{
    return e->served[model].model;
}

sheaf_status *sheaf__engine_chat(const sheaf__codec **out, const sheaf__engine *e, int model)
{
    const served *v = &e->served[model];
    *out = &v->chat;
    return v->no_chat == NULL ? NULL : sheaf_status_copy(v->no_chat);
}

/* ---- questions ---- */

static sheaf_status *load_pictures(void *self, int64_t prompt, const sheaf__picture *picture,
                                   int64_t n)
{
    const answer *a = self;
    (void)prompt;
    return sheaf__prompts_load((void *)&a->of->prompts, a->prompt, picture, n);
}

/* By the first rank, for each token: does the answer end with it? */
static bool on_token(void *self, int64_t prompt, const sheaf__continuation *output)
{
    answer *a = self;
    char *more = NULL;
    (void)prompt;
    sheaf_status *st = sheaf__answer_stream_more(&more, &a->stream, output->ids,
                                                 output->n - (output->ending == SHEAF_ENDS_TOKEN));
    if (st == NULL)
        a->of->on_delta(a->of->context, a->number,
                        &(sheaf__delta){ .output = output, .piece = more == NULL ? "" : more },
                        false);
    free(more);
    if (a->of->failed == NULL)
        a->of->failed = st;
    else
        sheaf_status_free(st);
    return a->stream.over || a->of->failed != NULL;
}

static void release_answers(sheaf__engine_request *q)
{
    const int64_t count = q->prompts.count * q->each;
    for (int64_t i = 0; i < count && q->answer != NULL; i++) {
        sheaf__answer_stream_release(&q->answer[i].stream);
        sheaf_status_free(q->answer[i].s.failed);
        free(q->answer[i].output.ids);
    }
    free(q->answer);
    q->answer = NULL;
}

/* Memory of the output: one block, which begins with the ids. */
static sheaf_status *make_room(answer *a, bool logprobs)
{
    const size_t n = (size_t)a->how.max_new, best = logprobs ? n * (size_t)a->how.best : 0;
    int32_t *at = malloc((logprobs ? 2 * n + 2 * best : n) * sizeof *at);
    a->output = (sheaf__continuation){ .ids = at };
    if (at == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "an answer of %zu tokens", n);
    if (logprobs) {
        a->output.logprob = (float *)(at + n);
        a->output.best_ids = at + 2 * n;
        a->output.best_logprob = (float *)(at + 2 * n + best);
    }
    return NULL;
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

static sheaf_status *begin_answer(answer *a, sheaf__engine_request *q, int64_t number,
                                  const sheaf__engine *e)
{
    const sheaf__answer_options *how = &q->how;
    const sheaf__prompt *prompt = &q->prompts.prompt[number / q->each];
    const int64_t positions = e->served[q->model].model->positions, left = positions - prompt->n;
    *a = (answer){ .of = q, .number = number, .prompt = number / q->each, .how = how->generate };
    if (left < 1)
        return no_room(prompt, positions);
    a->how.max_new = a->how.max_new < left ? a->how.max_new : left;
    a->how.max_length = positions;
    a->how.number = number;
    a->how.stop = a->stop;
    sheaf__codec_stops(a->stop, &a->how.nstop, &a->how.nturn, how->codec);
    a->how.on_token = on_token;
    a->how.listener = a;
    a->how.load = load_pictures;
    a->how.self = a;
    a->how.stop_now = NULL;
    a->how.events = NULL;
    a->stream = (sheaf__answer_stream){ .codec = how->codec,
                                        .laid_out = prompt->laid_out || how->codec->templated,
                                        .stop = how->stop,
                                        .nstop = how->nstop };
    a->s = (sheaf__sequence){
        .prompt = prompt, .options = &a->how, .out = &a->output, .model = q->model
    };
    sheaf_status *st =
        sheaf__batch_images_check(e->rank_state[0].model[q->model], prompt, 0, &a->how);
    return st == NULL ? make_room(a, how->logprobs) : st;
}

sheaf_status *sheaf__engine_submit(bool *full, sheaf__engine *e, sheaf__engine_request *q)
{
    const int64_t count = q->prompts.count * q->each;
    sheaf_status *st = NULL;
    *full = false;
    q->begun = q->ended = 0;
    q->dropped = false;
    q->failed = NULL;
    q->next = NULL;
    q->arrived = sheaf__seconds();
    q->answer = calloc((size_t)count, sizeof *q->answer);
    if (q->answer == NULL)
        st = sheaf__no_memory("answers");
    for (int64_t i = 0; i < count && st == NULL; i++)
        st = begin_answer(&q->answer[i], q, i, e);
    pthread_mutex_lock(&e->lock);
    if (st == NULL && e->broken != NULL)
        st = sheaf_status_copy(e->broken);
    else if (st == NULL && (e->draining || e->closing))
        st = sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "sheaf serve"), "a request to stop");
    else if (st == NULL)
        *full = e->waiting >= e->most_waiting;
    const bool taken = st == NULL && !*full;
    if (taken) {
        if (e->last != NULL)
            e->last->next = q;
        else
            e->first = q;
        e->last = q;
        q->queued = true;
        e->waiting++;
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
    while (e->waiting > 0 || e->active > 0)
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

/* ---- the worker ---- */

static bool late(const sheaf__engine *e, const sheaf__engine_request *q)
{
    return e->seconds > 0 && sheaf__seconds() - q->arrived > e->seconds;
}

/* Ends a question whose answers have all ended, or of which none will begin. */
static void finish(sheaf__engine_request *q)
{
    sheaf_status *st = q->failed;
    q->failed = NULL;
    release_answers(q);
    q->on_end(q->context, st);
}

/* The whole text, and the rest of it. */
static void send_end(answer *a)
{
    sheaf__engine_request *q = a->of;
    char *rest = NULL, *text = NULL;
    sheaf_status *st =
        q->failed != NULL || q->dropped
            ? NULL
            : sheaf__answer_stream_end(&rest, &text, &a->stream, a->output.ids,
                                       a->output.n - (a->output.ending == SHEAF_ENDS_TOKEN));
    if (st == NULL && q->failed == NULL && !q->dropped)
        q->on_delta(q->context, a->number,
                    &(sheaf__delta){
                        .output = &a->output, .piece = rest == NULL ? "" : rest, .text = text },
                    true);
    if (st != NULL)
        q->failed = st;
    free(rest);
    free(text);
}

/* An answer that is over, and has left the scheduler. */
static void leave(sheaf__engine *e, int64_t i)
{
    answer *a = e->running[i];
    sheaf__engine_request *q = a->of;
    e->running[i] = NULL;
    if (a->s.failed != NULL && q->failed == NULL) {
        q->failed = a->s.failed;
        a->s.failed = NULL;
    }
    send_end(a);
    q->ended++;
    if (q->ended == q->begun && !q->queued) {
        sheaf__decoder_drop(e->decoder, &q->pictures);
        finish(q);
    }
    pthread_mutex_lock(&e->lock);
    e->active--;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Questions that are not to be answered any more leave the queue. */
static void drop_cancelled(sheaf__engine *e)
{
    sheaf__engine_request *over = NULL, **at = &e->first;
    int64_t left = 0;
    pthread_mutex_lock(&e->lock);
    e->last = NULL;
    while (*at != NULL) {
        sheaf__engine_request *q = *at;
        const bool cancelled = q->cancelled(q->context);
        if (q->failed == NULL && late(e, q))
            q->failed = sheaf_try_this(
                sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_STOPPED, "waiting"),
                                           "an answer within %g seconds", e->seconds),
                            "%s", q->begun > 0 ? "too many answers" : "too many questions before"),
                "it again, later");
        q->dropped = q->dropped || cancelled;
        const bool stays = !q->dropped && q->failed == NULL;
        if (stays || (q->ended == q->begun && !sheaf__decoder_drop(e->decoder, &q->pictures))) {
            e->last = q;
            at = &q->next;
            continue;
        }
        *at = q->next;
        q->queued = false;
        left++;
        if (q->ended == q->begun) { /* else its last answer ends it */
            q->next = over;
            over = q;
        }
    }
    pthread_mutex_unlock(&e->lock);
    while (over != NULL) {
        sheaf__engine_request *next = over->next;
        finish(over);
        over = next;
    }
    pthread_mutex_lock(&e->lock);
    e->waiting -= left;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static void begin(sheaf__engine *e, answer *a)
{
    int64_t i = 0;
    while (e->running[i] != NULL)
        i++;
    e->running[i] = a;
    sheaf__scheduler_add(e->scheduler, &a->s);
}

/* Are its pictures there, or never will be? The lock is held. */
static bool ready(sheaf__engine *e, sheaf__engine_request *q)
{
    sheaf_status *failed;
    const bool ready = sheaf__decoder_ready(&failed, e->decoder, &q->pictures);
    if (q->failed == NULL)
        q->failed = failed;
    else
        sheaf_status_free(failed);
    return ready;
}

/* Answers begin while there are places. */
static void admit(sheaf__engine *e)
{
    sheaf__engine_request *before = NULL;
    pthread_mutex_lock(&e->lock);
    for (sheaf__engine_request **at = &e->first; *at != NULL && e->active < e->places;) {
        sheaf__engine_request *q = *at;
        const int64_t count = q->prompts.count * q->each;
        if (ready(e, q) && q->failed == NULL && !q->dropped)
            for (; q->begun < count && e->active < e->places; e->active++)
                begin(e, &q->answer[q->begun++]);
        if (q->begun < count) {
            before = q;
            at = &q->next;
            continue;
        }
        *at = q->next;
        if (e->last == q)
            e->last = before;
        q->queued = false;
        e->waiting--;
    }
    pthread_mutex_unlock(&e->lock);
}

/* A pass of the ranks. */
typedef struct job {
    const sheaf__engine *e;
    const sheaf__slots_pass *pass;
} job;

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    const job *j = self;
    return sheaf__slots_run(&rank_state_of(j->e, model->context)->slots, j->pass);
}

static sheaf_status *run_pass(void *self, const sheaf__slots_pass *pass)
{
    sheaf__engine *e = self;
    job j = { e, pass };
    sheaf_status *st = sheaf__model_ranks_do(e->served[0].model->ranks, on_rank, &j);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_PEER) {
        pthread_mutex_lock(&e->lock);
        if (e->broken == NULL)
            e->broken = sheaf_status_copy(st);
        pthread_mutex_unlock(&e->lock);
    }
    return st;
}

/* Answers that are over, or not wanted any more, leave. */
static void end_answers(sheaf__engine *e)
{
    for (int64_t i = 0; i < e->places; i++) {
        answer *a = e->running[i];
        if (a == NULL)
            continue;
        a->of->dropped = a->of->dropped || a->of->cancelled(a->of->context);
        if (!a->s.over && late(e, a->of)) {
            a->output.ending = SHEAF_ENDS_STOPPED;
            a->s.over = true;
        }
        a->s.over = a->s.over || a->of->dropped || a->of->failed != NULL;
    }
    sheaf__scheduler_leave(e->scheduler);
    for (int64_t i = 0; i < e->places; i++)
        if (e->running[i] != NULL && e->running[i]->s.over)
            leave(e, i);
}

/* Sleeps while there is nothing to compute, but looks after questions whose pictures are not there
 * yet; false: the end. The lock is held. */
static bool wait_for_work(sheaf__engine *e)
{
    enum { LOOK_NS = 50000000 };
    while (e->first == NULL && e->active == 0 && !e->closing)
        pthread_cond_wait(&e->changed, &e->lock);
    bool some = e->active > 0;
    for (sheaf__engine_request *q = e->first; q != NULL && !some; q = q->next)
        some = ready(e, q);
    if (!some && e->first != NULL) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&e->changed, &e->lock, &until);
    }
    return e->first != NULL || e->active > 0;
}

static void *work(void *self)
{
    sheaf__engine *e = self;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        const bool goes_on = wait_for_work(e);
        pthread_mutex_unlock(&e->lock);
        if (!goes_on)
            return NULL;
        drop_cancelled(e);
        admit(e);
        sheaf__scheduler_step(e->scheduler);
        end_answers(e);
    }
}
