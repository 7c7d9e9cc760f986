/* records_json.c - records from JSON Lines or one JSON array; the forms are in records.h. */
#include "data/records.h"

#include <stdarg.h>

#include "base/base.h"
#include "base/file.h"
#include "data/json_items.h"
#include "data/talk_pictures.h"
#include "data/text_inner.h"
#include "inputs/places.h"
#include "inputs/sentencepiece.h"

enum { NAME = 96, MOST_LABEL = 64 << 20 };
static const char MARK[] = "<image>"; /* a turn of the user's; inputs/places.h has the others */
static const char ONE_IMAGE[] = "one image: CogVLM and CogAgent read one, in front of the text";

typedef struct json_reader {
    sheaf__records_reader *in;
    char *folder;     /* that image paths are relative to */
    int64_t place;    /* 0: `folder` is that of a label (records_folder.c), whose image is known */
    char ignored[64]; /* name of the first field that is not read */
    int64_t ignored_place, spelled_place; /* spelled: of the first picture that is spelled out */
} json_reader;

/* A record while it is read. Its texts are borrowed, from the JSON or from `text`. */
typedef struct draft {
    int64_t images;        /* that were named */
    const char *image;     /* the path as given */
    char named[NAME + 24]; /* the field that gave it */
    bool field;            /* the image was named by a field of the record */
    bool placed;           /* and a part of the first message says that it stands there */
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
}

static sheaf_status *make_turns(draft *d, int64_t turns)
{
    d->turn = calloc((size_t)turns, sizeof *d->turn);
    if (d->turn == NULL)
        return sheaf__no_memory("data set");
    d->turns = turns;
    return NULL;
}

static const char *called(char name[NAME], const char *fmt, ...) SHEAF_PRINTF(2, 3);
static const char *called(char name[NAME], const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    vsnprintf(name, NAME, fmt, args);
    va_end(args);
    return name;
}

/* ---- texts ---- */

static sheaf_status *take_string(const char **out, const json_t *value, const char *name)
{
    if (!json_is_string(value))
        return sheaf__bad_field(name, "a string", "%s", sheaf__text_kind(value));
    if (json_string_length(value) > SHEAF__TEXT_MAX)
        return sheaf__bad_field(name, "at most 1048576 bytes", "%zu", json_string_length(value));
    if (strlen(json_string_value(value)) != json_string_length(value))
        return sheaf__bad_field(name, "text without NUL (\\u0000)", "one at byte %zu",
                                strlen(json_string_value(value)));
    *out = json_string_value(value);
    return NULL;
}

/* ---- images ---- */

static sheaf_status *take_image(draft *d, const json_t *value, const char *name)
{
    const char *path;
    sheaf_status *st = take_string(&path, value, name);
    if (st != NULL)
        return st;
    if (*path == '\0')
        return sheaf__bad_field(name, "the path of an image", "an empty string");
    if (++d->images > 1)
        return sheaf__bad_field(name, ONE_IMAGE, "more than one image");
    snprintf(d->named, sizeof d->named, "%s", name);
    return sheaf__picture_path(&d->image, path, name);
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
    return take_image(d, json_array_get(value, 0), called(item, "%s[0]", name));
}

static sheaf_status *check_image(char **path, const json_reader *r, const draft *d)
{
    *path = NULL;
    if (d->image == NULL)
        return NULL;
    if (d->image[0] == '/')
        *path = strdup(d->image);
    else
        sheaf_status_free(sheaf__path_join(path, r->folder, d->image));
    if (*path == NULL)
        return sheaf__no_memory("data set");
    const sheaf_path_kind kind = sheaf__path_kind(*path);
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

/* A part of a content that is no text: the image. */
static sheaf_status *take_part(void *self, const sheaf__text_record *r, const json_t *part,
                               const char *type, const char *name)
{
    char inner[NAME + 24];
    draft *d = self;
    snprintf(inner, sizeof inner, "%s.%.16s", name, type);
    if (strcmp(type, "image_url") != 0 && strcmp(type, "image") != 0)
        return sheaf__bad_field(name, "a part of type text, image_url or image", "type '%.40s'",
                                type);
    if (r->messages > 0)
        return sheaf__bad_field(name, "images in the first message of the user only", "one here");
    const json_t *image = json_object_get(part, type);
    if (image == NULL) /* {"type": "image", "path" or "url": ...} */
        image = json_object_get(part, json_object_get(part, "path") != NULL ? "path" : "url");
    if (json_is_object(image))
        image = json_object_get(image, json_object_get(image, "path") != NULL ? "path" : "url");
    if (image != NULL && !json_is_null(image))
        return take_image(d, image, inner);
    if (!d->field)
        return sheaf__bad_field(
            inner, "the path of an image, here or in a field \"images\" beside the messages", "%s",
            sheaf__text_kind(image));
    if (d->placed)
        return sheaf__bad_field(inner, ONE_IMAGE, "more than one image");
    d->placed = true;
    return NULL;
}

static sheaf_status *refuse_system(const json_t *list, const sheaf__text_words *w, const char *name)
{
    char field[NAME], expected[160];
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *given = json_string_value(json_object_get(json_array_get(list, i), w->role));
        const char *role = given == NULL ? NULL : sheaf__text_role(given);
        if (role == NULL || role[0] != 's')
            continue;
        snprintf(expected, sizeof expected,
                 "%s and %s only: CogVLM's templates have no place for other text", w->user,
                 w->assistant);
        return sheaf__bad_field(called(field, "%s[%zu].%s", name, i, w->role), expected, "'%.40s'",
                                given);
    }
    return NULL;
}

