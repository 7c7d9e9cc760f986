/* plan.c - `sheaf plan`: what a training run would need, before it is started. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "base/print.h"
#include "ask.h"
#include "commands.h"
#include "models/balance.h"
#include "models/open.h"
#include "plan/plan.h"
#include "train_flags.h"
#include "schema/family.h"

const char cmd_plan_usage[] =
    "usage: sheaf plan --model DIR [flags of train]\n"
    "       sheaf plan --config config.json [flags of train]\n"
    "Bytes per rank by kind, operations and communication of one training step, from the\n"
    "model's config alone: the real step runs on a device without memory. With --memory,\n"
    "the first setting that fits a rank: fewer ranks first, then with --checkpointing. With\n"
    "--table, every number of ranks, as Markdown: of this setting, or of all three methods.\n"
    "With --place, generation: --micro-batch sequences of --seq tokens, layers on stages.\n";

enum { BY_KIND, BY_COMPONENT };
enum { NO_TABLE, TABLE_RANKS, TABLE_METHODS };

typedef struct question {
    sheaf_train_options o;
    sheaf__opened opened;
    sheaf__selection selection;
    sheaf_lora_options fresh;
    sheaf_data *data;
    int64_t data_bytes, seq;
    int64_t images; /* of the rows of a micro-batch, those with one: at most */
    bool warned;    /* that images are assumed */
    bool whole;     /* no --steps: padding is that of an epoch */
    double padding; /* share of the positions, with data */
    int by, table;
    const char *place_text; /* NULL: a training step; else generation */
    sheaf__place place;
} question;

static void close_question(question *q)
{
    sheaf_data_close(q->data);
    sheaf__selection_release(&q->selection);
    sheaf_lora_options_release(&q->fresh);
    sheaf__opened_close(&q->opened);
    q->data = NULL;
    q->fresh = (sheaf_lora_options){ 0 };
}

/* The rows of a micro-batch that have an image: as the data say, or all. */
static void count_images(question *q, const cli *cli)
{
    sheaf_batch_images fewest,
        most = { .images = q->opened.config.patches > 0 ? q->o.micro_batch : 0 };
    if (q->data != NULL)
        sheaf_data_images_range(&fewest, &most, q->data, q->o.micro_batch);
    else if (most.images > 0 && !q->warned)
        sheaf_note(&cli->events, "without --data every row is taken to have an image");
    q->images = most.images;
    q->warned = true;
}

static double padding_of(const question *q)
{
    sheaf_train_options o = q->o;
    o.steps = q->whole ? 0 : o.steps;
    return q->place_text != NULL ? 0 : sheaf__job_padding(&o, q->data);
}

static sheaf_status *open_question(question *q, const cli *cli)
{
    const sheaf_train_options *o = &q->o;
    const bool generates = q->place_text != NULL, lora = o->method == SHEAF_METHOD_LORA;
    const bool adapter = lora && o->adapter != NULL && o->adapter[0] != '\0',
               fresh = lora && !adapter && !generates;
    sheaf_status *st = fresh ? sheaf_train_options_lora(&q->fresh, o) : NULL;
    if (st == NULL)
        st = sheaf__open_model(&q->opened,
                               &(sheaf__open_options){ .model = o->model,
                                                       .config = o->config,
                                                       .config_only = true,
                                                       .slices = o->slices,
                                                       .events = &cli->events,
                                                       .adapter = adapter ? o->adapter : NULL,
                                                       .fresh = fresh ? &q->fresh : NULL });
    if (st == NULL && generates)
        st = sheaf__place_read(&q->place, q->place_text, q->opened.schema);
    else if (st == NULL)
        st = sheaf__select(&q->selection, q->opened.schema, q->opened.lora, o, &cli->events);
    if (st == NULL && o->data != NULL && o->data[0] != '\0') {
        st = sheaf_data_open(&q->data, o->data,
                             &(sheaf_data_options){ .config = &q->opened.config,
                                                    .seq = o->seq,
                                                    .events = &cli->events,
                                                    .folder = o->model,
                                                    .tokenizer = o->tokenizer,
                                                    .prompt_template = o->prompt_template,
                                                    .query = o->query,
                                                    .micro_batch = o->micro_batch,
                                                    .threads = o->threads });
        if (st == NULL) {
            sheaf_data_note_unused(q->data, o->data, o->prompt_template, o->query, &cli->events);
            q->seq = sheaf__job_seq(o, q->data);
            q->padding = padding_of(q);
            q->data_bytes = (int64_t)sheaf_data_memory(q->data);
        }
    } else {
        q->seq = o->seq > 0 ? o->seq : sheaf_plan_seq(&q->opened.config);
        if (st == NULL && !q->warned && q->opened.config.patches == 0)
            ask_warn_positions(&q->opened.config, "--seq", q->seq, &cli->events);
    }
    if (st == NULL)
        count_images(q, cli);
    return st;
}

