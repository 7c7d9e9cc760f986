/* ranks.c - see ranks.h. */
#include "models/ranks.h"

#include <pthread.h>

#include "base/base.h"
#include "base/thread.h"
#include "comm/all.h"

struct sheaf__model_ranks {
    const sheaf__opened *opened;
    sheaf__team_options options;
    pthread_t thread;
    pthread_mutex_t turn; /* held by the caller */
    pthread_mutex_t lock; /* for all members below */
    pthread_cond_t changed;
    int64_t posted;          /* calls so far; each rank compares with its own count */
    int ranks, loaded, done; /* done: ranks that finished the last call */
    bool closing, over;      /* over: all ranks have ended */
    pthread_t telling;       /* of the first rank once loaded, which runs callbacks */
    sheaf_status *why;       /* why they ended, or the result of the last call */
    sheaf_status *(*work)(void *self, sheaf__model *model);
    void *self;
};

/* The caller gets the first rank's status; the others' are equal. */
static void finish(sheaf__model_ranks *c, sheaf_status *st, bool first)
{
    if (first)
        c->why = st;
    else
        sheaf_status_free(st);
    c->done++;
    pthread_cond_broadcast(&c->changed);
}

static sheaf_status *on_rank(void *self, sheaf__model *model)
{
    sheaf__model_ranks *c = self;
    const bool first = sheaf__team_keeps_result(model->context);
    int64_t did = 0;
    pthread_mutex_lock(&c->lock);
    if (first)
        c->telling = pthread_self();
    c->loaded++;
    pthread_cond_broadcast(&c->changed);
    for (;;) {
        while (c->posted == did && !c->closing)
            pthread_cond_wait(&c->changed, &c->lock);
        if (c->posted == did)
            break;
        did = c->posted;
        pthread_mutex_unlock(&c->lock);
        sheaf_status *st = sheaf__agree_groups(model->context, c->work(c->self, model));
        pthread_mutex_lock(&c->lock);
        finish(c, st, first);
    }
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static void *run(void *self)
{
    sheaf__model_ranks *c = self;
    sheaf_status *st = sheaf__team_run(c->opened, &c->options, on_rank, c);
    pthread_mutex_lock(&c->lock);
    c->over = true;
    c->why = sheaf__first_of(c->why, st);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

static sheaf_status *take_why(sheaf__model_ranks *c)
{
    sheaf_status *st = c->why;
    c->why = NULL;
    return st;
}

sheaf_status *sheaf__model_ranks_open(sheaf__model_ranks **out, const sheaf__opened *opened,
                                      const sheaf__team_options *options)
{
    sheaf__placement place;
    sheaf_status *st =
        sheaf_in(sheaf__placement_read(&place, options->place, opened->schema), "place");
    sheaf__model_ranks *c = st == NULL ? calloc(1, sizeof *c) : NULL;
    *out = NULL;
    if (c == NULL)
        return st != NULL ? st : sheaf__no_memory("ranks of a model");
    c->opened = opened;
    c->options = *options;
    c->ranks = options->ranks * place.stages * (options->groups > 0 ? options->groups : 1);
    if (c->ranks == sheaf__all_count(c->options.all)) /* of which one is in this process */
        c->ranks = 1;
    pthread_mutex_init(&c->turn, NULL);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    if (sheaf__thread_start(&c->thread, run, c) != 0) {
        pthread_cond_destroy(&c->changed);
        pthread_mutex_destroy(&c->lock);
        pthread_mutex_destroy(&c->turn);
        free(c);
        return sheaf__no_memory("a thread");
    }
    pthread_mutex_lock(&c->lock);
    while (c->loaded < c->ranks && !c->over)
        pthread_cond_wait(&c->changed, &c->lock);
    if (c->over)
        st = take_why(c);
    pthread_mutex_unlock(&c->lock);
    if (st == NULL)
        *out = c;
    else
        sheaf__model_ranks_close(c);
    return st;
}

sheaf_status *sheaf__model_ranks_do(sheaf__model_ranks *c,
                                    sheaf_status *(*work)(void *self, sheaf__model *model),
                                    void *self)
{
    pthread_mutex_lock(&c->lock);
    const bool itself = !c->over && pthread_equal(pthread_self(), c->telling);
    pthread_mutex_unlock(&c->lock);
    if (itself) { /* it would wait for itself */
        sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "a model that answers");
        sheaf_expected(st, "its next question when this answer is there");
        return sheaf_found(st, "one that its own on_token or on_text asks");
    }
    pthread_mutex_lock(&c->turn);
    pthread_mutex_lock(&c->lock);
    c->work = work;
    c->self = self;
    c->done = 0;
    c->posted++;
    pthread_cond_broadcast(&c->changed);
    while (c->done < c->ranks && !c->over)
        pthread_cond_wait(&c->changed, &c->lock);
    sheaf_status *st = take_why(c);
    if (st == NULL && c->done < c->ranks)
        st = sheaf_fail(SHEAF_E_PEER, "the ranks of this model are gone");
    pthread_mutex_unlock(&c->lock);
    pthread_mutex_unlock(&c->turn);
    return st;
}

void sheaf__model_ranks_close(sheaf__model_ranks *c)
{
    if (c == NULL)
        return;
    pthread_mutex_lock(&c->lock);
    c->closing = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    pthread_join(c->thread, NULL);
    sheaf_status_free(take_why(c));
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    pthread_mutex_destroy(&c->turn);
    free(c);
}
