/* data_text.c - texts in JSON Lines or JSON arrays become rows, on all cores; for some families
 * they have pictures (data_conversations.h).
 *
 * Records are gathered into rounds of some megabytes; the records of a round are parsed and encoded
 * in parallel, then taken in the order of the file. So memory is bounded by a round and its rows,
 * and neither rows nor errors depend on the number of threads. */
#include "base/base.h"
#include "base/thread.h"
#include "base/file.h"
#include "base/json.h"
#include "data/complaints.h"
#include "data/data_rows.h"
#include "data/data_conversations.h"
#include "data/json_items.h"
#include "data/preference.h"
#include "data/rollout.h"
#include "data/row_cache.h"
#include "ops/pool.h"

/* Larger data are cached on disk if there is a folder for it. */
static const int64_t LARGE = 32 << 20;

enum { ROUND_BYTES = 1 << 20, ROUND_RECORDS = 1 << 16, SIDE_BY_SIDE = 1 << 16 };
enum { ROUND_PICTURES = 256 }; /* records with pictures */

/* One record of a round. */
typedef struct job {
    int64_t place;
    int64_t at, size; /* in the round's text */
    sheaf__text_form form;
    char ignored[64];
    const char *lost;       /* as the record has it */
    sheaf__text_row row[2]; /* [rows] of pairs both sides, else the first */
    int rows;
    bool same;  /* both answers are equal */
    float mark; /* as sheaf_data has it */
    sheaf__rollouts rollouts;
    sheaf_status *st;
} job;

typedef struct reader {
    const sheaf_data_options *options;
    sheaf__text_sources sources;
    sheaf__conversations *conversations; /* for records with pictures; NULL: there are none */
    sheaf__fields fields;
    sheaf__row_writer rows;
    const char *cache; /* folder of caches; NULL: rows stay in memory */
    char key[33];
    sheaf__pool *pool;
    int threads;
    /* the file that is read */
    const char *path;
    sheaf__json_items items;
    sheaf__text_form form; /* of its first record */
    int64_t form_place;
    int64_t bytes_before; /* of the files before */
    /* the round */
    char *text;
    int64_t size, capacity;
    job *job;
    int64_t jobs, job_capacity;
    /* for the notes at the end */
    sheaf__row_cache_facts facts;
    sheaf__complaints complaints;
    /* Rejected answers of pairs that are judged: SHEAF__UNPAIRED of preference.h. */
    struct {
        sheaf__text_row row;
        int64_t place;
    } * later;
    int64_t laters, later_capacity;
    bool known; /* this file's first good record has shown what it needs */
    sheaf__ignored ignored, lost, written, same;
} reader;

/* ---- a round ---- */

static sheaf_status *gather(bool *more, reader *in)
{
    const int64_t most = (int64_t)ROUND_BYTES * in->threads,
                  records = in->conversations != NULL ? ROUND_PICTURES : ROUND_RECORDS;
    sheaf_status *st = NULL;
    in->size = in->jobs = 0;
    *more = true;
    while (*more && in->size < most && in->jobs < records) {
        st = sheaf__json_items_next(more, &in->items);
        if (st != NULL || !*more)
            return st;
        const int64_t size = (int64_t)in->items.size;
        if (!SHEAF_GROW(&in->text, &in->capacity, in->size + size) ||
            !SHEAF_GROW(&in->job, &in->job_capacity, in->jobs + 1))
            return sheaf__no_memory(in->path);
        memcpy(in->text + in->size, in->items.text, (size_t)size);
        in->job[in->jobs++] = (job){ .place = in->items.place, .at = in->size, .size = size };
        in->size += size;
    }
    return NULL;
}

static void learn_at(sheaf__text_row *row, int64_t i)
{
    if (row->label != NULL)
        row->label[i] = row->id[i];
    else
        row->trained[i] = 1;
}

/* A token across the end of the prompt belongs to the answer, and may be one of one side alone:
 * both answers begin at the earlier token then. */
static void share_prompt(sheaf__text_row row[2])
{
    enum { ACROSS = 4 }; /* tokens that one token of the other side can be */
    int64_t first[2];
    for (int k = 0; k < 2; k++)
        for (first[k] = 0; first[k] < row[k].count && !sheaf__text_row_learns(&row[k], first[k]);)
            first[k]++;
    const int later = first[1] > first[0];
    if (first[later] - first[!later] > ACROSS ||
        memcmp(row[0].id, row[1].id, (size_t)first[!later] * sizeof *row[0].id) != 0)
        return;
    for (int64_t i = first[!later]; i < first[later]; i++)
        learn_at(&row[later], i);
}

