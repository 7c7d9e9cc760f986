/* rank.h - the state of one rank of a training run: device, model, step. Created the same way for
 * training (cpu) and for planning (dry). */
#pragma once

#include "comm/grid.h"
#include "models/open.h"
#include "train/options.h"
#include "train/scaler.h"
#include "train/select.h"
#include "train/sets.h"
#include "train/step.h"

/* Another model or adapter, whose sums are the reference. */
typedef struct sheaf__other {
    sheaf__opened opened;
    char *origin; /* sheaf__origin_text(); of an adapter without the weights, which are the run's */
} sheaf__other;

/* Shared by all ranks; everything is borrowed. */
typedef struct sheaf__job {
    const sheaf_train_options *options;
    const sheaf_schema *schema;
    const sheaf_lora *lora; /* NULL unless method lora */
    const sheaf__selection *selection;
    sheaf__objective objective;
    /* rows to train on, of which planning reads only the sizes; data NULL: unknown */
    sheaf__subset train;
    sheaf__subset eval;           /* rows of evaluations; data NULL: none, or unknown */
    sheaf_source *base, *adapter; /* NULL when planning; adapter NULL: fresh factors */
    const sheaf__other *other;    /* of objective.folder; NULL: none, or planning */
    sheaf_source *forms;          /* says which tensors are quantised; NULL: none */
    int64_t seq;                  /* most positions of a training row */
    /* Images of each row when planning without data; NULL: one, at the towers' own size. */
    const sheaf_batch_images *each;
    const struct sheaf__sampler *sampler; /* of completions that are sampled; else NULL. A plan
                                             draws none, and reads its judges */
    int64_t data_bytes;                   /* of the data in memory, 0 = unknown */
} sheaf__job;

typedef struct sheaf__rank {
    sheaf__device *device;
    sheaf__context context;
    sheaf__model *model;
    sheaf__context judging; /* of the reward models, */
    sheaf__model *judge[SHEAF__MOST_JUDGES];
    sheaf__stepper *stepper;
    sheaf__scaler scaler; /* of a run in float16 */
    bool offloads;        /* anything at all */
    sheaf_comm *dry[2];   /* of a rank alone: its group, its peers */
    /* Of an objective with a reference, its sums: of the data to train on, of evaluations. */
    sheaf__references reference[2];
} sheaf__rank;

/* sheaf__rank_open - on the device that the options name. Where the reference is not the model
 * as it begins, without the adapter, until sheaf__rank_refer(). `out` must not move. grid NULL:
 * rank number `rank` of the job alone, which is only planned. Release with sheaf__rank_close also
 * after a failure. */
sheaf_status *sheaf__rank_open(sheaf__rank *out, const sheaf__grid *grid, int rank,
                               const sheaf__job *job);
void sheaf__rank_close(sheaf__rank *rank);
/* sheaf__other_open - `reference DIR`, job->objective.folder, checked against the run's model and
 * adapter, and hashed. Release also after a failure. Errors: SHEAF_E_LAYOUT, those of
 * sheaf__open_model(). */
sheaf_status *sheaf__other_open(sheaf__other *out, const sheaf__job *job);
void sheaf__other_release(sheaf__other *other);
/* sheaf__rank_refer - of an objective with a reference (reference.c): its sums, of the model as it
 * begins, before the first step and before a checkpoint is read. Collective.
 *   origin  of the model: sheaf__origin_text()
 *   how     as sheaf__pairs_sums()
 * After a failure the model has what was read last, and must not be used. */
sheaf_status *sheaf__rank_refer(sheaf__rank *rank, const sheaf__job *job, const char *origin,
                                const sheaf__evaluate_options *how);
/* sheaf__reference_check - does another model have the tensors of `own`, so that it may be its
 * reference, and compute alike? Errors: SHEAF_E_LAYOUT. */
sheaf_status *sheaf__reference_check(const sheaf_schema *other, const sheaf_schema *own);

/* sheaf__evaluates - do the options have evaluations during training? */
bool sheaf__evaluates(const sheaf_train_options *options);
/* sheaf__parameters - elements of a whole model, without buffers. */
int64_t sheaf__parameters(const sheaf_schema *schema);
/* sheaf__count_trained - trained elements, and those of them that are not in the base (LoRA's
 * factors). */
void sheaf__count_trained(int64_t *trained, int64_t *added, const sheaf__model *model);
/* Gradient accumulators, G: as set, else 1 for method full and 4 for the others (docs/contract.md,
 * section 1.6). */
int sheaf__accumulators_of(const sheaf_train_options *options);
