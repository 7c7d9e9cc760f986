/* plan.h - what a training setting needs, or generation with layers placed over stages, from the
 * config alone: the real step, run on the dry device once per rank. */
#pragma once

#include "comm/counters.h"
#include "models/placement.h"
#include "ops/device.h"
#include "schema/family.h"
#include "train/rank.h"

typedef struct sheaf_plan_rank {
    size_t bytes[SHEAF_MEM_KINDS]; /* in use when the footprint was largest */
    size_t peak;                   /* footprint of the rank's device */
    double flops;                  /* of one optimizer step, products only */
    double sent;                   /* bytes handed to other ranks of its group in one step */
    /* The same by kind, with calls and exchanges, no seconds; with what goes to its peers in other
     * groups: sums of gradients, and weights that were updated here. */
    sheaf__count exchange[SHEAF__TRAFFICS];
    /* What a run holds from its first step to its last: weights, trained, gradients, optimizer. */
    size_t component[SHEAF_PLAN_COMPONENTS][SHEAF_MEM_KINDS];
    /* Of these, what base tensors take that are trained in full: masters, gradients, moments. */
    size_t copies[SHEAF_MEM_KINDS];
} sheaf_plan_rank;

typedef struct sheaf_plan {
    int ranks;
    sheaf_plan_rank rank[SHEAF_MAX_SLICES];
    size_t host;    /* beside the devices: data set, lists, stacks, file buffers */
    size_t process; /* all ranks of one process and host */
    int64_t parameters,
        trained;   /* elements of the whole model (without buffers), and those trained */
    int64_t added; /* of these, those that the model does not have: LoRA's factors */
} sheaf_plan;

/* sheaf_plan_train - with job->data of the micro-batches with the fewest images that these can
 * give, with few and with the most; flops and sent are those of the last. job->data may be NULL:
 * then every row has images as job->each says, where the model knows images, and job->seq must be
 * set. data_bytes:
 * of the data set in memory, 0 if unknown. Errors: SHEAF_E_ARG when an image does not fit into seq.
 */
sheaf_status *sheaf_plan_train(sheaf_plan *out, const sheaf__job *job, size_t data_bytes);
/* sheaf_plan_step - what rank `rank` exchanges in step number `done` (from 0) of a run over
 * job->data: with the tokens and labels that this step reads, so that it is what a run will count,
 * byte for byte.
 *   work   added to: what the rank computes; may be NULL */
sheaf_status *sheaf_plan_step(sheaf__count exchange[SHEAF__TRAFFICS], sheaf__work *work,
                              const sheaf__job *job, int rank, int64_t done);

typedef struct sheaf_plan_generation {
    const sheaf_schema *schema;
    const sheaf_lora *lora; /* NULL without an adapter */
    const sheaf__placement *place;
    int tp, threads; /* ranks of each stage; compute threads in all, 0 = every core at hand */
    int groups;      /* that each hold the model; 0 is 1 */
    sheaf_dtype dtype;
    int64_t batch, seq;                  /* sequences together; positions of prompt and answer */
    int64_t prompt;                      /* of these, the prompt's; 0: all of them */
    int64_t images;                      /* of all sequences; 0 of a model without */
    int64_t patches[SHEAF__MOST_TOWERS]; /* of these, by tower; 0: images of the towers' own size */
    /* Gets what the first rank computes: of all prompts, and of a token of each sequence from the
     * middle of its answer, in place of the last; NULL: not asked. */
    struct sheaf_plan_passes {
        sheaf__work prompts, token;
    } * work;
} sheaf_plan_generation;

/* sheaf_plan_generate - the prompts at once, and a token after the last position; flops and sent
 * are those of both. Rank stage * tp + r is rank r of its stage. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf_plan_generate(sheaf_plan *out, const sheaf_plan_generation *asked);

/* sheaf_plan_evaluate - of sheaf__evaluate(): micro-batches of asked->batch rows of `data`, whole
 * with `padded`; asked->seq positions in the rotary table, asked->prompt and images are not read.
 */
sheaf_status *sheaf_plan_evaluate(sheaf_plan *out, const sheaf_plan_generation *asked,
                                  const sheaf_data *data, bool padded);

/* sheaf_plan_seq - positions of a row where nothing says how long rows are: the model's own limit
 * but at most 4096; of a model with images, BOI, patches, EOI and 256 tokens of text. */
int64_t sheaf_plan_seq(const sheaf_config *config);
/* Bytes that a rank hands to others in one step. */
double sheaf_plan_sent(const sheaf_plan_rank *rank);
/* Bytes of the fullest rank. */
size_t sheaf_plan_fullest(const sheaf_plan *plan);

/* Static names, stable JSON keys: "weights", "trained", ...; "text", "embeddings", "vit", ... */
const char *sheaf_plan_kind(sheaf_memory kind);
const char *sheaf_plan_component(sheaf_component component);
