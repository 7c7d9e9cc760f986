/* share.h - private to infer: answers of prompts that groups of ranks have divided. */
#pragma once

#include "infer/generate.h"

/* sheaf__share_answers - after each group made its share of `out` (sheaf__share_of()), with status
 * `st`, which is consumed: all have all, also what there was when one was stopped; SHEAF_E_STOPPED
 * on all then. Collective among peers, but for a rank that failed otherwise. */
sheaf_status *sheaf__share_answers(sheaf__continuation *out, const sheaf__context *context,
                                   int64_t count, int64_t best, sheaf_status *st);
