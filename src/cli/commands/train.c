/* train.c - `sheaf train`: fine-tune a model. */
#include <jansson.h>
#include <math.h>

#include "ask.h"
#include "base/status.h"
#include "base/print.h"
#include "commands.h"
#include "comm/plugins.h"
#include "comm/process.h"
#include "cli/lib/launch.h"
#include "cli/lib/launched.h"
#include "cli/lib/processes.h"
#include "cli/lib/signals.h"
#include "library/session.h"
#include "library/train_settings.h"
#include "comm/watch/watch.h"
#include "plan/plan.h"
#include "train/usage.h"

const char cmd_train_usage[] =
    "usage: sheaf train MODEL DATA -o OUT --steps N | --epochs X [FLAG...]\n"
    "       sheaf train --resume -o OUT [--tp T]\n"
    "Fine-tunes a model with LoRA, in parts or in full, on any number of ranks; the\n"
    "result is the same bytes whatever their number. OUT then holds metrics.jsonl,\n"
    "checkpoints, and adapter/ (PEFT format) or model/ (Hugging Face format).\n";

/* Where one rank sent to and received from: bytes, and bytes a second of the time that it
 * exchanged, all its peers together. */
static json_t *peers_json(const sheaf__usage_total *one, int ranks, int me)
{
    json_t *list = json_array();
    for (int p = 0; p < ranks; p++)
        if (p != me && one->to[p] + one->from[p] > 0)
            json_array_append_new(
                list, json_pack("{s:i, s:I, s:I, s:f}", "rank", p, "sent", (json_int_t)one->to[p],
                                "received", (json_int_t)one->from[p], "bytes_per_s",
                                one->sum.exchange > 0
                                    ? (double)(one->to[p] + one->from[p]) / one->sum.exchange
                                    : 0.0));
    return list;
}

static json_t *rank_json(const sheaf__usage_total *one, int ranks, int me)
{
    json_t *memory = json_object(), *exchange = json_object();
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        json_object_set_new(memory, sheaf_plan_kind((sheaf_memory)k),
                            json_pack("{s:I, s:I}", "held", (json_int_t)one->held[k], "most",
                                      (json_int_t)one->most[k]));
    for (int t = 0; t < SHEAF__TRAFFICS; t++) {
        const sheaf__count *c = &one->exchange[t];
        json_object_set_new(exchange, sheaf__traffic_name((sheaf__traffic)t),
                            json_pack("{s:I, s:I, s:I, s:f, s:f, s:f}", "calls",
                                      (json_int_t)c->calls, "sent", (json_int_t)c->sent, "received",
                                      (json_int_t)c->received, "waiting", c->waiting, "moving",
                                      c->moving, "summing", c->summing));
    }
    return json_pack("{s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:o, s:o, s:o}",
                     "steps", (json_int_t)one->steps, "seconds", one->seconds, "compute",
                     one->sum.compute, "wait", one->sum.wait, "exchange", one->sum.exchange, "read",
                     one->sum.read, "save", one->sum.save, "sent", (json_int_t)one->sum.sent,
                     "received", (json_int_t)one->sum.received, "memory",
                     (json_int_t)one->sum.memory, "process", (json_int_t)one->sum.process, "kinds",
                     memory, "exchanges", exchange, "peers", peers_json(one, ranks, me));
}

static void add_ranks(json_t *to, const sheaf_train_result *r)
{
    json_t *list = json_array();
    for (int i = 0; i < r->ranks; i++)
        json_array_append_new(list, rank_json(&r->rank[i], r->ranks, i));
    json_object_set_new(to, "ranks", list);
    if (r->ranks > 1)
        json_object_set_new(to, "slowest", json_integer(sheaf__usage_slowest(r->rank, r->ranks)));
}

