/* records_json.c - records from JSON Lines or one JSON array; the forms are in records.h. */
#include "data/records.h"

#include "base/base.h"
#include "base/file.h"
#include "data/json_items.h"
#include "data/preference.h"
#include "data/record_pictures.h"
#include "data/text_inner.h"
#include "data/text_rows.h"
#include "inputs/places.h"

enum { NAME = 96, MOST_LABEL = 64 << 20 };
static const char MARK[] = "<image>"; /* a turn of the user's; inputs/places.h has the others */
static const char ONE_IMAGE[] = "one image: CogVLM and CogAgent read one, in front of the text";

typedef struct json_reader {
    sheaf__records_reader *in;
    char *folder;                 /* that image paths are relative to */
    int64_t place;                /* of the record */
    sheaf__ignored ignored, lost; /* fields; pictures that are spelled out */
    sheaf__records later;         /* rejected answers of pairs that are judged */
} json_reader;

/* A record that is being read. Its texts are borrowed from the JSON or from `text`. */
typedef struct draft {
    int64_t images; /* named so far */
    char *image;    /* the path as given, owned, */
    char *path;     /* and from here, owned */
    bool desirable;
    char named[NAME + 24]; /* the field that gave it */
    bool field;            /* the image was named by a field of the record */
    bool placed;           /* and a part of the first message gives its place */
    sheaf__turn *turn;     /* [turns] */
    int64_t turns;
    sheaf__text_record text; /* of a list of messages */
    char *first;             /* the first question without its mark, owned; NULL: it has none */
} draft;

static void release(draft *d)
{
    sheaf__text_record_release(&d->text);
    free(d->turn);
    free(d->first);
    free(d->image);
    free(d->path);
}

/* ---- images ---- */

static sheaf_status *check_text(const char *text, size_t size, const char *name)
{
    enum { MOST = 1 << 20 }; /* more than the longest context */
    if (size > MOST)
        return sheaf__bad_field(name, "at most 1048576 bytes", "%zu", size);
    return text == NULL || strlen(text) == size
               ? NULL
               : sheaf__bad_field(name, "text without NUL (\\u0000)", "one at byte %zu",
                                  strlen(text));
}

static sheaf_status *take_image(draft *d, const json_t *value, const char *name)
{
    sheaf_status *st = check_text(json_string_value(value), json_string_length(value), name);
    if (st != NULL)
        return st;
    if (json_is_string(value) && json_string_length(value) == 0)
        return sheaf__bad_field(name, "the path of an image", "an empty string");
    if (++d->images > 1)
        return sheaf__bad_field(name, ONE_IMAGE, "more than one image");
    snprintf(d->named, sizeof d->named, "%s", name);
    return sheaf__picture_path(&d->image, value, name);
}

/* "image" or "images": a path, or a list of at most one. */
static sheaf_status *take_image_field(draft *d, const json_t *record, const char *name)
{
    const json_t *value = json_object_get(record, name);
    if (value == NULL || json_is_null(value))
        return NULL;
    if (!json_is_array(value)) {
        d->field = true;
        return take_image(d, value, name);
    }
    if (json_array_size(value) > 1)
        return sheaf__bad_field(name, ONE_IMAGE, "a list of %zu images", json_array_size(value));
    if (json_array_size(value) == 0)
        return NULL;
    char item[NAME];
    d->field = true;
    snprintf(item, sizeof item, "%s[0]", name);
    return take_image(d, json_array_get(value, 0), item);
}

static sheaf_status *check_image(draft *d, const json_reader *r)
{
    char **path = &d->path;
    if (d->image == NULL)
        return NULL;
    const bool data = sheaf__image_is_data(d->image);
    if (d->image[0] == '/' || data)
        *path = strdup(d->image);
    else
        sheaf_status_free(sheaf__path_join(path, r->folder, d->image));
    if (*path == NULL)
        return sheaf__no_memory("data set");
    const sheaf_path_kind kind = data ? SHEAF_PATH_FILE : sheaf__path_kind(*path);
    if (kind == SHEAF_PATH_FILE)
        return NULL;
    return sheaf__bad_field(d->named,
                            "an image file, its path relative to the folder of this data set",
                            "%s: %s", *path,
                            kind == SHEAF_PATH_NONE  ? "no such file"
                            : kind == SHEAF_PATH_DIR ? "a folder"
                                                     : "not a file");
}

