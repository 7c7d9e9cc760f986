/* plan_time.h - `sheaf plan --time`: how long a step takes. */
#ifndef SHEAF_CLI_COMMANDS_PLAN_TIME_H
#define SHEAF_CLI_COMMANDS_PLAN_TIME_H

#include <jansson.h>

#include "cli/lib/cli.h"
#include "library/timing.h"

typedef struct cli_time {
    bool asked;
    const char *profile, *save; /* files; NULL: measured here, not kept */
    const char *link_text;      /* NULL: not given */
    sheaf_cluster_link link;
    sheaf__timing_found found;
    int64_t steps; /* of the run; 0: not known */
} cli_time;

/* cli_time_options - fills four entries. */
void cli_time_options(cli_option table[4], cli_time *time);
/* cli_time_joins - are the ranks processes that something has started, and are to be measured so?
 */
bool cli_time_joins(const cli_time *time, const sheaf_train_options *options);
/* cli_time_check - reads --link; flags that need --time. generates: with --place. Errors:
 * SHEAF_E_ARG. */
sheaf_status *cli_time_check(cli_time *time, const sheaf_train_options *options, bool generates);
/* cli_time_find - reads or measures the profile and prices a step, or generation; release also
 * after a failure. Of several processes the first has the answer. */
sheaf_status *cli_time_find(cli_time *time, const sheaf__question *question, const cli *cli);
/* cli_time_unsaved - why --save-profile kept nothing, for when the answer is printed; the caller's.
 */
sheaf_status *cli_time_unsaved(cli_time *time);
void cli_time_print(const cli *cli, const cli_time *time);
json_t *cli_time_json(const cli_time *time);
void cli_time_release(cli_time *time);

#endif
