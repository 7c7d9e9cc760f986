/* data_conversations.c - see data_conversations.h: rows of conversations with pictures. Only paths,
 * hashes and sizes of pictures stay in memory; files are read again when a step needs them, or
 * ahead of it (data_pictures.h). A bad record is reported: upstream replaces it by a random one. */
#include "data/data_conversations.h"

#include "base/base.h"
#include "base/file.h"
#include "data/complaints.h"
#include "data/data_images.h"
#include "data/data_pictures.h"
#include "data/record_pictures.h"
#include "inputs/chat_encoder.h"

struct sheaf__conversations {
    sheaf_data *data;
    const sheaf_data_options *options;
    sheaf__chat_template *own; /* the family's, where none is named or stored */
    sheaf__chat_encoder chat_encoder;
    char *folder; /* that paths of pictures start from */
    sheaf__pictures *pictures;
};

/* ---- tokenizer and template ---- */

static sheaf_status *choose_chat(sheaf__conversations *t, sheaf__text_sources *sources)
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
                       "(`template` changes it)",
                       sheaf__chat_template_name(chat));
    }
    t->chat_encoder.chat = chat;
    t->data->prompt_template = chat == NULL ? NULL : sheaf__chat_template_name(chat);
    return st;
}

static sheaf_status *open_sources(sheaf__conversations *t, sheaf__text_sources *sources)
{
    const sheaf_data_options *o = t->options;
    sheaf_status *st = sheaf__text_sources_open(sources, o);
    TRY(st, choose_chat(t, sources));
    if (st != NULL)
        return st;
    const sheaf__text_encoder *e = &sources->encoder;
    sheaf__chat_encoder *s = &t->chat_encoder;
    const int64_t bos = e->tokenizer == NULL ? o->config->bos : sheaf__tokenizer_bos(e->tokenizer);
    s->tokenizer = e->tokenizer;
    s->bos = e->bos;
    s->eos = e->eos;
    s->bos_id = (int32_t)bos;
    s->eos_id = e->eos_id;
    s->specials = e->specials;
    return sheaf__chat_encoder_marks(s, o->config);
}

static sheaf_status *check_one(const sheaf__text_sources *sources, const char *path)
{
    if (sources->paths == 1)
        return NULL;
    sheaf_status *st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                                      "a file of JSON Lines or a JSON array, or a folder with one");
    sheaf_found(st, "%" PRId64 " such files in it", sources->paths);
    return sheaf_try_this(st,
                          "one of them: `data %s`; or put them together: cat FILE... >ALL "
                          "(of JSON Lines), in the folder that paths of pictures start from",
                          sources->path[0]);
}

sheaf_status *sheaf__conversations_open(sheaf__conversations **out, sheaf__row_writer *rows,
                                        const char *path, sheaf__text_sources *sources,
                                        const sheaf_data_options *options)
{
    sheaf__conversations *t = *out = calloc(1, sizeof *t);
    if (t == NULL)
        return sheaf__data_no_memory(0);
    t->data = rows->data;
    t->options = options;
    sheaf_status *st = sheaf__pictures_new(&t->pictures, options->config, options->threads);
    rows->pictures = t->pictures;
    TRY(st, check_one(sources, path));
    TRY(st, open_sources(t, sources));
    return TRY(st, sheaf__path_parent(&t->folder, sources->path[0]));
}

sheaf_status *sheaf__conversations_keep(sheaf__conversations *t)
{
    sheaf_status *st = sheaf__pictures_keep(t->pictures, t->data,
                                            t->options->micro_batch * sheaf_data_sides(t->data));
    return TRY(st, sheaf__data_images_share_positions(t->data, t->options->config));
}

void sheaf__conversations_close(sheaf__conversations *t)
{
    if (t == NULL)
        return;
    if (t->data->images->self != t->pictures)
        sheaf__pictures_free(t->pictures);
    sheaf__chat_template_free(t->own);
    free(t->folder);
    free(t);
}

