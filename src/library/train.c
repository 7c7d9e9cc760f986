/* train.c - a training run for a program: sheaf/train.h. */
#include "base/base.h"
#include "base/events.h"
#include "base/numeric_env.h"
#include "library/session.h"
#include "library/structs.h"

/* The callbacks of the run. */
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
    sheaf__numeric_env before = sheaf__callback_env();
    if (!l->o->step(l->o->context, &event->step))
        atomic_store(&l->enough, 1);
    sheaf__numeric_env_restore(&before);
}

/* Sets the struct's fields like flags, with the same checks. */
static sheaf_status *give_fields(const sheaf__run_settings *run, const sheaf_run_train_options *o)
{
    const struct {
        const char *name, *text;
        int64_t number; /* 0: not given */
    } fields[] = { { "out", o->out },     { "model", o->model },
                   { "data", o->data },   { "steps", NULL, o->steps },
                   { "tp", NULL, o->tp }, { "threads", NULL, o->threads } };
    sheaf_status *st = NULL;
    for (size_t i = 0; i < sizeof fields / sizeof *fields && st == NULL; i++) {
        const sheaf__setting *x = sheaf__setting_find(run->table, fields[i].name);
        char from[32], number[24];
        snprintf(from, sizeof from, "`%s`", x->name);
        snprintf(number, sizeof number, "%" PRId64, fields[i].number);
        const char *text = fields[i].number != 0 ? number : fields[i].text;
        run->state->given[x - run->table] = text != NULL;
        if (text != NULL)
            st = sheaf__setting_set(x, text, from);
    }
    run->options->resume = o->resume;
    run->options->force = o->force;
    return st;
}

sheaf_status *sheaf__train_take(sheaf__run_settings *run, sheaf__settings *state,
                                const sheaf_run_train_options *from, bool planning)
{
    sheaf_status *st = sheaf__run_settings_open(run, state, planning);
    TRY(st, give_fields(run, from));
    if (st != NULL || from->settings == NULL)
        return st;
    char *text = strdup(from->settings);
    return text == NULL ? sheaf__no_memory("settings")
                        : sheaf__settings_read(state, run->table, text, "settings");
}

/* Fills the report as far as the program's struct reaches; texts only if it can release them. Of
 * several processes the first has all the figures. */
static sheaf_status *give_report(sheaf_run_train_report *report, const sheaf_train_result *r,
                                 const sheaf_train_options *o)
{
    const size_t with_texts = offsetof(sheaf_run_train_report, text) + sizeof report->text;
    sheaf_run_train_report all = { .step = r->step,
                                   .first = r->first,
                                   .loss = r->loss,
                                   .seconds = r->seconds,
                                   .tokens = r->tokens,
                                   .padding = r->padding,
                                   .parameters = r->parameters,
                                   .trained = r->trained,
                                   .adapter = o->method == SHEAF_METHOD_LORA,
                                   .evaluated = r->evaluated,
                                   .early = r->early,
                                   .eval_loss = r->eval_loss,
                                   .best_step = r->best_step,
                                   .best_loss = r->best_loss };
    sheaf_status *st = NULL;
    if (report != NULL && report->size >= with_texts && r->result != NULL) {
        st = sheaf__train_json(&all.json, r, o);
        TRY(st, sheaf__train_text(&all.text, r, o));
    }
    if (st == NULL)
        sheaf__struct_fill(report, &all, sizeof all);
    else
        sheaf_run_train_report_release(&all);
    return st;
}

sheaf_status *sheaf__run_train(sheaf_run_train_report *report, const sheaf__run_settings *run,
                               const sheaf_run_train_options *o)
{
    SHEAF__NUMERIC_ENV;
    sheaf_train_result r = { 0 };
    listener l = { .o = o };
    const sheaf_events events = { hear, &l };
    sheaf_status *st = sheaf__settings_required(run->state, run->table, !run->options->resume);
    TRY(st, sheaf__session_run(&r, &(sheaf__session_options){ .run = run,
                                                              .events = &events,
                                                              .control = o->control,
                                                              .enough = &l.enough }));
    TRY(st, give_report(report, &r, run->options));
    sheaf_train_result_release(&r);
    return st;
}

sheaf_status *sheaf_run_train(sheaf_run_train_report *report,
                              const sheaf_run_train_options *options)
{
    SHEAF__NUMERIC_ENV;
    sheaf_run_train_options o;
    sheaf__settings state = { 0 };
    sheaf__run_settings run = { 0 };
    sheaf_status *st = sheaf__struct_read(&o, sizeof o, options, "sheaf_run_train_options");
    TRY(st, sheaf__struct_check(report, "sheaf_run_train_report"));
    TRY(st, sheaf__train_take(&run, &state, &o, false));
    TRY(st, sheaf__run_train(report, &run, &o));
    sheaf__run_settings_close(&run);
    sheaf__settings_release(&state);
    return st;
}

void sheaf_run_train_report_release(sheaf_run_train_report *report)
{
    free(report->json);
    free(report->text);
    report->json = report->text = NULL;
}
