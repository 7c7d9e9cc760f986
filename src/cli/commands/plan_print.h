/* plan_print.h - request and result of `sheaf plan`, and their printing. */
#pragma once

#include <jansson.h>

#include "cli/lib/cli.h"
#include "sheaf/sheaf.h"

enum { CLI_PLAN_BY_KIND, CLI_PLAN_BY_COMPONENT };

typedef struct cli_plan {
    sheaf_plan_options ask;
    int by;
    struct {
        int dp;
        int64_t micro_batch, seq;
    } requested;
    /* of the answer */
    int64_t seq;
    int slices;
    sheaf_dtype dtype;
    bool has_data;
    sheaf_needs_facts facts;
} cli_plan;

/* cli_plan_print - prints the result as text; with --memory also on stderr, beside JSON too, the
 * setting that fits. */
void cli_plan_print(const cli *cli, const cli_plan *q, const json_t *answer);
