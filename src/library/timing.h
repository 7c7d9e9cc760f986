/* timing.h - how long a step of a training setting takes, or generation: measured on a shorter
 * model, predicted for the whole one (plan/time.h). */
#ifndef SHEAF_LIBRARY_TIMING_H
#define SHEAF_LIBRARY_TIMING_H

#include "library/question.h"
#include "plan/fits.h"
#include "plan/time.h"

enum { SHEAF__TIMED_LAYERS = 3 }; /* the first, the last and one between, of each stack */

typedef struct sheaf__timing_how {
    const char *machine; /* its name */
    /* With it, of several ranks: one is measured by itself, and what it exchanges takes as long as
     * this link needs; NULL: all are measured, as the threads or processes that they are. */
    const sheaf_cluster_link *link;
    int rank; /* the one that is measured or, of all, looked at: the first but with a link */
    const sheaf_events *events;
} sheaf__timing_how;

/* sheaf__timing_measure - a profile of this machine in the question's setting: real steps, for some
 * seconds, of the model with three layers of each stack and made-up weights; rows are the
 * question's, or made up. Nothing is written. The fastest of the steps counts.
 *   question  opened, of training
 *   out       release also after a failure; of several processes only the first has it
 * Errors: SHEAF_E_MEMORY where even that does not fit; those of training. */
sheaf_status *sheaf__timing_measure(sheaf_profile *out, const sheaf__question *question,
                                    const sheaf__timing_how *how);

/* sheaf__timing_predict - a step of the question, the mean of the first ones where its rows differ.
 * Errors: SHEAF_E_ARG for a profile of another setting. */
sheaf_status *sheaf__timing_predict(sheaf_time *out, const sheaf__question *question,
                                    const sheaf_profile *profile, const sheaf__timing_how *how);

/* Of a question of generation: the prompts that are read together, and then a token of each in the
 * middle of the answer. */
typedef struct sheaf__timing_answers {
    sheaf_time read, next;
} sheaf__timing_answers;

/* sheaf__timing_measure_answers, sheaf__timing_predict_answers - as above, of one stage. Between
 * two tokens as many bytes are read as the layers that are left out hold, at most 256 MiB: caches
 * are as in a run. Of prompts the fastest turn counts, of tokens the middle one: a run has hundreds
 * of them, so it meets as many slow ones.
 * Errors also: SHEAF_E_ARG for stages, and for a prompt without room for the model's image. */
sheaf_status *sheaf__timing_measure_answers(sheaf_profile *out, const sheaf__question *question,
                                            const sheaf__timing_how *how);
sheaf_status *sheaf__timing_predict_answers(sheaf__timing_answers *out,
                                            const sheaf__question *question,
                                            const sheaf_profile *profile,
                                            const sheaf__timing_how *how);

/* What is asked, and the answer. */
typedef struct sheaf__timing_asked {
    const char *profile, *save; /* files; NULL: measured here, not kept */
    sheaf__timing_how how;
} sheaf__timing_asked;
typedef struct sheaf__timing_found {
    sheaf_profile from;
    sheaf_time is;          /* a step; of generation the prompts */
    sheaf_time next;        /* of generation a token of each sequence; step 0: training */
    double tokens;          /* of a step, or of all prompts */
    int64_t batch, max_new; /* of generation */
    int rank;               /* that the times are of; with a link the one with the most to do */
    sheaf_status *unsaved;  /* why the profile was not kept, all else being well; the caller's */
} sheaf__timing_found;

/* sheaf__timing_find - reads or measures the profile, and prices the question; of several ranks
 * with a link the one that has the most to do (asked->how.rank is not read). Release `from` also
 * after a failure. Of several processes the first has the answer. */
sheaf_status *sheaf__timing_find(sheaf__timing_found *out, const sheaf__question *question,
                                 const sheaf__timing_asked *asked);
/* sheaf__timing_tokens - those of a step, by the mean of all rows where there are data. */
double sheaf__timing_tokens(const sheaf__question *question);

/* Private to both: what a profile of the question holds for; do seconds of it come from the
 * processor's clock? Where one thread computes, others on the machine cost less truth so. */
sheaf_profile_setting sheaf__timing_setting(const sheaf__question *question,
                                            const sheaf_cluster_link *link);
bool sheaf__timing_by_processor(const sheaf_profile_setting *of, int rank);
/* Compute threads of this process while it measures. */
int sheaf__timing_threads(const sheaf_profile_setting *of, const sheaf__device *device);
/* How to ask whether the ranks on this machine fit into it; false: another process there asks. */
bool sheaf__timing_fits(sheaf_fits_how *out, const sheaf__question *question,
                        const sheaf__timing_how *how);
/* Ranks are processes where several have come together. */
sheaf_transport sheaf__timing_transport(void);

#endif