/* ---- messages ---- */

/* A part of a content that is not text: the image. */
static sheaf_status *take_part(void *self, const sheaf__text_record *r, const json_t *part,
                               const char *type, const char *name)
{
    char inner[NAME + 24];
    draft *d = self;
    snprintf(inner, sizeof inner, "%s.%.16s", name, type);
    if (sheaf__text_stands_for(type) == NULL || type[0] == 'v')
        return sheaf__bad_field(name, "a part of type text, image_url or image", "type '%.40s'",
                                type);
    if (r->messages > 0)
        return sheaf__bad_field(name, "images in the first message of the user only", "one here");
    const json_t *image = NULL;
    sheaf_status *st = sheaf__picture_of_part(&image, part, name);
    if (st != NULL || image != NULL)
        return st != NULL ? st : take_image(d, image, inner);
    if (!d->field)
        return sheaf__bad_field(
            inner, "the path of an image, here or in a field \"images\" beside the messages", "%s",
            sheaf__text_kind(image));
    if (d->placed)
        return sheaf__bad_field(inner, ONE_IMAGE, "more than one image");
    d->placed = true;
    return NULL;
}

/* Messages in turn, the user first, as text_messages.c checks. No template has a place for other
 * fields. */
static sheaf_status *take_turns(draft *d)
{
    sheaf__text_record *x = &d->text;
    const int64_t beside = x->messages > 0 && x->message[0].role[0] == 's',
                  n = x->messages - beside;
    sheaf_status *st = NULL;
    if (beside)
        snprintf(x->ignored, sizeof x->ignored, "system");
    d->turns = (n + 1) / 2;
    d->turn = calloc((size_t)d->turns + 1, sizeof *d->turn);
    if (d->turn == NULL)
        return sheaf__no_memory("data set");
    for (int64_t i = 0; i < n; i++) {
        const sheaf__text_message *m = &x->message[beside + i];
        sheaf__turn *turn = &d->turn[i / 2];
        TRY(st, check_text(m->content, m->size, sheaf__text_form_name(x->form)));
        *(i % 2 == 0 ? &turn->query : &turn->answer) = m->content;
    }
    return st;
}

/* ---- the mark of the image ---- */

static sheaf_status *no_image(const json_t *record)
{
    static const char expected[] = "the path of the image that the text marks by <image>";
    const char *meant = sheaf__record_pictures_meant(record);
    sheaf_status *st =
        meant == NULL
            ? sheaf__bad_field("image", expected, "no such field")
            : sheaf__bad_field("image", expected, "a field '%.60s', which is not read", meant);
    return sheaf_try_this(st, "\"image\": PATH in the record, or a text without <image>");
}

/* In every form, as in generate and chat, the name of a picture in a user's text is never text. */
static sheaf_status *take_mark(draft *d, const json_t *record)
{
    const char *list = sheaf__text_form_name(d->text.form);
    char name[NAME] = "prompt";
    int64_t where;
    const int64_t marks = sheaf__turn_marks(&where, d->turn, d->turns);
    if (d->field && !d->placed && marks == 0 && sheaf__text_said_picture(&d->text) >= 0)
        return sheaf__bad_field(d->text.form == SHEAF__FORM_PROMPT ? "completion" : list,
                                "<image> in the question, where the image stands",
                                "in an answer alone");
    if (marks == 0)
        return NULL;
    if (d->text.form != SHEAF__FORM_PROMPT) {
        const sheaf__text_words *w =
            sheaf__text_words_of(json_object_get(record, list), &sheaf__text_openai);
        snprintf(name, sizeof name, "%s[%" PRId64 "].%s", list, 2 * where, w->content);
    }
    if (d->image == NULL)
        return no_image(record);
    if (marks > 1 || d->placed)
        return sheaf__bad_field(name, ONE_IMAGE,
                                "more than one image: %" PRId64 " times %s in the user's texts%s",
                                marks, MARK, d->placed ? ", and a part" : "");
    if (where > 0)
        return sheaf__bad_field(name, "the image in the first turn", "%s in turn %" PRId64, MARK,
                                where + 1);
    d->turn[0].query = d->first = strdup(d->turn[0].query);
    if (d->first == NULL)
        return sheaf__no_memory("data set");
    sheaf__picture_name_remove(d->first);
    return NULL;
}

