/* plan.c - `sheaf plan`: what a training run would need, before it is started. */
#include <math.h>
#include <strings.h>

#include "commands.h"
#include "plan_print.h"
#include "base/base.h"
#include "base/print.h"
#include "driver/hosts.h"
#include "driver/processes.h"

const char cmd_plan_usage[] =
    "usage: sheaf plan MODEL [DATA] [FLAG...]\n"
    "       sheaf plan config.json [FLAG...]\n"
    "Computes bytes per rank by kind, operations and communication of one step of sheaf train with\n"
    "the same flags, from the model's config alone: the real step runs on a device without memory.\n"
    "With data also steps and tokens. --memory looks for a setting that fits, in this order: more\n"
    "ranks (with --transport mpi or --device cuda), each also with --keep-activations attention and\n"
    "--checkpointing; smaller micro-batches; --offload; shorter rows; or says how much is missing.\n";

/* ---- flags ---- */

static const void *value(const cli_option *table, const char *name)
{
    return sheaf__setting_find(table, name)->value;
}

/* NULL: not given. */
static const char *word(const cli_option *table, const char *name)
{
    const char *text = *(const char *const *)value(table, name);
    return text == NULL || text[0] == '\0' ? NULL : text;
}

/* "24G", "16000M", "1.5T" (units of 1024, "GiB" and "GB" mean the same); a number alone counts MiB.
 */
static sheaf_status *read_memory(uint64_t *bytes, const char *flag, const char *text)
{
    static const char units[] = "KMGT";
    char *end = NULL;
    const double number = strtod(text, &end);
    int power = 2;
    bool sound = end != text && (*text == '.' || (*text >= '0' && *text <= '9')) &&
                 isfinite(number) && number > 0;
    if (sound && *end != '\0') {
        const char *unit = strchr(units, *end >= 'a' ? *end - 'a' + 'A' : *end);
        sound = unit != NULL &&
                (end[1] == '\0' || strcasecmp(end + 1, "B") == 0 || strcasecmp(end + 1, "iB") == 0);
        power = unit == NULL ? 0 : (int)(unit - units) + 1;
    }
    const double all = number * pow(1024, power);
    if (sound && all >= 1 && all < 1e18) {
        *bytes = (uint64_t)all;
        return NULL;
    }
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", flag),
                                      "a size such as 24G, 512M or 16000 (MiB)"),
                       "%s", text);
}

/* --device 24G: GPUs with so much memory each, which need not be here. */
static sheaf_status *read_device(uint64_t *bytes, const cli_option *table, const char *memory)
{
    const char *text = word(table, "device");
    if (text == NULL || strspn(text, ".0123456789") == 0)
        return NULL;
    if (memory != NULL)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--device %s", text),
                                       "the memory of each GPU once"),
                        "--memory %s beside it", memory),
            "--device %s alone, which is --device cuda --memory %s", text, text);
    if (text[strspn(text, ".0123456789")] == '\0')
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "--device"),
                                       "cuda, cuda:0,1, cpu, or the memory of each GPU with its "
                                       "unit, such as 24G"),
                        "%s", text),
            "--device %sG", text);
    sheaf_status *st = read_memory(bytes, "--device", text);
    return st != NULL
               ? st
               : sheaf__setting_set(sheaf__setting_find(table, "device"), "cuda", "--device");
}

/* Threads of one process share the machine's memory, processes that of their host. */
static sheaf_status *find_slots(const int **out, int slots[SHEAF_MAX_SLICES + 1],
                                const cli_option *table)
{
    driver_hosts hosts = { 0 };
    char *transport = sheaf__setting_show(sheaf__setting_find(table, "transport"));
    const bool processes = transport != NULL && strcmp(transport, "mpi") == 0;
    free(transport);
    if (!processes)
        return NULL;
    sheaf_status *st = driver_hosts_read(&hosts, word(table, "hosts"), word(table, "hostfile"));
    driver_hosts_slots(slots, &hosts);
    driver_hosts_release(&hosts);
    *out = slots;
    return st;
}

