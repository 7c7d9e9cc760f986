/* curves.h - the numbers of a run over its steps, from its metrics.jsonl (docs/monitoring.md).
 *
 * A long run is thinned while it is read: as the points reach CURVE_POINTS, each two become one,
 * and so on. A point is then the mean of its steps, but for the lowest and the highest loss. */
#pragma once

#include "base/base.h"
#include "ops/device.h"
#include "report/lines.h"
#include "sheaf/events.h"

enum { SHEAF__CURVE_POINTS = 2048, SHEAF__CURVE_ODD = 8 };

/* The values of a point; of several ranks, times are means over the ranks, and SENT is their sum.
 */
typedef enum sheaf__curve {
    SHEAF__CURVE_LOSS,
    SHEAF__CURVE_GRAD_NORM,
    SHEAF__CURVE_LR,
    SHEAF__CURVE_TOKENS,
    SHEAF__CURVE_SECONDS, /* of the step, from its tokens and its rate */
    SHEAF__CURVE_COMPUTE,
    SHEAF__CURVE_WAIT,
    SHEAF__CURVE_EXCHANGE,
    SHEAF__CURVE_READ,
    SHEAF__CURVE_SAVE,
    SHEAF__CURVE_SENT,   /* bytes */
    SHEAF__CURVE_MEMORY, /* bytes of the fullest rank */
    SHEAF__CURVE_REWARD, /* from here on of completions with rewards alone */
    SHEAF__CURVE_REWARD_STD,
    SHEAF__CURVE_EVEN,   /* share of groups without spread */
    SHEAF__CURVE_LENGTH, /* tokens of a completion */
    SHEAF__CURVE_ENTROPY,
    SHEAF__CURVES
} sheaf__curve;

/* sheaf__curve_name - "loss", "grad_norm", ..., as metrics.jsonl has them; static. */
const char *sheaf__curve_name(sheaf__curve curve);

typedef struct sheaf__curve_point {
    int64_t step; /* the last of its steps */
    double sum[SHEAF__CURVES];
    int64_t count[SHEAF__CURVES]; /* steps that have it: a loss that is not finite is none */
    double lowest, highest;       /* loss; of count 0 without meaning */
} sheaf__curve_point;

/* sheaf__curve_at - NaN where no step has it. */
double sheaf__curve_at(const sheaf__curve_point *point, sheaf__curve curve);

/* Of one rank, since the number of ranks was last another. */
typedef struct sheaf__curve_rank {
    double compute, wait, exchange, read, save; /* seconds in all */
    double products, attention, transfers;      /* seconds of those steps that were timed */
    int64_t timed;
    double sent, received;        /* bytes in all */
    double memory, process;       /* bytes at most */
    double kind[SHEAF_MEM_KINDS]; /* bytes as its memory was reached */
    double *sent_to;              /* [ranks] */
} sheaf__curve_rank;

typedef struct sheaf__curve_evaluation {
    int64_t step;
    double loss, accuracy, reward; /* NaN: not finite, or none */
    int64_t tokens;
} sheaf__curve_evaluation;

typedef struct sheaf__curves {
    sheaf__curve_point *point;
    int64_t points, capacity;
    int64_t merged; /* steps of a point, but perhaps of the last */
    int64_t steps, last_step, skipped;
    double tokens, seconds; /* of all steps */
    sheaf__curve_evaluation *evaluation;
    int64_t evaluations, evaluation_capacity;
    sheaf__curve_rank *rank;
    int ranks;
    int64_t ranks_since, ranks_steps; /* the first step of `rank`, and how many */
    char *odd[SHEAF__CURVE_ODD];      /* the first lines that no run writes: where and why */
    int64_t nodd;                     /* the number of all such lines */
    sheaf__lines_at at;
} sheaf__curves;

/* sheaf__curves_read - of the file at `path`, as sheaf__lines_read(); a missing one has no points.
 * Into curves that are all zero, or that it has read before. Release them also after a failure. */
sheaf_status *sheaf__curves_read(sheaf__curves *curves, const char *path);
void sheaf__curves_release(sheaf__curves *curves);
