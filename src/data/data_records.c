/* data_records.c - folders of images and JSON records for CogVLM and CogAgent (forms:
 * data/records.h, prompts: inputs/template.h, sequences: inputs/layout.h).
 *
 * A row holds its sequence without the padding. Records of a round, with image and text, are
 * checked in parallel; all errors are reported together. */
#include "base/base.h"
#include "base/thread.h"
#include "inputs/chat/stored.h"
#include "data/compose.h"
#include "data/data_pictures.h"
#include "data/data_rows.h"
#include "ops/pool.h"

enum { ROUND = 256 }; /* records that are checked in parallel, of pairs both */

typedef struct job {
    sheaf__viewed picture; /* .path NULL: none */
    sheaf__sequence text;
    sheaf_status *bad;
    bool named; /* errors name the picture's path */
} job;

typedef struct reader {
    sheaf_data *data;
    const sheaf_data_options *options;
    sheaf__tokenizer *tokenizer; /* NULL: bytes */
    sheaf__compose_options how;
    sheaf__records records;
    sheaf__complaints complaints;
    sheaf__pictures *pictures;
    sheaf__pool *pool;
    job job[ROUND];
    int64_t begin;   /* the record of the first job */
    int sides;       /* records of a sample: 2 of pairs */
    int64_t longest; /* positions that the longest record needs */
    bool too_long;   /* some record needs more than --seq */
} reader;

/* ---- how texts are read ---- */

static sheaf_status *choose_ids(reader *in)
{
    const sheaf_config *config = in->options->config;
    int64_t id[] = { config->bos, config->neos > 0 ? config->eos[0] : -1, config->pad };
    if (in->tokenizer != NULL) {
        const int64_t own[] = { sheaf__tokenizer_bos(in->tokenizer),
                                sheaf__tokenizer_eos(in->tokenizer),
                                sheaf__tokenizer_pad(in->tokenizer) };
        for (int i = 0; i < 3; i++)
            id[i] = id[i] < 0 ? own[i] : id[i];
    }
    if (id[0] < 0 || id[0] >= config->vocab || id[1] < 0 || id[1] >= config->vocab) {
        sheaf_status *st = sheaf_fail(SHEAF_E_LAYOUT, "special tokens");
        sheaf_expected(
            st,
            "bos_token_id and eos_token_id in the model's config or its tokenizer, below %" PRId64,
            config->vocab);
        return sheaf_found(st, "%" PRId64 " and %" PRId64, id[0], id[1]);
    }
    if (id[2] >= 0 && id[2] < config->vocab)
        in->data->pad = id[2];
    in->how.layout = (sheaf__sequence_options){ .patches = sheaf__image_rows(config),
                                                .bos = (int32_t)id[0],
                                                .eos = (int32_t)id[1],
                                                .pad = (int32_t)in->data->pad,
                                                .image_id = sheaf__image_id(config) };
    return NULL;
}

static sheaf_status *choose_words(reader *in)
{
    const sheaf_data_options *o = in->options;
    sheaf_status *st =
        sheaf__choose_template(&in->how.version, o->prompt_template, o->config, o->events);
    in->data->prompt_template = sheaf__template_name(in->how.version);
    TRY(st, sheaf__choose_tokenizer(&in->tokenizer, o->tokenizer, o->folder, o->config->vocab));
    if (st == NULL && in->tokenizer == NULL && !o->config->byte_vocab) {
        st = sheaf_fail(SHEAF_E_UNSUPPORTED, "texts");
        sheaf_expected(st, "a tokenizer.model (sentencepiece) or tokenizer.json in the model's "
                           "folder, or `tokenizer FILE`");
        sheaf_found(st, "none%s%s", o->folder == NULL ? "" : " in ",
                    o->folder == NULL ? "" : o->folder);
        return sheaf_try_this(st, "`tokenizer FILE`, the tokenizer of this model; or tokenise "
                                  "first and give a .safetensors file");
    }
    if (st != NULL)
        return st;
    in->how.tokenizer = in->tokenizer;
    in->how.specials = o->specials;
    return choose_ids(in);
}

/* ---- one record ---- */

