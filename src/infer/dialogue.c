/* dialogue.c - see dialogue.h. */
#include "infer/dialogue.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/base.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_write.h"
#include "data/complaints.h"
#include "data/json_items.h"
#include "data/text_record.h"
#include "infer/prompts.h"
#include "schema/family.h"

static int64_t systems(const sheaf__dialogue *d)
{
    return d->count > 0 && strcmp(d->message[0].role, SHEAF__SYSTEM) == 0;
}

static void forget(sheaf__dialogue *d, int64_t from)
{
    for (int64_t i = from; i < d->count; i++)
        free((char *)d->message[i].content);
    d->count = d->count < from ? d->count : from;
}

/* ---- the picture ---- */

/* Makes *path absolute (malloc'd), as the process may change its folder. */
static sheaf_status *whole_path(char **path)
{
    char *whole = NULL;
    if (sheaf__image_is_data(*path))
        return NULL;
    sheaf_status *st = sheaf__path_absolute(&whole, *path);
    if (st != NULL)
        return st;
    free(*path);
    *path = whole;
    return NULL;
}

static sheaf_status *load_picture(sheaf__picture **out, const sheaf_config *config,
                                  const char *path)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    sheaf__picture *picture = sheaf__picture_room_like(NULL, 1, tower, towers);
    sheaf_status *st =
        picture == NULL ? sheaf__no_memory(path) : sheaf__prompts_picture(picture, path);
    if (st == NULL)
        *out = picture;
    else
        free(picture);
    return st;
}

/* The pieces of all pictures with their pixels; those of the last `fresh` ones are read from files.
 */
static sheaf_status *read_pieces(sheaf__dialogue *d, int64_t fresh, const sheaf__viewing *viewing)
{
    const sheaf__record_pictures *all = &d->shown;
    sheaf__picture *like = NULL;
    int64_t n = 0;
    sheaf_status *st = sheaf__prompts_pieces(&like, &n, all->viewed, all->count);
    if (st != NULL)
        return st;
    sheaf__picture *room = sheaf__picture_room_like(like, n, viewing->tower, 1);
    free(like);
    if (room == NULL)
        return sheaf__no_memory("pictures");
    for (int64_t i = 0; i < d->pieces; i++)
        memcpy(room[i].of[0].pixels, d->picture[i].of[0].pixels,
               (size_t)sheaf__view_numbers(&room[i].of[0], viewing->tower) * sizeof(float));
    sheaf__picture *next = room + d->pieces;
    for (int64_t i = all->count - fresh; i < all->count && st == NULL; i++) {
        st = sheaf__view_pixels(next, &all->viewed[i], viewing);
        next += sheaf__sliced_count(&all->viewed[i].pieces);
    }
    if (st != NULL) {
        free(room);
        return st;
    }
    free(d->picture);
    d->picture = room;
    d->pieces = n;
    return NULL;
}

static sheaf_status *add_look(sheaf__dialogue *d, const char *path, int64_t number)
{
    sheaf__viewing viewing;
    sheaf__viewing_of(&viewing, d->codec->config);
    sheaf_status *st = sheaf__record_pictures_add(&d->shown, "<image>", path, &viewing);
    if (st != NULL)
        return st;
    st = whole_path(&d->shown.viewed[d->shown.count - 1].path);
    TRY(st, read_pieces(d, 1, &viewing));
    if (st != NULL) {
        sheaf__viewed_release(&d->shown.viewed[--d->shown.count]);
        return st;
    }
    d->waiting++;
    d->look = number;
    return NULL;
}

/* For a model that reads one: in place of the picture and the conversation. */
static sheaf_status *look_anew(sheaf__dialogue *d, const char *path, int64_t number)
{
    sheaf__dialogue next = { .codec = d->codec };
    sheaf_status *st = add_look(&next, path, number);
    if (st != NULL) {
        sheaf__dialogue_release(&next);
        return st;
    }
    forget(d, systems(d));
    free(d->picture);
    sheaf__record_pictures_release(&d->shown);
    d->picture = next.picture;
    d->shown = next.shown;
    d->pieces = next.pieces;
    d->waiting = next.waiting;
    d->look = next.look;
    return NULL;
}

