/* data_talks.c - conversations with pictures, in JSON Lines or JSON arrays, become rows
 * (talk_row.h): OmniLMM's and MiniCPM-V's training data.
 *
 * Records of a round are read side by side, pictures included, and taken in the order of the file.
 * Of the pictures only paths, hashes and sizes stay; they are read again when a step needs them, or
 * before it does (data_pictures.h). A record that is bad is named: upstream takes another one at
 * random. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/status.h"
#include "data/complaints.h"
#include "data/data_images.h"
#include "data/data_pictures.h"
#include "data/data_read.h"
#include "data/json_items.h"
#include "data/talk_row.h"
#include "data/text_rows.h"
#include "data/text_sources.h"
#include "ops/pool.h"

enum { ROUND = 256 };

typedef struct job {
    char *text;
    size_t size;
    int64_t place;
    sheaf__talk_row row;
    sheaf_status *st;
} job;

typedef struct reader {
    sheaf_data *data;
    const sheaf_data_options *options;
    sheaf__text_sources sources;
    sheaf__chat_template *own; /* the family's, where none is named or stored */
    sheaf__talk_reader talks;
    sheaf__json_items items;
    sheaf__pool *pool;
    job job[ROUND];
    int64_t jobs;
    sheaf__text_counts counts;
    sheaf__complaints complaints;
    sheaf__ignored ignored, lost, written;
    int64_t records;
    int64_t across; /* the least --seq that cuts no picture, where one was too small; 0: none */
    sheaf__pictures *pictures;
} reader;

/* ---- what they are read with ---- */

static sheaf_status *choose_chat(reader *in)
{
    const sheaf_data_options *o = in->options;
    const sheaf__picture_form *form = &in->talks.viewing.form;
    sheaf_status *st = sheaf__text_sources_chat(&in->sources, o);
    if (st != NULL)
        return st;
    const sheaf__chat_template *chat = in->sources.chat;
    if (chat == NULL) {
        st = sheaf__chat_template_find(&in->own,
                                       o->config->byte_vocab ? form->byte_chat : form->chat);
        chat = in->own;
        if (st == NULL)
            sheaf_note(o->events,
                       "prompt template %s, the family's own, as the tokenizer stores none "
                       "(--template changes it)",
                       sheaf__chat_template_name(chat));
    }
    in->talks.speech.chat = chat;
    in->data->prompt_template = chat == NULL ? NULL : sheaf__chat_template_name(chat);
    return st;
}

static sheaf_status *open_sources(reader *in, const char *path)
{
    const sheaf_data_options *o = in->options;
    sheaf_status *st = sheaf__text_sources_files(&in->sources, path);
    if (st == NULL && in->sources.paths != 1) {
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                            "a file of JSON Lines or a JSON array, or a folder with one");
        sheaf_found(st, "%" PRId64 " such files in it", in->sources.paths);
        st = sheaf_try_this(st,
                            "one of them: --data %s; or put them together: cat FILE... >ALL "
                            "(of JSON Lines), in the folder that paths of pictures start from",
                            in->sources.path[0]);
    }
    TRY(st, sheaf__text_sources_open(&in->sources, o));
    TRY(st, choose_chat(in));
    if (st != NULL)
        return st;
    const sheaf__text_encoder *e = &in->sources.encoder;
    sheaf__speech *s = &in->talks.speech;
    const int64_t bos = e->tokenizer == NULL ? o->config->bos : sheaf__tokenizer_bos(e->tokenizer);
    s->tokenizer = e->tokenizer;
    s->bos = e->bos;
    s->eos = e->eos;
    s->bos_id = (int32_t)bos;
    s->eos_id = e->eos_id;
    s->specials = e->specials;
    return sheaf__speech_marks(s, o->config);
}

/* ---- rows ---- */

