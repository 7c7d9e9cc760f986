/* next_token.c - see next_token.h. */
#include "infer/next_token.h"

#include <math.h>

#include "base/base.h"
#include "ops/tensor/tensor.h"

sheaf_status *sheaf__chooser_open(sheaf__chooser *out, int64_t vocab, int64_t length, int slices)
{
    *out = (sheaf__chooser){ .vocab = vocab,
                             .slices = slices,
                             .history = malloc((size_t)length * sizeof *out->history),
                             .logits = malloc(2 * (size_t)vocab * sizeof *out->logits) };
    if (out->history == NULL || out->logits == NULL)
        return sheaf__no_memory("choosing tokens");
    out->room = (sheaf__sampling_room){ sheaf__kernels_for(NULL), out->logits + vocab };
    return NULL;
}

void sheaf__chooser_close(sheaf__chooser *c)
{
    free(c->history);
    free(c->logits);
    *c = (sheaf__chooser){ 0 };
}

int32_t sheaf__prompt_position(const sheaf__prompt *p, int64_t j)
{
    return p->position == NULL ? (int32_t)j
           : j < p->n          ? p->position[j]
                               : p->position[p->n - 1] + (int32_t)(j - p->n + 1);
}

/* Of the last token. */
static void note_logprob(sheaf__continuation *out, const float *logits, int64_t best,
                         const sheaf__chooser *chooser)
{
    const int64_t at = out->n - 1, vocab = chooser->vocab;
    float max;
    const float sum = sheaf__sampling_log_sum(&max, logits, vocab, chooser->room.kernels);
    int32_t *ids = out->best_ids + at * best;
    out->logprob[at] = logits[out->ids[at]] - max - sum;
    sheaf__sampling_best(ids, best, logits, vocab);
    for (int64_t i = 0; i < best; i++)
        out->best_logprob[at * best + i] = logits[ids[i]] - max - sum;
}

/* Does the sequence end with its last token? */
static bool ends(sheaf__continuation *out, const sheaf__generate_options *o,
                 const sheaf__prompt *prompt, int64_t number)
{
    const bool token =
        sheaf__is_stop(o->stop, o->nstop + (prompt->laid_out ? o->nturn : 0), out->ids[out->n - 1]);
    out->ending = token ? SHEAF_ENDS_TOKEN : SHEAF_ENDS_LENGTH;
    if (o->on_token != NULL && o->on_token(o->listener, number, out) && !token)
        out->ending = SHEAF_ENDS_TEXT;
    return out->ending != SHEAF_ENDS_LENGTH || out->n == o->max_new ||
           (o->max_length > 0 && prompt->n + out->n >= o->max_length);
}

static sheaf_status *not_numbers(int64_t prompt, int64_t token, const float *logits, int64_t vocab)
{
    int64_t id = 0;
    while (id < vocab - 1 && isfinite(logits[id]))
        id++;
    sheaf_status *st =
        sheaf_fail(SHEAF_E_NUMBER, "prompt %lld, token %lld", (long long)prompt, (long long)token);
    return sheaf_try_this(
        sheaf_found(sheaf_expected(st, "logits that are numbers"), "%s for id %lld",
                    isnan(logits[id]) ? "nan"
                    : logits[id] < 0  ? "-inf"
                                      : "inf",
                    (long long)id),
        "a weight is not finite, or overflows in the type it is computed in: sheaf verify "
        "counts such numbers of each tensor, and `dtype float32` holds the largest");
}

int64_t sheaf__sequence_known(const sheaf__sequence *s)
{
    return s->prompt->n + s->out->n;
}

int32_t sheaf__sequence_token(const sheaf__sequence *s, int64_t j)
{
    const sheaf__prompt *p = s->prompt;
    return j < p->n ? p->ids[j] : s->out->ids[j - p->n];
}

/* The sampler changes a copy: other readers may need the head's block. */
sheaf_status *sheaf__next_token(sheaf__sequence *s, sheaf__chooser *chooser, const float *logits)
{
    const sheaf__generate_options *o = s->options;
    const sheaf__prompt *prompt = s->prompt;
    sheaf__continuation *out = s->out;
    const int64_t vocab = chooser->vocab, number = s->number, known = sheaf__sequence_known(s);
    /* infinity gives no probability */
    if (!sheaf__is_finite(logits, vocab, SHEAF_F32))
        return not_numbers(number + 1, out->n + 1, logits, vocab);
    for (int64_t j = 0; j < known; j++)
        chooser->history[j] = sheaf__sequence_token(s, j);
    memcpy(chooser->logits, logits, (size_t)vocab * sizeof(float));
    sheaf_status *st = o->mask == NULL ? NULL
                                       : o->mask(o->listener, number, out, prompt->laid_out,
                                                 chooser->logits, vocab);
    if (st != NULL)
        return sheaf_in(st, "prompt %" PRId64 ", token %" PRId64, number + 1, out->n + 1);
    const int64_t from = o->sampling.sat ? prompt->n : 0; /* SAT penalises only new tokens */
    const int64_t id = sheaf__sampling_next(
        chooser->logits, vocab, chooser->history + from, known - from, &o->sampling,
        (uint64_t)(o->number + number), (uint64_t)out->n, &chooser->room);
    if (id < 0)
        return not_numbers(number + 1, out->n + 1, logits, vocab);
    out->ids[out->n++] = (int32_t)id;
    if (out->logprob != NULL && o->trained_at > 0)
        out->logprob[out->n - 1] = sheaf__sampling_logprob(logits, vocab, id, chooser->slices,
                                                           o->trained_at, &chooser->room);
    else if (out->logprob != NULL)
        note_logprob(out, logits, o->best, chooser);
    s->over = ends(out, o, prompt, number);
    return NULL;
}
