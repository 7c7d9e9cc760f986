/* ties.h - tied tensors in transformers: the names that its architectures have for one tensor.
 *
 * A file holds such a tensor once. If a merge splits it, each name must be written, or transformers
 * fills the missing ones with random values. */
#pragma once

#include "base/base.h"

typedef struct sheaf__ties {
    const char *groups;  /* "name=name=name name=name": each group is one tensor, and tokens are
                            looked up in the first; names as in memory */
    const char *classes; /* the classes with these ties, separated by blanks */
    /* tie_word_embeddings stays true after a split: the class sets it itself or computes with it.
     * transformers 5 does not tie names that are stored with different values. */
    bool keeps_flag;
    bool unsaid;        /* tied if the config has no tie_word_embeddings */
    const char *unless; /* a config key; if it is false, the ties are not known; or NULL */
    const char *unsure; /* parts of paths of tensors whose ties are not known, separated by blanks;
                           "*": of all tables and heads; NULL: none */
} sheaf__ties;

enum { SHEAF__TIES_MOST = 16 }; /* most tied names in one model */

/* sheaf__ties_of - the ties of a class in config.json's `architectures`; NULL: not known. groups is
 * "" if nothing is tied.
 *   own_code  the config has auto_map: the class may differ from transformers' of that name */
const sheaf__ties *sheaf__ties_of(const char *architecture, bool own_code);