/* The record of a job; of a pair, that of one side. Release it also after a failure. */
static sheaf_status *read_record(sheaf__text_record *out, const reader *in, job *j, int side)
{
    json_t *json = NULL;
    *out = in->conversations != NULL ? sheaf__conversations_record(in->conversations)
                                     : (sheaf__text_record){ 0 };
    sheaf_status *st =
        sheaf__text_record_json(&json, in->text + j->at, (size_t)j->size, &in->fields);
    bool desirable = false;
    j->rows =
        in->options->pairs || (in->options->judged && sheaf__preference_is_pair(json)) ? 2 : 1;
    TRY(st, in->options->pairs && in->options->scores ? sheaf__preference_margin(&j->mark, json)
                                                      : NULL);
    TRY(st, sheaf__preference_read(out, in->options, &desirable, json, side));
    if (in->options->judged && side == 0)
        j->mark = desirable;
    json_decref(json);
    return st;
}

static void encode_rollouts(job *j, sheaf__text_record *record, const reader *in)
{
    json_t *json = NULL;
    *record = (sheaf__text_record){ 0 };
    j->st = sheaf__text_record_json(&json, in->text + j->at, (size_t)j->size, &in->fields);
    TRY(j->st, sheaf__rollouts_read(&j->rollouts, record, json, &in->sources.encoder));
    json_decref(json);
    j->form = record->form;
}

/* Are both answers equal, as far as they are kept? */
static bool are_same(const sheaf__text_row row[2], const reader *in)
{
    const int64_t most =
        in->options->on_long == SHEAF_LONG_CUT ? in->facts.counts.limit : INT64_MAX;
    int64_t n[2];
    bool learnt = false;
    for (int k = 0; k < 2; k++)
        n[k] = row[k].count < most ? row[k].count : most;
    for (int64_t i = 1; i < n[0] && !learnt; i++)
        learnt = sheaf__text_row_learns(row, i);
    return learnt && n[0] == n[1] &&
           memcmp(row[0].id, row[1].id, (size_t)n[0] * sizeof *row->id) == 0;
}

/* The rows of a record; `record` is that of the last. */
static void encode_rows(job *j, sheaf__text_record *record, const reader *in)
{
    sheaf__text_row *row = j->row;
    j->rows = 1; /* as far as is known */
    for (int side = 0; side < j->rows && j->st == NULL; side++) {
        if (side > 0)
            sheaf__text_record_release(record);
        j->st = read_record(record, in, j, side);
        TRY(j->st, in->conversations != NULL
                       ? sheaf__conversations_encode(&row[side], record, in->conversations)
                       : sheaf__text_encode(&row[side], &in->sources.encoder, record));
    }
    if (in->conversations == NULL)
        j->form = record->form;
    if (j->rows == 2 && j->st == NULL) {
        share_prompt(row);
        j->same = are_same(row, in);
    }
    if (j->st == NULL && (in->options->pairs || in->options->judged) && !in->options->scores &&
        sheaf__text_row_learns(row, 0))
        j->st = sheaf__bad_field("prompt", "a token that the answer's first one follows", "none");
}

static void encode_one(void *context, int64_t index, int worker)
{
    reader *in = context;
    job *j = &in->job[index];
    sheaf__text_record record = { 0 };
    if (sheaf__data_stopped(in->options)) /* a template may run long for each record */
        return;
    (in->options->rollouts ? encode_rollouts : encode_rows)(j, &record, in);
    memcpy(j->ignored, record.ignored, sizeof j->ignored);
    j->lost = record.lost;
    sheaf__text_record_release(&record);
}

static sheaf_status *encode_all(reader *in)
{
    sheaf_status *st = NULL;
    if (in->threads > 1 && in->jobs > 1 &&
        (in->conversations != NULL || in->size >= SIDE_BY_SIDE)) {
        if (in->pool == NULL)
            st = sheaf__pool_new(&in->pool, in->threads);
        if (st == NULL)
            sheaf__pool_run(in->pool, in->jobs, encode_one, in);
        return st;
    }
    for (int64_t i = 0; i < in->jobs; i++)
        encode_one(in, i, 0);
    return NULL;
}

/* ---- taking its rows ---- */

