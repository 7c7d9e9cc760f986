/* plan_time.h - `sheaf plan --time`: how long a step takes. */
#ifndef SHEAF_CLI_COMMANDS_PLAN_TIME_H
#define SHEAF_CLI_COMMANDS_PLAN_TIME_H

#include <jansson.h>

#include "cli/lib/cli.h"
#include "library/timing.h"

typedef struct cli_time {
    bool asked;
    const char *profile, *save; /* files; NULL: measured here, not kept */
    sheaf_profile from;
    sheaf_time is;
    double tokens; /* of a step */
    int64_t steps; /* of the run; 0: not known */
} cli_time;

/* cli_time_options - fills three entries. */
void cli_time_options(cli_option table[3], cli_time *time);
/* cli_time_check - flags that need --time. Errors: SHEAF_E_ARG. */
sheaf_status *cli_time_check(const cli_time *time);
/* cli_time_find - reads or measures the profile and prices a step; release also after a failure. */
sheaf_status *cli_time_find(cli_time *time, const sheaf__question *question, const cli *cli);
void cli_time_print(const cli *cli, const cli_time *time);
json_t *cli_time_json(const cli_time *time);
void cli_time_release(cli_time *time);

#endif
