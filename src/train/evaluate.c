/* evaluate.c - see evaluate.h. */
#include "train/evaluate.h"

#include <stdlib.h>

typedef struct pass {
    const sheaf__evaluate_options *options;
    sheaf__evaluation *out;
    const sheaf_batch *batch;
    int64_t seq, first, rows; /* of the data set: this batch holds rows [first, first + rows) */
    int64_t vocab;
} pass;

static int64_t largest(const float *x, int64_t n)
{
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++)
        if (x[i] > x[best])
            best = i;
    return best;
}

static sheaf_status *take_logits(void *self, int64_t row0, const int32_t *row, int64_t n, const float *logits)
{
    pass *p = self;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && st == NULL; i++, logits += p->vocab) {
        const int64_t in_batch = row[i] / p->seq, position = row[i] % p->seq;
        const int32_t label = p->batch->labels[row[i]];
        if (in_batch >= p->rows)
            continue; /* padding of a last batch */
        if (label >= 0)
            p->out->correct += largest(logits, p->vocab) == label;
        if (p->options->take != NULL)
            st = p->options->take(p->options->self, p->first + in_batch, position, logits);
    }
    return st;
}

sheaf_status *sheaf__evaluate(sheaf__evaluation *out, sheaf__model *model, const sheaf_data *data,
                              const sheaf__evaluate_options *options)
{
    sheaf__context *c = model->context;
    const int64_t seq = sheaf_data_seq(data), rows = sheaf_data_rows(data);
    const int64_t batch = options->micro_batch < rows ? options->micro_batch : rows;
    const size_t n = (size_t)(batch * seq);
    sheaf_batch b = { malloc(n * 4), malloc(n * 4), malloc(n * 4), malloc(n) };
    int64_t *row = malloc((size_t)batch * sizeof *row);
    sheaf__tape *tape = NULL;
    sheaf_status *st = NULL;
    *out = (sheaf__evaluation){ 0 };
    if (b.tokens == NULL || b.labels == NULL || b.position == NULL || b.mask == NULL || row == NULL) {
        st = sheaf_fail(SHEAF_E_MEMORY, "a batch of %lld rows", (long long)batch);
        goto done;
    }
    pass p = { options, out, &b, seq, 0, 0, model->schema->config.vocab };
    const sheaf__rows_in in = { .ids = b.tokens, .position = b.position, .key_mask = b.mask, .mask_ld = seq, .keys = seq };
    const sheaf__step_info info = { .training = false };
    sheaf__head_run head = { .label = b.labels, .all_rows = true, .take = take_logits, .self = &p };
    st = sheaf__tape_new(&tape, c);
    if (st == NULL) {
        sheaf__model_record(model, tape, batch, seq, &in, &info, &head, NULL);
        st = sheaf__tape_compile(tape, false, false);
    }
    for (p.first = 0; p.first < rows && st == NULL; p.first += batch) {
        p.rows = rows - p.first < batch ? rows - p.first : batch;
        for (int64_t i = 0; i < batch; i++)
            row[i] = i < p.rows ? p.first + i : -1;
        sheaf_data_batch(&b, data, row, batch);
        st = sheaf__tape_run(tape);
        out->loss += head.loss_sum;
        out->tokens += head.labels;
        sheaf_emit(options->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS, .text = "rows",
                                                    .done = p.first + p.rows, .total = rows });
    }
    out->loss = out->tokens == 0 ? 0 : out->loss / (double)out->tokens;
done:
    sheaf__tape_free(tape);
    free(b.tokens);
    free(b.labels);
    free(b.position);
    free(b.mask);
    free(row);
    return st;
}
