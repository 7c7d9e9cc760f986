/* data_records.c - folders of images and JSON records for CogVLM and CogAgent (data/records.h has
 * the forms, inputs/template.h the prompts, inputs/layout.h where a sequence has what).
 *
 * A row holds its sequence without the padding. Every image is looked at (data_pictures.h) and
 * every text laid out before anything is used; all bad records are told together. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"
#include "base/array.h"
#include "inputs/choose.h"
#include "data/compose.h"
#include "data/data_pictures.h"
#include "data/data_read.h"

typedef struct reader {
    sheaf_data *data;
    const sheaf_data_options *options;
    sheaf__sentencepiece *model;
    sheaf__compose_options how;
    sheaf__records records;
    sheaf__complaints complaints;
    sheaf__pictures *pictures;
    sheaf_hash *hash;          /* [records] of the image files */
    sheaf_status **bad;        /* [records] what is wrong with the images */
    bool *out;                 /* [records] it is bad, and so left out */
    int64_t checked, left_out; /* records when these were made; of them, those that are bad */
    int64_t longest;           /* positions that the longest record needs */
    bool too_long;             /* some record needs more than --seq */
} reader;

/* ---- how texts are read ---- */

static sheaf_status *choose_ids(reader *in)
{
    const sheaf_config *config = in->options->config;
    int64_t id[] = { config->bos, config->neos > 0 ? config->eos[0] : -1, config->pad };
    if (in->model != NULL) {
        const int32_t pad = sheaf__sentencepiece_pad(in->model);
        const int64_t own[] = { sheaf__sentencepiece_bos(in->model),
                                sheaf__sentencepiece_eos(in->model),
                                pad >= 0 ? pad : sheaf__sentencepiece_unk(in->model) };
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
    in->how.layout = (sheaf__sequence_options){ .patches = config->patches,
                                                .bos = (int32_t)id[0],
                                                .eos = (int32_t)id[1],
                                                .pad = (int32_t)in->data->pad };
    return NULL;
}

static sheaf_status *choose_words(reader *in)
{
    const sheaf_data_options *o = in->options;
    bool from_model = false;
    sheaf_status *st = sheaf__choose_template(&in->how.version, &from_model, o->prompt_template,
                                              o->config, o->events);
    in->data->prompt_template = sheaf__template_name(in->how.version);
    TRY(st, sheaf__choose_tokenizer(&in->model, o->tokenizer, o->folder, o->config));
    if (st == NULL && in->model == NULL && !o->config->byte_vocab) {
        st = sheaf_fail(SHEAF_E_UNSUPPORTED, "texts");
        sheaf_expected(
            st, "a tokenizer.model (sentencepiece) in the model's folder, or --tokenizer FILE");
        sheaf_found(st, "none%s%s", o->folder == NULL ? "" : " in ",
                    o->folder == NULL ? "" : o->folder);
        return sheaf_try_this(
            st,
            "--tokenizer FILE, the tokenizer.model of this model; or tokenise first and give a .safetensors file");
    }
    if (st != NULL)
        return st;
    if (o->prompt_template == NULL || o->prompt_template[0] == '\0')
        sheaf_note(o->events, "prompt template %s, %s (--template changes it)",
                   sheaf__template_name(in->how.version),
                   from_model ? "which the model's config names"
                              : "as the model's config names none");
    in->how.model = in->model;
    return choose_ids(in);
}

/* ---- one record ---- */

static sheaf_status *reserve(sheaf_data *d, int64_t tokens)
{
    if (tokens <= d->token_capacity - d->tokens)
        return NULL;
    const int64_t capacity = d->token_capacity + d->token_capacity / 2 + tokens + 4096;
    if (!SHEAF_GROW(&d->token, NULL, capacity) || !SHEAF_GROW(&d->position, NULL, capacity) ||
        !SHEAF_GROW(&d->images->embed, NULL, capacity) ||
        !SHEAF_GROW(&d->images->expert, NULL, capacity))
        return sheaf__data_no_memory(d->tokens);
    d->token_capacity = capacity;
    return NULL;
}

static sheaf_status *put_row(sheaf_data *d, const sheaf__sequence *s)
{
    sheaf_status *st = reserve(d, s->used);
    if (st != NULL)
        return st;
    const size_t n = (size_t)s->used;
    memcpy(d->token + d->tokens, s->input_ids, n * sizeof *d->token);
    memcpy(d->position + d->tokens, s->position_ids, n * sizeof *d->position);
    memcpy(d->images->embed + d->tokens, s->image_embed_mask, n);
    memcpy(d->images->expert + d->tokens, s->vision_expert_mask, n);
    d->trained_from[d->rows] = (int32_t)s->context;
    d->tokens += s->used;
    d->begin[++d->rows] = d->tokens;
    return NULL;
}

static sheaf_status *too_long(reader *in, const sheaf__sequence *s)
{
    const int64_t image = s->image_position < 0 ? 0 : in->how.layout.patches + 2;
    in->too_long = true;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "text");
    sheaf_expected(st, "at most %" PRId64 " positions, the value of --seq", in->data->seq);
    return sheaf_found(
        st,
        "%" PRId64 ": %" PRId64 " before the answer (1 for bos, %" PRId64 " for the image, %" PRId64
        " for the prompt), %" PRId64 " for the answer, its end and what must be left",
        s->length, s->context, image, s->context - image - 1, s->length - s->context);
}