static sheaf_status *answer(sheaf_plan *plan, const question *q)
{
    if (q->place_text != NULL)
        return sheaf_plan_generate(plan, &(sheaf_plan_generation){ .schema = q->opened.schema,
                                                                   .lora = q->opened.lora,
                                                                   .place = &q->place,
                                                                   .tp = q->o.tp,
                                                                   .threads = q->o.threads,
                                                                   .dtype = q->o.dtype,
                                                                   .batch = q->o.micro_batch,
                                                                   .seq = q->seq,
                                                                   .images = q->images });
    const sheaf__job job = { .options = &q->o,
                             .schema = q->opened.schema,
                             .lora = q->opened.lora,
                             .selection = &q->selection,
                             .data = q->data,
                             .seq = q->seq };
    return sheaf_plan_train(plan, &job, (size_t)q->data_bytes);
}

/* Ranks upwards, without checkpointing before with it. */
static sheaf_status *find_fit(sheaf_plan *plan, question *q, size_t memory, bool *fits)
{
    sheaf_status *st = NULL;
    *fits = false;
    for (int tp = q->o.tp;
         tp <= q->o.slices &&
         tp * (q->place_text == NULL ? 1 : q->place.stages) <= SHEAF_MAX_SLICES && st == NULL;
         tp++)
        for (int again = 0; again < (q->place_text == NULL ? 2 : 1) && st == NULL; again++) {
            q->o.tp = tp;
            q->o.checkpointing = again;
            st = answer(plan, q);
            if (st == NULL && sheaf_plan_fullest(plan) <= memory) {
                *fits = true;
                return NULL;
            }
        }
    return st;
}

/* Positions that an image takes in its row; 0 where there is none. */
static int64_t image_of(const question *q)
{
    return q->images > 0 ? sheaf__image_positions(&q->opened.config) : 0;
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

static void print_json(const cli *cli, const question *q, const sheaf_plan *plan)
{
    json_t *ranks = json_array();
    for (int r = 0; r < plan->ranks; r++) {
        json_t *one = json_object();
        for (int k = 0; k < SHEAF_MEM_KINDS; k++)
            json_object_set_new(one, sheaf_plan_kind((sheaf_memory)k),
                                json_integer((json_int_t)plan->rank[r].bytes[k]));
        if (q->place_text != NULL) {
            const int stage = r / q->o.tp;
            json_object_set_new(one, "stage", json_integer(stage));
            json_object_set_new(one, "first_layer", json_integer(q->place.begin[stage]));
            json_object_set_new(one, "layers",
                                json_integer(q->place.begin[stage + 1] - q->place.begin[stage]));
        }
        json_object_set_new(one, "components", components_json(&plan->rank[r]));
        json_object_set_new(one, "peak", json_integer((json_int_t)plan->rank[r].peak));
        json_object_set_new(one, "flops_per_step", json_real(plan->rank[r].flops));
        json_object_set_new(one, "sent_per_step", json_real(plan->rank[r].sent));
        json_array_append_new(ranks, one);
    }
    print_object(
        cli,
        json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:i, s:I, s:I, s:I, s:I, s:f, s:b}",
                  "ranks", ranks, "peak", (json_int_t)plan->process, "host", (json_int_t)plan->host,
                  "largest_rank", (json_int_t)sheaf_plan_fullest(plan), "parameters",
                  (json_int_t)plan->parameters, "trained", (json_int_t)plan->trained,
                  "trained_share", (double)plan->trained / (double)(plan->parameters + plan->added),
                  "trained_bytes", (json_int_t)(4 * plan->trained), "tp", q->o.tp, "micro_batch",
                  (json_int_t)q->o.micro_batch, "seq", (json_int_t)q->seq, "image",
                  (json_int_t)image_of(q), "images", (json_int_t)q->images, "padding", q->padding,
                  "checkpointing", q->o.checkpointing));
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

