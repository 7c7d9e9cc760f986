/* tensors_grid.c - images of a .safetensors file as Qwen-VL's processor gives them:
 *   pixel_values         [patches, channels * frames * patch * patch] of all pictures, each row by
 *                        row in squares of merge x merge patches, the picture in every frame
 *   image_grid_thw       [n, 3] of each: 1, patches down, patches across
 *   pixel_values_videos  the same of videos, whose first number is that of groups of frames
 *   video_grid_thw
 *   second_per_grid_ts   [videos] seconds between these groups, of Qwen2.5-VL; without it 1
 *   images_per_row       [rows] how many of the pictures are of each row; may be absent
 *   mm_token_type_ids    [rows, length] 1 at the rows of a picture, 2 of a video; may be absent
 *   position_ids         [3, rows, length]; may be absent
 *
 * A picture stands where input_ids has as many image tokens as it has squares, a group of frames
 * where it has so many video tokens. What could be derived is compared: a difference is an error.
 */
#include "base/base.h"
#include "data/data_tensors.h"

enum { MOST_PATCHES = 1 << 20 /* of a side */, MOST_GROUPS = 1 << 16 };
static const char seconds[] = "second_per_grid_ts";

/* Of pictures, and of videos. */
static const struct {
    const char *grids, *values;
} of_kind[2] = { { "image_grid_thw", "pixel_values" },
                 { "video_grid_thw", "pixel_values_videos" } };

/* ---- the grids ---- */

static sheaf_status *bad_grid(int kind, int64_t image, const int64_t grid[3], int64_t merge)
{
    return sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': image %" PRId64,
                                                 of_kind[kind].grids, image + 1),
                                      "%s, and two multiples of %" PRId64 " up to %d",
                                      kind == 0 ? "1" : "groups of frames", merge, MOST_PATCHES),
                       "%" PRId64 ", %" PRId64 ", %" PRId64, grid[0], grid[1], grid[2]);
}

/* One line of a list: a picture, or the frames of all groups of a video, `step` positions apart. */
static sheaf_status *add_images(sheaf__listed *to, int64_t *capacity, int64_t *patches,
                                const sheaf__tower *t, const sheaf_safetensors_entry *pixels,
                                const int64_t g[3], float step)
{
    const bool video = to->name == of_kind[1].grids;
    const int64_t frames = video ? t->frames : 1;
    for (int64_t i = 0; i < g[0] * frames; i++) {
        const float number = (float)(i / frames) * step;
        if (!SHEAF_GROW(&to->image, capacity, to->count + 1))
            return sheaf__data_no_memory(to->count);
        to->image[to->count++] = (sheaf__found_image){ .pixels = { pixels },
                                                       .item = *patches,
                                                       .height = g[1] * t->patch,
                                                       .width = g[2] * t->patch,
                                                       .frame = video ? 1 + (int32_t)number : 0,
                                                       .joins = i % frames > 0,
                                                       .inside = i % frames };
        if (i % frames == frames - 1)
            *patches += g[1] * g[2];
    }
    return NULL;
}

/* [n] positions between two groups of frames, of videos. */
static sheaf_status *read_steps(float **out, const sheaf__tensors *in, int kind, int64_t n)
{
    const sheaf_safetensors_entry *e =
        kind == 0 ? NULL : sheaf__safetensors_find(in->file, seconds);
    const int64_t steps = in->config->qwen_vit.steps;
    sheaf_status *st =
        e == NULL || (e->ndim == 1 && e->shape[0] == n)
            ? NULL
            : sheaf__tensors_shape(sheaf__tensors_bad(seconds, "[videos], as video_grid_thw"), e);
    float *step = *out = malloc(((size_t)n + 1) * sizeof *step);
    if (st == NULL && step == NULL)
        st = sheaf__data_no_memory(n);
    for (int64_t i = 0; i < n && st == NULL; i++)
        step[i] = 1;
    if (e != NULL && steps > 0 && n > 0) {
        TRY(st, sheaf__pixels_check_type(e));
        TRY(st, sheaf__pixels_read(step, in->file, e, 0, n));
    }
    for (int64_t i = 0; i < n && st == NULL; i++) {
        if (!(step[i] >= 0 && step[i] <= SHEAF__MOST_FRAME / MOST_GROUPS))
            st = sheaf_found(sheaf__tensors_bad(seconds, "seconds from 0 to 256"), "%g",
                             (double)step[i]);
        step[i] *= (float)steps;
    }
    return st;
}

