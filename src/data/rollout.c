/* rollout.c - see rollout.h. */
#include "data/rollout.h"

#include <math.h>

#include "base/base.h"
#include "data/complaints.h"
#include "data/text_inner.h"

enum { MOST = 4096 }; /* completions of a record */
static const json_int_t most_group = (json_int_t)1 << 53;

/* The value of completion k of a group's list, or the one that stands for all. */
static const json_t *of_one(const json_t *record, const char *one, const char *list, bool whole,
                            size_t k)
{
    const json_t *value = json_object_get(record, whole ? list : one);
    return whole ? json_array_get(value, k) : value;
}

/* ---- tokens ---- */

static sheaf_status *append(sheaf__text_row *row, const json_t *ids, int64_t vocab, bool trained,
                            const char *name)
{
    const int64_t n = (int64_t)json_array_size(ids);
    if (!json_is_array(ids) || n == 0)
        return sheaf__bad_field(name, "a list of token ids", "%s",
                                ids == NULL ? "no such field"
                                : n == 0    ? "an empty list"
                                            : sheaf__text_kind(ids));
    if (!SHEAF_GROW(&row->id, NULL, row->count + n) ||
        !SHEAF_GROW(&row->trained, NULL, row->count + n))
        return sheaf__no_memory("data set");
    for (int64_t i = 0; i < n; i++) {
        const json_t *id = json_array_get(ids, (size_t)i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= vocab)
            return sheaf__bad_field(name, "token ids of the model's vocabulary",
                                    "entry %" PRId64 ": %lld", i, (long long)value);
        row->id[row->count] = (int32_t)value;
        row->trained[row->count++] = trained;
    }
    return NULL;
}

static bool is_end(const sheaf__text_encoder *e, int32_t id)
{
    bool end = id == e->eos_id;
    for (int i = 0; i < e->config->neos && !end; i++)
        end = e->config->eos[i] == id;
    return end;
}

static sheaf_status *read_ids(sheaf__rollout *out, const json_t *record, const json_t *ids,
                              const sheaf__text_encoder *e)
{
    sheaf__text_row *row = &out->row;
    sheaf_status *st =
        append(row, json_object_get(record, "prompt_ids"), e->config->vocab, false, "prompt_ids");
    TRY(st, append(row, ids, e->config->vocab, true, "completion_ids"));
    if (st == NULL)
        out->ended = is_end(e, row->id[row->count - 1]);
    return st;
}

/* ---- texts ---- */

static json_t *as_messages(const json_t *answer)
{
    return json_is_array(answer) ? json_incref((json_t *)answer)
           : json_is_object(answer)
               ? json_pack("[O]", answer)
               : json_pack("[{s:s, s:O}]", "role", "assistant", "content", answer);
}

/* A record of text_record.h with one of the completions. */
static sheaf_status *one_of(json_t **out, json_t *record, const json_t *answer, const char *name)
{
    static const char *const own[] = { "completions", "rewards",    "reward", "truncated",
                                       "group",       "completion", "logps" };
    const json_t *prompt = json_object_get(record, "prompt");
    prompt = prompt == NULL ? json_object_get(record, "messages") : prompt;
    if (answer == NULL)
        return sheaf__bad_field(name, "completions of the prompt", "no such field");
    *out = json_copy(record);
    if (*out == NULL)
        return sheaf__no_memory("data set");
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        json_object_del(*out, own[i]);
    if (json_is_array(prompt)) {
        json_object_del(*out, "messages");
        json_object_set(*out, "prompt", (json_t *)prompt);
        return json_object_set_new(*out, "completion", as_messages(answer)) == 0
                   ? NULL
                   : sheaf__no_memory("data set");
    }
    json_object_set(*out, "completion", (json_t *)answer);
    return json_is_string(prompt) && !json_is_string(answer)
               ? sheaf__bad_field(name, "a text, as the prompt is", "%s", sheaf__text_kind(answer))
               : NULL;
}

