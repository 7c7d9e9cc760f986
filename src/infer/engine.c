/* engine.c - see engine.h. */
#include "infer/engine.h"

#include <time.h>

#include "base/base.h"
#include "base/clock.h"
#include "base/thread.h"
#include "infer/scheduler.h"

enum {
    CHUNK = 256,        /* rows of a prompt that are read between two tokens of the others */
    LOOK_NS = 50000000, /* between two looks at questions whose pictures are not there yet */
    ASK_NS = 200000000, /* between two questions whether other processes are to end */
};

/* One answer. */
typedef struct sheaf__engine_answer {
    sheaf__sequence s;
    sheaf__generate_options how;
    sheaf__answers text;             /* this one */
    int64_t stop[SHEAF__MOST_STOPS]; /* of `how` */
    sheaf__engine_request *of;
    int64_t prompt, number;
} answer;

struct sheaf__engine {
    sheaf__engine_options o;
    sheaf__decoder *decoder;
    /* Of the leader, which works between passes. */
    sheaf__scheduler *scheduler;
    sheaf__slots *slots;
    sheaf__model *const *model; /* [models] */
    answer **running;           /* [places], NULL: none */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* for what follows */
    pthread_cond_t changed;
    sheaf__engine_request *first, *last; /* that wait */
    int64_t waiting, active;             /* questions; answers */
    bool draining, closing, open, over;  /* over: the ranks have ended */
    bool asked;                          /* another process is to end */
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
    TRY(st, sheaf__model_load(*out, opened->weights, opened->adapter));
    return st;
}

/* The models of a rank, of which the first is that of its team. */
static sheaf_status *open_models(sheaf__model **out, const sheaf__engine *e, sheaf__model *base)
{
    sheaf_status *st = NULL;
    out[0] = base;
    for (int i = 1; i < e->o.models; i++) {
        sheaf__opened *opened = e->o.opened[i];
        if (st == NULL)
            st = sheaf_in(join_adapter(&out[i], base, opened), "%s", e->o.name[i]);
        st = sheaf__agree_all(base->context, st);
        TRY(st, sheaf__opened_check(opened, sheaf__model_comm(base->context)));
    }
    return st;
}

static void work(sheaf__engine *e);

/* The leader answers until the engine is closed. */
static sheaf_status *lead(sheaf__engine *e)
{
    pthread_mutex_lock(&e->lock);
    e->open = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    work(e);
    return sheaf__lead_order(e->slots->model->context, &(sheaf__order){ .kind = SHEAF__ORDER_END });
}

static sheaf_status *on_rank(void *self, sheaf__model *base)
{
    sheaf__engine *e = self;
    sheaf__slots slots = { 0 };
    bool over;
    const int64_t length = e->o.positions, places = e->o.places;
    sheaf__model **model = calloc((size_t)e->o.models, sizeof *model);
    sheaf_status *st = model == NULL ? sheaf__no_memory("models of adapters") : NULL;
    TRY(st, open_models(model, e, base));
    TRY(st,
        sheaf__slots_open(&slots, &(sheaf__slots_options){ .model = model,
                                                           .models = e->o.models,
                                                           .places = places,
                                                           .length = length,
                                                           .prompt = (length + places - 1) / places,
                                                           .asks = e->o.processes > 1,
                                                           .stop = e->o.stop }));
    st = sheaf__agree_all(base->context, st);
    if (st == NULL && sheaf__is_first(base->context)) {
        e->slots = &slots;
        e->model = model;
        st = lead(e);
    } else if (st == NULL) {
        st = sheaf__slots_follow(&over, base,
                                 &(sheaf__follower){ .slots = &slots, .stop = e->o.stop });
    }
    sheaf__slots_close(&slots);
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
    if (e->broken == NULL)
        e->broken = st;
    else
        sheaf_status_free(st);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    return NULL;
}

/* ---- open and close ---- */

static sheaf_status *run_pass(void *self, const sheaf__slots_pass *pass);

