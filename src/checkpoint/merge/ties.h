/* ties.h - tied tensors in transformers: the table of embeddings and the head of its language
 * models and of those that see pictures, where both are one tensor.
 *
 * A file holds such a tensor once. If a merge splits it, each name must be written, or transformers
 * fills the missing one with random values. */
#pragma once

#include "base/base.h"

typedef struct sheaf__ties {
    const char *table, *head; /* names as in memory; "": nothing is tied */
    const char *classes;      /* the classes with these ties, separated by blanks */
    bool unsaid;              /* tied if the config has no tie_word_embeddings */
} sheaf__ties;

/* sheaf__ties_of - the ties of a class in config.json's `architectures`; NULL: not known.
 *   own_code  the config has auto_map: the class may differ from transformers' of that name */
const sheaf__ties *sheaf__ties_of(const char *architecture, bool own_code);
