/* talk_row.c - see talk_row.h. */
#include "data/talk_row.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "data/complaints.h"
#include "data/data_rows.h"
#include "data/text_record.h"

enum { MOST_PICTURES = 1000 };

/* A record on its way. */
typedef struct talk {
    const sheaf__talk_reader *reader;
    sheaf__text_record record;
    sheaf__message *message; /* [messages] */
    int64_t messages;
    sheaf__shown *shown; /* [pictures], as the record lists them */
    sheaf__viewed *viewed;
    int64_t pictures;
    bool own_names;
} talk;

/* ---- pictures ---- */

static sheaf_status *bad_image(const json_t *found)
{
    char text[96];
    return sheaf__bad_field(
        "image", "a path, a list of paths, or an object of names (\"<image_00>\") and paths", "%s",
        sheaf__json_show(text, found));
}

static sheaf_status *add_picture(talk *t, const char *name, const json_t *path)
{
    char *whole = NULL;
    if (!json_is_string(path) || json_string_length(path) != strlen(json_string_value(path)) ||
        json_string_length(path) == 0 || t->pictures == MOST_PICTURES)
        return bad_image(path);
    const char *told = json_string_value(path);
    sheaf_status *st = sheaf__path_join(&whole, told[0] == '/' ? "" : t->reader->folder, told);
    if (st == NULL)
        st = sheaf__view_file(&t->viewed[t->pictures], whole, &t->reader->viewing);
    free(whole);
    if (st != NULL)
        return st;
    const sheaf__sliced *s = &t->viewed[t->pictures].pieces;
    t->shown[t->pictures++] =
        (sheaf__shown){ .name = name, .columns = s->columns, .rows = s->rows };
    return NULL;
}

static sheaf_status *add_named(talk *t, json_t *images)
{
    const char *name;
    json_t *path;
    sheaf_status *st = NULL;
    t->own_names = json_object_get(images, "<image>") == NULL;
    json_object_foreach(images, name, path)
    {
        const bool sound = strcmp(name, "<image>") == 0
                               ? json_object_size(images) == 1
                               : sheaf__is_picture_name(name, strlen(name)) == strlen(name);
        if (st == NULL && !sound)
            st = sheaf__bad_field("image", "names as \"<image_00>\", or one \"<image>\" alone",
                                  "'%.60s'", name);
        if (st == NULL)
            st = add_picture(t, name, path);
    }
    return st;
}

static sheaf_status *add_pictures(talk *t)
{
    json_t *one = json_object_get(t->record.json, "image"),
           *many = json_object_get(t->record.json, "images"), *images = one == NULL ? many : one;
    if (one != NULL && many != NULL)
        return sheaf__bad_field("images", "either \"image\" or \"images\"", "both in one record");
    const size_t n = json_is_array(images)    ? json_array_size(images)
                     : json_is_object(images) ? json_object_size(images)
                                              : 1;
    t->shown = calloc(n + 1, sizeof *t->shown);
    t->viewed = calloc(n + 1, sizeof *t->viewed);
    if (t->shown == NULL || t->viewed == NULL)
        return sheaf__data_no_memory(0);
    if (images == NULL || json_is_null(images) ||
        (json_is_string(images) && json_string_length(images) == 0))
        return NULL;
    if (n > MOST_PICTURES)
        return sheaf__bad_field("image", "at most 1000 pictures", "%zu", n);
    if (json_is_object(images))
        return add_named(t, images);
    if (!json_is_array(images))
        return add_picture(t, "<image>", images);
    sheaf_status *st = NULL;
    for (size_t i = 0; i < n && st == NULL; i++)
        st = add_picture(t, "<image>", json_array_get(images, i));
    return st;
}

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
    for (int64_t i = 0; i < r->messages; i++)
        t->message[i] =
            (sheaf__message){ r->message[i].role, r->message[i].content, r->message[i].size };
    if (pair) {
        t->message[0] = (sheaf__message){ "user", r->prompt, r->prompt_size };
        t->message[1] = (sheaf__message){ "assistant", r->text, r->text_size };
    }
    int64_t first = 0;
    while (first < t->messages && strcmp(t->message[first].role, "user") != 0)
        first++;
    for (int64_t i = 0; i < t->pictures; i++)
        t->shown[i].message = first;
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
        return sheaf__bad_field(NULL, "a token to learn behind the first one", "none");
    out->id = said->id;
    out->row = said->row;
    out->count = said->count;
    out->left_out = said->text.left_out;
    said->id = NULL;
    said->row = NULL;
    return NULL;
}

static sheaf_status *give_pictures(sheaf__talk_row *out, talk *t, const sheaf__placed *placed)
{
    out->picture = calloc((size_t)t->pictures + 1, sizeof *out->picture);
    if (out->picture == NULL)
        return sheaf__data_no_memory(0);
    for (int64_t i = 0; i < placed->pictures; i++) {
        out->picture[i] = t->viewed[placed->order[i]];
        t->viewed[placed->order[i]].path = NULL;
    }
    out->pictures = placed->pictures;
    return NULL;
}

static sheaf_status *make_row(sheaf__talk_row *out, talk *t)
{
    const sheaf__talk_reader *r = t->reader;
    sheaf__placed placed;
    sheaf__said said = { 0 };
    sheaf_status *st =
        sheaf__place_pictures(&placed, &r->speech.form, t->message, t->messages, t->shown,
                              t->pictures, &(sheaf__place_options){ .lines = t->own_names });
    if (st == NULL)
        st = sheaf__say(&said, &r->speech, &placed, false);
    if (st == NULL)
        st = label_row(out, t, &said);
    if (st == NULL)
        st = give_pictures(out, t, &placed);
    sheaf__said_release(&said);
    sheaf__placed_release(&placed);
    return st;
}

sheaf_status *sheaf__talk_row_read(sheaf__talk_row *out, const sheaf__talk_reader *reader,
                                   const char *json, size_t size)
{
    talk t = { .reader = reader };
    *out = (sheaf__talk_row){ .behind = SHEAF__NO_LABEL };
    sheaf_status *st = sheaf__text_record_read(&t.record, json, size);
    if (st == NULL)
        st = add_pictures(&t);
    if (st == NULL)
        st = take_messages(&t);
    if (st == NULL)
        st = make_row(out, &t);
    for (int64_t i = 0; i < t.pictures; i++)
        sheaf__viewed_release(&t.viewed[i]);
    free(t.viewed);
    free(t.shown);
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
