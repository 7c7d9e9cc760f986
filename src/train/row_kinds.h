/* row_kinds.h - sample and position of each row of a linear layer whose rows are not the tokens of
 * the sequences in order: the two streams, and images. The random numbers of dropout depend on
 * these alone. */
#pragma once

#include "models/model.h"
#include "data/data.h"

typedef struct sheaf__row_kinds {
    sheaf__step_info of[SHEAF__ROW_KINDS]; /* read by tapes */
    /* empty where the tokens' own serve */
    sheaf__mirror sample[SHEAF__ROW_KINDS], position[SHEAF__ROW_KINDS];
} sheaf__row_kinds;

/* sheaf__row_kinds_open - for micro-batches of so many tokens and at most so many images; allocates
 * only if a model with images is trained with dropout. Release also after a failure.
 */
sheaf_status *sheaf__row_kinds_open(sheaf__row_kinds *out, sheaf__model *model,
                                    const sheaf__picture_counts *most, int64_t tokens);
/* sheaf__row_kinds_fill - for the batch that runs next; tokens: of its rows * seq tokens. The
 * rows of a sample's images are counted from 0 in each kind. batch NULL: a plan does not know
 * it. */
sheaf_status *sheaf__row_kinds_fill(sheaf__row_kinds *kinds, const sheaf__model *model,
                                    const sheaf__step_info *tokens, const sheaf_batch *batch,
                                    sheaf_batch_images holds, int64_t tokens_in_all);
void sheaf__row_kinds_release(sheaf__row_kinds *kinds, sheaf__model *model);