static sheaf_status *read_text(sheaf__rollout *out, sheaf__text_record *record, json_t *json,
                               const json_t *answer, bool whole, const sheaf__text_encoder *e)
{
    sheaf__text_record_release(record);
    *record = (sheaf__text_record){ 0 };
    if (e->tokenizer == NULL && !e->config->byte_vocab)
        return sheaf__bad_field("prompt",
                                "\"prompt_ids\" and \"completion_ids\": this model has "
                                "no tokenizer",
                                "text");
    sheaf_status *st = one_of(&record->json, json, answer, whole ? "completions" : "completion");
    TRY(st, sheaf__text_record_take(record));
    for (int64_t i = 0; i + 1 < record->messages && st == NULL; i++)
        record->message[i].trained = false;
    TRY(st, sheaf__text_encode(&out->row, e, record));
    out->ended = true;
    return st;
}

/* ---- one completion ---- */

static sheaf_status *read_reward(sheaf__rollout *out, const json_t *value, const char *name)
{
    out->reward = value == NULL || json_is_null(value) ? NAN : json_number_value(value);
    return value == NULL || json_is_null(value) || json_is_number(value)
               ? NULL
               : sheaf__bad_field(name, "a number, or null: none", "%s", sheaf__text_kind(value));
}

static sheaf_status *read_logps(sheaf__rollout *out, const json_t *list)
{
    int64_t labels = 0;
    for (int64_t i = 1; i < out->row.count; i++)
        labels += out->row.trained[i] != 0;
    if (list == NULL)
        return NULL;
    if ((int64_t)json_array_size(list) != labels)
        return sheaf__bad_field("logps", "a number for each token of the completion",
                                "%zu for %" PRId64, json_array_size(list), labels);
    out->logp = malloc((size_t)labels * sizeof *out->logp);
    if (out->logp == NULL)
        return sheaf__no_memory("data set");
    for (; out->logps < labels; out->logps++) {
        const json_t *one = json_array_get(list, (size_t)out->logps);
        if (!json_is_number(one) || json_number_value(one) > 0)
            return sheaf__bad_field("logps", "logarithms of probabilities", "%s",
                                    sheaf__text_kind(one));
        out->logp[out->logps] = (float)json_number_value(one);
    }
    return NULL;
}

static sheaf_status *read_one(sheaf__rollouts *all, sheaf__text_record *record, json_t *json,
                              const json_t *ids, size_t k, const sheaf__text_encoder *e)
{
    const bool whole = all->whole;
    sheaf__rollout *out = &all->of[k];
    const json_t *cut = of_one(json, "truncated", "truncated", whole, k),
                 *answer = of_one(json, "completion", "completions", whole, k),
                 *logps = of_one(json, "logps", "logps", whole, k);
    sheaf_status *st = ids != NULL ? read_ids(out, json, whole ? json_array_get(ids, k) : ids, e)
                                   : read_text(out, record, json, answer, whole, e);
    TRY(st, read_reward(out, of_one(json, "reward", "rewards", whole, k),
                        whole ? "rewards" : "reward"));
    TRY(st, read_logps(out, logps));
    if (st == NULL && cut != NULL && !json_is_boolean(cut))
        st = sheaf__bad_field("truncated", "true or false", "%s", sheaf__text_kind(cut));
    if (cut != NULL)
        out->ended = !json_is_true(cut);
    return st;
}

/* Is it a list with an entry for each of n completions? */
static sheaf_status *check_list(const json_t *record, const char *name, size_t n, bool needed)
{
    const json_t *list = json_object_get(record, name);
    return (list == NULL && !needed) || (json_is_array(list) && json_array_size(list) == n)
               ? NULL
               : sheaf__bad_field(name, "an entry for each completion", "%s",
                                  list == NULL          ? "no such field"
                                  : json_is_array(list) ? "a list of another length"
                                                        : sheaf__text_kind(list));
}