static sheaf_status *keep_row(reader *in, sheaf__talk_row *row)
{
    sheaf_data *d = in->data;
    const size_t n = (size_t)row->count;
    sheaf_status *st = sheaf__data_reserve(d, row->count, SHEAF__WITH_LABEL);
    TRY(st, sheaf__pictures_put(in->pictures, row->picture, row->pictures));
    if (st != NULL)
        return st;
    memcpy(d->token + d->tokens, row->id, n * sizeof *d->token);
    memcpy(d->label + d->tokens, row->label, n * sizeof *d->label);
    memcpy(d->images->embed + d->tokens, row->row, n);
    memset(d->images->expert + d->tokens, 0, n);
    d->label_after[d->rows] = row->behind;
    d->tokens += row->count;
    d->begin[++d->rows] = d->tokens;
    in->counts.rows++;
    if (row->count > in->counts.longest)
        in->counts.longest = row->count;
    return NULL;
}

static sheaf_status *across(reader *in, const sheaf__talk_row *row)
{
    const int64_t limit = in->counts.limit;
    int64_t last = row->count;
    while (!row->row[last - 1])
        last--;
    in->across = last + 1 > in->across ? last + 1 : in->across;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "text");
    sheaf_expected(st, "all pictures within %" PRId64 " positions: they are not cut", limit);
    return sheaf_found(st, "%" PRId64 " positions, the last of a picture at %" PRId64, row->count,
                       last);
}

/* Is it short enough, perhaps without its end? A picture is not cut: its rows belong together. */
static sheaf_status *fit(bool *keep, reader *in, sheaf__talk_row *row, int64_t place)
{
    sheaf__text_counts *c = &in->counts;
    *keep = sheaf__text_counts_fits(c, row->count, place);
    if (*keep)
        return NULL;
    if (in->options->on_long != SHEAF_LONG_CUT)
        return NULL;
    if (memchr(row->row + c->limit, 1, (size_t)(row->count - c->limit)) != NULL)
        return across(in, row);
    row->count = c->limit;
    row->behind = SHEAF__NO_LABEL;
    for (int64_t i = 1; i < row->count && !*keep; i++)
        *keep = row->label[i] != SHEAF__NO_LABEL;
    c->cut += *keep;
    c->emptied += !*keep;
    return NULL;
}

static sheaf_status *take(reader *in, job *j)
{
    bool keep = false;
    in->records++;
    sheaf_status *bad = j->st;
    j->st = NULL;
    if (bad == NULL)
        bad = fit(&keep, in, &j->row, j->place);
    if (bad != NULL) {
        sheaf__complain(&in->complaints, sheaf_in(bad, "%s %" PRId64, in->items.unit, j->place));
        return NULL;
    }
    sheaf__ignored_keep(&in->ignored, j->row.ignored, in->items.unit, j->place);
    sheaf__ignored_keep(&in->lost, j->row.lost, in->items.unit, j->place);
    in->counts.left_out += j->row.left_out;
    in->counts.written += j->row.written != NULL;
    sheaf__ignored_keep(&in->written, j->row.written, in->items.unit, j->place);
    return keep ? keep_row(in, &j->row) : NULL;
}

/* ---- a round ---- */

static bool is_stopped(const reader *in)
{
    return in->options->stop != NULL && atomic_load(in->options->stop) != 0;
}

static void read_one(void *context, int64_t index, int worker)
{
    reader *in = context;
    job *j = &in->job[index];
    if (!is_stopped(in))
        j->st = sheaf__talk_row_read(&j->row, &in->talks, j->text, j->size);
}

static sheaf_status *gather(bool *more, reader *in)
{
    sheaf_status *st = NULL;
    in->jobs = 0;
    while (in->jobs < ROUND && (st = sheaf__json_items_next(more, &in->items)) == NULL && *more) {
        char *text = malloc(in->items.size + 1);
        if (text == NULL)
            return sheaf__no_memory(in->items.path);
        memcpy(text, in->items.text, in->items.size);
        in->job[in->jobs++] =
            (job){ .text = text, .size = in->items.size, .place = in->items.place };
    }
    return st;
}

static void drop_all(reader *in)
{
    for (int64_t i = 0; i < in->jobs; i++) {
        sheaf_status_free(in->job[i].st);
        sheaf__talk_row_release(&in->job[i].row);
        free(in->job[i].text);
    }
    in->jobs = 0;
}

