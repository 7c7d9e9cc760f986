/* data_rollouts.c - data sets that a run makes itself: the prompts that it answers, and the
 * completions of a step. */
#include "base/base.h"
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

sheaf_status *sheaf_data_prompts(sheaf_data **out, const sheaf_config *config,
                                 const int32_t *const *ids, const int64_t *n, int64_t rows)
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
    return finish(out, st);
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
