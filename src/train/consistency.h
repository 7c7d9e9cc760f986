/* consistency.h - compares all inputs of a run that determine its bytes between its processes,
 * before the first step, and reports a difference with rank and host. */
#pragma once

#include "base/text.h"
#include "train/options.h"
#include "train/origin.h"
#include "train/sets.h"

struct sheaf__run; /* run.h */

/* Collective of all processes; a single one does nothing. Errors: SHEAF_E_ARG, the same on all.
 * sheaf__consistency_begin - before the ranks start: version, contract, order of sums, settings,
 * base model as far as it is known, tokenizer, adapter, data. */
sheaf_status *sheaf__consistency_begin(const struct sheaf__run *run, const sheaf__sets *sets);
/* sheaf__consistency_weights - once each knows the fingerprint of the whole base. */
sheaf_status *sheaf__consistency_weights(sheaf_comm *all, const sheaf__origin *origin);
/* sheaf__consistency_line - appends a name and a value; NULL or empty is "none". */
void sheaf__consistency_line(sheaf_text *text, const char *name, const char *value);
/* sheaf__consistency_common - appends the lines of version, kind of processor, order of sums, base
 * model as far as it is known, tokenizer and adapter. */
void sheaf__consistency_common(sheaf_text *text, const sheaf__origin *origin, sheaf_dtype dtype,
                               sheaf_sums sums);
/* sheaf__consistency_lines - compares other texts: lines of a name, a tab and a value. */
sheaf_status *sheaf__consistency_lines(sheaf_comm *all, const char *mine);
