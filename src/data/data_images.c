/* data_images.c - see data_images.h. */
#include "data/data_images.h"

#include "base/base.h"
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
    images->place = sheaf__family_for(config)->image;
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
    free(images->first);
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
    images->first = calloc((size_t)data->rows + 1, sizeof *images->first);
    images->expert_rows = calloc((size_t)data->rows + 1, sizeof *images->expert_rows);
    images->hash = calloc((size_t)data->rows + 1, sizeof *images->hash);
    const bool made = images->embed != NULL && images->expert != NULL && images->first != NULL &&
                      images->expert_rows != NULL && images->hash != NULL;
    return made ? NULL : sheaf__data_no_memory(data->tokens);
}

/* Do the images of a row take the positions that it has for them? Where all are of the towers' own
 * size, these say how many there are. */
static sheaf_status *check_count(sheaf__data_images *images, const sheaf_config *config,
                                 int64_t row, int64_t embed)
{
    const int64_t whole = sheaf__image_positions(config), most = images->place.most;
    if (images->at == NULL)
        images->first[row + 1] = images->first[row] + embed / whole;
    const sheaf__picture_counts counts = sheaf__data_images_counts(images, row);
    const int64_t all = sheaf__counts_positions(config, &counts);
    if (all == embed && counts.groups <= most)
        return NULL;
    if (all == embed && most == 1) {
        sheaf_status *many = sheaf_fail(SHEAF_E_DATA, "row %" PRId64 ": pictures", row + 1);
        sheaf_expected(many, "one at most: this model reads no more in a sequence");
        return sheaf_try_this(sheaf_found(many, "%" PRId64, counts.groups),
                              "a record for each picture");
    }
    sheaf_status *st = sheaf_fail(SHEAF_E_DATA, "row %" PRId64 ": the image's positions", row + 1);
    if (images->at != NULL)
        sheaf_expected(st, "%" PRId64 ", of %" PRId64 " pictures and groups of frames", all,
                       counts.groups);
    else
        sheaf_expected(st, "none or %" PRId64 ": BOI, patches and EOI", whole);
    return sheaf_found(st, "%" PRId64, embed);
}

static sheaf_status *check_row(sheaf_data *data, const sheaf_config *config, int64_t row)
{
    sheaf__data_images *images = data->images;
    const int64_t begin = data->begin[row], end = data->begin[row + 1];
    int64_t embed = 0, last = 0;
    for (int64_t i = begin; i < end; i++) {
        embed += images->embed[i];
        images->expert_rows[row] += images->expert[i];
        if (images->embed[i] || images->expert[i])
            last = i - begin + 1;
    }
    sheaf_status *st = check_count(images, config, row, embed);
    if (st != NULL)
        return st;
    if (embed == 0 && images->expert_rows[row] > 0)
        return sheaf_found(
            sheaf_expected(sheaf_fail(SHEAF_E_DATA, "row %" PRId64 ": vision_expert_mask", row + 1),
                           "nothing marked in a row without an image"),
            "%" PRId32 " positions", images->expert_rows[row]);
    if (last > data->seq) {
        st = sheaf_fail(SHEAF_E_DATA, "row %" PRId64 ": the image", row + 1);
        sheaf_expected(st, "an end within %" PRId64 " positions, the value of `seq`", data->seq);
        return sheaf_try_this(sheaf_found(st, "its last is position %" PRId64, last),
                              "`seq %" PRId64 "` or more", last);
    }
    if (embed == 0 && images->place.needed) {
        st = sheaf_fail(SHEAF_E_DATA, "row %" PRId64, row + 1);
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
    if (data->images->first == NULL) /* a reader without images */
        st = sheaf__data_images_rows_new(data);
    for (int64_t r = 0; r < data->rows && st == NULL; r++)
        st = check_row(data, config, r);
    return st;
}

void sheaf__batch_streams_add(sheaf__batch_streams *to, const uint8_t *embed, const uint8_t *expert,
                              int64_t length, int64_t at, int64_t seq)
{
    for (int64_t t = 0; t < seq; t++) {
        const int stream = t < length && expert != NULL && expert[t];
        if (to->image_row != NULL && t < length && embed != NULL && embed[t])
            to->image_row[to->images++] = (int32_t)(at + t);
        if (to->stream[stream] != NULL)
            to->stream[stream][to->count[stream]++] = (int32_t)(at + t);
    }
}

void sheaf__data_images_rows(const sheaf_batch *batch, const sheaf_data *data, const int64_t *row,
                             int64_t n)
{
    const int64_t seq = batch->seq > 0 ? batch->seq : data->seq;
    sheaf__batch_streams to = { batch->image_row, { batch->stream[0], batch->stream[1] } };
    for (int64_t i = 0; i < n; i++) {
        int64_t own = row[i];
        const sheaf_data *part = sheaf__data_set_of(data, &own);
        const int64_t begin = own < 0 ? 0 : part->begin[own];
        sheaf__batch_streams_add(&to, part->images->embed + begin, part->images->expert + begin,
                                 own < 0 ? 0 : part->begin[own + 1] - begin, i * seq, seq);
    }
}

/* ---- frames of videos ---- */

void sheaf__data_images_hash_frame(sheaf_hasher *hasher, int32_t frame, bool joins)
{
    const int32_t pair[2] = { frame, joins };
    if (frame > 0)
        sheaf__hasher_add(hasher, pair, sizeof pair);
}

sheaf_status *sheaf__no_videos(const sheaf_config *config)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "video");
    sheaf_expected(st, "none: %s reads no videos", sheaf__config_title(config));
    sheaf_found(st, "one");
    return sheaf_try_this(st, "its frames as pictures, each for itself");
}

