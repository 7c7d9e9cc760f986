/* compose.c - see compose.h. */
#include "data/compose.h"

#include "base/base.h"
#include "inputs/places.h"

static sheaf_status *encode(sheaf__ids *out, const sheaf__compose_options *how, const char *text)
{
    const size_t size = strlen(text);
    int32_t *ids = NULL;
    if (how->tokenizer != NULL) {
        sheaf_status *st =
            sheaf__tokenizer_encode(&ids, NULL, &out->count, how->tokenizer, text, size,
                                    &(sheaf__encode_options){ .plain = !how->specials });
        out->id = ids;
        return st;
    }
    ids = malloc((size + 1) * sizeof *ids);
    if (ids == NULL)
        return sheaf__no_memory("token ids");
    for (size_t i = 0; i < size; i++)
        ids[i] = (unsigned char)text[i];
    *out = (sheaf__ids){ ids, (int64_t)size };
    return NULL;
}

static sheaf_status *check_turns(const sheaf__record *record, const sheaf__compose_options *options)
{
    if (!options->no_answer && record->turn[record->turns - 1].answer == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "answer"), "one, to be trained"),
                           "none");
    if (record->turns == 1 || sheaf__template_has_history(options->version))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "conversation");
    sheaf_expected(st, "one question: template '%s' has no place for turns before it",
                   sheaf__template_name(options->version));
    return sheaf_try_this(sheaf_found(st, "%" PRId64 " turns", record->turns),
                          "template chat, or a record for each turn");
}

/* The question with the mark of the image, which stands in front of all text: *out is a copy
 * without it, NULL where no question has one. records_json.c removes it from records. For a model
 * without pictures it is text. */
static sheaf_status *take_mark(char **out, const sheaf__record *record,
                               const sheaf__compose_options *options)
{
    int64_t where;
    const int64_t marks =
        options->layout.patches > 0 ? sheaf__turn_marks(&where, record->turn, record->turns) : 0;
    *out = NULL;
    if (marks == 0)
        return NULL;
    if (record->image != NULL && marks == 1 && where == 0) {
        *out = strdup(record->turn[0].query);
        if (*out == NULL)
            return sheaf__no_memory("prompt");
        sheaf__picture_name_remove(*out);
        return NULL;
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "question %" PRId64, where + 1);
    if (record->image == NULL)
        sheaf_found(sheaf_expected(st, "a picture for '<image>'"), "none");
    else
        sheaf_found(sheaf_expected(st, "'<image>' once, in the first question: the one picture "
                                       "stands in front of it"),
                    "%" PRId64 " of them", marks);
    return sheaf_try_this(st, "give the picture (`image FILE`, or \"image\" in the record), or "
                              "write another text: '<image>' is the place of a picture");
}

static sheaf_status *lay_out(sheaf__sequence *out, sheaf__ids prompt, sheaf__ids answer, bool image,
                             const sheaf__compose_options *options)
{
    sheaf__sequence_options layout = options->layout;
    layout.patches = image ? layout.patches : 0;
    if (options->no_answer)
        return sheaf__sequence_prompt(out, prompt, &layout);
    if (layout.max_length == 0)
        layout.max_length = sheaf__sequence_needs(prompt.count, answer.count, &layout);
    return sheaf__sequence_train(out, prompt, answer, &layout);
}

sheaf_status *sheaf__compose(sheaf__sequence *out, const sheaf__record *record,
                             const sheaf__compose_options *options)
{
    const sheaf__turn *last = &record->turn[record->turns - 1];
    sheaf__ids prompt = { 0 }, answer = { 0 };
    char *text = NULL, *first = NULL;
    sheaf__turn *turn = malloc((size_t)record->turns * sizeof *turn);
    sheaf_status *st = turn == NULL ? sheaf__no_memory("prompt") : NULL;
    TRY(st, check_turns(record, options));
    TRY(st, take_mark(&first, record, options));
    if (st == NULL) {
        memcpy(turn, record->turn, (size_t)record->turns * sizeof *turn);
        turn[0].query = first != NULL ? first : turn[0].query;
        st = sheaf__template_prompt(&text, options->version, turn, record->turns - 1,
                                    turn[record->turns - 1].query);
    }
    TRY(st, encode(&prompt, options, text));
    if (st == NULL && !options->no_answer)
        st = encode(&answer, options, last->answer);
    TRY(st, lay_out(out, prompt, answer, record->image != NULL, options));
    free((int32_t *)prompt.id);
    free((int32_t *)answer.id);
    free(text);
    free(first);
    free(turn);
    return st;
}
