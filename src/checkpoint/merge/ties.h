/* ties.h - what transformers ties: the names under which its architectures know one tensor.
 *
 * A file holds such a tensor once. Where a merge makes it several, each of its names must be
 * written, or transformers gives those that lack random values. */
#pragma once

#include "base/base.h"

typedef struct sheaf__ties {
    const char *groups;  /* "name=name=name name=name": each group is one tensor, and tokens are
                            looked up in the first; names as in memory */
    const char *classes; /* that have these, separated by blanks */
    /* tie_word_embeddings stays true where they become several: the class sets it itself or
     * computes by it. transformers 5 ties no names that the files hold with different values. */
    bool keeps_flag;
    bool unsaid; /* they are one where the config has no tie_word_embeddings */
    const char
        *unless; /* a key of the config: where it is false, what is tied is not known; NULL */
    const char *unsure; /* parts of paths of tensors whose ties are not known, separated by blanks;
                           "*": of all tables and heads; NULL: none */
} sheaf__ties;

enum { SHEAF__TIES_MOST = 16 }; /* names that the tensors of one model may have in all */

/* sheaf__ties_of - of the class that config.json names in `architectures`; NULL: not known. Its
 * groups are "" where nothing is tied.
 *   own_code  the config has auto_map: the class may be another than that of its name */
const sheaf__ties *sheaf__ties_of(const char *architecture, bool own_code);
