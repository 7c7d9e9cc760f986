/* generate.c - see generate.h. */
#include "infer/generate.h"

#include <stdlib.h>
#include <string.h>

/* One batch of prompts on its way. */
typedef struct batch {
    sheaf__model *model;
    sheaf__context *c;
    const sheaf__generate_options *options;
    const sheaf__prompt *prompt;
    sheaf__continuation *out;
    int64_t first, n;        /* prompts [first, first + n) */
    int64_t longest, length; /* of the prompts; of the cache */
    int64_t keys;            /* positions filled so far */
    sheaf__kept kept;
    uint8_t *mask;           /* [n, length] */
    int32_t *ids, *position, *pick; /* rows of the next run */
    bool *done;
    int64_t *history;        /* scratch of one sequence's ids */
    float *scratch;          /* of sampling */
} batch;

static bool stops(const sheaf__generate_options *o, int64_t id)
{
    for (int i = 0; i < o->nstop; i++)
        if (o->stop[i] == id)
            return true;
    return false;
}

/* The sampler changes a copy: the head's block may be read again. */
static sheaf_status *take(void *self, int64_t row0, const int32_t *row, int64_t n, const float *logits)
{
    batch *b = self;
    const int64_t vocab = b->model->schema->config.vocab;
    for (int64_t i = 0; i < n; i++) {
        const int64_t which = b->first + row0 + i;
        sheaf__continuation *out = &b->out[which];
        if (b->done[row0 + i])
            continue;
        int64_t known = 0;
        for (int64_t j = 0; j < b->prompt[which].n; j++)
            b->history[known++] = b->prompt[which].ids[j];
        for (int64_t j = 0; j < out->n; j++)
            b->history[known++] = out->ids[j];
        memcpy(b->scratch, logits + i * vocab, (size_t)vocab * sizeof(float));
        const int64_t id = sheaf__sampling_next(b->scratch, vocab, b->history, known, &b->options->sampling,
                                                (uint64_t)which, (uint64_t)out->n, b->scratch + vocab);
        if (id < 0)
            return sheaf_expected(sheaf_fail(SHEAF_E_NUMBER, "prompt %lld, token %lld", (long long)which + 1, (long long)out->n + 1),
                                  "logits that are numbers");
        out->ids[out->n++] = (int32_t)id;
        b->done[row0 + i] = stops(b->options, id) || out->n == b->options->max_new;
    }
    return NULL;
}

/* Prompts stand at the right end of [0, longest); what is before them is masked. */
static void lay_out_prompts(batch *b)
{
    memset(b->mask, 1, (size_t)(b->n * b->length));
    for (int64_t i = 0; i < b->n; i++) {
        const sheaf__prompt *p = &b->prompt[b->first + i];
        const int64_t pad = b->longest - p->n;
        memset(b->mask + i * b->length, 0, (size_t)pad);
        for (int64_t j = 0; j < b->longest; j++) {
            b->ids[i * b->longest + j] = j < pad ? 0 : p->ids[j - pad];
            b->position[i * b->longest + j] = (int32_t)(j < pad ? 0 : j - pad);
        }
        b->pick[i] = (int32_t)(i * b->longest + b->longest - 1);
        b->out[b->first + i].n = 0;
        b->done[i] = false;
    }
    b->keys = b->longest;
}

static void lay_out_next(batch *b)
{
    for (int64_t i = 0; i < b->n; i++) {
        const sheaf__continuation *out = &b->out[b->first + i];
        b->ids[i] = out->ids[out->n - 1]; /* of a finished one: anything, its result is not read */
        b->position[i] = (int32_t)(b->keys - (b->longest - b->prompt[b->first + i].n));
        b->pick[i] = (int32_t)i;
    }
    b->keys++;
}

static bool all_done(const batch *b)
{
    for (int64_t i = 0; i < b->n; i++)
        if (!b->done[i])
            return false;
    return true;
}

static sheaf_status *record(sheaf__tape **tape, batch *b, int64_t queries, sheaf__rows_in *in, sheaf__head_run *head)
{
    static const sheaf__step_info info = { .training = false };
    sheaf_status *st = sheaf__tape_new(tape, b->c);
    if (st != NULL)
        return st;
    sheaf__model_record(b->model, *tape, &(sheaf__pass){ .batch = b->n, .queries = queries, .in = in, .info = &info, .head = head,
                                                         .kept = &b->kept });
    return sheaf__tape_compile(*tape, false, false);
}

static sheaf_status *run_batch(batch *b)
{
    sheaf__rows_in in = { .ids = b->ids, .position = b->position, .key_mask = b->mask, .mask_ld = b->length };
    sheaf__head_run head = { .all_rows = true, .pick = b->pick, .npick = b->n, .take = take, .self = b };
    sheaf__tape *prefill = NULL, *decode = NULL;
    sheaf_status *st = sheaf__kept_new(&b->kept, b->model, b->n, b->length);
    lay_out_prompts(b);
    in.keys = b->keys;
    if (st == NULL)
        st = record(&prefill, b, b->longest, &in, &head);
    if (st == NULL)
        st = sheaf__tape_run(prefill);
    sheaf__tape_free(prefill);
    if (st == NULL)
        st = record(&decode, b, 1, &in, &head);
    while (st == NULL && !all_done(b)) {
        lay_out_next(b);
        in.keys = b->keys;
        st = sheaf__tape_run(decode);
    }
    sheaf__tape_free(decode);
    sheaf__kept_release(&b->kept, b->model);
    return st;
}

static void free_batch(batch *b)
{
    free(b->mask);
    free(b->ids);
    free(b->position);
    free(b->pick);
    free(b->done);
    free(b->history);
    free(b->scratch);
}

sheaf_status *sheaf__generate(sheaf__continuation *out, sheaf__model *model, const sheaf__prompt *prompt,
                              int64_t count, const sheaf__generate_options *options)
{
    int64_t longest = 1;
    for (int64_t i = 0; i < count; i++)
        longest = prompt[i].n > longest ? prompt[i].n : longest;
    const int64_t most = options->batch < count ? options->batch : count, length = longest + options->max_new;
    const size_t rows = (size_t)(most * longest), vocab = (size_t)model->schema->config.vocab;
    batch b = { .model = model, .c = model->context, .options = options, .prompt = prompt, .out = out,
                .mask = malloc((size_t)(most * length)), .ids = malloc(rows * 4), .position = malloc(rows * 4),
                .pick = malloc((size_t)most * 4), .done = malloc((size_t)most),
                .history = malloc((size_t)length * sizeof *b.history),
                .scratch = malloc((vocab + sheaf__sampling_scratch((int64_t)vocab)) * sizeof(float)) };
    sheaf_status *st = NULL;
    if (b.mask == NULL || b.ids == NULL || b.position == NULL || b.pick == NULL || b.done == NULL ||
        b.history == NULL || b.scratch == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "generation of %lld sequences", (long long)most);
    for (b.first = 0; b.first < count && st == NULL; b.first += b.n) {
        b.n = count - b.first < most ? count - b.first : most;
        b.longest = 1;
        for (int64_t i = 0; i < b.n; i++)
            b.longest = prompt[b.first + i].n > b.longest ? prompt[b.first + i].n : b.longest;
        b.length = b.longest + options->max_new;
        st = run_batch(&b);
        sheaf_emit(options->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS, .text = "prompts",
                                                    .done = b.first + b.n, .total = count });
    }
    free_batch(&b);
    return st;
}