/* The number of pictures that wait; for a model that reads one picture, whether it has one. */
static sheaf_status *take_back(sheaf__dialogue *d, int64_t number)
{
    sheaf__record_pictures *p = &d->shown;
    if (d->codec->placed ? d->waiting == 0 : d->picture == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "no picture"),
                                          "one that could be taken back%s",
                                          d->codec->placed ? ": that no question has shown" : ""),
                           "none");
    if (!d->codec->placed)
        sheaf__dialogue_reset(d);
    for (; d->waiting > 0; d->waiting--) {
        d->pieces -= sheaf__sliced_count(&p->viewed[p->count - 1].pieces);
        sheaf__viewed_release(&p->viewed[--p->count]);
    }
    if (p->count == 0) {
        free(d->picture);
        d->picture = NULL;
    }
    free(d->image);
    d->image = NULL;
    d->look = number;
    return NULL;
}

sheaf_status *sheaf__dialogue_picture(sheaf__dialogue *d, const char *path, int64_t number)
{
    const sheaf_config *config = d->codec->config;
    sheaf__picture *picture = NULL;
    char *image = NULL;
    if (path == NULL)
        return take_back(d, number);
    if (d->codec->placed)
        return sheaf__family_for(config)->image.most == 1 ? look_anew(d, path, number)
                                                          : add_look(d, path, number);
    if (!d->codec->images)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                                          "no image: %s has no vision tower",
                                          sheaf_family_name(config->family)),
                           "one");
    sheaf_status *st = sheaf__path_absolute(&image, path);
    TRY(st, load_picture(&picture, config, path));
    if (st != NULL) {
        free(image);
        return st;
    }
    sheaf__dialogue_reset(d);
    free(d->picture);
    free(d->image);
    d->picture = picture;
    d->image = image;
    d->look = number;
    return NULL;
}

/* ---- the conversation ---- */

void sheaf__dialogue_reset(sheaf__dialogue *d)
{
    forget(d, systems(d));
    d->waiting = d->shown.count;
}

void sheaf__dialogue_release(sheaf__dialogue *d)
{
    forget(d, 0);
    free(d->message);
    free(d->picture);
    sheaf__record_pictures_release(&d->shown);
    free(d->image);
    free(d->file);
    *d = (sheaf__dialogue){ .codec = d->codec };
}

/* `role` is one of the constants. */
static sheaf_status *add(sheaf__dialogue *d, const char *role, const char *content)
{
    char *own = strdup(content);
    if (own == NULL || !SHEAF_GROW(&d->message, NULL, d->count + 1)) {
        free(own);
        return sheaf__no_memory("conversation");
    }
    d->message[d->count++] = (sheaf__message){ role, own, strlen(own) };
    return NULL;
}

sheaf_status *sheaf__dialogue_system(sheaf__dialogue *d, const char *text)
{
    sheaf_status *st = text == NULL || text[0] == '\0' ? NULL : sheaf__codec_check_system(d->codec);
    if (st != NULL)
        return st;
    forget(d, 0);
    d->waiting = d->shown.count;
    return text == NULL || text[0] == '\0' ? NULL : add(d, SHEAF__SYSTEM, text);
}

/* The pictures that wait, groups of frames, and (video) videos. */
static int64_t waiting(const sheaf__dialogue *d, bool video)
{
    int64_t n = 0;
    for (int64_t i = d->shown.count - d->waiting; i < d->shown.count; i++)
        n += d->shown.shown[i].name != NULL && sheaf__shows_video(&d->shown.shown[i]) == video;
    return n;
}

static sheaf_status *other_marks(const sheaf__dialogue *d, int64_t marks)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "question");
    if (d->waiting == 0)
        sheaf_expected(st, "no '%s', as no picture waits for a question", SHEAF__PICTURE_HERE);
    else
        sheaf_expected(st,
                       "'%s' for each picture that waits for a question (%" PRId64
                       "), or nowhere: then they stand in front",
                       SHEAF__PICTURE_HERE, waiting(d, false));
    sheaf_found(st, "%" PRId64 " of them", marks);
    return marks > waiting(d, false)
               ? sheaf_try_this(st, "one more picture (/image FILE in sheaf chat)")
               : st;
}

/* A question with the pictures that wait in front of it, unless it has their names. */
static sheaf_status *with_pictures(char **out, const sheaf__dialogue *d, const char *query)
{
    sheaf_text text = { 0 };
    const int64_t marks = d->codec->placed ? sheaf__text_count(query, SHEAF__PICTURE_HERE) : 0;
    const int64_t videos = d->codec->placed ? sheaf__text_count(query, SHEAF__VIDEO_HERE) : 0;
    const bool named = marks > 0 || (videos > 0 && waiting(d, true) > 0);
    if (marks > 0 && marks != waiting(d, false))
        return other_marks(d, marks);
    for (int64_t i = d->shown.count - d->waiting; i < d->shown.count && !named; i++)
        if (d->shown.shown[i].name != NULL)
            sheaf__text_add(&text, "%s%s", d->shown.shown[i].name,
                            d->codec->chat_encoder.form.joined ? "" : "\n");
    sheaf__text_add(&text, "%s", query);
    return sheaf__text_take(out, &text);
}

