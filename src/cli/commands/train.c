/* train.c - `sheaf train`: fine-tune a model. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "ask.h"
#include "base/file.h"
#include "base/print.h"
#include "commands.h"
#include "monitor/monitor.h"
#include "monitor/provenance.h"
#include "places.h"
#include "cli/lib/shared.h"
#include "plan/fits.h"
#include "cli/lib/signals.h"
#include "train/train.h"
#include "train_flags.h"

const char cmd_train_usage[] =
    "usage: sheaf train --model DIR --data FILE --out DIR --steps N [flags]\n"
    "       sheaf train --resume --out DIR [--tp T]\n"
    "Fine-tunes a model with LoRA, in parts or in full, on any number of ranks; the\n"
    "result is the same bytes whatever their number. OUT then holds metrics.jsonl,\n"
    "checkpoints, and adapter/ (PEFT form) or model/ (Hugging Face form).\n";

/* Events go to the monitor once it is open, to the command's own lines before. */
typedef struct session {
    cli *cli;
    int nwords;
    const char *const *word; /* of the command line */
    sheaf_train_options *options;
    const cli_option *table;    /* of the options */
    char *stored, *fixed, *all; /* settings of the run as it began (NULL: it begins now); of this
                                   one, see train/train.h */
    char *base;                 /* what the run begins from, for run.json */
    sheaf_monitor *early;       /* of what goes on before OUT exists */
    sheaf_monitor *monitor;
} session;

static void forward_event(void *self, const sheaf_event *event)
{
    const session *s = self;
    sheaf_monitor *monitor = s->monitor != NULL ? s->monitor : s->early;
    sheaf_emit(monitor != NULL ? sheaf_monitor_events(monitor) : &s->cli->events, event);
}

static sheaf_status *write_settings(session *s)
{
    free(s->fixed);
    free(s->all);
    s->fixed = s->all = NULL;
    sheaf_status *st = cli_settings_text(&s->fixed, s->table, true);
    return st == NULL ? cli_settings_text(&s->all, s->table, false) : st;
}

/* A new run's settings name the template that was chosen for it: they say all that the run depends
 * on. One that goes on keeps the settings it began with, also where they name none: its checkpoints
 * hold the same. */
static sheaf_status *chosen(void *self, const char *prompt_template, const char **settings,
                            const char **recipe)
{
    session *s = self;
    const bool given =
        s->options->prompt_template != NULL && s->options->prompt_template[0] != '\0';
    if (prompt_template == NULL || given || s->stored != NULL)
        return NULL;
    s->options->prompt_template = prompt_template;
    sheaf_status *st = write_settings(s);
    *settings = s->fixed;
    *recipe = s->all;
    return st;
}

static sheaf_status *take_base(void *self, const char *json)
{
    session *s = self;
    s->base = strdup(json);
    return s->base == NULL ? sheaf_fail(SHEAF_E_MEMORY, "run.json") : NULL;
}

static sheaf_status *planned(void *self, const struct sheaf__job *job)
{
    const session *s = self;
    const sheaf_events events = { forward_event, self };
    return sheaf_fits_train(job,
                            &(sheaf_fits_how){ .force = s->options->force, .events = &events });
}

static sheaf_status *begin(void *self, int64_t keep_steps)
{
    session *s = self;
    char *path = NULL;
    sheaf_status_free(sheaf_monitor_close(s->early)); /* it holds no file */
    s->early = NULL;
    if (asprintf(&path, "%s/metrics.jsonl", s->options->out) < 0)
        return sheaf_fail(SHEAF_E_MEMORY, "metrics.jsonl");
    const sheaf_train_options *o = s->options;
    const sheaf_provenance run = { .step = keep_steps,
                                   .ranks = o->tp,
                                   .threads = o->threads,
                                   .transport = "threads",
                                   .nwords = s->nwords,
                                   .word = s->word,
                                   .base = s->base };
    char *provenance = NULL;
    sheaf_status *st = sheaf_monitor_open(
        &s->monitor, &(sheaf_monitor_options){
                         .progress = s->cli->err, .metrics = path, .keep_steps = keep_steps });
    if (st == NULL && asprintf(&provenance, "%s/run.json", o->out) < 0) {
        provenance = NULL;
        st = sheaf_fail(SHEAF_E_MEMORY, "run.json");
    }
    if (st == NULL)
        st = sheaf_provenance_add(provenance, &run, &s->cli->events);
    free(provenance);
    free(path);
    return st;
}

static sheaf_status *before_save(void *self)
{
    return sheaf_monitor_sync(((session *)self)->monitor);
}