/* A question may begin. */
static void wake(void *self)
{
    sheaf__engine *e = self;
    pthread_mutex_lock(&e->lock);
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

/* Waits until the ranks take questions; in other processes than the first, until all is over. */
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
    e->running = calloc((size_t)o->places, sizeof *e->running);
    sheaf_status *st = e->running == NULL ? sheaf__no_memory("answers") : NULL;
    TRY(st, sheaf__scheduler_open(&e->scheduler,
                                  &(sheaf__scheduler_options){ .config = &o->opened[0]->config,
                                                               .models = o->models,
                                                               .places = o->places,
                                                               .length = o->positions,
                                                               .chunk = CHUNK,
                                                               .run = run_pass,
                                                               .self = e }));
    TRY(st, sheaf__decoder_open(&e->decoder, wake, e));
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
    sheaf__scheduler_close(e->scheduler);
    free(e->running);
    sheaf_status_free(e->broken);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/* ---- questions ---- */

static sheaf_status *load_pictures(void *self, int64_t prompt, const sheaf__picture *picture,
                                   int64_t n)
{
    const answer *a = self;
    (void)prompt;
    return sheaf__prompts_load((void *)&a->of->prompts, a->prompt, picture, n);
}

/* By the leader, for each token: does the answer end with it? */
static bool on_token(void *self, int64_t prompt, const sheaf__continuation *output)
{
    answer *a = self;
    char *more = NULL;
    bool over;
    (void)prompt;
    sheaf_status *st = sheaf__answers_more(&more, &over, &a->text, 0);
    if (st == NULL)
        a->of->on_delta(a->of->context, a->number,
                        &(sheaf__delta){ .output = output, .piece = more == NULL ? "" : more },
                        false);
    free(more);
    if (a->of->failed == NULL)
        a->of->failed = st;
    else
        sheaf_status_free(st);
    return over || a->of->failed != NULL;
}

static void release_answers(sheaf__engine_request *q)
{
    const int64_t count = q->prompts.count * q->each;
    for (int64_t i = 0; i < count && q->answer != NULL; i++) {
        sheaf__answers_release(&q->answer[i].text);
        sheaf_status_free(q->answer[i].s.failed);
    }
    free(q->answer);
    q->answer = NULL;
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
    sheaf__answer_options how = q->how;
    const sheaf__prompt *prompt = &q->prompts.prompt[number / q->each];
    const int64_t positions = e->o.positions, left = positions - prompt->n;
    *a = (answer){ .of = q, .number = number, .prompt = number / q->each, .how = how.generate };
    if (left < 1)
        return no_room(prompt, positions);
    a->how.max_new = a->how.max_new < left ? a->how.max_new : left;
    a->how.max_length = positions;
    a->how.number = number;
    a->how.stop = a->stop;
    sheaf__codec_stops(a->stop, &a->how.nstop, &a->how.nturn, how.codec);
    a->how.on_token = on_token;
    a->how.listener = a;
    a->how.load = load_pictures;
    a->how.self = a;
    a->how.stop_now = NULL;
    a->how.events = NULL;
    sheaf_status *st = sheaf__batch_images_check(e->model[q->model], prompt, 0, &a->how);
    how.generate.max_new = a->how.max_new;
    TRY(st, sheaf__answers_open(&a->text, &how, prompt, 1));
    a->s = (sheaf__sequence){
        .prompt = prompt, .options = &a->how, .out = a->text.output, .model = q->model
    };
    return st;
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
        *full = e->waiting >= e->o.waiting;
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

sheaf_status *sheaf__engine_lost(bool *over, sheaf__engine *e)
{
    pthread_mutex_lock(&e->lock);
    sheaf_status *st = e->broken == NULL ? NULL : sheaf_status_copy(e->broken);
    *over = e->asked || st != NULL;
    pthread_mutex_unlock(&e->lock);
    return st;
}

/* ---- the worker ---- */

static bool late(const sheaf__engine *e, const sheaf__engine_request *q)
{
    return e->o.seconds > 0 && sheaf__seconds() - q->arrived > e->o.seconds;
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
    if (q->failed != NULL || q->dropped)
        return;
    sheaf_status *st = sheaf__answers_end(&rest, &text, &a->text, 0);
    if (st == NULL)
        q->on_delta(q->context, a->number,
                    &(sheaf__delta){
                        .output = a->text.output, .piece = rest == NULL ? "" : rest, .text = text },
                    true);
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
                                           "an answer within %g seconds", e->o.seconds),
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
    for (sheaf__engine_request **at = &e->first; *at != NULL && e->active < e->o.places;) {
        sheaf__engine_request *q = *at;
        const int64_t count = q->prompts.count * q->each;
        if (ready(e, q) && q->failed == NULL && !q->dropped)
            for (; q->begun < count && e->active < e->o.places; e->active++)
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

/* Without a rank nothing can be answered any more. */
static sheaf_status *note_lost(sheaf__engine *e, sheaf_status *st)
{
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_PEER)
        return st;
    pthread_mutex_lock(&e->lock);
    if (e->broken == NULL)
        e->broken = sheaf_status_copy(st);
    pthread_mutex_unlock(&e->lock);
    return st;
}

static sheaf_status *run_pass(void *self, const sheaf__slots_pass *pass)
{
    sheaf__engine *e = self;
    sheaf_status *st = note_lost(e, sheaf__slots_run(e->slots, pass));
    if (e->slots->stopped) {
        pthread_mutex_lock(&e->lock);
        e->asked = true;
        pthread_mutex_unlock(&e->lock);
    }
    return st;
}

/* Answers that are over, or not wanted any more, leave. */
static void end_answers(sheaf__engine *e)
{
    for (int64_t i = 0; i < e->o.places; i++) {
        answer *a = e->running[i];
        if (a == NULL)
            continue;
        a->of->dropped = a->of->dropped || a->of->cancelled(a->of->context);
        if (!a->s.over && late(e, a->of)) {
            a->text.output->ending = SHEAF_ENDS_STOPPED;
            a->s.over = true;
        }
        a->s.over = a->s.over || a->of->dropped || a->of->failed != NULL;
    }
    sheaf__scheduler_leave(e->scheduler);
    for (int64_t i = 0; i < e->o.places; i++)
        if (e->running[i] != NULL && e->running[i]->s.over)
            leave(e, i);
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

/* Sleeps while there is nothing to compute, but looks after questions whose pictures are not there
 * yet, and returns now and then where other processes wait. The lock is held. */
static void wait_for_work(sheaf__engine *e)
{
    bool some = e->active > 0;
    if (e->first == NULL && !some && !e->closing && (e->o.processes == 1 || e->broken != NULL))
        pthread_cond_wait(&e->changed, &e->lock);
    else if (e->first == NULL && !some && !e->closing)
        sleep_for(e, ASK_NS);
    for (sheaf__engine_request *q = e->first; q != NULL && !some; q = q->next)
        some = ready(e, q);
    if (!some && e->first != NULL)
        sleep_for(e, LOOK_NS);
}

/* With nothing to compute: is another process to end? */
static void ask_others(sheaf__engine *e)
{
    bool asked;
    sheaf_status *st = sheaf__lead_wait(&asked, e->slots->model->context, NULL);
    sheaf_status_free(note_lost(e, st));
    pthread_mutex_lock(&e->lock);
    e->asked = e->asked || asked;
    pthread_mutex_unlock(&e->lock);
}

static void work(sheaf__engine *e)
{
    sheaf__activity *activity = e->slots->model->context->activity;
    for (;;) {
        pthread_mutex_lock(&e->lock);
        sheaf__activity_idle(activity, true);
        wait_for_work(e);
        sheaf__activity_idle(activity, false);
        const bool some = e->first != NULL || e->active > 0, over = e->closing && !some,
                   asks = !some && e->o.processes > 1 && e->broken == NULL;
        pthread_mutex_unlock(&e->lock);
        if (over)
            return;
        if (asks)
            ask_others(e);
        drop_cancelled(e);
        admit(e);
        sheaf__scheduler_step(e->scheduler);
        end_answers(e);
    }
}
