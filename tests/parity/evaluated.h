/* evaluated.h - logits and loss of a model on a data set, at some number of ranks. */
#pragma once

#include "models/team.h"
#include "tests/kept.h"
#include "train/evaluate.h"

typedef struct forward {
    const sheaf_data *data;
    float *logits; /* n of them: vocab of each position of each row */
    int64_t seq, vocab, n;
    sheaf__evaluation result;
} forward;

static inline sheaf_status *take_logits(void *self, int64_t row, int64_t position,
                                        const float *logits)
{
    forward *f = self;
    memcpy(f->logits + (row * f->seq + position) * f->vocab, logits,
           (size_t)f->vocab * sizeof *logits);
    return NULL;
}

static inline sheaf_status *forward_rank(void *self, sheaf__model *model)
{
    forward *f = self;
    sheaf__evaluation result;
    const bool first = model->context->rank == 0;
    sheaf_status *st = sheaf__evaluate(
        &result, model, f->data,
        &(sheaf__evaluate_options){
            .micro_batch = 2, .padded = true, .self = f, .take = first ? take_logits : NULL });
    if (first)
        f->result = result;
    return st;
}

/* seq: 0, or more positions than the model was made for. The positions of the team are set here. */
static inline forward evaluate(const sheaf__open_options *model, const char *data, int64_t seq,
                               sheaf__team_options team)
{
    sheaf__opened opened;
    sheaf_data *rows;
    CHECK_OK(sheaf__open_model(&opened, model));
    CHECK_OK(sheaf_data_open(&rows, data,
                             &(sheaf_data_options){ .config = &opened.config, .seq = seq }));
    forward f = { .data = rows, .seq = sheaf_data_seq(rows), .vocab = opened.config.vocab };
    f.n = sheaf_data_rows(rows) * f.seq * f.vocab;
    f.logits = room((size_t)f.n * sizeof *f.logits);
    team.positions = f.seq;
    CHECK_OK(sheaf__team_run(&opened, &team, forward_rank, &f));
    sheaf_data_close(rows);
    sheaf__opened_close(&opened);
    return f;
}
