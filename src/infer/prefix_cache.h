/* prefix_cache.h - what one rank has read of one sequence, kept from call to call: keys and values
 * of its tokens, which the next prompt that begins alike need not compute again.
 *
 * Sums over keys are counted from key 0 (ops/attention/attention.h), so that rows that are computed
 * behind kept ones have the bits they have in one pass over the whole sequence. */
#pragma once

#include "infer/generate.h"

struct sheaf__prefix_cache {
    int64_t least;            /* set by the owner: space is taken for so many positions, or more */
    sheaf__kv_cache kv_cache; /* space for `length` positions */
    int64_t length;
    int64_t n; /* rows that are there */
    int32_t *ids, *position;
    uint8_t *kind;   /* of a picture's rows; [length] each */
    int64_t picture; /* which one they are of, as sheaf__prompt has it */
};

/* sheaf__prefix_cache_begin - *reused: how many rows at the start of `prompt` are there already, 0
 * to prompt->n - 1; the rows behind them are forgotten. Takes space for `length` positions, which
 * forgets all rows where there is less. On every rank alike but for SHEAF_E_MEMORY. */
sheaf_status *sheaf__prefix_cache_begin(int64_t *reused, sheaf__prefix_cache *prefix,
                                        sheaf__model *model, const sheaf__prompt *prompt,
                                        int64_t length);
/* sheaf__prefix_cache_set - the whole prompt is there now; or one more token, at its position. */
void sheaf__prefix_cache_set(sheaf__prefix_cache *prefix, const sheaf__prompt *prompt);
void sheaf__prefix_cache_add(sheaf__prefix_cache *prefix, int32_t id, int32_t position);
/* sheaf__prefix_cache_release - gives back all that it holds; it can be used again. */
void sheaf__prefix_cache_release(sheaf__prefix_cache *prefix, sheaf__model *model);