static sheaf_status *put_question(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                  const sheaf__message *message, int64_t n)
{
    if (!d->codec->placed)
        return sheaf__codec_messages(out, block, d->codec, message, n, d->picture != NULL);
    int64_t *order = malloc(((size_t)d->shown.count + 1) * sizeof *order);
    sheaf_status *st = order == NULL ? sheaf__no_memory("conversation")
                                     : sheaf__codec_messages_with_pictures(
                                           out, block, order, d->codec, message, n, &d->shown);
    free(order);
    return st;
}

sheaf_status *sheaf__dialogue_ask(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                  const char *query)
{
    const int64_t first = systems(d),
                  before = sheaf__codec_keeps_turns(d->codec) ? d->count : first;
    char *question = NULL;
    sheaf_status *st = with_pictures(&question, d, query);
    sheaf__message *message = st == NULL ? malloc((size_t)(before + 1) * sizeof *message) : NULL;
    if (message == NULL) {
        free(question);
        return st != NULL ? st : sheaf__no_memory("conversation");
    }
    if (before > 0)
        memcpy(message, d->message, (size_t)before * sizeof *message);
    message[before] = (sheaf__message){ SHEAF__USER, question, strlen(question) };
    st = put_question(out, block, d, message, before + 1);
    if (st == NULL) {
        out->picture = d->picture;
        out->pictures = d->codec->placed ? d->pieces : d->picture != NULL;
        out->look = d->picture != NULL ? d->look : 0;
    }
    free(question);
    free(message);
    return st;
}

sheaf_status *sheaf__dialogue_ask_alone(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                        const char *query)
{
    sheaf__dialogue fresh = *d; /* owns nothing */
    char *question = NULL;
    sheaf_status *st = with_pictures(&question, d, query);
    free(question);
    fresh.count = systems(d);
    fresh.waiting = d->shown.count;
    return st == NULL ? sheaf__dialogue_ask(out, block, &fresh, query) : st;
}

sheaf_status *sheaf__dialogue_add_turn(sheaf__dialogue *d, const char *query, const char *answer)
{
    const int64_t before = d->count;
    char *question = NULL;
    sheaf_status *st = with_pictures(&question, d, query);
    TRY(st, add(d, SHEAF__USER, question));
    TRY(st, add(d, SHEAF__ASSISTANT, answer));
    if (st != NULL)
        forget(d, before);
    else
        d->waiting = 0;
    free(question);
    return st;
}

/* ---- writing the file ---- */

/* A picture's path relative to the file's folder. */
static sheaf_status *put_path(sheaf_json_writer *j, const char *key, const char *folder,
                              const char *path)
{
    char *name = NULL;
    if (!sheaf__is_utf8(path))
        return sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                              "a path in UTF-8: JSON has no others");
    sheaf_status *st =
        sheaf__image_is_data(path) ? NULL : sheaf__path_relative(&name, folder, path);
    if (st == NULL)
        sheaf__json_put_text(j, key, name == NULL ? path : name);
    free(name);
    return st;
}

/* temporal_ids of pictures [from, n). */
static void put_frames(sheaf_json_writer *j, const sheaf__record_pictures *p, int64_t from,
                       int64_t n)
{
    sheaf__json_open(j, "temporal_ids", '[');
    for (int64_t i = from; i < n; i++) {
        if (!p->viewed[i].joins)
            sheaf__json_open(j, NULL, '[');
        sheaf__json_put_int(j, NULL, p->viewed[i].frame - 1);
        if (i + 1 == n || !p->viewed[i + 1].joins)
            sheaf__json_close(j, ']');
    }
    sheaf__json_close(j, ']');
}

/* The picture behind the last of the video that begins with picture i. */
static int64_t behind(const sheaf__record_pictures *p, int64_t i, int64_t n)
{
    do
        i++;
    while (i < n && (p->shown[i].joins || p->shown[i].follows));
    return i;
}