/* ---- numbers and sizes ---- */

/* Without pixels. */
static sheaf__picture picture_of(const sheaf__data_images *images, int64_t row, int64_t i)
{
    sheaf__picture picture;
    float *none[SHEAF__MOST_TOWERS] = { NULL };
    if (images->at != NULL)
        return images->at(images->self, row, i);
    sheaf__picture_place(&picture, 1, none, images->tower, images->towers);
    return picture;
}

sheaf__picture_counts sheaf__data_images_counts(const sheaf__data_images *images, int64_t row)
{
    sheaf__picture_counts counts = { 0 };
    int64_t largest[SHEAF__MOST_TOWERS] = { 0 };
    for (int64_t i = 0; i < sheaf__data_images_of(images, row); i++) {
        const sheaf__picture picture = picture_of(images, row, i);
        sheaf__counts_see(&counts, largest, &picture, images->tower, images->towers);
    }
    return counts;
}

sheaf__picture_counts sheaf_data_images_room(const sheaf_data *data, const sheaf_config *config,
                                             int64_t n)
{
    sheaf__picture_counts room = { 0 }, most = { 0 };
    if (data->images == NULL || data->images->place.most == 1)
        return sheaf__counts_ordinary(config, n);
    for (int64_t r = 0; r < data->rows; r++) {
        int64_t row = r;
        const sheaf_data *set = sheaf__data_set_of(data, &row);
        const sheaf__picture_counts own = sheaf__data_images_counts(set->images, row);
        sheaf__counts_reach(&most, &own, true);
    }
    sheaf__counts_add(&room, &most, n);
    return room;
}

/* The most of n samples that can be among `count` rows out of `rows`: whole epochs, and the end and
 * the beginning of two others. */
static int64_t at_most(int64_t n, int64_t count, int64_t rows)
{
    const int64_t epochs = n / rows, rest = n % rows, ends = rest < 2 * count ? rest : 2 * count;
    const int64_t sum = epochs * count + (epochs > 0 && ends < count ? count : ends);
    return sum < n ? sum : n;
}