static sheaf_status *put_row(sheaf_data *d, const sheaf__sequence *s, bool desirable)
{
    sheaf_status *st = sheaf__data_reserve(d, s->used, SHEAF__WITH_POSITION);
    if (st != NULL)
        return st;
    const size_t n = (size_t)s->used;
    memcpy(d->token + d->tokens, s->input_ids, n * sizeof *d->token);
    memcpy(d->position + d->tokens, s->position_ids, n * sizeof *d->position);
    memcpy(d->images->embed + d->tokens, s->image_embed_mask, n);
    memcpy(d->images->expert + d->tokens, s->vision_expert_mask, n);
    d->trained_from[d->rows] = (int32_t)s->context;
    if (d->mark != NULL)
        d->mark[d->rows] = desirable;
    d->tokens += s->used;
    d->begin[++d->rows] = d->tokens;
    return NULL;
}

static sheaf_status *too_long(reader *in, const sheaf__sequence *s)
{
    const int64_t image = s->image_position < 0 ? 0 : in->how.layout.patches + 2;
    in->too_long = true;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "text");
    sheaf_expected(st, "at most %" PRId64 " positions, the value of `seq`", in->data->seq);
    return sheaf_found(
        st,
        "%" PRId64 ": %" PRId64 " before the answer (1 for bos, %" PRId64 " for the image, %" PRId64
        " for the prompt), %" PRId64 " for the answer, its end and what must be left",
        s->length, s->context, image, s->context - image - 1, s->length - s->context);
}

static sheaf_status *no_image(const reader *in)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "image");
    sheaf_expected(st, "one: the cross-attention of %s looks at it in every record",
                   sheaf_family_name(in->options->config->family));
    sheaf_found(st, "none");
    return sheaf_try_this(st, "\"image\" in the record, with the path of a picture");
}

static void look(void *context, int64_t index, int worker)
{
    reader *in = context;
    job *j = &in->job[index];
    const sheaf__record *record = &in->records.record[in->begin + index];
    (void)worker;
    *j = (job){ .bad = NULL };
    if (sheaf__data_stopped(in->options))
        return;
    if (record->image != NULL)
        j->bad =
            sheaf__view_file(&j->picture, record->image, sheaf__pictures_viewing(in->pictures));
    else if (in->data->images->place.needed)
        j->bad = no_image(in);
    j->named = j->bad != NULL && record->image != NULL;
    TRY(j->bad, sheaf__compose(&j->text, record, &in->how));
}

/* In a folder the path names the record. */
static sheaf_status *placed(const reader *in, const job *j, sheaf_status *st, int64_t index)
{
    return in->records.record[index].place == 0 && j->named
               ? st
               : sheaf__record_in(st, &in->records, index);
}

/* The fault of a record; takes the status of its job. */
static sheaf_status *fault_of(reader *in, job *j)
{
    const sheaf__sequence *s = &j->text;
    sheaf_status *bad = j->bad;
    j->bad = NULL;
    if (bad != NULL)
        return bad;
    in->longest = s->length > in->longest ? s->length : in->longest;
    return in->data->seq > 0 && s->length > in->data->seq ? too_long(in, s) : NULL;
}

/* The records of a sample, all or none. */
static sheaf_status *take(reader *in, job *j, int64_t index)
{
    sheaf_status *st = NULL, *bad = NULL;
    for (int i = 0; i < in->sides && bad == NULL; i++)
        if ((bad = fault_of(in, &j[i])) != NULL)
            bad = placed(in, &j[i], bad, index + i);
    if (bad != NULL) {
        sheaf__complain(&in->complaints, bad);
        return NULL;
    }
    for (int i = 0; i < in->sides && st == NULL; i++) {
        st = put_row(in->data, &j[i].text, in->records.record[index + i].desirable);
        TRY(st, sheaf__pictures_put(in->pictures, &j[i].picture, j[i].picture.path != NULL));
    }
    return st;
}

static void drop(job *j)
{
    sheaf_status_free(j->bad);
    sheaf__viewed_release(&j->picture);
    sheaf__sequence_release(&j->text);
}

/* A --seq that no record with an image fits into is one error, not one for each record. */
static sheaf_status *check_seq(const reader *in, int64_t images)
{
    const int64_t patches = in->how.layout.patches, seq = in->data->seq;
    const int64_t least = sheaf__sequence_needs(0, 0, &in->how.layout);
    if (seq == 0 || images == 0 || seq >= least)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "`seq`");
    sheaf_expected(st,
                   "at least %" PRId64 " and the tokens of the prompt: bos, the image's %" PRId64
                   " patches between two marks, "
                   "and 10 positions for the answer",
                   least, patches);
    sheaf_found(st, "%" PRId64 ", in which no record with an image fits", seq);
    return sheaf_try_this(st, "no `seq`: it is then as long as the longest record needs");
}