static void print_ranks(const cli *cli, const question *q, const sheaf_plan *plan)
{
    sheaf__print(cli->out,
                 "%.2f million parameters, %.3f million trained (%.4g %%); %lld x %lld tokens",
                 (double)plan->parameters / 1e6, (double)plan->trained / 1e6,
                 100 * (double)plan->trained / (double)(plan->parameters + plan->added),
                 (long long)q->o.micro_batch, (long long)q->seq);
    if (q->images == q->o.micro_batch)
        sheaf__print(cli->out, " (%lld of each an image)", (long long)image_of(q));
    else if (q->opened.config.patches > 0)
        sheaf__print(cli->out, q->images == 0 ? " (no images)" : " (%lld of at most %lld an image)",
                     (long long)image_of(q), (long long)q->images);
    if (q->padding >= 0.0005)
        sheaf__print(cli->out, " in the longest micro-batch, %.1f %% of all positions padding",
                     100 * q->padding);
    sheaf__print(cli->out, ", %s, %d rank%s of %d slices%s\n", sheaf_dtype_torch_name(q->o.dtype),
                 plan->ranks, plan->ranks == 1 ? "" : "s", q->o.slices,
                 q->o.checkpointing ? ", checkpointing" : "");
    for (int s = 0; q->place_text != NULL && s < q->place.stages; s++)
        sheaf__print(cli->out, "stage %d, ranks %d to %d: layers %lld to %lld\n", s, s * q->o.tp,
                     (s + 1) * q->o.tp - 1, (long long)q->place.begin[s],
                     (long long)q->place.begin[s + 1] - 1);
    sheaf__print(cli->out, "MiB by rank      ");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10d", r);
    print_bytes(cli, q, plan);
    sheaf__print(cli->out, "\n  %-15s", "peak");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10.1f", mib(plan->rank[r].peak));
    sheaf__print(cli->out, "\n%-17s", q->place_text == NULL ? "GFLOP a step" : "GFLOP");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10.1f", plan->rank[r].flops / 1e9);
    sheaf__print(cli->out, "\n%-17s", "MiB sent");
    for (int r = 0; r < plan->ranks; r++)
        sheaf__print(cli->out, "%10.1f", plan->rank[r].sent / 1048576);
    sheaf__print(cli->out,
                 "\nall ranks in one process: %.1f MiB (%.1f MiB of it beside the ranks)\n",
                 mib(plan->process), mib(plan->host));
}

/* ---- every number of ranks ---- */

typedef struct cell {
    size_t peak;
    int64_t trained;
} cell;

/* of[T - 1][checkpointing]; the question is asked anew for its method. */
static sheaf_status *fill_column(cell of[][2], question *q, const cli *cli)
{
    const question as_asked = *q;
    sheaf_plan plan;
    sheaf_status *st = open_question(q, cli);
    for (int tp = 1; tp <= q->o.slices && st == NULL; tp++)
        for (int again = 0; again < 2 && st == NULL; again++) {
            q->o.tp = tp;
            q->o.checkpointing = again;
            st = answer(&plan, q);
            of[tp - 1][again] = (cell){ sheaf_plan_fullest(&plan), plan.trained };
        }
    q->o.tp = as_asked.o.tp;
    q->o.checkpointing = as_asked.o.checkpointing;
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
        for (int i = 0; i < 2 * q->o.slices; i++)
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
    for (int tp = 1; tp <= q->o.slices; tp++) {
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
                                    (json_int_t)q->o.micro_batch, "seq", (json_int_t)q->seq,
                                    "image", (json_int_t)image_of(q)));
}

