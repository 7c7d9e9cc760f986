/* data_images.h - private: the images of a data set, and which positions of a row are theirs.
 *
 * A .safetensors file for a model with images describes them in the family's form
 * (sheaf__image_file). By masks, as [rows, length] of 0 or 1:
 *   image_embed_mask    BOI, patches, EOI (or token_type_ids, the same under another name)
 *   vision_expert_mask  positions that use the visual experts; without it BOI and patches
 *   image_rope_mask     patches; only read where position_ids are absent
 * and vision_image [rows, channels, height, width] (of a model with a second tower cross_image as
 * well), F32, BF16 or F16, normalised; or, as programs on the hub have them, `images`, with
 * cross_images, [n, channels, height, width], one for each row that marks one: then further tensors
 * are ignored. context_length is ignored. By marks among the tokens: tensors_marks.c, of Qwen-VL
 * with tensors_grid.c; by bounds: tensors_bound.c. */
#pragma once

#include "base/hash.h"
#include "data/data.h"

enum { SHEAF__MOST_FRAME = 1 << 24 }; /* numbers of frames are below it: float32 holds them */
typedef struct sheaf__data_images {
    sheaf__tower tower[SHEAF__MOST_TOWERS]; /* [towers] */
    int towers;
    sheaf__image_place place; /* the family's */
    /* [tokens] 1 at the images' positions; where visual experts are used */
    uint8_t *embed, *expert;
    bool labelled;        /* a position with `expert` predicts a label */
    int64_t *first;       /* [rows + 1] images of row r are [first[r], first[r + 1]) of all */
    int32_t *expert_rows; /* [rows] */
    sheaf_hash *hash;     /* [rows] of its images, whatever file holds them */
    /* Image i of a row, without pixels; NULL: all are pictures of the towers' own sizes. */
    sheaf__picture (*at)(const void *self, int64_t row, int64_t i);
    /* Reads the images of a row, in order of their places, over the pixels of as many pictures,
     * which have the images' sizes; thread-safe. */
    sheaf_status *(*load)(void *self, int64_t row, const sheaf__picture *picture);
    /* Prefetches; NULL: not supported. */
    void (*announce)(void *self, const int64_t *row, int64_t n);
    void (*close)(void *self);
    void *self;
    int64_t memory; /* upper bound on the bytes of `self` */
} sheaf__data_images;

/* sheaf__data_images_new - *out NULL for a config without images. */
sheaf_status *sheaf__data_images_new(sheaf__data_images **out, const sheaf_config *config);
void sheaf__data_images_free(sheaf__data_images *images);
/* sheaf__data_images_rows_new - zeroed arrays for data->tokens positions and data->rows rows; embed
 * and expert only where they are NULL. */
sheaf_status *sheaf__data_images_rows_new(sheaf_data *data);
/* sheaf__data_images_check - are the images of every row complete and within --seq, and does each
 * row have one where the model needs one? Sets first and expert_rows. */
sheaf_status *sheaf__data_images_check(sheaf_data *data, const sheaf_config *config);
/* sheaf__data_images_of - the number of images of a row. */
static inline int64_t sheaf__data_images_of(const sheaf__data_images *images, int64_t row)
{
    return images->first[row + 1] - images->first[row];
}
/* sheaf__data_images_counts - of the images of a row. */
sheaf__picture_counts sheaf__data_images_counts(const sheaf__data_images *images, int64_t row);
/* sheaf__data_images_hash_frame - nothing for a picture. */
void sheaf__data_images_hash_frame(sheaf_hasher *hasher, int32_t frame, bool joins);
/* sheaf__no_videos - that a model reads no videos. */
sheaf_status *sheaf__no_videos(const sheaf_config *config);
/* The rows of a batch that hold images, and those of either stream. */
typedef struct sheaf__batch_streams {
    int32_t *image_row, *stream[2]; /* or NULL */
    int64_t images, count[2];
} sheaf__batch_streams;
/* sheaf__batch_streams_add - of the next sequence, which fills rows [at, at + seq).
 *   embed, expert   [length] of its positions, or NULL */
void sheaf__batch_streams_add(sheaf__batch_streams *rows, const uint8_t *embed,
                              const uint8_t *expert, int64_t length, int64_t at, int64_t seq);
/* sheaf__data_images_rows - image_row and stream of a batch. */
void sheaf__data_images_rows(const sheaf_batch *batch, const sheaf_data *data, const int64_t *row,
                             int64_t n);
/* sheaf__data_images_memory - bytes held, without arrays of positions. */
int64_t sheaf__data_images_memory(const sheaf_data *data);
/* sheaf__data_images_share_positions - position ids of data without, where the family's images have
 * one for all their rows. */
sheaf_status *sheaf__data_images_share_positions(sheaf_data *data, const sheaf_config *config);
/* sheaf__data_images_axes - positions on three axes of the first n tokens of a row, by its pictures
 * and its mask: sheaf__grid_positions(). Errors: SHEAF_E_MEMORY. */
sheaf_status *sheaf__data_images_axes(int32_t *position, int64_t stride, int64_t n,
                                      const sheaf_data *data, int64_t row);