/* ---- one record ---- */

/* A caption is the answer to the question --query. */
static sheaf_status *take_caption(json_reader *r, draft *d, const json_t *list)
{
    static const char *const known[] = { "captions", "image", "images" }, *const forms[] = {
        "messages", "conversations", "prompt"
    };
    const json_t *one = json_array_get(list, 0);
    const char *query = r->in->options->query;
    sheaf_status *st = d->text.answer_optional ? NULL : sheaf__text_preference(d->text.json);
    if (st != NULL)
        return st;
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (json_object_get(d->text.json, forms[i]) != NULL)
            return sheaf__bad_field("captions", "one of the forms of a record",
                                    "captions beside '%s'", forms[i]);
    d->text.lost = sheaf__record_pictures_spelled(d->text.json) ? SHEAF__PICTURE_SPELLED : NULL;
    snprintf(d->text.ignored, sizeof d->text.ignored, "%s",
             sheaf__text_other_field(d->text.json, known, 3));
    if (json_array_size(list) != 1)
        return sheaf__bad_field("captions", "a list of one caption", "%s of %zu",
                                sheaf__text_kind(list), json_array_size(list));
    if (query == NULL)
        return sheaf_try_this(
            sheaf__bad_field("captions", "a question beside it, that captions answer", "none"),
            "`query 'Describe the image.'`, which all of them are answers to");
    sheaf__text_piece answer = { NULL };
    st = sheaf__text_string(&answer, json_object_get(one, "content"), "captions[0].content");
    d->text.form = SHEAF__FORM_PROMPT;
    return TRY(st, sheaf__text_put_pair(&d->text, (sheaf__text_piece){ query, strlen(query) },
                                        answer, "captions[0].content"));
}

static sheaf_status *fill(json_reader *r, draft *d, json_t *record)
{
    d->text = (sheaf__text_record){ .answer_optional = r->in->options->answers_optional,
                                    .pictures = SHEAF__PARTS_BESIDE,
                                    .pairs = true,
                                    .no_system = true,
                                    .part = take_part,
                                    .part_self = d,
                                    .json = json_incref(record) };
    sheaf_status *st = take_image_field(d, record, "image");
    TRY(st, take_image_field(d, record, "images"));
    static const char *const videos[] = { "video", "videos" };
    for (int i = 0; i < 2 && st == NULL; i++)
        if (json_object_get(record, videos[i]) != NULL)
            st = sheaf__bad_field(videos[i], "none: this model reads one picture", "one");
    if (json_object_get(record, "captions") != NULL)
        TRY(st, take_caption(r, d, json_object_get(record, "captions")));
    else
        TRY(st, sheaf__text_record_take(&d->text));
    TRY(st, take_turns(d));
    return TRY(st, take_mark(d, record));
}

/* Templates put all but the last answer into the prompt, where nothing is compared. */
static sheaf_status *check_answers(const draft *d)
{
    const sheaf__text_record *x = &d->text;
    for (int64_t i = 0; i + 1 < x->messages; i++)
        if (x->message[i].trained && strcmp(x->message[i].role, "assistant") == 0)
            return sheaf__bad_field(sheaf__text_form_name(x->form),
                                    "one answer behind the prompt: CogVLM and CogAgent learn one",
                                    "several");
    return NULL;
}

static sheaf_status *read_side(draft *d, json_reader *r, json_t *record, int side)
{
    const sheaf__records_options *o = r->in->options;
    json_t *own = NULL;
    sheaf_status *st =
        sheaf__preference_part(&own, &d->desirable, record, side, o->pairs, o->judged);
    TRY(st, fill(r, d, own));
    if ((o->pairs || (o->judged && sheaf__preference_is_pair(record))) &&
        d->text.form != SHEAF__FORM_INSTRUCTION)
        TRY(st, check_answers(d));
    json_decref(own);
    return TRY(st, check_image(d, r));
}