static sheaf_status *take_record(reader *in, int64_t index)
{
    const sheaf__record *record = &in->records.record[index];
    const sheaf_config *config = in->options->config;
    if (record->image == NULL && in->data->images->place.needed) {
        sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "image");
        sheaf_expected(st, "one: the cross-attention of %s looks at it in every record",
                       sheaf_family_name(config->family));
        return sheaf_found(st, "none");
    }
    sheaf__sequence s;
    sheaf_status *st = sheaf__compose(&s, record, &in->how);
    if (st != NULL)
        return st;
    in->longest = s.length > in->longest ? s.length : in->longest;
    if (in->data->seq > 0 && s.length > in->data->seq)
        st = too_long(in, &s);
    else
        st = put_row(in->data, &s);
    sheaf__sequence_release(&s);
    return st;
}

/* ---- the whole ---- */

/* Nothing with an image could be in it, and each record would say so in its own way. */
static sheaf_status *check_seq(const reader *in, int64_t images)
{
    const int64_t patches = in->how.layout.patches, seq = in->data->seq;
    const int64_t least = sheaf__sequence_needs(0, 0, &in->how.layout);
    if (seq == 0 || images == 0 || seq >= least)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_ARG, "--seq");
    sheaf_expected(st,
                   "at least %" PRId64 " and the tokens of the prompt: bos, the image's %" PRId64
                   " patches between two marks, "
                   "and 10 positions for the answer",
                   least, patches);
    sheaf_found(st, "%" PRId64 ", in which no record with an image fits", seq);
    return sheaf_try_this(st, "no --seq: it is then as long as the longest record needs");
}

/* What make_rows() and check_images() made for the records that there are, but the data set's. */
static void release_rows(reader *in)
{
    for (int64_t i = 0; in->bad != NULL && i < in->checked; i++)
        sheaf_status_free(in->bad[i]);
    free(in->bad);
    free(in->hash);
    free(in->out);
    sheaf__pictures_free(in->pictures);
    in->bad = NULL;
    in->hash = NULL;
    in->out = NULL;
    in->pictures = NULL;
}

static sheaf_status *make_rows(reader *in)
{
    sheaf_data *d = in->data;
    const size_t n = (size_t)in->records.count;
    d->capacity = in->checked = in->records.count;
    free(d->begin);
    free(d->trained_from);
    d->begin = calloc(n + 1, sizeof *d->begin);
    d->trained_from = calloc(n + 1, sizeof *d->trained_from);
    in->out = calloc(n + 1, sizeof *in->out);
    in->hash = calloc(n + 1, sizeof *in->hash);
    in->bad = calloc(n + 1, sizeof *in->bad);
    if (d->begin == NULL || d->trained_from == NULL || in->hash == NULL || in->bad == NULL ||
        in->out == NULL)
        return sheaf__data_no_memory(0);
    return reserve(d, 1);
}

static sheaf_status *check_images(reader *in)
{
    sheaf__data_images *images = in->data->images;
    const int64_t ahead = in->options->micro_batch > 0 ? in->options->micro_batch : 1;
    int64_t count = 0;
    for (int64_t i = 0; i < in->records.count; i++)
        count += in->records.record[i].image != NULL;
    sheaf_status *st = check_seq(in, count);
    if (st == NULL && count > 0 && images->tower[0].channels != 3)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pictures"),
                                        "a model that reads 3 channels: red, green, blue"),
                         "one of %" PRId64, images->tower[0].channels);
    if (st == NULL) /* this batch, the next one, and one more for a rank that lags */
        st = sheaf__pictures_new(&in->pictures, &in->records, images,
                                 &(sheaf__pictures_options){ .slots = 3 * ahead,
                                                             .threads = in->options->threads,
                                                             .stop = in->options->stop });
    return st == NULL ? sheaf__pictures_check(in->pictures, in->hash, in->bad, in->options->events)
                      : st;
}

