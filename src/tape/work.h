/* work.h - the cost of a run of the tape, by kind of op: operations of its products, bytes of its
 * values, and on a device with memory the seconds they take. Rates measured on a short model give
 * the time of the work that the dry device counts in a whole one (plan/timing.h). */
#pragma once

#include "base/base.h"

typedef enum sheaf__work_kind {
    SHEAF__WORK_PRODUCTS, /* of weights and of LoRA's factors, with what is added and rounded there
                           */
    SHEAF__WORK_ATTENTION,
    SHEAF__WORK_HEAD,     /* with the loss and the gradients of both */
    SHEAF__WORK_ELEMENTS, /* norms, rotary embedding, activations, tables */
    SHEAF__WORK_KINDS
} sheaf__work_kind;

typedef enum sheaf__work_way {
    SHEAF__WORK_FORWARD,
    SHEAF__WORK_AGAIN, /* recomputed: for --checkpointing, or as it costs little */
    SHEAF__WORK_BACKWARD,
    SHEAF__WORK_WAYS
} sheaf__work_way;

typedef struct sheaf__work_sum {
    double runs, flops, bytes; /* bytes: of the values of each run, each once */
    double seconds, waiting;   /* waiting: of the seconds, in calls of a group of ranks */
} sheaf__work_sum;

typedef struct sheaf__work {
    /* By kind and way: [1] of ops whose products have operations; [0] of the others, and of those
     * whose operations are known only when rows have been chosen. */
    sheaf__work_sum sum[SHEAF__WORK_KINDS][SHEAF__WORK_WAYS][2];
    bool processor; /* given: seconds are this thread's of the processor, not the clock's */
    double update;  /* seconds from the last gradient to the end of the step */
    double update_waiting;
    double trained; /* given: elements that it updates */
    double all;     /* given: seconds of the ops, the update and what lies between */
} sheaf__work;

/* sheaf__work_now - seconds on its clock. */
double sheaf__work_now(const sheaf__work *work);
