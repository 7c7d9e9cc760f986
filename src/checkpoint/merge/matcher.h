/* matcher.h - matches one adapter with the tensors of the output; shared by match.c, which assigns
 * its tensors, names.c, which finds them by name, and settle.c, for what can be decided and checked
 * only once all are matched. */
#pragma once

#include "base/text.h"
#include "checkpoint/merge/plan.h"
#include "lora/match.h"

/* A tensor of the base under the name that transformers gives it on load. */
typedef struct sheaf__alias {
    char *name;
    sheaf__merge_tensor *tensor;
} sheaf__alias;

typedef struct sheaf__matcher {
    sheaf__merge_plan *plan;
    sheaf__merge_adapter *adapter;
    int number;
    /* prefixes: the base's names are the adapter's without `drop`, or with `add` in front */
    const char *drop, *add;
    size_t ndrop;
    sheaf__alias *alias; /* of every tensor of the output, by name; NULL: the adapter uses the names
                            of the files */
    sheaf_renames
        *renames;      /* the renamings that made them; the adapter's names may be older still */
    bool old_names;    /* some of the adapter's names are older */
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

/* ---- how the adapter names tensors (names.c) ---- */

bool sheaf__merge_is_float(sheaf_dtype dtype);
/* sheaf__merge_settle_names - finds the rule from the adapter's names to the base's: unchanged; a
 * prefix more or less; the renamings of transformers. Fills drop, add and alias, which stay empty
 * where no rule explains all names. */
sheaf_status *sheaf__merge_settle_names(sheaf__matcher *m, const sheaf_events *events);
void sheaf__merge_forget_names(sheaf__matcher *m);
/* sheaf__merge_place - the tensor of the output whose name in the adapter is PATH + end; NULL:
 * none. */
sheaf_status *sheaf__merge_place(sheaf__merge_tensor **out, sheaf__matcher *m, const char *path,
                                 const char *end);
/* sheaf__merge_alias - the tensor's name in the adapter, without a prefix. */
const char *sheaf__merge_alias(const sheaf__matcher *m, const sheaf__merge_tensor *t);
