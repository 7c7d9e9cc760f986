/* text_rows.c - see text_rows.h. */
#include "data/text_rows.h"

#include "base/base.h"
#include "data/row_cache.h"
#include "data/record_pictures.h"

static sheaf_status *keep(sheaf_data *data, const sheaf__text_row *row, int64_t count,
                          const float *mark)
{
    sheaf_status *st = sheaf__data_reserve(
        data, count, SHEAF__WITH_TRAINED | (mark != NULL ? SHEAF__WITH_MARK : 0));
    if (st != NULL)
        return st;
    memcpy(data->token + data->tokens, row->id, (size_t)count * sizeof *row->id);
    memcpy(data->trained + data->tokens, row->trained, (size_t)count);
    if (mark != NULL)
        data->mark[data->rows] = *mark;
    data->tokens += count;
    data->begin[++data->rows] = data->tokens;
    return NULL;
}

/* The first token is never predicted. */
static bool learns(const sheaf__text_row *row, int64_t count)
{
    return count > 1 && memchr(row->trained + 1, 1, (size_t)count - 1) != NULL;
}

bool sheaf__text_counts_fits(sheaf__text_counts *c, int64_t count, int64_t place)
{
    if (count <= c->limit)
        return true;
    c->longest_seen = count > c->longest_seen ? count : c->longest_seen;
    if (c->too_long++ == 0) {
        c->first_place = place;
        c->first_tokens = count;
    }
    return false;
}

sheaf_status *sheaf__row_writer_put(sheaf__row_writer *writer, sheaf__text_counts *c,
                                    const sheaf_data_options *options, const sheaf__text_row *row,
                                    int n, int64_t place)
{
    int64_t longest = 0;
    bool all_learn = true;
    sheaf_status *st = NULL;
    for (int i = 0; i < n; i++) {
        longest = row[i].count > longest ? row[i].count : longest;
        all_learn = all_learn && (row[i].count <= c->limit || learns(&row[i], c->limit));
    }
    if (!sheaf__text_counts_fits(c, longest, place)) {
        if (options->on_long != SHEAF_LONG_CUT)
            return NULL;
        if (!all_learn) {
            c->emptied++;
            return NULL;
        }
        c->cut++;
    }
    c->rows += n;
    for (int i = 0; i < n && st == NULL; i++) {
        const int64_t count = row[i].count < c->limit ? row[i].count : c->limit;
        c->longest = count > c->longest ? count : c->longest;
        st = writer->cache != NULL
                 ? sheaf__row_cache_put(writer->cache, row[i].id, row[i].trained, count)
                 : keep(writer->data, &row[i], count, writer->mark);
    }
    return st;
}

sheaf_status *sheaf__text_counts_verdict(const sheaf__text_counts *c,
                                         const sheaf_data_options *options, const char *unit)
{
    return c->too_long == 0 || options->on_long == SHEAF_LONG_CUT ||
                   options->on_long == SHEAF_LONG_SKIP
               ? NULL
               : sheaf__data_too_long(options, c->too_long, unit, c->first_place, c->first_tokens,
                                      c->longest_seen, true);
}

void sheaf__text_counts_note(const sheaf__text_counts *c, const sheaf_data_options *options,
                             int64_t records, const sheaf__ignored *written)
{
    if (c->too_long > 0 && options->on_long == SHEAF_LONG_SKIP)
        sheaf_warn(options->events,
                   "%" PRId64 " of %" PRId64 " records are longer than %" PRId64
                   " tokens and left out (`on-long skip`)",
                   c->too_long, records, c->limit);
    else if (c->too_long > 0)
        sheaf_warn(options->events,
                   "%" PRId64 " of %" PRId64 " records are longer than %" PRId64
                   " tokens and cut there (`on-long cut`); %" PRId64
                   " of these had no answer before it and are left out",
                   c->too_long, records, c->limit, c->emptied);
    if (c->left_out > 0)
        sheaf_warn(options->events, "%" PRId64 " messages are not written by the chat template",
                   c->left_out);
    const bool known = written->field[0] != '\0';
    if (c->written > 0)
        sheaf_warn(options->events,
                   "%" PRId64 " of %" PRId64
                   " records write special tokens as text%s%s%s%s%s: they "
                   "are learnt as letters; `specials` makes tokens of them, and conversations "
                   "belong in \"messages\", where the template writes its own",
                   c->written, records, known ? " ('" : "", written->field, known ? "' in " : "",
                   known ? written->where : "", known ? ")" : "");
}

void sheaf__ignored_keep(sheaf__ignored *ignored, const char *field, const char *unit,
                         int64_t place)
{
    if (field == NULL || field[0] == '\0')
        return;
    if (ignored->field[0] != '\0') {
        ignored->more += strcmp(ignored->field, field) == 0;
        return;
    }
    snprintf(ignored->field, sizeof ignored->field, "%s", field);
    snprintf(ignored->where, sizeof ignored->where, "%s %" PRId64, unit, place);
}

void sheaf__ignored_warn(const sheaf__ignored *ignored, const char *path,
                         const sheaf_events *events)
{
    if (ignored->field[0] != '\0')
        sheaf_warn(events, "%s: %s: field '%s' is not used", path, ignored->where, ignored->field);
}

void sheaf__lost_warn(const sheaf__ignored *lost, const char *path, const sheaf_config *config,
                      const sheaf_events *events)
{
    if (strcmp(lost->field, SHEAF__PICTURE_SPELLED) == 0)
        sheaf_warn(events, "%s: %s: %s", path, lost->where, SHEAF__PICTURE_IS_TEXT);
    else if (strcmp(lost->field, SHEAF__PICTURE_SAID) == 0)
        sheaf_warn(events, "%s: %s (records: %" PRId64 "): %s", path, lost->where, 1 + lost->more,
                   SHEAF__PICTURE_SAID_IS_TEXT);
    else if (lost->field[0] != '\0')
        sheaf_warn(events, "%s: %s: field '%s' is not used: %s has no pictures", path, lost->where,
                   lost->field, sheaf_family_name(config->family));
}
