/* train_flags.h - the flags of `sheaf train`, which `sheaf plan` shares. */
#ifndef SHEAF_CLI_COMMANDS_TRAIN_FLAGS_H
#define SHEAF_CLI_COMMANDS_TRAIN_FLAGS_H

#include "cli/lib/cli.h"
#include "train/options.h"

/* train_flags - fills `table` (room for CLI_MAX_OPTIONS) with the flags, their values
 * pointing into *options, and the zero entry that ends it; returns the number of flags.
 * The caller may append its own and a new end. *options must hold the defaults.
 * With `planning` nothing is required but a model: plan needs neither data nor OUT. */
int train_flags(cli_option *table, sheaf_train_options *options, bool planning);

/* train_flags_resumed - after cli_settings_resume(): what settings from before a flag was there
 * mean by their silence. */
void train_flags_resumed(const cli *cli, const cli_option *table, sheaf_train_options *options);

/* train_flags_check - what one flag alone cannot tell: tp over slices, dp that does not
 * divide the accumulators, flags of another method, and after --resume what neither flags nor
 * the stored settings gave. Errors: SHEAF_E_ARG. */
sheaf_status *train_flags_check(const cli *cli, const cli_option *table,
                                const sheaf_train_options *options);

#endif