static sheaf_status *check_stop(const reader *in)
{
    if (!is_stopped(in))
        return NULL;
    return sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "%s", in->items.path),
                       "a request to stop while its records were read");
}

static sheaf_status *run_all(reader *in)
{
    sheaf_status *st = NULL;
    if (in->jobs > 0)
        sheaf__pool_run(in->pool, in->jobs, read_one, in);
    st = check_stop(in);
    for (int64_t i = 0; i < in->jobs && st == NULL && in->complaints.fatal == NULL; i++)
        st = take(in, &in->job[i]);
    return st;
}

static sheaf_status *empty(const reader *in, const char *path)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "%s", path);
    if (in->records == 0)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(st, "at least one record"), "an empty data set"),
            "a conversation a line: {\"image\": PATH, \"messages\": [...]} (docs/data.md)");
    sheaf_expected(st, "at least one record of at most %" PRId64 " positions", in->counts.limit);
    sheaf_found(st, "%" PRId64 " records, the longest of %" PRId64, in->records,
                in->counts.longest_seen);
    return sheaf_try_this(st, "--seq %" PRId64, in->counts.longest_seen);
}

static sheaf_status *read_all(reader *in, const char *path)
{
    bool more = true;
    sheaf_status *st = sheaf__json_items_open(&in->items, path);
    while (st == NULL && more && in->complaints.fatal == NULL) {
        st = gather(&more, in);
        TRY(st, run_all(in));
        drop_all(in);
    }
    TRY(st, sheaf__complaints_verdict(&in->complaints, path, in->records));
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_DATA && in->across > 0)
        sheaf_try_this(st,
                       "--seq %" PRId64 " or more, --on-long skip, or fewer pictures in a record; "
                       "what else is bad must be repaired or taken out",
                       in->across);
    TRY(st,
        sheaf_in(sheaf__text_counts_verdict(&in->counts, in->options, in->items.unit), "%s", path));
    if (st == NULL && in->counts.rows == 0)
        st = empty(in, path);
    if (st != NULL)
        return st;
    sheaf__text_counts_note(&in->counts, in->options, in->records, &in->written);
    sheaf__ignored_warn(&in->ignored, in->options->events);
    sheaf__lost_warn(&in->lost, in->options->config, in->options->events);
    return NULL;
}

/* ---- the whole ---- */

sheaf_status *sheaf__data_read_talks(sheaf_data *data, const char *path,
                                     const sheaf_data_options *options)
{
    reader *in = calloc(1, sizeof *in);
    char *folder = NULL;
    if (in == NULL)
        return sheaf__data_no_memory(0);
    in->data = data;
    in->options = options;
    in->complaints.skip = options->on_bad == SHEAF_BAD_SKIP;
    in->complaints.events = options->events;
    in->counts.limit = sheaf__data_limit(options);
    in->talks.loss_on = options->loss_on;
    in->talks.config = options->config;
    sheaf_status *st = sheaf__pictures_new(&in->pictures, options->config, options->threads);
    TRY(st, sheaf__fields_read(&in->talks.fields, options->fields));
    if (st == NULL)
        in->talks.viewing = *sheaf__pictures_viewing(in->pictures);
    TRY(st, open_sources(in, path));
    if (st == NULL) /* the one file of a folder */
        st = sheaf__path_parent(&folder, path = in->sources.path[0]);
    in->talks.folder = folder;
    TRY(st, sheaf__pool_new(&in->pool, sheaf__cores(options->threads)));
    TRY(st, read_all(in, path));
    TRY(st, sheaf__pictures_keep(in->pictures, data, options->micro_batch));
    if (st == NULL && data->seq == 0)
        data->seq = in->counts.longest;
    if (data->images->self != in->pictures)
        sheaf__pictures_free(in->pictures);
    sheaf__pool_free(in->pool);
    sheaf__json_items_close(&in->items);
    sheaf__complaints_release(&in->complaints);
    sheaf__chat_template_free(in->own);
    sheaf__text_sources_release(&in->sources);
    sheaf__fields_release(&in->talks.fields);
    free(folder);
    free(in);
    return st;
}
