/* placement.h - the pipeline stage of each layer. Inference only.
 *
 * The owner of a tensor is then a function of (layer, slice) on a grid of stages and ranks: stage s
 * holds the layers [begin[s], begin[s + 1]) of the decoder, cut into slices over its ranks. The
 * first stage holds the embedding and the vision towers too, the last the final norm and the head;
 * a tied table, which is both, lies on the first and the head with it. */
#pragma once

#include "base/events.h"
#include "schema/schema.h"
#include "sheaf/owner.h"

typedef struct sheaf__placement {
    int stages;
    int64_t begin[SHEAF_MAX_SLICES + 1];
    int head_stage;
} sheaf__placement;

/* sheaf__placement_read - from text: "2" (stages of equal bytes), "24,12" (in proportion to memory,
 * each number above 0), or "0-10,11-31" (layers, as given). NULL or empty: one stage. Errors:
 * SHEAF_E_ARG for a list that cannot be read, layers left out or named twice, more stages than
 * layers. */
sheaf_status *sheaf__placement_read(sheaf__placement *out, const char *text,
                                    const sheaf_schema *schema);

/* sheaf__balance_note - a note when some rank has no head of a kind, or ranks differ by more than
 * one head. Such a number of ranks works and gives the same bytes, but ranks wait for the one with
 * most heads. */
void sheaf__balance_note(const sheaf_schema *schema, int ranks, const sheaf_events *events);
