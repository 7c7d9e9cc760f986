/* plan.c - `sheaf plan`: what a training run would need, before it is started. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "commands.h"
#include "machine.h"
#include "plan_time.h"
#include "cli/lib/processes.h"
#include "plan/cluster.h"
#include "lora/sizes.h"
#include "models/balance.h"
#include "library/fit.h"
#include "library/question.h"
#include "library/train_settings.h"
#include "library/trial.h"
#include "schema/family.h"

const char cmd_plan_usage[] =
    "usage: sheaf plan --model DIR [flags of train]\n"
    "       sheaf plan --config config.json [flags of train]\n"
    "Bytes per rank by kind, operations and communication of one training step, from the\n"
    "model's config alone: the real step runs on a device without memory. With --memory,\n"
    "the first setting that fits a rank: fewer ranks first, then with --checkpointing, then\n"
    "with smaller micro-batches, then with shorter rows; or by how much it misses. With --data\n"
    "also steps and tokens, and with --trial hours, from a minute of real steps. With\n"
    "--time, how long a step takes, from seconds of measuring or a machine's profile. With\n"
    "--table, every number of ranks, as Markdown: of this setting, or of all three methods.\n"
    "With --place, generation: --micro-batch sequences of --seq tokens, --max-new of them the\n"
    "answer's, layers on stages.\n";

enum { BY_KIND, BY_COMPONENT };
enum { NO_TABLE, TABLE_RANKS, TABLE_METHODS };

/* What the data mean for a run. */
typedef struct work {
    int64_t rows, tokens, labels; /* of an epoch */
    int64_t epoch_steps, steps;   /* of an epoch; of the run, or of an epoch where none are given */
    double all_tokens;            /* of the run */
    sheaf__trial trial;           /* steps 0: none */
    double hours;                 /* of the run at its speed */
} work;

typedef struct question {
    sheaf__question ask;
    int by, table;
    int groups;    /* --dp beside --place, where it does nothing */
    size_t memory; /* bytes of a rank; 0: not asked */
    bool trial;
    sheaf_cluster cluster; /* hosts 0: not asked */
    sheaf__fit fit;
    work work;
    cli_time time;
    sheaf__count (*first)[SHEAF__TRAFFICS]; /* [ranks] of the first step, with data; else NULL */
} question;

/* Positions that an image takes in its row; 0 where there is none. */
static int64_t image_of(const question *q)
{
    return q->ask.images > 0 ? sheaf__image_positions(&q->ask.opened.config) : 0;
}

static json_t *components_json(const sheaf_plan_rank *rank)
{
    static const sheaf_memory kinds[] = { SHEAF_MEM_WEIGHTS, SHEAF_MEM_TRAINED, SHEAF_MEM_GRADIENTS,
                                          SHEAF_MEM_OPTIMIZER };
    json_t *all = json_object();
    for (int c = 0; c < SHEAF_PLAN_COMPONENTS; c++) {
        json_t *one = json_object();
        for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
            json_object_set_new(one, sheaf_plan_kind(kinds[k]),
                                json_integer((json_int_t)rank->component[c][kinds[k]]));
        json_object_set_new(all, sheaf_plan_component((sheaf_component)c), one);
    }
    return all;
}

static void print_object(const cli *cli, json_t *object)
{
    json_dumpf(object, cli->out, JSON_COMPACT);
    fputc('\n', cli->out);
    json_decref(object);
}

/* With --memory: what is proposed, or what is missing. */
static void add_fit(json_t *to, const question *q)
{
    const sheaf_train_options *o = &q->ask.o;
    json_object_set_new(to, "memory", json_integer((json_int_t)q->memory));
    json_object_set_new(to, "fits", json_boolean(q->fit.fits));
    if (q->fit.fits) {
        json_object_set_new(to, "proposal",
                            json_pack("{s:i, s:i, s:I, s:I, s:b, s:I}", "tp", o->tp, "dp", o->dp,
                                      "micro_batch", (json_int_t)o->micro_batch, "accumulate",
                                      (json_int_t)o->accumulate, "checkpointing", o->checkpointing,
                                      "seq", (json_int_t)q->ask.seq));
        if (q->fit.larger_micro_batch > 0)
            json_object_set_new(to, "larger_micro_batch",
                                json_integer((json_int_t)q->fit.larger_micro_batch));
        return;
    }
    json_object_set_new(to, "misses_by", json_integer((json_int_t)(q->fit.fullest - q->memory)));
    json_t *helps = json_array();
    for (int i = 0; i < q->fit.nhelps; i++)
        json_array_append_new(helps, json_pack("{s:s, s:I, s:b}", "flags", q->fit.help[i].flags,
                                               "largest_rank", (json_int_t)q->fit.help[i].fullest,
                                               "fits", q->fit.help[i].fullest <= q->memory));
    json_object_set_new(to, "would_help", helps);
}

