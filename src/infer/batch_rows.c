/* batch_rows.c - see batch_rows.h. */
#include "infer/batch_rows.h"

#include "base/base.h"
#include "models/rope.h"

enum { SIZE = sizeof(int32_t) }; /* of a row, in each */

sheaf_status *sheaf__batch_rows_open(sheaf__batch_rows *out, const sheaf__model *m, int64_t batch,
                                     int64_t prompt, int64_t length)
{
    const sheaf_config *config = &m->schema->config;
    const bool again = sheaf__family_for(config)->reads_again && sheaf__rope_follows_length(config);
    const size_t images = (size_t)(batch * prompt) * SIZE,
                 all = again ? (size_t)(batch * length) * SIZE : images;
    sheaf__device *device = m->context->device;
    *out = (sheaf__batch_rows){ 0 };
    sheaf_status *st = sheaf__mirror_alloc(&out->ids, device, all, SHEAF_MEM_INPUTS);
    out->axes = sheaf__position_axes(config);
    TRY(st, sheaf__mirror_alloc(&out->position, device, all * (size_t)out->axes, SHEAF_MEM_INPUTS));
    if (sheaf__model_has_images(m))
        TRY(st, sheaf__mirror_alloc(&out->image_row, device, images, SHEAF_MEM_INPUTS));
    for (int i = 0; i < 2 && sheaf__model_has_images(m); i++)
        TRY(st, sheaf__mirror_alloc(&out->stream[i], device, images, SHEAF_MEM_INPUTS));
    return sheaf_in(st, "rows of %lld sequences", (long long)batch);
}

void sheaf__batch_rows_release(sheaf__batch_rows *rows, const sheaf__model *m)
{
    sheaf__mirror *const all[] = { &rows->ids, &rows->position, &rows->image_row, &rows->stream[0],
                                   &rows->stream[1] };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        sheaf__mirror_free(all[i], m->context->device);
}

sheaf__rows_in sheaf__batch_rows_in(const sheaf__batch_rows *rows)
{
    return (sheaf__rows_in){ .ids = rows->ids.device,
                             .position = rows->position.device,
                             .host = { .ids = rows->ids.host, .position = rows->position.host } };
}

sheaf_status *sheaf__batch_rows_upload(const sheaf__batch_rows *rows, sheaf__device *device,
                                       int64_t n)
{
    sheaf_status *st = sheaf__mirror_upload(&rows->ids, device, (size_t)n * SIZE);
    return TRY(st, sheaf__mirror_upload(&rows->position, device, (size_t)(n * rows->axes) * SIZE));
}

sheaf_status *sheaf__batch_rows_upload_images(const sheaf__batch_rows *rows, sheaf__device *device,
                                              int64_t image_rows, const int64_t stream[2])
{
    sheaf_status *st = sheaf__mirror_upload(&rows->image_row, device, (size_t)image_rows * SIZE);
    for (int i = 0; i < 2; i++)
        TRY(st, sheaf__mirror_upload(&rows->stream[i], device, (size_t)stream[i] * SIZE));
    return st;
}
