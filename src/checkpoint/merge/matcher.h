/* matcher.h - one adapter being matched with the tensors of the output; between match.c, which
 * gives its tensors their places, names.c, which finds them, and settle.c, which then decides and
 * checks what only all of them together tell. */
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
    const sheaf__merge_adapter *adapter;
    int number;
    /* the base's names lack the one, or have the other, before the adapter's */
    const char *drop, *add;
    size_t ndrop;
    sheaf__alias *alias; /* of every tensor of the output, by name; NULL: the adapter knows them by
                            their own names */
    sheaf_renames *renames; /* that made them; the adapter's names may be older than they, too */
    bool old_names;         /* some are */
    bool leaves_named;      /* sheaf__lora_leaves_named() */
    bool experts;           /* the adapter has LoRA on experts */
    sheaf_text lost;        /* tensors without a place */
    int nlost;
    char packed[256]; /* of a quantized base: the first tensor that stands where a weight is wanted;
                         "" = none */
} sheaf__matcher;

/* sheaf__merge_settle_squares - which square weights are stored as GPT-2's Conv1D, [in, out]? After
 * all were matched. */
void sheaf__merge_settle_squares(sheaf__matcher *m);
/* sheaf__merge_check_required - what adapter_config.json asks of one tensor of the base must be in
 * the file; of names whose tensor has another it may be under that one. Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__merge_check_required(sheaf__matcher *m, const sheaf__merge_tensor *t,
                                          bool may_lack);

/* ---- which names the adapter's are (names.c) ---- */

bool sheaf__merge_is_float(sheaf_dtype dtype);
/* sheaf__merge_settle_names - finds out how the adapter's names become the base's: as they are;
 * with a prefix more or less; by the renamings of transformers. Fills drop, add and alias; none
 * explains all names: they stay empty. */
sheaf_status *sheaf__merge_settle_names(sheaf__matcher *m, const sheaf_events *events);
void sheaf__merge_forget_names(sheaf__matcher *m);
/* sheaf__merge_place - the tensor of the output that the adapter calls PATH + end; NULL: none. */
sheaf_status *sheaf__merge_place(sheaf__merge_tensor **out, sheaf__matcher *m, const char *path,
                                 const char *end);
/* sheaf__merge_alias - what the adapter calls it, but for a prefix. */
const char *sheaf__merge_alias(const sheaf__matcher *m, const sheaf__merge_tensor *t);
