/* tensors_images.c - images of a .safetensors file, in any form. */
#include "base/base.h"
#include "data/data_tensors.h"

static bool by_masks(const sheaf__tensors *in)
{
    return in->data->images->place.file == SHEAF__IMAGES_MASKED;
}

/* Files of newer programs hold further tensors for their training. */
bool sheaf__tensors_image_known(const sheaf__tensors *in, const char *name)
{
    return in->data->images != NULL && (!by_masks(in) || sheaf__masked_known(in, name));
}

sheaf_status *sheaf__tensors_image_check(sheaf__tensors *in)
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

/* ---- pixels ---- */

typedef struct pixels {
    sheaf_safetensors *file; /* NULL before rows are read */
    const sheaf__data_images *images;
    sheaf__found_image *image;
    bool by_row; /* item r of the first is row r's */
} pixels;

static const sheaf__found_image *image_of(const pixels *p, int64_t i)
{
    return &p->image[p->by_row ? 0 : i];
}

static int64_t numbers_of(const pixels *p, int64_t image, int tower)
{
    const sheaf__tower *own = &p->images->tower[tower];
    const sheaf__found_image *of = image_of(p, image);
    return p->images->at == NULL ? sheaf__tower_numbers(own)
                                 : own->channels * of->height * of->width;
}

static sheaf__picture picture_at(const void *self, int64_t row, int64_t i)
{
    const pixels *p = self;
    const sheaf__found_image *of = image_of(p, p->images->first[row] + i);
    return (sheaf__picture){ .of[0] = { NULL, of->height, of->width },
                             .frame = of->frame,
                             .joins = of->joins };
}

static sheaf_status *read_pixels(float *out, const pixels *p, int64_t i, int tower)
{
    if (p->images->place.file == SHEAF__IMAGES_GRID)
        return sheaf__grid_read(out, p->file, image_of(p, i), &p->images->tower[tower]);
    return sheaf__pixels_read(out, p->file, image_of(p, i)->pixels[tower],
                              p->by_row ? i : image_of(p, i)->item, numbers_of(p, i, tower));
}

static sheaf_status *load(void *self, int64_t row, const sheaf__picture *picture)
{
    const pixels *p = self;
    const int64_t begin = p->by_row ? row : p->images->first[row],
                  end = p->by_row ? row + 1 : p->images->first[row + 1];
    sheaf_status *st = NULL;
    for (int64_t i = begin; i < end && st == NULL; i++)
        for (int t = 0; t < p->images->towers; t++)
            TRY(st, read_pixels(picture[i - begin].of[t].pixels, p, i, t));
    return st;
}

static void close_pixels(void *self)
{
    pixels *p = self;
    if (p->file != NULL)
        sheaf__safetensors_close(p->file);
    free(p->image);
    free(p);
}

/* Hashes the sizes, unless they are the towers' own, and the pixels of images [begin, end). Skips
 * rows without a place for an image. */
static sheaf_status *hash_images(sheaf_hash *out, const pixels *p, float *room, int64_t begin,
                                 int64_t end, bool placed)
{
    sheaf_hasher *hasher = sheaf__hasher_new();
    sheaf_status *st = hasher == NULL ? sheaf__data_no_memory(0) : NULL;
    for (int64_t i = begin; i < end && st == NULL; i++) {
        const sheaf__found_image *of = image_of(p, i);
        const int32_t size[2] = { (int32_t)of->height, (int32_t)of->width };
        if (p->images->at != NULL)
            sheaf__hasher_add(hasher, size, sizeof size);
        sheaf__data_images_hash_frame(hasher, of->frame, of->joins);
        for (int t = 0; t < p->images->towers && st == NULL; t++) {
            const int64_t n = numbers_of(p, i, t);
            st = read_pixels(room, p, i, t);
            if (st == NULL && placed)
                st = sheaf__pixels_check(room, of->pixels[t], p->by_row ? i : of->item, n);
            if (st == NULL)
                sheaf__hasher_add(hasher, room, (size_t)n * sizeof *room);
        }
    }
    if (st == NULL)
        *out = sheaf__hasher_end(hasher);
    sheaf__hasher_free(hasher);
    return st;
}

