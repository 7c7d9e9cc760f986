/* text_rows.c - see text_rows.h. */
#include "data/text_rows.h"

#include "base/base.h"
#include "data/data_pictures.h"
#include "data/row_cache.h"
#include "data/record_pictures.h"

static sheaf_status *append(const sheaf__row_writer *writer, const sheaf__text_row *row)
{
    sheaf_data *data = writer->data;
    const int64_t at = data->tokens;
    const size_t n = (size_t)row->count;
    sheaf_status *st =
        sheaf__data_reserve(data, row->count,
                            (row->label != NULL ? SHEAF__WITH_LABEL : SHEAF__WITH_TRAINED) |
                                (writer->mark != NULL ? SHEAF__WITH_MARK : 0));
    if (row->label != NULL)
        TRY(st, sheaf__pictures_put(writer->pictures, row->picture, row->pictures));
    if (st != NULL)
        return st;
    memcpy(data->token + at, row->id, n * sizeof *row->id);
    if (row->label != NULL) {
        memcpy(data->label + at, row->label, n * sizeof *row->label);
        memcpy(data->images->embed + at, row->place, n);
        memset(data->images->expert + at, 0, n);
        data->label_after[data->rows] = row->behind;
    } else {
        memcpy(data->trained + at, row->trained, n);
    }
    if (writer->mark != NULL)
        data->mark[data->rows] = *writer->mark;
    data->tokens += row->count;
    data->begin[++data->rows] = data->tokens;
    return NULL;
}

static sheaf_status *across(sheaf__row_writer *writer, const sheaf__text_row *row, int64_t limit)
{
    int64_t last = row->count;
    while (!row->place[last - 1])
        last--;
    writer->across = last + 1 > writer->across ? last + 1 : writer->across;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "text");
    sheaf_expected(st, "all pictures within %" PRId64 " positions: they are not cut", limit);
    return sheaf_found(st, "%" PRId64 " positions, the last of a picture at %" PRId64, row->count,
                       last);
}

/* A picture is never cut. *left: does anything have a label then? The first token is never
 * predicted. */
static sheaf_status *cut(bool *left, sheaf__row_writer *writer, sheaf__text_row *row, int64_t limit)
{
    *left = row->count <= limit;
    if (*left)
        return NULL;
    if (row->place != NULL && memchr(row->place + limit, 1, (size_t)(row->count - limit)) != NULL)
        return across(writer, row, limit);
    row->count = limit;
    row->behind = SHEAF__NO_LABEL;
    for (int64_t i = 1; i < row->count && !*left; i++)
        *left = sheaf__text_row_learns(row, i);
    return NULL;
}

sheaf_status *sheaf__row_writer_fit(bool *keep, sheaf__row_writer *writer, sheaf__text_counts *c,
                                    const sheaf_data_options *options, sheaf__text_row *row, int n,
                                    int64_t place)
{
    int64_t longest = 0;
    sheaf_status *st = NULL;
    for (int i = 0; i < n; i++)
        longest = row[i].count > longest ? row[i].count : longest;
    *keep = longest <= c->limit;
    if (*keep)
        return NULL;
    c->longest_seen = longest > c->longest_seen ? longest : c->longest_seen;
    if (c->too_long++ == 0) {
        c->first_place = place;
        c->first_tokens = longest;
    }
    if (options->on_long != SHEAF_LONG_CUT)
        return NULL;
    *keep = true;
    for (int i = 0; i < n && st == NULL && *keep; i++)
        st = cut(keep, writer, &row[i], c->limit);
    c->cut += st == NULL && *keep;
    c->emptied += st == NULL && !*keep;
    return st;
}

sheaf_status *sheaf__row_writer_add(sheaf__row_writer *writer, sheaf__text_counts *c,
                                    const sheaf__text_row *row, int n)
{
    sheaf_status *st = NULL;
    c->rows += n;
    for (int i = 0; i < n && st == NULL; i++) {
        c->longest = row[i].count > c->longest ? row[i].count : c->longest;
        st = writer->cache != NULL
                 ? sheaf__row_cache_put(writer->cache, row[i].id, row[i].trained, row[i].count)
                 : append(writer, &row[i]);
    }
    return st;
}

sheaf_status *sheaf__row_writer_put(sheaf__row_writer *writer, sheaf__text_counts *c,
                                    const sheaf_data_options *options, sheaf__text_row *row, int n,
                                    int64_t place)
{
    bool keep;
    sheaf_status *st = sheaf__row_writer_fit(&keep, writer, c, options, row, n, place);
    return st == NULL && keep ? sheaf__row_writer_add(writer, c, row, n) : st;
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