/* Settings of LoRA and patterns go with their methods. */
static sheaf_status *print_table(question *q, const cli *cli)
{
    static const sheaf_method all[] = { SHEAF_METHOD_LORA, SHEAF_METHOD_HEAD, SHEAF_METHOD_FULL };
    const int n = q->table == TABLE_METHODS ? 3 : 1;
    const sheaf_method *method = n == 3 ? all : (const sheaf_method[]){ q->o.method };
    const sheaf_train_options asked = q->o;
    cell of[3][SHEAF_MAX_SLICES][2];
    sheaf_status *st = NULL;
    for (int m = 0; m < n && st == NULL; m++) {
        if (m > 0)
            close_question(q);
        q->o = asked;
        q->o.method = method[m];
        if (n > 1 && method[m] != asked.method)
            q->o.train = q->o.head_patterns = NULL;
        st = fill_column(of[m], q, cli);
    }
    if (st == NULL)
        print_columns(cli, q, of, method, n);
    return st;
}

static sheaf_status *print_answer(question *q, const cli *cli, double memory, bool *fits)
{
    sheaf_plan plan;
    sheaf_status *st = open_question(q, cli);
    if (st == NULL)
        st = memory > 0 ? find_fit(&plan, q, (size_t)(memory * 1048576), fits) : answer(&plan, q);
    if (st != NULL)
        return st;
    sheaf__balance_note(q->opened.schema, q->o.tp, &cli->events);
    if (cli->json)
        print_json(cli, q, &plan);
    else
        print_ranks(cli, q, &plan);
    if (!*fits)
        sheaf__print(
            cli->err,
            "no setting up to %d ranks fits %.0f MiB; a smaller --micro-batch or --seq, or --dtype bfloat16, may\n",
            q->o.slices, memory);
    else if (memory > 0)
        sheaf__print(cli->err, "fits: --tp %d%s\n", q->o.tp,
                     q->o.checkpointing ? " --checkpointing" : "");
    return NULL;
}

int cmd_plan(cli *cli, int argc, char **argv)
{
    question q = { 0 };
    cli_option table[CLI_MAX_OPTIONS];
    double memory = 0;
    static const cli_choice by[] = { { "kind", BY_KIND }, { "component", BY_COMPONENT }, { 0 } };
    static const cli_choice tables[] = { { "ranks", TABLE_RANKS },
                                         { "methods", TABLE_METHODS },
                                         { 0 } };
    sheaf_train_options_default(&q.o);
    const int n = train_flags(table, &q.o, true);
    table[n] = (cli_option){ "memory", CLI_NUMBER | CLI_UNSAVED, &memory,
                             "MiB one rank may use: find a setting that fits", "MIB" };
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
        &q.place_text,
        "generation instead of training, with layers over stages of --tp ranks each: 1, 2, by memory 24,12, or 0-10,11-31",
        "P",
        1
    };
    table[n + 4] = (cli_option){ 0 };
    bool fits = true;
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL && (q.o.model == NULL || q.o.model[0] == '\0') &&
        (q.o.config == NULL || q.o.config[0] == '\0'))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"), "--model DIR or --config FILE");
    q.whole = q.o.steps == 0;
    if (st == NULL && q.whole)
        q.o.steps = 1;
    if (st == NULL)
        st = train_flags_check(cli, table, &q.o);
    if (st == NULL && q.place_text != NULL && q.table != NO_TABLE)
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"), "--place or --table, not both");
    if (st == NULL && q.table != NO_TABLE && (memory > 0 || q.by != BY_KIND))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"),
                            "--table without --%s: it has the fullest rank of every setting",
                            memory > 0 ? "memory" : "by");
    if (st == NULL && q.table != NO_TABLE)
        st = print_table(&q, cli);
    else if (st == NULL)
        st = print_answer(&q, cli, memory, &fits);
    close_question(&q);
    return cli_answer(cli, st, fits);
}
