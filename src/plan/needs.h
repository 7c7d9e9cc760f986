/* needs.h - request and result of a plan, for a run or for generation.
 *
 * fit.c finds the setting nearest to the request that fits into given memory: of one machine with
 * all ranks as threads of one process, or of one of several hosts. library/plan.c makes
 * the request, needs_json.c writes the plan as JSON. */
#pragma once

#include "plan/inputs.h"
#include "plan/timing.h"
#include "lora/sizes.h"
#include "sheaf/plan.h"

/* Another change that would help, tried alone with everything else at its smallest. */
typedef struct sheaf__fit_help {
    const char *flags; /* static */
    size_t need;       /* bytes then */
} sheaf__fit_help;

enum { SHEAF__FIT_HELPS = 7 };

typedef struct sheaf__fit {
    bool fits;
    size_t need; /* bytes needed in the memory; if nothing fits, by the smallest setting */
    /* A larger micro-batch that fits too, with as many rows a step; 0: none, or not searched. */
    int64_t larger_micro_batch;
    bool offloads; /* it fits because of an --offload that was not requested */
    int nhelps;    /* if nothing fits, or so, or on several GPUs alone */
    sheaf__fit_help help[SHEAF__FIT_HELPS];
} sheaf__fit;

/* sheaf__fit_find - tries settings in this order, and stops at the first that fits:
 *   1. as requested: ranks upwards from --tp (if they share one memory, only --tp), each keeping
 *      all (of pairs, unless that is requested, first both answers), recomputing MLPs
 *      (--keep-activations attention), and with --checkpointing; then, for methods whose groups
 *      share their state, with twice the groups repeatedly, as --accumulators allow
 *   2. smaller micro-batches, with as many rows a step (--accumulate grows): ranks upwards, each
 *      in these three ways, the largest micro-batch of those that fit
 *   3. the same with --offload: of frozen weights, moments and activations first what is most, then
 *      the next, too
 *   4. shorter rows, at every rank with --checkpointing and one row at a time: the longest multiple
 *      of 64 (of 8 below 64) that fits. Not of models with images,
 *      nor where completions are sampled
 * For generation (inputs->place_text) only ranks are changed.
 *
 *   plan      of the setting found; if nothing fits, of the smallest one tried
 *   inputs    open; its options are set to that setting. Data stay unchanged: rows longer than the
 *             new limit must be cut
 *   memory    bytes
 *   slots     as in sheaf_plan_options; no more ranks than these are tried
 *
 * On GPUs `memory` is that of one; each rank has its own, or where GPUs are named (cuda:0,1) rank r
 * that of GPU r modulo their number, and no more ranks than GPUs are tried.
 *
 * Errors: those of sheaf__plan_inputs_answer(). */
sheaf_status *sheaf__fit_find(sheaf__fit *out, sheaf_plan *plan, sheaf__plan_inputs *inputs,
                              size_t memory, const int *slots, const sheaf_events *events);

/* sheaf__fit_apart - has a device of that name memory of its own, which each rank takes alone? */
bool sheaf__fit_apart(const char *device);

/* sheaf__fit_gpus - how many GPUs that many ranks take, on all hosts; `slots` as above. */
int sheaf__fit_gpus(const char *device, int ranks, const int *slots);

/* Sizes of a run, from its data. */
typedef struct sheaf__data_work {
    int64_t rows, tokens, labels; /* of an epoch */
    int64_t epoch_steps, steps;   /* of an epoch; of the run, or of an epoch where none are given */
    double all_tokens;            /* of the run */
    sheaf__trial trial;           /* steps 0: none */
    double hours;                 /* of the run at its speed */
} sheaf__data_work;

/* Inputs, and the results beside the plan; starts as zeros. */
typedef struct sheaf__plan_request {
    const sheaf_events *events;
    sheaf_plan_options how;
    int slot[SHEAF_MAX_SLICES + 1]; /* how.slots, at least as many as the requested ranks */
    sheaf__plan_inputs q;
    sheaf__fit fit; /* with how.memory */
    sheaf__data_work work;
    sheaf__timing timing;
    int64_t timed_steps;                    /* of the run; 0: not known */
    sheaf__count (*first)[SHEAF__TRAFFICS]; /* [ranks] of the first step; or NULL */
    uint64_t (*first_to)[SHEAF_MAX_SLICES]; /* as sent_to of sheaf_plan_rank */
} sheaf__plan_request;

/* sheaf__needs_json - the object of `sheaf plan --json` (malloc'd). */
sheaf_status *sheaf__needs_json(char **out, const sheaf__plan_request *a, const sheaf_plan *plan);
/* sheaf__needs_table - with how.table: plans each of its cells. */
sheaf_status *sheaf__needs_table(char **out, sheaf__plan_request *a);
/* sheaf__needs_sizes - sizes of the adapter that a run will write; false: no adapter. */
bool sheaf__needs_sizes(sheaf__lora_sizes *out, const sheaf__plan_request *a);