static sheaf_status *make_rows(reader *in)
{
    sheaf_data *d = in->data;
    const size_t n = (size_t)in->records.count;
    d->capacity = in->records.count;
    d->begin = calloc(n + 1, sizeof *d->begin);
    d->trained_from = calloc(n + 1, sizeof *d->trained_from);
    if (in->options->judged)
        d->mark = calloc(n + 1, sizeof *d->mark);
    return d->begin == NULL || d->trained_from == NULL || (in->options->judged && d->mark == NULL)
               ? sheaf__data_no_memory(0)
               : sheaf__data_reserve(d, 1, SHEAF__WITH_POSITION);
}

static sheaf_status *check_images(const reader *in)
{
    const int64_t channels = in->data->images->tower[0].channels;
    int64_t count = 0;
    for (int64_t i = 0; i < in->records.count; i++)
        count += in->records.record[i].image != NULL;
    sheaf_status *st = check_seq(in, count);
    if (st != NULL || count == 0 || channels == 3)
        return st;
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pictures"),
                                      "a model that reads 3 channels: red, green, blue"),
                       "one of %" PRId64, channels);
}

static sheaf_status *take_round(reader *in)
{
    const int64_t left = in->records.count - in->begin, n = left < ROUND ? left : ROUND;
    sheaf_status *st = NULL;
    sheaf__pool_run(in->pool, n, look, in);
    if (sheaf__data_stopped(in->options))
        st = sheaf_try_this(sheaf_fail(SHEAF_E_STOPPED, "asked to stop while images were checked"),
                            "nothing was saved; give the same command again");
    for (int64_t i = 0; i < n && st == NULL && in->complaints.fatal == NULL; i += in->sides)
        st = take(in, &in->job[i], in->begin + i);
    for (int64_t i = 0; i < n; i++)
        drop(&in->job[i]);
    in->begin += n;
    sheaf_emit(in->options->events, &(sheaf_event){ .kind = SHEAF_EVENT_PROGRESS,
                                                    .text = "images checked",
                                                    .done = in->begin,
                                                    .total = in->records.count });
    return st;
}

static sheaf_status *take_records(reader *in, const char *path)
{
    sheaf_status *st =
        sheaf__pictures_new(&in->pictures, in->options->config, in->options->threads);
    TRY(st, sheaf__pool_new(&in->pool, sheaf__cores(in->options->threads)));
    while (st == NULL && in->begin < in->records.count && in->complaints.fatal == NULL)
        st = take_round(in);
    if (st != NULL)
        return st;
    st = sheaf__complaints_verdict(&in->complaints, path, in->records.looked_at);
    if (st != NULL && in->too_long)
        sheaf_try_this(
            st,
            "`seq %" PRId64
            "`, or no `seq`, holds the longest text; what else is bad must be repaired or taken out",
            in->longest);
    return st;
}

static void release(reader *in)
{
    if (in->data->images->self != in->pictures)
        sheaf__pictures_free(in->pictures);
    sheaf__pool_free(in->pool);
    sheaf__complaints_release(&in->complaints);
    sheaf__records_release(&in->records);
    sheaf__tokenizer_close(in->tokenizer);
    free(in);
}

sheaf_status *sheaf__data_read_records(sheaf_data *data, const char *path,
                                       const sheaf_data_options *options)
{
    reader *in = calloc(1, sizeof *in);
    if (in == NULL)
        return sheaf__data_no_memory(0);
    in->data = data;
    in->options = options;
    in->sides = options->pairs ? 2 : 1;
    in->complaints.skip = options->on_bad == SHEAF_BAD_SKIP;
    in->complaints.events = options->events;
    const sheaf__records_options how = {
        .query = options->query != NULL && options->query[0] != '\0' ? options->query : NULL,
        .fields = options->fields,
        .pairs = options->pairs,
        .judged = options->judged,
        .events = options->events
    };
    sheaf_status *st = sheaf__records_read(&in->records, path, &how, &in->complaints);
    TRY(st, sheaf_in(choose_words(in), "%s", path));
    if (st != NULL && in->complaints.count > 0 && !in->complaints.skip) {
        /* an error of the file comes before a missing tokenizer */
        sheaf_status_free(st);
        st = sheaf__complaints_verdict(&in->complaints, path, in->records.looked_at);
    }
    TRY(st, make_rows(in));
    TRY(st, check_images(in));
    TRY(st, take_records(in, path));
    TRY(st, sheaf__pictures_keep(in->pictures, data, options->micro_batch * in->sides));
    if (st == NULL && data->seq == 0)
        data->seq = in->longest;
    release(in);
    return st;
}
