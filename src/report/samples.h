/* samples.h - completions of a run that learns from rewards, from its rollouts.jsonl: the best, the
 * worst, the newest, and the first of some steps over the run. */
#pragma once

#include "base/base.h"
#include "report/lines.h"

enum {
    SHEAF__SAMPLES_OVER = 8,   /* over the run, at most */
    SHEAF__SAMPLE_TEXT = 2000, /* bytes of a text; longer ones are cut */
};

typedef struct sheaf__sample {
    int64_t step;  /* the first that learns from it; 0: none is here */
    double reward; /* NaN: none */
    bool truncated;
    char *prompt, *text; /* owned; prompt NULL: it was token ids */
} sheaf__sample;

typedef struct sheaf__samples {
    sheaf__sample best, worst, newest; /* the first of equal ones */
    sheaf__sample over[SHEAF__SAMPLES_OVER];
    int kept;               /* of `over` */
    int64_t batches, every; /* one of so many batches is kept */
    int64_t step;           /* of the newest batch */
    sheaf__lines_at at;
} sheaf__samples;

/* sheaf__samples_read - of the file at `path`, as sheaf__lines_read(); lines without a completion's
 * text give none. Into samples that are all zero, or that it has read before. Release them also
 * after a failure. */
sheaf_status *sheaf__samples_read(sheaf__samples *samples, const char *path);
void sheaf__samples_release(sheaf__samples *samples);
