/* plan_time.c - see plan_time.h. */
#include "plan_time.h"

#include "base/print.h"
#include "machine.h"

void cli_time_options(cli_option table[3], cli_time *t)
{
    table[0] = (cli_option){
        "time", CLI_FLAG | CLI_UNSAVED, &t->asked,
        "how long a step takes: measures some seconds of a model of three layers, or reads --profile"
    };
    table[1] =
        (cli_option){ "profile", CLI_TEXT | CLI_UNSAVED, &t->profile,
                      "with --time: a machine's profile, in place of measuring here", "FILE" };
    table[2] = (cli_option){ "save-profile", CLI_TEXT | CLI_UNSAVED, &t->save,
                             "with --time: keep what was measured, for --profile", "FILE" };
}

sheaf_status *cli_time_check(const cli_time *t)
{
    if (!t->asked && (t->profile != NULL || t->save != NULL))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"), "--%s with --time",
                              t->profile != NULL ? "profile" : "save-profile");
    if (t->profile != NULL && t->save != NULL)
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"),
                              "--profile or --save-profile, not both");
    return NULL;
}

void cli_time_release(cli_time *t)
{
    sheaf_profile_release(&t->from);
}

sheaf_status *cli_time_find(cli_time *t, const sheaf__question *q, const cli *cli)
{
    const cli_machine machine = cli_machine_look();
    sheaf_status *st = t->save != NULL ? sheaf_profile_may_replace(t->save) : NULL;
    if (st == NULL)
        st = t->profile != NULL ? sheaf_profile_read(&t->from, t->profile)
                                : sheaf__timing_measure(&t->from, q, machine.name, &cli->events);
    if (st == NULL && t->save != NULL)
        st = sheaf_profile_write(&t->from, t->save);
    if (st == NULL)
        st = sheaf__timing_predict(&t->is, q, &t->from);
    if (st == NULL && q->o.transport == SHEAF_TRANSPORT_MPI && q->o.tp * q->o.dp > 1)
        sheaf_note(&cli->events,
                   "--time: ranks were measured as threads of one process; between hosts they "
                   "wait longer (sheaf plan --cluster)");
    return st;
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

void cli_time_print(const cli *cli, const cli_time *t)
{
    const sheaf_time *is = &t->is;
    const double hours = is->step * (double)t->steps / 3600;
    part all[PARTS];
    parts_of(all, is);
    sheaf__print(cli->out, "time: %.4g ms a step, %.4g tokens/s; the first step %.4g ms\n",
                 1e3 * is->step, t->tokens / is->step, 1e3 * is->first);
    for (int i = 0; i < PARTS; i++)
        if (all[i].seconds >= 0.0005 * is->step)
            sheaf__print(cli->out, "  %-15s%10.1f ms%7.1f %%\n", all[i].name, 1e3 * all[i].seconds,
                         100 * all[i].seconds / is->step);
    sheaf__print(cli->out, "  %s on %s (%d cores, %d thread%s): %.0f %% of it at just these shapes",
                 t->profile == NULL ? "measured" : "from a profile measured", t->from.machine,
                 t->from.cores, t->from.of.threads, t->from.of.threads == 1 ? "" : "s",
                 100 * (1 - is->scaled / is->step));
    if (is->farthest > 1)
        sheaf__print(cli->out, ", the rest scaled, by up to %.3g", is->farthest);
    sheaf__print(cli->out, "; the middle measured step took %.0f %% longer than the fastest",
                 100 * t->from.spread);
    if (t->from.busy < 0.9) /* how much of that is others' nobody can tell */
        sheaf__print(cli->out, ", in which threads computed for %.0f %% of their time",
                     100 * t->from.busy);
    fputc('\n', cli->out);
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

json_t *cli_time_json(const cli_time *t)
{
    const sheaf_time *is = &t->is;
    part all[PARTS];
    json_t *seconds = json_object();
    parts_of(all, is);
    for (int i = 0; i < PARTS; i++)
        json_object_set_new(seconds, all[i].key, json_real(all[i].seconds));
    json_t *object = json_pack(
        "{s:f, s:f, s:f, s:f, s:o, s:f, s:f, s:f, s:f, s:s, s:i, s:i, s:s}", "step", is->step,
        "first_step", is->first, "tokens", t->tokens, "tokens_per_s", t->tokens / is->step,
        "seconds", seconds, "own_share", 1 - is->scaled / is->step, "farthest", is->farthest,
        "spread", t->from.spread, "busy", t->from.busy, "machine", t->from.machine, "cores",
        t->from.cores, "threads", t->from.of.threads, "dtype", t->from.of.dtype);
    if (t->steps > 0) {
        json_object_set_new(object, "steps", json_integer((json_int_t)t->steps));
        json_object_set_new(object, "hours", json_real(is->step * (double)t->steps / 3600));
    }
    return object;
}
