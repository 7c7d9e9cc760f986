/* places.h - where a run that goes on finds what it was given by relative paths. */
#ifndef SHEAF_CLI_COMMANDS_PLACES_H
#define SHEAF_CLI_COMMANDS_PLACES_H

#include "cli/lib/cli.h"
#include "train/options.h"

/* places_begin - of a run whose settings are about to be written: the folder that its relative
 * paths count from, and what the result says of its base. Paths given with --resume from another
 * folder become absolute. */
sheaf_status *places_begin(cli *cli, const cli_option *table, sheaf_train_options *o);

/* places_find - after cli_settings_resume(): relative paths that were stored are looked for where
 * the run began, here, in OUT, and in the folders that OUT is in. With `needed` one that lies
 * nowhere is an error; else it stays as it is. */
sheaf_status *places_find(cli *cli, const cli_option *table, const sheaf_train_options *o,
                          const char *out, bool needed);

/* places_no_run - the error for --resume --out OUT where no run is; names one beside it whose name
 * is nearly that. */
sheaf_status *places_no_run(const char *out);

#endif
