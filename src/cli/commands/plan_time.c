/* plan_time.c - see plan_time.h. */
#include "plan_time.h"

#include <string.h>

#include "base/status.h"
#include "base/print.h"
#include "comm/process.h"
#include "machine.h"

void cli_time_options(cli_option table[4], cli_time *t)
{
    table[0] = (cli_option){
        "time", CLI_FLAG | CLI_UNSAVED | CLI_COMMON, &t->asked,
        "how long a step takes, or with --place prompts and tokens: measures some seconds of a model of three layers, or reads --profile"
    };
    table[1] =
        (cli_option){ "profile", CLI_TEXT | CLI_UNSAVED, &t->profile,
                      "with --time: a machine's profile, in place of measuring here", "FILE" };
    table[2] = (cli_option){ "save-profile", CLI_TEXT | CLI_UNSAVED, &t->save,
                             "with --time: keep what was measured, for --profile", "FILE" };
    table[3] = (cli_option){
        "link", CLI_TEXT | CLI_UNSAVED, &t->link_text,
        "with --time: ranks are elsewhere, latency=5us,bandwidth=12GB/s between them; one of them is measured, by itself",
        "L"
    };
}

bool cli_time_joins(const cli_time *t, const sheaf_train_options *o)
{
    int count = 0;
    return t->asked && t->profile == NULL && t->link_text == NULL && o->tp * o->dp > 1 &&
           o->transport == SHEAF_TRANSPORT_MPI && sheaf__process_launched(&count, NULL) != NULL &&
           count > 1;
}

static sheaf_status *check_file(const char *flag, const char *path)
{
    if (path == NULL || path[0] != '\0')
        return NULL;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", flag), "a file"), "nothing");
}

sheaf_status *cli_time_check(cli_time *t, const sheaf_train_options *o, bool generates)
{
    const char *alone = t->profile != NULL     ? "profile"
                        : t->save != NULL      ? "save-profile"
                        : t->link_text != NULL ? "link"
                                               : NULL;
    if (!t->asked && alone != NULL)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"), "--%s with --time", alone),
                        "no --time"),
            "--time beside it, or no --%s", alone);
    sheaf_status *st = check_file("--profile", t->profile);
    TRY(st, check_file("--save-profile", t->save));
    if (st != NULL)
        return st;
    if (t->profile != NULL && t->save != NULL)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"),
                                       "--profile or --save-profile, not both"),
                        "both"),
            "--save-profile alone, which measures, or --profile alone, which reads what was");
    if (t->link_text != NULL && o->tp * o->dp == 1)
        return sheaf_try_this(sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--link"),
                                                         generates ? "several ranks, --tp"
                                                                   : "several ranks, --tp or --dp"),
                                          "one"),
                              "--tp 2, or no --link: one rank waits for none");
    return t->link_text == NULL ? NULL : sheaf_cluster_link_read(&t->link, t->link_text, "--link");
}

void cli_time_release(cli_time *t)
{
    sheaf_profile_release(&t->found.from);
    sheaf_status_free(t->found.unsaved);
}

sheaf_status *cli_time_unsaved(cli_time *t)
{
    sheaf_status *st = t->found.unsaved;
    t->found.unsaved = NULL;
    return sheaf_in(st, "--save-profile");
}

sheaf_status *cli_time_find(cli_time *t, const sheaf__question *q, const cli *cli)
{
    const cli_machine machine = cli_machine_look();
    sheaf_status *st = sheaf__timing_find(
        &t->found, q,
        &(sheaf__timing_asked){ .profile = t->profile,
                                .save = t->save,
                                .how = { .machine = machine.name,
                                         .link = t->link_text != NULL ? &t->link : NULL,
                                         .events = &cli->events } });
    if (st == NULL && q->o.transport == SHEAF_TRANSPORT_MPI && q->o.tp * q->o.dp > 1 &&
        strcmp(t->found.from.of.ranks, "threads") == 0)
        sheaf_note(&cli->events,
                   "--time: ranks were measured as threads of one process; between hosts they "
                   "wait longer: --link says how long, and under mpirun processes are measured");
    return sheaf_in(st, "--time");
}

