/* plan_tables.c - `sheaf plan --table` and `--cluster`: see plan_print.h. */
#include <string.h>

#include "base/status.h"
#include "base/print.h"
#include "machine.h"
#include "plan_print.h"

/* ---- every number of ranks ---- */

typedef struct cell {
    size_t peak;
    int64_t trained;
} cell;

/* Ranks of a group, at most. */
static int most_ranks(const cli_plan *q)
{
    const int each = SHEAF_MAX_SLICES / q->ask.o.dp;
    return q->ask.o.slices < each ? q->ask.o.slices : each;
}

/* of[T - 1][checkpointing]; the question is asked anew for its method. */
static sheaf_status *fill_column(cell of[][2], cli_plan *q, const cli *cli)
{
    const cli_plan as_asked = *q;
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
static bool in_mib(const cli_plan *q, cell of[][SHEAF_MAX_SLICES][2], int n)
{
    size_t most = 0;
    for (int m = 0; m < n; m++)
        for (int i = 0; i < 2 * most_ranks(q); i++)
            most = of[m][i / 2][i % 2].peak > most ? of[m][i / 2][i % 2].peak : most;
    return most < (size_t)1 << 30;
}

static void print_columns(const cli *cli, const cli_plan *q, cell of[][SHEAF_MAX_SLICES][2],
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
                                 cli_plan_mib(of[m][tp - 1][again].peak) / (small ? 1 : 1024));
        if (!cli->json)
            fputc('\n', cli->out);
    }
    if (cli->json)
        cli_plan_object(cli,
                        json_pack("{s:o, s:I, s:I, s:I}", "table", list, "micro_batch",
                                  (json_int_t)q->ask.o.micro_batch, "seq", (json_int_t)q->ask.seq,
                                  "image", (json_int_t)cli_plan_image(q)));
}

/* Settings of LoRA and patterns go with their methods. */
sheaf_status *cli_plan_table(cli_plan *q, const cli *cli)
{
    static const sheaf_method all[] = { SHEAF_METHOD_LORA, SHEAF_METHOD_HEAD, SHEAF_METHOD_FULL };
    const int n = q->table == CLI_PLAN_TABLE_METHODS ? 3 : 1;
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
            q->ask.o.train = NULL;
        st = fill_column(of[m], q, cli);
    }
    if (st == NULL)
        print_columns(cli, q, of, method, n);
    return st;
}

/* ---- a cluster ---- */

static void print_rows(const cli *cli, const cli_plan *q, const sheaf_cluster *c,
                       const sheaf_cluster_row *row, int n)
{
    json_t *list = cli->json ? json_array() : NULL;
    if (!cli->json)
        sheaf__print(
            cli->out,
            "|   | ranks | T | D | computing s | exchanging s | of it groups s | "
            "step s | times one rank | GiB |\n|---|---|---|---|---|---|---|---|---|---|\n");
    for (int ranks = 1; ranks <= SHEAF_MAX_SLICES; ranks *= 2)
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
                             one->step, times, cli_plan_mib(one->memory) / 1024);
        }
    if (cli->json)
        cli_plan_object(cli,
                        json_pack("{s:o, s:f, s:I, s:I, s:I}", "cluster", list, "rate", c->rate,
                                  "micro_batch", (json_int_t)q->ask.o.micro_batch, "accumulate",
                                  (json_int_t)q->ask.o.accumulate, "seq", (json_int_t)q->ask.seq));
}

/* Without a rate: that of the fastest kind of product that this machine has for the type, on one
 * core. */
static sheaf_status *measure_rate(sheaf_cluster *c, const cli_plan *q, const cli *cli)
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

sheaf_status *cli_plan_cluster(cli_plan *q, const cli *cli)
{
    sheaf_cluster_row row[SHEAF_CLUSTER_ROWS];
    int n = 0;
    sheaf_status *st = sheaf__question_open(&q->ask, &cli->events);
    TRY(st, measure_rate(&q->cluster, q, cli));
    const sheaf__job job = sheaf__question_job(&q->ask);
    TRY(st, sheaf_cluster_plan(row, &n, &q->cluster, &job, (size_t)q->ask.data_bytes));
    if (st == NULL)
        print_rows(cli, q, &q->cluster, row, n);
    return st;
}
