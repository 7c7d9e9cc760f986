/* follow.c - the processes of a model beside the first: sheaf/generate.h. */
#include "base/base.h"
#include "base/control.h"
#include "base/numeric_env.h"
#include "comm/all.h"
#include "infer/job.h"
#include "library/model.h"

/* A job between answers, or that of a follower. */
typedef struct job {
    sheaf_model *m;
    const atomic_int *stop;
    bool over;
} job;

static sheaf_status *follow(void *self, sheaf__model *model)
{
    job *j = self;
    return sheaf__slots_follow(
        &j->over, &(sheaf__member){ .model = &model,
                                    .models = 1,
                                    .cache = sheaf__model_rank_cache(j->m, model->context),
                                    .stop = j->stop });
}

sheaf_status *sheaf_model_follow(sheaf_model *m, sheaf_control *control)
{
    SHEAF__NUMERIC_ENV;
    job j = { .m = m, .stop = sheaf__control_stop(control) };
    sheaf_status *st = NULL;
    while (st == NULL && !j.over) {
        st = sheaf__model_ranks_do(m->ranks, follow, &j);
        if (st != NULL && sheaf_status_code(st) != SHEAF_E_PEER) {
            sheaf_status_free(st); /* the first has the same, and decides whether it goes on */
            st = NULL;
        }
    }
    return st == NULL ? sheaf__all_agree(m->all, NULL) : st;
}

static sheaf_status *wait_on_rank(void *self, sheaf__model *model)
{
    return sheaf__lead_wait(&((job *)self)->over, model->context, NULL);
}

sheaf_status *sheaf_model_wait(sheaf_model *m, bool *over)
{
    SHEAF__NUMERIC_ENV;
    job j = { .m = m };
    sheaf_status *st =
        sheaf__all_count(m->all) == 1 ? NULL : sheaf__model_ranks_do(m->ranks, wait_on_rank, &j);
    *over = j.over;
    return st;
}

static sheaf_status *end_on_rank(void *self, sheaf__model *model)
{
    return sheaf__lead_order(model->context, &(sheaf__order){ .kind = SHEAF__ORDER_END });
}

sheaf_status *sheaf_model_end(sheaf_model *m, sheaf_status *st)
{
    SHEAF__NUMERIC_ENV;
    if (sheaf__all_count(m->all) == 1)
        return st;
    sheaf_status *lost = sheaf__model_ranks_do(m->ranks, end_on_rank, NULL);
    const bool there = lost == NULL || sheaf_status_code(lost) != SHEAF_E_PEER;
    st = sheaf__first_of(st, lost);
    return there ? sheaf__all_agree(m->all, st) : st;
}