static void answer(const cli *cli, const sheaf_train_options *o, const sheaf_train_result *r)
{
    const double rate = r->seconds > 0 ? (double)r->tokens / r->seconds : 0;
    const double share =
        r->parameters == 0 ? 0 : (double)r->trained / (double)(r->parameters + r->added);
    if (cli->json) {
        json_t *object = json_pack(
            "{s:I, s:I, s:o, s:f, s:I, s:f, s:f, s:I, s:I, s:f, s:I, s:o, s:o}", "step",
            (json_int_t)r->step, "resumed_at", (json_int_t)r->first, "loss", ask_json_real(r->loss),
            "seconds", r->seconds, "tokens", (json_int_t)r->tokens, "tokens_per_s", rate, "padding",
            r->padding, "parameters", (json_int_t)r->parameters, "trained", (json_int_t)r->trained,
            "trained_share", share, "trained_bytes", (json_int_t)(4 * r->trained), "result",
            ask_json(r->result), "checkpoint", ask_json(r->checkpoint));
        if (o->dtype == SHEAF_BF16)
            json_object_set_new(object, "bf16_sums", json_string(cli_sums_name(o->dtype, o->sums)));
        json_dumpf(object, cli->out, JSON_COMPACT);
        fputc('\n', cli->out);
        json_decref(object);
        return;
    }
    if (r->first == r->step)
        sheaf__print(cli->out, "all %lld steps were done before\n", (long long)r->step);
    else
        sheaf__print(cli->out, "%lld steps done, last loss %.6g, %.0f tokens/s\n",
                     (long long)r->step, r->loss, rate);
    sheaf__print(cli->out, "result:     %s\ncheckpoint: %s\n", r->result, r->checkpoint);
}

/* Is nothing missing that a new run needs? */
static bool has_all(const cli *cli, const cli_option *table)
{
    sheaf_status *st = cli_check_required(cli, table, true);
    sheaf_status_free(st);
    return st == NULL;
}

/* No error, as a run may be stopped and go on with more steps, but seldom meant. */
static void warn_of_warmup(const cli *cli, const sheaf_train_options *o)
{
    const sheaf_schedule schedule = sheaf_train_options_schedule(o);
    if (o->warmup >= o->steps)
        sheaf_warn(
            &cli->events,
            "--warmup %lld is not over after --steps %lld: the learning rate ends at %.3g of --lr %g",
            (long long)o->warmup, (long long)o->steps,
            sheaf_schedule_rate(&schedule, 1, o->steps - 1), o->lr);
}

int cmd_train(cli *cli, int argc, char **argv)
{
    sheaf_train_options o;
    sheaf_train_options_default(&o);
    cli_option table[CLI_MAX_OPTIONS];
    train_flags(table, &o, false);
    session s = {
        .cli = cli, .nwords = argc, .word = (const char *const *)argv, .options = &o, .table = table
    };
    const sheaf_events events = { forward_event, &s };
    const sheaf_train_hooks hooks = { .begin = begin,
                                      .base = take_base,
                                      .chosen = chosen,
                                      .planned = planned,
                                      .events = &events,
                                      .before_save = before_save,
                                      .self = &s,
                                      .signals = cli_signals() };
    sheaf_train_result result = { 0 };
    int64_t step = 0;
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL && o.resume)
        st = sheaf_train_peek(&s.stored, &step, o.out);
    if (st == NULL && o.resume && s.stored == NULL &&
        (!has_all(cli, table) || sheaf__path_kind(o.out) != SHEAF_PATH_DIR))
        st = places_no_run(o.out);
    if (st == NULL && s.stored != NULL)
        st = cli_settings_resume(cli, table, s.stored, o.out);
    if (st == NULL && s.stored != NULL)
        train_flags_resumed(cli, table, &o);
    if (st == NULL)
        st = train_flags_check(cli, table, &o);
    if (st == NULL &&
        s.stored ==
            NULL) /* one that goes on keeps what it began with, also where that has no name */
        o.sums = cli_sums_of(o.sums, SHEAF_SUMS_UNNAMED, o.dtype);
    if (st == NULL)
        warn_of_warmup(cli, &o);
    if (st == NULL)
        st = places_begin(cli, table, &o);
    if (st == NULL)
        st = write_settings(&s);
    if (st == NULL && s.stored != NULL)
        st = places_find(cli, table, &o, o.out, true);
    if (st == NULL) {
        st = cli_signals_install();
        if (st == NULL)
            st = sheaf_monitor_open(&s.early, &(sheaf_monitor_options){ .progress = cli->err });
        if (st == NULL)
            st = sheaf_train(&result, &o, s.fixed, s.all, &hooks);
        if (st != NULL && cli_signals_stopped_by() != NULL)
            st = sheaf_in(st, "%s", cli_signals_stopped_by());
    }
    sheaf_status_free(sheaf_monitor_close(s.early));
    sheaf_status *closed = sheaf_monitor_close(s.monitor);
    if (st == NULL)
        st = closed;
    else
        sheaf_status_free(closed);
    if (st == NULL)
        answer(cli, &o, &result);
    sheaf_train_result_release(&result);
    free(s.base);
    free(s.stored);
    free(s.fixed);
    free(s.all);
    return cli_report(cli, st);
}
