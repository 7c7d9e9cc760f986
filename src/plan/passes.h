/* passes.h - the two passes of generation, each recorded once and run as often as wanted: prompts
 * that are read, and a token of each sequence. Rows, caches and sampling are as in
 * infer/generate.h; what the tokens are is made up. */
#ifndef SHEAF_PLAN_PASSES_H
#define SHEAF_PLAN_PASSES_H

#include "comm/counters.h"
#include "models/model.h"
#include "plan/plan.h"
#include "train/runner.h"

typedef struct sheaf_passes {
    sheaf__model *model;
    const sheaf_plan_generation *asked; /* borrowed, as the data */
    const sheaf_data *data;
    int64_t batch, prompt, keys; /* sequences; of each the prompt, and keys of the token's pass */
    sheaf__kept kept;
    sheaf__runner runner; /* of the prompts */
    sheaf__tape *next;
    sheaf__rows_in in; /* of the tokens, as what follows */
    sheaf__head_run head;
    int32_t *ids, *position, *pick;
    int64_t *row;   /* [batch] of the data */
    float *scratch; /* of sampling; NULL on dry */
} sheaf_passes;

/* sheaf_passes_open - of asked->batch sequences with prompts of asked->prompt tokens; the token's
 * pass is one from the middle of the answer, which ends with position asked->seq.
 *   out    stays where it is; release also after a failure
 *   data   at least so many rows of as many tokens as a prompt has (sheaf_data_made())
 * Both are borrowed. */
sheaf_status *sheaf_passes_open(sheaf_passes *out, sheaf__model *model,
                                const sheaf_plan_generation *asked, const sheaf_data *data);
/* sheaf_passes_again - released and opened as they were. */
sheaf_status *sheaf_passes_again(sheaf_passes *passes);
/* Collective. */
sheaf_status *sheaf_passes_read(sheaf_passes *passes);
sheaf_status *sheaf_passes_next(sheaf_passes *passes);
void sheaf_passes_release(sheaf_passes *passes);

/* What a pass consists of, and what its rank exchanges. */
typedef struct sheaf_pass_work {
    sheaf__work work;
    sheaf__count exchange[SHEAF__TRAFFICS];
} sheaf_pass_work;

/* sheaf_passes_work - of rank `rank`, on dry; release both lists also after a failure.
 *   fresh   out: bytes that the first reading takes from the system */
sheaf_status *sheaf_passes_work(sheaf_pass_work *read, sheaf_pass_work *next, double *fresh,
                                const sheaf_plan_generation *asked, int rank,
                                const sheaf_data *data);

#endif
