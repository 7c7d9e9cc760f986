/* plan_print.h - question and answer of `sheaf plan`, and how they are printed. */
#pragma once

#include <jansson.h>

#include "cli/lib/cli.h"
#include "library/fit.h"
#include "library/question.h"
#include "library/timing.h"

enum { CLI_PLAN_BY_KIND, CLI_PLAN_BY_COMPONENT };
enum { CLI_PLAN_NO_TABLE, CLI_PLAN_TABLE_RANKS, CLI_PLAN_TABLE_METHODS };

/* What the data mean for a run. */
typedef struct cli_plan_work {
    int64_t rows, tokens, labels; /* of an epoch */
    int64_t epoch_steps, steps;   /* of an epoch; of the run, or of an epoch where none are given */
    double all_tokens;            /* of the run */
    sheaf__trial trial;           /* steps 0: none */
    double hours;                 /* of the run at its speed */
} cli_plan_work;

typedef struct cli_plan {
    sheaf__question ask;
    int by, table;
    int groups;       /* --dp beside --place, where it does nothing */
    size_t memory;    /* bytes; 0: not given */
    const int *slots; /* of each host, as sheaf__fit_find() takes it */
    int slot[SHEAF_MAX_SLICES + 1];
    bool trial;
    sheaf__fit fit;
    cli_plan_work work;
    bool time; /* --time */
    sheaf__timing timing;
    int64_t timed_steps;                    /* of the run; 0: not known */
    sheaf__count (*first)[SHEAF__TRAFFICS]; /* [ranks] of the first step, with data; else NULL */
} cli_plan;

/* cli_plan_print - the answer, as text or JSON; and with --memory on stderr what fits, `asked`
 * being the settings as they were given. */
void cli_plan_print(const cli *cli, const cli_plan *q, const sheaf_plan *plan,
                    const sheaf_train_options *asked);
/* cli_plan_table - a table instead of an answer; opens the question. */
sheaf_status *cli_plan_table(cli_plan *q, const cli *cli);

/* Private to them: positions that an image takes in its row (0 where there is none), bytes in MiB,
 * and an object as a line, which is released. */
int64_t cli_plan_image(const cli_plan *q);
double cli_plan_mib(size_t bytes);
void cli_plan_object(const cli *cli, json_t *object);
