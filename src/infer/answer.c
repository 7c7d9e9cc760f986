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

sheaf_status *sheaf__answers_open(sheaf__answers *out, const sheaf__answer_options *how,
                                  const sheaf__prompt *prompt, int64_t count)
{
    *out = (sheaf__answers){ .count = count, .stream = calloc((size_t)count, sizeof *out->stream) };
    if (out->stream == NULL)
        return sheaf__no_memory("answers");
    for (int64_t i = 0; i < count; i++)
        out->stream[i] =
            (sheaf__answer_stream){ .codec = how->codec,
                                    .laid_out = prompt[i].laid_out ||
                                                (how->codec->templated && !how->codec->asked),
                                    .stop = how->stop,
                                    .nstop = how->nstop };
    return make_room(out, how);
}

/* Tokens so far without the one that ends the answer. */
static int64_t text_tokens(const sheaf__continuation *so_far)
{
    return so_far->n - (so_far->ending == SHEAF_ENDS_TOKEN);
}

sheaf_status *sheaf__answers_more(char **out, bool *over, sheaf__answers *a, int64_t i)
{
    const sheaf__continuation *output = &a->output[i];
    sheaf_status *st =
        sheaf__answer_stream_more(out, &a->stream[i], output->ids, text_tokens(output));
    *over = a->stream[i].over;
    return st;
}

sheaf_status *sheaf__answers_end(char **out, char **text, sheaf__answers *a, int64_t i)
{
    const sheaf__continuation *output = &a->output[i];
    return sheaf__answer_stream_end(out, text, &a->stream[i], output->ids, text_tokens(output));
}

void sheaf__answers_release(sheaf__answers *a)
{
    for (int64_t i = 0; i < a->count && a->stream != NULL; i++)
        sheaf__answer_stream_release(&a->stream[i]);
    free(a->stream);
    free(a->output);
    *a = (sheaf__answers){ 0 };
}