static void add_work(json_t *to, const work *w)
{
    json_object_set_new(to, "rows", json_integer((json_int_t)w->rows));
    json_object_set_new(to, "epoch_tokens", json_integer((json_int_t)w->tokens));
    json_object_set_new(to, "epoch_labels", json_integer((json_int_t)w->labels));
    json_object_set_new(to, "epoch_steps", json_integer((json_int_t)w->epoch_steps));
    json_object_set_new(to, "steps", json_integer((json_int_t)w->steps));
    json_object_set_new(to, "tokens", json_real(w->all_tokens));
    if (w->trial.steps == 0)
        return;
    json_object_set_new(to, "trial",
                        json_pack("{s:I, s:f, s:f}", "steps", (json_int_t)w->trial.steps, "seconds",
                                  w->trial.seconds, "tokens_per_s",
                                  (double)w->trial.tokens / w->trial.seconds));
    json_object_set_new(to, "hours", json_real(w->hours));
}

static json_t *exchange_json(const sheaf__count *of)
{
    json_t *all = json_object();
    for (int t = 0; t < SHEAF__TRAFFICS; t++)
        json_object_set_new(all, sheaf__traffic_name((sheaf__traffic)t),
                            json_pack("{s:I, s:I, s:I, s:I}", "calls", (json_int_t)of[t].calls,
                                      "exchanges", (json_int_t)of[t].exchanges, "sent",
                                      (json_int_t)of[t].sent, "received",
                                      (json_int_t)of[t].received));
    return all;
}

/* An adapter's sizes; false: none is made. */
static bool find_sizes(sheaf__lora_sizes *out, const question *q)
{
    const sheaf__opened *o = &q->ask.opened;
    if (q->ask.place_text != NULL || o->lora == NULL)
        return false;
    sheaf__lora_sizes_of(out, o->lora, o->schema, sheaf__selected, (void *)&q->ask.selection);
    return true;
}

/* What full copies hold of a kind, in all ranks of all groups. */
static size_t copies_hold(const sheaf_plan *plan, sheaf_memory kind)
{
    size_t bytes = 0;
    for (int r = 0; r < plan->ranks; r++)
        bytes += plan->rank[r].copies[kind];
    return bytes;
}

static void add_sizes(json_t *to, const question *q, const sheaf_plan *plan)
{
    sheaf__lora_sizes sizes;
    json_t *list = json_array();
    if (!find_sizes(&sizes, q)) {
        json_decref(list);
        return;
    }
    for (int i = 0; i < sizes.n; i++)
        json_array_append_new(list, json_pack("{s:s, s:I}", "module", sizes.copy[i].name,
                                              "parameters", (json_int_t)sizes.copy[i].elements));
    json_object_set_new(
        to, "adapter",
        json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "factors", (json_int_t)sizes.factors,
                  "copies", (json_int_t)sizes.copies, "bytes", (json_int_t)sizes.bytes,
                  "copies_bytes", (json_int_t)sizes.copies_bytes, "copies_trained",
                  (json_int_t)copies_hold(plan, SHEAF_MEM_TRAINED), "copies_gradients",
                  (json_int_t)copies_hold(plan, SHEAF_MEM_GRADIENTS), "copies_optimizer",
                  (json_int_t)copies_hold(plan, SHEAF_MEM_OPTIMIZER), "modules", list));
}

static void print_json(const cli *cli, const question *q, const sheaf_plan *plan)
{
    json_t *ranks = json_array();
    for (int r = 0; r < plan->ranks; r++) {
        json_t *one = json_object();
        for (int k = 0; k < SHEAF_MEM_KINDS; k++)
            json_object_set_new(one, sheaf_plan_kind((sheaf_memory)k),
                                json_integer((json_int_t)plan->rank[r].bytes[k]));
        if (q->ask.place_text != NULL) {
            const int stage = r / q->ask.o.tp;
            json_object_set_new(one, "stage", json_integer(stage));
            json_object_set_new(one, "first_layer", json_integer(q->ask.place.begin[stage]));
            json_object_set_new(
                one, "layers",
                json_integer(q->ask.place.begin[stage + 1] - q->ask.place.begin[stage]));
        }
        json_object_set_new(one, "components", components_json(&plan->rank[r]));
        json_object_set_new(one, "peak", json_integer((json_int_t)plan->rank[r].peak));
        json_object_set_new(one, "flops_per_step", json_real(plan->rank[r].flops));
        json_object_set_new(one, "sent_per_step", json_real(sheaf_plan_sent(&plan->rank[r])));
        if (q->ask.o.dp > 1) {
            json_object_set_new(one, "group", json_integer(r / q->ask.o.tp));
            json_object_set_new(one, "sent_sums", json_real(plan->rank[r].sent));
            json_object_set_new(one, "sent_gradients", json_real(plan->rank[r].sent_gradients));
            json_object_set_new(one, "sent_weights", json_real(plan->rank[r].sent_weights));
        }
        json_object_set_new(one, "exchange", exchange_json(plan->rank[r].exchange));
        if (q->first != NULL)
            json_object_set_new(one, "exchange_first_step", exchange_json(q->first[r]));
        json_array_append_new(ranks, one);
    }
    json_t *all =
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:i, s:I, s:I, s:I, s:I, s:f, s:b}",
                  "ranks", ranks, "peak", (json_int_t)plan->process, "host", (json_int_t)plan->host,
                  "largest_rank", (json_int_t)sheaf_plan_fullest(plan), "parameters",
                  (json_int_t)plan->parameters, "trained", (json_int_t)plan->trained,
                  "trained_share", (double)plan->trained / (double)(plan->parameters + plan->added),
                  "trained_bytes", (json_int_t)(4 * plan->trained), "tp", q->ask.o.tp,
                  "micro_batch", (json_int_t)q->ask.o.micro_batch, "seq", (json_int_t)q->ask.seq,
                  "image", (json_int_t)image_of(q), "images", (json_int_t)q->ask.images, "padding",
                  q->ask.padding, "checkpointing", q->ask.o.checkpointing);
    const char *sums = sheaf__sums_name(q->ask.o.dtype, q->ask.o.sums);
    if (sums != NULL)
        json_object_set_new(all, "bf16_sums", json_string(sums));
    if (q->ask.place_text == NULL)
        json_object_set_new(all, "dp", json_integer(q->ask.o.dp));
    add_sizes(all, q, plan);
    if (q->memory > 0)
        add_fit(all, q);
    if (q->work.rows > 0)
        add_work(all, &q->work);
    if (q->time.asked && q->time.found.is.step > 0)
        json_object_set_new(all, "time", cli_time_json(&q->time));
    print_object(cli, all);
}

