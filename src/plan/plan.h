/* plan.h - what a training setting needs, from the config alone: the real step, run on
 * the dry device once per rank. */
#ifndef SHEAF_PLAN_PLAN_H
#define SHEAF_PLAN_PLAN_H

#include "ops/device.h"
#include "train/rank.h"

typedef struct sheaf_plan_rank {
    size_t bytes[SHEAF_MEM_KINDS]; /* in use when the footprint was largest */
    size_t peak;                   /* footprint of the rank's device */
    double flops;                  /* of one optimizer step, products only */
    double sent;                   /* bytes handed to other ranks in one step */
} sheaf_plan_rank;

typedef struct sheaf_plan {
    int ranks;
    sheaf_plan_rank rank[SHEAF_MAX_SLICES];
    size_t host;    /* beside the devices: data set, lists, stacks, file buffers */
    size_t process; /* all ranks of one process and host */
    int64_t parameters, trained; /* elements of the whole model, and those trained */
} sheaf_plan;

/* sheaf_plan_train - job->data may be NULL; then job->seq must be set. data_bytes: of the
 * data set in memory, 0 if unknown. */
sheaf_status *sheaf_plan_train(sheaf_plan *out, const sheaf__job *job, size_t data_bytes);
/* Static name of a kind, a stable JSON key: "weights", "trained", ... */
const char *sheaf_plan_kind(sheaf_memory kind);

#endif
