/* plan.c - `sheaf plan`: what a training run would need, before it is started. */

#include "commands.h"
#include "plan_print.h"
#include "base/base.h"
#include "cli/lib/hosts.h"
#include "cli/lib/processes.h"
#include "models/placement.h"
#include "library/run_model.h"
#include "library/train_settings.h"

const char cmd_plan_usage[] =
    "usage: sheaf plan MODEL [DATA] [flags of train]\n"
    "       sheaf plan --config config.json [flags of train]\n"
    "Bytes per rank by kind, operations and communication of one training step, from the\n"
    "model's config alone: the real step runs on a device without memory. With --memory,\n"
    "the first setting that fits the machine, or with --transport mpi a host: fewer ranks\n"
    "first, then with --checkpointing, then with smaller micro-batches, then with shorter\n"
    "rows; or by how much it misses. With --data also steps and tokens, and with --trial\n"
    "hours, from a minute of real steps. With --time, how long a step takes, from seconds\n"
    "of measuring. With --table, every number of ranks, as Markdown: of this setting, or of all three methods.\n"
    "With --place, generation: --micro-batch sequences of --seq tokens, --max-new of them the\n"
    "answer's, layers on stages.\n";

/* ---- what the data mean ---- */

static void count_work(cli_plan *q)
{
    const sheaf__subset *set = &q->ask.sets.train;
    const sheaf_train_options *o = &q->ask.o;
    const int64_t rows = o->micro_batch * o->accumulate;
    cli_plan_work *w = &q->work;
    w->rows = sheaf__subset_rows(set);
    for (int64_t i = 0; i < w->rows; i++) {
        const int64_t row = sheaf__subset_row(set, i, 0, false);
        w->tokens += sheaf_data_tokens(set->data, &row, 1);
        w->labels += sheaf_data_labels(set->data, &row, 1);
    }
    w->epoch_steps = (w->rows + rows - 1) / rows;
    w->steps = q->ask.whole ? w->epoch_steps : o->steps;
    w->all_tokens = (double)w->tokens * (double)w->steps * (double)rows / (double)w->rows;
}

static sheaf_status *try_speed(cli_plan *q, const sheaf_events *events)
{
    enum { SECONDS = 60 };
    cli_plan_work *w = &q->work;
    sheaf_status *st = sheaf__trial_run(&w->trial, &q->ask, SECONDS, events);
    if (st == NULL)
        w->hours = w->all_tokens * w->trial.seconds / (double)w->trial.tokens / 3600;
    return st;
}

static sheaf_status *find_time(cli_plan *q, const cli *cli)
{
    q->timed_steps = q->work.rows > 0 ? q->work.steps : q->ask.whole ? 0 : q->ask.o.steps;
    if (q->ask.o.transport == SHEAF_TRANSPORT_MPI && q->ask.o.tp * q->ask.o.dp > 1)
        sheaf_note(&cli->events,
                   "--time: ranks are measured as threads of one process; between hosts they wait "
                   "longer");
    return sheaf_in(sheaf__timing_find(&q->timing, &q->ask, &cli->events), "--time");
}

/* What the first step of the run exchanges, byte for byte. */
static sheaf_status *count_first(cli_plan *q, const sheaf_plan *plan, const cli *cli)
{
    const sheaf__job job = sheaf__question_job(&q->ask);
    if (!cli->json || job.train.data == NULL || q->ask.place_text != NULL)
        return NULL;
    q->first = calloc((size_t)plan->ranks, sizeof *q->first);
    sheaf_status *st = q->first == NULL ? sheaf__no_memory("plan") : NULL;
    for (int r = 0; r < plan->ranks && st == NULL; r++)
        st = sheaf_plan_step(q->first[r], NULL, &job, r, 0);
    return st;
}

/* Threads of one process share the machine's memory, processes that of their host. */
static sheaf_status *find_slots(cli_plan *q)
{
    cli_hosts hosts = { 0 };
    const sheaf_train_options *o = &q->ask.o;
    if (o->transport != SHEAF_TRANSPORT_MPI)
        return NULL;
    sheaf_status *st = cli_hosts_read(&hosts, o->hosts, o->hostfile);
    cli_hosts_slots(q->slot, &hosts,
                    o->tp * (q->ask.place_text == NULL ? o->dp : q->ask.place.stages));
    cli_hosts_release(&hosts);
    q->slots = q->slot;
    return st;
}

