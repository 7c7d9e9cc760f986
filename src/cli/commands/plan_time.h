/* plan_time.h - `sheaf plan --time`: how long a step takes. */
#pragma once

#include <jansson.h>

#include "cli/lib/cli.h"
#include "library/timing.h"

/* cli_time_print - steps: of the run; 0: not known. */
void cli_time_print(const cli *cli, const sheaf__timing *time, int64_t steps);
json_t *cli_time_json(const sheaf__timing *time, int64_t steps);
