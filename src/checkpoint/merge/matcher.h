/* matcher.h - matches one adapter with the tensors of the output; shared by match.c, which assigns
 * its tensors, and settle.c, for what can be decided and checked only once all are matched. */
#pragma once

#include "base/text.h"
#include "checkpoint/merge/plan.h"
#include "lora/match.h"

typedef struct sheaf__matcher {
    sheaf__merge_plan *plan;
    sheaf__merge_adapter *adapter;
    int number;
    bool leaves_named; /* sheaf__lora_leaves_named() */
    bool experts;      /* the adapter has LoRA on experts */
    sheaf_text lost;   /* tensors of the adapter that match nothing */
    int nlost;
    char packed[256]; /* of a quantized base: the first packed tensor in place of a weight; "" =
                         none */
} sheaf__matcher;

/* sheaf__merge_settle_squares - decides, after all were matched, which square weights are stored as
 * GPT-2's Conv1D, [in, out]. */
void sheaf__merge_settle_squares(sheaf__matcher *m);
/* sheaf__merge_check_required - the adapter's file must have what adapter_config.json requires for
 * this tensor of the base, under any of the tensor's names. Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__merge_check_required(sheaf__matcher *m, const sheaf__merge_tensor *t,
                                          bool may_lack);