/* prompts with completions may be mixed with plain texts, for compatibility. */
static bool go_together(const reader *in, sheaf__text_form a, sheaf__text_form b)
{
    return a == b ||
           (in->options->config->byte_vocab && a >= SHEAF__FORM_PROMPT && b >= SHEAF__FORM_PROMPT);
}

static sheaf_status *check_form(reader *in, const job *j)
{
    if (j->form == SHEAF__FORM_NONE)
        return NULL;
    if (in->form == SHEAF__FORM_NONE) {
        in->form = j->form;
        in->form_place = j->place;
    }
    if (go_together(in, in->form, j->form))
        return NULL;
    char expected[160];
    snprintf(expected, sizeof expected, "records of one form: '%s', as %s %" PRId64 " has",
             sheaf__text_form_name(in->form), in->items.unit, in->form_place);
    return sheaf__bad_field(sheaf__text_form_name(j->form), expected, "another form");
}

static sheaf_status *put(reader *in, sheaf__text_row *row, int n, int64_t place, float mark)
{
    sheaf__text_counts *counts = &in->facts.counts;
    in->rows.mark =
        in->options->judged || (in->options->pairs && in->options->scores) ? &mark : NULL;
    return in->conversations == NULL
               ? sheaf__row_writer_put(&in->rows, counts, in->options, row, n, place)
               : sheaf__row_writer_add(&in->rows, counts, row, n);
}

static sheaf_status *put_later(reader *in)
{
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < in->laters; i++) {
        TRY(st, put(in, &in->later[i].row, 1, in->later[i].place, 0));
        sheaf__text_row_release(&in->later[i].row);
    }
    in->laters = 0;
    return st;
}

/* Takes the row. */
static sheaf_status *keep_for_later(reader *in, sheaf__text_row *row, int64_t place)
{
    if (!SHEAF_GROW(&in->later, &in->later_capacity, in->laters + 1))
        return sheaf__no_memory("data set");
    in->later[in->laters].row = *row;
    in->later[in->laters++].place = place;
    *row = (sheaf__text_row){ 0 };
    return in->laters == SHEAF__UNPAIRED ? put_later(in) : NULL;
}

/* Bad records are reported together; other failures end the reading. */
static sheaf_status *take(reader *in, job *j)
{
    const int together = in->options->pairs ? 2 : 1;
    bool keep[2] = { true, true };
    sheaf_status *st = NULL;
    in->facts.records++;
    sheaf_status *bad = check_form(in, j);
    bad = sheaf__first_of(bad, j->st);
    j->st = NULL;
    for (int i = 0; i < j->rows && in->conversations != NULL && bad == NULL; i += together)
        bad = sheaf__row_writer_fit(&keep[i], &in->rows, &in->facts.counts, in->options, &j->row[i],
                                    together, j->place);
    if (bad == NULL && j->same && in->options->pairs && in->complaints.skip)
        bad = sheaf__bad_field("rejected", "another answer than the chosen one", "the same");
    if (bad != NULL) {
        bad = sheaf_in(bad, "%s %" PRId64, in->items.unit, j->place);
        if (in->sources.paths > 1)
            bad = sheaf_in(bad, "%s", in->path);
        sheaf__complain(&in->complaints, bad);
        return NULL;
    }
    sheaf__ignored_keep(&in->ignored, j->ignored, in->items.unit, j->place);
    sheaf__ignored_keep(&in->lost, j->lost, in->items.unit, j->place);
    const char *written = j->row[0].written != NULL ? j->row[0].written : j->row[1].written;
    in->facts.counts.left_out += j->row[0].left_out + j->row[1].left_out;
    in->facts.counts.written += written != NULL;
    sheaf__ignored_keep(&in->written, written, in->items.unit, j->place);
    sheaf__ignored_keep(&in->same, j->same ? "rejected" : NULL, in->items.unit, j->place);
    if (in->options->rollouts)
        return sheaf__rollouts_put(&j->rollouts, &in->rows, &in->facts.counts, in->options,
                                   j->place);
    if (keep[0])
        st = put(in, j->row, together, j->place, j->mark);
    if (st == NULL && j->rows > together && keep[1])
        st = keep_for_later(in, &j->row[1], j->place);
    return st;
}

static void drop(job *j)
{
    sheaf_status_free(j->st);
    sheaf__text_row_release(&j->row[0]);
    sheaf__text_row_release(&j->row[1]);
    sheaf__rollouts_release(&j->rollouts);
}

