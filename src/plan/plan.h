/* plan.h - the needs of training, or of generation with layers placed over stages, from the config
 * alone: the real step, run on the dry device once per rank. */
#pragma once

#include "comm/counters.h"
#include "models/placement.h"
#include "ops/device.h"
#include "schema/family.h"
#include "train/rank.h"

typedef struct sheaf_plan_rank {
    size_t bytes[SHEAF_MEM_KINDS]; /* in use when the footprint was largest */
    size_t peak;                   /* footprint of the rank's device */
    double flops;                  /* of one optimizer step, matrix products only */
    double sent;                   /* bytes sent to other ranks of its group in one step */
    /* The same by kind, with calls and exchanges, without seconds; also the bytes to peers in other
     * groups: sums of gradients, and weights updated here. */
    sheaf__count exchange[SHEAF__TRAFFICS];
    uint64_t sent_to[SHEAF_MAX_SLICES]; /* bytes of such a step, by rank of all */
    /* Held from the first step to the last: weights, trained, gradients, optimizer. */
    size_t component[SHEAF_PLAN_COMPONENTS][SHEAF_MEM_KINDS];
    /* Of these, bytes of base tensors trained in full: masters, gradients, moments. */
    size_t copies[SHEAF_MEM_KINDS];
} sheaf_plan_rank;

typedef struct sheaf_plan {
    int ranks;
    sheaf_plan_rank rank[SHEAF_MAX_SLICES];
    size_t host;    /* outside the devices: data set, lists, stacks, file buffers */
    size_t away;    /* kept by --offload in files, or of GPUs in the host's memory */
    size_t process; /* all ranks of one process and host */
    int64_t parameters,
        trained;   /* elements of the whole model (without buffers), and those trained */
    int64_t added; /* of these, not in the model: LoRA's factors */
} sheaf_plan;

/* sheaf_plan_train - with job->data: the maximum over micro-batches with the fewest images that the
 * data can give, with few and with the most; flops and sent are those of the last. job->data may be
 * NULL: then every row of a model with images has job->each, and job->seq must be set. data_bytes:
 * of the data set in memory, 0 if unknown. Errors: SHEAF_E_ARG when an image does not fit into seq.
 */
sheaf_status *sheaf_plan_train(sheaf_plan *out, const sheaf__job *job, size_t data_bytes);
/* Bytes on disk, about. */
typedef struct sheaf_plan_files {
    double checkpoint, result; /* one checkpoint; the adapter or the model */
} sheaf_plan_files;

sheaf_plan_files sheaf_plan_disk(const sheaf_plan *plan, const sheaf__job *job);

/* sheaf_plan_step - the exchanges of rank `rank` in step number `done` (from 0) of a run over
 * job->data: with the tokens and labels of this step, so that they equal those of a run, byte for
 * byte.
 *   sent_to  [SHEAF_MAX_SLICES] bytes by rank of all; may be NULL
 *   work     the rank's work is added to it; may be NULL */
sheaf_status *sheaf_plan_step(sheaf__count exchange[SHEAF__TRAFFICS], uint64_t *sent_to,
                              sheaf__work *work, const sheaf__job *job, int rank, int64_t done);

typedef struct sheaf_plan_generation {
    const sheaf_schema *schema;
    const sheaf_lora *lora; /* NULL without an adapter */
    sheaf_source *forms;    /* as in sheaf__job */
    const sheaf__placement *place;
    int tp, threads;    /* ranks of each stage; compute threads in all, 0 = every core at hand */
    int groups;         /* each with the whole model; 0 means 1 */
    const char *device; /* NULL: cpu */
    sheaf_transport transport;
    sheaf_dtype dtype;
    int64_t batch, seq;             /* sequences together; positions of prompt and answer */
    int64_t prompt;                 /* of these, the prompt's; 0: all of them */
    sheaf__picture_counts pictures; /* of all sequences */
    int64_t distinct; /* prompts among them, each read once; 0: as many as sequences */
    /* Gets the first rank's work: for all prompts, and for a token of each sequence in the middle
     * of its answer, instead of the last; may be NULL. */
    struct sheaf_plan_passes {
        sheaf__work prompts, token;
    } * work;
} sheaf_plan_generation;

/* sheaf_plan_generate - all prompts at once, and a token at the last position; flops and sent are
 * those of both. Rank stage * tp + r is rank r of its stage. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf_plan_generate(sheaf_plan *out, const sheaf_plan_generation *request);

/* sheaf_plan_evaluate - of sheaf__evaluate(): micro-batches of request->batch rows of `data`, whole
 * with `padded`; request->seq positions in the rotary table, request->prompt and images are not
 * read.
 */
sheaf_status *sheaf_plan_evaluate(sheaf_plan *out, const sheaf_plan_generation *request,
                                  const sheaf_data *data, bool padded);

/* sheaf_plan_seq - default positions of a row: the model's own limit but at most 4096; for a model
 * with images BOI, patches, EOI and 256 tokens of text. */
int64_t sheaf_plan_seq(const sheaf_config *config);
/* Bytes that a rank sends in one step. */
double sheaf_plan_sent(const sheaf_plan_rank *rank);
/* Bytes of the fullest rank. */
size_t sheaf_plan_fullest(const sheaf_plan *plan);

/* Static names, stable JSON keys: "weights", "trained", ...; "text", "embeddings", "vit", ... */
const char *sheaf_plan_kind(sheaf_memory kind);
const char *sheaf_plan_component(sheaf_component component);