/* Sizes of all images, and where their patches begin. */
static sheaf_status *read_grids(sheaf__listed *out, const sheaf__tensors *in, int kind,
                                const sheaf_safetensors_entry *pixels, int64_t (*grid)[3],
                                const float *step, int64_t n)
{
    const sheaf__tower *t = &in->data->images->tower[0];
    const int64_t most = kind == 0 ? 1 : MOST_GROUPS;
    int64_t patches = 0, capacity = 0;
    sheaf_status *st = NULL;
    for (int64_t i = 0; i < n && patches <= INT64_MAX / 2; i++) {
        const int64_t *g = grid[i];
        if (g[0] < 1 || g[0] > most || g[1] < 1 || g[2] < 1 || g[1] > MOST_PATCHES ||
            g[2] > MOST_PATCHES || g[1] % t->merge != 0 || g[2] % t->merge != 0)
            return bad_grid(kind, i, g, t->merge);
        patches += g[0] * g[1] * g[2];
    }
    if (patches != pixels->shape[0]) {
        st = sheaf_fail(SHEAF_E_DATA, "'%s'", of_kind[kind].values);
        sheaf_expected(st, "%" PRId64 " patches, as %s says", patches, of_kind[kind].grids);
        return sheaf_found(st, "%" PRId64, pixels->shape[0]);
    }
    patches = 0;
    for (int64_t i = 0; i < n && st == NULL; i++)
        st = add_images(out, &capacity, &patches, t, pixels, grid[i], step[i]);
    return st;
}

static sheaf_status *find_pixels(const sheaf_safetensors_entry **out, const sheaf__tensors *in,
                                 int kind)
{
    const sheaf__tower *t = &in->data->images->tower[0];
    const char *values = of_kind[kind].values;
    const int64_t cols = t->channels * t->repeats * t->patch * t->patch;
    const sheaf_safetensors_entry *e = *out = sheaf__safetensors_find(in->file, values);
    if (e == NULL) {
        sheaf_status *none = sheaf_fail(SHEAF_E_DATA, "'%s'", values);
        sheaf_expected(none, "the patches of the images in %s", of_kind[kind].grids);
        return sheaf_found(none, "no such tensor");
    }
    sheaf_status *st = sheaf__pixels_check_type(e);
    if (st != NULL || (e->ndim == 2 && e->shape[1] == cols))
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", values), "[patches, %" PRId64 "]", cols);
    return sheaf__tensors_shape(st, e);
}

static sheaf_status *list_images(sheaf__listed *out, const sheaf__tensors *in, int kind)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, of_kind[kind].grids),
                                  *pixels = NULL;
    sheaf_status *st = NULL;
    out->name = of_kind[kind].grids;
    out->token = kind == 0 ? in->config->image_mark.patch : in->config->image_mark.video;
    if (e != NULL)
        st = sheaf__tensors_table(e, 2, (const int64_t[]){ -1, 3 },
                                  "[images, 3]: groups of frames, patches down, patches across");
    const int64_t n = e == NULL || st != NULL ? 0 : e->shape[0];
    int64_t(*grid)[3] = n == 0 ? NULL : malloc((size_t)n * sizeof *grid);
    float *step = NULL;
    if (n > 0 && grid == NULL)
        st = sheaf__data_no_memory(n);
    if (n > 0) {
        TRY(st, find_pixels(&pixels, in, kind));
        TRY(st, sheaf__tensors_numbers_in(grid[0], in, e, 0, 3 * n));
        TRY(st, read_steps(&step, in, kind, n));
        TRY(st, read_grids(out, in, kind, pixels, grid, step, n));
    }
    free(grid);
    free(step);
    return st;
}

/* ---- the places ---- */

static sheaf_status *check_per_row(const sheaf__tensors *in)
{
    int64_t *count, i = 0;
    sheaf_status *st = sheaf__tensors_per_row(&count, in);
    for (int64_t r = 0; r < in->rows && st == NULL && count != NULL; r++) {
        int64_t n = 0;
        for (; i < in->images && in->image[i].row == r; i++)
            n += in->image[i].frame == 0;
        if (n != count[r])
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64,
                                                       SHEAF__PER_ROW, r + 1),
                                            "%" PRId64 ", the images that input_ids has there", n),
                             "%" PRId64, count[r]);
    }
    free(count);
    return st;
}

sheaf_status *sheaf__grid_find(sheaf__tensors *in)
{
    sheaf__listed listed[2] = { { 0 } };
    sheaf_status *st = NULL;
    for (int kind = 0; kind < 2 && st == NULL; kind++)
        st = list_images(&listed[kind], in, kind);
    TRY(st, sheaf__marks_find(in, listed));
    for (int kind = 0; kind < 2; kind++) {
        const sheaf__listed *l = &listed[kind];
        if (st == NULL && l->used < l->count)
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", l->name),
                                            "as many images as input_ids has places for, %" PRId64,
                                            l->used),
                             "%" PRId64, l->count);
        free(l->image);
    }
    return TRY(st, check_per_row(in));
}

/* ---- pixels ---- */

