/* fit.h - the setting nearest to the one asked for that fits into given memory: of a machine whose
 * ranks are all there, as threads of one process, or of one of several hosts. */
#pragma once

#include <stddef.h>

#include "library/question.h"

/* What else may be changed, tried alone and with everything else as small as it gets. */
typedef struct sheaf__fit_help {
    const char *flags; /* static */
    size_t need;       /* bytes then */
} sheaf__fit_help;

enum { SHEAF__FIT_HELPS = 5 };

typedef struct sheaf__fit {
    bool fits;
    size_t need; /* bytes of what shares the memory; where nothing fits, of the smallest setting */
    /* A larger micro-batch that fits too, with as many rows a step; 0: none, or not asked. */
    int64_t larger_micro_batch;
    int nhelps; /* where nothing fits */
    sheaf__fit_help help[SHEAF__FIT_HELPS];
} sheaf__fit;

/* sheaf__fit_find - tries settings in this order, and stops at the first that fits:
 *   1. as asked: ranks upwards from --tp (where more of them share one memory, only --tp), each
 *      without and with --checkpointing
 *      and then, of methods that share their state, with twice the groups and again, as
 *      --accumulators allow
 *   2. smaller micro-batches, with as many rows a step (--accumulate grows): ranks upwards, each
 *      without and with --checkpointing, the largest micro-batch of those that fit
 *   3. shorter rows, at every rank with --checkpointing and one row at a time: the longest multiple
 *      of 64 (of 8 below 64) that fits. Not of models with images
 * For generation (question->place_text) only ranks are changed.
 *
 *   plan      of the setting that was found; where nothing fits, of the smallest that was tried
 *   question  opened; its options then are that setting. Data, where there are any, stay as they
 *             are: what is longer than new rows must be cut
 *   memory    bytes
 *   slots     ranks of each host that has them, ended by 0, behind which each rank has a host of
 * its own; no more ranks than these are tried. NULL: all have them together, as threads of one
 * process Errors: those of sheaf__question_answer(). */
sheaf_status *sheaf__fit_find(sheaf__fit *out, sheaf_plan *plan, sheaf__question *question,
                              size_t memory, const int *slots, const sheaf_events *events);

/* sheaf__memory_read - "24G", "16000M", "1.5T" (units of 1024, "GiB" and "GB" mean the same) as
 * bytes; a number alone counts MiB. Errors: SHEAF_E_ARG. */
sheaf_status *sheaf__memory_read(size_t *bytes, const char *text);
