/* batch_images.c - see batch_images.h. */
#include "infer/batch_images.h"

#include "base/base.h"
#include "data/data_images.h"

static int64_t embedded(const sheaf__prompt *p)
{
    int64_t rows = 0;
    for (int64_t j = 0; j < p->n && p->embed != NULL; j++)
        rows += p->embed[j];
    return rows;
}

/* At least one if they are loaded: a prompt with too few rows is refused later. */
int64_t sheaf__prompt_images(const sheaf__prompt *p, const sheaf_config *config,
                             const sheaf__generate_options *options)
{
    const int64_t whole = sheaf__image_positions(config);
    if (p->picture != NULL)
        return p->pictures;
    if (p->embed == NULL || options->load == NULL)
        return 0;
    const int64_t images = whole == 0 ? 1 : embedded(p) / whole,
                  most = sheaf__family_for(config)->image.most;
    return images < 1 ? 1 : images < most ? images : most;
}

/* Those of a prompt, of which it has so many. */
static sheaf__picture_counts counts_of(const sheaf__prompt *p, int64_t images,
                                       const sheaf_config *config)
{
    return p->picture == NULL ? sheaf__counts_ordinary(config, images)
                              : sheaf__counts_of(p->picture, images, config);
}

sheaf__picture_counts sheaf__prompts_images(const sheaf__prompt *prompt, int64_t count,
                                            int64_t batch, const sheaf_config *config)
{
    const int64_t whole = sheaf__image_positions(config);
    sheaf__picture_counts most = { 0 }, all = { 0 };
    int64_t with = 0;
    for (int64_t i = 0; i < count; i++) {
        const sheaf__prompt *p = &prompt[i];
        const int64_t found = p->picture != NULL ? p->pictures
                              : whole > 0        ? embedded(p) / whole
                                                 : 0,
                      images = p->embed != NULL && found < 1 ? 1 : found;
        const sheaf__picture_counts own = counts_of(p, images, config);
        with += images > 0 && with < batch;
        sheaf__counts_reach(&most, &own, true);
    }
    most.groups = most.images;
    sheaf__counts_add(&all, &most, with);
    return all;
}

/* Do none of them have pixels? */
static bool are_loaded(const sheaf__prompt *p, int towers)
{
    for (int64_t k = 0; k < p->pictures && p->picture != NULL; k++)
        for (int t = 0; t < towers; t++)
            if (p->picture[k].of[t].pixels != NULL)
                return false;
    return true;
}

/* ---- checks ---- */

static sheaf_status *wrong_number(int64_t index, int64_t most, int64_t found, const char *family)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "prompt %" PRId64 ": images", index + 1);
    if (most == 1 && found > 1)
        sheaf_try_this(sheaf_expected(st, "one: %s reads no more in a prompt", family),
                       "a prompt for each image");
    else
        sheaf_expected(st, "1 to %" PRId64 " in a sequence of %s", most, family);
    return sheaf_found(st, "%" PRId64, found);
}

/* Does the family take so many images, of these sizes? */
static sheaf_status *check_pictures(const sheaf_config *c, const sheaf__prompt *p, int64_t index,
                                    bool may_load)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, c);
    const int64_t most = sheaf__family_for(c)->image.most;
    const bool loads = may_load && are_loaded(p, towers);
    if (p->pictures < 1 || p->pictures > most)
        return wrong_number(index, most, p->pictures, sheaf_family_name(c->family));
    for (int64_t k = 0; k < p->pictures; k++) {
        sheaf__picture picture = p->picture[k];
        float there;
        for (int t = 0; t < towers && loads; t++)
            if (picture.of[t].pixels == NULL)
                picture.of[t].pixels = &there;
        const int t = sheaf__picture_misfit(&picture, tower, towers);
        if (t < 0)
            continue;
        const sheaf__view *view = &p->picture[k].of[t];
        sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "prompt %lld: image %lld", (long long)index + 1,
                                      (long long)k + 1);
        if (tower[t].ragged)
            sheaf_expected(st, "sides that are multiples of %lld pixels",
                           (long long)sheaf__unit_of(&tower[t]));
        else
            sheaf_expected(st, "%lld x %lld pixels for tower %d of %s", (long long)tower[t].width,
                           (long long)tower[t].height, t + 1, sheaf_family_name(c->family));
        return view->pixels == NULL && !loads
                   ? sheaf_found(st, "none")
                   : sheaf_found(st, "%lld x %lld", (long long)view->width,
                                 (long long)view->height);
    }
    return NULL;
}

