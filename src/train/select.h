/* select.h - which base tensors a run trains, and how each trained tensor learns.
 *
 * Method full trains all of them; head and lora those that patterns name, lora beside
 * its factors. Never trained, whatever a pattern says: buffers, and the tensors that no
 * pass reads, which can have no gradient. */
#pragma once

#include "base/events.h"
#include "schema/family.h"
#include "tape/trained.h"
#include "train/options.h"

typedef struct sheaf__selection {
    sheaf_method method;
    const sheaf__family *family;
    char **pattern; /* methods head and lora; owned */
    int npatterns;
    char **scaled; /* patterns of --lr-scale; owned */
    double *scale; /* [nscaled] */
    int nscaled;
} sheaf__selection;

/* sheaf__select - from method, train and lr_scale of the options. Method head
 * without patterns means the output head (of a tied model the embedding table).
 *   lora    whose factors are trained too, for the check of lr_scale; NULL without
 *   events  a note of a range like {46..54} that this model is too small for; may be NULL
 * Errors: SHEAF_E_ARG for a pattern that matches nothing, with the nearest name, for a list that
 * cannot be read, and for scales that are 0 for all that is trained. */
sheaf_status *sheaf__select(sheaf__selection *out, const sheaf_schema *schema,
                            const sheaf_lora *lora, const sheaf_train_options *options,
                            const sheaf_events *events);
void sheaf__selection_release(sheaf__selection *selection);
/* sheaf__selected - fits sheaf__model_options.trains. */
bool sheaf__selected(void *selection, const sheaf_tensor *tensor);

/* sheaf__learning_set - learning-rate scale and, for families with a rule of their own, weight
 * decay of every member. Other families keep the decay that the model gave (the Trainer's rule). */
void sheaf__learning_set(sheaf__trained_set *set, const sheaf__selection *selection);
/* sheaf__learning_scale - the first pattern that matches counts, 1 without one. Factors go by the
 * name of their module: "transformer.layers.0.attention.dense.lora_A.weight". */
double sheaf__learning_scale(const sheaf__selection *selection, const char *name);

/* ---- patterns of names ----
 *
 *     *           any letters, also none; a dot is a letter too
 *     ?           one letter
 *     {46..54}    a whole number in this range; {0,2,5..7} one of these
 *     anything else stands for itself
 *
 * A number is matched whole: {1..9} is not the 1 of "layers.12". There is no way to quote:
 * the names of tensors hold none of these letters. */

/* sheaf__pattern_check - errors: SHEAF_E_ARG for an unsound {...} and for an empty pattern. */
sheaf_status *sheaf__pattern_check(const char *pattern);
/* sheaf__pattern_match - of a checked pattern with the whole name; any_number: {...} matches
 * every number, which tells a range that a small model lacks from a wrong name. */
bool sheaf__pattern_match(const char *pattern, const char *name, bool any_number);
/* sheaf__pattern_length - letters up to the next comma outside {...}, or the end. */
size_t sheaf__pattern_length(const char *list);