static sheaf_status *put_video(sheaf_json_writer *j, const sheaf__dialogue *d, const char *folder,
                               int64_t from, int64_t end)
{
    const sheaf__record_pictures *p = &d->shown;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    sheaf__towers_of(tower, d->codec->config);
    sheaf_status *st = NULL;
    sheaf__json_open(j, NULL, '{');
    sheaf__json_open(j, "frames", '[');
    for (int64_t i = from; i < end; i++)
        TRY(st, put_path(j, NULL, folder, p->viewed[i].path));
    sheaf__json_close(j, ']');
    if (tower[0].frames > 0 && tower[0].repeats == 0) {
        put_frames(j, p, from, end);
    } else if (p->viewed[from].fps > 0) {
        sheaf__json_put_real(j, "fps", p->viewed[from].fps);
    } else {
        sheaf__json_open(j, "times", '[');
        for (int64_t i = from; i < end; i++)
            sheaf__json_put_real(j, NULL, p->viewed[i].second);
        sheaf__json_close(j, ']');
    }
    sheaf__json_close(j, '}');
    return st;
}

/* Pictures, or videos, of the first n. */
static sheaf_status *put_shown(sheaf_json_writer *j, const sheaf__dialogue *d, const char *folder,
                               int64_t n, bool video)
{
    const sheaf__record_pictures *p = &d->shown;
    bool opened = false;
    sheaf_status *st = NULL;
    for (int64_t i = 0, end; i < n && st == NULL; i = end) {
        const bool is = sheaf__shows_video(&p->shown[i]);
        end = is ? behind(p, i, n) : i + 1;
        if (is != video)
            continue;
        if (!opened)
            sheaf__json_open(j, video ? "videos" : "images", '[');
        opened = true;
        st = video ? put_video(j, d, folder, i, end) : put_path(j, NULL, folder, p->viewed[i].path);
    }
    if (opened)
        sheaf__json_close(j, ']');
    return st;
}

/* Pictures that wait belong to no question yet. */
static sheaf_status *write_down(char **out, const sheaf__dialogue *d, const char *file)
{
    sheaf_json_writer j = { 0 };
    char *folder = NULL;
    const int64_t shown = d->shown.count - d->waiting;
    sheaf_status *st = sheaf__path_parent(&folder, file);
    TRY(st, whole_path(&folder));
    sheaf__json_begin(&j);
    sheaf__json_open(&j, "messages", '[');
    for (int64_t i = 0; i < d->count; i++)
        sheaf__json_put(&j, "{ role:s content:s }", d->message[i].role, d->message[i].content);
    sheaf__json_close(&j, ']');
    bool frames = false; /* in the list of pictures */
    for (int64_t i = 0; i < shown; i++)
        frames = frames || (d->shown.viewed[i].frame > 0 && d->shown.shown[i].name != NULL &&
                            !sheaf__shows_video(&d->shown.shown[i]));
    for (int video = 0; video < 2; video++)
        TRY(st, put_shown(&j, d, folder, shown, video != 0));
    if (frames)
        put_frames(&j, &d->shown, 0, shown);
    if (d->image != NULL)
        TRY(st, put_path(&j, "image", folder, d->image));
    sheaf__json_end(&j);
    sheaf__text_add(&j.text, "\n");
    TRY(st, sheaf__text_take(out, &j.text));
    sheaf__text_release(&j.text);
    free(folder);
    return st;
}

static sheaf_status *hash_of(sheaf_hash *out, const char *path)
{
    char *text = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__file_read_all(&text, &size, path, (size_t)1 << 30);
    if (st == NULL)
        *out = sheaf__hash(text, size);
    free(text);
    return st;
}

/* Another chat may use the same file: its save must not be overwritten. */
static sheaf_status *check_own(const sheaf__dialogue *d, const char *path)
{
    sheaf_hash now;
    sheaf_status *st = hash_of(&now, path);
    if (st != NULL || sheaf__hash_equal(now, d->held))
        return st;
    st = sheaf_fail(SHEAF_E_DATA, "%s", path);
    sheaf_expected(st, "the file that this conversation saved, or was loaded from");
    sheaf_found(st, "something that another one wrote meanwhile");
    return sheaf_try_this(st, "another name");
}