/* Minimum and maximum over the rows. */
typedef struct row_range {
    int64_t with;                       /* rows with an image */
    sheaf__picture_counts fewest, most; /* of such a row */
    int64_t widest, longest[2]; /* rows of experts; positions of rows without and with an image */
} row_range;

static void add_row_range(row_range *of, const sheaf_data *data, int64_t r)
{
    data = sheaf__data_set_of(data, &r);
    const sheaf__data_images *images = data->images;
    const bool has = images != NULL && sheaf__data_images_of(images, r) > 0;
    const int64_t used = sheaf__data_used_by(data, r);
    of->longest[has] = used > of->longest[has] ? used : of->longest[has];
    if (!has)
        return;
    const sheaf__picture_counts own = sheaf__data_images_counts(images, r);
    if (of->with++ == 0)
        of->fewest = own;
    sheaf__counts_reach(&of->fewest, &own, false);
    sheaf__counts_reach(&of->most, &own, true);
    of->widest = images->expert_rows[r] > of->widest ? images->expert_rows[r] : of->widest;
}

void sheaf_data_images_range(sheaf_batch_images *fewest, sheaf_batch_images *most,
                             const sheaf_data *data, int64_t n)
{
    row_range of = { .longest = { 1, 1 } };
    for (int64_t r = 0; r < data->rows; r++)
        add_row_range(&of, data, r);
    if (data->images == NULL)
        of.longest[0] = data->longest;
    int64_t few = n - at_most(n, data->rows - of.with, data->rows),
            many = at_most(n, of.with, data->rows);                      /* rows with an image */
    if (data->repeats || (data->sets != NULL && data->sets->weighted)) { /* any may come again */
        few = of.with == data->rows ? n : 0;
        many = of.with == 0 ? 0 : n;
    }
    *fewest = (sheaf_batch_images){ .image_rows = few * of.widest };
    *most = (sheaf_batch_images){ .image_rows = many * of.widest };
    sheaf__counts_add(&fewest->pictures, &of.fewest, few);
    sheaf__counts_add(&most->pictures, &of.most, many);
    fewest->seq = few > 0 ? data->longest : of.longest[0];
    most->seq = many < n || of.with == 0 ? data->longest : of.longest[1];
}

sheaf_status *sheaf__data_images_share_positions(sheaf_data *data, const sheaf_config *config)
{
    if (!data->images->place.one_position)
        return NULL;
    data->position = malloc(((size_t)data->tokens + 1) * sizeof *data->position);
    if (data->position == NULL)
        return sheaf__data_no_memory(data->tokens);
    for (int64_t r = 0; r < data->rows; r++)
        sheaf__image_shared_positions(data->position + data->begin[r],
                                      data->images->embed + data->begin[r],
                                      data->begin[r + 1] - data->begin[r], config);
    return NULL;
}

sheaf_status *sheaf__data_images_axes(int32_t *position, int64_t stride, int64_t n,
                                      const sheaf_data *data, int64_t row)
{
    const sheaf__data_images *images = data->images;
    const int64_t begin = data->begin[row],
                  count = images == NULL ? 0 : sheaf__data_images_of(images, row);
    sheaf__picture *picture = malloc((size_t)count * sizeof *picture + 1);
    if (picture == NULL)
        return sheaf__data_no_memory(n);
    if (count > 0)
        sheaf_data_row_sizes(picture, count, data, row);
    sheaf__grid_positions(position, stride, n, images == NULL ? NULL : images->embed + begin,
                          data->mask == NULL ? NULL : data->mask + begin, picture,
                          images == NULL ? NULL : images->tower);
    free(picture);
    return NULL;
}

/* ---- pixels ---- */

/* The sizes of a row's images into `picture`; of a ragged tower their pixels lie one after the
 * other in `next`, up to `room` floats. */