static sheaf_status *check_flags(const cli_plan *q, const cli_option *flags)
{
    static const char two_plans[] = "two plans, one of them without --table";
    const bool place = q->ask.place != NULL, table = q->ask.table != SHEAF_PLAN_NO_TABLE,
               model = word(flags, "model") != NULL, data = word(flags, "data") != NULL;
    const struct {
        bool is;
        const char *where, *expected, *found, *instead;
    } wrong[] = {
        { !model && word(flags, "config") == NULL, "plan", "--model DIR or --config FILE",
          "neither", "--config config.json, of a model whose weights need not be here" },
        { q->ask.trial && place, "plan", "--trial without --place", "--place beside it",
          "--time, which also knows how long generation takes" },
        { q->ask.trial && table, "plan", "--trial without --table", "--table beside it",
          two_plans },
        { q->ask.trial && !(model && data), "plan --trial", "--model and --data",
          model  ? "no --data"
          : data ? "no --model"
                 : "neither",
          "--model DIR --data FILE, or --time in place of --trial: it needs neither weights nor "
          "data" },
        { q->ask.time && table, "plan", "--time without --table", "--table beside it", two_plans },
        { q->ask.time && q->ask.images != NULL, "plan",
          "--time without --images: it measures one a row", "--images beside it",
          "--time --data FILE, of which it reads what rows hold" },
        { q->ask.max_new > 0 && !place, "--max-new", "--place beside it", "none",
          "--place 1, generation with all layers on one stage" },
        { place && table, "plan", "--place or --table, not both", "both",
          "--table, which is of training, or --place with one --tp after the other" },
        { table && q->ask.memory > 0, "plan",
          "--table without --memory: it has the fullest rank of every setting",
          "--memory beside it",
          "--memory alone, which looks for a setting that fits, or --table alone" },
        { table && q->by != CLI_PLAN_BY_KIND, "plan",
          "--table without --by: it has the fullest rank of every setting", "--by beside it",
          "--by alone, which has the ranks of one setting" },
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        if (wrong[i].is)
            return sheaf_try_this(
                sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", wrong[i].where), "%s",
                                           wrong[i].expected),
                            "%s", wrong[i].found),
                "%s", wrong[i].instead);
    return NULL;
}

/* A flag that training has, too: without an objective it is of generation. */
static void take_length(cli_plan *q, sheaf__run_settings *run)
{
    const cli_option *o = sheaf__setting_find(run->table, "max-new");
    int64_t *const length = o->value;
    if (q->ask.place == NULL && word(run->table, "objective") != NULL)
        return;
    q->ask.max_new = *length;
    *length = 0;
    run->state->given[o - run->table] = false;
}

/* Of train's flags the short help keeps those that change memory and time. */
static void show_less(cli_option *table)
{
    static const char *const rest[] = { "out", "resume", "lr", "epochs", "eval-data" };
    for (cli_option *o = table; o->name != NULL; o++)
        for (size_t i = 0; i < sizeof rest / sizeof *rest; i++)
            if (strcmp(o->name, rest[i]) == 0)
                o->kind &= ~(unsigned)CLI_COMMON;
}

