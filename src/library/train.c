/* train.c - a run of another program's: sheaf/train.h. */
#include "base/base.h"
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

/* As the flag would: what it refuses is refused. */
static sheaf_status *give(sheaf__settings *state, const sheaf__setting *table, const char *name,
                          const char *text)
{
    const sheaf__setting *o = sheaf__setting_find(table, name);
    char from[32];
    snprintf(from, sizeof from, "--%s", name);
    state->given[o - table] = true;
    return sheaf__setting_set(o, text, from);
}

static sheaf_status *give_number(sheaf__settings *state, const sheaf__setting *table,
                                 const char *name, int64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    return value == 0 ? NULL : give(state, table, name, text);
}

/* The struct's fields, as flags would give them. */
static sheaf_status *give_fields(sheaf__settings *state, const sheaf__setting *table,
                                 sheaf_train_options *t, const sheaf_run_train_options *o)
{
    const struct {
        const char *name, *text;
    } texts[] = { { "out", o->out }, { "model", o->model }, { "data", o->data } };
    const struct {
        const char *name;
        int64_t value;
    } numbers[] = { { "steps", o->steps }, { "tp", o->tp }, { "threads", o->threads } };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && st == NULL; i++)
        if (texts[i].text != NULL)
            st = give(state, table, texts[i].name, texts[i].text);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers && st == NULL; i++)
        st = give_number(state, table, numbers[i].name, numbers[i].value);
    t->resume = o->resume;
    t->force = o->force;
    return st;
}

sheaf_status *sheaf__train_take(sheaf__settings *state, sheaf__setting table[SHEAF__MAX_SETTINGS],
                                sheaf_train_options *to, const sheaf_run_train_options *from,
                                bool planning)
{
    sheaf_train_options_default(to);
    sheaf__train_settings(table, to, planning);
    sheaf_status *st = give_fields(state, table, to, from);
    if (st != NULL || from->settings == NULL)
        return st;
    char *text = strdup(from->settings);
    return text == NULL ? sheaf__no_memory("settings")
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
    TRY(st, sheaf__take_report(report, "sheaf_run_train_report"));
    TRY(st, sheaf__train_take(&state, table, &t, &o, false));
    TRY(st, sheaf__settings_required(&state, table, !t.resume));
    TRY(st, sheaf__session_run(&r, &(sheaf__session_options){ .state = &state,
                                                              .table = table,
                                                              .options = &t,
                                                              .events = &events,
                                                              .control = o.control,
                                                              .enough = &l.enough }));
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
