/* select.h - which base tensors a method trains: all (full), or those a pattern names (head). */
#ifndef SHEAF_TRAIN_SELECT_H
#define SHEAF_TRAIN_SELECT_H

#include "sheaf/schema.h"
#include "train/options.h"

typedef struct sheaf__selection {
    sheaf_method method;
    char **pattern; /* method head; owned */
    int npatterns;
} sheaf__selection;

/* sheaf__select - method head without patterns means the output head (of a tied model the
 * embedding table). A pattern is a tensor name in which * and ? stand for any letters.
 * Errors: SHEAF_E_ARG for a pattern that matches nothing, with the nearest name. */
sheaf_status *sheaf__select(sheaf__selection *out, const sheaf_schema *schema, sheaf_method method,
                            const char *patterns);
void sheaf__selection_release(sheaf__selection *selection);
/* sheaf__selected - fits sheaf__model_options.trains. */
bool sheaf__selected(void *selection, const sheaf_tensor *tensor);

#endif
