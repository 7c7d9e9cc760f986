/* data_talks.c - see data_talks.h: rows of conversations with pictures. Of the pictures only paths,
 * hashes and sizes stay; they are read again when a step needs them, or before it does
 * (data_pictures.h). A record that is bad is named: upstream takes another one at random.
 */
#include "data/data_talks.h"

#include "base/base.h"
#include "base/file.h"
#include "data/complaints.h"
#include "data/data_images.h"
#include "data/data_pictures.h"
#include "data/talk_pictures.h"
#include "inputs/speech.h"

struct sheaf__talks {
    sheaf_data *data;
    const sheaf_data_options *options;
    const sheaf__fields *fields;
    sheaf__chat_template *own; /* the family's, where none is named or stored */
    sheaf__speech speech;
    char *folder;   /* that paths of pictures start from */
    int64_t across; /* the least --seq that cuts no picture, where one was too small; 0: none */
    sheaf__pictures *pictures;
};

/* ---- what they are read with ---- */

static sheaf_status *choose_chat(sheaf__talks *t, sheaf__text_sources *sources)
{
    const sheaf_data_options *o = t->options;
    const sheaf__picture_form *form = &sheaf__pictures_viewing(t->pictures)->form;
    sheaf_status *st = sheaf__text_sources_chat(sources, o);
    if (st != NULL)
        return st;
    const sheaf__chat_template *chat = sources->chat;
    if (chat == NULL) {
        st = sheaf__chat_template_find(&t->own,
                                       o->config->byte_vocab ? form->byte_chat : form->chat);
        chat = t->own;
        if (st == NULL)
            sheaf_note(o->events,
                       "prompt template %s, the family's own, as the tokenizer stores none "
                       "(--template changes it)",
                       sheaf__chat_template_name(chat));
    }
    t->speech.chat = chat;
    t->data->prompt_template = chat == NULL ? NULL : sheaf__chat_template_name(chat);
    return st;
}

static sheaf_status *open_sources(sheaf__talks *t, sheaf__text_sources *sources)
{
    const sheaf_data_options *o = t->options;
    sheaf_status *st = sheaf__text_sources_open(sources, o);
    TRY(st, choose_chat(t, sources));
    if (st != NULL)
        return st;
    const sheaf__text_encoder *e = &sources->encoder;
    sheaf__speech *s = &t->speech;
    const int64_t bos = e->tokenizer == NULL ? o->config->bos : sheaf__tokenizer_bos(e->tokenizer);
    s->tokenizer = e->tokenizer;
    s->bos = e->bos;
    s->eos = e->eos;
    s->bos_id = (int32_t)bos;
    s->eos_id = e->eos_id;
    s->specials = e->specials;
    return sheaf__speech_marks(s, o->config);
}

static sheaf_status *check_one(const sheaf__text_sources *sources, const char *path)
{
    if (sources->paths == 1)
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                                      "a file of JSON Lines or a JSON array, or a folder with one");
    sheaf_found(st, "%" PRId64 " such files in it", sources->paths);
    return sheaf_try_this(st,
                          "one of them: --data %s; or put them together: cat FILE... >ALL "
                          "(of JSON Lines), in the folder that paths of pictures start from",
                          sources->path[0]);
}

sheaf_status *sheaf__talks_open(sheaf__talks **out, sheaf_data *data, const char *path,
                                sheaf__text_sources *sources, const sheaf__fields *fields,
                                const sheaf_data_options *options)
{
    sheaf__talks *t = *out = calloc(1, sizeof *t);
    if (t == NULL)
        return sheaf__data_no_memory(0);
    t->data = data;
    t->options = options;
    t->fields = fields;
    sheaf_status *st = sheaf__pictures_new(&t->pictures, options->config, options->threads);
    TRY(st, check_one(sources, path));
    TRY(st, open_sources(t, sources));
    return TRY(st, sheaf__path_parent(&t->folder, sources->path[0]));
}

sheaf_status *sheaf__talks_keep(sheaf__talks *t)
{
    return sheaf__pictures_keep(t->pictures, t->data, t->options->micro_batch);
}

void sheaf__talks_close(sheaf__talks *t)
{
    if (t == NULL)
        return;
    if (t->data->images->self != t->pictures)
        sheaf__pictures_free(t->pictures);
    sheaf__chat_template_free(t->own);
    free(t->folder);
    free(t);
}

/* A record on its way. */
typedef struct talk {
    const sheaf__talks *talks;
    sheaf__text_record *record;
    sheaf__message *message; /* [messages] */
    int64_t messages;
    sheaf__talk_pictures pictures;
} talk;

/* ---- messages ---- */

static sheaf_status *take_messages(talk *t)
{
    t->messages = t->record->messages;
    t->message = malloc((size_t)t->messages * sizeof *t->message + 1);
    if (t->message == NULL)
        return sheaf__data_no_memory(0);
    sheaf__text_said(t->message, t->record);
    sheaf__talk_pictures_from(&t->pictures, t->message, t->messages);
    return NULL;
}

/* ---- the row ---- */

static bool counts(const void *self, int64_t message)
{
    const talk *t = self;
    if (t->talks->options->loss_on == SHEAF_LOSS_LAST && message != t->messages - 1)
        return false;
    return t->record->message[message].trained;
}

