/* data_images.h - private: the images of a data set, and which positions of a row are theirs.
 *
 * A .safetensors file for a model with images may also hold, as [rows, length] of 0 or 1:
 *   image_embed_mask    BOI, patches, EOI (or token_type_ids, the same under another name)
 *   vision_expert_mask  positions that use the visual experts; without it BOI and patches
 *   image_rope_mask     patches; only read where position_ids are absent
 * and vision_image [rows, channels, height, width] (of a model with a second tower cross_image as
 * well), F32, BF16 or F16, normalised. context_length is ignored. */
#ifndef SHEAF_DATA_DATA_IMAGES_H
#define SHEAF_DATA_DATA_IMAGES_H

#include "base/hash.h"
#include "data/data.h"

typedef struct sheaf__data_images {
    sheaf__tower tower[SHEAF__MOST_TOWERS]; /* [towers] */
    int towers;
    bool needed; /* in every row */
    /* [tokens] 1 at the image's positions; where visual experts are used */
    uint8_t *embed, *expert;
    bool labelled;        /* some position with `expert` predicts a label */
    bool *has;            /* [rows] */
    int32_t *expert_rows; /* [rows] */
    sheaf_hash *hash;     /* [rows] of the image, whatever holds it */
    /* Reads the image of a row, over the pixels of `picture`, which has the towers' sizes;
     * thread-safe. */
    sheaf_status *(*load)(void *self, int64_t row, const sheaf__picture *picture);
    /* NULL where nothing is gained by knowing early. */
    void (*announce)(void *self, const int64_t *row, int64_t n);
    void (*close)(void *self);
    void *self;
    int64_t memory; /* bytes that self holds, at most */
} sheaf__data_images;

/* sheaf__data_images_new - *out NULL for a config without images. */
sheaf_status *sheaf__data_images_new(sheaf__data_images **out, const sheaf_config *config);
void sheaf__data_images_free(sheaf__data_images *images);
/* sheaf__data_images_rows_new - arrays for data->tokens positions and data->rows rows, cleared;
 * embed and expert only where there are none yet. */
sheaf_status *sheaf__data_images_rows_new(sheaf_data *data);
/* sheaf__data_images_check - is every row's image whole, within --seq, and there at all where the
 * model cannot do without? Counts has and expert_rows. */
sheaf_status *sheaf__data_images_check(sheaf_data *data, const sheaf_config *config);
/* sheaf__data_images_rows - image_row and stream of a batch. */
void sheaf__data_images_rows(const sheaf_batch *batch, const sheaf_data *data, const int64_t *row,
                             int64_t n);
/* sheaf__data_images_positions - position ids from the patches: a counter that stands still at a
 * patch after a patch. */
void sheaf__data_images_positions(int32_t *position, const uint8_t *patch, int64_t n);

#endif
