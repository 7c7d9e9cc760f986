/* prompts.c - see prompts.h. */
#include "infer/prompts.h"

#include "base/base.h"
#include "data/data_images.h"
#include "inputs/image.h"
#include "schema/family.h"

static sheaf_status *check_id(const sheaf_config *config, long long id, const char *where)
{
    if (id >= 0 && id < config->vocab)
        return NULL;
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "%s", where);
    sheaf_expected(st, "token ids from 0 to %lld, the rows of the table",
                   (long long)config->vocab - 1);
    return sheaf_found(st, "%lld", id);
}

static char *copy(bool *lost, const char *text)
{
    char *own = text == NULL ? NULL : strdup(text);
    *lost |= text != NULL && own == NULL;
    return own;
}

static void free_about(const sheaf__prompt_about *about)
{
    free(about->text);
    free(about->expected);
    free(about->image);
    free(about->block);
    for (int64_t i = 0; i < about->nviewed; i++)
        sheaf__viewed_release(&about->viewed[i]);
    free(about->viewed);
    free(about->picture);
    for (int64_t i = 0; i < about->messages; i++)
        json_decref((json_t *)about->message[i].json);
    free(about->message);
}

sheaf_status *sheaf__prompts_append(sheaf__prompts *p, const sheaf__prompt *prompt,
                                    const sheaf__prompt_about *about)
{
    int64_t capacity = p->capacity; /* of both */
    if (!SHEAF_GROW(&p->about, &capacity, p->count + 1) ||
        !SHEAF_GROW(&p->prompt, &p->capacity, p->count + 1)) {
        free_about(about);
        return sheaf__no_memory("prompts");
    }
    p->prompt[p->count] = *prompt;
    p->about[p->count++] = *about;
    return NULL;
}

/* Takes over `block`, the memory of `prompt`. */
static sheaf_status *add(sheaf__prompts *p, const sheaf__prompt *prompt, void *block,
                         const char *text, const char *expected, const char *image)
{
    bool lost = false;
    const sheaf__prompt_about about = { copy(&lost, text), copy(&lost, expected),
                                        copy(&lost, image), block };
    sheaf_status *st = sheaf__prompts_append(p, prompt, &about);
    return st == NULL && lost ? sheaf__no_memory("prompts") : st;
}

sheaf_status *sheaf__prompts_add_turns(sheaf__prompts *p, const sheaf__codec *w,
                                       const sheaf__turn *turn, int64_t turns, const char *image)
{
    sheaf__prompt prompt;
    void *block;
    sheaf_status *st = sheaf__codec_prompt(&prompt, &block, w, turn, turns, image != NULL);
    return st == NULL ? add(p, &prompt, block, turn[turns - 1].query, turn[turns - 1].answer, image)
                      : st;
}

/* ---- pictures in conversations ---- */

sheaf_status *sheaf__prompts_pieces(sheaf__picture **out, int64_t *n, const sheaf__viewed *viewed,
                                    int64_t pictures)
{
    int64_t count = 0;
    for (int64_t i = 0; i < pictures; i++)
        count += sheaf__sliced_count(&viewed[i].pieces);
    sheaf__picture *next = *out = calloc((size_t)count + 1, sizeof **out);
    if (next == NULL)
        return sheaf__no_memory("pictures");
    *n = count;
    for (int64_t i = 0; i < pictures; i++)
        for (int64_t k = 0; k < sheaf__sliced_count(&viewed[i].pieces); k++, next++) {
            *next = sheaf__view_piece(&viewed[i].pieces, k);
            next->frame = viewed[i].frame;
            next->joins = viewed[i].joins;
        }
    return NULL;
}

/* Pictures in order of their places, and their pieces. */
static sheaf_status *take_pictures(sheaf__prompt_about *about, sheaf__prompt *prompt,
                                   sheaf__record_pictures *pictures, const int64_t *order)
{
    sheaf_status *st = sheaf__record_pictures_take(&about->viewed, pictures, order);
    if (st != NULL)
        return st;
    about->nviewed = pictures->count;
    st = sheaf__prompts_pieces(&about->picture, &prompt->pictures, about->viewed, about->nviewed);
    prompt->picture = about->picture;
    return st;
}

