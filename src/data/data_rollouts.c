/* data_rollouts.c - data sets that a run makes itself: the prompts that it answers, and the
 * completions of a step. */
#include "base/base.h"
#include "base/hash.h"
#include "base/json.h"
#include "data/rollout.h"

static sheaf_status *new_data(sheaf_data **out, const sheaf_config *config)
{
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return sheaf__no_memory("completions");
    (*out)->vocab = config->vocab;
    (*out)->pad = config->pad >= 0 && config->pad < config->vocab ? config->pad : 0;
    return NULL;
}

/* Closes it after a failure. */
static sheaf_status *finish(sheaf_data **out, sheaf_status *st)
{
    TRY(st, sheaf__data_count(*out, true));
    if (st == NULL)
        (*out)->seq = (*out)->longest;
    TRY(st, sheaf__data_hash(*out));
    if (st != NULL) {
        sheaf_data_close(*out);
        *out = NULL;
    }
    return st;
}

/* Of the data's own hash and the answers and judges that there are. */
static sheaf_status *hash_answers(sheaf_data *data, const char *const *answer, const char *judges)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    bool any = judges != NULL;
    if (hasher == NULL)
        return sheaf__no_memory("prompts");
    sheaf__hasher_add(hasher, data->hash, sizeof data->hash);
    if (judges != NULL)
        sheaf__hasher_add(hasher, judges, strlen(judges));
    for (int64_t i = 0; answer != NULL && i < data->rows; i++) {
        if (answer[i] == NULL)
            continue;
        any = true;
        sheaf__hasher_add(hasher, &i, sizeof i);
        sheaf__hasher_add(hasher, answer[i], strlen(answer[i]) + 1);
    }
    if (any)
        sheaf__hash_text(data->hash, sheaf__hasher_end(hasher));
    sheaf__hasher_free(hasher);
    return NULL;
}

sheaf_status *sheaf_data_prompts(sheaf_data **out, const sheaf_config *config,
                                 const int32_t *const *ids, const int64_t *n,
                                 const char *const *answer, int64_t rows, const char *judges)
{
    sheaf_status *st = new_data(out, config);
    for (int64_t i = 0; i < rows && st == NULL; i++) {
        sheaf_data *data = *out;
        st = sheaf__data_reserve(data, n[i], SHEAF__WITH_TRAINED);
        if (st != NULL)
            break;
        memcpy(data->token + data->tokens, ids[i], (size_t)n[i] * sizeof **ids);
        memset(data->trained + data->tokens, 0, (size_t)n[i]);
        data->tokens += n[i];
        data->begin[++data->rows] = data->tokens;
    }
    st = finish(out, st);
    if (st == NULL && (st = hash_answers(*out, answer, judges)) != NULL) {
        sheaf_data_close(*out);
        *out = NULL;
    }
    return st;
}

sheaf_status *sheaf_data_rollouts(sheaf_data **out, const sheaf_config *config, const char *text,
                                  size_t size)
{
    const sheaf__text_encoder encoder = { .config = config, .eos_id = -1 };
    const sheaf_data_options options = { .config = config };
    sheaf__text_counts counts = { .limit = INT64_MAX };
    sheaf_status *st = new_data(out, config);
    sheaf__row_writer writer = { .data = *out };
    for (const char *at = text, *stop; at < text + size && st == NULL; at = stop + 1) {
        json_t *line = NULL;
        sheaf__text_record record = { 0 };
        sheaf__rollouts of = { 0 };
        stop = memchr(at, '\n', (size_t)(text + size - at));
        if (stop == NULL)
            break;
        st = sheaf__json_parse_line(&line, at, (size_t)(stop - at));
        TRY(st, sheaf__rollouts_read(&of, &record, line, &encoder));
        TRY(st, sheaf__rollouts_put(&of, &writer, &counts, &options, 0));
        sheaf__rollouts_release(&of);
        sheaf__text_record_release(&record);
        json_decref(line);
    }
    return sheaf_in(finish(out, st), "rollouts.jsonl");
}

/* The record of a completion; its messages are in room[of->messages + 1]. */
static sheaf__text_record record_of(sheaf__text_message *room, const sheaf__to_score *of)
{
    const size_t size = strlen(of->completion);
    if (of->messages == 0)
        return (sheaf__text_record){ .form = SHEAF__FORM_PROMPT,
                                     .prompt = of->prompt,
                                     .prompt_size = strlen(of->prompt),
                                     .text = of->completion,
                                     .text_size = size };
    for (int64_t i = 0; i < of->messages; i++)
        room[i] = (sheaf__text_message){ .role = of->message[i].role,
                                         .content = of->message[i].content,
                                         .size = of->message[i].size,
                                         .json = of->message[i].json };
    room[of->messages] = (sheaf__text_message){ "assistant", of->completion, size, true, NULL };
    return (sheaf__text_record){ .form = SHEAF__FORM_MESSAGES,
                                 .message = room,
                                 .messages = of->messages + 1 };
}

sheaf_status *sheaf__data_to_score(sheaf_data **out, const sheaf__text_encoder *encoder,
                                   const sheaf__to_score *of, int64_t n)
{
    const sheaf_data_options options = { .config = encoder->config };
    sheaf__text_counts counts = { .limit = INT64_MAX };
    sheaf_status *st = new_data(out, encoder->config);
    sheaf__row_writer writer = { .data = *out };
    if (st == NULL) {
        (*out)->scores = true;
        (*out)->ignored = encoder->config->pad;
    }
    for (int64_t i = 0; i < n && st == NULL; i++) {
        sheaf__text_message *room = malloc((size_t)(of[i].messages + 1) * sizeof *room);
        sheaf__text_row row = { 0 };
        st = room == NULL ? sheaf__no_memory("completions") : NULL;
        if (st == NULL) {
            const sheaf__text_record record = record_of(room, &of[i]);
            st = sheaf__text_encode(&row, encoder, &record);
        }
        TRY(st, sheaf__row_writer_put(&writer, &counts, &options, &row, 1, 0));
        sheaf__text_row_release(&row);
        free(room);
    }
    return finish(out, st);
}
