/* dialogue.c - see dialogue.h. */
#include "infer/dialogue.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/array.h"
#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "inputs/chat/messages.h"
#include "infer/prompts.h"
#include "schema/family.h"

/* ---- the picture ---- */

static sheaf_status *load_picture(sheaf__picture **out, const sheaf_config *config,
                                  const char *path)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    sheaf__picture *picture = sheaf__picture_room(1, tower, towers);
    sheaf_status *st = picture == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s", path)
                                       : sheaf__prompts_picture(picture, path);
    if (st == NULL)
        *out = picture;
    else
        free(picture);
    return st;
}

/* The pieces of all pictures, with their pixels. */
static sheaf_status *load_pieces(sheaf__picture **out, int64_t *n, const sheaf__talk_pictures *all,
                                 const sheaf__viewing *viewing)
{
    sheaf__picture *like = NULL;
    sheaf_status *st = sheaf__prompts_pieces(&like, n, all->viewed, all->count);
    if (st != NULL)
        return st;
    sheaf__picture *next = *out = sheaf__picture_room_like(like, *n, &viewing->tower, 1);
    free(like);
    if (*out == NULL)
        return sheaf_fail(SHEAF_E_MEMORY, "pictures");
    for (int64_t i = 0; i < all->count && st == NULL; i++) {
        st = sheaf__view_pixels(next, &all->viewed[i], viewing);
        next += sheaf__sliced_count(&all->viewed[i].pieces);
    }
    if (st != NULL) {
        free(*out);
        *out = NULL;
    }
    return st;
}

static sheaf_status *add_look(sheaf__dialogue *d, const char *path, int64_t number)
{
    sheaf__viewing viewing;
    sheaf__picture *picture = NULL;
    int64_t pieces = 0;
    sheaf__viewing_of(&viewing, d->wording->config);
    sheaf_status *st = sheaf__talk_pictures_add(&d->shown, path, &viewing);
    if (st != NULL)
        return st;
    st = load_pieces(&picture, &pieces, &d->shown, &viewing);
    if (st != NULL) {
        sheaf__viewed_release(&d->shown.viewed[--d->shown.count]);
        return st;
    }
    free(d->picture);
    d->picture = picture;
    d->pieces = pieces;
    d->waiting++;
    d->look = number;
    return NULL;
}

sheaf_status *sheaf__dialogue_look(sheaf__dialogue *d, const char *path, int64_t number)
{
    const sheaf_config *config = d->wording->config;
    sheaf__picture *picture = NULL;
    if (d->wording->placed)
        return add_look(d, path, number);
    if (!d->wording->images)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                                          "no image: %s has no vision tower",
                                          sheaf_family_name(config->family)),
                           "one");
    char *image = strdup(path);
    sheaf_status *st = image == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s", path)
                                     : load_picture(&picture, config, path);
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

/* ---- what was said ---- */

static int64_t systems(const sheaf__dialogue *d)
{
    return d->count > 0 && strcmp(d->said[0].role, SHEAF__SYSTEM) == 0;
}

static void forget(sheaf__dialogue *d, int64_t from)
{
    for (int64_t i = from; i < d->count; i++)
        free((char *)d->said[i].content);
    d->count = d->count < from ? d->count : from;
}

void sheaf__dialogue_reset(sheaf__dialogue *d)
{
    forget(d, systems(d));
    d->waiting = d->shown.count;
}

void sheaf__dialogue_release(sheaf__dialogue *d)
{
    forget(d, 0);
    free(d->said);
    free(d->picture);
    sheaf__talk_pictures_release(&d->shown);
    free(d->image);
    free(d->file);
    *d = (sheaf__dialogue){ .wording = d->wording };
}

/* `role` is one of the constants. */
static sheaf_status *add(sheaf__dialogue *d, const char *role, const char *content)
{
    char *own = strdup(content);
    if (own == NULL || !SHEAF_GROW(&d->said, NULL, d->count + 1)) {
        free(own);
        return sheaf_fail(SHEAF_E_MEMORY, "conversation");
    }
    d->said[d->count++] = (sheaf__message){ role, own, strlen(own) };
    return NULL;
}

sheaf_status *sheaf__dialogue_system(sheaf__dialogue *d, const char *text)
{
    sheaf_status *st = text == NULL || text[0] == '\0' ? NULL : sheaf__wording_system(d->wording);
    if (st != NULL)
        return st;
    forget(d, 0);
    d->waiting = d->shown.count;
    return text == NULL || text[0] == '\0' ? NULL : add(d, SHEAF__SYSTEM, text);
}

