/* rates.h - checks the learning rates of a run: is any above 0, and does a run that goes on keep
 * those it began with? */
#pragma once

#include "base/events.h"
#include "train/options.h"

/* sheaf__rates_check - of a run whose steps are known. Warns of a warm-up that takes all of it, or
 * most of a few steps. Errors: SHEAF_E_ARG where every rate is 0. */
sheaf_status *sheaf__rates_check(const sheaf_train_options *options, const sheaf_events *events);

/* sheaf__rates_resumed - the run goes on after `done` steps, with other options than it `was` begun
 * with: warns of steps that are done already, and of a schedule that was another one so far. */
void sheaf__rates_resumed(const sheaf_train_options *options, const sheaf_train_options *was,
                          int64_t done, const sheaf_events *events);
