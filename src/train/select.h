/* select.h - selects the base tensors that a run trains, with learning-rate scale and weight decay.
 *
 * Method full trains all of them; head and lora those that match patterns, lora in addition to its
 * factors. Never trained, whatever a pattern says: buffers, and tensors that no pass reads, which
 * have no gradient. */
#pragma once

#include "base/events.h"
#include "schema/family.h"
#include "tape/trained.h"
#include "train/options.h"
#include "train/tokenizer.h"

typedef struct sheaf__selection {
    sheaf_method method;
    const sheaf__family *family;
    char **pattern; /* methods head and lora; owned */
    int npatterns;
    char **scaled; /* patterns of --lr-scale; owned */
    double *scale; /* [nscaled] */
    int nscaled;
    double lora_plus, lr; /* --lora-plus, or 0, and --lr */
} sheaf__selection;

/* sheaf__select - from the options' method, train and lr_scale. Method head without patterns means
 * the output head (of a tied model the embedding table).
 *   lora    whose factors are trained too, to check lr_scale; or NULL
 *   events  gets a note if a range like {46..54} is beyond this model's layers; may be NULL
 * Errors: SHEAF_E_ARG for a pattern that matches nothing, with the nearest name, for a malformed
 * list, and for scales that are 0 for all trained tensors. */
sheaf_status *sheaf__select(sheaf__selection *out, const sheaf_schema *schema,
                            const sheaf_lora *lora, const sheaf_train_options *options,
                            const sheaf_events *events);
void sheaf__selection_release(sheaf__selection *selection);
/* sheaf__selected - a callback for sheaf__model_options.trains. */
bool sheaf__selected(void *selection, const sheaf_tensor *tensor);

/* The base of a run as it is opened for training, with the selection and the new adapter. */
typedef struct sheaf__run_base {
    sheaf__opened opened;
    sheaf__selection selection;
    sheaf_lora_options fresh;
    sheaf__run_tokenizer tokenizer;
} sheaf__run_base;
/* sheaf__run_base_open - `from` has model, config, new_run and events. Release also after a
 * failure. */
sheaf_status *sheaf__run_base_open(sheaf__run_base *out, const sheaf_train_options *options,
                                   const sheaf__open_options *from);
void sheaf__run_base_release(sheaf__run_base *base);

/* sheaf__learning_set - sets learning-rate scale and, for families with a rule of their own, weight
 * decay of every member. Other families keep the model's decay (the Trainer's rule). */
void sheaf__learning_set(sheaf__trained_set *set, const sheaf__selection *selection);
/* sheaf__learning_scale - the scale of the first matching pattern, else 1. Factors match by the
 * name of their module: "transformer.layers.0.attention.dense.lora_A.weight". */
double sheaf__learning_scale(const sheaf__selection *selection, const char *name);

/* ---- patterns of names ----
 *
 *     * any characters, also none, dots included
 *     ?           one character
 *     {46..54}    a whole number in this range; {0,2,5..7} one of these
 *     anything else matches itself
 *
 * A number is matched whole: {1..9} does not match the 1 of "layers.12". There is no quoting: names
 * of tensors have none of these characters. */

/* sheaf__pattern_check - errors: SHEAF_E_ARG for a malformed {...} and for an empty pattern. */
sheaf_status *sheaf__pattern_check(const char *pattern);
/* sheaf__pattern_match - does a checked pattern match the whole name? any_number: {...} matches
 * every number, to distinguish a range beyond a small model from a wrong name. */
bool sheaf__pattern_match(const char *pattern, const char *name, bool any_number);
/* sheaf__pattern_length - characters up to the next comma outside {...}, or the end. */
size_t sheaf__pattern_length(const char *list);
