/* data_tensors.h - private: a .safetensors file of rows while it is read, and the forms in which
 * such files give the places of images (sheaf__image_file). */
#pragma once

#include "data/data_images.h"
#include "data/data_rows.h"
#include "formats/safetensors.h"

/* An image of the file: where its rows begin, and the tensor (by tower) and the item of it that
 * hold its pixels. */
typedef struct sheaf__found_image {
    int64_t row, begin;
    const sheaf_safetensors_entry *pixels[SHEAF__MOST_TOWERS];
    int64_t item;
    int64_t number;        /* in the order of the file */
    int64_t height, width; /* in pixels */
    int32_t frame;         /* of a video, as in sheaf__picture */
    bool joins;
    int64_t inside; /* of a patch that holds several frames: the frame */
} sheaf__found_image;

typedef struct sheaf__tensors {
    sheaf_safetensors *file; /* NULL once the images own it */
    sheaf_data *data;
    const sheaf_config *config;
    int64_t rows, length;
    bool prompts, judged; /* of sheaf_data_options */
    bool answers;         /* a row is a prompt and its answer: padded at its end alone */
    uint8_t *mask;        /* destination of sheaf__tensors_mask() */
    void *chunk;          /* SHEAF__TENSORS_CHUNK int64 */
    sheaf__found_image
        *image; /* [images] ascending by row and begin; in the form with masks one entry for all */
    int64_t images, image_capacity;
    bool by_row; /* that one entry is for all: item r is row r's */
} sheaf__tensors;

/* sheaf__tensors_bad - "'name': expected ..."; _bad_value: "'name': row, position: found". */
sheaf_status *sheaf__tensors_bad(const char *name, const char *expected);
sheaf_status *sheaf__tensors_bad_value(const sheaf__tensors *in, const char *name, int64_t index,
                                       int64_t value);
/* sheaf__tensors_each - calls take(in, name, index, value) for every element of [rows, length]. */
enum { SHEAF__TENSORS_CHUNK = 1 << 16 }; /* elements converted at a time */
sheaf_status *sheaf__tensors_each(sheaf__tensors *in, const char *name,
                                  sheaf_status *(*take)(sheaf__tensors *in, const char *name,
                                                        int64_t index, int64_t value));
/* sheaf__tensors_mask - a tensor of 0 and 1 as [rows, length]. */
sheaf_status *sheaf__tensors_mask(sheaf__tensors *in, const char *name, uint8_t *mask);
/* sheaf__tensors_shape - "found" a tensor's shape. */
sheaf_status *sheaf__tensors_shape(sheaf_status *st, const sheaf_safetensors_entry *entry);
/* sheaf__tensors_whole - are its numbers whole, I32 or I64? */
static inline bool sheaf__tensors_whole(const sheaf_safetensors_entry *entry)
{
    return entry->dtype == SHEAF_I32 || entry->dtype == SHEAF_I64;
}
/* sheaf__tensors_numbers_in - `count` integers from element `first` of an I32 or I64 tensor. */
sheaf_status *sheaf__tensors_numbers_in(int64_t *out, const sheaf__tensors *in,
                                        const sheaf_safetensors_entry *entry, int64_t first,
                                        int64_t count);

/* sheaf__tensors_table - is it a tensor of whole numbers of this shape? -1: of any length. */
sheaf_status *sheaf__tensors_table(const sheaf_safetensors_entry *entry, int ndim,
                                   const int64_t *shape, const char *expected);

/* ---- forms of images; nothing happens for a model without ---- */

/* sheaf__tensors_image_known - is a tensor of this name one of the images'? */
bool sheaf__tensors_image_known(const sheaf__tensors *in, const char *name);
/* sheaf__tensors_image_check - are the images' tensors of the right shapes? Before rows are read.
 */
sheaf_status *sheaf__tensors_image_check(sheaf__tensors *in);
/* sheaf__tensors_image_places - embed, expert, positions and sizes; after the tokens are read. */
sheaf_status *sheaf__tensors_image_places(sheaf__tensors *in);
/* sheaf__tensors_image_keep - takes ownership of the file, reads images from it on demand, and
 * hashes each of them now. */
sheaf_status *sheaf__tensors_image_keep(sheaf__tensors *in);

/* Of the form with masks. */
bool sheaf__masked_known(const sheaf__tensors *in, const char *name);
sheaf_status *sheaf__masked_check(sheaf__tensors *in);
sheaf_status *sheaf__masked_places(sheaf__tensors *in);
/* sheaf__tensors_image_add - a copy behind those of in->image. */
sheaf_status *sheaf__tensors_image_add(sheaf__tensors *in, const sheaf__found_image *image);
/* sheaf__tensors_stack - sets the pixels of all images for a tower: the tensor `name` [images,
 * channels, height, width], of the tower's own size. each: behind that shape in an error. */
sheaf_status *sheaf__tensors_stack(sheaf__tensors *in, const char *name, int tower, int64_t images,
                                   const char *each);
/* sheaf__tensors_per_row - [rows] how many images the file says each has, to free(); NULL: it says
 * nothing. */
#define SHEAF__PER_ROW "images_per_row"
sheaf_status *sheaf__tensors_per_row(int64_t **out, const sheaf__tensors *in);
/* Images whose sizes and pixels are known already, in order. */
typedef struct sheaf__listed {
    const char *name; /* of the tensor that lists them */
    int64_t token;    /* of a row of them */
    sheaf__found_image *image;
    int64_t count, used;
} sheaf__listed;
/* They fill in->image. listed: pictures, and frames of videos; NULL: the tower's own size. */
sheaf_status *sheaf__masked_find(sheaf__tensors *in);
sheaf_status *sheaf__marks_find(sheaf__tensors *in, sheaf__listed listed[2]);
sheaf_status *sheaf__bound_find(sheaf__tensors *in);
sheaf_status *sheaf__grid_find(sheaf__tensors *in);
/* sheaf__marks_unfold - the rows as the model sees them, where one token stands for all rows of an
 * image; before rows of images are made. */
sheaf_status *sheaf__marks_unfold(sheaf__tensors *in);
/* sheaf__grid_read - a picture from its patches in the file. */
sheaf_status *sheaf__grid_read(float *dst, const sheaf_safetensors *file,
                               const sheaf__found_image *image, const sheaf__tower *tower);
/* sheaf__grid_check - are position_ids, if the file has them, those of the pictures? After
 * sheaf__tensors_image_places(). */
sheaf_status *sheaf__grid_check(sheaf__tensors *in);

/* sheaf__pixels_check_type - F32, BF16 or F16. */
sheaf_status *sheaf__pixels_check_type(const sheaf_safetensors_entry *entry);
/* sheaf__pixels_read - item `item` of `n` numbers each. Thread-safe. */
sheaf_status *sheaf__pixels_read(float *dst, const sheaf_safetensors *file,
                                 const sheaf_safetensors_entry *entry, int64_t item, int64_t n);
/* sheaf__pixels_check - are the numbers of this item finite? */
sheaf_status *sheaf__pixels_check(const float *pixels, const sheaf_safetensors_entry *entry,
                                  int64_t item, int64_t n);
