/* events.h - what a long operation reports while it runs.
 *
 * The library never prints: it hands events to a sink that the caller gives. An event is borrowed
 * for the length of the call. A sink may be called from several threads at once. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sheaf_event_kind {
    SHEAF_EVENT_NOTE,       /* text: what was decided or done */
    SHEAF_EVENT_WARNING,    /* text: what the user should look at; the operation goes on */
    SHEAF_EVENT_STEP,       /* step: one optimizer step is done */
    SHEAF_EVENT_PROGRESS,   /* done of total units of `text` ("rows", "bytes read") */
    SHEAF_EVENT_EVALUATION, /* evaluation: the model was judged between two steps */
} sheaf_event_kind;

/* A number that some objectives of training add, by TRL's name: "rewards/chosen". */
typedef struct sheaf_event_value {
    const char *name; /* static */
    double value;
} sheaf_event_value;

enum { SHEAF_EVENT_VALUES = 8 };

typedef struct sheaf_event_step {
    int64_t step, steps;        /* from 1; steps of the whole run */
    double loss, grad_norm, lr; /* loss NaN: no token of this step had a label */
    int64_t tokens;             /* positions with mask 1 that this step read */
    double seconds;             /* wall time of this step */
    uint64_t memory;            /* bytes of the fullest rank, 0 = not known */
    bool skipped;               /* a float16 step whose gradients were not finite */
    double loss_scale;          /* by which the loss of this step was multiplied; 0: it was not */
    int values;                 /* how many of these there are */
    sheaf_event_value value[SHEAF_EVENT_VALUES];
} sheaf_event_step;

/* Measured costs of one step on one rank: seconds, of which all but `save` make up the step, and
 * bytes. */
typedef struct sheaf_event_rank {
    double compute;
    double wait;             /* for other ranks to come to an exchange */
    double exchange;         /* bytes on their way, and sums of what came */
    double read;             /* rows and images */
    double save;             /* checkpoints, since the step before */
    uint64_t sent, received; /* to and from all other ranks */
    uint64_t memory;         /* of its device, so far at most */
    uint64_t process;        /* resident memory of its process, all its ranks */
} sheaf_event_rank;

enum { SHEAF_EVENT_RANKS = 64, SHEAF_EVENT_KINDS = 16 };

/* More of the same. */
typedef struct sheaf_event_spent {
    /* Seconds, of a GPU by its own clock; all but transfers are part of `compute`. */
    bool timed;                          /* these were measured in this step */
    double products, attention;          /* operations */
    double transfers;                    /* between the host's memory and the device's */
    uint64_t kind[SHEAF_EVENT_KINDS];    /* bytes by sheaf_needs_kind(), as `memory` was reached */
    uint64_t sent_to[SHEAF_EVENT_RANKS]; /* bytes by rank of all */
} sheaf_event_spent;

/* Bytes that a rank read from, and wrote to, the place of --offload. */
typedef struct sheaf_event_offload {
    uint64_t read, written;  /* bytes */
    double reading, writing; /* seconds of a thread of its own, */
    double waiting;          /* and those that the step waited for it, part of `compute` */
} sheaf_event_offload;

typedef struct sheaf_event_evaluation {
    int64_t step, steps;   /* steps done; of the whole run */
    double loss, accuracy; /* mean over label tokens; share of them that was predicted */
    int64_t tokens;        /* label tokens */
    double seconds;
    bool best; /* the lowest loss of the run so far */
    int values;
    sheaf_event_value value[SHEAF_EVENT_VALUES];
} sheaf_event_evaluation;

typedef struct sheaf_event {
    sheaf_event_kind kind;
    const char *text;
    int64_t done, total;
    sheaf_event_step step;
    sheaf_event_evaluation evaluation;
    const sheaf_event_rank *rank; /* of a step: [ranks]; NULL: not known */
    int ranks;
    const sheaf_event_spent *spent;     /* of a step: [ranks], beside `rank`; NULL: not known */
    const sheaf_event_offload *offload; /* of a step with --offload: [ranks]; else NULL */
} sheaf_event;

typedef struct sheaf_events {
    void (*emit)(void *context, const sheaf_event *event);
    void *context;
} sheaf_events;

#ifdef __cplusplus
}
#endif