/* Messages in turn, the user first: text_messages.c sees to that. */
static sheaf_status *take_turns(draft *d, const char *name)
{
    const sheaf__text_record *r = &d->text;
    sheaf_status *st = make_turns(d, (r->messages + 1) / 2);
    for (int64_t i = 0; i < r->messages && st == NULL; i++) {
        sheaf__turn *turn = &d->turn[i / 2];
        const char *text = r->message[i].content;
        *(i % 2 == 0 ? &turn->query : &turn->answer) = text;
        if (strlen(text) != r->message[i].size)
            st = sheaf__bad_field(name, "text without NUL (\\u0000)", "one in entry %" PRId64,
                                  i + 1);
    }
    return st;
}

static sheaf_status *take_list(json_reader *r, draft *d, const json_t *list,
                               const sheaf__text_words *w, const char *name)
{
    d->text = (sheaf__text_record){ .pictures = true, .part = take_part, .part_self = d };
    sheaf_status *st = refuse_system(list, w, name);
    TRY(st, sheaf__text_list(&d->text, list, w, name));
    if (st == NULL && d->text.messages % 2 == 1 && !r->in->options->answers_optional)
        st = sheaf__bad_field(name, "an answer at the end, to be trained",
                              "%" PRId64 " entries, the last is the user's", d->text.messages);
    return st == NULL ? take_turns(d, name) : st;
}

static sheaf_status *empty_answer(const char *name, const char *text)
{
    return sheaf__bad_field(name, "an answer",
                            *text == '\0' ? "an empty string" : "nothing but blanks");
}

/* ---- the mark of the image ---- */

static sheaf_status *no_image(const json_t *record)
{
    static const char expected[] = "the path of the image that the text marks by <image>";
    const char *meant = sheaf__talk_pictures_meant(record);
    sheaf_status *st =
        meant == NULL
            ? sheaf__bad_field("image", expected, "no such field")
            : sheaf__bad_field("image", expected, "a field '%.60s', which is not read", meant);
    return sheaf_try_this(st, "\"image\": PATH in the record, or a text without <image>");
}