/* A record that is being encoded. */
typedef struct conversation {
    const sheaf__conversations *conversations;
    sheaf__text_record *record;
    sheaf__message *message; /* [messages] */
    int64_t messages;
    sheaf__record_pictures pictures;
} conversation;

/* ---- messages ---- */

static sheaf_status *take_messages(conversation *t)
{
    t->messages = t->record->messages;
    t->message = malloc((size_t)t->messages * sizeof *t->message + 1);
    if (t->message == NULL)
        return sheaf__data_no_memory(0);
    sheaf__text_chat_messages(t->message, t->record);
    sheaf__record_pictures_from(&t->pictures, t->message, t->messages);
    return NULL;
}

/* ---- the row ---- */

static bool counts(const void *self, int64_t message)
{
    const conversation *t = self;
    if (t->conversations->options->loss_on == SHEAF_LOSS_LAST && message != t->messages - 1)
        return false;
    return t->record->message[message].trained;
}

static sheaf_status *label_row(sheaf__text_row *out, const conversation *t,
                               sheaf__chat_ids *encoded)
{
    const sheaf_loss_on how = t->conversations->options->loss_on;
    bool any = false;
    out->label = malloc(((size_t)encoded->count + 1) * sizeof *out->label);
    if (out->label == NULL)
        return sheaf__data_no_memory(0);
    sheaf__chat_ids_targets(out->label, &out->behind, SHEAF__NO_LABEL,
                            &t->conversations->chat_encoder, encoded, counts, t);
    for (int64_t i = 0; i < encoded->count; i++) {
        const bool behind = how == SHEAF_LOSS_BEHIND && any && out->label[i] == SHEAF__NO_LABEL;
        if ((how == SHEAF_LOSS_ALL || behind) && !encoded->row[i])
            out->label[i] = encoded->id[i];
        any |= i > 0 && out->label[i] != SHEAF__NO_LABEL;
    }
    if (!any)
        return sheaf__text_nothing_learned(t->record, how == SHEAF_LOSS_LAST);
    out->id = encoded->id;
    out->place = encoded->row;
    out->count = encoded->count;
    out->left_out = encoded->text.left_out;
    out->written = encoded->written;
    encoded->id = NULL;
    encoded->row = NULL;
    return NULL;
}

static sheaf_status *make_row(sheaf__text_row *out, conversation *t)
{
    const sheaf__conversations *r = t->conversations;
    sheaf__placed placed;
    sheaf__chat_ids encoded = { 0 };
    sheaf_status *st = sheaf__record_pictures_place(&placed, &r->chat_encoder.form, t->message,
                                                    t->messages, &t->pictures, false);
    TRY(st, sheaf__chat_encode(&encoded, &r->chat_encoder, &placed, false));
    TRY(st, label_row(out, t, &encoded));
    TRY(st, sheaf__record_pictures_take(&out->picture, &t->pictures, placed.order));
    if (st == NULL)
        out->pictures = placed.pictures;
    sheaf__chat_ids_release(&encoded);
    sheaf__placed_release(&placed);
    return st;
}

sheaf__text_record sheaf__conversations_record(const sheaf__conversations *conversations)
{
    return (sheaf__text_record){ .pictures =
                                     sheaf__picture_parts_of(&conversations->chat_encoder.form),
                                 .pairs = true };
}

sheaf_status *sheaf__conversations_encode(sheaf__text_row *out, sheaf__text_record *record,
                                          const sheaf__conversations *conversations)
{
    conversation t = { .conversations = conversations, .record = record };
    *out = (sheaf__text_row){ .behind = SHEAF__NO_LABEL };
    sheaf_status *st =
        sheaf__record_pictures_read(&t.pictures, record->json, conversations->folder,
                                    sheaf__pictures_viewing(conversations->pictures));
    TRY(st, sheaf__record_pictures_said(&t.pictures, record));
    TRY(st, take_messages(&t));
    TRY(st, make_row(out, &t));
    sheaf__record_pictures_release(&t.pictures);
    free(t.message);
    if (st != NULL)
        sheaf__text_row_release(out);
    return st;
}