static sheaf_status *label_row(sheaf__text_row *out, const talk *t, sheaf__said *said)
{
    bool any = false;
    out->label = malloc(((size_t)said->count + 1) * sizeof *out->label);
    if (out->label == NULL)
        return sheaf__data_no_memory(0);
    sheaf__said_targets(out->label, &out->behind, SHEAF__NO_LABEL, &t->talks->speech, said, counts,
                        t);
    for (int64_t i = 0; i < said->count; i++) {
        if (t->talks->options->loss_on == SHEAF_LOSS_ALL && !said->row[i])
            out->label[i] = said->id[i];
        any |= i > 0 && out->label[i] != SHEAF__NO_LABEL;
    }
    if (!any)
        return sheaf__text_nothing_learned(t->record,
                                           t->talks->options->loss_on == SHEAF_LOSS_LAST);
    out->id = said->id;
    out->place = said->row;
    out->count = said->count;
    out->left_out = said->text.left_out;
    out->written = said->written;
    said->id = NULL;
    said->row = NULL;
    return NULL;
}

static sheaf_status *make_row(sheaf__text_row *out, talk *t)
{
    const sheaf__talks *r = t->talks;
    sheaf__placed placed;
    sheaf__said said = { 0 };
    sheaf_status *st = sheaf__talk_pictures_place(&placed, &r->speech.form, t->message, t->messages,
                                                  &t->pictures, false);
    TRY(st, sheaf__say(&said, &r->speech, &placed, false));
    TRY(st, label_row(out, t, &said));
    TRY(st, sheaf__talk_pictures_take(&out->picture, &t->pictures, placed.order));
    if (st == NULL)
        out->pictures = placed.pictures;
    sheaf__said_release(&said);
    sheaf__placed_release(&placed);
    return st;
}

sheaf_status *sheaf__talks_read(sheaf__text_row *out, sheaf__text_record *record,
                                const sheaf__talks *talks, const char *text, size_t size)
{
    talk t = { .talks = talks, .record = record };
    *out = (sheaf__text_row){ .behind = SHEAF__NO_LABEL };
    *record = (sheaf__text_record){ .pictures = true, .pairs = true };
    sheaf_status *st = sheaf__text_record_parse(record, text, size, talks->fields);
    TRY(st, sheaf__talk_pictures_read(&t.pictures, record->json, talks->folder,
                                      sheaf__pictures_viewing(talks->pictures)));
    TRY(st, take_messages(&t));
    TRY(st, make_row(out, &t));
    sheaf__talk_pictures_release(&t.pictures);
    free(t.message);
    if (st != NULL)
        sheaf__text_row_release(out);
    return st;
}

/* ---- the data set ---- */

sheaf_status *sheaf__talks_put(sheaf__talks *t, sheaf__text_counts *c, sheaf__text_row *row)
{
    sheaf_data *d = t->data;
    const size_t n = (size_t)row->count;
    sheaf_status *st = sheaf__data_reserve(d, row->count, SHEAF__WITH_LABEL);
    TRY(st, sheaf__pictures_put(t->pictures, row->picture, row->pictures));
    if (st != NULL)
        return st;
    memcpy(d->token + d->tokens, row->id, n * sizeof *d->token);
    memcpy(d->label + d->tokens, row->label, n * sizeof *d->label);
    memcpy(d->images->embed + d->tokens, row->place, n);
    memset(d->images->expert + d->tokens, 0, n);
    d->label_after[d->rows] = row->behind;
    d->tokens += row->count;
    d->begin[++d->rows] = d->tokens;
    c->rows++;
    c->longest = row->count > c->longest ? row->count : c->longest;
    return NULL;
}

static sheaf_status *across(sheaf__talks *t, const sheaf__text_row *row, int64_t limit)
{
    int64_t last = row->count;
    while (!row->place[last - 1])
        last--;
    t->across = last + 1 > t->across ? last + 1 : t->across;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "text");
    sheaf_expected(st, "all pictures within %" PRId64 " positions: they are not cut", limit);
    return sheaf_found(st, "%" PRId64 " positions, the last of a picture at %" PRId64, row->count,
                       last);
}

/* A picture is never cut: its rows belong together. */
sheaf_status *sheaf__talks_fit(bool *keep, sheaf__talks *t, sheaf__text_counts *c,
                               sheaf__text_row *row, int64_t place)
{
    *keep = sheaf__text_counts_fits(c, row->count, place);
    if (*keep)
        return NULL;
    if (t->options->on_long != SHEAF_LONG_CUT)
        return NULL;
    if (memchr(row->place + c->limit, 1, (size_t)(row->count - c->limit)) != NULL)
        return across(t, row, c->limit);
    row->count = c->limit;
    row->behind = SHEAF__NO_LABEL;
    for (int64_t i = 1; i < row->count && !*keep; i++)
        *keep = row->label[i] != SHEAF__NO_LABEL;
    c->cut += *keep;
    c->emptied += !*keep;
    return NULL;
}

sheaf_status *sheaf__talks_advise(const sheaf__talks *t, sheaf_status *st)
{
    if (st == NULL || t == NULL || sheaf_status_code(st) != SHEAF_E_DATA || t->across == 0)
        return st;
    return sheaf_try_this(st,
                          "--seq %" PRId64 " or more, --on-long skip, or fewer pictures in a "
                          "record; what else is bad must be repaired or taken out",
                          t->across);
}
