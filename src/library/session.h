/* session.h - a training run from its settings to its result, with all that OUT holds: settings,
 * metrics.jsonl and run.json beside the checkpoints (train/train.h). */
#pragma once

#include "library/train_settings.h"
#include "train/rank.h"
#include "train/train.h"
#include "sheaf/train.h"

/* The command (src/driver) behind a run, beside its flags. */
typedef struct sheaf__run_driver {
    int nwords; /* the command line, for run.json */
    const char *const *word;
    /* called once the settings are known to be sound; *elsewhere: the run is another process's, and
     * has ended there; may be NULL */
    sheaf_status *(*ready)(bool *elsewhere, void *self);
    void *self;
    double spent; /* seconds since the command began that this run goes on for; of --max-time */
    struct sheaf__process_join *join; /* comm/process.h; NULL: nothing has to be known of it */
    const struct sheaf__watch_hooks
        *watch; /* comm/watch/watch.h; NULL: nothing can end the program */
} sheaf__run_driver;

typedef struct sheaf__session_options {
    const sheaf__run_settings *run; /* those that were not given are filled from the run that goes
                                       on */
    const sheaf_events *events;     /* hear of everything */
    sheaf_control *control;         /* asked to save or stop; may be NULL */
    const atomic_int *enough;       /* as control->stop, of this run alone */
} sheaf__session_options;

/* sheaf__session_run - begins a run, or goes on with the one in options->out where its settings
 * say --resume. Errors: those of the settings and of sheaf_train(). Release *result also after a
 * failure. */
sheaf_status *sheaf__session_run(sheaf_train_result *result, const sheaf__session_options *options);

/* sheaf__first_record_note - the template by name, and the first row as the model sees it, special
 * tokens included, with marks around what is learnt; long parts are cut. Without a tokenizer that
 * can be read token ids stand for text. What cannot be read is not noted. */
void sheaf__first_record_note(const sheaf__job *job, const sheaf_events *events);

/* sheaf__adapter_settings - of a new run with --adapter: what a flag says of LoRA must be so in the
 * adapter, by what it means for this model; events hear of a recipe's lines, which are passed over.
 * Rank, alpha, dropout, rslora and bias that neither says become the adapter's, so that the
 * settings of the run are true. Other lists stay unset: the adapter holds them. Nothing where there
 * is no adapter, or the model or the adapter cannot be read: whoever opens them says why.
 * Errors: SHEAF_E_ARG with the flag. */
sheaf_status *sheaf__adapter_settings(const sheaf__settings *state, const sheaf__setting *table,
                                      sheaf_train_options *options, const sheaf_events *events);

/* sheaf__train_json, sheaf__train_text - the result as the object of `sheaf train --json`, and as
 * lines for people (malloc'd). Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__train_json(char **out, const sheaf_train_result *result,
                                const sheaf_train_options *options);
sheaf_status *sheaf__train_text(char **out, const sheaf_train_result *result,
                                const sheaf_train_options *options);

/* sheaf__run_train - as sheaf_run_train() by settings that are known: of *options callbacks, events
 * and control count alone. */
sheaf_status *sheaf__run_train(sheaf_run_train_report *report, const sheaf__run_settings *run,
                               const sheaf_run_train_options *options);
/* sheaf__train_take - `run` holds the defaults, what *from gives and the lines of its settings.
 * Close `run` and release `state` also after a failure. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__train_take(sheaf__run_settings *run, sheaf__settings *state,
                                const sheaf_run_train_options *from, bool planning);
