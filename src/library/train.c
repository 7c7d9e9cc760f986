/* train.c - a run of another program's: sheaf/train.h. */
#include "library/train.h"

#include <stdlib.h>
#include <string.h>

#include "base/events.h"
#include "base/inside.h"
#include "library/session.h"
#include "library/take.h"

/* What hears of the run. */
typedef struct listener {
    const sheaf_run_train_options *o;
    atomic_int enough; /* o->step says so; not the control, which is of other runs too */
} listener;

static void hear(void *self, const sheaf_event *event)
{
    listener *l = self;
    sheaf_emit(l->o->events, event);
    if (event->kind != SHEAF_EVENT_STEP || l->o->step == NULL)
        return;
    sheaf__numbers before = sheaf__callback_begin();
    if (!l->o->step(l->o->context, &event->step))
        atomic_store(&l->enough, 1);
    sheaf__numbers_restore(&before);
}

static void give(sheaf__settings *state, const sheaf__setting *table, const char *name)
{
    state->given[sheaf__setting_find(table, name) - table] = true;
}

/* The struct's fields, as flags would give them. */
static void give_fields(sheaf__settings *state, const sheaf__setting *table, sheaf_train_options *t,
                        const sheaf_run_train_options *o)
{
    const struct {
        const char *name, *text;
        const char **value;
    } texts[] = { { "out", o->out, &t->out },
                  { "model", o->model, &t->model },
                  { "data", o->data, &t->data } };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].text != NULL) {
            *texts[i].value = texts[i].text;
            give(state, table, texts[i].name);
        }
    t->resume = o->resume;
    t->force = o->force;
    if (o->steps != 0) {
        t->steps = o->steps;
        give(state, table, "steps");
    }
    if (o->tp != 0) {
        t->tp = o->tp;
        give(state, table, "tp");
    }
    if (o->threads != 0) {
        t->threads = o->threads;
        give(state, table, "threads");
    }
}

sheaf_status *sheaf__train_take(sheaf__settings *state, sheaf__setting table[SHEAF__MAX_SETTINGS],
                                sheaf_train_options *to, const sheaf_run_train_options *from,
                                bool planning)
{
    sheaf_train_options_default(to);
    sheaf__train_settings(table, to, planning);
    if (from->steps < 0 || from->tp < 0 || from->threads < 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sheaf_run_train_options"),
                              "no number below 0");
    give_fields(state, table, to, from);
    if (from->settings == NULL)
        return NULL;
    char *text = strdup(from->settings);
    return text == NULL ? sheaf_fail(SHEAF_E_MEMORY, "settings")
                        : sheaf__settings_take(state, table, text, "settings");
}

sheaf_status *sheaf_run_train(sheaf_run_train_report *report,
                              const sheaf_run_train_options *options)
{
    SHEAF__INSIDE;
    sheaf_run_train_options o;
    sheaf_train_options t;
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    sheaf__settings state = { 0 };
    sheaf_train_result r = { 0 };
    sheaf_status *st = sheaf__take_options(&o, sizeof o, options, "sheaf_run_train_options");
    listener l = { .o = &o };
    const sheaf_events events = { hear, &l };
    if (st == NULL)
        st = sheaf__take_report(report, "sheaf_run_train_report");
    if (st == NULL)
        st = sheaf__train_take(&state, table, &t, &o, false);
    if (st == NULL)
        st = sheaf__settings_required(&state, table, !t.resume);
    if (st == NULL)
        st = sheaf__session_run(
            &r, &(sheaf__session_options){ .state = &state,
                                           .table = table,
                                           .options = &t,
                                           .events = &events,
                                           .signals = sheaf__control_signals(o.control),
                                           .enough = &l.enough });
    if (st == NULL)
        sheaf__give_report(report,
                           &(sheaf_run_train_report){ .step = r.step,
                                                      .first = r.first,
                                                      .loss = r.loss,
                                                      .seconds = r.seconds,
                                                      .tokens = r.tokens,
                                                      .padding = r.padding,
                                                      .parameters = r.parameters,
                                                      .trained = r.trained,
                                                      .adapter = t.method == SHEAF_METHOD_LORA,
                                                      .evaluated = r.evaluated,
                                                      .early = r.early,
                                                      .eval_loss = r.eval_loss,
                                                      .best_step = r.best_step,
                                                      .best_loss = r.best_loss },
                           sizeof *report);
    sheaf_train_result_release(&r);
    sheaf__settings_release(&state);
    return st;
}
