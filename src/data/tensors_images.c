/* tensors_images.c - images of a .safetensors file, whichever way it tells of them. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_tensors.h"
#include "base/status.h"

static bool by_masks(const sheaf__tensors *in)
{
    return in->data->images->place.file == SHEAF__IMAGES_MASKED;
}

/* Files of the newer programs hold what their training needs besides. */
bool sheaf__tensors_image_known(const sheaf__tensors *in, const char *name)
{
    return in->data->images != NULL && (!by_masks(in) || sheaf__masked_known(in, name));
}

sheaf_status *sheaf__tensors_image_check(const sheaf__tensors *in)
{
    if (in->data->images == NULL)
        return NULL;
    if (by_masks(in))
        return sheaf__masked_check(in);
    return in->data->images->towers == 1
               ? NULL
               : sheaf_found(sheaf__tensors_bad("images", "a model of one tower"), "%d",
                             in->data->images->towers);
}

/* embed, first and size as in->image has them. */
static sheaf_status *place(sheaf__tensors *in)
{
    sheaf__data_images *images = in->data->images;
    const int64_t rows = images->tower[0].gives;
    images->size = malloc(((size_t)in->images + 1) * sizeof *images->size);
    if (images->size == NULL)
        return sheaf__data_no_memory(in->images);
    for (int64_t i = 0; i < in->images; i++) {
        const sheaf__found_image *of = &in->image[i];
        const int64_t *shape = of->pixels->shape + of->pixels->ndim - 2;
        memset(images->embed + of->row * in->length + of->begin, 1, (size_t)rows);
        images->size[i] = (sheaf__image_size){ (int32_t)shape[0], (int32_t)shape[1] };
        images->first[of->row + 1]++;
    }
    for (int64_t r = 0; r < in->rows; r++)
        images->first[r + 1] += images->first[r];
    return NULL;
}

sheaf_status *sheaf__tensors_image_places(sheaf__tensors *in)
{
    if (in->data->images == NULL)
        return NULL;
    if (by_masks(in))
        return sheaf__masked_places(in);
    sheaf_status *st = sheaf__data_images_rows_new(in->data);
    in->data->pads_seen = in->data->images->place.file == SHEAF__IMAGES_BOUND;
    TRY(st, in->data->pads_seen ? sheaf__bound_find(in) : sheaf__marked_find(in));
    return st == NULL ? place(in) : st;
}

/* ---- pixels ---- */

typedef struct pixels {
    sheaf_safetensors *file;
    const sheaf__data_images *images;
    sheaf__found_image *image;
} pixels;

static int64_t numbers_of(const sheaf__data_images *images, int64_t image)
{
    const sheaf__image_size size = sheaf__data_images_size(images, image, 0);
    return images->tower[0].channels * size.height * size.width;
}

static sheaf_status *load(void *self, int64_t row, const sheaf__picture *picture)
{
    const pixels *p = self;
    const int64_t begin = p->images->first[row], end = p->images->first[row + 1];
    sheaf_status *st = NULL;
    for (int64_t i = begin; i < end && st == NULL; i++)
        st = sheaf__pixels_read(picture[i - begin].of[0].pixels, p->file, p->image[i].pixels,
                                p->image[i].item, numbers_of(p->images, i));
    return st;
}

static void close_pixels(void *self)
{
    pixels *p = self;
    sheaf__safetensors_close(p->file);
    free(p->image);
    free(p);
}

/* Sizes and pixels of a row's images. */
static sheaf_status *hash_row(sheaf_hash *out, const pixels *p, float *room, int64_t row)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    sheaf_status *st = hasher == NULL ? sheaf__data_no_memory(0) : NULL;
    for (int64_t i = p->images->first[row]; i < p->images->first[row + 1] && st == NULL; i++) {
        const int64_t n = numbers_of(p->images, i);
        st = sheaf__pixels_read(room, p->file, p->image[i].pixels, p->image[i].item, n);
        TRY(st, sheaf__pixels_check(room, p->image[i].pixels, p->image[i].item, n));
        sheaf__hasher_add(hasher, &p->images->size[i], sizeof p->images->size[i]);
        if (st == NULL)
            sheaf__hasher_add(hasher, room, (size_t)n * sizeof *room);
    }
    if (st == NULL)
        *out = sheaf__hasher_end(hasher);
    sheaf__hasher_free(hasher);
    return st;
}

static sheaf_status *keep(sheaf__tensors *in)
{
    sheaf__data_images *images = in->data->images;
    int64_t most = 0;
    if (in->images == 0)
        return NULL;
    pixels *p = calloc(1, sizeof *p);
    if (p == NULL)
        return sheaf__data_no_memory(0);
    *p = (pixels){ in->file, images, in->image };
    in->file = NULL;
    in->image = NULL;
    images->self = p;
    images->load = load;
    images->close = close_pixels;
    images->memory = in->images * (int64_t)sizeof *p->image;
    for (int64_t i = 0; i < in->images; i++)
        most = numbers_of(images, i) > most ? numbers_of(images, i) : most;
    float *room = malloc((size_t)most * sizeof *room);
    sheaf_status *st = room == NULL ? sheaf__data_no_memory(most) : NULL;
    for (int64_t r = 0; r < in->rows && st == NULL; r++)
        if (sheaf__data_images_of(images, r) > 0)
            st = hash_row(&images->hash[r], p, room, r);
    free(room);
    return st;
}

sheaf_status *sheaf__tensors_image_keep(sheaf__tensors *in)
{
    if (in->data->images == NULL)
        return NULL;
    return by_masks(in) ? sheaf__masked_keep(in) : keep(in);
}
