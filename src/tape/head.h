/* head.h - the output head: logits, cross-entropy and their gradients in one op, a block
 * of 256 rows at a time, so that [rows, vocabulary] never exists as a whole.
 *
 * loss = sum over labelled rows of (log(sum_c exp(l_c - max)) + max - l_target), where the
 * sum over the vocabulary is made per slice in 16 lanes and then by the tree, and the sum over rows
 * ascends in double. With labels smoothed by eps it is (1 - eps) times that, plus eps times
 * (log(sum_c exp(l_c - max)) + max - mean of l over the vocabulary), as transformers' LabelSmoother
 * has it. The gradient of the loss is divided by the number of label tokens of
 * the whole optimizer step, known before (docs/contract.md, section 1.6). Only labelled rows are
 * computed in training; they are taken 256 at a time in ascending order, and sums over
 * rows (weight gradients) are blocked by those. */
#pragma once

#include "tape/linear.h"

enum { SHEAF__HEAD_BLOCK = 256 };

typedef struct sheaf__head_run {
    /* in; read when the tape runs */
    const int32_t *label; /* [rows] or SHEAF__IGNORED, the host's; NULL: no loss */
    bool unknown;         /* of a plan: labels are not known, and every row has one */
    /* Then rows that lie in one unit with a labelled one (tape/head_rows.h), at most; 0: not known,
     * all. */
    int64_t most;
    float gradient_scale; /* 1 / label tokens of the step; */
    const float
        *weight; /* or [rows] what each row's loss counts instead, of any sign, the host's */
    float *each; /* [rows] the host's: gets the loss of each row with a label; or NULL */
    /* Of a training pass: called once all losses are in `each`, to write `weight`, from which
     * gradients follow; of more than one block logits are made twice. by_block: those of a row need
     * no later row's loss; then it is called with each block, and logits are made once. NULL:
     * weights are known. */
    sheaf_status *(*weigh)(void *self);
    bool by_block;
    bool scores; /* of a head of one row: not a cross-entropy, but minus its number is the loss */
    double smoothing;    /* share of each label that is spread over the vocabulary; 0 = none */
    double temperature;  /* logits are divided by it before all else; 0: they are not */
    bool forward_alone;  /* no gradients are made: known when the head is recorded */
    bool all_rows;       /* also unlabelled rows: evaluation, generation */
    bool judge;          /* count `correct` */
    const int32_t *pick; /* [npick] rows to compute when all_rows is set; NULL = all */
    int64_t npick;
    /* Called with full rows of logits [n, vocab] float32, the host's, on every rank, in row order;
     * may be NULL. */
    sheaf_status *(*take)(void *self, int64_t row0, const int32_t *row, int64_t n,
                          const float *logits);
    void *self;
    /* out */
    double loss_sum; /* sum over labelled rows */
    int64_t labels;
    int64_t correct; /* labelled rows whose first largest logit is the label */
} sheaf__head_run;

/* sheaf__record_head - x [rows, hidden], which may be divided: then its gradient goes to the ranks
 * of its rows in one exchange behind all blocks. `run` is borrowed and read when the tape runs.
 * place [rows], the host's: which row of x each row is, where x has not all (tape/head_rows.h);
 * NULL: x has. */
void sheaf__record_head(sheaf__tape *tape, sheaf__value *x, sheaf__linear *head,
                        sheaf__head_run *run, const int32_t *place);
/* sheaf__record_remote_head - the same where another stage holds the head: `take` gets the same
 * logits, the loss is the same. rows: of x there. Only without a backward pass. */
void sheaf__record_remote_head(sheaf__tape *tape, int64_t rows, int64_t vocab,
                               sheaf__head_run *run);
