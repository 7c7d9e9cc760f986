/* session.h - a training run from its settings to its result, with all that OUT holds: settings,
 * metrics.jsonl and run.json beside the checkpoints (train/train.h). */
#pragma once

#include <stdio.h>

#include "library/settings.h"
#include "train/train.h"

typedef struct sheaf__session_options {
    sheaf__settings *state; /* of `table`: sheaf__train_settings() of `options`, as far as the
                               caller gave them */
    const sheaf__setting *table;
    sheaf_train_options
        *options;               /* those that were not given are filled from the run that goes on */
    FILE *progress;             /* a line of progress, as monitor/monitor.h has it; NULL: none */
    const sheaf_events *events; /* hear of everything; with `progress` of what comes before it */
    int nwords;                 /* the command line, for run.json */
    const char *const *word;
    sheaf_control *control;             /* asked to save or stop; may be NULL */
    const atomic_int *enough;           /* as signals->stop, of this run alone; may be NULL */
    sheaf_status *(*ready)(void *self); /* called once the settings are known to be sound; may be
                                           NULL */
    void *self;
    bool again;   /* with options->resume: a run that was begun with the same settings before, and
                     begins where it came to no folder; needs all settings */
    double spent; /* seconds since the command began that this run goes on for; of --max-time */
    struct sheaf__process_join *join; /* comm/process.h; NULL: nothing has to be known of it */
    const struct sheaf__watch_hooks *watch; /* watched.h; NULL: nobody can end the program */
} sheaf__session_options;

/* sheaf__session_run - begins a run, or goes on with the one in options->out where options->resume
 * says so. Errors: those of the settings and of sheaf_train(). Release *result also after a
 * failure. */
sheaf_status *sheaf__session_run(sheaf_train_result *result, const sheaf__session_options *options);