static sheaf_status *answer(cli_plan *q, const cli *cli, bool *fits)
{
    const sheaf_train_options asked = q->ask.o;
    sheaf_plan plan;
    if (q->groups > 1)
        sheaf_note(&cli->events, "--dp %d has no effect with --place: generation has no groups",
                   q->groups);
    sheaf_status *st = sheaf__question_open(&q->ask, &cli->events);
    TRY(st, find_slots(q));
    TRY(st, q->memory > 0
                ? sheaf__fit_find(&q->fit, &plan, &q->ask, q->memory, q->slots, &cli->events)
                : sheaf__question_answer(&plan, &q->ask));
    *fits = q->memory == 0 || q->fit.fits;
    if (st == NULL && q->ask.sets.data != NULL && q->ask.place_text == NULL)
        count_work(q);
    if (st == NULL && q->trial && *fits)
        st = try_speed(q, &cli->events);
    if (st == NULL && q->time && *fits)
        st = find_time(q, cli);
    TRY(st, count_first(q, &plan, cli));
    if (st != NULL)
        return st;
    sheaf__balance_note(q->ask.opened.schema, q->ask.o.tp, &cli->events);
    cli_plan_print(cli, q, &plan, &asked);
    return NULL;
}

/* ---- flags against each other ---- */

static sheaf_status *refuse(const char *where, const char *expected, const char *found,
                            const char *instead)
{
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", where), "%s", expected);
    return sheaf_try_this(sheaf_found(st, "%s", found), "%s", instead);
}

