/* time.h - how long a training step takes: the ops that the dry device finds in it, priced with
 * what a machine was measured to need for them.
 *
 * A profile holds such measurements: ops with their shapes and seconds, of one setting of threads,
 * ranks, slices and type. An op that it has with the same shapes is priced with its own seconds;
 * another with those of the nearest op of its kind and way, scaled by the operations of its
 * products, and where one has none by the bytes of its values. */
#ifndef SHEAF_PLAN_TIME_H
#define SHEAF_PLAN_TIME_H

#include "plan/cluster.h"
#include "tape/work.h"

/* What a profile holds for; all of it must be as in the run that is priced. */
typedef struct sheaf_profile_setting {
    char dtype[16]; /* "float32", ...; with the order of sums of bfloat16, "bfloat16 tiles" */
    int threads;    /* compute threads, of all ranks together */
    int tp, dp, slices;
    char ranks[8]; /* of several, how they were measured: "threads", "mpi", or one "alone" */
    int64_t batch; /* of generation: sequences together; 0: a step of training */
    int copies;    /* of frozen weights, 1 or 2; 0: not known, or generation */
} sheaf_profile_setting;

/* What decides the parts of a step that are no op's, on one rank. */
typedef struct sheaf_plan_size {
    double trained; /* elements that it updates */
    double fresh;   /* bytes that its first step takes from the system, which clears them */
} sheaf_plan_size;

typedef struct sheaf_profile {
    char machine[64]; /* the processor's name */
    int cores;        /* that the process could use */
    sheaf_profile_setting of;
    sheaf__work work;     /* of a micro-batch of one rank; `update` is that of a step. Of generation
                             reading the prompts, as beside and first */
    sheaf_plan_size size; /* of what was measured */
    double beside;    /* seconds of a micro-batch that are no op's: reading, clearing gradients */
    double first;     /* seconds that the first step took more */
    sheaf__work next; /* of generation: the next token of each sequence */
    double next_beside;
    double spread; /* how much longer the middle one of the measured steps took: 0.1 is 10 % */
    double busy;   /* share of the fastest one in which its threads had processors */
} sheaf_profile;

void sheaf_profile_release(sheaf_profile *profile);
/* sheaf_profile_may_replace - NULL: at `path` is nothing, or a profile, and its folder takes files.
 * Errors: SHEAF_E_FORMAT for another file, SHEAF_E_IO. */
sheaf_status *sheaf_profile_may_replace(const char *path);
/* sheaf_profile_write - as JSON, durably; what is there must be a profile or nothing. Errors:
 * SHEAF_E_ARG, SHEAF_E_IO, SHEAF_E_MEMORY. */
sheaf_status *sheaf_profile_write(const sheaf_profile *profile, const char *path);
/* sheaf_profile_read - release also after a failure. Errors: SHEAF_E_IO; SHEAF_E_FORMAT for what is
 * no profile. */
sheaf_status *sheaf_profile_read(sheaf_profile *out, const char *path);
/* sheaf_profile_check - was it measured in this setting? flags: it was asked for by flags of the
 * command, which the error then names. Errors: SHEAF_E_ARG with what differs. */
sheaf_status *sheaf_profile_check(const sheaf_profile *profile, const sheaf_profile_setting *asked,
                                  bool flags);

/* sheaf_plan_work - the ops of one micro-batch of step `done` (from 0) on rank `rank` of the job's.
 * job->data must be there. */
sheaf_status *sheaf_plan_work(sheaf__work *out, sheaf_plan_size *size, const sheaf__job *job,
                              int rank, int64_t done);

/* Seconds of a step. */
typedef struct sheaf_time {
    double step;                    /* the next four together */
    double kind[SHEAF__WORK_KINDS]; /* without waiting */
    double update;                  /* norm of the gradient, AdamW, new compute copies */
    double beside;                  /* reading rows, clearing gradients */
    double waiting;                 /* for other ranks and for bytes */
    double first;                   /* the first step of a run */
    double scaled;                  /* of `step`, what was not measured at just these shapes */
    double farthest;                /* the largest factor by which something was scaled */
    sheaf__count exchange;          /* of a step, without seconds */
} sheaf_time;

/* sheaf_time_predict - of a step with `micros` micro-batches on this rank, each of this work.
 * Errors: SHEAF_E_ARG where the profile has no op of some kind; SHEAF_E_FORMAT where its figures
 * come to no time above 0, or to more than any step takes. */
sheaf_status *sheaf_time_predict(sheaf_time *out, const sheaf_profile *profile,
                                 const sheaf__work *work, const sheaf_plan_size *size,
                                 int64_t micros);

/* sheaf_time_next - the same of the token pass of a profile of generation. */
sheaf_status *sheaf_time_next(sheaf_time *out, const sheaf_profile *profile,
                              const sheaf__work *work);

/* sheaf_time_exchange - notes what a step exchanges, by kind; and of one rank measured alone, what
 * that takes over `link` is its waiting. link NULL: it was measured. */
void sheaf_time_exchange(sheaf_time *time, const sheaf__count exchange[SHEAF__TRAFFICS],
                         const sheaf_cluster_link *link);

#endif