static double mib(size_t bytes)
{
    return (double)bytes / 1048576;
}

static size_t held(const sheaf_plan_rank *rank, int component)
{
    size_t bytes = 0;
    for (int k = 0; k < SHEAF_MEM_KINDS; k++)
        bytes += rank->component[component][k];
    return bytes;
}

/* A line for each kind, or for each component of what is held from the first step to the last. */
static void print_bytes(const cli *cli, const question *q, const sheaf_plan *plan)
{
    const bool kinds = q->by == BY_KIND;
    size_t all = 0;
    for (int k = 0; k < (kinds ? SHEAF_MEM_KINDS : SHEAF_PLAN_COMPONENTS); k++) {
        for (int r = 0; r < plan->ranks && !kinds; r++)
            all += held(&plan->rank[r], k);
        if (!kinds && all == 0)
            continue;
        all = 0;
        sheaf__print(cli->out, "\n  %-15s",
                     kinds ? sheaf_plan_kind((sheaf_memory)k)
                           : sheaf_plan_component((sheaf_component)k));
        for (int r = 0; r < plan->ranks; r++)
            sheaf__print(cli->out, "%10.1f",
                         mib(kinds ? plan->rank[r].bytes[k] : held(&plan->rank[r], k)));
    }
    if (!kinds) {
        sheaf__print(cli->out, "\n  %-15s", "during a step");
        for (int r = 0; r < plan->ranks; r++) {
            size_t rest = plan->rank[r].peak;
            for (int k = 0; k < SHEAF_PLAN_COMPONENTS; k++)
                rest -= held(&plan->rank[r], k);
            sheaf__print(cli->out, "%10.1f", mib(rest));
        }
    }
}

/* Of groups also what it is: sums within one, then gradients and weights between them. */
static void print_sent(const cli *cli, const question *q, const sheaf_plan *plan)
{
    static const char *const kind[] = { "MiB sent", "  sums", "  gradients", "  weights" };
    for (int k = 0; k < (q->ask.o.dp > 1 ? 4 : 1); k++) {
        sheaf__print(cli->out, "\n%-17s", kind[k]);
        for (int r = 0; r < plan->ranks; r++) {
            const sheaf_plan_rank *rank = &plan->rank[r];
            const double sent[] = { sheaf_plan_sent(rank), rank->sent, rank->sent_gradients,
                                    rank->sent_weights };
            sheaf__print(cli->out, "%10.1f", sent[k] / 1048576);
        }
    }
}

static void print_sizes(const cli *cli, const question *q, const sheaf_plan *plan)
{
    sheaf__lora_sizes sizes;
    sheaf_text text = { 0 };
    if (!find_sizes(&sizes, q) || sizes.copies == 0)
        return;
    sheaf__lora_sizes_text(&text, &sizes);
    sheaf__print(
        cli->out,
        "%s; in training the copies take %.1f MiB of masters, %.1f of gradients and %.1f of moments, all ranks together\n",
        text.at != NULL ? text.at : "", mib(copies_hold(plan, SHEAF_MEM_TRAINED)),
        mib(copies_hold(plan, SHEAF_MEM_GRADIENTS)), mib(copies_hold(plan, SHEAF_MEM_OPTIMIZER)));
    sheaf__text_release(&text);
}

