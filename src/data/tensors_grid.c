/* tensors_grid.c - images of a .safetensors file as Qwen-VL's processor gives them:
 *   pixel_values       [patches, channels * frames * patch * patch] of all pictures, each row by
 *                      row in squares of merge x merge patches, the picture in every frame
 *   image_grid_thw     [n, 3] of each: 1 (more is a video), patches down, patches across
 *   images_per_row     [rows] how many of these are of each row; may be absent
 *   mm_token_type_ids  [rows, length] 1 at the rows of a picture; may be absent
 *   position_ids       [3, rows, length]; may be absent
 *
 * A picture stands where input_ids has as many image tokens as it has squares. What could be
 * derived is compared: a difference is an error. */
#include "base/base.h"
#include "data/data_tensors.h"

static const char grids[] = "image_grid_thw", values[] = "pixel_values";
enum { MOST_PATCHES = 1 << 20 }; /* of a side */

/* ---- what is not read ---- */

static sheaf_status *no_videos(const char *where, const char *found)
{
    sheaf_status *st = sheaf_fail(SHEAF_E_UNSUPPORTED, "'%s'", where);
    sheaf_found(sheaf_expected(st, "pictures: videos are not read"), "%s", found);
    return sheaf_try_this(st, "leave the video out, or give frames of it as pictures");
}

static sheaf_status *check_videos(const sheaf__tensors *in)
{
    static const char *const names[] = { "pixel_values_videos", "video_grid_thw" };
    const int64_t video = in->config->image_mark.video, n = in->rows * in->length;
    for (int i = 0; i < 2; i++)
        if (sheaf__safetensors_find(in->file, names[i]) != NULL)
            return no_videos(names[i], "a tensor of this name");
    for (int64_t i = 0; i < n && video >= 0; i++)
        if (in->data->token[i] == video) {
            char found[96];
            snprintf(found, sizeof found,
                     "%" PRId64 ", video_token_id, in row %" PRId64 ", position %" PRId64, video,
                     i / in->length + 1, i % in->length + 1);
            return no_videos("input_ids", found);
        }
    return NULL;
}

/* ---- the grids ---- */

static sheaf_status *bad_grid(int64_t image, const int64_t grid[3], int64_t merge)
{
    if (grid[0] > 1)
        return no_videos(grids, "a grid of more than one frame");
    return sheaf_found(
        sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': image %" PRId64, grids, image + 1),
                       "1, and two multiples of %" PRId64 " up to %d", merge, MOST_PATCHES),
        "%" PRId64 ", %" PRId64 ", %" PRId64, grid[0], grid[1], grid[2]);
}

/* Sizes of all images, and where their patches begin. */
static sheaf_status *read_grids(sheaf__found_image *out, const sheaf__tensors *in,
                                const sheaf_safetensors_entry *pixels, int64_t (*grid)[3],
                                int64_t n)
{
    const sheaf__tower *t = &in->data->images->tower[0];
    int64_t patches = 0;
    for (int64_t i = 0; i < n; i++) {
        const int64_t *g = grid[i];
        if (g[0] != 1 || g[1] < 1 || g[2] < 1 || g[1] > MOST_PATCHES || g[2] > MOST_PATCHES ||
            g[1] % t->merge != 0 || g[2] % t->merge != 0)
            return bad_grid(i, g, t->merge);
        out[i] = (sheaf__found_image){ .pixels = { pixels },
                                       .item = patches,
                                       .height = g[1] * t->patch,
                                       .width = g[2] * t->patch };
        patches += g[1] * g[2];
    }
    return patches == pixels->shape[0]
               ? NULL
               : sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", values),
                                            "%" PRId64 " patches, as %s says", patches, grids),
                             "%" PRId64, pixels->shape[0]);
}

static sheaf_status *find_pixels(const sheaf_safetensors_entry **out, const sheaf__tensors *in)
{
    const sheaf__tower *t = &in->data->images->tower[0];
    const int64_t cols = t->channels * t->repeats * t->patch * t->patch;
    const sheaf_safetensors_entry *e = *out = sheaf__safetensors_find(in->file, values);
    if (e == NULL)
        return sheaf_found(
            sheaf__tensors_bad(values, "the patches of the images in image_grid_thw"),
            "no such tensor");
    sheaf_status *st = sheaf__pixels_check_type(e);
    if (st != NULL || (e->ndim == 2 && e->shape[1] == cols))
        return st;
    st = sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", values), "[patches, %" PRId64 "]", cols);
    return sheaf__tensors_shape(st, e);
}

/* ---- the places ---- */

static sheaf_status *check_per_row(const sheaf__tensors *in)
{
    int64_t *count, i = 0;
    sheaf_status *st = sheaf__tensors_per_row(&count, in);
    for (int64_t r = 0; r < in->rows && st == NULL && count != NULL; r++) {
        int64_t n = 0;
        for (; i < in->images && in->image[i].row == r; i++)
            n++;
        if (n != count[r])
            st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s': row %" PRId64,
                                                       SHEAF__PER_ROW, r + 1),
                                            "%" PRId64 ", the images that input_ids has there", n),
                             "%" PRId64, count[r]);
    }
    free(count);
    return st;
}

static sheaf_status *find(sheaf__tensors *in, sheaf__found_image *listed, int64_t (*grid)[3],
                          int64_t n)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, grids), *pixels = NULL;
    sheaf_status *st = check_videos(in);
    if (n > 0) {
        TRY(st, find_pixels(&pixels, in));
        TRY(st, sheaf__tensors_numbers_in(grid[0], in, e, 0, 3 * n));
        TRY(st, read_grids(listed, in, pixels, grid, n));
    }
    TRY(st, sheaf__marks_find(in, listed, n));
    if (st == NULL && in->images < n)
        st = sheaf_found(sheaf_expected(sheaf_fail(SHEAF_E_DATA, "'%s'", grids),
                                        "as many images as input_ids has places for, %" PRId64,
                                        in->images),
                         "%" PRId64, n);
    return TRY(st, check_per_row(in));
}

sheaf_status *sheaf__grid_find(sheaf__tensors *in)
{
    const sheaf_safetensors_entry *e = sheaf__safetensors_find(in->file, grids);
    sheaf_status *st = e == NULL ? NULL
                                 : sheaf__tensors_table(e, 2, (const int64_t[]){ -1, 3 },
                                                        "[images, 3]: 1, patches down, patches "
                                                        "across");
    if (st != NULL)
        return st;
    const int64_t n = e == NULL ? 0 : e->shape[0];
    int64_t(*grid)[3] = malloc(((size_t)n + 1) * sizeof *grid);
    sheaf__found_image *listed = malloc(((size_t)n + 1) * sizeof *listed);
    st = grid == NULL || listed == NULL ? sheaf__data_no_memory(n) : find(in, listed, grid, n);
    free(grid);
    free(listed);
    return st;
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
            const float *first = raw + p * cols + c * t->repeats * area;
            for (int64_t f = 1; f < t->repeats && st == NULL; f++)
                if (memcmp(first, first + f * area, (size_t)area * sizeof *first) != 0)
                    st = no_videos(values, "a patch whose frames differ");
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
    const bool image = in->data->token[index] == in->config->image_mark.patch,
               hidden = in->data->mask != NULL && in->data->mask[index] == 0;
    if (value == 2)
        return no_videos(name, "2, the type of a video's tokens");
    return hidden || value == image
               ? NULL
               : sheaf_expected(sheaf__tensors_bad_value(in, name, index, value),
                                image ? "1, as this is the token of an image"
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