static sheaf_status *take_all(reader *in, sheaf_status *st)
{
    for (int64_t i = 0; i < in->jobs; i++) {
        if (st == NULL && in->complaints.fatal == NULL)
            st = take(in, &in->job[i]);
        drop(&in->job[i]);
    }
    in->jobs = 0;
    return st;
}

/* ---- a file ---- */

/* Completions as texts need the tokenizer and, of messages, the template; tokens need neither. */
static sheaf_status *open_for_rollouts(reader *in)
{
    json_t *json = NULL;
    const job *j = &in->job[0];
    in->known = true;
    if (in->sources.encoder.config != NULL)
        return NULL;
    sheaf_status_free(
        sheaf__text_record_json(&json, in->text + j->at, (size_t)j->size, &in->fields));
    const bool tokens = json_object_get(json, "completion_ids") != NULL,
               text = json_is_string(json_object_get(json, "prompt"));
    json_decref(json);
    sheaf_status *st = sheaf__text_sources_open(&in->sources, in->options);
    if (st != NULL && tokens && sheaf_status_code(st) == SHEAF_E_UNSUPPORTED) {
        sheaf_status_free(st);
        return NULL;
    }
    return st == NULL && !tokens && !text ? sheaf__text_sources_chat(&in->sources, in->options)
                                          : st;
}

/* The first record decides whether a chat template is needed. An error of that record is reported
 * before a missing tokenizer. */
static sheaf_status *check_first(reader *in)
{
    if (in->jobs == 0)
        return NULL;
    if (in->options->rollouts)
        return open_for_rollouts(in);
    sheaf__text_record record;
    job *j = &in->job[0];
    sheaf_status *bad = read_record(&record, in, j, 0);
    while (bad != NULL && in->complaints.skip && j + 1 < in->job + in->jobs) {
        sheaf_status_free(bad);
        sheaf__text_record_release(&record);
        j++;
        bad = read_record(&record, in, j, 0);
    }
    const bool conversations = record.form != SHEAF__FORM_NONE && record.messages > 0,
               object = json_is_object(record.json), speaks = in->sources.encoder.config != NULL;
    sheaf__text_record_release(&record);
    in->known = bad == NULL || !in->complaints.skip;
    if (!in->known) { /* none of these jobs needs the tokenizer */
        sheaf_status_free(bad);
        return NULL;
    }
    if (!speaks && bad != NULL && !object)
        return sheaf_in(bad, "%s: %s %" PRId64, in->path, in->items.unit, j->place);
    sheaf_status_free(bad);
    sheaf_status *st = speaks ? NULL : sheaf__text_sources_open(&in->sources, in->options);
    return st == NULL && conversations ? sheaf__text_sources_chat(&in->sources, in->options) : st;
}

static void report_progress(const reader *in, bool whole)
{
    const int64_t done = in->bytes_before + in->items.source.offset;
    if (in->sources.bytes > (int64_t)ROUND_BYTES * in->threads &&
        (whole || done < in->sources.bytes))
        sheaf_emit(in->options->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                        .text = "bytes of text",
                                                        .done = whole ? in->sources.bytes : done,
                                                        .total = in->sources.bytes });
}

static sheaf_status *check_stop(const reader *in)
{
    if (!sheaf__data_stopped(in->options))
        return NULL;
    return sheaf_found(sheaf_fail(SHEAF_E_STOPPED, "%s", in->path),
                       "a request to stop while its records were read");
}

/* The key of a cache is made from the files before they are read, so they must not change. */
static sheaf_status *check_unchanged(reader *in, int64_t file)
{
    sheaf_file_mark now;
    sheaf__file_mark(&now, in->items.source.fd);
    if (sheaf__file_mark_equal(&now, &in->sources.mark[file]))
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "%s", in->path);
    return sheaf_found(sheaf_expected(st, "a file that stays as it is while it is read"),
                       "one that changed");
}

static sheaf_status *read_file(reader *in, int64_t file)
{
    bool more = true;
    in->path = in->sources.path[file];
    in->form = SHEAF__FORM_NONE;
    sheaf_status *st = sheaf__json_items_open(&in->items, in->path);
    in->known = in->conversations != NULL;
    while (st == NULL && more && in->complaints.fatal == NULL) {
        st = gather(&more, in);
        if (st == NULL && !in->known)
            st = check_first(in);
        TRY(st, encode_all(in));
        TRY(st, check_stop(in));
        st = take_all(in, st);
        report_progress(in, false);
    }
    TRY(st, put_later(in));
    if (st == NULL && in->complaints.fatal == NULL)
        st = check_unchanged(in, file);
    in->bytes_before += in->items.source.size;
    return st;
}