sheaf_status *sheaf__prompts_add_pictures(sheaf__prompts *p, const sheaf__codec *w,
                                          const sheaf__message *message, int64_t n,
                                          const char *expected, sheaf__record_pictures *pictures)
{
    sheaf__record_pictures_from(pictures, message, n);
    int64_t *order = malloc(((size_t)pictures->count + 1) * sizeof *order);
    sheaf__prompt prompt;
    sheaf__prompt_about about = { 0 };
    bool lost = false;
    sheaf_status *st =
        order == NULL ? sheaf__no_memory("prompts") : sheaf__codec_check_messages(w, message, n);
    TRY(st,
        sheaf__codec_messages_with_pictures(&prompt, &about.block, order, w, message, n, pictures));
    if (st == NULL && pictures->count > 0)
        st = take_pictures(&about, &prompt, pictures, order);
    if (st == NULL) {
        about.text = copy(&lost, message[n - 1].content);
        about.expected = copy(&lost, expected);
        about.image = about.nviewed > 0 ? copy(&lost, about.viewed[0].path) : NULL;
        p->laid_out = true;
    }
    free(order);
    sheaf__record_pictures_release(pictures);
    if (st == NULL && lost)
        st = sheaf__no_memory("prompts");
    if (st == NULL)
        return sheaf__prompts_append(p, &prompt, &about);
    free_about(&about);
    return st;
}

static void viewing_of(sheaf__viewing *out, sheaf__prompts *p, const sheaf__codec *w)
{
    sheaf__viewing_of(out, w->config);
    out->budget = &p->budget;
}

/* The same with the pictures' paths. */
static sheaf_status *add_shown(sheaf__prompts *p, const sheaf__codec *w,
                               const sheaf__message *message, int64_t n, const char *expected,
                               const char *const *image, int64_t images)
{
    sheaf__viewing viewing;
    sheaf__record_pictures pictures = { 0 };
    sheaf_status *st = NULL;
    viewing_of(&viewing, p, w);
    int64_t videos = 0;
    for (int64_t i = 0; i < images && st == NULL; i++) {
        if (p->bytes != NULL)
            viewing.bytes = p->bytes[i];
        if (videos < p->videos && p->video[videos].first == i) {
            sheaf__frames frames = p->video[videos++];
            frames.path = image + i;
            frames.bytes = p->bytes == NULL ? NULL : p->bytes + i;
            st = sheaf__record_pictures_video(&pictures, &frames, &viewing);
            i += frames.count - 1;
            continue;
        }
        st = sheaf__record_pictures_add(&pictures, "<image>", image[i], &viewing);
    }
    if (st == NULL)
        return sheaf__prompts_add_pictures(p, w, message, n, expected, &pictures);
    sheaf__record_pictures_release(&pictures);
    return st;
}

/* For a codec that is not `placed`: at most one picture, which can be read. */
static sheaf_status *view_image(sheaf__prompts *p, const sheaf__codec *w, const char *const *image,
                                int64_t images)
{
    sheaf__prompt_about *about = &p->about[p->count - 1];
    sheaf__viewing viewing;
    if (p->videos > 0)
        return sheaf__no_videos(w->config);
    if (images > 1)
        return sheaf_try_this(
            sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "images of a prompt"),
                                       "one: %s reads no more in a prompt",
                                       sheaf_family_name(w->config->family)),
                        "%" PRId64, images),
            "a prompt for each image");
    if (images == 0)
        return NULL;
    viewing_of(&viewing, p, w);
    if (p->bytes != NULL)
        viewing.bytes = p->bytes[0];
    if ((about->viewed = calloc(1, sizeof *about->viewed)) == NULL)
        return sheaf__no_memory("pictures");
    about->nviewed = 1;
    return sheaf__view_file(about->viewed, image[0], &viewing);
}

sheaf_status *sheaf__prompts_add(sheaf__prompts *p, const sheaf__codec *w,
                                 const sheaf__message *message, int64_t n, bool text,
                                 const char *expected, const char *const *image, int64_t images)
{
    sheaf__prompt prompt;
    void *block;
    if (w->placed)
        return add_shown(p, w, message, n, expected, image, images);
    sheaf_status *st = text ? sheaf__codec_text(&prompt, &block, w, message, n, images > 0)
                            : sheaf__codec_messages(&prompt, &block, w, message, n, images > 0);
    p->laid_out |= !text && w->chat != NULL;
    TRY(st, add(p, &prompt, block, message[n - 1].content, expected, images > 0 ? image[0] : NULL));
    return st == NULL ? view_image(p, w, image, images) : st;
}

sheaf_status *sheaf__prompts_add_text(sheaf__prompts *p, const sheaf__codec *w, const char *text,
                                      const char *system, const char *const *image, int64_t images)
{
    const sheaf__message message[] = { { SHEAF__SYSTEM, system,
                                         system == NULL ? 0 : strlen(system) },
                                       { SHEAF__USER, text, strlen(text) } };
    const bool alone = system == NULL;
    return sheaf__prompts_add(p, w, message + alone, 2 - alone, true, NULL, image, images);
}