typedef struct part {
    const char *name, *key;
    double seconds;
} part;

enum { PARTS = SHEAF__WORK_KINDS + 3 };

static void parts_of(part out[PARTS], const sheaf_time *is)
{
    const part all[PARTS] = {
        { "products", "products", is->kind[SHEAF__WORK_PRODUCTS] },
        { "attention", "attention", is->kind[SHEAF__WORK_ATTENTION] },
        { "head and loss", "head", is->kind[SHEAF__WORK_HEAD] },
        { "element-wise", "elements", is->kind[SHEAF__WORK_ELEMENTS] },
        { "optimizer", "optimizer", is->update },
        { "reading", "beside", is->beside },
        { "waiting", "waiting", is->waiting },
    };
    for (int i = 0; i < PARTS; i++)
        out[i] = all[i];
}

static void print_parts(const cli *cli, const sheaf_time *is)
{
    part all[PARTS];
    parts_of(all, is);
    for (int i = 0; i < PARTS; i++)
        if (all[i].seconds >= 0.0005 * is->step)
            sheaf__print(cli->out, "  %-15s%10.4g ms%7.1f %%\n", all[i].name, 1e3 * all[i].seconds,
                         100 * all[i].seconds / is->step);
    if (is->exchange.exchanges > 0)
        sheaf__print(cli->out, "  %-15s%10llu times, %.4g MiB sent, %.4g received by one rank\n",
                     "exchanging", (unsigned long long)is->exchange.exchanges,
                     (double)is->exchange.sent / 1048576, (double)is->exchange.received / 1048576);
}

/* Where the figures come from, and how far they carry. */
static void print_source(const cli *cli, const cli_time *t)
{
    const sheaf_time *is = t->found.next.step > 0 ? &t->found.next : &t->found.is;
    sheaf__print(cli->out, "  %s on %s (%d cores, %d thread%s): %.0f %% of it at just these shapes",
                 t->profile == NULL ? "measured" : "from a profile measured", t->found.from.machine,
                 t->found.from.cores, t->found.from.of.threads,
                 t->found.from.of.threads == 1 ? "" : "s", 100 * (1 - is->scaled / is->step));
    if (is->farthest > 1)
        sheaf__print(cli->out, ", the rest scaled, by up to %.3g", is->farthest);
    if (t->link_text != NULL)
        sheaf__print(cli->out, ", rank %d by itself, waiting by --link", t->found.rank);
    else if (strcmp(t->found.from.of.ranks, "mpi") == 0)
        sheaf__print(cli->out, ", with ranks as processes");
    sheaf__print(cli->out, "; the middle measured %s took %.0f %% longer than the fastest",
                 t->found.next.step > 0 ? "token" : "step", 100 * t->found.from.spread);
    if (t->found.from.busy < 0.9) /* how much of that is others' nobody can tell */
        sheaf__print(cli->out, ", in which threads computed for %.0f %% of their time",
                     100 * t->found.from.busy);
    fputc('\n', cli->out);
}

static double all_answers(const cli_time *t)
{
    return t->found.is.step + t->found.next.step * (double)(t->found.max_new - 1);
}

static void print_answers(const cli *cli, const cli_time *t)
{
    const double each = t->found.tokens / (double)t->found.batch;
    sheaf__print(cli->out,
                 "time: %lld prompt%s of %.0f tokens in %.4g ms, %.4g tokens/s; the first time "
                 "%.4g ms\n",
                 (long long)t->found.batch, t->found.batch == 1 ? "" : "s", each,
                 1e3 * t->found.is.step, t->found.tokens / t->found.is.step,
                 1e3 * t->found.is.first);
    print_parts(cli, &t->found.is);
    sheaf__print(cli->out,
                 "a token of each: %.4g ms, %.4g tokens/s; %lld of them after a prompt: %.4g s\n",
                 1e3 * t->found.next.step, (double)t->found.batch / t->found.next.step,
                 (long long)t->found.max_new, all_answers(t));
    print_parts(cli, &t->found.next);
    print_source(cli, t);
}

