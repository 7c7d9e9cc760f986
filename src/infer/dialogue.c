/* dialogue.c - see dialogue.h. */
#include "infer/dialogue.h"

#include "base/base.h"
#include "base/file.h"
#include "infer/prompts.h"
#include "schema/family.h"

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

/* ---- the picture ---- */

sheaf_status *sheaf__dialogue_whole(char **path)
{
    char *whole = NULL;
    sheaf_status *st = sheaf__path_whole(&whole, *path);
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

sheaf_status *sheaf__dialogue_pieces(sheaf__dialogue *d, int64_t fresh,
                                     const sheaf__viewing *viewing)
{
    const sheaf__talk_pictures *all = &d->shown;
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
    sheaf__viewing_of(&viewing, d->wording->config);
    sheaf_status *st = sheaf__talk_pictures_add(&d->shown, path, &viewing);
    if (st != NULL)
        return st;
    st = sheaf__dialogue_whole(&d->shown.viewed[d->shown.count - 1].path);
    TRY(st, sheaf__dialogue_pieces(d, 1, &viewing));
    if (st != NULL) {
        sheaf__viewed_release(&d->shown.viewed[--d->shown.count]);
        return st;
    }
    d->waiting++;
    d->look = number;
    return NULL;
}

/* Pictures that wait; of a model that reads one, that. */
static sheaf_status *take_back(sheaf__dialogue *d, int64_t number)
{
    sheaf__talk_pictures *p = &d->shown;
    if (d->wording->placed ? d->waiting == 0 : d->picture == NULL)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "no picture"),
                                          "one that could be taken back%s",
                                          d->wording->placed ? ": that no question has shown" : ""),
                           "none");
    if (!d->wording->placed)
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

sheaf_status *sheaf__dialogue_look(sheaf__dialogue *d, const char *path, int64_t number)
{
    const sheaf_config *config = d->wording->config;
    sheaf__picture *picture = NULL;
    char *image = NULL;
    if (path == NULL)
        return take_back(d, number);
    if (d->wording->placed)
        return add_look(d, path, number);
    if (!d->wording->images)
        return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "%s", path),
                                          "no image: %s has no vision tower",
                                          sheaf_family_name(config->family)),
                           "one");
    sheaf_status *st = sheaf__path_whole(&image, path);
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

/* ---- what was said ---- */

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

sheaf_status *sheaf__dialogue_add(sheaf__dialogue *d, const char *role, const char *content)
{
    char *own = strdup(content);
    if (own == NULL || !SHEAF_GROW(&d->said, NULL, d->count + 1)) {
        free(own);
        return sheaf__no_memory("conversation");
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
    return text == NULL || text[0] == '\0' ? NULL : sheaf__dialogue_add(d, SHEAF__SYSTEM, text);
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
                       SHEAF__PICTURE_HERE, d->waiting);
    sheaf_found(st, "%" PRId64 " of them", marks);
    return marks > d->waiting ? sheaf_try_this(st, "/image FILE, which shows one more") : st;
}

/* A question with the pictures that wait in front, unless it says where they stand. */
static sheaf_status *with_pictures(char **out, const sheaf__dialogue *d, const char *query)
{
    sheaf_text text = { 0 };
    const int64_t marks = d->wording->placed ? sheaf__text_count(query, SHEAF__PICTURE_HERE) : 0;
    if (marks > 0 && marks != d->waiting)
        return other_marks(d, marks);
    for (int64_t i = 0; i < d->waiting && marks == 0; i++)
        sheaf__text_add(&text, "%s\n", SHEAF__PICTURE_HERE);
    sheaf__text_add(&text, "%s", query);
    return sheaf__text_take(out, &text);
}

static sheaf_status *put_question(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                  const sheaf__message *said, int64_t n)
{
    if (!d->wording->placed)
        return sheaf__wording_said(out, block, d->wording, said, n, d->picture != NULL);
    int64_t *order = malloc(((size_t)d->shown.count + 1) * sizeof *order);
    sheaf_status *st =
        order == NULL ? sheaf__no_memory("conversation")
                      : sheaf__wording_shown(out, block, order, d->wording, said, n, &d->shown);
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
        return st != NULL ? st : sheaf__no_memory("conversation");
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

sheaf_status *sheaf__dialogue_ask_alone(sheaf__prompt *out, void **block, const sheaf__dialogue *d,
                                        const char *query)
{
    sheaf__dialogue fresh = *d; /* which owns nothing */
    char *question = NULL;
    sheaf_status *st = with_pictures(&question, d, query);
    free(question);
    fresh.count = systems(d);
    fresh.waiting = d->shown.count;
    return st == NULL ? sheaf__dialogue_ask(out, block, &fresh, query) : st;
}

sheaf_status *sheaf__dialogue_keep(sheaf__dialogue *d, const char *query, const char *answer)
{
    const int64_t before = d->count;
    char *question = NULL;
    sheaf_status *st = with_pictures(&question, d, query);
    TRY(st, sheaf__dialogue_add(d, SHEAF__USER, question));
    TRY(st, sheaf__dialogue_add(d, SHEAF__ASSISTANT, answer));
    if (st != NULL)
        forget(d, before);
    else
        d->waiting = 0;
    free(question);
    return st;
}
