/* train.h - private: a run's options as settings. */
#pragma once

#include "library/train_settings.h"
#include "sheaf/train.h"

/* sheaf__train_take - fills `table` and *to with the defaults, what *from gives and the lines of
 * its settings. Release `state` after the use of *to, also after a failure. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__train_take(sheaf__settings *state, sheaf__setting table[SHEAF__MAX_SETTINGS],
                                sheaf_train_options *to, const sheaf_run_train_options *from,
                                bool planning);
