/* layout.c - see layout.h. */
#include "inputs/layout.h"

#include "base/base.h"

enum {
    IGNORED = -100,
    RESERVE = 10,      /* positions that must remain after the context */
    SPARE = 4,         /* upstream: len > max_length - P - 5, the image counted as one of len */
    LONGEST = 1 << 28, /* positions */
};

/* Positions of BOI, patches and EOI. */
static int64_t image_positions(const sheaf__sequence_options *options)
{
    return options->patches > 0 ? options->patches + 2 : 0;
}

static int64_t context_of(int64_t prompt, const sheaf__sequence_options *options)
{
    return 1 + image_positions(options) + prompt;
}

int64_t sheaf__sequence_needs(int64_t prompt, int64_t answer,
                              const sheaf__sequence_options *options)
{
    const int64_t context = context_of(prompt, options);
    const int64_t capacity = context + RESERVE, whole = context + answer + SPARE;
    return capacity > whole ? capacity : whole;
}

static sheaf_status *check(sheaf__ids prompt, sheaf__ids answer,
                           const sheaf__sequence_options *options)
{
    const int64_t number[] = { prompt.count, answer.count, options->patches, options->max_length };
    for (size_t i = 0; i < sizeof number / sizeof *number; i++)
        if (number[i] < 0 || number[i] > LONGEST)
            return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "sequence"),
                                              "lengths from 0 to %d", (int)LONGEST),
                               "%" PRId64, number[i]);
    return NULL;
}

/* "21 positions before the answer: 1 bos, 18 of the image, 2 of the prompt" */
static sheaf_status *too_long(int64_t most, int64_t prompt, const sheaf__sequence_options *options)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "prompt");
    sheaf_expected(st, "at most %" PRId64 " positions before the answer, with max_length %" PRId64,
                   most < 0 ? 0 : most, options->max_length);
    if (options->patches > 0)
        return sheaf_found(st,
                           "%" PRId64 ": 1 for bos, %" PRId64 " for the image (%" PRId64
                           " patches), %" PRId64 " for the prompt",
                           context_of(prompt, options), image_positions(options), options->patches,
                           prompt);
    return sheaf_found(st, "%" PRId64 ": 1 for bos, %" PRId64 " for the prompt",
                       context_of(prompt, options), prompt);
}

static sheaf_status *reserve(sheaf__sequence *out, int64_t length)
{
    const size_t n = (size_t)length;
    out->length = length;
    out->block = malloc(n * (3 * sizeof(int32_t) + 3));
    if (out->block == NULL)
        return sheaf_found(sheaf__no_memory("sequence"), "%" PRId64 " positions", length);
    int32_t **number[] = { &out->input_ids, &out->labels, &out->position_ids };
    uint8_t **mask[] = { &out->image_embed_mask, &out->vision_expert_mask, &out->image_rope_mask };
    uint8_t *masks = (uint8_t *)((int32_t *)out->block + 3 * n);
    for (size_t i = 0; i < 3; i++) {
        *number[i] = (int32_t *)out->block + i * n;
        *mask[i] = memset(masks + i * n, 0, n);
    }
    return NULL;
}

static void fill(sheaf__sequence *s, sheaf__ids prompt, sheaf__ids answer, bool ends,
                 const sheaf__sequence_options *options)
{
    const int64_t image = image_positions(options), patches = options->patches;
    int64_t at = 0;
    s->input_ids[at++] = options->bos;
    for (int64_t i = 0; i < image; i++, at++) {
        s->input_ids[at] = options->image_id;
        s->image_embed_mask[at] = 1;
        s->vision_expert_mask[at] = i <= patches;
        s->image_rope_mask[at] = i >= 1 && i <= patches;
    }
    s->image_position = image > 0 ? at - 1 : -1;
    for (int64_t i = 0; i < prompt.count; i++)
        s->input_ids[at++] = prompt.id[i];
    s->context = at;
    for (int64_t i = 0; i < answer.count; i++)
        s->input_ids[at++] = answer.id[i];
    if (ends)
        s->input_ids[at++] = options->eos;
    s->used = at;
    while (at < s->length)
        s->input_ids[at++] = options->pad;
    int32_t position = -1;
    for (int64_t i = 0; i < s->length; i++) {
        const bool inside = i > 0 && s->image_rope_mask[i] == 1 && s->image_rope_mask[i - 1] == 1;
        position += !inside;
        s->position_ids[i] = position;
        s->labels[i] = i >= s->context && i < s->used ? s->input_ids[i] : IGNORED;
    }
}

sheaf_status *sheaf__sequence_train(sheaf__sequence *out, sheaf__ids prompt, sheaf__ids answer,
                                    const sheaf__sequence_options *options)
{
    sheaf__sequence s = { 0 };
    sheaf_status *st = check(prompt, answer, options);
    if (st != NULL)
        return st;
    const int64_t most = options->max_length - RESERVE, context = context_of(prompt.count, options);
    if (context > most)
        return sheaf_try_this(too_long(most, prompt.count, options),
                              "max_length %" PRId64 " or more for this prompt and its answer",
                              sheaf__sequence_needs(prompt.count, answer.count, options));
    const int64_t capacity = options->max_length - SPARE - context;
    s.cut = answer.count > capacity ? answer.count - capacity : 0;
    answer.count -= s.cut;
    st = reserve(&s, options->max_length);
    if (st != NULL)
        return st;
    fill(&s, prompt, answer, true, options);
    *out = s;
    return NULL;
}

sheaf_status *sheaf__sequence_prompt(sheaf__sequence *out, sheaf__ids prompt,
                                     const sheaf__sequence_options *options)
{
    const sheaf__ids none = { 0 };
    sheaf__sequence s = { 0 };
    sheaf_status *st = check(prompt, none, options);
    if (st != NULL)
        return st;
    const int64_t context = context_of(prompt.count, options);
    if (options->max_length > 0 && context >= options->max_length)
        return sheaf_try_this(too_long(options->max_length - 1, prompt.count, options),
                              "a max_length above %" PRId64 ", by as many as the answer may have",
                              context);
    st = reserve(&s, context);
    if (st != NULL)
        return st;
    fill(&s, prompt, none, false, options);
    *out = s;
    return NULL;
}

void sheaf__sequence_release(sheaf__sequence *sequence)
{
    free(sequence->block);
    *sequence = (sheaf__sequence){ 0 };
}
