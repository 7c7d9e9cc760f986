/* data_rows.c - what the readers of a data set share; see data_rows.h. */
#include "data/data_rows.h"

#include "base/base.h"
#include "data/data_images.h"
#include "data/row_cache.h"

sheaf_status *sheaf__data_no_memory(int64_t tokens)
{
    return sheaf_found(sheaf__no_memory("no memory for the data set"), "%" PRId64 " tokens so far",
                       tokens);
}

int64_t sheaf__data_limit(const sheaf_data_options *options)
{
    const int64_t model =
        options->config->max_position > 0 ? options->config->max_position : INT64_MAX;
    return options->seq > 0 ? options->seq : model;
}

sheaf_status *sheaf__data_too_long(const sheaf_data_options *options, int64_t count,
                                   const char *unit, int64_t first, int64_t first_tokens,
                                   int64_t longest, bool texts)
{
    const bool given = options->seq > 0;
    const char *limit = given ? "`seq`" : sheaf_config_position_key(options->config),
               *plural = strcmp(unit, "entry") == 0 ? "entries are" : "s are";
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "%s %" PRId64, unit, first);
    sheaf_expected(st,
                   given ? "at most %" PRId64 " tokens, the value of %s"
                         : "at most %" PRId64 " tokens, the model's %s",
                   sheaf__data_limit(options), limit);
    sheaf_found(st, "%" PRId64 " tokens; %" PRId64 " %s%s longer than %s, the longest has %" PRId64,
                first_tokens, count, count > 1 && plural[0] == 'e' ? "" : unit,
                count == 1 ? " is" : plural, limit, longest);
    const char *what = texts ? ", or say what becomes of them: `on-long cut` or `on-long skip`"
                       : options->on_long == SHEAF_LONG_CUT || options->on_long == SHEAF_LONG_SKIP
                           ? ": none is cut off or left out (`on-long` is of texts)"
                           : ": none is ever cut off";
    return given ? sheaf_try_this(st, "`seq %" PRId64 "`, or split these records%s", longest, what)
                 : sheaf_try_this(st,
                                  "split these records%s; `seq %" PRId64
                                  "` is more than the model was trained for",
                                  what, longest);
}

static bool grow_rows(sheaf_data *d, unsigned with, int64_t capacity)
{
    return SHEAF_GROW(&d->begin, NULL, capacity + 1) &&
           ((with & SHEAF__WITH_LABEL) == 0 || SHEAF_GROW(&d->label_after, NULL, capacity)) &&
           ((with & SHEAF__WITH_MARK) == 0 || SHEAF_GROW(&d->mark, NULL, capacity));
}

static bool grow_tokens(sheaf_data *d, unsigned with, int64_t capacity)
{
    sheaf__data_images *images = d->images;
    return SHEAF_GROW(&d->token, NULL, capacity) &&
           ((with & SHEAF__WITH_LABEL) == 0 || SHEAF_GROW(&d->label, NULL, capacity)) &&
           ((with & SHEAF__WITH_TRAINED) == 0 || SHEAF_GROW(&d->trained, NULL, capacity)) &&
           ((with & SHEAF__WITH_POSITION) == 0 || SHEAF_GROW(&d->position, NULL, capacity)) &&
           (images == NULL || (SHEAF_GROW(&images->embed, NULL, capacity) &&
                               SHEAF_GROW(&images->expert, NULL, capacity)));
}

sheaf_status *sheaf__data_reserve(sheaf_data *d, int64_t tokens, unsigned with)
{
    if (d->rows == d->capacity) {
        const int64_t capacity = d->capacity * 2 + 1024;
        if (!grow_rows(d, with, capacity))
            return sheaf__data_no_memory(d->tokens);
        d->capacity = capacity;
        d->begin[0] = 0;
    }
    if (tokens > d->token_capacity - d->tokens) {
        const int64_t capacity = d->token_capacity + d->token_capacity / 2 + tokens + 4096;
        if (!grow_tokens(d, with, capacity))
            return sheaf__data_no_memory(d->tokens);
        d->token_capacity = capacity;
    }
    return NULL;
}

sheaf_status *sheaf__data_row_open(sheaf__data_row *out, const sheaf_data *data, int64_t row)
{
    data = sheaf__data_set_of(data, &row);
    *out = (sheaf__data_row){ .data = data, .number = row };
    if (data->files == NULL) {
        out->token = data->token + data->begin[row];
        out->trained = data->trained == NULL ? NULL : data->trained + data->begin[row];
        return NULL;
    }
    const size_t n = (size_t)sheaf__data_row_length(data, row);
    int32_t *token = malloc(n * (sizeof *token + 1) + 1);
    if (token == NULL)
        return sheaf__data_no_memory(data->tokens);
    uint8_t *trained = (uint8_t *)(token + n);
    out->owned = token;
    out->token = token;
    out->trained = trained;
    return sheaf__row_cache_read(token, trained, data, row);
}

void sheaf__data_row_release(sheaf__data_row *row)
{
    free(row->owned);
    *row = (sheaf__data_row){ 0 };
}