static void print_spent(const cli *cli, const sheaf_train_result *r)
{
    sheaf_text why = { 0 };
    sheaf__print(cli->out, "of a step in ms:  compute      wait  exchange      read  MiB sent;  of "
                           "the run:  saving s  MiB at most\n");
    for (int i = 0; i < r->ranks; i++) {
        const sheaf__usage_total *one = &r->rank[i];
        const double steps = (double)one->steps, ms = 1e3 / steps;
        sheaf__print(cli->out, "  rank %-10d%8.2f%10.2f%10.2f%10.2f%10.3f%23.2f%13.1f\n", i,
                     one->sum.compute * ms, one->sum.wait * ms, one->sum.exchange * ms,
                     one->sum.read * ms, (double)one->sum.sent / 1048576 / steps, one->sum.save,
                     (double)one->sum.memory / 1048576);
    }
    sheaf__usage_why(&why, r->rank, r->ranks);
    if (why.at != NULL)
        sheaf__print(cli->out, "%s\n", why.at);
    sheaf__text_release(&why);
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
        if (r->evaluated)
            json_object_update_new(object, json_pack("{s:o, s:f, s:I}", "eval_loss",
                                                     ask_json_real(r->eval_loss), "eval_accuracy",
                                                     r->eval_accuracy, "eval_tokens",
                                                     (json_int_t)r->eval_tokens));
        if (r->best_step > 0)
            json_object_update_new(object, json_pack("{s:I, s:f, s:b}", "best_step",
                                                     (json_int_t)r->best_step, "best_loss",
                                                     r->best_loss, "stopped_early", r->early));
        if (r->loss_scale > 0)
            json_object_update_new(object,
                                   json_pack("{s:I, s:f}", "skipped", (json_int_t)r->skipped,
                                             "loss_scale", r->loss_scale));
        if (o->dtype == SHEAF_BF16)
            json_object_set_new(object, "bf16_sums",
                                json_string(sheaf__sums_name(o->dtype, o->sums)));
        if (r->ranks > 0 && r->rank[0].steps > 0)
            add_ranks(object, r);
        json_dumpf(object, cli->out, JSON_COMPACT);
        fputc('\n', cli->out);
        json_decref(object);
        return;
    }
    if (r->first == r->step)
        sheaf__print(cli->out, "all %lld steps were done before\n", (long long)r->step);
    else if (isnan(r->loss))
        sheaf__print(cli->out, "%lld steps done, none with a label\n", (long long)r->step);
    else
        sheaf__print(cli->out, "%lld steps done, last loss %.6g, %.0f tokens/s\n",
                     (long long)r->step, r->loss, rate);
    if (r->evaluated)
        sheaf__print(cli->out, "evaluation: loss %.6g, %.2f %% of %lld tokens right\n",
                     r->eval_loss, 100 * r->eval_accuracy, (long long)r->eval_tokens);
    if (r->best_step > 0)
        sheaf__print(cli->out, "best:       step %lld, loss %.6g%s\n", (long long)r->best_step,
                     r->best_loss, o->use_best ? ", which is the result" : "");
    sheaf__print(cli->out, "result:     %s\ncheckpoint: %s\n", r->result, r->checkpoint);
    if (r->ranks > 1 && r->rank[0].steps > 0)
        print_spent(cli, r);
}

/* What the settings turn out to ask for. */
typedef struct start {
    const cli *cli;
    sheaf_train_options *o;
    int argc;
    char **argv;
    bool elsewhere; /* other processes did it, and ended with... */
    int code;
} start;

static sheaf_status *ready(void *self)
{
    start *s = self;
    const sheaf_train_options *o = s->o;
    sheaf_status *st =
        o->transport == SHEAF_TRANSPORT_MPI ? NULL : cli_processes_alone(&s->elsewhere, s->cli);
    if (st != NULL)
        return st;
    if (o->transport != SHEAF_TRANSPORT_MPI || o->tp * o->dp == 1 ||
        sheaf__launcher_look().name != NULL)
        return cli_signals_install();
    return cli_processes_launch(&s->elsewhere, &s->code,
                                &(cli_launch_options){ .processes = o->tp * o->dp,
                                                       .mpi = o->mpi,
                                                       .hosts = o->hosts,
                                                       .hostfile = o->hostfile,
                                                       .argc = s->argc,
                                                       .argv = s->argv });
}

/* How many ranks a run has that goes on: what fails to say so, fails again in the run itself. */
static void look_back(const sheaf__run_settings *run)
{
    const sheaf_train_options *o = run->options;
    char *stored = NULL;
    int64_t step = 0;
    sheaf_status *st = o->resume ? sheaf_train_peek(&stored, &step, o->out) : NULL;
    if (st == NULL && stored != NULL)
        st = sheaf__settings_resume(run->state, run->table, stored, o->out);
    sheaf_status_free(st);
    free(stored);
}

int cmd_train(cli *cli, int argc, char **argv)
{
    sheaf__run_settings run = { 0 };
    sheaf_train_result result = { 0 };
    start begun = { .cli = cli, .argc = argc, .argv = argv };
    const sheaf__watch_hooks watch = { .end = cli_end, .begun = cli_joined, .self = cli };
    sheaf_status *st = sheaf__run_settings_open(&run, &cli->settings, false);
    sheaf_train_options *o = begun.o = run.options;
    TRY(st, cli_parse(cli, run.table, NULL, argc, argv));
    cli_split_rank();
    if (st == NULL && o->restarts > 0 && !cli_is_supervised()) {
        int code = CLI_DONE;
        look_back(&run);
        st = cli_supervise(&code, cli, o, argc, argv);
        sheaf__run_settings_close(&run);
        return st == NULL ? code : cli_report(cli, st);
    }
    TRY(st,
        sheaf__session_run(&result, &(sheaf__session_options){ .run = &run,
                                                               .progress = cli->err,
                                                               .events = &cli->events,
                                                               .nwords = argc,
                                                               .word = (const char *const *)argv,
                                                               .control = cli_signals(),
                                                               .ready = ready,
                                                               .spent = cli_spent_before(),
                                                               .self = &begun,
                                                               .join = cli->join,
                                                               .watch = &watch }));
    if (begun.elsewhere) {
        sheaf__run_settings_close(&run);
        sheaf_status_free(st);
        sheaf_train_result_release(&result);
        return begun.code;
    }
    if (st != NULL && cli_signals_stopped_by() != NULL)
        st = sheaf_in(st, "%s", cli_signals_stopped_by());
    if (st == NULL && sheaf__all_first(cli_all(cli)))
        answer(cli, o, &result);
    sheaf__run_settings_close(&run);
    sheaf_train_result_release(&result);
    if (sheaf__all_first(cli_all(cli)))
        cli_verdict(st);
    return cli_report(cli, st);
}