static sheaf_status *take_record(json_reader *r, json_t *record)
{
    const sheaf__records_options *o = r->in->options;
    const bool apart = o->judged && sheaf__preference_is_pair(record);
    const int sides = o->pairs || apart ? 2 : 1;
    draft d[2] = { { 0 } };
    sheaf_status *st = NULL;
    for (int side = 0; side < sides && st == NULL; side++)
        st = read_side(&d[side], r, record, side);
    if (st == NULL) {
        sheaf__ignored_keep(&r->ignored, d[0].text.ignored, r->in->out->unit, r->place);
        sheaf__ignored_keep(&r->lost, d[0].text.lost, r->in->out->unit, r->place);
    }
    for (int side = 0; side < sides && st == NULL; side++)
        st = sheaf__records_put(side == 1 && apart ? &r->later : r->in->out,
                                &(sheaf__record){ .place = r->place,
                                                  .image = d[side].path,
                                                  .turn = d[side].turn,
                                                  .turns = d[side].turns,
                                                  .desirable = d[side].desirable });
    if (r->later.count == SHEAF__UNPAIRED)
        TRY(st, sheaf__records_move(r->in->out, &r->later));
    release(&d[0]);
    release(&d[1]);
    return st;
}

/* Reads the text of one record: its errors are collected, other failures end the reading. */
static sheaf_status *take_text(json_reader *r, const char *text, size_t size)
{
    json_t *record = NULL;
    r->in->out->looked_at++;
    sheaf_status *st = sheaf__record_parse(&record, text, size, &r->in->fields);
    TRY(st, take_record(r, record));
    json_decref(record);
    if (st == NULL || sheaf_status_code(st) != SHEAF_E_DATA)
        return st;
    sheaf__complain(r->in->complaints, sheaf_in(st, "%s %" PRId64, r->in->out->unit, r->place));
    return NULL;
}

/* ---- the file ---- */

sheaf_status *sheaf__records_read_json(sheaf__records_reader *in)
{
    json_reader r = { .in = in };
    sheaf__json_items items;
    bool more = true;
    sheaf_status *st = sheaf__json_items_open(&items, in->path);
    TRY(st, sheaf__path_parent(&r.folder, in->path));
    in->out->unit = items.unit;
    while (st == NULL && (st = sheaf__json_items_next(&more, &items)) == NULL && more) {
        r.place = items.place;
        st = sheaf_in(take_text(&r, items.text, items.size), "%s", in->path);
    }
    TRY(st, sheaf__records_move(in->out, &r.later));
    sheaf__records_release(&r.later);
    sheaf__json_items_close(&items);
    free(r.folder);
    if (st == NULL) {
        sheaf__ignored_warn(&r.ignored, in->path, in->options->events);
        sheaf__lost_warn(&r.lost, in->path, NULL, in->options->events);
    }
    return st;
}

/* Puts the path of the label before its errors. */
sheaf_status *sheaf__records_take_label(sheaf__records_reader *in, const char *image,
                                        const char *label)
{
    json_reader r = { .in = in };
    draft d = { .images = 1, .image = strdup(image), .field = true };
    json_t *record = NULL;
    char *text = NULL;
    size_t size = 0;
    in->out->looked_at++;
    sheaf_status *st = d.image == NULL ? sheaf__no_memory("data set")
                                       : sheaf__file_read_all(&text, &size, label, MOST_LABEL);
    TRY(st, sheaf_in(sheaf__record_parse(&record, text, size, &in->fields), "%s", label));
    TRY(st, sheaf_in(fill(&r, &d, record), "%s", label));
    TRY(st, sheaf__records_put(
                in->out, &(sheaf__record){ .image = image, .turn = d.turn, .turns = d.turns }));
    if (st == NULL && !in->reported && d.text.ignored[0] != '\0') {
        in->reported = true;
        sheaf_warn(in->options->events, "%s: field '%s' is not used", label, d.text.ignored);
    }
    release(&d);
    json_decref(record);
    free(text);
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    sheaf__complain(in->complaints, st);
    return NULL;
}