static sheaf_status *lay_out(sheaf__picture *picture, float *next[SHEAF__MOST_TOWERS],
                             int64_t room[SHEAF__MOST_TOWERS], const sheaf__data_images *images,
                             int64_t row, int64_t at)
{
    const int64_t count = sheaf__data_images_of(images, row);
    for (int64_t i = 0; i < count; i++, picture++) {
        const sheaf__picture is = picture_of(images, row, i);
        picture->row = at;
        picture->frame = is.frame;
        picture->joins = is.joins;
        for (int t = 0; t < images->towers; t++) {
            if (!images->tower[t].ragged)
                continue;
            const int64_t numbers = sheaf__view_numbers(&is.of[t], &images->tower[t]);
            if (numbers > room[t])
                return sheaf_fail(SHEAF_E_ARG, "room for images: less than they need");
            picture->of[t] = (sheaf__view){ next[t], is.of[t].height, is.of[t].width };
            next[t] += numbers;
            room[t] -= numbers;
        }
        if (sheaf__picture_misfit(picture, images->tower, images->towers) >= 0)
            return sheaf_fail(SHEAF_E_ARG, "room for an image: not of the towers' sizes");
    }
    return NULL;
}

sheaf_status *sheaf_data_pixels(const sheaf_batch *batch, const sheaf_data *data,
                                const int64_t *row, int64_t n)
{
    sheaf__picture *next = batch->picture;
    float *pixels[SHEAF__MOST_TOWERS] = { NULL };
    int64_t room[SHEAF__MOST_TOWERS];
    sheaf_status *st = NULL;
    memcpy(room, batch->room, sizeof room);
    for (int64_t i = 0; i < n && data->images != NULL && st == NULL; i++) {
        int64_t own = row[i];
        const sheaf__data_images *images = sheaf__data_set_of(data, &own)->images;
        const int64_t count = own < 0 ? 0 : sheaf__data_images_of(images, own);
        for (int t = 0; t < images->towers && next == batch->picture && count > 0; t++)
            pixels[t] = next->of[t].pixels;
        st = count == 0 ? NULL : lay_out(next, pixels, room, images, own, i);
        TRY(st, count == 0 ? NULL : images->load(images->self, own, next));
        next += count;
    }
    return st;
}

int64_t sheaf__data_images_memory(const sheaf_data *data)
{
    const sheaf__data_images *images = data->images;
    return images->memory + data->rows * (int64_t)(sizeof *images->hash + sizeof *images->first +
                                                   sizeof *images->expert_rows);
}

void sheaf_data_row_sizes(sheaf__picture *out, int64_t n, const sheaf_data *data, int64_t row)
{
    const sheaf__data_images *images = sheaf__data_set_of(data, &row)->images;
    for (int64_t i = 0; i < n; i++)
        out[i] = picture_of(images, row, i);
}

/* Either all images of a row are read, or none. */
sheaf_status *sheaf_data_row_pixels(const sheaf__picture *picture, int64_t n,
                                    const sheaf_data *data, int64_t row)
{
    const sheaf__data_images *images = sheaf__data_set_of(data, &row)->images;
    const int64_t count = images == NULL ? 0 : sheaf__data_images_of(images, row);
    if (n == count)
        return n == 0 ? NULL : images->load(images->self, row, picture);
    if (n > count)
        return sheaf_fail(SHEAF_E_ARG, "more images than the row has");
    sheaf__picture *sizes = malloc((size_t)count * sizeof *sizes), *all = NULL;
    if (sizes != NULL) {
        for (int64_t i = 0; i < count; i++)
            sizes[i] = picture_of(images, row, i);
        all = sheaf__picture_room_like(sizes, count, images->tower, images->towers);
    }
    sheaf_status *st =
        all == NULL ? sheaf__data_no_memory(0) : images->load(images->self, row, all);
    for (int64_t i = 0; i < n && st == NULL; i++)
        for (int t = 0; t < images->towers; t++)
            memcpy(picture[i].of[t].pixels, all[i].of[t].pixels,
                   (size_t)sheaf__view_numbers(&all[i].of[t], &images->tower[t]) * sizeof(float));
    free(sizes);
    free(all);
    return st;
}