static sheaf_status *add_ids(sheaf__prompts *p, int32_t *ids, int64_t n, const char *expected)
{
    if (sheaf__family_for(p->config)->image.needed) {
        free(ids);
        return sheaf_try_this(sheaf__image_needed(SHEAF_E_UNSUPPORTED, "token ids", p->config),
                              "`prompt TEXT` `image FILE`, or `data` with images");
    }
    return add(p, &(sheaf__prompt){ ids, n }, ids, NULL, expected, NULL);
}

static sheaf_status *add_array(sheaf__prompts *p, const json_t *array, const char *where,
                               const char *expected)
{
    const size_t n = json_array_size(array);
    int32_t *ids = malloc((n + 1) * sizeof *ids);
    sheaf_status *st = ids == NULL ? sheaf__no_memory("prompts") : NULL;
    if (n == 0 && st == NULL)
        st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s", where), "at least one token id");
    for (size_t i = 0; i < n && st == NULL; i++) {
        const json_t *one = json_array_get(array, i);
        if (!json_is_integer(one))
            st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "%s, entry %zu", where, i), "an integer");
        else
            st = check_id(p->config, json_integer_value(one), where);
        if (st == NULL)
            ids[i] = (int32_t)json_integer_value(one);
    }
    if (st != NULL) {
        free(ids);
        return st;
    }
    return add_ids(p, ids, (int64_t)n, expected);
}

sheaf_status *sheaf__prompts_add_ids(sheaf__prompts *p, const json_t *array, const char *expected)
{
    return add_array(p, array, "field 'tokens'", expected);
}

sheaf_status *sheaf__prompts_add_list(sheaf__prompts *p, const char *list)
{
    char *text = NULL;
    if (asprintf(&text, "[%s]", list) < 0)
        return sheaf__no_memory("`tokens`");
    json_t *array = json_loads(text, 0, NULL);
    const size_t n = strspn(list, "0123456789,- ");
    const bool numbers =
        n > 0 && list[n] == '\0' && list[n - 1] != ' ' && strstr(list, " ,") == NULL;
    sheaf_status *st = numbers && json_is_array(array)
                           ? add_array(p, array, "`tokens`", NULL)
                           : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_ARG, "`tokens`"),
                                                        "numbers with commas between them: 1,2,3"),
                                         "'%s'", list);
    json_decref(array);
    free(text);
    return st;
}

/* ---- pixels ---- */

sheaf_status *sheaf__prompts_picture(const sheaf__picture *picture, const char *path)
{
    sheaf_image image;
    sheaf_status *st = sheaf_image_load(&image, path);
    if (st != NULL)
        return st;
    for (int t = 0; t < SHEAF__MOST_TOWERS && picture->of[t].pixels != NULL && st == NULL; t++)
        st = sheaf_image_prepare(picture->of[t].pixels, &image, picture->of[t].width,
                                 picture->of[t].height, &sheaf_image_clip_scale);
    sheaf_image_release(&image);
    return sheaf_in(st, "%.*s", sheaf__image_shown(path), path);
}

sheaf_status *sheaf__prompts_load(void *self, int64_t prompt, const sheaf__picture *picture,
                                  int64_t n)
{
    const sheaf__prompts *p = self;
    const sheaf__prompt_about *about = &p->about[prompt];
    sheaf__viewing viewing;
    sheaf_status *st = NULL;
    if (p->rows != NULL)
        return sheaf_data_row_pixels(picture, n, p->rows, prompt);
    if (about->viewed == NULL)
        return sheaf__prompts_picture(picture, about->image);
    sheaf__viewing_of(&viewing, p->config);
    for (int64_t i = 0; i < about->nviewed && st == NULL; i++) {
        st = sheaf__view_pixels(picture, &about->viewed[i], &viewing);
        picture += sheaf__sliced_count(&about->viewed[i].pieces);
    }
    return st;
}

sheaf_status *sheaf__prompts_decode(sheaf__prompts *p, bool (*unwanted)(void *self), void *self)
{
    sheaf__viewing viewing;
    sheaf_status *st = NULL;
    sheaf__viewing_of(&viewing, p->config);
    viewing.unwanted = unwanted;
    viewing.self = self;
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < p->about[i].nviewed && st == NULL && !unwanted(self); k++)
            st = sheaf__view_keep(&p->about[i].viewed[k], &viewing);
    return st;
}

size_t sheaf__prompts_pixels(const sheaf__prompts *p)
{
    sheaf__viewing viewing;
    size_t size = 0;
    sheaf__viewing_of(&viewing, p->config);
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < p->about[i].nviewed; k++)
            size += sheaf__view_size(&p->about[i].viewed[k], &viewing);
    return size;
}

void sheaf__prompts_release(sheaf__prompts *p)
{
    for (int64_t i = 0; i < p->count; i++)
        free_about(&p->about[i]);
    free(p->prompt);
    free(p->about);
    sheaf_data_close(p->own);
    *p = (sheaf__prompts){ 0 };
}