static void print_ranks(const cli *cli, const question *q, const sheaf_plan *plan)
{
    sheaf__print(cli->out,
                 "%.2f million parameters, %.3f million trained (%.4g %%); %lld x %lld tokens",
                 (double)plan->parameters / 1e6, (double)plan->trained / 1e6,
                 100 * (double)plan->trained / (double)(plan->parameters + plan->added),
                 (long long)q->ask.o.micro_batch, (long long)q->ask.seq);
    if (q->ask.images == q->ask.o.micro_batch)
        sheaf__print(cli->out, " (%lld of each an image)", (long long)image_of(q));
    else if (q->ask.images > q->ask.o.micro_batch)
        sheaf__print(cli->out, " (at most %lld images, each %lld of them)",
                     (long long)q->ask.images, (long long)image_of(q));
    else if (sheaf__image_positions(&q->ask.opened.config) > 0)
        sheaf__print(cli->out,
                     q->ask.images == 0 ? " (no images)" : " (%lld of at most %lld an image)",
                     (long long)image_of(q), (long long)q->ask.images);
    if (q->ask.padding >= 0.0005)
        sheaf__print(cli->out, " in the longest micro-batch, %.1f %% of all positions padding",
                     100 * q->ask.padding);
    const char *sums = sheaf__sums_name(q->ask.o.dtype, q->ask.o.sums);
    sheaf__print(cli->out, ", %s%s%s, ", sheaf_dtype_torch_name(q->ask.o.dtype),
                 sums == NULL ? "" : " by ", sums == NULL ? "" : sums);
    if (q->ask.o.dp > 1)
        sheaf__print(cli->out, "%d groups of %d rank%s", q->ask.o.dp, q->ask.o.tp,
                     q->ask.o.tp == 1 ? "" : "s");
    else
        sheaf__print(cli->out, "%d rank%s", plan->ranks, plan->ranks == 1 ? "" : "s");
    sheaf__print(cli->out, " of %d slice%s%s\n", q->ask.o.slices, q->ask.o.slices == 1 ? "" : "s",
                 q->ask.o.checkpointing ? ", checkpointing" : "");
    for (int s = 0; q->ask.place_text != NULL && s < q->ask.place.stages; s++)
        sheaf__print(cli->out, "stage %d, ranks %d to %d: layers %lld to %lld\n", s,
                     s * q->ask.o.tp, (s + 1) * q->ask.o.tp - 1, (long long)q->ask.place.begin[s],
                     (long long)q->ask.place.begin[s + 1] - 1);
    sheaf__print(cli->out, "MiB by rank      ");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10d", r);
    print_bytes(cli, q, plan);
    sheaf__print(cli->out, "\n  %-15s", "peak");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10.1f", mib(plan->rank[r].peak));
    sheaf__print(cli->out, "\n%-17s", q->ask.place_text == NULL ? "GFLOP a step" : "GFLOP");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10.1f", plan->rank[r].flops / 1e9);
    print_sent(cli, q, plan);
    sheaf__print(cli->out,
                 "\nall ranks in one process: %.1f MiB (%.1f MiB of it beside the ranks)\n",
                 mib(plan->process), mib(plan->host));
    print_sizes(cli, q, plan);
}

/* ---- every number of ranks ---- */

typedef struct cell {
    size_t peak;
    int64_t trained;
} cell;

/* Ranks of a group, at most. */
static int most_ranks(const question *q)
{
    const int each = SHEAF_MAX_SLICES / q->ask.o.dp;
    return q->ask.o.slices < each ? q->ask.o.slices : each;
}

/* of[T - 1][checkpointing]; the question is asked anew for its method. */
static sheaf_status *fill_column(cell of[][2], question *q, const cli *cli)
{
    const question as_asked = *q;
    sheaf_plan plan;
    sheaf_status *st = sheaf__question_open(&q->ask, &cli->events);
    for (int tp = 1; tp <= most_ranks(q) && st == NULL; tp++)
        for (int again = 0; again < 2 && st == NULL; again++) {
            q->ask.o.tp = tp;
            q->ask.o.checkpointing = again;
            st = sheaf__question_answer(&plan, &q->ask);
            of[tp - 1][again] = (cell){ sheaf_plan_fullest(&plan), plan.trained };
        }
    q->ask.o.tp = as_asked.ask.o.tp;
    q->ask.o.checkpointing = as_asked.ask.o.checkpointing;
    return st;
}

static const char *method_name(sheaf_method method)
{
    return method == SHEAF_METHOD_LORA ? "lora" : method == SHEAF_METHOD_HEAD ? "head" : "full";
}

/* Of small models a table in GiB would be one of zeros. */
static bool in_mib(const question *q, cell of[][SHEAF_MAX_SLICES][2], int n)
{
    size_t most = 0;
    for (int m = 0; m < n; m++)
        for (int i = 0; i < 2 * most_ranks(q); i++)
            most = of[m][i / 2][i % 2].peak > most ? of[m][i / 2][i % 2].peak : most;
    return most < (size_t)1 << 30;
}