/* In every form, as in generate and chat: a name of a picture in a user's text is never text. */
static sheaf_status *take_mark(draft *d, const sheaf__text_words *w, const char *list,
                               const json_t *record)
{
    char name[NAME] = "prompt";
    int64_t marks = 0, where = 0;
    for (int64_t i = 0; i < d->turns; i++) {
        const int64_t n = sheaf__picture_names(d->turn[i].query);
        where = n > 0 ? i : where;
        marks += n;
    }
    if (marks == 0)
        return NULL;
    if (w != NULL)
        called(name, "%s[%" PRId64 "].%s", list, 2 * where, w->content);
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

static sheaf_status *take_pair(json_reader *r, draft *d, const json_t *record)
{
    const bool optional = r->in->options->answers_optional;
    const json_t *completion = json_object_get(record, "completion"),
                 *answer = json_object_get(record, "answer");
    if (completion != NULL && answer != NULL)
        return sheaf__bad_field("answer", "either \"completion\" or \"answer\"", "both");
    const char *name = completion != NULL ? "completion" : "answer";
    const json_t *given = completion != NULL ? completion : answer;
    sheaf_status *st = make_turns(d, 1);
    TRY(st, take_string(&d->turn->query, json_object_get(record, "prompt"), "prompt"));
    if (st != NULL || (optional && (given == NULL || json_is_null(given))))
        return st;
    st = take_string(&d->turn->answer, given, name);
    if (st != NULL || !sheaf__text_blank(d->turn->answer, strlen(d->turn->answer)))
        return st;
    if (!optional)
        return empty_answer(name, d->turn->answer);
    d->turn->answer = NULL;
    return NULL;
}

static const char *const known[] = { "prompt",   "conversations", "messages",
                                     "captions", "completion",    "answer",
                                     "image",    "images",        "id" };
enum { FORMS = 4 };

/* What is said of an image and answers no question: --query is the question. */
static sheaf_status *take_caption(json_reader *r, draft *d, const json_t *list)
{
    const json_t *one = json_array_get(list, 0);
    const char *query = r->in->options->query;
    if (json_array_size(list) != 1)
        return sheaf__bad_field("captions", "a list of one caption", "%s of %zu",
                                sheaf__text_kind(list), json_array_size(list));
    if (query == NULL)
        return sheaf_try_this(
            sheaf__bad_field("captions", "a question beside it, that captions answer", "none"),
            "--query 'Describe the image.', which all of them are answers to");
    sheaf_status *st = make_turns(d, 1);
    TRY(st, take_string(&d->turn->answer, json_object_get(one, "content"), "captions[0].content"));
    if (st == NULL)
        d->turn->query = query;
    if (st == NULL && sheaf__text_blank(d->turn->answer, strlen(d->turn->answer)))
        st = empty_answer("captions[0].content", d->turn->answer);
    return st;
}

static void note_other_fields(json_reader *r, json_t *record)
{
    const char *key = sheaf__text_other_field(record, known, sizeof known / sizeof *known);
    if (r->ignored_place == 0 && *key != '\0') {
        snprintf(r->ignored, sizeof r->ignored, "%s", key);
        r->ignored_place = r->place;
    }
    if (r->spelled_place == 0 && sheaf__talk_pictures_spelled(record))
        r->spelled_place = r->place;
}

static sheaf_status *fill(json_reader *r, draft *d, const json_t *record)
{
    static const char forms[] =
        "an object with \"prompt\" and \"completion\", with \"conversations\", or with \"messages\"";
    if (!json_is_object(record))
        return sheaf__bad_field(NULL, forms, "%s", sheaf__text_kind(record));
    sheaf_status *st = r->in->options->answers_optional ? NULL : sheaf__text_preference(record);
    if (st != NULL)
        return st;
    int given = 0, which = -1;
    for (int i = 0; i < FORMS; i++)
        if (json_object_get(record, known[i]) != NULL) {
            given++;
            which = i;
        }
    if (given != 1)
        return sheaf__bad_field(NULL, forms, given == 0 ? "none of them" : "more than one of them");
    st = take_image_field(d, record, "image");
    TRY(st, take_image_field(d, record, "images"));
    if (st != NULL)
        return st;
    if (which == 0 || which == FORMS - 1) {
        st = which == 0 ? take_pair(r, d, record)
                        : take_caption(r, d, json_object_get(record, "captions"));
        return st == NULL ? take_mark(d, NULL, NULL, record) : st;
    }
    const json_t *list = json_object_get(record, known[which]);
    const sheaf__text_words *w = sheaf__text_words_of(
        list, strcmp(known[which], "messages") == 0 ? &sheaf__text_openai : &sheaf__text_sharegpt);
    st = take_list(r, d, list, w, known[which]);
    return st == NULL ? take_mark(d, w, known[which], record) : st;
}

static sheaf_status *take_record(json_reader *r, json_t *record)
{
    draft d = { 0 };
    char *image = NULL;
    sheaf_status *st = fill(r, &d, record);
    TRY(st, check_image(&image, r, &d));
    if (st == NULL) {
        note_other_fields(r, record);
        st = sheaf__records_put(r->in->out, r->place, image, d.turn, d.turns);
    }
    free(image);
    release(&d);
    return st;
}

/* The text of one record: what is wrong with it is a complaint, other failures end the reading. */
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
    sheaf__json_items_close(&items);
    free(r.folder);
    if (st == NULL && r.ignored_place != 0)
        sheaf_warn(in->options->events, "%s: %s %" PRId64 ": field '%s' is not used", in->path,
                   in->out->unit, r.ignored_place, r.ignored);
    if (st == NULL && r.spelled_place != 0)
        sheaf_warn(in->options->events, "%s: %s %" PRId64 ": %s", in->path, in->out->unit,
                   r.spelled_place, SHEAF__PICTURE_IS_TEXT);
    return st;
}

/* The path of the label comes before what is wrong with it. */
sheaf_status *sheaf__records_take_label(sheaf__records_reader *in, const char *image,
                                        const char *label)
{
    json_reader r = { .in = in };
    draft d = { .images = 1, .image = image, .field = true };
    json_t *record = NULL;
    char *text = NULL;
    size_t size = 0;
    in->out->looked_at++;
    sheaf_status *st = sheaf__file_read_all(&text, &size, label, MOST_LABEL);
    TRY(st, sheaf_in(sheaf__record_parse(&record, text, size, &in->fields), "%s", label));
    TRY(st, sheaf_in(fill(&r, &d, record), "%s", label));
    TRY(st, sheaf__records_put(in->out, 0, image, d.turn, d.turns));
    if (st == NULL && !in->told) {
        note_other_fields(&r, record);
        in->told = r.ignored[0] != '\0' || r.spelled_place != 0;
        if (r.ignored[0] != '\0')
            sheaf_warn(in->options->events, "%s: field '%s' is not used", label, r.ignored);
    }
    release(&d);
    json_decref(record);
    free(text);
    if (st == NULL || sheaf_status_code(st) == SHEAF_E_MEMORY)
        return st;
    sheaf__complain(in->complaints, st);
    return NULL;
}
