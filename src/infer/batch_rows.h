/* batch_rows.h - the rows that a batch of prompts is read with: arrays that the host fills, and the
 * device's side of them. A plan takes the same. */
#pragma once

#include "models/model.h"

typedef struct sheaf__batch_rows {
    sheaf__mirror ids, position;        /* int32, by sequence; positions axis by axis */
    int64_t axes;                       /* of positions */
    sheaf__mirror image_row, stream[2]; /* as in sheaf__images_in; of a model with images */
} sheaf__batch_rows;

/* sheaf__batch_rows_open - for `batch` sequences whose prompts have at most `prompt` rows, and
 * which grow to `length` of them. Release also after a failure. */
sheaf_status *sheaf__batch_rows_open(sheaf__batch_rows *out, const sheaf__model *model,
                                     int64_t batch, int64_t prompt, int64_t length);
void sheaf__batch_rows_release(sheaf__batch_rows *rows, const sheaf__model *model);
/* sheaf__batch_rows_in - of the first runs; the caller sets keys. */
sheaf__rows_in sheaf__batch_rows_in(const sheaf__batch_rows *rows);
/* sheaf__batch_rows_upload - ids and positions of the first n rows; _images - so many rows that
 * hold images, and so many of either stream. */
sheaf_status *sheaf__batch_rows_upload(const sheaf__batch_rows *rows, sheaf__device *device,
                                       int64_t n);
sheaf_status *sheaf__batch_rows_upload_images(const sheaf__batch_rows *rows, sheaf__device *device,
                                              int64_t image_rows, const int64_t stream[2]);
