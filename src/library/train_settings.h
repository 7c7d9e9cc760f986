/* train_settings.h - the flags of `sheaf train`, which `sheaf plan` shares. */
#pragma once

#include "library/settings.h"
#include "train/options.h"

/* sheaf__train_settings - fills `table` (space for SHEAF__MAX_SETTINGS) with the flags, their
 * values pointing into *options, and the zero entry that ends it. *options must hold the defaults;
 * its dtype is then SHEAF_BOOL: not named. With `planning` nothing is required but a model: plan
 * needs neither data nor OUT. */
void sheaf__train_settings(sheaf__setting *table, sheaf_train_options *options, bool planning);

/* sheaf__train_settings_resumed - after sheaf__settings_resume(): the number of accumulators that
 * is not written down may be named; an order of sums that the dtype does not have is none. Errors:
 * SHEAF_E_ARG where something else is named. */
sheaf_status *sheaf__train_settings_resumed(const sheaf__settings *state,
                                            const sheaf__setting *table,
                                            sheaf_train_options *options);

/* sheaf__train_settings_check - what one flag alone cannot tell: tp over slices, dp that does not
 * divide the accumulators, flags of another method, and after --resume what neither flags nor
 * the stored settings gave. Of steps and epochs the one that was given makes the other zero.
 * Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__train_settings_check(const sheaf__settings *state, const sheaf__setting *table,
                                          sheaf_train_options *options);

/* sheaf__transport_check - --mpi, --hosts and --hostfile without processes are SHEAF_E_ARG. */
sheaf_status *sheaf__transport_check(const sheaf__settings *state, const sheaf__setting *table,
                                     sheaf_transport transport);

extern const sheaf__choice sheaf__transport_choices[]; /* threads, mpi as sheaf_transport */
#define SHEAF__TRANSPORT_HELP                                                                      \
    "ranks are threads of one process, or processes (MPI), also on several machines"
#define SHEAF__MPI_HELP                                                                            \
    "with `transport mpi`: openmpi, mpich, or the path of a plug-in; default: what is installed"
#define SHEAF__HOSTS_HELP "with `transport mpi`: hosts and how many ranks each takes, as in a:2,b:2"
#define SHEAF__HOSTFILE_HELP "the same as a file, in the form that the MPI's mpirun reads"
#define SHEAF__HEARTBEAT_HELP                                                                      \
    "several processes: the run fails when one is silent for so long; 0 = only after `hang-after`"

/* ---- relative paths of a run (run_paths.c) ---- */

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

/* As sheaf__setting.from: a reference's "start" and "base" are no folders, rewards may be rules and
 * commands, a cache may be made. */
sheaf_status *sheaf__reference_from(char **out, bool *there, const char *folder, const char *value);
sheaf_status *sheaf__rewards_from(char **out, bool *there, const char *folder, const char *value);
sheaf_status *sheaf__cache_from(char **out, bool *there, const char *folder, const char *value);
/* sheaf__run_paths_none - the error for --resume --out OUT where no run is; names one beside it
 * whose name is nearly that. */
sheaf_status *sheaf__run_paths_none(const char *out);