static sheaf_status *check_flags(const cli_plan *q)
{
    static const char two_plans[] = "two plans, one of them without --table";
    const bool place = q->ask.place_text != NULL, table = q->table != CLI_PLAN_NO_TABLE,
               model = q->ask.o.model != NULL, data = q->ask.o.data != NULL;
    const struct {
        bool is;
        const char *where, *expected, *found, *instead;
    } wrong[] = {
        { q->trial && place, "plan", "--trial without --place", "--place beside it",
          "--time, which also knows how long generation takes" },
        { q->trial && table, "plan", "--trial without --table", "--table beside it", two_plans },
        { q->trial && !(model && data), "plan --trial", "--model and --data",
          model  ? "no --data"
          : data ? "no --model"
                 : "neither",
          "--model DIR --data FILE, or --time in place of --trial: it needs neither weights nor "
          "data" },
        { q->time && table, "plan", "--time without --table", "--table beside it", two_plans },
        { q->time && q->ask.images_text != NULL, "plan",
          "--time without --images: it measures one a row", "--images beside it",
          "--time --data FILE, of which it reads what rows hold" },
        { q->ask.max_new > 0 && !place, "--max-new", "--place beside it", "none",
          "--place 1, generation with all layers on one stage" },
        { place && table, "plan", "--place or --table, not both", "both",
          "--table, which is of training, or --place with one --tp after the other" },
        { table && q->memory > 0, "plan",
          "--table without --memory: it has the fullest rank of every setting",
          "--memory beside it",
          "--memory alone, which looks for a setting that fits, or --table alone" },
        { table && q->by != CLI_PLAN_BY_KIND, "plan",
          "--table without --by: it has the fullest rank of every setting", "--by beside it",
          "--by alone, which has the ranks of one setting" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (wrong[i].is)
            return refuse(wrong[i].where, wrong[i].expected, wrong[i].found, wrong[i].instead);
    return NULL;
}

/* Of train's flags the short help keeps those that change memory and time. */
static void show_less(cli_option *table)
{
    static const char *const rest[] = { "out",      "resume", "save-every", "lr",
                                        "schedule", "epochs", "eval-data",  "eval-every" };
    for (cli_option *o = table; o->name != NULL; o++)
        for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
            if (strcmp(o->name, rest[i]) == 0)
                o->kind &= ~(unsigned)CLI_COMMON;
}

int cmd_plan(cli *cli, int argc, char **argv)
{
    cli_plan q = { 0 };
    cli_option table[CLI_MAX_OPTIONS];
    const char *memory = NULL;
    static const cli_choice by[] = { { "kind", CLI_PLAN_BY_KIND },
                                     { "component", CLI_PLAN_BY_COMPONENT },
                                     { 0 } };
    static const cli_choice tables[] = { { "ranks", CLI_PLAN_TABLE_RANKS },
                                         { "methods", CLI_PLAN_TABLE_METHODS },
                                         { 0 } };
    sheaf_train_options_default(&q.ask.o);
    q.ask.flags = true;
    const int n = sheaf__train_settings(table, &q.ask.o, true);
    table[n] = (cli_option){
        "memory",
        CLI_TEXT | CLI_UNSAVED | CLI_COMMON,
        &memory,
        "what this machine may use, 24G or in MiB, or with --transport mpi one rank or host of --hosts: find a setting that fits",
        "SIZE",
        .heading = "question"
    };
    table[n + 1] =
        (cli_option){ "by", CLI_CHOICE | CLI_UNSAVED, &q.by,
                      "lines of the answer: kind of memory, or part of the model", .choices = by };
    table[n + 2] =
        (cli_option){ "table", CLI_CHOICE | CLI_UNSAVED | CLI_COMMON, &q.table,
                      "the fullest rank at every number of ranks: this setting, or all methods",
                      .choices = tables };
    table[n + 3] = (cli_option){
        "place",
        CLI_TEXT | CLI_UNSAVED | CLI_COMMON,
        &q.ask.place_text,
        "generation instead of training, with layers over stages of --tp ranks each: 1, 2, by memory 24,12, or 0-10,11-31",
        "P",
        1
    };
    table[n + 4] = (cli_option){
        "trial", CLI_FLAG | CLI_UNSAVED | CLI_COMMON, &q.trial,
        "load the model, take steps for a minute and say how long the run would take"
    };
    table[n + 5] =
        (cli_option){ "max-new",
                      CLI_COUNT | CLI_UNSAVED,
                      &q.ask.max_new,
                      "with --place: of the --seq positions, those of the answer; 0 = none is said",
                      "N",
                      .max = 1e8 };
    table[n + 6] = (cli_option){
        "images", CLI_TEXT | CLI_UNSAVED, &q.ask.images_text,
        "without --data: pictures of each row, perhaps with their size in pixels: 2, 2:1344x896 (1)",
        "N"
    };
    table[n + 7] = (cli_option){
        "time", CLI_FLAG | CLI_UNSAVED | CLI_COMMON, &q.time,
        "how long a step takes, or with --place prompts and tokens: measures some seconds of a model of three layers"
    };
    table[n + 8] = (cli_option){ 0 };
    show_less(table);
    bool fits = true;
    cli_processes processes = { 0 };
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL && (q.ask.o.model == NULL || q.ask.o.model[0] == '\0') &&
        (q.ask.o.config == NULL || q.ask.o.config[0] == '\0'))
        st = refuse("plan", "--model DIR or --config FILE", "neither",
                    "--config config.json, of a model whose weights need not be here");
    q.ask.whole = q.ask.o.steps == 0 && q.ask.o.epochs == 0;
    if (st == NULL && q.ask.whole)
        q.ask.o.steps = 1;
    if (st == NULL && q.ask.place_text != NULL) {
        q.groups = q.ask.o.dp;
        q.ask.o.dp = 1;
    }
    if (st == NULL)
        sheaf__train_dtype(&q.ask.o, &cli->events);
    TRY(st, sheaf__train_settings_check(&cli->settings, table, &q.ask.o));
    if (st == NULL && memory != NULL)
        st = sheaf__memory_read(&q.memory, memory);
    TRY(st, check_flags(&q));
    TRY(st, cli_processes_alone(&processes.elsewhere, cli));
    if (st == NULL && q.table != CLI_PLAN_NO_TABLE)
        st = cli_plan_table(&q, cli);
    else if (st == NULL)
        st = answer(&q, cli, &fits);
    sheaf__question_close(&q.ask);
    free(q.first);
    return cli_processes_answer(&processes, cli, st, fits);
}