static sheaf_status *save(sheaf__dialogue *d, const char *path)
{
    char *text = NULL, *own = strdup(path);
    sheaf_status *st = own == NULL ? sheaf__no_memory(path) : NULL;
    if (st == NULL && (d->file == NULL || strcmp(d->file, path) != 0) &&
        sheaf__path_kind(path) != SHEAF_PATH_NONE)
        st = sheaf_try_this(
            sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                               "a file that does not exist, or the one of this conversation"),
                "something there already"),
            "another name");
    else if (st == NULL && sheaf__path_kind(path) != SHEAF_PATH_NONE)
        st = check_own(d, path);
    if (st == NULL && d->count == 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path), "something to save"),
                         "the conversation is empty");
    TRY(st, write_down(&text, d, path));
    TRY(st, sheaf__file_write_whole(path, text, strlen(text)));
    const sheaf_hash held = sheaf__hash(text == NULL ? "" : text, text == NULL ? 0 : strlen(text));
    free(text);
    if (st == NULL) {
        free(d->file);
        d->file = own;
        d->held = held;
    } else {
        free(own);
    }
    return st;
}

/* The folder is locked between the check of the old file and the rename of the new one. */
sheaf_status *sheaf__dialogue_save(sheaf__dialogue *d, const char *path)
{
    enum { MOST_MS = 5000 };
    char *dir = NULL;
    sheaf_status *st = sheaf__path_parent(&dir, path);
    const int lock = st == NULL ? open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    if (lock >= 0)
        sheaf__file_lock(lock, MOST_MS); /* without a lock where the file system has none */
    TRY(st, save(d, path));
    if (lock >= 0)
        close(lock);
    free(dir);
    return st;
}

/* ---- reading the file ---- */

/* The picture of a model that reads one, by its path relative to the file. */
static sheaf_status *look_at_one(sheaf__dialogue *d, const json_t *record, const char *file,
                                 int64_t number)
{
    const json_t *one = json_object_get(record, "image"), *many = json_object_get(record, "images"),
                 *image = one == NULL ? many : one;
    char shown[96], folder[SHEAF_PATH_SIZE], path[SHEAF_PATH_SIZE];
    if (one != NULL && many != NULL)
        return sheaf__bad_field("images", "either \"image\" or \"images\"", "both in one record");
    if (json_is_array(image) && json_array_size(image) < 2)
        image = json_array_get(image, 0);
    const char *name = json_string_value(image), *field = one == NULL ? "images" : "image";
    if (image == NULL || json_is_null(image) || (name != NULL && name[0] == '\0'))
        return NULL;
    if (name == NULL || strlen(name) != json_string_length(image))
        return sheaf__bad_field(field, "a path: this model reads one picture", "%s",
                                sheaf__json_show(shown, image));
    if (name[0] != '/')
        name = sheaf__path_in(path, sheaf__path_above(folder, file), name);
    return sheaf__dialogue_picture(d, name, number);
}

static sheaf_status *read_pictures(sheaf__dialogue *d, const json_t *record, const char *file,
                                   const sheaf__viewing *viewing)
{
    char *folder = NULL;
    sheaf_status *st = sheaf__path_parent(&folder, file);
    TRY(st, sheaf__record_pictures_read(&d->shown, record, folder, viewing));
    for (int64_t i = 0; i < d->shown.count && st == NULL; i++)
        st = whole_path(&d->shown.viewed[i].path);
    free(folder);
    return st;
}

/* In the order of the text, where all pictures are "<image>". */
static sheaf_status *put_in_order(sheaf__record_pictures *p, const int64_t *order,
                                  const sheaf__viewing *viewing)
{
    const size_t room = (size_t)p->count + 1;
    sheaf__viewed *viewed = malloc(room * sizeof *viewed);
    sheaf__chat_picture *shown = malloc(room * sizeof *shown);
    for (int64_t i = 0; i < p->count && viewed != NULL && shown != NULL; i++) {
        viewed[i] = p->viewed[order[i]];
        const sheaf__chat_picture *old = &p->shown[order[i]];
        const bool video = sheaf__shows_video(old);
        shown[i] = sheaf__picture_shown(&viewed[i], SHEAF__PICTURE_HERE, viewing);
        shown[i].frame |= video || old->follows;
        shown[i].follows = old->follows;
        shown[i].second = old->second;
        shown[i].name = video ? SHEAF__VIDEO_HERE : old->name == NULL ? NULL : shown[i].name;
    }
    if (viewed == NULL || shown == NULL) {
        free(viewed);
        free(shown);
        return sheaf__no_memory("conversation");
    }
    free(p->viewed);
    free(p->shown);
    p->viewed = viewed;
    p->shown = shown;
    p->own_names = false;
    p->unread = NULL; /* it belongs to the record, which is freed */
    return NULL;
}

