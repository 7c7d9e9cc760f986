/* trial.c - see trial.h. */
#include "library/trial.h"

#include <string.h>

#include "base/status.h"
#include "base/clock.h"
#include "comm/comm.h"
#include "library/train_settings.h"
#include "plan/fits.h"

enum { MOST = 1000 }; /* steps that tell the speed of a small model */

typedef struct trial {
    sheaf__job job;
    sheaf__trial *out;
    double seconds;
} trial;

/* The first rank's clock decides for all. */
static sheaf_status *take_steps(trial *t, sheaf__rank *rank, sheaf_comm *comm)
{
    const sheaf_train_options *o = t->job.options;
    const sheaf_schedule schedule = sheaf_train_options_schedule(o);
    const double begin = sheaf__seconds();
    const bool first_rank = sheaf_comm_rank(comm) == 0;
    sheaf_status *st = NULL;
    int over = 0;
    for (int64_t done = 0; st == NULL && over == 0; done++) {
        const double began = sheaf__seconds();
        sheaf__step_result step;
        st = sheaf__stepper_run(&step, rank->stepper, done,
                                sheaf_schedule_rate(&schedule, o->lr, done));
        if (st == NULL && first_rank && done > 0) {
            t->out->steps++;
            t->out->tokens += step.tokens;
            t->out->seconds += sheaf__seconds() - began;
        }
        over = first_rank && (done + 1 >= o->steps || done >= MOST ||
                              (done > 0 && sheaf__seconds() - begin >= t->seconds));
        TRY(st, sheaf_comm_any(comm, &over));
    }
    return st;
}

static sheaf_status *trial_rank(void *arg, const sheaf__grid *grid)
{
    trial *t = arg;
    sheaf_comm *const comm = grid->all;
    sheaf__rank rank = { 0 };
    const int me = sheaf_comm_rank(comm);
    sheaf_status *st = sheaf__rank_open(&rank, SHEAF_CPU, grid, me, &t->job);
    st = sheaf_comm_agree(comm, st);
    TRY(st, take_steps(t, &rank, comm));
    sheaf__rank_close(&rank);
    return st;
}

sheaf_status *sheaf__trial_run(sheaf__trial *out, const sheaf__question *q, double seconds,
                               const sheaf_events *events)
{
    sheaf_train_options o = q->o;
    sheaf_lora_options fresh;
    sheaf__open_options how;
    sheaf__opened opened = { 0 };
    *out = (sheaf__trial){ 0 };
    if (o.steps < 2)
        o.steps = INT64_C(1) << 40; /* rows are used again */
    trial t = { .out = out, .seconds = seconds };
    sheaf_status *st = sheaf__train_options_open(&how, &fresh, &o);
    how.for_training = true;
    TRY(st, sheaf__open_model(&opened, &how));
    if (st == NULL && opened.lora != NULL)
        st = sheaf_lora_save_also(opened.lora, opened.schema, sheaf__selected,
                                  (void *)&q->selection);
    t.job = (sheaf__job){ .options = &o,
                          .schema = opened.schema,
                          .lora = opened.lora,
                          .selection = &q->selection,
                          .train = q->sets.train,
                          .data_bytes = q->data_bytes,
                          .base = opened.weights,
                          .adapter = opened.adapter,
                          .seq = q->seq };
    TRY(st, sheaf_fits_train(&t.job, &(sheaf_fits_how){ .force = o.force, .events = events }));
    TRY(st,
        sheaf__grid_run(&(sheaf__grid_options){ .groups = o.dp, .ranks = o.tp }, trial_rank, &t));
    sheaf__opened_close(&opened);
    sheaf_lora_options_release(&fresh);
    return st;
}
