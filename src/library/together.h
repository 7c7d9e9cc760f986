/* together.h - processes that judge or ask a model together have the same in hand, which is proven
 * before they load it: a mixture of two models, or of two files of data, would give an answer too.
 *
 * Compared are version and kind of machine, what is asked for, the model's config and its tensors
 * (names, types, shapes, first and last rows), all of the adapter, the tokenizer, and what the data
 * or prompts come to. */
#pragma once

#include "infer/prompts.h"
#include "library/judge.h"
#include "library/model.h"

/* Collective of all processes, whatever came before in this one: `st`, which is consumed. The
 * status of all, naming the rank and host that failed or has something else. With one process `st`.
 */
sheaf_status *sheaf__together_judge(sheaf_status *st, const sheaf__judge *judge);
sheaf_status *sheaf__together_ask(sheaf_status *st, const sheaf_model *model,
                                  const sheaf__prompts *prompts, const sheaf__asking *asking);