/* Writes "<image>" in place of each picture's name, "<video>" in that of a video; in front of the
 * first question if there are no names. */
static sheaf_status *place_pictures(sheaf__dialogue *d, const sheaf__viewing *viewing)
{
    const sheaf__picture_form form = { .joined = viewing->form.joined,
                                       .video.together = true,
                                       .mark = { [SHEAF__MARK_ROW].token = SHEAF__PICTURE_HERE,
                                                 [SHEAF__MARK_FRAME].token = SHEAF__VIDEO_HERE } };
    sheaf__placed placed;
    sheaf__record_pictures_from(&d->shown, d->message, d->count);
    for (int64_t i = 0; i < d->shown.count; i++) { /* names only, not yet placeholders */
        sheaf__chat_picture *shown = &d->shown.shown[i];
        shown->columns = 0;
        shown->gives = !shown->follows;
        shown->frame = sheaf__shows_video(shown);
    }
    sheaf_status *st =
        sheaf__record_pictures_place(&placed, &form, d->message, d->count, &d->shown, false);
    if (st != NULL)
        sheaf_try_this(st,
                       "in users' messages the name of each picture once (\"%s\", or its own, "
                       "\"<image_00>\"), or no name at all",
                       SHEAF__PICTURE_HERE);
    else
        st = put_in_order(&d->shown, placed.order, viewing);
    for (int64_t i = 0; i < d->count && st == NULL; i++) {
        if (placed.owned[i] == NULL)
            continue;
        free((char *)d->message[i].content);
        d->message[i] = placed.message[i];
        placed.owned[i] = NULL;
    }
    sheaf__placed_release(&placed);
    return st;
}

static sheaf_status *load_all(sheaf__dialogue *d, const sheaf__text_record *m, const char *file,
                              int64_t number)
{
    const bool placed = d->codec->placed, system = strcmp(m->message[0].role, SHEAF__SYSTEM) == 0;
    sheaf__viewing viewing;
    sheaf_status *st = system ? sheaf__codec_check_system(d->codec) : NULL;
    if (placed)
        sheaf__viewing_of(&viewing, d->codec->config);
    TRY(st,
        placed ? read_pictures(d, m->json, file, &viewing) : look_at_one(d, m->json, file, number));
    for (int64_t i = 0; i < m->messages && st == NULL; i++)
        st = add(d,
                 i < system              ? SHEAF__SYSTEM
                 : (i - system) % 2 == 0 ? SHEAF__USER
                                         : SHEAF__ASSISTANT,
                 m->message[i].content);
    if (st != NULL || !placed)
        return st;
    d->look = number;
    st = place_pictures(d, &viewing);
    return st == NULL && d->shown.count > 0 ? read_pieces(d, d->shown.count, &viewing) : st;
}

sheaf_status *sheaf__dialogue_load(sheaf__dialogue *d, const char *path, int64_t number)
{
    sheaf__dialogue loaded = { .codec = d->codec };
    sheaf__text_record m = { 0 };
    sheaf__message *message = NULL;
    json_t *record = NULL;
    sheaf_status *st = hash_of(&loaded.held, path);
    TRY(st, sheaf__json_load(&record, path));
    if (st != NULL)
        return st;
    sheaf__record_tidy(record);
    st = sheaf__text_record_list(&m, record,
                                 d->codec->placed
                                     ? sheaf__picture_parts_of(&d->codec->chat_encoder.form)
                                     : SHEAF__PARTS_BESIDE,
                                 false);
    if (st == NULL && (message = malloc((size_t)m.messages * sizeof *message)) == NULL)
        st = sheaf__no_memory("conversation");
    if (st == NULL) {
        sheaf__text_chat_messages(message, &m);
        st = sheaf__codec_check_turns(message, m.messages);
    }
    if (st == NULL && strcmp(message[m.messages - 1].role, SHEAF__USER) == 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "message %" PRId64, m.messages),
                            "an answer after the last question");
    TRY(st, load_all(&loaded, &m, path, number));
    if (st == NULL && (loaded.file = strdup(path)) == NULL)
        st = sheaf__no_memory("conversation");
    free(message);
    sheaf__text_record_release(&m);
    json_decref(record);
    if (st != NULL) {
        sheaf__dialogue_release(&loaded);
        return sheaf_in(st, "%s", path);
    }
    sheaf__dialogue_release(d);
    *d = loaded;
    return NULL;
}
