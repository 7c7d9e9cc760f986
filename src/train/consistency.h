/* consistency.h - the processes of a run must agree in all that decides about its bytes: they are
 * compared before the first step, and a difference is reported with rank and host. */
#pragma once

#include "base/text.h"
#include "train/options.h"
#include "train/origin.h"
#include "train/sets.h"

struct sheaf__run; /* run.h */

/* Collective of all processes; with one nothing happens. Errors: SHEAF_E_ARG, the same on all.
 * sheaf__consistency_begin - before the ranks are made: version, contract, order of sums, settings,
 * base model as far as it is known, tokenizer, adapter, data. */
sheaf_status *sheaf__consistency_begin(const struct sheaf__run *run, const sheaf__sets *sets);
/* sheaf__consistency_weights - once each has read, or knows, all of the base. */
sheaf_status *sheaf__consistency_weights(sheaf_comm *all, const sheaf__origin *origin);
/* sheaf__consistency_line - a name and a value, NULL or empty is "none". */
void sheaf__consistency_line(sheaf_text *text, const char *name, const char *value);
/* sheaf__consistency_common - the lines of version, kind of processor, order of sums, base model as
 * far as it is known, tokenizer and adapter. */
void sheaf__consistency_common(sheaf_text *text, const sheaf__origin *origin, sheaf_dtype dtype,
                               sheaf_bf16_sums sums);
/* sheaf__consistency_lines - whatever else must be the same: lines of a name, a tab and a value. */
sheaf_status *sheaf__consistency_lines(sheaf_comm *all, const char *mine);