static void print_columns(const cli *cli, const question *q, cell of[][SHEAF_MAX_SLICES][2],
                          const sheaf_method *method, int n)
{
    json_t *list = cli->json ? json_array() : NULL;
    const bool small = in_mib(q, of, n);
    if (!cli->json) {
        sheaf_note(&cli->events, "%s of the fullest rank", small ? "MiB" : "GiB");
        sheaf__print(cli->out, "| ranks |");
        for (int m = 0; m < n; m++)
            sheaf__print(cli->out, " %s, %.4g %c trained | checkpointing |", method_name(method[m]),
                         (double)of[m][0][0].trained / (of[m][0][0].trained < 1e9 ? 1e6 : 1e9),
                         of[m][0][0].trained < 1e9 ? 'M' : 'G');
        sheaf__print(cli->out, "\n|---|");
        for (int m = 0; m < n; m++)
            sheaf__print(cli->out, "---|---|");
        fputc('\n', cli->out);
    }
    for (int tp = 1; tp <= most_ranks(q); tp++) {
        if (!cli->json)
            sheaf__print(cli->out, "| %d |", tp);
        for (int m = 0; m < n; m++)
            for (int again = 0; again < 2; again++)
                if (cli->json)
                    json_array_append_new(
                        list, json_pack("{s:i, s:s, s:b, s:I, s:I}", "tp", tp, "method",
                                        method_name(method[m]), "checkpointing", again,
                                        "largest_rank", (json_int_t)of[m][tp - 1][again].peak,
                                        "trained", (json_int_t)of[m][tp - 1][again].trained));
                else
                    sheaf__print(cli->out, " %.1f |",
                                 mib(of[m][tp - 1][again].peak) / (small ? 1 : 1024));
        if (!cli->json)
            fputc('\n', cli->out);
    }
    if (cli->json)
        print_object(cli, json_pack("{s:o, s:I, s:I, s:I}", "table", list, "micro_batch",
                                    (json_int_t)q->ask.o.micro_batch, "seq", (json_int_t)q->ask.seq,
                                    "image", (json_int_t)image_of(q)));
}

/* Settings of LoRA and patterns go with their methods. */
static sheaf_status *print_table(question *q, const cli *cli)
{
    static const sheaf_method all[] = { SHEAF_METHOD_LORA, SHEAF_METHOD_HEAD, SHEAF_METHOD_FULL };
    const int n = q->table == TABLE_METHODS ? 3 : 1;
    const sheaf_method *method = n == 3 ? all : (const sheaf_method[]){ q->ask.o.method };
    const sheaf_train_options asked = q->ask.o;
    cell of[3][SHEAF_MAX_SLICES][2];
    sheaf_status *st = NULL;
    for (int m = 0; m < n && st == NULL; m++) {
        if (m > 0)
            sheaf__question_close(&q->ask);
        q->ask.o = asked;
        q->ask.o.method = method[m];
        if (n > 1 && method[m] != asked.method)
            q->ask.o.train = q->ask.o.head_patterns = NULL;
        st = fill_column(of[m], q, cli);
    }
    if (st == NULL)
        print_columns(cli, q, of, method, n);
    return st;
}

/* ---- a cluster ---- */

