/* ending.h - the end of a run that cannot go on: from the watching thread, while ranks still wait.
 */
#pragma once

#include <stddef.h>

#include "library/watched.h"
#include "sheaf/status.h"

/* The hook of library/watched.h; `self` is the cli. Ends the process with exit code 3. */
void cli_end(void *self, const sheaf__watch_end *why);

/* cli_verdict - writes down why this process ends, for the one that supervises it (restarts.h),
 * where there is one. */
void cli_verdict(const sheaf_status *st);

/* Where it is written: the file that this variable of the environment names. */
#define CLI_VERDICT "SHEAF_SUPERVISED"