/* ---- all of them ---- */

static sheaf_status *empty(const reader *in, const char *path)
{
    const sheaf__text_counts *c = &in->facts.counts;
    sheaf_status *st = sheaf_fail(
        SHEAF_E_DATA, in->facts.records == 0 ? "%s: empty data set" : "%s: nothing is left of it",
        path);
    sheaf_expected(st, "at least one record");
    return in->facts.records == 0
               ? sheaf_found(st, "none")
               : sheaf_found(st, "%" PRId64 ", all longer than %" PRId64 " tokens",
                             in->facts.records, c->limit);
}

static sheaf_status *verdict(reader *in, const char *path)
{
    sheaf__text_counts *c = &in->facts.counts;
    const char *unit = in->sources.paths > 1 ? "record" : in->items.unit;
    sheaf_status *st = sheaf__complaints_verdict(&in->complaints, path, in->facts.records);
    if (st != NULL && sheaf_status_code(st) == SHEAF_E_DATA && in->rows.across > 0)
        sheaf_try_this(st,
                       "`seq %" PRId64 "` or more, `on-long skip`, or fewer pictures in a record; "
                       "what else is bad must be repaired or taken out",
                       in->rows.across);
    c->bad = in->complaints.left_out;
    TRY(st, sheaf_in(sheaf__text_counts_verdict(c, in->options, unit), "%s", path));
    if (st == NULL && c->rows == 0)
        st = empty(in, path);
    if (st != NULL)
        return st;
    sheaf__text_counts_note(c, in->options, in->facts.records, &in->written);
    sheaf__ignored_warn(&in->ignored, path, in->options->events);
    if (in->same.field[0] != '\0')
        sheaf_warn(in->options->events,
                   "%s: %s, the first of %" PRId64 ": both answers are equal, of which nothing is "
                   "preferred%s",
                   path, in->same.where, 1 + in->same.more,
                   in->options->pairs ? " (`on-bad skip` leaves them out)" : "");
    sheaf__lost_warn(&in->lost, path, in->options->config, in->options->events);
    return NULL;
}

static void release(reader *in)
{
    for (int64_t i = 0; i < in->jobs; i++) {
        drop(&in->job[i]);
    }
    for (int64_t i = 0; i < in->laters; i++)
        sheaf__text_row_release(&in->later[i].row);
    free(in->later);
    sheaf__row_cache_abandon(in->rows.cache);
    sheaf__json_items_close(&in->items);
    sheaf__complaints_release(&in->complaints);
    sheaf__text_sources_release(&in->sources);
    sheaf__fields_release(&in->fields);
    sheaf__conversations_close(in->conversations);
    sheaf__pool_free(in->pool);
    free(in->text);
    free(in->job);
}

/* Unread entries of a folder may be meant as data: part-2.jsonl.xz, PART-2.JSONL, a subfolder. */
static void warn_of_unread_entries(const reader *in, const char *path)
{
    const sheaf__text_sources *s = &in->sources;
    if (s->passed > 0)
        sheaf_warn(in->options->events,
                   "%s: %" PRId64
                   " of its entries %s not read, '%s'%s: texts are files that end in "
                   ".json, .jsonl or .ndjson, also with .gz or .zst",
                   path, s->passed, s->passed == 1 ? "is" : "are", s->first,
                   s->passed == 1 ? "" : " and others");
}

/* ---- the cache ---- */

static sheaf_status *choose_cache(reader *in)
{
    const sheaf_data_options *o = in->options;
    const bool given = o->cache != NULL && o->cache[0] != '\0';
    in->cache = given ? o->cache : in->sources.bytes >= LARGE ? o->cache_beside : NULL;
    if (in->conversations != NULL || o->judged || o->rollouts || o->scores) /* no cache holds it */
        in->cache = NULL;
    return in->cache == NULL ? NULL : sheaf__text_key(in->key, &in->sources, o);
}

/* A cache stores the name of the template. */
static sheaf_status *name_template(sheaf_data *data, const char *name)
{
    if (*name == '\0')
        return NULL;
    data->prompt_template = sheaf__chat_template_known(name);
    return data->prompt_template != NULL
               ? NULL
               : sheaf_found(sheaf_fail(SHEAF_E_FORMAT, "chat template of the cache"), "'%s'",
                             name);
}

