/* restarts.h - `--restarts N`: this process begins the run in another one, and again where it ends
 * by a failure. */
#pragma once

#include <stdbool.h>

#include "shared.h"
#include "train/options.h"

/* cli_is_supervised - was this process begun by cli_supervise()? */
bool cli_is_supervised(void);
/* cli_spent_before - seconds from the start of that one to that of this process; 0: none. */
double cli_spent_before(void);
/* cli_supervise - `sheaf` with these words (argv[0] is the subcommand), until it ends well, as
 * asked, or `o->restarts` are used up; *code: its exit code. Signals are passed on. Errors:
 * SHEAF_E_ARG under another launcher, which would see a process end; SHEAF_E_IO. */
sheaf_status *cli_supervise(int *code, cli *cli, const sheaf_train_options *o, int argc,
                            char **argv);
/* cli_fewer_ranks - T and D for `left` ranks: D as it was while there are so many, then the largest
 * T. `accumulators`: D divides them. */
void cli_fewer_ranks(int *tp, int *dp, int left, int accumulators);