static void add_flags(cli_option *table, cli_plan *q, const char **memory)
{
    static const cli_choice by[] = { { "kind", CLI_PLAN_BY_KIND },
                                     { "component", CLI_PLAN_BY_COMPONENT },
                                     { 0 } };
    static const cli_choice tables[] = { { "ranks", SHEAF_PLAN_TABLE_RANKS },
                                         { "methods", SHEAF_PLAN_TABLE_METHODS },
                                         { 0 } };
    const cli_option own[] = {
        { "memory", CLI_TEXT | CLI_UNSAVED | CLI_COMMON, memory,
          "find a setting that fits this much memory of the machine, 24G or a number of MiB; with --transport mpi of a rank, or of a host of --hosts; with --device cuda of each GPU, as --device 24G does",
          "SIZE", .heading = "question" },
        { "by", CLI_CHOICE | CLI_UNSAVED, &q->by,
          "lines of the table: kinds of memory, or parts of the model", .choices = by },
        { "table", CLI_CHOICE | CLI_UNSAVED | CLI_COMMON, &q->ask.table,
          "the fullest rank at every number of ranks, as Markdown: of this setting, or of all three methods",
          .choices = tables },
        { "place", CLI_TEXT | CLI_UNSAVED | CLI_COMMON, &q->ask.place,
          "plan generation instead of training: --micro-batch sequences of --seq tokens, layers on stages of --tp ranks: 1, 2, by memory 24,12, or 0-10,11-31",
          "P", 1 },
        { "trial", CLI_FLAG | CLI_UNSAVED | CLI_COMMON, &q->ask.trial,
          "run real steps for a minute, and say how long the whole run takes" },
        { "images", CLI_TEXT | CLI_UNSAVED, &q->ask.images,
          "without --data: pictures of each row, and their size in pixels: 2, 2:1344x896 (default 1)",
          "N" },
        { "time", CLI_FLAG | CLI_UNSAVED | CLI_COMMON, &q->ask.time,
          "how long a step takes, or with --place a prompt and a token: measured in seconds on three layers" },
        { 0 },
    };
    for (cli_option *o = table; o->name != NULL; o++)
        if (strcmp(o->name, "max-new") == 0)
            o->help =
                "with --place: how many of the --seq tokens are the answer's; of grpo and rloo: most tokens of a completion";
    sheaf__settings_append(table, own);
}

/* ---- the command ---- */

static sheaf_status *answer(bool *fits, cli_plan *q, sheaf__run_settings *run, const cli *cli)
{
    sheaf_needs *needs = NULL;
    SHEAF_INIT(&q->facts);
    q->ask.first_step = cli->json;
    q->requested.dp = *(const int *)value(run->table, "dp");
    q->requested.micro_batch = *(const int64_t *)value(run->table, "micro-batch");
    q->requested.seq = *(const int64_t *)value(run->table, "seq");
    sheaf_status *st = sheaf__run_plan(&needs, run, &q->ask, &cli->events);
    TRY(st, sheaf_needs_info(&q->facts, needs));
    if (st != NULL)
        return st;
    json_t *all = json_loads(sheaf_needs_json(needs), 0, NULL);
    q->seq = *(const int64_t *)value(run->table, "seq");
    q->slices = *(const int *)value(run->table, "slices");
    q->dtype = *(const sheaf_dtype *)value(run->table, "dtype");
    q->has_data = word(run->table, "data") != NULL;
    *fits = q->facts.fits || q->ask.memory == 0;
    if (cli->json)
        sheaf__print(cli->out, "%s\n", sheaf_needs_json(needs));
    if (all == NULL)
        st = sheaf__no_memory("plan");
    else
        cli_plan_print(cli, q, all);
    json_decref(all);
    sheaf_needs_free(needs);
    return st;
}

int cmd_plan(cli *cli, int argc, char **argv)
{
    cli_plan q = { .ask.size = sizeof q.ask };
    sheaf__run_settings run = { 0 };
    const char *memory = NULL;
    int slots[SHEAF_MAX_SLICES + 1];
    bool fits = true;
    driver_processes processes = { 0 };
    sheaf_status *st = sheaf__run_settings_open(&run, &cli->settings, true);
    if (st == NULL) {
        add_flags(run.table, &q, &memory);
        show_less(run.table);
    }
    TRY(st, cli_parse(cli, run.table, NULL, argc, argv));
    if (st == NULL && memory != NULL)
        st = read_memory(&q.ask.memory, "--memory", memory);
    TRY(st, read_device(&q.ask.memory, run.table, memory));
    if (st == NULL)
        take_length(&q, &run);
    TRY(st, check_flags(&q, run.table));
    TRY(st, find_slots(&q.ask.slots, slots, run.table));
    processes.elsewhere = st == NULL && driver_processes_elsewhere(cli);
    if (st == NULL && !processes.elsewhere)
        st = answer(&fits, &q, &run, cli);
    sheaf__run_settings_close(&run);
    return driver_processes_answer(&processes, cli, st, fits);
}