/* A question with the pictures that wait in front, unless it says where they stand. */
static sheaf_status *with_pictures(char **out, const sheaf__dialogue *d, const char *query)
{
    sheaf_text text = { 0 };
    const bool named = strstr(query, "<image>") != NULL;
    for (int64_t i = 0; i < d->waiting && !named; i++)
        sheaf__text_add(&text, "<image>\n");
    sheaf__text_add(&text, "%s", query);
    return sheaf__text_take(out, &text);
}

static sheaf_status *put_question(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                  const sheaf__message *said, int64_t n)
{
    if (!d->wording->placed)
        return sheaf__wording_said(out, block, d->wording, said, n, d->picture != NULL);
    int64_t *order = malloc(((size_t)d->shown.count + 1) * sizeof *order);
    sheaf_status *st = order == NULL ? sheaf_fail(SHEAF_E_MEMORY, "conversation")
                                     : sheaf__wording_shown(out, block, order, d->wording, said, n,
                                                            d->shown.shown, d->shown.count, false);
    free(order);
    return st;
}

sheaf_status *sheaf__dialogue_ask(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                  const char *query)
{
    const int64_t first = systems(d),
                  before = sheaf__wording_remembers(d->wording) ? d->count : first;
    char *question = NULL;
    sheaf_status *st = with_pictures(&question, d, query);
    sheaf__message *said = st == NULL ? malloc((size_t)(before + 1) * sizeof *said) : NULL;
    if (said == NULL) {
        free(question);
        return st != NULL ? st : sheaf_fail(SHEAF_E_MEMORY, "conversation");
    }
    if (before > 0)
        memcpy(said, d->said, (size_t)before * sizeof *said);
    said[before] = (sheaf__message){ SHEAF__USER, question, strlen(question) };
    st = put_question(out, block, d, said, before + 1);
    if (st == NULL) {
        out->picture = d->picture;
        out->pictures = d->wording->placed ? d->pieces : d->picture != NULL;
        out->look = d->picture != NULL ? d->look : 0;
    }
    free(question);
    free(said);
    return st;
}

sheaf_status *sheaf__dialogue_keep(sheaf__dialogue *d, const char *query, const char *answer)
{
    const int64_t before = d->count;
    char *question = NULL;
    sheaf_status *st = with_pictures(&question, d, query);
    if (st == NULL)
        st = add(d, SHEAF__USER, question);
    if (st == NULL)
        st = add(d, SHEAF__ASSISTANT, answer);
    if (st != NULL)
        forget(d, before);
    else
        d->waiting = 0;
    free(question);
    return st;
}

/* ---- as a file ---- */

static sheaf_status *write_down(char **out, const sheaf__dialogue *d)
{
    sheaf_text text = { 0 };
    sheaf__text_add(&text, "{\"messages\": [");
    for (int64_t i = 0; i < d->count; i++) {
        sheaf__text_add(&text, "%s{\"role\": \"%s\", \"content\": ", i == 0 ? "" : ", ",
                        d->said[i].role);
        sheaf__text_json(&text, d->said[i].content);
        sheaf__text_add(&text, "}");
    }
    sheaf__text_add(&text, "]");
    for (int64_t i = 0; i < d->shown.count; i++) {
        sheaf__text_add(&text, "%s", i == 0 ? ", \"images\": [" : ", ");
        sheaf__text_json(&text, d->shown.viewed[i].path);
    }
    sheaf__text_add(&text, "%s", d->shown.count > 0 ? "]" : "");
    if (d->image != NULL) {
        sheaf__text_add(&text, ", \"image\": ");
        sheaf__text_json(&text, d->image);
    }
    sheaf__text_add(&text, "}\n");
    return sheaf__text_take(out, &text);
}

sheaf_status *sheaf__dialogue_save(sheaf__dialogue *d, const char *path)
{
    char *text = NULL, *own = strdup(path);
    sheaf_status *st = own == NULL ? sheaf_fail(SHEAF_E_MEMORY, "%s", path) : NULL;
    if (st == NULL && (d->file == NULL || strcmp(d->file, path) != 0) &&
        sheaf__path_kind(path) != SHEAF_PATH_NONE)
        st = sheaf_try_this(
            sheaf_found(
                sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path),
                               "a file that does not exist, or the one of this conversation"),
                "something there already"),
            "another name");
    if (st == NULL && d->count == 0)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "%s", path), "something to save"),
                         "nothing was said yet");
    if (st == NULL)
        st = write_down(&text, d);
    if (st == NULL)
        st = sheaf__file_write_whole(path, text, strlen(text), NULL);
    free(text);
    if (st == NULL) {
        free(d->file);
        d->file = own;
    } else {
        free(own);
    }
    return st;
}

