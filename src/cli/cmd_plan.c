/* cmd_plan.c - `sheaf plan`: what a training run would need, before it is started. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "models/balance.h"
#include "models/open.h"
#include "plan/plan.h"
#include "train_flags.h"

const char cmd_plan_usage[] =
    "usage: sheaf plan --model DIR [flags of train]\n"
    "       sheaf plan --config config.json [flags of train]\n"
    "Bytes per rank by kind, operations and communication of one training step, from the\n"
    "model's config alone: the real step runs on a device without memory. With --memory,\n"
    "the first setting that fits a rank: fewer ranks first, then with --checkpointing.\n";

typedef struct question {
    sheaf_train_options o;
    sheaf__opened opened;
    sheaf__selection selection;
    sheaf_lora_options fresh;
    sheaf_data *data;
    int64_t data_bytes, seq;
} question;

static sheaf_status *open_question(question *q, const cli *cli)
{
    const sheaf_train_options *o = &q->o;
    const bool lora = o->method == SHEAF_METHOD_LORA, adapter = lora && o->adapter != NULL && o->adapter[0] != '\0';
    sheaf_status *st = lora && !adapter ? sheaf_train_options_lora(&q->fresh, o) : NULL;
    if (st == NULL)
        st = sheaf__open_model(&q->opened, &(sheaf__open_options){ .model = o->model, .config = o->config, .config_only = true,
                               .slices = o->slices, .events = &cli->events, .adapter = adapter ? o->adapter : NULL,
                               .fresh = lora && !adapter ? &q->fresh : NULL });
    if (st == NULL)
        st = sheaf__select(&q->selection, q->opened.schema, q->opened.lora, o, &cli->events);
    if (st == NULL && o->data != NULL && o->data[0] != '\0') {
        st = sheaf_data_open(&q->data, o->data, &(sheaf_data_options){ .config = &q->opened.config, .seq = o->seq, .events = &cli->events, .folder = o->model,
                             .tokenizer = o->tokenizer, .prompt_template = o->prompt_template, .query = o->query,
                             .micro_batch = o->micro_batch, .threads = o->threads });
        if (st == NULL) {
            q->seq = sheaf_data_seq(q->data);
            q->data_bytes = (int64_t)sheaf_data_memory(q->data);
        }
    } else {
        q->seq = o->seq > 0 ? o->seq : q->opened.config.max_position < 4096 ? q->opened.config.max_position : 4096;
    }
    return st;
}

static sheaf_status *answer(sheaf_plan *plan, const question *q)
{
    const sheaf__job job = { .options = &q->o, .schema = q->opened.schema, .lora = q->opened.lora, .selection = &q->selection,
                             .seq = q->seq };
    return sheaf_plan_train(plan, &job, (size_t)q->data_bytes);
}

static size_t fullest(const sheaf_plan *plan)
{
    size_t most = 0;
    for (int r = 0; r < plan->ranks; r++)
        most = plan->rank[r].peak > most ? plan->rank[r].peak : most;
    return most;
}

/* Ranks upwards, without checkpointing before with it. */
static sheaf_status *find_fit(sheaf_plan *plan, question *q, size_t memory, bool *fits)
{
    sheaf_status *st = NULL;
    *fits = false;
    for (int tp = q->o.tp; tp <= q->o.slices && st == NULL; tp++)
        for (int again = 0; again < 2 && st == NULL; again++) {
            q->o.tp = tp;
            q->o.checkpointing = again;
            st = answer(plan, q);
            if (st == NULL && fullest(plan) <= memory) {
                *fits = true;
                return NULL;
            }
        }
    return st;
}

static void print_json(const cli *cli, const question *q, const sheaf_plan *plan)
{
    json_t *ranks = json_array();
    for (int r = 0; r < plan->ranks; r++) {
        json_t *one = json_object();
        for (int k = 0; k < SHEAF_MEM_KINDS; k++)
            json_object_set_new(one, sheaf_plan_kind((sheaf_memory)k), json_integer((json_int_t)plan->rank[r].bytes[k]));
        json_object_set_new(one, "peak", json_integer((json_int_t)plan->rank[r].peak));
        json_object_set_new(one, "flops_per_step", json_real(plan->rank[r].flops));
        json_object_set_new(one, "sent_per_step", json_real(plan->rank[r].sent));
        json_array_append_new(ranks, one);
    }
    json_t *object = json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:i, s:I, s:I, s:b}", "ranks", ranks, "peak", (json_int_t)plan->process,
                               "host", (json_int_t)plan->host, "largest_rank", (json_int_t)fullest(plan), "parameters",
                               (json_int_t)plan->parameters, "trained", (json_int_t)plan->trained, "tp", q->o.tp, "micro_batch",
                               (json_int_t)q->o.micro_batch, "seq", (json_int_t)q->seq, "checkpointing", q->o.checkpointing);
    json_dumpf(object, cli->out, JSON_COMPACT);
    fputc('\n', cli->out);
    json_decref(object);
}