sheaf_status *sheaf__rollouts_read(sheaf__rollouts *out, sheaf__text_record *record, json_t *json,
                                   const sheaf__text_encoder *e)
{
    const json_t *ids = json_object_get(json, "completion_ids"),
                 *texts = json_object_get(json, "completions"),
                 *group = json_object_get(json, "group"), *list = ids != NULL ? ids : texts;
    if (!json_is_object(json))
        return sheaf__bad_field(NULL, "an object with \"prompt\", \"completions\" and \"rewards\"",
                                "%s", sheaf__text_kind(json));
    *out = (sheaf__rollouts){ .whole = ids != NULL ? json_is_array(json_array_get(ids, 0))
                                                   : texts != NULL,
                              .group = -1 };
    const size_t n = out->whole ? json_array_size(list) : 1;
    if (out->whole && (n == 0 || n > MOST))
        return sheaf__bad_field(ids != NULL ? "completion_ids" : "completions",
                                "a list of completions", "%zu", n);
    sheaf_status *st = out->whole ? check_list(json, "rewards", n, true) : NULL;
    for (int i = 0; i < 2 && out->whole && st == NULL; i++)
        st = check_list(json, i == 0 ? "truncated" : "logps", n, false);
    if (st == NULL && group != NULL &&
        (!json_is_integer(group) || json_integer_value(group) < 0 ||
         json_integer_value(group) > most_group))
        st = sheaf__bad_field("group", "a number from 0 to 2^53", "%s", sheaf__text_kind(group));
    if (st == NULL && group != NULL)
        out->group = json_integer_value(group);
    out->of = st != NULL ? NULL : calloc(n, sizeof *out->of);
    if (st == NULL && out->of == NULL)
        st = sheaf__no_memory("data set");
    for (; st == NULL && out->count < (int64_t)n; out->count++)
        TRY(st, read_one(out, record, json, ids, (size_t)out->count, e));
    return st;
}

/* ---- into the data set ---- */

static bool same_prompt(const sheaf_data *data, int64_t a, int64_t b)
{
    int64_t n[2];
    const int64_t row[] = { a, b };
    for (int k = 0; k < 2; k++) {
        const uint8_t *trained = data->trained + data->begin[row[k]];
        for (n[k] = 0; n[k] < sheaf__data_row_length(data, row[k]) && !trained[n[k]];)
            n[k]++;
    }
    return n[0] == n[1] && memcmp(data->token + data->begin[a], data->token + data->begin[b],
                                  (size_t)n[0] * sizeof *data->token) == 0;
}

/* Numbers of groups are by order, but where the file has its own. */
static int64_t group_of(const sheaf_data *data, const sheaf__rollouts *of, int64_t first)
{
    if (of->group >= 0)
        return of->group;
    if (first == 0)
        return 0;
    const int64_t last = data->rollout[first - 1].group;
    return of->whole || !same_prompt(data, first - 1, first) ? last + 1 : last;
}

sheaf_status *sheaf__rollouts_put(sheaf__rollouts *of, sheaf__row_writer *writer,
                                  sheaf__text_counts *counts, const sheaf_data_options *options,
                                  int64_t place)
{
    sheaf_data *data = writer->data;
    const int64_t first = data->rows;
    sheaf__text_row *row = calloc((size_t)of->count, sizeof *row);
    if (row == NULL)
        return sheaf__no_memory("data set");
    for (int64_t i = 0; i < of->count; i++)
        row[i] = of->of[i].row;
    /* Before the rows: each has its entry, wherever memory ends. */
    sheaf_status *st = NULL;
    if (SHEAF_GROW(&data->rollout, NULL,
                   first + of->count > data->capacity ? first + of->count : data->capacity))
        memset(data->rollout + first, 0, (size_t)of->count * sizeof *data->rollout);
    else
        st = sheaf__no_memory("data set");
    TRY(st, sheaf__row_writer_put(writer, counts, options, row, (int)of->count, place));
    free(row);
    if (st != NULL || data->rows == first)
        return st;
    const int64_t group = group_of(data, of, first);
    for (int64_t i = 0; i < of->count; i++) {
        data->rollout[first + i] = (sheaf_data_rollout){ .reward = of->of[i].reward,
                                                         .group = group,
                                                         .ended = of->of[i].ended,
                                                         .logp = of->of[i].logp };
        of->of[i].logp = NULL;
    }
    return NULL;
}

void sheaf__rollouts_release(sheaf__rollouts *of)
{
    for (int64_t i = 0; i < of->count; i++) {
        sheaf__text_row_release(&of->of[i].row);
        free(of->of[i].logp);
    }
    free(of->of);
    *of = (sheaf__rollouts){ 0 };
}