/* The picture of a file lies where its path says, seen from the file. */
static sheaf_status *look_at(sheaf__dialogue *d, const json_t *image, const char *path,
                             int64_t number)
{
    const char *slash = strrchr(path, '/');
    sheaf_text from = { 0 };
    if (!json_is_string(image) || json_string_length(image) == 0)
        return sheaf_expected(sheaf_fail(SHEAF_E_DATA, "field 'image'"), "a path");
    const char *name = json_string_value(image);
    if (name[0] != '/' && slash != NULL)
        sheaf__text_bytes(&from, path, (size_t)(slash - path) + 1);
    sheaf__text_add(&from, "%s", name);
    sheaf_status *st = from.failed ? sheaf_fail(SHEAF_E_MEMORY, "%s", path)
                                   : sheaf__dialogue_look(d, from.at, number);
    sheaf__text_release(&from);
    return st;
}

static sheaf_status *look_of(sheaf__dialogue *d, const json_t *record, const char *path,
                             int64_t number)
{
    const json_t *image = json_object_get(record, "image"),
                 *images = json_object_get(record, "images");
    sheaf_status *st = NULL;
    if (image != NULL && !json_is_null(image) && !(d->wording->placed && json_is_array(image)))
        return look_at(d, image, path, number);
    images = json_is_array(image) ? image : images;
    for (size_t i = 0; i < json_array_size(images) && st == NULL && d->wording->placed; i++)
        st = look_at(d, json_array_get(images, i), path, number);
    return st;
}

/* Pictures that no question names stand in front of the first. */
static sheaf_status *place_looks(sheaf__dialogue *d)
{
    char *first = NULL;
    bool named = false;
    for (int64_t i = 0; i < d->count; i++)
        named = named || (strcmp(d->said[i].role, SHEAF__USER) == 0 &&
                          strstr(d->said[i].content, "<image>") != NULL);
    sheaf__message *m = d->count > systems(d) ? &d->said[systems(d)] : NULL;
    sheaf_status *st = named || m == NULL ? NULL : with_pictures(&first, d, m->content);
    if (st == NULL && first != NULL) {
        free((char *)m->content);
        m->content = first;
        m->size = strlen(first);
    }
    d->waiting = 0;
    return st;
}

sheaf_status *sheaf__dialogue_load(sheaf__dialogue *d, const char *path, int64_t number)
{
    sheaf__dialogue loaded = { .wording = d->wording };
    sheaf__messages m = { 0 };
    json_t *record = NULL;
    sheaf_status *st = sheaf__json_load(&record, path);
    if (st != NULL)
        return st;
    st = sheaf__messages_read(&m, record);
    if (st == NULL)
        st = sheaf__wording_turns(m.message, m.count);
    if (st == NULL && strcmp(m.message[m.count - 1].role, SHEAF__USER) == 0)
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "message %" PRId64, m.count),
                            "an answer after the last question");
    const bool system = st == NULL && strcmp(m.message[0].role, SHEAF__SYSTEM) == 0;
    if (system)
        st = sheaf__wording_system(d->wording);
    if (st == NULL)
        st = look_of(&loaded, record, path, number);
    for (int64_t i = 0; i < m.count && st == NULL; i++)
        st = add(&loaded,
                 i < system              ? SHEAF__SYSTEM
                 : (i - system) % 2 == 0 ? SHEAF__USER
                                         : SHEAF__ASSISTANT,
                 m.message[i].content);
    if (st == NULL && loaded.waiting > 0)
        st = place_looks(&loaded);
    if (st == NULL && (loaded.file = strdup(path)) == NULL)
        st = sheaf_fail(SHEAF_E_MEMORY, "conversation");
    sheaf__messages_release(&m);
    json_decref(record);
    if (st != NULL) {
        sheaf__dialogue_release(&loaded);
        return sheaf_in(st, "%s", path);
    }
    sheaf__dialogue_release(d);
    *d = loaded;
    return NULL;
}
