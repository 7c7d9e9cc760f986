/* talk_row.c - see talk_row.h. */
#include "data/talk_row.h"

#include "base/base.h"
#include "data/complaints.h"
#include "data/data_rows.h"
#include "data/talk_pictures.h"
#include "data/text_record.h"

/* A record on its way. */
typedef struct talk {
    const sheaf__talk_reader *reader;
    sheaf__text_record record;
    sheaf__message *message; /* [messages] */
    int64_t messages;
    sheaf__talk_pictures pictures;
} talk;

/* ---- messages ---- */

static sheaf_status *take_messages(talk *t)
{
    const sheaf__text_record *r = &t->record;
    const bool pair = r->form == SHEAF__FORM_PROMPT && r->messages == 0;
    t->messages = pair ? 2 : r->messages;
    if (t->messages == 0)
        return sheaf__bad_field(sheaf__text_form_name(r->form),
                                "a conversation, or a prompt and its completion", "a whole text");
    t->message = malloc((size_t)t->messages * sizeof *t->message);
    if (t->message == NULL)
        return sheaf__data_no_memory(0);
    sheaf__text_said(t->message, r);
    if (pair) {
        t->message[0] = (sheaf__message){ "user", r->prompt, r->prompt_size };
        t->message[1] = (sheaf__message){ "assistant", r->text, r->text_size };
    }
    sheaf__talk_pictures_from(&t->pictures, t->message, t->messages);
    return NULL;
}

/* ---- the row ---- */

static bool counts(const void *self, int64_t message)
{
    const talk *t = self;
    if (t->reader->loss_on == SHEAF_LOSS_LAST && message != t->messages - 1)
        return false;
    return t->record.messages == 0 || t->record.message[message].trained;
}

static sheaf_status *label_row(sheaf__talk_row *out, const talk *t, sheaf__said *said)
{
    bool any = false;
    out->label = malloc(((size_t)said->count + 1) * sizeof *out->label);
    if (out->label == NULL)
        return sheaf__data_no_memory(0);
    sheaf__said_targets(out->label, &out->behind, SHEAF__NO_LABEL, &t->reader->speech, said, counts,
                        t);
    for (int64_t i = 0; i < said->count; i++) {
        if (t->reader->loss_on == SHEAF_LOSS_ALL && !said->row[i])
            out->label[i] = said->id[i];
        any |= i > 0 && out->label[i] != SHEAF__NO_LABEL;
    }
    if (!any)
        return sheaf__text_nothing_learned(&t->record, t->reader->loss_on == SHEAF_LOSS_LAST);
    out->id = said->id;
    out->row = said->row;
    out->count = said->count;
    out->left_out = said->text.left_out;
    out->written = said->written;
    said->id = NULL;
    said->row = NULL;
    return NULL;
}

static sheaf_status *make_row(sheaf__talk_row *out, talk *t)
{
    const sheaf__talk_reader *r = t->reader;
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

sheaf_status *sheaf__talk_row_read(sheaf__talk_row *out, const sheaf__talk_reader *reader,
                                   const char *json, size_t size)
{
    talk t = { .reader = reader };
    *out = (sheaf__talk_row){ .behind = SHEAF__NO_LABEL };
    sheaf_status *st = sheaf__text_record_shown(&t.record, json, size, reader->fields);
    if (st == NULL)
        st =
            sheaf__talk_pictures_read(&t.pictures, t.record.json, reader->folder, &reader->viewing);
    TRY(st, take_messages(&t));
    TRY(st, make_row(out, &t));
    memcpy(out->ignored, t.record.ignored, sizeof out->ignored);
    out->lost = t.record.lost;
    sheaf__talk_pictures_release(&t.pictures);
    free(t.message);
    sheaf__text_record_release(&t.record);
    if (st != NULL)
        sheaf__talk_row_release(out);
    return st;
}

void sheaf__talk_row_release(sheaf__talk_row *row)
{
    for (int64_t i = 0; i < row->pictures; i++)
        sheaf__viewed_release(&row->picture[i]);
    free(row->picture);
    free(row->id);
    free(row->label);
    free(row->row);
    *row = (sheaf__talk_row){ .behind = SHEAF__NO_LABEL };
}
