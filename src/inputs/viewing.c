/* viewing.c - see viewing.h. */
#include "inputs/viewing.h"

#include "base/base.h"
#include "base/file.h"
#include "base/thread.h"

void sheaf__viewing_of(sheaf__viewing *out, const sheaf_config *config)
{
    *out = (sheaf__viewing){ 0 };
    out->towers = sheaf__towers_of(out->tower, config);
    if (sheaf__pictures_of(config) != NULL)
        sheaf__pictures_of(config)(&out->form, config);
    out->scale = sheaf_image_clip_scale;
    if (out->form.std[0] > 0) {
        memcpy(out->scale.mean, out->form.mean, sizeof out->scale.mean);
        memcpy(out->scale.std, out->form.std, sizeof out->scale.std);
    }
}

/* Of a file in memory, or of the one at the path. */
static sheaf_status *decode(sheaf_image *out, sheaf__viewed *v, const sheaf__viewing *viewing,
                            bool again)
{
    sheaf_image_decoding how = { .on_white = viewing->form.on_white,
                                 .unwanted = viewing->unwanted,
                                 .self = viewing->self,
                                 .large = viewing->large };
    if (v->bytes.at != NULL) {
        how.size_only = !again;
        return sheaf_in(sheaf_image_decode(out, v->bytes.at, v->bytes.size, &how), "%s", v->path);
    }
    char *bytes = NULL;
    size_t size = 0;
    sheaf_status *st = sheaf__image_bytes(&bytes, &size, v->path);
    if (st != NULL) /* names the path */
        return st;
    const sheaf_hash hash = sheaf__hash(bytes, size);
    if (!again || sheaf__hash_equal(hash, v->hash)) {
        st = sheaf_image_decode(out, bytes, size, &how);
    } else {
        st = sheaf_fail(SHEAF_E_DATA, "changed while the run went on");
        sheaf_found(sheaf_expected(st, "the bytes it had when it was checked"), "others");
        sheaf_try_this(st, "put the file back; then go on with `resume`");
    }
    v->hash = hash;
    free(bytes);
    return sheaf_in(st, "%.*s", sheaf__image_shown(v->path), v->path);
}

static sheaf_status *spend(sheaf__pixel_budget *budget, const sheaf_image *image)
{
    if (budget == NULL || budget->most == 0)
        return NULL;
    budget->used += image->width * image->height;
    return budget->used <= budget->most
               ? NULL
               : sheaf_try_this(
                     sheaf_found(
                         sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "image size"),
                                        "at most %" PRId64 " pixels in all pictures of a request",
                                        budget->most),
                         "%" PRId64 " x %" PRId64 ", with those before it %" PRId64 " pixels",
                         image->width, image->height, budget->used),
                     "make the picture smaller; a model reads at most a few million pixels of it");
}

sheaf_status *sheaf__view_divide(sheaf__sliced *out, int64_t width, int64_t height,
                                 const sheaf__viewing *viewing)
{
    const sheaf__tower *tower = &viewing->tower[0];
    if (viewing->form.most > 0)
        return sheaf__fit_pixels(out, width, height,
                                 &(sheaf__fitting){ .unit = sheaf__unit_of(tower),
                                                    .least = viewing->form.least,
                                                    .most = viewing->form.most,
                                                    .frames = viewing->frames,
                                                    .group = tower->frames });
    if (viewing->form.resolution == 0) {
        *out = (sheaf__sliced){ .width = tower->width, .height = tower->height };
        return NULL;
    }
    return sheaf__slice(out, width, height,
                        &(sheaf__slicing){ .resolution = viewing->form.resolution,
                                           .patch = tower->patch,
                                           .most = viewing->form.slices });
}