static double mib(size_t bytes) { return (double)bytes / 1048576; }

static void print_table(const cli *cli, const question *q, const sheaf_plan *plan)
{
    fprintf(cli->out, "%.2f million parameters, %.3f million trained; %lld x %lld tokens, %s, %d rank%s of %d slices%s\n",
            (double)plan->parameters / 1e6, (double)plan->trained / 1e6, (long long)q->o.micro_batch, (long long)q->seq,
            sheaf_dtype_torch_name(q->o.dtype), plan->ranks, plan->ranks == 1 ? "" : "s", q->o.slices,
            q->o.checkpointing ? ", checkpointing" : "");
    fprintf(cli->out, "MiB by rank ");
    for (int r = 0; r < plan->ranks; r++)
        fprintf(cli->out, "%10d", r);
    for (int k = 0; k < SHEAF_MEM_KINDS; k++) {
        fprintf(cli->out, "\n  %-10s", sheaf_plan_kind((sheaf_memory)k));
        for (int r = 0; r < plan->ranks; r++)
            fprintf(cli->out, "%10.1f", mib(plan->rank[r].bytes[k]));
    }
    fprintf(cli->out, "\n  %-10s", "peak");
    for (int r = 0; r < plan->ranks; r++)
        fprintf(cli->out, "%10.1f", mib(plan->rank[r].peak));
    fprintf(cli->out, "\nGFLOP a step");
    for (int r = 0; r < plan->ranks; r++)
        fprintf(cli->out, "%10.1f", plan->rank[r].flops / 1e9);
    fprintf(cli->out, "\nMiB sent    ");
    for (int r = 0; r < plan->ranks; r++)
        fprintf(cli->out, "%10.1f", plan->rank[r].sent / 1048576);
    fprintf(cli->out, "\nall ranks in one process: %.1f MiB (%.1f MiB of it beside the ranks)\n", mib(plan->process), mib(plan->host));
}

int cmd_plan(cli *cli, int argc, char **argv)
{
    question q = { 0 };
    sheaf_plan plan = { 0 };
    cli_option table[CLI_MAX_OPTIONS];
    double memory = 0;
    sheaf_train_options_default(&q.o);
    const int n = train_flags(table, &q.o, true);
    table[n] = (cli_option){ "memory", CLI_NUMBER | CLI_UNSAVED, &memory, "MiB one rank may use: find a setting that fits", "MIB" };
    table[n + 1] = (cli_option){ 0 };
    bool fits = true;
    sheaf_status *st = cli_parse(cli, table, NULL, argc, argv);
    if (st == NULL && (q.o.model == NULL || q.o.model[0] == '\0') && (q.o.config == NULL || q.o.config[0] == '\0'))
        st = sheaf_expected(sheaf_fail(SHEAF_E_ARG, "plan"), "--model DIR or --config FILE");
    if (st == NULL && q.o.steps == 0)
        q.o.steps = 1;
    if (st == NULL)
        st = train_flags_check(cli, table, &q.o);
    if (st == NULL)
        st = open_question(&q, cli);
    if (st == NULL)
        st = memory > 0 ? find_fit(&plan, &q, (size_t)(memory * 1048576), &fits) : answer(&plan, &q);
    if (st == NULL)
        sheaf__balance_note(q.opened.schema, q.o.tp, &cli->events);
    if (st == NULL && cli->json)
        print_json(cli, &q, &plan);
    else if (st == NULL)
        print_table(cli, &q, &plan);
    if (st == NULL && !fits)
        fprintf(cli->err, "no setting up to %d ranks fits %.0f MiB; a smaller --micro-batch or --seq, or --dtype bfloat16, may\n",
                q.o.slices, memory);
    else if (st == NULL && memory > 0)
        fprintf(cli->err, "fits: --tp %d%s\n", q.o.tp, q.o.checkpointing ? " --checkpointing" : "");
    sheaf_data_close(q.data);
    sheaf__selection_release(&q.selection);
    sheaf_lora_options_release(&q.fresh);
    sheaf__opened_close(&q.opened);
    return cli_answer(cli, st, fits);
}
