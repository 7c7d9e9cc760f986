/* run_model.h - opens the model of eval, generate and chat, which may be the output folder of a
 * training run, or one checkpoint in it: the run's base with its trained tensors.
 *
 *   OUT                            its result, OUT/adapter or OUT/model; before the run is done
 *                                  its newest checkpoint
 *   OUT/adapter                    the same; beside a --model its settings count too, and its own
 *                                  fingerprint says whether that is the base
 *   OUT/checkpoints/step-00000010  the adapter, or the tensors that were trained, as they were
 *                                  after that step
 *
 * Tokenizer, template and query default to the run's. The base is that in OUT/settings, unless
 * --model names it and --adapter the run. */
#pragma once

#include <signal.h>

#include "checkpoint/store/checkpoint.h"
#include "library/settings.h"
#include "models/open.h"
#include "train/options.h"
#include "train/origin.h"
#include "train/select.h"

/* The settings and checkpoint of a run. */
typedef struct sheaf__run_reading {
    sheaf__settings state;
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    sheaf_train_options options;
    char *out;  /* its folder; the step's own if it is outside of OUT */
    bool alone; /* a step outside of its OUT */
    char *step; /* folder of the checkpoint; NULL = the result */
    DIR *held;  /* that folder (checkpoint/store/checkpoint.h), or NULL */
    char
        *fixed; /* fixed settings in that checkpoint, or the newest one; NULL if none can be read */
} sheaf__run_reading;

typedef struct sheaf__run_model {
    sheaf__run_reading r; /* the run; `out` NULL: not a run, and its options are zero */
    /* folder of the base, for its tokenizer: how->model, or the run's; borrowed */
    const char *folder;
    char *base, *adapter, *config, *temporary;
    sheaf__run_tokenizer tokenizer; /* of an adapter that has one of its own */
    sigset_t signals;               /* blocked before `temporary` was made, whose lock is held */
    int lock;
    /* of methods head and full, whose tensors replace the base's; or NULL */
    sheaf_checkpoint *step;
    sheaf_source *masters; /* its tensors */
} sheaf__run_model;

/* sheaf__run_model_open - sheaf__open_model() with paths of runs resolved; how->slices 0 means the
 * run's, else 8. Close `out`, then release `run`, also after a failure. Files of a run are only
 * read: it may be active. Errors besides: SHEAF_E_ARG for a run and an adapter, and for an adapter
 * that is a whole model; SHEAF_E_LAYOUT for another base than the run's; SHEAF_E_IO for a missing
 * one; SHEAF_E_UNSUPPORTED for a run of another version.
 */
sheaf_status *sheaf__run_model_open(sheaf__opened *out, sheaf__run_model *run,
                                    const sheaf__open_options *how);
/* sheaf__run_model_base - folder and config (each owned, or NULL if not named) of the base of a
 * run, or of a checkpoint in it; both NULL for other paths. Errors: those of the run's settings.
 */
sheaf_status *sheaf__run_model_base(char **model, char **config, const char *path);
/* sheaf__run_model_tokenizer - the folder whose tokenizer is the model's, where none is named. */
const char *sheaf__run_model_tokenizer(const sheaf__run_model *run);
/* sheaf__run_model_text_defaults - replaces NULL by the run's setting, borrowed. The run's date is
 * used only with its template. Returns whether the template is the run's. */
bool sheaf__run_model_text_defaults(const sheaf__run_model *run, const char **tokenizer,
                                    const char **version, const char **date, const char **query);
/* sheaf__train_dtype - replaces an unset dtype (SHEAF_BOOL) by the model's own. Failures to open
 * the model are ignored: they are reported when it is loaded. */
void sheaf__train_dtype(sheaf_train_options *options, const sheaf_events *events);
/* sheaf__run_model_dtype - dtype of activations: `requested`, or if SHEAF_BOOL the run's, else the
 * model's own. */
sheaf_dtype sheaf__run_model_dtype(const sheaf__run_model *run, sheaf_dtype requested,
                                   const sheaf_config *config, const sheaf_events *events);
/* sheaf__run_model_ranks - can `tp` ranks share it, with the requested `slices` (0: the run's)?
 * Errors: SHEAF_E_ARG if the run has fewer. */
sheaf_status *sheaf__run_model_ranks(const sheaf__run_model *run, int slices, int tp);
void sheaf__run_model_release(sheaf__run_model *run);

/* ---- shared with run_export.c ---- */

/* sheaf__run_read - *is: `path` is a run's, OUT or a step, and `out` is filled. `newest`: OUT means
 * its newest checkpoint, even if there is a result. Release also after a failure. */
sheaf_status *sheaf__run_read(sheaf__run_reading *out, bool *is, const char *path, bool newest);
/* sheaf__run_read_adapter - the same where `path` is OUT/adapter, a run's result: its settings. One
 * whose settings cannot be read is another program's adapter. */
sheaf_status *sheaf__run_read_adapter(sheaf__run_reading *out, bool *is, const char *path);
void sheaf__run_reading_release(sheaf__run_reading *reading);
/* sheaf__run_copy - *to is a copy, untouched where `from` is NULL or empty. */
sheaf_status *sheaf__run_copy(char **to, const char *from);

/* sheaf__run_check_base - does the base match the origin in a run's `progress` (NULL: no
 * checkpoint)? Reads all of it, unless the files are unchanged since the run hashed them. `path` is
 * the run's or its checkpoint's, for the advice, NULL if it was not given with --adapter; `result`:
 * does not check the adapter that the run started with. */
sheaf_status *sheaf__run_check_base(const char *progress, const sheaf__opened *opened,
                                    const sheaf__origin_from *from, const char *path, bool result);