sheaf_status *sheaf__view_file(sheaf__viewed *out, const char *path, const sheaf__viewing *viewing)
{
    sheaf_image image = { 0 };
    *out = (sheaf__viewed){ .path = strdup(path), .bytes = viewing->bytes };
    sheaf_status *st = out->path == NULL ? sheaf__no_memory(path) : NULL;
    if (st == NULL && viewing->tower[0].channels != 3)
        st = sheaf_expected(sheaf_fail(SHEAF_E_UNSUPPORTED, "pictures"),
                            "a model that reads 3 channels: red, green, blue");
    TRY(st, decode(&image, out, viewing, false));
    TRY(st, sheaf_in(spend(viewing->budget, &image), "%.*s", sheaf__image_shown(path), path));
    TRY(st, sheaf_in(sheaf__view_divide(&out->pieces, image.width, image.height, viewing), "%.*s",
                     sheaf__image_shown(path), path));
    sheaf_image_release(&image);
    if (st != NULL)
        sheaf__viewed_release(out);
    return st;
}

void sheaf__viewed_release(sheaf__viewed *v)
{
    free(v->path);
    free(v->pixels);
    *v = (sheaf__viewed){ 0 };
}

size_t sheaf__view_size(const sheaf__viewed *viewed, const sheaf__viewing *viewing)
{
    int64_t n = sheaf__sliced_pixels(&viewed->pieces);
    for (int t = 1; t < viewing->towers; t++)
        n += viewing->tower[t].height * viewing->tower[t].width;
    return (size_t)n * 3;
}

sheaf_status *sheaf__view_bytes(uint8_t *out, const sheaf__viewed *viewed,
                                const sheaf__viewing *viewing)
{
    const unsigned mode = sheaf__compute_mode_enter(); /* the numbers of a rank, in any thread */
    sheaf_image image = { 0 };
    sheaf__viewed own = *viewed;
    sheaf_status *st = decode(&image, &own, viewing, true);
    if (st == NULL && viewing->unwanted != NULL && viewing->unwanted(viewing->self))
        st = sheaf_fail(SHEAF_E_STOPPED, "pictures");
    TRY(st, sheaf_in(sheaf__slice_image(out, &image, &viewed->pieces), "%.*s",
                     sheaf__image_shown(viewed->path), viewed->path));
    out += sheaf__sliced_pixels(&viewed->pieces) * 3;
    for (int t = 1; t < viewing->towers; t++) {
        const sheaf__tower *tower = &viewing->tower[t];
        TRY(st, sheaf_image_resize(out, &image, tower->width, tower->height));
        out += 3 * tower->width * tower->height;
    }
    sheaf_image_release(&image);
    sheaf__compute_mode_leave(mode);
    return st;
}

void sheaf__view_show(const sheaf__picture *picture, const uint8_t *bytes,
                      const sheaf__viewed *viewed, const sheaf__viewing *viewing)
{
    const unsigned mode = sheaf__compute_mode_enter();
    const sheaf__sliced *s = &viewed->pieces;
    for (int64_t i = 0; i < sheaf__sliced_count(s); i++) {
        const int64_t n = sheaf__sliced_width(s, i) * sheaf__sliced_height(s, i);
        sheaf_image_normalise(picture[i].of[0].pixels, bytes, n, &viewing->scale);
        bytes += 3 * n;
    }
    for (int t = 1; t < viewing->towers; t++) {
        const int64_t n = viewing->tower[t].height * viewing->tower[t].width;
        sheaf_image_normalise(picture->of[t].pixels, bytes, n, &viewing->scale);
        bytes += 3 * n;
    }
    sheaf__compute_mode_leave(mode);
}

sheaf_status *sheaf__view_keep(sheaf__viewed *viewed, const sheaf__viewing *viewing)
{
    uint8_t *bytes = malloc(sheaf__view_size(viewed, viewing));
    sheaf_status *st =
        bytes == NULL ? sheaf__no_memory(viewed->path) : sheaf__view_bytes(bytes, viewed, viewing);
    if (st == NULL)
        viewed->pixels = bytes;
    else
        free(bytes);
    return st;
}

sheaf_status *sheaf__view_pixels(const sheaf__picture *picture, const sheaf__viewed *viewed,
                                 const sheaf__viewing *viewing)
{
    sheaf__viewed own = *viewed;
    sheaf_status *st = viewed->pixels == NULL ? sheaf__view_keep(&own, viewing) : NULL;
    if (st == NULL)
        sheaf__view_show(picture, own.pixels, viewed, viewing);
    if (viewed->pixels == NULL)
        free(own.pixels);
    return st;
}
