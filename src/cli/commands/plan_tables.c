/* plan_tables.c - `sheaf plan --table`: see plan_print.h. */
#include "base/status.h"
#include "base/print.h"
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
