/* answer.c - see answer.h. */
#include "infer/answer.h"

#include "base/base.h"

/* Tokens and what is kept of them lie behind the array, in one block. */
static sheaf_status *make_room(sheaf__answers *out, const sheaf__answer_options *how)
{
    const int64_t n = how->generate.max_new, best = n * how->generate.best,
                  each = how->logprobs ? 2 * n + 2 * best : n; /* numbers of one answer */
    const bool fits = n <= INT64_MAX / 64 / (how->generate.best + 1) / out->count;
    sheaf__continuation *c =
        fits ? malloc((size_t)out->count * (sizeof *c + (size_t)each * sizeof *c->ids)) : NULL;
    out->output = c;
    if (c == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "%lld answers of %lld tokens", (long long)out->count,
                          (long long)n);
    for (int64_t i = 0; i < out->count; i++) {
        int32_t *at = (int32_t *)(c + out->count) + i * each;
        c[i] = (sheaf__continuation){ .ids = at };
        if (how->logprobs) {
            c[i].logprob = (float *)(at + n);
            c[i].best_ids = at + 2 * n;
            c[i].best_logprob = (float *)(at + 2 * n + best);
        }
    }
    return NULL;
}

void sheaf__answers_fail(sheaf__answers *a, sheaf_status *st)
{
    a->failed = sheaf__first_of(a->failed, st);
}

/* Tokens so far without the one that ends the answer. */
static int64_t text_tokens(const sheaf__continuation *so_far)
{
    return so_far->n - (so_far->ending == SHEAF_ENDS_TOKEN);
}

/* For each token: does the answer end with it? That is a function of the tokens. */
static bool take_token(void *self, int64_t i, const sheaf__continuation *output)
{
    sheaf__answers *a = self;
    const bool listens = a->on_delta != NULL && a->failed == NULL;
    char *more = NULL;
    sheaf_status *st = sheaf__answer_stream_more(listens ? &more : NULL, &a->stream[i], output->ids,
                                                 text_tokens(output));
    if (st == NULL && listens)
        a->on_delta(a->self, i,
                    &(sheaf__delta){ .output = output, .piece = more == NULL ? "" : more }, false);
    free(more);
    bool whole = false;
    if (a->grammar != NULL)
        TRY(st, sheaf__grammar_read(&whole, a->grammar, &a->place[i], output->ids,
                                    text_tokens(output)));
    sheaf__answers_fail(a, st);
    return a->stream[i].over || whole || a->failed != NULL;
}

/* Leaves the tokens that the form of the answer allows. */
static sheaf_status *mask(void *self, int64_t i, const sheaf__continuation *output, bool laid_out,
                          float *logits, int64_t vocab)
{
    sheaf__answers *a = self;
    bool whole;
    sheaf_status *st =
        sheaf__grammar_read(&whole, a->grammar, &a->place[i], output->ids, output->n);
    return TRY(st, sheaf__grammar_mask(logits, vocab, a->grammar, &a->place[i], a->how.stop,
                                       a->how.nstop + (laid_out ? a->how.nturn : 0)));
}

sheaf_status *sheaf__answers_open(sheaf__answers *out, const sheaf__answer_options *how,
                                  const sheaf__prompt *prompt, int64_t count, int64_t each,
                                  sheaf__on_delta *on_delta, void *self)
{
    const bool formed = how->form.schema != NULL;
    const bool reads = on_delta != NULL || how->nstop > 0 || how->codec->end_text != NULL || formed;
    *out = (sheaf__answers){ .count = count * each,
                             .stream = calloc((size_t)(count * each), sizeof *out->stream),
                             .how = how->generate,
                             .on_delta = on_delta,
                             .self = self };
    out->place = calloc((size_t)(count * each), sizeof *out->place);
    if (out->stream == NULL || out->place == NULL)
        return sheaf__no_memory("answers");
    sheaf_status *st = formed ? sheaf__grammar_open(&out->grammar, &how->form) : NULL;
    if (st != NULL)
        return st;
    out->how.stop = out->stop;
    sheaf__codec_stops(out->stop, &out->how.nstop, &out->how.nturn, how->codec);
    out->how.on_token = reads ? take_token : NULL;
    out->how.mask = formed ? mask : NULL;
    out->how.listener = out;
    for (int64_t i = 0; i < out->count; i++)
        out->stream[i] =
            (sheaf__answer_stream){ .codec = how->codec,
                                    .laid_out = prompt[i / each].laid_out ||
                                                (how->codec->templated && !how->codec->by_default),
                                    .stop = how->stop,
                                    .nstop = how->nstop };
    return make_room(out, how);
}

sheaf_status *sheaf__answers_end(char **text, sheaf__answers *a, int64_t i)
{
    const sheaf__continuation *output = &a->output[i];
    char *rest = NULL;
    sheaf_status *st = sheaf__answer_stream_end(a->on_delta != NULL ? &rest : NULL, text,
                                                &a->stream[i], output->ids, text_tokens(output));
    if (st == NULL && a->on_delta != NULL)
        a->on_delta(
            a->self, i,
            &(sheaf__delta){ .output = output, .piece = rest == NULL ? "" : rest, .text = *text },
            true);
    free(rest);
    return st;
}

void sheaf__answers_release(sheaf__answers *a)
{
    for (int64_t i = 0; i < a->count && a->stream != NULL; i++)
        sheaf__answer_stream_release(&a->stream[i]);
    free(a->stream);
    free(a->place);
    sheaf__grammar_close(a->grammar);
    free(a->output);
    sheaf_status_free(a->failed);
    *a = (sheaf__answers){ 0 };
}
