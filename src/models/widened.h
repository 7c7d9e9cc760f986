/* widened.h - a model with more tokens than its files have: rows behind the last one of every
 * tensor with a row for each token.
 *
 * The row of a new token is, in each such tensor (transformers' resize_token_embeddings() makes
 * them in the same order):
 *   the mean of rows [0, first), of all tokens that are not new: their sum in double, in ascending
 *   order, divided by their number, rounded to float32 and then to the dtype of the tensor; or
 *   random: standard normals for the seed, the tensor's name and the element's place in the larger
 *   tensor (base/random.h), times the config's initializer_range, rounded in the same way
 *
 * Of a reward model whose base is none "score.weight" is made, at random as above, as transformers
 * begins it.
 *
 * So it depends on neither ranks nor threads. Rows that are a base's padding and become those of a
 * new token are made as well. */
#pragma once

#include <stdbool.h>

#include "schema/schema.h"
#include "sheaf/source.h"

typedef struct sheaf__added_rows {
    int64_t first, count; /* ids of the new tokens: first, first + 1, ...; count 0: none */
    bool random;          /* else means */
    uint64_t seed;
} sheaf__added_rows;

/* sheaf__widened_new - `base` (borrowed) in the shapes of `schema`, which may be larger along the
 * first axis. Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__widened_new(sheaf_source **out, sheaf_source *base, const sheaf_schema *schema,
                                 const sheaf__added_rows *added);
/* sheaf__widened_rebase - from now on it lies over another base. */
void sheaf__widened_rebase(sheaf_source *widened, sheaf_source *base);