/* What is wrong, with the line before it. Of a folder the path is all there is to say. */
static sheaf_status *placed(const reader *in, sheaf_status *st, int64_t index, bool has_path)
{
    return in->records.record[index].place == 0 && has_path
               ? st
               : sheaf__record_in(st, &in->records, index);
}

static sheaf_status *take_records(reader *in, const char *path)
{
    for (int64_t i = 0; i < in->records.count && in->complaints.fatal == NULL; i++) {
        const int64_t complaints = in->complaints.count;
        if (in->bad[i] != NULL)
            sheaf__complain(&in->complaints, placed(in, in->bad[i], i, true));
        else
            sheaf__complain(&in->complaints, placed(in, take_record(in, i), i, false));
        in->bad[i] = NULL;
        in->out[i] = in->complaints.count > complaints;
        in->left_out += in->out[i];
    }
    sheaf_status *st = sheaf__complaints_verdict(&in->complaints, path, in->records.looked_at);
    if (st != NULL && in->too_long)
        sheaf_try_this(
            st,
            "--seq %" PRId64
            ", or no --seq, holds the longest text; what else is bad must be repaired or taken out",
            in->longest);
    return st;
}

/* Row r is record r, of pictures too: without those that were left out they are made anew. */
static sheaf_status *leave_out(reader *in, const char *path)
{
    sheaf__records *r = &in->records;
    int64_t kept = 0;
    if (in->left_out == 0)
        return NULL;
    for (int64_t i = 0; i < r->count; i++) {
        if (in->out[i])
            free((sheaf__turn *)r->record[i].turn);
        else
            r->record[kept++] = r->record[i];
    }
    r->count = r->looked_at = kept;
    in->data->rows = in->data->tokens = in->left_out = in->longest = 0;
    release_rows(in);
    sheaf_status *st = make_rows(in);
    TRY(st, check_images(in));
    return st == NULL ? take_records(in, path) : st;
}

static sheaf_status *keep_images(reader *in)
{
    sheaf__data_images *images = in->data->images;
    sheaf_status *st = sheaf__data_images_rows_new(in->data);
    if (st != NULL)
        return st;
    memcpy(images->hash, in->hash, (size_t)in->data->rows * sizeof *images->hash);
    images->self = in->pictures;
    images->load = sheaf__pictures_load;
    images->announce = sheaf__pictures_announce;
    images->close = sheaf__pictures_free;
    images->memory = sheaf__pictures_memory(in->pictures);
    in->pictures = NULL;
    if (in->data->seq == 0)
        in->data->seq = in->longest;
    return NULL;
}

sheaf_status *sheaf__data_read_records(sheaf_data *data, const char *path,
                                       const sheaf_data_options *options)
{
    reader in = { .data = data,
                  .options = options,
                  .complaints = { .skip = options->on_bad == SHEAF_BAD_SKIP,
                                  .events = options->events } };
    const sheaf__records_options how = {
        .query = options->query != NULL && options->query[0] != '\0' ? options->query : NULL,
        .fields = options->fields,
        .events = options->events
    };
    sheaf_status *st = sheaf__records_read(&in.records, path, &how, &in.complaints);
    TRY(st, sheaf_in(choose_words(&in), "%s", path));
    if (st != NULL && in.complaints.count > 0 && !in.complaints.skip) {
        /* the file is no data set at all: that comes before a tokenizer for it */
        sheaf_status_free(st);
        st = sheaf__complaints_verdict(&in.complaints, path, in.records.looked_at);
    }
    TRY(st, make_rows(&in));
    TRY(st, check_images(&in));
    TRY(st, take_records(&in, path));
    TRY(st, leave_out(&in, path));
    TRY(st, keep_images(&in));
    release_rows(&in);
    sheaf__complaints_release(&in.complaints);
    sheaf__records_release(&in.records);
    sheaf__sentencepiece_close(in.model);
    return st;
}