static sheaf_status *hash_all(const sheaf__tensors *in, const pixels *p, float *room)
{
    sheaf__data_images *images = in->data->images;
    sheaf_status *st = NULL;
    for (int64_t r = 0; r < in->rows && st == NULL; r++) {
        const bool placed = memchr(images->embed + r * in->length, 1, (size_t)in->length) != NULL;
        if (p->by_row || placed)
            st = hash_images(&images->hash[r], p, room, p->by_row ? r : images->first[r],
                             p->by_row ? r + 1 : images->first[r + 1], placed);
    }
    return st;
}

/* ---- places ---- */

/* in->image is the data set's from now on. */
static sheaf_status *hand_over(sheaf__tensors *in)
{
    sheaf__data_images *images = in->data->images;
    pixels *p = in->images == 0 ? NULL : calloc(1, sizeof *p);
    if (p == NULL)
        return in->images == 0 ? NULL : sheaf__data_no_memory(0);
    SHEAF_GROW(&in->image, NULL, in->images); /* no space behind the last */
    *p = (pixels){ NULL, images, in->image, in->by_row };
    in->image = NULL;
    images->self = p;
    images->load = load;
    images->close = close_pixels;
    images->memory = p->by_row ? 0 : in->images * (int64_t)sizeof *p->image;
    return NULL;
}

/* Sets embed and first from in->image. */
static void place(sheaf__tensors *in)
{
    sheaf__data_images *images = in->data->images;
    const sheaf__tower *tower = &images->tower[0];
    const int64_t before = images->place.before;
    for (int64_t i = 0; i < in->images; i++) {
        const sheaf__found_image *of = &in->image[i];
        const sheaf__view view = { .height = of->height, .width = of->width };
        const int64_t gives = sheaf__tower_gives(tower, 1, sheaf__view_patches(&view, tower));
        memset(images->embed + of->row * in->length + of->begin - before, 1,
               (size_t)(before + gives + images->place.after));
        images->first[of->row + 1]++;
    }
    for (int64_t r = 0; r < in->rows; r++)
        images->first[r + 1] += images->first[r];
    images->at = picture_at;
}

sheaf_status *sheaf__tensors_image_places(sheaf__tensors *in)
{
    if (in->data->images == NULL)
        return NULL;
    if (by_masks(in)) {
        sheaf_status *st = sheaf__masked_places(in);
        TRY(st, sheaf__masked_find(in));
        return TRY(st, hand_over(in));
    }
    const sheaf__image_file form = in->data->images->place.file;
    sheaf_status *st = form == SHEAF__IMAGES_BOUND  ? sheaf__bound_find(in)
                       : form == SHEAF__IMAGES_GRID ? sheaf__grid_find(in)
                                                    : sheaf__marks_find(in, NULL);
    if (form == SHEAF__IMAGES_FOLDED)
        TRY(st, sheaf__marks_unfold(in));
    in->data->pads_seen = form == SHEAF__IMAGES_BOUND;
    TRY(st, sheaf__data_images_rows_new(in->data));
    if (st == NULL)
        place(in);
    TRY(st, hand_over(in));
    return TRY(st, form == SHEAF__IMAGES_GRID ? sheaf__grid_check(in) : NULL);
}

sheaf_status *sheaf__tensors_image_keep(sheaf__tensors *in)
{
    pixels *p = in->data->images == NULL ? NULL : in->data->images->self;
    int64_t most = 0;
    if (p == NULL)
        return NULL;
    p->file = in->file;
    in->file = NULL;
    for (int64_t i = 0; i < in->images; i++)
        for (int t = 0; t < p->images->towers; t++)
            most = numbers_of(p, i, t) > most ? numbers_of(p, i, t) : most;
    float *room = malloc((size_t)most * sizeof *room);
    sheaf_status *st = room == NULL ? sheaf__data_no_memory(most) : hash_all(in, p, room);
    free(room);
    return st;
}