sheaf_status *sheaf__batch_images_check(const sheaf__model *m, const sheaf__prompt *p,
                                        int64_t index, const sheaf__generate_options *options)
{
    const sheaf_config *c = &m->schema->config;
    const sheaf__picture_counts pictures = counts_of(p, sheaf__prompt_images(p, c, options), c);
    const int64_t rows = embedded(p), whole = sheaf__counts_positions(c, &pictures);
    sheaf_status *st = !sheaf__model_has_images(m) || p->picture == NULL
                           ? NULL
                           : check_pictures(c, p, index, options->load != NULL);
    if (st != NULL)
        return st;
    if (!sheaf__model_has_images(m) ? p->picture != NULL || rows > 0 : rows != whole)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "prompt %lld", (long long)index + 1),
                           "%lld positions of an image", (long long)whole),
            "%lld", (long long)rows);
    if (sheaf__family_for(c)->image.needed && pictures.images == 0)
        return sheaf_in(sheaf__image_needed(SHEAF_E_DATA, "images", c), "prompt %lld",
                        (long long)index + 1);
    return NULL;
}

sheaf_status *sheaf__image_needed(sheaf_code code, const char *what, const sheaf_config *config)
{
    sheaf_status *st = sheaf_fail(code, "%s", what);
    sheaf_expected(st, "an image: the cross-attention of %s looks at it in every layer",
                   sheaf_family_name(config->family));
    return sheaf_found(st, "none");
}

/* ---- rows and pixels ---- */

void sheaf__batch_images_release(sheaf__batch_images *images)
{
    free(images->picture);
    *images = (sheaf__batch_images){ 0 };
}

void sheaf__batch_images_lay_out(sheaf__batch_images *out, const sheaf__batch_rows *rows,
                                 const sheaf_config *config, sheaf__sequence *const *of, int64_t n,
                                 int64_t longest)
{
    sheaf__batch_streams to = { rows->image_row.host,
                                { rows->stream[0].host, rows->stream[1].host } };
    out->pictures = (sheaf__picture_counts){ 0 };
    for (int64_t i = 0; i < n; i++) {
        const sheaf__prompt *p = of[i]->prompt;
        sheaf__batch_streams_add(&to, p->embed, p->expert, p->n, i * longest, longest);
        const sheaf__picture_counts own =
            counts_of(p, sheaf__prompt_images(p, config, of[i]->options), config);
        sheaf__counts_add(&out->pictures, &own, 1);
    }
    out->rows = to.count[SHEAF__IMAGE];
    out->embedded = to.images;
}

/* Space for all of them; frees that of the last batch. */
static sheaf_status *make_room(sheaf__batch_images *images, const sheaf_config *c,
                               sheaf__sequence *const *of, int64_t n)
{
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, c);
    float *none[SHEAF__MOST_TOWERS] = { NULL };
    sheaf__picture *like = malloc((size_t)images->pictures.images * sizeof *like + 1), *next = like;
    free(images->picture);
    images->picture = NULL;
    if (like != NULL) {
        sheaf__picture_place(like, images->pictures.images, none, tower, towers);
        for (int64_t i = 0; i < n; i++) {
            const sheaf__prompt *p = of[i]->prompt;
            const int64_t count = sheaf__prompt_images(p, c, of[i]->options);
            if (p->picture != NULL)
                memcpy(next, p->picture, (size_t)count * sizeof *next);
            next += count;
        }
        images->picture = sheaf__picture_room_like(like, images->pictures.images, tower, towers);
    }
    free(like);
    return images->picture != NULL
               ? NULL
               : sheaf_fail(SHEAF_E_MEMORY, "%lld images", (long long)images->pictures.images);
}

sheaf_status *sheaf__batch_images_fill(sheaf__batch_images *images, const sheaf__model *model,
                                       sheaf__sequence *const *of, int64_t n)
{
    const sheaf_config *c = &model->schema->config;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, c);
    sheaf_status *st = make_room(images, c, of, n);
    sheaf__picture *next = images->picture;
    for (int64_t i = 0; i < n && st == NULL; i++) {
        const sheaf__prompt *p = of[i]->prompt;
        const sheaf__generate_options *options = of[i]->options;
        const int64_t count = sheaf__prompt_images(p, c, options);
        const bool loads = are_loaded(p, towers);
        if (count > 0 && loads)
            st = options->load(options->self, of[i]->number, next, count);
        for (int64_t k = 0; k < count; k++, next++) {
            for (int t = 0; t < towers && !loads; t++)
                memcpy(next->of[t].pixels, p->picture[k].of[t].pixels,
                       (size_t)sheaf__view_numbers(&next->of[t], &tower[t]) * sizeof(float));
            next->row = i;
            next->frame = p->picture == NULL ? 0 : p->picture[k].frame;
            next->joins = p->picture != NULL && p->picture[k].joins;
        }
    }
    return st;
}
