/* run_model.h - a model as eval, generate and chat take it: also the output folder of a training
 * run, or one checkpoint in it, which mean the run's base with what it trained.
 *
 *   OUT                               its result, OUT/adapter or OUT/model; before the run is done
 * its newest checkpoint OUT/checkpoints/step-00000010     the adapter, or the tensors that were
 * trained, as they were after that step
 *
 * Tokenizer, template and query are the run's where no flag gives them. The base is the one that
 * OUT/settings names, unless --model names it and --adapter the run. */
#pragma once

#include <signal.h>

#include "checkpoint/store/checkpoint.h"
#include "library/settings.h"
#include "models/open.h"
#include "train/options.h"

typedef struct sheaf__run_model {
    const char
        *folder; /* of the base, where a tokenizer may lie: how->model, or the run's; borrowed */
    char *base, *adapter, *config, *temporary, *out;
    sigset_t signals; /* blocked before `temporary` was made, whose lock is held */
    int lock;
    sheaf_checkpoint
        *step; /* of whole tensors (methods head and full), which lie over the base; NULL */
    DIR *held; /* its folder stays (checkpoint/store/checkpoint.h); or NULL */
    sheaf_source *masters;       /* its tensors */
    sheaf_bf16_sums sums;        /* of a run in bfloat16, else unnamed */
    int slices;                  /* of the run; 0: there is none */
    sheaf_dtype dtype;           /* of its activations; read only where `out` is there */
    sheaf_train_options options; /* the run's; all zero: there is none */
    sheaf__settings state;       /* in which its texts are */
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
/* sheaf__run_model_words - gives what no flag gave (NULL) the run's words, borrowed. The run's date
 * goes with its template. Is the template the run's, not a flag's? */
bool sheaf__run_model_words(const sheaf__run_model *run, const char **tokenizer,
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
