/* run_model.h - a model as eval, generate and chat take it: also the output folder of a training
 * run, or one checkpoint in it, which mean the run's base with what it trained.
 *
 *   OUT                            its result, OUT/adapter or OUT/model; before the run is done
 *                                  its newest checkpoint
 *   OUT/checkpoints/step-00000010  the adapter, or the tensors that were trained, as they were
 *                                  after that step
 *
 * Tokenizer, template and query are the run's where no flag gives them. The base is the one that
 * OUT/settings names, unless --model names it and --adapter the run. */
#pragma once

#include <signal.h>

#include "checkpoint/store/checkpoint.h"
#include "library/settings.h"
#include "models/open.h"
#include "train/options.h"
#include "train/origin.h"
#include "train/select.h"

/* What is known of a run. */
typedef struct sheaf__run_reading {
    sheaf__settings state;
    sheaf__setting table[SHEAF__MAX_SETTINGS];
    sheaf_train_options options;
    char *out;    /* its folder; of a step that lies alone, the step's */
    bool alone;   /* it is a step that lies so */
    char *step;   /* folder of the checkpoint; NULL = the result */
    DIR *held;    /* that folder (checkpoint/store/checkpoint.h), or NULL */
    char *fixed;  /* settings as that checkpoint, or the newest one, holds them: all but paths and
                     what may change; NULL where none can be read */
    int contract; /* of the same one; 0 */
} sheaf__run_reading;

typedef struct sheaf__run_model {
    sheaf__run_reading r; /* the run; its `out` NULL: there is none, and its options are zero */
    /* of the base, where a tokenizer may lie: how->model, or the run's; borrowed */
    const char *folder;
    char *base, *adapter, *config, *temporary;
    sigset_t signals; /* blocked before `temporary` was made, whose lock is held */
    int lock;
    /* of whole tensors (methods head and full), which lie over the base; NULL */
    sheaf_checkpoint *step;
    sheaf_source *masters; /* its tensors */
} sheaf__run_model;

/* sheaf__run_model_open - sheaf__open_model() after paths of runs were replaced; of how->slices 0
 * is the run's, else 8. Close `out`, then release `run`, also after a failure. The files of a run
 * are only read: it may be going on. Errors besides: SHEAF_E_ARG for a run and an adapter, and for
 * an adapter that is a whole model; SHEAF_E_LAYOUT for a base that is not the one of the run;
 * SHEAF_E_IO for one that is not there; SHEAF_E_UNSUPPORTED for a run of a later numeric contract.
 */
sheaf_status *sheaf__run_model_open(sheaf__opened *out, sheaf__run_model *run,
                                    const sheaf__open_options *how);
/* sheaf__run_model_base - folder and config (each owned, or NULL where it is not named) of the base
 * of a run, or of a checkpoint in it; both NULL for any other path. Errors: those of the run's
 * settings.
 */
sheaf_status *sheaf__run_model_base(char **model, char **config, const char *path);
/* sheaf__run_model_text_defaults - gives what no flag gave (NULL) the run's words, borrowed. The
 * run's date goes with its template. Is the template the run's, not a flag's? */
bool sheaf__run_model_text_defaults(const sheaf__run_model *run, const char **tokenizer,
                                    const char **version, const char **date, const char **query);
/* sheaf__own_dtype - of a model's activations where nothing names it: as its config says, or
 * float32; noted, but float32 by its config. */
sheaf_dtype sheaf__own_dtype(const sheaf_config *config, const sheaf_events *events);
/* sheaf__train_dtype - a type of activations that nothing has named (SHEAF_BOOL) becomes the
 * model's own. A model that cannot be opened has none: what fails here fails again where it is
 * loaded. */
void sheaf__train_dtype(sheaf_train_options *options, const sheaf_events *events);
/* sheaf__run_model_dtype - of activations: as `asked`, else (SHEAF_BOOL) the run's, else the
 * model's own. */
sheaf_dtype sheaf__run_model_dtype(const sheaf__run_model *run, sheaf_dtype asked,
                                   const sheaf_config *config, const sheaf_events *events);
/* sheaf__run_model_ranks - can `tp` ranks share it, in `slices` as they were asked for (0: the
 * run's)? Errors: SHEAF_E_ARG where the run has fewer. */
sheaf_status *sheaf__run_model_ranks(const sheaf__run_model *run, int slices, int tp);
void sheaf__run_model_release(sheaf__run_model *run);

/* ---- what run_export.c needs, too ---- */

/* sheaf__run_read - *is: `path` is a run's, OUT or a step, and `out` is filled. `newest`: of OUT
 * the newest checkpoint is meant, also where there is a result. Release also after a failure. */
sheaf_status *sheaf__run_read(sheaf__run_reading *out, bool *is, const char *path, bool newest);
void sheaf__run_reading_release(sheaf__run_reading *reading);
/* sheaf__run_copy - *to is a copy, untouched where `from` is NULL or empty. */
sheaf_status *sheaf__run_copy(char **to, const char *from);

/* A model as the run opened it. Release all of it also after a failure. */
typedef struct sheaf__run_base {
    sheaf__opened opened;
    sheaf__selection selection;
    sheaf_lora_options fresh;
} sheaf__run_base;
sheaf_status *sheaf__run_base_open(sheaf__run_base *out, const sheaf__run_reading *reading,
                                   const char *model, const char *config);
void sheaf__run_base_release(sheaf__run_base *trained);

/* sheaf__run_check_base - is it the base with which the run began that left `progress`? (NULL:
 * which left no checkpoint.) All of it is read, unless the run knows these very files. `path` is
 * the run's or its checkpoint's, for the advice, NULL where it was not given with --adapter;
 * `result`: the adapter that the run started with is not asked for. */
sheaf_status *sheaf__run_check_base(const char *progress, const sheaf__opened *opened,
                                    const sheaf__origin_from *from, const char *path, bool result);