static sheaf_status *use_cache(bool *found, reader *in)
{
    sheaf_status *st =
        sheaf__row_cache_open(found, in->rows.data, &in->facts, in->cache, in->key, in->options);
    return st == NULL && *found ? name_template(in->rows.data, in->facts.prompt_template) : st;
}

/* Reads the new cache as the next run will. */
static sheaf_status *finish_cache(reader *in)
{
    bool found = false;
    sheaf__row_cache_writer *writer = in->rows.cache;
    in->rows.cache = NULL;
    if (in->sources.chat != NULL)
        snprintf(in->facts.prompt_template, sizeof in->facts.prompt_template, "%s",
                 sheaf__chat_template_name(in->sources.chat));
    sheaf_status *st = sheaf__row_cache_commit(writer, &in->facts);
    TRY(st, use_cache(&found, in));
    if (st == NULL && !found)
        st = sheaf_found(sheaf_fail(SHEAF_E_IO, "%s/%s", in->cache, in->key),
                         "other bytes than were written");
    return st;
}

static sheaf_status *read_all(reader *in, const char *path)
{
    sheaf_status *st = in->cache == NULL ? NULL
                                         : sheaf__row_cache_begin(&in->rows.cache, in->cache,
                                                                  in->key, in->options->events);
    for (int64_t i = 0; i < in->sources.paths && st == NULL && in->complaints.fatal == NULL; i++) {
        if (i > 0)
            sheaf__json_items_close(&in->items);
        st = read_file(in, i);
    }
    if (st == NULL && in->sources.encoder.config == NULL) /* no record at all */
        st = sheaf__text_sources_open(&in->sources, in->options);
    if (st == NULL)
        report_progress(in, true);
    in->facts.end = in->sources.encoder.eos_id < 0 ? 0 : in->sources.encoder.eos_id;
    in->rows.data->end = (int32_t)in->facts.end;
    TRY(st, verdict(in, path));
    if (st == NULL && in->conversations != NULL)
        return sheaf__conversations_keep(in->conversations);
    if (st == NULL && in->cache != NULL)
        st = finish_cache(in);
    else if (st == NULL && in->sources.chat != NULL)
        in->rows.data->prompt_template = sheaf__chat_template_name(in->sources.chat);
    return st;
}

sheaf_status *sheaf__data_read_text(sheaf_data *data, const char *path,
                                    const sheaf_data_options *options)
{
    reader in = { .options = options,
                  .threads = sheaf__cores(options->threads),
                  .rows = { .data = data },
                  .complaints = { .skip = options->on_bad == SHEAF_BAD_SKIP,
                                  .events = options->events },
                  .facts.counts.limit = sheaf__data_limit(options) };
    bool found = false;
    sheaf_status *st = sheaf__fields_read(&in.fields, options->fields);
    TRY(st, sheaf__text_sources_files(&in.sources, path));
    if (st == NULL && sheaf__pictures_of(options->config) != NULL) {
        st = sheaf__conversations_open(&in.conversations, &in.rows, path, &in.sources, options);
        path = in.sources.path[0]; /* the one file of a folder */
    } else if (st == NULL) {
        warn_of_unread_entries(&in, path);
    }
    TRY(st, choose_cache(&in));
    if (st == NULL && in.cache != NULL)
        st = use_cache(&found, &in);
    if (st == NULL && found) {
        sheaf_note(options->events, "%" PRId64 " records were tokenised before, in %s/%s",
                   in.facts.records, in.cache, in.key);
        if (in.facts.counts.bad > 0)
            sheaf_warn(options->events,
                       "%s: %" PRId64 " of %" PRId64
                       " records are bad and left out (`on-bad skip`)",
                       path, in.facts.counts.bad, in.facts.records);
        sheaf__text_counts_note(&in.facts.counts, options, in.facts.records, &in.written);
    } else if (st == NULL) {
        st = read_all(&in, path);
    }
    if (st == NULL && in.cache != NULL && !found)
        sheaf_note(options->events, "%" PRId64 " records are tokenised, in %s/%s", in.facts.records,
                   in.cache, in.key);
    if (st == NULL && data->seq == 0)
        data->seq = in.facts.counts.longest;
    release(&in);
    return st;
}
