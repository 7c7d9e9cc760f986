/* train.h - `sheaf train`: the ranks of a run where the driver puts them. */
#pragma once

#include "driver/driver.h"

/* driver_train - sheaf_run_train() with the flags that were parsed, to its exit code: in this
 * process or in several, which it starts, and with --restarts again after a failure. `st`: of
 * parsing; consumed. */
int driver_train(driver *d, sheaf__run_settings *run, sheaf_status *st);
