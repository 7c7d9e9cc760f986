/* data_images.c - see data_images.h. */
#include "data/data_images.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "data/data_rows.h"
#include "schema/family.h"

sheaf_status *sheaf__data_images_new(sheaf__data_images **out, const sheaf_config *config)
{
    *out = NULL;
    sheaf__tower tower[SHEAF__MOST_TOWERS];
    const int towers = sheaf__towers_of(tower, config);
    if (towers == 0)
        return NULL;
    sheaf__data_images *images = calloc(1, sizeof *images);
    if (images == NULL)
        return sheaf__data_no_memory(0);
    memcpy(images->tower, tower, (size_t)towers * sizeof *tower);
    images->towers = towers;
    images->needed = sheaf__family_for(config)->image.needed;
    *out = images;
    return NULL;
}

void sheaf__data_images_free(sheaf__data_images *images)
{
    if (images == NULL)
        return;
    if (images->close != NULL)
        images->close(images->self);
    free(images->embed);
    free(images->expert);
    free(images->has);
    free(images->expert_rows);
    free(images->hash);
    free(images);
}

sheaf_status *sheaf__data_images_rows_new(sheaf_data *data)
{
    sheaf__data_images *images = data->images;
    if (images->embed == NULL)
        images->embed = calloc((size_t)data->tokens + 1, 1);
    if (images->expert == NULL)
        images->expert = calloc((size_t)data->tokens + 1, 1);
    images->has = calloc((size_t)data->rows + 1, sizeof *images->has);
    images->expert_rows = calloc((size_t)data->rows + 1, sizeof *images->expert_rows);
    images->hash = calloc((size_t)data->rows + 1, sizeof *images->hash);
    const bool made = images->embed != NULL && images->expert != NULL && images->has != NULL &&
                      images->expert_rows != NULL && images->hash != NULL;
    return made ? NULL : sheaf__data_no_memory(data->tokens);
}

static sheaf_status *check_row(sheaf_data *data, const sheaf_config *config, int64_t row)
{
    sheaf__data_images *images = data->images;
    const int64_t begin = data->begin[row], end = data->begin[row + 1],
                  whole = sheaf__image_positions(config);
    int64_t embed = 0, last = 0;
    for (int64_t i = begin; i < end; i++) {
        embed += images->embed[i];
        images->expert_rows[row] += images->expert[i];
        if (images->embed[i] || images->expert[i])
            last = i - begin + 1;
    }
    images->has[row] = embed > 0;
    if (embed != 0 && embed != whole) {
        sheaf_status *st = sheaf_expected(
            sheaf_fail(SHEAF_E_DATA, "row %" PRId64 ": the image's positions", row + 1),
            "none or %" PRId64 ": BOI, %" PRId64 " patches and EOI", whole,
            images->tower[0].patches);
        return sheaf_found(st, "%" PRId64, embed);
    }
    if (embed == 0 && images->expert_rows[row] > 0)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "row %" PRId64 ": vision_expert_mask", row + 1),
                           "nothing marked in a row without an image"),
            "%" PRId32 " positions", images->expert_rows[row]);
    if (last > data->seq) {
        sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "row %" PRId64 ": the image", row + 1);
        sheaf_expected(st, "an end within %" PRId64 " positions, the value of --seq", data->seq);
        return sheaf_try_this(sheaf_found(st, "its last is position %" PRId64, last),
                              "--seq %" PRId64 " or more", last);
    }
    if (embed == 0 && images->needed) {
        sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "row %" PRId64, row + 1);
        sheaf_expected(st, "an image: the cross-attention of %s looks at it in every row",
                       sheaf_family_name(config->family));
        return sheaf_found(st, "none");
    }
    return NULL;
}

sheaf_status *sheaf__data_images_check(sheaf_data *data, const sheaf_config *config)
{
    sheaf_status *st = NULL;
    if (data->images == NULL)
        return NULL;
    if (data->images->has == NULL) /* a reader that knows no images */
        st = sheaf__data_images_rows_new(data);
    for (int64_t r = 0; r < data->rows && st == NULL; r++)
        st = check_row(data, config, r);
    return st;
}

void sheaf__data_images_rows(const sheaf_batch *batch, const sheaf_data *data, const int64_t *row,
                             int64_t n)
{
    const sheaf__data_images *images = data->images;
    const int64_t seq = batch->seq > 0 ? batch->seq : data->seq;
    int64_t image = 0, count[2] = { 0 };
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = row[i] < 0 ? 0 : data->begin[row[i]],
                      length = row[i] < 0 ? 0 : data->begin[row[i] + 1] - begin;
        for (int64_t t = 0; t < seq; t++) {
            const int32_t at = (int32_t)(i * seq + t);
            const int stream = t < length && images->expert[begin + t];
            if (batch->image_row != NULL && t < length && images->embed[begin + t])
                batch->image_row[image++] = at;
            if (batch->stream[stream] != NULL)
                batch->stream[stream][count[stream]++] = at;
        }
    }
}

/* Most of n samples that are one of `count` rows out of `rows`: whole epochs, and the end and the
 * beginning of two others. */
static int64_t at_most(int64_t n, int64_t count, int64_t rows)
{
    const int64_t epochs = n / rows, rest = n % rows, ends = rest < 2 * count ? rest : 2 * count;
    const int64_t sum = epochs * count + (epochs > 0 && ends < count ? count : ends);
    return sum < n ? sum : n;
}

void sheaf_data_images_range(sheaf_batch_images *fewest, sheaf_batch_images *most,
                             const sheaf_data *data, int64_t n)
{
    const sheaf__data_images *images = data->images;
    int64_t with = 0, widest = 0, longest[2] = { 1, 1 }; /* of rows without and with an image */
    for (int64_t r = 0; r < data->rows; r++) {
        const bool has = images != NULL && images->has[r];
        const int64_t used = sheaf__data_used_by(data, r);
        longest[has] = used > longest[has] ? used : longest[has];
        if (images == NULL)
            continue;
        with += has;
        widest = images->expert_rows[r] > widest ? images->expert_rows[r] : widest;
    }
    if (images == NULL)
        longest[0] = data->longest;
    fewest->images = n - at_most(n, data->rows - with, data->rows);
    most->images = at_most(n, with, data->rows);
    fewest->image_rows = fewest->images * widest;
    most->image_rows = most->images * widest;
    for (int t = 0; t < SHEAF__MOST_TOWERS; t++) {
        const int64_t each = images != NULL && t < images->towers ? images->tower[t].patches : 0;
        fewest->patches[t] = fewest->images * each;
        most->patches[t] = most->images * each;
    }
    fewest->seq = fewest->images > 0 ? data->longest : longest[0];
    most->seq = most->images < n || with == 0 ? data->longest : longest[1];
}

void sheaf__data_images_positions(int32_t *position, const uint8_t *patch, int64_t n)
{
    int32_t next = 0;
    for (int64_t t = 0; t < n; t++) {
        next += t > 0 && !(patch[t] && patch[t - 1]);
        position[t] = next;
    }
}