sheaf_status *sheaf__grid_read(float *dst, const sheaf_safetensors *file,
                               const sheaf__found_image *image, const sheaf__tower *t)
{
    const int64_t area = t->patch * t->patch, cols = t->channels * t->repeats * area,
                  across = image->width / t->patch, patches = image->height / t->patch * across,
                  square = t->merge * t->merge, squares = across / t->merge;
    float *raw = malloc((size_t)(patches * cols) * sizeof *raw);
    if (raw == NULL)
        return sheaf__data_no_memory(patches * cols);
    sheaf_status *st = NULL;
    const sheaf_safetensors_entry *e = image->pixels[0];
    for (int64_t p = 0; p < patches && st == NULL; p++)
        st = sheaf__pixels_read(raw + p * cols, file, e, image->item + p, cols);
    for (int64_t p = 0; p < patches && st == NULL; p++) {
        const int64_t s = p / square, in = p % square,
                      y0 = (s / squares * t->merge + in / t->merge) * t->patch,
                      x0 = (s % squares * t->merge + in % t->merge) * t->patch;
        for (int64_t c = 0; c < t->channels && st == NULL; c++) {
            const float *first = raw + p * cols + (c * t->repeats + image->inside) * area;
            for (int64_t f = 1; f < t->repeats && image->frame == 0 && st == NULL; f++)
                if (memcmp(first, first + f * area, (size_t)area * sizeof *first) != 0)
                    st = sheaf_found(
                        sheaf__tensors_bad(e->name, "patches of pictures, in every frame the same"),
                        "a patch whose frames differ");
            for (int64_t y = 0; y < t->patch; y++)
                memcpy(dst + (c * image->height + y0 + y) * image->width + x0, first + y * t->patch,
                       (size_t)t->patch * sizeof *dst);
        }
    }
    free(raw);
    return st;
}

/* ---- positions and types ---- */

static sheaf_status *take_type(sheaf__tensors *in, const char *name, int64_t index, int64_t value)
{
    const int32_t token = in->data->token[index];
    const bool hidden = in->data->mask != NULL && in->data->mask[index] == 0;
    const int64_t want = token == in->config->image_mark.patch   ? 1
                         : token == in->config->image_mark.video ? 2
                                                                 : 0;
    return hidden || value == want
               ? NULL
               : sheaf_expected(sheaf__tensors_bad_value(in, name, index, value),
                                want == 1   ? "1, as this is the token of an image"
                                : want == 2 ? "2, as this is the token of a video"
                                            : "0, as this is no token of an image");
}

/* Of one row, on all axes. */
static sheaf_status *check_row(const sheaf__tensors *in, const sheaf_safetensors_entry *e,
                               int64_t row, int32_t *own, int64_t *stored)
{
    static const char *const axis[] = { "time", "row", "column" };
    const int64_t n = in->length;
    const uint8_t *mask = in->data->mask == NULL ? NULL : in->data->mask + row * n;
    sheaf_status *st = sheaf__data_images_axes(own, n, n, in->data, row);
    for (int a = 0; a < 3 && st == NULL; a++) {
        st = sheaf__tensors_numbers_in(stored, in, e, (a * in->rows + row) * n, n);
        for (int64_t t = 0; t < n && st == NULL; t++)
            if ((mask == NULL || mask[t] != 0) && stored[t] != own[a * n + t])
                st = sheaf_found(
                    sheaf_expected(
                        sheaf_fail(SHEAF_E_DATA, "'%s': %s, row %" PRId64 ", position %" PRId64,
                                   e->name, axis[a], row + 1, t + 1),
                        "%" PRId32 ", as the pictures of the row have it", own[a * n + t]),
                    "%" PRId64, stored[t]);
    }
    return st;
}

sheaf_status *sheaf__grid_check(sheaf__tensors *in)
{
    static const char types[] = "mm_token_type_ids";
    const int64_t n = in->length, places[3] = { 3, in->rows, n };
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, "position_ids"),
                                  *kind = sheaf__safetensors_find(in->file, types);
    sheaf_status *st = kind == NULL ? NULL
                                    : sheaf__tensors_table(kind, 2, places + 1,
                                                           "[rows, length], the shape of "
                                                           "input_ids");
    if (kind != NULL)
        TRY(st, sheaf__tensors_each(in, types, take_type));
    if (st != NULL || e == NULL)
        return st;
    st = sheaf__tensors_table(e, 3, places, "[3, rows, length]: time, row, column");
    int32_t *own = malloc((size_t)(3 * n) * sizeof *own);
    int64_t *stored = malloc((size_t)n * sizeof *stored);
    if (st == NULL && (own == NULL || stored == NULL))
        st = sheaf__data_no_memory(n);
    for (int64_t r = 0; r < in->rows && st == NULL; r++)
        st = check_row(in, e, r, own, stored);
    free(own);
    free(stored);
    return st;
}
