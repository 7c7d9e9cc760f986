/* timing.h - how long a step of a training setting takes: measured on a shorter model, predicted
 * for the whole one (plan/time.h). */
#ifndef SHEAF_LIBRARY_TIMING_H
#define SHEAF_LIBRARY_TIMING_H

#include "library/question.h"
#include "plan/time.h"

enum { SHEAF__TIMED_LAYERS = 3 }; /* the first, the last and one between, of each stack */

/* sheaf__timing_measure - a profile of this machine in the question's setting: real steps, for some
 * seconds, of the model with three layers of each stack and made-up weights; rows are the
 * question's, or made up. Nothing is written. The fastest of the steps counts.
 *   question  opened, of training
 *   out       release also after a failure
 * Errors: SHEAF_E_MEMORY where even that does not fit; those of training. */
sheaf_status *sheaf__timing_measure(sheaf_profile *out, const sheaf__question *question,
                                    const char *machine, const sheaf_events *events);

/* sheaf__timing_predict - a step of the question, the mean of the first ones where its rows differ.
 * Errors: SHEAF_E_ARG for a profile of another setting. */
sheaf_status *sheaf__timing_predict(sheaf_time *out, const sheaf__question *question,
                                    const sheaf_profile *profile);

#endif