static void print_rows(const cli *cli, const question *q, const sheaf_cluster *c,
                       const sheaf_cluster_row *row, int n)
{
    json_t *list = cli->json ? json_array() : NULL;
    if (!cli->json)
        sheaf__print(
            cli->out,
            "|   | ranks | T | D | computing s | exchanging s | of it groups s | "
            "step s | times one rank | GiB |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (int ranks = 1; ranks <= SHEAF_CLUSTER_RANKS; ranks *= 2)
        for (int i = 0; i < n; i++) {
            const sheaf_cluster_row *one = &row[i];
            const double times = row[0].step / one->step; /* the first is one rank */
            if (one->tp * one->dp != ranks)
                continue;
            if (cli->json)
                json_array_append_new(
                    list, json_pack("{s:i, s:i, s:i, s:f, s:f, s:f, s:f, s:f, s:I, s:b, s:b, s:b}",
                                    "ranks", ranks, "tp", one->tp, "dp", one->dp, "compute",
                                    one->compute, "exchange", one->exchange, "gradients",
                                    one->gradients, "step", one->step, "times_one_rank", times,
                                    "largest_rank", (json_int_t)one->memory, "fits", one->fits,
                                    "best", one->best, "pays", one->pays));
            else
                sheaf__print(cli->out,
                             "| %s | %d | %d | %d | %.4g | %.4g | %.4g | %.4g | %.2f | %.2f |\n",
                             one->pays   ? "*"
                             : one->best ? "."
                             : one->fits ? " "
                                         : "-",
                             ranks, one->tp, one->dp, one->compute, one->exchange, one->gradients,
                             one->step, times, mib(one->memory) / 1024);
        }
    if (cli->json)
        print_object(cli,
                     json_pack("{s:o, s:f, s:I, s:I, s:I}", "cluster", list, "rate", c->rate,
                               "micro_batch", (json_int_t)q->ask.o.micro_batch, "accumulate",
                               (json_int_t)q->ask.o.accumulate, "seq", (json_int_t)q->ask.seq));
}

/* Without a rate: that of the fastest kind of product that this machine has for the type, on one
 * core. */
static sheaf_status *measure_rate(sheaf_cluster *c, const question *q, const cli *cli)
{
    const bool wide = q->ask.o.dtype != SHEAF_BF16;
    cli_rate rates[CLI_RATES];
    sheaf_status *st = c->rate > 0 ? NULL : cli_machine_measure(rates);
    if (c->rate > 0 || st != NULL)
        return st;
    for (int i = 0; i < CLI_RATES; i++)
        if (wide == (strcmp(rates[i].name, "float32") == 0))
            c->rate = rates[i].gflops * 1e9 > c->rate ? rates[i].gflops * 1e9 : c->rate;
    sheaf_note(&cli->events, "a rank computes as fast as one core here, measured: rate=%.4gGFLOP/s",
               c->rate / 1e9);
    return NULL;
}

static sheaf_status *print_cluster(question *q, const cli *cli)
{
    sheaf_cluster_row row[SHEAF_CLUSTER_ROWS];
    int n = 0;
    sheaf_status *st = sheaf__question_open(&q->ask, &cli->events);
    if (st == NULL)
        st = measure_rate(&q->cluster, q, cli);
    const sheaf__job job = sheaf__question_job(&q->ask);
    if (st == NULL)
        st = sheaf_cluster_plan(row, &n, &q->cluster, &job, (size_t)q->ask.data_bytes);
    if (st == NULL)
        print_rows(cli, q, &q->cluster, row, n);
    return st;
}

/* ---- what fits ---- */

static double gib_or_mib(size_t bytes, const char **unit)
{
    *unit = bytes >= (size_t)1 << 30 ? "GiB" : "MiB";
    return mib(bytes) / (bytes >= (size_t)1 << 30 ? 1024 : 1);
}

/* The flags that the proposal changes, beside --tp. */
static void print_fit(const cli *cli, const question *q, const sheaf_train_options *asked)
{
    const sheaf_train_options *o = &q->ask.o;
    const sheaf__fit *f = &q->fit;
    const char *unit, *missing_unit;
    const double memory = gib_or_mib(q->memory, &unit);
    if (f->fits) {
        sheaf__print(cli->err, "fits: --tp %d", o->tp);
        if (o->dp != asked->dp)
            sheaf__print(cli->err, " --dp %d", o->dp);
        sheaf__print(cli->err, "%s", o->checkpointing ? " --checkpointing" : "");
        if (o->micro_batch != asked->micro_batch)
            sheaf__print(cli->err, " --micro-batch %lld --accumulate %lld",
                         (long long)o->micro_batch, (long long)o->accumulate);
        if (o->seq != asked->seq)
            sheaf__print(cli->err, " --seq %lld%s", (long long)o->seq,
                         q->ask.sets.data != NULL ? " (longer rows must be cut)" : "");
        if (f->larger_micro_batch > 0)
            sheaf__print(cli->err, "; --micro-batch %lld --accumulate %lld fits too",
                         (long long)f->larger_micro_batch,
                         (long long)(o->micro_batch * o->accumulate / f->larger_micro_batch));
        fputc('\n', cli->err);
        return;
    }
    const double missing = gib_or_mib(f->fullest - q->memory, &missing_unit);
    sheaf__print(cli->err,
                 "no setting up to %d ranks fits %.4g %s; the smallest misses by %.4g %s\n",
                 o->slices, memory, unit, missing, missing_unit);
    for (int i = 0; i < f->nhelps; i++) {
        const double then = gib_or_mib(f->help[i].fullest, &unit);
        sheaf__print(cli->err, "with %s: %.4g %s, which %s\n", f->help[i].flags, then, unit,
                     f->help[i].fullest <= q->memory ? "fits" : "does not fit either");
    }
}

/* ---- what the data mean ---- */

static void count_work(question *q)
{
    const sheaf__subset *set = &q->ask.sets.train;
    const sheaf_train_options *o = &q->ask.o;
    const int64_t rows = o->micro_batch * o->accumulate;
    work *w = &q->work;
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

static sheaf_status *try_speed(question *q, const sheaf_events *events)
{
    enum { SECONDS = 60 };
    work *w = &q->work;
    sheaf_status *st = sheaf__trial_run(&w->trial, &q->ask, SECONDS, events);
    if (st == NULL)
        w->hours = w->all_tokens * w->trial.seconds / (double)w->trial.tokens / 3600;
    return st;
}

static const char *more(int64_t n)
{
    return n == 1 ? "" : "s";
}

static void print_work(const cli *cli, const work *w)
{
    const bool many = w->all_tokens >= 1e5;
    const double minutes = 60 * w->hours;
    sheaf__print(cli->out,
                 "data: %lld row%s, %lld tokens, %lld of them labels; an epoch is %lld step%s; "
                 "%lld step%s read %.*f%s tokens\n",
                 (long long)w->rows, more(w->rows), (long long)w->tokens, (long long)w->labels,
                 (long long)w->epoch_steps, more(w->epoch_steps), (long long)w->steps,
                 more(w->steps), many ? 2 : 0, many ? w->all_tokens / 1e6 : w->all_tokens,
                 many ? " million" : "");
    if (w->trial.steps > 0)
        sheaf__print(cli->out,
                     "trial: %lld step%s in %.1f s, %.0f tokens/s; the run would take %.3g %s\n",
                     (long long)w->trial.steps, more(w->trial.steps), w->trial.seconds,
                     (double)w->trial.tokens / w->trial.seconds,
                     minutes < 1     ? 60 * minutes
                     : minutes < 120 ? minutes
                                     : w->hours,
                     minutes < 1     ? "seconds"
                     : minutes < 120 ? "minutes"
                                     : "hours");
}

static sheaf_status *find_time(question *q, const cli *cli)
{
    q->time.steps = q->work.rows > 0 ? q->work.steps : q->ask.whole ? 0 : q->ask.o.steps;
    return cli_time_find(&q->time, &q->ask, cli);
}

/* What the first step of the run exchanges, byte for byte. */
static sheaf_status *count_first(question *q, const sheaf_plan *plan, const cli *cli)
{
    const sheaf__job job = sheaf__question_job(&q->ask);
    if (!cli->json || job.train.data == NULL || q->ask.place_text != NULL)
        return NULL;
    q->first = calloc((size_t)plan->ranks, sizeof *q->first);
    sheaf_status *st = q->first == NULL ? sheaf_fail(SHEAF_E_MEMORY, "plan") : NULL;
    for (int r = 0; r < plan->ranks && st == NULL; r++)
        st = sheaf_plan_exchange(q->first[r], &job, r, 0);
    return st;
}

static sheaf_status *print_answer(question *q, const cli *cli, bool *fits)
{
    const sheaf_train_options asked = q->ask.o;
    sheaf_plan plan;
    if (q->groups > 1)
        sheaf_note(&cli->events, "--dp %d has no effect with --place: generation has no groups",
                   q->groups);
    sheaf_status *st = sheaf__question_open(&q->ask, &cli->events);
    if (st == NULL)
        st = q->memory > 0 ? sheaf__fit_find(&q->fit, &plan, &q->ask, q->memory, &cli->events)
                           : sheaf__question_answer(&plan, &q->ask);
    *fits = q->memory == 0 || q->fit.fits;
    if (st == NULL && q->ask.sets.data != NULL && q->ask.place_text == NULL)
        count_work(q);
    if (st == NULL && q->trial && *fits)
        st = try_speed(q, &cli->events);
    if (st == NULL && q->time.asked && *fits)
        st = find_time(q, cli);
    if (st == NULL)
        st = count_first(q, &plan, cli);
    if (st != NULL)
        return st;
    sheaf__balance_note(q->ask.opened.schema, q->ask.o.tp, &cli->events);
    if (cli->json)
        print_json(cli, q, &plan);
    else
        print_ranks(cli, q, &plan);
    if (!cli->json && q->work.rows > 0)
        print_work(cli, &q->work);
    if (!cli->json && q->time.asked && *fits)
        cli_time_print(cli, &q->time);
    if (q->memory > 0)
        print_fit(cli, q, &asked);
    return NULL;
}

/* ---- flags against each other ---- */

static sheaf_status *refuse(const char *where, const char *expected, const char *found,
                            const char *instead)
{
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", where), "%s", expected);
    return sheaf_try_this(sheaf_found(st, "%s", found), "%s", instead);
}

/* Two questions in one: `other`, a flag, beside the one that `expected` begins with. */
static sheaf_status *one_question(const char *expected, const char *other)
{
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"), "%s", expected);
    sheaf_found(st, "%s beside it", other);
    return sheaf_try_this(st, "two plans, one of them without %s", other);
}

static sheaf_status *check_trial(const question *q)
{
    const bool model = q->ask.o.model != NULL, data = q->ask.o.data != NULL;
    if (!q->trial)
        return NULL;
    if (q->ask.place_text != NULL)
        return refuse("plan", "--trial without --place", "--place beside it",
                      "--time, which also knows how long generation takes");
    if (q->table != NO_TABLE)
        return one_question("--trial without --table", "--table");
    if (!model || !data)
        return refuse("plan --trial", "--model and --data",
                      model  ? "no --data"
                      : data ? "no --model"
                             : "neither",
                      "--model DIR --data FILE, or --time in place of --trial: it needs neither "
                      "weights nor data");
    return NULL;
}

static sheaf_status *check_time(const question *q, bool cluster)
{
    if (!q->time.asked)
        return NULL;
    if (q->table != NO_TABLE || cluster)
        return one_question("--time without --table or --cluster",
                            cluster ? "--cluster" : "--table");
    if (q->ask.images_text != NULL) {
        sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"),
                                          "--time without --images: it measures one a row");
        sheaf_found(st, "--images %s", q->ask.images_text);
        return sheaf_try_this(st, "--time --data FILE, of which it reads what rows hold");
    }
    return NULL;
}

static sheaf_status *check_flags(question *q, bool cluster)
{
    const bool place = q->ask.place_text != NULL, table = q->table != NO_TABLE;
    sheaf_status *st = cli_time_check(&q->time, &q->ask.o, place);
    if (st == NULL && cluster && (place || table || q->memory > 0 || q->trial))
        st = one_question("--cluster without --place, --table, --memory or --trial",
                          place           ? "--place"
                          : table         ? "--table"
                          : q->memory > 0 ? "--memory"
                                          : "--trial");
    if (st == NULL)
        st = check_trial(q);
    if (st == NULL)
        st = check_time(q, cluster);
    if (st != NULL)
        return st;
    if (q->ask.max_new > 0 && !place)
        return refuse("--max-new", "--place beside it", "none",
                      "--place 1, generation with all layers on one stage");
    if (place && table)
        return refuse("plan", "--place or --table, not both", "both",
                      "--table, which is of training, or --place with one --tp after the other");
    if (table && q->memory > 0)
        return refuse("plan", "--table without --memory: it has the fullest rank of every setting",
                      "--memory beside it",
                      "--memory alone, which looks for a setting that fits, or --table alone");
    if (table && q->by != BY_KIND)
        return refuse("plan", "--table without --by: it has the fullest rank of every setting",
                      "--by beside it", "--by alone, which has the ranks of one setting");
    return NULL;
}

/* Where ranks are measured as processes all of them come here; else the first does everything. */
static sheaf_status *join(cli_processes *p, cli *cli, const cli_option *table, const question *q,
                          int argc, char **argv)
{
    const sheaf_train_options *o = &q->ask.o;
    if (!cli_time_joins(&q->time, o) || q->trial)
        return cli_processes_alone(&p->elsewhere, cli);
    *p = (cli_processes){ .transport = o->transport,
                          .mpi = o->mpi,
                          .heartbeat = o->heartbeat,
                          .hang_after = o->hang_after };
    return cli_processes_begin(p, cli,
                               &(cli_processes_how){ .table = table,
                                                     .argc = argc,
                                                     .argv = argv,
                                                     .ranks = o->tp * o->dp,
                                                     .in_group = o->tp });
}

int cmd_plan(cli *cli, int argc, char **argv)
{
    question q = { 0 };
    cli_option table[CLI_MAX_OPTIONS];
    const char *memory = NULL, *cluster = NULL;
    static const cli_choice by[] = { { "kind", BY_KIND }, { "component", BY_COMPONENT }, { 0 } };
    static const cli_choice tables[] = { { "ranks", TABLE_RANKS },
                                         { "methods", TABLE_METHODS },
                                         { 0 } };
    sheaf_train_options_default(&q.ask.o);
    q.ask.flags = true;
    const int n = sheaf__train_settings(table, &q.ask.o, true);
    table[n] =
        (cli_option){ "memory", CLI_TEXT | CLI_UNSAVED, &memory,
                      "what one rank may use, 24G or in MiB: find a setting that fits", "SIZE" };
    table[n + 1] =
        (cli_option){ "by", CLI_CHOICE | CLI_UNSAVED, &q.by,
                      "lines of the answer: kind of memory, or part of the model", .choices = by };
    table[n + 2] =
        (cli_option){ "table", CLI_CHOICE | CLI_UNSAVED, &q.table,
                      "the fullest rank at every number of ranks: this setting, or all methods",
                      .choices = tables };
    table[n + 3] = (cli_option){
        "place",
        CLI_TEXT | CLI_UNSAVED,
        &q.ask.place_text,
        "generation instead of training, with layers over stages of --tp ranks each: 1, 2, by memory 24,12, or 0-10,11-31",
        "P",
        1
    };
    table[n + 4] = (cli_option){
        "trial", CLI_FLAG | CLI_UNSAVED, &q.trial,
        "load the model, take steps for a minute and say how long the run would take"
    };
    table[n + 5] = (cli_option){
        "cluster", CLI_TEXT | CLI_UNSAVED, &cluster,
        "a table of T and D on many hosts, by a model: hosts=8,ranks-per-host=8,latency=5us,bandwidth=12GB/s[,rate=100GFLOP/s]",
        "C"
    };
    table[n + 6] =
        (cli_option){ "max-new",
                      CLI_COUNT | CLI_UNSAVED,
                      &q.ask.max_new,
                      "with --place: of the --seq positions, those of the answer; 0 = none is said",
                      "N",
                      .max = 1e8 };
    table[n + 7] = (cli_option){
        "images", CLI_TEXT | CLI_UNSAVED, &q.ask.images_text,
        "without --data: pictures of each row, perhaps with their size in pixels: 2, 2:1344x896 (1)",
        "N"
    };
    cli_time_options(&table[n + 8], &q.time);
    table[n + 12] = (cli_option){ 0 };
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
        st = sheaf__train_settings_check(&cli->settings, table, &q.ask.o);
    if (st == NULL && memory != NULL)
        st = sheaf__memory_read(&q.memory, memory);
    if (st == NULL && cluster != NULL)
        st = sheaf_cluster_read(&q.cluster, cluster);
    if (st == NULL)
        st = check_flags(&q, cluster != NULL);
    if (st == NULL)
        st = join(&processes, cli, table, &q, argc, argv);
    if (st == NULL && cluster != NULL)
        st = print_cluster(&q, cli);
    else if (st == NULL && q.table != NO_TABLE)
        st = print_table(&q, cli);
    else if (st == NULL)
        st = print_answer(&q, cli, &fits);
    sheaf__question_close(&q.ask);
    cli_time_release(&q.time);
    free(q.first);
    return cli_processes_answer(&processes, cli, st, fits);
}
