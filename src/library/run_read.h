/* run_read.h - what run_model.c and run_export.c share: a run, as its folder or the folder of one
 * step tells of it. */
#pragma once

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

/* sheaf__run_read - *is: `path` is a run's, OUT or a step, and `out` is filled. `newest`: of OUT
 * the newest checkpoint is meant, also where there is a result. Release also after a failure. */
sheaf_status *sheaf__run_read(sheaf__run_reading *out, bool *is, const char *path, bool newest);
void sheaf__run_reading_release(sheaf__run_reading *reading);
/* sheaf__run_copy - *to is a copy, untouched where `from` is NULL or empty. */
sheaf_status *sheaf__run_copy(char **to, const char *from);

/* A model as the run opened it. Release all of it also after a failure. */
typedef struct sheaf__run_trained {
    sheaf__opened opened;
    sheaf__selection selection;
    sheaf_lora_options fresh;
} sheaf__run_trained;
sheaf_status *sheaf__run_trained_open(sheaf__run_trained *out, const sheaf__run_reading *reading,
                                      const char *model, const char *config);
void sheaf__run_trained_release(sheaf__run_trained *trained);

/* sheaf__run_check_base - is it the base with which the run began that left `progress`? (NULL:
 * which left no checkpoint.) All of it is read, unless the run knows these very files. `path` is
 * the run's or its checkpoint's, for the advice, NULL where it was not given with --adapter;
 * `result`: the adapter that the run started with is not asked for. */
sheaf_status *sheaf__run_check_base(const char *progress, const sheaf__opened *opened,
                                    const sheaf__origin_from *from, const char *path, bool result);
