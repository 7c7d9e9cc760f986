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

/* Of the data's own hash and the answers that there are. */
static sheaf_status *hash_answers(sheaf_data *data, const char *const *answer)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    bool any = false;
    if (hasher == NULL)
        return sheaf__no_memory("prompts");
    sheaf__hasher_add(hasher, data->hash, sizeof data->hash);
    for (int64_t i = 0; i < data->rows; i++) {
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
                                 const char *const *answer, int64_t rows)
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
    if (st == NULL && answer != NULL && (st = hash_answers(*out, answer)) != NULL) {
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