void cli_time_print(const cli *cli, const cli_time *t)
{
    const sheaf_time *is = &t->found.is;
    const double hours = is->step * (double)t->steps / 3600;
    if (t->found.next.step > 0) {
        print_answers(cli, t);
        return;
    }
    sheaf__print(cli->out, "time: %.4g ms a step, %.4g tokens/s; the first step %.4g ms\n",
                 1e3 * is->step, t->found.tokens / is->step, 1e3 * is->first);
    print_parts(cli, is);
    print_source(cli, t);
    if (t->steps > 0)
        sheaf__print(cli->out, "  %lld step%s would take %.3g %s\n", (long long)t->steps,
                     t->steps == 1 ? "" : "s",
                     hours < 1.0 / 60 ? 3600 * hours
                     : hours < 2      ? 60 * hours
                                      : hours,
                     hours < 1.0 / 60 ? "seconds"
                     : hours < 2      ? "minutes"
                                      : "hours");
}

static json_t *seconds_json(const sheaf_time *is)
{
    part all[PARTS];
    json_t *seconds = json_object();
    parts_of(all, is);
    for (int i = 0; i < PARTS; i++)
        json_object_set_new(seconds, all[i].key, json_real(all[i].seconds));
    return seconds;
}

static json_t *exchange_json(const cli_time *t, const sheaf_time *is)
{
    json_t *all =
        json_pack("{s:I, s:I, s:I}", "exchanges", (json_int_t)is->exchange.exchanges, "sent",
                  (json_int_t)is->exchange.sent, "received", (json_int_t)is->exchange.received);
    if (t->link_text != NULL) {
        json_object_set_new(all, "latency", json_real(t->link.latency));
        json_object_set_new(all, "bandwidth", json_real(t->link.bandwidth));
    }
    return all;
}

/* What a step, or a token of each sequence, says of itself. */
static void add_about(json_t *to, const cli_time *t, const sheaf_time *is)
{
    json_t *about = json_pack(
        "{s:o, s:f, s:f, s:f, s:f, s:s, s:i, s:i, s:s, s:s, s:o}", "seconds", seconds_json(is),
        "own_share", 1 - is->scaled / is->step, "farthest", is->farthest, "spread",
        t->found.from.spread, "busy", t->found.from.busy, "machine", t->found.from.machine, "cores",
        t->found.from.cores, "threads", t->found.from.of.threads, "dtype", t->found.from.of.dtype,
        "ranks", t->found.from.of.ranks, "exchange", exchange_json(t, is));
    if (t->link_text != NULL)
        json_object_set_new(about, "rank", json_integer(t->found.rank));
    json_object_update(to, about);
    json_decref(about);
}

static json_t *answers_json(const cli_time *t)
{
    json_t *object = json_pack(
        "{s:f, s:f, s:f, s:f, s:f, s:f, s:I, s:I, s:f, s:o, s:o}", "prompt", t->found.is.step,
        "first_prompt", t->found.is.first, "prompt_tokens", t->found.tokens, "prompt_tokens_per_s",
        t->found.tokens / t->found.is.step, "token", t->found.next.step, "tokens_per_s",
        (double)t->found.batch / t->found.next.step, "batch", (json_int_t)t->found.batch, "max_new",
        (json_int_t)t->found.max_new, "all", all_answers(t), "prompt_seconds",
        seconds_json(&t->found.is), "prompt_exchange", exchange_json(t, &t->found.is));
    add_about(object, t, &t->found.next);
    return object;
}

json_t *cli_time_json(const cli_time *t)
{
    const sheaf_time *is = &t->found.is;
    if (t->found.next.step > 0)
        return answers_json(t);
    json_t *object =
        json_pack("{s:f, s:f, s:f, s:f}", "step", is->step, "first_step", is->first, "tokens",
                  t->found.tokens, "tokens_per_s", t->found.tokens / is->step);
    add_about(object, t, is);
    if (t->steps > 0) {
        json_object_set_new(object, "steps", json_integer((json_int_t)t->steps));
        json_object_set_new(object, "hours", json_real(is->step * (double)t->steps / 3600));
    }
    return object;
}
