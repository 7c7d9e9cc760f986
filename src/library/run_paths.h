/* run_paths.h - where a run that goes on finds what it was given by relative paths. */
#pragma once

#include "library/settings.h"
#include "train/options.h"

/* sheaf__run_paths_begin - of a run whose settings are about to be written: the folder that its
 * relative paths count from, and what the result says of its base. Paths given with --resume from
 * another folder become absolute. */
sheaf_status *sheaf__run_paths_begin(sheaf__settings *state, const sheaf__setting *table,
                                     sheaf_train_options *o);

/* sheaf__run_paths_find - after sheaf__settings_resume(): relative paths that were stored are
 * looked for where the run began, here, in OUT, and in the folders that OUT is in. With `needed`
 * one that lies nowhere is an error; else it stays as it is. */
sheaf_status *sheaf__run_paths_find(sheaf__settings *state, const sheaf__setting *table,
                                    const sheaf_train_options *o, const char *out, bool needed);

/* sheaf__run_paths_none - the error for --resume --out OUT where no run is; names one beside it
 * whose name is nearly that. */
sheaf_status *sheaf__run_paths_none(const char *out);
